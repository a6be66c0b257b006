//! Runnable programs around monolock, the pair demo first.
