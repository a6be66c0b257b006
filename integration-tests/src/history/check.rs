//! Tokens in the order of grants, holds, and the service's presence.

use std::collections::HashMap;

use super::{Grant, History, SharedHold, Violation};

pub(super) fn tokens(history: &History, violations: &mut Vec<Violation>) {
    let mut by_token: Vec<_> = history.grants.iter().collect();
    by_token.sort_by_key(|grant| grant.token);
    for pair in by_token.windows(2) {
        if let [first, second] = pair
            && first.token == second.token
        {
            violations.push(Violation::TokenGrantedTwice((*first).clone(), (*second).clone()));
        }
    }
    real_time_order(history, violations);
}

/// Walks the grants in the order of asking, with the largest token that somebody had been told before that.
fn real_time_order(history: &History, violations: &mut Vec<Violation>) {
    let mut told: Vec<_> = history.grants.iter().collect();
    let mut asked = told.clone();
    told.sort_by_key(|grant| grant.granted);
    asked.sort_by_key(|grant| grant.asked);
    let mut told = told.into_iter().peekable();
    let mut largest: Option<&Grant> = None;
    for later in asked {
        while let Some(grant) = told.next_if(|grant| grant.granted < later.asked) {
            if largest.is_none_or(|largest| largest.token < grant.token) {
                largest = Some(grant);
            }
        }
        if let Some(earlier) = largest
            && later.token < earlier.token
        {
            violations.push(Violation::TokensWentBack {
                earlier: earlier.clone(),
                later: later.clone(),
            });
        }
    }
}

pub(super) fn demands(history: &History, violations: &mut Vec<Violation>) {
    for demand in &history.demands {
        let is_met = |lock: &String| {
            history.grants.iter().any(|grant| {
                grant.lock == *lock && grant.granted > demand.after && grant.granted <= demand.until
            })
        };
        let unmet = demand.locks.iter().filter(|lock| !is_met(lock));
        violations.extend(unmet.map(|lock| Violation::NoService {
            demand: demand.clone(),
            lock: lock.clone(),
        }));
    }
}

/// Each grant is compared with the earlier one of its lock that was held longest.
pub(super) fn shared_holds(history: &History) -> Vec<SharedHold> {
    let mut grants: Vec<_> = history.grants.iter().collect();
    grants.sort_by_key(|grant| grant.granted);
    let mut longest: HashMap<&str, &Grant> = HashMap::new();
    let mut shared = Vec::new();
    for grant in grants {
        let held = longest.entry(&grant.lock).or_insert(grant);
        if *held != grant && grant.granted < held.held_until {
            shared.push(SharedHold((*held).clone(), grant.clone()));
        }
        if grant.held_until > held.held_until {
            *held = grant;
        }
    }
    shared
}
