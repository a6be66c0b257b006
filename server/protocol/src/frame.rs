//! The frames, byte by byte. All integers are big endian; frames are self-delimiting.
//!
//! | frame | bytes | sent by |
//! | --- | --- | --- |
//! | `ACQUIRE` | `01` version:u8 lease_ms:u32 name_len:u16 name | client, first and only once |
//! | `HEARTBEAT` | `02` | client |
//! | `WAITING` | `11` | server |
//! | `ACQUIRED` | `12` token:u64 | server |
//! | `ERROR` | `13` code:u8 reason_len:u8 reason | server, which then closes |
//!
//! Decoding keeps no state: it is given what has arrived so far and says what that starts with. A frame is refused as
//! early as its bytes allow, so that a client that sends half a wrong frame need not be waited for.

use crate::PROTOCOL_VERSION;
use crate::error_code::ErrorCode;
use crate::lease::Lease;
use crate::name::{LockName, LockNameError, MAX_NAME_LEN};
use crate::token::Token;

const ACQUIRE: u8 = 0x01;
const HEARTBEAT: u8 = 0x02;
const WAITING: u8 = 0x11;
const ACQUIRED: u8 = 0x12;
const ERROR: u8 = 0x13;

const ACQUIRE_HEADER_LEN: usize = 8;

/// The largest frame a client can send, in bytes.
pub const MAX_CLIENT_FRAME_LEN: usize = ACQUIRE_HEADER_LEN + MAX_NAME_LEN;

/// The largest frame a server can send, in bytes.
pub const MAX_SERVER_FRAME_LEN: usize = 3 + u8::MAX as usize;

/// The `HEARTBEAT` frame.
pub const HEARTBEAT_FRAME: [u8; 1] = [HEARTBEAT];

/// What the bytes received so far start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<F> {
    /// A whole frame, and how many bytes it took.
    Frame {
        /// The frame.
        frame: F,
        /// Its length in bytes.
        consumed: usize,
    },
    /// The start of a frame that may still become valid.
    Incomplete,
}

/// A frame sent by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFrame {
    /// The claim of a session.
    Acquire {
        /// The lock asked for.
        name: LockName,
        /// How long the session may be silent.
        lease: Lease,
    },
    /// A sign of life; the answer is the session's state.
    Heartbeat,
}

/// Where a session stands: what it may send next depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPhase {
    /// Nothing was received yet: only `ACQUIRE` may come.
    AwaitingAcquire,
    /// The claim was made: only `HEARTBEAT` may come.
    Claimed,
}

/// A client broke the protocol; the server answers with [`ProtocolViolation::code`] and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// See [`ErrorCode::UnsupportedVersion`].
    #[error("unsupported protocol version: {version}")]
    UnsupportedVersion {
        /// The version the client asked for.
        version: u8,
    },
    /// See [`ErrorCode::FirstMessageMustBeAcquire`].
    #[error("first message must be ACQUIRE")]
    FirstMessageMustBeAcquire,
    /// See [`ErrorCode::DuplicateAcquire`].
    #[error("duplicate ACQUIRE")]
    DuplicateAcquire,
    /// See [`ErrorCode::UnknownMessageType`].
    #[error("unknown message type: 0x{message_type:02x}")]
    UnknownMessageType {
        /// The byte found.
        message_type: u8,
    },
    /// See [`ErrorCode::EmptyName`].
    #[error("empty lock name")]
    EmptyName,
    /// See [`ErrorCode::NameTooLong`].
    #[error("lock name longer than 255 bytes: {len}")]
    NameTooLong {
        /// The length announced, in bytes.
        len: usize,
    },
    /// See [`ErrorCode::NameNotUtf8`].
    #[error("lock name is not valid UTF-8")]
    NameNotUtf8,
    /// See [`ErrorCode::LeaseNotPositive`].
    #[error("lease must be positive")]
    LeaseNotPositive,
}

impl ProtocolViolation {
    /// The code that goes into the `ERROR` frame; the violation's own text is the reason.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::UnsupportedVersion { .. } => ErrorCode::UnsupportedVersion,
            Self::FirstMessageMustBeAcquire => ErrorCode::FirstMessageMustBeAcquire,
            Self::DuplicateAcquire => ErrorCode::DuplicateAcquire,
            Self::UnknownMessageType { .. } => ErrorCode::UnknownMessageType,
            Self::EmptyName => ErrorCode::EmptyName,
            Self::NameTooLong { .. } => ErrorCode::NameTooLong,
            Self::NameNotUtf8 => ErrorCode::NameNotUtf8,
            Self::LeaseNotPositive => ErrorCode::LeaseNotPositive,
        }
    }
}

impl From<LockNameError> for ProtocolViolation {
    fn from(error: LockNameError) -> Self {
        match error {
            LockNameError::Empty => Self::EmptyName,
            LockNameError::TooLong { len } => Self::NameTooLong { len },
            LockNameError::NotUtf8 => Self::NameNotUtf8,
        }
    }
}

/// Decodes the frame that `received` starts with, for a session in `phase`.
///
/// # Errors
///
/// A [`ProtocolViolation`] as soon as no further byte could make the frame valid.
pub fn decode_client_frame(
    received: &[u8],
    phase: SessionPhase,
) -> Result<Decoded<ClientFrame>, ProtocolViolation> {
    let Some(&message_type) = received.first() else {
        return Ok(Decoded::Incomplete);
    };
    match (message_type, phase) {
        (ACQUIRE, SessionPhase::AwaitingAcquire) => decode_acquire(received),
        (HEARTBEAT, SessionPhase::Claimed) => Ok(Decoded::Frame {
            frame: ClientFrame::Heartbeat,
            consumed: HEARTBEAT_FRAME.len(),
        }),
        (ACQUIRE, SessionPhase::Claimed) => Err(ProtocolViolation::DuplicateAcquire),
        (HEARTBEAT, SessionPhase::AwaitingAcquire) => Err(ProtocolViolation::FirstMessageMustBeAcquire),
        (message_type, _) => Err(ProtocolViolation::UnknownMessageType { message_type }),
    }
}

fn decode_acquire(received: &[u8]) -> Result<Decoded<ClientFrame>, ProtocolViolation> {
    if let Some(&version) = received.get(1)
        && version != PROTOCOL_VERSION
    {
        return Err(ProtocolViolation::UnsupportedVersion { version });
    }
    let Some((header, rest)) = received.split_first_chunk::<ACQUIRE_HEADER_LEN>() else {
        return Ok(Decoded::Incomplete);
    };
    let [_, _, l0, l1, l2, l3, n0, n1] = *header;
    let lease = Lease::from_millis(u32::from_be_bytes([l0, l1, l2, l3]))
        .map_err(|_| ProtocolViolation::LeaseNotPositive)?;
    let name_len = usize::from(u16::from_be_bytes([n0, n1]));
    if name_len == 0 {
        return Err(ProtocolViolation::EmptyName);
    }
    if name_len > MAX_NAME_LEN {
        return Err(ProtocolViolation::NameTooLong { len: name_len });
    }
    let Some(name) = rest.get(..name_len) else {
        return Ok(Decoded::Incomplete);
    };
    let frame = ClientFrame::Acquire {
        name: LockName::from_bytes(name)?,
        lease,
    };
    Ok(Decoded::Frame {
        frame,
        consumed: ACQUIRE_HEADER_LEN + name_len,
    })
}

/// Appends an `ACQUIRE` frame.
pub fn encode_acquire(name: &LockName, lease: Lease, out: &mut Vec<u8>) {
    let name = name.as_str().as_bytes();
    let name_len = u16::try_from(name.len()).expect("a LockName has at most 255 bytes");
    out.reserve(ACQUIRE_HEADER_LEN + name.len());
    out.extend([ACQUIRE, PROTOCOL_VERSION]);
    out.extend(lease.as_millis().to_be_bytes());
    out.extend(name_len.to_be_bytes());
    out.extend(name);
}

/// A frame sent by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFrame {
    /// The claim is queued.
    Waiting,
    /// The claim holds the lock; every one of a session carries the same token.
    Acquired(Token),
    /// The session is over.
    Error {
        /// What to do about it: see [`ErrorCode::class`].
        code: ErrorCode,
        /// For people; may be empty.
        reason: String,
    },
}

impl ServerFrame {
    /// An `ERROR` frame with the canonical text of its code.
    #[must_use]
    pub fn error(code: ErrorCode) -> Self {
        Self::Error {
            code,
            reason: code.text().to_owned(),
        }
    }

    /// Appends the frame. A reason of more than 255 bytes is cut at a character.
    pub fn encode(&self, out: &mut impl Extend<u8>) {
        match self {
            Self::Waiting => out.extend([WAITING]),
            Self::Acquired(token) => {
                out.extend([ACQUIRED]);
                out.extend(token.get().to_be_bytes());
            }
            Self::Error { code, reason } => {
                let reason = &reason[..reason.floor_char_boundary(u8::MAX as usize)];
                let reason_len = u8::try_from(reason.len()).expect("cut to 255 bytes");
                out.extend([ERROR, code.as_u8(), reason_len]);
                out.extend(reason.bytes());
            }
        }
    }

    /// The frame's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

impl From<ProtocolViolation> for ServerFrame {
    fn from(violation: ProtocolViolation) -> Self {
        Self::Error {
            code: violation.code(),
            reason: violation.to_string(),
        }
    }
}

/// A server sent a byte that starts no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown message type from the server: 0x{message_type:02x}")]
pub struct UnknownServerFrame {
    /// The byte found.
    pub message_type: u8,
}

/// Decodes the frame that `received` starts with. A reason that is not UTF-8 is read with replacement characters:
/// it is for people.
///
/// # Errors
///
/// [`UnknownServerFrame`]: the peer does not speak this protocol; close the connection.
pub fn decode_server_frame(received: &[u8]) -> Result<Decoded<ServerFrame>, UnknownServerFrame> {
    let decoded = match received {
        [] => None,
        [WAITING, ..] => Some((ServerFrame::Waiting, 1)),
        [ACQUIRED, rest @ ..] => rest
            .first_chunk::<8>()
            .map(|token| (ServerFrame::Acquired(Token::new(u64::from_be_bytes(*token))), 9)),
        [ERROR, code, reason_len, rest @ ..] => rest.get(..usize::from(*reason_len)).map(|reason| {
            let reason = String::from_utf8_lossy(reason).into_owned();
            (
                ServerFrame::Error {
                    code: ErrorCode::from_u8(*code),
                    reason,
                },
                3 + usize::from(*reason_len),
            )
        }),
        [ERROR, ..] => None,
        [message_type, ..] => {
            return Err(UnknownServerFrame {
                message_type: *message_type,
            });
        }
    };
    Ok(match decoded {
        Some((frame, consumed)) => Decoded::Frame { frame, consumed },
        None => Decoded::Incomplete,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AWAITING: SessionPhase = SessionPhase::AwaitingAcquire;

    fn acquire(lease_ms: u32, name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x01, 0x01];
        bytes.extend(lease_ms.to_be_bytes());
        bytes.extend(u16::try_from(name.len()).expect("fits").to_be_bytes());
        bytes.extend(name);
        bytes
    }

    #[test]
    fn acquire_is_decoded_byte_by_byte_and_leaves_what_follows() {
        let mut bytes = acquire(2_000, "naïve".as_bytes());
        let len = bytes.len();
        for end in 0..len {
            assert_eq!(
                decode_client_frame(&bytes[..end], AWAITING),
                Ok(Decoded::Incomplete),
                "{end} bytes"
            );
        }
        bytes.push(HEARTBEAT);
        let frame = ClientFrame::Acquire {
            name: LockName::new("naïve").expect("valid"),
            lease: Lease::from_millis(2_000).expect("valid"),
        };
        assert_eq!(
            decode_client_frame(&bytes, AWAITING),
            Ok(Decoded::Frame { frame, consumed: len })
        );
    }

    #[test]
    fn each_violation_is_found_as_early_as_possible() {
        use ProtocolViolation as V;
        let too_long = &acquire(1, &[b'x'; 256])[..8];
        for (bytes, phase, violation) in [
            (&[0x01, 0x02][..], AWAITING, V::UnsupportedVersion { version: 2 }),
            (&[0x02], AWAITING, V::FirstMessageMustBeAcquire),
            (&[0x01], SessionPhase::Claimed, V::DuplicateAcquire),
            (&[0x7f], AWAITING, V::UnknownMessageType { message_type: 0x7f }),
            (
                &[0x11],
                SessionPhase::Claimed,
                V::UnknownMessageType { message_type: 0x11 },
            ),
            (&acquire(1, b""), AWAITING, V::EmptyName),
            (too_long, AWAITING, V::NameTooLong { len: 256 }),
            (&acquire(1, &[0xc3]), AWAITING, V::NameNotUtf8),
            (&acquire(0, b"x"), AWAITING, V::LeaseNotPositive),
        ] {
            assert_eq!(decode_client_frame(bytes, phase), Err(violation), "{bytes:02x?}");
        }
        assert_eq!(
            ProtocolViolation::UnknownMessageType { message_type: 0x7f }.to_string(),
            "unknown message type: 0x7f"
        );
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let frame = ServerFrame::Error {
            code: ErrorCode::NotAuthorized,
            reason: "é".repeat(200),
        };
        let Ok(Decoded::Frame {
            frame: ServerFrame::Error { reason, .. },
            consumed,
        }) = decode_server_frame(&frame.to_bytes())
        else {
            panic!("an error frame")
        };
        assert_eq!((reason, consumed), ("é".repeat(127), 3 + 254));
    }

    proptest! {
        #[test]
        fn client_frames_survive_the_round_trip(lease in 1..=u32::MAX, name in "\\PC{1,60}") {
            let (name, lease) = (LockName::new(&name).expect("short"), Lease::from_millis(lease).expect("positive"));
            let mut bytes = Vec::new();
            encode_acquire(&name, lease, &mut bytes);
            let decoded = Decoded::Frame { frame: ClientFrame::Acquire { name, lease }, consumed: bytes.len() };
            prop_assert_eq!(decode_client_frame(&bytes, AWAITING), Ok(decoded));
        }

        #[test]
        fn server_frames_survive_the_round_trip(token: u64, code: u8, reason in "[a-zé]{0,100}") {
            for frame in [
                ServerFrame::Waiting,
                ServerFrame::Acquired(Token::new(token)),
                ServerFrame::Error { code: ErrorCode::from_u8(code), reason: reason.clone() },
            ] {
                let bytes = frame.to_bytes();
                for end in 0..bytes.len() {
                    prop_assert_eq!(decode_server_frame(&bytes[..end]), Ok(Decoded::Incomplete));
                }
                prop_assert_eq!(decode_server_frame(&bytes), Ok(Decoded::Frame { frame, consumed: bytes.len() }));
            }
        }

        #[test]
        fn any_bytes_are_answered_without_a_panic(bytes: Vec<u8>) {
            for phase in [AWAITING, SessionPhase::Claimed] {
                if let Ok(Decoded::Frame { consumed, .. }) = decode_client_frame(&bytes, phase) {
                    prop_assert!(consumed <= bytes.len());
                }
            }
            if let Ok(Decoded::Frame { consumed, .. }) = decode_server_frame(&bytes) {
                prop_assert!(consumed <= bytes.len());
            }
        }
    }
}
