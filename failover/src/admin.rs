//! `GET /api/pair` on the admin address of a node: both nodes, for the operator's page.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use monolock_failover_core::NodeId;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::operator::{NodeReport, PairStatus};
use crate::peer::message::NodeStatus;
use crate::peer::{PeerCall, PeerClient, Sender};

/// What the page is told of a pair.
#[derive(Clone, Debug, Serialize)]
struct Pair {
    /// The node that answers.
    node: NodeId,
    #[serde(flatten)]
    status: PairStatus,
}

/// How this node is asked, and the other one.
pub(crate) struct PairView {
    pub(crate) node: NodeId,
    /// Where this node's peer link is; for people.
    pub(crate) own_address: String,
    pub(crate) calls: mpsc::Sender<PeerCall>,
    pub(crate) peer: PeerClient,
}

/// The routes that a node adds to the admin API.
pub(crate) fn routes(view: PairView) -> Router {
    Router::new()
        .route("/api/pair", get(pair))
        .with_state(Arc::new(view))
}

async fn pair(State(view): State<Arc<PairView>>) -> Json<Pair> {
    let (own, peer) = tokio::join!(view.own_status(), view.peer.status());
    let own = NodeReport::new(view.node, view.own_address.clone(), own);
    let peer = NodeReport::new(
        view.node.peer(),
        view.peer.address().to_string(),
        peer.map(|answer| answer.value)
            .map_err(|failure| failure.to_string()),
    );
    let mut nodes = [own, peer];
    nodes.sort_by_key(|report| report.node);
    Json(Pair {
        node: view.node,
        status: PairStatus { nodes },
    })
}

impl PairView {
    /// Asked on the way that the peer's questions take: an answer shows that the node is not stuck.
    async fn own_status(&self) -> Result<NodeStatus, String> {
        let (reply, answer) = oneshot::channel();
        let from = Sender::Operator;
        let asking = async {
            // Without a watchdog the reply is dropped.
            let _ = self.calls.send(PeerCall::Status { from, reply }).await;
            answer.await
        };
        match tokio::time::timeout(TIME_LIMIT, asking).await {
            Ok(Ok(Ok(status))) => Ok(status),
            Ok(Ok(Err(declined))) => Err(declined.0),
            Ok(Err(_dropped)) => Err("this node is stopping".to_owned()),
            Err(_elapsed) => Err("this node does not answer in time".to_owned()),
        }
    }
}

/// How long a node may take before the page is told that it does not answer.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(1);
