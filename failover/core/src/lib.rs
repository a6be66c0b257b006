//! How a pair of monolock servers decides which of them is active; pure.
