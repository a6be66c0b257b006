//! Hold a monolock lock exactly while the server confirms it, and stop the work when it is lost.

pub mod session;

pub use monolock_protocol::{ErrorClass, ErrorCode, Lease, LockName, Token};
pub use session::{Lost, Violation};
