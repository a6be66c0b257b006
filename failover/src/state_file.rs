//! What a node must never forget: the state file.
//!
//! A node that forgot a term could promise it twice, and one that forgot a floor could open its gate below tokens that
//! were already granted. So both are on disk *before* anything relies on them. Every value only ever rises: a store
//! that asks for less, or that finishes out of order, lowers nothing.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("node-a.state");
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! use monolock_failover::core::{NodeState, Term};
//! use monolock_failover::state_file::StateFile;
//! use monolock_protocol::Token;
//!
//! let (mut file, state) = StateFile::open(&path)?;
//! assert_eq!(state, NodeState::default());
//! file.store(&NodeState { highest_term: Term(7), floor: Token::new(1 << 20), longest_lease_ms: 30_000 }).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use monolock_failover_core::NodeState;
use ring::digest;
use serde::{Deserialize, Serialize};

use crate::durable_file::{self, ReplaceError};
use crate::hex;

/// The state file of one node, held exclusively for as long as this value lives.
#[derive(Debug)]
pub struct StateFile {
    shared: Arc<Shared>,
}

/// What a store needs also after its caller stopped waiting for it.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    stored: Mutex<NodeState>,
    /// Locked until it is closed.
    _lock: File,
}

/// Why a state file cannot be used. Nothing was changed unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError {
    /// Another process holds it.
    #[error(
        "the state file {} is in use by another process: give each node its own file, and stop the other process first",
        path.display()
    )]
    Locked {
        /// The state file.
        path: PathBuf,
    },
    /// It, or the lock file beside it, cannot be opened or read.
    #[error(
        "the state file {} cannot be opened: {source}: its folder must exist and be writable by this user",
        path.display()
    )]
    Unreadable {
        /// The file that failed: the state file or the lock file beside it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its content is not what a node wrote.
    #[error(
        "the state file {} is damaged ({reason}): restore it from a copy; only when the other node and the witness \
         are healthy, remove it instead, and this node learns the terms and floors from them",
        path.display()
    )]
    Corrupt {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer version of the program wrote it.
    #[error(
        "the state file {} has format {format}, this program knows {FORMAT}: run the version that wrote it, or a later one",
        path.display()
    )]
    UnknownFormat {
        /// The state file.
        path: PathBuf,
        /// The format it names.
        format: u32,
    },
    /// It cannot be written. The old content is in place, or, if only the last step failed, the new one until a power
    /// loss: treat it as not stored.
    #[error(
        "the state file {} cannot be written: {source}: check the space on its disk and who may write its folder",
        path.display()
    )]
    Unwritable {
        /// The state file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl StateFile {
    /// Locks and reads the state file at `path`, and writes it once, so that a disk that cannot be written is found
    /// at the start rather than at the first takeover. A missing file is a node that has never run. Blocks.
    ///
    /// # Errors
    ///
    /// [`StateFileError`]: in use, unreadable, damaged, of a later format, or unwritable.
    pub fn open(path: impl Into<PathBuf>) -> Result<(Self, NodeState), StateFileError> {
        let path = path.into();
        let lock = lock_exclusively(&path)?;
        let state = read(&path)?.unwrap_or_default();
        write(&path, &state)?;
        let shared = Shared {
            path,
            stored: Mutex::new(state),
            _lock: lock,
        };
        let file = Self {
            shared: Arc::new(shared),
        };
        Ok((file, state))
    }

    /// Makes the file hold at least `state` in each field; returns once that would survive a power loss. What the file
    /// already covers costs no write.
    ///
    /// When the future is dropped the write may still happen, which is harmless: the values only rise.
    ///
    /// # Errors
    ///
    /// [`StateFileError::Unwritable`]: rely on nothing of `state`.
    pub async fn store(&mut self, state: &NodeState) -> Result<(), StateFileError> {
        let (shared, state) = (Arc::clone(&self.shared), *state);
        tokio::task::spawn_blocking(move || shared.raise_to(state))
            .await
            .unwrap_or_else(|ended| {
                Err(StateFileError::Unwritable {
                    path: self.shared.path.clone(),
                    source: io::Error::other(ended),
                })
            })
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }
}

impl Shared {
    fn raise_to(&self, state: NodeState) -> Result<(), StateFileError> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let raised = stored.max(state);
        if raised != *stored {
            write(&self.path, &raised)?;
            *stored = raised;
        }
        Ok(())
    }
}

/// What stands in the file. The digest covers `state` as it is serialised here.
#[derive(Serialize, Deserialize)]
struct Content {
    format: u32,
    state: NodeState,
    sha256: String,
}

/// Only the part that every format shares.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

fn lock_exclusively(path: &Path) -> Result<File, StateFileError> {
    let unreadable = |source| StateFileError::Unreadable {
        path: durable_file::beside(path, ".lock"),
        source,
    };
    let lock = durable_file::open_lock_file(path).map_err(unreadable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(StateFileError::Locked { path: path.into() }),
        Err(std::fs::TryLockError::Error(source)) => Err(unreadable(source)),
    }
}

fn read(path: &Path) -> Result<Option<NodeState>, StateFileError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(StateFileError::Unreadable {
                path: path.into(),
                source,
            });
        }
    };
    let corrupt = |reason: String| StateFileError::Corrupt {
        path: path.into(),
        reason,
    };
    let Format { format } = serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
    if format != FORMAT {
        return Err(StateFileError::UnknownFormat {
            path: path.into(),
            format,
        });
    }
    let content: Content = serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
    if content.sha256 != digest_of(&content.state) {
        return Err(corrupt("its checksum does not match".into()));
    }
    Ok(Some(content.state))
}

fn write(path: &Path, state: &NodeState) -> Result<(), StateFileError> {
    let content = Content {
        format: FORMAT,
        state: *state,
        sha256: digest_of(state),
    };
    let mut bytes = serde_json::to_vec_pretty(&content).expect("numbers and strings always serialise");
    bytes.push(b'\n');
    durable_file::replace(path, &bytes).map_err(|error| StateFileError::Unwritable {
        path: path.into(),
        source: match error {
            ReplaceError::Unchanged(source) | ReplaceError::InDoubt(source) => source,
        },
    })
}

fn digest_of(state: &NodeState) -> String {
    let bytes = serde_json::to_vec(state).expect("numbers always serialise");
    hex::encode(digest::digest(&digest::SHA256, &bytes).as_ref())
}

/// The format of the file; a program refuses every other one.
const FORMAT: u32 = 1;

#[cfg(test)]
mod tests {
    use monolock_failover_core::Term;
    use monolock_protocol::Token;

    use super::*;

    fn state(highest_term: u64, floor: u64, longest_lease_ms: u32) -> NodeState {
        NodeState {
            highest_term: Term(highest_term),
            floor: Token::new(floor),
            longest_lease_ms,
        }
    }

    #[tokio::test]
    async fn what_was_stored_is_read_back_and_only_rises() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.state");
        let (mut file, fresh) = StateFile::open(&path).unwrap();
        assert_eq!(fresh, NodeState::default());
        file.store(&state(3, 50, 1_000)).await.unwrap();
        file.store(&state(2, 70, 500)).await.unwrap();
        drop(file);
        let (_file, read_back) = StateFile::open(&path).unwrap();
        assert_eq!(read_back, state(3, 70, 1_000));
    }

    #[test]
    fn a_second_process_is_refused_while_the_first_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.state");
        let (first, _) = StateFile::open(&path).unwrap();
        let error = StateFile::open(&path).unwrap_err();
        assert!(matches!(&error, StateFileError::Locked { path: named } if *named == path));
        assert!(error.to_string().contains("in use by another process"));
        drop(first);
        StateFile::open(&path).unwrap();
    }

    #[test]
    fn a_damaged_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.state");
        drop(StateFile::open(&path).unwrap());
        let good = std::fs::read_to_string(&path).unwrap();
        let tampered = good.replace("\"highest_term\": 0", "\"highest_term\": 9");
        assert_ne!(good, tampered);
        for damage in [tampered.as_str(), "", "{", "null", &good[..good.len() / 2]] {
            std::fs::write(&path, damage).unwrap();
            let error = StateFile::open(&path).unwrap_err();
            assert!(
                matches!(error, StateFileError::Corrupt { .. }),
                "{damage:?}: {error}"
            );
            assert!(error.to_string().contains(path.to_str().unwrap()));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damage);
        }
    }

    #[test]
    fn a_later_format_is_not_called_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.state");
        std::fs::write(&path, r#"{"format":2,"what":"ever"}"#).unwrap();
        let error = StateFile::open(&path).unwrap_err();
        assert!(matches!(error, StateFileError::UnknownFormat { format: 2, .. }));
    }

    #[test]
    fn a_missing_folder_and_a_folder_in_the_files_place_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("no/such/node.state");
        let error = StateFile::open(&missing).unwrap_err();
        assert!(matches!(error, StateFileError::Unreadable { .. }));
        assert!(error.to_string().contains("no/such/node.state"));
        let error = StateFile::open(folder.path()).unwrap_err();
        assert!(matches!(error, StateFileError::Unreadable { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_store_that_fails_says_so_and_can_be_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let path = inner.join("node.state");
        let (mut file, _) = StateFile::open(&path).unwrap();
        let away = folder.path().join("away");
        std::fs::rename(&inner, &away).unwrap();
        let error = file.store(&state(1, 1, 1)).await.unwrap_err();
        assert!(matches!(error, StateFileError::Unwritable { .. }));
        std::fs::rename(&away, &inner).unwrap();
        file.store(&state(1, 1, 1)).await.unwrap();
        drop(file);
        assert_eq!(StateFile::open(&path).unwrap().1, state(1, 1, 1));
    }

    #[tokio::test]
    async fn a_store_nobody_waits_for_any_more_lowers_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.state");
        let (mut file, _) = StateFile::open(&path).unwrap();
        for term in 1..=50 {
            let abandoned = state(term, term, 1);
            let _ = futures_util::FutureExt::now_or_never(file.store(&abandoned));
            let later = state(term + 1, term + 1, 1);
            file.store(&later).await.unwrap();
        }
        // The file stays locked until abandoned writes have ended too.
        let shared = Arc::downgrade(&file.shared);
        drop(file);
        while shared.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(StateFile::open(&path).unwrap().1, state(51, 51, 1));
    }
}
