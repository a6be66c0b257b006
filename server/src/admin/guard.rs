//! Who may change something through the admin API.
//!
//! The address it is bound to is its access control, and a loopback address admits every program of the machine: also a browser,
//! on behalf of any page its user visits. A page gives itself away by its `Origin`, or, when it had its own name
//! resolved to the loopback address, by the `Host` it asks for. Neither is accepted for a call that changes something.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::problem;
use crate::server::Shared;

/// The names this server goes by.
#[derive(Debug)]
pub(crate) struct Guard {
    bound: Option<IpAddr>,
    configured: Option<String>,
}

impl Guard {
    pub(crate) fn new(shared: &Shared) -> Self {
        let configured = shared.config.admin_listen.as_deref();
        Self {
            bound: shared.addresses.admin.map(|address| address.ip()),
            configured: configured.and_then(|address| Some(address.rsplit_once(':')?.0.to_ascii_lowercase())),
        }
    }

    fn refusal(&self, headers: &HeaderMap) -> Option<&'static str> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let authority = host.and_then(|host| host.parse::<Authority>().ok());
        if !authority.is_some_and(|authority| self.is_own(authority.host())) {
            return Some("the Host is not a name of this server");
        }
        let origin = headers
            .get(header::ORIGIN)
            .map(|origin| origin.to_str().unwrap_or_default());
        let is_own_page = |origin: &str| {
            let page = origin
                .strip_prefix("http://")
                .or_else(|| origin.strip_prefix("https://"));
            page.is_some_and(|page| host.is_some_and(|host| page.eq_ignore_ascii_case(host)))
        };
        match origin {
            Some(origin) if !is_own_page(origin) => Some("the Origin is another site"),
            Some(_) | None => None,
        }
    }

    /// A page cannot choose an address literal it is not served from, so on a bind to every address any literal will do.
    fn is_own(&self, host: &str) -> bool {
        let literal = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>();
        match literal {
            Ok(address) => {
                address.is_loopback()
                    || self
                        .bound
                        .is_some_and(|bound| bound == address || bound.is_unspecified())
            }
            Err(_) => {
                host.eq_ignore_ascii_case("localhost")
                    || self
                        .configured
                        .as_deref()
                        .is_some_and(|name| name.eq_ignore_ascii_case(host))
            }
        }
    }
}

pub(crate) async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let only_reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    match guard.refusal(request.headers()) {
        Some(refusal) if !only_reads => problem(StatusCode::FORBIDDEN, refusal),
        Some(_) | None => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(guard: &Guard, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a header"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("a header"));
        }
        guard.refusal(&headers).is_some()
    }

    #[test]
    fn only_the_servers_own_names_and_its_own_page_may_change_something() {
        let loopback = Guard {
            bound: "127.0.0.1".parse().ok(),
            configured: Some("locks.internal".to_owned()),
        };
        let everywhere = Guard {
            bound: "0.0.0.0".parse().ok(),
            configured: None,
        };
        for (guard, host, origin, expected) in [
            (&loopback, "127.0.0.1:7071", None, false),
            (&loopback, "localhost:9999", None, false),
            (&loopback, "[::1]:7071", None, false),
            (&loopback, "Locks.Internal:7071", None, false),
            (&loopback, "10.0.0.5:7071", None, true),
            (&loopback, "evil.example:7071", None, true),
            (&loopback, "localhost:7071", Some("http://localhost:7071"), false),
            (&loopback, "localhost:7071", Some("http://localhost:8080"), true),
            (&loopback, "localhost:7071", Some("http://evil.example"), true),
            (&loopback, "localhost:7071", Some("null"), true),
            (&everywhere, "10.0.0.5:7071", None, false),
            (&everywhere, "evil.example:7071", None, true),
        ] {
            assert_eq!(refused(guard, host, origin), expected, "{host} {origin:?}");
        }
        assert!(loopback.refusal(&HeaderMap::new()).is_some(), "no Host at all");
    }
}
