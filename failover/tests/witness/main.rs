//! One conformance suite for every witness, against the real store, and what each has of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/bind.rs"]
mod bind;
mod dns;
mod file;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "s3")]
mod s3;
mod suite;
