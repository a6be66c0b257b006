//! A layer that fences an HTTP or gRPC service: for axum, tonic, and whatever else speaks `tower`.
//!
//! ```
//! use monolock_adapters::Resource;
//! use monolock_adapters::max_seen::Memory;
//! use monolock_adapters::tower::{FenceLayer, Guarding};
//! use axum::{Router, routing::put};
//!
//! let fence = FenceLayer::new(Memory::new(), |request: &http::Request<_>| {
//!     if request.method() == http::Method::GET {
//!         return Guarding::Nothing; // readers need no lock
//!     }
//!     Guarding::resource(&format!("device{}", request.uri().path()))
//! });
//! let app: Router = Router::new().route("/printer", put(|| async { "done" })).layer(fence);
//! ```
//!
//! A request that changes something carries the token of its sender's grant:
//!
//! ```
//! use monolock_adapters::tower::CarryToken;
//! use monolock_adapters::{Resource, Token};
//!
//! # let grant = Resource::guarded_by("device/printer")?.stamp(Token::new(42));
//! let request = http::Request::put("/printer").carry(&grant)?.body(())?; // an error once the grant is over
//! assert_eq!(request.headers()["fencing-token"], "42");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | the request | answer | gRPC |
//! | --- | --- | --- |
//! | carries a token, and none larger was seen | that of the service, which finds the [`Stamp`] in the request's extensions | same |
//! | carries a smaller one | 409, `Fencing-Token-Highest: N` | `FAILED_PRECONDITION` |
//! | carries none | 428 | `INVALID_ARGUMENT` |
//! | carries something else, or several, or names no resource | 400 | `INVALID_ARGUMENT` |
//! | anything, while the store is down | 503: nothing passes unchecked | `UNAVAILABLE` |
//!
//! The token is remembered, as durably as the [`MaxSeen`] store can, before the service is called. Requests of one
//! resource with different tokens never run at the same time within this process, so that a newer holder's request is not
//! overtaken by an older one that passed before it; a request is over when the service has answered (the body of a
//! streamed answer may follow). A request that hangs keeps the next holder's waiting: put a time-out between this layer and
//! the service. Several processes that share a store do not have that; let their database compare the
//! [`Stamp`] as well.

mod refusal;
mod turnstile;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use monolock_protocol::Token;
use tower_layer::Layer;
use tower_service::Service;

pub use refusal::{GrpcRefusals, HttpRefusals, Refusal, Refuse};

use crate::max_seen::MaxSeen;
use crate::{FenceError, Grant, Resource, ResourceError, Stamp};
use turnstile::Turnstile;

/// The header that carries the token: its number in decimal digits.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
/// The header of a refusal that carries the largest token seen.
pub const FENCING_TOKEN_HIGHEST: HeaderName = HeaderName::from_static("fencing-token-highest");

/// What a request is about to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarding {
    /// Nothing that is guarded: no token is asked for.
    Nothing,
    /// This resource.
    Resource(Resource),
    /// A resource whose name no lock can have: refused.
    Invalid(ResourceError),
}

impl Guarding {
    /// The resource that the lock of this name guards.
    #[must_use]
    pub fn resource(lock: &str) -> Self {
        Resource::guarded_by(lock).map_or_else(Self::Invalid, Self::Resource)
    }
}

/// Puts a fence before a service.
#[derive(Debug)]
pub struct FenceLayer<S, G, R = HttpRefusals> {
    door: Arc<Door<S, G, R>>,
}

#[derive(Debug)]
struct Door<S, G, R> {
    store: S,
    guarding: G,
    refusals: R,
    turnstile: Arc<Turnstile>,
}

/// A service behind a fence.
#[derive(Debug)]
pub struct FencedService<S, G, R, Inner> {
    door: Arc<Door<S, G, R>>,
    inner: Inner,
}

impl<S, G> FenceLayer<S, G> {
    /// A fence that keeps its tokens in this store, and asks this function what a request is about to change.
    pub fn new(store: S, guarding: G) -> Self {
        Self::with_refusals(store, guarding, HttpRefusals)
    }
}

impl<S, G, R> FenceLayer<S, G, R> {
    /// A fence that refuses in its own words: [`GrpcRefusals`] for tonic.
    pub fn with_refusals(store: S, guarding: G, refusals: R) -> Self {
        let turnstile = Arc::default();
        Self {
            door: Arc::new(Door {
                store,
                guarding,
                refusals,
                turnstile,
            }),
        }
    }
}

// Derived, these would ask the store and the functions for `Clone`.
impl<S, G, R> Clone for FenceLayer<S, G, R> {
    fn clone(&self) -> Self {
        Self {
            door: self.door.clone(),
        }
    }
}

impl<S, G, R, Inner: Clone> Clone for FencedService<S, G, R, Inner> {
    fn clone(&self) -> Self {
        Self {
            door: self.door.clone(),
            inner: self.inner.clone(),
        }
    }
}

impl<S, G, R, Inner> Layer<Inner> for FenceLayer<S, G, R> {
    type Service = FencedService<S, G, R, Inner>;

    fn layer(&self, inner: Inner) -> Self::Service {
        FencedService {
            door: self.door.clone(),
            inner,
        }
    }
}

impl<S, G, R, Inner, Body, Answer> Service<Request<Body>> for FencedService<S, G, R, Inner>
where
    S: MaxSeen,
    G: Fn(&Request<Body>) -> Guarding + Send + Sync + 'static,
    R: Refuse<Answer> + Send + Sync + 'static,
    Inner: Service<Request<Body>, Response = Response<Answer>> + Clone + Send + 'static,
    Inner::Future: Send,
    Body: Send + 'static,
    Answer: 'static,
{
    type Response = Response<Answer>;
    type Error = Inner::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that is ready goes; a clone takes its place and becomes ready by itself.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(pass(self.door.clone(), inner, request))
    }
}

async fn pass<S, G, R, Inner, Body, Answer>(
    door: Arc<Door<S, G, R>>,
    mut inner: Inner,
    mut request: Request<Body>,
) -> Result<Response<Answer>, Inner::Error>
where
    S: MaxSeen,
    G: Fn(&Request<Body>) -> Guarding,
    R: Refuse<Answer>,
    Inner: Service<Request<Body>, Response = Response<Answer>>,
{
    let stamp = match stamp_of((door.guarding)(&request), request.headers()) {
        Ok(Some(stamp)) => stamp,
        Ok(None) => return inner.call(request).await,
        Err(refusal) => return Ok(door.refusals.refuse(&refusal)),
    };
    let turn = door.turnstile.enter(&stamp).await;
    if let Err(error) = door.store.admit(&stamp).await {
        return Ok(door.refusals.refuse(&Refusal::from(error)));
    }
    request.extensions_mut().insert(stamp);
    let answer = inner.call(request).await;
    drop(turn);
    answer
}

/// The stamp that a request must have; none when it needs none.
fn stamp_of(guarding: Guarding, headers: &HeaderMap) -> Result<Option<Stamp>, Refusal> {
    let resource = match guarding {
        Guarding::Nothing => return Ok(None),
        Guarding::Invalid(error) => return Err(Refusal::InvalidResource(error)),
        Guarding::Resource(resource) => resource,
    };
    let mut found = headers.get_all(FENCING_TOKEN).iter();
    match (found.next(), found.next()) {
        (None, _) => Err(Refusal::NoToken),
        (Some(_), Some(_)) => Err(Refusal::InvalidToken),
        (Some(value), None) => parse(value)
            .map(|token| Some(resource.stamp(token)))
            .ok_or(Refusal::InvalidToken),
    }
}

/// Digits and nothing else: "+1", " 1" and "1.0" are somebody's mistake.
fn parse(value: &HeaderValue) -> Option<Token> {
    let digits = value
        .to_str()
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some(Token::new(digits.parse().ok()?))
}

/// Attaches the token of a live grant to a request: to one of `http`, or to the headers that another client takes.
///
/// ```
/// # use monolock_adapters::{FenceError, Resource, Token, tower::CarryToken};
/// # let grant = Resource::guarded_by("device/printer").unwrap().stamp(Token::new(42));
/// let headers = http::HeaderMap::new().carry(&grant)?; // for reqwest: client.put(url).headers(headers)
/// assert_eq!(headers["fencing-token"], "42");
/// # Ok::<(), FenceError>(())
/// ```
pub trait CarryToken: Sized {
    /// With the header [`FENCING_TOKEN`], in place of any that is there.
    ///
    /// # Errors
    ///
    /// [`FenceError::LockLost`]: there is no request to send then.
    fn carry(self, grant: &dyn Grant) -> Result<Self, FenceError>;
}

impl CarryToken for HeaderMap {
    fn carry(mut self, grant: &dyn Grant) -> Result<Self, FenceError> {
        insert(&mut self, grant)?;
        Ok(self)
    }
}

impl CarryToken for http::request::Builder {
    fn carry(mut self, grant: &dyn Grant) -> Result<Self, FenceError> {
        // A builder that is spoiled already says so when it is built.
        if let Some(headers) = self.headers_mut() {
            insert(headers, grant)?;
        }
        Ok(self)
    }
}

impl<B> CarryToken for Request<B> {
    fn carry(mut self, grant: &dyn Grant) -> Result<Self, FenceError> {
        insert(self.headers_mut(), grant)?;
        Ok(self)
    }
}

fn insert(headers: &mut HeaderMap, grant: &dyn Grant) -> Result<(), FenceError> {
    let token = grant.stamp()?.token().get();
    headers.insert(FENCING_TOKEN, HeaderValue::from(token));
    Ok(())
}

/// What the fence of a service has answered to a request that carried this stamp, told as every other backend tells it. Any
/// other answer, good or bad, is the service's own business, and passes.
///
/// # Errors
///
/// [`FenceError::Stale`] for a 409 with [`FENCING_TOKEN_HIGHEST`].
pub fn check_answer<B>(answer: &Response<B>, stamp: &Stamp) -> Result<(), FenceError> {
    let highest = answer.headers().get(FENCING_TOKEN_HIGHEST).and_then(parse);
    match highest {
        Some(highest) if answer.status() == StatusCode::CONFLICT => Err(FenceError::Stale {
            stamp: stamp.clone(),
            highest,
        }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_digits_and_nothing_else() {
        for bad in [
            "",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "0x1",
            "-1",
            "18446744073709551616",
            "1,2",
            "१",
        ] {
            let value = HeaderValue::from_bytes(bad.as_bytes()).expect("a header value");
            assert_eq!(parse(&value), None, "{bad:?}");
        }
        assert_eq!(
            parse(&HeaderValue::from_static("18446744073709551615")),
            Some(Token::MAX)
        );
        assert_eq!(parse(&HeaderValue::from_static("0042")), Some(Token::new(42)));
    }

    #[test]
    fn two_tokens_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(FENCING_TOKEN, HeaderValue::from_static("1"));
        headers.append(FENCING_TOKEN, HeaderValue::from_static("1"));
        assert!(matches!(
            stamp_of(Guarding::resource("x"), &headers),
            Err(Refusal::InvalidToken)
        ));
    }
}
