//! What happens at the boundaries: descriptors, queues, memory.

mod common;

use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};

use common::{RawClient, ServerProcess, acquire_frame, http, wait_until, with_limits};
use monolock_protocol::frame::ServerFrame;

/// Held by a test that needs all descriptors there are.
static DESCRIPTORS: Mutex<()> = Mutex::new(());

/// Raises this process's descriptor limit as far as it may, and says how many sessions fit: this process and the
/// server need one descriptor each.
fn sessions_that_fit(wanted: usize) -> usize {
    let limit = rlimit::increase_nofile_limit(u64::MAX).expect("a limit");
    let fit = usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .saturating_sub(MARGIN);
    println!(
        "{} of {wanted} sessions fit the descriptor limit of {limit}",
        fit.min(wanted)
    );
    assert!(
        fit >= FEWEST,
        "raise the descriptor limit: `ulimit -Hn` must be at least {}",
        FEWEST + MARGIN
    );
    fit.min(wanted)
}

/// A session of many: spread over the loopback addresses, because finding a free port for one destination takes
/// the kernel longer and longer.
fn session(server: &ServerProcess, number: usize, lock: &str) -> RawClient {
    let last = u8::try_from(number % 200).expect("small");
    let mut client = RawClient::connect(([127, 0, 0, last + 1], server.lock_addr.port()).into());
    client.send(&acquire_frame(lock, 3_600_000));
    client
}

#[test]
fn twenty_thousand_waiters_of_one_lock_are_promoted_in_order() {
    let _all = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let waiters = sessions_that_fit(20_000);
    let server = ServerProcess::start(&EVERY_ADDRESS);
    let mut holder = session(&server, 0, "crowd");
    let mut last = holder.acquired();
    let in_queue = |number| {
        let mut client = session(&server, number, "crowd");
        assert_eq!(client.frame(), Some(ServerFrame::Waiting));
        client
    };
    let queue: Vec<_> = (0..waiters).map(in_queue).collect();
    server.wait_for_metric("monolock_waiters", waiters as f64);
    for mut next in queue {
        drop(holder);
        let token = next.acquired();
        assert!(token > last);
        last = token;
        holder = next;
    }
    drop(holder);
    server.wait_for_metric("monolock_connections_active", 0.0);
    assert_eq!(server.metric("monolock_acquires_total"), waiters as f64 + 1.0);
}

#[test]
fn an_idle_session_takes_at_most_two_kibibytes() {
    let _all = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let sessions = sessions_that_fit(50_000);
    let server = ServerProcess::start_granting(&EVERY_ADDRESS);
    let before = server.metric("process_resident_memory_bytes");
    let holding = |number| {
        let mut client = session(&server, number, &format!("lock {number}"));
        client.acquired();
        client
    };
    let open: Vec<_> = (0..sessions).map(holding).collect();
    let after = server.metric("process_resident_memory_bytes");
    let each = (after - before) / sessions as f64;
    println!("{sessions} idle sessions: {each:.0} bytes each, {after} bytes in all");
    assert!(each <= 2_048.0, "{each} bytes for each idle session");
    drop(open);
}

#[test]
fn a_burst_of_fifty_thousand_connects_is_served() {
    let server = ServerProcess::start_granting(&[]);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let server = &server;
            scope.spawn(move || {
                for round in 0..50_000 / 16 {
                    server.hold(&format!("{thread} {round}"), 60_000).0.reset();
                }
            });
        }
    });
    server.wait_for_metric("monolock_connections_active", 0.0);
    assert_eq!(server.metric("monolock_acquires_total"), 50_001.0);
    assert_eq!(server.metric("monolock_locks_held"), 0.0);
}

#[test]
fn without_descriptors_accepting_pauses_and_resumes() {
    let mut server = ServerProcess::spawn(with_limits("ulimit -n 64", &[]));
    let connections: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(server.lock_addr).expect("the kernel queues it"))
        .collect();
    server.wait_for_log(|line| line.contains("accepting pauses"));
    drop(connections);
    let (mut client, token) = server.hold("afterwards", 60_000);
    assert_eq!(client.heartbeat(), ServerFrame::Acquired(token));
    let reachable = wait_until(|| http(server.ops_addr, "GET", "/healthz", &[]).0 == 200);
    assert!(reachable);
    assert!(server.metric("monolock_accept_errors_total") > 0.0);
}

const EVERY_ADDRESS: [(&str, &str); 1] = [("MONOLOCK_LISTEN_ADDRESS", "0.0.0.0:0")];

/// Descriptors for everything else.
const MARGIN: usize = 100;

/// Fewer would show nothing.
const FEWEST: usize = 4_000;
