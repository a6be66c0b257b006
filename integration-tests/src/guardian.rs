//! What still happens when the test process is killed and runs no drop.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A shell command that runs when this process ends, however that happens, unless the guardian is dropped first.
///
/// It waits for the end of its standard input, whose other end only this process has.
#[derive(Debug)]
pub(crate) struct Guardian(pub(crate) Child);

impl Guardian {
    /// `script` finds `argument` as `$0`.
    pub(crate) fn new(script: &str, argument: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", &format!("read -r _; {script}"), argument])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("sh does not start: {error}"));
        Self(child)
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
