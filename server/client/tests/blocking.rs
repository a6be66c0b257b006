//! The blocking client: no runtime of the caller's anywhere.

mod support;

use std::time::Duration;

use monolock_client::blocking::{Client, wait_lost};
use monolock_client::{AcquireError, ErrorCode, Lost, RunError, Token};
use monolock_protocol::frame::ServerFrame;
use support::{Peer, closed_port};

const LEASE: Duration = Duration::from_millis(500);

fn holding_peer() -> Peer {
    Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.grant(7);
        conn.keep_alive(&ServerFrame::Acquired(Token::new(7)));
    })
}

fn force_releasing_peer() -> Peer {
    Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.grant_and_await_beat(7);
        conn.fail(ErrorCode::ClosedByAdministrator);
    })
}

#[test]
fn the_lock_is_held_while_the_thread_works_and_closed_after() {
    let peer = holding_peer();
    let client = Client::new(&peer.servers()).expect("valid");
    let token = client.run("a", LEASE, |grant| {
        std::thread::sleep(3 * LEASE);
        grant.token()
    });
    assert_eq!(token.expect("held"), Token::new(7));
    peer.finish();
}

#[test]
fn a_loss_is_told_by_the_token_and_by_the_result() {
    let peer = force_releasing_peer();
    let client = Client::new(&peer.servers()).expect("valid");
    let result = client.run("a", LEASE, |grant| {
        wait_lost(grant);
        grant.token()
    });
    let Err(RunError::Lost {
        cause,
        work: Some(work),
    }) = result
    else {
        panic!("{result:?}")
    };
    assert_eq!(cause, work);
    assert!(matches!(
        cause,
        Lost::Server {
            code: ErrorCode::ClosedByAdministrator,
            ..
        }
    ));
    peer.finish();
}

#[test]
fn waits_are_limited_and_locks_tried() {
    let client = Client::new(&closed_port().to_string()).expect("valid");
    let limit = Duration::from_millis(200);
    let result = client.claim("a", LEASE).wait_limit(limit).acquire_with_retry();
    assert!(
        matches!(result, Err(AcquireError::WaitLimit { .. })),
        "{result:?}"
    );

    let peer = Peer::start(|listener| {
        let mut conn = listener.accept();
        conn.expect_acquire();
        conn.send(&ServerFrame::Waiting);
        conn.expect_close();
    });
    let client = Client::new(&peer.servers()).expect("valid");
    assert!(client.try_lock("a", LEASE).expect("asked").is_none());
    peer.finish();
}
