//! Where the peer is: `host:port`, resolved anew at every use.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

/// A host name or IP address, and a port. IPv6 addresses stand in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    host: String,
    port: u16,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not of the form host:port, as in node-b.example:7073, 192.0.2.7:7073 or [2001:db8::7]:7073"
)]
pub struct AddressError {
    text: String,
}

/// Why a host name led nowhere.
#[derive(Debug, thiserror::Error)]
#[error("the host name {host:?} cannot be resolved: {reason}")]
pub struct ResolveError {
    host: String,
    reason: String,
}

impl PeerAddress {
    /// The host as it was written, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Another port of the same host.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self {
            host: self.host.clone(),
            port,
        }
    }

    /// Every address of the host, in the order of the system's resolver; at least one.
    ///
    /// # Errors
    ///
    /// [`ResolveError`] when the system knows no address of it.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        let unresolved = |reason: String| ResolveError {
            host: self.host.clone(),
            reason,
        };
        let found: io::Result<Vec<_>> = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await
            .map(Iterator::collect);
        match found {
            Ok(addresses) if addresses.is_empty() => Err(unresolved("it has no address".into())),
            Ok(addresses) => Ok(addresses),
            Err(error) => Err(unresolved(error.to_string())),
        }
    }
}

impl FromStr for PeerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).ok_or_else(|| AddressError { text: text.into() })
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn parse(text: &str) -> Option<PeerAddress> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = match host.strip_prefix('[') {
        Some(bracketed) => {
            let address: std::net::Ipv6Addr = bracketed.strip_suffix(']')?.parse().ok()?;
            address.to_string()
        }
        None => host.to_owned(),
    };
    let is_name = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
    let is_sound = is_name && (!host.contains(':') || text.starts_with('['));
    is_sound.then_some(PeerAddress { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in [
            "node-b:7073",
            "node-b.example.:1",
            "192.0.2.7:65535",
            "[2001:db8::7]:7073",
        ] {
            let address: PeerAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        for text in [
            "",
            "node-b",
            ":7073",
            "node-b:0",
            "node-b:65536",
            "2001:db8::7:7073",
            "[node-b]:1",
            "http://node-b:1",
        ] {
            let error = text.parse::<PeerAddress>().expect_err(text);
            assert!(error.to_string().contains("host:port"));
        }
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_is_named() {
        let address: PeerAddress = "no-such-node.invalid:7073".parse().unwrap();
        let error = address.resolve().await.unwrap_err();
        assert!(error.to_string().contains("no-such-node.invalid"), "{error}");
    }
}
