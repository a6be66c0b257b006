//! A proxy between a client and a server that loses an answer, holds a request back, changes it, or answers itself. It
//! counts the round trips.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What to do with a request.
#[derive(Clone)]
pub enum Fault {
    /// The server gets it and answers; the client hears nothing but the end of the connection.
    LoseAnswer,
    /// The server never gets it; the connection ends.
    Cut,
    /// The server gets it when released; until then the client waits.
    Hold(Arc<Gate>),
    /// The server gets other bytes instead.
    Replace(&'static str),
    /// The server never gets it; the client is answered with this, and the connection ends.
    Answer(String),
}

/// Where a held request waits.
#[derive(Default)]
pub struct Gate {
    reached: Notify,
    open: Notify,
}

impl Gate {
    /// Waits until a request is held here.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    pub fn open(&self) {
        self.open.notify_one();
    }
}

struct Rule {
    /// Text that the request must contain, in any case.
    needle: String,
    fault: Fault,
    /// How many such requests pass untouched before.
    skip: usize,
    once: bool,
}

type Rules = Arc<Mutex<Vec<Rule>>>;

/// A proxy of one server; it ends with this value.
pub struct Proxy {
    port: u16,
    rules: Rules,
    round_trips: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy of the server on this port.
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("some port is free");
        let port = listener.local_addr().expect("bound").port();
        let (rules, round_trips) = (Rules::default(), Arc::default());
        let task = tokio::spawn(accept(
            listener,
            (Ipv4Addr::LOCALHOST, server).into(),
            rules.clone(),
            Arc::clone(&round_trips),
        ));
        Self {
            port,
            rules,
            round_trips,
            task,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Does this to the next request that contains the text.
    pub fn once(&self, needle: &str, fault: Fault) {
        self.add(needle, fault, 0, true);
    }

    /// Does this to every request that contains the text, but for the first ones.
    pub fn always_after(&self, skip: usize, needle: &str, fault: Fault) {
        self.add(needle, fault, skip, false);
    }

    /// Holds a request back, whatever it says: the first one, or one after so many others.
    pub fn hold_after(&self, skip: usize) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        self.add("", Fault::Hold(gate.clone()), skip, true);
        gate
    }

    /// Forgets all faults that have not happened.
    pub fn clear(&self) {
        self.rules.lock().expect("no panic").clear();
    }

    /// How often a client has sent something after an answer, on all connections so far.
    pub fn round_trips(&self) -> usize {
        self.round_trips.load(Ordering::SeqCst)
    }

    /// True when each single fault has happened.
    pub fn is_spent(&self) -> bool {
        self.rules.lock().expect("no panic").iter().all(|rule| !rule.once)
    }

    fn add(&self, needle: &str, fault: Fault, skip: usize, once: bool) {
        let rule = Rule {
            needle: needle.to_ascii_lowercase(),
            fault,
            skip,
            once,
        };
        self.rules.lock().expect("no panic").push(rule);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, rules: Rules, round_trips: Arc<AtomicUsize>) {
    while let Ok((client, _)) = listener.accept().await {
        let (rules, round_trips) = (rules.clone(), round_trips.clone());
        tokio::spawn(async move {
            // Without the server the client sees its connection end.
            let Ok(server) = TcpStream::connect(server).await else {
                return;
            };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let turn = Arc::new(Turn {
                answered: AtomicBool::new(true),
                ..Turn::default()
            });
            let answers = tokio::spawn(pass_answers(from_server, to_client, turn.clone()));
            pass_requests(from_client, to_server, rules, &turn, &round_trips).await;
            drop(answers.await);
        });
    }
}

/// What the two directions of a connection tell each other.
#[derive(Default)]
struct Turn {
    /// The last bytes came from the server.
    answered: AtomicBool,
    lose: Notify,
    answer: Mutex<String>,
    answer_instead: Notify,
}

async fn pass_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    rules: Rules,
    turn: &Turn,
    round_trips: &AtomicUsize,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if turn.answered.swap(false, Ordering::SeqCst) {
            round_trips.fetch_add(1, Ordering::SeqCst);
        }
        let mut bytes = buffer[..n].to_vec();
        for fault in faults_for(&rules, &bytes) {
            match fault {
                (_, Fault::LoseAnswer) => turn.lose.notify_one(),
                (_, Fault::Cut) => return,
                (_, Fault::Hold(gate)) => {
                    gate.reached.notify_one();
                    gate.open.notified().await;
                }
                (at, Fault::Replace(by)) => bytes[at..at + by.len()].copy_from_slice(by.as_bytes()),
                (_, Fault::Answer(answer)) => {
                    *turn.answer.lock().expect("no panic") = answer;
                    turn.answer_instead.notify_one();
                    // What is left of the request, up to the end of the connection.
                    while let Ok(1..) = from.read(&mut buffer).await {}
                    return;
                }
            }
        }
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Needles are looked for in one read: they are short, and near the start of a request.
fn faults_for(rules: &Rules, bytes: &[u8]) -> Vec<(usize, Fault)> {
    let lower = bytes.to_ascii_lowercase();
    let mut found = Vec::new();
    rules.lock().expect("no panic").retain_mut(|rule| {
        let needle = rule.needle.as_bytes();
        let Some(at) = (0..lower.len()).find(|at| lower[*at..].starts_with(needle)) else {
            return true;
        };
        if rule.skip > 0 {
            rule.skip -= 1;
            return true;
        }
        found.push((at, rule.fault.clone()));
        !rule.once
    });
    found
}

async fn pass_answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, turn: Arc<Turn>) {
    let mut buffer = vec![0; 64 << 10];
    let mut losing = false;
    loop {
        tokio::select! {
            biased;
            () = turn.lose.notified(), if !losing => losing = true,
            () = turn.answer_instead.notified() => {
                let answer = std::mem::take(&mut *turn.answer.lock().expect("no panic"));
                // An error means that the client has gone already.
                drop(to.write_all(answer.as_bytes()).await);
                return;
            }
            read = from.read(&mut buffer) => {
                let Ok(n @ 1..) = read else { return };
                turn.answered.store(true, Ordering::SeqCst);
                // The answer is here, so the server has done what it was asked.
                if losing || to.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}
