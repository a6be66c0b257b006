//! Packets that are dropped without a word, between a server and its clients on hosts of their own.
//!
//! Nobody is told: no reset, no end of a connection. What must happen in time is told by the order of what happens, not by
//! a watch: the holder's command writes into a file until it is killed, and whoever holds the lock after it writes there too.

use std::fs;
use std::path::Path;
use std::process::Command;

use monolock_integration_tests::hosts::{Host, Network};
use monolock_integration_tests::process::{Exit, Process};
use monolock_integration_tests::wait::wait_until;
use monolock_integration_tests::{TempDir, binaries};

const PORT: u16 = 7070;
const LOST: i32 = 111;
/// The text of a heartbeat time-out. The client says it only when it has noticed before the lease ended on the server;
/// later it would say that the process did not run.
const SILENCE: &str = "the server has confirmed nothing for";

/// A server, the host of its first clients, and one that is never cut off.
struct Stage {
    network: Network,
    server: Process,
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        let network = Network::new(&["server", "clients", "rival"], None);
        let server = start_server(network.host("server"));
        Self {
            network,
            server,
            folder: TempDir::with_prefix("monolock-packets-").expect("a temporary folder can be made"),
        }
    }

    /// `monolock run` of a shell script on a host; the script finds the common file in `$LOG`.
    fn run(&self, name: &str, host: &str, script: &str) -> Process {
        let mut command = binaries::command("monolock");
        let server = format!("{}:{PORT}", self.network.host("server").address());
        command.args([
            "run",
            "packets",
            "--lease=4s",
            "--server",
            &server,
            "--",
            "sh",
            "-c",
            script,
        ]);
        command.env("LOG", self.log());
        Process::spawn(name, self.network.host(host).wrap(&command))
    }

    /// A holder that says so in the file for as long as it lives.
    fn hold(&self, name: &str, host: &str) -> Process {
        self.run(
            name,
            host,
            &format!("while echo {name} >> $LOG; do sleep 0.02; done"),
        )
    }

    fn log(&self) -> impl AsRef<Path> + AsRef<std::ffi::OsStr> + use<> {
        self.folder.path().join("log")
    }

    fn written(&self) -> Vec<String> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn wait_until_written_by(&self, name: &str) {
        wait_until(&format!("{name} to write"), || {
            self.written().iter().any(|line| line == name)
        });
    }

    fn cut_clients_off(&self) {
        self.network.cut("server", "clients");
    }
}

fn start_server(host: &Host) -> Process {
    let mut command: Command = binaries::command("monolock-server");
    command.env("MONOLOCK_LISTEN_ADDRESS", format!("{}:{PORT}", host.address()));
    let server = Process::spawn("monolock-server", host.wrap(&command));
    server.wait_for_line("listening address=");
    server
}

#[test]
fn dropped_packets_are_noticed_by_holder_and_waiter_and_the_work_stops_before_the_lock_moves_on() {
    let stage = Stage::new();
    let holder = stage.hold("holder", "clients");
    stage.wait_until_written_by("holder");
    let waiter = stage.hold("waiter", "clients");
    let rival = stage.hold("rival", "rival");
    wait_until("both to queue", || waiting(&stage) == 2);

    stage.cut_clients_off();
    assert_eq!(holder.wait_for_exit(), Exit::Code(LOST));
    holder.wait_for_line(SILENCE);
    // A waiter that was promoted in vain would be the next in the queue: the server has found it dead as well.
    stage.wait_until_written_by("rival");
    waiter.wait_for_line(SILENCE);
    let written = stage.written();
    let first_of_rival = written
        .iter()
        .position(|line| line == "rival")
        .expect("just seen");
    assert!(
        written[first_of_rival..].iter().all(|line| line == "rival"),
        "nobody writes beside the rival: {written:?}"
    );

    // The waiter is still there, and comes back when the network does.
    stage.network.heal();
    drop(rival);
    stage.wait_until_written_by("waiter");
}

/// How many claims wait: the connections that the server has, without the holder's.
fn waiting(stage: &Stage) -> usize {
    let mut command = Command::new("ss");
    command.args([
        "--no-header",
        "--numeric",
        "state",
        "established",
        &format!("sport = :{PORT}"),
    ]);
    let sockets = stage
        .network
        .host("server")
        .wrap(&command)
        .output()
        .expect("ss runs");
    String::from_utf8_lossy(&sockets.stdout)
        .lines()
        .count()
        .saturating_sub(1)
}

#[test]
fn a_server_whose_host_is_gone_is_noticed_on_its_half_open_connections() {
    let stage = Stage::new();
    let holder = stage.hold("holder", "clients");
    stage.wait_until_written_by("holder");
    let waiter = stage.hold("waiter", "clients");
    wait_until("the waiter to queue", || waiting(&stage) == 1);

    // Neither an end of the connections nor a reset gets out any more.
    stage.network.unplug("server");
    assert_eq!(stage.server.kill(), Exit::Signal(9));
    assert_eq!(holder.wait_for_exit(), Exit::Code(LOST));
    holder.wait_for_line(SILENCE);
    waiter.wait_for_line(SILENCE);

    // The host comes back and knows nothing of its old connections.
    stage.network.plug("server");
    let _server = start_server(stage.network.host("server"));
    stage.wait_until_written_by("waiter");
}
