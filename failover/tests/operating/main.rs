//! What an operator sees of a real pair: the metrics, the status, and the page in a real browser.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "shared helpers: other test programs use the rest")]

#[path = "../../../server/tests/common/browser.rs"]
mod browser;
#[path = "../common/chrony.rs"]
mod chrony;
#[path = "../common/fake_time.rs"]
mod fake_time;
#[path = "../common/node.rs"]
mod node;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use browser::{Browser, Screen};
use chrony::Chrony;
use monolock_failover::clock::VerdictWord;
use monolock_failover::core::NodeId;
use monolock_failover::peer::message::Role;
use monolock_integration_tests::port::free_port;
use monolock_integration_tests::wait::{PATIENCE, wait_until};
use node::{Node, Plan};
use serde_json::{Value, json};

/// What the browser's own helper expects of a test program.
mod common {
    pub(crate) use monolock_integration_tests::wait::PATIENCE;

    pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
        let deadline = monolock_clock::boot_now() + PATIENCE;
        loop {
            if condition() {
                return true;
            }
            if monolock_clock::boot_now() > deadline {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// A pair of which `a` is active, with a port for the operator on each node.
struct Pair {
    a: Node,
    b: Node,
    operator: [SocketAddr; 2],
    _time_servers: [Chrony; 1],
    _plan: Plan,
}

impl Pair {
    /// `what` is the setting of the operator's address that the test looks at.
    fn start(what: &'static str) -> Self {
        let time_servers = [Chrony::honest()];
        let plan = Plan::new(&time_servers);
        let operator = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        // A browser makes even a calm machine busy: nothing here is to lapse for want of a processor.
        let ttl = ("MONOLOCK_AUTHORITY_TTL", "8s".to_owned());
        let settings = operator.map(|address| [(what, address.to_string()), ttl.clone()]);
        let start = |id, settings: &[(&'static str, String); 2]| {
            let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
            plan.start(id, 0, &settings)
        };
        let a = start(NodeId::A, &settings[0]);
        a.wait_for_role(Role::Active);
        let b = start(NodeId::B, &settings[1]);
        b.wait_until("a standby that is ready", |status| status.ready_for_handover);
        b.wait_for_verdict(VerdictWord::Synced);
        Self {
            a,
            b,
            operator,
            _time_servers: time_servers,
            _plan: plan,
        }
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of a series; `None` when it is missing.
fn metric(text: &str, series: &str) -> Option<f64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value?.parse().ok()
}

#[test]
fn the_metrics_tell_the_roles_the_clock_and_a_takeover() {
    let pair = Pair::start("MONOLOCK_OPS_LISTEN_ADDRESS");
    let [on_a, on_b] = pair.operator;
    wait_until("the roles to be told", || {
        let (a, b) = (get(on_a, "/metrics"), get(on_b, "/metrics"));
        metric(&a, "monolock_role{role=\"active\"}") == Some(1.0)
            && metric(&b, "monolock_role{role=\"standby\"}") == Some(1.0)
            && metric(&b, "monolock_clock_verdict{verdict=\"synced\"}") == Some(1.0)
            && metric(&b, "monolock_peer_clock_offset_seconds").is_some_and(|offset| offset.abs() < 10.0)
    });
    let (a, b) = (get(on_a, "/metrics"), get(on_b, "/metrics"));
    assert_eq!(
        metric(&a, "monolock_takeovers_total{reason=\"silence\"}"),
        Some(1.0)
    );
    assert_eq!(metric(&a, "monolock_term"), metric(&b, "monolock_term"));
    assert!(metric(&a, "monolock_authority_left_seconds") > Some(0.0));
    assert_eq!(metric(&b, "monolock_authority_left_seconds"), Some(0.0));
    let offset = metric(&b, "monolock_clock_offset_seconds").unwrap();
    let error = metric(&b, "monolock_clock_offset_error_seconds").unwrap();
    assert!(offset.abs() <= error && error < 0.5, "{offset} {error}");
    assert!(metric(&a, "monolock_witness_seconds_count{operation=\"swap\"}") > Some(0.0));
    assert_eq!(metric(&b, "monolock_takeover_seconds_count"), Some(0.0));
    assert!(get(on_b, "/readyz").starts_with("HTTP/1.1 503"));

    let term = metric(&a, "monolock_term").unwrap();
    pair.a.kill();
    wait_until("the takeover to be told", || {
        let b = get(on_b, "/metrics");
        metric(&b, "monolock_takeover_seconds_count") == Some(1.0)
            && metric(&b, "monolock_role{role=\"active\"}") == Some(1.0)
            && metric(&b, "monolock_term") == Some(term + 1.0)
    });
}

#[test]
fn the_page_shows_both_nodes_and_draws_the_last_takeover() {
    let pair = Pair::start("MONOLOCK_ADMIN_LISTEN_ADDRESS");
    let [on_a, on_b] = pair.operator;
    let answer = get(on_a, "/api/pair");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let told: Value = serde_json::from_str(body).unwrap();
    assert_eq!(told["node"], "a");
    assert_eq!(
        told["nodes"][0]["status"]["timeline"][0]["step"], "takeover_started",
        "{told:#}"
    );

    let browser = Browser::start(Screen::default());
    browser.open(on_b);
    let roles = "[...document.querySelectorAll('#pair:not([hidden]) .role')].map((role) => role.textContent)";
    browser.wait_for(roles, &json!(["active", "standby"]));
    browser.wait_for_text(".node:nth-child(2) .why", "Ready.");
    browser.wait_for_text(".node:nth-child(1) .clock", "synced");
    browser.wait_for_text(".node:nth-child(1) .witness", "file: answered");
    browser.wait_for_text(".timeline h3", "Node a became active in term 1, by silence");
    browser.screenshot("pair-healthy");

    pair.a.kill();
    browser.wait_for(roles, &json!(["no answer", "active"]));
    browser.wait_for_text(".timeline h3", "Node b became active in term 2, by");
    browser.wait_for(
        "document.querySelectorAll('.timeline rect').length > 2",
        &json!(true),
    );
    let drawn = "[...document.querySelectorAll('.timeline rect')].every((bar) => \
                 bar.getBoundingClientRect().width > 0 && Number(bar.getAttribute('x')) + Number(bar.getAttribute('width')) <= 100.01)";
    browser.wait_for(drawn, &json!(true));
    browser.screenshot("pair-taken-over");
    pair.b.kill();
}
