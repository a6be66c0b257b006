//! Authority: one at a time, in the order of terms, and no grant without it.

use std::time::Duration;

use monolock_protocol::Token;

use super::{Authority, Grant, History, Violation};

pub(super) fn check(history: &History, violations: &mut Vec<Violation>) {
    order_in_time(history, violations);
    order_of_terms(history, violations);
    if !history.authorities.is_empty() {
        let unfounded = history
            .grants
            .iter()
            .filter(|grant| !is_founded(&history.authorities, grant));
        violations.extend(unfounded.cloned().map(Violation::GrantWithoutAuthority));
    }
}

/// Each is compared with the one before it that lasts longest.
fn order_in_time(history: &History, violations: &mut Vec<Violation>) {
    let mut in_time: Vec<_> = history.authorities.iter().collect();
    in_time.sort_by_key(|authority| authority.from);
    let Some((mut longest, rest)) = in_time.split_first() else {
        return;
    };
    for authority in rest {
        if authority.from < longest.until {
            violations.push(Violation::AuthoritiesOverlap(
                (*longest).clone(),
                (*authority).clone(),
            ));
        }
        if authority.until > longest.until {
            longest = authority;
        }
    }
    for pair in in_time.windows(2) {
        if let [earlier, later] = pair
            && later.term < earlier.term
        {
            violations.push(Violation::TermsOutOfOrder {
                earlier: (*earlier).clone(),
                later: (*later).clone(),
            });
        }
    }
}

fn order_of_terms(history: &History, violations: &mut Vec<Violation>) {
    let mut by_term: Vec<_> = history.authorities.iter().collect();
    by_term.sort_by_key(|authority| authority.term);
    for pair in by_term.windows(2) {
        let [earlier, later] = pair else { continue };
        if earlier.term == later.term {
            if earlier.node != later.node {
                violations.push(Violation::TermHeldTwice((*earlier).clone(), (*later).clone()));
            }
        } else if later.first_token <= earlier.first_token {
            violations.push(Violation::FirstTokenWentBack {
                earlier: (*earlier).clone(),
                later: (*later).clone(),
            });
        }
    }
}

/// A node decides that its authority ends a little before its gate is shut, and a grant in between is none without
/// authority: no other node can have it yet.
const SHUTTING: Duration = Duration::from_millis(250);

/// Whether the grant's node held the term of the grant's token at some moment between the asking and the telling.
fn is_founded(authorities: &[Authority], grant: &Grant) -> bool {
    let Some(term) = term_of(authorities, grant.token) else {
        return false;
    };
    authorities.iter().any(|authority| {
        authority.term == term
            && authority.node == grant.node
            && authority.from <= grant.granted
            && authority.until + SHUTTING >= grant.asked
    })
}

/// The term whose first token is the largest one not above `token`.
fn term_of(authorities: &[Authority], token: Token) -> Option<u64> {
    let begun = authorities
        .iter()
        .filter(|authority| authority.first_token <= token);
    begun
        .max_by_key(|authority| authority.first_token)
        .map(|authority| authority.term)
}
