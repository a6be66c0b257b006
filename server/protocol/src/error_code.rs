//! The code of an `ERROR` frame.

use std::fmt;

/// What a client has to do about an [`ErrorCode`]. The division is a range, not a list, so that a code a client
/// has never heard of is classified the same way by everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Below `0x10`: nothing is wrong with the client. Connect again: at once after
    /// [`ErrorCode::ShuttingDown`], to the next address after [`ErrorCode::NotActive`], else with backoff.
    ServerCondition,
    /// `0x10` and above: the same bytes will fail in the same way. Report, do not retry.
    ClientError,
}

/// Why a server ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorCode {
    /// `0x01`: the server is shutting down, or hands over to its peer.
    ShuttingDown,
    /// `0x02`: an operator released the lock or removed the waiter.
    ClosedByAdministrator,
    /// `0x03`: this node is not the active one of its pair.
    NotActive,
    /// `0x10`: the version in `ACQUIRE` is not spoken here.
    UnsupportedVersion,
    /// `0x11`: the first message was not `ACQUIRE`.
    FirstMessageMustBeAcquire,
    /// `0x12`: a second `ACQUIRE` on one connection.
    DuplicateAcquire,
    /// `0x13`: a type byte that no client message has.
    UnknownMessageType,
    /// `0x14`: a lock name of no bytes.
    EmptyName,
    /// `0x15`: a lock name of more than 255 bytes.
    NameTooLong,
    /// `0x16`: a lock name that is not UTF-8.
    NameNotUtf8,
    /// `0x17`: a lease of 0 ms.
    LeaseNotPositive,
    /// `0x18`: the access rules do not allow this identity this lock.
    NotAuthorized,
    /// A code that this version does not know; [`ErrorCode::class`] still tells what to do.
    Unknown(u8),
}

impl ErrorCode {
    /// The code as it stands on the wire.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        match self {
            Self::ShuttingDown => 0x01,
            Self::ClosedByAdministrator => 0x02,
            Self::NotActive => 0x03,
            Self::UnsupportedVersion => 0x10,
            Self::FirstMessageMustBeAcquire => 0x11,
            Self::DuplicateAcquire => 0x12,
            Self::UnknownMessageType => 0x13,
            Self::EmptyName => 0x14,
            Self::NameTooLong => 0x15,
            Self::NameNotUtf8 => 0x16,
            Self::LeaseNotPositive => 0x17,
            Self::NotAuthorized => 0x18,
            Self::Unknown(code) => code,
        }
    }

    /// The code of a byte read from the wire; never fails.
    #[must_use]
    pub const fn from_u8(code: u8) -> Self {
        match code {
            0x01 => Self::ShuttingDown,
            0x02 => Self::ClosedByAdministrator,
            0x03 => Self::NotActive,
            0x10 => Self::UnsupportedVersion,
            0x11 => Self::FirstMessageMustBeAcquire,
            0x12 => Self::DuplicateAcquire,
            0x13 => Self::UnknownMessageType,
            0x14 => Self::EmptyName,
            0x15 => Self::NameTooLong,
            0x16 => Self::NameNotUtf8,
            0x17 => Self::LeaseNotPositive,
            0x18 => Self::NotAuthorized,
            other => Self::Unknown(other),
        }
    }

    /// Whether to retry or to report.
    #[must_use]
    pub const fn class(self) -> ErrorClass {
        if self.as_u8() < 0x10 {
            ErrorClass::ServerCondition
        } else {
            ErrorClass::ClientError
        }
    }

    /// The canonical text, for people; clients branch on the code alone.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ShuttingDown => "server shutting down",
            Self::ClosedByAdministrator => "closed by administrator",
            Self::NotActive => "not the active server of its pair",
            Self::UnsupportedVersion => "unsupported protocol version",
            Self::FirstMessageMustBeAcquire => "first message must be ACQUIRE",
            Self::DuplicateAcquire => "duplicate ACQUIRE",
            Self::UnknownMessageType => "unknown message type",
            Self::EmptyName => "empty lock name",
            Self::NameTooLong => "lock name longer than 255 bytes",
            Self::NameNotUtf8 => "lock name is not valid UTF-8",
            Self::LeaseNotPositive => "lease must be positive",
            Self::NotAuthorized => "not authorized for lock",
            Self::Unknown(_) => "unknown error code",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02x} {}", self.as_u8(), self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_round_trip_and_is_classified_by_its_range() {
        for byte in 0..=u8::MAX {
            let code = ErrorCode::from_u8(byte);
            assert_eq!(code.as_u8(), byte);
            let expected = if byte < 0x10 {
                ErrorClass::ServerCondition
            } else {
                ErrorClass::ClientError
            };
            assert_eq!(code.class(), expected, "{code}");
        }
    }
}
