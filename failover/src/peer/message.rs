//! What the two nodes say to each other. JSON; fields that are not known are ignored, so that the two nodes may run
//! neighbouring versions.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use monolock_failover_core::{
    self as core, Incarnation, LockChange, NodeId, PeerStatus, PromiseAnswer, PromiseRefusal, Record,
    RoleName, Term,
};
use monolock_protocol::{Lease, LockName, Token};
use serde::{Deserialize, Serialize};

use crate::clock::ClockReport;
use crate::journal::JournalLine;
use crate::metrics::WitnessReport;

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Its gate is shut; it watches.
    Standby,
    /// Its gate is shut; a takeover swap is sent or won.
    TakingOver,
    /// Its gate is open.
    Active,
    /// Its gate is shut; the term is being handed over.
    HandingOver,
    /// A role of a later version: its gate counts as shut.
    #[serde(other)]
    Unknown,
}

impl From<RoleName> for Role {
    fn from(role: RoleName) -> Self {
        match role {
            RoleName::Standby => Self::Standby,
            RoleName::TakingOver => Self::TakingOver,
            RoleName::Active => Self::Active,
            RoleName::HandingOver => Self::HandingOver,
        }
    }
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
    /// Whether its lock table answers.
    #[serde(default = "yes")]
    pub table_answers: bool,
    /// How many grants are left to an active without a witness, until its peer or an operator extends its reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants_left: Option<u64>,
    /// Whether its grants wait until the other node has heard of them; absent with `MONOLOCK_FOLLOW=async`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants_confirmed: Option<bool>,
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
    /// What it thinks of its wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockReport>,
    /// How the witness has answered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<WitnessReport>,
    /// What it has said the service's name stands for, when it has a part in that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<NameReport>,
    /// The last takeover or handover in its journal; only for operators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<JournalLine>,
    /// The version of its program.
    #[serde(default)]
    pub version: String,
}

/// What the service's name stands for, as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameReport {
    /// The addresses it should have.
    pub addresses: Vec<IpAddr>,
    /// The term that has said so.
    pub term: Term,
    /// Whether that is this node's to publish, and not every server of the zone says so yet.
    #[serde(default)]
    pub pending: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl fmt::Display for NameReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        let addresses = if addresses.is_empty() {
            "nobody yet".to_owned()
        } else {
            addresses.join(", ")
        };
        write!(f, "the name stands for {addresses} since term {}", self.term)?;
        if self.pending {
            f.write_str(", not everywhere yet")?;
        }
        match &self.problem {
            Some(problem) => write!(f, ": {problem}"),
            None => Ok(()),
        }
    }
}

impl From<&NodeStatus> for PeerStatus {
    fn from(status: &NodeStatus) -> Self {
        Self {
            incarnation: status.incarnation,
            active: status.role == Role::Active,
            table_answers: status.table_answers,
            ready: status.ready_for_handover,
            highest_term: status.term,
            floor: status.floor,
            longest_lease_ms: status.longest_lease_ms,
        }
    }
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
    /// In a pair without a witness: asks for consent to begin the term, with this first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidacy: Option<Token>,
    /// How long the promise is asked for, in milliseconds; the same on both nodes.
    pub ttl_ms: u64,
}

impl PromiseRequest {
    /// The request of the core, for this long.
    #[must_use]
    pub fn new(request: core::PromiseRequest, ttl: Duration) -> Self {
        Self {
            term: request.term,
            incarnation: request.incarnation,
            floor: request.floor,
            max_lease_ms: request.max_lease_ms,
            candidacy: request.candidacy,
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl From<&PromiseRequest> for core::PromiseRequest {
    fn from(request: &PromiseRequest) -> Self {
        Self {
            term: request.term,
            incarnation: request.incarnation,
            floor: request.floor,
            max_lease_ms: request.max_lease_ms,
            candidacy: request.candidacy,
        }
    }
}

/// The answer to a promise request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseResponse {
    /// Why not; absent when the answerer will not take over from the term for the time asked, counted from its answering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// The largest term the answerer has seen.
    pub term: Term,
    /// The highest floor that it knows.
    #[serde(default)]
    pub floor: Token,
    /// The longest lease that it has heard of, in milliseconds.
    #[serde(default)]
    pub longest_lease_ms: u32,
    /// The life of the answerer.
    pub incarnation: Incarnation,
}

impl PromiseResponse {
    /// The answer of a node in this life.
    #[must_use]
    pub fn new(answer: PromiseAnswer, incarnation: Incarnation) -> Self {
        Self {
            refused: answer.refused.map(Refusal::from),
            term: answer.highest_term,
            floor: answer.floor,
            longest_lease_ms: answer.longest_lease_ms,
            incarnation,
        }
    }
}

impl From<&PromiseResponse> for PromiseAnswer {
    fn from(response: &PromiseResponse) -> Self {
        Self {
            refused: response.refused.map(PromiseRefusal::from),
            highest_term: response.term,
            floor: response.floor,
            longest_lease_ms: response.longest_lease_ms,
        }
    }
}

/// Why a node does not promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// It has seen a larger term, or holds it.
    LargerTerm,
    /// Its own takeover swap is under way.
    SwapPending,
    /// It holds a release or a proof of death of that term.
    TermEnded,
    /// Its state file could not be written.
    NotDurable,
    /// It is active itself.
    Active,
    /// A reign of its own has ended, and its gate is not known to be shut.
    GateMayBeOpen,
    /// The candidate's first token is below a floor that it knows.
    FloorBehind,
    /// A reason of a later version.
    #[serde(other)]
    Other,
}

impl From<PromiseRefusal> for Refusal {
    fn from(refusal: PromiseRefusal) -> Self {
        match refusal {
            PromiseRefusal::LargerTerm => Self::LargerTerm,
            PromiseRefusal::SwapPending => Self::SwapPending,
            PromiseRefusal::TermEnded => Self::TermEnded,
            PromiseRefusal::NotDurable => Self::NotDurable,
            PromiseRefusal::Active => Self::Active,
            PromiseRefusal::GateMayBeOpen => Self::GateMayBeOpen,
            PromiseRefusal::FloorBehind => Self::FloorBehind,
        }
    }
}

impl From<Refusal> for PromiseRefusal {
    /// An unknown reason is one that may pass.
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::LargerTerm => Self::LargerTerm,
            Refusal::SwapPending | Refusal::Other => Self::SwapPending,
            Refusal::TermEnded => Self::TermEnded,
            Refusal::NotDurable => Self::NotDurable,
            Refusal::Active => Self::Active,
            Refusal::GateMayBeOpen => Self::GateMayBeOpen,
            Refusal::FloorBehind => Self::FloorBehind,
        }
    }
}

/// The new active asks the old one to shut its gate and cut its sessions: the body of `POST /v1/fence`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceRequest {
    /// The term that ended. The receiver shuts in this term and below, and in no later one.
    pub term: Term,
}

/// The answer to a fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceResponse {
    /// Whether the answerer's gate is shut, and will not open in that term again.
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

/// The answer to an operator who extends the reserve of an active without a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendReserveResponse {
    /// Whether the answerer is such an active.
    pub extended: bool,
    /// How many grants it has now, before the state file is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants_left: Option<u64>,
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
        /// For how long, in milliseconds from the sending, the sender holds back every lock that had no line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every_lock_free_after_ms: Option<u64>,
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

impl FollowEvent {
    /// What it says about a lock, if it does.
    #[must_use]
    pub fn lock_change(&self) -> Option<LockChange> {
        match self {
            Self::Held { lock, lease, .. } => Some(LockChange::Held {
                lock: lock.clone(),
                lease: *lease,
            }),
            Self::Freed { lock } => Some(LockChange::Freed { lock: lock.clone() }),
            Self::Broke { lock, free_after_ms } => Some(LockChange::Broke {
                lock: lock.clone(),
                free_after: Duration::from_millis(*free_after_ms),
            }),
            Self::Snapshot { .. }
            | Self::SnapshotEnd { .. }
            | Self::Beat { .. }
            | Self::Mark { .. }
            | Self::Unknown => None,
        }
    }
}

/// What a node of an earlier version does not say.
fn yes() -> bool {
    true
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
