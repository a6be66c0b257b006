//! What the demo is made of: a pair of nodes, two workers, and a resource that refuses a stale write.
//!
//! `pair_demo` shows it in a terminal; the end-to-end tests run the same [`takeover`] and assert its claims.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`pair`] | two failover nodes on loopback, behind one name |
//! | [`worker`] | a program that writes a guarded row while it holds a lock |
//! | [`ledger`] | the guarded row and the history of its writes, in SQLite or PostgreSQL |
//! | [`takeover`] | the story: crash, takeover, stale write, return, handover, and the claims about it |
//!
//! The smaller examples show one kind of resource each, in the part that a program would copy: `postgres_rows`,
//! `s3_object` (feature `s3`) and `axum_service` (feature `axum`). What they share is the [`stage`].
//!
//! ```
//! use monolock_examples::ledger::Database;
//!
//! let database: Database = "sqlite:/tmp/ledger.db".parse()?;
//! assert_eq!(database.to_string(), "sqlite:/tmp/ledger.db");
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod ledger;
pub mod pair;
pub mod stage;
pub mod takeover;
pub mod worker;
