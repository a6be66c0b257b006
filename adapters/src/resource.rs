//! The resource a lock guards, and the token of one grant of that lock.

use std::fmt;
use std::sync::Arc;

use monolock_protocol::Token;

/// The longest resource name, in bytes: that of a lock name.
pub const MAX_RESOURCE_LEN: usize = 255;

/// The one resource that one lock guards. It has no name of its own: it is called after its lock.
///
/// Tokens of different locks say nothing about each other, so a store keeps the highest token of each *resource*, and
/// a resource that cannot be named without its lock cannot meet the tokens of a second one. Whatever the lock
/// guards (rows of three tables, a bucket's prefix, a device) is one resource.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<str>);

/// Why a lock name cannot name a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// No bytes at all.
    #[error("the name of the guarding lock is empty: give it 1 to 255 bytes")]
    Empty,
    /// More than [`MAX_RESOURCE_LEN`] bytes.
    #[error("the name of the guarding lock has {len} bytes: the limit is 255")]
    TooLong {
        /// The length found, in bytes.
        len: usize,
    },
    /// A NUL, which not every store can keep in a name.
    #[error("the name of the guarding lock has a NUL byte: databases cannot keep one in a text")]
    Nul,
}

impl Resource {
    /// The resource that the lock of this name guards.
    ///
    /// # Errors
    ///
    /// [`ResourceError`] unless the name has 1 to 255 bytes and none of them is NUL.
    pub fn guarded_by(lock: &str) -> Result<Self, ResourceError> {
        match lock.len() {
            0 => Err(ResourceError::Empty),
            1..=MAX_RESOURCE_LEN if lock.contains('\0') => Err(ResourceError::Nul),
            1..=MAX_RESOURCE_LEN => Ok(Self(lock.into())),
            len => Err(ResourceError::TooLong { len }),
        }
    }

    /// The name of the guarding lock.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// This resource with the token of one grant of its lock: what every write carries.
    #[must_use]
    pub fn stamp(&self, token: Token) -> Stamp {
        Stamp {
            resource: self.clone(),
            token,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resource({:?})", &*self.0)
    }
}

/// A fencing token together with the one resource it may be compared at.
///
/// It is what was true when it was made: a [`Grant`](crate::Grant) whose holder has looked already. Where the lock's client is at hand,
/// give its live grant to the operation instead.
///
/// ```
/// use monolock_adapters::{Resource, Stamp, Token};
///
/// let stamp: Stamp = Resource::guarded_by("nightly/import")?.stamp(Token::new(42));
/// assert_eq!(stamp.to_string(), "token 42 of `nightly/import`");
/// # Ok::<(), monolock_adapters::ResourceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    resource: Resource,
    token: Token,
}

impl Stamp {
    /// The resource.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} of `{}`", self.token, self.resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_named_like_a_lock() {
        assert_eq!(Resource::guarded_by(""), Err(ResourceError::Empty));
        assert_eq!(
            Resource::guarded_by(&"x".repeat(256)),
            Err(ResourceError::TooLong { len: 256 })
        );
        assert_eq!(Resource::guarded_by("a\0b"), Err(ResourceError::Nul));
        assert!(Resource::guarded_by(&"x".repeat(255)).is_ok());
        assert_ne!(Resource::guarded_by("a"), Resource::guarded_by("A"));
    }
}
