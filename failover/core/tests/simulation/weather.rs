//! What a seed does to the pair, and what may be promised then.

use monolock_failover_core::Unproven;
use monolock_failover_core::rules::Rule;
use monolock_simulation::Rng;

use crate::world::TTL_US;

/// What goes beyond the bounds of the promises, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// Nothing: every promise holds.
    Nothing,
    /// The witness is set back to an old record, or loses it. Tokens may be forgotten with it.
    WitnessGoesBack,
    /// A node loses its disk. What only that disk knew is forgotten.
    DiskIsLost,
    /// Clocks run as they like. Authority rests on clocks; tokens do not.
    ClocksRunWild,
    /// A refused connection does not mean that the process is gone.
    RefusalsLie,
}

/// Several faults that make one trouble together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A node loses first one of its voices and a while later the other.
    Siege,
    /// A node crashes and comes back while its peer cannot reach the witness.
    CrashUnseen,
    /// A node that is alone is taken over by its peer, which dies and comes back without seeing the witness.
    Forgetting,
    /// The nodes do not hear each other, and then the witness goes back.
    WitnessGoesBack,
}

/// How bad a seed's network and machines are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) beyond: Beyond,
    /// What happens more often than anything else.
    pub(crate) mostly: Option<Trouble>,
    /// Between the nodes, and at the witness.
    late_percent: [u64; 2],
    lost_percent: [u64; 2],
    latest_us: u64,
    /// How many answers about a node's status may be under way for longer than the node lives.
    pub(crate) outliving_percent: u64,
    pub(crate) freezes_after_sending_per_mille: u64,
    pub(crate) longest_calm_us: u64,
    /// When the caller gives up a question to the peer.
    pub(crate) peer_timeout_us: u64,
}

impl Weather {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let beyond = rng.pick(&[
            Beyond::Nothing,
            Beyond::Nothing,
            Beyond::Nothing,
            Beyond::Nothing,
            Beyond::WitnessGoesBack,
            Beyond::DiskIsLost,
            Beyond::ClocksRunWild,
            Beyond::RefusalsLie,
        ]);
        let troubles = [None, None, Some(Trouble::Siege), Some(Trouble::CrashUnseen)];
        Self {
            beyond,
            mostly: match beyond {
                Beyond::ClocksRunWild => rng.pick(&[None, Some(Trouble::Forgetting)]),
                Beyond::WitnessGoesBack => rng.pick(&[None, Some(Trouble::WitnessGoesBack)]),
                Beyond::Nothing | Beyond::DiskIsLost | Beyond::RefusalsLie => rng.pick(&troubles),
            },
            late_percent: [rng.pick(&[0, 2, 10, 40]), rng.pick(&[0, 2, 10, 40])],
            lost_percent: [rng.pick(&[0, 0, 5, 20]), rng.pick(&[0, 0, 5, 20])],
            latest_us: rng.pick(&[TTL_US / 2, TTL_US, TTL_US, 4 * TTL_US]),
            outliving_percent: rng.pick(&[0, 2, 40]),
            freezes_after_sending_per_mille: rng.pick(&[0, 0, 5, 20]),
            longest_calm_us: rng.pick(&[TTL_US / 2, TTL_US, 2 * TTL_US, 4 * TTL_US]),
            peer_timeout_us: rng.pick(&[TTL_US / 2, TTL_US / 2, 2 * TTL_US]),
        }
    }

    /// Weather in which this rule is missed soon.
    pub(crate) fn against(rule: Rule, rng: &mut Rng) -> Self {
        let (beyond, mostly) = match rule {
            Rule::PromiseCountsFromSending
            | Rule::RenewalCountsFromSending
            | Rule::OutcomeIsOfItsOperation => (Beyond::Nothing, Some(Trouble::Siege)),
            Rule::TakeoverCountsFromSending | Rule::PromiseIsDurable => (Beyond::Nothing, None),
            Rule::ProofBelongsToOneRecord | Rule::NewLifeIsAskedAfter => {
                (Beyond::Nothing, Some(Trouble::CrashUnseen))
            }
            Rule::GateIsDurable | Rule::NoPromiseBelowLargestTerm => {
                (Beyond::ClocksRunWild, Some(Trouble::Forgetting))
            }
            Rule::OldRecordEndsNothing => (Beyond::WitnessGoesBack, Some(Trouble::WitnessGoesBack)),
            Rule::NoPromiseToTheDead | Rule::AnswerVoidsProof => (Beyond::RefusalsLie, None),
            Rule::NoPromiseDuringTakeover
            | Rule::LapsedTermIsOver
            | Rule::OwnTermIsNotTakenUpAgain
            | Rule::WatchAfterStart
            | Rule::PromiseIsKept
            | Rule::ProofNeedsReadingAfter
            | Rule::HandoverIsForOneLife
            | Rule::EveryFloorCounts
            | Rule::CeilingIsAcknowledged
            | Rule::GapStartsTheWaitAgain
            | Rule::ReadingIsRecent
            | Rule::RenewalNeedsTheTable
            | Rule::AloneOnlyFromThePeersTerm
            | Rule::CandidacyIsDurable
            | Rule::ConsentEndsCandidacy
            | Rule::ActiveGivesNoConsent
            | Rule::GateIsShutBeforeConsent
            | Rule::ConsentKnowsTheFloor => return Self::draw(rng),
        };
        Self {
            beyond,
            mostly,
            ..Self::draw(rng)
        }
    }

    /// The clocks' rates, often at the ends of what is allowed, in millionths.
    pub(crate) fn clock_rates(self, rng: &mut Rng) -> [u64; 2] {
        if self.beyond == Beyond::ClocksRunWild {
            let (slow, fast) = (rng.pick(&[150_000, 300_000]), rng.pick(&[1_000_000, 3_000_000]));
            return rng.pick(&[[slow, fast], [fast, slow]]);
        }
        let mut rate = || {
            let between = rng.between(950_000, 1_050_001);
            rng.pick(&[950_000, 1_050_000, 1_000_000, between])
        };
        [rate(), rate()]
    }

    /// How long a message is under way: mostly not long; now and then far beyond every time-out, or just before one.
    pub(crate) fn delay(self, link: Link, rng: &mut Rng) -> u64 {
        if !rng.percent(self.late_percent[link as usize]) {
            return usual_delay(rng);
        }
        match rng.below(5) {
            0 => rng.between(TTL_US * 25 / 100, TTL_US / 2),
            1 => rng.between(TTL_US * 70 / 100, TTL_US * 85 / 100),
            2 => rng.between(TTL_US * 90 / 100, TTL_US * 115 / 100),
            _ => 100 + rng.below(self.latest_us),
        }
    }

    /// Whether a message gets lost.
    pub(crate) fn loses(self, link: Link, rng: &mut Rng) -> bool {
        rng.percent(self.lost_percent[link as usize])
    }
}

/// What a pair does about a silent peer in which this rule is missed; `None`: it has a witness.
pub(crate) fn pair_without(rule: Rule, seed: u64) -> Option<Unproven> {
    match rule {
        Rule::AloneOnlyFromThePeersTerm | Rule::CandidacyIsDurable | Rule::ConsentKnowsTheFloor => {
            Some(Unproven::Takeover)
        }
        Rule::ConsentEndsCandidacy | Rule::GateIsShutBeforeConsent => Some(Unproven::Wait),
        Rule::ActiveGivesNoConsent if seed.is_multiple_of(2) => Some(Unproven::Wait),
        Rule::ActiveGivesNoConsent => Some(Unproven::Takeover),
        _ => None,
    }
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// Between the two nodes.
    Peer,
    /// Between a node and the witness.
    Witness,
}

/// The delay of a message when nothing is wrong.
pub(crate) fn usual_delay(rng: &mut Rng) -> u64 {
    100 + rng.below(10_000)
}
