//! The admin API of the real binary.

mod common;

use common::{ServerProcess, exchange, http, json};
use monolock_protocol::ErrorCode;
use monolock_protocol::frame::ServerFrame;

fn addr(client: &common::RawClient) -> String {
    client.socket.local_addr().expect("bound").to_string()
}

#[test]
fn info_shows_version_settings_and_counts() {
    let server = ServerProcess::start(&[("MONOLOCK_IO_TIMEOUT", "4s")]);
    let _holder = server.hold("a", 60_000);
    let _waiter = server.queue("a", 60_000);
    let info = json(server.admin_addr, "/api/info");
    assert!(
        info["version"]
            .as_str()
            .is_some_and(|version| version.starts_with('v'))
    );
    assert!(info["uptime_ms"].is_u64());
    assert_eq!((&info["locks"], &info["sessions"]), (&1.into(), &2.into()));
    let expected = serde_json::json!({
        "listen": "127.0.0.1:0",
        "ops_listen": "127.0.0.1:0",
        "admin_listen": "127.0.0.1:0",
        "tls": false,
        "mtls": false,
        "acl_file": "",
        "audit_log": "",
        "io_timeout_ms": 4_000,
    });
    assert_eq!(info["config"], expected);
}

#[test]
fn locks_are_listed_filtered_and_shown_one_by_one() {
    let server = ServerProcess::start(&[]);
    let (holder, token) = server.hold("nightly/import", 2_000_000);
    let first = server.queue("nightly/import", 60_000);
    let second = server.queue("nightly/import", 60_000);
    let _other = server.hold("daily", 60_000);
    let all = json(server.admin_addr, "/api/locks");
    let names: Vec<_> = all["locks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|lock| &lock["name"])
        .collect();
    assert_eq!(names, ["daily", "nightly/import"]);
    let some = json(server.admin_addr, "/api/locks?match=nightly/*");
    assert_eq!(some["locks"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        json(server.admin_addr, "/api/locks?match=NIGHTLY*")["locks"],
        serde_json::json!([])
    );

    let lock = json(server.admin_addr, "/api/locks/nightly%2Fimport");
    assert_eq!(some["locks"][0], lock);
    assert_eq!(lock["holder"]["remote_addr"], addr(&holder));
    assert_eq!(lock["holder"]["identity"], "");
    assert_eq!(lock["holder"]["lease_ms"], 2_000_000);
    assert_eq!(lock["holder"]["token"], token.get());
    assert!(
        lock["holder"]["since"]
            .as_str()
            .is_some_and(|since| since.ends_with('Z'))
    );
    let waiters: Vec<_> = lock["waiters"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|waiter| &waiter["remote_addr"])
        .collect();
    assert_eq!(waiters, [addr(&first).as_str(), addr(&second).as_str()]);
    assert!(lock["waiters"][0]["queued_at"].is_string());

    drop((holder, first, second));
    server.wait_for_metric("monolock_locks_held", 1.0);
    assert_eq!(
        http(server.admin_addr, "GET", "/api/locks/nightly%2Fimport", &[]).0,
        404
    );
}

#[test]
fn a_forced_release_tells_the_holder_and_promotes_the_next() {
    let server = ServerProcess::start(&[]);
    let (mut holder, token) = server.hold("a/b", 60_000);
    let mut next = server.queue("a/b", 60_000);
    assert_eq!(
        http(server.admin_addr, "POST", "/api/locks/a%2Fb/release", &[]).0,
        200
    );
    holder.expect_error(ErrorCode::ClosedByAdministrator);
    assert!(next.acquired() > token);
    drop(next);
    server.wait_for_metric("monolock_locks_held", 0.0);
    assert_eq!(
        http(server.admin_addr, "POST", "/api/locks/a%2Fb/release", &[]).0,
        404
    );
    assert_eq!(server.metric("monolock_releases_total{reason=\"force\"}"), 1.0);
}

#[test]
fn a_release_that_names_a_token_spares_every_other_holder() {
    let server = ServerProcess::start(&[]);
    let (mut holder, token) = server.hold("a", 60_000);
    let release = |token: &str| {
        http(
            server.admin_addr,
            "POST",
            &format!("/api/locks/a/release?token={token}"),
            &[],
        )
        .0
    };
    assert_eq!(release(&(token.get() - 1).to_string()), 409);
    assert_eq!(release("many"), 400);
    assert_eq!(holder.heartbeat(), ServerFrame::Acquired(token));
    assert_eq!(release(&token.get().to_string()), 200);
    holder.expect_error(ErrorCode::ClosedByAdministrator);
    assert_eq!(release(&token.get().to_string()), 409, "nobody holds it");
}

#[test]
fn metrics_are_given_as_numbers_too() {
    let server = ServerProcess::start(&[]);
    let (mut holder, _) = server.hold("a", 60_000);
    let _waiter = server.queue("a", 60_000);
    holder.heartbeat();
    http(server.admin_addr, "POST", "/api/locks/a/release", &[]);
    holder.expect_error(ErrorCode::ClosedByAdministrator);
    let mut metrics = json(server.admin_addr, "/api/metrics");
    let time = metrics["time"].take();
    assert!(time.as_str().is_some_and(|time| time.ends_with('Z')));
    let expected = serde_json::json!({
        "time": null,
        "connections_active": metrics["connections_active"],
        "locks_held": 1,
        "waiters": 0,
        "acquires_total": 2,
        "heartbeats_total": 1,
        "protocol_errors_total": 1,
        "releases_total": {"graceful": 0, "expired": 0, "io_timeout": 0, "force": 1},
    });
    assert_eq!(metrics, expected);
}

#[test]
fn the_page_comes_under_a_strict_policy() {
    let server = ServerProcess::start(&[]);
    let answer = exchange(server.admin_addr, "GET", "/", &[]).expect("an HTTP answer");
    let (head, page) = answer.split_once("\r\n\r\n").expect("a body");
    let head = head.to_ascii_lowercase();
    for header in [
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "content-type: text/html",
    ] {
        assert!(head.contains(header), "{header} in {head}");
    }
    assert!(!head.contains("unsafe"), "{head}");
    for outside in ["http://", "https://", "src=", " on"] {
        let markup = page
            .split("<style>")
            .next()
            .expect("the head")
            .replace("http://www.w3.org/2000/svg", "");
        assert!(!markup.contains(outside), "{outside}");
    }
}

#[test]
fn a_kicked_waiter_is_told_and_the_rest_keep_their_order() {
    let server = ServerProcess::start(&[]);
    let (holder, _) = server.hold("a", 60_000);
    let mut waiters: Vec<_> = (0..3).map(|_| server.queue("a", 60_000)).collect();
    let mut kicked = waiters.remove(1);
    let path = format!("/api/locks/a/waiters/{}", addr(&kicked));
    assert_eq!(http(server.admin_addr, "DELETE", &path, &[]).0, 200);
    kicked.expect_error(ErrorCode::ClosedByAdministrator);
    assert_eq!(http(server.admin_addr, "DELETE", &path, &[]).0, 404);
    let of_holder = format!("/api/locks/a/waiters/{}", addr(&holder));
    assert_eq!(
        http(server.admin_addr, "DELETE", &of_holder, &[]).0,
        404,
        "a holder is not a waiter"
    );
    drop(holder);
    waiters[0].acquired();
    assert_eq!(waiters[1].heartbeat(), ServerFrame::Waiting);
}

#[test]
fn what_is_not_there_and_what_is_not_allowed_is_said_in_json() {
    let server = ServerProcess::start(&[]);
    let _holder = server.hold("a", 60_000);
    for (method, path, headers, expected) in [
        ("GET", "/api/nothing", &[][..], 404),
        ("GET", "/api/locks/%FF", &[], 404),
        ("GET", "/api/locks/a/release", &[], 405),
        (
            "POST",
            "/api/locks/a/release",
            &[("Origin", "http://evil.example")],
            403,
        ),
        ("POST", "/api/locks/a/release", &[("Origin", "null")], 403),
        ("POST", "/api/locks/a/release", &[("Host", "evil.example")], 403),
        (
            "DELETE",
            "/api/locks/a/waiters/1.2.3.4:5",
            &[("Host", "evil.example:7071")],
            403,
        ),
    ] {
        let (status, body) = http(server.admin_addr, method, path, headers);
        assert_eq!(status, expected, "{method} {path} {headers:?}: {body}");
        let problem: serde_json::Value =
            serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
        assert!(problem["error"].is_string());
    }
    assert_eq!(server.metric("monolock_locks_held"), 1.0);
    let own = format!("http://localhost:{}", server.admin_addr.port());
    let host = format!("localhost:{}", server.admin_addr.port());
    let headers = [("Host", host.as_str()), ("Origin", own.as_str())];
    assert_eq!(
        http(server.admin_addr, "POST", "/api/locks/a/release", &headers).0,
        200
    );
}

#[test]
fn a_bind_beyond_loopback_warns() {
    let mut server = ServerProcess::start(&[("MONOLOCK_ADMIN_LISTEN_ADDRESS", "0.0.0.0:0")]);
    server.wait_for_log(|line| line.contains("WARN") && line.contains("admin address"));
}
