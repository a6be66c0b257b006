//! A small authoritative DNS server in each node, so that a pair needs no DNS infrastructure but a delegation.
//!
//! It answers for the service's name alone, over UDP and TCP on one port, and reads its answers from a watch: changing
//! the active node is one store, without a zone to edit, a serial to raise, or a moment in between.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_net::runtime::Time;
use hickory_proto::op::{Edns, Header, HeaderCounts, Metadata, OpCode, ResponseCode};
use hickory_server::Server;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::zone::Sections;
use super::{ServiceState, ServiceZone};

/// Why the DNS server cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error(
    "the DNS server cannot listen on {address}, UDP and TCP: {source}: set MONOLOCK_DNS_LISTEN_ADDRESS to a free \
     address of this machine, or MONOLOCK_DNS=off (ports below 1024 need a privilege)"
)]
pub struct DnsListenError {
    address: SocketAddr,
    source: io::Error,
}

/// The DNS server of one node, bound and not yet answering.
#[derive(Debug)]
pub struct EmbeddedDns {
    zone: ServiceZone,
    udp: UdpSocket,
    tcp: TcpListener,
    address: SocketAddr,
}

impl EmbeddedDns {
    /// Binds both sockets. On a machine with several addresses, bind each service to one of them: an answer over UDP
    /// from a wildcard address may leave with another address than the question was sent to.
    ///
    /// # Errors
    ///
    /// [`DnsListenError`]: the address is taken, not of this machine, or not permitted.
    pub async fn bind(address: SocketAddr, zone: ServiceZone) -> Result<Self, DnsListenError> {
        let failed = |source| DnsListenError { address, source };
        let (udp, tcp) = bind_both(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        Ok(Self {
            zone,
            udp,
            tcp,
            address,
        })
    }

    /// Where it listens; tells the port when port 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers with what `state` holds at the moment of each question, until `stop` is cancelled.
    pub async fn serve(self, state: watch::Receiver<ServiceState>, stop: CancellationToken) {
        let answerer = Answerer {
            zone: self.zone,
            state,
        };
        let mut server = Server::new(answerer);
        server.register_socket(self.udp);
        server.register_listener(self.tcp, TCP_IDLE_TIME, TCP_ANSWERS_AHEAD);
        tokio::select! {
            ended = server.block_until_done() => tracing::error!(?ended, "the DNS server has stopped by itself"),
            () = stop.cancelled() => {}
        }
        if let Err(error) = server.shutdown_gracefully().await {
            tracing::debug!(%error, "the DNS server did not stop cleanly");
        }
    }
}

struct Answerer {
    zone: ServiceZone,
    state: watch::Receiver<ServiceState>,
}

impl Answerer {
    fn sections(&self, request: &Request) -> Sections {
        let refused = |code| Sections {
            code,
            answers: Vec::new(),
            soa: None,
            additionals: Vec::new(),
        };
        if request.version() != 0 {
            return refused(ResponseCode::BADVERS);
        }
        if request.metadata.op_code != OpCode::Query {
            return refused(ResponseCode::NotImp);
        }
        match request.request_info() {
            Ok(info) => self.zone.answer(info.query, &self.state.borrow()),
            Err(_) => refused(ResponseCode::FormErr),
        }
    }
}

#[async_trait::async_trait]
impl RequestHandler for Answerer {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut response_handle: R,
    ) -> ResponseInfo {
        let sections = self.sections(request);
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.response_code = sections.code;
        metadata.authoritative = matches!(sections.code, ResponseCode::NoError | ResponseCode::NXDomain);
        metadata.recursion_available = false;
        let mut builder = MessageResponseBuilder::from_message_request(request);
        let edns = request.edns.as_ref().map(|_| answer_edns(sections.code));
        if let Some(edns) = &edns {
            builder.edns(edns);
        }
        let response = builder.build(
            metadata,
            &sections.answers,
            [],
            &sections.soa,
            &sections.additionals,
        );
        match response_handle.send_response(response).await {
            Ok(info) => info,
            Err(error) => {
                tracing::debug!(%error, remote = %request.src(), "a DNS answer could not be sent");
                let counts = HeaderCounts::default();
                ResponseInfo::from(Header { metadata, counts })
            }
        }
    }
}

fn answer_edns(code: ResponseCode) -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_PAYLOAD);
    edns.set_rcode_high(code.high());
    edns
}

/// Binds TCP and UDP on the same port; tries again when the system chose a port whose other half is taken.
async fn bind_both(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let mut attempts_left = if address.port() == 0 { 32 } else { 1 };
    loop {
        attempts_left -= 1;
        let tcp = TcpListener::bind(address).await?;
        match UdpSocket::bind(tcp.local_addr()?).await {
            Ok(udp) => return Ok((udp, tcp)),
            Err(error) if attempts_left == 0 => return Err(error),
            Err(_) => {}
        }
    }
}

/// How long a TCP connection may be silent.
const TCP_IDLE_TIME: Duration = Duration::from_secs(5);
/// How many answers may wait for a slow TCP client.
const TCP_ANSWERS_AHEAD: usize = 8;
/// The UDP payload we say we take: what passes every network without fragments.
const UDP_PAYLOAD: u16 = 1232;
