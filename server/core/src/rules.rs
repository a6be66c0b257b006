//! The rules of the lock table, by name.
//!
//! So that it can be shown what each is for, the feature `model` lets a simulation run a table with one switched off.
//! Without that feature none can be.

/// A rule that the simulation breaks the system without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Whoever asked first is promoted first.
    FirstInFirstOut,
    /// A gate whose authority has lapsed is shut before anything is granted or acknowledged.
    GateDeadlineIsChecked,
    /// A lock under a grace is not granted.
    GraceIsKept,
    /// Every token is below the ceiling.
    TokensStayBelowCeiling,
    /// The first token of a term is at or above the one that its gate was opened with.
    TokensStartAtFloor,
    /// The wall clock is believed only as far as the boot clock agrees.
    WallClockIsDoubted,
    /// An identifier names nothing once its claim is gone.
    ClaimIdDiesWithClaim,
    /// A heartbeat renews the lease.
    HeartbeatRenewsLease,
    /// The standby hears of a holder whose session broke as of one that may still believe.
    BrokenHolderKeepsGrace,
    /// A follower that starts is told of the graces that run.
    SnapshotHasGraces,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 10] = [
        Self::FirstInFirstOut,
        Self::GateDeadlineIsChecked,
        Self::GraceIsKept,
        Self::TokensStayBelowCeiling,
        Self::TokensStartAtFloor,
        Self::WallClockIsDoubted,
        Self::ClaimIdDiesWithClaim,
        Self::HeartbeatRenewsLease,
        Self::BrokenHolderKeepsGrace,
        Self::SnapshotHasGraces,
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
