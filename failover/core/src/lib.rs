//! How a pair of monolock servers decides which of them is active; pure.

mod record;

pub use record::{Incarnation, NodeId, NodeState, Record, Term};
