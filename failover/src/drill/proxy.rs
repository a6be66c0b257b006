//! A line that can be cut without root: a proxy that keeps connections open and passes nothing on.
//!
//! As on a real network, what is sent over a cut line is not lost but late: it arrives when the line is whole again. A
//! connection that nobody listens for at the far end is reset.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A line to one address. Dropping it breaks every connection over it.
#[derive(Debug)]
pub(super) struct Proxy {
    address: SocketAddr,
    whole: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Proxy {
    /// Listens on a free port of `on` for connections to `target`.
    pub(super) async fn start(on: IpAddr, target: String) -> io::Result<Self> {
        let listener = TcpListener::bind((on, 0)).await?;
        let address = listener.local_addr()?;
        let whole = watch::Sender::new(true);
        let mut task = JoinSet::new();
        task.spawn(accept(listener, target, whole.subscribe()));
        Ok(Self {
            address,
            whole,
            _task: task,
        })
    }

    /// Where to connect to instead of the target.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Nothing arrives any more, in either direction.
    pub(super) fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Everything arrives, also what was sent meanwhile.
    pub(super) fn heal(&self) {
        self.whole.send_replace(true);
    }
}

async fn accept(listener: TcpListener, target: String, whole: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((client, _)) => drop(connections.spawn(join(client, target.clone(), whole.clone()))),
            // Without a descriptor to accept with there is nothing to do but to try again.
            Err(_) => tokio::time::sleep(AFTER_A_FAILURE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Whatever goes wrong on one side ends both.
async fn join(client: TcpStream, target: String, mut whole: watch::Receiver<bool>) -> io::Result<()> {
    until_whole(&mut whole).await;
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        pass_on(from_client, to_server, whole.clone()),
        pass_on(from_server, to_client, whole)
    )?;
    Ok(())
}

async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut whole: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        until_whole(&mut whole).await;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
    }
}

async fn until_whole(whole: &mut watch::Receiver<bool>) {
    // A proxy that is gone breaks the connection anyway.
    let _ = whole.wait_for(|whole| *whole).await;
}

/// Before the next attempt to accept a connection.
const AFTER_A_FAILURE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn nothing_passes_a_cut_line_and_everything_arrives_when_it_heals() {
        let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = target.local_addr().unwrap().to_string();
        let proxy = Proxy::start(Ipv4Addr::LOCALHOST.into(), to).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let (mut server, _) = target.accept().await.unwrap();
        let mut byte = [0];
        client.write_all(b"1").await.unwrap();
        server.read_exact(&mut byte).await.unwrap();

        proxy.cut();
        client.write_all(b"2").await.unwrap();
        server.write_all(b"3").await.unwrap();
        let mut late = TcpStream::connect(proxy.address()).await.unwrap();
        late.write_all(b"4").await.unwrap();
        let a_while = Duration::from_millis(200);
        for read in [server.read(&mut byte), client.read(&mut [0])] {
            assert!(tokio::time::timeout(a_while, read).await.is_err());
        }
        assert!(tokio::time::timeout(a_while, target.accept()).await.is_err());

        proxy.heal();
        server.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"2");
        client.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"3");
        let (mut late_server, _) = target.accept().await.unwrap();
        late_server.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"4");
    }

    #[tokio::test]
    async fn the_end_of_one_direction_leaves_the_other() {
        let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = target.local_addr().unwrap().to_string();
        let proxy = Proxy::start(Ipv4Addr::LOCALHOST.into(), to).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let (mut server, _) = target.accept().await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
        server.write_all(b"x").await.unwrap();
        let mut byte = [0];
        client.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"x");
    }
}
