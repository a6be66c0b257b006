//! The system as it is, through a few hundred seeds. `make simulate` plays thousands.
//!
//! `MONOLOCK_SEED=n` plays one seed and tells its story; `MONOLOCK_SEEDS=n` plays the first n.

use monolock_simulation::{Plan, Tally, run, shrink, story};

#[test]
fn no_law_is_broken() {
    let mut total = Tally::default();
    for seed in seeds() {
        let plan = Plan::draw(seed);
        let outcome = run(&plan, None);
        if let Some(breach) = outcome.breach {
            let story = story(&shrink(&plan, None), None);
            panic!("{}\n{breach}\nreplay with MONOLOCK_SEED={seed}", story.join("\n"));
        }
        total.add(&outcome.tally);
    }
    println!("{total}");
    assert!(
        total.takeovers_by_proof > 0 && total.handovers > 0 && total.stale_writes_refused > 0,
        "the simulation did nothing:\n{total}"
    );
}

#[test]
fn a_seed_determines_everything() {
    for seed in [3, 7, 1_227] {
        let plan = Plan::draw(seed);
        assert_eq!(plan, Plan::draw(seed));
        assert_eq!(run(&plan, None).digest, run(&plan, None).digest);
        assert_eq!(story(&plan, None), story(&plan, None));
        assert!(story(&plan, None).len() > 300, "seed {seed} tells something");
    }
    let digests = [1, 2].map(|seed| run(&Plan::draw(seed), None).digest);
    assert_ne!(digests[0], digests[1]);
}

/// A few seconds.
const DEFAULT_SEEDS: u64 = 400;

fn seeds() -> std::ops::Range<u64> {
    match (env("MONOLOCK_SEED"), env("MONOLOCK_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(DEFAULT_SEEDS),
    }
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
