//! One session with its connection, shared by the background thread that drives it and the program that holds it.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use monolock_clock::boot_now;
use monolock_protocol::{BootInstant, LockName, Token};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::session::{Lost, Session};
use crate::sync::lock;

/// Whoever notices first that the claim is over, the background thread or the program asking for its token, tells
/// everybody, and closes the socket on the spot, but for one case: to a server that was merely silent, closing would be
/// the release, and the work has until [`Session::safe_until`] to stop. There the holder's guard closes when it is dropped.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) lock: LockName,
    pub(crate) server: SocketAddr,
    session: Mutex<Session>,
    /// Taken when it is closed, so that a grant kept around holds no descriptor.
    socket: Mutex<Option<Arc<TcpStream>>>,
    ended: watch::Sender<Option<Lost>>,
    last_loss: Arc<LastLoss>,
}

/// When a claim of a client was last lost to something else than its own wish.
#[derive(Debug, Default)]
pub(crate) struct LastLoss(Mutex<Option<BootInstant>>);

impl LastLoss {
    pub(crate) fn get(&self) -> Option<BootInstant> {
        *lock(&self.0)
    }

    fn note(&self, lost: &Lost) {
        if !matches!(lost, Lost::Released) {
            *lock(&self.0) = Some(boot_now());
        }
    }
}

impl Live {
    pub(crate) fn new(
        lock: LockName,
        server: SocketAddr,
        session: Session,
        socket: Arc<TcpStream>,
        last_loss: Arc<LastLoss>,
    ) -> Self {
        Self {
            lock,
            server,
            last_loss,
            session: Mutex::new(session),
            socket: Mutex::new(Some(socket)),
            ended: watch::Sender::new(None),
        }
    }

    /// Steps the session with the time read *inside* the lock, and makes an end known.
    pub(crate) fn step<R>(&self, step: impl FnOnce(&mut Session, BootInstant) -> R) -> R {
        let (result, lost) = {
            let mut session = lock(&self.session);
            let result = step(&mut session, boot_now());
            (result, session.lost().cloned())
        };
        if let Some(lost) = lost {
            self.finish(lost);
        }
        result
    }

    /// The token, if the claim holds the lock at this moment.
    pub(crate) fn token(&self) -> Result<Token, Lost> {
        match self.step(Session::grant) {
            Ok(Some(token)) => Ok(token),
            Ok(None) => unreachable!("a grant is handed out only after ACQUIRED"),
            Err(lost) => Err(lost),
        }
    }

    pub(crate) fn release(&self) {
        self.step(Session::release);
        self.close();
    }

    /// See [`Session::safe_until`].
    pub(crate) fn safe_until(&self) -> BootInstant {
        lock(&self.session).safe_until()
    }

    /// Resolves once the claim is over. Each poll looks at the clock first, so that a task that was frozen learns of the
    /// loss before anything else.
    pub(crate) async fn lost(&self) -> Lost {
        let mut ended = self.ended.subscribe();
        let mut changed = pin!(ended.wait_for(Option::is_some));
        std::future::poll_fn(|cx| match self.step(Session::grant) {
            Err(lost) => Poll::Ready(lost),
            // What it resolves to borrows the value: kept, it would lock out the step that tells the end.
            Ok(_) => match changed.as_mut().poll(cx).map(drop) {
                Poll::Pending => Poll::Pending,
                // The sender is this object's own, so what resolves this is the end of the session.
                Poll::Ready(()) => Poll::Ready(self.step(Session::grant).expect_err("the session has ended")),
            },
        })
        .await
    }

    fn finish(&self, lost: Lost) {
        if !matches!(lost, Lost::HeartbeatTimeout { .. } | Lost::Suspended { .. }) {
            self.close();
        }
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                // Before anybody knows: whoever asks again because of it shall find it.
                self.last_loss.note(&lost);
            }
            ended.get_or_insert(lost);
            first
        });
    }

    fn close(&self) {
        if let Some(socket) = lock(&self.socket).take() {
            // An error means that the connection is gone already.
            let _ = SockRef::from(&*socket).shutdown(std::net::Shutdown::Both);
        }
    }
}

/// A session that nobody holds any more is over.
impl Drop for Live {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use monolock_protocol::Lease;

    use super::*;

    /// A claim that waits for its answer.
    async fn waiting() -> Arc<Live> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let server = listener.local_addr().expect("bound");
        let socket = TcpStream::connect(server).await.expect("it listens");
        let lock = LockName::new("x").expect("valid");
        let session = Session::new(&lock, Lease::from_millis(60_000).expect("positive"), boot_now());
        Arc::new(Live::new(lock, server, session, Arc::new(socket), Arc::default()))
    }

    /// The session ends on one thread while another looks at it.
    fn end_while_it_is_looked_at(live: &Arc<Live>) {
        let ending = {
            let live = Arc::clone(live);
            std::thread::spawn(move || live.release())
        };
        let mut lost = pin!(live.lost());
        while lost
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
        {}
        ending.join().expect("it ends");
    }

    #[test]
    fn an_end_between_two_looks_blocks_nobody() {
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let _entered = runtime.enter();
            for _ in 0..1_000 {
                end_while_it_is_looked_at(&runtime.block_on(waiting()));
            }
            done.send(())
        });
        let in_time = ended.recv_timeout(Duration::from_secs(120));
        assert!(
            in_time.is_ok(),
            "two threads wait for each other, or one for itself"
        );
    }
}
