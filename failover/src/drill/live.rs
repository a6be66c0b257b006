//! A handover of the real pair, seen by test clients on locks of their own.

use std::net::SocketAddr;
use std::time::Duration;

use monolock_clock::boot_now;
use monolock_failover_core::NodeId;

use super::clients::{ClientPlan, Clients};
use super::history::Answer;
use super::report::{DrillReport, Run, ScenarioReport};
use super::{DrillArgs, DrillError, Scenario, lease};
use crate::config::LinkConfig;
use crate::operator::{self, PairStatus};
use crate::peer::PeerAddress;

/// The real pair, as the settings of one of its nodes name it.
#[derive(Clone, Debug)]
pub struct LivePair {
    /// Whose settings they are.
    pub node: NodeId,
    /// The peer link.
    pub link: LinkConfig,
    /// Where this node serves locks.
    pub own_locks: PeerAddress,
    /// Where the other node does.
    pub peer_locks: PeerAddress,
}

impl LivePair {
    /// The node that would hand over, and how both stand.
    ///
    /// # Errors
    ///
    /// When the pair is not healthy.
    pub async fn active(&self) -> Result<(NodeId, PairStatus), DrillError> {
        let status = PairStatus::ask(self.node, &self.link).await;
        match status.active() {
            Some(active) if status.is_healthy() => Ok((active, status)),
            _ => Err(DrillError::NotHealthy(status.to_string())),
        }
    }

    async fn wait_until_healthy(&self) -> Result<NodeId, DrillError> {
        let deadline = boot_now() + PATIENCE;
        loop {
            match self.active().await {
                Ok((active, _)) => return Ok(active),
                Err(error) if boot_now() >= deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn servers(&self) -> Result<[SocketAddr; 2], DrillError> {
        let first = async |address: &PeerAddress| {
            let resolved = address.resolve().await;
            let addresses = resolved.map_err(|error| DrillError::NotServed(error.to_string()))?;
            Ok::<_, DrillError>(addresses[0])
        };
        let (own, peer) = (first(&self.own_locks).await?, first(&self.peer_locks).await?);
        Ok(match self.node {
            NodeId::A => [own, peer],
            NodeId::B => [peer, own],
        })
    }
}

/// Asks the real pair to hand over, and with `--back` to hand back, and measures each.
///
/// # Errors
///
/// [`DrillError`], when the drill could not be carried out. A broken promise is in the report.
pub async fn hand_over_live(args: &DrillArgs, pair: &LivePair) -> Result<DrillReport, DrillError> {
    let lease = lease(args)?;
    let clients = Clients::start(&ClientPlan {
        servers: pair.servers().await?,
        prefix: format!("monolock-drill/{}-{}", std::process::id(), boot_now().as_nanos()),
        lease,
        // Gentle on a pair that has work to do.
        pause: Duration::from_millis(10),
        holders: vec![vec![NodeId::A], vec![NodeId::B]],
    });
    let mut runs = vec![hand_over_once(pair, &clients, args).await?];
    if args.back {
        pair.wait_until_healthy().await?;
        runs.push(hand_over_once(pair, &clients, args).await?);
    }
    Ok(DrillReport {
        pair: "live",
        witness: None,
        ttl: None,
        lease: lease.as_duration(),
        scenarios: vec![ScenarioReport::new(Scenario::Handover, runs)],
    })
}

async fn hand_over_once(pair: &LivePair, clients: &Clients, args: &DrillArgs) -> Result<Run, DrillError> {
    let (old, _) = pair.active().await?;
    clients.turn();
    if !clients.are_served_by(old, PATIENCE).await {
        let problem = format!("node {old} granted none within {PATIENCE:?}: an access rule may forbid it");
        return Err(DrillError::NotServed(problem));
    }
    let asked = boot_now();
    operator::hand_over(pair.node, &pair.link).await?;
    let is_next = |answer: &Answer| answer.node != old && answer.received > asked;
    let mut run = clients.measure(PATIENCE + args.lease * 2, is_next).await;
    run.violations.extend(clients.violations());
    Ok(run)
}

/// How long to wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);
