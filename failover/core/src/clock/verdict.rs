//! What the measurements amount to.

use std::fmt;
use std::time::Duration;

use super::offset::{ClockOffset, Legible};

/// What to think of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A majority of the time servers agrees that it is right, within the limit.
    Synced {
        /// How far it is off.
        offset: ClockOffset,
        /// How wrong that may be.
        error: Duration,
    },
    /// Something speaks against it.
    Suspect(Suspicion),
    /// Nothing speaks for it.
    Unknown(Uncertainty),
}

/// What speaks against a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// A majority of the time servers agrees that it is off.
    Off {
        /// How far.
        offset: ClockOffset,
        /// How wrong that may be.
        error: Duration,
    },
    /// It was set, and has not been compared since.
    Stepped {
        /// By how much; more than zero: forward.
        by: ClockOffset,
    },
    /// The time servers that answered do not agree.
    Disagreement {
        /// How many answered.
        answered: usize,
        /// How many there are.
        configured: usize,
    },
    /// Too few time servers answer, and the peer's clock is another.
    OffPeer {
        /// How far this clock is off the peer's.
        offset: ClockOffset,
        /// How wrong that may be.
        error: Duration,
    },
}

/// Why nothing is known of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncertainty {
    /// There is no time server to compare with.
    NotConfigured,
    /// Fewer than a majority of the time servers have answered lately.
    TooFewAnswers {
        /// How many have.
        answered: usize,
        /// How many must.
        needed: usize,
    },
    /// It may be within the limit or not: the answers took too long, or the servers are too far from their source.
    TooCoarse {
        /// How far it seems to be off.
        offset: ClockOffset,
        /// How wrong that may be.
        error: Duration,
    },
}

impl Verdict {
    /// Every word of [`as_str`](Self::as_str).
    pub const WORDS: [&str; 3] = ["synced", "suspect", "unknown"];

    /// A word for logs, metrics and the status.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Synced { .. } => "synced",
            Self::Suspect(_) => "suspect",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Whether the wall clock may be adopted into the epoch of tokens.
    #[must_use]
    pub const fn allows_adoption(&self) -> bool {
        match self {
            Self::Synced { .. } => true,
            Self::Suspect(_) | Self::Unknown(_) => false,
        }
    }

    /// Whether a pair that knows no floor at all may begin at the wall clock. Where no time server is configured it must
    /// be believed this once, since there is nothing else.
    #[must_use]
    pub const fn allows_first_start(&self) -> bool {
        match self {
            Self::Synced { .. } | Self::Unknown(Uncertainty::NotConfigured) => true,
            Self::Suspect(_)
            | Self::Unknown(Uncertainty::TooFewAnswers { .. } | Uncertainty::TooCoarse { .. }) => false,
        }
    }

    /// How far the clock is off by what a majority of the time servers says, and how wrong that may be.
    #[must_use]
    pub const fn agreed(&self) -> Option<(ClockOffset, Duration)> {
        match *self {
            Self::Synced { offset, error }
            | Self::Suspect(Suspicion::Off { offset, error })
            | Self::Unknown(Uncertainty::TooCoarse { offset, error }) => Some((offset, error)),
            Self::Suspect(
                Suspicion::Stepped { .. } | Suspicion::Disagreement { .. } | Suspicion::OffPeer { .. },
            )
            | Self::Unknown(Uncertainty::NotConfigured | Uncertainty::TooFewAnswers { .. }) => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synced { offset, error } => {
                write!(f, "synced: {offset}, give or take {}", Legible(*error))
            }
            Self::Suspect(suspicion) => write!(f, "suspect: {suspicion}"),
            Self::Unknown(uncertainty) => write!(f, "unknown: {uncertainty}"),
        }
    }
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off { offset, error } => {
                write!(f, "the clock is {offset}, give or take {}", Legible(*error))
            }
            Self::Stepped { by } => {
                let direction = if by.as_nanos() < 0 { "back" } else { "forward" };
                let size = Legible(by.size());
                write!(
                    f,
                    "the clock was set {direction} by {size} and has not been compared since"
                )
            }
            Self::Disagreement { answered, configured } => write!(
                f,
                "the time servers disagree: {answered} of {configured} answer, and no majority of all has a time in common"
            ),
            Self::OffPeer { offset, error } => write!(
                f,
                "too few time servers answer, and the clock is {offset} of the peer's, give or take {}",
                Legible(*error)
            ),
        }
    }
}

impl fmt::Display for Uncertainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfigured => f.write_str("no time servers are configured"),
            Self::TooFewAnswers { answered, needed } => {
                write!(
                    f,
                    "time servers that have answered lately: {answered}, needed: {needed}"
                )
            }
            Self::TooCoarse { offset, error } => {
                write!(
                    f,
                    "the clock seems {offset}, but that may be wrong by {}",
                    Legible(*error)
                )
            }
        }
    }
}
