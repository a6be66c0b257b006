//! The clock check against real time servers, and whole nodes whose clocks are wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/chrony.rs"]
mod chrony;
#[path = "../common/fake_time.rs"]
mod fake_time;
#[path = "../common/node.rs"]
mod node;
mod nodes;
mod servers;
