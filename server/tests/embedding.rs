//! What a failover node relies on when it embeds a server.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{PATIENCE, RawClient, acquire_frame, http};
use monolock_protocol::frame::ServerFrame;
use monolock_protocol::{ErrorCode, Lease, LockName, Token};
use monolock_server::{
    Config, ExtraRoutes, FollowEnded, Grace, LockEvent, OpenGate, Server, ServerHandle, StartGate,
};

fn name(name: &str) -> LockName {
    LockName::new(name).expect("valid")
}

fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".to_owned(),
        ops_listen: Some("127.0.0.1:0".to_owned()),
        ..Config::default()
    }
}

fn term(term: u64, first_token: u64, authority: Duration) -> OpenGate {
    OpenGate {
        term,
        first_token: Token::new(first_token),
        ceiling: Token::MAX,
        authority_until: monolock_clock::boot_now() + authority,
        grace: Grace::default(),
    }
}

/// The test's own thread speaks to the server with plain sockets.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

fn acquire(handle: &ServerHandle, lock: &str, lease_ms: u32) -> RawClient {
    let mut client = RawClient::connect(handle.lock_addr());
    client.send(&acquire_frame(lock, lease_ms));
    client
}

fn ready(handle: &ServerHandle) -> u16 {
    http(handle.ops_addr().expect("on"), "GET", "/readyz", &[]).0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shut_gate_refuses_an_open_one_serves_and_a_lapsed_one_tells_its_sessions() {
    let server = Server::start(config(), StartGate::Shut).await.expect("starts");
    let handle = server.handle();
    let seen = handle.clone();
    blocking(move || {
        assert_eq!(ready(&seen), 503);
        acquire(&seen, "a", 60_000).expect_error(ErrorCode::NotActive);
    })
    .await;

    assert!(handle.open_gate(term(7, 4_711, PATIENCE)));
    assert!(!handle.open_gate(term(7, 4_711, PATIENCE)), "the same term twice");
    let seen = handle.clone();
    let mut client = blocking(move || {
        assert_eq!(ready(&seen), 200);
        seen.set_ready(false);
        assert_eq!(ready(&seen), 503);
        seen.set_ready(true);
        let mut client = acquire(&seen, "a", 60_000);
        assert_eq!(client.acquired(), Token::new(4_711));
        client
    })
    .await;
    let report = handle.report();
    assert_eq!(
        (report.term, report.held, report.last_token),
        (Some(7), 1, Token::new(4_711))
    );
    assert_eq!(report.longest_lease.map(Lease::as_millis), Some(60_000));

    let soon = monolock_clock::boot_now() + Duration::from_millis(50);
    assert!(!handle.renew_authority(6, soon, Token::MAX));
    assert!(handle.renew_authority(7, soon, Token::MAX), "never moved back");
    handle.shut_gate(ErrorCode::ShuttingDown);
    blocking(move || client.expect_error(ErrorCode::ShuttingDown)).await;
    assert!(!handle.renew_authority(7, soon, Token::MAX), "over for good");

    assert!(handle.open_gate(term(8, 10, Duration::from_millis(300))));
    let seen = handle.clone();
    blocking(move || {
        let mut client = acquire(&seen, "b", 60_000);
        assert_eq!(
            client.acquired(),
            Token::new(4_712),
            "never below what was granted"
        );
        client.expect_error(ErrorCode::NotActive);
        assert_eq!(ready(&seen), 503);
    })
    .await;
    assert!(!handle.report().serving);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grace_and_ceiling_hold_claims_in_the_queue() {
    let server = Server::start(config(), StartGate::Shut).await.expect("starts");
    let handle = server.handle();
    let now = monolock_clock::boot_now();
    let opened = handle.open_gate(OpenGate {
        ceiling: Token::new(101),
        grace: Grace {
            every_lock_until: None,
            locks: BTreeMap::from([(name("held"), now + Duration::from_millis(300))]),
        },
        ..term(1, 100, PATIENCE)
    });
    assert!(opened);
    let seen = handle.clone();
    let (held, waiting) = blocking(move || {
        let mut held = acquire(&seen, "held", 60_000);
        assert_eq!(held.frame(), Some(ServerFrame::Waiting));
        assert_eq!(acquire(&seen, "free", 60_000).acquired(), Token::new(100));
        let mut waiting = acquire(&seen, "other", 60_000);
        assert_eq!(waiting.frame(), Some(ServerFrame::Waiting), "at the ceiling");
        (held, waiting)
    })
    .await;
    assert!(handle.renew_authority(1, now + PATIENCE, Token::new(1_000)));
    blocking(move || {
        let (mut held, mut waiting) = (held, waiting);
        waiting.acquired();
        held.acquired();
    })
    .await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_follow_stream_continues_its_snapshot_without_a_gap() {
    let server = Server::start(config(), StartGate::Shut).await.expect("starts");
    let handle = server.handle();
    assert!(handle.open_gate(term(1, 1, PATIENCE)));
    let seen = handle.clone();
    let (before, token) = blocking(move || {
        let mut before = acquire(&seen, "before", 60_000);
        let token = before.acquired();
        (before, token)
    })
    .await;
    let (snapshot, mut events) = handle.follow();
    assert_eq!(snapshot.held.len(), 1);
    assert_eq!(
        (&snapshot.held[0].lock, snapshot.held[0].token),
        (&name("before"), token)
    );
    assert_eq!(events.try_next(), Ok(None));

    let seen = handle.clone();
    let after = blocking(move || {
        drop(before);
        let mut after = acquire(&seen, "after", 50_000);
        after.acquired();
        after
    })
    .await;
    let mut heard = Vec::new();
    for _ in 0..2 {
        heard.push(
            tokio::time::timeout(PATIENCE, events.next())
                .await
                .expect("in time")
                .expect("an event"),
        );
    }
    assert!(
        heard.contains(&LockEvent::Freed { lock: name("before") }),
        "{heard:?}"
    );
    let is_held = |event: &LockEvent| matches!(event, LockEvent::Held { lock, .. } if *lock == name("after"));
    assert!(heard.iter().any(is_held), "{heard:?}");

    after.reset();
    let broke = tokio::time::timeout(PATIENCE, events.next())
        .await
        .expect("in time")
        .expect("an event");
    let LockEvent::Broke { lock, left } = broke else {
        panic!("{broke:?}");
    };
    assert!(lock == name("after") && left <= Duration::from_secs(50) && !left.is_zero());
    assert_eq!(handle.follow().0.graces.len(), 1);
    server.shutdown().await;
    drop(handle);
    assert_eq!(
        tokio::time::timeout(PATIENCE, events.next())
            .await
            .expect("in time"),
        Err(FollowEnded::Stopped)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedding_program_adds_routes_and_metrics() {
    let server = Server::start_with_routes(config(), StartGate::Open, |handle| {
        let counter = prometheus::IntCounter::new("node_takeovers_total", "Takeovers.").expect("valid");
        handle
            .metrics_registry()
            .register(Box::new(counter))
            .expect("a new name");
        ExtraRoutes {
            ops: axum::Router::new().route("/node", axum::routing::get(|| async { "standby" })),
            ..ExtraRoutes::default()
        }
    });
    let server = server.await.expect("starts");
    let ops = server.handle().ops_addr().expect("on");
    blocking(move || {
        assert_eq!(http(ops, "GET", "/node", &[]), (200, "standby".to_owned()));
        assert_eq!(common::metrics(ops).get("node_takeovers_total"), Some(&0.0));
    })
    .await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_are_told_of_grants_that_a_follower_has_confirmed() {
    let server = Server::start(config(), StartGate::Shut).await.expect("starts");
    let handle = server.handle();
    assert_eq!(handle.awaits_confirmation(), None);
    handle.confirm_grants(PATIENCE);
    assert!(handle.open_gate(term(1, 100, PATIENCE)));
    let seen = handle.clone();
    let first = blocking(move || {
        let mut first = acquire(&seen, "a", 60_000);
        assert_eq!(first.acquired(), Token::new(100), "nobody follows yet");
        first
    })
    .await;

    let (snapshot, mut changes) = handle.follow();
    assert_eq!((snapshot.held.len(), changes.grants()), (1, 1));
    handle.grants_confirmed(changes.grants());
    assert_eq!(handle.awaits_confirmation(), Some(true));
    let mut waiter = acquire(&handle, "a", 60_000);
    let mut told_nothing = acquire(&handle, "b", 60_000);
    let held = changes.next().await.expect("an event");
    assert!(matches!(held, LockEvent::Held { .. }), "{held:?}");
    let mut waiter = blocking(move || {
        assert_eq!(waiter.frame(), Some(ServerFrame::Waiting));
        drop(first);
        waiter
    })
    .await;
    while changes.grants() < 3 {
        changes.next().await.expect("an event");
    }
    handle.grants_confirmed(2);
    handle.shut_gate(ErrorCode::NotActive);
    blocking(move || {
        // It never learns of its grant, which nobody has confirmed.
        waiter.expect_error(ErrorCode::NotActive);
        told_nothing.acquired();
        told_nothing.expect_error(ErrorCode::NotActive);
    })
    .await;
    server.shutdown().await;
}
