//! What breaks, what the pair makes of it, and how it is mended.

use std::thread::sleep;

use monolock_clock::boot_now;
use monolock_integration_tests::hosts::Network;
use monolock_integration_tests::hosts::parties::SERVICE;
use monolock_integration_tests::wait::wait_until;
use monolock_protocol::BootInstant;

use crate::stage::{Cast, DIRECT, NAMED, SHARED, Stage, TTL};

/// One fault, from the moment it strikes until the pair is healthy again.
pub(crate) struct Scenario {
    pub(crate) name: String,
    strike: Deed,
    mend: Deed,
    outcome: Outcome,
    /// Which locks are granted while it lasts.
    served: Vec<&'static str>,
    /// Whether promise 3 holds in it.
    is_exclusive: bool,
}

/// Something done to the stage.
type Deed = Box<dyn Fn(&mut Stage, &Cast)>;

/// How often a scenario is played until the pair does what it should.
const ATTEMPTS: usize = 3;

/// What the pair makes of a fault.
enum Outcome {
    /// The active goes on in its term.
    Unmoved,
    /// The standby takes over, by this argument.
    TakenOver(&'static str),
    /// Nobody serves until it is mended.
    Suspended,
    /// One of the nodes serves.
    Either,
}

impl Scenario {
    fn new(
        name: impl Into<String>,
        outcome: Outcome,
        strike: impl Fn(&mut Stage, &Cast) + 'static,
        mend: impl Fn(&mut Stage, &Cast) + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            strike: Box::new(strike),
            mend: Box::new(mend),
            outcome,
            served: all_locks(),
            is_exclusive: true,
        }
    }

    /// Clients cannot learn the address of a node by the service's name while it lasts.
    fn without_the_name(mut self) -> Self {
        self.served.retain(|lock| *lock != NAMED);
        self
    }

    /// The follow stream is asynchronous: what the active granted last, the standby may not have heard of.
    fn with_unheard_grants(mut self) -> Self {
        self.is_exclusive = false;
        self
    }

    /// Plays it until the pair does what it should, a few times at the most: where processes wait seconds for a processor, a
    /// node may give up its term, or be silent before it is proven dead. What must never happen is checked every time.
    pub(crate) fn play(&self, stage: &mut Stage) {
        for _ in 0..ATTEMPTS {
            match self.attempt(stage) {
                Ok(()) => return,
                Err(instead) => println!("{}: {instead}: once more", self.name),
            }
        }
        panic!("{}: the pair did otherwise {ATTEMPTS} times", self.name);
    }

    /// Tells what the pair did if that is not what it should.
    fn attempt(&self, stage: &mut Stage) -> Result<(), String> {
        let cast = stage.settle();
        stage.wait_for_service("before anything breaks", boot_now(), &all_locks());
        let struck = boot_now();
        (self.strike)(stage, &cast);
        let outcome = self.observe(stage, &cast, struck);
        (self.mend)(stage, &cast);
        stage.settle();
        stage.wait_for_service("after it was mended", boot_now(), &all_locks());
        stage.check(self.is_exclusive);
        outcome
    }

    fn observe(&self, stage: &mut Stage, cast: &Cast, struck: BootInstant) -> Result<(), String> {
        match self.outcome {
            Outcome::Unmoved => {
                // Longer than any authority that was there before the fault.
                stage.wait_for_service("during the fault", struck + TTL, &self.served);
                let active = stage.pair.status().active();
                if active != Some((cast.active.clone(), cast.term)) {
                    return Err(format!("{} in term {} is now {active:?}", cast.active, cast.term));
                }
            }
            Outcome::TakenOver(basis) => {
                let by = stage.wait_for_takeover(&cast.standby, cast.term);
                stage.wait_for_service("after the takeover", boot_now(), &self.served);
                if by != basis {
                    return Err(format!("taken over by {by}, not by {basis}"));
                }
            }
            Outcome::Suspended => stage.wait_for_step(&cast.active, "authority_lapsed", struck),
            Outcome::Either => stage.wait_for_service("during the fault", boot_now(), &self.served),
        }
        Ok(())
    }
}

fn all_locks() -> Vec<&'static str> {
    SHARED.into_iter().chain([NAMED, DIRECT]).collect()
}

fn nothing(_: &mut Stage, _: &Cast) {}

fn heal(stage: &mut Stage, _: &Cast) {
    stage.network.heal();
}

/// All of them, in the order in which they are played, for a pair whose witness has a host of its own.
pub(crate) fn all() -> Vec<Scenario> {
    let mut scenarios = processes();
    scenarios.extend(partitions());
    scenarios.extend(links());
    scenarios.extend(parties());
    scenarios.extend(memories());
    scenarios.extend(clocks());
    scenarios
}

/// Those in which it matters that the name server is the witness.
pub(crate) fn with_the_witness_in_dns() -> Vec<Scenario> {
    use Outcome::{Suspended, Unmoved};
    let names = [
        "the active is killed",
        "the active is frozen",
        "a handover by the operator",
        "the active reaches neither its peer nor the witness, but its clients",
        "a standby whose clock is an hour ahead takes over",
    ];
    let mut scenarios = processes();
    scenarios.extend(links());
    scenarios.extend(clocks());
    scenarios.retain(|scenario| names.contains(&scenario.name.as_str()));
    assert_eq!(scenarios.len(), names.len());
    scenarios.push(
        Scenario::new(
            "DNS, and so the witness, is down",
            Unmoved,
            |stage, _| stage.dns.kill(),
            |stage, _| stage.dns.restart(),
        )
        .without_the_name(),
    );
    scenarios.push(Scenario::new(
        "DNS, and so the witness, and the standby are down",
        Suspended,
        |stage, cast| {
            stage.dns.kill();
            stage.pair.node(&cast.standby).kill();
        },
        |stage, cast| {
            stage.dns.restart();
            stage.pair.node(&cast.standby).start();
        },
    ));
    scenarios
}

/// Faults of the nodes' and clients' processes.
fn processes() -> Vec<Scenario> {
    use Outcome::{Either, TakenOver, Unmoved};
    vec![
        Scenario::new(
            "the active is killed",
            TakenOver("crash"),
            |stage, cast| stage.pair.node(&cast.active).kill(),
            |stage, cast| stage.pair.node(&cast.active).start(),
        )
        .with_unheard_grants(),
        Scenario::new(
            "the standby is killed",
            Unmoved,
            |stage, cast| stage.pair.node(&cast.standby).kill(),
            |stage, cast| stage.pair.node(&cast.standby).start(),
        ),
        Scenario::new(
            "the active is frozen",
            TakenOver("silence"),
            |stage, cast| stage.pair.node(&cast.active).freeze(),
            |stage, cast| stage.pair.node(&cast.active).thaw(),
        ),
        Scenario::new(
            "the standby is frozen",
            Unmoved,
            |stage, cast| stage.pair.node(&cast.standby).freeze(),
            |stage, cast| stage.pair.node(&cast.standby).thaw(),
        ),
        Scenario::new(
            "a handover by the operator",
            TakenOver("handover"),
            |stage, _| stage.pair.hand_over(),
            nothing,
        ),
        Scenario::new(
            "the active is asked to stop",
            TakenOver("handover"),
            |stage, cast| stage.pair.node(&cast.active).terminate(),
            |stage, cast| stage.pair.node(&cast.active).start(),
        ),
        Scenario::new(
            "the active is restarted at once",
            Either,
            |stage, cast| {
                let node = stage.pair.node(&cast.active);
                node.kill();
                node.start();
            },
            nothing,
        )
        .with_unheard_grants(),
        Scenario::new(
            "both nodes are killed and started at once",
            Either,
            |stage, _| {
                for node in &mut stage.pair.nodes {
                    node.kill();
                }
                stage.pair.start();
            },
            nothing,
        )
        .with_unheard_grants(),
        Scenario::new(
            "both nodes are stopped and started at once",
            Either,
            |stage, _| {
                for node in &mut stage.pair.nodes {
                    node.terminate();
                }
                stage.pair.start();
            },
            nothing,
        ),
        Scenario::new(
            "a client is frozen for longer than its lease",
            Unmoved,
            |stage, _| stage.by_name.process.freeze(),
            |stage, _| stage.by_name.process.thaw(),
        )
        .without_the_name(),
    ]
}

/// Every pair of parties that talk to each other; where a node is one of them, each direction too.
fn partitions() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (one, other) in [
        ("active", "standby"),
        ("active", "witness"),
        ("standby", "witness"),
        ("active", "dns"),
        ("standby", "dns"),
        ("active", "client-1"),
    ] {
        scenarios.push(cut_both_ways(one, other));
        for (from, to) in [(one, other), (other, one)] {
            let name = format!("nothing comes from {from} to {to}");
            scenarios.push(cut(from, to, name, Network::cut_one_way));
        }
    }
    for (one, other) in [
        ("standby", "client-1"),
        ("dns", "client-1"),
        ("resource", "client-1"),
    ] {
        scenarios.push(cut_both_ways(one, other));
    }
    scenarios
}

fn cut_both_ways(one: &'static str, other: &'static str) -> Scenario {
    cut(one, other, format!("{one} and {other} are cut"), Network::cut)
}

/// One cut link never moves the term: authority needs one more voice than the node's own, and has two.
fn cut(one: &'static str, other: &'static str, name: String, make: fn(&Network, &str, &str)) -> Scenario {
    let scenario = Scenario::new(
        name,
        Outcome::Unmoved,
        move |stage, cast| make(&stage.network, cast.host(one), cast.host(other)),
        heal,
    );
    let is_between = |party: &str| [one, other].contains(&party);
    if is_between("client-1") && (is_between("active") || is_between("dns")) {
        scenario.without_the_name()
    } else {
        scenario
    }
}

/// Hosts and links as a whole.
fn links() -> Vec<Scenario> {
    use Outcome::{Either, TakenOver, Unmoved};
    vec![
        Scenario::new(
            "the active's host is gone",
            TakenOver("silence"),
            |stage, cast| {
                stage.network.unplug(&cast.active);
                stage.pair.node(&cast.active).kill();
            },
            |stage, cast| {
                stage.network.plug(&cast.active);
                stage.pair.node(&cast.active).start();
            },
        ),
        Scenario::new(
            "the active's link is down",
            TakenOver("silence"),
            |stage, cast| stage.network.unplug(&cast.active),
            |stage, cast| stage.network.plug(&cast.active),
        ),
        Scenario::new(
            "the standby's link is down",
            Unmoved,
            |stage, cast| stage.network.unplug(&cast.standby),
            |stage, cast| stage.network.plug(&cast.standby),
        ),
        Scenario::new(
            "the active reaches neither its peer nor the witness, but its clients",
            TakenOver("silence"),
            |stage, cast| {
                stage.network.cut(&cast.active, &cast.standby);
                stage.network.cut(&cast.active, stage.voice());
            },
            heal,
        ),
        Scenario::new(
            "the active is not heard by its peer and the witness, but hears them",
            TakenOver("silence"),
            |stage, cast| {
                stage.network.cut_one_way(&cast.active, &cast.standby);
                stage.network.cut_one_way(&cast.active, "witness");
            },
            heal,
        ),
        Scenario::new(
            "the active does not hear its peer and the witness",
            Either,
            |stage, cast| {
                stage.network.cut_one_way(&cast.standby, &cast.active);
                stage.network.cut_one_way("witness", &cast.active);
            },
            heal,
        ),
        Scenario::new(
            "the standby reaches neither its peer nor the witness",
            Unmoved,
            |stage, cast| {
                stage.network.cut(&cast.standby, &cast.active);
                stage.network.cut(&cast.standby, "witness");
            },
            heal,
        ),
        Scenario::new(
            "the active loses every fifth packet",
            Either,
            |stage, cast| stage.network.lose(20, &cast.active),
            heal,
        ),
        Scenario::new(
            "the witness loses every fifth packet",
            Either,
            |stage, _| stage.network.lose(20, "witness"),
            heal,
        ),
        Scenario::new("the active's link flaps", Either, flap, nothing),
    ]
}

/// Down for longer than a renewal takes, up for less than a takeover.
fn flap(stage: &mut Stage, cast: &Cast) {
    for _ in 0..5 {
        stage.network.unplug(&cast.active);
        sleep(TTL / 2);
        stage.network.plug(&cast.active);
        sleep(TTL / 4);
    }
}

/// Faults of what the pair leans on.
fn parties() -> Vec<Scenario> {
    use Outcome::{Suspended, TakenOver, Unmoved};
    vec![
        Scenario::new(
            "DNS is down",
            Unmoved,
            |stage, _| stage.dns.kill(),
            |stage, _| stage.dns.restart(),
        )
        .without_the_name(),
        Scenario::new(
            "the witness is down",
            Unmoved,
            |stage, _| stage.witness().kill(),
            |stage, _| stage.witness().restart(),
        ),
        Scenario::new(
            "the witness and DNS are down",
            Unmoved,
            |stage, _| {
                stage.witness().kill();
                stage.dns.kill();
            },
            |stage, _| {
                stage.witness().restart();
                stage.dns.restart();
            },
        )
        .without_the_name(),
        Scenario::new(
            "the active is killed while DNS is down",
            TakenOver("crash"),
            |stage, cast| {
                stage.dns.kill();
                stage.pair.node(&cast.active).kill();
            },
            |stage, cast| {
                stage.dns.restart();
                stage.pair.node(&cast.active).start();
            },
        )
        .without_the_name()
        .with_unheard_grants(),
        Scenario::new(
            "the witness and the standby are down",
            Suspended,
            |stage, cast| {
                stage.witness().kill();
                stage.pair.node(&cast.standby).kill();
            },
            |stage, cast| {
                stage.witness().restart();
                stage.pair.node(&cast.standby).start();
            },
        ),
        Scenario::new(
            "the name is changed by hand",
            Unmoved,
            |stage, cast| {
                let wrong = stage.network.host("ops").address().to_string();
                stage.dns.update(&format!(
                    "update delete {SERVICE} A\nupdate add {SERVICE} 1 A {wrong}"
                ));
                let right = stage.network.host(&cast.active).address().to_string();
                wait_until("the name to be repaired", || stage.dns.dig(SERVICE, "A") == right);
            },
            nothing,
        ),
    ]
}

/// What nodes and witness remember.
fn memories() -> Vec<Scenario> {
    use Outcome::{Either, TakenOver};
    vec![
        Scenario::new(
            "both nodes are replaced by new ones that remember nothing",
            Either,
            |stage, _| {
                for node in &mut stage.pair.nodes {
                    node.kill();
                    node.forget();
                }
                stage.pair.start();
            },
            nothing,
        )
        .with_unheard_grants(),
        Scenario::new(
            "the witness is set back to an old backup",
            TakenOver("handover"),
            |stage, cast| {
                let witness = stage.witness();
                let _no_rows = witness.query("CREATE TABLE backup AS SELECT * FROM monolock_witness");
                stage.pair.hand_over();
                let restored = boot_now();
                let _no_rows = stage.witness().query(
                    "UPDATE monolock_witness SET record = backup.record FROM backup
                     WHERE monolock_witness.pair = backup.pair; DROP TABLE backup",
                );
                stage.wait_for_step(&cast.standby, "witness_went_back", restored);
            },
            nothing,
        ),
    ]
}

/// Wall clocks that are wrong. Order does not rest on them.
fn clocks() -> Vec<Scenario> {
    use Outcome::TakenOver;
    const HOUR: i64 = 3600;
    let mut scenarios = Vec::new();
    for (direction, offset) in [("ahead", HOUR), ("behind", -HOUR)] {
        scenarios.push(
            Scenario::new(
                format!("a standby whose clock is an hour {direction} takes over"),
                TakenOver("crash"),
                move |stage, cast| {
                    restart_with_clock(stage, cast, offset);
                    stage.pair.node(&cast.active).kill();
                },
                with_true_clocks,
            )
            .with_unheard_grants(),
        );
        scenarios.push(
            Scenario::new(
                format!("the active's clock leaps an hour {direction} and it is killed"),
                TakenOver("handover"),
                move |stage, cast| {
                    restart_with_clock(stage, cast, 0);
                    stage.pair.hand_over();
                    let leapt = boot_now();
                    stage.pair.node(&cast.standby).step_clock(offset);
                    stage.wait_for_service("after the leap", leapt + TTL, &all_locks());
                    stage.pair.node(&cast.standby).kill();
                },
                with_true_clocks,
            )
            .with_unheard_grants(),
        );
    }
    scenarios
}

/// Restarts the standby with a clock of its own, and waits until it stands by again.
fn restart_with_clock(stage: &mut Stage, cast: &Cast, offset_seconds: i64) {
    let standby = stage.pair.node(&cast.standby);
    standby.kill();
    standby.start_with_clock(offset_seconds);
    let settled = stage.settle();
    assert_eq!(settled.active, cast.active, "the active goes on");
}

/// Starts the node that does not run, and restarts the one that had a clock of its own.
fn with_true_clocks(stage: &mut Stage, cast: &Cast) {
    for node in &mut stage.pair.nodes {
        if !node.is_running() {
            node.start();
        }
    }
    stage.settle();
    let node = stage.pair.node(&cast.standby);
    node.terminate();
    node.start();
}

impl Cast {
    /// The host of a party: of the active, the standby, or the one of that name.
    fn host<'a>(&'a self, party: &'a str) -> &'a str {
        match party {
            "active" => &self.active,
            "standby" => &self.standby,
            other => other,
        }
    }
}
