//! The rules of a session, by name.
//!
//! So that it can be shown what each is for, the feature `model` lets a simulation run a session with one switched
//! off. Without that feature none can be.

/// A rule that the simulation breaks the system without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// An answer confirms the claim from the sending of the frame it answers, not from its receipt.
    ConfirmedFromSending,
    /// The first `ACQUIRED` after `WAITING` answers nothing.
    PushAnswersNothing,
    /// Whoever asks for the token after the deadline gets none, whether or not the timer has fired.
    DeadlineIsCheckedFirst,
    /// The time that is safe after silence allows for clocks that run apart.
    SafeTimeCountsClockRates,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 4] = [
        Self::ConfirmedFromSending,
        Self::PushAnswersNothing,
        Self::DeadlineIsCheckedFirst,
        Self::SafeTimeCountsClockRates,
    ];
}

/// Which rules hold: all of them, outside of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    #[cfg(feature = "model")]
    off: Option<Rule>,
}

impl Rules {
    #[cfg(feature = "model")]
    pub(crate) const fn without(rule: Rule) -> Self {
        Self { off: Some(rule) }
    }

    #[cfg(feature = "model")]
    pub(crate) fn hold(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }

    #[cfg(not(feature = "model"))]
    pub(crate) const fn hold(self, _rule: Rule) -> bool {
        true
    }
}
