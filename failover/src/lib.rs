//! One node of an active/standby pair of monolock lock servers.

pub mod state_file;

mod durable_file;
mod hex;
