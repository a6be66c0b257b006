//! Clients that do one thing again and again, and how often they get it done.

use std::time::Duration;

use anyhow::Result;
use monolock_clock::boot_now;
use tokio::task::JoinSet;

/// A client that can do its one thing again.
pub trait Worker: Send + 'static {
    /// Does it once.
    fn cycle(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// How many cycles a second the workers do together within `turn`.
///
/// # Errors
///
/// The first error of a worker.
pub async fn rate<W: Worker>(workers: Vec<W>, turn: Duration) -> Result<f64> {
    let start = boot_now();
    let deadline = start + turn;
    let mut running = JoinSet::new();
    for mut worker in workers {
        running.spawn(async move {
            let mut cycles = 0_u32;
            while boot_now() < deadline || cycles == 0 {
                worker.cycle().await?;
                cycles += 1;
            }
            anyhow::Ok(cycles)
        });
    }
    let mut cycles = 0;
    while let Some(worker) = running.join_next().await {
        cycles += worker??;
    }
    Ok(f64::from(cycles) / boot_now().saturating_duration_since(start).as_secs_f64())
}
