//! A node's clock beside real time servers.

use std::sync::Arc;
use std::time::Duration;

use monolock_failover::clock::{ClockReport, NodeClock, VerdictWord};
use monolock_failover::config::ClockConfig;
use monolock_integration_tests::wait::wait_for;
use tokio::runtime::Runtime;

use crate::chrony::Chrony;

const HOUR: i64 = 3_600;
const HOUR_US: i64 = HOUR * 1_000_000;

/// A clock that is being compared with some servers.
struct Compared {
    clock: Arc<NodeClock>,
    _runtime: Runtime,
}

impl Compared {
    fn with(servers: &[&Chrony]) -> Self {
        let clock = Arc::new(NodeClock::new(ClockConfig {
            servers: servers
                .iter()
                .map(|server| server.address().parse().unwrap())
                .collect(),
            poll_interval: Duration::from_millis(500),
            max_offset: Duration::from_millis(500),
            trusted: false,
        }));
        let runtime = Runtime::new().unwrap();
        runtime.spawn(Arc::clone(&clock).keep_asking());
        Self {
            clock,
            _runtime: runtime,
        }
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&ClockReport) -> bool) -> ClockReport {
        wait_for(what, || Some(self.clock.report()).filter(&is_so))
    }

    fn wait_for_all_answers(&self) -> ClockReport {
        let all = |report: &ClockReport| report.servers.iter().all(|server| server.measured.is_some());
        self.wait_until("every server to answer", all)
    }
}

#[test]
fn three_servers_are_believed_and_one_that_lies_by_an_hour_changes_nothing() {
    let honest = [Chrony::honest(), Chrony::honest()];
    for lie in [HOUR, -HOUR] {
        let liar = Chrony::lying_by(lie);
        let compared = Compared::with(&[&honest[0], &liar, &honest[1]]);
        let report = compared.wait_for_all_answers();
        let told = report.servers[1].measured.unwrap().offset_us;
        assert!((told - lie * 1_000_000).abs() < 60_000_000, "{told}");
        assert_eq!(report.verdict, VerdictWord::Synced, "{report}");
        let (offset, error) = (report.offset_us.unwrap(), report.error_us.unwrap());
        // The servers read the very clock that is compared with them.
        assert!(offset.unsigned_abs() <= error, "{report}");
        assert!(error < 500_000, "{report}");
    }
}

#[test]
fn two_of_two_that_disagree_are_suspect_and_a_single_liar_is_believed() {
    let (honest, liar) = (Chrony::honest(), Chrony::lying_by(HOUR));
    let compared = Compared::with(&[&honest, &liar]);
    let report = compared.wait_for_all_answers();
    assert_eq!(report.verdict, VerdictWord::Suspect, "{report}");
    assert!(report.reason.contains("disagree"), "{report}");

    // Nobody can know better: the clock is suspect, the tokens stay on the floor.
    let compared = Compared::with(&[&liar]);
    let report = compared.wait_for_all_answers();
    assert_eq!(report.verdict, VerdictWord::Suspect, "{report}");
    assert!(
        (report.offset_us.unwrap() - HOUR_US).abs() < 60_000_000,
        "{report}"
    );
}

#[test]
fn answers_age_until_nothing_is_known_and_come_back() {
    let servers = [Chrony::honest(), Chrony::honest(), Chrony::honest()];
    let [a, b, c] = servers.each_ref();
    let compared = Compared::with(&[a, b, c]);
    compared.wait_until("the clock to be synced", |report| {
        report.verdict == VerdictWord::Synced
    });
    let [first, second, third] = servers;
    // One of three may be away.
    drop(first);
    compared.wait_until("the first to be missed, and not needed", |report| {
        let missed = &report.servers[0];
        let is_refused = missed
            .problem
            .as_ref()
            .is_some_and(|problem| problem.contains("nothing listens"));
        missed.measured.is_none() && is_refused && report.verdict == VerdictWord::Synced
    });

    drop((second, third));
    let report = compared.wait_until("nothing to be known", |report| {
        report.verdict == VerdictWord::Unknown
    });
    assert!(report.reason.contains("answered lately"), "{report}");
    assert_eq!(report.offset_us, None);
}
