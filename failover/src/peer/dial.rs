//! Connecting to the peer, and what its kernel says when nobody listens there.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

use super::PeerAddress;

/// How an attempt to connect ended.
#[derive(Debug)]
pub(crate) enum Dialled {
    /// Connected, without delay for small messages.
    Connected(TcpStream),
    /// The kernel at every address of the host answered that nothing listens on the port.
    Refused,
    /// Anything else; says nothing about the peer's life.
    Failed(String),
}

/// Connects to the first address of the host that accepts. Sets no bound of its own.
pub(crate) async fn dial(address: &PeerAddress) -> Dialled {
    let addresses = match address.resolve().await {
        Ok(addresses) => addresses,
        Err(error) => return Dialled::Failed(error.to_string()),
    };
    let mut failure = None;
    for address in addresses {
        match connect(address).await {
            Ok(stream) => return Dialled::Connected(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => failure = Some(format!("cannot connect to {address}: {error}")),
        }
    }
    failure.map_or(Dialled::Refused, Dialled::Failed)
}

/// What one port of the peer answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortAnswer {
    /// Its host is up, and nothing listens there.
    Refused,
    /// Something listens there.
    Accepts,
    /// No answer in time.
    Silent,
    /// Anything else.
    Failed(String),
}

/// What both ports of the peer answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortProbe {
    /// Nothing listens on either: no process of the peer can be serving there.
    BothRefused,
    /// At least one of them did not refuse: no proof of anything.
    NotBoth {
        /// What the port of the lock protocol answered.
        lock: PortAnswer,
        /// What the port of the peer link answered.
        peer: PortAnswer,
    },
}

/// Asks the peer's kernel whether anything still listens on the two ports of the peer, within `time_limit` for both.
/// A host with several addresses counts as refusing only when all of them refuse.
pub async fn probe_ports(lock: &PeerAddress, peer: &PeerAddress, time_limit: Duration) -> PortProbe {
    match tokio::join!(probe(lock, time_limit), probe(peer, time_limit)) {
        (PortAnswer::Refused, PortAnswer::Refused) => PortProbe::BothRefused,
        (lock, peer) => PortProbe::NotBoth { lock, peer },
    }
}

async fn probe(address: &PeerAddress, time_limit: Duration) -> PortAnswer {
    match tokio::time::timeout(time_limit, dial(address)).await {
        Ok(Dialled::Connected(_)) => PortAnswer::Accepts,
        Ok(Dialled::Refused) => PortAnswer::Refused,
        Ok(Dialled::Failed(reason)) => PortAnswer::Failed(reason),
        Err(_elapsed) => PortAnswer::Silent,
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // On loopback, a connection to a free port can be given that port as its own, and then meets itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const GENEROUS: Duration = Duration::from_secs(30);

    fn address_of(listener: &TcpListener) -> PeerAddress {
        listener.local_addr().unwrap().into()
    }

    #[tokio::test]
    async fn only_two_refusals_are_both_refused() {
        let (lock, peer) = (
            TcpListener::bind("127.0.0.1:0").unwrap(),
            TcpListener::bind("127.0.0.1:0").unwrap(),
        );
        let (lock_address, peer_address) = (address_of(&lock), address_of(&peer));
        let answer = probe_ports(&lock_address, &peer_address, GENEROUS).await;
        let (accepts, refused) = (PortAnswer::Accepts, PortAnswer::Refused);
        assert_eq!(
            answer,
            PortProbe::NotBoth {
                lock: accepts.clone(),
                peer: accepts.clone()
            }
        );
        drop(lock);
        let answer = probe_ports(&lock_address, &peer_address, GENEROUS).await;
        assert_eq!(
            answer,
            PortProbe::NotBoth {
                lock: refused,
                peer: accepts
            }
        );
        drop(peer);
        let answer = probe_ports(&lock_address, &peer_address, GENEROUS).await;
        assert_eq!(answer, PortProbe::BothRefused);
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_proves_nothing() {
        let nowhere: PeerAddress = "no-such-node.invalid:7073".parse().unwrap();
        let answer = probe_ports(&nowhere, &nowhere, GENEROUS).await;
        assert!(
            matches!(
                &answer,
                PortProbe::NotBoth {
                    lock: PortAnswer::Failed(_),
                    ..
                }
            ),
            "{answer:?}"
        );
    }

    #[tokio::test]
    async fn a_full_backlog_is_silence_and_no_refusal() {
        let listener = listener_without_room();
        let address: PeerAddress = listener.local_addr().unwrap().into();
        let mut waiting = Vec::new();
        while let Ok(accepted) = tokio::time::timeout(
            Duration::from_millis(200),
            TcpStream::connect(address.to_string()),
        )
        .await
        {
            waiting.push(accepted);
        }
        let silent = probe(&address, Duration::from_millis(200)).await;
        assert_eq!(silent, PortAnswer::Silent);
    }

    fn listener_without_room() -> std::net::TcpListener {
        use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        bind(&socket, &loopback).unwrap();
        listen(&socket, 0).unwrap();
        socket.into()
    }
}
