//! Deliberate bugs: the simulation must notice each.

use std::fmt;
use std::str::FromStr;

use monolock_client_core::rules::Rule as ClientRule;
use monolock_core::rules::Rule as TableRule;
use monolock_failover_core::rules::Rule as WatchdogRule;

/// A rule of a core that is switched off, or a slip of the code around the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutation {
    /// A watchdog without one of its rules.
    Watchdog(WatchdogRule),
    /// A lock table or token source without one of its rules.
    Table(TableRule),
    /// A client session without one of its rules.
    Client(ClientRule),
    /// What the programs around the cores could do wrong.
    Slip(Slip),
}

/// A mistake outside of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slip {
    /// Clients count time on a clock that stands still while the machine is suspended.
    ClientClockStopsWhenSuspended,
    /// Nodes do.
    NodeClockStopsWhenSuspended,
    /// A client that has lost its lock to silence closes the connection, which releases the lock, before its work has
    /// stopped.
    ClosesBeforeWorkHasStopped,
    /// An object's ETag covers its bytes, not the token.
    EtagOfBytesOnly,
    /// The state file is reported written before it is.
    StateFileIsNotSynced,
    /// The wall clock is believed whatever the time servers say.
    WallClockIsNotChecked,
    /// Only the first time server is asked.
    OneTimeServerDecides,
}

impl Slip {
    /// Every slip.
    pub const ALL: [Self; 7] = [
        Self::ClientClockStopsWhenSuspended,
        Self::NodeClockStopsWhenSuspended,
        Self::ClosesBeforeWorkHasStopped,
        Self::EtagOfBytesOnly,
        Self::StateFileIsNotSynced,
        Self::WallClockIsNotChecked,
        Self::OneTimeServerDecides,
    ];
}

impl Mutation {
    /// Every mutation of a pair with a witness.
    pub fn all() -> impl Iterator<Item = Self> {
        let watchdog = WatchdogRule::ALL.into_iter();
        let watchdog = watchdog
            .filter(|rule| !rule.is_without_witness())
            .map(Self::Watchdog);
        let table = TableRule::ALL.into_iter().map(Self::Table);
        let client = ClientRule::ALL.into_iter().map(Self::Client);
        let slips = Slip::ALL.into_iter().map(Self::Slip);
        watchdog.chain(table).chain(client).chain(slips)
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watchdog(rule) => write!(f, "watchdog:{rule:?}"),
            Self::Table(rule) => write!(f, "table:{rule:?}"),
            Self::Client(rule) => write!(f, "client:{rule:?}"),
            Self::Slip(slip) => write!(f, "slip:{slip:?}"),
        }
    }
}

impl FromStr for Mutation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::all()
            .find(|mutation| mutation.to_string() == name)
            .ok_or_else(|| format!("there is no mutation {name:?}"))
    }
}
