//! The drill as an operator runs it: the real command, on pairs of real processes.
//!
//! Its own checks are what is asserted here: that they find nothing on a sound pair, and find what is there on a pair whose
//! promise was waived.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolock_clock::boot_now;
use monolock_failover::core::NodeId;
use monolock_failover::drill::pair::Pair;
use monolock_integration_tests::postgres::Postgres;
use monolock_integration_tests::process::{Exit, Process, Signal};
use monolock_integration_tests::wait::wait_until;
use monolock_integration_tests::{TempDir, binaries};
use serde_json::Value;
use tokio::runtime::Runtime;

/// One pair at a time: a node that is starved for 0.8 of the authority period gives its term up, as it should.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// Long enough for a busy machine.
const TTL: &str = "3s";
/// A drill may wait for minutes by itself before it says what did not happen.
const LIMIT: Duration = Duration::from_secs(600);

/// A drill that runs, with its temporary files in a folder of the test's own.
struct Drill {
    process: Process,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// A drill that has ended.
struct Ended {
    exit: Exit,
    stdout: String,
    lines: Vec<String>,
}

impl Drill {
    fn start<'a>(arguments: &[&str], settings: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = TempDir::with_prefix("monolock-drill-test-").expect("a temporary folder can be made");
        let files = folder.path().join("files");
        fs::create_dir(&files).expect("a folder can be made");
        // The report goes to a file, for it alone is to be read back.
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec "$0" drill "$@" >"$REPORT""#])
            .arg(binaries::path("monolock-failover"))
            .args(arguments)
            .env("REPORT", folder.path().join("report"))
            .env("TMPDIR", &files)
            .envs(settings);
        Self {
            process: Process::spawn("drill", command),
            folder,
            _turn: turn,
        }
    }

    fn rehearse(arguments: &[&str]) -> Ended {
        let arguments = [arguments, &["--ttl", TTL, "--json"]].concat();
        Self::start(&arguments, []).end()
    }

    /// Waits for its end, and makes sure that nothing is left behind.
    fn end(self) -> Ended {
        let deadline = boot_now() + LIMIT;
        let exit = loop {
            if let Some(exit) = self.process.exit() {
                break exit;
            }
            assert!(boot_now() < deadline, "the drill does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        let left: Vec<_> = fs::read_dir(self.folder.path().join("files"))
            .expect("the folder is there")
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        assert_eq!(self.nodes(), Vec::<String>::new(), "left running");
        Ended {
            exit,
            stdout: fs::read_to_string(self.folder.path().join("report")).expect("a report"),
            lines: self.process.all_lines(),
        }
    }

    /// The processes that have settings with files in the folder of this drill.
    fn nodes(&self) -> Vec<String> {
        let files = self.folder.path().join("files");
        let state_file = format!("MONOLOCK_STATE_FILE={}", files.display());
        let processes = fs::read_dir("/proc").expect("this is Linux");
        processes
            .flatten()
            .filter_map(|process| {
                let environment = fs::read(process.path().join("environ")).ok()?;
                let environment = String::from_utf8_lossy(&environment).into_owned();
                environment
                    .contains(&state_file)
                    .then(|| process.file_name().to_string_lossy().into_owned())
            })
            .collect()
    }
}

impl Ended {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.exit,
            Exit::Code(code),
            "{}\n{}",
            self.lines.join("\n"),
            self.stdout
        );
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    fn says(&self, text: &str) -> bool {
        self.lines.iter().any(|line| line.contains(text))
    }
}

/// Two runs, so that the second meets a pair with a past.
fn passes(scenario: &str, argument: &str) {
    let report = Drill::rehearse(&["--scenario", scenario, "--runs", "2"])
        .expect(0)
        .json();
    let result = &report["scenarios"][0];
    assert_eq!(result["verdict"], "passed", "{report:#}");
    let runs = result["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2, "{report:#}");
    for run in runs {
        assert!(run["gap_ms"].is_number() && run["held_ms"].is_number(), "{run:#}");
        assert_eq!(run["argument"], argument, "{run:#}");
        assert!(!run["timeline"].as_array().expect("steps").is_empty(), "{run:#}");
    }
}

#[test]
fn a_killed_active_is_taken_over() {
    passes("kill", "crash");
}

#[test]
fn a_frozen_active_is_taken_over() {
    passes("freeze", "silence");
}

#[test]
fn an_active_that_is_cut_off_is_taken_over() {
    passes("partition", "silence");
}

#[test]
fn clocks_that_are_stepped_change_nothing() {
    passes("clock-step", "crash");
}

#[test]
fn a_handover_is_measured() {
    passes("handover", "handover");
}

#[test]
fn both_nodes_come_back() {
    let report = Drill::rehearse(&["--scenario", "double-restart"])
        .expect(0)
        .json();
    assert_eq!(report["scenarios"][0]["verdict"], "passed", "{report:#}");
}

#[test]
fn a_pair_whose_grace_is_waived_fails_the_drill() {
    // The frozen active's holder believes for longer than the standby waits.
    let arguments = ["--scenario", "freeze", "--grace", "none", "--lease", "20s"];
    let report = Drill::rehearse(&arguments).expect(4).json();
    let result = &report["scenarios"][0];
    assert_eq!(result["verdict"], "failed", "{report:#}");
    assert_eq!(result["double_grants"], 1, "{report:#}");
    assert_eq!(result["early_grants"], 1, "{report:#}");
    assert_eq!(result["token_regressions"], 0, "{report:#}");
}

#[test]
fn the_operators_own_kind_of_witness_can_be_rehearsed_with() {
    let server = Postgres::start();
    let arguments = ["--scenario", "partition", "handover", "--witness", server.url()];
    let report = Drill::rehearse(&arguments).expect(0).json();
    assert_eq!(report["witness"], "postgres");
    assert_eq!(
        report["scenarios"][0]["runs"][0]["argument"], "silence",
        "{report:#}"
    );
}

#[test]
fn an_interrupted_drill_leaves_nothing_behind() {
    let drill = Drill::start(&["--scenario", "freeze", "--runs", "1000", "--ttl", TTL], []);
    drill.process.wait_for_line("run 1 of 1000");
    wait_until("the two nodes to run", || drill.nodes().len() == 2);
    drill.process.signal(Signal::INT);
    drill.end().expect(130);
}

#[test]
fn what_cannot_be_carried_out_is_said() {
    let no_witness = Drill::rehearse(&["--witness", "none"]).expect(1);
    assert!(no_witness.says("--witness"), "{:?}", no_witness.lines);
    let no_such_scenario = Drill::rehearse(&["--scenario", "earthquake"]).expect(2);
    assert!(
        no_such_scenario.says("earthquake"),
        "{:?}",
        no_such_scenario.lines
    );
    let unreachable = Drill::rehearse(&["--scenario", "partition", "--witness", "dns:witness.example.com"]);
    assert!(
        unreachable.expect(1).json()["scenarios"][0]["not_run"]
            .as_str()
            .is_some_and(|reason| reason.contains("dns"))
    );
}

#[test]
fn the_real_pair_hands_over_and_back_and_only_when_told_so() {
    let folder = TempDir::with_prefix("monolock-pair-").expect("a temporary folder can be made");
    let runtime = Runtime::new().expect("a runtime starts");
    let program = binaries::path("monolock-failover");
    let pair = {
        let _entered = runtime.enter();
        Pair::start(&program, folder.path(), Duration::from_secs(3), None).expect("the pair starts")
    };
    let (active, _) = runtime.block_on(pair.wait_until_healthy()).expect("healthy");
    let unasked = Drill::start(&["--live"], pair.settings(NodeId::A))
        .end()
        .expect(1);
    assert!(unasked.says("--yes"), "{:?}", unasked.lines);

    let arguments = ["--live", "--yes", "--back", "--json"];
    let report = Drill::start(&arguments, pair.settings(NodeId::A))
        .end()
        .expect(0)
        .json();
    assert_eq!(report["pair"], "live");
    let runs = report["scenarios"][0]["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2, "{report:#}");
    let (now_active, _) = runtime.block_on(pair.wait_until_healthy()).expect("healthy");
    assert_eq!(now_active, active, "it went there and back");
}
