//! The command line.

use monolock_server::ServerArgs;

use crate::drill::DrillArgs;

/// One node of an active/standby pair of lock servers.
///
/// A flag wins over its environment variable, that over the default; an empty value counts as unset. Give both nodes the
/// same settings, but for --node and the addresses.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "monolock-failover", version)]
pub struct Cli {
    /// The settings.
    #[command(flatten)]
    pub node: NodeArgs,
    /// What to do; run when it is missing.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, clap::Subcommand)]
pub enum Command {
    /// Run the node; so does no command at all
    Run {
        /// Check the settings, then exit
        #[arg(long)]
        check: bool,
    },
    /// Show how both nodes stand
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Hand over from the active node to the standby
    Handover {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Rehearse failures on a pair of its own, and measure them
    ///
    /// Starts two nodes of this program on loopback with files in a temporary folder, breaks them in one way after the other
    /// while test clients hold one lock and ask for others, and reports how long nobody was granted a free lock, whether two
    /// clients ever believed to hold one lock, and whether a token ever went back. Nothing of a real pair is touched, and
    /// nothing is left behind.
    ///
    /// With --live the real pair, as its settings name it, is asked to hand over instead.
    ///
    /// Exit code 0: every promise held. 1: the drill could not be carried out, or a scenario that was asked for by name could
    /// not be run. 2: wrong arguments. 4: a promise was broken, or service did not come back. 130: interrupted.
    Drill(DrillArgs),
    /// Let an active without a witness grant beyond what its peer acknowledged: only while the peer is certainly down
    ExtendReserve,
}

/// The settings as they are given: text, an empty one counts as unset.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NodeArgs {
    /// Which node this is: a or b
    #[arg(long, env = "MONOLOCK_NODE", value_name = "a|b", hide_env_values = true)]
    pub node: Option<String>,
    /// Address of the peer link; beyond loopback it needs a secret or certificates [default: 0.0.0.0:7073]
    #[arg(
        long,
        env = "MONOLOCK_PEER_LISTEN_ADDRESS",
        value_name = "ADDRESS",
        hide_env_values = true
    )]
    pub peer_listen: Option<String>,
    /// The other node's peer link
    #[arg(
        long,
        env = "MONOLOCK_PEER_ADDRESS",
        value_name = "HOST:PORT",
        hide_env_values = true
    )]
    pub peer: Option<String>,
    /// The other node's lock protocol [default: the host of --peer, the port of --listen]
    #[arg(
        long,
        env = "MONOLOCK_PEER_LOCK_ADDRESS",
        value_name = "HOST:PORT",
        hide_env_values = true
    )]
    pub peer_lock: Option<String>,
    /// Addresses of this node for clients, comma separated [default: the address of --listen, if it names one]
    #[arg(
        long,
        env = "MONOLOCK_ADVERTISE_ADDRESS",
        value_name = "IP,...",
        hide_env_values = true
    )]
    pub advertise: Option<String>,
    /// Addresses of the other node for clients [default: the address of --peer-lock, if it names one]
    #[arg(
        long,
        env = "MONOLOCK_PEER_ADVERTISE_ADDRESS",
        value_name = "IP,...",
        hide_env_values = true
    )]
    pub peer_advertise: Option<String>,
    /// Secret that both nodes share, at least 16 bytes; use the variable or the file: others see arguments
    #[arg(
        long,
        env = "MONOLOCK_PEER_SECRET",
        value_name = "SECRET",
        hide_env_values = true
    )]
    pub peer_secret: Option<String>,
    /// File that holds the secret
    #[arg(
        long,
        env = "MONOLOCK_PEER_SECRET_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub peer_secret_file: Option<String>,
    /// This node's certificate for the peer link (PEM), good for clients and for servers
    #[arg(
        long,
        env = "MONOLOCK_PEER_TLS_CERT",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub peer_tls_cert: Option<String>,
    /// Its key (PEM)
    #[arg(
        long,
        env = "MONOLOCK_PEER_TLS_KEY",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub peer_tls_key: Option<String>,
    /// Authorities of the other node's certificate (PEM), which must name the host of --peer
    #[arg(
        long,
        env = "MONOLOCK_PEER_TLS_CA",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub peer_tls_ca: Option<String>,
    /// The pair's third voice: postgres://USER@HOST/DATABASE[#PAIR], s3://BUCKET/KEY, dns:NAME, file:PATH (both on one
    /// machine), or none
    #[arg(
        long,
        env = "MONOLOCK_WITNESS",
        value_name = "WITNESS",
        hide_env_values = true
    )]
    pub witness: Option<String>,
    /// Without a witness, about a silent peer that is not proven dead: wait or takeover
    #[arg(
        long,
        env = "MONOLOCK_UNPROVEN",
        value_name = "wait|takeover",
        hide_env_values = true
    )]
    pub unproven: Option<String>,
    /// Without a witness: how far ahead tokens are reserved for an active without its peer [default: 1h]
    #[arg(
        long,
        env = "MONOLOCK_RESERVE",
        value_name = "DURATION",
        hide_env_values = true
    )]
    pub reserve: Option<String>,
    /// File that remembers terms and floors; one for each node
    #[arg(
        long,
        env = "MONOLOCK_STATE_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub state_file: Option<String>,
    /// How long silence lasts before a takeover, from 300ms; the same on both nodes [default: 3s]
    #[arg(
        long,
        env = "MONOLOCK_AUTHORITY_TTL",
        value_name = "DURATION",
        hide_env_values = true
    )]
    pub authority_ttl: Option<String>,
    /// Whether a peer whose ports both refuse is dead: off behind a balancer or virtual address [default: on]
    #[arg(
        long,
        env = "MONOLOCK_FAST_TAKEOVER",
        value_name = "on|off",
        hide_env_values = true
    )]
    pub fast_takeover: Option<String>,
    /// Whether a grant waits for the standby: async or sync [default: async]
    #[arg(
        long,
        env = "MONOLOCK_FOLLOW",
        value_name = "async|sync",
        hide_env_values = true
    )]
    pub follow: Option<String>,
    /// How long a lock that may be held is kept back after a takeover: lease, none or a bound [default: lease]
    #[arg(
        long,
        env = "MONOLOCK_TAKEOVER_GRACE",
        value_name = "lease|none|DURATION",
        hide_env_values = true
    )]
    pub takeover_grace: Option<String>,
    /// The one name that clients know [default: none]
    #[arg(
        long,
        env = "MONOLOCK_SERVICE_NAME",
        value_name = "NAME",
        hide_env_values = true
    )]
    pub service_name: Option<String>,
    /// Who answers for the name: embedded, rfc2136 (an existing zone) or off [default: embedded with a name]
    #[arg(
        long,
        env = "MONOLOCK_DNS",
        value_name = "embedded|rfc2136|off",
        hide_env_values = true
    )]
    pub dns: Option<String>,
    /// Primary server of the zone to update, for rfc2136 and a dns: witness [default port: 53]
    #[arg(
        long,
        env = "MONOLOCK_DNS_SERVER",
        value_name = "HOST[:PORT]",
        hide_env_values = true
    )]
    pub dns_server: Option<String>,
    /// The zone to update
    #[arg(long, env = "MONOLOCK_DNS_ZONE", value_name = "ZONE", hide_env_values = true)]
    pub dns_zone: Option<String>,
    /// TSIG key, NAME:BASE64 or ALGORITHM:NAME:BASE64; use the variable or the file: others see arguments
    #[arg(long, env = "MONOLOCK_DNS_KEY", value_name = "KEY", hide_env_values = true)]
    pub dns_key: Option<String>,
    /// File that holds the TSIG key, as tsig-keygen writes it
    #[arg(
        long,
        env = "MONOLOCK_DNS_KEY_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub dns_key_file: Option<String>,
    /// Address of the embedded DNS server, UDP and TCP [default: 0.0.0.0:53]
    #[arg(
        long,
        env = "MONOLOCK_DNS_LISTEN_ADDRESS",
        value_name = "ADDRESS",
        hide_env_values = true
    )]
    pub dns_listen: Option<String>,
    /// Command that stops the old active from outside; exit code 0 is proof [default: none]
    #[arg(
        long,
        env = "MONOLOCK_FENCE_COMMAND",
        value_name = "COMMAND",
        hide_env_values = true
    )]
    pub fence_command: Option<String>,
    /// Command to run when this node has become active [default: none]
    #[arg(
        long,
        env = "MONOLOCK_ON_ACTIVE",
        value_name = "COMMAND",
        hide_env_values = true
    )]
    pub on_active: Option<String>,
    /// Command to run when this node is active no longer [default: none]
    #[arg(
        long,
        env = "MONOLOCK_ON_STANDBY",
        value_name = "COMMAND",
        hide_env_values = true
    )]
    pub on_standby: Option<String>,
    /// How long each command may take [default: 30s]
    #[arg(
        long,
        env = "MONOLOCK_HOOK_TIMEOUT",
        value_name = "DURATION",
        hide_env_values = true
    )]
    pub hook_timeout: Option<String>,
    /// File for one JSON line a step of each takeover and handover [default: only the log]
    #[arg(long, env = "MONOLOCK_JOURNAL", value_name = "FILE", hide_env_values = true)]
    pub journal: Option<String>,
    /// Time servers to check this node's clock against, comma separated; three or more outvote one that lies [default:
    /// none]
    #[arg(
        long,
        env = "MONOLOCK_NTP_SERVERS",
        value_name = "HOST[:PORT],...",
        hide_env_values = true
    )]
    pub ntp_servers: Option<String>,
    /// How often each time server is asked [default: 32s]
    #[arg(
        long,
        env = "MONOLOCK_NTP_POLL_INTERVAL",
        value_name = "DURATION",
        hide_env_values = true
    )]
    pub ntp_poll_interval: Option<String>,
    /// How far the clock may be off and still be adopted into tokens [default: 500ms]
    #[arg(
        long,
        env = "MONOLOCK_MAX_CLOCK_OFFSET",
        value_name = "DURATION",
        hide_env_values = true
    )]
    pub max_clock_offset: Option<String>,
    /// Whether the operator vouches for the clock at a pair's very first start: on or off [default: off]
    #[arg(
        long,
        env = "MONOLOCK_TRUST_CLOCK",
        value_name = "on|off",
        hide_env_values = true
    )]
    pub trust_clock: Option<String>,
    /// The lock server inside.
    #[command(flatten)]
    pub server: ServerArgs,
}
