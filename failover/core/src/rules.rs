//! The rules of the watchdog, by name.
//!
//! Each of them closes a counterexample. So that this can be shown, and stays true, the feature `model` lets the tests
//! of this crate run a watchdog with rules switched off. Without that feature no rule can be switched off.

/// A rule that the simulation or the model check breaks the pair without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A promise gives authority from the sending of the request, not from the receipt of the answer.
    PromiseCountsFromSending,
    /// A renewal at the witness gives authority from its sending.
    RenewalCountsFromSending,
    /// A takeover gives authority from the sending of its swap, and none when that is too long ago.
    TakeoverCountsFromSending,
    /// From sending a takeover swap until its outcome is known, nothing is promised to a lower term.
    NoPromiseDuringTakeover,
    /// A lapsed deadline ends the term before any answer is looked at.
    LapsedTermIsOver,
    /// A term that this life has held before is not taken up again.
    OwnTermIsNotTakenUpAgain,
    /// After its start a node watches for one period: it may have promised something before it died.
    WatchAfterStart,
    /// A promise that runs is kept.
    PromiseIsKept,
    /// A promise is on disk before it is given.
    PromiseIsDurable,
    /// What a gate relies on is on disk before it opens.
    GateIsDurable,
    /// Nothing is promised below the largest term seen.
    NoPromiseBelowLargestTerm,
    /// Nothing is promised to a life whose death is proven.
    NoPromiseToTheDead,
    /// A proof permits a swap only from a record that was read after it.
    ProofNeedsReadingAfter,
    /// A proof belongs to one record, which names the dead life.
    ProofBelongsToOneRecord,
    /// A proof is void as soon as that life speaks.
    AnswerVoidsProof,
    /// A new life proves the old one dead only when it was asked after the record named the old one.
    NewLifeIsAskedAfter,
    /// A term is handed to one life, not to the one that follows it.
    HandoverIsForOneLife,
    /// A record below the largest term or floor seen carries neither a release nor a proof.
    OldRecordEndsNothing,
    /// The first token is at or above every floor known, not only that of the record.
    EveryFloorCounts,
    /// Tokens stay below the floor that somebody else has acknowledged.
    CeilingIsAcknowledged,
    /// Time between two readings that are too far apart was not watched.
    GapStartsTheWaitAgain,
    /// Only a recent reading is acted upon.
    ReadingIsRecent,
    /// A renewal is sent only if the lock table has answered since the last one.
    RenewalNeedsTheTable,
    /// An outcome counts only for the operation that it belongs to.
    OutcomeIsOfItsOperation,
    /// Without a witness, a node takes over alone only from a term of its peer.
    AloneOnlyFromThePeersTerm,
    /// Without a witness, a candidacy is on disk before consent is asked for.
    CandidacyIsDurable,
    /// Without a witness, whoever consents to a term gives up its own candidacy.
    ConsentEndsCandidacy,
    /// Without a witness, an active consents to nobody.
    ActiveGivesNoConsent,
    /// Without a witness, nobody consents while its own gate may be open.
    GateIsShutBeforeConsent,
    /// Without a witness, consent is given to no first token below a known floor.
    ConsentKnowsTheFloor,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 30] = [
        Self::PromiseCountsFromSending,
        Self::RenewalCountsFromSending,
        Self::TakeoverCountsFromSending,
        Self::NoPromiseDuringTakeover,
        Self::LapsedTermIsOver,
        Self::OwnTermIsNotTakenUpAgain,
        Self::WatchAfterStart,
        Self::PromiseIsKept,
        Self::PromiseIsDurable,
        Self::GateIsDurable,
        Self::NoPromiseBelowLargestTerm,
        Self::NoPromiseToTheDead,
        Self::ProofNeedsReadingAfter,
        Self::ProofBelongsToOneRecord,
        Self::AnswerVoidsProof,
        Self::NewLifeIsAskedAfter,
        Self::HandoverIsForOneLife,
        Self::OldRecordEndsNothing,
        Self::EveryFloorCounts,
        Self::CeilingIsAcknowledged,
        Self::GapStartsTheWaitAgain,
        Self::ReadingIsRecent,
        Self::RenewalNeedsTheTable,
        Self::OutcomeIsOfItsOperation,
        Self::AloneOnlyFromThePeersTerm,
        Self::CandidacyIsDurable,
        Self::ConsentEndsCandidacy,
        Self::ActiveGivesNoConsent,
        Self::GateIsShutBeforeConsent,
        Self::ConsentKnowsTheFloor,
    ];

    /// Whether it matters only in a pair without a witness.
    #[must_use]
    pub const fn is_without_witness(self) -> bool {
        matches!(
            self,
            Self::AloneOnlyFromThePeersTerm
                | Self::CandidacyIsDurable
                | Self::ConsentEndsCandidacy
                | Self::ActiveGivesNoConsent
                | Self::GateIsShutBeforeConsent
                | Self::ConsentKnowsTheFloor
        )
    }
}

/// Which rules hold: all of them, outside of this crate's own tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Rules {
    /// One bit for each rule that is switched off.
    #[cfg(feature = "model")]
    off: u32,
}

impl Rules {
    #[cfg(feature = "model")]
    pub(crate) fn without(rules: &[Rule]) -> Self {
        let off = rules.iter().fold(0, |off, rule| off | 1 << *rule as u32);
        Self { off }
    }

    #[cfg(feature = "model")]
    pub(crate) const fn hold(self, rule: Rule) -> bool {
        self.off & (1 << rule as u32) == 0
    }

    #[cfg(not(feature = "model"))]
    pub(crate) const fn hold(self, _rule: Rule) -> bool {
        true
    }
}
