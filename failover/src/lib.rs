//! One node of an active/standby pair of monolock lock servers.

pub mod config;
pub mod dns;
pub mod peer;
pub mod state_file;
pub mod witness;

pub use monolock_failover_core as core;

mod durable_file;
mod hex;
