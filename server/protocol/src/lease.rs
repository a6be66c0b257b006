//! Leases.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// How long a session may be silent before the server drops it: 1 to 2^32-1 milliseconds, chosen by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(NonZeroU32);

/// Why a duration is no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// 0 ms, or less than one millisecond.
    #[error("the lease must be positive: give it at least 1 ms")]
    NotPositive,
    /// More than 2^32-1 ms.
    #[error("the lease does not fit the wire: the limit is 4294967295 ms (49 days)")]
    TooLong,
}

impl Lease {
    /// The shortest lease: one millisecond.
    pub const MIN: Self = Self(NonZeroU32::MIN);

    /// A lease of so many milliseconds.
    ///
    /// # Errors
    ///
    /// [`LeaseError::NotPositive`] for 0.
    pub const fn from_millis(millis: u32) -> Result<Self, LeaseError> {
        match NonZeroU32::new(millis) {
            Some(millis) => Ok(Self(millis)),
            None => Err(LeaseError::NotPositive),
        }
    }

    /// A lease of this duration, cut to whole milliseconds.
    ///
    /// # Errors
    ///
    /// [`LeaseError::NotPositive`] below 1 ms, [`LeaseError::TooLong`] above 2^32-1 ms.
    pub fn from_duration(lease: Duration) -> Result<Self, LeaseError> {
        Self::from_millis(u32::try_from(lease.as_millis()).map_err(|_| LeaseError::TooLong)?)
    }

    /// The lease in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u32 {
        self.0.get()
    }

    /// The lease as a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.get() as u64)
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Lease {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.as_millis())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Lease {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_millis(u32::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_positive_and_fit_the_wire() {
        assert_eq!(Lease::from_millis(0), Err(LeaseError::NotPositive));
        assert_eq!(
            Lease::from_duration(Duration::from_micros(999)),
            Err(LeaseError::NotPositive)
        );
        assert_eq!(
            Lease::from_duration(Duration::from_millis(1 << 32)),
            Err(LeaseError::TooLong)
        );
        let longest = Lease::from_millis(u32::MAX).expect("positive");
        assert_eq!(Lease::from_duration(longest.as_duration()), Ok(longest));
    }
}
