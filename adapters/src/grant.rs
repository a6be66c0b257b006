//! What holds a lock, asked anew for each write.

use monolock_protocol::Token;

use crate::{BoxError, FenceError, Resource, Stamp};

/// What a lock's client hands to the work: which lock is held, and with which token, at the moment of the question.
///
/// Every fenced operation takes a grant and asks it before anything leaves the process, and again before each retry. So
/// there is no token to copy, to forget or to keep for too long, and a grant that is over writes nothing:
/// [`FenceError::LockLost`]. A pause *after* the question is what the resource's own comparison is for.
///
/// | grant | the question is answered by |
/// | --- | --- |
/// | `monolock_client::Grant`, `monolock_client::Guard` (feature `client`) | the session with the server, and the clock |
/// | a [`Stamp`] | nobody: it is as old as it is. For tokens that came by other ways |
/// | yours | the client of any lock service whose tokens increase |
///
/// ```
/// use monolock_adapters::{BoxError, FenceError, Grant, Token};
///
/// struct Leadership { term: u64, deposed: bool }
///
/// impl Grant for Leadership {
///     fn lock(&self) -> &str {
///         "scheduler"
///     }
///     fn token(&self) -> Result<Token, BoxError> {
///         if self.deposed { Err("deposed".into()) } else { Ok(Token::new(self.term)) }
///     }
/// }
///
/// let stamp = Leadership { term: 7, deposed: false }.stamp()?;
/// assert_eq!(stamp.to_string(), "token 7 of `scheduler`");
/// let refused = Leadership { term: 7, deposed: true }.stamp().unwrap_err();
/// assert!(matches!(refused, FenceError::LockLost { .. }));
/// # Ok::<(), FenceError>(())
/// ```
pub trait Grant: Send + Sync {
    /// The name of the lock.
    fn lock(&self) -> &str;

    /// The token, if the lock is held at this moment.
    ///
    /// # Errors
    ///
    /// Why the lock is not held any more.
    fn token(&self) -> Result<Token, BoxError>;

    /// The token together with the resource that the lock guards, if the lock is held at this moment.
    ///
    /// # Errors
    ///
    /// [`FenceError::LockLost`]; [`FenceError::Misuse`] when the lock's name cannot name a resource.
    fn stamp(&self) -> Result<Stamp, FenceError> {
        let token = self.token().map_err(|source| FenceError::LockLost {
            lock: self.lock().to_owned(),
            source,
        })?;
        Ok(Resource::guarded_by(self.lock())?.stamp(token))
    }
}

impl Grant for Stamp {
    fn lock(&self) -> &str {
        self.resource().as_str()
    }

    fn token(&self) -> Result<Token, BoxError> {
        Ok(Stamp::token(self))
    }

    fn stamp(&self) -> Result<Stamp, FenceError> {
        Ok(self.clone())
    }
}

#[cfg(feature = "client")]
impl Grant for monolock_client::Grant {
    fn lock(&self) -> &str {
        self.lock().as_str()
    }

    fn token(&self) -> Result<Token, BoxError> {
        Ok(self.token()?)
    }
}

#[cfg(feature = "client")]
impl Grant for monolock_client::Guard {
    fn lock(&self) -> &str {
        self.lock().as_str()
    }

    fn token(&self) -> Result<Token, BoxError> {
        Ok(self.token()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Held(&'static str);

    impl Grant for Held {
        fn lock(&self) -> &str {
            self.0
        }

        fn token(&self) -> Result<Token, BoxError> {
            Ok(Token::new(7))
        }
    }

    #[test]
    fn the_stamp_of_a_grant_keeps_lock_and_token_together() {
        let stamp = Held("orders").stamp().expect("a valid name");
        assert_eq!(
            (stamp.resource().as_str(), stamp.token()),
            ("orders", Token::new(7))
        );
    }

    #[test]
    fn a_lock_that_can_guard_nothing_is_told() {
        assert!(matches!(Held("a\0b").stamp(), Err(FenceError::Misuse { .. })));
    }
}
