//! A timer on the boot clock.

use std::time::Duration;

use monolock_protocol::BootInstant;

use crate::boot_now;

/// Tokio's timer stops during suspension. It is asked for at most this much at a time, so that after waking up a
/// deadline is noticed at most this late; where a timer file on the boot clock exists, it wakes at once.
const LONGEST_NAP: Duration = Duration::from_millis(500);

/// Sleeps until a point on the boot clock; returns at once when it has passed. Needs a tokio runtime with time
/// enabled. Cancel safe.
///
/// For one or a few waiters; many deadlines belong into one ordered structure with a single [`BootTimer`].
pub async fn sleep_until(deadline: BootInstant) {
    loop {
        let left = deadline.saturating_duration_since(boot_now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST_NAP)).await;
    }
}

/// A timer on the boot clock that also fires when the machine slept through its deadline.
///
/// On Linux it is a `timerfd` on `CLOCK_BOOTTIME`: armed once, no polling, woken right after a resume. Where that
/// cannot be had (another system, no descriptors left) it falls back to [`sleep_until`].
#[derive(Debug)]
pub struct BootTimer {
    #[cfg(target_os = "linux")]
    timer_fd: Option<tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>>,
}

impl BootTimer {
    /// A timer that is not set. Must be called within a tokio runtime with I/O and time enabled.
    #[must_use]
    pub fn new() -> Self {
        #[cfg(target_os = "linux")]
        {
            use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer_fd = timerfd_create(TimerfdClockId::Boottime, flags)
                .ok()
                .and_then(|fd| register(fd).ok());
            Self { timer_fd }
        }
        #[cfg(not(target_os = "linux"))]
        Self {}
    }

    /// Sleeps until `deadline`; forever when there is none. Returns at once when it has passed. Cancel safe: the next
    /// call sets the timer anew.
    pub async fn sleep_until(&mut self, deadline: Option<BootInstant>) {
        let Some(deadline) = deadline else {
            return std::future::pending().await;
        };
        #[cfg(target_os = "linux")]
        if let Some(timer_fd) = &self.timer_fd {
            while boot_now() < deadline {
                if set(timer_fd.get_ref(), deadline).is_err() {
                    return sleep_until(deadline).await;
                }
                let Ok(mut ready) = timer_fd.readable().await else {
                    return sleep_until(deadline).await;
                };
                ready.clear_ready();
            }
            return;
        }
        sleep_until(deadline).await;
    }
}

impl Default for BootTimer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_os = "linux")]
#[expect(
    deprecated,
    reason = "its successor is unsafe because a descriptor may lie; an OwnedFd does not"
)]
fn register(timer_fd: rustix::fd::OwnedFd) -> std::io::Result<tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>> {
    tokio::io::unix::AsyncFd::new(timer_fd)
}

#[cfg(target_os = "linux")]
fn set(timer_fd: &rustix::fd::OwnedFd, deadline: BootInstant) -> rustix::io::Result<()> {
    use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
    let nanos = deadline.as_nanos();
    let at = Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
    };
    let once = Itimerspec {
        it_interval: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: at,
    };
    timerfd_settime(timer_fd, TimerfdTimerFlags::ABSTIME, &once).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_timer_fires_at_its_deadline_and_can_be_set_again() {
        let mut timer = BootTimer::new();
        for _ in 0..3 {
            let deadline = boot_now() + Duration::from_millis(20);
            timer.sleep_until(Some(deadline)).await;
            assert!(boot_now() >= deadline);
        }
    }

    #[tokio::test]
    async fn a_cancelled_sleep_does_not_shorten_the_next() {
        let mut timer = BootTimer::new();
        let soon = boot_now() + Duration::from_millis(5);
        let _ = tokio::time::timeout(Duration::from_millis(1), timer.sleep_until(Some(soon))).await;
        let deadline = boot_now() + Duration::from_millis(50);
        timer.sleep_until(Some(deadline)).await;
        assert!(boot_now() >= deadline);
    }

    #[tokio::test]
    async fn a_deadline_in_the_past_returns_at_once_and_none_never() {
        let mut timer = BootTimer::new();
        timer.sleep_until(Some(BootInstant::ZERO)).await;
        let never = tokio::time::timeout(Duration::from_millis(20), timer.sleep_until(None)).await;
        assert!(never.is_err());
    }
}
