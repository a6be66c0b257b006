//! Whoever answers for the name, as one thing to run.

use std::net::{IpAddr, SocketAddr};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{DnsListenError, EmbeddedDns, NameProgress, NamePublisher, ServiceState};
use crate::config::{DnsConfig, NameService};

/// The embedded server, bound, or the publisher of an existing zone.
#[derive(Debug)]
pub struct NameKeeper(Kind);

#[derive(Debug)]
enum Kind {
    Embedded(EmbeddedDns),
    Updated {
        publisher: NamePublisher,
        own: Vec<IpAddr>,
    },
}

impl NameKeeper {
    /// Binds the embedded server when there is to be one; contacts nobody.
    ///
    /// # Errors
    ///
    /// [`DnsListenError`] when its address cannot be had.
    pub async fn start(config: &DnsConfig) -> Result<Self, DnsListenError> {
        Ok(Self(match &config.by {
            NameService::Embedded { listen, zone } => {
                Kind::Embedded(EmbeddedDns::bind(*listen, zone.clone()).await?)
            }
            NameService::Updated(publisher) => Kind::Updated {
                publisher: publisher.clone(),
                own: config.advertise.clone(),
            },
        }))
    }

    /// Where the embedded server listens, when there is one.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            Kind::Embedded(dns) => Some(dns.local_addr()),
            Kind::Updated { .. } => None,
        }
    }

    /// Makes the name stand for what `state` says, and says how that goes, until `stop` is cancelled.
    pub async fn serve(
        self,
        state: watch::Receiver<ServiceState>,
        progress: watch::Sender<NameProgress>,
        stop: CancellationToken,
    ) {
        match self.0 {
            // What this node answers is never late.
            Kind::Embedded(dns) => dns.serve(state, stop).await,
            Kind::Updated { publisher, own } => publisher.keep(own, state, progress, stop).await,
        }
    }
}
