//! Binding and accepting.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::connection;
use crate::server::Shared;
use crate::session::Session;
use crate::tls;

/// Binds a listener. `:7070` means every address of the machine.
pub(crate) fn bind(address: &str) -> io::Result<TcpListener> {
    if let Some(port) = address.strip_prefix(':') {
        let port = port
            .parse()
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        return bind_to((Ipv6Addr::UNSPECIFIED, port).into())
            .or_else(|_| bind_to((Ipv4Addr::UNSPECIFIED, port).into()));
    }
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        match bind_to(candidate) {
            Ok(listener) => return Ok(listener),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn bind_to(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // Accepted connections inherit it, so that none needs a system call of its own.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts until the server stops; then the listener is closed.
pub(crate) async fn accept_loop(listener: TcpListener, shared: Arc<Shared>) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, remote_addr)) => {
                pause = SHORTEST_PAUSE;
                start_session(stream, remote_addr, &shared);
            }
            Err(error) => {
                shared.metrics.accept_errors.inc();
                if is_exhaustion(&error) {
                    tracing::warn!(%error, pause_ms = pause.as_millis(), "accepting pauses: nothing left to accept with");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

fn start_session(stream: TcpStream, remote_addr: SocketAddr, shared: &Arc<Shared>) {
    shared.metrics.connections_accepted.inc();
    let shared = Arc::clone(shared);
    let open = OpenConnection::new(&shared);
    shared.connections.clone().spawn(async move {
        let _open = open;
        let remote_addr = canonical(remote_addr);
        if shared.tls.is_some() {
            return Box::pin(serve_tls(stream, remote_addr, shared)).await;
        }
        let session = Arc::new(Session::new(remote_addr, Box::default()));
        connection::serve(stream, session, shared).await;
    });
}

async fn serve_tls(stream: TcpStream, remote_addr: SocketAddr, shared: Arc<Shared>) {
    let Some(tls) = &shared.tls else {
        return;
    };
    let handshake = tokio::select! {
        biased;
        () = shared.stopping.cancelled() => return,
        handshake = tokio::time::timeout(shared.io_timeout, tls.accept(stream)) => handshake,
    };
    let failure = match handshake {
        Ok(Ok(stream)) => {
            let session = Arc::new(Session::new(remote_addr, tls::identity(&stream)));
            return connection::serve(stream, session, shared).await;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it took longer than the I/O timeout".to_owned(),
    };
    shared.metrics.tls_handshake_errors.inc();
    tracing::info!(%remote_addr, error = failure, "a TLS handshake failed");
}

/// A client of the IPv4 address 10.0.0.5 is shown as such, also on a socket that serves both families.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Counts the connection among the open ones for as long as it lives.
struct OpenConnection(prometheus::IntGauge);

impl OpenConnection {
    fn new(shared: &Shared) -> Self {
        let gauge = shared.metrics.connections_active.clone();
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Whether trying again at once would only fail again.
fn is_exhaustion(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| exhausted.contains(&errno))
}

/// The kernel cuts it to its own limit (`net.core.somaxconn`).
const BACKLOG: i32 = 65_535;

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_connections_send_without_delay() {
        let listener = bind("127.0.0.1:0").expect("some port is free");
        let address = listener.local_addr().expect("bound");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.expect("accepted");
        assert!(client.is_ok() && stream.nodelay().expect("a TCP socket"));
    }
}
