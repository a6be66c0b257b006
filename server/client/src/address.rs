//! Where servers are: `host:port` entries as the user wrote them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The port of the lock protocol, used where an entry names none.
pub const DEFAULT_PORT: u16 = 7070;

/// One server as configured: an address, or a name that is looked up at every attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Address(IpAddr),
    Name(String),
}

/// Why a text names no server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// No host.
    #[error("{entry:?} names no host: write host:port")]
    NoHost {
        /// The entry as written.
        entry: String,
    },
    /// A port that is no number from 1 to 65535.
    #[error("{entry:?} has no valid port: write host:port with a port from 1 to 65535")]
    BadPort {
        /// The entry as written.
        entry: String,
    },
    /// A host that is neither an address nor a name.
    #[error("{entry:?} has no valid host: write a DNS name, an IPv4 address, or an IPv6 address in brackets")]
    BadHost {
        /// The entry as written.
        entry: String,
    },
}

impl Endpoint {
    /// Reads a comma-separated list; blanks around an entry are ignored.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] for the first entry that names no server, also when the list is empty.
    pub fn parse_list(list: &str) -> Result<Vec<Self>, EndpointError> {
        list.split(',').map(|entry| entry.trim().parse()).collect()
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// Reads `name`, `name:port`, `1.2.3.4`, `1.2.3.4:port`, `::1`, `[::1]` or `[::1]:port`.
    fn from_str(entry: &str) -> Result<Self, EndpointError> {
        if let Ok(address) = entry.parse::<SocketAddr>()
            && address.port() != 0
        {
            return Ok(address.into());
        }
        if let Ok(ip) = unbracketed(entry).parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, DEFAULT_PORT).into());
        }
        let (host, port) = match entry.rsplit_once(':') {
            None => (entry, DEFAULT_PORT),
            Some((host, port)) => (host, parse_port(port, entry)?),
        };
        if host.is_empty() {
            return Err(EndpointError::NoHost {
                entry: entry.to_owned(),
            });
        }
        if !host
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
        {
            return Err(EndpointError::BadHost {
                entry: entry.to_owned(),
            });
        }
        Ok(Self {
            host: Host::Name(host.to_owned()),
            port,
        })
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: Host::Address(address.ip()),
            port: address.port(),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(ip) => write!(f, "{}", SocketAddr::new(*ip, self.port)),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

fn unbracketed(entry: &str) -> &str {
    entry
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(entry)
}

fn parse_port(port: &str, entry: &str) -> Result<u16, EndpointError> {
    match port.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(EndpointError::BadPort {
            entry: entry.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_with_and_without_a_port() {
        for (entry, expected) in [
            ("locks.internal:7071", "locks.internal:7071"),
            ("locks.internal", "locks.internal:7070"),
            ("127.0.0.1", "127.0.0.1:7070"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("::1", "[::1]:7070"),
            ("[::1]", "[::1]:7070"),
            ("[::1]:9", "[::1]:9"),
            ("localhost.:80", "localhost.:80"),
        ] {
            let endpoint: Endpoint = entry.parse().unwrap_or_else(|error| panic!("{entry}: {error}"));
            assert_eq!(endpoint.to_string(), expected);
        }
    }

    #[test]
    fn each_mistake_has_its_own_error() {
        let entry = |text: &str| text.to_owned();
        for (text, expected) in [
            ("", EndpointError::NoHost { entry: entry("") }),
            (
                ":7070",
                EndpointError::NoHost {
                    entry: entry(":7070"),
                },
            ),
            ("a:", EndpointError::BadPort { entry: entry("a:") }),
            ("a:0", EndpointError::BadPort { entry: entry("a:0") }),
            (
                "127.0.0.1:0",
                EndpointError::BadPort {
                    entry: entry("127.0.0.1:0"),
                },
            ),
            (
                "a:65536",
                EndpointError::BadPort {
                    entry: entry("a:65536"),
                },
            ),
            (
                "http://a:1",
                EndpointError::BadHost {
                    entry: entry("http://a:1"),
                },
            ),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn a_list_keeps_its_order() {
        let list = Endpoint::parse_list("a:1, b:2 ,[::1]:3").expect("valid");
        let list: Vec<_> = list.iter().map(ToString::to_string).collect();
        assert_eq!(list, ["a:1", "b:2", "[::1]:3"]);
        assert!(Endpoint::parse_list("a:1,,b:2").is_err());
    }
}
