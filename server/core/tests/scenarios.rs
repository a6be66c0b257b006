//! Scenarios of the lock table: each asserts every action, including that none remain.

use std::collections::BTreeMap;
use std::time::Duration;

use monolock_core::{
    Action, ClaimId, ClaimState, CloseCause, ForceRelease, Grace, Held, LockEvent, LockTable, Now, OpenGate,
    Ownership, ReleaseReason, Snapshot, TokenSource,
};
use monolock_protocol::{BootInstant, ErrorCode, Lease, LockName, Token, WallTime};

/// The wall clock and the boot clock both start at second 1,000.
fn at(millis: u64) -> Now {
    Now {
        wall: WallTime::from_unix_nanos((1_000_000 + millis) * 1_000_000),
        boot: boot(millis),
    }
}

fn boot(millis: u64) -> BootInstant {
    BootInstant::from_millis(1_000_000 + millis)
}

fn name(name: &str) -> LockName {
    LockName::new(name).expect("valid")
}

fn ms(millis: u32) -> Lease {
    Lease::from_millis(millis).expect("positive")
}

fn token(epoch: u64, counter: u64) -> Token {
    Token::new(Token::first_of_epoch(epoch).get() + counter)
}

fn single() -> LockTable {
    LockTable::always_open(TokenSource::reserved(token(1_000, 0), Token::MAX, at(0)))
}

fn open(term: u64, first: Token, until: BootInstant, grace: Grace) -> OpenGate {
    OpenGate {
        term,
        first_token: first,
        ceiling: token(9_000, 0),
        authority_until: until,
        grace,
    }
}

fn active(until: u64) -> LockTable {
    let mut table = LockTable::with_gate_shut(at(0));
    assert!(table.open_gate(open(1, token(1_000, 0), boot(until), Grace::default()), at(0)));
    taken(&mut table);
    table
}

fn taken(table: &mut LockTable) -> Vec<Action> {
    std::iter::from_fn(|| table.poll_action()).collect()
}

fn acquire(table: &mut LockTable, lock: &str, lease: u32, now: u64) -> ClaimId {
    table
        .handle_acquire(name(lock), ms(lease), at(now))
        .expect("serving")
}

fn waiting(claim: ClaimId) -> Action {
    Action::Send {
        claim,
        state: ClaimState::Waiting,
    }
}

fn acquired(claim: ClaimId, token: Token) -> Action {
    Action::Send {
        claim,
        state: ClaimState::Acquired(token),
    }
}

fn ended(claim: ClaimId, error: Option<ErrorCode>) -> Action {
    Action::End { claim, error }
}

fn granted(claim: ClaimId, lock: &str, token: Token, waited: u64) -> Action {
    let waited = Duration::from_millis(waited);
    let change = Ownership::Granted { token, waited };
    let lock = name(lock);
    Action::Ownership { claim, lock, change }
}

fn released(claim: ClaimId, lock: &str, token: Token, held: u64, reason: ReleaseReason) -> Action {
    let held = Duration::from_millis(held);
    let change = Ownership::Released { token, held, reason };
    let lock = name(lock);
    Action::Ownership { claim, lock, change }
}

#[test]
fn a_free_lock_is_granted_a_taken_one_queues_and_a_close_promotes_in_order() {
    let mut table = single();
    let first = acquire(&mut table, "a", 1_000, 0);
    assert_eq!(
        taken(&mut table),
        [
            granted(first, "a", token(1_000, 0), 0),
            acquired(first, token(1_000, 0))
        ]
    );
    let second = acquire(&mut table, "a", 1_000, 1);
    let third = acquire(&mut table, "a", 1_000, 2);
    assert_eq!(taken(&mut table), [waiting(second), waiting(third)]);
    table.handle_close(first, CloseCause::Closed, at(500));
    assert_eq!(
        taken(&mut table),
        [
            released(first, "a", token(1_000, 0), 500, ReleaseReason::Graceful),
            granted(second, "a", token(1_000, 1), 499),
            acquired(second, token(1_000, 1)),
        ]
    );
    table.handle_heartbeat(second, at(600));
    table.handle_heartbeat(third, at(601));
    assert_eq!(
        taken(&mut table),
        [acquired(second, token(1_000, 1)), waiting(third)]
    );
    assert_eq!(table.poll_timeout(), Some(boot(1_600)));
}

#[test]
fn the_last_close_leaves_nothing_behind() {
    let mut table = single();
    let claim = acquire(&mut table, "a", 1_000, 0);
    let waiter = acquire(&mut table, "a", 1_000, 0);
    table.handle_close(waiter, CloseCause::Closed, at(1));
    table.handle_close(claim, CloseCause::Broken, at(1));
    table.handle_close(claim, CloseCause::Broken, at(1));
    assert_eq!(taken(&mut table).len(), 4, "granted, acquired, waiting, released");
    assert_eq!(table.locks().count(), 0);
    assert_eq!(table.poll_timeout(), None);
    assert_eq!(table.report(at(1)).claims, 0);
    assert_eq!(table.report(at(1)).longest_lease, None);
}

#[test]
fn a_waiter_may_leave_from_the_middle_of_the_queue() {
    let mut table = single();
    let claims: Vec<_> = (0..5).map(|_| acquire(&mut table, "a", 1_000, 0)).collect();
    for gone in [claims[2], claims[4], claims[1]] {
        table.handle_close(gone, CloseCause::Closed, at(1));
    }
    taken(&mut table);
    let view = table.lock(&name("a")).expect("held");
    assert_eq!(view.holder.map(|holder| holder.claim), Some(claims[0]));
    assert_eq!(
        view.waiters.iter().map(|waiter| waiter.claim).collect::<Vec<_>>(),
        [claims[3]]
    );
    table.handle_close(claims[0], CloseCause::IoTimeout, at(2));
    assert_eq!(
        taken(&mut table),
        [
            released(claims[0], "a", token(1_000, 0), 2, ReleaseReason::IoTimeout),
            granted(claims[3], "a", token(1_000, 1), 2),
            acquired(claims[3], token(1_000, 1)),
        ]
    );
}

#[test]
fn silence_ends_holders_and_waiters_and_a_dead_waiter_is_never_granted() {
    let mut table = single();
    let holder = acquire(&mut table, "a", 100, 0);
    let dead = acquire(&mut table, "a", 120, 0);
    let alive = acquire(&mut table, "a", 1_000, 0);
    taken(&mut table);
    assert_eq!(table.poll_timeout(), Some(boot(100)));
    table.handle_timeout(at(99));
    assert_eq!(taken(&mut table), []);
    table.handle_timeout(at(150));
    assert_eq!(
        taken(&mut table),
        [
            released(holder, "a", token(1_000, 0), 150, ReleaseReason::Expired),
            ended(holder, None),
            ended(dead, None),
            granted(alive, "a", token(1_000, 1), 150),
            acquired(alive, token(1_000, 1)),
        ]
    );
}

#[test]
fn a_late_heartbeat_does_not_bring_a_lease_back() {
    let mut table = single();
    let claim = acquire(&mut table, "a", 100, 0);
    table.handle_heartbeat(claim, at(99));
    taken(&mut table);
    table.handle_heartbeat(claim, at(199));
    assert_eq!(
        taken(&mut table),
        [
            released(claim, "a", token(1_000, 0), 199, ReleaseReason::Expired),
            ended(claim, None),
        ]
    );
}

#[test]
fn a_push_precedes_the_answer_to_a_later_heartbeat() {
    let mut table = single();
    let holder = acquire(&mut table, "a", 1_000, 0);
    let waiter = acquire(&mut table, "a", 1_000, 0);
    taken(&mut table);
    table.handle_close(holder, CloseCause::Closed, at(1));
    table.handle_heartbeat(waiter, at(1));
    let sent: Vec<_> = taken(&mut table)
        .into_iter()
        .filter(|action| matches!(action, Action::Send { .. }))
        .collect();
    assert_eq!(
        sent,
        [
            acquired(waiter, token(1_000, 1)),
            acquired(waiter, token(1_000, 1))
        ]
    );
}

#[test]
fn an_operator_releases_and_kicks() {
    let mut table = single();
    let holder = acquire(&mut table, "a", 1_000, 0);
    let kicked = acquire(&mut table, "a", 1_000, 0);
    let next = acquire(&mut table, "a", 1_000, 0);
    taken(&mut table);
    assert!(!table.handle_kick(holder, at(1)), "a holder is not a waiter");
    assert!(table.handle_kick(kicked, at(1)));
    assert!(!table.handle_kick(kicked, at(1)));
    let by_admin = Some(ErrorCode::ClosedByAdministrator);
    let kick = Action::Ownership {
        claim: kicked,
        lock: name("a"),
        change: Ownership::KickWaiter,
    };
    assert_eq!(taken(&mut table), [kick, ended(kicked, by_admin)]);
    assert_eq!(
        table.handle_force_release(&name("a"), at(10)),
        ForceRelease::Released(holder)
    );
    let force = Action::Ownership {
        claim: holder,
        lock: name("a"),
        change: Ownership::ForceRelease {
            token: token(1_000, 0),
        },
    };
    assert_eq!(
        taken(&mut table),
        [
            force,
            released(holder, "a", token(1_000, 0), 10, ReleaseReason::Force),
            ended(holder, by_admin),
            granted(next, "a", token(1_000, 1), 10),
            acquired(next, token(1_000, 1)),
        ]
    );
    assert_eq!(
        table.handle_force_release(&name("b"), at(10)),
        ForceRelease::NotHeld
    );
    assert_eq!(taken(&mut table), []);
}

#[test]
fn a_shutdown_ends_everybody_and_promotes_nobody() {
    let mut table = single();
    let holder = acquire(&mut table, "a", 1_000, 0);
    let waiter = acquire(&mut table, "a", 1_000, 0);
    taken(&mut table);
    table.handle_shutdown(at(5));
    let code = Some(ErrorCode::ShuttingDown);
    assert_eq!(
        taken(&mut table),
        [
            released(holder, "a", token(1_000, 0), 5, ReleaseReason::Graceful),
            ended(holder, code),
            ended(waiter, code),
        ]
    );
    let refused = table.handle_acquire(name("a"), ms(1), at(6)).expect_err("shut");
    assert_eq!(refused.code, ErrorCode::ShuttingDown);
    assert_eq!(taken(&mut table), []);
    assert_eq!(table.poll_timeout(), None);
}

#[test]
fn a_restarted_server_queues_until_its_first_second_and_then_promotes_in_order_of_arrival() {
    let start = at(300);
    let mut table = LockTable::always_open(TokenSource::after_restart(start));
    let b = acquire(&mut table, "b", 60_000, 301);
    let a = acquire(&mut table, "a", 60_000, 302);
    let gone = acquire(&mut table, "c", 60_000, 303);
    let behind = acquire(&mut table, "b", 60_000, 304);
    assert_eq!(
        taken(&mut table),
        [waiting(b), waiting(a), waiting(gone), waiting(behind)]
    );
    table.handle_close(gone, CloseCause::Closed, at(305));
    assert_eq!(table.poll_timeout(), Some(boot(1_000)));
    table.handle_timeout(at(999));
    assert_eq!(taken(&mut table), []);
    table.handle_timeout(at(1_000));
    assert_eq!(
        taken(&mut table),
        [
            granted(b, "b", token(1_001, 0), 699),
            acquired(b, token(1_001, 0)),
            granted(a, "a", token(1_001, 1), 698),
            acquired(a, token(1_001, 1)),
        ]
    );
    assert_eq!(table.poll_timeout(), Some(boot(60_301)));
}

#[test]
fn at_the_ceiling_claims_queue_and_are_promoted_when_it_rises() {
    let tokens = TokenSource::reserved(token(1_000, 0), token(1_000, 1), at(0));
    let mut table = LockTable::always_open(tokens);
    let first = acquire(&mut table, "a", 60_000, 0);
    let reserve = Action::Reserve { epoch: 1_060 };
    assert_eq!(
        taken(&mut table),
        [
            reserve,
            granted(first, "a", token(1_000, 0), 0),
            acquired(first, token(1_000, 0))
        ]
    );
    let late = acquire(&mut table, "b", 60_000, 0);
    let behind = acquire(&mut table, "a", 60_000, 0);
    table.handle_close(first, CloseCause::Closed, at(1));
    assert_eq!(
        taken(&mut table),
        [
            waiting(late),
            waiting(behind),
            released(first, "a", token(1_000, 0), 1, ReleaseReason::Graceful),
        ]
    );
    table.handle_reserved(token(1_060, 0), at(2_000));
    assert_eq!(
        taken(&mut table),
        [
            granted(late, "b", token(1_002, 0), 2_000),
            acquired(late, token(1_002, 0)),
            granted(behind, "a", token(1_002, 1), 2_000),
            acquired(behind, token(1_002, 1)),
        ]
    );
}

#[test]
fn a_thousand_dead_waiters_ahead_cost_the_live_one_nothing_but_their_removal() {
    let mut table = single();
    let holder = acquire(&mut table, "a", 60_000, 0);
    let dead: Vec<_> = (0..1_000).map(|_| acquire(&mut table, "a", 10, 0)).collect();
    let alive = acquire(&mut table, "a", 60_000, 0);
    taken(&mut table);
    table.handle_close(holder, CloseCause::Closed, at(20));
    let mut expected: Vec<_> = dead.into_iter().map(|claim| ended(claim, None)).collect();
    expected.push(released(
        holder,
        "a",
        token(1_000, 0),
        20,
        ReleaseReason::Graceful,
    ));
    expected.push(granted(alive, "a", token(1_000, 1), 20));
    expected.push(acquired(alive, token(1_000, 1)));
    assert_eq!(taken(&mut table), expected);
}

#[test]
fn a_shut_gate_refuses_and_an_open_one_shuts_by_itself_for_good() {
    let mut table = LockTable::with_gate_shut(at(0));
    assert_eq!(table.poll_timeout(), None);
    let refused = table
        .handle_acquire(name("a"), ms(10_000), at(0))
        .expect_err("shut");
    assert_eq!(refused.code, ErrorCode::NotActive);
    assert!(table.open_gate(open(3, token(1_000, 7), boot(1_000), Grace::default()), at(0)));
    let claim = acquire(&mut table, "a", 10_000, 1);
    let held = LockEvent::Held {
        lock: name("a"),
        lease: ms(10_000),
        token: token(1_000, 7),
    };
    assert_eq!(
        taken(&mut table),
        [
            granted(claim, "a", token(1_000, 7), 0),
            Action::Follow(held),
            acquired(claim, token(1_000, 7)),
        ]
    );
    assert!(
        !table.renew_authority(2, boot(5_000), Token::MAX, at(2)),
        "another term"
    );
    assert!(table.renew_authority(3, boot(2_000), Token::ZERO, at(2)));
    table.handle_heartbeat(claim, at(1_999));
    assert_eq!(taken(&mut table), [acquired(claim, token(1_000, 7))]);
    table.handle_heartbeat(claim, at(2_000));
    let left = Duration::from_millis(9_999);
    assert_eq!(
        taken(&mut table),
        [
            released(claim, "a", token(1_000, 7), 1_999, ReleaseReason::Graceful),
            Action::Follow(LockEvent::Broke {
                lock: name("a"),
                left
            }),
            ended(claim, Some(ErrorCode::NotActive)),
        ]
    );
    assert!(
        !table.renew_authority(3, boot(9_000), Token::MAX, at(2_000)),
        "a lapsed term"
    );
    assert!(
        !table.open_gate(open(3, Token::MAX, boot(9_000), Grace::default()), at(2_000)),
        "no larger term"
    );
    assert!(table.open_gate(open(4, token(500, 0), boot(9_000), Grace::default()), at(2_000)));
    let again = acquire(&mut table, "b", 10, 2_000);
    assert!(
        taken(&mut table).contains(&acquired(again, token(1_000, 8))),
        "tokens never fall back"
    );
}

#[test]
fn authority_runs_out_by_the_timer_too_and_is_part_of_the_timeout() {
    let mut table = active(1_000);
    let claim = acquire(&mut table, "a", 10_000, 0);
    taken(&mut table);
    assert_eq!(table.poll_timeout(), Some(boot(1_000)));
    table.handle_timeout(at(1_000));
    assert!(taken(&mut table).contains(&ended(claim, Some(ErrorCode::NotActive))));
    assert!(!table.report(at(1_000)).serving);
}

#[test]
fn locks_under_grace_queue_until_it_runs_out_or_an_operator_ends_it() {
    let mut table = LockTable::with_gate_shut(at(0));
    let grace = Grace {
        every_lock_until: Some(boot(500)),
        locks: BTreeMap::from([
            (name("long"), boot(900)),
            (name("waived"), boot(900)),
            (name("free"), boot(0)),
        ]),
    };
    assert!(table.open_gate(open(1, token(1_000, 0), boot(60_000), grace), at(0)));
    let claims = ["long", "waived", "free", "unlisted", "unlisted-waived"]
        .map(|lock| acquire(&mut table, lock, 30_000, 10));
    let sent: Vec<_> = taken(&mut table)
        .into_iter()
        .filter(|action| matches!(action, Action::Send { .. }))
        .collect();
    assert_eq!(
        sent,
        [
            waiting(claims[0]),
            waiting(claims[1]),
            acquired(claims[2], token(1_000, 0)),
            waiting(claims[3]),
            waiting(claims[4]),
        ]
    );
    let snapshot = table.snapshot(at(100));
    assert_eq!(
        snapshot.held,
        [Held {
            lock: name("free"),
            lease: ms(30_000),
            token: token(1_000, 0)
        }]
    );
    assert_eq!(
        snapshot.graces,
        [
            (name("long"), Duration::from_millis(800)),
            (name("waived"), Duration::from_millis(800))
        ]
    );
    assert_eq!(snapshot.every_lock, Some(Duration::from_millis(400)));

    for (lock, claim, counter) in [("waived", claims[1], 1), ("unlisted-waived", claims[4], 2)] {
        assert_eq!(
            table.handle_force_release(&name(lock), at(100)),
            ForceRelease::GraceEnded
        );
        assert!(
            taken(&mut table).contains(&acquired(claim, token(1_000, counter))),
            "{lock}"
        );
        assert_eq!(table.poll_timeout(), Some(boot(500)));
    }
    table.handle_close(claims[4], CloseCause::Closed, at(101));
    let again = acquire(&mut table, "unlisted-waived", 30_000, 102);
    assert!(
        taken(&mut table).contains(&acquired(again, token(1_000, 3))),
        "waived once, waived for good"
    );
    table.handle_timeout(at(500));
    assert!(taken(&mut table).contains(&acquired(claims[3], token(1_000, 4))));
    assert_eq!(table.poll_timeout(), Some(boot(900)));
    table.handle_timeout(at(900));
    assert!(taken(&mut table).contains(&acquired(claims[0], token(1_000, 5))));
    assert_eq!(table.snapshot(at(900)).graces, []);
}

#[test]
fn the_standby_hears_how_each_holder_ended() {
    let mut table = active(60_000);
    let lock = name("a");
    for (cause, freed) in [
        (CloseCause::Closed, true),
        (CloseCause::Broken, false),
        (CloseCause::IoTimeout, false),
    ] {
        let claim = acquire(&mut table, "a", 5_000, 0);
        taken(&mut table);
        table.handle_close(claim, cause, at(1_000));
        let event = match freed {
            true => LockEvent::Freed { lock: lock.clone() },
            false => LockEvent::Broke {
                lock: lock.clone(),
                left: Duration::from_millis(4_000),
            },
        };
        assert!(taken(&mut table).contains(&Action::Follow(event)), "{cause:?}");
    }
    let kept = [(lock.clone(), Duration::from_millis(3_000))];
    assert_eq!(
        table.snapshot(at(2_000)),
        Snapshot {
            graces: kept.to_vec(),
            ..Snapshot::default()
        }
    );
    assert_eq!(table.report(at(2_000)).longest_lease, Some(ms(3_000)));

    let next = acquire(&mut table, "a", 10, 2_000);
    taken(&mut table);
    table.handle_timeout(at(2_010));
    assert!(taken(&mut table).contains(&Action::Follow(LockEvent::Freed { lock: lock.clone() })));
    table.handle_close(next, CloseCause::Closed, at(2_010));
    assert_eq!(
        table.snapshot(at(2_010)).graces.len(),
        1,
        "the broken one is still out there"
    );
    table.handle_timeout(at(5_000));
    assert_eq!(table.snapshot(at(5_000)), Snapshot::default());
}

#[test]
fn a_handed_over_gate_tells_its_sessions_to_come_back_and_refuses_new_ones() {
    let mut table = active(60_000);
    let holder = acquire(&mut table, "a", 5_000, 0);
    let waiter = acquire(&mut table, "a", 5_000, 0);
    taken(&mut table);
    table.shut_gate(ErrorCode::ShuttingDown, at(1));
    let code = Some(ErrorCode::ShuttingDown);
    assert_eq!(
        taken(&mut table),
        [
            released(holder, "a", token(1_000, 0), 1, ReleaseReason::Graceful),
            Action::Follow(LockEvent::Broke {
                lock: name("a"),
                left: Duration::from_millis(4_999)
            }),
            ended(holder, code),
            ended(waiter, code),
        ]
    );
    let refused = table.handle_acquire(name("a"), ms(1), at(2)).expect_err("shut");
    assert_eq!(refused.code, ErrorCode::NotActive);
    assert_eq!(table.snapshot(at(2)).graces.len(), 1, "kept for the next term");
}

#[test]
fn a_term_shut_on_purpose_may_open_again_but_a_lapsed_one_may_not() {
    let mut table = active(1_000);
    table.shut_gate(ErrorCode::ShuttingDown, at(10));
    let again = open(1, token(1_000, 0), boot(1_000), Grace::default());
    assert!(table.open_gate(again.clone(), at(20)), "a handover that failed");
    assert!(!table.open_gate(again.clone(), at(30)), "it is open");
    table.handle_timeout(at(1_000));
    table.shut_gate(ErrorCode::ShuttingDown, at(1_001));
    let again = OpenGate {
        authority_until: boot(5_000),
        ..again
    };
    assert!(!table.open_gate(again, at(1_002)), "its authority has lapsed");
}

#[test]
fn the_report_names_the_second_that_the_next_grant_follows() {
    let table = active(1_000);
    assert_eq!(
        table.report(at(0)).epoch,
        1_000,
        "not the wall clock, which nobody vouched for"
    );
}
