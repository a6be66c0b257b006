use monolock_protocol::{BootInstant, Token};

use super::events::{Event, Line, Told};
use super::*;

const fn at(millis: u64) -> BootInstant {
    BootInstant::from_millis(millis)
}

fn authority(node: &str, term: u64, first_token: u64, from: u64, until: u64) -> Authority {
    Authority {
        node: node.into(),
        term,
        first_token: Token::new(first_token),
        from: at(from),
        until: at(until),
    }
}

/// A grant of lock `l` to client `c` by node `a`, held as long as it is told.
fn grant(token: u64, asked: u64, granted: u64) -> Grant {
    Grant {
        client: "c".into(),
        lock: "l".into(),
        token: Token::new(token),
        node: "a".into(),
        asked: at(asked),
        granted: at(granted),
        held_until: at(granted),
    }
}

fn id(number: u64) -> WriteId {
    WriteId {
        client: "c".into(),
        number,
    }
}

fn write(number: u64, token: u64, sent: u64, answered: u64) -> Write {
    Write {
        id: id(number),
        resource: "l".into(),
        token: Token::new(token),
        sent: at(sent),
        answered: at(answered),
        outcome: WriteOutcome::Accepted,
    }
}

fn accepted(number: u64, token: u64) -> Accepted {
    Accepted {
        id: id(number),
        resource: "l".into(),
        token: Token::new(token),
    }
}

/// Two terms, a takeover between them, and a write in each.
fn good() -> History {
    History {
        authorities: vec![
            authority("a", 1, 10, 0, 100),
            authority("b", 2, 20, 150, u64::MAX),
        ],
        grants: vec![
            grant(10, 1, 2),
            Grant {
                node: "b".into(),
                ..grant(20, 90, 160)
            },
        ],
        writes: vec![write(0, 10, 5, 6), write(1, 20, 170, 180)],
        accepted: vec![accepted(0, 10), accepted(1, 20)],
        demands: vec![Demand {
            reason: "after the crash".into(),
            after: at(100),
            until: at(200),
            locks: vec!["l".into()],
        }],
    }
}

/// Changes the good history and expects exactly one violation that `is_expected`.
#[track_caller]
fn assert_caught(change: impl FnOnce(&mut History), is_expected: impl Fn(&Violation) -> bool) {
    let mut history = good();
    change(&mut history);
    let violations = history.violations();
    assert!(
        violations.len() == 1 && violations.iter().all(is_expected),
        "{violations:#?}"
    );
}

#[test]
fn a_takeover_in_order_violates_nothing() {
    assert_eq!(good().violations(), []);
    assert_eq!(good().shared_holds(), []);
    assert_eq!(History::default().violations(), []);
}

#[test]
fn two_authorities_at_once_are_caught() {
    assert_caught(
        |history| history.authorities[0].until = at(151),
        |violation| matches!(violation, Violation::AuthoritiesOverlap(..)),
    );
}

fn governed_by(authorities: Vec<Authority>) -> History {
    History {
        authorities,
        ..History::default()
    }
}

#[test]
fn an_overlap_with_one_that_began_long_before_is_caught() {
    let history = governed_by(vec![
        authority("a", 1, 10, 0, 1_000),
        authority("b", 2, 20, 10, 20),
        authority("a", 3, 30, 500, 600),
    ]);
    let overlaps = history
        .violations()
        .iter()
        .filter(|violation| matches!(violation, Violation::AuthoritiesOverlap(..)))
        .count();
    assert_eq!(overlaps, 2);
}

#[test]
fn one_term_on_two_nodes_is_caught() {
    assert_caught(
        |history| {
            history.authorities[1] = authority("b", 1, 10, 150, u64::MAX);
        },
        |violation| matches!(violation, Violation::TermHeldTwice(..)),
    );
}

#[test]
fn a_smaller_term_after_a_larger_one_is_caught() {
    let history = governed_by(vec![
        authority("a", 2, 20, 0, 100),
        authority("b", 1, 10, 150, 200),
    ]);
    assert!(matches!(
        history.violations()[..],
        [Violation::TermsOutOfOrder { .. }]
    ));
}

#[test]
fn a_term_that_starts_at_no_larger_token_is_caught() {
    let history = governed_by(vec![
        authority("a", 1, 20, 0, 100),
        authority("b", 2, 20, 150, 200),
    ]);
    assert!(matches!(
        history.violations()[..],
        [Violation::FirstTokenWentBack { .. }]
    ));
}

#[test]
fn a_grant_of_the_wrong_node_is_caught() {
    assert_caught(
        |history| history.grants[1].node = "a".into(),
        |violation| matches!(violation, Violation::GrantWithoutAuthority(_)),
    );
}

#[test]
fn a_grant_by_a_zombie_is_caught() {
    assert_caught(
        |history| {
            history.grants.truncate(1);
            history.writes.truncate(1);
            history.accepted.truncate(1);
            history.demands.clear();
            history.grants.push(grant(11, 351, 352));
        },
        |violation| matches!(violation, Violation::GrantWithoutAuthority(_)),
    );
}

#[test]
fn a_grant_before_the_term_began_is_caught() {
    assert_caught(
        |history| {
            history.grants[1].granted = at(149);
            history.demands.clear();
        },
        |violation| matches!(violation, Violation::GrantWithoutAuthority(_)),
    );
}

#[test]
fn a_token_below_every_term_is_caught() {
    assert_caught(
        |history| history.grants.push(grant(9, 0, 0)),
        |violation| matches!(violation, Violation::GrantWithoutAuthority(_)),
    );
}

#[test]
fn a_token_granted_twice_is_caught() {
    assert_caught(
        |history| history.grants.push(grant(10, 1, 2)),
        |violation| matches!(violation, Violation::TokenGrantedTwice(..)),
    );
}

#[test]
fn tokens_that_go_back_are_caught_across_locks_too() {
    assert_caught(
        |history| {
            history.grants.push(Grant {
                lock: "other".into(),
                ..grant(12, 3, 4)
            });
            history.grants.push(grant(11, 5, 6));
        },
        |violation| matches!(violation, Violation::TokensWentBack { .. }),
    );
}

#[test]
fn concurrent_grants_may_come_in_any_order() {
    let mut history = good();
    history.grants.push(grant(12, 3, 7));
    history.grants.push(grant(11, 5, 6));
    assert_eq!(history.violations(), []);
}

#[test]
fn a_stale_write_that_the_resource_accepted_is_caught() {
    assert_caught(
        |history| {
            history.writes.push(Write {
                answered: BootInstant::MAX,
                outcome: WriteOutcome::Unknown,
                ..write(2, 10, 190, 0)
            });
            history.accepted.push(accepted(2, 10));
        },
        |violation| matches!(violation, Violation::StaleWriteAccepted { .. }),
    );
}

#[test]
fn a_stale_write_is_caught_without_the_order_of_the_resource() {
    assert_caught(
        |history| {
            history.writes.push(write(2, 10, 190, 195));
            history.accepted.insert(0, accepted(2, 10));
        },
        |violation| matches!(violation, Violation::StaleWriteAcknowledged { .. }),
    );
}

#[test]
fn a_write_of_another_resource_is_no_stale_one() {
    let mut history = good();
    history.grants.push(Grant {
        lock: "other".into(),
        ..grant(15, 90, 95)
    });
    history.writes.push(Write {
        resource: "other".into(),
        ..write(2, 15, 190, 195)
    });
    history.accepted.push(Accepted {
        resource: "other".into(),
        ..accepted(2, 15)
    });
    assert_eq!(history.violations(), []);
}

#[test]
fn a_token_that_nobody_was_granted_is_caught() {
    assert_caught(
        |history| {
            history.writes.push(write(2, 21, 190, 195));
            history.accepted.push(accepted(2, 21));
        },
        |violation| matches!(violation, Violation::TokenFromNowhere(_)),
    );
}

#[test]
fn an_accepted_write_that_nobody_sent_so_is_caught() {
    assert_caught(
        |history| history.accepted.push(accepted(7, 20)),
        |violation| matches!(violation, Violation::AcceptedFromNowhere(_)),
    );
    assert_caught(
        |history| history.accepted.push(accepted(1, 20)),
        |violation| matches!(violation, Violation::AcceptedFromNowhere(_)),
    );
}

#[test]
fn a_lost_write_and_a_wrong_refusal_are_caught() {
    assert_caught(
        |history| drop(history.accepted.pop()),
        |violation| matches!(violation, Violation::AnswerIsWrong(_)),
    );
    assert_caught(
        |history| history.writes[1].outcome = WriteOutcome::Failed,
        |violation| matches!(violation, Violation::AnswerIsWrong(_)),
    );
    assert_caught(
        |history| {
            history.accepted.pop();
            history.writes[1].outcome = WriteOutcome::Refused {
                highest: Token::new(20),
            };
        },
        |violation| matches!(violation, Violation::RefusedForNoReason(_)),
    );
}

#[test]
fn a_service_that_does_not_come_back_in_time_is_caught() {
    assert_caught(
        |history| history.demands[0].until = at(159),
        |violation| matches!(violation, Violation::NoService { lock, .. } if lock == "l"),
    );
    assert_caught(
        |history| history.demands[0].locks.push("other".into()),
        |violation| matches!(violation, Violation::NoService { lock, .. } if lock == "other"),
    );
}

#[test]
fn two_holders_at_once_are_shown() {
    let mut history = good();
    history.grants[0].held_until = at(170);
    assert_eq!(history.violations(), [], "the tokens are in order all the same");
    assert_eq!(
        history.shared_holds(),
        [SharedHold(history.grants[0].clone(), history.grants[1].clone())]
    );
    history.grants[1].lock = "other".into();
    assert_eq!(history.shared_holds(), []);
}

#[test]
fn lines_become_a_history_and_survive_json() {
    let token = Token::new(10);
    let events = [
        Event::Granted {
            lock: "l".into(),
            token,
            server: "10.0.0.1:7070".parse().expect("an address"),
            asked: 1_000_000,
            granted: 2_000_000,
        },
        Event::Sending {
            number: 0,
            lock: "l".into(),
            token,
            sure: true,
            at: 5_000_000,
        },
        Event::Answered {
            number: 0,
            outcome: Told::Accepted,
            at: 6_000_000,
        },
        Event::Sending {
            number: 1,
            lock: "l".into(),
            token,
            sure: false,
            at: 7_000_000,
        },
    ];
    let text: Vec<String> = events
        .map(|event| Line {
            client: "c".into(),
            event,
        })
        .iter()
        .map(|line| serde_json::to_string(line).expect("it is text"))
        .collect();
    let lines = text
        .iter()
        .map(|line| serde_json::from_str(line).expect("it is a line"));
    let mut history = History::default();
    history.add_lines(lines, |_| "a".into());
    let unanswered = Write {
        answered: BootInstant::MAX,
        outcome: WriteOutcome::Unknown,
        ..write(1, 10, 7, 0)
    };
    assert_eq!(history.writes, [write(0, 10, 5, 6), unanswered]);
    assert_eq!(
        history.grants,
        [Grant {
            held_until: at(5),
            ..grant(10, 1, 2)
        }]
    );
}
