//! Both clocks at once, in the order the lock table asks for.

use monolock_core::Now;

/// Reads the wall clock, then the boot clock: see [`Now`].
pub(crate) fn now() -> Now {
    let wall = monolock_clock::wall_now();
    let boot = monolock_clock::boot_now();
    Now { wall, boot }
}
