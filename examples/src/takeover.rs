//! The story of the demo: grant, token, takeover, larger token, stale write refused.
//!
//! Each step checks what it claims. The claims say nothing about how long things take: what took how long is measured
//! and reported beside them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use monolock_client::{Client, Token};
use monolock_clock::{boot_now, wall_now};
use monolock_failover::core::NodeId;
use monolock_protocol::{BootInstant, WallTime};

use crate::ledger::{Database, Ledger};
use crate::pair::{self, Pair};
use crate::worker::Event;

mod report;
mod workers;

pub use report::{Claim, Measure, Report};
use workers::Workers;

/// The lock that guards the ledger.
pub const LOCK: &str = "ledger";

/// What the story is played with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `monolock-failover`.
    pub failover: PathBuf,
    /// The program `demo_worker`.
    pub worker: PathBuf,
    /// The guarded resource; a SQLite file of its own when `None`.
    pub database: Option<Database>,
    /// The witness of the pair, as in `MONOLOCK_WITNESS`; a file of its own when `None`.
    pub witness: Option<String>,
    /// The authority period of the pair.
    pub ttl: Duration,
    /// The lease of the workers.
    pub lease: Duration,
}

/// Plays the story, and tells it line by line while it happens.
///
/// # Errors
///
/// When a step does not come to its end; a claim that did not hold is no error but stands in the report.
pub async fn run(options: &Options, say: &mut (dyn FnMut(&str) + Send)) -> Result<Report> {
    let folder = tempfile::tempdir().context("no place for the demo's files")?;
    let database = options.database.clone();
    let database =
        database.unwrap_or_else(|| Database::Sqlite(folder.path().join("ledger.db").display().to_string()));
    let ledger = Ledger::open(&database).await?;
    let pair = Pair::start(
        &options.failover,
        folder.path(),
        options.ttl,
        options.witness.as_deref(),
    )?;
    let client = pair::client(&pair)?;
    let workers = Workers::new(options.worker.clone(), database, options.lease);
    let mut story = Story {
        options,
        pair,
        client,
        workers,
        ledger,
        report: Report::default(),
        say,
    };
    story.play().await?;
    Ok(story.report)
}

struct Story<'a> {
    options: &'a Options,
    pair: Pair,
    client: Client,
    workers: Workers,
    ledger: Ledger,
    report: Report,
    say: &'a mut (dyn FnMut(&str) + Send),
}

/// A grant of a lock that nobody else wants, seen by the demo itself.
struct Granted {
    at: BootInstant,
    token: Token,
}

impl Story<'_> {
    async fn play(&mut self) -> Result<()> {
        let active = self.start().await?;
        let holder = self.first_writes().await?;
        let survivor = self.crash(active, holder).await?;
        self.stale_write().await?;
        self.come_back(active, survivor).await?;
        self.hand_over(survivor).await?;
        self.look_back().await
    }

    async fn start(&mut self) -> Result<NodeId> {
        self.title("A pair behind one name");
        let (active, status) = self.pair.wait_until_healthy().await?;
        self.tell(&format!(
            "{} -> {}",
            self.pair.server(),
            self.pair.lock_address(active)
        ));
        for line in status.to_string().lines() {
            self.tell(line);
        }
        let standby = active.peer();
        let direct = Client::new(&self.pair.lock_address(standby).to_string())?;
        let refused = direct.claim("anything", self.options.lease).acquire().await.err();
        let refused = refused.map_or_else(|| "it granted a lock".to_owned(), |error| error.to_string());
        self.claim("the standby answers ERROR 03", refused.contains("0x03"), &refused);
        Ok(active)
    }

    /// Two workers under one lock; the resource takes the writes of the one that holds it.
    async fn first_writes(&mut self) -> Result<Token> {
        self.title("Two workers, one lock, one guarded row");
        let (server, dns) = (self.pair.server(), self.pair.dns_servers());
        for name in ["ann", "bob"] {
            self.workers.start(name, &server, &dns)?;
        }
        let acquired = self
            .workers
            .wait("a worker to hold the lock", 0, is_acquired)
            .await?;
        let token = token_of(&acquired.event);
        self.tell(&format!("{} holds {LOCK:?} with token {token}", acquired.worker));
        let wrote = self
            .workers
            .wait("a first write", 0, |event| matches!(event, Event::Wrote { .. }))
            .await?;
        self.tell(&format!(
            "{} wrote, the row carries token {}",
            wrote.worker,
            token_of(&wrote.event)
        ));
        self.claim(
            "the holder writes with its token",
            token_of(&wrote.event) == token,
            "another token was written",
        );
        self.report.token("first grant of the held lock", token);
        Ok(token)
    }

    /// The active is killed; the standby proves its death and takes over.
    async fn crash(&mut self, active: NodeId, held: Token) -> Result<NodeId> {
        self.title(&format!("kill -9 of node {active}, the active"));
        let survivor = active.peer();
        let before = self.free_lock("free/before").await?;
        self.report.token("free lock before the crash", before.token);
        let seen = self.workers.count();
        let (killed, killed_wall) = (boot_now(), wall_now());
        self.pair.kill(active).await?;
        let free = self.free_lock("free/after-crash").await?;
        self.tell(&format!(
            "a free lock is granted by node {survivor} with token {}",
            free.token
        ));
        let (detected, became_active) = self.takeover_times(survivor, killed_wall)?;
        self.measure("crash: death proven", detected);
        self.measure("crash: standby active", became_active);
        self.measure(
            "crash: first grant of a free lock",
            free.at.saturating_duration_since(killed),
        );
        self.claim(
            "after the crash a free lock has a larger token",
            free.token > before.token.max(held),
            "it is not larger",
        );
        self.report.token("free lock after the crash", free.token);

        let lost = self
            .workers
            .wait("the holder to learn of the crash", seen, |event| {
                matches!(event, Event::Lost { .. })
            })
            .await?;
        if let Event::Lost { cause } = &lost.event {
            self.tell(&format!("{} lost the lock: {cause}", lost.worker));
        }
        let again = self
            .workers
            .wait("the held lock to be granted again", seen, is_acquired)
            .await?;
        let (at, token) = (BootInstant::from_nanos(again.boot_nanos), token_of(&again.event));
        self.measure(
            "crash: first grant of the held lock",
            at.saturating_duration_since(killed),
        );
        self.tell(&format!(
            "{} holds {LOCK:?} with token {token}, after the grace",
            again.worker
        ));
        self.claim(
            "after the crash the held lock has a larger token",
            token > held,
            "it is not larger",
        );
        // The grace runs from the takeover, which came after the kill.
        let early = at < killed + self.options.lease;
        self.claim(
            "the held lock is held back for the lease of its old holder",
            !early,
            "it was granted too early",
        );
        self.report.token("held lock after the crash", token);
        Ok(survivor)
    }

    fn takeover_times(&self, node: NodeId, killed: WallTime) -> Result<(Duration, Duration)> {
        let journal = self.pair.journal(node)?;
        let after_kill = |step: &str| {
            let line = journal.iter().rev().find(|line| line.step == step);
            let line = line.with_context(|| format!("node {node} has not written down {step:?}"))?;
            let time = chrono::DateTime::parse_from_rfc3339(&line.time)?;
            let nanos = time
                .timestamp_nanos_opt()
                .and_then(|nanos| u64::try_from(nanos).ok());
            let nanos = nanos.context("the journal's time is out of range")?;
            anyhow::Ok(Duration::from_nanos(nanos.saturating_sub(killed.unix_nanos())))
        };
        Ok((after_kill("death_proven")?, after_kill("became_active")?))
    }

    /// The holder is frozen between its look and its write; when it wakes up, the lock has moved on.
    async fn stale_write(&mut self) -> Result<()> {
        self.title("The holder is frozen past its lease, and wakes up to write");
        let seen = self.workers.count();
        let working = self
            .workers
            .wait("the holder to work", seen, |event| {
                matches!(event, Event::Working { .. })
            })
            .await?;
        let (sleeper, old) = (working.worker.clone(), token_of(&working.event));
        let frozen = boot_now();
        let seen = self.workers.count();
        self.workers.freeze(&sleeper)?;
        self.tell(&format!(
            "{sleeper} has looked: it holds token {old}. It is frozen before it writes"
        ));
        let next = self
            .workers
            .wait("the lock to move on", seen, is_acquired)
            .await?;
        let new = token_of(&next.event);
        let at = BootInstant::from_nanos(next.boot_nanos);
        self.measure(
            "freeze: next holder granted",
            at.saturating_duration_since(frozen),
        );
        self.tell(&format!("{} holds {LOCK:?} with token {new}", next.worker));
        self.claim(
            "the next holder has a larger token",
            new > old && next.worker != sleeper,
            "it does not",
        );
        self.report.token("held lock after the freeze", new);
        let is_new_write = move |event: &Event| *event == Event::Wrote { token: new };
        self.workers
            .wait("the next holder to write", seen, is_new_write)
            .await?;
        self.tell(&format!("{} wrote, the row carries token {new}", next.worker));

        self.workers.thaw(&sleeper)?;
        let refused = self
            .workers
            .wait("the stale write", seen, |event| {
                matches!(event, Event::Refused { .. })
            })
            .await?;
        if let Event::Refused { token, highest } = refused.event {
            self.tell(&format!(
                "{} woke up and wrote with token {token}: REFUSED, token {highest} was here",
                refused.worker
            ));
            let held = refused.worker == sleeper && token == old && highest >= new;
            self.claim(
                "the stale write is refused by the resource",
                held,
                "something else was refused",
            );
        }
        let plain = self.ledger.write_without_the_library(old).await;
        let text = plain.as_ref().err().map(ToString::to_string).unwrap_or_default();
        self.tell(&format!(
            "plain SQL with token {old}: {}",
            if plain.is_ok() {
                "accepted"
            } else {
                "REFUSED by the trigger"
            }
        ));
        self.claim(
            "the database refuses the old token from any program",
            plain.is_err(),
            &text,
        );
        Ok(())
    }

    async fn come_back(&mut self, returning: NodeId, active: NodeId) -> Result<()> {
        self.title(&format!("Node {returning} comes back"));
        let started = boot_now();
        self.pair.start_node(returning)?;
        let (now_active, status) = self.pair.wait_until_healthy().await?;
        self.measure(
            "return: ready as standby",
            boot_now().saturating_duration_since(started),
        );
        for line in status.to_string().lines() {
            self.tell(line);
        }
        self.claim(
            "the returning node is standby, the active stays",
            now_active == active,
            "the active changed",
        );
        Ok(())
    }

    async fn hand_over(&mut self, active: NodeId) -> Result<()> {
        self.title(&format!("Node {active} hands over on purpose"));
        let before = self.free_lock("free/before-handover").await?;
        let seen = self.workers.count();
        let asked = boot_now();
        self.pair.hand_over().await?;
        self.measure(
            "handover: the other node serves",
            boot_now().saturating_duration_since(asked),
        );
        let free = self.free_lock("free/after-handover").await?;
        self.measure(
            "handover: first grant of a free lock",
            free.at.saturating_duration_since(asked),
        );
        self.tell(&format!("a free lock is granted with token {}", free.token));
        let (now_active, _) = self.pair.wait_until_healthy().await?;
        self.claim(
            "the other node is active after the handover",
            now_active == active.peer(),
            "it is not",
        );
        self.claim(
            "after the handover a free lock has a larger token",
            free.token > before.token,
            "it is not larger",
        );
        self.report.token("free lock after the handover", free.token);
        let again = self
            .workers
            .wait("the held lock after the handover", seen, is_acquired)
            .await?;
        let token = token_of(&again.event);
        self.tell(&format!(
            "{} holds {LOCK:?} with token {token}, after the grace",
            again.worker
        ));
        self.report.token("held lock after the handover", token);
        let wrote = move |event: &Event| *event == Event::Wrote { token };
        self.workers
            .wait("a write after the handover", seen, wrote)
            .await?;
        Ok(())
    }

    /// Whatever happened: the tokens of the held lock rose, and the resource never took a smaller one.
    async fn look_back(&mut self) -> Result<()> {
        self.workers.stop().await;
        let grants: Vec<_> = self
            .workers
            .events(is_acquired)
            .iter()
            .map(|line| token_of(&line.event))
            .collect();
        let rising = grants.windows(2).all(|pair| pair[0] < pair[1]);
        self.claim(
            "every grant of the held lock has a larger token than the one before",
            rising,
            &format!("{grants:?}"),
        );
        let contents = self.ledger.contents().await?;
        let in_order = contents.history.windows(2).all(|pair| pair[0] <= pair[1]);
        self.claim(
            "no accepted write is older than one before it",
            in_order,
            &format!("{:?}", contents.history),
        );
        let newest = contents.history.iter().max() == Some(&contents.token);
        self.claim(
            "the row carries the largest token that was accepted",
            newest,
            &contents.token.to_string(),
        );
        self.report.accepted = contents.history.len();
        self.report.refused = self
            .workers
            .events(|event| matches!(event, Event::Refused { .. }))
            .len()
            + 1;
        Ok(())
    }

    /// Takes a lock that nobody holds, as soon as anybody grants it.
    async fn free_lock(&self, lock: &str) -> Result<Granted> {
        let asking = async {
            loop {
                match self.client.claim(lock, self.options.lease).acquire().await {
                    Ok(guard) => match guard.token() {
                        Ok(token) => {
                            return Ok(Granted {
                                at: boot_now(),
                                token,
                            });
                        }
                        Err(_lost_at_once) => {}
                    },
                    Err(error) if error.retry().is_none() => return Err(error),
                    Err(_not_yet) => tokio::time::sleep(ASK_AGAIN).await,
                }
            }
        };
        Ok(tokio::time::timeout(PATIENCE, asking)
            .await
            .context("no server granted a free lock within a minute")??)
    }

    fn title(&mut self, text: &str) {
        (self.say)("");
        (self.say)(text);
    }

    fn tell(&mut self, text: &str) {
        (self.say)(&format!("  {text}"));
    }

    fn claim(&mut self, text: &'static str, held: bool, otherwise: &str) {
        let claim = Claim {
            text,
            held,
            otherwise: otherwise.to_owned(),
        };
        (self.say)(&format!("  {claim}"));
        self.report.claims.push(claim);
    }

    fn measure(&mut self, what: &'static str, took: Duration) {
        self.report.measures.push(Measure { what, took });
    }
}

fn is_acquired(event: &Event) -> bool {
    matches!(event, Event::Acquired { .. })
}

fn token_of(event: &Event) -> Token {
    match event {
        Event::Acquired { token, .. }
        | Event::Working { token }
        | Event::Wrote { token }
        | Event::Refused { token, .. } => *token,
        Event::Lost { .. } => Token::ZERO,
    }
}

const ASK_AGAIN: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);
