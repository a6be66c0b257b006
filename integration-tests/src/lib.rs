//! Real servers, real processes, real failures.
