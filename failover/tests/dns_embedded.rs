//! The embedded DNS server, asked by a resolver library and by `dig`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use monolock_failover::core::{NodeId, Term};
use monolock_failover::dns::{EmbeddedDns, ServiceState, ServiceZone};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const NOWHERE: [IpAddr; 0] = [];

struct Dns {
    address: SocketAddr,
    state: watch::Sender<ServiceState>,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

async fn start() -> Dns {
    let nodes = [(NodeId::A, ip("192.0.2.1")), (NodeId::B, ip("192.0.2.2"))];
    let zone = ServiceZone::new("locks.demo.internal", &nodes).unwrap();
    let dns = EmbeddedDns::bind("127.0.0.1:0".parse().unwrap(), zone)
        .await
        .unwrap();
    let address = dns.local_addr();
    let (state, watched) = watch::channel(ServiceState::default());
    let stop = CancellationToken::new();
    let serving = tokio::spawn(dns.serve(watched, stop.clone()));
    Dns {
        address,
        state,
        stop,
        serving,
    }
}

fn resolver(address: SocketAddr, mut connection: ConnectionConfig) -> TokioResolver {
    connection.port = address.port();
    let server = NameServerConfig::new(address.ip(), true, vec![connection]);
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    builder.options_mut().cache_size = 0;
    builder.options_mut().timeout = Duration::from_secs(10);
    builder.build().unwrap()
}

async fn addresses(resolver: &TokioResolver, name: &str) -> Vec<IpAddr> {
    match resolver.lookup_ip(name).await {
        Ok(found) => found.iter().collect(),
        Err(error) => {
            assert!(error.is_no_records_found(), "{error}");
            Vec::new()
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_sees_each_change_at_once_over_udp_and_tcp() {
    let dns = start().await;
    for connection in [ConnectionConfig::udp(), ConnectionConfig::tcp()] {
        let resolver = resolver(dns.address, connection);
        dns.state.send_replace(ServiceState::default());
        assert_eq!(addresses(&resolver, "locks.demo.internal.").await, NOWHERE);
        for (address, term) in [("192.0.2.1", 1), ("192.0.2.2", 2), ("2001:db8::1", 3)] {
            dns.state.send_replace(ServiceState {
                addresses: vec![ip(address)],
                term: Term(term),
            });
            assert_eq!(addresses(&resolver, "locks.demo.internal.").await, [ip(address)]);
            let text = resolver.txt_lookup("locks.demo.internal.").await.unwrap();
            let text: Vec<_> = text
                .answers()
                .iter()
                .map(|record| record.data.to_string())
                .collect();
            assert_eq!(text, [format!("term={term}")]);
        }
        assert_eq!(
            addresses(&resolver, "b.locks.demo.internal.").await,
            [ip("192.0.2.2")]
        );
        assert_eq!(addresses(&resolver, "c.locks.demo.internal.").await, NOWHERE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_is_free_again_after_the_stop() {
    let dns = start().await;
    dns.stop.cancel();
    tokio::time::timeout(Duration::from_secs(30), dns.serving)
        .await
        .unwrap()
        .unwrap();
    let zone = ServiceZone::new("locks.demo.internal", &[]).unwrap();
    EmbeddedDns::bind(dns.address, zone).await.unwrap();
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let taken = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let zone = ServiceZone::new("locks.demo.internal", &[]).unwrap();
    let error = EmbeddedDns::bind(address, zone).await.unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(
        error.to_string().contains("MONOLOCK_DNS_LISTEN_ADDRESS"),
        "{error}"
    );
}

/// What `dig` prints, in lower case, with runs of white space as one space; the tool comes with the test setup.
fn dig(address: SocketAddr, arguments: &[&str]) -> String {
    let output = Command::new("dig")
        .args([
            "+tries=1",
            "+time=10",
            "@127.0.0.1",
            "-p",
            &address.port().to_string(),
        ])
        .args(arguments)
        .output()
        .expect("dig is installed (Debian: bind9-dnsutils)");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .to_ascii_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn dig_finds_a_proper_authority() {
    let dns = start().await;
    dns.state.send_replace(ServiceState {
        addresses: vec![ip("192.0.2.2")],
        term: Term(5),
    });
    let address = dns.address;
    tokio::task::spawn_blocking(move || {
        for transport in ["+notcp", "+tcp"] {
            let text = dig(address, &[transport, "locks.demo.internal", "A"]);
            assert!(text.contains("status: noerror"), "{text}");
            assert!(text.contains("flags: qr aa rd;"), "{text}");
            assert!(text.contains("locks.demo.internal. 1 in a 192.0.2.2"), "{text}");
            assert!(text.contains("edns: version: 0"), "{text}");
        }
        let text = dig(address, &["locks.demo.internal", "NS"]);
        assert!(text.contains("in ns a.locks.demo.internal."), "{text}");
        assert!(text.contains("b.locks.demo.internal. 1 in a 192.0.2.2"), "{text}");
        let text = dig(address, &["nobody.locks.demo.internal", "A"]);
        assert!(text.contains("status: nxdomain"), "{text}");
        assert!(text.contains("in soa"), "{text}");
        let text = dig(address, &["example.com", "A"]);
        assert!(text.contains("status: refused"), "{text}");
        let text = dig(
            address,
            &["+edns=1", "+noednsnegotiation", "locks.demo.internal", "A"],
        );
        assert!(text.contains("status: badvers"), "{text}");
        let text = dig(address, &["+opcode=notify", "locks.demo.internal", "SOA"]);
        assert!(text.contains("status: notimp"), "{text}");
    })
    .await
    .unwrap();
}
