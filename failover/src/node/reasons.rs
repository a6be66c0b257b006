//! Why a node waits, for people.

use monolock_failover_core::Waiting;
use monolock_protocol::BootInstant;

use crate::clock::NodeClock;

/// Why no takeover is under way, for people.
pub(super) fn waiting_text(waiting: &Waiting, clock: &NodeClock, now: BootInstant) -> String {
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
        Waiting::SwapPending => "a takeover is under way".to_owned(),
        Waiting::IsActive => "it is active".to_owned(),
        Waiting::Retired => "it is stopping".to_owned(),
    }
}
