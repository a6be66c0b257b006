//! Lock names.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The longest lock name, in bytes.
pub const MAX_NAME_LEN: usize = 255;

/// The name of a lock: 1 to 255 bytes of UTF-8, case sensitive, neither trimmed nor normalised. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

/// Why a string or some bytes are no lock name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockNameError {
    /// No bytes at all.
    #[error("the lock name is empty: give it 1 to 255 bytes")]
    Empty,
    /// More than [`MAX_NAME_LEN`] bytes.
    #[error("the lock name has {len} bytes: the limit is 255")]
    TooLong {
        /// The length found, in bytes.
        len: usize,
    },
    /// Not UTF-8.
    #[error("the lock name is not valid UTF-8")]
    NotUtf8,
}

impl LockName {
    /// Checks and takes a name.
    ///
    /// # Errors
    ///
    /// [`LockNameError::Empty`] and [`LockNameError::TooLong`]; nothing is trimmed to make it fit.
    pub fn new(name: &str) -> Result<Self, LockNameError> {
        match name.len() {
            0 => Err(LockNameError::Empty),
            1..=MAX_NAME_LEN => Ok(Self(name.into())),
            len => Err(LockNameError::TooLong { len }),
        }
    }

    /// Checks and takes a name as it came over the wire.
    ///
    /// # Errors
    ///
    /// Those of [`LockName::new`], and [`LockNameError::NotUtf8`].
    pub fn from_bytes(name: &[u8]) -> Result<Self, LockNameError> {
        match name.len() {
            0 => Err(LockNameError::Empty),
            1..=MAX_NAME_LEN => Self::new(std::str::from_utf8(name).map_err(|_| LockNameError::NotUtf8)?),
            len => Err(LockNameError::TooLong { len }),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for LockName {
    type Err = LockNameError;

    fn from_str(name: &str) -> Result<Self, LockNameError> {
        Self::new(name)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for LockName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for LockName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::new(&name).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_to_255_bytes_of_utf8_and_kept_as_they_are() {
        assert_eq!(LockName::new(""), Err(LockNameError::Empty));
        assert_eq!(LockName::from_bytes(b""), Err(LockNameError::Empty));
        assert_eq!(
            LockName::new(&"x".repeat(255)).map(|name| name.as_str().len()),
            Ok(255)
        );
        assert_eq!(
            LockName::new(&"é".repeat(128)),
            Err(LockNameError::TooLong { len: 256 })
        );
        assert_eq!(LockName::from_bytes(&[0xff]), Err(LockNameError::NotUtf8));
        assert_eq!(
            LockName::new(" A\n").map(|name| name.to_string()),
            Ok(" A\n".to_owned())
        );
    }
}
