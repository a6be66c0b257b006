//! Many claims in one process. A test binary of its own: they keep the one thread busy that all claims share.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use monolock_client::{Client, Guard, Lost};
use support::PATIENCE;
use support::server::Server;
use tokio::sync::Mutex;

/// One test at a time.
static TURN: Mutex<()> = Mutex::const_new(());

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn two_thousand_claims_need_no_thread_each_and_outlive_their_leases() {
    const CLAIMS: usize = 2_000;
    let _turn = TURN.lock().await;
    let server = Server::start();
    let client = Client::new(&server.servers()).expect("valid");
    let names: Vec<_> = (0..CLAIMS).map(|number| format!("lock {number}")).collect();
    let guards = join_all(names.iter().map(|name| client.acquire(name, LEASE))).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("granted")).collect();
    assert!(threads() < 40, "{} threads", threads());
    // The program's own thread does nothing for them meanwhile.
    std::thread::sleep(2 * LEASE);
    for guard in &guards {
        guard.token().expect("held");
    }
    drop(guards);
    let again = client
        .claim(&names[0], LEASE)
        .wait_limit(PATIENCE)
        .acquire()
        .await;
    drop(again.expect("released at once"));
}

#[tokio::test]
async fn a_thousand_clients_come_back_after_their_server_died() {
    const CLIENTS: usize = 1_000;
    let _turn = TURN.lock().await;
    let server = Server::start();
    let client = Client::new(&server.servers()).expect("valid");
    let names: Vec<_> = (0..CLIENTS).map(|number| format!("lock {number}")).collect();
    let all = || async {
        let guards = names
            .iter()
            .map(|name| client.claim(name, LEASE).acquire_with_retry());
        let guards = tokio::time::timeout(PATIENCE, join_all(guards))
            .await
            .expect("it hangs");
        guards
            .into_iter()
            .map(|guard| guard.expect("granted"))
            .collect::<Vec<_>>()
    };
    let before = all().await;
    let largest = before.iter().map(|guard| guard.token().expect("held")).max();
    let address = server.kill();
    let lost = join_all(before.iter().map(Guard::lost)).await;
    assert!(lost.iter().all(|cause| matches!(cause, Lost::Closed(_))));
    let restart = tokio::task::spawn_blocking(move || Server::start_with(&address.to_string(), &[]));
    let after = all().await;
    let smallest = after.iter().map(|guard| guard.token().expect("held")).min();
    assert!(smallest > largest, "{smallest:?} after {largest:?}");
    restart.await.expect("it starts again");
}

fn threads() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let threads = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"))
        .expect("a count");
    threads.trim().parse().expect("a number")
}
