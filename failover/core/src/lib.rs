//! How a pair of monolock servers decides which of them is active; pure.
//!
//! Two nodes, the same binary on both. One is *active*: its gate is open, it grants locks. The other is *standby*:
//! it watches, promises, and takes over when the active is proven dead or silent for too long. A *witness*, a
//! register with compare-and-swap on something the user already runs, is the third voice; two of the three decide.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`watchdog`] | one node: roles, promises, takeover, renewal, handover |
//! | [`unwitnessed`] | the same in a pair that has no witness |
//! | [`record`] | what the witness holds and what a node keeps on its own disk |
//! | [`timing`] | every duration, from one authority period |
//! | [`follow`] | which locks a new active must hold back, and until when |
//! | [`clock`] | whether the wall clock may be believed |
//! | [`action`] | what goes in and what comes out |
//!
//! Nothing in here reads a clock, a socket or a random number, so that whole pairs can be simulated and checked as
//! they are.
//!
//! # Example
//!
//! A node that starts reads the witness first, and takes over only after watching for a whole period:
//!
//! ```
//! use std::time::Duration;
//! use monolock_failover_core::{Action, Config, Incarnation, NodeId, NodeState, Timing, Waiting, Watchdog};
//! use monolock_protocol::BootInstant;
//!
//! let start = BootInstant::from_millis(10_000);
//! let config = Config {
//!     node: NodeId::A,
//!     incarnation: Incarnation(7),
//!     timing: Timing::new(Duration::from_secs(3))?,
//!     fast_takeover: true,
//!     no_witness: None,
//! };
//! let mut watchdog = Watchdog::new(config, NodeState::default(), start);
//! let Some(Action::ReadWitness { op }) = watchdog.poll_action() else { panic!("reads first") };
//! watchdog.handle_reading(op, Some(None), start);
//! let until = start + Duration::from_secs(3);
//! assert_eq!(watchdog.status(start).waiting, Some(Waiting::ObservingAfterStart { until }));
//! # Ok::<(), monolock_failover_core::TimingError>(())
//! ```

pub mod action;
mod active;
pub mod clock;
pub mod follow;
mod observation;
pub mod record;
#[doc(hidden)]
pub mod rules;
mod standby;
pub mod timing;
pub mod unwitnessed;
pub mod watchdog;

pub use action::{
    Action, JournalEntry, OpId, OpenGate, PeerStatus, PromiseAnswer, PromiseRefusal, PromiseRequest, ReplyId,
    ShutReason, SwapOutcome, TableReport, TakeoverBasis, Waiting,
};
pub use follow::{Grace, LockChange};
pub use record::{Incarnation, NodeId, NodeState, Record, Term};
pub use timing::{Timing, TimingError};
pub use unwitnessed::{NoWitness, Unproven};
pub use watchdog::{Config, HandoverMode, HandoverRefused, RoleName, Status, Watchdog};
