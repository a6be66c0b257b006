//! What the tests of all stores share: the conformance suite, and real servers started from local binaries.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses a part of it"
)]

pub mod history;
pub mod mariadb;
#[cfg(feature = "s3")]
pub mod ministack;
#[cfg(feature = "s3")]
pub mod objects;
pub mod pauses;
pub mod postgres;
pub mod proxy;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "s3")]
pub mod rgw;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod rows;
pub mod server;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod sql;
pub mod suite;

/// A seed for this run: from `MONOLOCK_TEST_SEED` to repeat one, else random. Printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let seed = std::env::var("MONOLOCK_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    eprintln!("MONOLOCK_TEST_SEED={seed}");
    seed
}
