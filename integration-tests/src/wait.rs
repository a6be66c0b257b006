//! Waiting for a condition, bounded.

use std::thread;
use std::time::Duration;

use monolock_clock::boot_now;

/// How long a test waits for something that must happen: far longer than it takes on a machine under load, so that
/// running out of it means that the thing does not happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls until `condition` holds.
///
/// # Panics
///
/// When it does not hold within [`PATIENCE`]; `what` completes the sentence "waited for ...".
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Polls until `attempt` gives a value.
///
/// # Panics
///
/// When it gives none within [`PATIENCE`]; `what` completes the sentence "waited for ...".
#[track_caller]
pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = boot_now() + PATIENCE;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(
            boot_now() < deadline,
            "waited for {what}: not within {PATIENCE:?}"
        );
        thread::sleep(POLL_INTERVAL);
    }
}
