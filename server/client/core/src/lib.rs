//! What a client of the monolock lock server decides, without I/O.
//!
//! Pure: bytes, times and random numbers come in, decisions go out, so that it is simulated and tested as it is.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`session`] | what to send, when, and when a claim is over |
//! | [`backoff`] | how long to wait before the next attempt |

pub mod backoff;
#[doc(hidden)]
pub mod rules;
pub mod session;
