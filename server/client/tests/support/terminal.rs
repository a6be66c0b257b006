//! A terminal with a program in it: what it shows, and keys to press.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::eventually;

/// The keys a user would press.
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_Z: &str = "\x1a";

/// Ends the program, and what it started, when dropped: they lose their terminal.
pub(crate) struct Terminal {
    keyboard: File,
    shown: Arc<Mutex<vt100::Parser>>,
    program: Child,
}

impl Terminal {
    /// Starts a program as the leader of a session of its own, in a terminal of this size.
    pub(crate) fn start(command: &Command, rows: u16, columns: u16) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        resize(&master, rows, columns);
        let path = ptsname(&master, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side = || open(&path, flags, Mode::empty()).expect("opened");
        let mut session = Command::new("setsid");
        session
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        let program = session
            .env("TERM", "xterm")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("it starts");
        let shown = Arc::new(Mutex::new(vt100::Parser::new(
            positive(rows),
            positive(columns),
            0,
        )));
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone().expect("cloned");
        std::thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                let mut bytes = [0; 4_096];
                // The read fails when nobody has the other side open any more.
                while let Ok(read @ 1..) = output.read(&mut bytes) {
                    lock(&shown).process(&bytes[..read]);
                }
            }
        });
        Self {
            keyboard,
            shown,
            program,
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal takes keys");
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        lock(&self.shown)
            .screen_mut()
            .set_size(positive(rows), positive(columns));
        resize(&self.keyboard, rows, columns);
    }

    /// What the terminal shows now.
    pub(crate) fn screen(&self) -> vt100::Screen {
        lock(&self.shown).screen().clone()
    }

    /// Waits until the terminal shows what a condition asks for.
    #[track_caller]
    pub(crate) fn wait_for_screen(
        &self,
        what: &str,
        condition: impl Fn(&vt100::Screen) -> bool,
    ) -> vt100::Screen {
        let mut last = self.screen();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(what, || {
                last = self.screen();
                condition(&last)
            });
        }));
        assert!(found.is_ok(), "{what}; the terminal shows:\n{}", last.contents());
        last
    }

    /// Waits until a text is to be read.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_for_screen(text, |screen| screen.contents().contains(text));
    }

    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the end of the program in the terminal", || {
            status = self.program.try_wait().expect("waited");
            status.is_some()
        });
        status.expect("it ended")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The leader of the session: its end hangs the terminal up.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn resize(terminal: impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).expect("resized");
}

fn positive(size: u16) -> NonZero<u16> {
    NonZero::new(size).expect("a terminal has a size")
}

fn lock(shown: &Mutex<vt100::Parser>) -> std::sync::MutexGuard<'_, vt100::Parser> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}
