//! What clients saw of the two nodes, and which promises it breaks.
//!
//! Only what a client can know is used: when it asked, when the answer arrived, and which token it carried. An answer was
//! given somewhere between the two moments, so one that was asked for after another had arrived is later, whatever any
//! clock of the nodes says. A grant's token names its place in the one order of all grants, and with it the term: an
//! answer with a smaller token than a grant of the other node belongs to an earlier term.

use std::time::Duration;

use monolock_failover_core::NodeId;
use monolock_protocol::{BootInstant, Token};
use serde::Serialize;

/// A token that a node showed to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) node: NodeId,
    pub(super) kind: AnswerKind,
    pub(super) token: Token,
    pub(super) asked: BootInstant,
    pub(super) received: BootInstant,
}

impl Answer {
    /// Whether this node granted a lock that nobody else wants.
    pub(super) fn is_free_lock_of(&self, node: NodeId) -> bool {
        self.kind == AnswerKind::FreeLock && self.node == node
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// A grant of a lock that nobody else wants.
    FreeLock,
    /// A grant of the lock that all holders want.
    HeldLock,
    /// The answer to a heartbeat of a holder.
    Heartbeat,
}

/// A time in which a client had every reason to believe that it holds the lock that all holders want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Belief {
    pub(super) token: Token,
    pub(super) from: BootInstant,
    /// Still running when `None`.
    pub(super) until: Option<BootInstant>,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "broken", rename_all = "snake_case")]
pub enum Violation {
    /// Two clients believed at once that they hold the lock.
    DoubleGrant {
        /// The token of the earlier holder.
        first: Token,
        /// The token of the later one.
        second: Token,
        /// How long both believed it, in milliseconds.
        overlap_ms: u64,
    },
    /// The lock was granted again before the lease of its last holder had run out: that holder might have believed on.
    EarlyGrant {
        /// The token of the new holder.
        token: Token,
        /// How much too early, in milliseconds.
        early_ms: u64,
    },
    /// A later grant carries no larger token.
    TokenRegression {
        /// The node that granted later.
        node: NodeId,
        /// The largest token that had arrived before the later grant was asked for.
        earlier: Token,
        /// The token of the later grant.
        later: Token,
    },
    /// A node confirmed a holder after the other node had granted in a later term.
    TwoActive {
        /// The node of the earlier term.
        node: NodeId,
        /// The token of the holder that it confirmed.
        confirmed: Token,
        /// The token that the other node had granted.
        granted: Token,
    },
    /// A node said what no node may say.
    Protocol {
        /// What.
        problem: String,
    },
}

/// What was seen since the last [`History::turn`].
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    answers: Vec<Answer>,
    beliefs: Vec<Belief>,
    problems: Vec<String>,
}

impl History {
    pub(super) fn answered(&mut self, answer: Answer) {
        self.answers.push(answer);
    }

    pub(super) fn believes(&mut self, token: Token, from: BootInstant) {
        self.beliefs.push(Belief {
            token,
            from,
            until: None,
        });
    }

    pub(super) fn believes_no_longer(&mut self, token: Token, until: BootInstant) {
        let running = |belief: &&mut Belief| belief.token == token && belief.until.is_none();
        if let Some(belief) = self.beliefs.iter_mut().find(running) {
            belief.until = Some(until);
        }
    }

    pub(super) fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Starts anew, with what later answers must still be compared to.
    pub(super) fn turn(&mut self) {
        let largest = self.grants().max_by_key(|grant| grant.token).copied();
        self.answers = largest.into_iter().collect();
        self.beliefs.retain(|belief| belief.until.is_none());
        self.problems.clear();
    }

    /// Whether a client that still believes to hold the lock was confirmed since the last [`turn`](Self::turn).
    pub(super) fn is_held(&self) -> bool {
        let confirmed = |token| {
            self.answers
                .iter()
                .any(|answer| answer.kind == AnswerKind::Heartbeat && answer.token == token)
        };
        self.beliefs
            .iter()
            .any(|belief| belief.until.is_none() && confirmed(belief.token))
    }

    /// The first answer to arrive of those that are `wanted`.
    pub(super) fn first(&self, wanted: impl Fn(&Answer) -> bool) -> Option<Answer> {
        self.answers
            .iter()
            .filter(|answer| wanted(answer))
            .min_by_key(|answer| answer.received)
            .copied()
    }

    /// When the last answer arrived of those that are `wanted`.
    pub(super) fn last(&self, wanted: impl Fn(&Answer) -> bool) -> Option<BootInstant> {
        let wanted = self.answers.iter().filter(|answer| wanted(answer));
        wanted.map(|answer| answer.received).max()
    }

    /// When the holders of the terms before the next one asked for the last time for what was confirmed: their lease runs
    /// from then on at the earliest. `is_next` tells the answers of the next term.
    pub(super) fn last_sign_of_a_holder(&self, is_next: impl Fn(&Answer) -> bool) -> Option<BootInstant> {
        let held = self
            .answers
            .iter()
            .filter(|answer| answer.kind == AnswerKind::Heartbeat && !is_next(answer));
        held.map(|answer| answer.asked).max()
    }

    /// Every broken promise; beliefs that are still running are counted up to `now`.
    pub(super) fn violations(&self, now: BootInstant) -> Vec<Violation> {
        let problems = self.problems.iter().cloned();
        let mut found: Vec<_> = problems.map(|problem| Violation::Protocol { problem }).collect();
        found.extend(self.double_grants(now));
        found.extend(self.repeated_tokens());
        found.extend(self.regressions());
        found.extend(self.second_actives());
        found
    }

    fn grants(&self) -> impl Iterator<Item = &Answer> {
        self.answers
            .iter()
            .filter(|answer| answer.kind != AnswerKind::Heartbeat)
    }

    fn double_grants(&self, now: BootInstant) -> Vec<Violation> {
        let mut beliefs: Vec<_> = self
            .beliefs
            .iter()
            .map(|belief| (belief.from, belief.until.unwrap_or(now), belief.token))
            .collect();
        beliefs.sort();
        let mut found = Vec::new();
        let mut longest: Option<(BootInstant, Token)> = None;
        for (from, until, token) in beliefs {
            if let Some((earlier_until, earlier)) = longest
                && from < earlier_until
            {
                let overlap = until.min(earlier_until).saturating_duration_since(from);
                found.push(Violation::DoubleGrant {
                    first: earlier,
                    second: token,
                    overlap_ms: millis(overlap),
                });
            }
            if longest.is_none_or(|(earlier_until, _)| until > earlier_until) {
                longest = Some((until, token));
            }
        }
        found
    }

    fn repeated_tokens(&self) -> Vec<Violation> {
        let mut grants: Vec<_> = self.grants().collect();
        grants.sort_by_key(|grant| (grant.token, grant.received));
        let repeated = grants.windows(2).filter(|pair| pair[0].token == pair[1].token);
        repeated
            .map(|pair| Violation::TokenRegression {
                node: pair[1].node,
                earlier: pair[0].token,
                later: pair[1].token,
            })
            .collect()
    }

    fn regressions(&self) -> Vec<Violation> {
        let compare = |before: &Largest, later: &Answer| {
            let earlier = before.of_both();
            (later.kind != AnswerKind::Heartbeat && earlier > later.token).then_some(
                Violation::TokenRegression {
                    node: later.node,
                    earlier,
                    later: later.token,
                },
            )
        };
        self.compare_with_earlier(compare)
    }

    fn second_actives(&self) -> Vec<Violation> {
        let compare = |before: &Largest, later: &Answer| {
            let granted = before.of(later.node.peer());
            (later.kind == AnswerKind::Heartbeat && granted > later.token).then_some(Violation::TwoActive {
                node: later.node,
                confirmed: later.token,
                granted,
            })
        };
        self.compare_with_earlier(compare)
    }

    /// Compares each answer with the grants that had arrived before it was asked for.
    fn compare_with_earlier(
        &self,
        compare: impl Fn(&Largest, &Answer) -> Option<Violation>,
    ) -> Vec<Violation> {
        let mut arrivals: Vec<_> = self.grants().collect();
        arrivals.sort_by_key(|grant| grant.received);
        let mut arrivals = arrivals.into_iter().peekable();
        let mut questions: Vec<_> = self.answers.iter().collect();
        questions.sort_by_key(|answer| answer.asked);
        let mut before = Largest::default();
        let mut found = Vec::new();
        for answer in questions {
            while let Some(grant) = arrivals.next_if(|grant| grant.received < answer.asked) {
                before.note(grant);
            }
            found.extend(compare(&before, answer));
        }
        found
    }
}

/// The largest token that each node had granted.
#[derive(Default)]
struct Largest {
    a: Token,
    b: Token,
}

impl Largest {
    fn note(&mut self, grant: &Answer) {
        let largest = match grant.node {
            NodeId::A => &mut self.a,
            NodeId::B => &mut self.b,
        };
        *largest = (*largest).max(grant.token);
    }

    fn of(&self, node: NodeId) -> Token {
        match node {
            NodeId::A => self.a,
            NodeId::B => self.b,
        }
    }

    fn of_both(&self) -> Token {
        self.a.max(self.b)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_millis(millis)
    }

    fn answer(node: NodeId, kind: AnswerKind, token: u64, asked: u64, received: u64) -> Answer {
        Answer {
            node,
            kind,
            token: Token::new(token),
            asked: at(asked),
            received: at(received),
        }
    }

    fn history(answers: &[Answer]) -> History {
        let mut history = History::default();
        for answer in answers {
            history.answered(*answer);
        }
        history
    }

    use AnswerKind::{FreeLock, Heartbeat, HeldLock};
    use NodeId::{A, B};

    #[test]
    fn a_takeover_without_fault_breaks_nothing_and_its_gap_is_measured() {
        let mut history = history(&[
            answer(A, HeldLock, 1, 0, 1),
            answer(A, FreeLock, 2, 2, 3),
            answer(A, Heartbeat, 1, 8, 10),
            answer(B, FreeLock, 5, 4, 60),
            answer(B, HeldLock, 6, 20, 90),
        ]);
        history.believes(Token::new(1), at(1));
        history.believes_no_longer(Token::new(1), at(50));
        history.believes(Token::new(6), at(90));
        assert_eq!(history.violations(at(100)), []);
        let first = history.first(|answer| answer.node == B).unwrap();
        assert_eq!(first.received, at(60));
        assert_eq!(history.last(|answer| answer.node == A), Some(at(10)));
        let last_sign = history.last_sign_of_a_holder(|answer| answer.node == B);
        assert_eq!(last_sign, Some(at(8)));
        assert!(!history.is_held(), "the new holder was not confirmed yet");
        history.answered(answer(B, Heartbeat, 6, 95, 96));
        assert!(history.is_held());
    }

    #[test]
    fn two_holders_at_once_are_a_double_grant_and_one_after_the_other_are_none() {
        let mut history = History::default();
        history.believes(Token::new(1), at(0));
        history.believes_no_longer(Token::new(1), at(50));
        history.believes(Token::new(2), at(50));
        assert_eq!(history.violations(at(100)), []);
        history.believes(Token::new(3), at(70));
        let expected = Violation::DoubleGrant {
            first: Token::new(2),
            second: Token::new(3),
            overlap_ms: 30,
        };
        assert_eq!(history.violations(at(100)), [expected]);
    }

    #[test]
    fn a_smaller_token_is_a_regression_only_if_it_was_asked_for_later() {
        let earlier = answer(A, FreeLock, 7, 0, 10);
        let crossing = history(&[earlier, answer(B, FreeLock, 6, 9, 20)]);
        assert_eq!(crossing.violations(at(100)), []);
        let later = history(&[earlier, answer(B, FreeLock, 6, 11, 20)]);
        let expected = Violation::TokenRegression {
            node: B,
            earlier: Token::new(7),
            later: Token::new(6),
        };
        assert_eq!(later.violations(at(100)), [expected]);
    }

    #[test]
    fn a_token_that_was_granted_twice_is_a_regression() {
        let twice = history(&[answer(A, FreeLock, 7, 0, 10), answer(B, FreeLock, 7, 5, 12)]);
        assert!(
            matches!(
                twice.violations(at(100))[..],
                [Violation::TokenRegression { node: B, .. }]
            ),
            "{twice:?}"
        );
    }

    #[test]
    fn a_heartbeat_confirmed_after_a_grant_of_the_other_node_means_two_actives() {
        let granted = answer(B, FreeLock, 9, 5, 10);
        let before = history(&[granted, answer(A, Heartbeat, 1, 9, 30)]);
        assert_eq!(before.violations(at(100)), []);
        let after = history(&[granted, answer(A, Heartbeat, 1, 11, 30)]);
        let expected = Violation::TwoActive {
            node: A,
            confirmed: Token::new(1),
            granted: Token::new(9),
        };
        assert_eq!(after.violations(at(100)), [expected]);
    }

    #[test]
    fn the_next_turn_remembers_the_largest_grant_and_who_still_believes() {
        let mut history = history(&[answer(A, FreeLock, 7, 0, 10), answer(A, FreeLock, 6, 0, 9)]);
        history.believes(Token::new(5), at(3));
        history.problem("something".into());
        history.turn();
        history.answered(answer(B, FreeLock, 6, 20, 30));
        history.believes(Token::new(8), at(40));
        let found = history.violations(at(50));
        assert!(
            matches!(
                found[..],
                [
                    Violation::DoubleGrant { .. },
                    Violation::TokenRegression { node: B, .. }
                ]
            ),
            "{found:?}"
        );
    }
}
