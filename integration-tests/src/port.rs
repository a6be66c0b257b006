//! Ports that no other test uses.
//!
//! A server that can be told port 0 and says what it got needs none of this. Others, and those that must come back
//! on the port they had, take one here. Between the choice and the server's own bind anybody could take the port;
//! so the choice stays below the range that the kernel hands out by itself, and is claimed among all test processes
//! of the machine by a socket in the abstract namespace, which goes with the process.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;
use std::sync::Mutex;

/// Below the kernel's own range, which starts at 32768.
const FIRST: u16 = 20_000;
const COUNT: u32 = 12_000;

/// Claims of this process; they end with it.
static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port that is free on the loopback interface, for TCP and UDP, and that no other test gets before this process
/// ends.
///
/// # Panics
///
/// When none of 12,000 ports is free.
#[must_use]
pub fn free_port() -> u16 {
    let mut claims = CLAIMS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let start = process::id().wrapping_mul(61);
    for step in 0..COUNT {
        let offset = u16::try_from(start.wrapping_add(step) % COUNT).expect("COUNT fits");
        let port = FIRST + offset;
        if let Some(claim) = claim(port)
            && is_free(port)
        {
            claims.push(claim);
            return port;
        }
    }
    panic!("no free port from {FIRST} on");
}

fn claim(port: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("monolock-test-port-{port}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        && UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let mut ports: Vec<u16> = (0..50).map(|_| free_port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
    }

    #[test]
    fn a_port_in_use_is_not_given() {
        let taken = free_port();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).expect("it was free");
        assert!(!is_free(taken));
    }
}
