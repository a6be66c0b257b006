//! Many sessions at once, as many as the descriptor limit of one process allows.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Bench;
use crate::claims::Session;

/// What the server's issue asks for.
const WANTED: usize = 50_000;

/// For everything that is no session.
const SPARE: usize = 1_000;

/// How many sessions there can be, in a process that has `each` descriptors for one.
pub(super) fn possible(bench: &Bench, each: usize) -> Result<usize> {
    let limit = rlimit::increase_nofile_limit(u64::MAX).context("the descriptor limit")?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(SPARE) / each;
    Ok(bench.plan.scaled(limit.min(WANTED)))
}

/// Sessions that each hold a lock of their own, over plain TCP.
pub(super) fn plain(server: SocketAddr, count: usize) -> Result<Vec<Session>> {
    let hold = |number| {
        let mut session = Session::ask(server, &lock(number))?;
        session.wait_granted()?;
        Ok(session)
    };
    (0..count).map(hold).collect()
}

pub(super) type TlsSession = Session<StreamOwned<ClientConnection, TcpStream>>;

/// The same over TLS; the server's certificate is for `localhost`.
pub(super) fn encrypted(server: SocketAddr, roots: RootCertStore, count: usize) -> Result<Vec<TlsSession>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (config, name) = (Arc::new(config), ServerName::try_from("localhost")?);
    let hold = |number| {
        let client = ClientConnection::new(Arc::clone(&config), name.clone())?;
        let stream = StreamOwned::new(client, TcpStream::connect(server)?);
        let mut session = Session::ask_over(stream, &lock(number))?;
        session.wait_granted()?;
        Ok(session)
    };
    (0..count).map(hold).collect()
}

/// As long as names of locks are in practice.
fn lock(number: usize) -> String {
    format!("sessions/holder-{number:06}")
}
