//! How often a lost race is tried again, and how long to wait in between.

use std::time::Duration;

use crate::FenceError;

/// Bounds for trying again after a conflict: so many attempts in all, with full jitter between them (each pause is
/// random between zero and a bound that doubles, up to a cap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    attempts: u32,
    first: Duration,
    cap: Duration,
}

impl Retry {
    /// One attempt, no retry.
    pub const NEVER: Self = Self {
        attempts: 1,
        first: Duration::ZERO,
        cap: Duration::ZERO,
    };

    /// So many attempts in all (at least one), pauses up to `first`, doubling up to `cap`.
    #[must_use]
    pub const fn new(attempts: u32, first: Duration, cap: Duration) -> Self {
        Self {
            attempts: if attempts == 0 { 1 } else { attempts },
            first,
            cap,
        }
    }

    /// The number of attempts in all.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The longest pause after this failed attempt (1 is the first); none when it was the last.
    #[must_use]
    pub fn longest_pause_after(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let factor = 1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        Some(self.first.saturating_mul(factor).min(self.cap))
    }

    /// Runs an operation until it ends in anything but [`FenceError::Conflict`], or the attempts are used up. The
    /// operation starts from the beginning each time: a whole transaction, not its last statement.
    ///
    /// # Errors
    ///
    /// Those of the operation; a conflict carries the number of attempts.
    pub async fn run<T, F, Fut>(&self, mut operation: F) -> Result<T, FenceError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, FenceError>>,
    {
        let mut attempt = 1;
        loop {
            match operation().await {
                Err(FenceError::Conflict { source, .. }) => {
                    if !self.pause_after(attempt).await {
                        return Err(FenceError::Conflict {
                            attempts: attempt,
                            source,
                        });
                    }
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits before the next attempt; false when there is none left.
    pub(crate) async fn pause_after(&self, attempt: u32) -> bool {
        let Some(longest) = self.longest_pause_after(attempt) else {
            return false;
        };
        tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
        true
    }
}

impl Default for Retry {
    /// 16 attempts, pauses from 5 ms up to 500 ms.
    fn default() -> Self {
        Self::new(16, Duration::from_millis(5), Duration::from_millis(500))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_end() {
        let retry = Retry::new(5, Duration::from_millis(10), Duration::from_millis(35));
        let pauses: Vec<_> = (1..=5)
            .map(|attempt| retry.longest_pause_after(attempt))
            .collect();
        let millis = |n| Some(Duration::from_millis(n));
        assert_eq!(pauses, [millis(10), millis(20), millis(35), millis(35), None]);
        assert_eq!(Retry::NEVER.longest_pause_after(1), None);
        assert_eq!(Retry::new(0, Duration::ZERO, Duration::ZERO).attempts(), 1);
    }
}
