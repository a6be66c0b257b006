//! The link between the two nodes of a pair: HTTP/1.1 with JSON on a port of its own.
//!
//! # Model
//!
//! | call | from | what it does |
//! | --- | --- | --- |
//! | `GET /v1/node` | peer, operator | says who the node is and how it stands, with readings of its clocks |
//! | `GET /v1/follow` | peer | streams the active's grants, releases and beats, one JSON object a line, a snapshot first |
//! | `POST /v1/acknowledge` | peer | confirms a mark of that stream |
//! | `POST /v1/promise` | peer | asks not to be taken over from |
//! | `POST /v1/fence` | peer | asks to shut the gate and cut the sessions |
//! | `POST /v1/handover` | peer | tells the standby that the term is now its own |
//! | `POST /v1/begin-handover` | peer, operator | asks the active to hand over |
//! | `POST /v1/extend-reserve` | operator | lets an active without a witness grant beyond what its peer has acknowledged |
//! | `GET /v1/challenge` | anybody | the random number that the requests of this connection must cover |
//!
//! Bodies are at most [`MAX_BODY`] bytes; fields that are not known are ignored. An answer that is not 200 carries
//! `{"error": "..."}`. What an answer means is decided elsewhere: [`PeerServer`] hands each request to the node as a
//! [`PeerCall`], [`PeerClient`] reports an [`Answer`] or a
//! [`CallFailure`].
//!
//! # Dangers
//!
//! Who can forge or replay a fence stops the service; who can forge or replay a promise makes two actives. So with a
//! secret, every request and every answer carries a code (HMAC-SHA256) that only a holder of the secret can compute,
//! over everything that matters, and that is good only once:
//!
//! - *Forgery, changes on the way*: the code covers sender, receiver, method, path and body; of an answer, status and body.
//! - *Replay, on the same connection, on another, or after a restart*: the server draws a challenge for each connection
//!   and numbers its requests; the code covers both, and a request of another number is refused. There is no window of
//!   remembered requests that could overflow, and a new process has new connections.
//! - *An old answer to a new question*: the client draws a nonce for each request; an answer's code covers the request's.
//! - *Reflection*: a request to `b` is no request to `a`, and a node's own requests are refused when they come back.
//! - *A stream with lines taken out, repeated or changed*: each line has a code over its number in the stream.
//! - *Floods*: a request is read up to a bound of bytes and time, and parsed only after its code was found right; a
//!   connection that shows no right code is closed after [`REQUEST_TIME`], and only so many of them are kept at a time.
//!
//! What a code cannot prevent: reading along (lock names are visible: use TLS or a private network), holding a message back (so
//! a promise counts from its *sending*, and a fence names its term), and cutting the line.
//!
//! Mutual TLS ([`PeerTls`]) does the same by certificates, and hides what is said; with both, both must hold. Without
//! either nothing is checked; a node refuses to listen beyond loopback then.
//!
//! # Example
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! use monolock_failover::core::NodeId;
//! use monolock_failover::peer::{CallFailure, Declined, PeerCall, PeerClient, PeerSecret, PeerServer, Sender};
//! use tokio_util::sync::CancellationToken;
//!
//! let secret = PeerSecret::new("a long enough shared secret")?;
//! let server = PeerServer::bind("127.0.0.1:0".parse()?, NodeId::B, Some(secret.clone())).await?;
//! let address = server.local_addr().to_string().parse()?;
//! let (calls_in, mut calls) = tokio::sync::mpsc::channel(16);
//! tokio::spawn(server.serve(calls_in, CancellationToken::new()));
//! tokio::spawn(async move {
//!     while let Some(call) = calls.recv().await {
//!         if let PeerCall::BeginHandover { reply, .. } = call {
//!             let _ = reply.send(Err(Declined("this node is standby".into())));
//!         }
//!     }
//! });
//!
//! let client = PeerClient::new(address, Sender::Node(NodeId::A), NodeId::B, Some(secret));
//! let outcome = client.begin_handover(&Default::default()).await;
//! assert_eq!(outcome.unwrap_err(), CallFailure::Declined("this node is standby".into()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

mod address;
mod auth;
mod client;
mod credentials;
mod dial;
mod follow;
pub mod message;
mod route;
mod server;
mod tls;

pub use address::{AddressError, PeerAddress, ResolveError};
pub use auth::{PeerSecret, SecretError, Sender};
pub use client::{Answer, CallFailure, CallOutcome, PeerClient};
pub use credentials::LinkCredentials;
pub(crate) use dial::{Dialled, dial};
pub use dial::{PortAnswer, PortProbe, probe_ports};
pub use follow::{FollowEnd, FollowNext, FollowStream};
pub use server::{Declined, FollowFeed, ListenError, PeerCall, PeerServer, Reply, check_exposure};
pub use tls::{PeerTls, PeerTlsError, PeerTlsFiles};

/// The largest body of a request or an answer, and the longest line of the follow stream, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// How long a request may take to arrive, and a new connection to show that it knows the secret.
pub const REQUEST_TIME: Duration = Duration::from_secs(5);
