//! One node of an active/standby pair of monolock lock servers.
//!
//! What a node decides is the business of [`core`], which is pure; here is everything it decides *with*. But for
//! [`node`], which joins them, each module does one thing with the outside and says plainly how it ended.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`node`] | one running node: the watchdog, and what follows from its decisions |
//! | [`config`] | the settings and the command line |
//! | [`clock`] | whether the wall clock may be believed |
//! | [`witness`] | the register that both nodes swap |
//! | [`state_file`] | what a node must not forget |
//! | [`peer`] | the authenticated link between the nodes |
//! | [`dns`] | the name that clients know |
//! | [`hooks`] | the operator's own commands |
//! | [`journal`] | what happened, step by step |
//! | [`metrics`] | what a dashboard is told |
//! | [`operator`] | the questions of `status` and `handover` |
//! | [`drill`] | a rehearsal of failures, on a pair of its own |
//!
//! # Example
//!
//! The witness is a register, and nothing but a register:
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("witness");
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! use monolock_failover::witness::{FileWitness, Witness as _};
//!
//! let witness = FileWitness::open(&path)?;
//! assert_eq!(witness.read().await?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod clock;
pub mod config;
pub mod dns;
pub mod drill;
pub mod hooks;
pub mod journal;
pub mod metrics;
pub mod node;
pub mod operator;
pub mod peer;
pub mod state_file;
pub mod witness;

pub use monolock_failover_core as core;

mod admin;
mod durable_file;
mod hex;
