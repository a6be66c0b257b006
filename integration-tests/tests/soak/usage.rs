//! What a process uses, over time, and whether that grows.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::Duration;

/// In what state a process was when it was looked at; only like is compared with like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Active,
    Standby,
    Clients,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    memory_kib: f64,
    descriptors: f64,
    threads: f64,
}

/// The samples of a run.
#[derive(Debug, Default)]
pub(crate) struct Record(BTreeMap<State, Vec<Sample>>);

/// One column of the table, and how much it may grow over the judged part of a run: a share of its mean, and some more.
struct Column {
    name: &'static str,
    value: fn(&Sample) -> f64,
    share: f64,
    more: f64,
}

const COLUMNS: [Column; 3] = [
    Column {
        name: "memory/KiB",
        value: |sample| sample.memory_kib,
        share: 0.10,
        more: 8_192.0,
    },
    Column {
        name: "descriptors",
        value: |sample| sample.descriptors,
        share: 0.02,
        more: 16.0,
    },
    Column {
        name: "threads",
        value: |sample| sample.threads,
        share: 0.0,
        more: 4.0,
    },
];

/// The first part of a run fills caches and pools.
const WARM_UP: f64 = 1.0 / 3.0;
/// Fewer samples say nothing about a slope.
const FEWEST_SAMPLES: usize = 4;

impl Record {
    pub(crate) fn sample(&mut self, state: State, at: Duration, process: u32) {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process lives");
        let field = |name: &str| -> f64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.and_then(|number| number.parse().ok()).expect("a number")
        };
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("the process is ours");
        self.0.entry(state).or_default().push(Sample {
            at,
            memory_kib: field("VmRSS:"),
            descriptors: descriptors.count() as f64,
            threads: field("Threads:"),
        });
    }

    /// # Panics
    ///
    /// When something grows, or too little was seen to tell for any but a very short run.
    pub(crate) fn assert_flat(&self) {
        let growths: Vec<_> = self.growths().collect();
        assert!(
            growths.iter().any(|growth| growth.state == State::Clients),
            "too few samples to tell a slope: let it run longer"
        );
        let grown: Vec<_> = growths
            .iter()
            .filter(|growth| growth.amount > growth.allowed)
            .collect();
        assert!(grown.is_empty(), "grown: {grown:?}");
    }

    fn growths(&self) -> impl Iterator<Item = Growth> + '_ {
        self.0.iter().flat_map(|(state, samples)| {
            let judged = judged(samples);
            COLUMNS.iter().filter_map(move |column| {
                let points: Vec<_> = judged
                    .iter()
                    .map(|sample| (sample.at.as_secs_f64(), (column.value)(sample)))
                    .collect();
                let mean = points.iter().map(|(_, value)| value).sum::<f64>() / points.len() as f64;
                (points.len() >= FEWEST_SAMPLES).then(|| Growth {
                    state: *state,
                    column: column.name,
                    amount: growth(&points),
                    allowed: mean * column.share + column.more,
                })
            })
        })
    }
}

/// By how much a value grew over the judged part of a run, and may have grown.
#[derive(Debug)]
struct Growth {
    state: State,
    column: &'static str,
    amount: f64,
    allowed: f64,
}

/// The samples after the warm-up.
fn judged(samples: &[Sample]) -> &[Sample] {
    let end = samples.last().map_or(Duration::ZERO, |sample| sample.at);
    let warm = samples.partition_point(|sample| sample.at < end.mul_f64(WARM_UP));
    &samples[warm..]
}

/// The median of the slopes between any two points, times the time between the first point and the last: a few samples
/// taken while some clients were still on their way back do not tilt it.
fn growth(points: &[(f64, f64)]) -> f64 {
    let slopes = points.iter().enumerate().flat_map(|(index, (x, y))| {
        let later = &points[index + 1..];
        later
            .iter()
            .filter(move |(later_x, _)| later_x > x)
            .map(move |(later_x, later_y)| (later_y - y) / (later_x - x))
    });
    let mut slopes: Vec<_> = slopes.collect();
    slopes.sort_by(f64::total_cmp);
    let median = slopes.get(slopes.len() / 2).copied().unwrap_or(0.0);
    median * (points[points.len() - 1].0 - points[0].0)
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<8} {:>7} {:>12} {:>12} {:>8}",
            "state", "at/s", "memory/KiB", "descriptors", "threads"
        )?;
        for (state, samples) in &self.0 {
            for sample in samples {
                let (at, state) = (sample.at.as_secs(), format!("{state:?}"));
                let Sample {
                    memory_kib,
                    descriptors,
                    threads,
                    ..
                } = sample;
                writeln!(
                    f,
                    "{state:<8} {at:>7} {memory_kib:>12} {descriptors:>12} {threads:>8}"
                )?;
            }
        }
        for Growth {
            state,
            column,
            amount,
            allowed,
        } in self.growths()
        {
            writeln!(
                f,
                "{state:?}: {column} grew by {amount:.0}, allowed are {allowed:.0}"
            )?;
        }
        Ok(())
    }
}

#[test]
fn what_grows_is_found_and_what_wavers_is_not() {
    let record = |memory: fn(u64) -> f64| {
        let samples = (0..30).map(|minute| Sample {
            at: Duration::from_secs(60 * minute),
            memory_kib: memory(minute),
            descriptors: 5_000.0,
            threads: 9.0,
        });
        Record(BTreeMap::from([(State::Clients, samples.collect())]))
    };
    record(|minute| {
        if minute < 5 {
            1_000.0
        } else {
            90_000.0 + 2_000.0 * (minute % 3) as f64
        }
    })
    .assert_flat();
    let growing = record(|minute| 90_000.0 + 1_500.0 * minute as f64);
    assert!(std::panic::catch_unwind(|| growing.assert_flat()).is_err());
}
