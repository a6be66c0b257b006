//! How much has happened.

use std::fmt;

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// What happened in one run or many, in numbers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tally {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Tally {
            /// Adds another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }

        impl fmt::Display for Tally {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{:>12}  {}", self.$name, stringify!($name).replace('_', " "))?;)+
                Ok(())
            }
        }
    };
}

tally! {
    /// Events played.
    events,
    /// Gates opened.
    reigns,
    /// Takeovers for which the old active's death was proven.
    takeovers_by_proof,
    /// Takeovers after silence.
    takeovers_by_silence,
    /// Terms handed over or released.
    handovers,
    /// Reigns that ended because nobody renewed them.
    lapses,
    /// Locks granted.
    grants,
    /// Grants that a client lost while it held on to them.
    losses,
    /// Locks released by their holders.
    releases,
    /// Writes that a resource took.
    writes_accepted,
    /// Writes that a resource refused as stale.
    stale_writes_refused,
    /// Grants that the standby had not heard of when it took over: what an asynchronous stream may miss.
    grants_unheard_of,
    /// Sessions that the network reset under a holder: a broken connection is a release.
    sessions_reset,
    /// Connections made.
    connections,
    /// Crashes, power losses and restarts of processes.
    restarts,
}
