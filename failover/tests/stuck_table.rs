//! What becomes of a pair whose active has a lock table that is stuck.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::mpsc;
use std::time::Duration;

use clap::Parser as _;
use monolock_failover::config::{Cli, NodeConfig};
use monolock_failover::core::NodeId;
use monolock_failover::node::Node;
use monolock_failover::operator::PairStatus;
use monolock_failover::peer::message::Role;
use monolock_integration_tests::port::free_port;
use tokio_util::sync::CancellationToken;

/// Far beyond what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(120);

fn config(node: NodeId, folder: &std::path::Path, ports: [[u16; 2]; 2]) -> NodeConfig {
    let [own, peer] = match node {
        NodeId::A => ports,
        NodeId::B => [ports[1], ports[0]],
    };
    let cli = Cli::try_parse_from([
        "monolock-failover".to_owned(),
        format!("--node={node}"),
        format!("--listen=127.0.0.1:{}", own[0]),
        format!("--peer-listen=127.0.0.1:{}", own[1]),
        format!("--peer=127.0.0.1:{}", peer[1]),
        format!("--peer-lock=127.0.0.1:{}", peer[0]),
        format!("--witness=file:{}", folder.join("witness").display()),
        format!("--state-file={}", folder.join(format!("{node}.state")).display()),
    ]);
    cli.unwrap().node.check().unwrap()
}

async fn wait_for(config: &NodeConfig, what: &str, is_so: impl Fn(&PairStatus) -> bool) -> PairStatus {
    let waiting = async {
        loop {
            let status = PairStatus::ask(config.node, &config.link).await;
            if is_so(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("waited for {what}"))
}

fn role(status: &PairStatus, node: NodeId) -> Option<Role> {
    let report = status.nodes.iter().find(|report| report.node == node)?;
    report.status.as_ref().map(|status| status.role)
}

/// The sessions of a stuck table block every thread of the server; the node must go on beside them.
#[test]
fn a_stuck_lock_table_loses_authority_and_its_node_goes_on_answering() {
    let folder = tempfile::tempdir().unwrap();
    let ports = [(); 2].map(|()| [(); 2].map(|()| free_port()));
    let configs = [NodeId::A, NodeId::B].map(|node| config(node, folder.path(), ports));
    let servers = [(); 2].map(|()| tokio::runtime::Runtime::new().unwrap());
    let stop = CancellationToken::new();
    let mut running = Vec::new();
    let handles = [0, 1].map(|index| {
        let runtime = &servers[index];
        let node = runtime.block_on(Node::start(configs[index].clone())).unwrap();
        let handle = node.server().handle();
        running.push(runtime.spawn(node.run(stop.clone())));
        handle
    });
    let observer = tokio::runtime::Runtime::new().unwrap();
    let healthy = wait_for(&configs[0], "a healthy pair", PairStatus::is_healthy);
    let active = observer.block_on(healthy).active().unwrap();
    let stuck = handles[usize::from(active == NodeId::B)].clone();

    let (let_go, until) = mpsc::channel::<()>();
    let sticking = std::thread::spawn(move || stuck.occupy_table(|| until.recv().unwrap_or(())));
    let taken_over = wait_for(
        &configs[0],
        "the other node to take over, and this one to say so",
        |status| {
            role(status, active) == Some(Role::Standby) && role(status, active.peer()) == Some(Role::Active)
        },
    );
    observer.block_on(taken_over);
    // No answer of the table has come since, and still it answers its peer.
    drop(let_go);
    sticking.join().unwrap();
    let healthy = observer.block_on(wait_for(&configs[0], "a healthy pair", PairStatus::is_healthy));
    assert_eq!(healthy.active(), Some(active.peer()));
    stop.cancel();
    for (runtime, node) in servers.iter().zip(running) {
        runtime.block_on(node).unwrap();
    }
}
