//! The lock table of the monolock lock server: claims, queues, leases, fencing tokens and the gate.
//!
//! Pure: no socket, no clock, no randomness. Time comes in as a [`Now`], decisions go out as [`Action`]s, and the same
//! inputs always give the same outputs. The caller steps the table with `handle_*`, then takes actions with
//! [`LockTable::poll_action`] until there are none, and calls [`LockTable::handle_timeout`] at
//! [`LockTable::poll_timeout`].
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`table`] | who holds a lock, who waits, who is promoted |
//! | [`token_source`] | the next fencing token, and how far ahead tokens must be reserved |
//! | [`gate`] | whether this server may grant at all: always, or for one term of a pair |
//! | [`action`] | what the caller must do, in order |
//! | [`acl`] | which identity may ask for which lock |
//!
//! # Example
//!
//! ```
//! use monolock_core::{Action, ClaimState, CloseCause, LockTable, Now, Ownership, TokenSource};
//! use monolock_protocol::{BootInstant, Lease, LockName, Token, WallTime};
//!
//! let mut now = Now { wall: WallTime::from_unix_seconds(1_000), boot: BootInstant::from_millis(5) };
//! let first = Token::first_of_epoch(1_000);
//! let mut table = LockTable::always_open(TokenSource::reserved(first, Token::MAX, now));
//!
//! let lock = LockName::new("nightly/import")?;
//! let lease = Lease::from_millis(2_000)?;
//! let holder = table.handle_acquire(lock.clone(), lease, now)?;
//! let waiter = table.handle_acquire(lock, lease, now)?;
//! table.handle_close(holder, CloseCause::Closed, now);
//!
//! let sent: Vec<_> = std::iter::from_fn(|| table.poll_action())
//!     .filter_map(|action| match action {
//!         Action::Send { claim, state } => Some((claim, state)),
//!         _ => None,
//!     })
//!     .collect();
//! assert_eq!(
//!     sent,
//!     [
//!         (holder, ClaimState::Acquired(first)),
//!         (waiter, ClaimState::Waiting),
//!         (waiter, ClaimState::Acquired(first.next())),
//!     ]
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod acl;
pub mod action;
mod claims;
pub mod confirmation;
mod deadlines;
pub mod gate;
mod graces;
#[doc(hidden)]
pub mod rules;
pub mod table;
pub mod token_source;
mod view;

pub use acl::{Acl, AclError, AclRule};
pub use action::{Action, ClaimState, CloseCause, LockEvent, Ownership, ReleaseReason};
pub use claims::ClaimId;
pub use confirmation::Confirmation;
pub use gate::{Grace, NotServing, OpenGate};
pub use table::{ForceRelease, LockTable};
pub use token_source::TokenSource;
pub use view::{Held, HolderView, LockView, Report, Snapshot, WaiterView};

use monolock_protocol::{BootInstant, WallTime};

/// One reading of both clocks.
///
/// Whoever reads them must read the wall clock *first*: the restart rule counts the rest of the wall clock's second
/// on the boot clock, and a pause between the readings may only make it wait longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock: data for tokens, may step.
    pub wall: WallTime,
    /// The boot clock: leases, graces and authority are measured on it.
    pub boot: BootInstant,
}
