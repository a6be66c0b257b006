//! The settings of a node, and its command line.
//!
//! Both nodes get the same binary and the same settings, but for the few that say which is which. A flag wins over its
//! environment variable, that over the default; an empty value counts as unset.
//!
//! ```
//! use clap::Parser as _;
//! use monolock_failover::config::{Cli, WitnessSetting};
//!
//! let cli = Cli::try_parse_from([
//!     "monolock-failover",
//!     "--node=a",
//!     "--peer-listen=127.0.0.1:7073",
//!     "--peer=127.0.0.1:7083",
//!     "--peer-lock=127.0.0.1:7080",
//!     "--witness=file:/var/lib/monolock/witness",
//!     "--state-file=/var/lib/monolock/a.state",
//! ])?;
//! let config = cli.node.check()?;
//! assert!(matches!(config.witness, WitnessSetting::File(path) if path.ends_with("witness")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use monolock_failover_core::{NoWitness, Unproven};
use monolock_failover_core::{NodeId, Timing};
use monolock_server::Config as ServerConfig;
use monolock_server::SettingError;

use crate::dns::{DnsPrimary, NamePublisher, ServiceZone};
use crate::peer::{LinkCredentials, PeerAddress};

mod args;
mod check;
mod value;

pub use args::{Cli, Command, NodeArgs};
pub(crate) use value::reachable;

/// The settings of one node, checked.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The lock server inside.
    pub server: ServerConfig,
    /// Which of the two this node is.
    pub node: NodeId,
    /// Where and with whom it talks.
    pub link: LinkConfig,
    /// The other node's lock protocol.
    pub peer_lock: PeerAddress,
    /// The pair's second voice.
    pub witness: WitnessSetting,
    /// Where terms and floors are remembered.
    pub state_file: PathBuf,
    /// Every duration of the pair.
    pub timing: Timing,
    /// Whether a peer whose both ports refuse counts as dead.
    pub fast_takeover: bool,
    /// Whether a grant waits for the standby.
    pub follow: FollowMode,
    /// How long a lock that may still be held is kept back after a takeover.
    pub grace: TakeoverGrace,
    /// The name that clients know; none, or nobody's business here, when `None`.
    pub dns: Option<DnsConfig>,
    /// Commands at certain moments.
    pub hooks: HookConfig,
    /// Where takeovers and handovers are written down; only the log when `None`.
    pub journal: Option<PathBuf>,
    /// What the wall clock is checked against.
    pub clock: ClockConfig,
}

/// What the wall clock is checked against, and how strictly.
#[derive(Clone, Debug)]
pub struct ClockConfig {
    /// The time servers; no check when empty.
    pub servers: Vec<PeerAddress>,
    /// How often each is asked.
    pub poll_interval: Duration,
    /// How far the clock may be off and still be adopted into tokens.
    pub max_offset: Duration,
    /// Whether the operator vouches for it at a pair's very first start.
    pub trusted: bool,
}

/// The peer link: all that `status` and `handover` need.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Where this node answers its peer.
    pub listen: SocketAddr,
    /// Where the peer answers.
    pub peer: PeerAddress,
    /// How the two know each other; only on loopback without any.
    pub credentials: LinkCredentials,
}

/// The witness of a pair.
#[derive(Clone, Debug)]
pub enum WitnessSetting {
    /// A file that both nodes, on one machine, can write.
    File(PathBuf),
    /// A row in PostgreSQL.
    Postgres {
        /// Where, and as whom.
        url: HiddenText,
        /// The row.
        pair: String,
    },
    /// An object in S3, or in a store that speaks it.
    #[cfg(feature = "s3")]
    S3(crate::witness::S3Location),
    /// A TXT record at the primary server of a zone.
    Dns {
        /// The server, the zone and the key.
        primary: DnsPrimary,
        /// The record's name.
        name: String,
    },
    /// None: what to do about a silent peer that cannot be proven dead.
    None(NoWitness),
}

impl WitnessSetting {
    /// A word for the status.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Postgres { .. } => "postgres",
            #[cfg(feature = "s3")]
            Self::S3(_) => "s3",
            Self::Dns { .. } => "dns",
            Self::None(_) => "none",
        }
    }
}

/// A text with a secret in it; not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct HiddenText(String);

impl HiddenText {
    /// The text as it is.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

/// Whether a grant waits for the standby to have heard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowMode {
    /// It does not; after a crash, the grants of the last moments may be unheard of.
    Async,
    /// It does, unless the standby confirms nothing for two authority periods.
    Sync,
}

/// How long a lock that may still be held is kept back after a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverGrace {
    /// Until its holder's lease has run out.
    Lease,
    /// Not at all: two holders may overlap, and only the token protects.
    None,
    /// For its lease, but at most so long: below the lease, two holders may overlap.
    AtMost(Duration),
}

/// The name that clients know.
#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// Who answers for it.
    pub by: NameService,
    /// What the name stands for while this node is active.
    pub advertise: Vec<IpAddr>,
    /// What it stands for while the peer is; unknown when empty, until the peer says so itself.
    pub peer_advertise: Vec<IpAddr>,
}

/// Who answers for the name.
#[derive(Clone, Debug)]
pub enum NameService {
    /// This node, and the other one.
    Embedded {
        /// Where it listens, UDP and TCP.
        listen: SocketAddr,
        /// The name and the two nodes.
        zone: ServiceZone,
    },
    /// The servers of an existing zone, which the active node updates.
    Updated(NamePublisher),
}

/// Commands that run at certain moments, through `sh -c`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookConfig {
    /// Stops the old active from outside; exit code 0 is proof that it is stopped.
    pub fence_command: Option<String>,
    /// Runs when this node has become active.
    pub on_active: Option<String>,
    /// Runs when this node is active no longer.
    pub on_standby: Option<String>,
    /// How long each may take.
    pub time_limit: Duration,
}

impl NodeConfig {
    /// How the pair decides without a witness, when it has none.
    #[must_use]
    pub fn no_witness(&self) -> Option<NoWitness> {
        match self.witness {
            WitnessSetting::None(setting) => Some(setting),
            WitnessSetting::File(_) | WitnessSetting::Postgres { .. } | WitnessSetting::Dns { .. } => None,
            #[cfg(feature = "s3")]
            WitnessSetting::S3(_) => None,
        }
    }

    /// What is allowed and should be known all the same, one line each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let peer_is_local = self
            .link
            .peer
            .host()
            .parse::<IpAddr>()
            .map_or(self.link.peer.host() == "localhost", |ip| ip.is_loopback());
        if matches!(self.witness, WitnessSetting::File(_)) && !peer_is_local {
            warnings.push(
                "MONOLOCK_WITNESS: a file is a witness for two nodes on one machine, and the peer is on another: \
                 two different files of one name would let both nodes be active"
                    .into(),
            );
        }
        match self.grace {
            TakeoverGrace::Lease => {}
            TakeoverGrace::None | TakeoverGrace::AtMost(_) => warnings.push(
                "MONOLOCK_TAKEOVER_GRACE: after a takeover a lock may be granted while its last holder still believes \
                 to hold it: every resource must check tokens"
                    .into(),
            ),
        }
        if self.clock.servers.len() == 2 {
            warnings.push(
                "MONOLOCK_NTP_SERVERS: two time servers must agree, and neither outvotes the other: three let one of \
                 them lie or be away"
                    .into(),
            );
        }
        if self
            .no_witness()
            .is_some_and(|setting| setting.unproven == Unproven::Takeover)
        {
            warnings.push(
                "MONOLOCK_UNPROVEN: after a partition both nodes may be active: every resource must check tokens".into(),
            );
        }
        warnings
    }
}

impl NodeArgs {
    /// Checks every setting, and the combination. Reads the files of the peer's secret and of the
    /// DNS key, and nothing else.
    ///
    /// # Errors
    ///
    /// [`SettingError`] names the first setting that cannot be used.
    pub fn check(self) -> Result<NodeConfig, SettingError> {
        check::node(self)
    }

    /// Checks only what `status` and `handover` need: which node this is, and the peer link.
    ///
    /// # Errors
    ///
    /// [`SettingError`] names the first setting that cannot be used.
    pub fn check_link(&self) -> Result<(NodeId, LinkConfig), SettingError> {
        Ok((check::which_node(self)?, check::link(self)?))
    }

    /// Checks only what tells where locks are served: by this node, and by the other one.
    ///
    /// # Errors
    ///
    /// [`SettingError`] names the first setting that cannot be used.
    pub fn check_locks(&self) -> Result<(PeerAddress, PeerAddress), SettingError> {
        check::locks(self)
    }
}

#[cfg(test)]
mod tests;
