//! PostgreSQL from the programs that are installed on this machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::port::free_port;
use crate::process::Process;

use super::READY;

/// Debian keeps one folder for each major version here.
const VERSIONS: &str = "/usr/lib/postgresql";

#[derive(Debug)]
pub(super) struct LocalServer {
    port: u16,
    // Ends before its data is removed.
    _process: Process,
    _data: Data,
}

impl LocalServer {
    pub(super) fn start() -> Self {
        let data = Data::initialise();
        let port = free_port();
        let process = Process::spawn("postgres", data.server("127.0.0.1", port));
        process.wait_for_line(READY);
        Self {
            port,
            _process: process,
            _data: data,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

/// The folder of a server that runs, did run, or will.
#[derive(Debug)]
pub(crate) struct Data {
    programs: PathBuf,
    folder: TempDir,
}

impl Data {
    /// Makes an empty database that trusts everybody who reaches it.
    pub(crate) fn initialise() -> Self {
        let data = Self {
            programs: programs(),
            folder: TempDir::with_prefix("monolock-postgres-").expect("a temporary folder can be made"),
        };
        // The server's user, who may be another one than ours, makes the data folder within.
        fs::set_permissions(data.folder.path(), Permissions::from_mode(0o777)).expect("the folder is ours");
        initialise(&data.programs, &data.path());
        let access = data.path().join("pg_hba.conf");
        fs::write(access, "local all all trust\nhost all all all trust\n").expect("it was just made");
        data
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The command that runs the server.
    pub(crate) fn server(&self, address: &str, port: u16) -> Command {
        let mut command = as_server_user(&self.programs.join("postgres"));
        command
            .arg("-D")
            .arg(self.path())
            .arg("-k")
            .arg(self.folder.path());
        for setting in [
            format!("listen_addresses={address}"),
            format!("port={port}"),
            "fsync=off".to_owned(),
        ] {
            command.arg("-c").arg(setting);
        }
        command
    }
}

fn initialise(programs: &Path, data: &Path) {
    let mut command = as_server_user(&programs.join("initdb"));
    command
        .args(["-U", "postgres", "-A", "trust", "--no-sync", "--no-locale"])
        .args(["-E", "UTF8", "-D"])
        .arg(data);
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The newest version's folder of programs.
fn programs() -> PathBuf {
    let versions = fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    versions
        .map(|version| version.path().join("bin"))
        .filter(|programs| programs.join("initdb").is_file())
        .max_by_key(|programs| major_version(programs))
        .unwrap_or_else(|| panic!("no PostgreSQL in {VERSIONS}: install it with integration-tests/setup"))
}

fn major_version(programs: &Path) -> Option<u32> {
    programs.parent()?.file_name()?.to_str()?.parse().ok()
}

/// PostgreSQL refuses to run as root: then it runs as the user that its package made.
fn as_server_user(program: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"])
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    // The working directory may be closed to that user; messages are looked for in English.
    command.current_dir("/").env("LC_ALL", "C");
    command
}
