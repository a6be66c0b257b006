//! The lines between two nodes, their clients and their witness, so that one node can be cut off from all of them.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use monolock_failover_core::NodeId;

use super::pair::{Pair, PairError, ip};
use super::proxy::Proxy;
use super::register::{Register, WayToRegister};

/// Every line of both nodes.
#[derive(Debug)]
pub(super) struct Network {
    a: Lines,
    b: Lines,
}

/// The lines that end at one node, and its way to the witness.
#[derive(Debug)]
struct Lines {
    from_clients: Proxy,
    link_from_peer: Proxy,
    locks_from_peer: Proxy,
    to_register: WayToRegister,
}

impl Network {
    /// Lays every line, and tells the nodes of the pair, which do not run yet, to use them.
    pub(super) async fn lay(pair: &mut Pair, register: &Register, folder: &Path) -> Result<Self, PairError> {
        let laid = async |pair: &Pair, node| Lines::lay(pair, node, register, folder).await;
        let what = "lay the lines of the drill's network";
        let a = laid(pair, NodeId::A).await.map_err(PairError::system(what))?;
        let b = laid(pair, NodeId::B).await.map_err(PairError::system(what))?;
        for (node, own, peer) in [(NodeId::A, &a, &b), (NodeId::B, &b, &a)] {
            pair.set(node, "MONOLOCK_WITNESS", own.to_register.setting());
            pair.set(
                node,
                "MONOLOCK_PEER_ADDRESS",
                peer.link_from_peer.address().to_string(),
            );
            pair.set(
                node,
                "MONOLOCK_PEER_LOCK_ADDRESS",
                peer.locks_from_peer.address().to_string(),
            );
        }
        Ok(Self { a, b })
    }

    /// Where clients reach node `a`, then node `b`.
    pub(super) fn lock_addresses(&self) -> [SocketAddr; 2] {
        [self.a.from_clients.address(), self.b.from_clients.address()]
    }

    /// Cuts a node off from its peer, its clients and the witness.
    pub(super) fn isolate(&self, node: NodeId) -> io::Result<()> {
        let (own, peer) = self.own_and_peer(node);
        own.to_register.cut()?;
        for line in own.lines_to_cut(peer) {
            line.cut();
        }
        Ok(())
    }

    /// Makes every line of a node whole again.
    pub(super) fn rejoin(&self, node: NodeId) -> io::Result<()> {
        let (own, peer) = self.own_and_peer(node);
        for line in own.lines_to_cut(peer) {
            line.heal();
        }
        own.to_register.heal()
    }

    const fn own_and_peer(&self, node: NodeId) -> (&Lines, &Lines) {
        match node {
            NodeId::A => (&self.a, &self.b),
            NodeId::B => (&self.b, &self.a),
        }
    }
}

impl Lines {
    async fn lay(pair: &Pair, node: NodeId, register: &Register, folder: &Path) -> io::Result<Self> {
        let line = |to: SocketAddr| Proxy::start(ip(node), to.to_string());
        Ok(Self {
            from_clients: line(pair.lock_address(node)).await?,
            link_from_peer: line(pair.link_address(node)).await?,
            locks_from_peer: line(pair.lock_address(node)).await?,
            to_register: WayToRegister::lay(register, node, folder).await?,
        })
    }

    /// Everything that ends at this node, and what it uses to reach its peer.
    const fn lines_to_cut<'a>(&'a self, peer: &'a Self) -> [&'a Proxy; 5] {
        [
            &self.from_clients,
            &self.link_from_peer,
            &self.locks_from_peer,
            &peer.link_from_peer,
            &peer.locks_from_peer,
        ]
    }
}
