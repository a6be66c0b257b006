//! A lock server that hands out fencing tokens.
