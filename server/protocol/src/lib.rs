//! Wire protocol version 1 of the monolock lock server, and the values every other crate shares.
//!
//! Nothing in here reads a clock, a socket or a random number: bytes and times come in as arguments, decisions
//! come out as values. A server and a client in any language can be checked against it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`frame`] | the five frames, encoded and decoded |
//! | [`error_code`] | the code of an `ERROR` frame and what a client has to do about it |
//! | [`name`], [`lease`], [`token`] | values that are checked once, at the edge |
//! | [`time`] | the two clocks as values: [`BootInstant`] for elapsed time, [`WallTime`] for data |
//! | [`heartbeat`] | when a client sends its next heartbeat and when it must give its claim up |
//! | [`glob`] | the pattern language of ACL rules and of the admin API's filter |
//!
//! # Example
//!
//! ```
//! use monolock_protocol::frame::{Decoded, ServerFrame, decode_server_frame, encode_acquire};
//! use monolock_protocol::{Lease, LockName, Token};
//!
//! let name = LockName::new("nightly/import")?;
//! let lease = Lease::from_millis(2_000)?;
//! let mut request = Vec::new();
//! encode_acquire(&name, lease, &mut request);
//! assert_eq!(request.len(), 8 + "nightly/import".len());
//!
//! let answer = ServerFrame::Acquired(Token::new(42)).to_bytes();
//! let Decoded::Frame { frame, consumed } = decode_server_frame(&answer)? else { panic!("a whole frame") };
//! assert_eq!((frame, consumed), (ServerFrame::Acquired(Token::new(42)), 9));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod error_code;
pub mod frame;
pub mod glob;
pub mod heartbeat;
pub mod lease;
pub mod name;
pub mod time;
pub mod token;

pub use error_code::{ErrorClass, ErrorCode};
pub use glob::Glob;
pub use heartbeat::HeartbeatSchedule;
pub use lease::Lease;
pub use name::LockName;
pub use time::{BootInstant, WallTime};
pub use token::Token;

/// The only protocol version there is; it travels in every `ACQUIRE`.
pub const PROTOCOL_VERSION: u8 = 1;
