//! What is known of a node's clock, for the status, the page and the metrics. JSON; a later version may add to it.

use std::fmt;
use std::time::Duration;

use monolock_failover_core::clock::Measured;
use serde::{Deserialize, Serialize};

/// What a node thinks of its wall clock, and why.
///
/// Offsets are what must be added to the clock: more than zero when it is behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReport {
    /// The verdict.
    pub verdict: VerdictWord,
    /// The verdict in a sentence.
    pub reason: String,
    /// How far the clock is off by a majority of the time servers, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_us: Option<i64>,
    /// How wrong that may be, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_us: Option<u64>,
    /// Whether the operator vouches for the clock at a first start.
    #[serde(default)]
    pub trusted_by_operator: bool,
    /// How often the clock was set since the node started.
    #[serde(default)]
    pub steps: u64,
    /// Each time server.
    #[serde(default)]
    pub servers: Vec<ServerReport>,
    /// The other node's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<MeasuredReport>,
    /// What the kernel has been told about the clock; absent where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelReport>,
}

/// What a node thinks of its wall clock, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictWord {
    /// A majority of the time servers agrees that it is right.
    Synced,
    /// Something speaks against it.
    Suspect,
    /// Nothing speaks for it; also a word of a later version.
    #[serde(other)]
    Unknown,
}

/// One time server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    /// As it is configured.
    pub server: String,
    /// What it said last, unless that is too old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredReport>,
    /// Why it gave no answer the last time, if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How far the clock is off another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredReport {
    /// What must be added to this clock, in microseconds.
    pub offset_us: i64,
    /// How wrong that may be, in microseconds.
    pub error_us: u64,
    /// How long ago it was measured, in milliseconds.
    pub age_ms: u64,
}

/// The kernel's own opinion; shown, and no part of the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Whether something says that it disciplines the clock.
    pub synchronised: bool,
    /// How wrong the clock may be, in microseconds.
    pub max_error_us: u64,
}

impl From<Measured> for MeasuredReport {
    fn from(measured: Measured) -> Self {
        Self {
            offset_us: measured.offset.as_nanos() / 1_000,
            error_us: micros(measured.error),
            age_ms: u64::try_from(measured.age.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(target_os = "linux")]
impl From<monolock_clock::KernelClock> for KernelReport {
    fn from(kernel: monolock_clock::KernelClock) -> Self {
        Self {
            synchronised: kernel.synchronised,
            max_error_us: micros(kernel.max_error),
        }
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Several lines: the verdict, then each thing that was measured.
impl fmt::Display for ClockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clock {}", self.reason)?;
        if self.trusted_by_operator {
            f.write_str("; the operator vouches for it at a first start")?;
        }
        match self.steps {
            0 => {}
            1 => f.write_str("; set once since the start")?,
            times => write!(f, "; set {times} times since the start")?,
        }
        for ServerReport {
            server,
            measured,
            problem,
        } in &self.servers
        {
            write!(f, "\n    time server {server}: ")?;
            match (measured, problem) {
                (Some(measured), None) => write!(f, "{measured}")?,
                (Some(measured), Some(problem)) => write!(f, "{measured}; then: {problem}")?,
                (None, Some(problem)) => f.write_str(problem)?,
                (None, None) => f.write_str("not heard yet")?,
            }
        }
        if let Some(peer) = &self.peer {
            write!(f, "\n    the peer's clock: {peer}")?;
        }
        if let Some(kernel) = &self.kernel {
            let state = if kernel.synchronised {
                "synchronised"
            } else {
                "not synchronised"
            };
            write!(
                f,
                "\n    the kernel: {state}, at most {} wrong",
                Micros(kernel.max_error_us)
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for MeasuredReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.offset_us < 0 { "ahead" } else { "behind" };
        let (off, error) = (Micros(self.offset_us.unsigned_abs()), Micros(self.error_us));
        write!(
            f,
            "{off} {side}, give or take {error}, {} s ago",
            self.age_ms / 1_000
        )
    }
}

/// In milliseconds below a second, in seconds above.
struct Micros(u64);

impl fmt::Display for Micros {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            small @ 0..1_000_000 => write!(f, "{:.1} ms", small as f64 / 1e3),
            large => write!(f, "{:.3} s", large as f64 / 1e6),
        }
    }
}
