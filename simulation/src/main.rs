//! Plays seeds, many at a time, and tells the story of one that fails.
//!
//! ```text
//! simulation                          seeds 0..10000 on every core
//! simulation --seeds 500..900         these
//! simulation --seed 42                one, with its story
//! simulation --mutation table:FirstInFirstOut [--seeds ..]   until it is caught
//! simulation --mutations TEXT         the table of the mutations whose names contain it; all: ""
//! ```

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use monolock_simulation::{Mutation, Plan, Tally, run, shrink, story};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // A panic is a finding, told with its seed; its own message would only be in the way.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(name_part) = &options.table {
        return table(options.seeds, name_part);
    }
    if options.tells_story {
        return tell(options.seeds.start, options.mutation);
    }
    play(options.seeds, options.mutation)
}

const USAGE: &str = "usage: simulation [--seed N | --seeds FROM..TO] [--mutation NAME | --mutations TEXT]";

struct Options {
    seeds: Range<u64>,
    tells_story: bool,
    mutation: Option<Mutation>,
    table: Option<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seeds: 0..10_000,
            tells_story: false,
            mutation: None,
            table: None,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--seed" => {
                    let seed = number(&value()?)?;
                    options.seeds = seed..seed + 1;
                    options.tells_story = true;
                }
                "--seeds" => options.seeds = range(&value()?)?,
                "--mutation" => options.mutation = Some(value()?.parse()?),
                "--mutations" => options.table = Some(value()?),
                _ => return Err(format!("what is {argument:?}?")),
            }
        }
        Ok(options)
    }
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or(format!("{text:?} is no range"))?;
    Ok(number(from)?..number(to)?)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

/// Plays each seed, on every core; stops at the first that fails.
fn play(seeds: Range<u64>, mutation: Option<Mutation>) -> ExitCode {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicBool::new(false);
    let total = Mutex::new((Tally::default(), None::<u64>));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = run(&Plan::draw(seed), mutation);
                    let mut total = total.lock().expect("no thread panics with it");
                    total.0.add(&outcome.tally);
                    if outcome.breach.is_some() {
                        failed.store(true, Ordering::Relaxed);
                        total.1 = Some(total.1.map_or(seed, |first| first.min(seed)));
                    }
                }
            });
        }
    });
    let (tally, failure) = total.into_inner().expect("no thread panics with it");
    print!("{tally}");
    match failure {
        None => {
            println!("seeds {}..{}: no law is broken", seeds.start, seeds.end);
            ExitCode::SUCCESS
        }
        Some(seed) => {
            println!("seed {seed} breaks a law:\n");
            tell(seed, mutation)
        }
    }
}

/// Tells what happens in one seed; the smallest plan that fails, if it fails.
fn tell(seed: u64, mutation: Option<Mutation>) -> ExitCode {
    let plan = Plan::draw(seed);
    let fails = run(&plan, mutation).breach.is_some();
    let smallest = if fails {
        shrink(&plan, mutation)
    } else {
        plan.clone()
    };
    println!("{:?}", smallest.weather);
    if fails {
        println!(
            "{} of {} faults are enough:",
            smallest.strikes.len(),
            plan.strikes.len()
        );
    }
    for line in story(&smallest, mutation) {
        println!("{line}");
    }
    println!("\nreplay: simulation --seed {seed}{}", of(mutation));
    if fails {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn of(mutation: Option<Mutation>) -> String {
    mutation.map_or(String::new(), |mutation| format!(" --mutation {mutation}"))
}

/// For each mutation the first seed that catches it, and by which law.
fn table(seeds: Range<u64>, name_part: &str) -> ExitCode {
    let mut missed = 0;
    println!("| mutation | first seed that catches it | law |\n| --- | --- | --- |");
    for mutation in Mutation::all().filter(|mutation| mutation.to_string().contains(name_part)) {
        let caught = seeds.clone().find_map(|seed| {
            let breach = run(&Plan::draw(seed), Some(mutation)).breach?;
            Some((seed, breach))
        });
        match caught {
            Some((seed, breach)) => println!("| `{mutation}` | {seed} | {} |", breach.law.name()),
            None => {
                missed += 1;
                println!(
                    "| `{mutation}` | not within {} seeds | |",
                    seeds.end - seeds.start
                );
            }
        }
    }
    if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
