//! What a node has seen of the record, and for how long it has seen it stand still.

use std::time::Duration;

use monolock_protocol::BootInstant;

use crate::record::{Incarnation, Record, Term};
use crate::rules::{Rule, Rules};
use crate::timing::Timing;

/// The last reading of the witness and since when the record has not changed.
///
/// Time is counted from *receipt*: a reading shows the record as it was at some point before it arrived. Readings
/// too far apart did not watch what lay between them (the node was frozen, the witness out of reach), so the wait
/// starts again: a node that slept does not call its peer silent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Observation {
    reading: Option<Reading>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reading {
    record: Option<Record>,
    sent_at: BootInstant,
    received_at: BootInstant,
    unchanged_since: BootInstant,
    /// Since when the record has named this term and incarnation.
    holder_since: BootInstant,
}

impl Observation {
    pub(crate) fn none() -> Self {
        Self { reading: None }
    }

    /// Takes a reading that was asked for at `sent_at`. Returns whether the record differs from the one before.
    pub(crate) fn note(
        &mut self,
        record: Option<Record>,
        sent_at: BootInstant,
        now: BootInstant,
        timing: Timing,
        rules: Rules,
    ) -> bool {
        let last = self.reading.take();
        let watched = last.as_ref().is_some_and(|last| {
            now.saturating_duration_since(last.received_at) <= timing.longest_reading_gap()
                || !rules.hold(Rule::GapStartsTheWaitAgain)
        });
        let same_record = last.as_ref().is_some_and(|last| last.record == record);
        let same_holder = last
            .as_ref()
            .is_some_and(|last| holder(last.record.as_ref()) == holder(record.as_ref()));
        let keep = |since: fn(&Reading) -> BootInstant, kept: bool| {
            last.as_ref().filter(|_| kept).map_or(now, since)
        };
        self.reading = Some(Reading {
            unchanged_since: keep(|last| last.unchanged_since, watched && same_record),
            holder_since: keep(|last| last.holder_since, same_holder),
            record,
            sent_at,
            received_at: now,
        });
        !same_record
    }

    /// Forgets for how long the record stood still, not the record.
    pub(crate) fn restart(&mut self, now: BootInstant) {
        if let Some(reading) = &mut self.reading {
            reading.unchanged_since = now;
        }
    }

    /// The record last read: `None` before the first reading, `Some(None)` when there was none.
    #[expect(clippy::option_option, reason = "an absent record is a value")]
    pub(crate) fn record(&self) -> Option<Option<&Record>> {
        self.reading.as_ref().map(|reading| reading.record.as_ref())
    }

    /// Since when the record has stood still, as far as it was watched.
    pub(crate) fn unchanged_since(&self) -> Option<BootInstant> {
        self.reading.as_ref().map(|reading| reading.unchanged_since)
    }

    /// Whether the last reading is recent enough to act on.
    pub(crate) fn is_fresh(&self, now: BootInstant, timing: Timing) -> bool {
        self.age(now)
            .is_some_and(|age| age <= timing.longest_reading_gap())
    }

    /// How long ago the last reading arrived.
    pub(crate) fn age(&self, now: BootInstant) -> Option<Duration> {
        self.reading
            .as_ref()
            .map(|reading| now.saturating_duration_since(reading.received_at))
    }

    /// Whether the last reading was asked for at `at` or later.
    pub(crate) fn was_read_since(&self, at: BootInstant) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.sent_at >= at)
    }

    /// Since when the record has named this holder of this term.
    pub(crate) fn holder_since(&self, term: Term, incarnation: Incarnation) -> Option<BootInstant> {
        let reading = self.reading.as_ref()?;
        let record = reading.record.as_ref()?;
        (record.term == term && record.incarnation == incarnation).then_some(reading.holder_since)
    }
}

fn holder(record: Option<&Record>) -> Option<(Term, Incarnation)> {
    record.map(|record| (record.term, record.incarnation))
}
