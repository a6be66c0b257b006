//! Moves bytes and time between one session and its connection; every decision is the session's.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use futures_util::FutureExt;
use monolock_protocol::{BootInstant, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::connect::Stream;
use crate::live::Live;
use crate::session::{Action, Lost, Session};
use crate::timers::Timers;

/// What became of a session while its bytes were moved.
#[derive(Debug)]
pub(crate) enum Progress {
    Queued,
    Granted(Token),
    Ended(Lost),
}

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) live: Arc<Live>,
    timers: Timers,
    reader: ReadHalf<Stream>,
    writer: WriteHalf<Stream>,
    unsent: VecDeque<u8>,
    is_flushed: bool,
}

impl Driver {
    pub(crate) fn new(live: Arc<Live>, stream: Stream, timers: Timers) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            live,
            timers,
            reader,
            writer,
            unsent: VecDeque::new(),
            is_flushed: true,
        }
    }

    /// Keeps the session alive until something is worth telling. [`Progress::Ended`] is the last there is.
    pub(crate) async fn next(&mut self) -> Progress {
        loop {
            match self.live.step(|session, _| session.poll_action()) {
                Some(Action::Send(bytes)) => {
                    self.unsent.extend(bytes);
                    self.is_flushed = false;
                }
                Some(Action::Queued) => return Progress::Queued,
                Some(Action::Granted(token)) => return Progress::Granted(token),
                Some(Action::Ended(lost)) => return Progress::Ended(lost),
                None => self.turn().await,
            }
        }
    }

    /// Waits for one event and hands it to the session.
    async fn turn(&mut self) {
        let wake_at = self.live.step(|session, _| session.poll_timeout());
        let mut received = [0; RECEIVE_BUFFER];
        tokio::select! {
            // The end itself is the session's next action.
            _ = self.live.lost() => {}
            () = self.timers.sleep_until(wake_at.unwrap_or(BootInstant::MAX)) => {
                self.live.step(Session::handle_timeout);
            }
            read = self.reader.read(&mut received) => handle_read(&self.live, read, &received),
            written = push_out(&mut self.writer, &mut self.unsent), if !self.is_flushed => match written {
                Ok(()) => self.is_flushed = true,
                Err(error) => self.handle_write_error(&error),
            },
        }
    }

    /// The connection is broken, but what the server said last may still be readable, and tells more.
    fn handle_write_error(&mut self, error: &io::Error) {
        let mut received = [0; RECEIVE_BUFFER];
        while let Some(Ok(read @ 1..)) = self.reader.read(&mut received).now_or_never() {
            handle_read(&self.live, Ok(read), &received);
        }
        self.live
            .step(|session, now| session.handle_closed(Some(error.kind()), now));
    }
}

fn handle_read(live: &Live, read: io::Result<usize>, received: &[u8]) {
    live.step(|session, now| match read {
        Ok(0) => session.handle_closed(None, now),
        Ok(len) => session.handle_received(&received[..len], now),
        // Over TLS, a peer that closes without saying so ends up here; it has closed all the same.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => session.handle_closed(None, now),
        Err(error) => session.handle_closed(Some(error.kind()), now),
    });
}

/// Cancel safe: what was written is taken off `unsent` at once.
async fn push_out(writer: &mut WriteHalf<Stream>, unsent: &mut VecDeque<u8>) -> io::Result<()> {
    while !unsent.is_empty() {
        if writer.write_buf(unsent).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    writer.flush().await
}

/// Frames are short: a few bytes, an `ERROR` at most 258.
const RECEIVE_BUFFER: usize = 512;
