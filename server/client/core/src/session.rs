//! One session of the wire protocol, seen from the client: what to send, when, and when the claim is over.
//!
//! Pure: bytes and times come in, [`Action`]s come out. It neither reads a clock nor opens a socket, so every rule
//! can be tested to the byte. The caller performs the actions in the order they come.
//!
//! The dangers it guards against:
//!
//! - **Believing too long.** The deadline (`0.8 * lease` after the *sending* of the last answered frame) is checked
//!   first in every call, before the input is looked at. A process that was frozen past it finds the claim over
//!   whatever else lies in its socket.
//! - **Crediting the push.** The first `ACQUIRED` after `WAITING` is the promotion and answers nothing, also when a
//!   heartbeat is in flight: that one's answer, another `ACQUIRED`, still follows.
//! - **A frame too many.** A frame that answers nothing would later be taken for the answer of a heartbeat that the
//!   server never received. It ends the session.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::Duration;

use monolock_protocol::frame::{Decoded, HEARTBEAT_FRAME, ServerFrame, decode_server_frame, encode_acquire};
use monolock_protocol::{BootInstant, ErrorCode, HeartbeatSchedule, Lease, LockName, Token};

use crate::rules::{Rule, Rules};

/// Why a claim is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The server did not answer a heartbeat in time: it is dead, unreachable or too slow. The lock may go to somebody
    /// else when the lease ends on the server.
    #[error("the server has confirmed nothing for {unconfirmed:?}: the lock may be somebody else's soon")]
    HeartbeatTimeout {
        /// How long ago the last answered frame was sent.
        unconfirmed: Duration,
    },
    /// This process or machine was frozen, suspended or starved past its deadline; the lock may be somebody else's by now.
    #[error(
        "this process did not run for {overslept:?} when a heartbeat was due: the lock may be somebody else's"
    )]
    Suspended {
        /// How much too late the process noticed.
        overslept: Duration,
    },
    /// The connection ended: cleanly (`None`), or with an I/O error of this kind.
    #[error("the connection to the server was closed{}", Kind(*.0))]
    Closed(Option<io::ErrorKind>),
    /// The peer sent what no server of this protocol sends.
    #[error("the server broke the protocol: {0}")]
    ProtocolViolation(#[from] Violation),
    /// The server ended the session and said why.
    #[error("the server ended the session: {code}{}", Reason(.code, .reason))]
    Server {
        /// What to do about it: see [`ErrorCode::class`].
        code: ErrorCode,
        /// For people; may be empty.
        reason: String,
    },
    /// The claim was released by this program: its guard was dropped, or its work has returned.
    #[error("the claim was released by this program")]
    Released,
}

/// What a peer sent that no server of this protocol sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A byte that starts no frame.
    #[error("unknown message type 0x{message_type:02x}")]
    UnknownFrame {
        /// The byte found.
        message_type: u8,
    },
    /// A state frame that answers nothing this client sent.
    #[error("an answer that nothing was waiting for")]
    UnaskedAnswer,
    /// A session that held the lock was told to wait.
    #[error("WAITING after ACQUIRED")]
    FellBackToWaiting,
    /// A session has one grant and so one token.
    #[error("the token changed from {granted} to {received} within one session")]
    TokenChanged {
        /// The token of the grant.
        granted: Token,
        /// The one that came later.
        received: Token,
    },
}

/// What the caller has to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write these bytes. Their age counts from the call that produced them, so being late costs nothing but time.
    Send(Vec<u8>),
    /// The claim waits in the lock's queue.
    Queued,
    /// The claim holds the lock.
    Granted(Token),
    /// The claim is over: close the connection at once. The last action of a session.
    Ended(Lost),
}

#[derive(Clone, Debug)]
enum Phase {
    /// `ACQUIRE` is unanswered.
    Asked,
    Waiting,
    Held(Token),
    Ended(Lost),
}

/// One claim on one lock over one connection.
///
/// ```
/// use std::time::Duration;
/// use monolock_client_core::session::{Action, Session};
/// use monolock_protocol::{BootInstant, Lease, LockName, Token};
/// use monolock_protocol::frame::ServerFrame;
///
/// let at = BootInstant::from_millis;
/// let mut session = Session::new(&LockName::new("import")?, Lease::from_millis(2_000)?, at(0));
/// assert!(matches!(session.poll_action(), Some(Action::Send(_))), "the ACQUIRE");
/// session.handle_frame(ServerFrame::Acquired(Token::new(7)), at(3));
/// assert_eq!(session.poll_action(), Some(Action::Granted(Token::new(7))));
/// assert_eq!(session.grant(at(1_599)), Ok(Some(Token::new(7))));
/// assert!(session.grant(at(1_600)).is_err(), "0.8 leases after the ACQUIRE was sent");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    rules: Rules,
    lease: Lease,
    schedule: HeartbeatSchedule,
    phase: Phase,
    /// The start of a frame whose rest has not arrived.
    received: Vec<u8>,
    actions: VecDeque<Action>,
}

impl Session {
    /// Makes the claim: the first action is to send the `ACQUIRE`.
    #[must_use]
    pub fn new(lock: &LockName, lease: Lease, now: BootInstant) -> Self {
        let mut acquire = Vec::new();
        encode_acquire(lock, lease, &mut acquire);
        Self {
            rules: Rules::default(),
            lease,
            schedule: HeartbeatSchedule::new(lease, now),
            phase: Phase::Asked,
            received: Vec::new(),
            actions: VecDeque::from([Action::Send(acquire)]),
        }
    }

    /// The same session without one of its rules: unsafe, to show what it is for.
    #[cfg(feature = "model")]
    #[doc(hidden)]
    #[must_use]
    pub fn without_rule(self, rule: Rule) -> Self {
        Self {
            rules: Rules::without(rule),
            ..self
        }
    }

    /// Takes bytes as they arrived; they may hold any part of a frame or many frames.
    pub fn handle_received(&mut self, bytes: &[u8], now: BootInstant) {
        self.received.extend_from_slice(bytes);
        let mut consumed_so_far = 0;
        while self.is_open() {
            match decode_server_frame(&self.received[consumed_so_far..]) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    consumed_so_far += consumed;
                    self.handle_frame(frame, now);
                }
                Ok(Decoded::Incomplete) => break,
                Err(unknown) => self.violate(
                    Violation::UnknownFrame {
                        message_type: unknown.message_type,
                    },
                    now,
                ),
            }
        }
        self.received.drain(..consumed_so_far);
    }

    /// Takes one frame of the server.
    pub fn handle_frame(&mut self, frame: ServerFrame, now: BootInstant) {
        if self.is_over(now) {
            return;
        }
        match (&self.phase, frame) {
            (_, ServerFrame::Error { code, reason }) => self.end(Lost::Server { code, reason }),
            (Phase::Asked, ServerFrame::Waiting) => {
                self.answered(now);
                self.phase = Phase::Waiting;
                self.actions.push_back(Action::Queued);
            }
            (Phase::Asked, ServerFrame::Acquired(token)) => {
                self.answered(now);
                self.hold(token);
            }
            (Phase::Waiting, ServerFrame::Waiting) => self.answered(now),
            // The push: it answers nothing, so it confirms nothing.
            (Phase::Waiting, ServerFrame::Acquired(token)) => {
                if !self.rules.hold(Rule::PushAnswersNothing) {
                    self.schedule.handle_answer(now);
                }
                self.hold(token);
            }
            (&Phase::Held(granted), ServerFrame::Acquired(received)) if received != granted => {
                self.violate(Violation::TokenChanged { granted, received }, now);
            }
            (Phase::Held(_), ServerFrame::Acquired(_)) => self.answered(now),
            (Phase::Held(_), ServerFrame::Waiting) => self.violate(Violation::FellBackToWaiting, now),
            (Phase::Ended(_), ServerFrame::Waiting | ServerFrame::Acquired(_)) => {}
        }
    }

    /// The connection ended: the peer closed it (`None`), or reading or writing failed.
    pub fn handle_closed(&mut self, kind: Option<io::ErrorKind>, now: BootInstant) {
        if !self.is_over(now) {
            self.end(Lost::Closed(kind));
        }
    }

    /// Sends a heartbeat that is due; ends a claim whose deadline has passed. Harmless when called early.
    pub fn handle_timeout(&mut self, now: BootInstant) {
        self.end_if_late(now);
        if self.is_over(now) || self.schedule.next_send().is_none_or(|due| now < due) {
            return;
        }
        self.schedule.handle_sent(now);
        self.actions.push_back(Action::Send(HEARTBEAT_FRAME.to_vec()));
    }

    /// Ends the claim on the caller's wish. One that is over already keeps its cause.
    pub fn release(&mut self, now: BootInstant) {
        if !self.is_over(now) {
            self.end(Lost::Released);
        }
    }

    /// The fencing token, if the claim holds the lock at `now`; `None` while it is not granted yet.
    ///
    /// # Errors
    ///
    /// Why the claim is over; the deadline is checked against `now` first.
    pub fn grant(&mut self, now: BootInstant) -> Result<Option<Token>, Lost> {
        self.is_over(now);
        match &self.phase {
            Phase::Asked | Phase::Waiting => Ok(None),
            Phase::Held(token) => Ok(Some(*token)),
            Phase::Ended(lost) => Err(lost.clone()),
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next; `None` once the claim is over.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<BootInstant> {
        let give_up_at = self.schedule.give_up_at();
        self.is_open().then(|| {
            self.schedule
                .next_send()
                .map_or(give_up_at, |due| due.min(give_up_at))
        })
    }

    /// What to do next; `None` until the next call of a `handle_` method.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Why the claim is over, if it is known to be; [`grant`](Self::grant) looks at the deadline first.
    #[must_use]
    pub fn lost(&self) -> Option<&Lost> {
        match &self.phase {
            Phase::Asked | Phase::Waiting | Phase::Held(_) => None,
            Phase::Ended(lost) => Some(lost),
        }
    }

    /// Until when the server cannot have granted the lock to somebody else. After silence that is nine tenths of the lease,
    /// counted from the sending of the last answered frame: by then the lease has not ended on the server either, also
    /// when this machine's clock runs 5 % slow and the server's 5 % fast. Once the server or the connection has ended the
    /// session, there is no such time: [`BootInstant::ZERO`].
    #[must_use]
    pub fn safe_until(&self) -> BootInstant {
        match self.lost() {
            None | Some(Lost::HeartbeatTimeout { .. } | Lost::Suspended { .. }) => self.safe_after_silence(),
            Some(Lost::Closed(_) | Lost::ProtocolViolation(_) | Lost::Server { .. } | Lost::Released) => {
                BootInstant::ZERO
            }
        }
    }

    fn safe_after_silence(&self) -> BootInstant {
        if self.rules.hold(Rule::SafeTimeCountsClockRates) {
            self.schedule.give_up_at() + self.lease.as_duration() / 10
        } else {
            self.lease_end()
        }
    }

    fn lease_end(&self) -> BootInstant {
        self.schedule.give_up_at() + self.lease.as_duration() / 5
    }

    fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Ended(_))
    }

    /// Whether the claim is over; ends it when its deadline has passed. First in every call.
    fn is_over(&mut self, now: BootInstant) -> bool {
        if self.rules.hold(Rule::DeadlineIsCheckedFirst) {
            self.end_if_late(now);
        }
        !self.is_open()
    }

    fn end_if_late(&mut self, now: BootInstant) {
        if self.is_open() && now >= self.schedule.give_up_at() {
            let lost = self.why_late(now);
            self.end(lost);
        }
    }

    /// A heartbeat that should have been sent but was not, or a wake-up later than the whole lease, is this process's
    /// own fault; otherwise the server had its chance to answer.
    fn why_late(&self, now: BootInstant) -> Lost {
        let give_up_at = self.schedule.give_up_at();
        let due = self.schedule.next_send().unwrap_or(give_up_at);
        if due < give_up_at || now >= self.lease_end() {
            return Lost::Suspended {
                overslept: now.saturating_duration_since(due),
            };
        }
        Lost::HeartbeatTimeout {
            unconfirmed: now.saturating_duration_since(give_up_at) + self.lease.as_duration() * 4 / 5,
        }
    }

    fn answered(&mut self, now: BootInstant) {
        if !self.rules.hold(Rule::ConfirmedFromSending) {
            self.schedule = HeartbeatSchedule::new(self.lease, now);
        }
        if !self.schedule.handle_answer(now) {
            self.violate(Violation::UnaskedAnswer, now);
        }
    }

    fn hold(&mut self, token: Token) {
        self.phase = Phase::Held(token);
        self.actions.push_back(Action::Granted(token));
    }

    fn violate(&mut self, violation: Violation, now: BootInstant) {
        if !self.is_over(now) {
            self.end(violation.into());
        }
    }

    /// What was still to do is void: nothing is sent, and no grant is announced, for a claim that is over.
    fn end(&mut self, lost: Lost) {
        self.phase = Phase::Ended(lost.clone());
        self.actions.clear();
        self.actions.push_back(Action::Ended(lost));
    }
}

struct Kind(Option<io::ErrorKind>);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |kind| write!(f, ": {kind}"))
    }
}

/// The reason, when it says more than the code's own text.
#[doc(hidden)]
pub struct Reason<'a>(pub &'a ErrorCode, pub &'a str);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1.is_empty() || self.1 == self.0.text() {
            return Ok(());
        }
        write!(f, " ({})", self.1)
    }
}

#[cfg(test)]
mod tests;
