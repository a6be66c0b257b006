//! A lock server that hands out fencing tokens.
//!
//! This is the shell around [`monolock_core`]: sockets, TLS, files, metrics and HTTP. The lock table decides, in one place and
//! under one mutex; everything here carries bytes to it and its decisions out.
//!
//! The binary `monolock-server` is [`Server`] with its settings from flags and environment. A failover node embeds the
//! same server with its gate shut and opens it for one term at a time:
//!
//! ```
//! use monolock_server::{Config, Server, StartGate};
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let config = Config {
//!     listen: "127.0.0.1:0".to_owned(),
//!     ..Config::default()
//! };
//! let server = Server::start(config, StartGate::Open).await?;
//! println!("locks are served at {}", server.handle().lock_addr());
//! server.shutdown().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).map_err(|error| error.to_string())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod acl_file;
mod admin;
mod audit;
mod clock;
pub mod config;
mod connection;
mod handle;
mod listener;
pub mod logging;
mod metrics;
mod ops;
mod owner;
mod server;
mod session;
mod tls;
mod token_file;

pub use config::{Config, ServerArgs, SettingError};
pub use handle::{FollowEnded, FollowReceiver, ServerHandle};
pub use monolock_core::{Grace, LockEvent, Now, OpenGate, Report, Snapshot};
pub use server::{ExtraRoutes, Server, StartError, StartGate, check_files};
