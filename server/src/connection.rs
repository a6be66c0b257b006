//! One connection: from its first byte to its last.
//!
//! Memory is what limits the number of sessions, so an idle one keeps no buffer: it reads into the stack of the poll
//! that found bytes, and phases that are rare are boxed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use monolock_core::{ClaimId, CloseCause};
use monolock_protocol::frame::{
    ClientFrame, Decoded, MAX_CLIENT_FRAME_LEN, ProtocolViolation, ServerFrame, SessionPhase,
    decode_client_frame,
};
use monolock_protocol::{ErrorCode, Lease, LockName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use crate::server::Shared;
use crate::session::{Session, SessionEnd};

/// Serves one connection until it is closed.
pub(crate) async fn serve<S>(mut stream: S, session: Arc<Session>, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let opening = Box::pin(open(&mut stream, &session, &shared)).await;
    let refusal = match opening {
        Opening::Claimed(claim) => return hold(&mut stream, &session, claim, &shared).await,
        Opening::Refused(refusal) => refusal,
        Opening::Gone => return,
    };
    if let ServerFrame::Error { code, .. } = &refusal {
        shared.metrics.error_sent(*code);
    }
    if send(&mut stream, &refusal.to_bytes(), shared.io_timeout)
        .await
        .is_ok()
    {
        Box::pin(finish(&mut stream, &shared)).await;
    }
}

enum Opening {
    Claimed(ClaimId),
    Refused(ServerFrame),
    Gone,
}

/// Waits for the `ACQUIRE` and makes the claim.
async fn open<S: AsyncRead + Unpin>(stream: &mut S, session: &Arc<Session>, shared: &Shared) -> Opening {
    let mut received = Opened::default();
    let request = tokio::select! {
        biased;
        () = shared.stopping.cancelled() => return Opening::Refused(ServerFrame::error(ErrorCode::ShuttingDown)),
        request = read_acquire(stream, &mut received, shared.io_timeout) => request,
    };
    match request {
        Ok(Some((lock, lease))) => claim(session, lock, lease, received.bytes(), shared),
        Ok(None) => Opening::Gone,
        Err(violation) => Opening::Refused(violation.into()),
    }
}

fn claim(session: &Arc<Session>, lock: LockName, lease: Lease, behind: &[u8], shared: &Shared) -> Opening {
    if let Some(acl) = &shared.acl
        && !acl.allows(&session.identity, &lock)
    {
        shared.owner.record_denial(session, lock);
        return Opening::Refused(ServerFrame::error(ErrorCode::NotAuthorized));
    }
    match shared.owner.acquire(session, lock, lease) {
        Ok(claim) => {
            let received = Received::parse(behind);
            if received.bytes > 0 {
                shared
                    .owner
                    .received(claim, received.heartbeats, received.violation);
            }
            Opening::Claimed(claim)
        }
        Err(refused) => Opening::Refused(ServerFrame::error(refused.code)),
    }
}

/// What came before the claim is made: at most one `ACQUIRE`, or a shorter one and the first heartbeats.
struct Opened {
    space: [u8; MAX_CLIENT_FRAME_LEN],
    taken: usize,
    filled: usize,
}

impl Default for Opened {
    fn default() -> Self {
        Self {
            space: [0; MAX_CLIENT_FRAME_LEN],
            taken: 0,
            filled: 0,
        }
    }
}

impl Opened {
    fn bytes(&self) -> &[u8] {
        &self.space[self.taken..self.filled]
    }

    /// Whether anything more came.
    async fn receive_more<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> bool {
        let more = stream.read(&mut self.space[self.filled..]).await.unwrap_or(0);
        self.filled += more;
        more > 0
    }
}

/// The first frame; what came behind it stays in `received`. `None` when the client left or stalled: there is no
/// error code for that.
async fn read_acquire<S: AsyncRead + Unpin>(
    stream: &mut S,
    received: &mut Opened,
    io_timeout: Duration,
) -> Result<Option<(LockName, Lease)>, ProtocolViolation> {
    if !matches!(timeout(io_timeout, received.receive_more(stream)).await, Ok(true)) {
        return Ok(None);
    }
    let rest = async {
        loop {
            match decode_client_frame(received.bytes(), SessionPhase::AwaitingAcquire)? {
                Decoded::Frame { frame, consumed } => {
                    received.taken = consumed;
                    return Ok(Some(frame));
                }
                Decoded::Incomplete if received.receive_more(stream).await => {}
                Decoded::Incomplete => return Ok(None),
            }
        }
    };
    match timeout(io_timeout, rest).await {
        Ok(Ok(Some(ClientFrame::Acquire { name, lease }))) => Ok(Some((name, lease))),
        Ok(Ok(Some(ClientFrame::Heartbeat))) => Err(ProtocolViolation::FirstMessageMustBeAcquire),
        Ok(Ok(None)) | Err(_) => Ok(None),
        Ok(Err(violation)) => Err(violation),
    }
}

/// Answers heartbeats and delivers pushes until the claim ends.
async fn hold<S>(stream: &mut S, session: &Session, claim: ClaimId, shared: &Shared)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let mail = session.take_mail();
        if !mail.frames.is_empty()
            && let Err(cause) = send(stream, &mail.frames, shared.io_timeout).await
        {
            return close(claim, cause, shared).await;
        }
        match mail.end {
            None => {}
            Some(SessionEnd::Silent) => return,
            Some(SessionEnd::WithError) => return Box::pin(finish(stream, shared)).await,
        }
        match next_event(stream, session).await {
            Event::Mail => {}
            Event::Received(received) => {
                shared
                    .owner
                    .received(claim, received.heartbeats, received.violation);
            }
            Event::Closed => return close(claim, CloseCause::Closed, shared).await,
            Event::Broke => return close(claim, CloseCause::Broken, shared).await,
        }
    }
}

/// The task of a promoted waiter runs first: its grant need not wait until the system has closed this connection.
async fn close(claim: ClaimId, cause: CloseCause, shared: &Shared) {
    if shared.owner.close(claim, cause) {
        tokio::task::yield_now().await;
    }
}

enum Event {
    Mail,
    Received(Received),
    Closed,
    Broke,
}

async fn next_event<S: AsyncRead + Unpin>(stream: &mut S, session: &Session) -> Event {
    let event = std::future::poll_fn(|cx| match poll_receive(stream, cx, Received::parse) {
        Poll::Ready(Ok(Received { bytes: 0, .. })) => Poll::Ready(Event::Closed),
        Poll::Ready(Ok(received)) => Poll::Ready(Event::Received(received)),
        Poll::Ready(Err(_)) => Poll::Ready(Event::Broke),
        Poll::Pending => session.poll_mail(cx).map(|()| Event::Mail),
    });
    let event = event.await;
    session.stay_awake();
    event
}

/// What a session with a claim sent: its frames are single bytes, so nothing is ever left over.
struct Received {
    bytes: usize,
    heartbeats: usize,
    violation: Option<ProtocolViolation>,
}

impl Received {
    fn parse(bytes: &[u8]) -> Self {
        let mut heartbeats = 0;
        let violation = loop {
            match decode_client_frame(&bytes[heartbeats..], SessionPhase::Claimed) {
                Ok(Decoded::Frame { .. }) => heartbeats += 1,
                Ok(Decoded::Incomplete) => break None,
                Err(violation) => break Some(violation),
            }
        };
        Self {
            bytes: bytes.len(),
            heartbeats,
            violation,
        }
    }
}

/// Reads into the stack, so that an idle session keeps no buffer.
fn poll_receive<S: AsyncRead + Unpin, R>(
    stream: &mut S,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> R,
) -> Poll<io::Result<R>> {
    let mut space = [0; READ_LEN];
    let mut buffer = ReadBuf::new(&mut space);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(take(buffer.filled())))
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    frames: &[u8],
    io_timeout: Duration,
) -> Result<(), CloseCause> {
    let at_once = std::future::poll_fn(|cx| Poll::Ready(write_at_once(stream, cx, frames)));
    match at_once.await.map_err(|_| CloseCause::Broken)? {
        Written::Everything => Ok(()),
        Written::Part(written) => Box::pin(send_slowly(stream, &frames[written..], io_timeout)).await,
    }
}

enum Written {
    Everything,
    Part(usize),
}

/// Writes what the connection takes without waiting: as a rule all, and then no timer is needed.
fn write_at_once<S: AsyncWrite + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    frames: &[u8],
) -> io::Result<Written> {
    let Poll::Ready(written) = Pin::new(&mut *stream).poll_write(cx, frames)? else {
        return Ok(Written::Part(0));
    };
    Ok(match Pin::new(stream).poll_flush(cx)? {
        Poll::Ready(()) if written == frames.len() => Written::Everything,
        Poll::Ready(()) | Poll::Pending => Written::Part(written),
    })
}

async fn send_slowly<S: AsyncWrite + Unpin>(
    stream: &mut S,
    frames: &[u8],
    io_timeout: Duration,
) -> Result<(), CloseCause> {
    let write = async {
        stream.write_all(frames).await?;
        stream.flush().await
    };
    match timeout(io_timeout, write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(CloseCause::Broken),
        Err(_) => Err(CloseCause::IoTimeout),
    }
}

/// After an `ERROR`: half-closes, then takes what the client still sends, so that no reset overtakes the frame.
/// Bounded in time and bytes.
async fn finish<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, shared: &Shared) {
    let limit = match shared.stopping.is_cancelled() {
        true => shared.io_timeout.min(DRAIN_WHEN_STOPPING),
        false => shared.io_timeout,
    };
    let drain = async {
        stream.shutdown().await?;
        let mut drained = 0;
        while drained < DRAIN_LEN {
            match std::future::poll_fn(|cx| poll_receive(stream, cx, <[u8]>::len)).await? {
                0 => break,
                more => drained += more,
            }
        }
        io::Result::Ok(())
    };
    // Whether it ended by the client's close, an error or the bound: the connection is closed now.
    drop(timeout(limit, drain).await);
}

const READ_LEN: usize = 512;

/// How many bytes behind a refused frame are taken before the connection is closed over them.
const DRAIN_LEN: usize = 1 << 20;

/// How long a client may take to close its side while the server stops.
const DRAIN_WHEN_STOPPING: Duration = Duration::from_secs(1);
