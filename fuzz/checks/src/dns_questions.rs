//! The embedded name server under any datagrams: it goes on answering, and only about its own name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, Query};
use hickory_proto::rr::{Name, RecordType};
use monolock_failover::core::{NodeId, Term};
use monolock_failover::dns::{EmbeddedDns, ServiceState, ServiceZone};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::loopback::{runtime, split};

pub(crate) fn check(bytes: &[u8]) {
    let asker = asker();
    let (how, rest) = split(bytes);
    let datagram = match how % 2 {
        0 => rest.to_vec(),
        _ => composed(rest),
    };
    runtime().block_on(async {
        asker.send(&datagram).await.expect("sent");
        asker.send(&probe()).await.expect("sent");
        tokio::time::timeout(PATIENCE, answered(asker))
            .await
            .expect("the name server goes on answering");
    });
}

/// Reads answers up to that of the probe.
async fn answered(asker: &UdpSocket) {
    let mut datagram = [0; 65_535];
    loop {
        let length = asker.recv(&mut datagram).await.expect("received");
        assert!(length <= LONGEST_ANSWER, "an answer of {length} bytes");
        let answer = Message::from_vec(&datagram[..length]).expect("an answer is a message");
        assert_eq!(answer.metadata.message_type, MessageType::Response);
        for record in &answer.answers {
            assert!(zone_name().zone_of(&record.name.to_lowercase()), "{record}");
        }
        if answer.metadata.id == PROBE && answer.queries == [probe_query()] {
            assert_eq!(answer.answers.len(), 1, "the active node's address");
            return;
        }
    }
}

/// A question with a valid head: its type, class and name are the input's.
fn composed(input: &[u8]) -> Vec<u8> {
    let (flags, input) = split(input);
    let (kind, name) = split(input);
    let mut datagram = vec![1, 2, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split(|byte| *byte == b'.').filter(|label| !label.is_empty()) {
        let label = &label[..label.len().min(63)];
        datagram.push(u8::try_from(label.len()).expect("cut"));
        datagram.extend(label);
    }
    datagram.extend(b"\x05locks\x07example\x00");
    datagram.extend([0, kind, 0, 1]);
    datagram
}

fn asker() -> &'static UdpSocket {
    static ASKER: OnceLock<UdpSocket> = OnceLock::new();
    ASKER.get_or_init(|| {
        runtime().block_on(async {
            let local = SocketAddr::from(([127, 0, 0, 1], 0));
            let node = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
            let zone = ServiceZone::new("locks.example", &[(NodeId::A, node)]).expect("a name");
            let server = EmbeddedDns::bind(local, zone).await.expect("a free port");
            let address = server.local_addr();
            let (sender, state) = watch::channel(ServiceState {
                addresses: vec![node],
                term: Term(7),
            });
            runtime().spawn(async move {
                server.serve(state, CancellationToken::new()).await;
                drop(sender);
            });
            let asker = UdpSocket::bind(local).await.expect("a free port");
            asker.connect(address).await.expect("local");
            asker
        })
    })
}

fn zone_name() -> Name {
    Name::from_ascii("locks.example.").expect("a name")
}

fn probe_query() -> Query {
    Query::query(zone_name(), RecordType::A)
}

fn probe() -> Vec<u8> {
    let mut probe = Message::query();
    probe.metadata.id = PROBE;
    probe.add_query(probe_query());
    probe.to_vec().expect("a short message")
}

const PROBE: u16 = 0xbeef;
const PATIENCE: Duration = Duration::from_secs(30);
/// What fits a datagram on every network.
const LONGEST_ANSWER: usize = 1_232;
