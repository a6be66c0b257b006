//! Whatever a client sends, it gets a clear answer of its own, nothing hangs, and nobody else notices.

use std::net::{SocketAddr, TcpListener};

use monolock_integration_tests::process::Exit;
use monolock_integration_tests::random::{Rng, seeded};
use monolock_integration_tests::raw_client::{RawClient, Received};
use monolock_integration_tests::server::LockServer;
use monolock_protocol::frame::ServerFrame;
use monolock_protocol::{ErrorClass, ErrorCode, Token};

/// An `ACQUIRE` with fields that need not be valid.
fn acquire(version: u8, lease_ms: u32, announced_name_len: u16, name: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x01, version];
    frame.extend(lease_ms.to_be_bytes());
    frame.extend(announced_name_len.to_be_bytes());
    frame.extend(name);
    frame
}

/// Sends bytes on a connection of their own and expects this error, and then the end.
#[track_caller]
fn expect_error(server: SocketAddr, bytes: &[u8], code: ErrorCode) -> String {
    let mut client = RawClient::connect(server);
    client.send(bytes);
    client.expect_error(code)
}

/// A holder that must keep its lock and its token whatever the others do.
struct Bystander {
    client: RawClient,
    token: Token,
}

impl Bystander {
    fn new(server: SocketAddr) -> Self {
        let mut client = RawClient::acquire(server, "bystander", 600_000);
        let token = client.expect_acquired_in_the_end();
        Self { client, token }
    }

    #[track_caller]
    fn expect_unharmed(&mut self) {
        self.client.heartbeat();
        assert_eq!(self.client.expect_acquired(), self.token);
    }
}

#[test]
fn each_wrong_request_has_an_error_of_its_own() {
    let server = LockServer::start(&[]);
    let address = server.address;
    let mut bystander = Bystander::new(address);

    let reason = expect_error(address, b"GET / HTTP/1.1\r\n\r\n", ErrorCode::UnknownMessageType);
    assert!(reason.contains("0x47"), "{reason:?} names the byte");
    expect_error(address, &[0x02], ErrorCode::FirstMessageMustBeAcquire);
    expect_error(
        address,
        &acquire(2, 1_000, 1, b"x"),
        ErrorCode::UnsupportedVersion,
    );
    expect_error(address, &acquire(1, 1_000, 0, b""), ErrorCode::EmptyName);
    expect_error(
        address,
        &acquire(1, 1_000, 256, &[b'x'; 256]),
        ErrorCode::NameTooLong,
    );
    expect_error(
        address,
        &acquire(1, 1_000, u16::MAX, b"x"),
        ErrorCode::NameTooLong,
    );
    expect_error(
        address,
        &acquire(1, 1_000, 2, &[0xc3, 0x28]),
        ErrorCode::NameNotUtf8,
    );
    expect_error(address, &acquire(1, 0, 1, b"x"), ErrorCode::LeaseNotPositive);
    bystander.expect_unharmed();
}

#[test]
fn a_claim_that_then_breaks_the_protocol_is_told_and_loses_its_lock() {
    let server = LockServer::start(&[]);
    for (bytes, code) in [
        (acquire(1, 1_000, 1, b"x"), ErrorCode::DuplicateAcquire),
        (vec![0xff], ErrorCode::UnknownMessageType),
    ] {
        let mut holder = RawClient::acquire(server.address, "broken", 600_000);
        let token = holder.expect_acquired_in_the_end();
        let mut waiter = RawClient::acquire(server.address, "broken", 600_000);
        waiter.expect_waiting();
        holder.send(&bytes);
        holder.expect_error(code);
        assert!(waiter.expect_acquired() > token);
    }
}

#[test]
fn an_error_reaches_a_client_that_goes_on_sending() {
    let server = LockServer::start(&[]);
    let mut client = RawClient::connect(server.address);
    client.send(&[0xff; 16 * 1024]);
    client.finish();
    client.expect_error(ErrorCode::UnknownMessageType);
}

#[test]
fn half_a_frame_and_no_frame_are_not_waited_for_without_end() {
    let server = LockServer::start(&[("MONOLOCK_IO_TIMEOUT", "250ms")]);
    let mut bystander = Bystander::new(server.address);

    let mut silent = RawClient::connect(server.address);
    let mut half = RawClient::connect(server.address);
    let frame = acquire(1, 600_000, 4, b"half");
    half.send(&frame[..frame.len() / 2]);
    for client in [&mut silent, &mut half] {
        let last = client.receive();
        assert!(matches!(last, Received::End), "{last:?}");
    }

    // The silence of a holder between two frames is its lease's business.
    bystander.expect_unharmed();
}

#[test]
fn random_bytes_end_in_an_error_or_a_close_and_harm_nobody() {
    let mut rng = seeded();
    let server = LockServer::start(&[]);
    let mut bystander = Bystander::new(server.address);
    for _ in 0..300 {
        let bytes = random_request(&mut rng);
        let mut client = RawClient::connect(server.address);
        client.send(&bytes);
        client.finish();
        expect_end_of_session(&mut client, &bytes);
    }
    bystander.expect_unharmed();
    assert_eq!(server.process.exit(), None);
}

/// Anything from noise to a request with one wrong byte.
fn random_request(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = acquire(1, rng.u32(..), rng.u16(..300), b"");
    bytes.extend((0..rng.usize(..300)).map(|_| rng.u8(..)));
    match rng.u8(..3) {
        0 => bytes.drain(..8).for_each(drop),
        1 => bytes[rng.usize(..8)] = rng.u8(..),
        _ => {}
    }
    bytes
}

/// Reads to the end of the stream: a valid start may be answered first; an error, if any, comes last and is one of
/// the client's.
fn expect_end_of_session(client: &mut RawClient, sent: &[u8]) {
    let mut refused = false;
    loop {
        match client.receive() {
            Received::Frame(ServerFrame::Error { code, .. }) => {
                assert_eq!(code.class(), ErrorClass::ClientError, "{sent:02x?}");
                refused = true;
            }
            Received::Frame(frame) => assert!(!refused, "{frame:?} after an ERROR: {sent:02x?}"),
            Received::End => return,
            Received::Broken(error) => panic!("{error:?}: {sent:02x?}"),
        }
    }
}

#[test]
fn a_port_in_use_stops_the_start_with_a_line_that_names_the_setting_and_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("any port");
    let address = taken.local_addr().expect("it is bound").to_string();
    expect_refused_start(
        &[("MONOLOCK_LISTEN_ADDRESS", &address)],
        &["MONOLOCK_LISTEN_ADDRESS", &address],
    );
    expect_refused_start(
        &[("MONOLOCK_OPS_LISTEN_ADDRESS", &address)],
        &["MONOLOCK_OPS_LISTEN_ADDRESS", &address],
    );
}

#[test]
fn a_bad_setting_stops_the_start_with_a_line_that_names_it() {
    for (setting, value) in [
        ("MONOLOCK_LISTEN_ADDRESS", "nowhere"),
        ("MONOLOCK_IO_TIMEOUT", "soon"),
        ("MONOLOCK_IO_TIMEOUT", "0s"),
        ("MONOLOCK_LOG_LEVEL", "loud"),
        ("MONOLOCK_LOG_FORMAT", "xml"),
        ("MONOLOCK_TOKEN_FILE", "/no/such/folder/token"),
        ("MONOLOCK_AUDIT_LOG", "/no/such/folder/audit"),
        ("MONOLOCK_TLS_CERT", "/no/such/certificate.pem"),
        ("MONOLOCK_ACL_FILE", "/no/such/acl.json"),
    ] {
        expect_refused_start(&[(setting, value)], &[setting]);
    }
}

/// The server must exit by itself with a code that is not 0, after one line that contains all of these.
#[track_caller]
fn expect_refused_start(settings: &[(&str, &str)], texts: &[&str]) {
    println!("starting with {settings:?}");
    let process = LockServer::spawn(settings);
    let exit = process.wait_for_exit();
    assert!(
        matches!(exit, Exit::Code(code) if code != 0),
        "{settings:?}: {exit:?}"
    );
    let lines = process.all_lines();
    assert!(
        lines
            .iter()
            .any(|line| texts.iter().all(|text| line.contains(text))),
        "{settings:?}: no line with {texts:?} in {lines:#?}"
    );
}
