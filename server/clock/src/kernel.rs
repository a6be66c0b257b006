//! What the kernel thinks of its wall clock: the one system call that no crate offers to read with.
#![allow(unsafe_code, reason = "this module exists for one call of adjtimex")]

use std::io;
use std::time::Duration;

/// What the kernel has been told about its wall clock, by whatever disciplines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelClock {
    /// Whether something says that it disciplines the clock.
    pub synchronised: bool,
    /// How wrong the clock may be; grows until it is told anew.
    pub max_error: Duration,
    /// How wrong the clock is believed to be.
    pub estimated_error: Duration,
}

/// Reads the kernel's state; changes nothing and needs no privilege.
///
/// # Errors
///
/// When the system refuses the call, as a sandbox may.
pub fn kernel_clock() -> io::Result<KernelClock> {
    // SAFETY: `timex` consists of integers, for which all zeros are a value; no mode set means that nothing is changed.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `timex` of our own, which lives until the call returns, and the call keeps nothing.
    let clock_state = unsafe { libc::adjtimex(&raw mut state) };
    if clock_state < 0 {
        return Err(io::Error::last_os_error());
    }
    let micros = |count: libc::c_long| Duration::from_micros(u64::try_from(count).unwrap_or(0));
    Ok(KernelClock {
        synchronised: clock_state != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0,
        max_error: micros(state.maxerror),
        estimated_error: micros(state.esterror),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_wrong_its_clock_may_be() {
        let kernel = kernel_clock().expect("reading is allowed");
        assert!(kernel.max_error >= kernel.estimated_error, "{kernel:?}");
        // What nobody disciplines is at its largest error.
        assert!(
            kernel.synchronised || kernel.max_error >= Duration::from_secs(1),
            "{kernel:?}"
        );
    }
}
