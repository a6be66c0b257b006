//! Signed lookups and updates at the primary server of a zone (RFC 2136 with TSIG).
//!
//! Over TCP, on a new connection for each exchange: nothing is sent twice behind our back, and a lost connection is
//! noticed. Questions are signed like updates are, so an answer that is believed is the server's answer to this
//! question. A server whose clock is more than five minutes from this machine's refuses the signature and says what time
//! it has; then the request is signed again for that time: the name and the record must not depend on this machine's clock.

use std::fmt;
use std::io;
use std::time::Duration;

use hickory_proto::op::update_message::UpdateMessage as _;
use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::tsig::TsigError;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType, TSigVerifier};
use monolock_clock::wall_now;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::TsigKey;
use crate::peer::{Dialled, PeerAddress, dial};

/// The primary server of a zone, and the key that it takes updates with.
#[derive(Clone, Debug)]
pub struct DnsPrimary {
    server: PeerAddress,
    zone: Name,
    key: TsigKey,
    time_limit: Duration,
}

/// Why the primary of a zone cannot be named.
#[derive(Debug, thiserror::Error)]
#[error("{name:?} is no domain name: {reason}")]
pub struct NameError {
    name: String,
    reason: String,
}

/// Why an exchange has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DnsFailure {
    /// Nothing was sent.
    Unreachable(String),
    /// The server, proven, answered that it will not; nothing was changed.
    Refused(String),
    /// The request was sent, and what became of it is not known.
    InDoubt(String),
}

impl fmt::Display for DnsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(reason) | Self::Refused(reason) | Self::InDoubt(reason) => f.write_str(reason),
        }
    }
}

/// What an update demands, and what it does when all of that holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Update {
    demands: Vec<Record>,
    changes: Vec<Record>,
}

impl Update {
    /// Demands that the name has exactly these records of their one type.
    pub(crate) fn demand_exactly(&mut self, name: &Name, records: impl IntoIterator<Item = RData>) {
        let record = |data| Record::from_rdata(name.clone(), 0, data);
        self.demands.extend(records.into_iter().map(record));
    }

    /// Demands that the name has no record of this type.
    pub(crate) fn demand_none(&mut self, name: &Name, kind: RecordType) {
        self.demands.push(empty(name, kind, DNSClass::NONE));
    }

    /// Removes every record of this type.
    pub(crate) fn remove_all(&mut self, name: &Name, kind: RecordType) {
        self.changes.push(empty(name, kind, DNSClass::ANY));
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, name: &Name, ttl_seconds: u32, data: RData) {
        self.changes
            .push(Record::from_rdata(name.clone(), ttl_seconds, data));
    }
}

impl DnsPrimary {
    /// How long an exchange may take, unless set otherwise.
    pub const TIME_LIMIT: Duration = Duration::from_secs(2);

    /// The primary at `server` of the zone called `zone`.
    ///
    /// # Errors
    ///
    /// [`NameError`] when `zone` is no domain name.
    pub fn new(server: PeerAddress, zone: &str, key: TsigKey) -> Result<Self, NameError> {
        Ok(Self {
            server,
            zone: parse_name(zone)?,
            key,
            time_limit: Self::TIME_LIMIT,
        })
    }

    /// Bounds every exchange to `time_limit`, connecting included.
    #[must_use]
    pub fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// Where the server is.
    #[must_use]
    pub fn server(&self) -> &PeerAddress {
        &self.server
    }

    pub(super) fn zone(&self) -> &Name {
        &self.zone
    }

    pub(super) fn time_limit(&self) -> Duration {
        self.time_limit
    }

    /// A name in this zone.
    pub(crate) fn name_within(&self, name: &str) -> Result<Name, NameError> {
        let parsed = parse_name(name)?;
        if !self.zone.zone_of(&parsed) {
            return Err(NameError {
                name: name.into(),
                reason: format!("it is not in the zone {}", self.zone),
            });
        }
        Ok(parsed)
    }

    /// The records of a name of one type; none when there is no such name.
    pub(crate) async fn lookup(&self, name: &Name, kind: RecordType) -> Result<Vec<RData>, DnsFailure> {
        let mut question = Message::query();
        question.metadata.recursion_desired = false;
        question.add_query(Query::query(name.clone(), kind));
        let answer = self.exchange(question).await?;
        match answer.metadata.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain if !answer.metadata.authoritative => {
                Err(DnsFailure::Refused(format!(
                    "it has no authority over {}: give the zone's primary",
                    self.zone
                )))
            }
            ResponseCode::NoError => {
                let of_interest =
                    |record: &&Record| record.name.to_lowercase() == *name && record.record_type() == kind;
                let found = answer.answers.iter().filter(of_interest);
                Ok(found.map(|record| record.data.clone()).collect())
            }
            ResponseCode::NXDomain => Ok(Vec::new()),
            code => Err(DnsFailure::Refused(format!("it answers {code}"))),
        }
    }

    /// Whether the demands held and the changes were made.
    pub(crate) async fn update(&self, update: Update) -> Result<bool, DnsFailure> {
        let mut message = Message::query();
        message.metadata.op_code = OpCode::Update;
        message.metadata.recursion_desired = false;
        message.add_zone(Query::query(self.zone.clone(), RecordType::SOA));
        message.add_pre_requisites(update.demands);
        message.add_updates(update.changes);
        let answer = self.exchange(message).await?;
        match answer.metadata.response_code {
            ResponseCode::NoError => Ok(true),
            ResponseCode::NXRRSet
            | ResponseCode::YXRRSet
            | ResponseCode::NXDomain
            | ResponseCode::YXDomain => Ok(false),
            code @ (ResponseCode::Refused
            | ResponseCode::NotAuth
            | ResponseCode::NotZone
            | ResponseCode::FormErr
            | ResponseCode::NotImp) => Err(DnsFailure::Refused(format!(
                "it answers {code} to an update of {}: let the key update the zone",
                self.zone
            ))),
            code => Err(DnsFailure::InDoubt(format!("it answers {code} to an update"))),
        }
    }

    async fn exchange(&self, message: Message) -> Result<Message, DnsFailure> {
        let own_time = wall_now().unix_seconds();
        let answer = self.exchange_at(own_time, message.clone()).await?;
        match time_of_server(&answer) {
            Some(time) => {
                tracing::debug!(own_time, time, "the DNS server's clock is another");
                self.exchange_at(time, message).await
            }
            None => Ok(answer),
        }
    }

    /// Signs for this second since the epoch.
    async fn exchange_at(&self, time: u64, message: Message) -> Result<Message, DnsFailure> {
        let connecting = tokio::time::timeout(self.time_limit, dial(&self.server));
        let stream = match connecting.await {
            Ok(Dialled::Connected(stream)) => stream,
            Ok(Dialled::Refused) => {
                return Err(DnsFailure::Unreachable("nothing listens there on TCP".into()));
            }
            Ok(Dialled::Failed(reason)) => return Err(DnsFailure::Unreachable(reason)),
            Err(_) => return Err(DnsFailure::Unreachable("it takes no connection in time".into())),
        };
        let (request, verifier) = self.sign(message, time).map_err(DnsFailure::Unreachable)?;
        let answer = tokio::time::timeout(self.time_limit, converse(stream, &request))
            .await
            .map_err(|_| DnsFailure::InDoubt("it did not answer in time".into()))?
            .map_err(|error| DnsFailure::InDoubt(error.to_string()))?;
        believe(verifier, &answer)
    }

    fn sign(&self, mut message: Message, time: u64) -> Result<(Vec<u8>, TSigVerifier), String> {
        let mut id = [0; 2];
        SystemRandom::new()
            .fill(&mut id)
            .map_err(|_| "the system has no random number to give")?;
        message.metadata.id = u16::from_be_bytes(id);
        let verifier = message
            .finalize(self.key.signer(), time)
            .map_err(|error| error.to_string())?
            .ok_or("the request was not signed")?;
        let bytes = message.to_vec().map_err(|error| error.to_string())?;
        Ok((bytes, verifier))
    }
}

/// Sends one message and receives one, each with its length in front.
pub(super) async fn converse(mut stream: TcpStream, request: &[u8]) -> io::Result<Vec<u8>> {
    let length = u16::try_from(request.len()).map_err(io::Error::other)?;
    let framed = [&length.to_be_bytes(), request].concat();
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// Reads an answer whose signature is right. One without, as a server gives that does not know the key, could come from
/// anybody: it proves nothing, and only its reason is passed on.
fn believe(mut verifier: TSigVerifier, answer: &[u8]) -> Result<Message, DnsFailure> {
    verifier
        .verify(answer)
        .map(|response| response.into_message())
        .map_err(|error| {
            let code = Message::from_vec(answer).map(|message| message.metadata.response_code);
            DnsFailure::InDoubt(match code {
                Ok(ResponseCode::NotAuth) => {
                    "it does not accept the signature: check the TSIG key's name, algorithm and secret".into()
                }
                Ok(code) => format!("its answer ({code}) is not signed as it must be: {error}"),
                Err(_) => "what it answers is no DNS".into(),
            })
        })
}

/// The second since the epoch at the server, from an answer that is believed and says that the request was signed at
/// another time. Nothing was done then.
fn time_of_server(answer: &Message) -> Option<u64> {
    let signature = &answer.signature()?.data;
    if signature.error != Some(TsigError::BadTime) {
        return None;
    }
    let [a, b, c, d, e, f] = signature.other[..] else {
        return None;
    };
    Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

fn empty(name: &Name, kind: RecordType, class: DNSClass) -> Record {
    let mut record = Record::update0(name.clone(), 0, kind).into_record_of_rdata();
    record.dns_class = class;
    record
}

fn parse_name(text: &str) -> Result<Name, NameError> {
    let mut name = Name::from_ascii(text)
        .map_err(|error| NameError {
            name: text.into(),
            reason: error.to_string(),
        })?
        .to_lowercase();
    name.set_fqdn(true);
    if name.is_root() {
        return Err(NameError {
            name: text.into(),
            reason: "it is empty".into(),
        });
    }
    Ok(name)
}
