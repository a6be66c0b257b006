//! The story of a run, for people.

/// Lines of what happened; written only when somebody is going to read them.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) is_written: bool,
    lines: Vec<String>,
}

impl Timeline {
    pub(crate) fn tell(&mut self, now: u64, who: impl std::fmt::Display, what: impl FnOnce() -> String) {
        if self.is_written {
            let (seconds, micros) = (now / 1_000_000, now % 1_000_000);
            let who = who.to_string();
            self.lines
                .push(format!("{seconds:>4}.{micros:06} s  {who:<9} {}", what()));
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines
    }
}
