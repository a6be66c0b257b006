//! Replacing a small file so that a crash at any moment leaves the old content or the new one, never a mix.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a file was not replaced, and whether it may have been all the same.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    /// The old content is in place.
    #[error("{0}")]
    Unchanged(#[source] io::Error),
    /// The new content is visible, but may be gone after a power loss.
    #[error("the change may not survive a power loss: {0}")]
    InDoubt(#[source] io::Error),
}

/// Puts `content` in the place of the file at `path`, durably. The caller holds the lock that makes it the only writer.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), ReplaceError> {
    let temporary = beside(path, ".tmp");
    write_synced(&temporary, content).map_err(ReplaceError::Unchanged)?;
    std::fs::rename(&temporary, path).map_err(ReplaceError::Unchanged)?;
    sync_folder_of(path).map_err(ReplaceError::InDoubt)
}

/// New content for a file, on the disk under a name of its own. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Staged {
    temporary: PathBuf,
}

/// Writes content that shall replace the file at `path`; several writers may do so at a time.
pub(crate) fn stage(path: &Path, content: &[u8]) -> io::Result<Staged> {
    static STAGED: AtomicU64 = AtomicU64::new(0);
    let number = STAGED.fetch_add(1, Ordering::Relaxed);
    let staged = Staged {
        temporary: beside(path, &format!("{STAGED_SUFFIX}{}.{number}", std::process::id())),
    };
    write_synced(&staged.temporary, content)?;
    Ok(staged)
}

impl Staged {
    /// Puts it in the place of the file at `path`, for all to see; [`sync_folder_of`] makes that durable.
    pub(crate) fn replace(self, path: &Path) -> Result<(), ReplaceError> {
        std::fs::rename(&self.temporary, path).map_err(ReplaceError::Unchanged)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

/// Removes what was staged for the file at `path` and never took its place.
pub(crate) fn remove_staged(path: &Path) -> io::Result<()> {
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    let mut prefix = OsString::from(name);
    prefix.push(STAGED_SUFFIX);
    for entry in std::fs::read_dir(folder_of(path))? {
        let entry = entry?;
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes())
        {
            match std::fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(())
}

const STAGED_SUFFIX: &str = ".new.";

/// The path next to `path` whose name ends in `suffix`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens the file that stands for the lock on `path`; it is created when missing and never removed, since removing it
/// would let two processes lock two different files of one name.
pub(crate) fn open_lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(beside(path, ".lock"))
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes the names in the folder of `path` durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
