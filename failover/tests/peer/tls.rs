//! Mutual TLS: whose certificate is believed, and for what.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use monolock_failover::core::{NodeId, Term};
use monolock_failover::peer::message::FenceRequest;
use monolock_failover::peer::{
    CallFailure, CallOutcome, LinkCredentials, PeerClient, PeerTls, PeerTlsFiles, Sender,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::node::{GENEROUS, Node, promise_request, secret};

/// Where the nodes are: both on this machine, with addresses that their certificates can tell apart.
const A: &str = "127.0.0.1";
const B: &str = "127.0.0.2";

/// An authority and what it signed.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Files of a certificate for `host`, believing this authority.
    fn files(&self, host: &str) -> PeerTlsFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = PeerTlsFiles {
            certificate: self.path(&format!("{host}.pem")),
            key: self.path(&format!("{host}.key")),
            authorities: self.path("ca.pem"),
        };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// The link of node `b`, which expects node `a`.
    fn of_b(&self) -> Arc<PeerTls> {
        tls(self.files(B), NodeId::B)
    }

    /// What node `a` shows, or somebody who says to be it with the certificate of another host.
    fn of_a(&self, host: &str) -> Arc<PeerTls> {
        tls(self.files(host), NodeId::A)
    }
}

fn tls(files: PeerTlsFiles, node: NodeId) -> Arc<PeerTls> {
    let peer = match node {
        NodeId::A => B,
        NodeId::B => A,
    };
    Arc::new(PeerTls::load(files, node, peer).unwrap())
}

async fn start_b(credentials: impl Into<LinkCredentials>) -> Node {
    Node::start_at(format!("{B}:0").parse().unwrap(), credentials, Vec::new()).await
}

fn client(address: SocketAddr, from: Sender, credentials: impl Into<LinkCredentials>) -> PeerClient {
    PeerClient::new(address.into(), from, NodeId::B, credentials).with_time_limit(GENEROUS)
}

const NODE_A: Sender = Sender::Node(NodeId::A);

async fn fence(client: &PeerClient) -> CallOutcome<monolock_failover::peer::message::FenceResponse> {
    client.fence(&FenceRequest { term: Term(9) }).await
}

#[tokio::test]
async fn each_node_is_known_by_its_certificate_alone() {
    let authority = Authority::new();
    let node = start_b(authority.of_b()).await;
    let client = client(node.address, NODE_A, authority.of_a(A));
    client.promise(&promise_request()).await.unwrap();
    fence(&client).await.unwrap();
    client.follow().await.unwrap();
    assert_eq!(node.heard(), ["promise", "fence", "follow"]);
}

#[tokio::test]
async fn a_secret_is_asked_for_beside_the_certificate() {
    let authority = Authority::new();
    let both = |tls: Arc<PeerTls>| LinkCredentials {
        secret: secret(),
        tls: Some(tls),
    };
    let node = start_b(both(authority.of_b())).await;
    let with_both = client(node.address, NODE_A, both(authority.of_a(A)));
    fence(&with_both).await.unwrap();
    let certificate_only = client(node.address, NODE_A, authority.of_a(A));
    fence(&certificate_only).await.unwrap_err();
    let secret_only = client(node.address, NODE_A, secret());
    fence(&secret_only).await.unwrap_err();
    assert_eq!(node.heard(), ["fence"]);
}

#[tokio::test]
async fn nobody_else_is_heard() {
    let (authority, other) = (Authority::new(), Authority::new());
    let node = start_b(authority.of_b()).await;
    let signed_for_another_host = authority.of_a("127.0.0.3");
    let mut signed_by_another = other.files(A);
    signed_by_another.authorities = authority.path("ca.pem");
    for credentials in [
        LinkCredentials::default(),
        signed_for_another_host.into(),
        tls(signed_by_another, NodeId::A).into(),
    ] {
        let client = client(node.address, NODE_A, credentials);
        fence(&client).await.unwrap_err();
        client.promise(&promise_request()).await.unwrap_err();
        client.follow().await.unwrap_err();
    }
    assert_eq!(node.heard(), [""; 0]);
}

#[tokio::test]
async fn nobody_else_is_believed() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut impostors = vec![tls(authority.files("127.0.0.3"), NodeId::B)];
    let mut signed_by_another = other.files(B);
    signed_by_another.authorities = authority.path("ca.pem");
    impostors.push(tls(signed_by_another, NodeId::B));
    for impostor in impostors {
        let node = start_b(impostor).await;
        let failure = client(node.address, NODE_A, authority.of_a(A)).status().await;
        assert!(
            matches!(failure, Err(CallFailure::Unauthenticated(_))),
            "{failure:?}"
        );
    }
    let without_tls = start_b(None).await;
    let failure = client(without_tls.address, NODE_A, authority.of_a(A))
        .status()
        .await;
    assert!(
        matches!(failure, Err(CallFailure::Unauthenticated(_))),
        "{failure:?}"
    );
    assert_eq!(without_tls.heard(), [""; 0]);
}

/// An operator's command reads the files of the node beside it.
#[tokio::test]
async fn a_nodes_own_certificate_is_good_for_an_operator_and_for_nothing_more() {
    let authority = Authority::new();
    let files = authority.files(B);
    let node = start_b(tls(files.clone(), NodeId::B)).await;
    let operator = client(node.address, Sender::Operator, tls(files.clone(), NodeId::B));
    operator.status().await.unwrap();
    operator.begin_handover(&Default::default()).await.unwrap();
    fence(&operator).await.unwrap_err();
    let as_node = client(node.address, NODE_A, tls(files, NodeId::B));
    fence(&as_node).await.unwrap_err();
    assert_eq!(node.heard(), ["status", "begin handover"]);
}

#[tokio::test]
async fn certificates_are_read_again_and_a_broken_file_changes_nothing() {
    let (old, new) = (Authority::new(), Authority::new());
    let files = old.files(B);
    let of_b = tls(files.clone(), NodeId::B);
    let node = start_b(Arc::clone(&of_b)).await;
    let fresh = |authority: &Authority| client(node.address, NODE_A, authority.of_a(A));
    fresh(&old).status().await.unwrap();

    std::fs::write(&files.certificate, "no certificate").unwrap();
    let error = of_b.reload().unwrap_err().to_string();
    assert!(
        error.contains(&files.certificate.display().to_string()),
        "{error}"
    );
    fresh(&old).status().await.unwrap();

    let renewed = new.files(B);
    for (from, to) in [
        (renewed.certificate, &files.certificate),
        (renewed.key, &files.key),
        (renewed.authorities, &files.authorities),
    ] {
        std::fs::copy(from, to).unwrap();
    }
    of_b.reload().unwrap();
    fresh(&new).status().await.unwrap();
}
