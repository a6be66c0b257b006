//! Ports that stay free while a node that used them is down.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::{Mutex, PoisonError};

use monolock_failover_core::NodeId;

use super::pair::{PairError, ip};

/// Below the range from which the kernel takes ports for outgoing connections: it could hand out the port of a node that
/// is down, and the node could not come back.
const FIRST: u16 = 20_000;
const COUNT: u32 = 12_000;

/// What this process has claimed, until it ends.
static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port that is free on both loopback addresses, for TCP and UDP, and that no other drill on this machine gets.
pub(super) fn free_port() -> Result<u16, PairError> {
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    let start = std::process::id().wrapping_mul(61);
    for step in 0..COUNT {
        let offset = u16::try_from(start.wrapping_add(step) % COUNT).expect("COUNT fits");
        let port = FIRST + offset;
        if let Some(claim) = claim(port)
            && is_free(port)
        {
            claims.push(claim);
            return Ok(port);
        }
    }
    Err(PairError::NoPort)
}

/// A socket in the abstract namespace: it goes with the process, and leaves no file.
fn claim(port: u16) -> Option<UnixListener> {
    let name = UnixAddress::from_abstract_name(format!("monolock-test-port-{port}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

fn is_free(port: u16) -> bool {
    [NodeId::A, NodeId::B].into_iter().all(|node| {
        let address = SocketAddr::new(ip(node), port);
        TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
    })
}
