//! Scenarios of a pair without a witness, as transcripts of one node; see `scenarios.rs` for how to read them. The
//! reserve is 100 seconds: a floor is 104 seconds ahead of the tokens, of a new
//! term 105. The terms of `a` are odd, those of `b` even.

mod transcript;

use monolock_failover_core::{
    HandoverMode, Incarnation, NodeId, NodeState, PeerStatus, PromiseAnswer, PromiseRequest, Term, Unproven,
    Waiting,
};
use monolock_protocol::Token;
use transcript::{Node, at, record, request};

const A: NodeId = NodeId::A;
const B: NodeId = NodeId::B;

fn peer(incarnation: u64, active: bool, term: u64, floor_epoch: u64) -> PeerStatus {
    PeerStatus {
        incarnation: Incarnation(incarnation),
        active,
        table_answers: true,
        ready: !active,
        highest_term: Term(term),
        floor: Token::first_of_epoch(floor_epoch),
        longest_lease_ms: 0,
    }
}

fn yes(term: u64, floor_epoch: u64) -> Option<PromiseAnswer> {
    Some(PromiseAnswer {
        refused: None,
        highest_term: Term(term),
        floor: Token::first_of_epoch(floor_epoch),
        longest_lease_ms: 0,
    })
}

/// Life 9 of `b`, which has promised to life 7 of `a`, active in term 3, at 2,000 ms.
fn standby(unproven: Unproven) -> Node {
    let mut b = Node::start_alone(B, 9, NodeState::default(), unproven);
    b.hears(0, |watchdog, now| watchdog.handle_clock(Some(499), now));
    for now in [400, 800, 1_200, 1_600] {
        b.watches(now, None);
        b.is_asked(now, request(3, 7, 604));
        if now == 400 {
            b.does(&["persist 3 floor 614"]);
            b.persisted(401, true);
        }
        b.does(&["promise"]);
    }
    b.watches(2_000, None);
    b.is_asked(2_000, request(3, 7, 605));
    b.does(&["promise"]);
    b
}

/// `b` after `a` fell silent, could not be stopped, and was taken over from all the same.
fn reigning_alone() -> Node {
    let mut b = standby(Unproven::Takeover);
    b.watches(3_200, None);
    b.does(&["note: suspect 3", "stop 3 first"]);
    b.fenced(3_300, false);
    b.does(&["note: take 4 by unproven", "persist 4 floor 720"]);
    b.persisted(3_301, true);
    b.does(&[
        "open 4: tokens 605..710, until never, grace none",
        "note: active in 4 by unproven",
        "fence 3",
        "publish 4",
        "ask table",
    ]);
    b
}

#[test]
fn a_first_term_begins_with_the_peers_consent_and_not_without() {
    let mut a = Node::start_alone(A, 7, NodeState::default(), Unproven::Takeover);
    a.hears(0, |watchdog, now| watchdog.handle_clock(Some(499), now));
    a.watches(1_200, None);
    a.does(&["note: suspect 0", "stop 0 first"]);
    a.fenced(1_300, false);
    a.does(&[]);
    assert_eq!(a.waits_for(), Some(Waiting::MayHaveBeenFollowed));
    a.hears(1_400, |watchdog, now| {
        watchdog.handle_peer_status(peer(9, false, 0, 0), at(1_390), now);
    });
    a.does(&["note: take 1 by consent", "persist 1 floor 615"]);
    a.persisted(1_401, true);
    a.does(&["ask for 1 from 500 floor 605"]);
    a.is_answered(1_402, yes(1, 605));
    a.does(&[
        "open 1: tokens 500..605, until never, grace none",
        "note: active in 1 by consent",
        "publish 1",
        "ask table",
    ]);
}

#[test]
fn who_is_asked_consents_gives_its_own_candidacy_up_and_asks_for_a_known_floor() {
    let mut b = Node::start_alone(B, 9, NodeState::default(), Unproven::Wait);
    b.hears(0, |watchdog, now| watchdog.handle_clock(Some(499), now));
    b.watches(1_200, None);
    b.hears(1_200, |watchdog, now| {
        watchdog.handle_peer_status(peer(7, false, 0, 0), at(1_190), now);
    });
    b.does(&[
        "note: suspect 0",
        "stop 0 first",
        "note: take 2 by consent",
        "persist 2 floor 615",
    ]);
    b.persisted(1_201, true);
    b.does(&["ask for 2 from 500 floor 605"]);
    let candidate = |term, first, floor| PromiseRequest {
        candidacy: Some(Token::first_of_epoch(first)),
        ..request(term, 7, floor)
    };
    b.is_asked(1_202, candidate(1, 500, 605));
    b.does(&["refuse: LargerTerm, highest 2"]);
    b.is_asked(1_203, candidate(3, 500, 605));
    b.does(&["refuse: FloorBehind, highest 2"]);
    b.is_asked(1_204, candidate(3, 605, 710));
    b.does(&["note: 2 lost", "persist 3 floor 720"]);
    b.is_answered(1_205, yes(2, 605));
    b.persisted(1_206, true);
    b.does(&["promise"]);
}

#[test]
fn a_silent_active_that_cannot_be_stopped_is_waited_for_and_the_reason_said() {
    let mut b = standby(Unproven::Wait);
    b.watches(3_200, None);
    b.does(&["note: suspect 3", "stop 3 first"]);
    assert_eq!(b.waits_for(), Some(Waiting::Fencing));
    b.fenced(3_300, false);
    b.does(&[]);
    assert_eq!(b.waits_for(), Some(Waiting::NotProven));
    b.watches(4_499, None);
    b.does(&[]);
    b.watches(4_600, None);
    b.does(&["stop 3 first"]);
    b.fenced(4_601, true);
    b.does(&[
        "note: 3 dead by fenced",
        "note: take 4 by fenced",
        "persist 4 floor 720",
    ]);
}

#[test]
fn an_active_that_is_heard_again_is_not_stopped() {
    let mut b = standby(Unproven::Takeover);
    b.watches(3_200, None);
    b.does(&["note: suspect 3", "stop 3 first"]);
    b.is_asked(3_250, request(3, 7, 606));
    b.does(&["promise"]);
    b.fenced(3_300, false);
    b.watches(4_400, None);
    b.does(&[]);
}

#[test]
fn a_node_that_slept_does_not_call_its_peer_silent() {
    let mut b = standby(Unproven::Takeover);
    b.wakes(9_000);
    b.does(&[]);
    assert_eq!(b.waits_for(), Some(Waiting::PeerHeard { until: at(10_200) }));
}

#[test]
fn with_takeover_an_active_that_is_alone_never_raises_its_floor() {
    let mut b = reigning_alone();
    b.table_answers(3_310, 606);
    b.does(&["ask for 4 floor 710"]);
    b.is_answered(3_900, None);
    b.wakes(3_910);
    b.does(&["ask table"]);
    b.table_answers(3_911, 708);
    b.does(&["ask for 4 floor 812", "persist 4 floor 822"]);
    b.persisted(3_912, true);
    b.does(&[]);
    assert_eq!(b.watchdog.status(at(3_912)).grants_left, Some((2 << 20) - 1));
    assert!(b.hears(3_913, |watchdog, now| watchdog.handle_extend_reserve(now)));
    b.does(&[
        "note: 4 extends its floor alone to 812",
        "renew 4: tokens ..812, until never",
    ]);
}

#[test]
fn with_wait_an_active_that_is_alone_raises_its_floor_when_it_runs_out() {
    let mut a = Node::start_alone(A, 7, NodeState::default(), Unproven::Wait);
    a.hears(0, |watchdog, now| watchdog.handle_clock(Some(499), now));
    a.watches(1_000, None);
    a.hears(1_200, |watchdog, now| {
        watchdog.handle_peer_status(peer(9, false, 0, 0), at(1_190), now);
    });
    a.does(&["note: take 1 by consent", "persist 1 floor 615"]);
    a.persisted(1_201, true);
    a.is_answered(1_202, yes(1, 605));
    a.table_answers(1_203, 600);
    a.does(&[
        "ask for 1 from 500 floor 605",
        "open 1: tokens 500..605, until never, grace none",
        "note: active in 1 by consent",
        "publish 1",
        "ask table",
        "ask for 1 floor 704",
        "persist 1 floor 714",
    ]);
    a.persisted(1_204, true);
    a.wakes(1_700);
    a.table_answers(1_701, 602);
    a.does(&[
        "ask table",
        "note: 1 extends its floor alone to 706",
        "renew 1: tokens ..706, until never",
    ]);
}

#[test]
fn a_zombie_gives_way_to_a_larger_term_and_begins_none_without_consent() {
    let mut b = reigning_alone();
    b.hears(4_000, |watchdog, now| {
        watchdog.handle_peer_status(peer(7, true, 5, 900), at(3_990), now);
    });
    b.does(&["note: 4 gives way to 5", "shut: NotActive", "persist 5 floor 910"]);
    assert_eq!(b.waits_for(), Some(Waiting::GateMayBeOpen));
    b.hears(4_001, |watchdog, now| watchdog.handle_stopped(now));
    assert_eq!(b.waits_for(), Some(Waiting::PeerHeard { until: at(5_200) }));
}

#[test]
fn a_handover_is_told_and_opens_the_peers_gate() {
    let mut b = standby(Unproven::Wait);
    b.hears(2_100, |watchdog, now| {
        watchdog.handle_handover_told(&record(4, Some(B), 9, 1, 606), now);
    });
    b.does(&["note: take 4 by handover", "persist 4 floor 721"]);
    b.persisted(2_101, true);
    b.does(&[
        "open 4: tokens 606..711, until never, grace none",
        "note: active in 4 by handover",
        "fence 3",
        "publish 4",
        "ask table",
    ]);
    b.hears(2_200, |watchdog, now| {
        watchdog.handle_peer_status(peer(8, false, 4, 606), at(2_190), now);
    });
    let handover = b.hears(2_201, |watchdog, now| {
        watchdog.handle_handover_request(HandoverMode::ToPeer, now)
    });
    assert_eq!(handover, Ok(()));
    b.does(&["note: hand 4 to a", "shut: Handover"]);
    b.hears(2_202, |watchdog, now| {
        watchdog.handle_gate_shut(Token::first_of_epoch(607), now);
    });
    b.does(&["note: 5 handed over", "tell handover 5.1 a8"]);
}
