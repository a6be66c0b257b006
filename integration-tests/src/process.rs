//! A child process: its output, its signals, and the promise that it never outlives the test.
//!
//! Each process leads a group of its own, which is killed when the [`Process`] is dropped. Should the test process
//! itself be killed, a guardian that waits for the end of its standard input kills the group. The process is left
//! unreaped until the drop, so that its id, and its group's, can belong to nobody else before that.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group, waitid};

use crate::guardian::Guardian;
use crate::wait::{PATIENCE, wait_for, wait_until};

pub use rustix::process::Signal;

/// A running child process; see the module.
pub struct Process {
    name: String,
    child: Child,
    guardian: Option<Guardian>,
    output: Arc<Output>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Process {
    /// Starts `command` with captured output and an empty standard input. `name` is for messages.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(name: &str, mut command: Command) -> Self {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} ({command:?}) does not start: {error}"));
        let guardian = Guardian::new(r#"kill -s KILL -- "-$0""#, &child.id().to_string());
        let output = Arc::new(Output::default());
        output.collect(child.stdout.take().expect("stdout is piped"));
        output.collect(child.stderr.take().expect("stderr is piped"));
        Self {
            name: name.to_owned(),
            child,
            guardian: Some(guardian),
            output,
        }
    }

    /// The process id, which is also the id of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process, not to its children.
    ///
    /// # Panics
    ///
    /// When the signal cannot be sent.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal)
            .unwrap_or_else(|error| panic!("{} cannot be sent {signal:?}: {error}", self.name));
    }

    /// Ends the process at once (`SIGKILL`).
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn kill(&self) -> Exit {
        self.signal(Signal::KILL);
        self.wait_for_exit()
    }

    /// Asks the process to end (`SIGTERM`) and waits until it did.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn terminate(&self) -> Exit {
        self.signal(Signal::TERM);
        self.wait_for_exit()
    }

    /// Stops the process (`SIGSTOP`) and waits until it runs no more.
    ///
    /// # Panics
    ///
    /// When it does not stop.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        wait_until(&format!("{} to stop", self.name), || {
            self.status(WaitIdOptions::STOPPED)
                .is_some_and(|status| status.stopped())
        });
    }

    /// Lets a stopped process run on (`SIGCONT`).
    ///
    /// # Panics
    ///
    /// When the signal cannot be sent.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// How the process ended, or `None` while it runs or is stopped.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        let status = self.status(WaitIdOptions::EXITED)?;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Exit::Code(code)),
            (None, Some(signal)) => Some(Exit::Signal(signal)),
            (None, None) => None,
        }
    }

    /// Waits until the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not end within [`PATIENCE`].
    pub fn wait_for_exit(&self) -> Exit {
        wait_for(&format!("{} to end", self.name), || self.exit())
    }

    /// The lines printed so far, on both streams, in the order of their arrival.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.output.lock().lines.clone()
    }

    /// Everything the process printed: waits until it has closed both streams.
    ///
    /// # Panics
    ///
    /// When it does not close them within [`PATIENCE`].
    #[must_use]
    pub fn all_lines(&self) -> Vec<String> {
        let collected = self.output.wait_while(|collected| collected.open > 0);
        assert_eq!(collected.open, 0, "waited for {} to close its output", self.name);
        collected.lines.clone()
    }

    /// Waits for a line that contains `text`, among those printed already too.
    ///
    /// # Panics
    ///
    /// When there is none within [`PATIENCE`], or the process has closed its output without it.
    pub fn wait_for_line(&self, text: &str) -> String {
        self.wait_for_line_from(0, text)
    }

    /// Waits for a line that contains `text`, not among the first `skip` ones.
    ///
    /// # Panics
    ///
    /// When there is none within [`PATIENCE`], or the process has closed its output without it.
    pub fn wait_for_line_from(&self, skip: usize, text: &str) -> String {
        let collected = self
            .output
            .wait_while(|collected| collected.open > 0 && collected.find(skip, text).is_none());
        let Some(line) = collected.find(skip, text) else {
            let open = collected.open;
            drop(collected);
            panic!(
                "{} printed no line with {text:?} ({open} of its streams are open)",
                self.name
            );
        };
        line.to_owned()
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The newest change of state of the kind asked for; leaves it, and the process, to be asked again.
    fn status(&self, kind: WaitIdOptions) -> Option<WaitIdStatus> {
        let options = kind | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.id()), options).expect("the child is not reaped before the drop")
    }
}

impl Drop for Process {
    /// Ends the process and whatever it started; prints its output when the test is panicking.
    fn drop(&mut self) {
        drop(self.guardian.take());
        let _ = kill_process_group(self.id(), Signal::KILL);
        let _ = self.child.wait();
        if thread::panicking() {
            let name = &self.name;
            for line in &self.output.lock().lines {
                eprintln!("{name} | {line}");
            }
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid())
    }
}

/// The lines a process printed.
#[derive(Debug, Default)]
struct Output {
    collected: Mutex<Collected>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Collected {
    lines: Vec<String>,
    /// How many streams may still bring lines.
    open: usize,
}

impl Collected {
    fn find(&self, skip: usize, text: &str) -> Option<&str> {
        self.lines
            .iter()
            .skip(skip)
            .map(String::as_str)
            .find(|line| line.contains(text))
    }
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, at most [`PATIENCE`], while `condition` holds.
    fn wait_while(&self, mut condition: impl FnMut(&Collected) -> bool) -> MutexGuard<'_, Collected> {
        self.changed
            .wait_timeout_while(self.lock(), PATIENCE, |collected| condition(collected))
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn collect(self: &Arc<Self>, stream: impl Read + Send + 'static) {
        self.lock().open += 1;
        let output = Arc::clone(self);
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                output
                    .lock()
                    .lines
                    .push(String::from_utf8_lossy(&line).into_owned());
                output.changed.notify_all();
            }
            output.lock().open -= 1;
            output.changed.notify_all();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn("shell", command)
    }

    fn background_child(process: &Process) -> String {
        let line = process.wait_for_line("child=");
        line.trim_start_matches("child=").to_owned()
    }

    fn is_gone(pid: &str) -> bool {
        let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
        // A killed orphan may stay a zombie where no init reaps it.
        stat.map_or(true, |stat| stat.contains(") Z "))
    }

    #[test]
    fn both_streams_are_collected_and_the_exit_is_seen() {
        let process = shell("echo out; echo err >&2; exit 7");
        let mut lines = process.all_lines();
        lines.sort();
        assert_eq!(lines, ["err", "out"]);
        assert_eq!(
            (process.wait_for_exit(), process.exit()),
            (Exit::Code(7), Some(Exit::Code(7)))
        );
    }

    #[test]
    #[should_panic(expected = "printed no line with \"never\"")]
    fn a_line_that_cannot_come_is_not_waited_for() {
        shell("echo something else").wait_for_line("never");
    }

    #[test]
    fn a_frozen_process_prints_nothing_until_it_is_thawed() {
        let process = shell("while :; do echo tick; sleep 0.01; done");
        process.wait_for_line("tick");
        process.freeze();
        assert_eq!(process.exit(), None);
        let seen = process.lines().len();
        process.thaw();
        // What was in the pipe when it froze is at most a few lines.
        process.wait_for_line_from(seen + 50, "tick");
        assert_eq!(process.kill(), Exit::Signal(9));
    }

    #[test]
    fn the_drop_ends_the_children_too() {
        let process = shell("sleep 600 & echo child=$!; wait");
        let child = background_child(&process);
        assert!(!is_gone(&child));
        drop(process);
        wait_until("the grandchild to end", || is_gone(&child));
    }

    #[test]
    fn a_killed_test_leaves_nothing_running() {
        let process = shell("sleep 600 & echo child=$!; wait");
        let child = process
            .wait_for_line("child=")
            .trim_start_matches("child=")
            .to_owned();
        // The end of the guardian's input is all it sees of the end of this process.
        let mut process = process;
        let guardian = process.guardian.as_mut().expect("it is there until the drop");
        drop(guardian.0.stdin.take());
        assert_eq!(process.wait_for_exit(), Exit::Signal(9));
        wait_until("the grandchild to end", || is_gone(&child));
    }
}
