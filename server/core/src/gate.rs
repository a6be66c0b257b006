//! Whether this server may grant: always, or for one term of a pair.

use std::collections::BTreeMap;

use monolock_protocol::{BootInstant, ErrorCode, LockName, Token};

/// Permission to serve for one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenGate {
    /// The term; larger than that of every gate opened before.
    pub term: u64,
    /// Every grant of the term is at or above this.
    pub first_token: Token,
    /// Every grant is below this, until a renewal raises it.
    pub ceiling: Token,
    /// The gate shuts by itself at this moment, until a renewal moves it.
    pub authority_until: BootInstant,
    /// Which locks may not be granted yet.
    pub grace: Grace,
}

/// Which locks a new active node may not grant yet, because a holder of the term before may still believe in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grace {
    /// No lock that is missing from `locks` is granted before this.
    pub every_lock_until: Option<BootInstant>,
    /// These locks are not granted before their own moment, whether that is sooner or later.
    pub locks: BTreeMap<LockName, BootInstant>,
}

/// An `ACQUIRE` was refused because the server does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not serving: {code}")]
pub struct NotServing {
    /// What to answer: [`ErrorCode::NotActive`] or [`ErrorCode::ShuttingDown`].
    pub code: ErrorCode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// A server without a pair.
    AlwaysOpen,
    /// The active node of a pair.
    Open { term: u64, authority_until: BootInstant },
    /// Nobody is served; each `ACQUIRE` is answered with this code.
    Shut { refusal: ErrorCode },
}

impl Gate {
    pub(crate) fn check(self) -> Result<(), NotServing> {
        match self {
            Self::AlwaysOpen | Self::Open { .. } => Ok(()),
            Self::Shut { refusal } => Err(NotServing { code: refusal }),
        }
    }

    pub(crate) fn authority_until(self) -> Option<BootInstant> {
        match self {
            Self::Open { authority_until, .. } => Some(authority_until),
            Self::AlwaysOpen | Self::Shut { .. } => None,
        }
    }

    pub(crate) fn is_shut_down(self) -> bool {
        self.check()
            .is_err_and(|refused| refused.code == ErrorCode::ShuttingDown)
    }

    pub(crate) fn has_lapsed(self, now: BootInstant) -> bool {
        self.authority_until().is_some_and(|until| now >= until)
    }
}
