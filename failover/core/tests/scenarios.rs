//! Scenarios of the watchdog: transcripts of one node, in which every action is named, also that there is none.
//!
//! The authority period is 1,200 ms: a renewal gives authority for 960 and is due every 400, and the standby reads the
//! record every 200. Times are milliseconds after the node's start. `4.10 a7` is a record of term 4 that moved ten
//! times, held by life 7 of node `a`; a token is named by its second.

mod transcript;

use std::time::Duration;

use monolock_failover_core::{
    HandoverMode, Incarnation, LockChange, NodeId, NodeState, PeerStatus, PromiseAnswer, Record, Term,
    Timing, TimingError, Waiting,
};
use monolock_protocol::{Lease, LockName, Token};
use transcript::{Node, at, record, request};

const A: NodeId = NodeId::A;
const B: NodeId = NodeId::B;

/// The record of life 7 of `a`, active in term 4.
fn of_a(beat: u64) -> Record {
    record(4, Some(A), 7, beat, 500)
}

/// Life 9 of `b`, which has watched `a` since its start and read `4.10 a7` first at 2,000 ms.
fn standby() -> Node {
    let mut b = Node::start(B, 9, NodeState::default());
    b.does(&["read"]);
    b.reads(0, Some(of_a(0)));
    b.does(&["persist 4 floor 510"]);
    b.persisted(1, true);
    for beat in 1..=10 {
        b.watches(200 * beat - 1, Some(&of_a(beat - 1)));
    }
    b.watches(2_000, Some(&of_a(10)));
    b.does(&[]);
    b
}

/// `b` after `a` fell silent: it reigns in term 5 by a swap that was sent at 3,200 ms.
fn reigning() -> Node {
    let mut b = standby();
    b.watches(3_200, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
    b.wins(3_210);
    b.does(&["persist 5 floor 510"]);
    b.persisted(3_215, true);
    b.does(&[
        "open 5: tokens 500..505, until 4160, grace none",
        "note: active in 5 by silence",
        "fence 4",
        "publish 5",
        "ask table",
    ]);
    b
}

// ---- the ordinary course

#[test]
fn the_first_node_of_a_pair_watches_for_a_whole_period_and_waits_for_a_trusted_clock() {
    let mut a = Node::start(A, 7, NodeState::default());
    a.watches(1_199, None);
    a.does(&[]);
    assert_eq!(
        a.waits_for(),
        Some(Waiting::ObservingAfterStart { until: at(1_200) })
    );
    a.watches(1_300, None);
    a.does(&[]);
    assert_eq!(a.waits_for(), Some(Waiting::NoTrustedClock));
    a.hears(1_300, |watchdog, now| watchdog.handle_clock(Some(499), now));
    a.does(&["note: take 1 by silence", "swap none -> 1.1 a7 floor 505"]);
    a.wins(1_310);
    a.does(&["persist 1 floor 515"]);
    a.persisted(1_315, true);
    a.does(&[
        "open 1: tokens 500..505, until 2260, grace none",
        "note: active in 1 by silence",
        "publish 1",
        "ask table",
    ]);
}

#[test]
fn a_silent_active_is_taken_over_after_a_whole_period() {
    reigning();
}

#[test]
fn a_standby_promises_to_its_active_and_waits_for_the_promise_to_end() {
    let mut b = standby();
    b.is_asked(2_100, request(4, 7, 501));
    b.does(&["promise"]);
    b.watches(3_299, Some(&of_a(10)));
    b.does(&[]);
    assert_eq!(b.waits_for(), Some(Waiting::PromiseRuns { until: at(3_300) }));
    b.watches(3_300, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 506"]);
    b.is_asked(3_301, request(4, 7, 503));
    b.does(&["refuse: SwapPending, highest 4"]);
}

#[test]
fn a_promise_is_on_disk_before_it_is_given_and_runs_from_when_it_is_given() {
    let mut b = standby();
    b.is_asked(2_100, request(4, 7, 511));
    b.does(&["persist 4 floor 521"]);
    b.is_asked(2_150, request(4, 7, 512));
    b.does(&[]);
    b.persisted(2_190, true);
    b.does(&["promise", "promise"]);
    b.watches(3_389, Some(&of_a(10)));
    assert_eq!(b.waits_for(), Some(Waiting::PromiseRuns { until: at(3_390) }));
    b.does(&[]);
}

#[test]
fn a_disk_that_fails_promises_nothing_and_is_tried_again_after_a_pause() {
    let mut b = standby();
    b.is_asked(2_100, request(4, 7, 511));
    b.does(&["persist 4 floor 521"]);
    b.persisted(2_110, false);
    b.does(&["note: state not durable", "refuse: NotDurable, highest 4"]);
    b.is_asked(2_120, request(4, 7, 511));
    b.does(&["refuse: NotDurable, highest 4"]);
    b.is_asked(2_310, request(4, 7, 511));
    b.does(&["persist 4 floor 521", "read"]);
    b.persisted(2_320, true);
    b.does(&["promise"]);
}

#[test]
fn a_won_term_whose_disk_failed_just_before_opens_when_the_disk_is_tried_again() {
    let mut b = standby();
    b.is_asked(2_100, request(4, 7, 511));
    b.does(&["persist 4 floor 521"]);
    b.watches(3_200, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 516"]);
    b.persisted(3_205, false);
    b.does(&["note: state not durable", "refuse: NotDurable, highest 4"]);
    b.wins(3_210);
    b.does(&[]);
    assert_eq!(b.watchdog.poll_timeout(), Some(at(3_405)));
    b.wakes(3_405);
    b.does(&["persist 5 floor 526"]);
}

#[test]
fn a_lapsed_term_is_over_whatever_answer_was_waiting() {
    let mut b = reigning();
    b.table_answers(3_220, 501);
    b.does(&["ask for 5 floor 505", "swap 5.11 b9 -> 5.12 b9 floor 505"]);
    let promised = PromiseAnswer {
        refused: None,
        highest_term: Term(5),
        floor: Token::ZERO,
        longest_lease_ms: 0,
    };
    b.is_answered(4_160, Some(promised));
    b.does(&["note: 5 lapsed", "shut: NotActive"]);
    b.wins(4_161);
    b.does(&["read"]);
    b.reads(4_162, Some(record(5, Some(B), 9, 12, 505)));
    b.watches(5_360, Some(&record(5, Some(B), 9, 12, 505)));
    b.does(&[]);
    assert!(matches!(b.waits_for(), Some(Waiting::RecordMoved { .. })));
    b.watches(5_361, Some(&record(5, Some(B), 9, 12, 505)));
    b.does(&["note: take 6 by silence", "swap 5.12 b9 -> 6.13 b9 floor 510"]);
}

#[test]
fn a_renewal_counts_from_its_sending_and_raises_the_ceiling_it_carried() {
    let mut b = reigning();
    b.table_answers(3_600, 503);
    b.does(&["ask for 5 floor 507", "swap 5.11 b9 -> 5.12 b9 floor 507"]);
    b.wakes(3_615);
    b.does(&["ask table"]);
    let promised = PromiseAnswer {
        refused: None,
        highest_term: Term(5),
        floor: Token::ZERO,
        longest_lease_ms: 0,
    };
    b.is_answered(3_900, Some(promised));
    b.does(&["renew 5: tokens ..507, until 4560"]);
    b.wins(4_100);
    b.does(&[]);
    assert_eq!(b.watchdog.status(at(4_100)).authority_until, Some(at(4_560)));
}

// ---- swaps that failed for certain

#[test]
fn a_takeover_that_failed_for_certain_is_tried_again_after_a_pause_and_binds_nothing() {
    let mut b = standby();
    b.watches(3_200, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
    b.fails(3_210);
    b.does(&["note: 5 lost", "read"]);
    b.is_asked(3_220, request(4, 7, 501));
    b.does(&["promise"]);
    let mut b = standby();
    b.watches(3_200, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
    b.fails(3_210);
    b.watches(3_409, Some(&of_a(10)));
    b.does(&["note: 5 lost"]);
    b.watches(3_410, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.12 b9 floor 505"]);
}

#[test]
fn a_renewal_that_failed_for_certain_leaves_no_doubt() {
    let mut b = reigning();
    b.table_answers(3_220, 501);
    b.does(&["ask for 5 floor 505", "swap 5.11 b9 -> 5.12 b9 floor 505"]);
    b.fails(3_230);
    b.wakes(3_430);
    b.does(&[]);
    b.wakes(3_615);
    b.does(&["ask table"]);
    b.table_answers(3_620, 501);
    b.does(&["swap 5.11 b9 -> 5.13 b9 floor 505"]);
    b.wins(3_630);
    b.does(&["renew 5: tokens ..505, until 4580"]);
}

// ---- the lock table

/// A swap that lands counts, but the doubt about it is no reason to renew again: only the table's answer is.
#[test]
fn a_stuck_lock_table_loses_authority_even_when_the_answers_to_swaps_are_lost() {
    let mut b = reigning();
    b.table_answers(3_220, 501);
    b.does(&["ask for 5 floor 505", "swap 5.11 b9 -> 5.12 b9 floor 505"]);
    let landed = b.doubts(3_230);
    b.does(&[]);
    b.wakes(3_430);
    b.does(&["read"]);
    b.reads(3_440, Some(landed));
    b.does(&["renew 5: tokens ..505, until 4180"]);
    b.wakes(3_620);
    b.does(&["ask table"]);
    b.watches(4_179, None);
    b.does(&[]);
    b.wakes(4_180);
    b.does(&["note: 5 lapsed", "shut: NotActive", "read"]);
}

#[test]
fn a_swap_that_may_still_land_is_sent_again_only_when_the_lock_table_has_answered() {
    let mut b = reigning();
    b.table_answers(3_220, 501);
    b.does(&["ask for 5 floor 505", "swap 5.11 b9 -> 5.12 b9 floor 505"]);
    b.doubts(3_230);
    b.wakes(3_430);
    b.does(&["read"]);
    let untouched = record(5, Some(B), 9, 11, 505);
    b.reads(3_440, Some(untouched.clone()));
    b.does(&[]);
    b.wakes(3_620);
    b.does(&["ask table"]);
    b.table_answers(3_625, 501);
    b.does(&[]);
    b.wakes(3_630);
    b.does(&["read"]);
    b.reads(3_631, Some(untouched));
    b.does(&["swap 5.11 b9 -> 5.13 b9 floor 505"]);
}

// ---- proofs of death

/// The stream of life 7 of `a` ended at 2,050 ms, and its ports refuse.
fn proven() -> Node {
    let mut b = standby();
    b.hears(2_010, |watchdog, now| {
        watchdog.handle_stream_started(Incarnation(7), now);
    });
    b.hears(2_020, |watchdog, now| watchdog.handle_snapshot_end(None, now));
    b.hears(2_050, |watchdog, now| watchdog.handle_stream_ended(now));
    b.does(&["note: suspect 4", "knock"]);
    b.ports_refuse(2_051, true);
    b.does(&["note: 4 dead by crash", "read"]);
    b
}

#[test]
fn a_crash_is_taken_over_on_a_reading_sent_after_the_proof() {
    let mut b = proven();
    b.reads(2_060, Some(of_a(10)));
    b.does(&["note: take 5 by crash", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
}

#[test]
fn a_reading_sent_before_the_proof_carries_no_takeover() {
    let mut b = standby();
    b.hears(2_010, |watchdog, now| {
        watchdog.handle_stream_started(Incarnation(7), now);
    });
    b.wakes(2_200);
    b.does(&["read"]);
    b.hears(2_210, |watchdog, now| watchdog.handle_stream_ended(now));
    b.does(&["note: suspect 4", "knock"]);
    b.ports_refuse(2_211, true);
    b.does(&["note: 4 dead by crash"]);
    b.reads(2_215, Some(of_a(10)));
    b.does(&["read"]);
    b.reads(2_220, Some(of_a(11)));
    b.does(&["note: take 5 by crash", "swap 4.11 a7 -> 5.12 b9 floor 505"]);
}

#[test]
fn a_proof_is_void_when_that_life_speaks_again() {
    let mut b = proven();
    b.is_asked(2_055, request(4, 7, 501));
    b.does(&["note: proof of 4 void", "refuse: TermEnded, highest 4"]);
    b.reads(2_060, Some(of_a(10)));
    b.does(&[]);
    b.is_asked(2_070, request(4, 7, 501));
    b.does(&["promise"]);
}

#[test]
fn a_proof_is_void_when_the_record_moves() {
    let mut b = proven();
    b.reads(2_060, Some(of_a(10)));
    b.does(&["note: take 5 by crash", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
    b.loses(2_070, Some(of_a(11)));
    b.does(&["note: proof of 4 void", "note: 5 lost"]);
}

#[test]
fn a_new_life_of_the_peer_proves_the_old_one_dead_only_if_it_was_asked_after_the_record_named_that() {
    let new_life = PeerStatus {
        incarnation: Incarnation(8),
        active: false,
        table_answers: true,
        ready: false,
        highest_term: Term(4),
        floor: Token::ZERO,
        longest_lease_ms: 0,
    };
    let mut b = Node::start(B, 9, NodeState::default());
    b.does(&["read"]);
    b.reads(20, Some(of_a(0)));
    b.does(&["persist 4 floor 510"]);
    b.persisted(21, true);
    b.hears(30, |watchdog, now| {
        watchdog.handle_peer_status(new_life, at(19), now)
    });
    b.does(&[]);
    b.watches(1_500, Some(&of_a(0)));
    b.does(&["note: take 5 by silence", "swap 4.0 a7 -> 5.1 b9 floor 505"]);

    let mut b = standby();
    b.hears(2_010, |watchdog, now| {
        watchdog.handle_peer_status(new_life, at(2_001), now)
    });
    b.does(&["note: 4 dead by new_incarnation", "read"]);
    b.reads(2_020, Some(of_a(10)));
    b.does(&[
        "note: take 5 by new_incarnation",
        "swap 4.10 a7 -> 5.11 b9 floor 505",
    ]);
}

// ---- a node that did not watch

#[test]
fn a_node_that_was_frozen_does_not_call_its_peer_silent() {
    let mut b = standby();
    b.wakes(2_200);
    b.does(&["read"]);
    b.reads(9_000, Some(of_a(10)));
    b.does(&["read"]);
    assert_eq!(b.waits_for(), Some(Waiting::RecordMoved { until: at(10_200) }));
    b.reads(9_001, Some(of_a(11)));
    b.does(&[]);
}

#[test]
fn a_node_that_lost_sight_of_the_witness_does_not_act_on_what_it_saw() {
    let mut b = standby();
    b.wakes(2_200);
    b.does(&["read"]);
    b.wakes(3_300);
    b.does(&[]);
    let age = Some(Duration::from_millis(1_300));
    assert_eq!(b.waits_for(), Some(Waiting::WitnessUnread { age }));
}

// ---- a witness that went back

/// A backup of the witness holds a release of long ago: it says nothing about the active of today.
#[test]
fn a_release_below_the_remembered_term_is_no_release() {
    let mut b = standby();
    b.wakes(2_200);
    b.does(&["read"]);
    let restored = record(3, None, 6, 4, 400);
    b.reads(2_201, Some(restored.clone()));
    b.does(&["note: witness went back from 4 to 3"]);
    b.watches(3_400, Some(&restored));
    b.does(&[]);
    b.watches(3_401, Some(&restored));
    b.does(&["note: take 5 by silence", "swap 3.4 -6 -> 5.11 b9 floor 505"]);
}

#[test]
fn a_proof_permits_no_swap_from_a_record_below_the_remembered_term() {
    let mut b = standby();
    let status = PeerStatus {
        incarnation: Incarnation(8),
        active: true,
        table_answers: true,
        ready: false,
        highest_term: Term(6),
        floor: Token::ZERO,
        longest_lease_ms: 0,
    };
    b.hears(2_005, |watchdog, now| {
        watchdog.handle_peer_status(status, at(2_004), now)
    });
    b.does(&["persist 6 floor 510"]);
    b.hears(2_010, |watchdog, now| {
        watchdog.handle_stream_started(Incarnation(7), now);
    });
    b.hears(2_050, |watchdog, now| watchdog.handle_stream_ended(now));
    b.does(&["note: suspect 6", "knock"]);
    b.ports_refuse(2_051, true);
    b.does(&["note: 6 dead by crash", "read"]);
    b.reads(2_060, Some(of_a(10)));
    b.does(&[]);
}

#[test]
fn an_active_writes_a_witness_over_that_went_back() {
    let mut b = reigning();
    b.table_answers(3_220, 501);
    b.does(&["ask for 5 floor 505", "swap 5.11 b9 -> 5.12 b9 floor 505"]);
    b.loses(3_230, Some(record(2, Some(A), 3, 2, 300)));
    b.does(&["note: witness went back from 5 to 2"]);
    b.wakes(3_620);
    b.does(&["ask table"]);
    b.table_answers(3_625, 501);
    b.does(&["swap 2.2 a3 -> 5.13 b9 floor 505"]);
    b.wins(3_630);
    b.does(&["renew 5: tokens ..505, until 4585"]);
}

#[test]
fn a_handover_in_doubt_is_not_taken_back_because_the_witness_went_back() {
    let mut b = handing_over();
    b.doubts(3_320);
    b.wakes(3_520);
    b.does(&["read"]);
    b.reads(3_530, Some(of_a(10)));
    b.does(&["note: witness went back from 5 to 4", "shut: NotActive", "read"]);
}

/// What the pending swap would win must still be the highest term, and its tokens above every floor.
#[test]
fn a_floor_learnt_while_the_takeover_swap_was_under_way_raises_the_first_token() {
    let mut b = standby();
    b.watches(3_200, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
    let status = PeerStatus {
        incarnation: Incarnation(7),
        active: false,
        table_answers: true,
        ready: false,
        highest_term: Term(4),
        floor: Token::first_of_epoch(502),
        longest_lease_ms: 0,
    };
    b.hears(3_205, |watchdog, now| {
        watchdog.handle_peer_status(status, at(3_204), now)
    });
    b.wins(3_210);
    b.does(&["persist 5 floor 510"]);
    b.persisted(3_211, true);
    b.does(&[
        "open 5: tokens 502..505, until 4160, grace none",
        "note: active in 5 by silence",
        "fence 4",
        "publish 5",
        "ask table",
    ]);
}

#[test]
fn a_term_is_not_opened_when_a_higher_one_was_learnt_while_its_swap_was_under_way() {
    let mut b = standby();
    b.watches(3_200, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
    b.is_asked(3_205, request(8, 7, 501));
    b.does(&["persist 8 floor 510"]);
    b.persisted(3_206, true);
    b.does(&["promise"]);
    b.wins(3_210);
    b.does(&["note: witness went back from 8 to 5", "note: 5 lost", "read"]);
}

// ---- handover

fn ready_peer() -> PeerStatus {
    PeerStatus {
        incarnation: Incarnation(8),
        active: false,
        table_answers: true,
        ready: true,
        highest_term: Term(5),
        floor: Token::ZERO,
        longest_lease_ms: 0,
    }
}

/// `b` has shut its gate and sent the swap that hands term 5 to life 8 of `a`.
fn handing_over() -> Node {
    let mut b = reigning();
    b.hears(3_300, |watchdog, now| {
        watchdog.handle_peer_status(ready_peer(), at(3_299), now)
    });
    let asked = b.hears(3_310, |watchdog, now| {
        watchdog.handle_handover_request(HandoverMode::ToPeer, now)
    });
    assert_eq!(asked, Ok(()));
    b.does(&["note: hand 5 to a", "shut: Handover"]);
    b.hears(3_315, |watchdog, now| {
        watchdog.handle_gate_shut(Token::first_of_epoch(501), now)
    });
    b.does(&["swap 5.11 b9 -> 6.12 a8 floor 505"]);
    b
}

#[test]
fn a_handover_ends_in_standby_and_tells_the_peer() {
    let mut b = handing_over();
    b.wins(3_320);
    b.does(&[
        "note: 6 handed over",
        "tell handover 6.12 a8",
        "persist 6 floor 510",
        "read",
    ]);
}

#[test]
fn a_handover_that_failed_for_certain_reopens_with_every_lock_held_back() {
    let mut b = handing_over();
    b.doubts(3_320);
    b.wakes(3_520);
    b.does(&["read"]);
    b.reads(3_530, Some(record(5, Some(B), 9, 11, 505)));
    b.does(&["swap 5.11 b9 -> 5.13 b9 floor 505"]);
    b.wins(3_540);
    b.does(&[
        "note: 5 goes on",
        "open 5: tokens 501+1..505, until 4490, grace all 3540",
        "ask table",
    ]);
}

#[test]
fn a_node_takes_the_term_that_is_handed_to_it() {
    let mut b = standby();
    let handed = record(5, Some(B), 9, 11, 504);
    b.hears(2_010, |watchdog, now| watchdog.handle_handover_told(&handed, now));
    b.does(&["read"]);
    b.reads(2_011, Some(handed));
    b.does(&[
        "persist 5 floor 510",
        "note: take 5 by handover",
        "swap 5.11 b9 -> 5.12 b9 floor 509",
    ]);
}

/// Its own swap for the same term lost: that is no reason to overlook the handover that came after.
#[test]
fn a_node_that_lost_the_race_for_a_term_takes_it_when_it_is_handed_over() {
    let mut b = standby();
    b.watches(3_200, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
    b.loses(3_210, Some(of_a(11)));
    b.does(&["note: 5 lost", "read"]);
    b.reads(3_220, Some(record(5, Some(B), 9, 12, 504)));
    b.does(&[
        "persist 5 floor 510",
        "note: take 5 by handover",
        "swap 5.12 b9 -> 5.13 b9 floor 509",
    ]);
}

/// The process is about to end: the term that it released is not for itself.
#[test]
fn a_node_does_not_take_back_at_once_what_it_released() {
    let mut b = reigning();
    let asked = b.hears(3_310, |watchdog, now| {
        watchdog.handle_handover_request(HandoverMode::OrRelease, now)
    });
    assert_eq!(asked, Ok(()));
    b.does(&["note: release 5", "shut: Handover"]);
    b.hears(3_315, |watchdog, now| {
        watchdog.handle_gate_shut(Token::first_of_epoch(501), now)
    });
    b.does(&["swap 5.11 b9 -> 6.12 -9 floor 505"]);
    b.wins(3_320);
    b.does(&["note: 6 handed over", "persist 6 floor 510", "read"]);
    let released = record(6, None, 9, 12, 505);
    b.reads(3_321, Some(released.clone()));
    b.watches(4_519, Some(&released));
    b.does(&[]);
}

#[test]
fn a_released_term_is_taken_at_once() {
    let mut b = standby();
    b.wakes(2_200);
    b.does(&["read"]);
    b.reads(2_201, Some(record(5, None, 7, 11, 504)));
    b.does(&[
        "persist 5 floor 510",
        "note: take 6 by released",
        "swap 5.11 -7 -> 6.12 b9 floor 509",
    ]);
}

// ---- grace

fn held(lock: &str, lease_ms: u32) -> LockChange {
    LockChange::Held {
        lock: LockName::new(lock).expect("valid"),
        lease: Lease::from_millis(lease_ms).expect("positive"),
    }
}

#[test]
fn a_takeover_with_a_live_stream_holds_back_the_locks_it_named() {
    let mut b = standby();
    b.hears(2_010, |watchdog, now| {
        watchdog.handle_stream_started(Incarnation(7), now);
    });
    b.hears(2_011, |watchdog, now| {
        watchdog.handle_lock_change(held("x", 9_000), now)
    });
    b.does(&["persist 4 floor 510"]);
    b.persisted(2_012, true);
    b.hears(2_020, |watchdog, now| watchdog.handle_snapshot_end(None, now));
    b.hears(2_050, |watchdog, now| watchdog.handle_stream_ended(now));
    b.does(&["note: suspect 4", "knock"]);
    b.ports_refuse(2_051, true);
    b.reads(2_060, Some(of_a(10)));
    b.wins(2_070);
    b.persisted(2_075, true);
    b.does(&[
        "note: 4 dead by crash",
        "read",
        "note: take 5 by crash",
        "swap 4.10 a7 -> 5.11 b9 floor 505",
        "persist 5 floor 510",
        "open 5: tokens 500..505, until 3020, grace x 11070",
        "note: active in 5 by crash",
        "fence 4",
        "publish 5",
        "ask table",
    ]);
}

/// The stream of a life that never was the active of that term knows none of its locks.
#[test]
fn an_active_that_died_and_came_back_at_once_has_its_own_locks_held_back_and_no_others() {
    let mut b = standby();
    b.hears(2_001, |watchdog, now| {
        watchdog.handle_stream_started(Incarnation(7), now);
    });
    b.hears(2_002, |watchdog, now| {
        watchdog.handle_lock_change(held("x", 9_000), now)
    });
    b.does(&["persist 4 floor 510"]);
    b.persisted(2_003, true);
    b.hears(2_004, |watchdog, now| watchdog.handle_snapshot_end(None, now));
    b.hears(2_005, |watchdog, now| watchdog.handle_stream_ended(now));
    b.does(&["note: suspect 4", "knock"]);
    b.hears(2_010, |watchdog, now| {
        watchdog.handle_stream_started(Incarnation(8), now);
    });
    b.hears(2_011, |watchdog, now| watchdog.handle_snapshot_end(None, now));
    b.watches(3_200, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
    b.hears(3_201, |watchdog, now| watchdog.handle_stream_beat(now));
    b.wins(3_210);
    b.persisted(3_215, true);
    b.does(&[
        "persist 5 floor 510",
        "open 5: tokens 500..505, until 4160, grace x 12210",
        "note: active in 5 by silence",
        "fence 4",
        "publish 5",
        "ask table",
    ]);
}

#[test]
fn a_stream_from_another_life_than_the_one_that_held_the_term_is_not_live() {
    let mut b = standby();
    b.hears(2_001, |watchdog, now| {
        watchdog.handle_stream_started(Incarnation(8), now);
    });
    b.hears(2_002, |watchdog, now| {
        watchdog.handle_lock_change(held("x", 9_000), now)
    });
    b.does(&["persist 4 floor 510"]);
    b.persisted(2_003, true);
    b.hears(2_004, |watchdog, now| watchdog.handle_snapshot_end(None, now));
    b.watches(3_200, Some(&of_a(10)));
    b.does(&["note: take 5 by silence", "swap 4.10 a7 -> 5.11 b9 floor 505"]);
    b.hears(3_201, |watchdog, now| watchdog.handle_stream_beat(now));
    b.wins(3_210);
    b.persisted(3_215, true);
    b.does(&[
        "persist 5 floor 510",
        "open 5: tokens 500..505, until 4160, grace all 12210",
        "note: active in 5 by silence",
        "fence 4",
        "publish 5",
        "ask table",
    ]);
}

// ---- input that no honest caller gives

#[test]
fn a_period_too_long_to_count_with_is_refused() {
    assert!(matches!(
        Timing::new(Duration::MAX),
        Err(TimingError::TooLong { .. })
    ));
}

#[test]
fn the_largest_numbers_are_taken_without_a_panic() {
    let largest = NodeState {
        highest_term: Term(u64::MAX),
        floor: Token::MAX,
        longest_lease_ms: u32::MAX,
    };
    let mut a = Node::start(A, 7, NodeState::default());
    a.hears(1, |watchdog, now| watchdog.handle_clock(Some(u64::MAX), now));
    a.watches(1_300, None);
    a.wins(1_301);
    a.persisted(1_302, true);
    a.table_answers(1_303, u64::MAX);
    let mut b = Node::start(B, 9, largest);
    b.watches(1_300, None);
    b.wins(1_301);
    b.table_answers(1_303, 5);
}
