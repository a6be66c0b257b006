//! The stage of the small examples: a lock server, two holders, and a pause where nobody can see it.
//!
//! Each of `postgres_rows`, `s3_object` and `axum_service` is a [`GuardedResource`], and plays the same scene on it. `ann` is a
//! process of its own. It looks at its grant, is frozen before it writes, and sleeps through the end of its lease; `bob`
//! is the next holder, and writes; `ann` wakes up, and its write goes out all the same. It must be refused.

#[cfg(feature = "axum")]
pub mod http;
mod processes;
#[cfg(feature = "s3")]
pub mod s3;
pub mod servers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use monolock_adapters::{FenceError, Grant};
use monolock_client::{Client, Guard};
use monolock_server::{Config, Server, StartGate};

use processes::Ann;
use servers::Running;

/// What an example shows: something that only the holder of a lock may write.
#[allow(async_fn_in_trait, reason = "the futures stay on the thread that made them")]
pub trait GuardedResource: Sized {
    /// The lock that guards it.
    const LOCK: &str;

    /// Connects to it: any number of processes do.
    ///
    /// # Errors
    ///
    /// When it cannot be reached.
    async fn open(address: &str) -> Result<Self>;

    /// Prepares it once, before the first write.
    ///
    /// # Errors
    ///
    /// When it cannot be used.
    async fn prepare(&self) -> Result<()>;

    /// Writes while a lock is held.
    ///
    /// # Errors
    ///
    /// What became of the write, if it was not accepted.
    async fn write(&self, grant: &dyn Grant, text: &str) -> Result<(), FenceError>;

    /// What was written last, for anybody to read.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    async fn read(&self) -> Result<String>;
}

/// Plays the scene on a resource that is started for it. The exit code is 0 only if the stale write, and nothing else,
/// was refused.
pub async fn play<R: GuardedResource>(start: impl AsyncFnOnce(PathBuf) -> Result<Running>) -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let played = match arguments.as_slice() {
        [] => direct::<R>(start).await,
        [locks, resource] => ann::<R>(locks, resource).await,
        _ => Err(anyhow::anyhow!("this program takes no arguments")),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

const LEASE: Duration = Duration::from_secs(2);

async fn direct<R: GuardedResource>(start: impl AsyncFnOnce(PathBuf) -> Result<Running>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let running = start(folder.path().to_owned()).await?;
    let config = Config {
        listen: "127.0.0.1:0".to_owned(),
        ..Config::default()
    };
    let server = Server::start(config, StartGate::Open).await?;
    let locks = server.handle().lock_addr().to_string();
    println!(
        "The lock server is at {locks}, {} at {}",
        running.name, running.address
    );
    let resource = R::open(&running.address).await?;
    resource.prepare().await?;

    let mut ann = Ann::start(&locks, &running.address)?;
    ann.wait_until_frozen().await?;
    println!("      ann is frozen (SIGSTOP). Its lease of {LEASE:?} runs out");
    let bob = acquire::<R>("bob", &locks).await?;
    tell("bob", "writes", &resource.write(&bob, "written by bob").await)?;
    println!("      ann wakes up (SIGCONT)");
    ann.thaw()?;
    ann.finish().await?;

    let found = resource.read().await?;
    println!("      a reader finds {found:?}");
    if found != "written by bob" {
        bail!("the stale write was not refused");
    }
    bob.release();
    server.shutdown().await;
    Ok(())
}

/// The holder that is paused at the worst moment.
async fn ann<R: GuardedResource>(locks: &str, resource: &str) -> Result<()> {
    let resource = R::open(resource).await?;
    let guard = acquire::<R>("ann", locks).await?;
    if !tell("ann", "writes", &resource.write(&guard, "written by ann").await)? {
        bail!("a holder was refused");
    }

    let look = guard.stamp()?;
    println!("ann   looks: it holds the lock. It is about to write");
    processes::freeze_this_one()?;
    let late = resource.write(&look, "written by ann, too late").await;
    let passed = tell("ann", "writes what it was about to write", &late)?;
    let asked_first = resource.write(&guard, "written by ann, too late").await;
    let passed_again = tell("ann", "looks at its grant before the next write", &asked_first)?;
    if passed || passed_again {
        bail!("a stale write was accepted");
    }
    Ok(())
}

async fn acquire<R: GuardedResource>(who: &str, locks: &str) -> Result<Guard> {
    let guard = Client::new(locks)?.acquire(R::LOCK, LEASE).await?;
    println!("{who}   holds {:?} with token {}", R::LOCK, guard.token()?);
    Ok(guard)
}

/// Says what became of a write; false when the lock was lost.
fn tell(who: &str, what: &str, result: &Result<(), FenceError>) -> Result<bool> {
    match result {
        Ok(()) => println!("{who}   {what}: accepted"),
        Err(error) if error.is_lock_lost() => println!("{who}   {what}: REFUSED, {error}"),
        Err(error) => bail!("{who} {what}: {error}"),
    }
    Ok(result.is_ok())
}
