//! What the service's zone holds, and what it answers to a question; no I/O.

use std::net::IpAddr;

use hickory_proto::ProtoError;
use hickory_proto::op::{LowerQuery, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, NS, SOA, TXT};
use hickory_proto::rr::{DNSClass, LowerName, Name, RData, Record, RecordType};
use monolock_failover_core::{NodeId, Term};

/// What the name stands for at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceState {
    /// The addresses of the active node. Empty until one is known: the name then exists and has no address. A node that
    /// no longer knows keeps the last ones it knew, since a client that is sent to a standby is told so at once.
    pub addresses: Vec<IpAddr>,
    /// The largest term the node has seen; published as `TXT "term=N"`.
    pub term: Term,
}

/// The zone of one service name: the name itself, and `a.` and `b.` below it for the nodes.
///
/// | question | answer |
/// | --- | --- |
/// | `NAME` A, AAAA | the active node |
/// | `NAME` TXT | `term=N` |
/// | `NAME` NS, SOA | `a.NAME` and `b.NAME`, whichever have a known address; the serial is the term |
/// | `a.NAME`, `b.NAME` A, AAAA | that node, active or not |
/// | any other type of these | no data |
/// | any other name below | no such name |
/// | anything else | refused |
///
/// Every answer, negative ones too, may be kept for one second.
#[derive(Clone, Debug)]
pub struct ServiceZone {
    name: Name,
    nodes: Vec<(Name, IpAddr)>,
}

/// Why a text cannot be the service's name.
#[derive(Debug, thiserror::Error)]
#[error("the service name {name:?} is no domain name: {reason}: write it like locks.example.com")]
pub struct ZoneError {
    name: String,
    reason: String,
}

/// The sections of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sections {
    pub(super) code: ResponseCode,
    pub(super) answers: Vec<Record>,
    pub(super) soa: Option<Record>,
    pub(super) additionals: Vec<Record>,
}

impl ServiceZone {
    /// A zone for `name`, with the addresses of the nodes as far as they are known.
    ///
    /// # Errors
    ///
    /// [`ZoneError`] when `name` is no domain name of at least two labels: a bare word would never be asked for here.
    pub fn new(name: &str, nodes: &[(NodeId, IpAddr)]) -> Result<Self, ZoneError> {
        let invalid = |reason: String| ZoneError {
            name: name.into(),
            reason,
        };
        let refused = |error: ProtoError| invalid(error.to_string());
        let mut zone = Name::from_ascii(name).map_err(refused)?.to_lowercase();
        zone.set_fqdn(true);
        if zone.num_labels() < 2 {
            return Err(invalid("it has fewer than two labels".into()));
        }
        let nodes = nodes
            .iter()
            .map(|(node, address)| Ok((zone.prepend_label(node.to_string())?, *address)))
            .collect::<Result<_, _>>()
            .map_err(refused)?;
        Ok(Self { name: zone, nodes })
    }

    /// The name, fully qualified and in lower case.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.to_ascii()
    }

    pub(super) fn answer(&self, query: &LowerQuery, state: &ServiceState) -> Sections {
        let name = query.name();
        if query.query_class() != DNSClass::IN || !LowerName::from(&self.name).zone_of(name) {
            return Sections::empty(ResponseCode::Refused);
        }
        let held = if **name == self.name {
            self.apex(state)
        } else {
            self.below(name)
        };
        let Some(held) = held else {
            return self.negative(ResponseCode::NXDomain, state);
        };
        let wanted = query.query_type();
        let answers: Vec<_> = held
            .into_iter()
            .filter(|record| wanted == RecordType::ANY || record.record_type() == wanted)
            .collect();
        if answers.is_empty() {
            return self.negative(ResponseCode::NoError, state);
        }
        let additionals = match wanted {
            RecordType::NS => self.node_addresses().collect(),
            _ => Vec::new(),
        };
        Sections {
            code: ResponseCode::NoError,
            answers,
            soa: None,
            additionals,
        }
    }

    /// Every record of the name itself.
    fn apex(&self, state: &ServiceState) -> Option<Vec<Record>> {
        let mut records = vec![self.soa(state)];
        records.extend(
            self.name_servers()
                .map(|server| self.record(RData::NS(NS(server.clone())))),
        );
        records.extend(
            state
                .addresses
                .iter()
                .map(|address| address_record(&self.name, *address)),
        );
        let term = TXT::new(vec![format!("term={}", state.term)]);
        records.push(self.record(RData::TXT(term)));
        Some(records)
    }

    /// Every record of a node's name; `None` for any other name.
    fn below(&self, name: &LowerName) -> Option<Vec<Record>> {
        let records: Vec<_> = self
            .node_addresses()
            .filter(|record| record.name == **name)
            .collect();
        (!records.is_empty()).then_some(records)
    }

    fn node_addresses(&self) -> impl Iterator<Item = Record> {
        self.nodes
            .iter()
            .map(|(name, address)| address_record(name, *address))
    }

    /// The names of the nodes, each once.
    fn name_servers(&self) -> impl Iterator<Item = &Name> {
        let names = self.nodes.iter().map(|(name, _)| name);
        names
            .clone()
            .enumerate()
            .filter(move |(index, name)| names.clone().take(*index).all(|earlier| earlier != *name))
            .map(|(_, name)| name)
    }

    fn negative(&self, code: ResponseCode, state: &ServiceState) -> Sections {
        Sections {
            soa: Some(self.soa(state)),
            ..Sections::empty(code)
        }
    }

    fn soa(&self, state: &ServiceState) -> Record {
        let primary = self.name_servers().next().unwrap_or(&self.name).clone();
        let mailbox = self
            .name
            .prepend_label("hostmaster")
            .unwrap_or_else(|_| self.name.clone());
        let serial = (state.term.0 & u64::from(u32::MAX)) as u32;
        self.record(RData::SOA(SOA::new(
            primary,
            mailbox,
            serial,
            1,
            1,
            60,
            TTL_SECONDS,
        )))
    }

    fn record(&self, data: RData) -> Record {
        Record::from_rdata(self.name.clone(), TTL_SECONDS, data)
    }
}

impl Sections {
    fn empty(code: ResponseCode) -> Self {
        Self {
            code,
            answers: Vec::new(),
            soa: None,
            additionals: Vec::new(),
        }
    }
}

fn address_record(name: &Name, address: IpAddr) -> Record {
    let data = match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Record::from_rdata(name.clone(), TTL_SECONDS, data)
}

/// The shortest that every resolver honours; a client must not look for the old active any longer.
const TTL_SECONDS: u32 = 1;

#[cfg(test)]
mod tests {
    use hickory_proto::op::Query;

    use super::*;

    fn zone() -> ServiceZone {
        let nodes = [
            (NodeId::A, "192.0.2.1".parse().unwrap()),
            (NodeId::B, "192.0.2.2".parse().unwrap()),
            (NodeId::B, "2001:db8::2".parse().unwrap()),
        ];
        ServiceZone::new("Locks.Example.com", &nodes).unwrap()
    }

    fn state() -> ServiceState {
        ServiceState {
            addresses: vec!["192.0.2.2".parse().unwrap(), "2001:db8::2".parse().unwrap()],
            term: Term(7),
        }
    }

    fn ask(state: &ServiceState, name: &str, wanted: RecordType) -> Sections {
        let query = Query::query(Name::from_ascii(name).unwrap(), wanted);
        zone().answer(&LowerQuery::query(query), state)
    }

    fn answers(name: &str, wanted: RecordType) -> Vec<String> {
        let sections = ask(&state(), name, wanted);
        assert_eq!(sections.code, ResponseCode::NoError);
        assert!(
            sections
                .answers
                .iter()
                .all(|record| record.ttl == 1 && record.name.is_fqdn())
        );
        sections
            .answers
            .iter()
            .map(|record| record.data.to_string())
            .collect()
    }

    #[test]
    fn the_name_stands_for_the_active_node() {
        assert_eq!(answers("locks.example.com.", RecordType::A), ["192.0.2.2"]);
        assert_eq!(answers("LOCKS.example.com.", RecordType::AAAA), ["2001:db8::2"]);
        assert_eq!(answers("locks.example.com.", RecordType::TXT), ["term=7"]);
        assert_eq!(
            answers("locks.example.com.", RecordType::NS),
            ["a.locks.example.com.", "b.locks.example.com."]
        );
        let soa = answers("locks.example.com.", RecordType::SOA);
        assert_eq!(
            soa,
            ["a.locks.example.com. hostmaster.locks.example.com. 7 1 1 60 1"]
        );
        assert_eq!(answers("a.locks.example.com.", RecordType::A), ["192.0.2.1"]);
        assert_eq!(answers("locks.example.com.", RecordType::ANY).len(), 6);
        assert_eq!(
            ask(&state(), "locks.example.com.", RecordType::NS)
                .additionals
                .len(),
            3
        );
    }

    #[test]
    fn without_a_known_active_the_name_exists_and_has_no_address() {
        let unknown = ServiceState::default();
        let sections = ask(&unknown, "locks.example.com.", RecordType::A);
        assert_eq!(
            (sections.code, sections.answers.len()),
            (ResponseCode::NoError, 0)
        );
        assert_eq!(sections.soa.unwrap().ttl, 1);
    }

    #[test]
    fn what_is_not_there_is_denied_for_one_second_and_what_is_not_ours_refused() {
        for (name, wanted, code, has_soa) in [
            ("locks.example.com.", RecordType::MX, ResponseCode::NoError, true),
            (
                "a.locks.example.com.",
                RecordType::AAAA,
                ResponseCode::NoError,
                true,
            ),
            (
                "c.locks.example.com.",
                RecordType::A,
                ResponseCode::NXDomain,
                true,
            ),
            (
                "x.a.locks.example.com.",
                RecordType::A,
                ResponseCode::NXDomain,
                true,
            ),
            ("example.com.", RecordType::A, ResponseCode::Refused, false),
            ("xlocks.example.com.", RecordType::A, ResponseCode::Refused, false),
            (".", RecordType::NS, ResponseCode::Refused, false),
        ] {
            let sections = ask(&state(), name, wanted);
            assert_eq!(
                (sections.code, sections.soa.is_some()),
                (code, has_soa),
                "{name} {wanted}"
            );
            assert!(sections.answers.is_empty());
        }
        let mut chaos = Query::query(Name::from_ascii("locks.example.com.").unwrap(), RecordType::A);
        chaos.set_query_class(DNSClass::CH);
        let sections = zone().answer(&LowerQuery::query(chaos), &state());
        assert_eq!(sections.code, ResponseCode::Refused);
    }

    #[test]
    fn a_name_is_a_domain_name() {
        assert_eq!(zone().name(), "locks.example.com.");
        for wrong in ["", ".", "locks", "locks..com", &"x".repeat(64), "a b.com"] {
            let error = ServiceZone::new(wrong, &[]).expect_err(wrong);
            assert!(error.to_string().contains("locks.example.com"), "{error}");
        }
    }
}
