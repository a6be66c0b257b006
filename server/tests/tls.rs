//! TLS, mutual TLS, access rules and their reload, against the real binary.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use common::{PATIENCE, RawClient, ServerProcess, acquire_frame, audit_lines, json, wait_until};
use monolock_protocol::ErrorCode;
use monolock_protocol::frame::ServerFrame;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

struct Identity {
    cert_pem: String,
    key_pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).expect("signed"),
        }
    }

    fn issue(&self, common_name: Option<&str>, names: Vec<SanType>) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.subject_alt_names = names;
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("signed");
        Identity {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    fn server(&self) -> Identity {
        self.issue(
            None,
            vec![SanType::DnsName("localhost".try_into().expect("a name"))],
        )
    }

    fn worker(&self, uri: &str) -> Identity {
        self.issue(Some("worker"), vec![SanType::URI(uri.try_into().expect("a uri"))])
    }
}

/// A folder with the server's files.
struct Files {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            folder: tempfile::tempdir().expect("a folder"),
            authority: Authority::new("clients and servers"),
        };
        files.write_server(&files.authority);
        files.write("ca.pem", &files.authority.issuer.pem());
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).expect("writable");
    }

    fn write_server(&self, authority: &Authority) {
        let identity = authority.server();
        self.write("server.pem", &identity.cert_pem);
        self.write("server.key", &identity.key_pem);
    }

    fn start(&self, mutual: bool, more: &[(&str, &str)]) -> ServerProcess {
        let (cert, key, ca) = (
            self.text("server.pem"),
            self.text("server.key"),
            self.text("ca.pem"),
        );
        let mut settings = vec![
            ("MONOLOCK_TLS_CERT", cert.as_str()),
            ("MONOLOCK_TLS_KEY", key.as_str()),
        ];
        if mutual {
            settings.push(("MONOLOCK_TLS_CLIENT_CA", ca.as_str()));
        }
        settings.extend(more);
        ServerProcess::start(&settings)
    }
}

/// A client that trusts one authority; the handshake happens on the first byte.
fn connect(server: &ServerProcess, trusted: &Authority, identity: Option<&Identity>) -> RawClient {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.issuer.der().clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = vec![CertificateDer::from_pem_slice(identity.cert_pem.as_bytes()).expect("PEM")];
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let socket = TcpStream::connect_timeout(&server.lock_addr, PATIENCE).expect("accepts");
    let stream = socket.try_clone().expect("a descriptor");
    RawClient::over(socket, StreamOwned::new(connection, stream))
}

fn acquire(
    server: &ServerProcess,
    trusted: &Authority,
    identity: Option<&Identity>,
    lock: &str,
) -> RawClient {
    let mut client = connect(server, trusted, identity);
    client.send(&acquire_frame(lock, 60_000));
    client
}

/// The server ended the connection in the handshake.
fn expect_refused_handshake(mut client: RawClient, lock: &str) {
    let refused = client.try_send(&acquire_frame(lock, 60_000)).is_err() || {
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.frame()));
        read.is_err() || matches!(read, Ok(None))
    };
    assert!(refused);
}

#[test]
fn tls_carries_the_protocol_and_a_plain_client_is_counted_as_a_failed_handshake() {
    let files = Files::new();
    let server = files.start(false, &[]);
    let mut holder = acquire(&server, &files.authority, None, "a");
    let token = holder.acquired();
    let mut waiter = acquire(&server, &files.authority, None, "a");
    assert_eq!(waiter.frame(), Some(ServerFrame::Waiting));
    assert_eq!(holder.heartbeat(), ServerFrame::Acquired(token));
    drop(holder);
    waiter.acquired();
    waiter.send(&[0x7f]);
    waiter.expect_error(ErrorCode::UnknownMessageType);

    let mut plain = TcpStream::connect(server.lock_addr).expect("accepts");
    plain.set_read_timeout(Some(PATIENCE)).expect("a socket");
    plain.write_all(&acquire_frame("a", 60_000)).expect("sent");
    let mut answer = Vec::new();
    // An alert and a close, or a reset: never a frame.
    let _ = plain.read_to_end(&mut answer);
    assert!(!matches!(answer.first(), Some(0x11..=0x13)));
    server.wait_for_metric("monolock_tls_handshake_errors_total", 1.0);
    assert_eq!(json(server.admin_addr, "/api/info")["config"]["tls"], true);
}

#[test]
fn a_handshake_that_stalls_ends_with_the_io_timeout() {
    let files = Files::new();
    let server = files.start(false, &[("MONOLOCK_IO_TIMEOUT", "200ms")]);
    let mut silent = server.connect();
    silent.expect_closed();
    server.wait_for_metric("monolock_tls_handshake_errors_total", 1.0);
}

#[test]
fn the_identity_is_the_first_uri_then_the_first_dns_name_then_the_common_name() {
    let files = Files::new();
    let server = files.start(true, &[]);
    let dns = |name: &str| SanType::DnsName(name.try_into().expect("a name"));
    let uri = |name: &str| SanType::URI(name.try_into().expect("a uri"));
    for (lock, identity, expected) in [
        (
            "uri",
            files.authority.issue(
                Some("cn"),
                vec![
                    dns("first.example"),
                    uri("spiffe://prod/worker/7"),
                    uri("spiffe://prod/worker/8"),
                ],
            ),
            "spiffe://prod/worker/7",
        ),
        (
            "dns",
            files
                .authority
                .issue(Some("cn"), vec![dns("first.example"), dns("second.example")]),
            "first.example",
        ),
        (
            "cn",
            files.authority.issue(Some("just a name"), Vec::new()),
            "just a name",
        ),
        (
            "none",
            files.authority.issue(
                None,
                vec![SanType::IpAddress("10.0.0.1".parse().expect("an address"))],
            ),
            "",
        ),
    ] {
        let mut client = acquire(&server, &files.authority, Some(&identity), lock);
        client.acquired();
        let shown = json(server.admin_addr, &format!("/api/locks/{lock}"));
        assert_eq!(shown["holder"]["identity"], expected, "{lock}");
    }
}

#[test]
fn mutual_tls_refuses_strangers_in_the_handshake() {
    let files = Files::new();
    let server = files.start(true, &[]);
    let stranger = Authority::new("somebody else").worker("spiffe://prod/worker/1");
    expect_refused_handshake(connect(&server, &files.authority, None), "a");
    expect_refused_handshake(connect(&server, &files.authority, Some(&stranger)), "a");
    server.wait_for_metric("monolock_tls_handshake_errors_total", 2.0);
    assert_eq!(server.metric("monolock_acquires_total"), 0.0);
}

#[test]
fn access_rules_refuse_with_0x18_a_count_and_an_audit_line_and_are_reloaded() {
    let files = Files::new();
    files.write(
        "acl.json",
        r#"{"rules":[{"identity":"spiffe://prod/*","locks":["nightly/*"]}]}"#,
    );
    let (acl, audit) = (files.text("acl.json"), files.text("audit.jsonl"));
    let mut server = files.start(
        true,
        &[
            ("MONOLOCK_ACL_FILE", acl.as_str()),
            ("MONOLOCK_AUDIT_LOG", audit.as_str()),
        ],
    );
    let worker = files.authority.worker("spiffe://prod/worker/1");
    let trusted = &files.authority;
    let mut holder = acquire(&server, trusted, Some(&worker), "nightly/import");
    let token = holder.acquired();
    acquire(&server, trusted, Some(&worker), "daily").expect_error(ErrorCode::NotAuthorized);
    assert_eq!(server.metric("monolock_acl_denials_total"), 1.0);
    assert_eq!(
        server.metric("monolock_protocol_errors_total{code=\"0x18\"}"),
        1.0
    );
    let mut denied = None;
    assert!(wait_until(|| {
        denied = audit_lines(&files.path("audit.jsonl"))
            .into_iter()
            .find(|line| line["event"] == "denied");
        denied.is_some()
    }));
    let denied = denied.expect("found");
    assert_eq!(
        (&denied["lock"], &denied["identity"]),
        (&"daily".into(), &"spiffe://prod/worker/1".into())
    );

    files.write("acl.json", r#"{"rules":[{"identity":"*"}]}"#);
    server.signal(Signal::HUP);
    server.wait_for_log(|line| line.contains("not reloaded") && line.contains("rule 1 has no locks"));
    acquire(&server, trusted, Some(&worker), "daily").expect_error(ErrorCode::NotAuthorized);

    files.write("acl.json", r#"{"rules":[{"identity":"*","locks":["daily"]}]}"#);
    server.signal(Signal::HUP);
    let allowed = wait_until(|| {
        let mut client = acquire(&server, trusted, Some(&worker), "daily");
        matches!(
            client.frame(),
            Some(ServerFrame::Acquired(_) | ServerFrame::Waiting)
        )
    });
    assert!(allowed);
    assert_eq!(
        holder.heartbeat(),
        ServerFrame::Acquired(token),
        "an open session is untouched"
    );
}

#[test]
fn a_hangup_rotates_certificates_for_new_connections_and_keeps_the_old_on_failure() {
    let files = Files::new();
    let mut server = files.start(false, &[]);
    let mut open = acquire(&server, &files.authority, None, "a");
    let token = open.acquired();

    files.write("server.pem", "not a certificate");
    server.signal(Signal::HUP);
    server.wait_for_log(|line| line.contains("not reloaded") && line.contains("MONOLOCK_TLS_CERT"));
    acquire(&server, &files.authority, None, "b").acquired();

    let next = Authority::new("the next authority");
    files.write_server(&next);
    server.signal(Signal::HUP);
    server.wait_for_log(|line| {
        line.contains("reloaded") && line.contains("certificates") && !line.contains("not")
    });
    acquire(&server, &next, None, "c").acquired();
    assert_eq!(
        open.heartbeat(),
        ServerFrame::Acquired(token),
        "an open session is untouched"
    );
}
