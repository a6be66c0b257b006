//! The client against a real server: grants, queues, and one test for each way to lose a lock.

mod support;

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use monolock_client::{Client, ErrorCode, Guard, Lost, Retry, RunError, blocking};
use rustix::process::{Signal, kill_process};
use support::server::{Server, pid, without_settings};
use support::{PATIENCE, eventually};

const LOCK: &str = "nightly/import";
/// To be waited for; long enough that a busy machine does not starve the client's thread meanwhile.
const LEASE: Duration = Duration::from_secs(3);
const LONG_LEASE: Duration = Duration::from_secs(30);

fn client(servers: &str) -> Client {
    Client::new(servers).expect("valid")
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

async fn acquire(client: &Client, lock: &str, lease: Duration) -> Guard {
    patiently(client.acquire(lock, lease)).await.expect("granted")
}

#[tokio::test]
async fn waiters_are_served_in_order_with_growing_tokens() {
    let server = Server::start_with_admin();
    let client = client(&server.servers());
    let first = acquire(&client, LOCK, LONG_LEASE).await;
    let mut last = first.token().expect("held");
    let mut waiters = Vec::new();
    for place in 0..3 {
        let client = client.clone();
        let waiter = tokio::spawn(async move { (place, acquire(&client, LOCK, LONG_LEASE).await) });
        waiters.push(waiter);
        await_waiters(&server, place + 1).await;
    }
    drop(first);
    for (expected, waiter) in waiters.into_iter().enumerate() {
        let (place, guard) = patiently(waiter).await.expect("joins");
        assert_eq!(place, expected);
        let token = guard.token().expect("held");
        assert!(token > last);
        last = token;
    }
}

/// Waits until the queue is so long; nothing but the server knows.
async fn await_waiters(server: &Server, expected: usize) {
    let admin = server.admin();
    let wait = move || {
        eventually("the queue", || {
            let status = monolock(&["status", LOCK, "--json", "--admin", &admin]);
            status.matches("queued_at").count() == expected
        });
    };
    tokio::task::spawn_blocking(wait).await.expect("joins");
}

/// What the command line prints.
fn monolock(arguments: &[&str]) -> String {
    let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_monolock")));
    let output = command.args(arguments).output().expect("it runs");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn a_force_release_is_told_with_its_code() {
    let server = Server::start_with_admin();
    let client = client(&server.servers());
    let guard = acquire(&client, LOCK, LONG_LEASE).await;
    let said = monolock(&["release", LOCK, "--admin", &server.admin()]);
    assert_eq!(said, format!("{LOCK}: released\n"));
    let cause = patiently(guard.lost()).await;
    assert!(
        matches!(
            cause,
            Lost::Server {
                code: ErrorCode::ClosedByAdministrator,
                ..
            }
        ),
        "{cause:?}"
    );
}

#[tokio::test]
async fn a_kicked_waiter_loses_its_place_and_may_come_back() {
    let server = Server::start_with_admin();
    let client = client(&server.servers());
    let holder = acquire(&client, LOCK, LONG_LEASE).await;
    for may_retry in [false, true] {
        let claim = client.claim(LOCK, LONG_LEASE);
        let waiter = tokio::spawn(async move {
            if may_retry {
                claim.acquire_with_retry().await
            } else {
                claim.acquire().await
            }
        });
        await_waiters(&server, 1).await;
        let status = monolock(&["status", LOCK, "--admin", &server.admin()]);
        let address = status
            .split("1. ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .expect("a waiter");
        assert!(monolock(&["kick", LOCK, address, "--admin", &server.admin()]).contains("no longer waits"));
        if may_retry {
            await_waiters(&server, 1).await;
            waiter.abort();
        } else {
            let error = patiently(waiter).await.expect("joins").expect_err("kicked");
            assert_eq!(error.retry(), Some(Retry::Backoff));
            assert!(error.to_string().contains("closed by administrator"), "{error}");
        }
    }
    holder.token().expect("held");
}

#[tokio::test]
async fn a_lock_is_tried_without_queueing() {
    let server = Server::start();
    let client = client(&server.servers());
    let guard = acquire(&client, LOCK, LONG_LEASE).await;
    assert!(
        patiently(client.try_lock(LOCK, LONG_LEASE))
            .await
            .expect("asked")
            .is_none()
    );
    drop(guard);
    let mut taken = None;
    // The release is on its way while the next claim is, too.
    while taken.is_none() {
        taken = patiently(client.try_lock(LOCK, LONG_LEASE)).await.expect("asked");
    }
}

#[tokio::test]
async fn a_frozen_server_is_a_heartbeat_timeout() {
    let server = Server::start();
    let guard = acquire(&client(&server.servers()), LOCK, LEASE).await;
    server.signal(Signal::STOP);
    let cause = patiently(guard.lost()).await;
    assert!(matches!(cause, Lost::HeartbeatTimeout { .. }), "{cause:?}");
    assert_eq!(guard.token(), Err(cause));
}

#[tokio::test]
async fn a_killed_server_is_a_closed_connection_and_its_successor_grants_a_larger_token() {
    let server = Server::start();
    let client = client(&server.servers());
    let guard = acquire(&client, LOCK, LONG_LEASE).await;
    let token = guard.token().expect("held");
    let address = server.kill();
    let cause = patiently(guard.lost()).await;
    assert!(matches!(cause, Lost::Closed(_)), "{cause:?}");

    let next = tokio::spawn(async move {
        client
            .run_with_retry(LOCK, LONG_LEASE, async |grant| grant.token())
            .await
    });
    let server = tokio::task::spawn_blocking(move || Server::start_with(&address.to_string(), &[]));
    let _server = server.await.expect("it starts again");
    let next = patiently(next).await.expect("joins").expect("granted");
    assert!(next > token, "{next} after {token}");
}

#[tokio::test]
async fn a_server_that_stops_says_so() {
    let server = Server::start();
    let client = client(&server.servers());
    let runs = AtomicU32::new(0);
    let work = client.run(LOCK, LONG_LEASE, async |_| {
        runs.fetch_add(1, Ordering::SeqCst);
        server.signal(Signal::TERM);
        std::future::pending::<Result<(), Infallible>>().await
    });
    let result = patiently(work).await;
    let Err(RunError::Lost { cause, work: None }) = result else {
        panic!("{result:?}")
    };
    assert!(
        matches!(
            cause,
            Lost::Server {
                code: ErrorCode::ShuttingDown,
                ..
            }
        ),
        "{cause:?}"
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn dropped_packets_are_a_heartbeat_timeout() {
    let server = Server::start();
    let proxy = Proxy::start(server.address);
    let guard = acquire(&client(&proxy.address.to_string()), LOCK, LEASE).await;
    proxy.drop_all.store(true, Ordering::SeqCst);
    let cause = patiently(guard.lost()).await;
    assert!(matches!(cause, Lost::HeartbeatTimeout { .. }), "{cause:?}");
    // The server has seen nothing either, and serves the next one when the lease is over.
    drop(acquire(&client(&server.servers()), LOCK, LEASE).await);
}

/// Forwards bytes between a client and a server until it is told to lose them all; it closes nothing.
struct Proxy {
    address: SocketAddr,
    drop_all: Arc<AtomicBool>,
}

impl Proxy {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let drop_all = Arc::new(AtomicBool::new(false));
        std::thread::spawn({
            let drop_all = Arc::clone(&drop_all);
            move || {
                let (client, _) = listener.accept().expect("a client");
                let server = TcpStream::connect(server).expect("the server listens");
                let clones = (
                    client.try_clone().expect("cloned"),
                    server.try_clone().expect("cloned"),
                );
                let back = Arc::clone(&drop_all);
                std::thread::spawn(move || forward(clones.1, clones.0, &back));
                forward(client, server, &drop_all);
            }
        });
        Self { address, drop_all }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, drop_all: &AtomicBool) {
    let mut bytes = [0; 512];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if !drop_all.load(Ordering::SeqCst) && to.write_all(&bytes[..read]).is_err() {
            return;
        }
    }
}

#[test]
fn a_frozen_process_finds_its_lock_lost_before_it_does_anything_else() {
    let server = Server::start();
    let holder = HolderProcess::start(&server);
    let first: u64 = holder
        .next_line()
        .strip_prefix("held ")
        .expect("held")
        .parse()
        .expect("a token");
    kill_process(pid(&holder.process), Signal::STOP).expect("it runs");
    let next = blocking::Client::from(client(&server.servers()))
        .acquire(LOCK, LONG_LEASE)
        .expect("granted");
    assert!(next.token().expect("held").get() > first);
    let before: Vec<_> = holder.lines.try_iter().collect();
    assert!(before.iter().all(|line| line.starts_with("held ")), "{before:?}");

    kill_process(pid(&holder.process), Signal::CONT).expect("it is stopped");
    let mut after = holder.next_line();
    if after.starts_with("held ") {
        // It was frozen between the question and the print: only a fencing token covers that.
        after = holder.next_line();
    }
    assert!(after.starts_with("lost Suspended"), "{after}");
}

/// This test binary again, as a process that holds the lock and asks for its token all the time.
struct HolderProcess {
    process: Child,
    lines: Receiver<String>,
}

const HOLDER_SERVER: &str = "HOLDER_SERVER";

impl HolderProcess {
    fn start(server: &Server) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("a test knows its own path"))
            .args([
                "--exact",
                "hold_as_a_process",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(HOLDER_SERVER, server.servers())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = BufReader::new(process.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if line.starts_with("held ") || line.starts_with("lost ") {
                    // The test may have ended.
                    let _ = sender.send(line);
                }
            }
        });
        Self { process, lines }
    }

    fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the holder speaks")
    }
}

impl Drop for HolderProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "the other process of another test"]
fn hold_as_a_process() {
    let Ok(servers) = std::env::var(HOLDER_SERVER) else {
        return;
    };
    let guard = blocking::Client::from(client(&servers))
        .acquire(LOCK, LEASE)
        .expect("granted");
    // The harness has begun this line.
    println!();
    loop {
        match guard.token() {
            Ok(token) => println!("held {token}"),
            Err(lost) => return println!("lost {lost:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn a_cancelled_wait_leaves_the_queue() {
    let server = Server::start();
    let client = client(&server.servers());
    let holder = acquire(&client, LOCK, LONG_LEASE).await;
    for _ in 0..20 {
        let wait = client
            .claim(LOCK, LONG_LEASE)
            .wait_limit(Duration::from_millis(20))
            .acquire()
            .await;
        assert!(wait.is_err());
    }
    drop(holder);
    // A leaked waiter would be promoted and keep the lock for its long lease.
    let mut taken = None;
    eventually("the next grant", || {
        taken = blocking::Client::from(client.clone())
            .try_lock(LOCK, LONG_LEASE)
            .expect("asked");
        taken.is_some()
    });
}
