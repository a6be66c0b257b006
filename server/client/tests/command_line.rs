//! The command `monolock` under a real server.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use support::server::{Server, pid, without_settings};
use support::{closed_port, eventually};

const LOST: i32 = 111;

fn monolock(arguments: &[&str]) -> Command {
    let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_monolock")));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    monolock(arguments).output().expect("it runs")
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| panic!("{status}"))
}

/// `monolock run` in the background, killed when the test fails.
struct Run(Child);

impl Run {
    fn start(server: &Server, options: &[&str], script: &str) -> Self {
        let servers = server.servers();
        let mut arguments = vec!["run", "a/b", "--server", &servers];
        arguments.extend(options);
        arguments.extend(["--", "sh", "-c", script]);
        Self(monolock(&arguments).spawn().expect("it starts"))
    }

    fn wait(mut self) -> i32 {
        let mut status = None;
        eventually("the end of monolock run", || {
            status = self.0.try_wait().expect("waited");
            status.is_some()
        });
        code(status.expect("it ended"))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a process id that a script wrote with a final newline.
fn written_pid(file: &Path) -> Pid {
    let mut found = None;
    eventually("the process id", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        found = text
            .strip_suffix('\n')
            .and_then(|text| text.parse().ok())
            .and_then(Pid::from_raw);
        found.is_some()
    });
    found.expect("just found")
}

fn is_running(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    // A zombie is dead; whoever adopted it has not looked yet.
    test_kill_process(process).is_ok() && stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// A shell that writes its id, ignores SIGTERM and never ends, as a child of one that does the same.
fn stubborn_family(folder: &Path) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    let (child, grandchild) = (file("child"), file("grandchild"));
    format!(
        "trap '' TERM USR1; \
         sh -c 'trap \"\" TERM; echo $$ > {grandchild}; while :; do sleep 0.1; done' & \
         echo $$ > {child}; while :; do sleep 0.1; done"
    )
}

#[test]
fn the_command_finds_lock_and_token_and_its_exit_code_is_passed_on() {
    let server = Server::start();
    let servers = server.servers();
    let run = |script: &str| {
        output(&[
            "run",
            "nightly import",
            "--lease",
            "2s",
            "--server",
            &servers,
            "--",
            "sh",
            "-c",
            script,
        ])
    };
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let result = run("echo \"$MONOLOCK_LOCK:$MONOLOCK_TOKEN\"; exit 42");
        assert_eq!(code(result.status), 42, "{result:?}");
        let line = String::from_utf8(result.stdout).expect("text");
        let (lock, token) = line.trim_end().rsplit_once(':').expect("a colon");
        assert_eq!(lock, "nightly import");
        tokens.push(token.parse::<u64>().expect("a number"));
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    assert_eq!(code(run("kill -USR1 $$").status), 128 + 10);
    assert_eq!(code(run("true").status), 0);
}

#[test]
fn a_held_lock_is_not_waited_for_longer_than_wished() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let marker = folder.path().join("held");
    let holder = Run::start(
        &server,
        &[],
        &format!("echo $$ > {}; sleep 1000", marker.display()),
    );
    written_pid(&marker);
    let servers = server.servers();
    for options in [["--try", "--lease=2s"], ["--wait=300ms", "--lease=2s"]] {
        let arguments = [
            &["run", "a/b", "--server", &servers],
            &options[..],
            &["--", "true"],
        ]
        .concat();
        let result = output(&arguments);
        assert_eq!(code(result.status), 75, "{result:?}");
    }
    kill_process(pid(&holder.0), Signal::TERM).expect("it runs");
    assert_eq!(
        holder.wait(),
        128 + 15,
        "the command died of the forwarded signal"
    );
}

#[test]
fn what_cannot_work_has_its_own_exit_code() {
    let server = Server::start();
    let (servers, nowhere) = (server.servers(), closed_port().to_string());
    let long = "x".repeat(256);
    for (arguments, expected) in [
        (
            &["run", "a", "--server", &servers, "--", "/no/such/command"][..],
            127,
        ),
        (&["run", "a", "--server", &servers, "--", "/"], 126),
        (&["run", "a", "--server", &nowhere, "--try", "--", "true"], 69),
        (
            &["run", "a", "--server", &nowhere, "--wait=300ms", "--", "true"],
            75,
        ),
        (&["run", "a", "--server", "a:b", "--", "true"], 78),
        (&["run", &long, "--server", &servers, "--", "true"], 78),
        (
            &[
                "run",
                "a",
                "--server",
                &servers,
                "--tls-ca",
                "/no/such/file",
                "--",
                "true",
            ],
            78,
        ),
        (&["run", "a"], 2),
        (&["status", "--admin", &nowhere], 69),
    ] {
        let result = output(arguments);
        assert_eq!(code(result.status), expected, "{arguments:?}: {result:?}");
        assert!(!result.stderr.is_empty());
    }
}

#[test]
fn servers_are_asked_in_turn() {
    let server = Server::start();
    let servers = format!("{},{}", closed_port(), server.address);
    let result = output(&["run", "a", "--server", &servers, "--", "true"]);
    assert_eq!(code(result.status), 0, "{result:?}");
}

#[test]
fn a_signal_while_waiting_ends_the_wait() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let marker = folder.path().join("held");
    let holder = Run::start(
        &server,
        &[],
        &format!("echo $$ > {}; sleep 1000", marker.display()),
    );
    written_pid(&marker);
    let waiter = Run::start(&server, &[], "exit 1");
    // Handlers are in place before the first connection, so a signal after the start of the program is never missed.
    eventually("the start of the waiter", || {
        std::fs::read_to_string(format!("/proc/{}/status", waiter.0.id()))
            .is_ok_and(|status| catches_sigterm(&status))
    });
    kill_process(pid(&waiter.0), Signal::TERM).expect("it runs");
    assert_eq!(waiter.wait(), 128 + 15);
    drop(holder);
}

fn catches_sigterm(status: &str) -> bool {
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .expect("a caught mask");
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|mask| mask & (1 << (15 - 1)) != 0)
}

#[test]
fn signals_reach_the_command() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let marker = folder.path().join("ready");
    let script = format!(
        "trap 'exit 7' HUP; echo $$ > {}; while :; do sleep 0.1; done",
        marker.display()
    );
    let run = Run::start(&server, &[], &script);
    written_pid(&marker);
    kill_process(pid(&run.0), Signal::HUP).expect("it runs");
    assert_eq!(run.wait(), 7);
}

#[test]
fn a_loss_ends_the_whole_group_even_those_who_ignore_sigterm() {
    // A dead server closes the connection; a frozen one is merely silent.
    for fault in [Signal::KILL, Signal::STOP] {
        let server = Server::start();
        let folder = tempfile::tempdir().expect("a folder");
        let run = Run::start(&server, &["--lease", "1s"], &stubborn_family(folder.path()));
        let child = written_pid(&folder.path().join("child"));
        let grandchild = written_pid(&folder.path().join("grandchild"));
        server.signal(fault);
        assert_eq!(run.wait(), LOST, "{fault:?}");
        eventually("the end of the child", || !is_running(child));
        eventually("the end of the grandchild", || !is_running(grandchild));
    }
}

#[test]
fn a_command_that_heeds_sigterm_may_clean_up_while_the_lease_lasts() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let (ready, cleaned) = (folder.path().join("ready"), folder.path().join("cleaned"));
    let script = format!(
        "trap 'echo $$ > {}; exit 0' TERM; echo $$ > {}; while :; do sleep 0.05; done",
        cleaned.display(),
        ready.display()
    );
    let run = Run::start(&server, &["--lease", "5s"], &script);
    written_pid(&ready);
    server.signal(Signal::STOP);
    assert_eq!(run.wait(), LOST, "its own exit code does not count");
    written_pid(&cleaned);
}

#[test]
fn the_group_outlives_neither_the_death_nor_the_freezing_of_monolock() {
    for fault in [Signal::KILL, Signal::STOP] {
        let server = Server::start();
        let folder = tempfile::tempdir().expect("a folder");
        let run = Run::start(&server, &["--lease", "1s"], &stubborn_family(folder.path()));
        let child = written_pid(&folder.path().join("child"));
        let grandchild = written_pid(&folder.path().join("grandchild"));
        kill_process(pid(&run.0), fault).expect("it runs");
        eventually("the end of the child", || !is_running(child));
        eventually("the end of the grandchild", || !is_running(grandchild));
    }
}

#[test]
fn notify_leaves_the_decision_to_the_command() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let (ready, told) = (folder.path().join("ready"), folder.path().join("told"));
    let script = format!(
        "trap 'echo $$ > {}; exit 0' USR1; echo $$ > {}; while :; do sleep 0.05; done",
        told.display(),
        ready.display()
    );
    let run = Run::start(&server, &["--lease", "1s", "--on-lost", "notify"], &script);
    written_pid(&ready);
    server.signal(Signal::KILL);
    assert_eq!(run.wait(), LOST);
    written_pid(&told);
}

#[test]
fn an_operator_sees_and_ends_what_happens() {
    let server = Server::start_with_admin();
    let admin = server.admin();
    let ask = |arguments: &[&str]| {
        let result = output(&[arguments, &["--admin", &admin]].concat());
        (
            code(result.status),
            String::from_utf8(result.stdout).expect("text"),
        )
    };
    assert_eq!(ask(&["status", "a/b"]), (3, "a/b: idle\n".to_owned()));
    assert_eq!(ask(&["release", "a/b"]), (3, "a/b: nobody holds it\n".to_owned()));
    assert_eq!(
        ask(&["kick", "a/b", "127.0.0.1:1"]),
        (3, "a/b: 127.0.0.1:1 does not wait\n".to_owned())
    );

    let folder = tempfile::tempdir().expect("a folder");
    let marker = folder.path().join("held");
    let holder = Run::start(
        &server,
        &["--lease=2s"],
        &format!("echo $$ > {}; sleep 1000", marker.display()),
    );
    written_pid(&marker);
    let (status, table) = ask(&["status"]);
    assert_eq!(status, 0);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["LOCK", "HOLDER", "TOKEN", "SINCE", "LEASE", "WAITERS"]);
    assert_eq!(
        (rows[1][0], rows[1][4], rows[1][5]),
        ("a/b", "2s", "0"),
        "{table}"
    );
    assert_eq!(
        ask(&["status", "--match", "b*"]).1.lines().count(),
        1,
        "only the header"
    );
    let (_, json) = ask(&["status", "a/b", "--json"]);
    assert!(json.contains("\"lease_ms\": 2000"), "{json}");

    let watch = monolock(&["watch", "--json", "--admin", &admin])
        .stdout(Stdio::piped())
        .spawn();
    let mut watch = Run(watch.expect("it starts"));
    let mut looks = BufReader::new(watch.0.stdout.take().expect("piped")).lines();
    let look = looks.next().expect("a line").expect("text");
    assert!(look.starts_with("{\"locks\":[{"), "{look}");

    assert_eq!(ask(&["release", "a/b"]), (0, "a/b: released\n".to_owned()));
    assert_eq!(holder.wait(), LOST);
    for (arguments, result) in [
        (&["release", "a/b", "--json"][..], "\"released\": false"),
        (&["kick", "a/b", "127.0.0.1:1", "--json"], "\"kicked\": false"),
    ] {
        let (code, json) = ask(arguments);
        assert_eq!(code, 3);
        assert!(
            json.contains(result) && json.contains("\"lock\": \"a/b\""),
            "{json}"
        );
    }
    let idle = looks.map_while(Result::ok).find(|look| look == "{\"locks\":[]}");
    assert!(idle.is_some());
}

#[test]
fn completions_and_manual_pages_come_out_of_the_program() {
    for shell in ["bash", "zsh", "fish"] {
        let result = output(&["completions", shell]);
        assert!(result.status.success());
        assert!(
            String::from_utf8_lossy(&result.stdout).contains("on-lost"),
            "{shell}"
        );
    }
    let page = output(&["man"]);
    assert!(
        String::from_utf8_lossy(&page.stdout).starts_with(".ie"),
        "{page:?}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man");
    assert!(
        output(&["man", "--out-dir", &pages.display().to_string()])
            .status
            .success()
    );
    let page = std::fs::read_to_string(pages.join("monolock-run.1")).expect("a page for run");
    assert!(page.contains("MONOLOCK_TOKEN"));
}
