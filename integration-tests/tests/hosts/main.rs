//! A pair on hosts of its own, with BIND, PostgreSQL and clients on others, through every fault that can be made between
//! them.
//!
//! One pair lives through all the scenarios of [`scenarios`]. Clients take locks and write guarded rows the whole time;
//! after each scenario everything they, the resource and the nodes wrote down is checked by
//! [`History`](monolock_integration_tests::history::History), which knows nothing of how the pair works.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `MONOLOCK_TEST_SCENARIOS=TEXT` | only the scenarios with TEXT in their name |
//! | `MONOLOCK_TEST_ROUNDS=N` | all of them N times, in an order drawn from the seed: combinations of one state with the next |

mod scenarios;
mod stage;

use std::env;

use monolock_clock::boot_now;
use monolock_integration_tests::random;
use scenarios::{Scenario, scenarios};
use stage::Stage;

const ONLY: &str = "MONOLOCK_TEST_SCENARIOS";
const ROUNDS: &str = "MONOLOCK_TEST_ROUNDS";

#[test]
fn a_pair_survives_every_fault_between_hosts() {
    let mut rng = random::seeded();
    let mut chosen = scenarios();
    if let Ok(text) = env::var(ONLY) {
        chosen.retain(|scenario| scenario.name.contains(&text));
        assert!(!chosen.is_empty(), "{ONLY}={text}: no scenario is called so");
    }
    let mut stage = Stage::new();
    match env::var(ROUNDS).map(|rounds| rounds.parse::<u32>()) {
        Err(_) => play(&mut stage, &chosen),
        Ok(Ok(rounds)) => {
            for _ in 0..rounds {
                rng.shuffle(&mut chosen);
                play(&mut stage, &chosen);
            }
        }
        Ok(Err(error)) => panic!("{ROUNDS}: {error}"),
    }
    stage.assert_that_stale_writes_were_refused();
}

fn play(stage: &mut Stage, chosen: &[Scenario]) {
    for scenario in chosen {
        let began = boot_now();
        println!("{} ...", scenario.name);
        scenario.play(stage);
        let took = boot_now().saturating_duration_since(began);
        println!("{}: {:.1} s", scenario.name, took.as_secs_f64());
    }
}
