//! Memory of the server's process for each idle session that holds a lock; beside it, what a bare echo server takes.
//!
//! Limit: the runtime's registration of a socket and the header of a task, which the echo server has too. The kernel's own
//! memory for a connection (a few KiB on each side) is in neither.

use std::fs;

use anyhow::{Context, Result};
use monolock_integration_tests::TempDir;
use monolock_integration_tests::server::LockServer;
use rustls::RootCertStore;

use super::{Bench, sessions};
use crate::reference::{Bare, Reference};
use crate::table::{Aim, Row, Unit};
use crate::usage::resident_bytes;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let count = sessions::possible(bench, 1)?;
    let bare = Reference::start(Bare::Echo)?;
    let echo = for_each(bare.process.pid(), count, || {
        let connect = |_| std::net::TcpStream::connect(bare.address);
        Ok((0..count).map(connect).collect::<std::io::Result<Vec<_>>>()?)
    })?;
    let server = LockServer::start(&[]);
    let plain = for_each(server.process.pid(), count, || {
        sessions::plain(server.address, count)
    })?;
    let encrypted = with_tls(count)?;
    let what = |kind| format!("memory of an idle session, {kind}, of {count}");
    Ok(vec![
        Row::compared(what("plain"), Unit::Bytes, &[plain], "echo", &[echo]),
        Row::alone(what("plain"), Unit::Bytes, &[plain]).aiming(Aim::AtMost(2_048.0)),
        Row::alone(what("TLS"), Unit::Bytes, &[encrypted]),
    ])
}

/// How much the process grew for each session, with all of them open; the first ones are not counted, since they bring
/// what does not grow with their number.
fn for_each<S>(pid: u32, count: usize, open: impl Fn() -> Result<Vec<S>>) -> Result<f64> {
    let before = resident_bytes(pid)?;
    let sessions = open()?;
    let after = resident_bytes(pid)?;
    drop(sessions);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok((after - before) / count as f64)
}

fn with_tls(count: usize) -> Result<f64> {
    let folder = TempDir::with_prefix("monolock-bench-tls-")?;
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&cert, certified.cert.pem())?;
    fs::write(&key, certified.signing_key.serialize_pem())?;
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone())?;
    let path = |path: &std::path::Path| path.to_str().context("a path in UTF-8").map(str::to_owned);
    let server = LockServer::start(&[
        ("MONOLOCK_TLS_CERT", &path(&cert)?),
        ("MONOLOCK_TLS_KEY", &path(&key)?),
    ]);
    for_each(server.process.pid(), count, || {
        sessions::encrypted(server.address, roots.clone(), count)
    })
}
