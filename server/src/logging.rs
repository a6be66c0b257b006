//! Diagnostics: to stderr, as text or JSON lines, timed in UTC.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

/// How diagnostics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// One JSON object in each line.
    Json,
}

/// How much is written, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Everything of this level and above.
    pub level: LevelFilter,
    /// In this form.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: LevelFilter::INFO,
            format: LogFormat::Text,
        }
    }
}

/// Starts writing diagnostics of the whole process. A second call changes nothing.
pub fn init(config: LogConfig) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(config.level)
        .with_target(false)
        .with_writer(std::io::stderr);
    let started = match config.format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // Somebody else's subscriber stays: the process has one.
    drop(started);
}
