//! Hosts, the switch between them, and the faults of the switch.
//!
//! The namespaces are called after the test process. They go when the [`Network`] is dropped; when the test process is
//! killed, by a guardian; and should that be killed too, when the next network is made.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::guardian::Guardian;

/// The first three bytes of every host's address. The namespaces see nothing else, so they collide with nobody.
const SUBNET: [u8; 3] = [10, 213, 0];
const PREFIX: &str = "monolock-test";
/// Where `ip netns exec` looks for the files that a host sees in the place of those in `/etc`.
const HOST_FILES: &str = "/etc/netns";

/// How many networks this process has made.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// Hosts that reach each other through one switch.
#[derive(Debug)]
pub struct Network {
    name: String,
    hosts: Vec<Host>,
    _guardian: Guardian,
}

/// One host: an address, and whatever is started on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    namespace: String,
    name: String,
    address: Ipv4Addr,
}

impl Network {
    /// Makes a network of hosts with these names, each of at most eleven letters. The one called `resolver`, if any, is the
    /// name server that all of them ask.
    ///
    /// # Panics
    ///
    /// When this is not root, or the machine lacks `ip` or `nft` or the kernel's side of them.
    #[must_use]
    pub fn new(names: &[&str], resolver: Option<&str>) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "several hosts are network namespaces on this machine: run this test as root"
        );
        remove_leftovers();
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}-{}-{number}", process::id());
        let guardian = Guardian::new(REMOVE, &format!("{name}-"));
        let hosts = (1..).zip(names).map(|(last, host)| Host {
            namespace: format!("{name}-{host}"),
            name: (*host).to_owned(),
            address: Ipv4Addr::new(SUBNET[0], SUBNET[1], SUBNET[2], last),
        });
        let network = Self {
            hosts: hosts.collect(),
            name,
            _guardian: guardian,
        };
        network.make_switch();
        let resolver = resolver.map(|name| network.host(name).address);
        for host in &network.hosts {
            network.connect(host);
            host.ask_names_at(resolver);
        }
        network
    }

    /// A host by its name.
    ///
    /// # Panics
    ///
    /// When there is none of this name.
    #[must_use]
    pub fn host(&self, name: &str) -> &Host {
        self.hosts
            .iter()
            .find(|host| host.name == name)
            .unwrap_or_else(|| panic!("no host is called {name}"))
    }

    /// The name of the host with this address, or the address.
    #[must_use]
    pub fn name_of(&self, address: std::net::IpAddr) -> String {
        self.hosts
            .iter()
            .find(|host| address == host.address)
            .map_or_else(|| address.to_string(), |host| host.name.clone())
    }

    /// Drops every packet from one host to the other; those in the other direction pass.
    ///
    /// # Panics
    ///
    /// When the switch takes no such rule.
    pub fn cut_one_way(&self, from: &str, to: &str) {
        let (from, to) = (self.host(from).address, self.host(to).address);
        self.add_rule(&format!("ip saddr {from} ip daddr {to} counter drop"));
    }

    /// Drops every packet between two hosts.
    ///
    /// # Panics
    ///
    /// When the switch takes no such rule.
    pub fn cut(&self, one: &str, other: &str) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Drops so many percent of the packets from and to a host, at random.
    ///
    /// # Panics
    ///
    /// When the switch takes no such rule.
    pub fn lose(&self, percent: u8, host: &str) {
        let address = self.host(host).address;
        for direction in ["saddr", "daddr"] {
            self.add_rule(&format!(
                "ip {direction} {address} numgen random mod 100 < {percent} counter drop"
            ));
        }
    }

    /// Takes a host's link down.
    ///
    /// # Panics
    ///
    /// When it cannot be.
    pub fn unplug(&self, host: &str) {
        self.set_link(host, "down");
    }

    /// Takes a host's link up again.
    ///
    /// # Panics
    ///
    /// When it cannot be.
    pub fn plug(&self, host: &str) {
        self.set_link(host, "up");
    }

    /// Ends every fault of the switch. What is unplugged stays so.
    ///
    /// # Panics
    ///
    /// When the switch does not take it.
    pub fn heal(&self) {
        self.nft("flush chain bridge faults forward");
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn make_switch(&self) {
        let switch = self.switch();
        run("ip", ["netns", "add", &switch]);
        run("ip", ["-n", &switch, "link", "add", "switch", "type", "bridge"]);
        run("ip", ["-n", &switch, "link", "set", "switch", "up"]);
        self.nft(
            "add table bridge faults
             add chain bridge faults forward { type filter hook forward priority 0; policy accept; }",
        );
    }

    fn connect(&self, host: &Host) {
        let (switch, namespace, port) = (self.switch(), &host.namespace, host.port());
        run("ip", ["netns", "add", namespace]);
        run(
            "ip",
            [
                "-n", namespace, "link", "add", "eth0", "type", "veth", "peer", "name", &port, "netns",
                &switch,
            ],
        );
        let address = format!("{}/24", host.address);
        run("ip", ["-n", namespace, "address", "add", &address, "dev", "eth0"]);
        run("ip", ["-n", namespace, "link", "set", "lo", "up"]);
        run("ip", ["-n", namespace, "link", "set", "eth0", "up"]);
        run(
            "ip",
            ["-n", &switch, "link", "set", &port, "master", "switch", "up"],
        );
    }

    fn set_link(&self, host: &str, state: &str) {
        let (switch, port) = (self.switch(), self.host(host).port());
        run("ip", ["-n", &switch, "link", "set", &port, state]);
    }

    fn add_rule(&self, rule: &str) {
        self.nft(&format!("add rule bridge faults forward {rule}"));
    }

    fn nft(&self, script: &str) {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.switch(), "nft", "-f", "-"]);
        run_with_input(command, script);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        remove(&format!("{}-", self.name));
    }
}

impl Host {
    /// Its address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs a program on this host.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace])
            .arg(program)
            .env("LC_ALL", "C");
        command
    }

    /// The same command, to run on this host.
    #[must_use]
    pub fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = self.command(command.get_program());
        wrapped.args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(variable, value),
                None => wrapped.env_remove(variable),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        wrapped
    }

    /// Its port at the switch.
    fn port(&self) -> String {
        format!("to-{}", self.name)
    }

    fn files(&self) -> PathBuf {
        Path::new(HOST_FILES).join(&self.namespace)
    }

    fn ask_names_at(&self, server: Option<Ipv4Addr>) {
        let files = self.files();
        fs::create_dir_all(&files).expect("root may write below /etc");
        let content = server.map_or_else(String::new, |address| {
            format!("nameserver {address}\noptions timeout:1 attempts:2\n")
        });
        fs::write(files.join("resolv.conf"), content).expect("root may write below /etc");
    }
}

/// Removes the namespaces whose names start with `$0`, with whatever runs in them. Ends even when something is gone already.
const REMOVE: &str = r#"
    ip netns list | while read -r name _; do
        case "$name" in "$0"*) ;; *) continue ;; esac
        ip netns pids "$name" | xargs -r kill -KILL
        ip netns delete "$name"
        rm -rf "/etc/netns/${name:?}"
    done 2>/dev/null
"#;

fn remove(prefix: &str) {
    let removed = Command::new("sh").args(["-c", REMOVE, prefix]).status();
    if !removed.is_ok_and(|status| status.success()) {
        eprintln!("the network namespaces {prefix}* may be left over");
    }
}

/// Removes the networks of test processes that are gone.
fn remove_leftovers() {
    let listed = run("ip", ["netns", "list"]);
    let left_over = |name: &&str| {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').nth(1));
        owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists())
    };
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    for name in names.filter(left_over) {
        remove(name);
    }
}

/// Runs a program to its end, and returns what it printed.
fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    run_with_input(command, "")
}

/// The same, with something to read.
///
/// # Panics
///
/// When the program does not start, or fails.
pub(super) fn run_with_input(mut command: Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{command:?} does not start: {error}: install it with integration-tests/setup")
        });
    let mut stdin = child.stdin.take().expect("it is piped");
    // A program that ends without reading says why on its standard error.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child
        .wait_with_output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed: {}{input}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Network {
        /// How many packets the rules that are in force have dropped.
        fn dropped(&self) -> u64 {
            let switch = self.switch();
            let rules = run("ip", ["netns", "exec", &switch, "nft", "list", "ruleset"]);
            let words: Vec<_> = rules.split_whitespace().collect();
            let counters = words.windows(2).filter(|pair| pair[0] == "packets");
            counters
                .map(|pair| pair[1].parse::<u64>().expect("a number"))
                .sum()
        }
    }

    /// Whether a connection from one host to a port of another that nobody listens at is refused; else nothing comes back.
    fn answers(network: &Network, from: &str, to: &str) -> bool {
        let target = format!("exec 3<>/dev/tcp/{}/9", network.host(to).address());
        let mut command = network.host(from).command("timeout");
        let status = command
            .args(["1", "bash", "-c", &target])
            .stderr(Stdio::null())
            .status()
            .expect("ip starts");
        status.code() == Some(1)
    }

    #[test]
    fn hosts_reach_each_other_but_for_the_faults_between_them() {
        let network = Network::new(&["x", "y", "z"], None);
        assert!(answers(&network, "x", "y") && answers(&network, "y", "x"));

        network.cut("x", "y");
        assert!(!answers(&network, "x", "y") && !answers(&network, "y", "x"));
        assert!(answers(&network, "x", "z") && answers(&network, "z", "y"));
        network.heal();
        assert!(answers(&network, "x", "y"));

        network.cut_one_way("x", "y");
        assert!(!answers(&network, "x", "y"));
        assert!(network.dropped() > 0, "the question is lost");
        network.heal();
        network.cut_one_way("y", "x");
        assert!(!answers(&network, "x", "y"));
        assert!(
            network.dropped() > 0,
            "the question has come, and the answer is lost"
        );
        network.heal();

        network.unplug("x");
        assert!(!answers(&network, "x", "y") && answers(&network, "y", "z"));
        network.plug("x");
        assert!(answers(&network, "x", "y"));
    }

    #[test]
    fn every_host_asks_the_resolver_and_the_files_go_with_the_network() {
        let network = Network::new(&["x", "names"], Some("names"));
        let mut command = network.host("x").command("cat");
        let content = command
            .arg("/etc/resolv.conf")
            .output()
            .expect("ip starts")
            .stdout;
        let expected = format!("nameserver {}\n", network.host("names").address());
        assert!(String::from_utf8_lossy(&content).starts_with(&expected));

        let files = network.host("x").files();
        let name = network.name.clone();
        assert!(files.exists());
        drop(network);
        assert!(!files.exists());
        assert!(!run("ip", ["netns", "list"]).contains(&name));
    }

    #[test]
    fn a_killed_test_leaves_no_host_behind() {
        let mut network = Network::new(&["x"], None);
        let name = network.name.clone();
        let mut sleeper = network
            .host("x")
            .command("sleep")
            .arg("600")
            .spawn()
            .expect("ip starts");
        // The end of the guardian's input is all it sees of the end of this process.
        drop(network._guardian.0.stdin.take());
        let ended = sleeper.wait().expect("it is our child");
        assert!(!ended.success());
        crate::wait::wait_until("the namespaces to be gone", || {
            !run("ip", ["netns", "list"]).contains(&name)
        });
    }
}
