//! Replacing a small file so that a crash at any moment leaves the old content or the new one, never a mix.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

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

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}
