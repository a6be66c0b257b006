//! The follow stream: one event a line, and with a secret a code in front of each.

use std::ops::Range;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::auth::{Code, Covered};
use super::client::Link;
use super::message::FollowEvent;
use super::{MAX_BODY, PeerSecret};

/// The secret, and the code of the request that the stream answers.
pub(crate) type StreamKeys = (PeerSecret, Code);

/// Writes one line, with its end.
pub(crate) fn encode_line(keys: Option<&StreamKeys>, number: u64, event: &FollowEvent) -> Vec<u8> {
    let json = serde_json::to_vec(event).expect("events consist of numbers and strings");
    let mut line = Vec::with_capacity(json.len() + 66);
    if let Some((secret, request)) = keys {
        let covered = Covered::StreamLine {
            request,
            number,
            line: &json,
        };
        line.extend_from_slice(secret.sign(&covered).to_hex().as_bytes());
        line.push(b' ');
    }
    line.extend_from_slice(&json);
    line.push(b'\n');
    line
}

/// Reads one line, without its end.
fn decode_line(keys: Option<&StreamKeys>, number: u64, line: &[u8]) -> Result<FollowEvent, FollowEnd> {
    let json = match keys {
        None => line,
        Some((secret, request)) => {
            let space = line.iter().position(|byte| *byte == b' ');
            let (code, rest) = line.split_at(space.ok_or(FollowEnd::Unauthenticated)?);
            let code = std::str::from_utf8(code)
                .ok()
                .and_then(Code::from_hex)
                .ok_or(FollowEnd::Unauthenticated)?;
            let json = &rest[1..];
            let covered = Covered::StreamLine {
                request,
                number,
                line: json,
            };
            if !secret.verifies(&covered, &code) {
                return Err(FollowEnd::Unauthenticated);
            }
            json
        }
    };
    serde_json::from_slice(json).map_err(|error| FollowEnd::Broken(error.to_string()))
}

/// What a follower hears next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowNext {
    /// An event.
    Event(FollowEvent),
    /// Nothing any more: follow anew.
    Ended(FollowEnd),
}

/// Why a stream ended. None of these proves that the peer is dead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowEnd {
    /// The peer ended it.
    #[error("the peer ended the follow stream")]
    Closed,
    /// The connection broke, or brought something that is no event.
    #[error("the follow stream broke: {0}")]
    Broken(String),
    /// A line was not written by a holder of the secret, or not at this place.
    #[error("a line of the follow stream does not come from a node that knows the shared secret")]
    Unauthenticated,
}

/// The receiving end of a follow stream. A peer that is silent does not end it: beats are what shows life.
#[derive(Debug)]
pub struct FollowStream {
    body: Incoming,
    keys: Option<StreamKeys>,
    /// How many lines came before the next.
    number: u64,
    buffer: Vec<u8>,
    /// The part of the buffer that has not been handed out.
    unread: Range<usize>,
    ended: Option<FollowEnd>,
    /// Drives the connection for as long as the stream is wanted.
    _link: Link,
}

impl FollowStream {
    pub(crate) fn new(body: Incoming, keys: Option<StreamKeys>, link: Link) -> Self {
        Self {
            body,
            keys,
            number: 0,
            buffer: Vec::new(),
            unread: 0..0,
            ended: None,
            _link: link,
        }
    }

    /// Waits for the next event. Once it has said [`FollowNext::Ended`] it says so for ever. Cancel safe.
    pub async fn next(&mut self) -> FollowNext {
        loop {
            if let Some(end) = &self.ended {
                return FollowNext::Ended(end.clone());
            }
            match self.take_line() {
                Some(Ok(event)) => return FollowNext::Event(event),
                Some(Err(end)) => self.ended = Some(end),
                None => self.read_more().await,
            }
        }
    }

    fn take_line(&mut self) -> Option<Result<FollowEvent, FollowEnd>> {
        let unread = &self.buffer[self.unread.clone()];
        let length = unread.iter().position(|byte| *byte == b'\n')?;
        let decoded = decode_line(self.keys.as_ref(), self.number, &unread[..length]);
        self.unread.start += length + 1;
        self.number += 1;
        Some(decoded)
    }

    async fn read_more(&mut self) {
        let end = match self.body.frame().await {
            None => Some(FollowEnd::Closed),
            Some(Err(error)) => Some(FollowEnd::Broken(error.to_string())),
            Some(Ok(frame)) => frame.into_data().ok().and_then(|data| self.append(&data)),
        };
        self.ended = end;
    }

    fn append(&mut self, data: &[u8]) -> Option<FollowEnd> {
        self.buffer.drain(..self.unread.start);
        self.buffer.extend_from_slice(data);
        self.unread = 0..self.buffer.len();
        let line_end = self.buffer.iter().position(|byte| *byte == b'\n');
        let first_line = line_end.unwrap_or(self.buffer.len());
        (first_line > MAX_BODY).then(|| FollowEnd::Broken(format!("a line is longer than {MAX_BODY} bytes")))
    }
}
