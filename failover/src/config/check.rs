//! From text to settings.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use monolock_failover_core::{NoWitness, NodeId, Timing, Unproven};
use monolock_server::SettingError;
use monolock_server::config::{given, positive_duration};

#[cfg(feature = "postgres")]
use super::HiddenText;
use super::value::{
    addresses, listen_address, named_ip, named_port, peer_address, peer_address_or_port, reachable, required,
    secret_text, word,
};
use super::{
    ClockConfig, DnsConfig, FollowMode, HookConfig, LinkConfig, NameService, NodeArgs, NodeConfig,
    TakeoverGrace, WitnessSetting,
};
use crate::dns::{DnsPrimary, NamePublisher, ServiceZone, TsigKey};
use crate::peer::{LinkCredentials, PeerAddress, PeerSecret, PeerTls, PeerTlsFiles, check_exposure};
use crate::witness::DnsWitness;
#[cfg(feature = "postgres")]
use crate::witness::PostgresWitness;
#[cfg(feature = "s3")]
use crate::witness::S3Location;

pub(super) fn node(args: NodeArgs) -> Result<NodeConfig, SettingError> {
    let node = which_node(&args)?;
    let link = link(&args)?;
    let server = args.server.clone().check()?;
    let peer_lock = peer_lock(&args, &link.peer, &server.listen)?;
    let dns = dns(&args, node, &server.listen, &peer_lock)?;
    let state_file = required(
        "MONOLOCK_STATE_FILE",
        given(args.state_file.clone()),
        "a node remembers its terms in a file of its own: write /var/lib/monolock/state",
    )?;
    Ok(NodeConfig {
        server,
        node,
        link,
        peer_lock,
        witness: witness(&args)?,
        state_file: state_file.into(),
        timing: timing(&args)?,
        fast_takeover: choice(
            "MONOLOCK_FAST_TAKEOVER",
            args.fast_takeover.clone(),
            &[("on", true), ("off", false)],
            true,
        )?,
        follow: choice(
            "MONOLOCK_FOLLOW",
            args.follow.clone(),
            &[("async", FollowMode::Async), ("sync", FollowMode::Sync)],
            FollowMode::Async,
        )?,
        grace: grace(&args)?,
        dns,
        hooks: hooks(&args)?,
        clock: clock(&args)?,
        journal: given(args.journal).map(PathBuf::from),
    })
}

pub(super) fn which_node(args: &NodeArgs) -> Result<NodeId, SettingError> {
    let setting = "MONOLOCK_NODE";
    let text = required(
        setting,
        given(args.node.clone()),
        "write a on one node and b on the other",
    )?;
    word(setting, &text, &[("a", NodeId::A), ("b", NodeId::B)])
}

pub(super) fn link(args: &NodeArgs) -> Result<LinkConfig, SettingError> {
    let setting = "MONOLOCK_PEER_LISTEN_ADDRESS";
    let listen = given(args.peer_listen.clone()).unwrap_or_else(|| DEFAULT_PEER_LISTEN.into());
    let listen = listen_address(setting, &listen)?;
    let peer = required(
        "MONOLOCK_PEER_ADDRESS",
        given(args.peer.clone()),
        "write the host:port of the other node's peer link",
    )?;
    let peer = peer_address("MONOLOCK_PEER_ADDRESS", &peer)?;
    let credentials = LinkCredentials {
        secret: secret(args)?,
        tls: peer_tls(args, &peer)?.map(Arc::new),
    };
    check_exposure(listen, &credentials)
        .map_err(|error| SettingError::new("MONOLOCK_PEER_SECRET", error.to_string()))?;
    Ok(LinkConfig {
        listen,
        peer,
        credentials,
    })
}

fn peer_tls(args: &NodeArgs, peer: &PeerAddress) -> Result<Option<PeerTls>, SettingError> {
    let files = [&args.peer_tls_cert, &args.peer_tls_key, &args.peer_tls_ca].map(|file| given(file.clone()));
    match files {
        [None, None, None] => Ok(None),
        [Some(certificate), Some(key), Some(authorities)] => {
            let files = PeerTlsFiles {
                certificate: certificate.into(),
                key: key.into(),
                authorities: authorities.into(),
            };
            let tls = PeerTls::load(files, which_node(args)?, peer.host());
            tls.map(Some)
                .map_err(|error| SettingError::new(PEER_TLS, error.to_string()))
        }
        _ => Err(SettingError::new(
            PEER_TLS,
            "MONOLOCK_PEER_TLS_CERT, MONOLOCK_PEER_TLS_KEY and MONOLOCK_PEER_TLS_CA go together: set all of them",
        )),
    }
}

fn secret(args: &NodeArgs) -> Result<Option<PeerSecret>, SettingError> {
    let given = secret_text(
        ("MONOLOCK_PEER_SECRET", given(args.peer_secret.clone())),
        ("MONOLOCK_PEER_SECRET_FILE", given(args.peer_secret_file.clone())),
    )?;
    let parse = |(setting, text): (_, String)| {
        PeerSecret::new(&text).map_err(|error| SettingError::new(setting, error.to_string()))
    };
    given.map(parse).transpose()
}

/// Where this node serves locks, and where the peer does.
pub(super) fn locks(args: &NodeArgs) -> Result<(PeerAddress, PeerAddress), SettingError> {
    let listen = args.server.clone().check()?.listen;
    let setting = "MONOLOCK_LISTEN_ADDRESS";
    let own = match listen_address(setting, &listen) {
        Ok(address) => reachable(address).into(),
        Err(_) => peer_address(setting, &listen)?,
    };
    Ok((own, peer_lock(args, &link(args)?.peer, &listen)?))
}

/// The peer's lock protocol: as given, else beside its peer link, on the port that this node uses itself.
fn peer_lock(args: &NodeArgs, peer: &PeerAddress, listen: &str) -> Result<PeerAddress, SettingError> {
    let setting = "MONOLOCK_PEER_LOCK_ADDRESS";
    if let Some(text) = given(args.peer_lock.clone()) {
        return peer_address(setting, &text);
    }
    let Some(port) = named_port(listen) else {
        return Err(SettingError::new(
            setting,
            "missing: the port of MONOLOCK_LISTEN_ADDRESS is left to the system, so the peer's cannot be the same",
        ));
    };
    Ok(peer.with_port(port))
}

fn witness(args: &NodeArgs) -> Result<WitnessSetting, SettingError> {
    let setting = "MONOLOCK_WITNESS";
    let what = "write postgres://user@host/database, s3://bucket/key, dns:name, or file:/path for two nodes on one \
                machine";
    let text = required(setting, given(args.witness.clone()), what)?;
    let unproven = given(args.unproven.clone())
        .map(|text| {
            let words = [("wait", Unproven::Wait), ("takeover", Unproven::Takeover)];
            word("MONOLOCK_UNPROVEN", &text, &words)
        })
        .transpose()?;
    let reserve = given(args.reserve.clone());
    if text == "none" {
        let reserve = reserve.map_or(Ok(DEFAULT_RESERVE), |text| {
            positive_duration("MONOLOCK_RESERVE", &text)
        })?;
        return unproven.map(|unproven| WitnessSetting::None(NoWitness { unproven, reserve })).ok_or_else(|| {
            let problem = "missing: a pair without a witness must choose what to do about a silent peer that is not \
                           proven dead: wait (nobody serves) or takeover (both may)";
            SettingError::new("MONOLOCK_UNPROVEN", problem)
        });
    }
    if unproven.is_some() {
        return Err(SettingError::new(
            "MONOLOCK_UNPROVEN",
            "is for pairs with MONOLOCK_WITNESS=none: remove it",
        ));
    }
    if reserve.is_some() {
        return Err(SettingError::new(
            "MONOLOCK_RESERVE",
            "is for pairs with MONOLOCK_WITNESS=none: remove it",
        ));
    }
    let (kind, rest) = text.split_once(':').unwrap_or((&text, ""));
    match kind {
        "file" if !rest.is_empty() => Ok(WitnessSetting::File(rest.into())),
        "postgres" | "postgresql" => postgres(&text),
        "s3" => s3(&text),
        "dns" if !rest.is_empty() => dns_witness(args, rest),
        _ => Err(SettingError::new(
            setting,
            format!("{:?} is no witness: {what}", HiddenAfterColon(&text)),
        )),
    }
}

#[cfg(feature = "postgres")]
fn postgres(text: &str) -> Result<WitnessSetting, SettingError> {
    let (url, pair) = text.split_once('#').unwrap_or((text, DEFAULT_PAIR));
    PostgresWitness::new(url, pair)
        .map_err(|error| SettingError::new("MONOLOCK_WITNESS", error.to_string()))?;
    Ok(WitnessSetting::Postgres {
        url: HiddenText(url.into()),
        pair: pair.into(),
    })
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str) -> Result<WitnessSetting, SettingError> {
    let problem = "this program was built without PostgreSQL: build it with the feature postgres";
    Err(SettingError::new("MONOLOCK_WITNESS", problem))
}

#[cfg(feature = "s3")]
fn s3(text: &str) -> Result<WitnessSetting, SettingError> {
    S3Location::parse(text)
        .map(WitnessSetting::S3)
        .map_err(|problem| SettingError::new("MONOLOCK_WITNESS", problem))
}

#[cfg(not(feature = "s3"))]
fn s3(_: &str) -> Result<WitnessSetting, SettingError> {
    let problem = "this program was built without S3: build it with the feature s3";
    Err(SettingError::new("MONOLOCK_WITNESS", problem))
}

fn dns_witness(args: &NodeArgs, name: &str) -> Result<WitnessSetting, SettingError> {
    let primary = dns_primary(args)?;
    DnsWitness::new(primary.clone(), name)
        .map_err(|error| SettingError::new("MONOLOCK_WITNESS", error.to_string()))?;
    Ok(WitnessSetting::Dns {
        primary,
        name: name.into(),
    })
}

/// The zone that may be updated, and by which key.
fn dns_primary(args: &NodeArgs) -> Result<DnsPrimary, SettingError> {
    let setting = "MONOLOCK_DNS_SERVER";
    let what = "write the primary server of the zone to update";
    let server = required(setting, given(args.dns_server.clone()), what)?;
    let server = peer_address_or_port(setting, &server, 53)?;
    let what = "write the zone to update, for example example.com";
    let zone = required("MONOLOCK_DNS_ZONE", given(args.dns_zone.clone()), what)?;
    let key = secret_text(
        ("MONOLOCK_DNS_KEY", given(args.dns_key.clone())),
        ("MONOLOCK_DNS_KEY_FILE", given(args.dns_key_file.clone())),
    )?;
    let Some((key_setting, key)) = key else {
        let problem =
            "missing: the server takes updates only with a TSIG key, in a file as tsig-keygen writes it";
        return Err(SettingError::new("MONOLOCK_DNS_KEY_FILE", problem));
    };
    let key = TsigKey::parse(&key).map_err(|error| SettingError::new(key_setting, error.to_string()))?;
    DnsPrimary::new(server, &zone, key)
        .map_err(|error| SettingError::new("MONOLOCK_DNS_ZONE", error.to_string()))
}

/// Shows what stands before the first colon: behind it may be a password.
struct HiddenAfterColon<'a>(&'a str);

impl fmt::Debug for HiddenAfterColon<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once(':') {
            Some((kind, rest)) if !rest.is_empty() => write!(f, "\"{kind}:...\""),
            _ => fmt::Debug::fmt(self.0, f),
        }
    }
}

fn timing(args: &NodeArgs) -> Result<Timing, SettingError> {
    let setting = "MONOLOCK_AUTHORITY_TTL";
    let ttl = match given(args.authority_ttl.clone()) {
        Some(text) => positive_duration(setting, &text)?,
        None => DEFAULT_TTL,
    };
    Timing::new(ttl).map_err(|error| SettingError::new(setting, error.to_string()))
}

fn grace(args: &NodeArgs) -> Result<TakeoverGrace, SettingError> {
    match given(args.takeover_grace.clone()).as_deref() {
        None | Some("lease") => Ok(TakeoverGrace::Lease),
        Some("none") => Ok(TakeoverGrace::None),
        Some(text) => positive_duration("MONOLOCK_TAKEOVER_GRACE", text).map(TakeoverGrace::AtMost),
    }
}

fn dns(
    args: &NodeArgs,
    node: NodeId,
    listen: &str,
    peer_lock: &PeerAddress,
) -> Result<Option<DnsConfig>, SettingError> {
    let name = given(args.service_name.clone());
    let embedded = Some(Kind::Embedded);
    let words = [
        ("embedded", embedded),
        ("rfc2136", Some(Kind::Updated)),
        ("off", None),
    ];
    let default = if name.is_some() { embedded } else { None };
    let Some(kind) = choice("MONOLOCK_DNS", args.dns.clone(), &words, default)? else {
        return Ok(None);
    };
    let what = "write the one name that clients know, for example locks.example.com";
    let name = required("MONOLOCK_SERVICE_NAME", name, what)?;
    let advertise = match given(args.advertise.clone()) {
        Some(text) => addresses("MONOLOCK_ADVERTISE_ADDRESS", &text)?,
        None => named_ip(listen).into_iter().collect(),
    };
    if advertise.is_empty() {
        return Err(SettingError::new(
            "MONOLOCK_ADVERTISE_ADDRESS",
            format!(
                "missing: locks are served on {listen}, which names no address for clients to connect to"
            ),
        ));
    }
    let peer_advertise = match given(args.peer_advertise.clone()) {
        Some(text) => addresses("MONOLOCK_PEER_ADVERTISE_ADDRESS", &text)?,
        None => peer_lock.host().parse().into_iter().collect(),
    };
    let by = match kind {
        Kind::Embedded => NameService::Embedded {
            listen: dns_listen(args)?,
            zone: zone(&name, node, &advertise, &peer_advertise)?,
        },
        Kind::Updated => NameService::Updated(publisher(args, &name)?),
    };
    Ok(Some(DnsConfig {
        by,
        advertise,
        peer_advertise,
    }))
}

/// Who answers for the name.
#[derive(Clone, Copy)]
enum Kind {
    Embedded,
    Updated,
}

fn publisher(args: &NodeArgs, name: &str) -> Result<NamePublisher, SettingError> {
    NamePublisher::new(dns_primary(args)?, name)
        .map_err(|error| SettingError::new("MONOLOCK_SERVICE_NAME", error.to_string()))
}

fn dns_listen(args: &NodeArgs) -> Result<SocketAddr, SettingError> {
    let text = given(args.dns_listen.clone()).unwrap_or_else(|| DEFAULT_DNS_LISTEN.into());
    listen_address("MONOLOCK_DNS_LISTEN_ADDRESS", &text)
}

fn zone(name: &str, node: NodeId, own: &[IpAddr], peers: &[IpAddr]) -> Result<ServiceZone, SettingError> {
    let own = own.iter().map(|address| (node, *address));
    let peers = peers.iter().map(|address| (node.peer(), *address));
    let mut nodes: Vec<_> = own.chain(peers).collect();
    nodes.sort();
    ServiceZone::new(name, &nodes)
        .map_err(|error| SettingError::new("MONOLOCK_SERVICE_NAME", error.to_string()))
}

fn hooks(args: &NodeArgs) -> Result<HookConfig, SettingError> {
    let time_limit = match given(args.hook_timeout.clone()) {
        Some(text) => positive_duration("MONOLOCK_HOOK_TIMEOUT", &text)?,
        None => DEFAULT_HOOK_TIME,
    };
    Ok(HookConfig {
        fence_command: given(args.fence_command.clone()),
        on_active: given(args.on_active.clone()),
        on_standby: given(args.on_standby.clone()),
        time_limit,
    })
}

fn clock(args: &NodeArgs) -> Result<ClockConfig, SettingError> {
    let duration = |setting, value: &Option<String>, default| match given(value.clone()) {
        Some(text) => positive_duration(setting, &text),
        None => Ok(default),
    };
    Ok(ClockConfig {
        servers: ntp_servers(args)?,
        poll_interval: duration(
            "MONOLOCK_NTP_POLL_INTERVAL",
            &args.ntp_poll_interval,
            DEFAULT_NTP_POLL_INTERVAL,
        )?,
        max_offset: duration(
            "MONOLOCK_MAX_CLOCK_OFFSET",
            &args.max_clock_offset,
            DEFAULT_MAX_CLOCK_OFFSET,
        )?,
        trusted: choice(
            "MONOLOCK_TRUST_CLOCK",
            args.trust_clock.clone(),
            &[("on", true), ("off", false)],
            false,
        )?,
    })
}

fn ntp_servers(args: &NodeArgs) -> Result<Vec<PeerAddress>, SettingError> {
    let setting = "MONOLOCK_NTP_SERVERS";
    let Some(text) = given(args.ntp_servers.clone()) else {
        return Ok(Vec::new());
    };
    let mut servers = Vec::new();
    for name in text.split(',') {
        let server = peer_address_or_port(setting, name.trim(), NTP_PORT)?;
        if servers.contains(&server) {
            let problem = format!("{server} is there twice: it would be two votes of one clock");
            return Err(SettingError::new(setting, problem));
        }
        servers.push(server);
    }
    if servers.len() > MOST_NTP_SERVERS {
        let problem = format!("{} servers are more than {MOST_NTP_SERVERS}", servers.len());
        return Err(SettingError::new(setting, problem));
    }
    Ok(servers)
}

fn choice<T: Copy>(
    setting: &'static str,
    value: Option<String>,
    words: &[(&str, T)],
    default: T,
) -> Result<T, SettingError> {
    given(value).map_or(Ok(default), |text| word(setting, &text, words))
}

const DEFAULT_RESERVE: Duration = Duration::from_secs(3_600);
const PEER_TLS: &str = "MONOLOCK_PEER_TLS_CERT";
const DEFAULT_PEER_LISTEN: &str = "0.0.0.0:7073";
const DEFAULT_DNS_LISTEN: &str = "0.0.0.0:53";
#[cfg(feature = "postgres")]
const DEFAULT_PAIR: &str = "default";
const DEFAULT_TTL: Duration = Duration::from_secs(3);
const DEFAULT_HOOK_TIME: Duration = Duration::from_secs(30);
const NTP_PORT: u16 = 123;
/// More would not make the clock any better known, and all of them are in every status.
const MOST_NTP_SERVERS: usize = 15;
const DEFAULT_NTP_POLL_INTERVAL: Duration = Duration::from_secs(32);
const DEFAULT_MAX_CLOCK_OFFSET: Duration = Duration::from_millis(500);
