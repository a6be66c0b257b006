#![allow(dead_code, reason = "each test file uses a part of it")]
//! One watchdog, told what happens and asked what it does, in lines that can be read.

use std::time::Duration;

use monolock_failover_core::{
    Action, Config, Grace, Incarnation, JournalEntry, NoWitness, NodeId, NodeState, OpId, PromiseAnswer,
    PromiseRequest, Record, ReplyId, SwapOutcome, TableReport, Term, Timing, Unproven, Waiting, Watchdog,
};
use monolock_protocol::{BootInstant, Token};

const START_MS: u64 = 10_000;
const TTL: Duration = Duration::from_millis(1_200);

/// So many milliseconds after the node's start.
pub(crate) fn at(millis: u64) -> BootInstant {
    BootInstant::from_millis(START_MS + millis)
}

/// A record whose floor is the first token of a second.
pub(crate) fn record(
    term: u64,
    holder: Option<NodeId>,
    incarnation: u64,
    beat: u64,
    floor_epoch: u64,
) -> Record {
    Record {
        format: Record::FORMAT,
        term: Term(term),
        holder,
        incarnation: Incarnation(incarnation),
        beat,
        floor: Token::first_of_epoch(floor_epoch),
        max_lease_ms: 0,
    }
}

/// What the peer asks to be promised.
pub(crate) fn request(term: u64, incarnation: u64, floor_epoch: u64) -> PromiseRequest {
    PromiseRequest {
        term: Term(term),
        incarnation: Incarnation(incarnation),
        floor: Token::first_of_epoch(floor_epoch),
        max_lease_ms: 0,
        candidacy: None,
    }
}

/// A watchdog and the operations whose outcome it waits for.
pub(crate) struct Node {
    pub(crate) watchdog: Watchdog,
    now: BootInstant,
    lines: Vec<String>,
    reading: Option<OpId>,
    swap: Option<(OpId, Record)>,
    persist: Option<OpId>,
    promise: Option<OpId>,
    table: Option<OpId>,
    probe: Option<OpId>,
    fence: Option<OpId>,
}

impl Node {
    /// A node that starts at 0 with what its disk held.
    pub(crate) fn start(node: NodeId, incarnation: u64, disk: NodeState) -> Self {
        Self::start_with(node, incarnation, disk, None)
    }

    /// The same without a witness, with 100 seconds in reserve.
    pub(crate) fn start_alone(node: NodeId, incarnation: u64, disk: NodeState, unproven: Unproven) -> Self {
        let reserve = Duration::from_secs(100);
        Self::start_with(node, incarnation, disk, Some(NoWitness { unproven, reserve }))
    }

    fn start_with(node: NodeId, incarnation: u64, disk: NodeState, no_witness: Option<NoWitness>) -> Self {
        let config = Config {
            node,
            incarnation: Incarnation(incarnation),
            timing: Timing::new(TTL).expect("long enough"),
            fast_takeover: true,
            no_witness,
        };
        Self {
            watchdog: Watchdog::new(config, disk, at(0)),
            now: at(0),
            lines: Vec::new(),
            reading: None,
            swap: None,
            persist: None,
            promise: None,
            table: None,
            probe: None,
            fence: None,
        }
    }

    // ---- what it does

    /// Asserts everything it did since the last look.
    #[track_caller]
    pub(crate) fn does(&mut self, lines: &[&str]) {
        self.collect();
        assert_eq!(std::mem::take(&mut self.lines), lines);
    }

    /// Why it does not take over.
    pub(crate) fn waits_for(&self) -> Option<Waiting> {
        self.watchdog.status(self.now).waiting
    }

    fn collect(&mut self) {
        while let Some(action) = self.watchdog.poll_action() {
            self.lines.push(line(&action));
            match action {
                Action::ReadWitness { op } => self.reading = Some(op),
                Action::SwapWitness { op, new, .. } => self.swap = Some((op, new)),
                Action::AskPromise { op, .. } => self.promise = Some(op),
                Action::Persist { op, .. } => self.persist = Some(op),
                Action::ProbeTable { op } => self.table = Some(op),
                Action::ProbePorts { op } => self.probe = Some(op),
                Action::FenceFirst { op, .. } => self.fence = Some(op),
                Action::AnswerPromise { .. }
                | Action::OpenGate(_)
                | Action::RenewAuthority { .. }
                | Action::ShutGate { .. }
                | Action::Fence { .. }
                | Action::PublishName { .. }
                | Action::TellHandover { .. }
                | Action::Journal(_) => {}
            }
        }
    }

    // ---- what happens to it

    /// Moves the clock, without a call.
    fn moment(&mut self, now: u64) -> BootInstant {
        self.collect();
        self.now = at(now);
        self.now
    }

    /// Any input that has no word of its own here.
    pub(crate) fn hears<R>(&mut self, now: u64, tell: impl FnOnce(&mut Watchdog, BootInstant) -> R) -> R {
        let now = self.moment(now);
        tell(&mut self.watchdog, now)
    }

    pub(crate) fn wakes(&mut self, now: u64) {
        self.hears(now, |watchdog, now| watchdog.handle_timeout(now));
    }

    /// The reading under way shows this record.
    #[track_caller]
    pub(crate) fn reads(&mut self, now: u64, record: Option<Record>) {
        let now = self.moment(now);
        let op = self.reading.take().expect("a reading is under way");
        self.watchdog.handle_reading(op, Some(record), now);
    }

    /// Everything that is due until then happens on time, and every reading shows this record at once. The readings
    /// leave no line.
    pub(crate) fn watches(&mut self, until: u64, record: Option<&Record>) {
        loop {
            self.collect();
            if let Some(op) = self.reading.take() {
                let line = self.lines.iter().rposition(|line| line == "read");
                self.lines.remove(line.expect("it said so"));
                self.watchdog.handle_reading(op, Some(record.cloned()), self.now);
            } else {
                match self.watchdog.poll_timeout() {
                    Some(due) if due <= at(until) => {
                        self.now = self.now.max(due);
                        self.watchdog.handle_timeout(self.now);
                    }
                    Some(_) | None => break,
                }
            }
        }
        self.now = at(until);
    }

    #[track_caller]
    fn swapped(&mut self, now: u64, outcome: impl FnOnce(Record) -> SwapOutcome) {
        let now = self.moment(now);
        let (op, new) = self.swap.take().expect("a swap is under way");
        self.watchdog.handle_swap(op, outcome(new), now);
    }

    #[track_caller]
    pub(crate) fn wins(&mut self, now: u64) {
        self.swapped(now, |_| SwapOutcome::Won);
    }

    #[track_caller]
    pub(crate) fn loses(&mut self, now: u64, current: Option<Record>) {
        self.swapped(now, |_| SwapOutcome::Lost { current });
    }

    /// The answer to the swap under way is lost; returns what it would have put into the register.
    #[track_caller]
    pub(crate) fn doubts(&mut self, now: u64) -> Record {
        self.collect();
        let new = self.swap.as_ref().expect("a swap is under way").1.clone();
        self.swapped(now, |_| SwapOutcome::Unknown);
        new
    }

    /// The swap under way was certainly not done.
    #[track_caller]
    pub(crate) fn fails(&mut self, now: u64) {
        self.swapped(now, |_| SwapOutcome::Failed);
    }

    #[track_caller]
    pub(crate) fn persisted(&mut self, now: u64, written: bool) {
        let now = self.moment(now);
        let op = self.persist.take().expect("a write is under way");
        self.watchdog.handle_persisted(op, written, now);
    }

    /// The lock table answers: its last token is the first one of this second.
    #[track_caller]
    pub(crate) fn table_answers(&mut self, now: u64, epoch: u64) {
        let now = self.moment(now);
        let op = self.table.take().expect("the table was asked");
        let report = TableReport {
            last_token: Token::first_of_epoch(epoch),
            epoch,
            longest_lease_ms: 0,
        };
        self.watchdog.handle_table_report(op, report, now);
    }

    #[track_caller]
    pub(crate) fn is_answered(&mut self, now: u64, answer: Option<PromiseAnswer>) {
        let now = self.moment(now);
        let op = self.promise.take().expect("a promise was asked for");
        self.watchdog.handle_promise_answer(op, answer, now);
    }

    /// The peer asks for a promise.
    pub(crate) fn is_asked(&mut self, now: u64, request: PromiseRequest) {
        self.hears(now, |watchdog, now| {
            watchdog.handle_promise_request(ReplyId(now.as_nanos()), request, now);
        });
    }

    /// The silent peer was stopped, or could not be.
    #[track_caller]
    pub(crate) fn fenced(&mut self, now: u64, stopped: bool) {
        let now = self.moment(now);
        let op = self.fence.take().expect("the peer is being stopped");
        self.watchdog.handle_fenced(op, stopped, now);
    }

    #[track_caller]
    pub(crate) fn ports_refuse(&mut self, now: u64, both: bool) {
        let now = self.moment(now);
        let op = self.probe.take().expect("the ports are being probed");
        self.watchdog.handle_probe(op, both, now);
    }
}

fn line(action: &Action) -> String {
    match action {
        Action::ReadWitness { .. } => "read".to_owned(),
        Action::SwapWitness { expected, new, .. } => format!(
            "swap {} -> {} floor {}",
            expected.as_ref().map_or("none".to_owned(), name),
            name(new),
            second(new.floor)
        ),
        Action::AskPromise { request, .. } => {
            let candidacy = request
                .candidacy
                .map_or(String::new(), |first| format!(" from {}", second(first)));
            format!(
                "ask for {}{candidacy} floor {}",
                request.term,
                second(request.floor)
            )
        }
        Action::AnswerPromise { answer, .. } => match answer.refused {
            None => "promise".to_owned(),
            Some(why) => format!("refuse: {why:?}, highest {}", answer.highest_term),
        },
        Action::Persist { state, .. } => {
            format!("persist {} floor {}", state.highest_term, second(state.floor))
        }
        Action::ProbeTable { .. } => "ask table".to_owned(),
        Action::ProbePorts { .. } => "knock".to_owned(),
        Action::OpenGate(open) => format!(
            "open {}: tokens {}..{}, until {}, grace {}",
            open.term,
            second(open.first_token),
            second(open.ceiling),
            millis(open.authority_until),
            grace(&open.grace),
        ),
        Action::RenewAuthority { term, until, ceiling } => {
            format!(
                "renew {term}: tokens ..{}, until {}",
                second(*ceiling),
                millis(*until)
            )
        }
        Action::ShutGate { why } => format!("shut: {why:?}"),
        Action::Fence { term } => format!("fence {term}"),
        Action::FenceFirst { term, .. } => format!("stop {term} first"),
        Action::PublishName { term } => format!("publish {term}"),
        Action::TellHandover { record } => format!("tell handover {}", name(record)),
        Action::Journal(entry) => format!("note: {}", note(entry)),
    }
}

/// `term.beat holder incarnation`
fn name(record: &Record) -> String {
    let holder = record.holder.map_or("-".to_owned(), |node| node.to_string());
    format!("{}.{} {holder}{}", record.term, record.beat, record.incarnation.0)
}

/// The second of a token, and the grants within it, if any.
fn second(token: Token) -> String {
    let epoch = token.epoch_seconds();
    match token.get() - Token::first_of_epoch(epoch).get() {
        0 => epoch.to_string(),
        counter => format!("{epoch}+{counter}"),
    }
}

fn millis(at: BootInstant) -> String {
    if at == BootInstant::MAX {
        return "never".to_owned();
    }
    at.saturating_duration_since(BootInstant::from_millis(START_MS))
        .as_millis()
        .to_string()
}

fn grace(grace: &Grace) -> String {
    let every = grace
        .every_lock_until
        .map(|until| format!("all {}", millis(until)));
    let locks = grace
        .locks
        .iter()
        .map(|(lock, until)| format!("{lock} {}", millis(*until)));
    let parts: Vec<String> = every.into_iter().chain(locks).collect();
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

fn note(entry: &JournalEntry) -> String {
    match entry {
        JournalEntry::Suspected { term } => format!("suspect {term}"),
        JournalEntry::DeathProven { term, basis } => format!("{term} dead by {}", basis.as_str()),
        JournalEntry::ProofVoid { term } => format!("proof of {term} void"),
        JournalEntry::TakeoverStarted { term, basis } => format!("take {term} by {}", basis.as_str()),
        JournalEntry::TakeoverLost { term } => format!("{term} lost"),
        JournalEntry::BecameActive { term, basis, .. } => format!("active in {term} by {}", basis.as_str()),
        JournalEntry::AuthorityLapsed { term, .. } => format!("{term} lapsed"),
        JournalEntry::SteppedDown { term, larger } => format!("{term} gives way to {larger}"),
        JournalEntry::HandoverStarted { term, to: Some(node) } => format!("hand {term} to {node}"),
        JournalEntry::HandoverStarted { term, to: None } => format!("release {term}"),
        JournalEntry::HandoverDone { term } => format!("{term} handed over"),
        JournalEntry::HandoverFailed { term } => format!("{term} goes on"),
        JournalEntry::WitnessWentBack { found, known } => match found {
            Some(found) => format!("witness went back from {known} to {found}"),
            None => format!("witness lost {known}"),
        },
        JournalEntry::StateNotDurable => "state not durable".to_owned(),
        JournalEntry::FloorExtendedAlone { term, floor } => {
            format!("{term} extends its floor alone to {}", second(*floor))
        }
    }
}
