//! Every deliberate bug is caught, by a seed that is known to show it.
//!
//! A change of the plans or of the world moves the seeds: `simulation --mutations ""` prints the table anew.

use std::collections::BTreeSet;

use monolock_client_core::rules::Rule as ClientRule;
use monolock_core::rules::Rule as TableRule;
use monolock_failover_core::rules::Rule as WatchdogRule;
use monolock_simulation::{Law, Mutation, Plan, Slip, run, shrink, story};

#[test]
fn every_mutation_is_caught() {
    let mut missed = Vec::new();
    for (mutation, known) in CAUGHT_AT {
        let caught = std::iter::once(known).chain(0..MOST_SEEDS).find_map(|seed| {
            let breach = run(&Plan::draw(seed), Some(mutation)).breach?;
            Some((seed, breach.law))
        });
        match caught {
            Some((seed, law)) => println!("{mutation}: seed {seed}, {}", law.name()),
            None => missed.push(mutation),
        }
    }
    assert_eq!(missed, [], "nothing goes wrong with these bugs");
}

/// A watchdog's rule that is missing here is missed in its own simulation, which goes beyond the bounds of the promises
/// and holds a watchdog to its words; nothing else may be missing.
#[test]
fn only_second_lines_of_the_watchdog_are_left_to_its_own_simulation() {
    let listed: BTreeSet<_> = CAUGHT_AT.into_iter().map(|(mutation, _)| mutation).collect();
    let left_out: BTreeSet<_> = Mutation::all()
        .filter(|mutation| !listed.contains(mutation))
        .collect();
    assert_eq!(left_out, LEFT_TO_THE_WATCHDOG.map(Mutation::Watchdog).into());
}

/// What the laws say of a bug, where several could.
#[test]
fn a_bug_breaks_the_law_that_it_should() {
    for (mutation, seed, law) in [
        (
            Mutation::Table(TableRule::FirstInFirstOut),
            0,
            Law::FirstInFirstOut,
        ),
        (Mutation::Table(TableRule::TokensStartAtFloor), 1, Law::TokenOrder),
        (Mutation::Slip(Slip::EtagOfBytesOnly), 0, Law::NoStaleWrite),
        (
            Mutation::Slip(Slip::ClientClockStopsWhenSuspended),
            13,
            Law::Exclusion,
        ),
    ] {
        let breach = run(&Plan::draw(seed), Some(mutation)).breach;
        assert_eq!(breach.map(|breach| breach.law), Some(law), "{mutation}");
    }
}

#[test]
fn a_plan_that_fails_is_made_smaller_and_fails_in_the_same_way() {
    let mutation = Some(Mutation::Table(TableRule::BrokenHolderKeepsGrace));
    let plan = Plan::draw(114);
    let smaller = shrink(&plan, mutation);
    assert!(smaller.strikes.len() < plan.strikes.len());
    let law = |plan| run(plan, mutation).breach.map(|breach| breach.law);
    assert_eq!(law(&smaller), law(&plan));
    let story = story(&smaller, mutation);
    assert!(
        story
            .last()
            .is_some_and(|line| line.starts_with("exclusion is broken"))
    );
}

/// As many are tried for a mutation whose known seed shows nothing.
const MOST_SEEDS: u64 = 2_000;

/// Each mutation that the laws catch, with a seed that shows it.
const CAUGHT_AT: [(Mutation, u64); 31] = [
    (Mutation::Watchdog(WatchdogRule::PromiseCountsFromSending), 201),
    (Mutation::Watchdog(WatchdogRule::TakeoverCountsFromSending), 1131),
    (Mutation::Watchdog(WatchdogRule::LapsedTermIsOver), 35),
    (Mutation::Watchdog(WatchdogRule::OwnTermIsNotTakenUpAgain), 1),
    (Mutation::Watchdog(WatchdogRule::PromiseIsKept), 35),
    (Mutation::Watchdog(WatchdogRule::ProofBelongsToOneRecord), 15),
    (Mutation::Watchdog(WatchdogRule::NewLifeIsAskedAfter), 261),
    (Mutation::Watchdog(WatchdogRule::HandoverIsForOneLife), 0),
    (Mutation::Watchdog(WatchdogRule::EveryFloorCounts), 14),
    (Mutation::Watchdog(WatchdogRule::OutcomeIsOfItsOperation), 549),
    (Mutation::Table(TableRule::FirstInFirstOut), 0),
    (Mutation::Table(TableRule::GateDeadlineIsChecked), 0),
    (Mutation::Table(TableRule::GraceIsKept), 8),
    (Mutation::Table(TableRule::TokensStayBelowCeiling), 1),
    (Mutation::Table(TableRule::TokensStartAtFloor), 1),
    (Mutation::Table(TableRule::WallClockIsDoubted), 1),
    (Mutation::Table(TableRule::ClaimIdDiesWithClaim), 6),
    (Mutation::Table(TableRule::HeartbeatRenewsLease), 0),
    (Mutation::Table(TableRule::BrokenHolderKeepsGrace), 114),
    (Mutation::Table(TableRule::SnapshotHasGraces), 2137),
    (Mutation::Client(ClientRule::ConfirmedFromSending), 42),
    (Mutation::Client(ClientRule::PushAnswersNothing), 0),
    (Mutation::Client(ClientRule::DeadlineIsCheckedFirst), 13),
    (Mutation::Client(ClientRule::SafeTimeCountsClockRates), 20),
    (Mutation::Slip(Slip::ClientClockStopsWhenSuspended), 13),
    (Mutation::Slip(Slip::NodeClockStopsWhenSuspended), 1),
    (Mutation::Slip(Slip::ClosesBeforeWorkHasStopped), 6),
    (Mutation::Slip(Slip::EtagOfBytesOnly), 0),
    (Mutation::Slip(Slip::StateFileIsNotSynced), 411),
    (Mutation::Slip(Slip::WallClockIsNotChecked), 1),
    (Mutation::Slip(Slip::OneTimeServerDecides), 0),
];

/// The laws of the whole system do not see these within a thousand seeds, or only beyond the bounds of the promises.
const LEFT_TO_THE_WATCHDOG: [WatchdogRule; 14] = [
    WatchdogRule::RenewalCountsFromSending,
    WatchdogRule::NoPromiseDuringTakeover,
    WatchdogRule::WatchAfterStart,
    WatchdogRule::PromiseIsDurable,
    WatchdogRule::GateIsDurable,
    WatchdogRule::NoPromiseBelowLargestTerm,
    WatchdogRule::NoPromiseToTheDead,
    WatchdogRule::ProofNeedsReadingAfter,
    WatchdogRule::AnswerVoidsProof,
    WatchdogRule::OldRecordEndsNothing,
    WatchdogRule::CeilingIsAcknowledged,
    WatchdogRule::GapStartsTheWaitAgain,
    WatchdogRule::ReadingIsRecent,
    WatchdogRule::RenewalNeedsTheTable,
];
