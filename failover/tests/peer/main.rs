//! The peer link over real sockets: what is answered, and what nobody can make it believe.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;
mod calls;
mod follow;
mod node;
mod tls;
mod wire;
