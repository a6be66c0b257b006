//! From a name to its addresses, anew at every attempt and never from a cache: a takeover moves the name.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver};

use crate::address::{Endpoint, Host};

/// Why a name has no addresses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The system's resolver configuration cannot be read.
    #[error("the system's resolver configuration cannot be used: {0}")]
    SystemConfig(#[source] NetError),
    /// The name servers know no address of the name, or did not answer.
    #[error("no address found: {0}")]
    Lookup(#[source] NetError),
    /// The name servers know the name, or where an alias leads, but no address of it.
    #[error("no address found: the name has none")]
    NoAddress,
    /// The name is no DNS name.
    #[error("not a DNS name: {0}")]
    BadName(String),
    /// The name servers took too long.
    #[error("no answer from the name servers within {0:?}")]
    Timeout(Duration),
    /// The lookup could not be run.
    #[error("the lookup could not be run: {0}")]
    Failed(#[source] io::Error),
}

/// All addresses of `endpoint`: literals as they are, then the hosts file, then DNS by `dns_servers` or, when there are
/// none, by the system's.
pub(crate) async fn resolve(
    endpoint: &Endpoint,
    dns_servers: &[SocketAddr],
) -> Result<Vec<SocketAddr>, ResolveError> {
    let name = match &endpoint.host {
        Host::Address(ip) => return Ok(vec![SocketAddr::new(*ip, endpoint.port)]),
        Host::Name(name) => name.as_str(),
    };
    let dns_servers = dns_servers.to_vec();
    let parsed: Name = name.parse().map_err(|_| ResolveError::BadName(name.to_owned()))?;
    // Both read files of the system, also on every attempt: they may have changed.
    let (from_hosts, resolver) = tokio::task::spawn_blocking(move || {
        let from_hosts = lookup_hosts(&parsed);
        let resolver = from_hosts.is_empty().then(|| build_resolver(&dns_servers));
        (from_hosts, resolver)
    })
    .await
    .map_err(|error| ResolveError::Failed(error.into()))?;
    let addresses = match resolver {
        None => from_hosts,
        Some(resolver) => {
            let found = resolver?.lookup_ip(name).await.map_err(ResolveError::Lookup)?;
            found.iter().collect()
        }
    };
    // An alias that leads to nothing is an answer without an error.
    if addresses.is_empty() {
        return Err(ResolveError::NoAddress);
    }
    Ok(addresses
        .into_iter()
        .map(|ip| SocketAddr::new(ip, endpoint.port))
        .collect())
}

fn lookup_hosts(name: &Name) -> Vec<IpAddr> {
    let hosts = Hosts::from_system().unwrap_or_default();
    let mut addresses = Vec::new();
    for record_type in [RecordType::A, RecordType::AAAA] {
        let found = hosts.lookup_static_host(&Query::query(name.clone(), record_type));
        let found = found.iter().flat_map(|lookup| lookup.answers());
        addresses.extend(found.filter_map(|record| record.data.ip_addr()));
    }
    if addresses.is_empty() && name.is_localhost() {
        return vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    }
    addresses
}

fn build_resolver(dns_servers: &[SocketAddr]) -> Result<TokioResolver, ResolveError> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = if dns_servers.is_empty() {
        TokioResolver::builder(provider).map_err(ResolveError::SystemConfig)?
    } else {
        let servers = dns_servers.iter().map(name_server).collect();
        TokioResolver::builder_with_config(ResolverConfig::from_parts(None, Vec::new(), servers), provider)
    };
    tune(builder.options_mut(), dns_servers.len());
    builder.build().map_err(ResolveError::SystemConfig)
}

fn tune(options: &mut ResolverOpts, given_servers: usize) {
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = options.timeout.min(QUERY_TIMEOUT);
    // A server that is silent or answers SERVFAIL must not keep the others from being asked.
    options.num_concurrent_reqs = given_servers.max(MIN_CONCURRENT_QUERIES);
}

/// Each is asked over UDP, then TCP. One that denies the name is not believed while another may know it: a standby's
/// zone can lag behind.
fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), false, connections)
}

const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_CONCURRENT_QUERIES: usize = 2;
