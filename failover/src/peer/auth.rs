//! The codes that prove who sent a request or an answer; see the module above for what they protect against.
//!
//! Every code is an HMAC-SHA256 over a list of parts, each with its length in front, so that no two lists look alike.

use std::fmt;
use std::str::FromStr;

use hyper::{Method, StatusCode};
use monolock_failover_core::NodeId;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::hex;

/// The secret that both nodes share. Never shown.
#[derive(Clone)]
pub struct PeerSecret(hmac::Key);

/// Why a text is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the shared secret has {length} bytes and must have at least {}: make one with `openssl rand -hex 32`",
    PeerSecret::SHORTEST
)]
pub struct SecretError {
    length: usize,
}

impl PeerSecret {
    /// The fewest bytes a secret may have.
    pub const SHORTEST: usize = 16;

    /// Takes a secret; white space around it does not count, so that it may come from a file with a line end.
    ///
    /// # Errors
    ///
    /// [`SecretError`] below [`PeerSecret::SHORTEST`] bytes.
    pub fn new(secret: &str) -> Result<Self, SecretError> {
        let secret = secret.trim();
        if secret.len() < Self::SHORTEST {
            return Err(SecretError { length: secret.len() });
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())))
    }

    pub(crate) fn sign(&self, covered: &Covered<'_>) -> Code {
        let tag = hmac::sign(&self.0, &covered.to_bytes());
        let mut code = [0; CODE_BYTES];
        code.copy_from_slice(tag.as_ref());
        Code(code)
    }

    /// Takes the same time for every wrong code.
    #[must_use]
    pub(crate) fn verifies(&self, covered: &Covered<'_>, code: &Code) -> bool {
        hmac::verify(&self.0, &covered.to_bytes(), &code.0).is_ok()
    }
}

impl fmt::Debug for PeerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerSecret(hidden)")
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The other node.
    Node(NodeId),
    /// A person or a program that knows the secret; may ask for the status and for a handover, no more.
    Operator,
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => fmt::Display::fmt(node, f),
            Self::Operator => f.write_str("operator"),
        }
    }
}

impl FromStr for Sender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "operator" => Ok(Self::Operator),
            node => node.parse().map(Self::Node),
        }
    }
}

/// A code, as it travels in a header or in front of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code([u8; CODE_BYTES]);

impl Code {
    pub(crate) fn to_hex(self) -> String {
        hex::encode(&self.0)
    }

    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        hex::decode(text).map(Self)
    }
}

/// A random number that is used once: a connection's challenge, a request's nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonce([u8; NONCE_BYTES]);

impl Nonce {
    /// Draws a number; fails only when the system has no randomness to give.
    pub(crate) fn draw() -> Result<Self, ring::error::Unspecified> {
        let mut number = [0; NONCE_BYTES];
        SystemRandom::new().fill(&mut number)?;
        Ok(Self(number))
    }

    pub(crate) fn to_hex(self) -> String {
        hex::encode(&self.0)
    }

    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        hex::decode(text).map(Self)
    }
}

/// What a code is computed over.
pub(crate) enum Covered<'a> {
    /// A request.
    Request {
        /// Drawn by the receiver for this connection.
        challenge: Nonce,
        /// How many requests came before it on the connection.
        number: u64,
        /// Drawn by the sender for this request.
        nonce: Nonce,
        from: Sender,
        to: NodeId,
        method: &'a Method,
        path: &'a str,
        body: &'a [u8],
    },
    /// The whole answer to a request.
    Answer {
        request: &'a Code,
        status: StatusCode,
        body: &'a [u8],
    },
    /// The head of an answer that goes on line by line.
    StreamHead { request: &'a Code, status: StatusCode },
    /// One line of such an answer.
    StreamLine {
        request: &'a Code,
        number: u64,
        line: &'a [u8],
    },
}

impl Covered<'_> {
    fn to_bytes(&self) -> Vec<u8> {
        let mut parts = Parts(Vec::new());
        match self {
            Self::Request {
                challenge,
                number,
                nonce,
                from,
                to,
                method,
                path,
                body,
            } => parts
                .add(b"monolock peer 1: request")
                .add(&challenge.0)
                .add(&number.to_be_bytes())
                .add(&nonce.0)
                .add(from.to_string().as_bytes())
                .add(to.to_string().as_bytes())
                .add(method.as_str().as_bytes())
                .add(path.as_bytes())
                .add(body),
            Self::Answer {
                request,
                status,
                body,
            } => parts
                .add(b"monolock peer 1: answer")
                .add(&request.0)
                .add(&status.as_u16().to_be_bytes())
                .add(body),
            Self::StreamHead { request, status } => parts
                .add(b"monolock peer 1: stream head")
                .add(&request.0)
                .add(&status.as_u16().to_be_bytes()),
            Self::StreamLine {
                request,
                number,
                line,
            } => parts
                .add(b"monolock peer 1: stream line")
                .add(&request.0)
                .add(&number.to_be_bytes())
                .add(line),
        };
        parts.0
    }
}

/// Parts with their lengths in front.
struct Parts(Vec<u8>);

impl Parts {
    fn add(&mut self, part: &[u8]) -> &mut Self {
        self.0.extend_from_slice(&(part.len() as u64).to_be_bytes());
        self.0.extend_from_slice(part);
        self
    }
}

/// The header that names the sender of a request.
pub(crate) const FROM_HEADER: &str = "monolock-from";
/// The header that names the receiver of a request.
pub(crate) const TO_HEADER: &str = "monolock-to";
/// The header with a request's nonce.
pub(crate) const NONCE_HEADER: &str = "monolock-nonce";
/// The header with the code of a request or an answer.
pub(crate) const CODE_HEADER: &str = "monolock-code";

const CODE_BYTES: usize = 32;
const NONCE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> PeerSecret {
        PeerSecret::new(text).unwrap()
    }

    fn nonce(byte: u8) -> Nonce {
        Nonce([byte; NONCE_BYTES])
    }

    fn request<'a>(method: &'a Method, path: &'a str, body: &'a [u8]) -> Covered<'a> {
        Covered::Request {
            challenge: nonce(1),
            number: 0,
            nonce: nonce(2),
            from: Sender::Node(NodeId::A),
            to: NodeId::B,
            method,
            path,
            body,
        }
    }

    #[test]
    fn every_part_of_a_request_is_covered() {
        let secret = secret("0123456789abcdef");
        let code = secret.sign(&request(&Method::POST, "/v1/fence", b"{}"));
        assert!(secret.verifies(&request(&Method::POST, "/v1/fence", b"{}"), &code));
        let changes: [fn(&mut Covered<'_>); 8] = [
            |it| {
                if let Covered::Request { challenge, .. } = it {
                    *challenge = nonce(9);
                }
            },
            |it| {
                if let Covered::Request { number, .. } = it {
                    *number += 1;
                }
            },
            |it| {
                if let Covered::Request {
                    nonce: of_request, ..
                } = it
                {
                    *of_request = nonce(9);
                }
            },
            |it| {
                if let Covered::Request { from, .. } = it {
                    *from = Sender::Operator;
                }
            },
            |it| {
                if let Covered::Request { to, .. } = it {
                    *to = NodeId::A;
                }
            },
            |it| {
                if let Covered::Request { method, .. } = it {
                    *method = &Method::GET;
                }
            },
            |it| {
                if let Covered::Request { path, .. } = it {
                    *path = "/v1/promise";
                }
            },
            |it| {
                if let Covered::Request { body, .. } = it {
                    *body = b"{ }";
                }
            },
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut changed = request(&Method::POST, "/v1/fence", b"{}");
            change(&mut changed);
            assert!(!secret.verifies(&changed, &code), "change {index}");
        }
        let other = PeerSecret::new("0123456789abcdeF").unwrap();
        assert!(!other.verifies(&request(&Method::POST, "/v1/fence", b"{}"), &code));
    }

    #[test]
    fn bytes_cannot_move_from_one_part_to_the_next() {
        let secret = secret("0123456789abcdef");
        let code = secret.sign(&request(&Method::POST, "/v1/fence", b"{}"));
        assert!(!secret.verifies(&request(&Method::POST, "/v1/fence{", b"}"), &code));
    }

    #[test]
    fn an_answer_belongs_to_its_request_and_a_line_to_its_place() {
        let secret = secret("0123456789abcdef");
        let first = secret.sign(&request(&Method::POST, "/v1/fence", b"1"));
        let second = secret.sign(&request(&Method::POST, "/v1/fence", b"2"));
        let answer = |request, status, body| Covered::Answer {
            request,
            status,
            body,
        };
        let code = secret.sign(&answer(&first, StatusCode::OK, b"yes"));
        assert!(secret.verifies(&answer(&first, StatusCode::OK, b"yes"), &code));
        assert!(!secret.verifies(&answer(&second, StatusCode::OK, b"yes"), &code));
        assert!(!secret.verifies(&answer(&first, StatusCode::CONFLICT, b"yes"), &code));
        assert!(!secret.verifies(&answer(&first, StatusCode::OK, b"no"), &code));
        let line = |number| Covered::StreamLine {
            request: &first,
            number,
            line: b"x",
        };
        assert!(!secret.verifies(&line(1), &secret.sign(&line(0))));
    }

    #[test]
    fn a_secret_is_long_enough_and_never_shown() {
        assert_eq!(
            PeerSecret::new(" 0123456789abcde\n").unwrap_err(),
            SecretError { length: 15 }
        );
        assert_eq!(
            format!("{:?}", secret("0123456789abcdef\n")),
            "PeerSecret(hidden)"
        );
    }
}
