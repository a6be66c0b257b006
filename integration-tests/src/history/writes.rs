//! What the resource accepted, refused, and told.

use std::collections::{HashMap, HashSet};

use monolock_protocol::Token;

use super::{Accepted, History, Violation, Write, WriteId, WriteOutcome};

pub(super) fn check(history: &History, violations: &mut Vec<Violation>) {
    order_at_the_resource(history, violations);
    order_in_real_time(history, violations);
    origins(history, violations);
    answers(history, violations);
}

fn order_at_the_resource(history: &History, violations: &mut Vec<Violation>) {
    let mut largest: HashMap<&str, &Accepted> = HashMap::new();
    for accepted in &history.accepted {
        let earlier = largest.entry(&accepted.resource).or_insert(accepted);
        if accepted.token < earlier.token {
            violations.push(Violation::StaleWriteAccepted {
                earlier: (*earlier).clone(),
                later: accepted.clone(),
            });
        } else {
            *earlier = accepted;
        }
    }
}

/// The same by the clock of the clients, which does not believe the resource's order.
fn order_in_real_time(history: &History, violations: &mut Vec<Violation>) {
    let accepted = || {
        history
            .writes
            .iter()
            .filter(|write| write.outcome == WriteOutcome::Accepted)
    };
    let mut answered: Vec<_> = accepted().collect();
    let mut sent = answered.clone();
    answered.sort_by_key(|write| write.answered);
    sent.sort_by_key(|write| write.sent);
    let mut answered = answered.into_iter().peekable();
    let mut largest: HashMap<&str, &Write> = HashMap::new();
    for later in sent {
        while let Some(write) = answered.next_if(|write| write.answered < later.sent) {
            let earlier = largest.entry(&write.resource).or_insert(write);
            if earlier.token < write.token {
                *earlier = write;
            }
        }
        if let Some(earlier) = largest.get(later.resource.as_str())
            && later.token < earlier.token
        {
            violations.push(Violation::StaleWriteAcknowledged {
                earlier: (*earlier).clone(),
                later: later.clone(),
            });
        }
    }
}

/// Every accepted write was sent so, once, with a token that its sender was granted.
fn origins(history: &History, violations: &mut Vec<Violation>) {
    let granted: HashSet<(&str, &str, Token)> = history
        .grants
        .iter()
        .map(|grant| (grant.client.as_str(), grant.lock.as_str(), grant.token))
        .collect();
    let sent: HashMap<&WriteId, &Write> = history.writes.iter().map(|write| (&write.id, write)).collect();
    let mut seen = HashSet::new();
    for accepted in &history.accepted {
        let is_as_sent = sent
            .get(&accepted.id)
            .is_some_and(|write| write.resource == accepted.resource && write.token == accepted.token);
        if !is_as_sent || !seen.insert(&accepted.id) {
            violations.push(Violation::AcceptedFromNowhere(accepted.clone()));
        }
        let by = (
            accepted.id.client.as_str(),
            accepted.resource.as_str(),
            accepted.token,
        );
        if !granted.contains(&by) {
            violations.push(Violation::TokenFromNowhere(accepted.clone()));
        }
    }
}

/// What clients were told agrees with what the resource did.
fn answers(history: &History, violations: &mut Vec<Violation>) {
    let accepted: HashSet<&WriteId> = history.accepted.iter().map(|accepted| &accepted.id).collect();
    let granted: HashSet<Token> = history.grants.iter().map(|grant| grant.token).collect();
    for write in &history.writes {
        let is_right = match write.outcome {
            WriteOutcome::Accepted => accepted.contains(&write.id),
            WriteOutcome::Refused { .. } | WriteOutcome::Failed => !accepted.contains(&write.id),
            WriteOutcome::Unknown => true,
        };
        if !is_right {
            violations.push(Violation::AnswerIsWrong(write.clone()));
        }
        if let WriteOutcome::Refused { highest } = write.outcome
            && (highest <= write.token || !granted.contains(&highest))
        {
            violations.push(Violation::RefusedForNoReason(write.clone()));
        }
    }
}
