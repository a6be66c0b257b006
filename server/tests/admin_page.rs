//! The operator's page in a real browser, against the real binary.

#[path = "common/browser.rs"]
mod browser;
mod common;

use axum::routing::get;
use axum::{Json, Router};
use browser::{Browser, Screen};
use common::{RawClient, ServerProcess};
use monolock_protocol::ErrorCode;
use monolock_protocol::frame::ServerFrame;
use monolock_server::{Config, ExtraRoutes, Server, StartGate};
use serde_json::json;

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const TAB: &str = "\u{e004}";

fn addr(client: &RawClient) -> String {
    client.socket.local_addr().expect("bound").to_string()
}

#[test]
fn a_lock_is_found_by_the_filter_and_released_by_the_keyboard() {
    let server = ServerProcess::start(&[]);
    let (mut holder, token) = server.hold("nightly/import", 60_000);
    let mut next = server.queue("nightly/import", 60_000);
    let _last = server.queue("nightly/import", 60_000);
    let (_daily, _) = server.hold("daily", 60_000);
    let browser = Browser::start(Screen::default());
    browser.open(server.admin_addr);
    browser.wait_for_locks(&["daily", "nightly/import"]);

    browser.type_into(&browser.find("#filter"), "nightly/*");
    browser.wait_for_locks(&["nightly/import"]);
    browser.wait_for_text("#count", "1 of 2");
    browser.wait_for_text(".lock .remote", &addr(&holder));
    browser.wait_for_text(".lock .token", &token.get().to_string());
    browser.wait_for_text(".lock .lease", "1 min");
    browser.wait_for_text(".lock summary", "2 waiting");

    browser.type_into(&browser.in_row("nightly/import", "release"), ENTER);
    browser.wait_for_text("#confirm[open] h2", "Release nightly/import?");
    browser.wait_for_text("#confirm-what", &token.get().to_string());
    browser.press(ESCAPE);
    browser.wait_for("document.querySelector('#confirm').open", &json!(false));
    assert_eq!(
        holder.heartbeat(),
        ServerFrame::Acquired(token),
        "Escape does nothing else"
    );

    browser.type_into(&browser.in_row("nightly/import", "release"), ENTER);
    browser.wait_for("document.activeElement.textContent", &json!("Cancel"));
    browser.press(TAB);
    browser.wait_for("document.activeElement.textContent", &json!("Release"));
    browser.press(ENTER);
    holder.expect_error(ErrorCode::ClosedByAdministrator);
    let new_token = next.acquired();
    assert!(new_token > token);
    browser.wait_for_text("#outcome", "nightly/import was released.");
    browser.wait_for_text(".lock .remote", &addr(&next));
    browser.wait_for_text(".lock .token", &new_token.get().to_string());
    browser.wait_for_text(".lock summary", "1 waiting");
}

#[test]
fn a_holder_that_came_while_the_question_stood_is_spared() {
    let server = ServerProcess::start(&[]);
    let (holder, _) = server.hold("a", 60_000);
    let mut next = server.queue("a", 60_000);
    let browser = Browser::start(Screen::default());
    browser.open(server.admin_addr);
    browser.click(&browser.in_row("a", "release"));
    drop(holder);
    let token = next.acquired();
    browser.click(&browser.find("#confirm-do"));
    browser.wait_for_text(
        "#outcome",
        "a was not released: the holder with this token no longer has the lock",
    );
    assert_eq!(next.heartbeat(), ServerFrame::Acquired(token));
}

#[test]
fn a_waiter_is_kicked_and_the_others_keep_their_order() {
    let server = ServerProcess::start(&[]);
    let (_holder, _) = server.hold("a", 60_000);
    let mut waiters: Vec<_> = (0..3).map(|_| server.queue("a", 60_000)).collect();
    let browser = Browser::start(Screen::default());
    browser.open(server.admin_addr);
    let queue = "[...document.querySelectorAll('details .remote')].map((remote) => remote.textContent)";
    browser.click(&browser.in_row("a", "summary"));
    let order: Vec<_> = waiters.iter().map(addr).collect();
    browser.wait_for(queue, &json!(order));
    browser.wait_for_text("details .queued", "waits");

    browser.click(&browser.find("details li:nth-child(2) .kick"));
    browser.wait_for_text("#confirm-what", &order[1]);
    browser.click(&browser.find("#confirm-do"));
    let mut kicked = waiters.remove(1);
    kicked.expect_error(ErrorCode::ClosedByAdministrator);
    browser.wait_for(queue, &json!([order[0], order[2]]));
    assert_eq!(waiters[0].heartbeat(), ServerFrame::Waiting);
}

#[test]
fn names_are_text_and_run_nothing() {
    let image = "<img src=x onerror=\"document.title=1\">";
    let script = "\"></h3><script>document.title=1</script>?/%2F#é\n";
    let server = ServerProcess::start(&[]);
    let (mut on_image, _) = server.hold(image, 60_000);
    let (mut on_script, _) = server.hold(script, 60_000);
    let _waiting = server.queue(image, 60_000);
    let browser = Browser::start(Screen::default());
    browser.open(server.admin_addr);
    browser.wait_for_locks(&[script, image]);
    browser.click(&browser.find(".lock:nth-child(1) .release"));
    browser.wait_for_text("#confirm h2", script);
    browser.click(&browser.find("#confirm-do"));
    on_script.expect_error(ErrorCode::ClosedByAdministrator);
    browser.wait_for_text("#outcome", script);
    browser.wait_for_locks(&[image]);

    browser.click(&browser.find(".lock .release"));
    browser.wait_for_text("#confirm h2", image);
    browser.click(&browser.find("#confirm-do"));
    on_image.expect_error(ErrorCode::ClosedByAdministrator);
    browser.wait_for_text("#outcome", image);
    assert_eq!(browser.eval("document.querySelectorAll('img').length"), 0);
    assert_eq!(browser.eval("document.querySelectorAll('script').length"), 1);
    assert_eq!(browser.eval("document.title"), "monolock");
}

#[test]
fn the_page_says_when_the_server_is_away_and_recovers_by_itself() {
    let mut server = ServerProcess::start(&[]);
    let (_holder, _) = server.hold("before", 60_000);
    let browser = Browser::start(Screen::default());
    browser.open(server.admin_addr);
    browser.wait_for_locks(&["before"]);
    assert_eq!(
        browser.eval("getComputedStyle(document.querySelector('#locks')).opacity"),
        "1"
    );

    let admin = server.admin_addr.to_string();
    server.kill();
    browser.wait_for_text("#connection", "Connection lost, retrying");
    browser.wait_for_text("#connection", "What is shown is old.");
    browser.wait_for_locks(&["before"]);
    browser.wait_for(
        "getComputedStyle(document.querySelector('#locks')).opacity",
        &json!("0.45"),
    );
    assert_eq!(browser.eval("document.querySelector('.release').disabled"), true);
    browser.screenshot("lost");

    let server = ServerProcess::start(&[("MONOLOCK_ADMIN_LISTEN_ADDRESS", &admin)]);
    let (_holder, _) = server.hold("after", 60_000);
    browser.wait_for_locks(&["after"]);
    browser.wait_for_text("#connection", "Connected");
    browser.wait_for_text("#outcome", "The server is back, restarted.");
    browser.wait_for("document.querySelector('.release').disabled", &json!(false));
}

#[test]
fn the_page_counts_and_draws() {
    let server = ServerProcess::start(&[]);
    let browser = Browser::start(Screen::default());
    browser.open(server.admin_addr);
    browser.wait_for_text("#none", "No lock is in use.");
    let (mut holder, _) = server.hold("a", 60_000);
    let _waiter = server.queue("a", 60_000);
    let figure = |title: &str| {
        let cards = "[...document.querySelectorAll('#figures li')]";
        format!("{cards}.find((card) => card.querySelector('.title').textContent === '{title}')")
    };
    for (title, value) in [("Locks held", "1"), ("Waiters", "1"), ("Sessions", "2")] {
        let value_of = format!("{}.querySelector('.value').textContent", figure(title));
        browser.wait_for(&value_of, &json!(value));
    }
    let peak = format!("{}.querySelector('.peak').textContent", figure("Heartbeats/s"));
    let still = json!("peak 0");
    browser.wait_for(&format!("{peak} === {still}"), &json!(true));
    holder.heartbeat();
    browser.wait_for(&format!("{peak} !== {still}"), &json!(true));
    let drawn = format!(
        "{}.querySelector('path').getAttribute('d').includes('L')",
        figure("Heartbeats/s")
    );
    browser.wait_for(&drawn, &json!(true));
    let held = browser.eval("document.querySelector('.held').textContent");
    browser.wait_for(
        &format!("document.querySelector('.held').textContent !== {held}"),
        &json!(true),
    );
}

#[test]
fn the_page_fits_a_phone_and_follows_the_colour_scheme() {
    let server = ServerProcess::start(&[]);
    let (_holder, _) = server.hold("nightly/import", 60_000);
    let _waiters = [(); 3].map(|()| server.queue("nightly/import", 60_000));
    let (_long, _) = server.hold(&"x".repeat(255), 4_000_000_000);
    let mut backgrounds = Vec::new();
    for (name, screen) in [
        ("light", Screen::default()),
        (
            "dark",
            Screen {
                dark: true,
                phone: false,
            },
        ),
        (
            "phone",
            Screen {
                dark: false,
                phone: true,
            },
        ),
    ] {
        let browser = Browser::start(screen);
        browser.open(server.admin_addr);
        browser.click(&browser.in_row("nightly/import", "summary"));
        browser.wait_for_text("details .queued", "waits");
        browser.wait_for("document.documentElement.scrollWidth <= innerWidth", &json!(true));
        browser.screenshot(name);
        browser.click(&browser.in_row("nightly/import", "release"));
        browser.screenshot(&format!("{name}-question"));
        backgrounds.push(browser.eval("getComputedStyle(document.body).backgroundColor"));
        assert_eq!(browser.eval("innerWidth < 400"), screen.phone);
    }
    assert_ne!(backgrounds[0], backgrounds[1], "light and dark");
}

/// A pair after a takeover, as a node tells it, with markup where a text may come from elsewhere.
fn a_pair() -> serde_json::Value {
    let clock = json!({
        "verdict": "suspect", "reason": "suspect: the clock is 3600.000 s ahead, give or take 0.011 s",
        "offset_us": -3_600_000_000i64, "error_us": 11_000, "steps": 1,
        "servers": [
            {"server": "ntp1:123", "measured": {"offset_us": -3_600_000_123i64, "error_us": 11_000, "age_ms": 2_500}},
            {"server": "ntp2:123", "problem": "nothing listens there"},
        ],
        "peer": {"offset_us": 1_500, "error_us": 200, "age_ms": 900},
        "kernel": {"synchronised": false, "max_error_us": 16_000_000},
    });
    let step = |step, at_ms, took_ms| {
        json!({"time": "2026-01-02T03:04:05.678Z", "node": "b", "timeline": 3, "at_ms": at_ms, "step": step,
            "term": 8, "basis": "crash", "took_ms": took_ms, "detail": "<img src=x>"})
    };
    let status = json!({
        "node": "b", "role": "active", "term": 8, "floor": 1_883_379_718_946_816u64,
        "last_token": 1_883_379_718_946_817u64, "ready_for_handover": false, "authority_left_ms": 2_400,
        "clock": clock, "version": "0.1.0",
        "witness": {"kind": "postgres", "answered_ms_ago": 300, "last_swap_us": 2_345, "problem": "no answer in time"},
        "name": {"addresses": ["192.0.2.11"], "term": 8, "pending": true, "problem": "not shown as published by 192.0.2.53:53"},
        "timeline": [step("suspected", 0, json!(null)), step("became_active", 15, json!(9)), step("novel_step", 2_015, json!(null))],
    });
    json!({"node": "b", "nodes": [
        {"node": "a", "address": "192.0.2.10:7073", "error": "nothing listens at the peer's address"},
        {"node": "b", "address": "192.0.2.11:7073", "status": status},
    ]})
}

#[test]
fn a_pair_is_shown_where_there_is_one() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = Config {
        listen: "127.0.0.1:0".to_owned(),
        admin_listen: Some("127.0.0.1:0".to_owned()),
        ..Config::default()
    };
    let routes = ExtraRoutes {
        admin: Router::new().route("/api/pair", get(|| async { Json(a_pair()) })),
        ..ExtraRoutes::default()
    };
    let server = runtime
        .block_on(Server::start_with_routes(config, StartGate::Open, |_| routes))
        .expect("it starts");
    let browser = Browser::start(Screen::default());
    browser.open(server.handle().admin_addr().expect("on"));
    let shown = |of: &str| {
        format!(
            "[...document.querySelectorAll('#pair:not([hidden]) {of}')].map((shown) => shown.textContent)"
        )
    };
    browser.wait_for(&shown(".role"), &json!(["no answer", "active"]));
    for (of, text) in [
        (".node:nth-child(1) .why", "nothing listens"),
        (".node:nth-child(2) .where", "192.0.2.11:7073, this one, v0.1.0"),
        (".node:nth-child(2) .floor-time", "2026-"),
        (
            ".node:nth-child(2) .authority",
            "2 s without a renewal; last token 1883379718946817",
        ),
        (
            ".node:nth-child(2) .witness",
            "postgres: answered 300 ms ago, last swap 2.35 ms; then: no answer in time",
        ),
        (
            ".node:nth-child(2) .service-name",
            "192.0.2.11 since term 8; not everywhere yet: not shown",
        ),
        (".node:nth-child(2) .clock", "3600.000 s ahead"),
        (
            ".node details li:nth-child(1)",
            "ntp1:123: 3600.000 s ahead ± 11 ms, 2 s ago",
        ),
        (
            ".node details li:nth-child(2)",
            "ntp2:123: not heard; nothing listens there",
        ),
        (
            ".node details li:nth-child(3)",
            "the peer: 1.50 ms behind ± 0.20 ms",
        ),
        (
            ".node details li:nth-child(4)",
            "the kernel: not synchronised, at most 16.000 s wrong",
        ),
        (".timeline h3", "Node b became active in term 8, by crash"),
    ] {
        browser.wait_for_text(of, text);
    }
    browser.wait_for(&shown(".took"), &json!(["0 ms", "9 ms", "2000 ms"]));
    browser.wait_for(
        &shown(".step"),
        &json!(["the peer is suspected", "the gate is open", "novel step"]),
    );
    let bars = "[...document.querySelectorAll('.timeline rect')].map((bar) => [bar.getAttribute('x'), bar.getAttribute('width')])";
    browser.wait_for(
        bars,
        &json!([["0.00", "0.40"], ["0.30", "0.45"], ["0.74", "99.26"]]),
    );
    let states = "['witness', 'service-name', 'clock'].map((of) => document.querySelector('.node:nth-child(2) .' + of).dataset.state)";
    browser.wait_for(states, &json!(["bad", "bad", "bad"]));
    assert_eq!(browser.eval("document.querySelectorAll('img').length"), 0);
    browser.screenshot("pair");
    drop(browser);

    let phone = Browser::start(Screen {
        phone: true,
        dark: true,
    });
    phone.open(server.handle().admin_addr().expect("on"));
    phone.wait_for(&shown(".role"), &json!(["no answer", "active"]));
    phone.wait_for("document.documentElement.scrollWidth <= innerWidth", &json!(true));
    phone.screenshot("pair-phone");
    drop(phone);
    runtime.block_on(server.shutdown());
}
