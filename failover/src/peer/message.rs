//! What the two nodes say to each other. JSON; fields that are not known are ignored, so that the two nodes may run
//! neighbouring versions.

use monolock_failover_core::{Incarnation, NodeId, Record, Term};
use monolock_protocol::{Lease, LockName, Token};
use serde::{Deserialize, Serialize};

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It has started and observes before it may act.
    Starting,
    /// It serves nobody and is ready to take over.
    Standby,
    /// Its gate is open.
    Active,
    /// It is leaving: its gate is shut and stays so.
    Leaving,
    /// A role of a later version.
    #[serde(other)]
    Unknown,
}

/// How a node stands, as it was when it answered: the body of `GET /v1/node`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Which of the two it is.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// What it is doing.
    pub role: Role,
    /// The largest term it has seen.
    pub term: Term,
    /// The highest floor it has acknowledged or reserved.
    pub floor: Token,
    /// The last token it granted in this life; zero when none.
    pub last_token: Token,
    /// The longest lease it has heard of, in milliseconds.
    pub longest_lease_ms: u32,
    /// Whether a handover to it would succeed: standby, warm, following.
    pub ready_for_handover: bool,
    /// Its boot clock, in nanoseconds.
    pub boot_nanos: u64,
    /// Its wall clock, in nanoseconds since the unix epoch.
    pub wall_nanos: u64,
    /// What is left of its authority, in milliseconds; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_left_ms: Option<u64>,
    /// Why it does not take over, or what else an operator should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The version of its program.
    #[serde(default)]
    pub version: String,
}

/// The active asks its peer not to take over from its term for `ttl_ms`: the body of `POST /v1/promise`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseRequest {
    /// The term that asks.
    pub term: Term,
    /// The life of the node that asks.
    pub incarnation: Incarnation,
    /// A floor to remember: the active grants no token at or above it before it is acknowledged.
    pub floor: Token,
    /// The longest lease to remember, in milliseconds.
    pub max_lease_ms: u32,
    /// How long the promise is asked for, in milliseconds; the same on both nodes.
    pub ttl_ms: u64,
}

/// The answer to a promise request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseResponse {
    /// Whether the answerer will not take over from the term for the time asked, counted from its answering.
    pub promised: bool,
    /// The largest term the answerer has seen.
    pub term: Term,
    /// The life of the answerer.
    pub incarnation: Incarnation,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A newer term asks the old active to shut its gate and cut its sessions: the body of `POST /v1/fence`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceRequest {
    /// The term of the sender. The receiver shuts only for a term larger than its own.
    pub term: Term,
}

/// The answer to a fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceResponse {
    /// Whether the answerer's gate is shut, and will not open in a term below the fence's.
    pub shut: bool,
    /// The largest term the answerer has seen.
    pub term: Term,
    /// The life of the answerer.
    pub incarnation: Incarnation,
    /// The last token it granted in this life; zero when none.
    pub last_token: Token,
}

/// The active, with its gate shut, tells the standby that the witness names it: the body of `POST /v1/handover`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverRequest {
    /// The record that the witness now holds.
    pub record: Record,
    /// The last token of the term that ended.
    pub last_token: Token,
}

/// The answer to a handover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverResponse {
    /// Whether the answerer has taken up the term.
    pub accepted: bool,
    /// The life of the answerer.
    pub incarnation: Incarnation,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Asks the active to hand over to its standby: the body of `POST /v1/begin-handover`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginHandoverRequest {}

/// The answer to a request to hand over, given when it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginHandoverResponse {
    /// Whether the other node is active now.
    pub done: bool,
    /// The largest term the answerer has seen.
    pub term: Term,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The standby confirms that it has heard all of the follow stream up to a mark: the body of `POST /v1/acknowledge`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgeRequest {
    /// The stream, as its snapshot named it.
    pub stream: u64,
    /// The number of the mark.
    pub mark: u64,
}

/// The answer to an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgeResponse {
    /// Whether the stream is still the one that the active waits for.
    pub current: bool,
}

/// One line of the follow stream. It begins with [`FollowEvent::Snapshot`], then what is held and under grace, then
/// [`FollowEvent::SnapshotEnd`]; from then on, every change in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FollowEvent {
    /// What follows, up to the end of the snapshot, is everything that is held or under grace.
    Snapshot {
        /// The name of this stream, for acknowledgements.
        stream: u64,
        /// The life of the sender.
        incarnation: Incarnation,
        /// The largest term the sender has seen.
        term: Term,
        /// Whether the sender's gate is open.
        active: bool,
    },
    /// The snapshot is complete.
    SnapshotEnd {
        /// How many `held` and `broke` lines it had.
        locks: u64,
    },
    /// A lock was granted, or is held.
    Held {
        /// The lock's name.
        lock: LockName,
        /// The lease of its holder.
        #[serde(rename = "lease_ms")]
        lease: Lease,
        /// The token of the grant.
        token: Token,
    },
    /// The lock's holder is known to have stopped: its own close was seen, or its lease ran out.
    Freed {
        /// The lock's name.
        lock: LockName,
    },
    /// The lock has no holder, but its last one may not know yet.
    Broke {
        /// The lock's name.
        lock: LockName,
        /// How long it must not be granted by another active, in milliseconds from the sending.
        free_after_ms: u64,
    },
    /// A sign of life.
    Beat {
        /// The largest term the sender has seen.
        term: Term,
        /// The sender's boot clock, in nanoseconds.
        boot_nanos: u64,
        /// The sender's wall clock, in nanoseconds since the unix epoch.
        wall_nanos: u64,
        /// The last token it granted in this life; zero when none.
        last_token: Token,
        /// The longest lease among its sessions, in milliseconds.
        longest_lease_ms: u32,
    },
    /// The sender holds grants back until this mark is acknowledged.
    Mark {
        /// The number of the mark; they rise.
        mark: u64,
    },
    /// An event of a later version: to be passed over.
    #[serde(other)]
    Unknown,
}

/// The body of every answer that is not 200.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_version_adds_is_passed_over() {
        let line = r#"{"event":"held","lock":"x","lease_ms":5,"token":9,"colour":"red"}"#;
        let held = FollowEvent::Held {
            lock: LockName::new("x").unwrap(),
            lease: Lease::from_millis(5).unwrap(),
            token: Token::new(9),
        };
        assert_eq!(serde_json::from_str::<FollowEvent>(line).unwrap(), held);
        let line = r#"{"event":"painted","colour":"red"}"#;
        assert_eq!(
            serde_json::from_str::<FollowEvent>(line).unwrap(),
            FollowEvent::Unknown
        );
        assert_eq!(
            serde_json::from_str::<Role>(r#""emeritus""#).unwrap(),
            Role::Unknown
        );
    }
}
