//! Keeps the service's name in an existing zone, by updates that the zone's primary decides (RFC 2136).
//!
//! The name's A, AAAA and TXT records belong to the pair. The TXT record holds the term, and every update demands it as
//! it was read: of two nodes that publish at once, one is first, and the other finds a larger or equal term. A node
//! publishes only its own addresses, and never over a larger term. Afterwards it asks every server of the zone whether
//! it shows the name so, and publishes anew when somebody has changed it by hand.
//!
//! Clients are sent by the name, never held by it: a name that is late costs them an attempt at the standby.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, TXT};
use hickory_proto::rr::{Name, RData, RecordType};
use monolock_failover_core::Term;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::primary::converse;
use super::{DnsFailure, DnsPrimary, NameError, ServiceState, Update};
use crate::peer::{Dialled, PeerAddress, dial};

/// Publishes one name at the primary of its zone.
#[derive(Clone, Debug)]
pub struct NamePublisher {
    primary: DnsPrimary,
    name: Name,
    /// The port that every server of the zone is asked at.
    port: u16,
}

/// How a publication ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The name was changed.
    Changed,
    /// It was so already.
    Unchanged,
}

/// Why the name does not stand for what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// A later term has published: this node is not, or not any more, the active one.
    #[error("the name {name} belongs to term {published} already, and this node's is {own}")]
    Superseded {
        /// The name.
        name: String,
        /// The term at the server.
        published: Term,
        /// The term of this node.
        own: Term,
    },
    /// The server does not do it.
    #[error("the name {name} cannot be published at {server}: {reason}")]
    Failed {
        /// The name.
        name: String,
        /// The primary.
        server: String,
        /// What it said, and what to do.
        reason: String,
    },
}

/// One server of the zone, and what it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The server.
    pub server: SocketAddr,
    /// The addresses of the name, in order, or why there is no answer.
    pub addresses: Result<Vec<IpAddr>, String>,
}

/// What the primary holds for the name.
struct Held {
    texts: Vec<RData>,
    addresses: BTreeSet<IpAddr>,
}

/// How the publication of this node's addresses stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameProgress {
    /// The name should stand for this node, and not every server of the zone says so yet.
    pub pending: bool,
    /// Why not, as of the last attempt.
    pub problem: Option<String>,
}

impl NamePublisher {
    /// A publisher of `name` in the primary's zone.
    ///
    /// # Errors
    ///
    /// [`NameError`] when `name` is no name in that zone.
    pub fn new(primary: DnsPrimary, name: &str) -> Result<Self, NameError> {
        let name = primary.name_within(name)?;
        let port = primary.server().port();
        Ok(Self { primary, name, port })
    }

    /// Makes the name stand for `state`, unless a later term has it. Bounded by the primary's time limit for each of at
    /// most a dozen exchanges.
    ///
    /// # Errors
    ///
    /// [`PublishError`]: a later term has it, or the server does not do it. After a lost answer the name may have been
    /// changed: publishing again finds out.
    pub async fn publish(&self, state: &ServiceState) -> Result<Published, PublishError> {
        let wanted: BTreeSet<_> = state.addresses.iter().copied().collect();
        let mut outcome = Published::Unchanged;
        for _ in 0..ATTEMPTS {
            let held = self.held().await.map_err(|failure| self.failed(&failure))?;
            let published = held.term();
            if published > Some(state.term) {
                return Err(PublishError::Superseded {
                    name: self.name.to_ascii(),
                    published: published.unwrap_or_default(),
                    own: state.term,
                });
            }
            if published == Some(state.term) && held.texts.len() == 1 && held.addresses == wanted {
                return Ok(outcome);
            }
            let update = self.replace(&held, state.term, &wanted);
            let changed = self.primary.update(update).await;
            if changed.map_err(|failure| self.failed(&failure))? {
                outcome = Published::Changed;
            }
        }
        Err(self.failed(&"it takes the update and does not show it: see whether the name has a CNAME record"))
    }

    /// What every server of the zone shows for the name.
    ///
    /// # Errors
    ///
    /// [`PublishError::Failed`] when the primary does not say which servers there are.
    pub async fn shown(&self) -> Result<Vec<Shown>, PublishError> {
        let servers = self.primary.lookup(self.primary.zone(), RecordType::NS).await;
        let servers = servers.map_err(|failure| self.failed(&failure))?;
        let mut shown = Vec::new();
        for server in servers {
            let RData::NS(host) = server else { continue };
            for address in self.addresses_of(&host.0).await {
                let addresses = self.ask(address).await;
                shown.push(Shown {
                    server: address,
                    addresses,
                });
            }
        }
        Ok(shown)
    }

    /// Publishes whatever `state` says of this node's own addresses, checks it everywhere, and repairs it, until `stop`
    /// is cancelled; `progress` says how that goes. What `state` says of other addresses is their node's to publish.
    pub async fn keep(
        self,
        own: Vec<IpAddr>,
        mut state: watch::Receiver<ServiceState>,
        progress: watch::Sender<NameProgress>,
        stop: CancellationToken,
    ) {
        let mut published = None;
        loop {
            let current = state.borrow_and_update().clone();
            let is_own = !current.addresses.is_empty() && current.addresses == own;
            if is_own && published.as_ref() != Some(&current) {
                progress.send_modify(|progress| progress.pending = true);
            }
            let problem = if is_own {
                self.keep_once(&current).await
            } else {
                None
            };
            let pause = if problem.is_none() {
                CHECK_INTERVAL
            } else {
                RETRY_INTERVAL
            };
            published = (is_own && problem.is_none()).then_some(current);
            progress.send_replace(NameProgress {
                pending: problem.is_some(),
                problem,
            });
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = state.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
        }
    }

    /// Publishes and checks; returns what is not as it should be.
    async fn keep_once(&self, state: &ServiceState) -> Option<String> {
        match self.publish(state).await {
            Ok(Published::Changed) => {
                tracing::info!(name = %self.name, term = state.term.0, addresses = ?state.addresses, "published the name");
            }
            Ok(Published::Unchanged) => {}
            Err(error @ PublishError::Superseded { .. }) => {
                tracing::info!("{error}");
                return None;
            }
            Err(error @ PublishError::Failed { .. }) => {
                tracing::warn!("{error}");
                return Some(error.to_string());
            }
        }
        let wanted: BTreeSet<_> = state.addresses.iter().copied().collect();
        let differs = |shown: &Shown| match &shown.addresses {
            Ok(addresses) => addresses.iter().copied().collect::<BTreeSet<_>>() != wanted,
            Err(_) => true,
        };
        match self.shown().await {
            Ok(shown) => {
                let late: Vec<_> = shown.into_iter().filter(differs).collect();
                if late.is_empty() {
                    return None;
                }
                tracing::warn!(name = %self.name, ?late, "not every server of the zone shows the name as published");
                let servers: Vec<_> = late.iter().map(|shown| shown.server.to_string()).collect();
                Some(format!("not shown as published by {}", servers.join(", ")))
            }
            Err(error) => {
                tracing::warn!("{error}");
                Some(error.to_string())
            }
        }
    }

    async fn held(&self) -> Result<Held, DnsFailure> {
        let texts = self.primary.lookup(&self.name, RecordType::TXT).await?;
        let mut addresses = BTreeSet::new();
        for kind in [RecordType::A, RecordType::AAAA] {
            let found = self.primary.lookup(&self.name, kind).await?;
            addresses.extend(found.iter().filter_map(address_in));
        }
        Ok(Held { texts, addresses })
    }

    fn replace(&self, held: &Held, term: Term, wanted: &BTreeSet<IpAddr>) -> Update {
        let mut update = Update::default();
        if held.texts.is_empty() {
            update.demand_none(&self.name, RecordType::TXT);
        } else {
            update.demand_exactly(&self.name, held.texts.iter().cloned());
        }
        for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT] {
            update.remove_all(&self.name, kind);
        }
        for address in wanted {
            let data = match address {
                IpAddr::V4(address) => RData::A(A(*address)),
                IpAddr::V6(address) => RData::AAAA(AAAA(*address)),
            };
            update.add(&self.name, TTL_SECONDS, data);
        }
        let text = TXT::new(vec![format!("{TERM}{term}")]);
        update.add(&self.name, TTL_SECONDS, RData::TXT(text));
        update
    }

    /// The addresses of a server: from the zone itself when its name is in it, else from the system's resolver.
    async fn addresses_of(&self, host: &Name) -> Vec<SocketAddr> {
        if self.primary.zone().zone_of(host) {
            let mut found = Vec::new();
            for kind in [RecordType::A, RecordType::AAAA] {
                found.extend(self.primary.lookup(host, kind).await.unwrap_or_default());
            }
            let addresses = found.iter().filter_map(address_in);
            return addresses.map(|ip| SocketAddr::new(ip, self.port)).collect();
        }
        let name = host.to_ascii();
        let Ok(address) = format!("{}:{}", name.trim_end_matches('.'), self.port).parse::<PeerAddress>()
        else {
            return Vec::new();
        };
        address.resolve().await.unwrap_or_default()
    }

    /// Asks one server for the addresses of the name, as a resolver would.
    async fn ask(&self, server: SocketAddr) -> Result<Vec<IpAddr>, String> {
        let mut addresses = BTreeSet::new();
        for kind in [RecordType::A, RecordType::AAAA] {
            let answer = tokio::time::timeout(self.primary.time_limit(), ask(server, &self.name, kind));
            let answer = answer.await.map_err(|_| "no answer in time".to_owned())??;
            addresses.extend(answer);
        }
        Ok(addresses.into_iter().collect())
    }

    fn failed(&self, reason: &dyn std::fmt::Display) -> PublishError {
        PublishError::Failed {
            name: self.name.to_ascii(),
            server: self.primary.server().to_string(),
            reason: reason.to_string(),
        }
    }
}

impl Held {
    /// The largest term among the texts.
    fn term(&self) -> Option<Term> {
        let term = |data: &RData| {
            let RData::TXT(text) = data else { return None };
            let bytes: Vec<u8> = text.txt_data.iter().flatten().copied().collect();
            let number = std::str::from_utf8(&bytes).ok()?.strip_prefix(TERM)?;
            number.parse().ok().map(Term)
        };
        self.texts.iter().filter_map(term).max()
    }
}

async fn ask(server: SocketAddr, name: &Name, kind: RecordType) -> Result<Vec<IpAddr>, String> {
    let stream = match dial(&server.into()).await {
        Dialled::Connected(stream) => stream,
        Dialled::Refused => return Err("nothing listens there on TCP".into()),
        Dialled::Failed(reason) => return Err(reason),
    };
    let mut question = Message::query();
    question.metadata.recursion_desired = false;
    question.add_query(Query::query(name.clone(), kind));
    let question = question.to_vec().map_err(|error| error.to_string())?;
    let answer = converse(stream, &question)
        .await
        .map_err(|error| error.to_string())?;
    let answer = Message::from_vec(&answer).map_err(|error| error.to_string())?;
    match answer.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(answer
            .answers
            .iter()
            .filter_map(|record| address_in(&record.data))
            .collect()),
        code => Err(format!("it answers {code}")),
    }
}

fn address_in(data: &RData) -> Option<IpAddr> {
    match data {
        RData::A(address) => Some(address.0.into()),
        RData::AAAA(address) => Some(address.0.into()),
        _ => None,
    }
}

/// What precedes the term in the TXT record.
const TERM: &str = "term=";
/// The shortest that every resolver honours.
const TTL_SECONDS: u32 = 1;
/// How often a publication is tried when others publish at the same moment.
const ATTEMPTS: usize = 4;
/// How often a name that is as it should be is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How often one that is not is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
