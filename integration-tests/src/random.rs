//! Randomness that a failed test can repeat.

use std::env;

pub use fastrand::Rng;

const SEED: &str = "MONOLOCK_TEST_SEED";

/// A generator whose seed is printed, and so shown when the test fails; `MONOLOCK_TEST_SEED` repeats a run.
///
/// # Panics
///
/// When `MONOLOCK_TEST_SEED` is no number.
#[must_use]
pub fn seeded() -> Rng {
    let seed = match env::var(SEED) {
        Ok(seed) => seed
            .parse()
            .unwrap_or_else(|_| panic!("{SEED}={seed}: not a number")),
        Err(_) => fastrand::u64(..),
    };
    println!("{SEED}={seed}");
    Rng::with_seed(seed)
}
