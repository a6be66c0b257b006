//! `monolock watch`: the table of locks again and again; in a terminal on a screen of its own.

use std::io::{IsTerminal, Read as _, Stdin, stdin, stdout};

use monolock_clock::{boot_now, sleep_until};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::admin::{Lock, list, parse_listing, print, table};
use crate::args::WatchArgs;
use crate::{Failure, exit};

pub(crate) async fn watch(args: WatchArgs) -> Result<u8, Failure> {
    if stdout().is_terminal() && !args.json {
        return watch_live(&args).await;
    }
    let mut interrupt = catch(SignalKind::interrupt())?;
    loop {
        let listing = list(&args.admin, args.pattern.as_deref()).await?;
        print(&if args.json {
            format!("{listing}\n")
        } else {
            table(&parse_listing(listing)?)
        })?;
        tokio::select! {
            () = sleep_until(boot_now() + args.interval) => {}
            _ = interrupt.recv() => return Ok(0),
        }
    }
}

async fn watch_live(args: &WatchArgs) -> Result<u8, Failure> {
    let mut interrupt = catch(SignalKind::interrupt())?;
    let mut terminate = catch(SignalKind::terminate())?;
    let mut resized = catch(SignalKind::window_change())?;
    let mut keys = Keys::listen();
    let screen = Screen::enter()?;
    loop {
        let lines = match list(&args.admin, args.pattern.as_deref())
            .await
            .and_then(parse_listing)
        {
            Ok(locks) => lines(&locks),
            // A server that restarts or hands over is worth watching too.
            Err(failure) => vec![Line::new(failure.message, Style::Alarm)],
        };
        let next_look = boot_now() + args.interval;
        loop {
            screen.show(&lines)?;
            tokio::select! {
                () = sleep_until(next_look) => break,
                _ = resized.recv() => {}
                _ = interrupt.recv() => return Ok(0),
                () = keys.quit() => return Ok(0),
                _ = terminate.recv() => return Ok(exit::SIGNAL_BASE + SIGTERM),
            }
        }
    }
}

fn catch(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::new(exit::FAILURE, error))
}

/// One line of the screen.
struct Line {
    text: String,
    style: Style,
}

#[derive(Clone, Copy)]
enum Style {
    Plain,
    Header,
    Contended,
    Alarm,
}

impl Line {
    fn new(text: impl Into<String>, style: Style) -> Self {
        Self {
            text: text.into(),
            style,
        }
    }
}

fn lines(locks: &[Lock]) -> Vec<Line> {
    let styles = locks.iter().map(|lock| match lock.waiters.is_empty() {
        true => Style::Plain,
        false => Style::Contended,
    });
    let styles = std::iter::once(Style::Header).chain(styles);
    table(locks)
        .lines()
        .zip(styles)
        .map(|(text, style)| Line::new(text, style))
        .collect()
}

/// The terminal's other screen, for as long as this value lives.
struct Screen {
    has_colours: bool,
}

impl Screen {
    fn enter() -> Result<Self, Failure> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let screen = Self {
            has_colours: !is_set("NO_COLOR"),
        };
        print(ENTER)?;
        Ok(screen)
    }

    fn show(&self, lines: &[Line]) -> Result<(), Failure> {
        // A terminal that does not tell its size has the classic one.
        let (rows, columns) = tcgetwinsize(stdout())
            .map(|size| (usize::from(size.ws_row), usize::from(size.ws_col)))
            .ok()
            .filter(|(rows, columns)| *rows > 0 && *columns > 0)
            .unwrap_or((24, 80));
        print(&paint(lines, rows, columns, self.has_colours))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The program ends: whoever reads no more misses nothing.
        let _ = print(LEAVE);
    }
}

/// What makes a terminal of this size show these lines, and nothing else.
fn paint(lines: &[Line], rows: usize, columns: usize, has_colours: bool) -> String {
    let fits = lines.len() <= rows;
    let shown = if fits { lines.len() } else { rows - 1 };
    let mut out = String::from(HOME);
    for (row, line) in lines[..shown].iter().enumerate() {
        if row > 0 {
            out.push_str("\r\n");
        }
        let (on, off) = if has_colours { codes(line.style) } else { ("", "") };
        out.push_str(on);
        out.push_str(&cut(&line.text, columns));
        out.push_str(off);
        out.push_str(CLEAR_LINE);
    }
    if !fits {
        let more = format!("... and {} more", lines.len() - shown);
        if shown > 0 {
            out.push_str("\r\n");
        }
        out.push_str(&cut(&more, columns));
        out.push_str(CLEAR_LINE);
    }
    out.push_str(CLEAR_BELOW);
    out
}

fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns - 1).chain(['…']).collect()
}

fn codes(style: Style) -> (&'static str, &'static str) {
    match style {
        Style::Plain => ("", ""),
        Style::Header => ("\x1b[1m", "\x1b[0m"),
        Style::Contended => ("\x1b[33m", "\x1b[0m"),
        Style::Alarm => ("\x1b[31m", "\x1b[0m"),
    }
}

/// The keys of a terminal in the foreground, one by one and without an echo, for as long as this value lives.
struct Keys {
    restore: Option<(Stdin, Termios)>,
    pressed: mpsc::UnboundedReceiver<u8>,
}

impl Keys {
    fn listen() -> Self {
        let (sender, pressed) = mpsc::unbounded_channel();
        let restore = Self::take_over(stdin());
        if restore.is_some() {
            // A thread of its own: a read cannot be called off, and the end of the program must not wait for it.
            std::thread::spawn(move || {
                for key in stdin().lock().bytes().map_while(Result::ok) {
                    if sender.send(key).is_err() {
                        break;
                    }
                }
            });
        }
        Self { restore, pressed }
    }

    fn take_over(input: Stdin) -> Option<(Stdin, Termios)> {
        let is_at_hand = tcgetpgrp(&input).is_ok_and(|group| group == getpgrp());
        let before = tcgetattr(&input).ok().filter(|_| is_at_hand)?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        // Stopped, it would leave its screen to the shell.
        modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(&input, OptionalActions::Now, &modes).ok()?;
        Some((input, before))
    }

    /// Resolves when the user wants to quit; never where there are no keys.
    async fn quit(&mut self) {
        while let Some(key) = self.pressed.recv().await {
            if key == b'q' {
                return;
            }
        }
        std::future::pending().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some((input, before)) = &self.restore {
            let _ = tcsetattr(input, OptionalActions::Now, before);
        }
    }
}

/// The other screen, no cursor, no wrapping of long lines.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
const SIGTERM: u8 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|text| Line::new(*text, Style::Plain)).collect()
    }

    #[test]
    fn lines_are_cut_to_the_width_and_the_rest_is_counted() {
        let lines = plain(&["abcdef", "é", "x", "y"]);
        let screen = paint(&lines, 3, 4, false);
        assert_eq!(
            screen, "\x1b[Habc…\x1b[K\r\né\x1b[K\r\n...…\x1b[K\x1b[J",
            "two lines and how many are left out"
        );
        let screen = paint(&lines, 4, 6, false);
        assert_eq!(
            screen,
            "\x1b[Habcdef\x1b[K\r\né\x1b[K\r\nx\x1b[K\r\ny\x1b[K\x1b[J"
        );
        assert_eq!(paint(&lines, 1, 12, false), "\x1b[H... and 4 m…\x1b[K\x1b[J");
    }
}
