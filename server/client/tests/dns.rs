//! Names: looked up at every attempt, every address tried, both families.

mod support;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::CNAME;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use monolock_client::{Client, Token};
use monolock_protocol::frame::ServerFrame;
use support::{Conn, PATIENCE, Peer, closed_port};

const NAME: &str = "locks.test.internal";
/// Names that only lead on, and nowhere.
const ALIASES: [(&str, &str); 2] = [
    ("itself.test.internal", "itself.test.internal"),
    ("astray.test.internal", "unknown.test.internal"),
];
const LEASE: Duration = Duration::from_secs(2);

/// A name server on a loopback port; its records can be changed while it runs.
struct NameServer {
    address: SocketAddr,
    records: Arc<Mutex<HashMap<String, Vec<IpAddr>>>>,
}

impl NameServer {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("bound");
        let records: Arc<Mutex<HashMap<String, Vec<IpAddr>>>> = Arc::default();
        std::thread::spawn({
            let records = Arc::clone(&records);
            move || {
                let mut query = [0; 512];
                while let Ok((len, from)) = socket.recv_from(&mut query) {
                    let query = Message::from_vec(&query[..len]).expect("a query");
                    let answer = answer(&query, &records.lock().expect("not poisoned"));
                    socket
                        .send_to(&answer.to_vec().expect("small"), from)
                        .expect("sent");
                }
            }
        });
        Self { address, records }
    }

    fn set(&self, addresses: &[&str]) {
        let addresses = addresses
            .iter()
            .map(|ip| ip.parse().expect("an address"))
            .collect();
        self.records
            .lock()
            .expect("not poisoned")
            .insert(format!("{NAME}."), addresses);
    }

    fn client(&self, port: u16) -> Client {
        Client::builder(&format!("{NAME}:{port}"))
            .dns_servers(vec![self.address])
            .build()
            .expect("valid settings")
    }
}

fn answer(query: &Message, records: &HashMap<String, Vec<IpAddr>>) -> Message {
    let mut answer = Message::response(query.metadata.id, OpCode::Query);
    let question = query.queries.first().expect("one question").clone();
    answer.metadata.authoritative = true;
    let known = records.get(&question.name().to_string());
    let alias = ALIASES
        .iter()
        .find(|(name, _)| question.name().to_string() == format!("{name}."));
    if let Some((_, target)) = alias {
        let target = Name::from_ascii(format!("{target}.")).expect("a name");
        answer.add_answer(Record::from_rdata(
            question.name().clone(),
            1,
            RData::CNAME(CNAME(target)),
        ));
    } else if known.is_none() {
        answer.metadata.response_code = ResponseCode::NXDomain;
    }
    for ip in known.into_iter().flatten() {
        let data = RData::from(*ip);
        if question.query_type() == data.record_type() {
            // A TTL of an hour: the client must ask again all the same.
            answer.add_answer(Record::from_rdata(question.name().clone(), 3_600, data));
        }
    }
    assert!(matches!(question.query_type(), RecordType::A | RecordType::AAAA));
    answer.add_query(question);
    answer
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

fn hold(mut conn: Conn, token: u64) {
    conn.expect_acquire();
    conn.grant(token);
    conn.keep_alive(&ServerFrame::Acquired(Token::new(token)));
}

#[tokio::test]
async fn the_name_is_looked_up_at_every_attempt() {
    let names = NameServer::start();
    let first = Peer::start(|listener| hold(listener.accept(), 1));
    let port = first.address.port();
    let second = Peer::start_at(&format!("127.0.0.2:{port}"), |listener| {
        hold(listener.accept(), 2)
    });
    let client = names.client(port);
    for (address, token) in [("127.0.0.1", 1), ("127.0.0.2", 2)] {
        names.set(&[address]);
        let guard = patiently(client.acquire("a", LEASE)).await.expect("granted");
        assert_eq!(guard.token(), Ok(Token::new(token)));
        assert_eq!(guard.server().ip().to_string(), address);
    }
    first.finish();
    second.finish();
}

#[tokio::test]
async fn every_address_of_the_name_is_tried_in_both_families() {
    let names = NameServer::start();
    let peer = Peer::start_at("[::1]:0", |listener| hold(listener.accept(), 1));
    names.set(&["127.0.0.1", "127.0.0.2", "::1"]);
    let guard = patiently(names.client(peer.address.port()).acquire("a", LEASE))
        .await
        .expect("granted");
    assert_eq!(guard.server(), peer.address);
    drop(guard);
    peer.finish();
}

#[tokio::test]
async fn a_silent_name_server_does_not_keep_the_other_from_being_asked() {
    let names = NameServer::start();
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let silent = silent
        .local_addr()
        .map(|address| (silent, address))
        .expect("bound");
    let peer = Peer::start(|listener| hold(listener.accept(), 1));
    names.set(&["127.0.0.1"]);
    let client = Client::builder(&format!("{NAME}:{}", peer.address.port()))
        .dns_servers(vec![silent.1, names.address])
        .build()
        .expect("valid settings");
    let guard = patiently(client.acquire("a", LEASE)).await.expect("granted");
    drop(guard);
    peer.finish();
}

#[tokio::test]
async fn an_unknown_name_and_dead_name_servers_say_so() {
    let names = NameServer::start();
    let error = patiently(names.client(7070).acquire("a", LEASE))
        .await
        .expect_err("unknown");
    assert!(
        error
            .to_string()
            .contains(&format!("{NAME}:7070: no address found")),
        "{error}"
    );

    let dead = Client::builder(NAME)
        .dns_servers(vec![closed_port()])
        .build()
        .expect("valid settings");
    let error = patiently(dead.acquire("a", LEASE))
        .await
        .expect_err("no name server");
    assert!(
        error.to_string().contains(&format!("{NAME}:7070: no a")),
        "{error}"
    );
}

#[tokio::test]
async fn a_name_without_an_address_says_so_however_the_answer_lacks_it() {
    let names = NameServer::start();
    names.set(&[]);
    for name in [NAME, ALIASES[0].0, ALIASES[1].0] {
        let client = Client::builder(name).dns_servers(vec![names.address]).build();
        let error = patiently(client.expect("valid settings").acquire("a", LEASE))
            .await
            .expect_err("no address");
        assert!(
            error
                .to_string()
                .contains(&format!("{name}:7070: no address found")),
            "{error}"
        );
    }
}
