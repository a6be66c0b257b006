//! The client against a peer that sends exactly what each test says.

mod support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use monolock_client::{
    AcquireError, CancellationToken, Client, ErrorCode, FailureCause, Lost, RunError, Token, Violation,
};
use monolock_protocol::frame::ServerFrame;
use support::{Listener, PATIENCE, Peer, closed_port};

const LOCK: &str = "nightly/import";
/// Long enough that nothing expires by accident, short enough to wait for where it must.
const LEASE: Duration = Duration::from_secs(2);
const LONG_LEASE: Duration = Duration::from_secs(60);

fn client(peer: &Peer) -> Client {
    Client::new(&peer.servers()).expect("a valid address")
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

fn held(token: u64) -> ServerFrame {
    ServerFrame::Acquired(Token::new(token))
}

fn grant_and_keep_alive(listener: &Listener, token: u64) {
    let mut conn = listener.accept();
    conn.expect_acquire();
    conn.grant(token);
    conn.keep_alive(&held(token));
}

fn server_said(code: ErrorCode) -> Lost {
    Lost::Server {
        code,
        reason: code.text().to_owned(),
    }
}

#[tokio::test]
async fn run_holds_the_lock_while_the_work_runs_and_then_closes() {
    let peer = Peer::start(|listener| {
        let mut conn = listener.accept();
        let (name, lease) = conn.expect_acquire();
        assert_eq!((name.as_str(), lease.as_millis()), (LOCK, 2_000));
        conn.grant(7);
        conn.expect_heartbeat();
        conn.grant(7);
        conn.keep_alive(&held(7));
    });
    let two_beats = async |grant: monolock_client::Grant| {
        tokio::time::sleep(LEASE).await;
        grant.token()
    };
    let token = patiently(client(&peer).run(LOCK, LEASE, two_beats)).await;
    assert_eq!(token.expect("held"), Token::new(7));
    peer.finish();
}

#[tokio::test]
async fn a_push_that_crosses_a_heartbeat_is_not_its_answer() {
    let peer = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.send(&ServerFrame::Waiting);
        conn.expect_heartbeat();
        conn.grant(7);
        conn.grant(7);
        conn.keep_alive(&held(7));
    });
    let guard = patiently(client(&peer).acquire(LOCK, LEASE))
        .await
        .expect("granted");
    // Were the push taken for the answer, the answer would be one frame too many and end the claim.
    tokio::time::sleep(LEASE).await;
    assert_eq!(guard.token(), Ok(Token::new(7)));
    drop(guard);
    peer.finish();
}

#[tokio::test]
async fn heartbeats_go_on_while_the_callers_only_thread_is_blocked() {
    let peer = Peer::start(|listener| grant_and_keep_alive(listener, 7));
    let guard = patiently(client(&peer).acquire(LOCK, Duration::from_millis(400)))
        .await
        .expect("granted");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(guard.token(), Ok(Token::new(7)));
    drop(guard);
    peer.finish();
}

#[tokio::test]
async fn a_silent_server_loses_the_claim_and_the_work_is_dropped() {
    struct SetOnDrop(Arc<AtomicU32>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let peer = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.grant(7);
        conn.expect_heartbeat();
        conn.expect_close();
    });
    let dropped = Arc::new(AtomicU32::new(0));
    let guard = SetOnDrop(Arc::clone(&dropped));
    let result = patiently(client(&peer).run(LOCK, LEASE, async move |_| {
        let _guard = guard;
        std::future::pending::<Result<(), Infallible>>().await
    }))
    .await;
    let Err(RunError::Lost { cause, work: None }) = result else {
        panic!("{result:?}")
    };
    assert!(matches!(cause, Lost::HeartbeatTimeout { .. }), "{cause:?}");
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    peer.finish();
}

/// Found by the simulation: closing at once released the lock on a server whose answers alone were lost, and the next
/// client was granted it while the work of the first was still allowed to come to its end.
#[tokio::test]
async fn after_silence_the_connection_stays_until_the_work_has_stopped() {
    let (look, looks) = std::sync::mpsc::channel::<()>();
    let (seen, sees) = std::sync::mpsc::channel();
    let peer = Peer::start(move |listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.grant(7);
        for () in looks {
            seen.send(conn.is_closed()).expect("the test listens");
        }
    });
    let is_closed = || {
        look.send(()).expect("the peer runs");
        sees.recv().expect("the peer answers")
    };
    let guard = patiently(client(&peer).acquire(LOCK, Duration::from_millis(400)))
        .await
        .expect("granted");
    let cause = patiently(guard.lost()).await;
    assert!(matches!(cause, Lost::HeartbeatTimeout { .. }), "{cause:?}");
    // Had it been closed, the peer would know within this time.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        !is_closed(),
        "the lock is released while its holder may still work"
    );
    drop(guard);
    patiently(async {
        while !is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    drop(look);
    peer.finish();
}

#[tokio::test]
async fn each_way_a_session_ends_has_its_cause() {
    type Script = fn(support::Conn);
    let cases: [(Script, Lost); 4] = [
        (|_| {}, Lost::Closed(None)),
        (
            |conn| conn.fail(ErrorCode::ClosedByAdministrator),
            server_said(ErrorCode::ClosedByAdministrator),
        ),
        (
            |conn| conn.fail(ErrorCode::NotActive),
            server_said(ErrorCode::NotActive),
        ),
        (
            |mut conn| {
                conn.send_bytes(b"\x7f");
                conn.expect_close();
            },
            Lost::ProtocolViolation(Violation::UnknownFrame { message_type: 0x7f }),
        ),
    ];
    for (script, expected) in cases {
        let peer = Peer::start(move |listener| {
            let mut conn = listener.accept();
            conn.expect_acquire();
            conn.grant_and_await_beat(7);
            script(conn);
        });
        let guard = patiently(client(&peer).acquire(LOCK, LEASE))
            .await
            .expect("granted");
        assert_eq!(patiently(guard.lost()).await, expected);
        assert_eq!(guard.token(), Err(expected));
        peer.finish();
    }
}

#[tokio::test]
async fn the_works_own_error_and_a_loss_are_told_apart() {
    let peer = Peer::start(|listener| grant_and_keep_alive(listener, 7));
    let result = patiently(client(&peer).run(LOCK, LEASE, async |_| Err::<(), _>("broken"))).await;
    assert!(matches!(result, Err(RunError::Work("broken"))), "{result:?}");
    peer.finish();

    let peer = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.grant_and_await_beat(7);
        conn.fail(ErrorCode::ClosedByAdministrator);
    });
    let claim = client(&peer).claim(LOCK, LEASE);
    let result = patiently(claim.run(async |grant| {
        // Noticed by the work itself; it does not wait to be dropped.
        while grant.token().is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err::<(), _>("stopped")
    }))
    .await;
    let Err(RunError::Lost { cause, work }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(
        (cause, work),
        (server_said(ErrorCode::ClosedByAdministrator), Some("stopped"))
    );
    peer.finish();
}

#[tokio::test]
async fn the_next_address_is_asked_after_03_a_refused_connection_and_silence() {
    let standby = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.fail(ErrorCode::NotActive);
    });
    let frozen = Peer::start(|listener| listener.accept().expect_close_after_acquire());
    let active = Peer::start(|listener| {
        grant_and_keep_alive(listener, 7);
        grant_and_keep_alive(listener, 8);
    });
    let servers = [closed_port(), standby.address, frozen.address, active.address];
    let client = Client::new(&servers.map(|address| address.to_string()).join(",")).expect("valid");
    let guard = patiently(client.acquire(LOCK, LEASE))
        .await
        .expect("granted by the last");
    assert_eq!(guard.server(), active.address);
    standby.finish();
    frozen.finish();
    drop(guard);
    // The others' scripts are over: had they been asked again, this would take longer or fail.
    let guard = patiently(client.acquire(LOCK, LEASE))
        .await
        .expect("granted by the one that was good last");
    assert_eq!(guard.token(), Ok(Token::new(8)));
    drop(guard);
    active.finish();
}

impl support::Conn {
    fn expect_close_after_acquire(mut self) {
        self.expect_acquire();
        self.expect_close();
    }
}

#[tokio::test]
async fn when_no_server_takes_the_claim_each_failure_is_told() {
    let standby = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.fail(ErrorCode::NotActive);
    });
    let closed = closed_port();
    let client = Client::new(&format!("{closed},{}", standby.address)).expect("valid");
    let error = patiently(client.acquire(LOCK, LEASE))
        .await
        .expect_err("nobody is active");
    let AcquireError::Unavailable(failures) = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(failures[0].cause, FailureCause::Connect(_)), "{error}");
    assert!(
        matches!(&failures[1].cause, FailureCause::Session(lost) if *lost == server_said(ErrorCode::NotActive)),
        "{error}"
    );
    standby.finish();
}

#[tokio::test]
async fn a_client_error_is_reported_at_once_even_with_retry() {
    let peer = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.fail(ErrorCode::NotAuthorized);
    });
    let result = patiently(client(&peer).claim(LOCK, LEASE).acquire_with_retry()).await;
    assert!(
        matches!(
            result,
            Err(AcquireError::Refused {
                code: ErrorCode::NotAuthorized,
                ..
            })
        ),
        "{result:?}"
    );
    peer.finish();
}

#[tokio::test]
async fn invalid_input_never_reaches_a_server() {
    let client = Client::new("127.0.0.1:1").expect("valid");
    let result = client.claim("", LEASE).acquire_with_retry().await;
    assert!(matches!(result, Err(AcquireError::InvalidLock(_))), "{result:?}");
    let result = client.claim(&"x".repeat(256), LEASE).acquire_with_retry().await;
    assert!(matches!(result, Err(AcquireError::InvalidLock(_))), "{result:?}");
    let result = client.claim(LOCK, Duration::ZERO).acquire_with_retry().await;
    assert!(matches!(result, Err(AcquireError::InvalidLease(_))), "{result:?}");
}

#[tokio::test]
async fn run_with_retry_comes_back_after_01_and_runs_the_work_once() {
    let peer = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.fail(ErrorCode::ShuttingDown);
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.send(&ServerFrame::Waiting);
        conn.expect_heartbeat();
        conn.fail(ErrorCode::ShuttingDown);
        // Cut off in the queue.
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.send(&ServerFrame::Waiting);
        conn.expect_heartbeat();
        drop(conn);
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.grant_and_await_beat(9);
        conn.fail(ErrorCode::ShuttingDown);
    });
    let runs = AtomicU32::new(0);
    let result = patiently(client(&peer).run_with_retry(LOCK, LEASE, async |_| {
        runs.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<(), Infallible>>().await
    }))
    .await;
    let Err(RunError::Lost { cause, .. }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(cause, server_said(ErrorCode::ShuttingDown));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    peer.finish();
}

#[tokio::test]
async fn try_lock_leaves_no_waiter_behind() {
    let peer = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.send(&ServerFrame::Waiting);
        conn.expect_close();
    });
    assert!(
        patiently(client(&peer).try_lock(LOCK, LONG_LEASE))
            .await
            .expect("asked")
            .is_none()
    );
    peer.finish();
}

fn one_waiter(listener: &Listener) {
    let mut conn = listener.accept();
    conn.expect_acquire();
    conn.send(&ServerFrame::Waiting);
    conn.keep_alive(&ServerFrame::Waiting);
}

#[tokio::test]
async fn the_wait_limit_ends_the_wait_over_all_attempts() {
    let peer = Peer::start(one_waiter);
    let limit = Duration::from_millis(300);
    let result = patiently(client(&peer).claim(LOCK, LONG_LEASE).wait_limit(limit).acquire()).await;
    assert!(
        matches!(result, Err(AcquireError::WaitLimit { last: None, .. })),
        "{result:?}"
    );
    peer.finish();

    let client = Client::new(&closed_port().to_string()).expect("valid");
    let claim = client.claim(LOCK, LONG_LEASE).wait_limit(limit);
    let error = patiently(claim.acquire_with_retry())
        .await
        .expect_err("nobody listens");
    assert!(
        matches!(error, AcquireError::WaitLimit { last: Some(_), .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("cannot connect"), "{error}");
}

#[tokio::test]
async fn a_dropped_wait_leaves_neither_a_waiter_nor_a_grant() {
    let (queued, is_queued) = std::sync::mpsc::channel();
    let peer = Peer::start(move |listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.send(&ServerFrame::Waiting);
        conn.expect_heartbeat();
        queued.send(()).expect("the test waits");
        conn.expect_close();
    });
    let client = client(&peer);
    let wait = tokio::spawn(async move { client.acquire(LOCK, LEASE).await });
    tokio::task::spawn_blocking(move || is_queued.recv_timeout(PATIENCE))
        .await
        .expect("joins")
        .expect("queued");
    wait.abort();
    peer.finish();
}

#[tokio::test]
async fn a_grant_that_nobody_receives_any_more_is_released() {
    let mut unreceived = 0;
    while unreceived < 20 {
        let (granted, is_granted) = std::sync::mpsc::channel();
        let peer = Peer::start(move |listener| {
            let mut conn = listener.accept();
            conn.expect_acquire();
            conn.grant(7);
            granted.send(()).expect("the test waits");
            conn.expect_close();
        });
        let client = client(&peer);
        let mut wait = Box::pin(client.acquire(LOCK, LONG_LEASE));
        // On a busy machine the grant may be there at the first look: that one is received, and dropped too.
        let looked = futures_util::poll!(&mut wait);
        unreceived += usize::from(looked.is_pending());
        is_granted.recv_timeout(PATIENCE).expect("granted");
        drop((looked, wait));
        peer.finish();
    }
}

#[tokio::test]
async fn a_dropped_guard_closes_at_once_and_takes_the_token_along() {
    let peer = Peer::start(|listener| grant_and_keep_alive(listener, 7));
    let guard = patiently(client(&peer).acquire(LOCK, LONG_LEASE))
        .await
        .expect("granted");
    let grant = guard.grant();
    assert_eq!(grant.token(), Ok(Token::new(7)));
    guard.release();
    assert_eq!(grant.token(), Err(Lost::Released));
    assert_eq!(patiently(grant.lost()).await, Lost::Released);
    peer.finish();
}

#[tokio::test]
async fn a_graceful_stop_keeps_the_lock_until_the_work_has_returned() {
    let peer = Peer::start(|listener| grant_and_keep_alive(listener, 7));
    let stop = CancellationToken::new();
    let claim = client(&peer)
        .claim(LOCK, Duration::from_millis(500))
        .stop_on(stop.clone());
    let result = patiently(claim.run(async |grant| {
        stop.cancel();
        grant.cancelled().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        grant.token()
    }))
    .await;
    assert_eq!(result.expect("held to the end"), Token::new(7));
    peer.finish();
}

#[tokio::test]
async fn a_stop_ends_the_wait() {
    let peer = Peer::start(one_waiter);
    let stop = CancellationToken::new();
    let claim = client(&peer).claim(LOCK, LONG_LEASE).stop_on(stop.clone());
    let wait = tokio::spawn(claim.acquire_with_retry());
    stop.cancel();
    let result = patiently(wait).await.expect("joins");
    assert!(matches!(result, Err(AcquireError::Stopped)), "{result:?}");
    // The stop may come before the connection.
    drop(std::net::TcpStream::connect(peer.address));
}

#[tokio::test]
async fn the_grace_after_a_loss_is_never_longer_than_is_safe() {
    async fn outcome(peer: Peer, grace: Duration) -> (Lost, Option<&'static str>) {
        let claim = client(&peer)
            .claim(LOCK, Duration::from_millis(1_500))
            .lost_grace(grace);
        let result = patiently(claim.run(async |grant| {
            grant.lost().await;
            tokio::task::yield_now().await;
            Err::<(), _>("cleaned up")
        }))
        .await;
        let Err(RunError::Lost { cause, work }) = result else {
            panic!("{result:?}")
        };
        peer.finish();
        (cause, work)
    }
    fn silent(listener: &Listener) {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.grant(7);
        conn.expect_close();
    }
    let (cause, work) = outcome(Peer::start(silent), Duration::from_secs(60)).await;
    assert!(matches!(cause, Lost::HeartbeatTimeout { .. }), "{cause:?}");
    assert_eq!(work, Some("cleaned up"));

    let (_, work) = outcome(Peer::start(silent), Duration::ZERO).await;
    assert_eq!(work, None, "by default the work is dropped at once");

    let force_released = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.grant_and_await_beat(7);
        conn.fail(ErrorCode::ClosedByAdministrator);
    });
    let (_, work) = outcome(force_released, Duration::from_secs(60)).await;
    assert_eq!(work, None, "somebody else may hold the lock already");
}

#[tokio::test]
async fn work_that_panics_releases_the_lock() {
    let peer = Peer::start(|listener| grant_and_keep_alive(listener, 7));
    let client = client(&peer);
    let work = tokio::spawn(async move {
        client
            .run(LOCK, LONG_LEASE, async |_| -> Result<(), Infallible> {
                panic!("on purpose")
            })
            .await
    });
    assert!(patiently(work).await.expect_err("it panics").is_panic());
    peer.finish();
}

#[tokio::test]
async fn an_unresolvable_name_and_a_bad_list_are_clear_errors() {
    assert!(Client::new("").is_err());
    assert!(Client::new("a:b").is_err());
    let nowhere: SocketAddr = closed_port();
    let client = Client::builder("locks.invalid:7070")
        .dns_servers(vec![nowhere])
        .build()
        .expect("a valid entry");
    let error = patiently(client.acquire(LOCK, LEASE))
        .await
        .expect_err("no such name");
    assert!(
        error
            .to_string()
            .starts_with("no server took the claim: locks.invalid:7070: no a"),
        "{error}"
    );
}

#[tokio::test]
async fn localhost_needs_no_name_server() {
    let peer = Peer::start(|listener| grant_and_keep_alive(listener, 7));
    let servers = format!("localhost:{}", peer.address.port());
    let client = Client::builder(&servers)
        .dns_servers(vec![closed_port()])
        .build()
        .expect("valid");
    let guard = patiently(client.acquire(LOCK, LEASE)).await.expect("granted");
    drop(guard);
    peer.finish();
}
