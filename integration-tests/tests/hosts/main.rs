//! A pair on hosts of its own, with BIND, PostgreSQL, chronyd and clients on others, through every fault that can be made between
//! them.
//!
//! One pair lives through all the scenarios of [`scenarios::all`]. Clients take locks and write guarded rows the whole time;
//! after each scenario everything they, the resource and the nodes wrote down is checked by
//! [`History`](monolock_integration_tests::history::History), which knows nothing of how the pair works.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `MONOLOCK_TEST_SCENARIOS=TEXT` | only the scenarios with TEXT in their name |
//! | `MONOLOCK_TEST_SCENARIO_ROUNDS=N` | all of them N times, in an order drawn from the seed: combinations of one state with the next |

mod scenarios;
mod stage;

use std::env;
use std::sync::{Mutex, PoisonError};

use monolock_clock::boot_now;
use monolock_integration_tests::random;
use scenarios::Scenario;
use stage::{Stage, Voice};

const ONLY: &str = "MONOLOCK_TEST_SCENARIOS";
const ROUNDS: &str = "MONOLOCK_TEST_SCENARIO_ROUNDS";

/// One pair at a time: starved nodes give up their terms.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn a_pair_survives_every_fault_between_hosts() {
    play_on(Voice::Row, scenarios::all());
}

#[test]
fn a_pair_whose_witness_is_in_dns_survives_what_befalls_it() {
    play_on(Voice::Record, scenarios::with_the_witness_in_dns());
}

fn play_on(voice: Voice, mut chosen: Vec<Scenario>) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rng = random::seeded();
    if let Ok(text) = env::var(ONLY) {
        chosen.retain(|scenario| scenario.name.contains(&text));
        if chosen.is_empty() {
            println!("{ONLY}={text}: no scenario for this pair is called so");
            return;
        }
    }
    let mut stage = Stage::new(voice);
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
