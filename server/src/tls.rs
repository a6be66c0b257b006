//! TLS on the lock protocol, and who a client is.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::{SettingError, TlsFiles};

/// The TLS settings of new connections; open ones keep what they began with.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: ArcSwap<ServerConfig>,
}

impl Tls {
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, SettingError> {
        Ok(Self {
            files: files.clone(),
            current: ArcSwap::from_pointee(load(files)?),
        })
    }

    /// Reads all files again; when one fails the old settings stay, all of them.
    pub(crate) fn reload(&self) -> Result<(), SettingError> {
        self.current.store(Arc::new(load(&self.files)?));
        Ok(())
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.current.load_full()).accept(stream).await
    }
}

/// Who the client is: the first URI name of its certificate, else the first DNS name, else the common name; empty
/// without a certificate.
pub(crate) fn identity(stream: &TlsStream<TcpStream>) -> Box<str> {
    let certificates = stream.get_ref().1.peer_certificates();
    let identity = certificates.and_then(|chain| identity_in(chain.first()?));
    identity.unwrap_or_default().into()
}

fn identity_in(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let names = alternatives
        .map(|names| names.value.general_names.as_slice())
        .unwrap_or_default();
    let uri = names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let dns = names.iter().find_map(|name| match name {
        GeneralName::DNSName(dns) => Some(*dns),
        _ => None,
    });
    let common = || certificate.subject().iter_common_name().next()?.as_str().ok();
    uri.or(dns).or_else(common).map(str::to_owned)
}

fn load(files: &TlsFiles) -> Result<ServerConfig, SettingError> {
    let chain = certificates(CERT, &files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(KEY, &files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(CERT, &files.cert, &error))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| unusable(CLIENT_CA, path, &error))?)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unusable(KEY, &files.key, &error))?;
    // A resumed session would carry the identity of a certificate that may have been withdrawn since.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn roots(path: &Path) -> Result<RootCertStore, SettingError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(CLIENT_CA, path)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(CLIENT_CA, path, &error))?;
    }
    Ok(roots)
}

fn certificates(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, SettingError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(setting, path, &error))?;
    if certificates.is_empty() {
        return Err(unusable(setting, path, &"no certificate in it"));
    }
    Ok(certificates)
}

fn unusable(setting: &'static str, path: &Path, why: &dyn std::fmt::Display) -> SettingError {
    SettingError::new(setting, format!("{}: cannot be used: {why}", path.display()))
}

const CERT: &str = "MONOLOCK_TLS_CERT";
const KEY: &str = "MONOLOCK_TLS_KEY";
const CLIENT_CA: &str = "MONOLOCK_TLS_CLIENT_CA";
