//! A file on one machine as the witness: for the demo, for tests, and for two nodes that share a disk that keeps
//! `flock` and `rename` true (a local file system; not NFS).
//!
//! The record is replaced by a rename, so that a reader sees the old one or the new one and needs no lock, and a process
//! that dies leaves one of them. A swap compares and renames under an exclusive lock on a file beside the record; the new
//! record is on the disk before the lock is taken, so that it is held for some microseconds only. The kernel drops the
//! lock of a process that dies. One that is frozen just there keeps it: the other node's swaps then wait a bounded time
//! and fail with [`WitnessError::Unreachable`] until it runs or dies.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use monolock_clock::boot_now;
use monolock_failover_core::Record;

use super::{SwapOutcome, Witness, WitnessError, decode_record, encode_record};
use crate::durable_file::{self, ReplaceError};

/// A record in a file that two processes of one machine share.
#[derive(Debug)]
pub struct FileWitness {
    file: Arc<RecordFile>,
}

impl FileWitness {
    /// How long an operation waits for the other process to finish its own.
    pub const LOCK_WAIT: Duration = Duration::from_secs(1);

    /// Takes the file at `path` as the witness; it need not exist, its folder must. Reads it once, and tries that its
    /// folder can be written. Blocks.
    ///
    /// # Errors
    ///
    /// [`WitnessError`], when no node could use it as it is.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, WitnessError> {
        let file = RecordFile {
            path: path.into(),
            lock_wait: Self::LOCK_WAIT,
        };
        let lock = file.lock()?;
        file.read()?;
        file.try_writing()?;
        // What a process left that died in the middle of a swap. One that is in the middle of it now fails, and is not
        // done: it is tried again.
        durable_file::remove_staged(&file.path).map_err(|error| file.unwritable(&error))?;
        drop(lock);
        Ok(Self { file: Arc::new(file) })
    }

    /// Waits for at most `lock_wait` for the other process to finish its operation.
    #[must_use]
    pub fn with_lock_wait(self, lock_wait: Duration) -> Self {
        let file = RecordFile {
            path: self.file.path.clone(),
            lock_wait,
        };
        Self { file: Arc::new(file) }
    }
}

impl Witness for FileWitness {
    fn read(&self) -> BoxFuture<'_, Result<Option<Record>, WitnessError>> {
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || file.read()).await {
                Ok(result) => result,
                Err(error) => Err(self.file.unreachable(error)),
            }
        })
    }

    fn swap<'a>(&'a self, expected: Option<&'a Record>, new: &'a Record) -> BoxFuture<'a, SwapOutcome> {
        let file = Arc::clone(&self.file);
        let (expected, new) = (expected.cloned(), new.clone());
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || file.swap(expected.as_ref(), &new)).await {
                Ok(outcome) => outcome,
                Err(error) => SwapOutcome::Unknown(self.file.unreachable(error)),
            }
        })
    }
}

/// The blocking half.
#[derive(Debug)]
struct RecordFile {
    path: PathBuf,
    lock_wait: Duration,
}

impl RecordFile {
    fn swap(&self, expected: Option<&Record>, new: &Record) -> SwapOutcome {
        let staged = match durable_file::stage(&self.path, &encode_record(new)) {
            Ok(staged) => staged,
            Err(error) => return SwapOutcome::Failed(self.unwritable(&error)),
        };
        let lock = match self.lock() {
            Ok(lock) => lock,
            Err(error) => return SwapOutcome::Failed(error),
        };
        let current = match self.read() {
            Ok(current) => current,
            Err(error) => return SwapOutcome::Failed(error),
        };
        if current.as_ref() != expected {
            return SwapOutcome::Lost { current };
        }
        let replaced = staged.replace(&self.path);
        drop(lock);
        match replaced.and_then(|()| durable_file::sync_folder_of(&self.path).map_err(ReplaceError::InDoubt))
        {
            Ok(()) => SwapOutcome::Won,
            Err(ReplaceError::Unchanged(error)) => SwapOutcome::Failed(self.unwritable(&error)),
            Err(error @ ReplaceError::InDoubt(_)) => SwapOutcome::Unknown(self.unwritable(&error)),
        }
    }

    fn read(&self) -> Result<Option<Record>, WitnessError> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(WitnessError::Refused {
                    witness: self.name(),
                    reason: format!("it cannot be read: {error}: check what it is and who may read it"),
                });
            }
        };
        decode_record(&bytes)
            .map(Some)
            .map_err(|reason| WitnessError::NotARecord {
                witness: self.name(),
                reason,
            })
    }

    /// Waits for the exclusive lock; it is released when the returned file is closed.
    fn lock(&self) -> Result<File, WitnessError> {
        let file = durable_file::open_lock_file(&self.path).map_err(|error| self.unopened(&error))?;
        let deadline = boot_now() + self.lock_wait;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(self.unopened(&error)),
                Err(TryLockError::WouldBlock) if boot_now() < deadline => std::thread::sleep(LOCK_POLL),
                Err(TryLockError::WouldBlock) => {
                    return Err(self.unreachable(format!(
                        "another process has kept its lock file {} for {:?}: see whether that process is frozen",
                        self.lock_path().display(),
                        self.lock_wait
                    )));
                }
            }
        }
    }

    /// Writes and removes a file beside the record. The caller holds the lock.
    fn try_writing(&self) -> Result<(), WitnessError> {
        let attempt = durable_file::beside(&self.path, ".tmp");
        std::fs::write(&attempt, b"")
            .and_then(|()| std::fs::remove_file(&attempt))
            .map_err(|error| self.unwritable(&error))
    }

    fn name(&self) -> String {
        format!("file {}", self.path.display())
    }

    fn lock_path(&self) -> PathBuf {
        durable_file::beside(Path::new(&self.path), ".lock")
    }

    fn unopened(&self, error: &io::Error) -> WitnessError {
        WitnessError::Refused {
            witness: self.name(),
            reason: format!(
                "its lock file {} cannot be opened: {error}: the folder must exist and be writable by both nodes",
                self.lock_path().display()
            ),
        }
    }

    fn unwritable(&self, error: &dyn std::fmt::Display) -> WitnessError {
        WitnessError::Refused {
            witness: self.name(),
            reason: format!(
                "it cannot be written: {error}: check the space on its disk and who may write its folder"
            ),
        }
    }

    fn unreachable(&self, reason: impl std::fmt::Display) -> WitnessError {
        WitnessError::Unreachable {
            witness: self.name(),
            reason: reason.to_string(),
        }
    }
}

/// How long to wait between two attempts at the lock: short against the shortest renewal period (100 ms).
const LOCK_POLL: Duration = Duration::from_millis(1);
