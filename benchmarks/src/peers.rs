//! Lock and unlock on Redis, PostgreSQL and etcd, each as its manual does it.
//!
//! Redis and PostgreSQL are spoken to in their own protocols over a kept connection, with requests encoded in advance:
//! no client library's work is counted against them. An etcd lock takes far longer than its client.

mod etcd;
mod postgres;
mod redis;

use std::time::Duration;

use anyhow::Result;
use monolock_integration_tests::server::LockServer;

use crate::claims::Claimant;
use crate::worker::{Worker, rate};

/// A running server that hands out locks.
#[derive(Debug)]
pub enum System {
    /// Ours; a session is a connection, so each cycle makes a new one.
    Monolock(LockServer),
    /// `SET NX PX`, tried again until it succeeds; a script that compares and deletes.
    Redis(redis::Server),
    /// `pg_advisory_lock` and `pg_advisory_unlock`.
    Postgres(postgres::Server),
    /// The lock service of its API, under a lease.
    Etcd(etcd::Server),
}

impl System {
    /// Starts one of each, ours first.
    ///
    /// # Panics
    ///
    /// When one is not installed or does not start.
    #[must_use]
    pub fn start_each() -> Vec<Self> {
        vec![
            Self::Monolock(LockServer::start(&[])),
            Self::Redis(redis::Server::start()),
            Self::Postgres(postgres::Server::start()),
            Self::Etcd(etcd::Server::start()),
        ]
    }

    /// Its name in the table.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Monolock(_) => "monolock",
            Self::Redis(_) => "Redis",
            Self::Postgres(_) => "PostgreSQL",
            Self::Etcd(_) => "etcd",
        }
    }

    /// How often a second the lock is taken and given back within `turn`, by one client for each name in `locks`.
    ///
    /// # Errors
    ///
    /// Those of the clients.
    pub async fn rate(&self, locks: &[String], turn: Duration) -> Result<f64> {
        match self {
            Self::Monolock(server) => {
                let claimant = async |lock: &str| Ok(Claimant::new(server.address, lock));
                rate(for_each(locks, claimant).await?, turn).await
            }
            Self::Redis(server) => {
                let connect = async |lock: &str| server.connect(lock).await;
                rate(for_each(locks, connect).await?, turn).await
            }
            Self::Postgres(server) => {
                let connect = async |lock: &str| server.connect(lock).await;
                rate(for_each(locks, connect).await?, turn).await
            }
            Self::Etcd(server) => {
                let connect = async |lock: &str| server.connect(lock).await;
                rate(for_each(locks, connect).await?, turn).await
            }
        }
    }
}

async fn for_each<W: Worker>(locks: &[String], connect: impl AsyncFn(&str) -> Result<W>) -> Result<Vec<W>> {
    let mut workers = Vec::new();
    for lock in locks {
        workers.push(connect(lock).await?);
    }
    Ok(workers)
}
