//! Mutual TLS on the link: each node shows a certificate, and believes only the other's.
//!
//! Both certificates come from an authority that the nodes name. That is not enough to make two actives or to stop the
//! service: an authority may have signed for others too. So the certificate must also be good for the host in
//! `MONOLOCK_PEER_ADDRESS`, in both directions. An operator's command on a node's machine shows the node's own
//! certificate; it may ask what an operator may, and nothing in the name of a node.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use monolock_failover_core::NodeId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tokio_util::either::Either;

/// A connection of the link, with or without TLS.
pub(crate) type LinkStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The PEM files of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTlsFiles {
    /// The node's certificate, the leaf first; good for clients and for servers.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities that the peer's certificate may come from.
    pub authorities: PathBuf,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be used as {what}: {reason}", path.display())]
pub struct PeerTlsError {
    path: PathBuf,
    what: &'static str,
    reason: String,
}

/// The certificates of one node's link. Connections keep what they began with.
#[derive(Debug)]
pub struct PeerTls {
    files: PeerTlsFiles,
    node: NodeId,
    peer_name: ServerName<'static>,
    current: ArcSwap<Current>,
}

#[derive(Debug)]
struct Current {
    own: CertificateDer<'static>,
    accepting: Arc<ServerConfig>,
    to_peer: Arc<ClientConfig>,
    to_own: Arc<ClientConfig>,
}

impl PeerTls {
    /// Reads the files of `node`, whose peer is reached at `peer_host`. Blocking.
    ///
    /// # Errors
    ///
    /// [`PeerTlsError`] names the file that cannot be used.
    pub fn load(files: PeerTlsFiles, node: NodeId, peer_host: &str) -> Result<Self, PeerTlsError> {
        let peer_name = ServerName::try_from(peer_host.to_owned()).map_err(|error| {
            let what = "the certificates of the link: the peer's host is no name that a certificate can hold";
            unusable(&files.authorities, what, error)
        })?;
        let current = ArcSwap::from_pointee(Current::read(&files)?);
        Ok(Self {
            files,
            node,
            peer_name,
            current,
        })
    }

    /// Reads the files again, for connections from now on; when one fails everything stays as it was. Blocking.
    ///
    /// # Errors
    ///
    /// [`PeerTlsError`] names the file that cannot be used.
    pub fn reload(&self) -> Result<(), PeerTlsError> {
        self.current.store(Arc::new(Current::read(&self.files)?));
        Ok(())
    }

    /// Makes sure that `to` is at the other end, and shows this node's certificate.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        to: NodeId,
    ) -> io::Result<Box<TlsStream<TcpStream>>> {
        let current = self.current.load_full();
        let config = if to == self.node {
            &current.to_own
        } else {
            &current.to_peer
        };
        let connecting = TlsConnector::from(Arc::clone(config)).connect(self.peer_name.clone(), stream);
        Ok(Box::new(connecting.await?.into()))
    }

    /// Takes a connection, and says whose certificate it showed.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<(Box<TlsStream<TcpStream>>, NodeId)> {
        let current = self.current.load_full();
        let stream = TlsAcceptor::from(Arc::clone(&current.accepting))
            .accept(stream)
            .await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let shown = shown.ok_or_else(|| io::Error::other("no certificate was shown"))?;
        let node = self.owner(shown, &current.own).map_err(io::Error::other)?;
        Ok((Box::new(stream.into()), node))
    }

    fn owner(&self, shown: &CertificateDer<'_>, own: &CertificateDer<'_>) -> Result<NodeId, rustls::Error> {
        if shown == own {
            return Ok(self.node);
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, &self.peer_name)?;
        Ok(self.node.peer())
    }
}

impl Current {
    fn read(files: &PeerTlsFiles) -> Result<Self, PeerTlsError> {
        let chain = certificates(&files.certificate, CERTIFICATE)?;
        let own = chain[0].clone();
        let key =
            PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, KEY, error))?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(&files.authorities, AUTHORITIES)? {
            roots
                .add(authority)
                .map_err(|error| unusable(&files.authorities, AUTHORITIES, error))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unpaired = |error| unusable(&files.key, KEY, error);

        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let verifier = verifier.map_err(|error| unusable(&files.authorities, AUTHORITIES, error))?;
        let mut accepting = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect(DEFAULT_VERSIONS)
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unpaired)?;
        // A resumed session would stand for a certificate that may have been withdrawn since.
        accepting.session_storage = Arc::new(NoServerSessionStorage {});
        accepting.send_tls13_tickets = 0;

        let connecting = || {
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .expect(DEFAULT_VERSIONS)
        };
        let to_peer = connecting()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(unpaired)?;
        let exactly_own = Arc::new(ExactCertificate {
            expected: own.clone(),
            provider: Arc::clone(&provider),
        });
        let to_own = connecting()
            .dangerous()
            .with_custom_certificate_verifier(exactly_own)
            .with_client_auth_cert(chain, key)
            .map_err(unpaired)?;
        Ok(Self {
            own,
            accepting: Arc::new(accepting),
            to_peer: Arc::new(to_peer),
            to_own: Arc::new(to_own),
        })
    }
}

/// Believes one certificate: an operator's command knows the node beside it by the file that both read.
#[derive(Debug)]
struct ExactCertificate {
    expected: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ExactCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.expected {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// At least one certificate.
fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, PeerTlsError> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(path, what, error))?;
    if found.is_empty() {
        return Err(unusable(path, what, "there is no certificate in it"));
    }
    Ok(found)
}

fn unusable(path: &Path, what: &'static str, reason: impl ToString) -> PeerTlsError {
    PeerTlsError {
        path: path.to_owned(),
        what,
        reason: reason.to_string(),
    }
}

/// Says whose connection was not taken.
pub(crate) fn warn_refused(remote: SocketAddr, error: &io::Error) {
    tracing::warn!(%remote, %error, "refused a connection on the peer link: its certificate is not the peer's");
}

const CERTIFICATE: &str = "this node's certificate";
const KEY: &str = "the key of this node's certificate";
const AUTHORITIES: &str = "the authorities of the peer's certificate";
const DEFAULT_VERSIONS: &str = "ring supports the default versions";
