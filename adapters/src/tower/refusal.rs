//! What a refused request is told.

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use monolock_protocol::Token;

use super::FENCING_TOKEN_HIGHEST;
use crate::{BoxError, FenceError, ResourceError};

/// Why a request did not reach the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A larger token was seen.
    #[error("the fencing token is stale: {highest} was seen; the lock is lost")]
    Stale {
        /// The largest token seen.
        highest: Token,
    },
    /// The header is not there.
    #[error("this request needs a Fencing-Token header")]
    NoToken,
    /// The header is no number, or there are several.
    #[error("the Fencing-Token header must be one decimal number below 2^64")]
    InvalidToken,
    /// The request names a resource that no lock can guard.
    #[error("the request names no resource: {0}")]
    InvalidResource(ResourceError),
    /// The store cannot tell. Nothing passes unchecked.
    #[error("fencing tokens cannot be checked now")]
    Unavailable(#[source] BoxError),
}

impl Refusal {
    /// The status of an HTTP answer.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Stale { .. } => StatusCode::CONFLICT,
            Self::NoToken => StatusCode::PRECONDITION_REQUIRED,
            Self::InvalidToken | Self::InvalidResource(_) => StatusCode::BAD_REQUEST,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The code of a gRPC status.
    #[must_use]
    pub const fn grpc_code(&self) -> u8 {
        match self {
            Self::Stale { .. } => 9,
            Self::NoToken | Self::InvalidToken | Self::InvalidResource(_) => 3,
            Self::Unavailable(_) => 14,
        }
    }

    /// The largest token seen, if that is the reason.
    #[must_use]
    pub const fn highest(&self) -> Option<Token> {
        match self {
            Self::Stale { highest } => Some(*highest),
            Self::NoToken | Self::InvalidToken | Self::InvalidResource(_) | Self::Unavailable(_) => None,
        }
    }
}

impl From<FenceError> for Refusal {
    fn from(error: FenceError) -> Self {
        match error {
            FenceError::Stale { highest, .. } => Self::Stale { highest },
            other => Self::Unavailable(other.into()),
        }
    }
}

/// Turns a refusal into an answer.
pub trait Refuse<Body> {
    /// The answer to a request that was refused.
    fn refuse(&self, refusal: &Refusal) -> Response<Body>;
}

/// Refuses in HTTP: the status, [`FENCING_TOKEN_HIGHEST`], and a small JSON object for people and programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpRefusals;

impl<Body: From<String>> Refuse<Body> for HttpRefusals {
    fn refuse(&self, refusal: &Refusal) -> Response<Body> {
        // No text in here needs escaping: they are ours.
        let body = match refusal.highest() {
            Some(highest) => format!("{{\"error\":\"{refusal}\",\"highest\":{highest}}}\n"),
            None => format!("{{\"error\":\"{refusal}\"}}\n"),
        };
        let mut answer = Response::new(Body::from(body));
        *answer.status_mut() = refusal.status();
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        add_highest(&mut answer, refusal);
        answer
    }
}

/// Refuses in gRPC: a status without a message, as headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcRefusals;

impl<Body: Default> Refuse<Body> for GrpcRefusals {
    fn refuse(&self, refusal: &Refusal) -> Response<Body> {
        let mut answer = Response::new(Body::default());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(
            HeaderName::from_static("grpc-status"),
            HeaderValue::from(u16::from(refusal.grpc_code())),
        );
        if let Ok(message) = HeaderValue::from_str(&refusal.to_string()) {
            headers.insert(HeaderName::from_static("grpc-message"), message);
        }
        add_highest(&mut answer, refusal);
        answer
    }
}

fn add_highest<Body>(answer: &mut Response<Body>, refusal: &Refusal) {
    if let Some(highest) = refusal.highest() {
        answer
            .headers_mut()
            .insert(FENCING_TOKEN_HIGHEST, HeaderValue::from(highest.get()));
    }
}
