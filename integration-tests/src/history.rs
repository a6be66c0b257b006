//! What happened, as the clients, the resource and the nodes saw it, and whether all of it may have happened.
//!
//! The checker is pure and knows nothing of how locks are granted: it compares what clients were told with what the
//! guarded resource did and with when nodes claim to have had authority. All moments are readings of one boot clock,
//! which every process on a machine shares. A resource is called after the lock that guards it.
//!
//! [`History::violations`] finds what must never happen, whatever failed. [`History::shared_holds`] finds what promise 3
//! excludes in all cases but a crash with an asynchronous follow stream. [`events`] is the form in which clients write
//! down what they saw.
//!
//! ```
//! use monolock_integration_tests::history::{Grant, History};
//! use monolock_protocol::{BootInstant, Token};
//!
//! let grant = |token, asked, granted| Grant {
//!     client: "ann".into(),
//!     lock: "ledger".into(),
//!     token: Token::new(token),
//!     node: "a".into(),
//!     asked: BootInstant::from_millis(asked),
//!     granted: BootInstant::from_millis(granted),
//!     held_until: BootInstant::from_millis(granted),
//! };
//! let mut history = History::default();
//! history.grants = vec![grant(7, 0, 1), grant(8, 2, 3)];
//! assert_eq!(history.violations(), []);
//! history.grants = vec![grant(8, 0, 1), grant(7, 2, 3)];
//! assert_eq!(history.violations().len(), 1);
//! ```

mod authority;
mod check;
pub mod events;
#[cfg(test)]
mod tests;
mod writes;

use std::fmt;

use monolock_protocol::{BootInstant, Token};

/// Everything that is known of one run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// When which node had authority. Every one that a grant came from must be there, unless there is none at all: then
    /// nothing is known of authority, and grants are not checked against it.
    pub authorities: Vec<Authority>,
    /// What clients were granted. Complete: a write with a token that nobody was granted is a violation.
    pub grants: Vec<Grant>,
    /// What clients sent to resources. Complete.
    pub writes: Vec<Write>,
    /// The writes that each resource accepted, in its own order.
    pub accepted: Vec<Accepted>,
    /// When the service must have been there.
    pub demands: Vec<Demand>,
}

/// A time during which a node had authority in a term. One term may have several, none of which overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Which node.
    pub node: String,
    /// In which term.
    pub term: u64,
    /// The smallest token that the term may grant.
    pub first_token: Token,
    /// When its gate opened, or later.
    pub from: BootInstant,
    /// When its authority ended, or earlier; [`BootInstant::MAX`] when it has not.
    pub until: BootInstant,
}

/// A lock granted to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub client: String,
    /// Which lock.
    pub lock: String,
    /// The token.
    pub token: Token,
    /// The node that granted.
    pub node: String,
    /// Before the claim was sent.
    pub asked: BootInstant,
    /// After the client was told.
    pub granted: BootInstant,
    /// The last moment at which the client made sure that it held the lock, at least [`Grant::granted`].
    pub held_until: BootInstant,
}

/// A write: which client's, and the how-many-eth of that client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId {
    /// Whose.
    pub client: String,
    /// Unique for the client.
    pub number: u64,
}

/// A write that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which.
    pub id: WriteId,
    /// To which resource.
    pub resource: String,
    /// The token it carried.
    pub token: Token,
    /// Before it was sent.
    pub sent: BootInstant,
    /// After the answer was there; [`BootInstant::MAX`] when none came.
    pub answered: BootInstant,
    /// What the client was told.
    pub outcome: WriteOutcome,
}

/// What a client was told of its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is accepted.
    Accepted,
    /// It is refused as stale, and changed nothing.
    Refused {
        /// The highest token that the resource had accepted.
        highest: Token,
    },
    /// It changed nothing, for another reason.
    Failed,
    /// Nothing: it may have been accepted.
    Unknown,
}

/// A write that a resource accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Which.
    pub id: WriteId,
    /// By which resource.
    pub resource: String,
    /// The token it carried.
    pub token: Token,
}

/// The service must grant these locks within a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Why: completes the sentence "no grant of LOCK ...".
    pub reason: String,
    /// From when on: grants told later count.
    pub after: BootInstant,
    /// Until when.
    pub until: BootInstant,
    /// Which locks, each.
    pub locks: Vec<String>,
}

/// Something that must not have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two nodes, or one in two terms, had authority at once.
    AuthoritiesOverlap(Authority, Authority),
    /// Two nodes held one term.
    TermHeldTwice(Authority, Authority),
    /// A later term began before an earlier one.
    TermsOutOfOrder {
        /// Began first, with the larger term.
        earlier: Authority,
        /// Began after it.
        later: Authority,
    },
    /// The first token of a later term is not above that of an earlier one.
    FirstTokenWentBack {
        /// The smaller term.
        earlier: Authority,
        /// The larger one.
        later: Authority,
    },
    /// A node granted a token of a term that it did not hold then: it asks for a token above all earlier terms', below
    /// all later ones', and authority at some moment between the asking and the telling.
    GrantWithoutAuthority(Grant),
    /// Two grants carry one token.
    TokenGrantedTwice(Grant, Grant),
    /// A client asked after another was told, and got a smaller token.
    TokensWentBack {
        /// Told first.
        earlier: Grant,
        /// Asked afterwards.
        later: Grant,
    },
    /// A resource accepted a smaller token after a larger one.
    StaleWriteAccepted {
        /// With the larger token.
        earlier: Accepted,
        /// Accepted after it.
        later: Accepted,
    },
    /// A client was told that its write is accepted, and another sent a stale one afterwards that was accepted too.
    StaleWriteAcknowledged {
        /// With the larger token.
        earlier: Write,
        /// Sent after the answer to it.
        later: Write,
    },
    /// A write is accepted whose token nobody was granted for the resource's lock.
    TokenFromNowhere(Accepted),
    /// A resource accepted what nobody sent, or with another token than it was sent with, or twice.
    AcceptedFromNowhere(Accepted),
    /// A client was told something of its write that the resource says otherwise.
    AnswerIsWrong(Write),
    /// A write was refused by a token that is not larger, or that nobody was granted.
    RefusedForNoReason(Write),
    /// A lock was not granted in time.
    NoService {
        /// The demand.
        demand: Demand,
        /// The lock that was not granted.
        lock: String,
    },
}

/// Two clients that both made sure that they hold a lock, in overlapping times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedHold(pub Grant, pub Grant);

impl History {
    /// What must not have happened, whatever failed. Empty for a correct run.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        authority::check(self, &mut violations);
        check::tokens(self, &mut violations);
        check::demands(self, &mut violations);
        writes::check(self, &mut violations);
        violations
    }

    /// The locks that two clients held at once, both being sure.
    #[must_use]
    pub fn shared_holds(&self) -> Vec<SharedHold> {
        check::shared_holds(self)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AuthoritiesOverlap(first, second) => {
                write!(f, "two authorities overlap: {first:?} and {second:?}")
            }
            Self::TermHeldTwice(first, second) => {
                write!(f, "one term was held by two nodes: {first:?} and {second:?}")
            }
            Self::TermsOutOfOrder { earlier, later } => {
                write!(
                    f,
                    "a smaller term began after a larger one: {later:?} after {earlier:?}"
                )
            }
            Self::FirstTokenWentBack { earlier, later } => {
                write!(
                    f,
                    "a later term starts at no larger token: {later:?} after {earlier:?}"
                )
            }
            Self::GrantWithoutAuthority(grant) => write!(f, "granted without authority: {grant:?}"),
            Self::TokenGrantedTwice(first, second) => {
                write!(f, "one token for two grants: {first:?} and {second:?}")
            }
            Self::TokensWentBack { earlier, later } => {
                write!(f, "tokens went back: {later:?} after {earlier:?}")
            }
            Self::StaleWriteAccepted { earlier, later } => {
                write!(f, "a stale write was accepted: {later:?} after {earlier:?}")
            }
            Self::StaleWriteAcknowledged { earlier, later } => {
                write!(f, "a stale write was acknowledged: {later:?} after {earlier:?}")
            }
            Self::TokenFromNowhere(accepted) => {
                write!(f, "accepted with a token that nobody was granted: {accepted:?}")
            }
            Self::AcceptedFromNowhere(accepted) => {
                write!(f, "accepted though nobody sent it so: {accepted:?}")
            }
            Self::AnswerIsWrong(write) => write!(f, "the resource says otherwise: {write:?}"),
            Self::RefusedForNoReason(write) => write!(f, "refused for no reason: {write:?}"),
            Self::NoService { demand, lock } => {
                write!(
                    f,
                    "no grant of {lock} {} from {:?} to {:?}",
                    demand.reason, demand.after, demand.until
                )
            }
        }
    }
}
