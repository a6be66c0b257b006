//! What can be said about one life of a node from outside: what it was told, and what it did then.
//!
//! Some rules are a second line behind others: breaking them alone does not make two authorities. Here they are held
//! to their words.

use std::collections::{BTreeMap, BTreeSet};

use monolock_failover_core::{Incarnation, JournalEntry, OpId, Record, TakeoverBasis, Term};
use monolock_protocol::BootInstant;

use crate::world::timing;

/// The outside view of one life.
#[derive(Debug)]
pub(crate) struct Monitor {
    own: Incarnation,
    started: BootInstant,
    /// Counts what it was told.
    told: u64,
    asked: BTreeMap<OpId, BootInstant>,
    /// Its readings and what its swaps showed: when asked, when answered, and what.
    readings: Vec<(BootInstant, BootInstant, Option<Record>)>,
    /// When each life of the peer last spoke to it.
    spoke: BTreeMap<Incarnation, u64>,
    proof: Option<(u64, BootInstant)>,
    proof_before: bool,
    takeover: Option<Term>,
    starting: Option<TakeoverBasis>,
    opened: BTreeSet<Term>,
    reopens: bool,
}

impl Monitor {
    pub(crate) fn new(own: Incarnation, started: BootInstant) -> Self {
        Self {
            own,
            started,
            told: 0,
            asked: BTreeMap::new(),
            readings: Vec::new(),
            spoke: BTreeMap::new(),
            proof: None,
            proof_before: false,
            takeover: None,
            starting: None,
            opened: BTreeSet::new(),
            reopens: false,
        }
    }

    /// Something is about to be told to it.
    pub(crate) fn tell(&mut self) {
        self.told += 1;
        self.proof_before = self.proof.is_some();
    }

    pub(crate) fn hears_from(&mut self, peer: Incarnation) {
        self.spoke.insert(peer, self.told);
    }

    pub(crate) fn asks_witness(&mut self, op: OpId, now: BootInstant) {
        self.asked.insert(op, now);
    }

    /// The register was shown to it.
    pub(crate) fn sees_register(&mut self, op: OpId, record: &Option<Record>, now: BootInstant) {
        if let Some(asked) = self.asked.remove(&op) {
            self.readings.push((asked, now, record.clone()));
        }
    }

    /// Later outcomes of this operation are ignored.
    pub(crate) fn sees_nothing(&mut self, op: OpId) {
        self.asked.remove(&op);
    }

    pub(crate) fn writes(&mut self, entry: &JournalEntry, now: BootInstant) {
        match entry {
            JournalEntry::DeathProven { .. } => self.proof = Some((self.told, now)),
            JournalEntry::ProofVoid { .. } => self.proof = None,
            JournalEntry::TakeoverStarted { term, basis } => {
                self.takeover = Some(*term);
                self.starting = Some(*basis);
            }
            JournalEntry::TakeoverLost { .. }
            | JournalEntry::SteppedDown { .. }
            | JournalEntry::BecameActive { .. }
            | JournalEntry::AuthorityLapsed { .. } => self.takeover = None,
            JournalEntry::HandoverFailed { .. } => self.reopens = true,
            JournalEntry::Suspected { .. }
            | JournalEntry::HandoverStarted { .. }
            | JournalEntry::HandoverDone { .. }
            | JournalEntry::WitnessWentBack { .. }
            | JournalEntry::StateNotDurable
            | JournalEntry::FloorExtendedAlone { .. } => {}
        }
    }

    pub(crate) fn promises(&self, term: Term, highest: Term) -> Result<(), String> {
        if term < highest {
            return Err(format!("promised to {term} though it has seen {highest}"));
        }
        if self.takeover > Some(term) {
            return Err(format!(
                "promised to {term} while its own takeover swap is under way"
            ));
        }
        if self.proof_before && self.proof.is_none() {
            return Err(format!("promised to {term}, whose end it held a proof of"));
        }
        Ok(())
    }

    pub(crate) fn opens(&mut self, term: Term) -> Result<(), String> {
        let reopens = std::mem::take(&mut self.reopens);
        if !self.opened.insert(term) && !reopens {
            return Err(format!("took up term {term} again"));
        }
        Ok(())
    }

    /// A swap is sent; the first one of a takeover must have a reason.
    pub(crate) fn swaps(&mut self, expected: Option<&Record>, now: BootInstant) -> Result<(), String> {
        let Some(basis) = self.starting.take() else {
            return Ok(());
        };
        if basis == TakeoverBasis::Handover {
            return match expected {
                Some(record) if record.incarnation == self.own => Ok(()),
                _ => Err("took a term that was handed to another life".to_owned()),
            };
        }
        if now < self.started + timing().ttl() {
            return Err("took over before it had watched for a whole period".to_owned());
        }
        match basis {
            TakeoverBasis::Silence => self.has_watched(expected, now),
            TakeoverBasis::Crash | TakeoverBasis::NewIncarnation => self.has_proof(expected),
            TakeoverBasis::Released | TakeoverBasis::Handover => Ok(()),
            TakeoverBasis::Consent | TakeoverBasis::Fenced | TakeoverBasis::Unproven => {
                Err("swapped a record without a witness".to_owned())
            }
        }
    }

    /// The record stood still for a whole period, in readings close to each other.
    fn has_watched(&self, expected: Option<&Record>, now: BootInstant) -> Result<(), String> {
        let mut seen = now;
        for (_, answered, record) in self.readings.iter().rev() {
            if seen.saturating_duration_since(*answered) > timing().longest_reading_gap() {
                return Err("took over by silence across a time it did not watch".to_owned());
            }
            if record.as_ref() != expected {
                return Err("took over by silence before a whole period".to_owned());
            }
            if now.saturating_duration_since(*answered) >= timing().ttl() {
                return Ok(());
            }
            seen = *answered;
        }
        Err("took over by silence without watching".to_owned())
    }

    fn has_proof(&self, expected: Option<&Record>) -> Result<(), String> {
        let (Some((told, proven_at)), Some(record)) = (self.proof, expected) else {
            return Err("took over by a proof that it does not hold".to_owned());
        };
        if self
            .spoke
            .get(&record.incarnation)
            .is_some_and(|spoke| *spoke > told)
        {
            return Err("took over by proof from a life that spoke after it".to_owned());
        }
        match self.readings.last() {
            Some((asked, ..)) if *asked >= proven_at => Ok(()),
            Some(_) | None => Err("took over by proof without a reading after it".to_owned()),
        }
    }
}
