//! What the locks guard: stores that compare tokens.

use monolock_protocol::Token;

/// A guarded resource and its own notion of the highest token.
#[derive(Clone, Debug)]
pub(crate) enum Resource {
    /// Compares and remembers in one step.
    MaxSeen { highest: Token },
    /// An object written under a condition on its ETag. The token is part of what the ETag covers, unless
    /// `etag_of_bytes_only`.
    Object {
        token: Token,
        body: u64,
        etag_of_bytes_only: bool,
    },
}

/// A version of an object, as far as a precondition can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ETag {
    token: Option<Token>,
    body: u64,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    Stale,
    /// The object has changed since it was read.
    Conflict,
}

impl Resource {
    /// A write to a max-seen store.
    pub(crate) fn write(&mut self, with: Token) -> Verdict {
        match self {
            Self::MaxSeen { highest } if with < *highest => Verdict::Stale,
            Self::MaxSeen { highest } => {
                *highest = with;
                Verdict::Accepted
            }
            Self::Object { .. } => unreachable!("objects are read first"),
        }
    }

    /// What a writer learns before it writes an object; `None` for a store that needs no reading.
    pub(crate) fn read(&self) -> Option<(Token, ETag)> {
        match self {
            Self::MaxSeen { .. } => None,
            Self::Object {
                token,
                body,
                etag_of_bytes_only,
            } => {
                let etag = ETag {
                    token: (!etag_of_bytes_only).then_some(*token),
                    body: *body,
                };
                Some((*token, etag))
            }
        }
    }

    /// Writes an object if it is still what was read.
    pub(crate) fn write_if(&mut self, expected: ETag, with: Token, new_body: u64) -> Verdict {
        let now = self.read().map(|(_, etag)| etag);
        match self {
            Self::MaxSeen { .. } => unreachable!("max-seen stores are written without reading"),
            Self::Object { .. } if now != Some(expected) => Verdict::Conflict,
            Self::Object { token, body, .. } => {
                (*token, *body) = (with, new_body);
                Verdict::Accepted
            }
        }
    }
}
