//! The audit log: one JSON line for each change of ownership.
//!
//! Records are handed over within the lock table's critical section, so they are in the order of grants, and are written
//! by a thread of their own: no grant waits for a disk. What cannot be written yet waits in a bounded queue; what
//! does not fit any more is counted in `monolock_audit_dropped_total`, and the log says so.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use monolock_core::Ownership;
use monolock_protocol::{LockName, Token, WallTime};
use prometheus::IntCounter;
use serde::Serialize;

use crate::config::{AuditTarget, SettingError};
use crate::session::Session;

/// Where records are handed over. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct AuditLog {
    queue: SyncSender<Message>,
    dropped: IntCounter,
    says_dropping: Arc<AtomicBool>,
    path: Option<Arc<PathBuf>>,
    reopened: Arc<Mutex<Option<File>>>,
}

/// What happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AuditEvent {
    Ownership(Ownership),
    /// An `ACQUIRE` was refused by the access rules.
    Denied,
}

enum Message {
    Record(Box<Record>),
    Reopened,
    Flush(SyncSender<()>),
}

struct Record {
    time: WallTime,
    event: AuditEvent,
    lock: LockName,
    session: Arc<Session>,
}

impl AuditLog {
    /// Opens the target and starts the writer.
    pub(crate) fn open(target: &AuditTarget, dropped: IntCounter) -> Result<Self, SettingError> {
        let (output, path) = match target {
            AuditTarget::Stdout => (stdout()?, None),
            AuditTarget::File(path) => (append_to(path)?, Some(Arc::new(path.clone()))),
        };
        let (queue, messages) = sync_channel(QUEUE_LEN);
        let reopened = Arc::new(Mutex::new(None));
        let writer = Writer {
            messages,
            output,
            reopened: Arc::clone(&reopened),
            lines: Vec::new(),
            written: 0,
        };
        thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| SettingError::new(SETTING, format!("no thread to write it with: {error}")))?;
        Ok(Self {
            queue,
            dropped,
            says_dropping: Arc::default(),
            path,
            reopened,
        })
    }

    /// Hands a record over; never waits.
    pub(crate) fn record(&self, time: WallTime, event: AuditEvent, lock: LockName, session: Arc<Session>) {
        let record = Message::Record(Box::new(Record {
            time,
            event,
            lock,
            session,
        }));
        match self.queue.try_send(record) {
            Ok(()) => {
                if self.says_dropping.swap(false, Ordering::Relaxed) {
                    tracing::warn!(dropped = self.dropped.get(), "audit records are written again");
                }
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.inc();
                if !self.says_dropping.swap(true, Ordering::Relaxed) {
                    tracing::error!(
                        "the audit log cannot be written: its queue is full, records are dropped"
                    );
                }
            }
        }
    }

    /// Opens the file anew, for log rotation. When that fails the old one stays in use.
    pub(crate) fn reopen(&self) -> Result<(), SettingError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let file = append_to(path)?;
        *self.reopened.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        // Only wakes an idle writer: one with a full queue looks before each write.
        drop(self.queue.try_send(Message::Reopened));
        Ok(())
    }

    /// Waits until everything handed over so far is written, or for `limit`; whether it was.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let end = monolock_clock::boot_now() + limit;
        let (done, written) = sync_channel(1);
        while self.queue.try_send(Message::Flush(done.clone())).is_err() {
            if monolock_clock::boot_now() >= end {
                return false;
            }
            thread::sleep(FLUSH_RETRY);
        }
        let left = end.saturating_duration_since(monolock_clock::boot_now());
        written.recv_timeout(left).is_ok()
    }
}

/// The standard output without the buffer of the standard library, which would repeat bytes after a failure.
fn stdout() -> Result<File, SettingError> {
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    stdout
        .map(File::from)
        .map_err(|error| SettingError::new(SETTING, format!("stdout cannot be used: {error}")))
}

/// Opens a file to append to.
fn append_to(path: &PathBuf) -> Result<File, SettingError> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|error| SettingError::new(SETTING, format!("{}: cannot be opened: {error}", path.display())))
}

/// Whether the target can be opened; creates a file that is missing.
pub(crate) fn check(target: &AuditTarget) -> Result<(), SettingError> {
    match target {
        AuditTarget::Stdout => Ok(()),
        AuditTarget::File(path) => append_to(path).map(drop),
    }
}

struct Writer {
    messages: Receiver<Message>,
    output: File,
    reopened: Arc<Mutex<Option<File>>>,
    /// Whole lines, of which the first `written` bytes are written.
    lines: Vec<u8>,
    written: usize,
}

impl Writer {
    fn run(mut self) {
        loop {
            let Ok(first) = self.messages.recv() else {
                return;
            };
            let mut flushed = self.take(first);
            while self.lines.len() < BATCH_LEN
                && let Ok(message) = self.messages.try_recv()
            {
                flushed = self.take(message).or(flushed);
            }
            self.take_reopened();
            self.write_out();
            if let Some(done) = flushed {
                // Whoever asked may have stopped waiting.
                let _ = done.try_send(());
            }
        }
    }

    fn take(&mut self, message: Message) -> Option<SyncSender<()>> {
        match message {
            Message::Record(record) => {
                let line = Line::from(&*record);
                serde_json::to_writer(&mut self.lines, &line)
                    .expect("a vector takes all bytes, and no key is odd");
                self.lines.push(b'\n');
                None
            }
            Message::Reopened => None,
            Message::Flush(done) => Some(done),
        }
    }

    /// Writes all lines, however often it takes: while it fails, new records wait in the queue.
    fn write_out(&mut self) {
        let mut failures: u32 = 0;
        while self.written < self.lines.len() {
            self.take_reopened();
            match self.output.write(&self.lines[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if failures.is_multiple_of(FAILURES_PER_LOG_LINE) {
                        tracing::error!(%error, "the audit log cannot be written: trying again");
                    }
                    failures += 1;
                    thread::sleep(RETRY);
                }
            }
        }
        self.lines.clear();
        self.lines.shrink_to(BATCH_LEN);
        self.written = 0;
    }

    /// Goes over to a reopened file. A line that was cut off in the old one is written whole into the new one.
    fn take_reopened(&mut self) {
        let reopened = self
            .reopened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(file) = reopened {
            let cut = self.lines[..self.written].iter().rposition(|byte| *byte == b'\n');
            self.written = cut.map_or(0, |newline| newline + 1);
            self.output = file;
        }
    }
}

/// The fields in the order in which they are documented.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    event: &'static str,
    lock: &'a str,
    identity: &'a str,
    remote_addr: std::net::SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl<'a> From<&'a Record> for Line<'a> {
    fn from(record: &'a Record) -> Self {
        let line = |event, token: Option<Token>| Self {
            time: crate::clock::rfc3339(record.time),
            event,
            lock: record.lock.as_str(),
            identity: &record.session.identity,
            remote_addr: record.session.remote_addr,
            token: token.map(Token::get),
            wait_ms: None,
            held_ms: None,
            reason: None,
        };
        match record.event {
            AuditEvent::Denied => line("denied", None),
            AuditEvent::Ownership(Ownership::Granted { token, waited }) => Self {
                wait_ms: Some(waited.as_millis()),
                ..line("granted", Some(token))
            },
            AuditEvent::Ownership(Ownership::Released { token, held, reason }) => Self {
                held_ms: Some(held.as_millis()),
                reason: Some(reason.as_str()),
                ..line("released", Some(token))
            },
            AuditEvent::Ownership(Ownership::ForceRelease { token }) => line("force_release", Some(token)),
            AuditEvent::Ownership(Ownership::KickWaiter) => line("kick_waiter", None),
        }
    }
}

const SETTING: &str = "MONOLOCK_AUDIT_LOG";

/// How many records may wait for a slow disk.
const QUEUE_LEN: usize = 65_536;

const BATCH_LEN: usize = 64 * 1024;

const RETRY: Duration = Duration::from_millis(100);

/// Every five seconds.
const FAILURES_PER_LOG_LINE: u32 = 50;

const FLUSH_RETRY: Duration = Duration::from_millis(10);
