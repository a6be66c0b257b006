//! How the two nodes know each other.

use std::sync::Arc;

use super::{PeerSecret, PeerTls};

/// What both ends of the link must show; with neither, nothing is checked.
#[derive(Clone, Debug, Default)]
pub struct LinkCredentials {
    /// A secret that both share.
    pub secret: Option<PeerSecret>,
    /// A certificate of each.
    pub tls: Option<Arc<PeerTls>>,
}

impl LinkCredentials {
    /// Whether anybody could speak in the name of a node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.secret.is_none() && self.tls.is_none()
    }

    /// Reads the certificates again, for connections from now on; what cannot be used is logged, and stays as it was.
    pub fn reload(&self) {
        if let Some(tls) = &self.tls {
            match tls.reload() {
                Ok(()) => tracing::info!("the certificates of the peer link were read again"),
                Err(error) => tracing::error!(%error, "the peer link keeps the certificates that it has"),
            }
        }
    }
}

impl From<Option<PeerSecret>> for LinkCredentials {
    fn from(secret: Option<PeerSecret>) -> Self {
        Self { secret, tls: None }
    }
}

impl From<Arc<PeerTls>> for LinkCredentials {
    fn from(tls: Arc<PeerTls>) -> Self {
        Self {
            secret: None,
            tls: Some(tls),
        }
    }
}
