//! The command `monolock` in a terminal: job control, and the live table.

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::eventually;
use support::server::{Server, without_settings};
use support::terminal::{CTRL_C, CTRL_Z, Terminal};

const MONOLOCK: &str = env!("CARGO_BIN_EXE_monolock");

/// `monolock run` of a shell script, in a terminal by itself.
fn run(server: &Server, script: &str) -> Terminal {
    let mut command = without_settings(Command::new(MONOLOCK));
    command.args([
        "run",
        "a/b",
        "--lease=30s",
        "--server",
        &server.servers(),
        "--",
        "sh",
        "-c",
        script,
    ]);
    Terminal::start(&command, 24, 160)
}

/// A shell with job control, as a user has it.
fn shell(server: &Server) -> Terminal {
    let mut command = without_settings(Command::new("bash"));
    command.args(["--norc", "--noprofile", "--noediting", "-i"]);
    command.env("PS1", "ready> ").env("HISTFILE", "/dev/null");
    command.env("MONOLOCK_SERVER", server.servers());
    let terminal = Terminal::start(&command, 24, 160);
    terminal.wait_for("ready> ");
    terminal
}

fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("script");
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn is_idle(server: &Server) -> bool {
    let command = without_settings(Command::new(MONOLOCK))
        .args(["run", "a/b", "--try", "--server", &server.servers(), "--", "true"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    command.expect("it runs").success()
}

#[test]
fn the_command_reads_from_the_terminal() {
    let server = Server::start();
    let mut terminal = run(
        &server,
        "read first; read second; echo \"got $first and $second\"; exit 7",
    );
    terminal.press("one\n");
    terminal.press("two\n");
    terminal.wait_for("got one and two");
    assert_eq!(terminal.wait_for_exit().code(), Some(7));
}

#[test]
fn ctrl_c_is_the_commands_own() {
    let server = Server::start();
    let mut terminal = run(
        &server,
        "trap 'echo interrupted; trap - INT' INT; echo started; while :; do sleep 0.1; done",
    );
    terminal.wait_for("started");
    terminal.press(CTRL_C);
    // It went on, and so did its lock.
    terminal.wait_for("interrupted");
    assert!(!is_idle(&server));
    terminal.press(CTRL_C);
    assert_eq!(terminal.wait_for_exit().code(), Some(128 + 2));
    eventually("the release", || is_idle(&server));
}

#[test]
fn ctrl_z_gives_the_shell_back_and_the_job_goes_on_with_its_lock() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let script = script(folder.path(), "echo started\nread line\necho \"got $line\"\n");
    let mut terminal = shell(&server);
    terminal.press(&format!("{MONOLOCK} run a/b --lease=5m -- sh {script}\n"));
    terminal.wait_for("started");
    eventually("the command to have the terminal", || {
        is_foreground_of_sh(&script)
    });
    terminal.press(CTRL_Z);
    terminal.wait_for("monolock: stopped together with the command");
    terminal.wait_for("Stopped");
    terminal.press("echo back in the shell $((6 * 7))\n");
    terminal.wait_for("back in the shell 42");
    assert!(!is_idle(&server), "the lease is long enough");
    terminal.press("fg\n");
    // What is typed before the command has the terminal again would be the shell's.
    eventually("the job to go on", || is_foreground_of_sh(&script));
    terminal.press("the line\n");
    terminal.wait_for("got the line");
    terminal.press("echo exit code $?\n");
    terminal.wait_for("exit code 0");
}

/// Whether the shell that runs this script is in the foreground group of its terminal.
fn is_foreground_of_sh(script: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("readable");
    processes.flatten().map(|process| process.path()).any(|process| {
        let command_line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        // After the name in parentheses: state, parent, group, session, terminal, foreground group of the terminal.
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        command_line == format!("sh\0{script}\0").as_bytes() && fields.get(2) == fields.get(5)
    })
}

#[test]
fn a_stopped_job_loses_its_lock_with_the_lease_and_says_so() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let script = script(folder.path(), "echo started\nread line\necho \"got $line\"\n");
    let mut terminal = shell(&server);
    terminal.press(&format!("{MONOLOCK} run a/b --lease=2s -- sh {script}\n"));
    terminal.wait_for("started");
    eventually("the command to have the terminal", || {
        is_foreground_of_sh(&script)
    });
    terminal.press(CTRL_Z);
    terminal.wait_for("the lock is lost unless both go on within its lease");
    terminal.wait_for("Stopped");
    eventually("the lock to move on", || is_idle(&server));
    terminal.press("fg\n");
    terminal.wait_for("lost the lock");
    terminal.press("echo exit code $?\n");
    terminal.wait_for("exit code 111");
}

#[test]
fn a_script_has_its_terminal_back_after_the_command() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "{MONOLOCK} run a/b --server {} -- sh -c 'read line; echo first $line'\nread line\necho second $line\n",
        server.servers()
    );
    let mut command = Command::new("sh");
    command.arg(script(folder.path(), &text));
    let mut terminal = Terminal::start(&command, 24, 160);
    terminal.press("one\n");
    terminal.wait_for("first one");
    terminal.press("two\n");
    terminal.wait_for("second two");
    assert!(terminal.wait_for_exit().success());
}

/// Holds a lock in the background until it is dropped.
struct Holder(Child);

impl Holder {
    fn start(server: &Server, lock: &str) -> Self {
        let mut command = without_settings(Command::new(MONOLOCK));
        command.args(["run", lock, "--server", &server.servers(), "--", "sleep", "1000"]);
        Self(command.stdin(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watch(server: &Server, options: &[&str], rows: u16, columns: u16) -> Terminal {
    let mut command = without_settings(Command::new(MONOLOCK));
    command.env_remove("NO_COLOR");
    command
        .args(["watch", "--interval=100ms", "--admin", &server.admin()])
        .args(options);
    Terminal::start(&command, rows, columns)
}

fn row(screen: &vt100::Screen, number: u16) -> String {
    let (_, columns) = screen.size();
    screen
        .rows(0, columns.get())
        .nth(number.into())
        .unwrap_or_default()
}

#[test]
fn watch_shows_a_live_table_on_a_screen_of_its_own_and_quits_on_q() {
    let server = Server::start_with_admin();
    let mut terminal = watch(&server, &[], 10, 100);
    let empty = terminal.wait_for_screen("the header", |screen| row(screen, 0).starts_with("LOCK  HOLDER"));
    assert!(empty.alternate_screen() && empty.hide_cursor());
    assert!(
        empty.cell(0, 0).expect("on the screen").bold(),
        "the header stands out"
    );

    let holder = Holder::start(&server, "nightly/import");
    let held = terminal.wait_for_screen("the holder", |screen| {
        row(screen, 1).starts_with("nightly/import") && row(screen, 1).trim_end().ends_with(" 0")
    });
    assert_eq!(
        held.cell(1, 0).expect("on the screen").fgcolor(),
        vt100::Color::Default
    );
    let _waiter = Holder::start(&server, "nightly/import");
    let contended =
        terminal.wait_for_screen("the waiter", |screen| row(screen, 1).trim_end().ends_with(" 1"));
    assert_eq!(
        contended.cell(1, 0).expect("on the screen").fgcolor(),
        vt100::Color::Idx(3)
    );
    drop(holder);
    terminal.wait_for_screen("the next holder alone", |screen| {
        row(screen, 1).trim_end().ends_with(" 0")
    });

    terminal.press("q");
    assert!(terminal.wait_for_exit().success());
    terminal.wait_for_screen("the terminal to be left as it was", |screen| {
        !screen.alternate_screen() && !screen.hide_cursor()
    });
}

#[test]
fn watch_fits_the_terminal_also_when_it_changes() {
    let server = Server::start_with_admin();
    let _holders: Vec<_> = (0..4)
        .map(|number| Holder::start(&server, &format!("a-rather-long-name-of-a-lock/{number}")))
        .collect();
    let mut terminal = watch(&server, &[], 10, 120);
    terminal.wait_for_screen("all four", |screen| row(screen, 4).contains("/3 "));
    terminal.resize(3, 20);
    let small = terminal.wait_for_screen("the rest counted", |screen| row(screen, 2) == "... and 3 more");
    assert_eq!(row(&small, 1), "a-rather-long-name-…");
    terminal.resize(10, 120);
    terminal.wait_for_screen("all four again", |screen| row(screen, 4).contains("/3 "));
    terminal.press(CTRL_C);
    assert!(terminal.wait_for_exit().success());
}

#[test]
fn watch_goes_on_without_its_server_and_without_colours() {
    let server = Server::start_with_admin();
    let mut command = without_settings(Command::new(MONOLOCK));
    command.env("NO_COLOR", "1");
    command.args(["watch", "--interval=100ms", "--admin", &server.admin()]);
    let mut terminal = Terminal::start(&command, 10, 100);
    let screen = terminal.wait_for_screen("the header", |screen| row(screen, 0).starts_with("LOCK"));
    assert!(!screen.cell(0, 0).expect("on the screen").bold());
    server.kill();
    terminal.wait_for("cannot be reached");
    terminal.press("q");
    assert!(terminal.wait_for_exit().success());
}
