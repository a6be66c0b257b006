//! Servers that do nothing but their system calls, on the runtime that the lock server runs on.

use std::io;
use std::net::Ipv4Addr;

use clap::Parser;
use monolock_benchmarks::reference::Bare;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Listens on a loopback port of its own.
#[derive(Debug, Parser)]
struct Args {
    /// What to do with each connection
    bare: Bare,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let bare = Args::parse().bare;
    rlimit::increase_nofile_limit(u64::MAX)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("listening address={}", listener.local_addr()?);
    loop {
        let stream = accept(&listener).await?;
        match bare {
            Bare::NineBytes => drop(tokio::spawn(answer_nine_bytes(stream))),
            Bare::Echo => drop(tokio::spawn(echo(stream))),
            Bare::Relay => {
                let (one, other) = (stream.into_split(), accept(&listener).await?.into_split());
                tokio::spawn(carry(one.0, other.1));
                tokio::spawn(carry(other.0, one.1));
            }
        }
    }
}

async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn answer_nine_bytes(mut stream: TcpStream) -> io::Result<()> {
    let mut space = [0; SPACE];
    if stream.read(&mut space).await? > 0 {
        stream.write_all(&NINE_BYTES).await?;
    }
    while stream.read(&mut space).await? > 0 {}
    Ok(())
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let (from, to) = stream.split();
    carry(from, to).await
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut space = [0; SPACE];
    loop {
        match from.read(&mut space).await? {
            0 => return Ok(()),
            len => to.write_all(&space[..len]).await?,
        }
    }
}

/// An `ACQUIRED` frame: what the client of the lock server waits for.
const NINE_BYTES: [u8; 9] = [0x12, 0, 0, 0, 0, 0, 0, 0, 1];

const SPACE: usize = 512;
