//! A client of the suite of several hosts: it takes locks, writes guarded rows with their tokens the whole time, and writes
//! down what it was told.
//!
//! A grant is used for a few writes and then released, so that locks change hands all the time. A careless client goes on
//! to write with its old token for a while after it has lost a lock, as a program would that was paused: only the resource
//! can refuse it.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use monolock_adapters::postgres::Fence;
use monolock_adapters::{FenceError, Resource};
use monolock_client::{Client, Guard};
use monolock_clock::boot_now;
use monolock_integration_tests::history::events::{Event, Line, Told};
use monolock_protocol::Token;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// Takes locks and writes guarded rows until it is killed.
#[derive(Clone, Debug, clap::Parser)]
struct Settings {
    /// What it calls itself
    #[arg(long)]
    name: String,
    /// The lock service: a name, or several addresses
    #[arg(long)]
    server: String,
    /// The locks to take, each for itself
    #[arg(long, value_delimiter = ',')]
    locks: Vec<String>,
    /// The lease, in milliseconds
    #[arg(long)]
    lease_ms: u64,
    /// The database with the guarded rows
    #[arg(long)]
    database: String,
    /// Where to write down what happens
    #[arg(long)]
    history: PathBuf,
    /// Go on to write for a while when a lock is lost
    #[arg(long)]
    careless: bool,
}

/// What all tasks of the client share.
struct Writer {
    settings: Settings,
    client: Client,
    pool: PgPool,
    history: Mutex<File>,
    writes: AtomicU64,
}

/// For how many writes a grant is used.
const WRITES: usize = 6;
/// Between two writes.
const WORK: Duration = Duration::from_millis(50);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Longer than a database that answers takes; a write that is given up may land all the same.
const WRITE_LIMIT: Duration = Duration::from_secs(3);
/// How often a careless client writes with an old token.
const CARELESS_WRITES: usize = 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let settings = Settings::parse();
    let pool = PgPoolOptions::new()
        .acquire_timeout(WRITE_LIMIT)
        .connect_lazy(&settings.database)?;
    let history = File::options()
        .create(true)
        .append(true)
        .open(&settings.history)
        .with_context(|| format!("cannot write {}", settings.history.display()))?;
    let writer = Arc::new(Writer {
        client: Client::new(&settings.server)?,
        pool,
        history: Mutex::new(history),
        writes: AtomicU64::new(0),
        settings,
    });
    let tasks: Vec<_> = writer
        .settings
        .locks
        .iter()
        .map(|lock| tokio::spawn(Arc::clone(&writer).work(lock.clone())))
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

impl Writer {
    async fn work(self: Arc<Self>, lock: String) -> anyhow::Result<()> {
        let resource = Resource::guarded_by(&lock)?;
        let lease = Duration::from_millis(self.settings.lease_ms);
        loop {
            let asked = boot_now().as_nanos();
            match self.client.acquire(&lock, lease).await {
                Ok(guard) => self.hold(&lock, &resource, asked, guard).await?,
                Err(error) => self.tell(Event::NotGranted {
                    lock: lock.clone(),
                    cause: error.to_string(),
                    at: boot_now().as_nanos(),
                })?,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Uses a grant to its end.
    async fn hold(
        self: &Arc<Self>,
        lock: &str,
        resource: &Resource,
        asked: u64,
        guard: Guard,
    ) -> anyhow::Result<()> {
        let Ok(token) = guard.token() else { return Ok(()) };
        self.tell(Event::Granted {
            lock: lock.to_owned(),
            token,
            server: guard.server(),
            asked,
            granted: boot_now().as_nanos(),
        })?;
        let mut cause = None;
        for _ in 0..WRITES {
            let at = boot_now().as_nanos();
            if let Err(lost) = guard.token() {
                cause = Some(lost.to_string());
                break;
            }
            if !self.write(resource, token, at, true).await? {
                break;
            }
            tokio::time::sleep(WORK).await;
        }
        let is_lost = cause.is_some();
        self.tell(Event::Ended {
            lock: lock.to_owned(),
            token,
            cause,
            at: boot_now().as_nanos(),
        })?;
        if is_lost && self.settings.careless {
            tokio::spawn(Arc::clone(self).go_on(resource.clone(), token));
        }
        Ok(())
    }

    /// Writes with a token whose lock is lost.
    async fn go_on(self: Arc<Self>, resource: Resource, token: Token) -> anyhow::Result<()> {
        for _ in 0..CARELESS_WRITES {
            tokio::time::sleep(4 * WORK).await;
            self.write(&resource, token, boot_now().as_nanos(), false).await?;
        }
        Ok(())
    }

    /// Whether the resource has accepted a write. `sure`: the client has made sure since `at` that it holds the lock.
    async fn write(&self, resource: &Resource, token: Token, at: u64, sure: bool) -> anyhow::Result<bool> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        self.tell(Event::Sending {
            number,
            lock: resource.to_string(),
            token,
            sure,
            at,
        })?;
        let outcome = tokio::time::timeout(WRITE_LIMIT, self.write_row(resource, token, number))
            .await
            .map_or_else(|_| unknown("no answer in time"), told);
        let is_accepted = outcome == Told::Accepted;
        self.tell(Event::Answered {
            number,
            outcome,
            at: boot_now().as_nanos(),
        })?;
        Ok(is_accepted)
    }

    /// Under the fence, the history's sequence is the order in which the resource takes writes.
    async fn write_row(&self, resource: &Resource, token: Token, number: u64) -> Result<(), FenceError> {
        let mut tx = Fence::new().begin(&self.pool, &resource.stamp(token)).await?;
        sqlx::query("INSERT INTO accepted (resource, client, number, token) VALUES ($1, $2, $3, $4)")
            .bind(resource.as_str())
            .bind(&self.settings.name)
            .bind(i64::try_from(number).map_err(FenceError::caller)?)
            .bind(i64::try_from(token.get()).map_err(FenceError::caller)?)
            .execute(tx.conn())
            .await?;
        tx.commit().await
    }

    fn tell(&self, event: Event) -> anyhow::Result<()> {
        let line = Line {
            client: self.settings.name.clone(),
            event,
        };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(history.write_all(text.as_bytes())?)
    }
}

fn told(result: Result<(), FenceError>) -> Told {
    match result {
        Ok(()) => Told::Accepted,
        Err(FenceError::Stale { highest, .. }) => Told::Refused { highest },
        Err(error) if error.may_have_landed() => unknown(&error.to_string()),
        Err(error) => Told::Failed {
            cause: error.to_string(),
        },
    }
}

fn unknown(cause: &str) -> Told {
    Told::Unknown {
        cause: cause.to_owned(),
    }
}
