//! Writes that a resource accepts only with the newest fencing token.
