//! What a node says when it cannot do what its settings ask: one line that names the setting, and what is wrong.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use monolock_integration_tests::TempDir;
use monolock_integration_tests::binaries;
use monolock_integration_tests::port::free_port;
use monolock_integration_tests::process::{Exit, Process};

/// A node `a` whose peer does not run.
struct Settings {
    folder: TempDir,
    values: Vec<(&'static str, String)>,
}

impl Settings {
    fn new() -> Self {
        let folder = TempDir::with_prefix("monolock-node-").expect("a temporary folder can be made");
        let file = |name: &str| folder.path().join(name).display().to_string();
        let values = vec![
            ("MONOLOCK_NODE", "a".to_owned()),
            ("MONOLOCK_LISTEN_ADDRESS", "127.0.0.1:0".to_owned()),
            ("MONOLOCK_PEER_LISTEN_ADDRESS", "127.0.0.1:0".to_owned()),
            ("MONOLOCK_PEER_ADDRESS", format!("127.0.0.1:{}", free_port())),
            ("MONOLOCK_PEER_LOCK_ADDRESS", format!("127.0.0.1:{}", free_port())),
            ("MONOLOCK_WITNESS", format!("file:{}", file("witness"))),
            ("MONOLOCK_STATE_FILE", file("state")),
            ("MONOLOCK_AUTHORITY_TTL", "300ms".to_owned()),
        ];
        Self { folder, values }
    }

    fn with(mut self, setting: &'static str, value: impl Into<String>) -> Self {
        self.values.retain(|(name, _)| *name != setting);
        self.values.push((setting, value.into()));
        self
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn start(&self) -> Process {
        let mut command = binaries::command("monolock-failover");
        command.envs(self.values.iter().map(|(name, value)| (name, value)));
        Process::spawn("monolock-failover", command)
    }

    /// The node must exit by itself with a code that is not 0, after one line that contains all of these.
    #[track_caller]
    fn expect_refused(&self, texts: &[&str]) {
        let process = self.start();
        let exit = process.wait_for_exit();
        assert!(matches!(exit, Exit::Code(code) if code != 0), "{exit:?}");
        let lines = process.all_lines();
        let said = lines
            .iter()
            .any(|line| texts.iter().all(|text| line.contains(text)));
        assert!(said, "no line with {texts:?} in {lines:#?}");
    }
}

#[test]
fn a_witness_file_that_cannot_be_written_is_named() {
    let settings = Settings::new();
    let no_folder = settings.path("no/such/folder/witness");
    settings
        .with("MONOLOCK_WITNESS", format!("file:{no_folder}"))
        .expect_refused(&["MONOLOCK_WITNESS", "no/such/folder"]);
    let settings = Settings::new();
    let folder = settings.path("a-folder");
    fs::create_dir(&folder).expect("made");
    settings
        .with("MONOLOCK_WITNESS", format!("file:{folder}"))
        .expect_refused(&["MONOLOCK_WITNESS", "a-folder"]);
}

#[test]
fn a_witness_that_holds_something_else_is_refused_and_left_alone() {
    let settings = Settings::new();
    let witness = settings.path("witness");
    fs::write(&witness, "somebody's notes").expect("written");
    settings.expect_refused(&["MONOLOCK_WITNESS", "witness"]);
    assert_eq!(
        fs::read_to_string(Path::new(&witness)).expect("still there"),
        "somebody's notes"
    );
}

#[test]
fn a_state_file_that_is_damaged_or_in_use_is_refused_and_left_alone() {
    let settings = Settings::new();
    let state = settings.path("state");
    fs::write(&state, "not a state").expect("written");
    settings.expect_refused(&[&state]);
    assert_eq!(
        fs::read_to_string(Path::new(&state)).expect("still there"),
        "not a state"
    );

    let settings = Settings::new();
    let first = settings.start();
    first.wait_for_line("watching as standby");
    settings.expect_refused(&[&settings.path("state")]);
}

#[test]
fn a_port_in_use_is_named_with_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("any port");
    let address = taken.local_addr().expect("it is bound").to_string();
    for setting in ["MONOLOCK_LISTEN_ADDRESS", "MONOLOCK_PEER_LISTEN_ADDRESS"] {
        Settings::new()
            .with(setting, address.clone())
            .expect_refused(&[setting, &address]);
    }
    Settings::new()
        .with("MONOLOCK_SERVICE_NAME", "locks.demo.internal")
        .with("MONOLOCK_DNS_LISTEN_ADDRESS", address.clone())
        .expect_refused(&["MONOLOCK_DNS_LISTEN_ADDRESS", &address]);
}

#[test]
fn a_peer_name_that_cannot_be_resolved_is_said_and_the_node_serves_all_the_same() {
    let settings = Settings::new().with("MONOLOCK_PEER_ADDRESS", "no-such-host.invalid:7073");
    let node = settings.start();
    let line = node.wait_for_line("no-such-host.invalid");
    assert!(line.contains("WARN"), "{line}");
    // Its own voice and the witness's are two of three.
    node.wait_for_line("became_active");
}

#[test]
fn a_peer_link_beyond_loopback_needs_a_secret() {
    Settings::new()
        .with("MONOLOCK_PEER_LISTEN_ADDRESS", "0.0.0.0:0")
        .expect_refused(&["MONOLOCK_PEER_SECRET"]);
}
