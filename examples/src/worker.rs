//! A program that writes a guarded row while it holds a lock.
//!
//! It is written the way such programs are: it looks whether it still holds the lock, works for a while, and writes.
//! Between the look and the write it can be frozen for as long as anybody likes. Only the resource can refuse the write
//! then, and only because the write carries the token of the look.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use monolock_client::{Client, Guard};
use monolock_clock::boot_now;
use monolock_protocol::Token;
use serde::{Deserialize, Serialize};

use crate::ledger::{self, Database, Ledger};

/// How a worker is started.
#[derive(Clone, Debug, clap::Parser)]
pub struct Settings {
    /// What it calls itself
    #[arg(long)]
    pub name: String,
    /// The lock server's name and port
    #[arg(long)]
    pub server: String,
    /// DNS servers to ask for the name
    #[arg(long, value_delimiter = ',')]
    pub dns: Vec<SocketAddr>,
    /// The lock
    #[arg(long)]
    pub lock: String,
    /// The lease, in milliseconds
    #[arg(long)]
    pub lease_ms: u64,
    /// The guarded resource
    #[arg(long)]
    pub database: Database,
}

/// A line of a worker's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Who.
    pub worker: String,
    /// When, on the machine's boot clock, in nanoseconds.
    pub boot_nanos: u64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What a worker tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// It holds the lock.
    Acquired {
        /// The token of the grant.
        token: Token,
        /// The server that granted.
        server: SocketAddr,
    },
    /// It has seen that it holds the lock, and works towards a write.
    Working {
        /// The token the write will carry.
        token: Token,
    },
    /// The resource accepted a write.
    Wrote {
        /// The token it carried.
        token: Token,
    },
    /// The resource refused a write.
    Refused {
        /// The token it carried.
        token: Token,
        /// The highest token the resource had accepted.
        highest: Token,
    },
    /// The lock is lost, and the client says why.
    Lost {
        /// Why.
        cause: String,
    },
}

/// How long the worker thinks between the look and the write: where the pause of the demo falls.
pub const WORK: Duration = Duration::from_millis(150);

/// Works until the process is ended. Every line goes to stdout.
///
/// # Errors
///
/// When the ledger cannot be opened or the lock cannot be asked for; a lost lock is no error.
pub async fn run(settings: Settings) -> Result<()> {
    let ledger = Ledger::open(&settings.database).await?;
    let client = Client::builder(&settings.server)
        .dns_servers(settings.dns.clone())
        .build()?;
    let lease = Duration::from_millis(settings.lease_ms);
    loop {
        let guard = client
            .claim(&settings.lock, lease)
            .acquire_with_retry()
            .await
            .with_context(|| format!("cannot ask for {:?}", settings.lock))?;
        if let Ok(token) = guard.token() {
            tell(
                &settings.name,
                Event::Acquired {
                    token,
                    server: guard.server(),
                },
            )?;
            hold(&settings, &ledger, &guard).await?;
        }
    }
}

/// Works while the lock is held.
async fn hold(settings: &Settings, ledger: &Ledger, guard: &Guard) -> Result<()> {
    let resource = ledger::resource(&settings.lock)?;
    loop {
        let token = match guard.token() {
            Ok(token) => token,
            Err(lost) => {
                return tell(
                    &settings.name,
                    Event::Lost {
                        cause: lost.to_string(),
                    },
                );
            }
        };
        tell(&settings.name, Event::Working { token })?;
        // Busy on purpose: heartbeats leave from a thread of the client's own.
        std::thread::sleep(WORK);
        match ledger.write(&resource.stamp(token), &settings.name).await {
            Ok(()) => tell(&settings.name, Event::Wrote { token })?,
            Err(monolock_adapters::FenceError::Stale { highest, .. }) => {
                tell(&settings.name, Event::Refused { token, highest })?;
                // The client has noticed as well, and says why.
                let cause = guard.lost().await.to_string();
                return tell(&settings.name, Event::Lost { cause });
            }
            Err(error) => return Err(error).context("the ledger cannot be written"),
        }
    }
}

fn tell(worker: &str, event: Event) -> Result<()> {
    let line = Line {
        worker: worker.to_owned(),
        boot_nanos: boot_now().as_nanos(),
        event,
    };
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, &line)?;
    stdout.write_all(b"\n")?;
    stdout.flush().context("nobody listens to the worker")
}
