//! What runs on the hosts: a name server, databases, time servers, and the nodes of a pair. Each of them can be killed and started again
//! with what it had.

mod bind;
mod chrony;
mod database;
mod node;

pub use bind::{Bind, KEY, SERVICE, ZONE};
pub use chrony::Chrony;
pub use database::Database;
pub use node::{LOCK_PORT, Node, Pair, Status};
