//! Hold a monolock lock exactly while the server confirms it, and stop the work when it is lost.
//!
//! ```no_run
//! # use std::time::Duration;
//! # async fn store(token: monolock_client::Token) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = monolock_client::Client::new("locks.internal:7070")?;
//! client.run("nightly-import", Duration::from_secs(2), async |grant| {
//!     store(grant.token()?).await // the guarded resource refuses a token smaller than one it has seen
//! }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! One claim is one connection. While the claim is held, heartbeats on a thread of the client's own renew its lease,
//! however busy the program is. Once the server has confirmed nothing for `0.8 * lease`, or the session ends in any other
//! way, the work is dropped and the caller learns [why](Lost). There is no silent re-acquisition.
//!
//! A lock alone cannot stop a program that is frozen at the wrong moment. The fencing token can: hand
//! [`Grant::token`] to the guarded resource with *every* write. One lock guards one resource; tokens of different locks
//! must not be compared.
//!
//! | to | use |
//! | --- | --- |
//! | run something under a lock | [`Client::run`], [`Client::run_with_retry`] |
//! | hold a lock for a scope | [`Client::acquire`], [`Guard`] |
//! | take a lock only if it is free | [`Client::try_lock`] |
//! | limit the wait, stop gracefully, clean up after a loss | [`Client::claim`] |
//! | speak TLS | [`Tls`] |
//! | do without an async runtime | [`blocking`] |
//! | see the protocol's rules without I/O | [`session`] |
//! | move from the official Go client | [`coming_from_go`] |
//!
//! # Cargo features
//!
//! `system-roots` (default): TLS trusts the system's root certificates unless a file is named. `cli` (default): the
//! command line `monolock`; a program that only uses the library switches it off.

mod acquire;
mod address;
mod background;
pub mod blocking;
mod client;
mod connect;
mod driver;
mod error;
mod grant;
mod live;
mod resolve;
mod shared_tcp;
mod sync;
mod timers;
mod tls;

#[doc = include_str!("../COMING_FROM_GO.md")]
pub mod coming_from_go {}

pub use address::{DEFAULT_PORT, Endpoint, EndpointError};
pub use client::{Claim, Client, ClientBuilder};
pub use connect::ConnectError;
pub use error::{AcquireError, ConfigError, FailureCause, Retry, RunError, ServerFailure};
pub use grant::{Grant, Guard};
pub use monolock_client_core::session;
pub use monolock_protocol::{BootInstant, ErrorClass, ErrorCode, Lease, LockName, Token};
pub use resolve::ResolveError;
pub use session::{Lost, Violation};
pub use tls::{Tls, TlsError};
pub use tokio_util::sync::CancellationToken;
