//! The pair, its clients and the resources they guard, simulated as a whole from a seed, in one thread.
//!
//! Nothing here is a model of monolock: the lock tables, the watchdogs and the client sessions are the ones that the
//! programs run, joined by a network, clocks, disks, a witness, a name service and resources that misbehave as a
//! [`Plan`] says. One seed is one run, to the last bit.
//!
//! - A [`Plan`] is drawn from a seed: how bad the [weather](plan::Weather) is, and which [faults](plan::Fault) strike when.
//! - [`run`] plays it and ends with what happened, or with the first [`Breach`] of a [`Law`].
//! - [`shrink()`] takes faults away from a plan for as long as it still fails.
//! - A [`Mutation`] is a deliberate bug: each must end in a breach.
//!
//! ```
//! use monolock_simulation::{Plan, run};
//!
//! let outcome = run(&Plan::draw(1), None);
//! assert!(outcome.breach.is_none(), "{}", outcome.breach.expect("there is one"));
//! assert!(outcome.tally.grants > 0);
//! ```

mod clock;
mod laws;
mod mutation;
mod network;
pub mod plan;
mod random;
mod resource;
mod run;
mod shrink;
mod tally;
mod timeline;
mod world;

pub use laws::{Breach, Law};
pub use mutation::{Mutation, Slip};
pub use plan::Plan;
pub use random::Rng;
pub use run::{Outcome, run, story};
pub use shrink::shrink;
pub use tally::Tally;
