//! One question to one time server.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use monolock_clock::{boot_now, both_now};
use monolock_failover_core::clock::{ClockOffset, ClockReading, ClockSample};
use monolock_protocol::{BootInstant, WallTime};
use sntpc::{NtpContext, NtpResult, NtpTimestampGenerator, NtpUdpSocket};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::peer::PeerAddress;

/// Why a time server gave no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SntpFailure {
    /// Its name leads nowhere.
    #[error("{0}")]
    Unresolved(String),
    /// It does not answer, or not in time.
    #[error("{0}")]
    Silent(String),
    /// It answers that it does not want to be asked; it is left alone for a while.
    #[error("it does not want to be asked: {0}")]
    Unwanted(String),
    /// It answers, and does not know the time or does not say it properly.
    #[error("its answer is of no use: {0}")]
    Useless(String),
}

/// Asks a server, at each of its addresses in turn until one answers.
pub(super) async fn ask(server: &PeerAddress) -> Result<ClockSample, SntpFailure> {
    let unresolved = |reason: String| SntpFailure::Unresolved(reason);
    let addresses = match timeout(RESOLUTION_TIME, server.resolve()).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => return Err(unresolved(error.to_string())),
        Err(_elapsed) => return Err(unresolved("its name was not resolved in time".to_owned())),
    };
    let mut failure = SntpFailure::Silent(NO_ANSWER.to_owned());
    for address in addresses.into_iter().take(MOST_ADDRESSES) {
        match timeout(ANSWER_TIME, ask_address(address)).await {
            Ok(Ok(sample)) => return Ok(sample),
            Ok(Err(error)) => failure = error,
            Err(_elapsed) => failure = SntpFailure::Silent(NO_ANSWER.to_owned()),
        }
    }
    Err(failure)
}

async fn ask_address(server: SocketAddr) -> Result<ClockSample, SntpFailure> {
    let socket = Socket::connect(server).await.map_err(|error| silent(&error))?;
    let clock = ExchangeClock::start();
    let result = sntpc::get_time(server, &socket, NtpContext::new(clock)).await;
    let answer = result.map_err(|error| match (error, socket.failure.get()) {
        (sntpc::Error::Network, Some(error)) => silent(error),
        (sntpc::Error::KissOfDeath(code), _) => SntpFailure::Unwanted(code.as_str().to_owned()),
        (sntpc::Error::UnsynchronizedClock, _) => {
            SntpFailure::Useless("its own clock is not synchronised".to_owned())
        }
        (other, _) => SntpFailure::Useless(format!("{other:?}")),
    })?;
    Ok(ClockSample {
        offset: ClockOffset::from_nanos(answer.offset.saturating_mul(1_000)),
        error: error_bound(&answer),
        reading: clock.began,
    })
}

/// The root distance of RFC 5905, seen from here: half of every round trip on the way to the source, and what every
/// clock on it may be wrong by.
fn error_bound(answer: &NtpResult) -> Duration {
    let own = Duration::from_micros(answer.roundtrip / 2 + answer.dispersion);
    own + short_format(answer.root_delay) / 2 + short_format(answer.root_dispersion)
}

/// Seconds in 16.16 fixed point.
fn short_format(value: u32) -> Duration {
    Duration::from_nanos((u64::from(value) * 1_000_000_000) >> 16)
}

fn silent(error: &io::Error) -> SntpFailure {
    SntpFailure::Silent(match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        _ => error.to_string(),
    })
}

/// The wall clock of one exchange: read once, and advanced by boot time, so that a step in between is not taken for
/// a slow answer.
#[derive(Clone, Copy)]
struct ExchangeClock {
    began: ClockReading,
    now: WallTime,
}

impl ExchangeClock {
    fn start() -> Self {
        let (wall, boot) = both_now();
        Self {
            began: ClockReading { wall, boot },
            now: wall,
        }
    }

    fn at(&self, boot: BootInstant) -> WallTime {
        let elapsed = boot.saturating_duration_since(self.began.boot);
        self.began.wall.saturating_add(elapsed)
    }
}

impl NtpTimestampGenerator for ExchangeClock {
    fn init(&mut self) {
        self.now = self.at(boot_now());
    }

    fn timestamp_sec(&self) -> u64 {
        self.now.unix_seconds()
    }

    fn timestamp_subsec_micros(&self) -> u32 {
        u32::try_from(self.now.unix_nanos() % 1_000_000_000 / 1_000).expect("less than a million")
    }
}

/// A socket for one exchange with one server: the kernel keeps everybody else's packets out, and late ones too.
struct Socket {
    socket: UdpSocket,
    server: SocketAddr,
    failure: OnceLock<io::Error>,
}

impl Socket {
    async fn connect(server: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(server).await?;
        Ok(Self {
            socket,
            server,
            failure: OnceLock::new(),
        })
    }

    fn note(&self, error: io::Error) -> sntpc::Error {
        // The first failure is the one that ends the exchange.
        let _ = self.failure.set(error);
        sntpc::Error::Network
    }
}

impl NtpUdpSocket for Socket {
    async fn send_to(&self, bytes: &[u8], _: SocketAddr) -> sntpc::Result<usize> {
        self.socket.send(bytes).await.map_err(|error| self.note(error))
    }

    async fn recv_from(&self, bytes: &mut [u8]) -> sntpc::Result<(usize, SocketAddr)> {
        let count = self.socket.recv(bytes).await.map_err(|error| self.note(error))?;
        Ok((count, self.server))
    }
}

const NO_ANSWER: &str = "no answer in time";
/// How long the system may take to resolve a name.
const RESOLUTION_TIME: Duration = Duration::from_secs(2);
/// How long a server may take to answer: a slower answer would be too coarse to be of use.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// How many addresses of one name are tried.
const MOST_ADDRESSES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_where_nothing_listens_and_a_name_that_leads_nowhere_are_told_apart() {
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap();
        drop(free);
        let refused = ask(&port.into()).await.unwrap_err();
        assert_eq!(refused, SntpFailure::Silent("nothing listens there".to_owned()));
        let nowhere = ask(&"no-such-host.invalid:123".parse().unwrap())
            .await
            .unwrap_err();
        assert!(matches!(nowhere, SntpFailure::Unresolved(_)), "{nowhere}");
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_or_nonsense_gives_no_time() {
        let deaf = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = deaf.local_addr().unwrap();
        let silent = ask(&address.into()).await.unwrap_err();
        assert_eq!(silent, SntpFailure::Silent(NO_ANSWER.to_owned()));
        let mut question = [0; 48];
        deaf.recv_from(&mut question).await.unwrap();

        let mumbling = tokio::spawn(async move {
            let (_, asker) = deaf.recv_from(&mut question).await.unwrap();
            deaf.send_to(&[0xff; 48], asker).await.unwrap();
        });
        let useless = ask(&address.into()).await.unwrap_err();
        assert!(matches!(useless, SntpFailure::Useless(_)), "{useless}");
        mumbling.await.unwrap();
    }

    #[test]
    fn the_short_format_is_in_65536ths_of_a_second() {
        assert_eq!(short_format(0x0001_8000), Duration::from_millis(1_500));
        assert!(short_format(u32::MAX) < Duration::from_secs(65_536));
    }
}
