//! When a node had authority, from its own journal and the moments at which it was killed.
//!
//! The journal is read by its documented names, and not with the node's own types: what the nodes claim is only believed
//! as far as clients and the resource confirm it.

use monolock_protocol::{BootInstant, Token};
use serde::Deserialize;

use crate::history::Authority;

/// What of a line matters here.
#[derive(Debug, Deserialize)]
struct Line {
    boot_nanos: u64,
    step: String,
    term: Option<u64>,
    detail: Option<String>,
    #[serde(default)]
    lost: u64,
}

/// The times at which `node` had authority, by its journal. `killed` are the moments, in order, at which the process was
/// killed: it could write nothing down then.
///
/// # Panics
///
/// When the journal is not complete.
#[must_use]
pub fn authorities(node: &str, journal: &str, killed: &[BootInstant]) -> Vec<Authority> {
    let mut killed = killed.iter().copied().peekable();
    let mut authorities: Vec<Authority> = Vec::new();
    for line in journal.lines() {
        let line: Line = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("the journal of node {node}: {error} in {line}"));
        assert_eq!(line.lost, 0, "the journal of node {node} is not complete");
        let at = BootInstant::from_nanos(line.boot_nanos);
        while let Some(killed) = killed.next_if(|killed| *killed < at) {
            end(&mut authorities, killed);
        }
        match line.step.as_str() {
            "became_active" => authorities.push(Authority {
                node: node.to_owned(),
                term: line.term.expect("a node is active in a term"),
                first_token: first_token(line.detail.as_deref()),
                from: at,
                until: BootInstant::MAX,
            }),
            "handover_failed" => {
                let reopened = authorities.last().cloned().expect("it was active before");
                authorities.push(Authority {
                    from: at,
                    until: BootInstant::MAX,
                    ..reopened
                });
            }
            "authority_lapsed" | "stepped_down" | "handover_started" => end(&mut authorities, at),
            _ => {}
        }
    }
    for killed in killed {
        end(&mut authorities, killed);
    }
    authorities
}

fn end(authorities: &mut [Authority], at: BootInstant) {
    if let Some(last) = authorities.last_mut() {
        last.until = last.until.min(at);
    }
}

/// From `the first token is 123`.
fn first_token(detail: Option<&str>) -> Token {
    detail
        .and_then(|detail| detail.rsplit(' ').next()?.parse().ok())
        .map(Token::new)
        .unwrap_or_else(|| panic!("{detail:?} names no first token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(millis: u64, step: &str, term: u64) -> String {
        let nanos = millis * 1_000_000;
        format!(
            r#"{{"boot_nanos":{nanos},"step":"{step}","term":{term},"detail":"the first token is {term}0"}}"#
        )
    }

    fn spans(lines: &[String], killed: &[u64]) -> Vec<(u64, u64, u64)> {
        let killed: Vec<_> = killed
            .iter()
            .map(|millis| BootInstant::from_millis(*millis))
            .collect();
        let millis = |at: BootInstant| at.as_nanos() / 1_000_000;
        authorities("a", &lines.join("\n"), &killed)
            .iter()
            .map(|authority| (authority.term, millis(authority.from), millis(authority.until)))
            .collect()
    }

    const OPEN: u64 = u64::MAX / 1_000_000;

    #[test]
    fn a_term_lasts_until_it_lapses_is_left_or_its_node_is_killed() {
        let lines = [
            line(1, "suspected", 1),
            line(2, "became_active", 2),
            line(9, "authority_lapsed", 2),
            line(20, "became_active", 4),
            line(25, "stepped_down", 4),
            line(30, "became_active", 6),
            line(50, "became_active", 8),
        ];
        assert_eq!(
            spans(&lines, &[40]),
            [(2, 2, 9), (4, 20, 25), (6, 30, 40), (8, 50, OPEN)]
        );
        assert_eq!(spans(&lines, &[40, 60])[3], (8, 50, 60));
    }

    #[test]
    fn a_failed_handover_leaves_a_gap() {
        let lines = [
            line(2, "became_active", 2),
            line(5, "handover_started", 2),
            line(7, "handover_failed", 2),
        ];
        assert_eq!(spans(&lines, &[]), [(2, 2, 5), (2, 7, OPEN)]);
    }

    #[test]
    fn a_lapse_while_it_hands_over_ends_nothing_later() {
        let lines = [
            line(2, "became_active", 2),
            line(5, "handover_started", 2),
            line(8, "authority_lapsed", 2),
        ];
        assert_eq!(spans(&lines, &[]), [(2, 2, 5)]);
    }

    #[test]
    fn the_first_token_is_read() {
        let authority = authorities("a", &line(2, "became_active", 7), &[]).remove(0);
        assert_eq!(authority.first_token, Token::new(70));
    }
}
