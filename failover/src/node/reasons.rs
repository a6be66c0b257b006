//! Why a node waits, for people.

use monolock_failover_core::{RoleName, Status, Waiting};
use monolock_protocol::BootInstant;

use crate::clock::NodeClock;

/// What an operator should know of a node that stands like this.
pub(super) fn of(status: &Status, clock: &NodeClock, now: BootInstant) -> Option<String> {
    if status.role == RoleName::Active && !status.table_answers {
        return Some("its lock table does not answer".to_owned());
    }
    status.waiting.map(|waiting| waiting_text(&waiting, clock, now))
}

/// Why no takeover is under way, for people.
fn waiting_text(waiting: &Waiting, clock: &NodeClock, now: BootInstant) -> String {
    let left = |until: &BootInstant| until.saturating_duration_since(now).as_millis();
    match waiting {
        Waiting::ObservingAfterStart { until } => {
            format!("observing since its start, for {} ms more", left(until))
        }
        Waiting::PromiseRuns { until } => {
            format!("its promise to the active runs for {} ms more", left(until))
        }
        Waiting::RecordMoved { until } => {
            format!(
                "the active renewed lately: silent for long enough in {} ms",
                left(until)
            )
        }
        Waiting::WitnessUnread { age: None } => "the witness was never read".to_owned(),
        Waiting::WitnessUnread { age: Some(age) } => {
            format!(
                "the witness was last read {} ms ago: nothing is known",
                age.as_millis()
            )
        }
        Waiting::NoTrustedClock => format!(
            "a first start needs a clock to begin at, and this one is {}: set it right, or vouch for it by \
             MONOLOCK_TRUST_CLOCK=on",
            clock.judge().verdict
        ),
        Waiting::PeerHeard { until } => {
            format!(
                "the active was heard lately: silent for long enough in {} ms",
                left(until)
            )
        }
        Waiting::Fencing => "the active is silent: it is being stopped first".to_owned(),
        Waiting::NotProven => {
            "the active is silent and is not proven dead: start it, stop it for certain by MONOLOCK_FENCE_COMMAND, or \
             let its node answer"
                .to_owned()
        }
        Waiting::MayHaveBeenFollowed => {
            "it knows of no later term than its own, and its silent peer may have held one: the peer must answer first"
                .to_owned()
        }
        Waiting::GateMayBeOpen => "its own lock table has not shut its gate yet".to_owned(),
        Waiting::SwapPending => "a takeover is under way".to_owned(),
        Waiting::IsActive => "it is active".to_owned(),
        Waiting::Retired => "it is stopping".to_owned(),
    }
}
