//! A pair of real processes, seen by clients that speak the wire protocol byte by byte.
//!
//! No bound on time is asserted: what must happen is waited for, and what must not happen is told by the order of tokens
//! and by who answers.

#[path = "pair/confirmed.rs"]
mod confirmed;
#[path = "pair/unwitnessed.rs"]
mod unwitnessed;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolock_examples::pair::Pair;
use monolock_failover::core::NodeId;
use monolock_failover::journal::JournalLine;
use monolock_failover::peer::message::{NodeStatus, Role};
use monolock_integration_tests::raw_client::{RawClient, Received};
use monolock_integration_tests::wait::wait_for;
use monolock_integration_tests::{TempDir, binaries};
use monolock_protocol::frame::ServerFrame;
use monolock_protocol::{ErrorCode, Token};
use tokio::runtime::Runtime;

/// Long enough for a busy machine: a node that is starved for 0.8 of it gives its term up, as it should.
const TTL: Duration = Duration::from_secs(3);
/// One pair at a time, for the same reason.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// Without a live stream, a takeover holds every lock for this long.
const LEASE_MS: u32 = 5_000;

/// A pair with one active node, and a runtime to talk to it.
struct Fixture {
    runtime: Runtime,
    pair: Pair,
    folder: TempDir,
    active: NodeId,
    _turn: MutexGuard<'static, ()>,
}

impl Fixture {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(settings: &[(&'static str, &str)]) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = TempDir::with_prefix("monolock-pair-").expect("a temporary folder can be made");
        let runtime = Runtime::new().expect("a runtime starts");
        let program = binaries::path("monolock-failover");
        let pair = {
            let _entered = runtime.enter();
            let mut pair = Pair::prepare(&program, folder.path(), TTL).expect("there are ports");
            for node in [NodeId::A, NodeId::B] {
                for (variable, value) in settings {
                    pair.set(node, variable, *value);
                }
                pair.start_node(node).expect("it starts");
            }
            pair
        };
        let (active, _) = runtime.block_on(pair.wait_until_healthy()).expect("healthy");
        Self {
            runtime,
            pair,
            folder,
            active,
            _turn: turn,
        }
    }

    fn standby(&self) -> NodeId {
        self.active.peer()
    }

    fn wait_until_healthy(&self) -> NodeId {
        self.runtime
            .block_on(self.pair.wait_until_healthy())
            .expect("healthy again")
            .0
    }

    fn start(&mut self, node: NodeId) {
        let _entered = self.runtime.enter();
        self.pair.start_node(node).expect("it starts");
    }

    /// The token of a grant of this lock by this node, as soon as it serves.
    fn grant(&self, node: NodeId, lock: &str) -> (RawClient, Token) {
        let server = self.pair.lock_address(node);
        wait_for(&format!("a grant of {lock} by node {node}"), || {
            let mut client = RawClient::acquire(server, lock, LEASE_MS);
            loop {
                match client.receive() {
                    Received::Frame(ServerFrame::Acquired(token)) => return Some((client, token)),
                    Received::Frame(ServerFrame::Waiting) => {}
                    Received::Frame(ServerFrame::Error { .. }) | Received::End | Received::Broken(_) => {
                        return None;
                    }
                }
            }
        })
    }

    /// The token of a grant of this lock by whichever node serves.
    fn grant_of_either(&self, lock: &str) -> Token {
        wait_for(&format!("a grant of {lock} by either node"), || {
            [NodeId::A, NodeId::B].into_iter().find_map(|node| {
                let mut client = RawClient::acquire(self.pair.lock_address(node), lock, LEASE_MS);
                match client.receive() {
                    Received::Frame(ServerFrame::Acquired(token)) => Some(token),
                    Received::Frame(_) | Received::End | Received::Broken(_) => None,
                }
            })
        })
    }

    fn status(&self, node: NodeId) -> Option<NodeStatus> {
        let status = self.runtime.block_on(self.pair.status());
        let report = status.nodes.into_iter().find(|report| report.node == node)?;
        report.status
    }

    fn role(&self, node: NodeId) -> Option<Role> {
        self.status(node).map(|status| status.role)
    }

    fn wait_for_role(&self, node: NodeId, role: Role) {
        wait_for(&format!("node {node} to be {role:?}"), || {
            (self.role(node) == Some(role)).then_some(())
        });
    }

    fn journal(&self, node: NodeId) -> Vec<JournalLine> {
        self.pair.journal(node).expect("a journal")
    }

    fn step(&self, node: NodeId, step: &str) -> JournalLine {
        wait_for(&format!("node {node} to write down {step}"), || {
            self.journal(node)
                .into_iter()
                .rev()
                .find(|line| line.step == step)
        })
    }
}

#[test]
fn a_frozen_active_is_taken_over_by_silence_and_steps_down_when_it_wakes() {
    let mut fixture = Fixture::new();
    let (old, new) = (fixture.active, fixture.standby());
    let (mut holder, before) = fixture.grant(old, "free");
    fixture.pair.freeze(old).expect("frozen");
    let (_client, after) = fixture.grant(new, "another");
    assert!(after > before, "{after} after {before}");
    assert_eq!(
        fixture.step(new, "became_active").basis.as_deref(),
        Some("silence")
    );

    fixture.pair.thaw(old).expect("thawed");
    // What it has not noticed while it was frozen, it notices before it answers anybody.
    holder.heartbeat();
    holder.expect_error(ErrorCode::NotActive);
    let mut late = RawClient::acquire(fixture.pair.lock_address(old), "late", LEASE_MS);
    late.expect_error(ErrorCode::NotActive);
    fixture.step(old, "authority_lapsed");
    assert_eq!(fixture.wait_until_healthy(), new);
}

#[test]
fn the_standby_refuses_and_a_dead_standby_changes_nothing() {
    let mut fixture = Fixture::new();
    let mut refused = RawClient::acquire(fixture.pair.lock_address(fixture.standby()), "any", LEASE_MS);
    refused.expect_error(ErrorCode::NotActive);
    let (mut holder, token) = fixture.grant(fixture.active, "held");
    let standby = fixture.standby();
    fixture
        .runtime
        .block_on(fixture.pair.kill(standby))
        .expect("killed");
    // Longer than any authority that the standby's promises gave.
    for _ in 0..5 {
        std::thread::sleep(TTL / 2);
        holder.heartbeat();
        assert_eq!(holder.expect_acquired(), token);
    }
    assert_eq!(fixture.role(fixture.active), Some(Role::Active));
}

#[test]
fn a_node_that_is_asked_to_stop_hands_over_and_tells_its_sessions() {
    let mut fixture = Fixture::new();
    let (old, new) = (fixture.active, fixture.standby());
    let (mut holder, before) = fixture.grant(old, "free");
    fixture
        .runtime
        .block_on(fixture.pair.terminate(old))
        .expect("stopped");
    holder.expect_error(ErrorCode::ShuttingDown);
    let (_client, after) = fixture.grant(new, "another");
    assert!(after > before, "{after} after {before}");
    assert_eq!(
        fixture.step(new, "became_active").basis.as_deref(),
        Some("handover")
    );
}

/// It may switch a machine off.
#[test]
fn the_fence_command_is_for_a_peer_that_does_not_answer() {
    let mut fixture = Fixture::with(&[("MONOLOCK_FENCE_COMMAND", "true")]);
    let (first, second) = (fixture.active, fixture.standby());
    fixture
        .runtime
        .block_on(fixture.pair.hand_over())
        .expect("handed over");
    fixture.step(second, "fenced_by_peer_call");
    assert_eq!(fixture.wait_until_healthy(), second);

    fixture.pair.freeze(second).expect("frozen");
    fixture.step(first, "fenced_by_command");
    let ran_on_second = fixture
        .journal(second)
        .iter()
        .any(|line| line.step == "fenced_by_command");
    assert!(!ran_on_second, "its predecessor had answered");
    fixture.pair.thaw(second).expect("thawed");
}

#[test]
fn an_active_restarted_at_once_is_not_taken_for_itself() {
    let mut fixture = Fixture::new();
    let (mut tokens, mut active) = (Vec::new(), fixture.active);
    for round in 0..3 {
        tokens.push(fixture.grant(active, &format!("round-{round}")).1);
        fixture
            .runtime
            .block_on(fixture.pair.kill(active))
            .expect("killed");
        fixture.start(active);
        active = fixture.wait_until_healthy();
    }
    tokens.push(fixture.grant(active, "last").1);
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
}

#[test]
fn both_nodes_killed_and_started_at_once_have_one_active_and_larger_tokens() {
    let mut fixture = Fixture::new();
    let (_client, before) = fixture.grant(fixture.active, "free");
    for node in [NodeId::A, NodeId::B] {
        fixture.runtime.block_on(fixture.pair.kill(node)).expect("killed");
    }
    for node in [NodeId::A, NodeId::B] {
        fixture.start(node);
    }
    let active = fixture.wait_until_healthy();
    let (_client, after) = fixture.grant(active, "another");
    assert!(after > before, "{after} after {before}");
    assert_eq!(fixture.role(active.peer()), Some(Role::Standby));
}

#[test]
fn two_fresh_nodes_go_on_above_what_the_witness_remembers() {
    let mut fixture = Fixture::new();
    let (_client, before) = fixture.grant(fixture.active, "free");
    for node in [NodeId::A, NodeId::B] {
        fixture.runtime.block_on(fixture.pair.kill(node)).expect("killed");
        std::fs::remove_file(fixture.pair.file(node, "state")).expect("a state file");
    }
    for node in [NodeId::A, NodeId::B] {
        fixture.start(node);
    }
    let active = fixture.wait_until_healthy();
    let (_client, after) = fixture.grant(active, "another");
    assert!(after > before, "{after} after {before}");
}

/// A busy machine makes such a pair lapse again and again. Then nobody serves for a while; order is kept all the same.
#[test]
fn with_the_shortest_authority_period_tokens_stay_in_order() {
    let mut fixture = Fixture::with(&[("MONOLOCK_AUTHORITY_TTL", "300ms")]);
    let mut tokens = Vec::new();
    for round in 0..4 {
        let frozen = fixture.wait_until_healthy();
        tokens.push(fixture.grant_of_either(&format!("before-{round}")));
        fixture.pair.freeze(frozen).expect("frozen");
        tokens.push(fixture.grant(frozen.peer(), &format!("during-{round}")).1);
        fixture.pair.thaw(frozen).expect("thawed");
        tokens.push(fixture.grant_of_either(&format!("after-{round}")));
    }
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
}

#[test]
fn without_the_witness_the_pair_goes_on_serving_and_without_both_voices_nobody_does() {
    let mut fixture = Fixture::new();
    let (active, standby) = (fixture.active, fixture.standby());
    let (mut holder, token) = fixture.grant(active, "held");
    let witness = fixture.folder.path().join("witness");
    // Somebody put something else in its place: it can be neither read nor swapped.
    std::fs::write(&witness, "not a record").expect("written");
    for _ in 0..5 {
        std::thread::sleep(TTL / 2);
        holder.heartbeat();
        assert_eq!(holder.expect_acquired(), token, "the peer's promise carries it");
    }
    fixture
        .runtime
        .block_on(fixture.pair.kill(standby))
        .expect("killed");
    fixture.step(active, "authority_lapsed");
    holder.heartbeat();
    holder.expect_error(ErrorCode::NotActive);
    assert_not_a_record(&witness);

    // The operator removes what does not belong there.
    std::fs::remove_file(&witness).expect("removed");
    fixture.start(standby);
    let active = fixture.wait_until_healthy();
    let (_client, after) = fixture.grant(active, "another");
    assert!(
        after > token,
        "both nodes remember the floor: {after} after {token}"
    );
}

fn assert_not_a_record(witness: &Path) {
    let text = std::fs::read_to_string(witness).expect("it is there");
    assert_eq!(text, "not a record", "what no node wrote is left alone");
}

#[test]
fn a_witness_that_was_set_back_is_noticed_and_written_over() {
    let mut fixture = Fixture::new();
    let witness = fixture.folder.path().join("witness");
    let old_record = std::fs::read(&witness).expect("a record");
    let (_client, before) = fixture.grant(fixture.active, "free");
    // A later term, and then the backup of an earlier one.
    fixture
        .runtime
        .block_on(fixture.pair.hand_over())
        .expect("handed over");
    let active = fixture.wait_until_healthy();
    std::fs::write(&witness, old_record).expect("restored");
    fixture.step(active, "witness_went_back");
    let (_client, after) = fixture.grant(active, "another");
    assert!(after > before, "{after} after {before}");
    fixture
        .runtime
        .block_on(fixture.pair.kill(active))
        .expect("killed");
    let (_client, last) = fixture.grant(active.peer(), "last");
    assert!(last > after, "{last} after {after}");
    fixture.start(active);
    assert_eq!(fixture.wait_until_healthy(), active.peer());
    fixture.wait_for_role(active, Role::Standby);
}
