//! S3: the conformance suite, lost answers and paused writers against a real server. Needs MiniStack, which
//! `integration-tests/setup` installs.

#![cfg(feature = "s3")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::ministack::{BUCKET, MiniStack, client_at};
use common::objects::{self, OneObject, stamp};
use common::proxy::{Fault, Gate, Proxy};
use common::suite::{self, assert_stale};
use monolock_adapters::s3::{Layout, Objects, SelfTestError};
use monolock_adapters::{FenceError, Retry, Token};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms_in_both_layouts() {
    let server = MiniStack::start().await;
    for layout in [Layout::Header, Layout::Trailer] {
        let objects = Objects::new(server.client(), BUCKET).with_layout(layout);
        let store = OneObject {
            objects,
            key: format!("{layout:?}"),
        };
        suite::run(store, 15, common::seed()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms_in_parts() {
    let server = MiniStack::start().await;
    let objects = Objects::new(server.client(), BUCKET).with_multipart_from(0);
    suite::run(
        OneObject {
            objects,
            key: "parts".into(),
        },
        4,
        common::seed(),
    )
    .await;
    assert_no_open_uploads(&server).await;
}

/// What was refused was given back.
async fn assert_no_open_uploads(server: &MiniStack) {
    let open = server.client().list_multipart_uploads().bucket(BUCKET);
    let open = open.send().await.expect("readable");
    assert_eq!(open.uploads().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_comes_back_whole() {
    let server = MiniStack::start().await;
    let objects = Objects::new(server.client(), BUCKET).with_multipart_from(1 << 20);
    let body: Vec<u8> = (0..20_u32 << 20).map(|n| (n % 251) as u8).collect();
    objects
        .put(&stamp(5), "large", body.clone())
        .await
        .expect("the first token");
    let found = objects.get("large").await.expect("readable").expect("present");
    assert!(found.token == Token::new(5) && found.payload == body);
    objects.claim(&stamp(6), "large").await.expect("a newer token");
    assert_stale(objects.put(&stamp(5), "large", body.clone()).await, 5, 6);
    assert!(
        objects
            .get("large")
            .await
            .expect("readable")
            .expect("present")
            .payload
            == body
    );
}

/// The trap of ETags: a newer holder writes the bytes that are there already, while an older one is between its read
/// and its write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_bytes_from_a_newer_holder_stop_a_paused_writer() {
    let server = MiniStack::start().await;
    let (fast, slow, proxy) = fast_and_slow(&server).await;
    fast.put(&stamp(1), "k", "same").await.expect("the first token");

    let gate = Arc::new(Gate::default());
    proxy.once("PUT /", Fault::Hold(gate.clone()));
    let paused = tokio::spawn(async move { slow.put(&stamp(1), "k", "late").await });
    gate.reached().await;
    fast.put(&stamp(2), "k", "same").await.expect("a newer token");
    gate.open();
    assert_stale(paused.await.expect("no panic"), 1, 2);
    let found = fast.get("k").await.expect("readable").expect("present");
    assert_eq!((found.token, &found.payload[..]), (Token::new(2), &b"same"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_stops_a_paused_writer() {
    let server = MiniStack::start().await;
    let (fast, slow, proxy) = fast_and_slow(&server).await;
    for (key, prepare) in [("present", true), ("absent", false)] {
        if prepare {
            fast.put(&stamp(1), key, "before").await.expect("the first token");
        }
        let gate = Arc::new(Gate::default());
        proxy.once("PUT /", Fault::Hold(gate.clone()));
        let paused = tokio::spawn({
            let slow = slow.clone();
            async move { slow.put(&stamp(1), key, "late").await }
        });
        gate.reached().await;
        fast.claim(&stamp(2), key).await.expect("a newer token");
        gate.open();
        assert_stale(paused.await.expect("no panic"), 1, 2);
        let payload = fast.get(key).await.expect("readable").map(|found| found.payload);
        assert_eq!(payload.as_deref(), prepare.then_some(&b"before"[..]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_paused_anywhere_is_never_accepted_late() {
    let server = MiniStack::start().await;
    let (fast, slow, proxy) = fast_and_slow(&server).await;
    objects::a_writer_paused_anywhere_is_never_accepted_late(&fast, &slow, &proxy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_paused_between_parts_is_never_accepted_late() {
    let server = MiniStack::start().await;
    let (fast, slow, proxy) = fast_and_slow(&server).await;
    let (fast, slow) = (fast.with_multipart_from(0), slow.with_multipart_from(0));
    objects::a_writer_paused_anywhere_is_never_accepted_late(&fast, &slow, &proxy).await;
    assert_no_open_uploads(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_found_out() {
    let server = MiniStack::start().await;
    let (fast, slow, proxy) = fast_and_slow(&server).await;
    objects::a_lost_answer_is_found_out(&fast, &slow, &proxy, "PUT /").await;
}

/// Of the requests of an upload, the one that completes it is the write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_completed_upload_is_found_out() {
    let server = MiniStack::start().await;
    let (fast, slow, proxy) = fast_and_slow(&server).await;
    let slow = slow.with_multipart_from(0);
    objects::a_lost_answer_is_found_out(&fast, &slow, &proxy, "<CompleteMultipartUpload").await;

    // The others make nothing visible: they are sent again, and what was begun is given back.
    for (token, request) in [(4, "POST /"), (5, "PUT /")] {
        proxy.once(request, Fault::LoseAnswer);
        slow.put(&stamp(token), "k", "again").await.expect("tried again");
        assert!(proxy.is_spent());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_about_a_part_of_a_draft_is_found_out() {
    let server = MiniStack::start().await;
    let (fast, slow, proxy) = fast_and_slow(&server).await;
    let holder = stamp(1);
    let mut draft = slow.draft(&holder, "set").expect("a stamp is always live");
    proxy.once("PUT /", Fault::LoseAnswer);
    draft.add("part", "x").await.expect("it landed");
    proxy.once("PUT /", Fault::LoseAnswer);
    draft.publish().await.expect("it landed");
    assert!(proxy.is_spent());
    let manifest = fast.resolve("set").await.expect("readable").expect("published");
    assert_eq!(manifest.entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_that_was_written_over_is_unknown() {
    let server = MiniStack::start().await;
    let (fast, slow, proxy) = fast_and_slow(&server).await;
    let (write, read) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    proxy.once("PUT /", Fault::Hold(write.clone()));
    proxy.once("PUT /", Fault::LoseAnswer);
    let writer = tokio::spawn(async move { slow.put(&stamp(1), "k", "x").await });
    write.reached().await;
    // Once it is let go, its answer is lost, and the read after that is held.
    proxy.once("GET /", Fault::Hold(read.clone()));
    write.open();
    read.reached().await;
    assert_eq!(
        fast.get("k").await.expect("readable").expect("it landed").token,
        Token::new(1)
    );
    fast.put(&stamp(2), "k", "y").await.expect("a newer token");
    read.open();
    let result = writer.await.expect("no panic");
    assert!(matches!(result, Err(FenceError::Unknown { .. })), "{result:?}");
}

/// What an endpoint can answer to a write besides success; the proxy answers in its place, so nothing is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_status_is_taken_for_what_it_is() {
    let server = MiniStack::start().await;
    let (fast, slow, proxy) = fast_and_slow(&server).await;
    fast.put(&stamp(1), "k", "x").await.expect("the first token");
    let passing = [
        "409 Conflict/ConditionalRequestConflict",
        "412 Precondition Failed/PreconditionFailed",
        "404 Not Found/NoSuchKey",
        "500 Internal Server Error/InternalError",
        "503 Slow Down/SlowDown",
    ];
    for (token, answer) in (2..).zip(passing) {
        proxy.once("PUT /", refusal(answer));
        slow.put(&stamp(token), "k", answer).await.expect(answer);
        assert!(proxy.is_spent());
        let found = fast.get("k").await.expect("readable").expect("present");
        assert_eq!(found.payload, answer, "tried again");
    }

    let retry = Retry::new(3, Duration::from_millis(1), Duration::from_millis(1));
    let slow = slow.with_retry(retry);
    let always = async |answer| {
        proxy.clear();
        proxy.always_after(0, "PUT /", refusal(answer));
        slow.put(&stamp(10), "k", "never").await
    };
    for answer in &passing[..3] {
        let result = always(answer).await;
        assert!(
            matches!(result, Err(FenceError::Conflict { attempts: 3, .. })),
            "{answer}: {result:?}"
        );
    }
    for answer in &passing[3..] {
        let result = always(answer).await;
        assert!(
            matches!(result, Err(FenceError::Unknown { .. })),
            "{answer}: {result:?}"
        );
    }
    for answer in [
        "403 Forbidden/AccessDenied",
        "404 Not Found/NoSuchBucket",
        "400 Bad Request/EntityTooLarge",
    ] {
        let result = always(answer).await;
        assert!(
            matches!(result, Err(FenceError::Backend(_))),
            "{answer}: {result:?}"
        );
    }
    let found = fast.get("k").await.expect("readable").expect("present");
    assert_eq!(found.payload, passing[4], "none of these wrote");
}

/// A status with its reason, and S3's own code.
fn refusal(answer: &str) -> Fault {
    let (status, code) = answer.split_once('/').expect("both");
    let body = format!("<Error><Code>{code}</Code><Message>by the test</Message></Error>");
    Fault::Answer(format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_wrote_is_taken_over() {
    let server = MiniStack::start().await;
    let (client, objects) = (server.client(), Objects::new(server.client(), BUCKET));
    for (key, body) in [
        ("full", "plain text of more than ninety bytes ".repeat(4)),
        ("empty", String::new()),
    ] {
        client
            .put_object()
            .bucket(BUCKET)
            .key(key)
            .body(body.clone().into_bytes().into())
            .send()
            .await
            .expect("put");
        let found = objects.get(key).await.expect("readable").expect("present");
        assert_eq!((found.token, &found.payload[..]), (Token::ZERO, body.as_bytes()));
        assert_eq!(objects.highest(key).await.expect("readable"), None);
        objects.claim(&stamp(7), key).await.expect("any token");
        let found = objects.get(key).await.expect("readable").expect("present");
        assert_eq!(
            (found.token, &found.payload[..]),
            (Token::new(7), body.as_bytes())
        );
        assert_stale(objects.put(&stamp(6), key, "x").await, 6, 7);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_shows_objects_and_no_tombstones() {
    let server = MiniStack::start().await;
    let objects = Objects::new(server.client(), BUCKET);
    for key in ["a/1", "a/2", "a/3", "b/1"] {
        objects.put(&stamp(5), key, "").await.expect("the first token");
    }
    objects.delete(&stamp(5), "a/2").await.expect("present");
    let keys: Vec<_> = objects
        .list("a/")
        .await
        .expect("readable")
        .into_iter()
        .map(|listed| listed.key)
        .collect();
    assert_eq!(keys, ["a/1", "a/3"]);
    assert_eq!(
        objects.highest("a/2").await.expect("readable"),
        Some(Token::new(5))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_is_seen_whole_or_not_at_all() {
    let server = MiniStack::start().await;
    let (client, objects) = (server.client(), Objects::new(server.client(), BUCKET));
    assert_eq!(objects.resolve("set").await.expect("readable"), None);
    let (first, second) = (stamp(1), stamp(2));
    let mut old = objects.draft(&first, "set").expect("a stamp is always live");
    old.add("part", "old").await.expect("written");
    assert!(matches!(
        old.add("part", "again").await,
        Err(FenceError::Misuse { .. })
    ));
    assert_eq!(
        objects.resolve("set").await.expect("readable"),
        None,
        "not published"
    );

    let mut new = objects.draft(&second, "set").expect("a stamp is always live");
    new.add("part", "new").await.expect("written");
    new.add("index", "i").await.expect("written");
    new.publish().await.expect("a newer token");
    assert_stale(old.publish().await, 1, 2);

    let manifest = objects
        .resolve("set")
        .await
        .expect("readable")
        .expect("published");
    assert_eq!(manifest.token, Token::new(2));
    let names: Vec<_> = manifest.entries.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["part", "index"]);
    let (_, key) = &manifest.entries[0];
    let plain = client
        .get_object()
        .bucket(BUCKET)
        .key(key)
        .send()
        .await
        .expect("readable by any tool");
    assert_eq!(plain.body.collect().await.expect("readable").into_bytes(), "new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_survive_a_crash_of_the_server() {
    let mut server = MiniStack::start().await;
    let objects = Objects::new(server.client(), BUCKET);
    objects.put(&stamp(42), "k", "x").await.expect("the first token");
    objects.claim(&stamp(43), "k").await.expect("a newer token");
    server.crash_and_restart().await;
    let objects = Objects::new(server.client(), BUCKET);
    assert_stale(objects.put(&stamp(42), "k", "y").await, 42, 43);
    objects.put(&stamp(43), "k", "z").await.expect("an equal token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn order_holds_through_a_crash_in_the_middle() {
    let mut server = MiniStack::start().await;
    let store = Arc::new(OneObject {
        objects: Objects::new(server.client(), BUCKET),
        key: "object".into(),
    });
    suite::race_through_a_restart(store, server.crash_and_restart(), common::seed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_a_failure_and_nothing_else() {
    let objects = Objects::new(client_at(common::server::free_port()), BUCKET);
    let result = objects.put(&stamp(1), "k", "x").await;
    assert!(matches!(result, Err(FenceError::Backend(_))), "{result:?}");

    let server = MiniStack::start().await;
    let result = Objects::new(server.client(), "no-such-bucket")
        .put(&stamp(1), "k", "x")
        .await;
    assert!(matches!(result, Err(FenceError::Backend(_))), "{result:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_self_test_passes_a_sound_endpoint_and_tidies_up() {
    let server = MiniStack::start().await;
    let objects = Objects::new(server.client(), BUCKET);
    let report = objects.self_test("probe/").await.expect("a sound endpoint");
    assert!(report.quoted_etags && report.conditional_multipart, "{report:?}");
    assert_eq!(objects.list("probe/").await.expect("readable"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_self_test_refuses_an_endpoint_that_ignores_conditions() {
    let server = MiniStack::start().await;
    let proxy = Proxy::start(server.port()).await;
    let objects = Objects::new(client_at(proxy.port()), BUCKET);
    proxy.always_after(0, "if-match:", Fault::Replace("x-"));
    let refused = objects.self_test("probe/").await;
    assert!(
        matches!(refused, Err(SelfTestError::IgnoresIfMatch)),
        "{refused:?}"
    );
    proxy.always_after(0, "if-none-match:", Fault::Replace("x-"));
    let refused = objects.self_test("probe/").await;
    assert!(
        matches!(refused, Err(SelfTestError::IgnoresIfNoneMatch)),
        "{refused:?}"
    );
}

/// Conditions that hold for one writer at a time, and not for several: they are ignored once the races begin.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_self_test_refuses_an_endpoint_that_is_not_atomic() {
    let server = MiniStack::start().await;
    for header in ["If-None-Match", "If-Match"] {
        let proxy = Proxy::start(server.port()).await;
        let objects = Objects::new(client_at(proxy.port()), BUCKET);
        proxy.always_after(SEQUENTIAL_CONDITIONS, &format!("{header}:"), Fault::Replace("x-"));
        match objects.self_test("probe/").await {
            Err(SelfTestError::TwoWinners {
                winners: 2..,
                condition,
            }) => assert_eq!(condition, header),
            other => panic!("{header}: {other:?}"),
        }
    }
}

/// How many requests with each condition the self-test sends before it lets writers race.
const SEQUENTIAL_CONDITIONS: usize = 3;

/// Two ways to one server; the second leads through a proxy.
async fn fast_and_slow(server: &MiniStack) -> (Objects, Objects, Proxy) {
    let proxy = Proxy::start(server.port()).await;
    let fast = Objects::new(server.client(), BUCKET);
    let slow = Objects::new(client_at(proxy.port()), BUCKET);
    (fast, slow, proxy)
}
