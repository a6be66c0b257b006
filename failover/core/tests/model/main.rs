//! Two watchdogs and a witness, as they are, in every order of a bounded number of faults.
//!
//! Time moves in sixths of a period. Between two ticks messages arrive at once and in order, unless one is delayed;
//! that, a cut link, a crash and a freeze cost one fault each, and their end is free and may come at any time. A
//! [`Course`] says which faults there are, how many, and for how long. Within that bound nothing is left out.
//!
//! `MONOLOCK_MODEL_DEPTH=n` gives every course of [`SAFE`] n more faults.

mod pair;

use monolock_failover_core::rules::Rule;
use pair::Fault::{Break, Crash, Cut, Freeze, Handover, Lie, SlowDisk, SlowPeer, SlowWitness};
use pair::{Course, Pair};
use stateright::{Checker, HasDiscoveries, Model};

/// What the pair is put through with all its rules.
const SAFE: [Course; 10] = [
    Course::new("cut links, slow messages", &[Cut, SlowWitness, SlowPeer], 2, 10),
    Course::new(
        "crashes, slow messages",
        &[Crash, SlowWitness, SlowPeer, SlowDisk],
        2,
        12,
    ),
    Course::new("crashes, cut links", &[Crash, Cut, SlowDisk], 2, 12),
    Course::new("freezes, cut links", &[Freeze, Cut, SlowPeer], 2, 12),
    Course::new("handovers", &[Handover, SlowWitness, SlowPeer, Crash], 2, 12),
    Course::new("streams that break", &[Break, Cut, Crash], 2, 12),
    Course::new("refusals that lie", &[Break, Lie, Cut], 3, 12),
    Course::new(
        "recovery from cuts and freezes",
        &[Cut, Freeze, SlowWitness],
        2,
        6,
    )
    .then_calm(),
    Course::new("recovery from crashes", &[Crash, SlowDisk, SlowPeer], 2, 6).then_calm(),
    Course::new("recovery from handovers", &[Handover, Cut, SlowWitness], 2, 6).then_calm(),
];

#[test]
fn one_active_and_tokens_in_order_whatever_happens_in_which_order() {
    let deeper = std::env::var("MONOLOCK_MODEL_DEPTH").map_or(0, |depth| depth.parse().expect("a number"));
    for mut course in SAFE {
        course.faults += deeper;
        let checker = Pair::new(course, None).checker().threads(2).spawn_dfs().join();
        println!(
            "{}: {} states, depth {}",
            course.name,
            checker.unique_state_count(),
            checker.max_depth()
        );
        for (name, path) in checker.discoveries() {
            assert_eq!(name, "a takeover", "{}: {:?}", course.name, path.into_actions());
        }
        assert!(
            checker.discovery("a takeover").is_some(),
            "{}: nothing happened",
            course.name
        );
    }
}

#[test]
fn every_rule_has_a_counterexample_without_it() {
    let wanted = std::env::var("MONOLOCK_RULE").ok();
    let mut not_missed = Vec::new();
    for (rule, course) in WITHOUT {
        if wanted.as_ref().is_some_and(|name| *name != format!("{rule:?}")) {
            continue;
        }
        let checker = Pair::new(course, Some(rule))
            .checker()
            .threads(2)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let mut discoveries = checker.discoveries();
        discoveries.remove("a takeover");
        let Some((name, path)) = discoveries.into_iter().next() else {
            not_missed.push((rule, checker.unique_state_count()));
            continue;
        };
        println!(
            "{rule:?}: against \"{name}\" after {} states:",
            checker.unique_state_count()
        );
        println!("    {}", pair::retold(&path.into_actions()));
    }
    assert_eq!(not_missed, [], "nothing goes wrong without these rules");
}

/// A script in which a rule is missed. The other rules are missed in the simulation.
const WITHOUT: [(Rule, Course); 16] = [
    (
        Rule::PromiseCountsFromSending,
        Course::script(&[SlowPeer, Cut, Cut]),
    ),
    (
        Rule::RenewalCountsFromSending,
        Course::script(&[SlowWitness, Cut, Cut]),
    ),
    (
        Rule::TakeoverCountsFromSending,
        Course::script(&[Crash, SlowWitness, Cut]),
    ),
    (
        Rule::NoPromiseDuringTakeover,
        Course::script(&[Break, Lie, SlowWitness]),
    ),
    (Rule::LapsedTermIsOver, Course::script(&[Cut, SlowPeer, Freeze])),
    (Rule::OwnTermIsNotTakenUpAgain, Course::script(&[Cut, Cut])),
    (Rule::WatchAfterStart, Course::script(&[Crash, Crash])),
    (Rule::PromiseIsKept, Course::script(&[Cut])),
    (
        Rule::PromiseIsDurable,
        Course::script(&[Cut, SlowDisk, Crash, Crash]),
    ),
    (
        Rule::GateIsDurable,
        Course::script(&[Cut, Cut, Break, Lie, SlowDisk, Cut, Crash]),
    ),
    (
        Rule::NewLifeIsAskedAfter,
        Course::script(&[Break, SlowPeer, Crash, Cut, Cut]),
    ),
    (
        Rule::NoPromiseBelowLargestTerm,
        Course::script(&[SlowPeer, Handover, Handover]),
    ),
    (Rule::ProofBelongsToOneRecord, Course::script(&[Cut, Crash])),
    (Rule::HandoverIsForOneLife, Course::script(&[Crash, Crash])),
    (Rule::EveryFloorCounts, Course::script(&[Cut, Crash])),
    (Rule::CeilingIsAcknowledged, Course::script(&[Cut, Cut])),
];
