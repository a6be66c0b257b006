//! The commands that ask a server's admin API.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use monolock_clock::{boot_now, sleep_until};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::args::{AdminArgs, KickArgs, ReleaseArgs, StatusArgs};
use crate::{Failure, exit};

/// The part of an answer that is shown; `--json` prints all of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Lock {
    name: String,
    holder: Option<Holder>,
    #[serde(default)]
    pub(crate) waiters: Vec<Waiter>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Holder {
    #[serde(default)]
    identity: String,
    remote_addr: String,
    since: String,
    lease_ms: u64,
    token: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Waiter {
    #[serde(default)]
    identity: String,
    remote_addr: String,
    queued_at: String,
}

pub(crate) async fn status(args: StatusArgs) -> Result<u8, Failure> {
    let Some(name) = &args.lock else {
        let listing = list(&args.admin, args.pattern.as_deref()).await?;
        print(&if args.json {
            pretty(&listing)
        } else {
            table(&parse_listing(listing)?)
        })?;
        return Ok(0);
    };
    let path = format!("/api/locks/{}", encode(name));
    match call(&args.admin, Method::GET, &path).await? {
        (StatusCode::NOT_FOUND, _) => {
            print(&if args.json {
                "null\n".to_owned()
            } else {
                format!("{name}: idle\n")
            })?;
            Ok(exit::NOT_FOUND)
        }
        (_, body) if args.json => print(&pretty(&body)).map(|()| 0),
        (_, body) => print(&detail(&parse(body)?)).map(|()| 0),
    }
}

pub(crate) async fn release(args: ReleaseArgs) -> Result<u8, Failure> {
    let path = format!("/api/locks/{}/release", encode(&args.lock));
    let (status, _) = call(&args.admin, Method::POST, &path).await?;
    let done = status != StatusCode::NOT_FOUND;
    let text = match done {
        true => format!("{}: released\n", args.lock),
        false => format!("{}: nobody holds it\n", args.lock),
    };
    let result = json!({"lock": args.lock, "released": done});
    print(&if args.json { pretty(&result) } else { text })?;
    Ok(if done { 0 } else { exit::NOT_FOUND })
}

pub(crate) async fn kick(args: KickArgs) -> Result<u8, Failure> {
    let path = format!(
        "/api/locks/{}/waiters/{}",
        encode(&args.lock),
        encode(&args.waiter)
    );
    let (status, _) = call(&args.admin, Method::DELETE, &path).await?;
    let done = status != StatusCode::NOT_FOUND;
    let text = match done {
        true => format!("{}: {} no longer waits\n", args.lock, args.waiter),
        false => format!("{}: {} does not wait\n", args.lock, args.waiter),
    };
    let result = json!({"lock": args.lock, "waiter": args.waiter, "kicked": done});
    print(&if args.json { pretty(&result) } else { text })?;
    Ok(if done { 0 } else { exit::NOT_FOUND })
}

pub(crate) async fn list(admin: &AdminArgs, pattern: Option<&str>) -> Result<Value, Failure> {
    let query = pattern
        .map(|pattern| format!("?match={}", encode(pattern)))
        .unwrap_or_default();
    let (status, body) = call(admin, Method::GET, &format!("/api/locks{query}")).await?;
    if status == StatusCode::NOT_FOUND {
        return Err(Failure::new(
            exit::FAILURE,
            format!("{} is no admin API of a lock server", admin.admin),
        ));
    }
    Ok(body)
}

/// One request. An answer other than success or "not found" is a failure.
async fn call(admin: &AdminArgs, method: Method, path: &str) -> Result<(StatusCode, Value), Failure> {
    let unavailable = |error: &dyn std::fmt::Display| {
        Failure::new(
            exit::UNAVAILABLE,
            format!("the admin API at {} cannot be reached: {error}", admin.admin),
        )
    };
    let (status, body) = tokio::select! {
        answer = exchange(&admin.admin, method, path) => answer.map_err(|error| unavailable(&error))?,
        () = sleep_until(boot_now() + CALL_TIMEOUT) => return Err(unavailable(&"no answer in time")),
    };
    if !status.is_success() && status != StatusCode::NOT_FOUND {
        let said = String::from_utf8_lossy(&body);
        let message = format!(
            "the admin API at {} answered {status}: {}",
            admin.admin,
            said.trim()
        );
        return Err(Failure::new(exit::FAILURE, message));
    }
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok((status, body))
}

async fn exchange(
    admin: &str,
    method: Method,
    path: &str,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(admin).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, admin)
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER)
        .collect()
        .await?
        .to_bytes();
    connection.abort();
    Ok((status, body))
}

pub(crate) fn parse_listing(mut listing: Value) -> Result<Vec<Lock>, Failure> {
    parse(listing["locks"].take())
}

fn parse<T: serde::de::DeserializeOwned>(body: Value) -> Result<T, Failure> {
    serde_json::from_value(body).map_err(|error| {
        Failure::new(
            exit::FAILURE,
            format!("the admin API answered something unexpected: {error}"),
        )
    })
}

pub(crate) fn table(locks: &[Lock]) -> String {
    let header = ["LOCK", "HOLDER", "TOKEN", "SINCE", "LEASE", "WAITERS"].map(str::to_owned);
    let mut rows = vec![header];
    for lock in locks {
        let (holder, token, since, lease) = match &lock.holder {
            None => ("-".to_owned(), "-".to_owned(), "-".to_owned(), "-".to_owned()),
            Some(holder) => (
                who(&holder.identity, &holder.remote_addr),
                holder.token.to_string(),
                holder.since.clone(),
                lease(holder.lease_ms),
            ),
        };
        rows.push([
            printable(&lock.name),
            holder,
            token,
            since,
            lease,
            lock.waiters.len().to_string(),
        ]);
    }
    align(&rows)
}

fn detail(lock: &Lock) -> String {
    let mut out = format!("lock     {}\n", printable(&lock.name));
    if let Some(holder) = &lock.holder {
        let _ = writeln!(out, "holder   {}", who(&holder.identity, &holder.remote_addr));
        let _ = writeln!(out, "token    {}", holder.token);
        let _ = writeln!(out, "since    {}", holder.since);
        let _ = writeln!(out, "lease    {}", lease(holder.lease_ms));
    }
    for (place, waiter) in lock.waiters.iter().enumerate() {
        let who = who(&waiter.identity, &waiter.remote_addr);
        let _ = writeln!(out, "waiter   {}. {who} since {}", place + 1, waiter.queued_at);
    }
    out
}

fn who(identity: &str, remote_addr: &str) -> String {
    if identity.is_empty() {
        return remote_addr.to_owned();
    }
    format!("{} ({remote_addr})", printable(identity))
}

fn lease(millis: u64) -> String {
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

/// Names may hold anything; a terminal must not obey them.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            }
        })
        .collect()
}

fn align<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..COLUMNS).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, PATH_SEGMENT).to_string()
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// A reader that has seen enough is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let written = stdout()
        .write_all(text.as_bytes())
        .and_then(|()| stdout().flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(exit::FAILURE, error))
        }
        Err(_) => std::process::exit(0),
        Ok(()) => Ok(()),
    }
}

const PATH_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// A server with a million waiters has something to tell.
const MAX_ANSWER: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> Lock {
        parse(json!({
            "name": "nightly/\u{1b}[31mimport",
            "holder": {"identity": "", "remote_addr": "10.0.0.5:52114", "since": "2026-08-08T12:00:00Z",
                       "lease_ms": 2_000, "token": 27_262_976_001_u64},
            "waiters": [{"identity": "w2", "remote_addr": "10.0.0.6:41230", "queued_at": "2026-08-08T12:00:07Z"}],
        }))
        .unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    #[test]
    fn the_table_is_aligned_and_obeys_no_name() {
        let expected = "\
LOCK                      HOLDER          TOKEN        SINCE                 LEASE  WAITERS
nightly/\\u{1b}[31mimport  10.0.0.5:52114  27262976001  2026-08-08T12:00:00Z  2s     1
";
        assert_eq!(table(&[lock()]), expected);
    }

    #[test]
    fn the_detail_shows_the_queue_in_order() {
        let text = detail(&lock());
        assert!(
            text.ends_with("waiter   1. w2 (10.0.0.6:41230) since 2026-08-08T12:00:07Z\n"),
            "{text}"
        );
    }

    #[test]
    fn names_are_encoded_as_one_segment() {
        assert_eq!(encode("nightly/import ä"), "nightly%2Fimport%20%C3%A4");
    }
}
