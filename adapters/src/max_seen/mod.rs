//! The largest token seen, for resources that cannot compare tokens themselves.
//!
//! A store of this kind remembers one number for each resource and answers one question in one atomic step: is this token
//! at least as large as all before it? Records never expire: a forgotten token lets an old holder back in.
//!
//! ```
//! use monolock_adapters::max_seen::{MaxSeen, Memory};
//! use monolock_adapters::{Resource, Token};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let seen = Memory::new();
//! let printer = Resource::guarded_by("printer")?;
//! seen.admit(&printer.stamp(Token::new(42))).await?;
//! assert!(seen.admit(&printer.stamp(Token::new(41))).await.unwrap_err().is_stale());
//! # Ok(())
//! # }
//! ```
//!
//! | store | survives | shared by |
//! | --- | --- | --- |
//! | [`Memory`] | nothing: a restart forgets, and the first token after it passes, whichever it is | one process |
//! | `Database` on SQLite | a power cut | the processes of one machine |
//! | `Database` on PostgreSQL or MySQL | what their commits survive | everybody |
//! | `Redis` | what its persistence is set to, see there | everybody |
//!
//! **Passing the check is not the effect.** Between the two a process can be paused, and a newer holder can pass and
//! act. Where the effect is a write to a database, let that compare the token in the same transaction ([`crate::sql`]). Where it
//! cannot, keep newer tokens out until the older effect is over, as the `tower` layer does within one process.

mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::future::Future;

use monolock_protocol::Token;

pub use memory::Memory;
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisSettingsError};

use crate::{FenceError, Resource, Stamp};

/// A store of the largest token seen for each resource.
pub trait MaxSeen: Send + Sync + 'static {
    /// Remembers the token, as durably as the store can, and lets it pass unless a larger one was seen for its resource.
    ///
    /// # Errors
    ///
    /// [`FenceError::Stale`] with the largest token seen. After any other error the token may or may not be remembered,
    /// and the caller must not go on: asking again is always safe.
    fn admit(&self, stamp: &Stamp) -> impl Future<Output = Result<(), FenceError>> + Send;

    /// The largest token seen for a resource; none if there was none.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`].
    fn highest(&self, resource: &Resource) -> impl Future<Output = Result<Option<Token>, FenceError>> + Send;
}

impl<S: MaxSeen> MaxSeen for std::sync::Arc<S> {
    async fn admit(&self, stamp: &Stamp) -> Result<(), FenceError> {
        S::admit(self, stamp).await
    }

    async fn highest(&self, resource: &Resource) -> Result<Option<Token>, FenceError> {
        S::highest(self, resource).await
    }
}

/// A [`Fence`](crate::sql::Fence) as a store of its own: its table, without anything behind it.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[derive(Clone, Debug)]
pub struct Database<DB: crate::sql::Backend> {
    pool: sqlx::Pool<DB>,
    fence: crate::sql::Fence<DB>,
}

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
impl<DB: crate::sql::Backend> Database<DB> {
    /// A store in the fence's table, which must be [installed](crate::sql::Fence::install).
    #[must_use]
    pub fn new(pool: sqlx::Pool<DB>, fence: crate::sql::Fence<DB>) -> Self {
        Self { pool, fence }
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
impl<DB: crate::sql::Backend> MaxSeen for Database<DB> {
    async fn admit(&self, stamp: &Stamp) -> Result<(), FenceError> {
        self.fence.claim(&self.pool, stamp).await
    }

    async fn highest(&self, resource: &Resource) -> Result<Option<Token>, FenceError> {
        self.fence.highest(&self.pool, resource).await
    }
}
