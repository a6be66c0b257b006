//! `chronyd` on a host of its own: it serves the machine's clock and never touches it.

use tempfile::TempDir;

use crate::hosts::Network;
use crate::process::Process;

/// A time server; it ends with this value.
#[derive(Debug)]
pub struct Chrony {
    _process: Process,
    _folder: TempDir,
}

impl Chrony {
    /// Starts it on the host `name`.
    ///
    /// # Panics
    ///
    /// When it is not installed or does not start.
    #[must_use]
    pub fn start(network: &Network, name: &str) -> Self {
        let host = network.host(name);
        let folder = TempDir::with_prefix("monolock-chrony-").expect("a temporary folder can be made");
        let path = folder.path().display();
        let configuration = format!(
            "bindaddress {}\nallow\nlocal stratum 8\ncmdport 0\nbindcmdaddress {path}/socket\n\
             pidfile {path}/pid\ndriftfile {path}/drift\n",
            host.address()
        );
        let file = folder.path().join("chrony.conf");
        std::fs::write(&file, configuration).expect("the folder is ours");
        let mut command = host.command("chronyd");
        command.args(["-x", "-d", "-U", "-u", "root", "-f"]).arg(&file);
        let process = Process::spawn(name, command);
        process.wait_for_line("starting");
        Self {
            _process: process,
            _folder: folder,
        }
    }
}
