//! The pair for a long time, with thousands of sessions and one fault after another: nothing may grow.
//!
//! `make soak` runs it; how long and how large is set by `MONOLOCK_SOAK_MINUTES` and `MONOLOCK_SOAK_SESSIONS`. Between
//! two faults everybody settles: then memory, descriptors and threads are read from `/proc`, of a node that is never
//! killed, and of this process, which holds all the clients. What is compared is the same state, again and again: the node
//! as the active one, the node as standby, the clients with all their sessions.

mod clients;
mod usage;

use std::env;
use std::time::Duration;

use clients::Clients;
use monolock_clock::boot_now;
use monolock_examples::pair::{self, Pair};
use monolock_failover::core::NodeId;
use monolock_integration_tests::random::{self, Rng};
use monolock_integration_tests::{TempDir, binaries};
use usage::{Record, State};

const TTL: Duration = Duration::from_secs(3);
/// Node A lives through all of it; node B is killed now and then.
const SURVIVOR: NodeId = NodeId::A;

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// `SIGKILL`, and a new life.
    Kill(NodeId),
    /// `SIGSTOP` for longer than the authority lasts, then `SIGCONT`.
    Freeze(NodeId),
    HandOver,
}

impl Fault {
    fn choose(rng: &mut Rng) -> Self {
        match rng.u8(0..5) {
            0 => Self::Kill(SURVIVOR.peer()),
            1 => Self::Freeze(SURVIVOR),
            2 => Self::Freeze(SURVIVOR.peer()),
            _ => Self::HandOver,
        }
    }

    async fn inject(self, pair: &mut Pair) {
        match self {
            Self::Kill(node) => {
                pair.kill(node).await.expect("killed");
                pair.start_node(node).expect("started");
            }
            Self::Freeze(node) => {
                pair.freeze(node).expect("frozen");
                tokio::time::sleep(TTL * 2).await;
                pair.thaw(node).expect("thawed");
            }
            Self::HandOver => {
                // A pair that is busy with the last fault may decline; then this round has none.
                if let Err(error) = pair.hand_over().await {
                    println!("no handover: {error:#}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as MONOLOCK_SOAK_MINUTES says, half an hour by default: `make soak`"]
async fn nothing_grows_under_sessions_and_faults() {
    let minutes: u64 = setting("MONOLOCK_SOAK_MINUTES", 30);
    let sessions = setting("MONOLOCK_SOAK_SESSIONS", 5_000);
    let mut rng = random::seeded();
    raise_descriptor_limit();
    let folder = TempDir::with_prefix("monolock-soak-").expect("a temporary folder can be made");
    let program = binaries::path("monolock-failover");
    let mut pair = Pair::start(&program, folder.path(), TTL, None).expect("the pair starts");
    pair.wait_until_healthy().await.expect("healthy");
    let clients = Clients::start(&pair::client(&pair).expect("a client"), sessions);
    let mut record = Record::default();
    let start = boot_now();
    let end = start + Duration::from_secs(minutes * 60);
    while boot_now() < end {
        let (active, _) = pair.wait_until_healthy().await.expect("healthy again");
        clients.settle().await;
        let state = if active == SURVIVOR {
            State::Active
        } else {
            State::Standby
        };
        let at = boot_now().saturating_duration_since(start);
        record.sample(state, at, pair.process_id(SURVIVOR).expect("it lives"));
        record.sample(State::Clients, at, std::process::id());
        let fault = Fault::choose(&mut rng);
        println!("{:>6.0} s  node {active} is active; {fault:?}", at.as_secs_f64());
        fault.inject(&mut pair).await;
    }
    println!("{record}\n{} grants", clients.grants());
    clients.assert_tokens_grew();
    record.assert_flat();
}

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    match env::var(name) {
        Err(_) => default,
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text}: not a number")),
    }
}

/// Each session is a descriptor of this process.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("up to the hard limit");
}
