//! Starting, stopping, settings and the ops endpoints of the real binary.

mod common;

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::Output;

use common::{PATIENCE, ServerProcess, command, http, try_http, wait_until, with_limits};
use monolock_protocol::ErrorCode;
use rustix::process::Signal;

#[test]
fn a_termination_tells_every_session_and_exits_cleanly_though_one_does_not_read() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = ServerProcess::start(&[]);
        let (mut holder, _) = server.hold("a", 60_000);
        let mut waiter = server.queue("a", 60_000);
        let mut newcomer = server.connect();
        let mut deaf = server.acquire("b", 60_000);
        let stuffed = std::thread::spawn(move || while deaf.try_send(&[0x02; 65_536]).is_ok() {});
        assert_eq!(http(server.ops_addr, "GET", "/readyz", &[]).0, 200);
        server.wait_for_metric("monolock_connections_active", 4.0);
        // Until its answers are stuck.
        let mut last = -1.0;
        assert!(wait_until(|| {
            let beats = server.metric("monolock_heartbeats_total");
            std::mem::replace(&mut last, beats) == beats && beats > 0.0
        }));
        server.signal(signal);
        for session in [&mut holder, &mut waiter, &mut newcomer] {
            session.expect_error(ErrorCode::ShuttingDown);
        }
        assert_eq!(
            http(server.ops_addr, "GET", "/readyz", &[]).0,
            503,
            "the ops endpoints outlive the listener"
        );
        assert_eq!(http(server.ops_addr, "GET", "/healthz", &[]).0, 503);
        assert!(
            std::net::TcpStream::connect(server.lock_addr).is_err(),
            "the lock listener is closed"
        );
        drop((holder, waiter, newcomer));
        assert!(server.wait().success());
        assert!(try_http(server.ops_addr, "GET", "/healthz", &[]).is_err());
        stuffed.join().expect("no panic");
    }
}

#[test]
fn the_ops_endpoints_answer_and_every_series_is_there_from_the_start() {
    let server = ServerProcess::start(&[]);
    assert_eq!(http(server.ops_addr, "GET", "/healthz", &[]).0, 200);
    let (_, text) = http(server.ops_addr, "GET", "/metrics", &[]);
    for (name, kind) in [
        ("monolock_connections_active", "gauge"),
        ("monolock_locks_held", "gauge"),
        ("monolock_waiters", "gauge"),
        ("monolock_acquires_total", "counter"),
        ("monolock_acl_denials_total", "counter"),
        ("monolock_connections_accepted_total", "counter"),
        ("monolock_accept_errors_total", "counter"),
        ("monolock_tls_handshake_errors_total", "counter"),
        ("monolock_heartbeats_total", "counter"),
        ("monolock_releases_total", "counter"),
        ("monolock_protocol_errors_total", "counter"),
        ("monolock_wait_seconds", "summary"),
        ("monolock_hold_seconds", "summary"),
        ("process_resident_memory_bytes", "gauge"),
        ("process_open_fds", "gauge"),
    ] {
        assert!(
            text.contains(&format!("# TYPE {name} {kind}\n")),
            "{name} in {text}"
        );
    }
    let metrics = server.metrics();
    for series in [
        "monolock_releases_total{reason=\"graceful\"}",
        "monolock_releases_total{reason=\"expired\"}",
        "monolock_releases_total{reason=\"io_timeout\"}",
        "monolock_releases_total{reason=\"force\"}",
        "monolock_protocol_errors_total{code=\"0x01\"}",
        "monolock_protocol_errors_total{code=\"0x18\"}",
        "monolock_wait_seconds_sum",
        "monolock_wait_seconds_count",
        "monolock_hold_seconds_sum",
        "monolock_hold_seconds_count",
        "monolock_acquires_total",
    ] {
        assert_eq!(metrics.get(series), Some(&0.0), "{series}");
    }
    let (holder, _) = server.hold("a", 60_000);
    let _waiter = server.queue("a", 60_000);
    for (series, value) in [
        ("monolock_connections_active", 2.0),
        ("monolock_locks_held", 1.0),
        ("monolock_waiters", 1.0),
        ("monolock_wait_seconds_count", 1.0),
        ("monolock_hold_seconds_count", 0.0),
    ] {
        assert_eq!(server.metric(series), value, "{series}");
    }
    drop(holder);
    server.wait_for_metric("monolock_hold_seconds_count", 1.0);
    assert_eq!(server.metric("monolock_wait_seconds_count"), 2.0);
}

/// What a start that must fail says.
fn refusal(settings: &[(&str, &str)], arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = command(settings)
        .args(arguments)
        .output()
        .expect("it ends by itself");
    assert!(!status.success());
    let stderr = String::from_utf8(stderr).expect("text");
    assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
    stderr
}

#[test]
fn a_bad_setting_stops_the_start_with_one_line_that_names_it() {
    let missing = "/nonexistent/file";
    for (setting, value) in [
        ("MONOLOCK_LISTEN_ADDRESS", "7070"),
        ("MONOLOCK_LISTEN_ADDRESS", "no-such-host.invalid:7070"),
        ("MONOLOCK_OPS_LISTEN_ADDRESS", "nonsense"),
        ("MONOLOCK_ADMIN_LISTEN_ADDRESS", "127.0.0.1:70700"),
        ("MONOLOCK_IO_TIMEOUT", "5"),
        ("MONOLOCK_LOG_LEVEL", "loud"),
        ("MONOLOCK_LOG_FORMAT", "xml"),
        ("MONOLOCK_AUDIT_LOG", "/nonexistent/audit"),
        ("MONOLOCK_TOKEN_FILE", "/nonexistent/tokens"),
        ("MONOLOCK_TLS_CLIENT_CA", missing),
        ("MONOLOCK_ACL_FILE", missing),
    ] {
        let line = refusal(&[(setting, value)], &[]);
        assert!(line.contains(setting), "{line}");
    }
    let line = refusal(
        &[("MONOLOCK_TLS_CERT", missing), ("MONOLOCK_TLS_KEY", missing)],
        &[],
    );
    assert!(
        line.contains("MONOLOCK_TLS_CERT") && line.contains(missing),
        "{line}"
    );
    assert!(refusal(&[], &["--no-such-flag"]).contains("--no-such-flag"));
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    for setting in [
        "MONOLOCK_LISTEN_ADDRESS",
        "MONOLOCK_OPS_LISTEN_ADDRESS",
        "MONOLOCK_ADMIN_LISTEN_ADDRESS",
    ] {
        let line = refusal(&[(setting, &address)], &[]);
        assert!(line.contains(setting) && line.contains(&address), "{line}");
    }
}

#[test]
fn a_flag_wins_over_the_environment_with_one_dash_or_two_and_empty_is_unset() {
    let settings = [
        ("MONOLOCK_IO_TIMEOUT", "nonsense"),
        ("MONOLOCK_LOG_LEVEL", ""),
        ("MONOLOCK_TLS_CERT", ""),
    ];
    let mut command = command(&settings);
    command.args(["-io-timeout", "2s", "--log-format=text"]);
    let server = ServerProcess::spawn(command);
    assert_eq!(
        common::json(server.admin_addr, "/api/info")["config"]["io_timeout_ms"],
        2_000
    );
}

#[test]
fn help_lists_each_setting_with_flag_variable_and_default() {
    let output = command(&[]).arg("--help").output().expect("it ends by itself");
    let help = String::from_utf8(output.stdout).expect("text");
    for text in [
        "--listen",
        "MONOLOCK_LISTEN_ADDRESS",
        "0.0.0.0:7070",
        "--ops-listen",
        "MONOLOCK_OPS_LISTEN_ADDRESS",
        "--admin-listen",
        "MONOLOCK_ADMIN_LISTEN_ADDRESS",
        "--tls-cert",
        "MONOLOCK_TLS_CERT",
        "--tls-key",
        "MONOLOCK_TLS_KEY",
        "--tls-client-ca",
        "MONOLOCK_TLS_CLIENT_CA",
        "--acl-file",
        "MONOLOCK_ACL_FILE",
        "--audit-log",
        "MONOLOCK_AUDIT_LOG",
        "--io-timeout",
        "MONOLOCK_IO_TIMEOUT",
        "5s",
        "--log-level",
        "MONOLOCK_LOG_LEVEL",
        "info",
        "--log-format",
        "MONOLOCK_LOG_FORMAT",
        "--token-file",
        "MONOLOCK_TOKEN_FILE",
        "--check",
    ] {
        assert!(help.contains(text), "{text} in {help}");
    }
}

#[test]
fn the_soft_descriptor_limit_is_raised_to_the_hard_one() {
    let server = ServerProcess::spawn(with_limits("ulimit -Sn 100 && ulimit -Hn 1000", &[]));
    assert_eq!(server.metric("process_max_fds"), 1_000.0);
}

#[test]
fn check_validates_and_exits() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens").display().to_string();
    let fine = command(&[("MONOLOCK_TOKEN_FILE", &tokens)])
        .arg("--check")
        .output()
        .expect("it ends by itself");
    assert!(fine.status.success(), "{fine:?}");
    let line = refusal(&[("MONOLOCK_AUDIT_LOG", "/nonexistent/audit")], &["--check"]);
    assert!(line.contains("MONOLOCK_AUDIT_LOG"), "{line}");
}

#[test]
fn the_service_manager_is_told_when_it_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let told = || {
        let mut message = [0; 256];
        let len = socket.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..len]).trim_end().to_owned()
    };
    let mut server = ServerProcess::start(&[("NOTIFY_SOCKET", path.to_str().expect("text"))]);
    assert_eq!(told(), "READY=1");
    server.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1");
    assert!(server.wait().success());
}

#[test]
fn json_diagnostics_are_json_lines_in_utc() {
    let mut command = command(&[
        ("MONOLOCK_LOG_FORMAT", "json"),
        ("MONOLOCK_LISTEN_ADDRESS", "127.0.0.1:0"),
    ]);
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let mut line = String::new();
    let mut stderr = std::io::BufReader::new(child.stderr.take().expect("piped"));
    std::io::BufRead::read_line(&mut stderr, &mut line).expect("a line");
    child.kill().expect("own child");
    child.wait().expect("own child");
    let entry: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(entry["message"], "listening");
    assert!(
        entry["address"]
            .as_str()
            .is_some_and(|address| address.starts_with("127.0.0.1:"))
    );
    assert!(
        entry["timestamp"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
}
