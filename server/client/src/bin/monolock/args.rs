//! The command line as the user writes it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::net::{AddrParseError, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Run commands under a distributed lock, and look after the locks of a server.
#[derive(Debug, Parser)]
#[command(name = "monolock", version, after_long_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Wait for a lock and run a command while it is held
    Run(RunArgs),
    /// Show the locks that are held or waited for
    Status(StatusArgs),
    /// Show the locks continually; in a terminal as a live table, until q or Ctrl-C
    Watch(WatchArgs),
    /// Take a lock away from its holder; the next waiter gets it
    Release(ReleaseArgs),
    /// Remove one waiter from a lock's queue
    Kick(KickArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one page for each command into a folder
    Man {
        /// The folder
        #[arg(long)]
        out_dir: Option<PathBuf>,
    },
    /// Kill a process group when the parent dies or falls silent (used by `run`)
    #[command(name = GUARD_COMMAND, hide = true)]
    Guard,
}

/// The name of the hidden command that `run` starts itself with.
pub(crate) const GUARD_COMMAND: &str = "guard-process-group";

#[derive(Debug, Args)]
#[command(after_long_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// The lock
    pub(crate) lock: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// How long the lock may sit behind a dead holder; the command may run as long as it likes
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) lease: Duration,
    /// Do not wait: exit with 75 if another client holds the lock
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) without_waiting: bool,
    /// Wait at most this long, then exit with 75
    #[arg(long, value_parser = humantime::parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// What to do when the lock is lost while the command runs
    #[arg(long, value_enum, default_value_t = OnLost::Kill)]
    pub(crate) on_lost: OnLost,
    /// Time between SIGTERM and SIGKILL when the server itself has ended the session. Another client may hold the
    /// lock then already, so anything but zero lets both run at once
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) kill_after: Duration,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM to the command's whole process group, then SIGKILL before the lease can end on the server
    Kill,
    /// SIGUSR1 to the command, which then decides for itself
    Notify,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The lock servers: host:port[,host:port...]
    #[arg(
        long,
        env = "MONOLOCK_SERVER",
        default_value = DEFAULT_SERVER,
        value_parser = non_empty(DEFAULT_SERVER),
        value_name = "HOST:PORT[,...]"
    )]
    pub(crate) server: String,
    /// Look names up at these DNS servers instead of the system's
    #[arg(
        long,
        env = "MONOLOCK_DNS",
        default_value = "",
        hide_default_value = true,
        value_name = "IP:PORT[,...]"
    )]
    pub(crate) dns: DnsServers,
    /// Speak TLS, trusting the system's root certificates
    #[arg(long)]
    pub(crate) tls: bool,
    /// Speak TLS, trusting the root certificates in this PEM file
    #[arg(long, value_name = "PEM")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The client certificate (PEM)
    #[arg(long, value_name = "PEM", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the client certificate (PEM)
    #[arg(long, value_name = "PEM", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The name to expect in the server's certificate instead of the host's
    #[arg(long, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
}

/// Addresses separated by commas; none at all is the system's choice.
#[derive(Clone, Debug)]
pub(crate) struct DnsServers(pub(crate) Vec<SocketAddr>);

impl FromStr for DnsServers {
    type Err = AddrParseError;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// As for every program of this project, an empty setting is none.
fn non_empty(default: &'static str) -> impl Fn(&str) -> Result<String, Infallible> + Clone {
    move |value| Ok(if value.is_empty() { default } else { value }.to_owned())
}

const DEFAULT_SERVER: &str = "127.0.0.1:7070";
const DEFAULT_ADMIN: &str = "127.0.0.1:7071";

#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The admin API of the server
    #[arg(
        long,
        env = "MONOLOCK_ADMIN",
        default_value = DEFAULT_ADMIN,
        value_parser = non_empty(DEFAULT_ADMIN),
        value_name = "HOST:PORT"
    )]
    pub(crate) admin: String,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Only this lock, with its whole queue; exit with 3 if it is idle
    pub(crate) lock: Option<String>,
    /// Only locks whose name matches: `*` any text, `?` one character
    #[arg(long = "match", value_name = "GLOB", conflicts_with = "lock")]
    pub(crate) pattern: Option<String>,
    /// Print the server's JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Only locks whose name matches: `*` any text, `?` one character
    #[arg(long = "match", value_name = "GLOB")]
    pub(crate) pattern: Option<String>,
    /// How often to look
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    pub(crate) interval: Duration,
    /// Print one line of JSON for each look
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The lock; exit with 3 if nobody holds it
    pub(crate) lock: String,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KickArgs {
    /// The lock
    pub(crate) lock: String,
    /// The waiter's address as `status` shows it; exit with 3 if it does not wait
    pub(crate) waiter: String,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  unexpected failure
    2  wrong usage
    3  no such lock or waiter: the lock is idle, nobody holds it, the waiter does not wait
   69  no server could be reached, or none is active
   75  the lock was not free (--try) or not granted in time (--wait)
   77  the server refused the claim, and would again (not authorized, for example)
   78  invalid settings: lock name, lease, certificates
  111  the lock was lost while the command ran
  126  the command cannot be executed
  127  the command was not found
  else the exit code of the command; 128 + N if signal N ended it";

const RUN_HELP: &str = "\
The command finds the lock's name in MONOLOCK_LOCK and the fencing token of this grant in MONOLOCK_TOKEN. Hand the
token to the resource that the lock guards, with every write, and let it refuse a smaller token than one it has seen.

The command runs in a process group of its own. Signals are forwarded to the group, and the lock is held until the last
process of the group has ended. If `monolock run` itself is killed or frozen, the group is killed too (not with
--on-lost notify).

Where standard input is the terminal, the command gets it as a shell would give it: it may read, and Ctrl-C is its own.
Ctrl-Z stops the command and `monolock run` with it. A stopped holder keeps its lock no longer than a frozen one: unless
both go on (`fg` or `bg`) within the lease, the lock is lost and the command is killed. The message says so.

When the lock is lost, the whole process group gets SIGTERM and, before the lease can end on the server, SIGKILL:
after a silent server there is up to a fifth of the lease between the two, after a server that has ended the session
there is --kill-after.

Exit codes:
   69  no server could be reached (only with --try; otherwise it keeps trying)
   75  the lock was not free (--try) or not granted in time (--wait)
   77  the server refused the claim, and would again (not authorized, for example)
   78  invalid settings: lock name, lease, certificates
  111  the lock was lost while the command ran
  126  the command cannot be executed
  127  the command was not found
  else the exit code of the command; 128 + N if signal N ended it";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_run_takes_everything_after_the_dashes_as_the_command() {
        let cli = Cli::try_parse_from([
            "monolock", "run", "a/b", "--lease", "250ms", "--", "sh", "-c", "--try",
        ]);
        let Ok(Cli {
            command: Command::Run(run),
        }) = cli
        else {
            panic!("{cli:?}")
        };
        assert_eq!(
            (run.lock.as_str(), run.lease),
            ("a/b", Duration::from_millis(250))
        );
        assert_eq!(run.command, ["sh", "-c", "--try"]);
        assert!(!run.without_waiting);
    }

    #[test]
    fn an_empty_setting_is_none() {
        let cli = Cli::try_parse_from(["monolock", "run", "a", "--server=", "--dns=", "--", "true"]);
        let Ok(Cli {
            command: Command::Run(run),
        }) = cli
        else {
            panic!("{cli:?}")
        };
        assert_eq!(
            (run.server.server.as_str(), run.server.dns.0.len()),
            (DEFAULT_SERVER, 0)
        );
        let servers: DnsServers = "127.0.0.1:53, [::1]:53".parse().expect("two addresses");
        assert_eq!(servers.0.len(), 2);
    }
}
