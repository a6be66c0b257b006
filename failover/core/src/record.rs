//! What the witness holds: one record, swapped as a whole.

use std::fmt;
use std::time::Duration;

use monolock_protocol::Token;

/// One of the two nodes of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "lowercase")
)]
pub enum NodeId {
    /// The node called `a`.
    A,
    /// The node called `b`.
    B,
}

impl NodeId {
    /// The other node.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "a",
            Self::B => "b",
        })
    }
}

impl std::str::FromStr for NodeId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "a" => Ok(Self::A),
            "b" => Ok(Self::B),
            other => Err(format!("a node is called a or b, not {other:?}")),
        }
    }
}

/// One life of a node's process, drawn at random when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A reign of one active node. Terms only grow; a term that ended is never taken up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Term(pub u64);

impl Term {
    /// The term after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The witness's register. Two records are the same only if every field is; `beat` grows with every swap, so that a
/// value never comes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Record {
    /// The format of this record: 1.
    #[cfg_attr(feature = "serde", serde(rename = "version"))]
    pub format: u32,
    /// The term that is running.
    pub term: Term,
    /// Whose term it is; nobody's when the last active released it without a successor.
    pub holder: Option<NodeId>,
    /// Which life of the holder won or was given the term.
    pub incarnation: Incarnation,
    /// Moves with every swap: the sign of life.
    pub beat: u64,
    /// Every token of this term is smaller; every token of a later term is not.
    pub floor: Token,
    /// The longest lease that a holder of a lock may have, in milliseconds.
    pub max_lease_ms: u32,
}

impl Record {
    /// The only format there is.
    pub const FORMAT: u32 = 1;

    /// The longest lease as a duration.
    #[must_use]
    pub const fn max_lease(&self) -> Duration {
        Duration::from_millis(self.max_lease_ms as u64)
    }

    /// Whether this life of this node holds the term.
    #[must_use]
    pub fn is_held_by(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.holder == Some(node) && self.incarnation == incarnation
    }
}

/// What a node must remember across a restart, on its own disk, before others rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeState {
    /// The highest term this node has heard of.
    pub highest_term: Term,
    /// The highest floor it promised to its peer or reserved for itself.
    pub floor: Token,
    /// The longest lease it has heard of, in milliseconds.
    pub longest_lease_ms: u32,
}

impl NodeState {
    /// Field by field the larger of the two.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            highest_term: self.highest_term.max(other.highest_term),
            floor: self.floor.max(other.floor),
            longest_lease_ms: self.longest_lease_ms.max(other.longest_lease_ms),
        }
    }

    /// Whether every field is at least the other's.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.max(other) == self
    }
}
