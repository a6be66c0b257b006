//! The hosts, what runs on them, and what is known of the run so far.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use monolock_adapters::postgres::Fence;
use monolock_clock::{boot_now, wall_now};
use monolock_integration_tests::history::events::{Event, Line};
use monolock_integration_tests::history::{Accepted, Demand, History, WriteId, WriteOutcome};
use monolock_integration_tests::hosts::parties::{
    Bind, Chrony, Database, KEY, LOCK_PORT, Pair, SERVICE, ZONE,
};
use monolock_integration_tests::hosts::{Host, Network};
use monolock_integration_tests::process::Process;
use monolock_integration_tests::wait::{PATIENCE, wait_for, wait_until};
use monolock_integration_tests::{TempDir, binaries};
use monolock_protocol::{BootInstant, Token};

/// A node that is starved for 0.8 of it gives its term up, as it should: long enough for a busy machine.
pub(crate) const TTL: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_millis(1500);

/// Each takeover starts above everything reserved, which puts tokens some seconds ahead of the clock.
const LARGEST_LEAD: Duration = Duration::from_secs(1800);

/// The lock that only the client takes that knows the service's name.
pub(crate) const NAMED: &str = "named";
/// The lock that only the client takes that knows the addresses of both nodes.
pub(crate) const DIRECT: &str = "direct";
/// The locks that both take in turn.
pub(crate) const SHARED: [&str; 2] = ["shared-1", "shared-2"];

/// Which node is what before something breaks.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) active: String,
    pub(crate) standby: String,
    pub(crate) term: u64,
}

/// What the pair has as its second voice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// A row in PostgreSQL, on a host of its own.
    Row,
    /// A record at the name server.
    Record,
}

/// A client on a host of its own.
pub(crate) struct Client {
    pub(crate) process: Process,
    history: PathBuf,
    read: u64,
}

pub(crate) struct Stage {
    pub(crate) pair: Pair,
    /// Knows the service's name.
    pub(crate) by_name: Client,
    /// Knows both addresses.
    by_address: Client,
    pub(crate) dns: Bind,
    witness: Option<Database>,
    pub(crate) resource: Database,
    lines: Vec<Line>,
    demands: Vec<Demand>,
    _time_servers: [Chrony; 2],
    _folder: TempDir,
    // Goes last: everything above runs in it.
    pub(crate) network: Network,
}

impl Stage {
    pub(crate) fn new(voice: Voice) -> Self {
        let hosts = [
            "a", "b", "dns", "witness", "resource", "client-1", "client-2", "ops", "ntp-1", "ntp-2",
        ];
        let network = Network::new(&hosts, Some("dns"));
        let dns = Bind::start(&network, "dns");
        let witness = (voice == Voice::Row).then(|| Database::start(&network, "witness"));
        let resource = Database::start(&network, "resource");
        let _no_rows = resource.query(&format!(
            "{};
             CREATE TABLE accepted (
                 sequence BIGSERIAL PRIMARY KEY, resource TEXT NOT NULL, client TEXT NOT NULL, number BIGINT NOT NULL,
                 token BIGINT NOT NULL);",
            Fence::new().ddl()
        ));
        let ntp = ["ntp-1", "ntp-2"];
        let time_servers = ntp.map(|name| Chrony::start(&network, name));
        let ntp = ntp.map(|name| network.host(name).address().to_string());
        let name_server = network.host("dns").address().to_string();
        let settings = [
            (
                "MONOLOCK_WITNESS",
                witness
                    .as_ref()
                    .map_or_else(|| format!("dns:_pair.{ZONE}"), Database::url),
            ),
            ("MONOLOCK_AUTHORITY_TTL", format!("{}ms", TTL.as_millis())),
            ("MONOLOCK_SERVICE_NAME", SERVICE.to_owned()),
            ("MONOLOCK_DNS", "rfc2136".to_owned()),
            ("MONOLOCK_DNS_SERVER", name_server),
            ("MONOLOCK_NTP_SERVERS", ntp.join(",")),
            ("MONOLOCK_NTP_POLL_INTERVAL", "1s".to_owned()),
            ("MONOLOCK_DNS_ZONE", ZONE.to_owned()),
            ("MONOLOCK_DNS_KEY", KEY.to_owned()),
        ];
        let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
        let mut pair = Pair::new(&network, "ops", &settings);
        pair.start();
        let folder = TempDir::with_prefix("monolock-hosts-").expect("a temporary folder can be made");
        let client = |host, server: &str, own| {
            Client::start(network.host(host), server, own, &resource.url(), folder.path())
        };
        let both = pair.nodes.each_ref().map(|node| node.lock_address().to_string());
        Self {
            by_name: client("client-1", &format!("{SERVICE}:{LOCK_PORT}"), NAMED),
            by_address: client("client-2", &both.join(","), DIRECT),
            pair,
            dns,
            witness,
            resource,
            lines: Vec::new(),
            demands: Vec::new(),
            _time_servers: time_servers,
            _folder: folder,
            network,
        }
    }

    /// The host of the witness.
    pub(crate) fn voice(&self) -> &'static str {
        if self.witness.is_some() { "witness" } else { "dns" }
    }

    /// The database that is the witness.
    pub(crate) fn witness(&mut self) -> &mut Database {
        self.witness
            .as_mut()
            .expect("the witness of this stage is a database")
    }

    /// Waits until the pair is healthy and the name says so, and returns who is what.
    pub(crate) fn settle(&mut self) -> Cast {
        let (active, term) = self.pair.wait_until_healthy();
        let standby = if active == "a" { "b" } else { "a" }.to_owned();
        let address = self.network.host(&active).address().to_string();
        wait_until("the name to be the active's", || {
            self.dns.dig(SERVICE, "A") == address
        });
        Cast {
            active,
            standby,
            term,
        }
    }

    /// Waits until each of `locks` has been granted after `after`, and demands that it was in time.
    pub(crate) fn wait_for_service(&mut self, reason: &str, after: BootInstant, locks: &[&str]) {
        let demand = Demand {
            reason: reason.to_owned(),
            after,
            until: after + PATIENCE,
            locks: locks.iter().map(|lock| (*lock).to_owned()).collect(),
        };
        wait_until(&format!("a grant of each of {locks:?} {reason}"), || {
            self.read_lines();
            locks.iter().all(|lock| self.is_granted_after(lock, after))
        });
        self.demands.push(demand);
    }

    fn is_granted_after(&self, wanted: &str, after: BootInstant) -> bool {
        self.lines.iter().rev().any(|line| {
            matches!(&line.event, Event::Granted { lock, granted, .. }
                if lock == wanted && *granted > after.as_nanos())
        })
    }

    fn read_lines(&mut self) {
        for client in [&mut self.by_name, &mut self.by_address] {
            client.read_lines(&mut self.lines);
        }
    }

    /// Checks all that happened so far.
    pub(crate) fn check(&mut self, is_exclusive: bool) {
        let history = self.history();
        let violations = history.violations();
        let listed: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(listed.is_empty(), "{}", listed.join("\n"));
        let ahead = Token::first_of_epoch(wall_now().unix_seconds() + LARGEST_LEAD.as_secs());
        let leapt = history.grants.iter().find(|grant| grant.token >= ahead);
        assert!(
            leapt.is_none(),
            "tokens have followed a clock that leapt: {leapt:?}"
        );
        let shared = history.shared_holds();
        assert!(!is_exclusive || shared.is_empty(), "{shared:#?}");
    }

    fn history(&mut self) -> History {
        let asked = boot_now();
        let accepted = self.accepted();
        // What is accepted was sent before: its line is there by now.
        self.read_lines();
        let authorities = self.pair.nodes.iter().flat_map(|node| node.authorities());
        let mut history = History {
            authorities: authorities.collect(),
            accepted,
            demands: self.demands.clone(),
            ..History::default()
        };
        history.add_lines(self.lines.iter().cloned(), |server| {
            self.network.name_of(server.ip())
        });
        for write in &mut history.writes {
            // The resource was asked before it was answered: what it said may be too old.
            if write.answered >= asked {
                write.answered = BootInstant::MAX;
                write.outcome = WriteOutcome::Unknown;
            }
        }
        history
    }

    fn accepted(&self) -> Vec<Accepted> {
        let rows = self
            .resource
            .query("SELECT resource, client, number, token FROM accepted ORDER BY sequence");
        rows.lines().map(accepted).collect()
    }

    /// The step `became_active` of a node in a term later than `term`: the argument that carried it.
    pub(crate) fn wait_for_takeover(&mut self, node: &str, term: u64) -> String {
        let pair = &mut self.pair;
        wait_for(&format!("node {node} to become active"), || {
            let journal = pair.node(node).journal();
            let line = journal
                .lines()
                .rev()
                .find(|line| line.contains("\"became_active\""))?;
            let line: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            (line["term"].as_u64()? > term).then(|| line["basis"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// Waits until a node has written this step down, later than `after`.
    pub(crate) fn wait_for_step(&mut self, node: &str, step: &str, after: BootInstant) {
        let pair = &mut self.pair;
        wait_until(&format!("node {node} to write down {step}"), || {
            pair.node(node).journal().lines().any(|line| {
                let line: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
                line["step"] == step && line["boot_nanos"].as_u64() > Some(after.as_nanos())
            })
        });
    }

    /// The fence was needed: else the run has shown nothing about it.
    pub(crate) fn assert_that_stale_writes_were_refused(&mut self) {
        let history = self.history();
        let count = |is_wanted: fn(&WriteOutcome) -> bool| {
            history
                .writes
                .iter()
                .filter(|write| is_wanted(&write.outcome))
                .count()
        };
        let accepted = count(|outcome| matches!(outcome, WriteOutcome::Accepted));
        let refused = count(|outcome| matches!(outcome, WriteOutcome::Refused { .. }));
        println!(
            "{} grants, {accepted} writes accepted, {refused} refused as stale, {} terms",
            history.grants.len(),
            history.authorities.len()
        );
        assert!(accepted > refused && refused > 0);
    }
}

impl Client {
    fn start(host: &Host, server: &str, own_lock: &str, database: &str, folder: &Path) -> Self {
        let history = folder.join(host.name());
        let locks: Vec<_> = SHARED.iter().copied().chain([own_lock]).collect();
        let mut command = binaries::command("examples/fenced_writer");
        command
            .args(["--name", host.name(), "--server", server])
            .args(["--locks", &locks.join(",")])
            .args(["--lease-ms", &LEASE.as_millis().to_string()])
            .args(["--database", database, "--careless", "--history"])
            .arg(&history);
        Self {
            process: Process::spawn(host.name(), host.wrap(&command)),
            history,
            read: 0,
        }
    }

    /// Appends the lines that are new.
    fn read_lines(&mut self, lines: &mut Vec<Line>) {
        assert_eq!(self.process.exit(), None, "{:?} has ended", self.process);
        let Ok(mut file) = File::open(&self.history) else {
            return;
        };
        let mut text = String::new();
        file.seek(SeekFrom::Start(self.read)).expect("it is a file");
        file.read_to_string(&mut text).expect("it is a file of text");
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        let parsed = text[..whole].lines().map(serde_json::from_str::<Line>);
        lines.extend(parsed.map(|line| line.expect("a client writes lines of its history")));
    }
}

fn accepted(row: &str) -> Accepted {
    let columns: Vec<_> = row.split('|').collect();
    let [resource, client, number, token] = columns[..] else {
        panic!("{row:?} is no row of four columns");
    };
    let parse = |text: &str| text.parse().unwrap_or_else(|_| panic!("{row:?}: no number"));
    Accepted {
        id: WriteId {
            client: client.to_owned(),
            number: parse(number),
        },
        resource: resource.to_owned(),
        token: Token::new(parse(token)),
    }
}
