use monolock_protocol::WallTime;
use proptest::prelude::*;

use super::*;

const HOUR: i64 = 3_600_000;
/// The wall clock at boot zero, in milliseconds.
const START_MS: i64 = 1_000_000_000;

fn limits(servers: usize) -> ClockLimits {
    ClockLimits {
        servers,
        max_offset: Duration::from_millis(500),
        max_age: Duration::from_secs(100),
    }
}

/// A machine whose clock is off by something, and what it hears.
struct Machine {
    check: ClockCheck,
    boot_ms: u64,
    off_ms: i64,
}

impl Machine {
    fn new(servers: usize) -> Self {
        let mut machine = Self {
            check: ClockCheck::new(limits(servers)),
            boot_ms: 5_000,
            off_ms: 0,
        };
        assert_eq!(machine.look(), None);
        machine
    }

    fn reading(&self) -> ClockReading {
        let wall_ms = START_MS + i64::try_from(self.boot_ms).unwrap() + self.off_ms;
        ClockReading {
            wall: WallTime::from_unix_nanos(u64::try_from(wall_ms).unwrap() * 1_000_000),
            boot: BootInstant::from_millis(self.boot_ms),
        }
    }

    fn look(&mut self) -> Option<ClockOffset> {
        let reading = self.reading();
        self.check.handle_reading(reading)
    }

    /// A server that lies by so much answers, within 10 ms.
    fn hear(&mut self, server: usize, lie_ms: i64) {
        let sample = self.sample(lie_ms);
        self.check.handle_sample(server, sample);
    }

    fn sample(&self, lie_ms: i64) -> ClockSample {
        ClockSample {
            offset: millis(lie_ms - self.off_ms),
            error: Duration::from_millis(10),
            reading: self.reading(),
        }
    }

    fn verdict(&self) -> Verdict {
        self.check.verdict(self.reading())
    }

    fn is_synced(&self) -> bool {
        self.verdict().allows_adoption()
    }
}

fn millis(ms: i64) -> ClockOffset {
    ClockOffset::from_nanos(ms * 1_000_000)
}

#[test]
fn without_time_servers_nothing_is_known_and_the_first_start_believes_the_clock() {
    let mut machine = Machine::new(0);
    assert_eq!(machine.verdict(), Verdict::Unknown(Uncertainty::NotConfigured));
    machine.off_ms = HOUR;
    assert_eq!(machine.look(), Some(millis(HOUR)));
    assert_eq!(machine.verdict(), Verdict::Unknown(Uncertainty::NotConfigured));
    assert!(machine.verdict().allows_first_start() && !machine.is_synced());
}

#[test]
fn a_majority_of_all_that_are_configured_must_answer() {
    let mut machine = Machine::new(3);
    let too_few = |answered| Verdict::Unknown(Uncertainty::TooFewAnswers { answered, needed: 2 });
    assert_eq!(machine.verdict(), too_few(0));
    machine.hear(1, 0);
    assert_eq!(machine.verdict(), too_few(1));
    assert!(!machine.verdict().allows_first_start());
    machine.hear(2, 0);
    let error = Duration::from_millis(10);
    let offset = ClockOffset::default();
    assert_eq!(machine.verdict(), Verdict::Synced { offset, error });
    assert!(machine.verdict().allows_first_start());
}

#[test]
fn one_server_that_lies_by_an_hour_moves_nothing() {
    let mut machine = Machine::new(3);
    machine.hear(0, 0);
    machine.hear(1, 0);
    let honest = machine.verdict();
    for lie in [HOUR, -HOUR] {
        machine.hear(2, lie);
        assert_eq!(machine.verdict(), honest);
    }
}

#[test]
fn two_of_two_that_disagree_are_suspect() {
    let mut machine = Machine::new(2);
    machine.hear(0, 0);
    machine.hear(1, HOUR);
    let (answered, configured) = (2, 2);
    let disagreement = Suspicion::Disagreement { answered, configured };
    assert_eq!(machine.verdict(), Verdict::Suspect(disagreement));
}

#[test]
fn a_clock_that_is_off_is_suspect_in_either_direction() {
    for (off_ms, text) in [(HOUR, "3600.000 s ahead"), (-HOUR, "3600.000 s behind")] {
        let mut machine = Machine::new(1);
        machine.off_ms = off_ms;
        machine.hear(0, 0);
        let offset = millis(-off_ms);
        let error = Duration::from_millis(10);
        // The step was seen, and then the clock was compared: that is the better reason.
        assert_eq!(
            machine.verdict(),
            Verdict::Suspect(Suspicion::Off { offset, error })
        );
        assert!(
            machine.verdict().to_string().contains(text),
            "{}",
            machine.verdict()
        );
    }
}

#[test]
fn the_limit_includes_the_error() {
    let mut machine = Machine::new(1);
    let mut verdict_at = |lie_ms| {
        machine.hear(0, lie_ms);
        machine.verdict().as_str()
    };
    assert_eq!(verdict_at(490), "synced");
    assert_eq!(verdict_at(491), "unknown");
    assert_eq!(verdict_at(-500), "unknown");
    assert_eq!(verdict_at(-501), "suspect");
}

#[test]
fn answers_age_by_boot_time_and_then_count_no_more() {
    let mut machine = Machine::new(1);
    machine.hear(0, 0);
    machine.boot_ms += 100_000;
    let error = Duration::from_millis(10 + 50);
    let offset = ClockOffset::default();
    assert_eq!(machine.verdict(), Verdict::Synced { offset, error });
    machine.boot_ms += 1;
    let (answered, needed) = (0, 1);
    let too_few = Uncertainty::TooFewAnswers { answered, needed };
    assert_eq!(machine.verdict(), Verdict::Unknown(too_few));
    assert_eq!(machine.check.server(0, machine.reading()), None);
}

#[test]
fn a_step_is_seen_at_once_and_voids_what_was_measured_before() {
    let mut machine = Machine::new(1);
    machine.hear(0, 0);
    let before = machine.sample(0);
    machine.off_ms = HOUR;
    machine.boot_ms += 1_000;
    assert!(!machine.is_synced(), "even before the step is noticed");
    assert_eq!(machine.look(), Some(millis(HOUR)));
    let stepped = Verdict::Suspect(Suspicion::Stepped { by: millis(HOUR) });
    assert_eq!(machine.verdict(), stepped);
    // An answer that was on its way says nothing about the clock as it is now.
    machine.check.handle_sample(0, before);
    assert_eq!(machine.verdict(), stepped);
    assert!(
        machine
            .verdict()
            .to_string()
            .contains("set forward by 3600.000 s")
    );

    // The step was the correction of a clock that had been wrong: a new answer says so.
    machine.check.handle_sample(0, machine.sample(HOUR));
    assert!(machine.is_synced());
    assert_eq!(machine.check.steps(), 1);
    machine.boot_ms += 200_000;
    assert_eq!(machine.verdict().as_str(), "unknown", "it was compared since");
}

#[test]
fn a_clock_that_is_corrected_gradually_is_no_step() {
    let mut machine = Machine::new(1);
    machine.off_ms = -400;
    assert_eq!(
        machine.look(),
        Some(millis(-400)),
        "the machine of this test began at zero"
    );
    machine.hear(0, 0);
    for _ in 0..4 {
        machine.boot_ms += 1_000;
        machine.off_ms += 100;
        assert_eq!(machine.look(), None);
    }
    let Verdict::Synced { offset, .. } = machine.verdict() else {
        panic!("{}", machine.verdict())
    };
    assert_eq!(
        offset,
        ClockOffset::default(),
        "it is that of the clock as it reads now"
    );
}

#[test]
fn a_reading_that_comes_late_is_no_step() {
    let mut machine = Machine::new(1);
    let earlier = machine.reading();
    machine.boot_ms += 60_000;
    assert_eq!(machine.look(), None);
    assert_eq!(machine.check.handle_reading(earlier), None);
    assert_eq!(machine.look(), None);
}

#[test]
fn a_peer_with_another_time_is_a_reason_for_suspicion_where_nobody_else_answers() {
    let mut machine = Machine::new(1);
    machine.check.handle_peer(machine.sample(510));
    assert_eq!(machine.verdict().as_str(), "unknown");
    machine.check.handle_peer(machine.sample(511));
    assert_eq!(machine.verdict().as_str(), "suspect");
    machine.hear(0, 0);
    assert!(machine.is_synced(), "it may be the peer that is wrong");
    assert_eq!(
        machine.check.peer(machine.reading()).map(|peer| peer.offset),
        Some(millis(511))
    );
}

#[derive(Clone, Debug)]
enum Event {
    Wait(u64),
    StepBy(i64),
    Answer { server: usize, lie_ms: i64 },
}

fn event(servers: usize) -> impl Strategy<Value = Event> {
    prop_oneof![
        (0u64..40_000).prop_map(Event::Wait),
        prop_oneof![150i64..5_000, -5_000i64..-150].prop_map(Event::StepBy),
        (0..servers, prop_oneof![3 => -20i64..20, 1 => -2_000i64..2_000])
            .prop_map(|(server, lie_ms)| Event::Answer { server, lie_ms }),
    ]
}

/// The same rules, written the slow way: what each server said since the last step, and every offset tried.
#[derive(Default)]
struct Naive {
    heard: Vec<(usize, u64, i64)>,
}

impl Naive {
    /// The offsets, in whole milliseconds, that a majority allows.
    fn allowed(&self, machine: &Machine, servers: usize) -> Option<(i64, i64)> {
        let latest = |server| self.heard.iter().rev().find(|heard| heard.0 == server);
        let fresh: Vec<_> = (0..servers)
            .filter_map(latest)
            .map(|(_, at, lie)| (machine.boot_ms - at, lie - machine.off_ms))
            .filter(|(age, _)| *age <= 100_000)
            .collect();
        // Each second of age is half a millisecond of error.
        let covers = |offset: i64, (age, told): &(u64, i64)| {
            (offset - told).unsigned_abs() * 2_000 <= 10 * 2_000 + age
        };
        let majority =
            |offset: &i64| fresh.iter().filter(|heard| covers(*offset, heard)).count() > servers / 2;
        let mut allowed = (-8_100..8_100).filter(majority);
        let first = allowed.next()?;
        Some((first, allowed.next_back().unwrap_or(first)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_verdict_is_that_of_a_search_of_all_offsets(
        servers in 1usize..5,
        events in prop::collection::vec(event(4), 1..25),
    ) {
        let mut machine = Machine::new(servers);
        let mut naive = Naive::default();
        for event in events {
            match event {
                Event::Wait(ms) => machine.boot_ms += ms,
                Event::StepBy(by_ms) if (machine.off_ms + by_ms).abs() < 6_000 => {
                    machine.look();
                    machine.off_ms += by_ms;
                    prop_assert_eq!(machine.look(), Some(millis(by_ms)));
                    naive.heard.clear();
                }
                Event::StepBy(_) => {}
                Event::Answer { server, lie_ms } => {
                    let server = server % servers;
                    machine.hear(server, lie_ms);
                    naive.heard.push((server, machine.boot_ms, lie_ms));
                }
            }
            let agreed = machine.verdict().agreed();
            match naive.allowed(&machine, servers) {
                Some((first, last)) => {
                    let (offset, error) = agreed.expect("a majority agrees on whole milliseconds");
                    let middle = millis(first + last).as_nanos() / 2;
                    prop_assert!((offset.as_nanos() - middle).abs() < 1_000_000, "{offset} is not {middle}");
                    prop_assert!(error >= Duration::from_millis((last - first).unsigned_abs()) / 2);
                    let is_within = offset.size() + error <= Duration::from_millis(500);
                    prop_assert_eq!(machine.is_synced(), is_within);
                }
                // They may still agree between two whole milliseconds.
                None => prop_assert!(agreed.is_none_or(|(_, error)| error < Duration::from_millis(1))),
            }
        }
    }
}
