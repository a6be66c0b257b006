//! One connection: its challenge, who is behind it, and its requests one after the other.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use monolock_failover_core::NodeId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;

use super::{FollowFeed, PeerCall, PeerServer, REQUEST_TIME, Reply, Shared};
use crate::peer::MAX_BODY;
use crate::peer::auth::{CODE_HEADER, Code, Covered, FROM_HEADER, NONCE_HEADER, Nonce, Sender, TO_HEADER};
use crate::peer::follow::encode_line;
use crate::peer::message::ErrorBody;
use crate::peer::route::Route;

/// One connection and what has been shown on it.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    remote: SocketAddr,
    /// Whose certificate was shown, with TLS.
    certified: Option<NodeId>,
    challenge: Nonce,
    progress: Mutex<Progress>,
    /// Cancelled once a request was proven.
    known: CancellationToken,
}

#[derive(Debug)]
struct Progress {
    /// How many requests came before the next one.
    requests: u64,
    /// Given back once a request was proven.
    stranger: Option<OwnedSemaphorePermit>,
}

type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

/// Who made a request, and what the codes of its answer must cover.
struct Proven {
    from: Sender,
    code: Option<Code>,
}

/// An answer that is an error.
struct Refusal {
    status: StatusCode,
    reason: String,
}

/// An answer before its codes are computed.
enum Content {
    Whole { status: StatusCode, body: Vec<u8> },
    Lines(FollowFeed),
}

impl Connection {
    pub(super) fn new(
        shared: Arc<Shared>,
        stranger: OwnedSemaphorePermit,
        remote: SocketAddr,
        certified: Option<NodeId>,
    ) -> Result<Self, ring::error::Unspecified> {
        Ok(Self {
            shared,
            remote,
            certified,
            challenge: Nonce::draw()?,
            progress: Mutex::new(Progress {
                requests: 0,
                stranger: Some(stranger),
            }),
            known: CancellationToken::new(),
        })
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Returns when the connection has shown nothing for too long; never when a request was proven.
    pub(super) async fn remained_a_stranger(&self) {
        if tokio::time::timeout(REQUEST_TIME, self.known.cancelled())
            .await
            .is_ok()
        {
            std::future::pending().await
        }
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let (head, body) = request.into_parts();
        let Some(route) = Route::find(&head.method, head.uri.path()) else {
            let reason = format!("there is no {} {} here", head.method, head.uri.path());
            return refuse_and_close(Refusal::new(StatusCode::NOT_FOUND, reason));
        };
        if route == Route::Challenge {
            return plain(StatusCode::OK, self.challenge.to_hex().into_bytes());
        }
        let body = match read(body).await {
            Ok(body) => body,
            Err(refusal) => return refuse_and_close(refusal),
        };
        let proven = match self.prove(route, &head.headers, &body) {
            Ok(proven) => proven,
            Err(refusal) => {
                tracing::warn!(remote = %self.remote, reason = refusal.reason, "refused a request on the peer link");
                return refuse_and_close(refusal);
            }
        };
        let content = match self.perform(route, proven.from, &body).await {
            Ok(content) => content,
            Err(refusal) => Content::Whole {
                status: refusal.status,
                body: refusal.to_body(),
            },
        };
        self.seal(&proven, content)
    }

    /// Finds out who made the request, or that nobody did who may.
    fn prove(&self, route: Route, headers: &HeaderMap, body: &[u8]) -> Result<Proven, Refusal> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let number = progress.requests;
        progress.requests += 1;
        let proven = match &self.shared.credentials.secret {
            None => Proven {
                from: header(headers, FROM_HEADER).unwrap_or(Sender::Operator),
                code: None,
            },
            Some(secret) => {
                let unproven = || Refusal::new(StatusCode::UNAUTHORIZED, UNPROVEN);
                let from = header(headers, FROM_HEADER).ok_or_else(unproven)?;
                let to = header(headers, TO_HEADER).ok_or_else(unproven)?;
                let nonce = text(headers, NONCE_HEADER)
                    .and_then(Nonce::from_hex)
                    .ok_or_else(unproven)?;
                let code = text(headers, CODE_HEADER)
                    .and_then(Code::from_hex)
                    .ok_or_else(unproven)?;
                let covered = Covered::Request {
                    challenge: self.challenge,
                    number,
                    nonce,
                    from,
                    to,
                    method: route.method(),
                    path: route.path(),
                    body,
                };
                if to != self.shared.node || !secret.verifies(&covered, &code) {
                    return Err(unproven());
                }
                Proven {
                    from,
                    code: Some(code),
                }
            }
        };
        if proven.from == Sender::Node(self.shared.node) {
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, OWN_REQUEST));
        }
        if let (Some(certified), Sender::Node(named)) = (self.certified, proven.from)
            && certified != named
        {
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, NOT_ITS_CERTIFICATE));
        }
        progress.stranger = None;
        self.known.cancel();
        Ok(proven)
    }

    async fn perform(&self, route: Route, from: Sender, body: &[u8]) -> Result<Content, Refusal> {
        if !route.is_open_to(from) {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "only the other node may ask for this",
            ));
        }
        match route {
            Route::Challenge => Err(Refusal::new(StatusCode::NOT_FOUND, "already answered")),
            Route::Node => self.ask(|reply| PeerCall::Status { from, reply }).await,
            Route::Follow => {
                let feed = self
                    .hear(PeerServer::NODE_TIME, |reply| PeerCall::Follow { reply })
                    .await?;
                Ok(Content::Lines(feed))
            }
            Route::Acknowledge => {
                let request = parse(body)?;
                self.ask(|reply| PeerCall::Acknowledge { request, reply }).await
            }
            Route::Promise => {
                let request = parse(body)?;
                self.ask(|reply| PeerCall::Promise { request, reply }).await
            }
            Route::Fence => {
                let request = parse(body)?;
                self.ask(|reply| PeerCall::Fence { request, reply }).await
            }
            Route::Handover => {
                let request = parse(body)?;
                self.ask(|reply| PeerCall::Handover { request, reply }).await
            }
            Route::ExtendReserve => self.ask(|reply| PeerCall::ExtendReserve { reply }).await,
            Route::BeginHandover => {
                let request = parse(body)?;
                let make = |reply| PeerCall::BeginHandover { from, request, reply };
                self.hear(PeerServer::HANDOVER_TIME, make)
                    .await
                    .map(|answer| whole(&answer))
            }
        }
    }

    async fn ask<T: Serialize>(&self, make: impl FnOnce(Reply<T>) -> PeerCall) -> Result<Content, Refusal> {
        self.hear(PeerServer::NODE_TIME, make)
            .await
            .map(|answer| whole(&answer))
    }

    /// Hands a call to the node and waits for what it says.
    async fn hear<T>(
        &self,
        time_limit: Duration,
        make: impl FnOnce(Reply<T>) -> PeerCall,
    ) -> Result<T, Refusal> {
        let unavailable = |reason: &str| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason);
        let (reply, answer) = oneshot::channel();
        let asking = async {
            self.shared
                .calls
                .send(make(reply))
                .await
                .map_err(|_| unavailable("the node is stopping"))?;
            answer
                .await
                .map_err(|_| unavailable("the node is not able to answer"))?
                .map_err(|declined| Refusal::new(StatusCode::CONFLICT, declined.0))
        };
        tokio::time::timeout(time_limit, asking)
            .await
            .unwrap_or_else(|_| Err(unavailable("the node did not answer in time")))
    }

    fn seal(&self, proven: &Proven, content: Content) -> Response<AnswerBody> {
        let keys = self.shared.credentials.secret.clone().zip(proven.code);
        match content {
            Content::Whole { status, body } => {
                let code = keys.map(|(secret, request)| {
                    secret.sign(&Covered::Answer {
                        request: &request,
                        status,
                        body: &body,
                    })
                });
                with_code(plain(status, body), code)
            }
            Content::Lines(feed) => {
                let status = StatusCode::OK;
                let code = keys
                    .as_ref()
                    .map(|(secret, request)| secret.sign(&Covered::StreamHead { request, status }));
                let lines = stream::unfold((feed, 0), |(mut feed, number)| async move {
                    Some(((feed.recv().await?, number), (feed, number + 1)))
                });
                let frames = lines.map(move |(event, number)| {
                    let line = encode_line(keys.as_ref(), number, &event);
                    Ok(Frame::data(Bytes::from(line)))
                });
                let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
                with_code(response, code)
            }
        }
    }
}

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
        }
    }

    fn to_body(&self) -> Vec<u8> {
        let body = ErrorBody {
            error: self.reason.clone(),
        };
        serde_json::to_vec(&body).expect("a string always serialises")
    }
}

async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    let reading = Limited::new(body, MAX_BODY).collect();
    match tokio::time::timeout(REQUEST_TIME, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a body has at most {MAX_BODY} bytes"),
        )),
        Ok(Err(error)) => Err(Refusal::new(StatusCode::BAD_REQUEST, error.to_string())),
        Err(_elapsed) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn header<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<T> {
    text(headers, name)?.parse().ok()
}

fn whole<T: Serialize>(answer: &T) -> Content {
    Content::Whole {
        status: StatusCode::OK,
        body: serde_json::to_vec(answer).expect("messages consist of numbers, strings and structs of them"),
    }
}

fn plain(status: StatusCode, body: Vec<u8>) -> Response<AnswerBody> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The answer to a request that nobody has proven; there are no second attempts on a connection.
fn refuse_and_close(refusal: Refusal) -> Response<AnswerBody> {
    let mut response = plain(refusal.status, refusal.to_body());
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn with_code(mut response: Response<AnswerBody>, code: Option<Code>) -> Response<AnswerBody> {
    if let Some(code) = code {
        let value = HeaderValue::from_str(&code.to_hex()).expect("hexadecimal digits are a valid header");
        response.headers_mut().insert(CODE_HEADER, value);
    }
    response
}

const UNPROVEN: &str = "the request does not show that its sender knows the shared secret: set the same \
                        MONOLOCK_PEER_SECRET on both nodes, and MONOLOCK_NODE to a on one and b on the other";
const NOT_ITS_CERTIFICATE: &str = "the request names a sender whose certificate was not shown";
const OWN_REQUEST: &str = "the request names this node as its sender: set MONOLOCK_NODE to a on one node and b on the \
                           other, and MONOLOCK_PEER_ADDRESS to the other node";
