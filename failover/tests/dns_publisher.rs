//! The service's name in a zone of a real BIND.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/bind.rs"]
mod bind;

use std::net::IpAddr;
use std::time::Duration;

use monolock_failover::core::Term;
use monolock_failover::dns::{NameProgress, NamePublisher, PublishError, Published, ServiceState};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use bind::{Bind, KEY, POWERLESS_KEY, primary_at};

const NAME: &str = "locks.example.com";
const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";

fn state(addresses: &[&str], term: u64) -> ServiceState {
    ServiceState {
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        term: Term(term),
    }
}

fn publisher(bind: &Bind) -> NamePublisher {
    NamePublisher::new(bind.primary(KEY), NAME).unwrap()
}

/// Asks until the name shows what it should.
async fn until_shown(bind: &Bind, kind: &str, expected: &str) {
    let shown = async {
        while bind.dig(NAME, kind) != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), shown)
        .await
        .unwrap_or_else(|_| panic!("{NAME} {kind} is {:?}, not {expected:?}", bind.dig(NAME, kind)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_follows_the_terms_and_never_goes_back() {
    let bind = Bind::start();
    let publisher = publisher(&bind);
    assert_eq!(publisher.publish(&state(&[A], 1)).await, Ok(Published::Changed));
    assert_eq!(
        (bind.dig(NAME, "A"), bind.dig(NAME, "TXT")),
        (A.into(), "\"term=1\"".into())
    );
    assert_eq!(publisher.publish(&state(&[A], 1)).await, Ok(Published::Unchanged));
    let both = state(&[B, "2001:db8::2"], 2);
    assert_eq!(publisher.publish(&both).await, Ok(Published::Changed));
    assert_eq!(
        (bind.dig(NAME, "A"), bind.dig(NAME, "AAAA")),
        (B.into(), "2001:db8::2".into())
    );
    let late = publisher.publish(&state(&[A], 1)).await;
    assert!(
        matches!(
            &late,
            Err(PublishError::Superseded {
                published: Term(2),
                own: Term(1),
                ..
            })
        ),
        "{late:?}"
    );
    assert_eq!(bind.dig(NAME, "A"), B);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_publish_at_once_the_largest_term_stays() {
    let bind = Bind::start();
    let attempts: Vec<_> = (1..=8)
        .map(|term| {
            let publisher = publisher(&bind);
            let address = format!("192.0.2.{term}");
            tokio::spawn(async move {
                loop {
                    match publisher.publish(&state(&[&address], term)).await {
                        Ok(_) | Err(PublishError::Superseded { .. }) => return,
                        Err(PublishError::Failed { .. }) => {}
                    }
                }
            })
        })
        .collect();
    for attempt in attempts {
        attempt.await.unwrap();
    }
    assert_eq!(
        (bind.dig(NAME, "A"), bind.dig(NAME, "TXT")),
        ("192.0.2.8".into(), "\"term=8\"".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_by_hand_is_found_at_every_server_and_repaired() {
    let bind = Bind::start();
    let publisher = publisher(&bind);
    publisher.publish(&state(&[A], 1)).await.unwrap();
    bind.update(&format!(
        "update delete {NAME} A\nupdate add {NAME} 60 A 192.0.2.99"
    ));
    let shown = publisher.shown().await.unwrap();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].server.to_string(), format!("127.0.0.1:{}", bind.port()));
    assert_eq!(
        shown[0].addresses,
        Ok(vec!["192.0.2.99".parse::<IpAddr>().unwrap()])
    );
    assert_eq!(publisher.publish(&state(&[A], 1)).await, Ok(Published::Changed));
    bind.update(&format!(
        "update delete {NAME} TXT\nupdate add {NAME} 60 TXT \"by hand\""
    ));
    assert_eq!(publisher.publish(&state(&[A], 1)).await, Ok(Published::Changed));
    assert_eq!(bind.dig(NAME, "TXT"), "\"term=1\"");
}

async fn until(progress: &mut watch::Receiver<NameProgress>, is_so: impl FnMut(&NameProgress) -> bool) {
    let waiting = progress.wait_for(is_so);
    tokio::time::timeout(Duration::from_secs(30), waiting)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_name_is_published_by_its_own_node_only_and_outlives_an_outage() {
    let mut bind = Bind::start();
    let (changes, watched) = watch::channel(ServiceState::default());
    let stop = CancellationToken::new();
    let own = vec![A.parse().unwrap()];
    let (progress, mut seen) = watch::channel(NameProgress::default());
    let keeping = tokio::spawn(publisher(&bind).keep(own, watched, progress, stop.clone()));
    changes.send_replace(state(&[A], 1));
    until_shown(&bind, "A", A).await;
    changes.send_replace(state(&[B], 2));
    bind.stop();
    changes.send_replace(state(&[A], 3));
    until(&mut seen, |progress| {
        progress.pending && progress.problem.is_some()
    })
    .await;
    bind.kill_and_restart();
    until_shown(&bind, "TXT", "\"term=3\"").await;
    assert_eq!(bind.dig(NAME, "A"), A);
    until(&mut seen, |progress| *progress == NameProgress::default()).await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(30), keeping)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_is_named_with_its_reason() {
    let bind = Bind::start();
    for (publisher, expected) in [
        (
            NamePublisher::new(bind.primary(POWERLESS_KEY), NAME).unwrap(),
            "let the key update the zone",
        ),
        (
            NamePublisher::new(bind.primary("pair-key:d3Jvbmc="), NAME).unwrap(),
            "check the TSIG key",
        ),
        (
            NamePublisher::new(primary_at(1, "example.com", KEY), NAME).unwrap(),
            "nothing listens",
        ),
    ] {
        let error = publisher.publish(&state(&[A], 1)).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains(NAME), "{error}");
    }
    bind.update(&format!("update add {NAME} 60 CNAME elsewhere.example.com"));
    let error = publisher(&bind).publish(&state(&[A], 1)).await.unwrap_err();
    assert!(error.to_string().contains("CNAME"), "{error}");
    assert!(NamePublisher::new(bind.primary(KEY), "locks.example.org").is_err());
}
