//! Wall clocks of the two nodes that can be stepped without root: libfaketime, preloaded.

use std::path::{Path, PathBuf};
use std::time::Duration;

use monolock_failover_core::NodeId;
use monolock_protocol::WallTime;

use super::pair::{Pair, PairError};
use crate::operator::PairStatus;

/// The wall clocks of both nodes.
#[derive(Debug)]
pub(super) struct Clocks {
    folder: PathBuf,
}

/// How a clock is set against the machine's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Right,
    Forward,
    Back,
}

/// How far a clock is stepped, in seconds: far beyond what any check of clocks tolerates.
pub(super) const STEP_SECONDS: i64 = 3_600;

impl Clocks {
    /// Tells the nodes of the pair, which do not run yet, to read clocks that can be stepped.
    pub(super) fn attach(pair: &mut Pair, library: &Path, folder: &Path) -> Result<Self, PairError> {
        let clocks = Self {
            folder: folder.to_owned(),
        };
        for node in [NodeId::A, NodeId::B] {
            clocks.set(node, Step::Right)?;
            pair.set(node, "LD_PRELOAD", library);
            pair.set(node, "FAKETIME_TIMESTAMP_FILE", clocks.file(node));
            pair.set(node, "FAKETIME_NO_CACHE", "1");
            pair.set(node, "DONT_FAKE_MONOTONIC", "1");
        }
        Ok(clocks)
    }

    /// Steps a node's wall clock; it reads the new time from then on.
    pub(super) fn set(&self, node: NodeId, step: Step) -> Result<(), PairError> {
        let staged = self.folder.join(format!("{node}.clock.next"));
        // In one step: half a file would be read as another time.
        std::fs::write(&staged, format!("{:+}\n", step.seconds()))
            .and_then(|()| std::fs::rename(&staged, self.file(node)))
            .map_err(PairError::system(format!("step the clock of node {node}")))
    }

    fn file(&self, node: NodeId) -> PathBuf {
        self.folder.join(format!("{node}.clock"))
    }
}

impl Step {
    const fn seconds(self) -> i64 {
        match self {
            Self::Right => 0,
            Self::Forward => STEP_SECONDS,
            Self::Back => -STEP_SECONDS,
        }
    }

    /// Whether a node reads this time, to within a minute; `None` when it gave no status.
    pub(super) fn is_read_by(self, node: NodeId, status: &PairStatus, wall: WallTime) -> Option<bool> {
        let report = status.nodes.iter().find(|report| report.node == node)?;
        let read = report.status.as_ref()?.wall_nanos;
        let offset = i128::from(read) - i128::from(wall.unix_nanos());
        let expected = i128::from(self.seconds()) * 1_000_000_000;
        Some((offset - expected).unsigned_abs() < TOLERANCE.as_nanos())
    }
}

/// The preload library, where distributions put it.
pub(super) fn find_libfaketime() -> Option<PathBuf> {
    let mut candidates = Vec::new();
    for root in ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(Path::new) {
        candidates.push(root.join("faketime"));
        for folder in std::fs::read_dir(root).into_iter().flatten().flatten() {
            candidates.push(folder.path().join("faketime"));
        }
    }
    candidates
        .into_iter()
        .map(|folder| folder.join("libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}

/// Between a node's reading and ours.
const TOLERANCE: Duration = Duration::from_secs(60);
