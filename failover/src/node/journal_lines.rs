//! Steps of the watchdog as lines for people.

use monolock_failover_core::{JournalEntry, Waiting};
use monolock_protocol::BootInstant;

/// Logs one step.
pub(super) fn log(entry: &JournalEntry) {
    match entry {
        JournalEntry::Suspected { term } => tracing::warn!(term = term.0, step = "suspected", "the peer's stream ended"),
        JournalEntry::DeathProven { term, basis } => {
            tracing::warn!(term = term.0, step = "death_proven", basis = basis.as_str(), "the active is proven dead");
        }
        JournalEntry::ProofVoid { term } => {
            tracing::warn!(term = term.0, step = "proof_void", "the proof is void: the peer answered or the record moved");
        }
        JournalEntry::TakeoverStarted { term, basis } => {
            tracing::warn!(term = term.0, step = "takeover_started", basis = basis.as_str(), "taking over");
        }
        JournalEntry::TakeoverLost { term } => {
            tracing::info!(term = term.0, step = "takeover_lost", "the term was not won");
        }
        JournalEntry::BecameActive { term, basis, first_token, swap_to_open } => tracing::warn!(
            term = term.0, step = "became_active", basis = basis.as_str(), first_token = first_token.get(),
            ?swap_to_open, "active: the gate is open"
        ),
        JournalEntry::AuthorityLapsed { term } => {
            tracing::error!(term = term.0, step = "authority_lapsed", "authority lapsed: the gate is shut");
        }
        JournalEntry::SteppedDown { term, larger } => {
            tracing::error!(term = term.0, larger = larger.0, step = "stepped_down", "a larger term was seen: the gate is shut");
        }
        JournalEntry::HandoverStarted { term, to } => {
            let to = to.map(|node| node.to_string());
            tracing::info!(term = term.0, to, step = "handover_started", "handing over: the gate is shut");
        }
        JournalEntry::HandoverDone { term } => {
            tracing::info!(term = term.0, step = "handover_done", "the term was given away");
        }
        JournalEntry::HandoverFailed { term } => {
            tracing::error!(term = term.0, step = "handover_failed", "the handover failed: serving on");
        }
        JournalEntry::WitnessWentBack { found, known } => tracing::error!(
            found = found.map(|term| term.0), known = known.0, step = "witness_went_back",
            "the witness holds less than this node remembers: was it restored from a backup?"
        ),
        JournalEntry::StateNotDurable => {
            tracing::error!(step = "state_not_durable", "the state file could not be written");
        }
    }
}

/// Why no takeover is under way, for people.
pub(super) fn waiting_text(waiting: &Waiting, now: BootInstant) -> String {
    let left = |until: &BootInstant| until.saturating_duration_since(now).as_millis();
    match waiting {
        Waiting::ObservingAfterStart { until } => {
            format!("observing since its start, for {} ms more", left(until))
        }
        Waiting::PromiseRuns { until } => format!("its promise to the active runs for {} ms more", left(until)),
        Waiting::RecordMoved { until } => {
            format!("the active renewed lately: silent for long enough in {} ms", left(until))
        }
        Waiting::WitnessUnread { age: None } => "the witness was never read".to_owned(),
        Waiting::WitnessUnread { age: Some(age) } => {
            format!("the witness was last read {} ms ago: nothing is known", age.as_millis())
        }
        Waiting::NoTrustedClock => "no floor is known and no clock is trusted".to_owned(),
        Waiting::SwapPending => "a takeover is under way".to_owned(),
        Waiting::IsActive => "it is active".to_owned(),
    }
}
