//! What an operator asks of a pair over the peer link: how it stands, and to hand over.

use std::fmt;
use std::time::Duration;

use monolock_failover_core::NodeId;
use serde::{Deserialize, Serialize};

use crate::config::{LinkConfig, reachable};
use crate::peer::message::{BeginHandoverRequest, BeginHandoverResponse, NodeStatus, Role};
use crate::peer::{CallFailure, PeerAddress, PeerClient, Sender};

/// How both nodes stand.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairStatus {
    /// Node `a`, then node `b`.
    pub nodes: [NodeReport; 2],
}

/// How one node stands, or why that is unknown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Which node.
    pub node: NodeId,
    /// Where it was asked.
    pub address: String,
    /// What it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<NodeStatus>,
    /// Why it said nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why the pair did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// Neither node answers that it is active.
    #[error("no node is active:\n{0}")]
    NoActive(Box<PairStatus>),
    /// The active node answered that it has not.
    #[error("node {node} has not done it: {reason}")]
    NotDone {
        /// The active node.
        node: NodeId,
        /// What it said.
        reason: String,
    },
    /// The active node gave no answer: it may have, or still will.
    #[error("node {node} was asked and has not said what became of it: {failure}: ask for the status")]
    Unknown {
        /// The active node.
        node: NodeId,
        /// What happened.
        failure: CallFailure,
    },
}

impl PairStatus {
    /// Asks both nodes at once; `node` is the one whose link settings these are.
    pub async fn ask(node: NodeId, link: &LinkConfig) -> Self {
        let (a, b) = tokio::join!(ask(NodeId::A, node, link), ask(NodeId::B, node, link));
        Self { nodes: [a, b] }
    }

    /// The node that serves; `None` also when both say so.
    #[must_use]
    pub fn active(&self) -> Option<NodeId> {
        let mut active = self.nodes.iter().filter(|report| report.is_active());
        let first = active.next()?.node;
        active.next().is_none().then_some(first)
    }

    fn grants_left(&self, node: NodeId) -> Option<u64> {
        let mut reports = self.nodes.iter().filter(|report| report.node == node);
        reports.next()?.status.as_ref()?.grants_left
    }

    /// Whether one node serves and the other could take its place.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let stands_by = |report: &NodeReport| {
            report
                .status
                .as_ref()
                .is_some_and(|status| status.role == Role::Standby && status.ready_for_handover)
        };
        self.active().is_some() && self.nodes.iter().any(stands_by)
    }
}

impl NodeReport {
    pub(crate) fn new(node: NodeId, address: String, answer: Result<NodeStatus, String>) -> Self {
        let (status, error) = match answer {
            Ok(status) => (Some(status), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            node,
            address,
            status,
            error,
        }
    }

    fn is_active(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.role == Role::Active)
    }
}

impl fmt::Display for PairStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = &self.nodes;
        write!(f, "{a}\n{b}")
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} at {}: ", self.node, self.address)?;
        let Some(status) = &self.status else {
            return f.write_str(self.error.as_deref().unwrap_or("no answer"));
        };
        let role = match status.role {
            Role::Standby => "standby",
            Role::TakingOver => "taking over",
            Role::Active => "active",
            Role::HandingOver => "handing over",
            Role::Unknown => "in a role this program does not know",
        };
        write!(f, "{role}, term {}, floor {}", status.term, status.floor)?;
        if status.role == Role::Active {
            write!(f, ", last token {}", status.last_token)?;
        }
        if let Some(left) = status.authority_left_ms {
            write!(f, ", authority for {left} ms")?;
        }
        if let (Role::Active, Some(confirmed)) = (status.role, status.grants_confirmed) {
            let by_whom = if confirmed { "" } else { "not " };
            write!(f, ", grants are {by_whom}confirmed by the peer")?;
        }
        if let Some(left) = status.grants_left {
            write!(f, ", {left} grants left")?;
        }
        if status.role == Role::Standby && status.ready_for_handover {
            write!(f, ", ready")?;
        }
        if let Some(reason) = &status.reason {
            write!(f, " ({reason})")?;
        }
        if let Some(witness) = &status.witness {
            write!(f, "\n  {witness}")?;
        }
        if let Some(name) = &status.name {
            write!(f, "\n  {name}")?;
        }
        if let Some(clock) = &status.clock {
            write!(f, "\n  {clock}")?;
        }
        Ok(())
    }
}

/// Asks the active node to hand over, and waits until it has.
///
/// # Errors
///
/// [`HandoverError`].
pub async fn hand_over(node: NodeId, link: &LinkConfig) -> Result<BeginHandoverResponse, HandoverError> {
    let pair = PairStatus::ask(node, link).await;
    let Some(active) = pair.active() else {
        return Err(HandoverError::NoActive(Box::new(pair)));
    };
    let client = client(active, node, link);
    let not_done = |reason| HandoverError::NotDone { node: active, reason };
    match client.begin_handover(&BeginHandoverRequest {}).await {
        Ok(answer) if answer.value.done => Ok(answer.value),
        Ok(answer) => Err(not_done(
            answer.value.reason.unwrap_or("it gives no reason".into()),
        )),
        Err(CallFailure::Declined(reason)) => Err(not_done(reason)),
        Err(failure) => Err(HandoverError::Unknown {
            node: active,
            failure,
        }),
    }
}

/// Extends the reserve of the active node of a pair without a witness; returns how many grants it had left.
///
/// # Errors
///
/// [`HandoverError`], which also says when no node is active.
pub async fn extend_reserve(node: NodeId, link: &LinkConfig) -> Result<u64, HandoverError> {
    let pair = PairStatus::ask(node, link).await;
    let Some(active) = pair.active() else {
        return Err(HandoverError::NoActive(Box::new(pair)));
    };
    let left = pair.grants_left(active);
    match client(active, node, link).extend_reserve().await {
        Ok(answer) if answer.value.extended => Ok(left.unwrap_or(0)),
        Ok(_) => Err(HandoverError::NotDone {
            node: active,
            reason: "the pair has a witness: its reserve is extended by every renewal".to_owned(),
        }),
        Err(CallFailure::Declined(reason)) => Err(HandoverError::NotDone { node: active, reason }),
        Err(failure) => Err(HandoverError::Unknown {
            node: active,
            failure,
        }),
    }
}

async fn ask(asked: NodeId, own: NodeId, link: &LinkConfig) -> NodeReport {
    let client = client(asked, own, link);
    let answer = client.status().await;
    NodeReport::new(
        asked,
        client.address().to_string(),
        answer
            .map(|answer| answer.value)
            .map_err(|failure| failure.to_string()),
    )
}

fn client(asked: NodeId, own: NodeId, link: &LinkConfig) -> PeerClient {
    let address = if asked == own {
        PeerAddress::from(reachable(link.listen))
    } else {
        link.peer.clone()
    };
    PeerClient::new(address, Sender::Operator, asked, link.credentials.clone()).with_time_limit(TIME_LIMIT)
}

/// How long a node may take to answer a person.
const TIME_LIMIT: Duration = Duration::from_secs(3);
