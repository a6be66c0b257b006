//! The clock check of a running node: who asks the time servers, and who is asked for the verdict.
//!
//! What the answers amount to is decided in [`monolock_failover_core::clock`]. Here, a task for each configured
//! server asks it for ever, and [`NodeClock::judge`] reads both clocks and gives the verdict on that very reading: a step
//! that comes later is not covered by it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolock_clock::both_now;
use monolock_failover_core::clock::{
    ClockCheck, ClockLimits, ClockOffset, ClockReading, ClockSample, Uncertainty, Verdict,
};
use monolock_protocol::{BootInstant, WallTime};
use tokio::sync::watch;

use crate::config::ClockConfig;
use crate::peer::PeerAddress;

mod report;
mod sntp;

pub use report::{ClockReport, KernelReport, MeasuredReport, ServerReport, VerdictWord};
pub use sntp::SntpFailure;

/// The clock of this node, and what is known about it. Shared by the tasks that measure and those that ask.
#[derive(Debug)]
pub struct NodeClock {
    config: ClockConfig,
    known: Mutex<Known>,
    /// Counts the steps that were seen, for those who must measure anew.
    steps: watch::Sender<u64>,
}

#[derive(Debug)]
struct Known {
    check: ClockCheck,
    /// Why each server gave no answer the last time.
    problems: Vec<Option<SntpFailure>>,
    /// The last verdict that was logged; the one that every check begins with is not worth a line.
    logged: &'static str,
}

/// A reading of both clocks, and what to think of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The reading.
    pub reading: ClockReading,
    /// The verdict on it.
    pub verdict: Verdict,
}

impl NodeClock {
    /// A clock that has not been compared with anything.
    #[must_use]
    pub fn new(config: ClockConfig) -> Self {
        let servers = config.servers.len();
        let limits = ClockLimits {
            servers,
            max_offset: config.max_offset,
            max_age: config.poll_interval * POLLS_THAT_MAY_FAIL,
        };
        let known = Known {
            check: ClockCheck::new(limits),
            problems: vec![None; servers],
            logged: Verdict::Unknown(Uncertainty::NotConfigured).as_str(),
        };
        Self {
            config,
            known: Mutex::new(known),
            steps: watch::Sender::new(0),
        }
    }

    /// Reads both clocks and judges the reading.
    pub fn judge(&self) -> Judgement {
        let mut known = self.known();
        let (wall, boot) = both_now();
        let reading = ClockReading { wall, boot };
        if let Some(by) = known.check.handle_reading(reading) {
            tracing::warn!(
                by_seconds = by.as_secs_f64(),
                "the wall clock was set: what was measured before is void"
            );
            self.steps.send_replace(known.check.steps());
        }
        let verdict = known.check.verdict(reading);
        if !self.config.servers.is_empty() {
            known.log(&verdict);
        }
        Judgement { reading, verdict }
    }

    /// Whether a pair that knows no floor may begin at this reading's second.
    #[must_use]
    pub fn allows_first_start(&self, verdict: &Verdict) -> bool {
        self.config.trusted || verdict.allows_first_start()
    }

    /// The peer said what its wall clock shows, between these two readings of this machine's boot clock.
    pub fn note_peer(&self, shows: WallTime, sent: BootInstant, received: BootInstant) {
        let mut known = self.known();
        let (wall, boot) = both_now();
        let round_trip = received.saturating_duration_since(sent);
        let told_at = sent + round_trip / 2;
        // What this clock showed then, unless it was set since, which the check notices by the reading.
        let own = wall.saturating_sub(boot.saturating_duration_since(told_at));
        known.check.handle_peer(ClockSample {
            offset: ClockOffset::between(own, shows),
            error: round_trip / 2,
            reading: ClockReading {
                wall: own,
                boot: told_at,
            },
        });
    }

    /// Everything that is known now.
    #[must_use]
    pub fn report(&self) -> ClockReport {
        let Judgement { reading, verdict } = self.judge();
        let known = self.known();
        let servers = self.config.servers.iter().zip(&known.problems).enumerate();
        let agreed = verdict.agreed();
        ClockReport {
            verdict: match verdict {
                Verdict::Synced { .. } => VerdictWord::Synced,
                Verdict::Suspect(_) => VerdictWord::Suspect,
                Verdict::Unknown(_) => VerdictWord::Unknown,
            },
            reason: verdict.to_string(),
            offset_us: agreed.map(|(offset, _)| offset.as_nanos() / 1_000),
            error_us: agreed.map(|(_, error)| report::micros(error)),
            trusted_by_operator: self.config.trusted,
            steps: known.check.steps(),
            servers: servers
                .map(|(index, (server, problem))| ServerReport {
                    server: server.to_string(),
                    measured: known.check.server(index, reading).map(Into::into),
                    problem: problem.as_ref().map(ToString::to_string),
                })
                .collect(),
            peer: known.check.peer(reading).map(Into::into),
            kernel: kernel(),
        }
    }

    /// Asks every configured server, for ever.
    pub async fn keep_asking(self: Arc<Self>) {
        let mut asking = tokio::task::JoinSet::new();
        for (index, server) in self.config.servers.iter().enumerate() {
            asking.spawn(Arc::clone(&self).keep_asking_one(index, server.clone()));
        }
        // Dropped with this future, the set ends them.
        while asking.join_next().await.is_some() {}
    }

    async fn keep_asking_one(self: Arc<Self>, index: usize, server: PeerAddress) {
        let longest = self.config.poll_interval;
        let mut retry = FIRST_RETRY.min(longest);
        let mut steps = self.steps.subscribe();
        loop {
            let outcome = sntp::ask(&server).await;
            let pause = match &outcome {
                Ok(_) => {
                    retry = FIRST_RETRY.min(longest);
                    longest
                }
                Err(SntpFailure::Unwanted(_)) => longest * POLLS_LEFT_OUT,
                Err(SntpFailure::Unresolved(_) | SntpFailure::Silent(_) | SntpFailure::Useless(_)) => {
                    let pause = retry;
                    retry = (retry * 2).min(longest);
                    pause
                }
            };
            self.note_answer(index, &server, outcome);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // The sender is a part of this clock: it is not gone.
                _ = steps.changed() => {}
            }
        }
    }

    fn note_answer(&self, index: usize, server: &PeerAddress, outcome: Result<ClockSample, SntpFailure>) {
        let mut known = self.known();
        let problem = match outcome {
            Ok(sample) => {
                known.check.handle_sample(index, sample);
                None
            }
            Err(failure) => Some(failure),
        };
        if known.problems[index] != problem {
            match &problem {
                Some(failure) => tracing::warn!(%server, %failure, "a time server gives no time"),
                None => tracing::info!(%server, "a time server gives the time again"),
            }
            known.problems[index] = problem;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn log(&mut self, verdict: &Verdict) {
        let word = verdict.as_str();
        if std::mem::replace(&mut self.logged, word) == word {
            return;
        }
        match verdict {
            Verdict::Synced { .. } => tracing::info!(%verdict, "the wall clock"),
            Verdict::Suspect(_) | Verdict::Unknown(_) => tracing::warn!(%verdict, "the wall clock"),
        }
    }
}

#[cfg(target_os = "linux")]
fn kernel() -> Option<KernelReport> {
    monolock_clock::kernel_clock().ok().map(Into::into)
}

#[cfg(not(target_os = "linux"))]
fn kernel() -> Option<KernelReport> {
    None
}

/// An answer counts until so many intervals have passed without another.
const POLLS_THAT_MAY_FAIL: u32 = 4;
/// A server that does not want to be asked is left alone for so many intervals.
const POLLS_LEFT_OUT: u32 = 16;
/// How soon a server is asked again after the first failure; each later one doubles it, up to the interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
