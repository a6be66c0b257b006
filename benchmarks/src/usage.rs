//! What a process uses, and what machine this is: from `/proc`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

/// How much memory a process has resident, in bytes.
///
/// # Errors
///
/// When the process is gone.
pub fn resident_bytes(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(process(pid).join("status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = resident.and_then(|resident| resident.split_whitespace().next());
    Ok(kibibytes.context("VmRSS in /proc")?.parse::<f64>()? * 1024.0)
}

/// How long the threads of a process have run, in the program and in the kernel.
///
/// # Errors
///
/// When the process is gone.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(process(pid).join("task"))? {
        let times = fs::read_to_string(thread?.path().join("schedstat"))?;
        let ran = times.split_whitespace().next();
        nanos += ran.context("the first figure of schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

fn process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The machine and its programs, one fact a line: what figures mean nothing without.
#[must_use]
pub fn machine() -> String {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name"));
    let cores = processor
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let facts = [
        format!(
            "{cores} x {}",
            model.unwrap_or("?").trim_start_matches([' ', '\t', ':'])
        ),
        first_line("uname", "-sr"),
        first_line("rustc", "--version"),
        first_line("redis-server", "--version"),
        first_line("postgres", "--version"),
        first_line("etcd", "--version"),
        format!("load before the run: {}", load.trim_end()),
    ];
    facts.map(|fact| format!("- {fact}\n")).concat()
}

fn first_line(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let line = text.ok().and_then(|text| text.lines().next().map(str::to_owned));
    line.unwrap_or_else(|| format!("{program}: unknown"))
}
