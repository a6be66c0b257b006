//! One connection to one address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use monolock_protocol::Lease;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::address::{Endpoint, Host};
use crate::background::Background;
use crate::shared_tcp::SharedTcp;
use crate::tls::{Tls, TlsError};

pub(crate) type Stream = Either<SharedTcp, Box<TlsStream<SharedTcp>>>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// TCP could not connect.
    #[error("cannot connect: {0}")]
    Tcp(#[source] io::Error),
    /// The certificates of this client cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The TLS handshake failed.
    #[error("the TLS handshake failed: {0}")]
    Handshake(#[source] io::Error),
    /// No connection came about in time.
    #[error("not connected within {0:?}")]
    Timeout(Duration),
}

/// Connects, with TLS when it is set up. The caller bounds the time.
pub(crate) async fn connect(
    background: &Background,
    endpoint: &Endpoint,
    address: SocketAddr,
    lease: Lease,
    tls: Option<&Tls>,
) -> Result<(Arc<TcpStream>, Stream), ConnectError> {
    let socket = TcpStream::connect(address).await.map_err(ConnectError::Tcp)?;
    tune(&socket, lease).map_err(ConnectError::Tcp)?;
    let socket = Arc::new(socket);
    let plain = SharedTcp(Arc::clone(&socket));
    let stream = match tls {
        None => Either::Left(plain),
        Some(tls) => Either::Right(Box::new(shake_hands(background, endpoint, plain, tls).await?)),
    };
    Ok((socket, stream))
}

async fn shake_hands(
    background: &Background,
    endpoint: &Endpoint,
    plain: SharedTcp,
    tls: &Tls,
) -> Result<TlsStream<SharedTcp>, ConnectError> {
    let name = tls.name_for(&match &endpoint.host {
        Host::Name(name) => name.clone(),
        Host::Address(ip) => ip.to_string(),
    })?;
    let tls = tls.clone();
    let config = tokio::task::spawn_blocking(move || tls.load())
        .await
        .map_err(|error| ConnectError::Handshake(error.into()))??;
    let _permit = background.handshakes.acquire().await;
    TlsConnector::from(config)
        .connect(name, plain)
        .await
        .map_err(ConnectError::Handshake)
}

fn tune(socket: &TcpStream, lease: Lease) -> io::Result<()> {
    socket.set_nodelay(true)?;
    // What was sent and is not acknowledged for a whole lease will not save the claim any more.
    #[cfg(any(target_os = "android", target_os = "linux"))]
    SockRef::from(socket).set_tcp_user_timeout(Some(lease.as_duration().min(MAX_USER_TIMEOUT)))?;
    #[cfg(not(any(target_os = "android", target_os = "linux")))]
    let _ = lease;
    Ok(())
}

/// The kernel takes a positive `int` of milliseconds.
#[cfg(any(target_os = "android", target_os = "linux"))]
const MAX_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

#[cfg(all(test, any(target_os = "android", target_os = "linux")))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unacknowledged_bytes_break_the_connection_within_a_lease() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        for (lease_ms, expected) in [(1, 1), (2_000, 2_000), (u32::MAX, i32::MAX as u64)] {
            let socket = TcpStream::connect(address).await.expect("it listens");
            tune(&socket, Lease::from_millis(lease_ms).expect("positive")).expect("tuned");
            let timeout = SockRef::from(&socket).tcp_user_timeout().expect("readable");
            assert_eq!(timeout, Some(Duration::from_millis(expected)));
            assert!(socket.nodelay().expect("readable"));
        }
    }
}
