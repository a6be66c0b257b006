//! Values of single settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use monolock_server::SettingError;

use crate::peer::PeerAddress;

/// A setting that must be there.
pub(super) fn required(
    setting: &'static str,
    value: Option<String>,
    what: &str,
) -> Result<String, SettingError> {
    value.ok_or_else(|| SettingError::new(setting, format!("missing: {what}")))
}

/// One of a few words.
pub(super) fn word<T: Copy>(
    setting: &'static str,
    text: &str,
    words: &[(&str, T)],
) -> Result<T, SettingError> {
    words
        .iter()
        .find(|(word, _)| *word == text)
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            SettingError::new(setting, format!("{text:?} is not {}", known.join(" or ")))
        })
}

/// An address to listen on: `IP:port`, `:port` for every address, `localhost:port`.
pub(super) fn listen_address(setting: &'static str, text: &str) -> Result<SocketAddr, SettingError> {
    let spelled_out = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.starts_with(':') => format!("0.0.0.0{text}"),
        None => text.to_owned(),
    };
    spelled_out.parse().map_err(|_| {
        let problem =
            format!("{text:?} is no address to listen on: write IP:port, for example 192.0.2.1:7073");
        SettingError::new(setting, problem)
    })
}

/// A `host:port` to connect to.
pub(super) fn peer_address(setting: &'static str, text: &str) -> Result<PeerAddress, SettingError> {
    text.parse()
        .map_err(|error| SettingError::new(setting, format!("{error}")))
}

/// A `host[:port]` to connect to.
pub(super) fn peer_address_or_port(
    setting: &'static str,
    text: &str,
    default_port: u16,
) -> Result<PeerAddress, SettingError> {
    peer_address(setting, text)
        .or_else(|error| peer_address(setting, &format!("{text}:{default_port}")).map_err(|_| error))
}

/// A secret, given as itself or as the file that holds it, and the setting that it came from.
pub(super) fn secret_text(
    (setting, text): (&'static str, Option<String>),
    (file_setting, path): (&'static str, Option<String>),
) -> Result<Option<(&'static str, String)>, SettingError> {
    match (text, path) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            let problem = format!("is set beside {setting}: keep one of them");
            Err(SettingError::new(file_setting, problem))
        }
        (Some(secret), None) => Ok(Some((setting, secret))),
        (None, Some(path)) => match std::fs::read_to_string(&path) {
            Ok(secret) => Ok(Some((file_setting, secret))),
            Err(error) => Err(SettingError::new(
                file_setting,
                format!("cannot read {path}: {error}"),
            )),
        },
    }
}

/// A list of IP addresses that a client can reach.
pub(super) fn addresses(setting: &'static str, text: &str) -> Result<Vec<IpAddr>, SettingError> {
    let address = |text: &str| match text.trim().parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => Err(SettingError::new(
            setting,
            format!("{address} stands for every address: name the one that clients reach this node by"),
        )),
        Ok(address) => Ok(address),
        Err(_) => Err(SettingError::new(
            setting,
            format!("{text:?} is no IP address: write 192.0.2.1, or several with commas"),
        )),
    };
    text.split(',').map(address).collect()
}

/// The IP address in `host:port`, if it names one that others can use.
pub(super) fn named_ip(address: &str) -> Option<IpAddr> {
    let (host, _) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip: IpAddr = match host {
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ => host.parse().ok()?,
    };
    (!ip.is_unspecified()).then_some(ip)
}

/// The port in `host:port`, unless the system chooses it.
pub(super) fn named_port(address: &str) -> Option<u16> {
    let (_, port) = address.rsplit_once(':')?;
    port.parse().ok().filter(|port| *port != 0)
}

/// Where to reach what listens on this address from the same machine.
#[must_use]
pub(crate) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
