//! The terminal on standard input, lent to the process group of a command so that it may read, and taken back.
//!
//! A terminal knows one foreground group: only that one may read, and its keys make signals for that group alone. So
//! while the command runs, Ctrl-C and Ctrl-Z are its own. When Ctrl-Z has stopped the command, `monolock run` must stop
//! too, with the rest of its own group, or the shell that started it would never get its prompt back.

use std::io::{self, Stdin, stdin};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use rustix::process::{Pid, Signal, getpgrp, kill_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal of this process, if that is its standard input.
pub(crate) struct Terminal {
    input: Stdin,
    /// As they were before a command could change them.
    modes: Termios,
    own_group: Pid,
    is_lent: bool,
}

impl Terminal {
    /// `None` where there is nothing to lend: standard input is no terminal, or that of another session.
    pub(crate) fn of_this_process() -> Option<Self> {
        let input = stdin();
        tcgetpgrp(&input).ok()?;
        let modes = tcgetattr(&input).ok()?;
        Some(Self {
            input,
            modes,
            own_group: getpgrp(),
            is_lent: false,
        })
    }

    /// Makes `group` the foreground group, if this process's own group is that; one in the background stays there.
    pub(crate) fn lend(&mut self, group: Pid) {
        if self.is_at_hand() {
            self.is_lent = tcsetpgrp(&self.input, group).is_ok();
        }
    }

    /// Whether this process's own group is the foreground group.
    pub(crate) fn is_at_hand(&self) -> bool {
        tcgetpgrp(&self.input) == Ok(self.own_group)
    }

    /// Makes this process's own group the foreground group again, if it was.
    fn take_back(&mut self) {
        if std::mem::take(&mut self.is_lent) {
            // A terminal that is gone belongs to nobody.
            let _ = in_background(|| tcsetpgrp(&self.input, self.own_group));
        }
    }

    /// As if the command had never changed how its lines are read: for one that was killed and could not clean up.
    pub(crate) fn restore_modes(&self) {
        if self.is_lent {
            let _ = in_background(|| tcsetattr(&self.input, OptionalActions::Now, &self.modes));
        }
    }

    /// Stops this process and its group as Ctrl-Z would have; returns once they are continued. At once when the group is
    /// an orphan, which nobody could continue.
    pub(crate) fn stop_own_group(&mut self) {
        self.take_back();
        let _ = kill_process_group(self.own_group, Signal::TSTP);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// A process in the background is stopped when it changes the terminal, unless it blocks the signal for that.
fn in_background<T>(change: impl FnOnce() -> Result<T, rustix::io::Errno>) -> io::Result<T> {
    let mut blocked = SigSet::empty();
    blocked.add(NixSignal::SIGTTOU);
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let result = change();
    before.thread_set_mask()?;
    result.map_err(io::Error::from)
}
