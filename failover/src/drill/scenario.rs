//! The scenarios by name, and what each does.

use std::fmt;

use serde::Serialize;

/// What is done to a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The active is killed; then it is started again.
    Kill,
    /// The active is frozen (SIGSTOP); when the other one serves, it wakes up.
    Freeze,
    /// The active is cut off from its peer, its clients and the witness; when the other one serves, the lines heal.
    Partition,
    /// The active's wall clock leaps forward by an hour and the active is killed; then the clock of the new active falls back
    /// by an hour.
    ClockStep,
    /// The active hands over on request.
    Handover,
    /// Both nodes are killed at once, and started at once.
    DoubleRestart,
}

impl Scenario {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 6] = [
        Self::Kill,
        Self::Freeze,
        Self::Partition,
        Self::ClockStep,
        Self::Handover,
        Self::DoubleRestart,
    ];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Partition => "partition",
            Self::ClockStep => "clock-step",
            Self::Handover => "handover",
            Self::DoubleRestart => "double-restart",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
