//! What the rest of the server knows of one connection, and how it reaches its task.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use monolock_protocol::frame::ServerFrame;
use smallvec::SmallVec;

/// Encoded frames. The usual answer, one `ACQUIRED`, takes no memory of its own.
pub(crate) type Frames = SmallVec<[u8; 16]>;

/// One connection. Its own task reads the mail; everybody else leaves some and wakes it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) remote_addr: SocketAddr,
    /// Empty without mutual TLS.
    pub(crate) identity: Box<str>,
    mailbox: Mutex<Mailbox>,
}

#[derive(Debug, Default)]
struct Mailbox {
    frames: Frames,
    end: Option<SessionEnd>,
    waker: Option<Waker>,
    /// The frames wait until the last of them may be sent.
    held_back: bool,
}

/// How the session's task finishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// An `ERROR` frame is the last of its mail.
    WithError,
    /// The lease ran out: close without a word.
    Silent,
}

/// What a session's task has to do.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// To send, in order.
    pub(crate) frames: Frames,
    /// Then finish like this.
    pub(crate) end: Option<SessionEnd>,
}

impl Session {
    pub(crate) fn new(remote_addr: SocketAddr, identity: Box<str>) -> Self {
        Self {
            remote_addr,
            identity,
            mailbox: Mutex::default(),
        }
    }

    pub(crate) fn send(&self, frame: &ServerFrame) {
        let mut mailbox = self.mailbox();
        if mailbox.end.is_none() {
            frame.encode(&mut mailbox.frames);
            if !mailbox.held_back {
                mailbox.wake();
            }
        }
    }

    /// Nothing is sent until [`Session::release`]: the session was granted its lock, and must not know yet. What it is sent
    /// meanwhile stays in order behind that.
    pub(crate) fn hold_back(&self) {
        self.mailbox().held_back = true;
    }

    pub(crate) fn release(&self) {
        let mut mailbox = self.mailbox();
        mailbox.held_back = false;
        mailbox.wake();
    }

    pub(crate) fn end_with(&self, error: &ServerFrame) {
        let mut mailbox = self.mailbox();
        if mailbox.end.is_none() {
            if std::mem::take(&mut mailbox.held_back) {
                mailbox.frames = Frames::new();
            }
            error.encode(&mut mailbox.frames);
            mailbox.end = Some(SessionEnd::WithError);
            mailbox.wake();
        }
    }

    pub(crate) fn end_silently(&self) {
        let mut mailbox = self.mailbox();
        if mailbox.end.is_none() {
            mailbox.frames = Frames::new();
            mailbox.end = Some(SessionEnd::Silent);
            mailbox.wake();
        }
    }

    /// Ready when there is mail; else the task is woken by the next.
    pub(crate) fn poll_mail(&self, cx: &Context<'_>) -> Poll<()> {
        let mut mailbox = self.mailbox();
        if mailbox.has_something() {
            return Poll::Ready(());
        }
        mailbox.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The task is awake, and looks for mail before it sleeps again: whoever leaves some until then need not wake it. The
    /// answer to its own heartbeat would else make the runtime run it once more, and wake another thread for that.
    pub(crate) fn stay_awake(&self) {
        self.mailbox().waker = None;
    }

    pub(crate) fn take_mail(&self) -> Mail {
        let mut mailbox = self.mailbox();
        if !mailbox.has_something() {
            return Mail::default();
        }
        Mail {
            frames: std::mem::take(&mut mailbox.frames),
            end: mailbox.end,
        }
    }

    /// A panic elsewhere leaves the mailbox whole: each change is one assignment.
    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mailbox {
    fn has_something(&self) -> bool {
        self.end.is_some() || !self.held_back && !self.frames.is_empty()
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
