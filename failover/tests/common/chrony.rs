//! Real time servers on loopback: `chronyd` that serves its own clock and never touches the machine's.

use std::process::Command;

use monolock_integration_tests::port::free_port;
use monolock_integration_tests::process::Process;
use tempfile::TempDir;

use crate::fake_time::FakeTime;

/// A time server; it ends with this value.
pub(crate) struct Chrony {
    _process: Process,
    port: u16,
    _folder: TempDir,
}

impl Chrony {
    /// One that tells the time.
    pub(crate) fn honest() -> Self {
        Self::start(None)
    }

    /// One whose clock is off by so much, and that does not know it.
    pub(crate) fn lying_by(seconds: i64) -> Self {
        Self::start(Some(seconds))
    }

    fn start(lies_by: Option<i64>) -> Self {
        let folder = tempfile::Builder::new().prefix("chrony").tempdir().unwrap();
        let port = free_port();
        let path = folder.path().display();
        let configuration = format!(
            "port {port}\nbindaddress 127.0.0.1\nallow 127.0.0.1\nlocal stratum 8\ncmdport 0\n\
             bindcmdaddress {path}/socket\npidfile {path}/pid\ndriftfile {path}/drift\n"
        );
        let file = folder.path().join("chrony.conf");
        std::fs::write(&file, configuration).unwrap();
        let mut command = Command::new("chronyd");
        command.args(["-x", "-d", "-U", "-u", "root", "-f"]).arg(&file);
        let path_of_servers = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        command.env("PATH", path_of_servers);
        if let Some(seconds) = lies_by {
            let time = FakeTime::new(folder.path());
            time.set(seconds);
            time.give_to(&mut command);
        }
        let process = Process::spawn("chronyd", command);
        process.wait_for_line("starting");
        Self {
            _process: process,
            port,
            _folder: folder,
        }
    }

    /// As in `MONOLOCK_NTP_SERVERS`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}
