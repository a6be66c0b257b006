//! A running `monolock-server`.

use std::net::SocketAddr;

use crate::binaries;
use crate::process::Process;

/// A `monolock-server` on a loopback port.
#[derive(Debug)]
pub struct LockServer {
    /// Its process.
    pub process: Process,
    /// Where it takes lock sessions.
    pub address: SocketAddr,
}

impl LockServer {
    /// Starts a server on a port of its own and waits until it listens. `settings` are environment variables; they
    /// win over what is set here.
    ///
    /// # Panics
    ///
    /// When it does not start to listen.
    #[must_use]
    pub fn start(settings: &[(&str, &str)]) -> Self {
        let process = Self::spawn(settings);
        let address = listening_address(&process.wait_for_line("listening address="));
        Self { process, address }
    }

    /// Starts the program and waits for nothing: for starts that are to fail.
    ///
    /// # Panics
    ///
    /// When the program is missing.
    #[must_use]
    pub fn spawn(settings: &[(&str, &str)]) -> Process {
        let mut command = binaries::command("monolock-server");
        command.env("MONOLOCK_LISTEN_ADDRESS", "127.0.0.1:0");
        command.envs(settings.iter().copied());
        Process::spawn("monolock-server", command)
    }
}

/// The address in a line with `address=`.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn listening_address(line: &str) -> SocketAddr {
    let value = line
        .split("address=")
        .nth(1)
        .and_then(|rest| rest.split([' ', '"', ',']).next());
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no address in the line {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_the_line() {
        let line = "2026-01-01T00:00:00Z  INFO listening address=127.0.0.1:41003 tls=false";
        assert_eq!(listening_address(line).port(), 41003);
    }
}
