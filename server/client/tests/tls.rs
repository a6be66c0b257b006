//! TLS and mutual TLS against a real server.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use monolock_client::{AcquireError, Client, ConfigError, ErrorCode, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::PATIENCE;
use support::server::{Server, without_settings};
use tempfile::TempDir;

const LEASE: Duration = Duration::from_secs(5);

/// An authority, and a folder of what it has issued.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("ring"));
        let authority = Self {
            folder: tempfile::tempdir().expect("a folder"),
            issuer: issuer.expect("self-signed"),
        };
        std::fs::write(authority.roots(), authority.issuer.pem()).expect("written");
        authority
    }

    fn roots(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn issue(&self, name: &str) -> Issued {
        let key = KeyPair::generate().expect("ring");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a valid name");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let issued = Issued {
            certificate: self.folder.path().join(format!("{name}.pem")),
            key: self.folder.path().join(format!("{name}.key")),
        };
        std::fs::write(&issued.certificate, certificate.pem()).expect("written");
        std::fs::write(&issued.key, key.serialize_pem()).expect("written");
        issued
    }
}

struct Issued {
    certificate: PathBuf,
    key: PathBuf,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

fn start_server(authority: &Authority, more: &[(&str, &str)]) -> Server {
    let own = authority.issue("localhost");
    let mut settings = vec![
        ("MONOLOCK_TLS_CERT", text(&own.certificate)),
        ("MONOLOCK_TLS_KEY", text(&own.key)),
    ];
    settings.extend(more);
    Server::start_with("127.0.0.1:0", &settings)
}

fn client(server: &Server, tls: Tls) -> Client {
    let servers = format!("localhost:{}", server.address.port());
    Client::builder(&servers)
        .tls(tls)
        .build()
        .expect("valid settings")
}

async fn acquire(client: &Client, lock: &str) -> Result<(), AcquireError> {
    let acquired = tokio::time::timeout(PATIENCE, client.acquire(lock, LEASE))
        .await
        .expect("it hangs");
    acquired.map(drop)
}

#[tokio::test]
async fn a_server_is_trusted_by_its_roots_and_its_name() {
    let authority = Authority::new();
    let server = start_server(&authority, &[]);
    acquire(&client(&server, Tls::new().roots(authority.roots())), "a")
        .await
        .expect("trusted");

    let stranger = Authority::new();
    let error = acquire(&client(&server, Tls::new().roots(stranger.roots())), "a").await;
    assert!(
        error
            .expect_err("not trusted")
            .to_string()
            .contains("the TLS handshake failed")
    );

    let tls = Tls::new().roots(authority.roots());
    let error = acquire(&client(&server, tls.clone().server_name("locks.internal")), "a").await;
    assert!(
        error
            .expect_err("another name")
            .to_string()
            .contains("the TLS handshake failed")
    );

    // By address the name does not fit either, unless it is given.
    let by_address = Client::builder(&server.servers())
        .tls(tls.server_name("localhost"))
        .build();
    acquire(&by_address.expect("valid settings"), "a")
        .await
        .expect("trusted by name");
}

/// The system's roots belong to the whole process: another process has others.
#[test]
fn the_systems_roots_are_trusted_where_none_are_named() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = start_server(&authority, &[]);
    let run = |roots: &Path, more: &[&str]| {
        let servers = format!("localhost:{}", server.address.port());
        let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_monolock")));
        command.args(["run", "a", "--tls", "--server", &servers]);
        command.args(more).args(["--", "true"]);
        command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", roots);
        command.stdin(Stdio::null()).output().expect("it runs")
    };
    let trusted = run(&authority.roots(), &[]);
    assert!(trusted.status.success(), "{trusted:?}");
    let refused = run(&stranger.roots(), &["--try"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(69), "{said}");
    assert!(said.contains("the TLS handshake failed"), "{said}");
    let none = run(&authority.folder.path().join("missing.pem"), &["--try"]);
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert_eq!(none.status.code(), Some(78), "{said}");
    assert!(said.contains("no usable root certificates"), "{said}");
}

#[tokio::test]
async fn a_held_lock_outlives_its_lease_over_tls() {
    let authority = Authority::new();
    let server = start_server(&authority, &[]);
    let client = client(&server, Tls::new().roots(authority.roots()));
    let lease = Duration::from_secs(1);
    let guard = client.acquire("a", lease).await.expect("granted");
    tokio::time::sleep(3 * lease).await;
    guard.token().expect("held");
}

#[tokio::test]
async fn a_client_shows_its_certificate_and_reads_it_again_for_each_connection() {
    let authority = Authority::new();
    let rules = authority.folder.path().join("acl.json");
    std::fs::write(
        &rules,
        r#"{"rules":[{"identity":"worker-*","locks":["jobs/*"]}]}"#,
    )
    .expect("written");
    let roots = authority.roots();
    let settings = [
        ("MONOLOCK_TLS_CLIENT_CA", text(&roots)),
        ("MONOLOCK_ACL_FILE", text(&rules)),
    ];
    let server = start_server(&authority, &settings);

    let nobody = client(&server, Tls::new().roots(&roots));
    acquire(&nobody, "jobs/a").await.expect_err("no certificate");

    let (mine, other) = (authority.issue("worker-1"), authority.issue("guest-1"));
    let certificate = authority.folder.path().join("current.pem");
    let key = authority.folder.path().join("current.key");
    let install = |issued: &Issued| {
        std::fs::copy(&issued.certificate, &certificate).expect("copied");
        std::fs::copy(&issued.key, &key).expect("copied");
    };
    install(&other);
    let client = client(
        &server,
        Tls::new().roots(&roots).client_certificate(&certificate, &key),
    );
    let refused = acquire(&client, "jobs/a").await;
    assert!(
        matches!(
            refused,
            Err(AcquireError::Refused {
                code: ErrorCode::NotAuthorized,
                ..
            })
        ),
        "{refused:?}"
    );
    install(&mine);
    acquire(&client, "jobs/a")
        .await
        .expect("the same client, another certificate");
    let refused = acquire(&client, "other").await;
    assert!(
        matches!(refused, Err(AcquireError::Refused { .. })),
        "{refused:?}"
    );

    // The command line says the same with its exit code.
    let servers = format!("localhost:{}", server.address.port());
    let run = |lock: &str| {
        let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_monolock")));
        command.args(["run", lock, "--server", &servers, "--tls-ca", text(&roots)]);
        command.args([
            "--tls-cert",
            text(&certificate),
            "--tls-key",
            text(&key),
            "--",
            "true",
        ]);
        command.stdin(Stdio::null()).status().expect("it runs").code()
    };
    assert_eq!((run("jobs/a"), run("other")), (Some(0), Some(77)));
}

#[test]
fn unusable_files_are_named_when_the_client_is_built() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").expect("written");
    for path in [empty, folder.path().join("missing.pem")] {
        let error = Client::builder("a")
            .tls(Tls::new().roots(&path))
            .build()
            .expect_err("unusable");
        assert!(matches!(error, ConfigError::Tls(_)));
        assert!(error.to_string().contains(text(&path)), "{error}");
    }
}
