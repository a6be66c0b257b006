//! The wall clock of one process, set by libfaketime; the boot clock and the monotonic clock go on.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A wall clock that can be set while its process runs.
pub(crate) struct FakeTime {
    file: PathBuf,
}

impl FakeTime {
    /// One that is right so far, with its file in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        let time = Self {
            file: folder.join("faketime"),
        };
        time.set(0);
        time
    }

    /// Sets the clock this many seconds ahead of the machine's.
    pub(crate) fn set(&self, seconds: i64) {
        // Never seen half written.
        let draft = self.file.with_extension("draft");
        std::fs::write(&draft, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(&draft, &self.file).unwrap();
    }

    /// Makes the command run by this clock.
    pub(crate) fn give_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", library())
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
    }
}

/// Where Debian keeps it: below a folder named after the machine's architecture.
fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap();
    folders
        .map(|folder| folder.unwrap().path().join("faketime/libfaketime.so.1"))
        .find(|library| library.is_file())
        .expect("libfaketime is installed: integration-tests/setup")
}
