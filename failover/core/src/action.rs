//! What goes into the watchdog and what comes out of it.

use std::time::Duration;

use monolock_protocol::{BootInstant, Token};

use crate::follow::Grace;
use crate::record::{Incarnation, NodeId, NodeState, Record, Term};

/// Names one operation that was asked for; its outcome comes back under the same number. An outcome whose number is
/// no longer expected changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// Names one request of the peer that waits for its answer; given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyId(pub u64);

/// What the caller must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read the record; answer with [`handle_reading`](crate::Watchdog::handle_reading) within half a `ttl`.
    ReadWitness {
        /// The operation.
        op: OpId,
    },
    /// Swap the record; answer with [`handle_swap`](crate::Watchdog::handle_swap) within half a `ttl`, never twice.
    SwapWitness {
        /// The operation.
        op: OpId,
        /// What the register must hold; `None`: nothing.
        expected: Option<Record>,
        /// What it shall hold.
        new: Record,
    },
    /// Ask the peer; answer with [`handle_promise_answer`](crate::Watchdog::handle_promise_answer).
    AskPromise {
        /// The operation.
        op: OpId,
        /// The request.
        request: PromiseRequest,
    },
    /// Answer the peer's request for a promise.
    AnswerPromise {
        /// The request that is answered.
        reply: ReplyId,
        /// The answer.
        answer: PromiseAnswer,
    },
    /// Make the node's state durable; answer with [`handle_persisted`](crate::Watchdog::handle_persisted).
    Persist {
        /// The operation.
        op: OpId,
        /// What must be on disk before the answer.
        state: NodeState,
    },
    /// Ask the owner of the lock table; answer with [`handle_table_report`](crate::Watchdog::handle_table_report).
    ProbeTable {
        /// The operation.
        op: OpId,
    },
    /// Find out whether both ports of the peer refuse; answer with
    /// [`handle_probe`](crate::Watchdog::handle_probe).
    ProbePorts {
        /// The operation.
        op: OpId,
    },
    /// Without a witness: stop the silent peer, by its own word or by the fence command, before anybody takes over from
    /// it; answer with [`handle_fenced`](crate::Watchdog::handle_fenced).
    FenceFirst {
        /// The operation.
        op: OpId,
        /// The term that must end.
        term: Term,
    },
    /// Open the gate of the lock server: this node is active.
    OpenGate(OpenGate),
    /// Move the deadline and the ceiling of an open gate.
    RenewAuthority {
        /// The term of the gate.
        term: Term,
        /// When authority ends unless renewed.
        until: BootInstant,
        /// Every token granted is smaller.
        ceiling: Token,
    },
    /// Shut the gate and end its sessions; answer a handover's with
    /// [`handle_gate_shut`](crate::Watchdog::handle_gate_shut), any other with
    /// [`handle_stopped`](crate::Watchdog::handle_stopped).
    ShutGate {
        /// Why.
        why: ShutReason,
    },
    /// Tell the old active to shut its gate and cut its sessions, then run the fence command.
    Fence {
        /// The term that ended.
        term: Term,
    },
    /// Publish the service name for this node.
    PublishName {
        /// The term of the new active.
        term: Term,
    },
    /// Tell the peer that the term is its own now.
    TellHandover {
        /// The record that was swapped in.
        record: Record,
    },
    /// Write a line into the journal.
    Journal(JournalEntry),
}

/// How the gate of a new active opens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenGate {
    /// The term.
    pub term: Term,
    /// Every token granted is at least this.
    pub first_token: Token,
    /// Every token granted is smaller.
    pub ceiling: Token,
    /// When authority ends unless renewed; without a witness it does not.
    pub authority_until: BootInstant,
    /// Which locks are held back.
    pub grace: Grace,
}

/// Why a gate is shut: what its sessions are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShutReason {
    /// Authority lapsed or went to the peer: `ERROR 03`.
    NotActive,
    /// A planned handover: `ERROR 01`.
    Handover,
}

/// The active asks its peer not to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PromiseRequest {
    /// The term of the active.
    pub term: Term,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The floor to remember.
    pub floor: Token,
    /// The longest lease to remember, in milliseconds.
    pub max_lease_ms: u32,
    /// Without a witness: the sender asks for consent to begin this term, with this first token. `None`: it holds it.
    pub candidacy: Option<Token>,
}

/// The answer to a [`PromiseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PromiseAnswer {
    /// `None`: promised. Otherwise why not.
    pub refused: Option<PromiseRefusal>,
    /// The highest term that the answering node has seen.
    pub highest_term: Term,
    /// The highest floor that it knows.
    pub floor: Token,
    /// The longest lease that it knows of, in milliseconds.
    pub longest_lease_ms: u32,
}

/// Why a node does not promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PromiseRefusal {
    /// It has seen a larger term, or holds it.
    LargerTerm,
    /// Its own takeover swap is under way.
    SwapPending,
    /// It holds a release or a proof of death of that term.
    TermEnded,
    /// Its state file could not be written.
    NotDurable,
    /// No consent: it is active itself.
    Active,
    /// No consent: a reign of its own has ended, and its gate is not known to be shut.
    GateMayBeOpen,
    /// No consent: the candidate's first token is below a floor that it knows.
    FloorBehind,
}

/// The outcome of [`Action::SwapWitness`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SwapOutcome {
    /// The record was swapped.
    Won,
    /// The register held something else, and still does not hold ours.
    Lost {
        /// What it held.
        current: Option<Record>,
    },
    /// The register was certainly not changed by this swap, and never will be.
    Failed,
    /// The answer was lost: the swap may have happened, or may still happen.
    Unknown,
}

/// What the owner of the lock table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableReport {
    /// The largest token granted in this term, or the one below the first.
    pub last_token: Token,
    /// The unix second that the next grant would follow: adopted wall time.
    pub epoch: u64,
    /// The longest lease of a claim, in milliseconds.
    pub longest_lease_ms: u32,
}

/// What an authenticated answer of the peer says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerStatus {
    /// The life that answered.
    pub incarnation: Incarnation,
    /// Whether its gate is open.
    pub active: bool,
    /// Whether its lock table answers, as far as it knows.
    pub table_answers: bool,
    /// Whether it could take a term handed to it.
    pub ready: bool,
    /// The highest term it has seen.
    pub highest_term: Term,
    /// The highest floor it has seen.
    pub floor: Token,
    /// The longest lease it has heard of, in milliseconds.
    pub longest_lease_ms: u32,
}

/// The argument that carries a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TakeoverBasis {
    /// The record stood still for the whole authority period.
    Silence,
    /// The last active gave its term up.
    Released,
    /// The last active handed its term to this node.
    Handover,
    /// The stream ended and both ports of the peer refuse: its process is gone.
    Crash,
    /// The peer answers in a new life: the one that held the term is gone.
    NewIncarnation,
    /// Without a witness: the peer agreed to it.
    Consent,
    /// Without a witness: the silent peer was stopped first.
    Fenced,
    /// Without a witness: the peer is silent, and nothing is proven. Two nodes may be active.
    Unproven,
}

impl TakeoverBasis {
    /// Every basis, for dashboards.
    pub const ALL: [Self; 8] = [
        Self::Silence,
        Self::Released,
        Self::Handover,
        Self::Crash,
        Self::NewIncarnation,
        Self::Consent,
        Self::Fenced,
        Self::Unproven,
    ];

    /// A word for logs, metrics and the journal.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Silence => "silence",
            Self::Released => "released",
            Self::Handover => "handover",
            Self::Crash => "crash",
            Self::NewIncarnation => "new_incarnation",
            Self::Consent => "consent",
            Self::Fenced => "fenced",
            Self::Unproven => "unproven",
        }
    }
}

/// Why a standby is not taking over right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// It has not watched for a whole authority period since it started.
    ObservingAfterStart {
        /// Until when.
        until: BootInstant,
    },
    /// It has promised the active not to.
    PromiseRuns {
        /// Until when.
        until: BootInstant,
    },
    /// The record moved too recently.
    RecordMoved {
        /// When it will have stood still long enough.
        until: BootInstant,
    },
    /// The witness has not been read lately, so nothing is known.
    WitnessUnread {
        /// How long ago the last reading was, if there was one.
        age: Option<Duration>,
    },
    /// No floor is known and no clock is trusted: the first term would need one of them.
    NoTrustedClock,
    /// A swap of its own is under way.
    SwapPending,
    /// It is active itself.
    IsActive,
    /// Without a witness: the active peer was heard too recently.
    PeerHeard {
        /// When it will have been silent long enough.
        until: BootInstant,
    },
    /// Without a witness: the silent peer is being stopped.
    Fencing,
    /// Without a witness: the silent peer could not be stopped, and may be active.
    NotProven,
    /// Without a witness: this node held the last term that it knows of, so its silent peer may have held a later one,
    /// with tokens that this node has not heard of.
    MayHaveBeenFollowed,
    /// Without a witness: a reign of this node has ended, and its gate is not known to be shut.
    GateMayBeOpen,
    /// Its process is about to end.
    Retired,
}

impl Waiting {
    /// Every word of [`as_str`](Self::as_str), for dashboards.
    pub const WORDS: [&str; 13] = [
        "observing_after_start",
        "promise_runs",
        "record_moved",
        "witness_unread",
        "no_trusted_clock",
        "peer_heard",
        "fencing",
        "not_proven",
        "may_have_been_followed",
        "gate_may_be_open",
        "swap_pending",
        "is_active",
        "retired",
    ];

    /// A word for metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::ObservingAfterStart { .. } => "observing_after_start",
            Self::PromiseRuns { .. } => "promise_runs",
            Self::RecordMoved { .. } => "record_moved",
            Self::WitnessUnread { .. } => "witness_unread",
            Self::PeerHeard { .. } => "peer_heard",
            Self::Fencing => "fencing",
            Self::NotProven => "not_proven",
            Self::MayHaveBeenFollowed => "may_have_been_followed",
            Self::GateMayBeOpen => "gate_may_be_open",
            Self::NoTrustedClock => "no_trusted_clock",
            Self::SwapPending => "swap_pending",
            Self::IsActive => "is_active",
            Self::Retired => "retired",
        }
    }
}

/// A step worth remembering.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum JournalEntry {
    /// The peer is suspected; its ports are probed.
    Suspected {
        /// The term of the suspect.
        term: Term,
    },
    /// The peer's death is proven.
    DeathProven {
        /// The term it held.
        term: Term,
        /// The argument.
        basis: TakeoverBasis,
    },
    /// A proof became void: the peer answered or the record moved.
    ProofVoid {
        /// The term of the proof.
        term: Term,
    },
    /// A takeover swap is sent.
    TakeoverStarted {
        /// The term to win.
        term: Term,
        /// The argument.
        basis: TakeoverBasis,
    },
    /// The swap was won by somebody else, or failed for certain.
    TakeoverLost {
        /// The term that was not won.
        term: Term,
    },
    /// The gate opened.
    BecameActive {
        /// The term won.
        term: Term,
        /// The argument.
        basis: TakeoverBasis,
        /// The first token it may grant.
        first_token: Token,
        /// From sending the swap to opening the gate.
        swap_to_open: Duration,
    },
    /// Authority lapsed; the term is over for good.
    AuthorityLapsed {
        /// The term.
        term: Term,
        /// When it lapsed: a node that was frozen notices late.
        at: BootInstant,
    },
    /// A larger term was seen, or, without a witness, the peer has fenced this one.
    SteppedDown {
        /// The term given up.
        term: Term,
        /// The larger term; the same one after such a fence.
        larger: Term,
    },
    /// The gate is shut for a handover.
    HandoverStarted {
        /// The term that is handed over.
        term: Term,
        /// To whom; `None`: released without a successor.
        to: Option<NodeId>,
    },
    /// The term was handed over or released.
    HandoverDone {
        /// The term that begins.
        term: Term,
    },
    /// The handover failed for certain; the gate opened again.
    HandoverFailed {
        /// The term that goes on.
        term: Term,
    },
    /// The witness holds less than this node remembers: it was restored from a backup, or lost its data.
    WitnessWentBack {
        /// The term found.
        found: Option<Term>,
        /// The highest term known.
        known: Term,
    },
    /// The state file could not be written.
    StateNotDurable,
    /// Without a witness: the active, alone for long, has raised its floor without anybody's acknowledgement. From here
    /// on the order of tokens rests on the peer's clock, too.
    FloorExtendedAlone {
        /// The term.
        term: Term,
        /// The new floor.
        floor: Token,
    },
}
