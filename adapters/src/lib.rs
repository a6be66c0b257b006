//! Writes that a resource accepts only with the newest fencing token.
//!
//! A lock with a lease can pass to a new holder while the old one is paused in the middle of its work. No lock service
//! can stop the write that the old holder sends when it wakes. The *resource* can, if every write carries the
//! **fencing token** of its grant, a number larger than that of every earlier grant: the resource remembers the largest
//! token it accepted and refuses smaller ones. This crate does that for the stores people use, with any lock service
//! that hands out increasing 64-bit numbers.
//!
//! ```
//! # #[cfg(all(feature = "client", feature = "postgres"))] {
//! # use std::time::Duration;
//! # use monolock_adapters::{postgres::{Change, Fence, GuardedTable, Row}};
//! # async fn example(pool: sqlx::PgPool, fence: Fence, orders: GuardedTable, row: Row) -> Result<(), Box<dyn std::error::Error>> {
//! let client = monolock_client::Client::new("locks.internal:7070")?;
//! client.run("nightly-import", Duration::from_secs(2), async |grant| {
//!     fence.write(&pool, &grant, &orders, &[Change::Update(row)]).await // refused if a newer holder was here
//! }).await?;
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! A transaction of your own, any statements in it, and a token that came from elsewhere:
//!
//! ```
//! # #[cfg(feature = "sqlite")] {
//! # use monolock_adapters::{Resource, Token, sqlite::{self, Fence}};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let pool = sqlite::open(dir.path().join("data.db")).await?;
//! # sqlx::raw_sql("CREATE TABLE stock (item TEXT, n INTEGER)").execute(&pool).await?;
//! # Fence::new().install(&pool).await?;
//! # let (lock_name, token) = ("stock", 42);
//! let grant = Resource::guarded_by(lock_name)?.stamp(Token::new(token));
//! let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
//! Fence::new().admit(&mut tx, &grant).await?; // Err(Stale) if a larger token was here
//! sqlx::query("UPDATE stock SET n = n - 1 WHERE item = 'bolt'").execute(&mut *tx).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! # main().unwrap();
//! # }
//! ```
//!
//! # The one rule
//!
//! A write is accepted only if no larger token has been accepted for that resource, decided by the store itself in one
//! atomic step. Equal tokens pass: a holder writes many times. Every outcome other than "accepted" is a [`FenceError`]
//! that says whether anything changed and what to do.
//!
//! **One lock guards one resource.** Tokens of two locks say nothing about each other, so they must not meet at one
//! resource. That is why a [`Resource`] has no name of its own but that of its lock, and why every write takes a
//! [`Grant`], which names the lock together with the token. The grant is *live*: it is asked before each write, and one
//! that is over writes nothing. With the feature `client` those of `monolock_client` are grants as they are; a [`Stamp`] is a
//! lock's name and a token that came by another way.
//!
//! A new holder that will not write at once should **claim** first: from then on the resource refuses the old one.
//!
//! # What each backend guarantees
//!
//! | backend | feature | compared at | the atomic step | covers | other programs | a lost answer |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | [`sqlite`] | `sqlite` (default) | the resource | an upsert in the transaction | all statements after it | stopped by a trigger on guarded tables | cannot happen |
//! | [`postgres`] | `postgres` | the resource | same, which locks a row until the commit; any isolation level | same | same | looked up by write id |
//! | [`mysql`] | `mysql` | the resource | same | same | same, but not a foreign key's cascades | looked up by write id |
//! | [`s3`] | `s3` | each object; with a [draft](s3::Draft) the set | a write under `If-Match`; the token is part of what the ETag covers | that object, or the set | not stopped | looked up by write id |
//! | [`max_seen`] | always; `redis` | the resource | one statement, one script, one mutex | the check alone, not the effect after it | not stopped | asked again |
//! | [`tower`] | `tower` | the resource | that of its store; then one token at a time | what the service does, within one process | not stopped | the client asks again |
//!
//! Where an answer was lost and cannot be found out, the outcome is [`FenceError::Unknown`], never "failed".
//!
//! # What none of them can do
//!
//! - Tell a stale holder before it writes: the refusal is the news. Stop working on the first [`FenceError::is_lock_lost`].
//! - Take back what an old holder wrote *before* the new one claimed or wrote. That was accepted in order.
//! - Help if tokens do not increase. A lock service that loses its state and starts again at 1 locks everybody out until
//!   it is past the largest number seen: safe, and loud.
//! - Survive a store that forgets. Do not delete rows of the fence table, tombstones, or keys in Redis, and mind
//!   restores from a backup and replicas that were behind when they took over: such a store knows only older tokens, until
//!   the next holder claims.

#![cfg_attr(
    not(all(
        feature = "sqlite",
        feature = "postgres",
        feature = "mysql",
        feature = "s3",
        feature = "tower"
    )),
    allow(rustdoc::broken_intra_doc_links, reason = "the front page names all backends")
)]

mod error;
mod grant;
mod resource;
#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "s3",
    feature = "redis"
))]
mod retry;

pub mod max_seen;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "s3")]
pub mod s3;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "tower")]
pub mod tower;

pub use error::{BoxError, FenceError};
pub use grant::Grant;
pub use monolock_protocol::Token;
pub use resource::{MAX_RESOURCE_LEN, Resource, ResourceError, Stamp};
#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "s3",
    feature = "redis"
))]
pub use retry::Retry;
