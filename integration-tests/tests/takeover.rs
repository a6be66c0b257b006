//! The claims of the demo as assertions: a pair, two workers, and a resource that refuses a stale write, with real
//! processes that are killed and frozen.

use std::time::Duration;

use monolock_examples::ledger::Database;
use monolock_examples::takeover::{self, Options};
use monolock_integration_tests::binaries;
use monolock_integration_tests::postgres::Postgres;

/// Plays the story of the demo; its lines are printed when a claim did not hold.
fn play(database: Option<Database>, witness: Option<String>) {
    let options = Options {
        failover: binaries::path("monolock-failover"),
        worker: binaries::path("demo_worker"),
        database,
        witness,
        // Long enough for a busy machine, as in `pair.rs`.
        ttl: Duration::from_secs(3),
        lease: Duration::from_secs(4),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let mut story = Vec::new();
    let played = runtime.block_on(takeover::run(&options, &mut |line| story.push(line.to_owned())));
    let report = match played {
        Ok(report) => report,
        Err(error) => panic!("{}\n{error:#}", story.join("\n")),
    };
    println!("{report}");
    assert!(report.holds(), "{}\n{report}", story.join("\n"));
    assert!(report.claims.len() >= 14, "a claim was not made:\n{report}");
    assert!(
        report.refused >= 2 && report.accepted > report.refused,
        "{report}"
    );
}

#[test]
fn every_claim_of_the_demo_holds_with_a_sqlite_file() {
    play(None, None);
}

#[test]
fn every_claim_of_the_demo_holds_with_postgresql_as_the_resource_and_as_the_witness() {
    let (resource, witness) = (Postgres::start(), Postgres::start());
    let database = resource.url().parse().expect("a ledger");
    play(Some(database), Some(witness.url().to_owned()));
}
