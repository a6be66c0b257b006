//! What happened in a takeover or handover, step by step: one JSON line each, in a file and in the log.
//!
//! Writing never holds a node up and never fails it: lines go through a bounded queue to a thread of their own, and what
//! does not fit or cannot be written is counted, and the count is written with the next line. The file is for people and
//! programs to read afterwards; nothing is recovered from it.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("journal");
//! use monolock_failover::core::{JournalEntry, NodeId, TakeoverBasis, Term};
//! use monolock_failover::journal::{Journal, Step};
//!
//! let journal = Journal::open(NodeId::B, Some(&path))?;
//! journal.record(Step::from(&JournalEntry::DeathProven { term: Term(7), basis: TakeoverBasis::Crash }));
//! journal.record(Step::new("name_published").in_term(Term(8)).with_detail("192.0.2.2"));
//! assert_eq!(journal.recent().len(), 2);
//! journal.close();
//! assert_eq!(std::fs::read_to_string(&path)?.lines().count(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use monolock_clock::{boot_now, wall_now};
use monolock_failover_core::{JournalEntry, NodeId, Term};
use monolock_protocol::BootInstant;
use serde::{Deserialize, Serialize};

use crate::durable_file::beside;

/// One step of a takeover or handover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    name: &'static str,
    term: Option<Term>,
    basis: Option<&'static str>,
    took: Option<Duration>,
    detail: Option<String>,
    happened_at: Option<BootInstant>,
}

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLine {
    /// The wall clock, UTC.
    pub time: String,
    /// The node that writes.
    pub node: NodeId,
    /// Counts the takeovers and handovers of this life of the node: steps of one number belong together.
    pub timeline: u64,
    /// Milliseconds since the first step of the timeline.
    pub at_ms: u64,
    /// When it was decided on the machine's boot clock, in nanoseconds. A node that was frozen notices late that its
    /// authority has lapsed; this is when it did.
    #[serde(default)]
    pub boot_nanos: u64,
    /// What happened.
    pub step: String,
    /// The term it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<Term>,
    /// The argument that carried it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<String>,
    /// How long the step itself took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How many lines before this one were lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

/// Why the journal cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("the journal {} cannot be opened: {source}: its folder must exist and be writable by this user", path.display())]
pub struct JournalError {
    path: PathBuf,
    source: io::Error,
}

/// The journal of one node.
#[derive(Debug)]
pub struct Journal {
    node: NodeId,
    progress: Mutex<Progress>,
    writer: Option<Writer>,
}

#[derive(Debug, Default)]
struct Progress {
    timeline: u64,
    began: Option<BootInstant>,
    last: Option<BootInstant>,
    recent: VecDeque<JournalLine>,
    lost: u64,
}

#[derive(Debug)]
struct Writer {
    lines: SyncSender<JournalLine>,
    thread: JoinHandle<()>,
}

impl Step {
    /// A step of this name, for example `name_published`.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            term: None,
            basis: None,
            took: None,
            detail: None,
            happened_at: None,
        }
    }

    /// The term it is about.
    #[must_use]
    pub const fn in_term(mut self, term: Term) -> Self {
        self.term = Some(term);
        self
    }

    /// How long it took.
    #[must_use]
    pub const fn that_took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }

    /// Anything else.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// When it happened, at the latest; without this, when it is written down.
    #[must_use]
    pub fn that_happened_by(mut self, at: BootInstant) -> Self {
        self.happened_at = Some(self.happened_at.map_or(at, |earlier| earlier.min(at)));
        self
    }

    /// The argument that carried it.
    #[must_use]
    pub const fn because_of(mut self, basis: &'static str) -> Self {
        self.basis = Some(basis);
        self
    }

    /// Whether a new timeline begins with it.
    fn begins_a_timeline(&self) -> bool {
        matches!(self.name, SUSPECTED | HANDOVER_STARTED)
    }
}

impl From<&JournalEntry> for Step {
    fn from(entry: &JournalEntry) -> Self {
        match entry {
            JournalEntry::Suspected { term } => Self::new(SUSPECTED).in_term(*term),
            JournalEntry::DeathProven { term, basis } => Self::new("death_proven")
                .in_term(*term)
                .because_of(basis.as_str()),
            JournalEntry::ProofVoid { term } => Self::new("proof_void").in_term(*term),
            JournalEntry::TakeoverStarted { term, basis } => Self::new("takeover_started")
                .in_term(*term)
                .because_of(basis.as_str()),
            JournalEntry::TakeoverLost { term } => Self::new("takeover_lost").in_term(*term),
            JournalEntry::BecameActive {
                term,
                basis,
                first_token,
                swap_to_open,
            } => Self::new(BECAME_ACTIVE)
                .in_term(*term)
                .because_of(basis.as_str())
                .that_took(*swap_to_open)
                .with_detail(format!("the first token is {first_token}")),
            JournalEntry::AuthorityLapsed { term, at } => {
                Self::new(AUTHORITY_LAPSED).in_term(*term).that_happened_by(*at)
            }
            JournalEntry::SteppedDown { term, larger } => Self::new(STEPPED_DOWN)
                .in_term(*term)
                .with_detail(format!("term {larger} was seen")),
            JournalEntry::HandoverStarted { term, to } => {
                let step = Self::new(HANDOVER_STARTED).in_term(*term);
                match to {
                    Some(node) => step.with_detail(format!("to node {node}")),
                    None => step.with_detail("without a successor"),
                }
            }
            JournalEntry::HandoverDone { term } => Self::new(HANDOVER_DONE).in_term(*term),
            JournalEntry::HandoverFailed { term } => Self::new("handover_failed").in_term(*term),
            JournalEntry::WitnessWentBack { found, known } => {
                let found = found.map_or("no record".into(), |term| format!("term {term}"));
                Self::new("witness_went_back")
                    .in_term(*known)
                    .with_detail(format!("it holds {found}"))
            }
            JournalEntry::StateNotDurable => Self::new("state_not_durable"),
            JournalEntry::FloorExtendedAlone { term, floor } => Self::new("floor_extended_alone")
                .in_term(*term)
                .with_detail(format!(
                    "to {floor}: from here on the order of tokens rests on the clocks of the two nodes, too"
                )),
        }
    }
}

impl Journal {
    /// How many of the latest lines are kept in memory.
    pub const RECENT: usize = 256;

    /// Starts a journal, with a file that is appended to, or only in memory and in the log. Blocks.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when the file cannot be opened.
    pub fn open(node: NodeId, path: Option<&Path>) -> Result<Self, JournalError> {
        let writer = path
            .map(|path| {
                Writer::start(path).map_err(|source| JournalError {
                    path: path.into(),
                    source,
                })
            })
            .transpose()?;
        Ok(Self {
            node,
            progress: Mutex::default(),
            writer,
        })
    }

    /// Writes a step down, and returns how long its timeline has run. Never waits for the disk.
    pub fn record(&self, step: Step) -> Duration {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let line = progress.place(self.node, step, boot_now());
        tracing::info!(
            timeline = line.timeline,
            at_ms = line.at_ms,
            term = line.term.map(|term| term.0),
            basis = line.basis,
            took_ms = line.took_ms,
            detail = line.detail,
            "{}",
            line.step
        );
        if progress.recent.len() == Self::RECENT {
            progress.recent.pop_front();
        }
        progress.recent.push_back(line.clone());
        let since_it_began = Duration::from_millis(line.at_ms);
        let Some(writer) = &self.writer else {
            return since_it_began;
        };
        match writer.lines.try_send(line) {
            Ok(()) => progress.lost = 0,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => progress.lost += 1,
        }
        since_it_began
    }

    /// The latest lines, oldest first.
    #[must_use]
    pub fn recent(&self) -> Vec<JournalLine> {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.recent.iter().cloned().collect()
    }

    /// The latest timeline in which this node's role changed, as far as it is kept in memory; oldest line first.
    #[must_use]
    pub fn last_timeline(&self) -> Vec<JournalLine> {
        let recent = self.recent();
        let changes_the_role = |line: &&JournalLine| CHANGES_OF_ROLE.contains(&line.step.as_str());
        let Some(last) = recent
            .iter()
            .rev()
            .find(changes_the_role)
            .map(|line| line.timeline)
        else {
            return Vec::new();
        };
        let of_it = recent.into_iter().filter(|line| line.timeline == last);
        of_it.take(LONGEST_TIMELINE).collect()
    }

    /// Waits until every line is in the file. Blocks.
    pub fn close(self) {
        if let Some(Writer { lines, thread }) = self.writer {
            drop(lines);
            if thread.join().is_err() {
                tracing::error!("the journal's thread has panicked");
            }
        }
    }
}

impl Progress {
    fn place(&mut self, node: NodeId, step: Step, now: BootInstant) -> JournalLine {
        let stale = self
            .last
            .is_none_or(|last| now.saturating_duration_since(last) > LONGEST_STEP);
        if stale || step.begins_a_timeline() {
            self.timeline += 1;
            self.began = Some(now);
        }
        self.last = Some(now);
        let began = self.began.unwrap_or(now);
        JournalLine {
            time: now_in_utc(),
            node,
            timeline: self.timeline,
            at_ms: millis(now.saturating_duration_since(began)),
            boot_nanos: step.happened_at.unwrap_or(now).as_nanos(),
            step: step.name.into(),
            term: step.term,
            basis: step.basis.map(Into::into),
            took_ms: step.took.map(millis),
            detail: step.detail,
            lost: self.lost,
        }
    }
}

impl Writer {
    fn start(path: &Path) -> io::Result<Self> {
        let file = JournalFile::open(path)?;
        let (lines, queue) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || file.write_all_of(&queue))?;
        Ok(Self { lines, thread })
    }
}

struct JournalFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl JournalFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            path: path.into(),
            size: file.metadata()?.len(),
            file,
        })
    }

    fn write_all_of(mut self, queue: &Receiver<JournalLine>) {
        let mut lost = 0;
        while let Ok(mut line) = queue.recv() {
            line.lost += lost;
            match self.append(&line) {
                Ok(()) => lost = 0,
                Err(error) => {
                    lost = line.lost + 1;
                    tracing::warn!(path = %self.path.display(), %error, lost, "the journal cannot be written");
                }
            }
        }
    }

    fn append(&mut self, line: &JournalLine) -> io::Result<()> {
        if self.size > MOST_BYTES {
            std::fs::rename(&self.path, beside(&self.path, ".1"))?;
            *self = Self::open(&self.path)?;
        }
        let mut bytes = serde_json::to_vec(line).expect("a line consists of numbers and strings");
        bytes.push(b'\n');
        self.file.write_all(&bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }
}

fn now_in_utc() -> String {
    let nanos = i64::try_from(wall_now().unix_nanos()).unwrap_or(i64::MAX);
    DateTime::<Utc>::from_timestamp_nanos(nanos).to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

const SUSPECTED: &str = "suspected";
const HANDOVER_STARTED: &str = "handover_started";
const HANDOVER_DONE: &str = "handover_done";
const BECAME_ACTIVE: &str = "became_active";
const AUTHORITY_LAPSED: &str = "authority_lapsed";
const STEPPED_DOWN: &str = "stepped_down";
const CHANGES_OF_ROLE: [&str; 4] = [BECAME_ACTIVE, HANDOVER_DONE, AUTHORITY_LAPSED, STEPPED_DOWN];
/// How many lines of a timeline are shown.
const LONGEST_TIMELINE: usize = 64;
/// A step later than this after the last one belongs to another timeline.
const LONGEST_STEP: Duration = Duration::from_secs(60);
/// How many lines may wait for the disk.
const QUEUE: usize = 1024;
/// A file larger than this is put aside under its name with `.1`, in the place of the one before.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use monolock_failover_core::TakeoverBasis;

    use super::*;

    fn lines(path: &Path) -> Vec<JournalLine> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_takeover_is_one_timeline_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal = Journal::open(NodeId::B, Some(&path)).unwrap();
        let entries = [
            JournalEntry::Suspected { term: Term(7) },
            JournalEntry::DeathProven {
                term: Term(7),
                basis: TakeoverBasis::Crash,
            },
            JournalEntry::TakeoverStarted {
                term: Term(8),
                basis: TakeoverBasis::Crash,
            },
            JournalEntry::BecameActive {
                term: Term(8),
                basis: TakeoverBasis::Crash,
                first_token: monolock_protocol::Token::new(5),
                swap_to_open: Duration::from_millis(12),
            },
        ];
        for entry in &entries {
            journal.record(entry.into());
        }
        journal.record(Step::new("name_published").in_term(Term(8)));
        journal.record(
            (&JournalEntry::HandoverStarted {
                term: Term(8),
                to: None,
            })
                .into(),
        );
        let recent = journal.recent();
        assert_eq!(
            journal.last_timeline(),
            recent[..5],
            "the handover has changed nothing yet"
        );
        journal.close();
        let lines = lines(&path);
        assert_eq!(lines, recent);
        let steps: Vec<_> = lines
            .iter()
            .map(|line| (line.timeline, line.step.as_str()))
            .collect();
        let expected = [
            (1, "suspected"),
            (1, "death_proven"),
            (1, "takeover_started"),
            (1, "became_active"),
            (1, "name_published"),
            (2, "handover_started"),
        ];
        assert_eq!(steps, expected);
        assert_eq!(lines[3].basis.as_deref(), Some("crash"));
        assert_eq!(lines[3].took_ms, Some(12));
        assert!(lines.iter().all(|line| line.node == NodeId::B && line.lost == 0));
        assert!(lines[0].time.ends_with('Z'));
    }

    #[test]
    fn a_lapse_that_is_noticed_late_names_the_moment_of_the_lapse() {
        let journal = Journal::open(NodeId::A, None).unwrap();
        let before = boot_now();
        let entry = JournalEntry::AuthorityLapsed {
            term: Term(7),
            at: BootInstant::from_millis(5),
        };
        journal.record((&entry).into());
        journal.record(Step::new("x"));
        let recent = journal.recent();
        assert_eq!(recent[0].boot_nanos, 5_000_000);
        assert!(recent[1].boot_nanos >= before.as_nanos());
    }

    #[test]
    fn a_file_that_is_there_is_appended_to_and_one_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        for _ in 0..2 {
            let journal = Journal::open(NodeId::A, Some(&path)).unwrap();
            journal.record(Step::new("x"));
            journal.close();
        }
        assert_eq!(lines(&path).len(), 2);
        let nowhere = folder.path().join("no/journal");
        let error = Journal::open(NodeId::A, Some(&nowhere)).unwrap_err();
        assert!(error.to_string().contains("no/journal"), "{error}");
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_holds_nobody_up() {
        let journal = Journal::open(NodeId::A, Some(Path::new("/dev/full"))).unwrap();
        for _ in 0..10 * QUEUE {
            journal.record(Step::new("x"));
        }
        assert_eq!(journal.recent().len(), Journal::RECENT);
        journal.close();
    }

    #[test]
    fn lines_that_found_no_room_are_counted_in_the_next() {
        let (lines, queue) = sync_channel(1);
        let journal = Journal {
            node: NodeId::A,
            progress: Mutex::default(),
            writer: Some(Writer {
                lines,
                thread: std::thread::spawn(|| {}),
            }),
        };
        for _ in 0..3 {
            journal.record(Step::new("x"));
        }
        assert_eq!(queue.recv().unwrap().lost, 0);
        journal.record(Step::new("x"));
        assert_eq!(queue.recv().unwrap().lost, 2);
        journal.record(Step::new("x"));
        assert_eq!(queue.recv().unwrap().lost, 0);
    }

    #[test]
    fn a_file_that_has_grown_large_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let large = File::create(&path).unwrap();
        large.set_len(MOST_BYTES + 1).unwrap();
        let journal = Journal::open(NodeId::A, Some(&path)).unwrap();
        journal.record(Step::new("x"));
        journal.close();
        assert_eq!(lines(&path).len(), 1);
        let aside = std::fs::metadata(beside(&path, ".1")).unwrap();
        assert_eq!(aside.len(), MOST_BYTES + 1);
    }

    #[test]
    fn a_step_long_after_the_last_begins_a_timeline_of_its_own() {
        let mut progress = Progress::default();
        let mut place = |millis| {
            progress
                .place(NodeId::A, Step::new("x"), BootInstant::from_millis(millis))
                .timeline
        };
        assert_eq!(
            [place(0), place(60_000), place(120_000), place(180_001)],
            [1, 1, 1, 2]
        );
    }
}
