//! The asking side of the link.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use monolock_clock::boot_now;
use monolock_failover_core::NodeId;
use monolock_protocol::BootInstant;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use super::auth::{CODE_HEADER, Code, Covered, FROM_HEADER, NONCE_HEADER, Nonce, TO_HEADER};
use super::dial::{Dialled, dial};
use super::message::{
    AcknowledgeRequest, AcknowledgeResponse, BeginHandoverRequest, BeginHandoverResponse, ErrorBody,
    ExtendReserveResponse, FenceRequest, FenceResponse, HandoverRequest, HandoverResponse, NodeStatus,
    PromiseRequest, PromiseResponse,
};
use super::route::Route;
use super::tls::LinkStream;
use super::{FollowStream, LinkCredentials, MAX_BODY, PeerAddress, PeerServer, Sender};

/// An answer, and the readings of this machine's boot clock between which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// What the peer said.
    pub value: T,
    /// Just before the request was sent: a promise counts from here.
    pub sent: BootInstant,
    /// Just after the answer had come.
    pub received: BootInstant,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The kernel at every address of the peer answered that nothing listens there.
    #[error("nothing listens at the peer's address")]
    Refused,
    /// No answer in time. The peer may have heard the request, and may still hear it.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// What answered has not shown that it is the peer, or does not believe that we are who we say.
    #[error("the peer link is not authenticated: {0}")]
    Unauthenticated(String),
    /// The peer, proven, answered that it will not.
    #[error("the peer declines: {0}")]
    Declined(String),
    /// Anything else. The peer may have heard the request.
    #[error("the call to the peer failed: {0}")]
    Failed(String),
}

/// How a call ended.
pub type CallOutcome<T> = Result<Answer<T>, CallFailure>;

/// Asks one node. Keeps connections that are free, and makes new ones as they are needed; calls may overlap.
pub struct PeerClient {
    address: PeerAddress,
    from: Sender,
    to: NodeId,
    credentials: LinkCredentials,
    time_limit: Duration,
    free: Mutex<Vec<Link>>,
}

impl PeerClient {
    /// How long a call may take, unless set otherwise.
    pub const TIME_LIMIT: Duration = Duration::from_secs(1);

    /// A client that asks node `to` at `address` in the name of `from`. Connects when first used.
    #[must_use]
    pub fn new(
        address: PeerAddress,
        from: Sender,
        to: NodeId,
        credentials: impl Into<LinkCredentials>,
    ) -> Self {
        Self {
            address,
            from,
            to,
            credentials: credentials.into(),
            time_limit: Self::TIME_LIMIT,
            free: Mutex::new(Vec::new()),
        }
    }

    /// Bounds every call to `time_limit`, resolving and connecting included.
    #[must_use]
    pub fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// Where the peer is asked.
    #[must_use]
    pub fn address(&self) -> &PeerAddress {
        &self.address
    }

    /// Asks how the node stands.
    ///
    /// # Errors
    ///
    /// [`CallFailure`].
    pub async fn status(&self) -> CallOutcome<NodeStatus> {
        self.call(Route::Node, Vec::new(), self.time_limit).await
    }

    /// Asks for a promise.
    ///
    /// # Errors
    ///
    /// [`CallFailure`]. A refused promise is an answer.
    pub async fn promise(&self, request: &PromiseRequest) -> CallOutcome<PromiseResponse> {
        self.call(Route::Promise, encode(request), self.time_limit).await
    }

    /// Asks the node to shut its gate.
    ///
    /// # Errors
    ///
    /// [`CallFailure`]. A gate that stays open is an answer.
    pub async fn fence(&self, request: &FenceRequest) -> CallOutcome<FenceResponse> {
        self.call(Route::Fence, encode(request), self.time_limit).await
    }

    /// Tells the node that the term is its own now.
    ///
    /// # Errors
    ///
    /// [`CallFailure`].
    pub async fn handover(&self, request: &HandoverRequest) -> CallOutcome<HandoverResponse> {
        self.call(Route::Handover, encode(request), self.time_limit).await
    }

    /// Asks the node to hand over, and waits until it has, or until it cannot be waited for any longer.
    ///
    /// # Errors
    ///
    /// [`CallFailure`].
    pub async fn begin_handover(&self, request: &BeginHandoverRequest) -> CallOutcome<BeginHandoverResponse> {
        let time_limit = PeerServer::HANDOVER_TIME + self.time_limit;
        self.call(Route::BeginHandover, encode(request), time_limit).await
    }

    /// Lets an active without a witness grant beyond what its peer has acknowledged; only when that peer is certainly down.
    ///
    /// # Errors
    ///
    /// [`CallFailure`].
    pub async fn extend_reserve(&self) -> CallOutcome<ExtendReserveResponse> {
        self.call(Route::ExtendReserve, Vec::new(), self.time_limit).await
    }

    /// Confirms a mark of the follow stream.
    ///
    /// # Errors
    ///
    /// [`CallFailure`].
    pub async fn acknowledge(&self, request: &AcknowledgeRequest) -> CallOutcome<AcknowledgeResponse> {
        self.call(Route::Acknowledge, encode(request), self.time_limit)
            .await
    }

    /// Opens a follow stream, on a connection of its own. The time limit covers its beginning only.
    ///
    /// # Errors
    ///
    /// [`CallFailure`].
    pub async fn follow(&self) -> Result<FollowStream, CallFailure> {
        let opening = async {
            let mut link = Link::open(self).await?;
            let reply = link.exchange(self, Route::Follow, &[]).await?;
            if reply.response.status() != StatusCode::OK {
                return Err(self.read_refusal(reply).await);
            }
            let keys = self.credentials.secret.clone().zip(reply.code);
            if let Some((secret, request)) = &keys {
                let status = StatusCode::OK;
                let shown = shown_code(&reply.response);
                let covered = Covered::StreamHead { request, status };
                if !shown.is_some_and(|code| secret.verifies(&covered, &code)) {
                    return Err(CallFailure::Unauthenticated(UNPROVEN_ANSWER.into()));
                }
            }
            Ok(FollowStream::new(reply.response.into_body(), keys, link))
        };
        within(self.time_limit, opening).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        route: Route,
        body: Vec<u8>,
        time_limit: Duration,
    ) -> CallOutcome<T> {
        within(time_limit, async {
            let (link, reply) = self.exchange(route, &body).await?;
            let sent = reply.sent;
            let (status, body) = self.read(reply).await?;
            let received = boot_now();
            self.keep(link);
            if status != StatusCode::OK {
                return Err(CallFailure::Declined(refusal_in(&body)));
            }
            let value = serde_json::from_slice(&body)
                .map_err(|error| CallFailure::Failed(format!("its answer makes no sense: {error}")))?;
            Ok(Answer {
                value,
                sent,
                received,
            })
        })
        .await
    }

    /// Sends a request on a free connection or a new one. A free one may have been closed by the peer meanwhile, so when
    /// it fails a new one is tried; every call of the link can be made twice.
    async fn exchange(&self, route: Route, body: &[u8]) -> Result<(Link, Reply), CallFailure> {
        if let Some(mut link) = self.take_free()
            && let Ok(reply) = link.exchange(self, route, body).await
        {
            return Ok((link, reply));
        }
        let mut link = Link::open(self).await?;
        let reply = link.exchange(self, route, body).await?;
        Ok((link, reply))
    }

    /// Reads the whole answer, and makes sure that it is the peer's answer to this request.
    async fn read(&self, reply: Reply) -> Result<(StatusCode, Bytes), CallFailure> {
        let status = reply.response.status();
        let shown = shown_code(&reply.response);
        let body = collect(reply.response.into_body()).await?;
        match (&self.credentials.secret, &reply.code) {
            (Some(secret), Some(request)) => {
                let covered = Covered::Answer {
                    request,
                    status,
                    body: &body,
                };
                if !shown.is_some_and(|code| secret.verifies(&covered, &code)) {
                    let reason = match status {
                        StatusCode::OK => UNPROVEN_ANSWER.to_owned(),
                        _ => format!("it answers {status}: {:?}", refusal_in(&body)),
                    };
                    return Err(CallFailure::Unauthenticated(reason));
                }
            }
            _ if status == StatusCode::UNAUTHORIZED => {
                return Err(CallFailure::Unauthenticated(refusal_in(&body)));
            }
            _ => {}
        }
        Ok((status, body))
    }

    async fn read_refusal(&self, reply: Reply) -> CallFailure {
        match self.read(reply).await {
            Ok((_, body)) => CallFailure::Declined(refusal_in(&body)),
            Err(failure) => failure,
        }
    }

    fn take_free(&self) -> Option<Link> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| free.pop()).find(Link::is_open)
    }

    fn keep(&self, link: Link) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MOST_FREE && link.is_open() {
            free.push(link);
        }
    }
}

impl fmt::Debug for PeerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerClient")
            .field("address", &self.address)
            .field("from", &self.from)
            .field("to", &self.to)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

/// One connection, with its challenge and the number of its next request.
#[derive(Debug)]
pub(crate) struct Link {
    requests: http1::SendRequest<Full<Bytes>>,
    challenge: Option<Nonce>,
    number: u64,
    _driver: AbortOnDropHandle<()>,
}

/// The head of an answer, and what belongs to its request.
struct Reply {
    response: Response<Incoming>,
    code: Option<Code>,
    sent: BootInstant,
}

impl Link {
    async fn open(client: &PeerClient) -> Result<Self, CallFailure> {
        let stream = match dial(&client.address).await {
            Dialled::Connected(stream) => stream,
            Dialled::Refused => return Err(CallFailure::Refused),
            Dialled::Failed(reason) => return Err(CallFailure::Failed(reason)),
        };
        let stream = match &client.credentials.tls {
            None => LinkStream::Left(stream),
            Some(tls) => {
                let secured = tls.connect(stream, client.to).await;
                LinkStream::Right(secured.map_err(|error| CallFailure::Unauthenticated(error.to_string()))?)
            }
        };
        let (requests, connection) = http1::Builder::new()
            .max_buf_size(MAX_BODY)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the peer broke");
            }
        });
        let mut link = Self {
            requests,
            challenge: None,
            number: 0,
            _driver: AbortOnDropHandle::new(driver),
        };
        if client.credentials.secret.is_some() {
            link.challenge = Some(link.fetch_challenge(&client.address).await?);
        }
        Ok(link)
    }

    async fn fetch_challenge(&mut self, address: &PeerAddress) -> Result<Nonce, CallFailure> {
        let route = Route::Challenge;
        let request = Request::builder()
            .method(route.method())
            .uri(route.path())
            .header(HOST, address.to_string())
            .body(Full::default())
            .map_err(failed)?;
        let response = self.requests.send_request(request).await.map_err(failed)?;
        let body = collect(response.into_body()).await?;
        let text = std::str::from_utf8(&body).ok();
        text.and_then(Nonce::from_hex).ok_or_else(|| {
            CallFailure::Failed(format!("what answers at {address} is no node of a monolock pair"))
        })
    }

    async fn exchange(
        &mut self,
        client: &PeerClient,
        route: Route,
        body: &[u8],
    ) -> Result<Reply, CallFailure> {
        let mut request = Request::builder()
            .method(route.method())
            .uri(route.path())
            .header(HOST, client.address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .header(FROM_HEADER, client.from.to_string())
            .header(TO_HEADER, client.to.to_string());
        let mut shown = None;
        if let (Some(secret), Some(challenge)) = (&client.credentials.secret, self.challenge) {
            let nonce = Nonce::draw()
                .map_err(|_| CallFailure::Failed("the system has no random number to give".into()))?;
            let code = secret.sign(&Covered::Request {
                challenge,
                number: self.number,
                nonce,
                from: client.from,
                to: client.to,
                method: route.method(),
                path: route.path(),
                body,
            });
            self.number += 1;
            shown = Some(code);
            request = request
                .header(NONCE_HEADER, nonce.to_hex())
                .header(CODE_HEADER, code.to_hex());
        }
        let request = request
            .body(Full::new(Bytes::copy_from_slice(body)))
            .map_err(failed)?;
        self.requests.ready().await.map_err(failed)?;
        let sent = boot_now();
        let response = self.requests.send_request(request).await.map_err(failed)?;
        Ok(Reply {
            response,
            code: shown,
            sent,
        })
    }

    fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }
}

async fn within<T>(
    time_limit: Duration,
    work: impl Future<Output = Result<T, CallFailure>>,
) -> Result<T, CallFailure> {
    tokio::time::timeout(time_limit, work)
        .await
        .unwrap_or(Err(CallFailure::TimedOut))
}

async fn collect(body: Incoming) -> Result<Bytes, CallFailure> {
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(failed)?;
    Ok(body.to_bytes())
}

fn encode<T: Serialize>(request: &T) -> Vec<u8> {
    serde_json::to_vec(request).expect("messages consist of numbers, strings and structs of them")
}

fn shown_code(response: &Response<Incoming>) -> Option<Code> {
    Code::from_hex(response.headers().get(CODE_HEADER)?.to_str().ok()?)
}

fn refusal_in(body: &[u8]) -> String {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(refusal) => refusal.error,
        Err(_) => "it gives no reason".into(),
    }
}

fn failed(error: impl fmt::Display) -> CallFailure {
    CallFailure::Failed(error.to_string())
}

const UNPROVEN_ANSWER: &str = "its answer does not show that it knows the shared secret: set the same \
                               MONOLOCK_PEER_SECRET on both nodes";
/// How many connections are kept when no call needs them.
const MOST_FREE: usize = 4;
