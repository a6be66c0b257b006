//! TLS towards the server: whom to trust, and who this client is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// TLS settings. The files are read again for each connection, so that renewed certificates need no restart.
///
/// ```no_run
/// use monolock_client::{Client, Tls};
///
/// let tls = Tls::new()
///     .roots("/etc/monolock/ca.pem")
///     .client_certificate("/etc/monolock/client.pem", "/etc/monolock/client.key");
/// let client = Client::builder("locks.internal:7070").tls(tls).build()?;
/// # Ok::<(), monolock_client::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Tls {
    roots: Option<PathBuf>,
    identity: Option<Identity>,
    server_name: Option<String>,
}

#[derive(Clone, Debug)]
struct Identity {
    certificates: PathBuf,
    key: PathBuf,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A PEM file cannot be read or holds nothing usable.
    #[error("cannot use {} as a PEM file of {what}: {reason}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The system's trust store is empty or cannot be read.
    #[error("the system has no usable root certificates ({reason}): name a file of them")]
    SystemRoots {
        /// What is wrong with it.
        reason: String,
    },
    /// The server name is not one that a certificate can hold.
    #[error("{name:?} is no name that a certificate can hold")]
    ServerName {
        /// The name.
        name: String,
        /// What is wrong with it.
        source: InvalidDnsNameError,
    },
    /// Certificate and key do not belong together, or are of a kind that is not supported.
    #[error("the client certificate and its key cannot be used: {0}")]
    Identity(#[source] rustls::Error),
    /// This build has no system roots (feature `system-roots`) and no file was named.
    #[error("no root certificates: name a file of them, or build with the feature `system-roots`")]
    NoRoots,
}

impl Tls {
    /// Trusts the system's root certificates and shows no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificates in this PEM file, and only those.
    pub fn roots(mut self, pem: impl Into<PathBuf>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Shows this certificate (a PEM file of the chain, the leaf first) to a server that asks for one. Its identity is what
    /// the server's access rules and audit log speak of.
    pub fn client_certificate(mut self, certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some(Identity {
            certificates: certificates.into(),
            key: key.into(),
        });
        self
    }

    /// Expects this name in the server's certificate instead of the host that was connected to.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Reads the files. Blocking.
    pub(crate) fn load(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports the default versions")
            .with_root_certificates(self.load_roots()?);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(certificates(&identity.certificates)?, key(&identity.key)?)
                .map_err(TlsError::Identity)?,
        };
        Ok(Arc::new(config))
    }

    /// The name to verify when connected to `host`.
    pub(crate) fn name_for(&self, host: &str) -> Result<ServerName<'static>, TlsError> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let name = name.strip_suffix('.').unwrap_or(name).to_owned();
        ServerName::try_from(name.clone()).map_err(|source| TlsError::ServerName { name, source })
    }

    fn load_roots(&self) -> Result<RootCertStore, TlsError> {
        let Some(path) = &self.roots else {
            return system_roots();
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots
                .add(certificate)
                .map_err(|error| unusable(path, ROOTS, error))?;
        }
        Ok(roots)
    }
}

const ROOTS: &str = "root certificates";
const CERTIFICATES: &str = "certificates";
const KEY: &str = "a private key";

#[cfg(feature = "system-roots")]
fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reason = found
            .errors
            .first()
            .map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(TlsError::SystemRoots { reason });
    }
    Ok(roots)
}

#[cfg(not(feature = "system-roots"))]
fn system_roots() -> Result<RootCertStore, TlsError> {
    Err(TlsError::NoRoots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(path, CERTIFICATES, error))?;
    if found.is_empty() {
        return Err(unusable(path, CERTIFICATES, io::Error::other("it holds none")));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable(path, KEY, error))
}

fn unusable(path: &Path, what: &'static str, reason: impl ToString) -> TlsError {
    TlsError::Pem {
        path: path.to_owned(),
        what,
        reason: reason.to_string(),
    }
}
