//! The token file and the audit log of the real binary.

mod common;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{ServerProcess, audit_lines, command, http, wait_until};
use rustix::process::Signal;
use serde_json::Value;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of the test")
}

#[test]
fn with_a_token_file_tokens_rise_over_kills_without_a_wait() {
    let folder = Folder::new();
    let path = folder.path("tokens");
    let settings = [("MONOLOCK_TOKEN_FILE", text(&path))];
    let mut tokens = Vec::new();
    for round in 0..10 {
        let mut server = ServerProcess::start(&settings);
        let mut client = server.acquire("a", 60_000);
        if round > 0 {
            let first = client.frame();
            assert!(
                matches!(first, Some(monolock_protocol::frame::ServerFrame::Acquired(_))),
                "granted at once: {first:?}"
            );
            drop(client);
            client = server.acquire("a", 60_000);
        }
        tokens.push(client.acquired());
        server.kill();
    }
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
}

#[test]
fn a_token_file_belongs_to_one_server_and_damage_is_refused() {
    let folder = Folder::new();
    let path = folder.path("tokens");
    let settings = [("MONOLOCK_TOKEN_FILE", text(&path))];
    let mut server = ServerProcess::start(&settings);
    let second = command(&settings).output().expect("it ends by itself");
    let refusal = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        !second.status.success() && refusal.contains("MONOLOCK_TOKEN_FILE"),
        "{refusal}"
    );
    assert!(refusal.contains("another server uses it"), "{refusal}");
    server.kill();
    std::fs::write(&path, b"{\"format\":1,\"reserved").expect("writable");
    let damaged = command(&settings).output().expect("it ends by itself");
    let refusal = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert!(
        !damaged.status.success() && refusal.contains("is damaged"),
        "{refusal}"
    );
}

fn field<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name]
        .as_str()
        .unwrap_or_else(|| panic!("no {name} in {line}"))
}

#[test]
fn each_change_of_ownership_is_one_line_with_its_fields() {
    let folder = Folder::new();
    let path = folder.path("audit.jsonl");
    let mut server = ServerProcess::start(&[("MONOLOCK_AUDIT_LOG", text(&path))]);
    let (holder, token) = server.hold("nightly/import", 60_000);
    let holder_addr = holder.socket.local_addr().expect("bound").to_string();
    let kicked = server.queue("nightly/import", 60_000);
    let kicked_addr = kicked.socket.local_addr().expect("bound").to_string();
    let mut next = server.queue("nightly/import", 60_000);
    let kick = format!("/api/locks/nightly%2Fimport/waiters/{kicked_addr}");
    assert_eq!(http(server.admin_addr, "DELETE", &kick, &[]).0, 200);
    assert_eq!(
        http(
            server.admin_addr,
            "POST",
            "/api/locks/nightly%2Fimport/release",
            &[]
        )
        .0,
        200
    );
    let next_token = next.acquired();
    drop(next);
    server.wait_for_metric("monolock_locks_held", 0.0);
    let (_last, _) = server.hold("at the end", 60_000);
    server.signal(Signal::TERM);
    assert!(server.wait().success());

    let lines = audit_lines(&path);
    let events: Vec<_> = lines.iter().map(|line| field(line, "event")).collect();
    assert_eq!(
        events,
        [
            "granted",
            "kick_waiter",
            "force_release",
            "released",
            "granted",
            "released",
            "granted",
            "released"
        ]
    );
    for line in &lines {
        assert!(field(line, "time").ends_with('Z'));
        assert_eq!(field(line, "identity"), "");
        let lock = field(line, "lock");
        assert!(lock == "nightly/import" || lock == "at the end");
    }
    assert_eq!(lines[0]["token"], token.get());
    assert!(lines[0]["wait_ms"].is_u64());
    assert_eq!(field(&lines[0], "remote_addr"), holder_addr);
    assert_eq!(field(&lines[1], "remote_addr"), kicked_addr);
    assert!(lines[1].get("token").is_none());
    assert_eq!(
        (&lines[2]["token"], &lines[3]["token"]),
        (&token.get().into(), &token.get().into())
    );
    assert_eq!(
        (field(&lines[3], "reason"), lines[3]["held_ms"].is_u64()),
        ("force", true)
    );
    assert_eq!(lines[4]["token"], next_token.get());
    assert_eq!(field(&lines[5], "reason"), "graceful");
    assert_eq!(
        field(&lines[7], "reason"),
        "graceful",
        "a shutdown ends ownerships too"
    );
}

#[test]
fn under_load_the_released_of_a_lock_precedes_the_granted_of_its_next_holder() {
    let folder = Folder::new();
    let path = folder.path("audit.jsonl");
    let mut server = ServerProcess::start(&[("MONOLOCK_AUDIT_LOG", text(&path))]);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for round in 0..50 {
                    let lock = ["x", "y", "z"][(thread + round) % 3];
                    server.hold(lock, 60_000);
                }
            });
        }
    });
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    let lines = audit_lines(&path);
    assert_eq!(lines.len(), 2 * 8 * 50);
    let mut last_token = 0;
    for lock in ["x", "y", "z"] {
        let of_lock: Vec<_> = lines.iter().filter(|line| field(line, "lock") == lock).collect();
        for pair in of_lock.chunks(2) {
            assert_eq!(
                (field(pair[0], "event"), field(pair[1], "event")),
                ("granted", "released")
            );
            assert_eq!(pair[0]["token"], pair[1]["token"]);
        }
    }
    for line in lines.iter().filter(|line| field(line, "event") == "granted") {
        let token = line["token"].as_u64().expect("a token");
        assert!(token > last_token, "the log is in the order of grants");
        last_token = token;
    }
}

#[test]
fn a_hangup_reopens_the_file_and_a_failure_keeps_the_old_one() {
    let folder = Folder::new();
    let path = folder.path("logs/audit.jsonl");
    std::fs::create_dir(folder.path("logs")).expect("a folder");
    let mut server = ServerProcess::start(&[("MONOLOCK_AUDIT_LOG", text(&path))]);
    server.hold("before", 60_000);
    let rotated = folder.path("logs/audit.jsonl.1");
    assert!(wait_until(|| audit_lines(&path).len() == 2));
    std::fs::rename(&path, &rotated).expect("renamed");
    server.hold("renamed", 60_000);
    assert!(
        wait_until(|| audit_lines(&rotated).len() == 4),
        "still the old file"
    );
    server.signal(Signal::HUP);
    assert!(wait_until(|| path.exists()));
    server.hold("after", 60_000);
    assert!(wait_until(|| audit_lines(&path).len() == 2), "the new file");
    assert_eq!(audit_lines(&rotated).len(), 4);

    std::fs::rename(folder.path("logs"), folder.path("moved")).expect("renamed");
    server.signal(Signal::HUP);
    server.wait_for_log(|line| line.contains("not reloaded") && line.contains("MONOLOCK_AUDIT_LOG"));
    server.hold("kept", 60_000);
    assert!(wait_until(|| audit_lines(&folder.path("moved/audit.jsonl"))
        .len()
        == 4));
}

#[test]
fn audit_on_stdout_is_nothing_but_json_lines() {
    let mut command = command(&[("MONOLOCK_AUDIT_LOG", "-")]);
    command.stdout(Stdio::piped());
    let mut server = ServerProcess::spawn(command);
    let mut stdout = server.take_stdout();
    server.hold("a", 60_000);
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("text");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_blocked_pipe_stalls_no_grant_and_what_is_lost_is_counted() {
    let mut command = command(&[("MONOLOCK_AUDIT_LOG", "-")]);
    command.stdout(Stdio::piped());
    let mut server = ServerProcess::spawn(command);
    let unread = server.take_stdout();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let (mut first, _) = server.hold(&format!("{:?}", std::thread::current().id()), 60_000);
                for _ in 0..9_000 {
                    let lock = format!("{:?}", std::thread::current().id());
                    let mut next = server.acquire(&lock, 60_000);
                    drop(first);
                    next.acquired();
                    first = next;
                }
            });
        }
    });
    let dropped = server.metric("monolock_audit_dropped_total");
    assert!(dropped > 0.0, "the queue of 65,536 records must have overflown");
    server.wait_for_log(|line| line.contains("records are dropped"));
    drop(unread);
    server.signal(Signal::TERM);
    assert!(server.wait().success());
}

#[test]
fn a_full_disk_stalls_no_grant_and_loses_no_record_that_fits_the_queue() {
    let mut server = ServerProcess::start(&[("MONOLOCK_AUDIT_LOG", "/dev/full")]);
    for _ in 0..20 {
        server.hold("a", 60_000);
    }
    server.wait_for_log(|line| line.contains("the audit log cannot be written"));
    assert_eq!(server.metric("monolock_audit_dropped_total"), 0.0);
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    server.wait_for_log(|line| line.contains("could not be written to its end"));
}
