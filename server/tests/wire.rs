//! The lock protocol, byte by byte, against the real binary.

mod common;

use std::io::ErrorKind;

use common::{HEARTBEAT, RawClient, ServerProcess, acquire_frame, wait_until};
use monolock_protocol::ErrorCode;
use monolock_protocol::frame::ServerFrame;

fn raw_acquire(version: u8, lease_ms: u32, name: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x01, version];
    frame.extend(lease_ms.to_be_bytes());
    frame.extend(u16::try_from(name.len()).expect("fits").to_be_bytes());
    frame.extend(name);
    frame
}

#[test]
fn each_mistake_gets_its_own_code_and_is_counted() {
    let server = ServerProcess::start(&[]);
    let claimed = |bytes: &[u8]| [&acquire_frame("mistakes", 60_000)[..], bytes].concat();
    let cases: &[(Vec<u8>, ErrorCode)] = &[
        (raw_acquire(2, 1_000, b"x"), ErrorCode::UnsupportedVersion),
        (HEARTBEAT.to_vec(), ErrorCode::FirstMessageMustBeAcquire),
        (claimed(&acquire_frame("again", 1)), ErrorCode::DuplicateAcquire),
        (vec![0x7f], ErrorCode::UnknownMessageType),
        (claimed(&[0x11]), ErrorCode::UnknownMessageType),
        (raw_acquire(1, 1_000, b""), ErrorCode::EmptyName),
        (raw_acquire(1, 1_000, &[b'x'; 256]), ErrorCode::NameTooLong),
        (raw_acquire(1, 1_000, &[0xc3, 0x28]), ErrorCode::NameNotUtf8),
        (raw_acquire(1, 0, b"x"), ErrorCode::LeaseNotPositive),
    ];
    for (bytes, code) in cases {
        let mut client = server.connect();
        client.send(bytes);
        if bytes.starts_with(&acquire_frame("mistakes", 60_000)) {
            assert!(matches!(
                client.frame(),
                Some(ServerFrame::Waiting | ServerFrame::Acquired(_))
            ));
        }
        let reason = client.expect_error(*code);
        assert!(reason.starts_with(code.text()), "{reason:?} for {code}");
    }
    assert_eq!(
        server.metric("monolock_protocol_errors_total{code=\"0x13\"}"),
        2.0
    );
    assert_eq!(
        server.metric("monolock_protocol_errors_total{code=\"0x15\"}"),
        1.0
    );
    server.wait_for_metric("monolock_connections_active", 0.0);
    assert_eq!(server.metric("monolock_locks_held"), 0.0);
}

#[test]
fn an_unknown_type_is_named_in_the_reason() {
    let server = ServerProcess::start(&[]);
    let mut client = server.connect();
    client.send(&[0x7f]);
    assert_eq!(
        client.expect_error(ErrorCode::UnknownMessageType),
        "unknown message type: 0x7f"
    );
}

#[test]
fn frames_may_come_byte_by_byte_or_all_at_once() {
    let server = ServerProcess::start(&[]);
    let mut slow = server.connect();
    for byte in acquire_frame("naïve 🔒", 60_000) {
        slow.send(&[byte]);
    }
    let token = slow.acquired();
    let mut fast = server.connect();
    fast.send(&[&acquire_frame("other", 60_000)[..], &[0x02; 700]].concat());
    let other = fast.acquired();
    assert!(other > token);
    for _ in 0..700 {
        assert_eq!(fast.frame(), Some(ServerFrame::Acquired(other)));
    }
    assert_eq!(server.metric("monolock_heartbeats_total"), 700.0);
}

#[test]
fn the_longest_name_and_the_longest_lease_are_fine() {
    let server = ServerProcess::start(&[]);
    let (mut client, token) = server.hold(&"x".repeat(255), u32::MAX);
    assert_eq!(client.heartbeat(), ServerFrame::Acquired(token));
}

#[test]
fn names_are_neither_trimmed_nor_folded() {
    let server = ServerProcess::start(&[]);
    let _holders: Vec<_> = ["a", "A", " a", "a\n"]
        .map(|name| server.hold(name, 60_000))
        .into();
    assert_eq!(server.metric("monolock_locks_held"), 4.0);
}

#[test]
fn an_error_is_readable_with_much_sent_behind_the_refused_frame() {
    let server = ServerProcess::start(&[]);
    for _ in 0..20 {
        let mut client = server.connect();
        let mut bytes = vec![0x02];
        bytes.resize(300_000, 0x55);
        client.send(&bytes);
        client.expect_error(ErrorCode::FirstMessageMustBeAcquire);
    }
}

#[test]
fn a_client_that_sends_without_end_behind_a_refused_frame_is_cut_off() {
    let server = ServerProcess::start(&[]);
    let mut client = server.connect();
    client.send(&[0x02]);
    let cut_off = wait_until(|| {
        let sent = client.try_send(&[0x55; 65_536]);
        sent.is_err_and(|error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
    });
    assert!(cut_off);
    server.wait_for_metric("monolock_connections_active", 0.0);
}

#[test]
fn waiters_are_promoted_in_order_and_every_acquired_carries_the_one_token() {
    let server = ServerProcess::start(&[]);
    let (mut holder, first) = server.hold("jobs", 60_000);
    let mut waiters: Vec<_> = (0..5).map(|_| server.queue("jobs", 60_000)).collect();
    assert_eq!(waiters[4].heartbeat(), ServerFrame::Waiting);
    assert_eq!(holder.heartbeat(), ServerFrame::Acquired(first));
    let mut last = first;
    drop(holder);
    for mut waiter in waiters {
        let token = waiter.acquired();
        assert!(token > last);
        for _ in 0..3 {
            assert_eq!(waiter.heartbeat(), ServerFrame::Acquired(token));
        }
        last = token;
    }
}

#[test]
fn a_close_a_half_close_and_a_reset_each_release() {
    let server = ServerProcess::start(&[]);
    let endings: [fn(RawClient); 3] = [
        drop,
        |mut client| {
            client.half_close();
            client.expect_closed();
        },
        RawClient::reset,
    ];
    for end in endings {
        let (holder, _) = server.hold("ends", 60_000);
        let mut waiter = server.queue("ends", 60_000);
        end(holder);
        waiter.acquired();
    }
    server.wait_for_metric("monolock_releases_total{reason=\"graceful\"}", 6.0);
}

#[test]
fn a_request_and_a_half_close_in_one_breath_are_answered() {
    let server = ServerProcess::start_granting(&[]);
    let mut client = server.acquire("breath", 60_000);
    client.half_close();
    client.acquired();
    client.expect_closed();
    server.wait_for_metric("monolock_locks_held", 0.0);
}

#[test]
fn a_waiter_that_leaves_loses_its_place_and_nobody_elses() {
    let server = ServerProcess::start(&[]);
    let (holder, _) = server.hold("places", 60_000);
    let gone = server.queue("places", 60_000);
    let mut next = server.queue("places", 60_000);
    drop(gone);
    server.wait_for_metric("monolock_waiters", 1.0);
    drop(holder);
    next.acquired();
}

#[test]
fn silence_ends_a_session_without_a_frame_holder_and_waiter_alike() {
    let server = ServerProcess::start_granting(&[]);
    let (mut holder, _) = server.hold("quiet", 300);
    let mut dead = server.queue("quiet", 100);
    let mut alive = server.queue("quiet", 60_000);
    dead.expect_closed();
    holder.expect_closed();
    alive.acquired();
    assert_eq!(
        server.metric("monolock_releases_total{reason=\"expired\"}"),
        1.0,
        "a waiter's end is no release"
    );
    assert_eq!(
        server.metric("monolock_acquires_total"),
        3.0,
        "the dead waiter was never granted"
    );
}

#[test]
fn heartbeats_keep_a_claim_far_beyond_its_lease() {
    let server = ServerProcess::start_granting(&[]);
    let (mut holder, token) = server.hold("kept", 1_000);
    let mut probe = server.queue("kept", 2_500);
    let mut beats = 0;
    // The probe's own lease is the clock: it is dropped after 2.5 leases of the holder.
    let probe_ended = std::thread::spawn(move || probe.expect_closed());
    while !probe_ended.is_finished() {
        assert_eq!(holder.heartbeat(), ServerFrame::Acquired(token));
        beats += 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    probe_ended.join().expect("closed, not granted");
    assert!(beats > 1);
}

#[test]
fn a_stalled_frame_and_a_silent_newcomer_are_dropped_but_silence_between_frames_is_the_leases_business() {
    let server = ServerProcess::start(&[("MONOLOCK_IO_TIMEOUT", "200ms")]);
    let (mut holder, token) = server.hold("stall", 60_000);
    let mut half = server.connect();
    half.send(&acquire_frame("half", 60_000)[..5]);
    let mut silent = server.connect();
    half.expect_closed();
    silent.expect_closed();
    assert_eq!(
        holder.heartbeat(),
        ServerFrame::Acquired(token),
        "quiet for longer than the I/O timeout"
    );
}

#[test]
fn a_holder_that_never_reads_is_released_when_a_write_stalls() {
    let server = ServerProcess::start(&[("MONOLOCK_IO_TIMEOUT", "300ms")]);
    let (mut deaf, _) = server.hold("deaf", 60_000);
    let mut waiter = server.queue("deaf", 60_000);
    let beats = [0x02; 65_536];
    std::thread::spawn(move || while deaf.try_send(&beats).is_ok() {});
    waiter.acquired();
    assert_eq!(
        server.metric("monolock_releases_total{reason=\"io_timeout\"}"),
        1.0
    );
}

#[test]
fn one_byte_a_moment_costs_only_the_slow_client_itself() {
    let server = ServerProcess::start(&[("MONOLOCK_IO_TIMEOUT", "500ms")]);
    let mut slow = server.connect();
    let frame = acquire_frame(&"s".repeat(255), 60_000);
    let slowly = std::thread::spawn(move || {
        for byte in frame {
            if slow.try_send(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
    for _ in 0..50 {
        server.hold("brisk", 60_000);
    }
    slowly.join().expect("no panic");
    server.wait_for_metric("monolock_connections_active", 0.0);
}

#[test]
fn kill_and_restart_ten_times_tokens_strictly_rise() {
    let mut tokens = Vec::new();
    for _ in 0..10 {
        let mut server = ServerProcess::start(&[]);
        for _ in 0..3 {
            tokens.push(server.hold("survives", 60_000).1);
        }
        server.kill();
    }
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
}

#[test]
fn a_thousand_dead_waiters_cost_the_live_one_nothing() {
    let server = ServerProcess::start(&[]);
    let (holder, _) = server.hold("crowd", 60_000);
    let dead: Vec<_> = (0..1_000).map(|_| server.queue("crowd", 500)).collect();
    let mut alive = server.queue("crowd", 60_000);
    server.wait_for_metric("monolock_waiters", 1.0);
    drop(holder);
    alive.acquired();
    assert_eq!(server.metric("monolock_acquires_total"), 2.0);
    drop(dead);
}
