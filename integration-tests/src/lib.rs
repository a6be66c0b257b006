//! Real servers, real processes, real failures: what the end-to-end tests share.
//!
//! Nothing in here stands in for a server. A test starts the programs that a user would start, breaks them by
//! signals and by the network, and looks at what a client sees.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`process`] | a child process: its output, its signals, and the promise that it never outlives the test |
//! | [`binaries`] | where the project's own programs are, and whether they are up to date |
//! | [`server`] | a running `monolock-server` |
//! | [`raw_client`] | the wire protocol, byte by byte, for tests that must send what no client would |
//! | [`postgres`] | a running PostgreSQL, in a container where an engine answers |
//! | [`port`] | ports that no other test uses |
//! | [`history`] | what clients, resource and nodes saw of a run, and whether it may have happened |
//! | [`hosts`] | several hosts with addresses of their own, and faults between them |
//! | [`random`] | randomness that a failed test can repeat |
//! | [`wait`] | waiting for a condition, bounded |
//!
//! The functions panic, with a message that says what was awaited of what: in a test that is the report. A process
//! prints its output when the test that owns it panics.
//!
//! # Example
//!
//! ```
//! use std::process::Command;
//!
//! use monolock_integration_tests::process::{Exit, Process};
//!
//! let mut command = Command::new("sh");
//! command.args(["-c", "echo ready >&2; sleep 600"]);
//! let process = Process::spawn("sleeper", command);
//! process.wait_for_line("ready");
//! assert_eq!(process.kill(), Exit::Signal(9));
//! ```

pub mod binaries;
mod guardian;
pub mod history;
pub mod hosts;
pub mod port;
pub mod postgres;
pub mod process;
pub mod random;
pub mod raw_client;
pub mod server;
pub mod wait;

pub use tempfile::TempDir;
