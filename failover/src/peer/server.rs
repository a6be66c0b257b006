//! The receiving side of the link: checks who asks, and hands the request to the node.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use monolock_failover_core::NodeId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::message::{
    AcknowledgeRequest, AcknowledgeResponse, BeginHandoverRequest, BeginHandoverResponse,
    ExtendReserveResponse, FenceRequest, FenceResponse, FollowEvent, HandoverRequest, HandoverResponse,
    NodeStatus, PromiseRequest, PromiseResponse,
};
use super::tls::{LinkStream, warn_refused};
use super::{LinkCredentials, REQUEST_TIME, Sender};
use connection::Connection;

mod connection;

/// One request that a sender was allowed to make. The node answers through `reply`; dropping it answers that the node
/// is not able to.
#[derive(Debug)]
pub enum PeerCall {
    /// How does this node stand?
    Status {
        /// Who asks.
        from: Sender,
        /// Takes the answer.
        reply: Reply<NodeStatus>,
    },
    /// The peer wants to follow: the answer is a feed that begins with a snapshot.
    Follow {
        /// Takes the feed. The stream ends when its other end is dropped.
        reply: Reply<FollowFeed>,
    },
    /// The peer confirms a mark of the feed.
    Acknowledge {
        /// Which mark.
        request: AcknowledgeRequest,
        /// Takes the answer.
        reply: Reply<AcknowledgeResponse>,
    },
    /// The peer asks not to be taken over from.
    Promise {
        /// For which term, with which floor.
        request: PromiseRequest,
        /// Takes the answer; only once the floor is in the state file.
        reply: Reply<PromiseResponse>,
    },
    /// The peer asks to shut the gate.
    Fence {
        /// In the name of which term.
        request: FenceRequest,
        /// Takes the answer; only once the sessions are cut.
        reply: Reply<FenceResponse>,
    },
    /// The peer has given its term away, to this node.
    Handover {
        /// With which record.
        request: HandoverRequest,
        /// Takes the answer.
        reply: Reply<HandoverResponse>,
    },
    /// Somebody vouches that the peer does not take over from this active without a witness.
    ExtendReserve {
        /// Takes the answer.
        reply: Reply<ExtendReserveResponse>,
    },
    /// Somebody asks this node to hand over.
    BeginHandover {
        /// Who asks.
        from: Sender,
        /// What is asked.
        request: BeginHandoverRequest,
        /// Takes the answer; only once it has ended, within [`PeerServer::HANDOVER_TIME`].
        reply: Reply<BeginHandoverResponse>,
    },
}

/// Where the answer to a call goes.
pub type Reply<T> = oneshot::Sender<Result<T, Declined>>;

/// The other end of what a follower hears. Bounded by whoever makes it: a follower that lags must be dropped.
pub type FollowFeed = mpsc::Receiver<FollowEvent>;

/// Why a node declines a request, for the log of whoever asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined(pub String);

/// Why the peer link cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Everybody on the network could make two nodes active.
    #[error(
        "the peer link does not listen on {address}, beyond this machine, without a shared secret or certificates: set \
         MONOLOCK_PEER_SECRET_FILE, or MONOLOCK_PEER_TLS_CERT, _KEY and _CA, on both nodes"
    )]
    Exposed {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The system did not give the address.
    #[error(
        "the peer link cannot listen on {address}: {source}: set MONOLOCK_PEER_LISTEN_ADDRESS to a free address of this machine"
    )]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// Whether the link may listen on this address.
///
/// # Errors
///
/// [`ListenError::Exposed`] beyond loopback without credentials.
pub fn check_exposure(address: SocketAddr, credentials: &LinkCredentials) -> Result<(), ListenError> {
    if credentials.is_empty() && !address.ip().to_canonical().is_loopback() {
        return Err(ListenError::Exposed { address });
    }
    Ok(())
}

/// The receiving side, bound and not yet answering: connections wait in the kernel until [`PeerServer::serve`].
#[derive(Debug)]
pub struct PeerServer {
    listener: TcpListener,
    address: SocketAddr,
    node: NodeId,
    credentials: LinkCredentials,
}

impl PeerServer {
    /// How long the node may take to answer a call.
    pub const NODE_TIME: Duration = Duration::from_secs(5);
    /// How long a handover may take before whoever asked for it is told that it has not ended.
    pub const HANDOVER_TIME: Duration = Duration::from_secs(30);

    /// Binds the link of `node`.
    ///
    /// # Errors
    ///
    /// [`ListenError`]: the address is taken, not of this machine, or exposed without credentials.
    pub async fn bind(
        address: SocketAddr,
        node: NodeId,
        credentials: impl Into<LinkCredentials>,
    ) -> Result<Self, ListenError> {
        let credentials = credentials.into();
        check_exposure(address, &credentials)?;
        let failed = |source| ListenError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            node,
            credentials,
        })
    }

    /// Where it listens; tells the port when port 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is cancelled, or the receiver of `calls` is dropped; then lets answers that are on their way
    /// finish for a short time, and closes the port.
    pub async fn serve(self, calls: mpsc::Sender<PeerCall>, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let shared = Arc::new(Shared {
            node: self.node,
            credentials: self.credentials,
            calls,
            strangers: Arc::new(Semaphore::new(MOST_STRANGERS)),
        });
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
                () = shared.calls.closed() => break,
            };
            match accepted {
                Ok((stream, from)) => {
                    shared.admit(stream, from, &connections, &stop);
                }
                Err(error) => {
                    tracing::warn!(%error, "the peer link cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        stop.cancel();
        connections.close();
        connections.wait().await;
    }
}

/// What all connections have in common.
#[derive(Debug)]
struct Shared {
    node: NodeId,
    credentials: LinkCredentials,
    calls: mpsc::Sender<PeerCall>,
    /// One permit for each connection that has not shown who is behind it.
    strangers: Arc<Semaphore>,
}

impl Shared {
    /// Serves a connection in a task of its own, unless there are too many strangers: then closes it.
    fn admit(
        self: &Arc<Self>,
        stream: TcpStream,
        remote: SocketAddr,
        connections: &TaskTracker,
        stop: &CancellationToken,
    ) {
        let Ok(permit) = Arc::clone(&self.strangers).try_acquire_owned() else {
            tracing::warn!(%remote, "too many connections that have not shown who is behind them: closing one");
            return;
        };
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%remote, %error, "a connection of the peer link ended at once");
            return;
        }
        connections.spawn(Arc::clone(self).receive(stream, permit, remote, stop.clone()));
    }

    async fn receive(
        self: Arc<Self>,
        stream: TcpStream,
        stranger: OwnedSemaphorePermit,
        remote: SocketAddr,
        stop: CancellationToken,
    ) {
        let secured = tokio::select! {
            secured = tokio::time::timeout(REQUEST_TIME, self.secure(stream)) => secured,
            () = stop.cancelled() => return,
        };
        let (stream, certified) = match secured {
            Ok(Ok(secured)) => secured,
            Ok(Err(error)) => return warn_refused(remote, &error),
            Err(_elapsed) => return warn_refused(remote, &io::ErrorKind::TimedOut.into()),
        };
        match Connection::new(self, stranger, remote, certified) {
            Ok(connection) => serve_connection(stream, Arc::new(connection), stop).await,
            Err(error) => tracing::error!(%error, "the system has no random number for a challenge"),
        }
    }

    /// With TLS, says whose certificate was shown.
    async fn secure(&self, stream: TcpStream) -> io::Result<(LinkStream, Option<NodeId>)> {
        let Some(tls) = &self.credentials.tls else {
            return Ok((LinkStream::Left(stream), None));
        };
        let (stream, node) = tls.accept(stream).await?;
        Ok((LinkStream::Right(stream), Some(node)))
    }
}

async fn serve_connection(stream: LinkStream, connection: Arc<Connection>, stop: CancellationToken) {
    let service = service_fn(|request| {
        let connection = Arc::clone(&connection);
        async move { Ok::<_, std::convert::Infallible>(connection.answer(request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIME)
        .max_buf_size(super::MAX_BODY)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => {
            if let Err(error) = result {
                tracing::debug!(remote = %connection.remote(), %error, "a connection of the peer link broke");
            }
            return;
        }
        () = connection.remained_a_stranger() => {
            tracing::warn!(remote = %connection.remote(), "closing a connection that has not shown who is behind it");
            return;
        }
        () = stop.cancelled() => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(CLOSING_TIME, serving).await;
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_TIME_MS)?;
    Ok(())
}

/// The most connections at a time that have not shown who is behind them.
const MOST_STRANGERS: usize = 64;
/// How long to wait after an accept that failed, as for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection may be silent between two requests.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// How long answers may take to get out after the stop.
const CLOSING_TIME: Duration = Duration::from_secs(1);
/// How long sent bytes may stay unacknowledged before the kernel gives the connection up.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIME_MS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PeerSecret;

    #[test]
    fn beyond_loopback_needs_credentials() {
        let secret = LinkCredentials::from(Some(PeerSecret::new("0123456789abcdef").unwrap()));
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            check_exposure(local.parse().unwrap(), &LinkCredentials::default()).expect(local);
        }
        for exposed in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            let address = exposed.parse().unwrap();
            let error = check_exposure(address, &LinkCredentials::default()).expect_err(exposed);
            assert!(error.to_string().contains("MONOLOCK_PEER_SECRET"), "{error}");
            check_exposure(address, &secret).expect(exposed);
        }
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = PeerServer::bind(address, NodeId::A, None).await.unwrap_err();
        assert!(matches!(error, ListenError::Bind { .. }));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert!(
            error.to_string().contains("MONOLOCK_PEER_LISTEN_ADDRESS"),
            "{error}"
        );
    }
}
