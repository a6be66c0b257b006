//! Nodes whose clocks are wrong, and what becomes of their tokens.

use monolock_clock::{boot_now, wall_now};
use monolock_failover::clock::VerdictWord;
use monolock_failover::core::NodeId;
use monolock_failover::peer::message::Role;
use monolock_integration_tests::wait::wait_until;
use monolock_protocol::Token;

use crate::chrony::Chrony;
use crate::node::{Node, Plan};

const HOUR: i64 = 3_600;
/// Far more than a test takes, far less than an hour.
const MINUTES: u64 = 600;

fn time_servers() -> [Chrony; 3] {
    [Chrony::honest(), Chrony::honest(), Chrony::honest()]
}

/// How far the token's second is ahead of the true time.
fn seconds_ahead(token: Token) -> i64 {
    i64::try_from(token.epoch_seconds()).unwrap() - i64::try_from(wall_now().unix_seconds()).unwrap()
}

#[track_caller]
fn assert_follows_true_time(token: Token) {
    assert!(
        seconds_ahead(token).unsigned_abs() < MINUTES,
        "{}",
        seconds_ahead(token)
    );
}

/// Until more was reserved, twice at least: whatever the node believes of its clock by now is in what it may grant.
fn wait_for_renewals(node: &Node) {
    let reserved = node.status().unwrap().floor.epoch_seconds();
    node.wait_until("more to be reserved", |status| {
        status.floor.epoch_seconds() >= reserved + 2
    });
}

#[test]
fn a_first_start_by_a_clock_an_hour_ahead_waits_says_why_and_begins_when_it_is_set_right() {
    let servers = time_servers();
    let plan = Plan::new(&servers);
    let before = boot_now();
    let node = plan.start(NodeId::A, HOUR, &[]);
    let waiting = node.wait_until("a node that waits for a clock", |status| {
        status
            .reason
            .as_ref()
            .is_some_and(|reason| reason.contains("a first start needs a clock") && reason.contains("ahead"))
    });
    assert_eq!(waiting.role, Role::Standby);
    let clock = waiting.clock.unwrap();
    assert_eq!(clock.verdict, VerdictWord::Suspect, "{clock}");
    assert!(
        clock.servers.iter().all(|server| server.measured.is_some()),
        "{clock}"
    );
    // The fake moves the wall clock and nothing else.
    let wall_seconds = waiting.wall_nanos / 1_000_000_000;
    assert!(wall_seconds > wall_now().unix_seconds() + 3_600 - MINUTES);
    assert!((before.as_nanos()..boot_now().as_nanos()).contains(&waiting.boot_nanos));

    node.time.set(0);
    node.wait_for_role(Role::Active);
    assert_follows_true_time(node.grant("first"));
}

#[test]
fn where_no_time_server_answers_a_first_start_waits_for_the_operators_word() {
    let plan = Plan::new(&[]);
    let gone = [("MONOLOCK_NTP_SERVERS", "127.0.0.1:1")];
    let node = plan.start(NodeId::A, 0, &gone);
    let waiting = node.wait_until("a node that waits for a clock", |status| {
        status
            .reason
            .as_ref()
            .is_some_and(|reason| reason.contains("MONOLOCK_TRUST_CLOCK"))
    });
    let clock = waiting.clock.unwrap();
    assert_eq!(clock.verdict, VerdictWord::Unknown, "{clock}");
    assert!(
        clock.servers[0]
            .problem
            .as_ref()
            .unwrap()
            .contains("nothing listens"),
        "{clock}"
    );
    node.kill();

    let node = plan.start(NodeId::A, 0, &[gone[0], ("MONOLOCK_TRUST_CLOCK", "on")]);
    node.wait_for_role(Role::Active);
    assert_follows_true_time(node.grant("first"));
}

#[test]
fn without_time_servers_a_first_start_believes_its_clock() {
    let plan = Plan::new(&[]);
    let node = plan.start(NodeId::A, -HOUR, &[]);
    let status = node.wait_for_role(Role::Active);
    let clock = status.clock.unwrap();
    assert_eq!(clock.verdict, VerdictWord::Unknown, "{clock}");
    assert!(clock.reason.contains("no time servers are configured"), "{clock}");
    let behind = seconds_ahead(node.grant("first")) + HOUR;
    assert!(behind.unsigned_abs() < MINUTES, "{behind}");
}

#[test]
fn tokens_follow_no_leap_and_rise_through_a_takeover_by_a_standby_with_a_wrong_clock() {
    let servers = time_servers();
    let plan = Plan::new(&servers);
    let a = plan.start(NodeId::A, 0, &[]);
    a.wait_for_role(Role::Active);
    let b = plan.start(NodeId::B, -HOUR, &[]);
    let standby = b.wait_until("a standby that is ready", |status| status.ready_for_handover);
    assert_eq!(standby.role, Role::Standby);
    b.wait_for_verdict(VerdictWord::Suspect);
    a.wait_for_verdict(VerdictWord::Synced);
    let mut tokens = vec![a.grant("synced")];

    a.time.set(HOUR);
    let leapt = a.wait_for_verdict(VerdictWord::Suspect);
    assert!(leapt.clock.unwrap().steps >= 1);
    tokens.push(a.grant("leapt"));
    wait_for_renewals(&a);
    a.wait_until("the servers to say so, too", |status| {
        status
            .clock
            .as_ref()
            .is_some_and(|clock| clock.reason.contains("ahead"))
    });
    tokens.push(a.grant("still ahead"));

    a.kill();
    b.wait_for_role(Role::Active);
    tokens.push(b.grant("taken over"));
    let suspect = b.wait_for_verdict(VerdictWord::Suspect).clock.unwrap();
    assert!(suspect.reason.contains("behind"), "{suspect}");
    // What the successor grants, and that it steps while it serves, changes nothing about the order.
    b.time.set(2 * HOUR);
    wait_until("the step to be seen", || {
        b.status()
            .and_then(|status| status.clock)
            .is_some_and(|clock| clock.steps > suspect.steps)
    });
    wait_for_renewals(&b);
    tokens.push(b.grant("stepped"));
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
    tokens.into_iter().for_each(assert_follows_true_time);
}

#[test]
fn tokens_that_lag_behind_catch_up_once_the_clock_is_synced() {
    let servers = time_servers();
    let plan = Plan::new(&servers);
    let node = plan.start(NodeId::A, -HOUR, &[("MONOLOCK_TRUST_CLOCK", "on")]);
    node.wait_for_role(Role::Active);
    let late = node.grant("late");
    assert!(seconds_ahead(late) < -HOUR + 600, "{}", seconds_ahead(late));
    node.wait_for_verdict(VerdictWord::Suspect);

    node.time.set(0);
    node.wait_for_verdict(VerdictWord::Synced);
    let mut number = 0;
    wait_until("tokens of the true time", || {
        number += 1;
        seconds_ahead(node.grant(&format!("caught up {number}"))) > -60
    });
    let token = node.grant("last");
    assert!(token > late);
    assert_follows_true_time(token);
}
