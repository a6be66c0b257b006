//! A TXT record at the primary server of a zone as the witness (RFC 2136 prerequisites, TSIG).
//!
//! One update demands the record as it was and replaces it; the server carries it out as a whole. Readings are signed
//! questions to the same server, never to a cache. It must be *the primary*: a secondary answers with what it had, and
//! may pass updates on. The server must keep an update it has acknowledged: BIND does; Knot only with
//! `zonefile-load: whole` and `journal-content: changes`.

use futures_util::future::BoxFuture;
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{Name, RData, RecordType};
use monolock_failover_core::Record;

use super::{SwapOutcome, Witness, WitnessError, decode_record, encode_record};
use crate::dns::{DnsFailure, DnsPrimary, NameError, Update};

/// A record in the TXT record of one name, which must hold no other TXT record.
#[derive(Debug)]
pub struct DnsWitness {
    primary: DnsPrimary,
    name: Name,
}

/// What the name held.
struct Found {
    data: Option<RData>,
    record: Option<Record>,
}

impl DnsWitness {
    /// The witness in the TXT record of `name`, for example `_monolock.locks.example.com`. Connects when first used: a
    /// node may start while its witness is down.
    ///
    /// # Errors
    ///
    /// [`NameError`] when `name` is no name in the primary's zone.
    pub fn new(primary: DnsPrimary, name: &str) -> Result<Self, NameError> {
        let name = primary.name_within(name)?;
        Ok(Self { primary, name })
    }

    async fn find(&self) -> Result<Found, DnsFailureOrRecord> {
        let mut found = self.primary.lookup(&self.name, RecordType::TXT).await?;
        let data = found.pop();
        if !found.is_empty() {
            return Err(self.not_a_record("the name has several TXT records").into());
        }
        let record = match &data {
            None => None,
            Some(RData::TXT(text)) => {
                let bytes: Vec<u8> = text.txt_data.iter().flatten().copied().collect();
                Some(decode_record(&bytes).map_err(|reason| self.not_a_record(&reason))?)
            }
            Some(_) => return Err(self.not_a_record("what it holds is no TXT record").into()),
        };
        Ok(Found { data, record })
    }

    async fn try_swap(
        &self,
        expected: Option<&Record>,
        new: &Record,
    ) -> Result<SwapOutcome, DnsFailureOrRecord> {
        let mut compared = expected.map(data_of);
        // The second attempt is for a record that somebody wrote by hand: the same in other letters.
        for _ in 0..2 {
            if self.primary.update(self.replace(compared.as_ref(), new)).await? {
                return Ok(SwapOutcome::Won);
            }
            // From here on nothing of ours is under way: an update that was answered is over.
            let found = match self.find().await {
                Ok(found) => found,
                Err(error) => return Ok(SwapOutcome::Failed(self.witness_error(error))),
            };
            if found.record.as_ref() != expected || found.data == compared {
                return Ok(SwapOutcome::Lost {
                    current: found.record,
                });
            }
            compared = found.data;
        }
        Ok(SwapOutcome::Failed(WitnessError::Unreachable {
            witness: self.witness_name(),
            reason: "its record changes all the time".into(),
        }))
    }

    fn replace(&self, compared: Option<&RData>, new: &Record) -> Update {
        let mut update = Update::default();
        match compared {
            None => update.demand_none(&self.name, RecordType::TXT),
            Some(data) => update.demand_exactly(&self.name, [data.clone()]),
        }
        update.remove_all(&self.name, RecordType::TXT);
        update.add(&self.name, 0, data_of(new));
        update
    }

    fn witness_error(&self, error: DnsFailureOrRecord) -> WitnessError {
        let witness = self.witness_name();
        match error {
            DnsFailureOrRecord::Record(error) => error,
            DnsFailureOrRecord::Dns(DnsFailure::Refused(reason)) => WitnessError::Refused { witness, reason },
            DnsFailureOrRecord::Dns(DnsFailure::Unreachable(reason) | DnsFailure::InDoubt(reason)) => {
                WitnessError::Unreachable { witness, reason }
            }
        }
    }

    fn not_a_record(&self, reason: &str) -> WitnessError {
        WitnessError::NotARecord {
            witness: self.witness_name(),
            reason: reason.into(),
        }
    }

    fn witness_name(&self) -> String {
        format!("dns {} TXT at {}", self.name, self.primary.server())
    }
}

impl Witness for DnsWitness {
    fn read(&self) -> BoxFuture<'_, Result<Option<Record>, WitnessError>> {
        Box::pin(async move {
            match self.find().await {
                Ok(found) => Ok(found.record),
                Err(error) => Err(self.witness_error(error)),
            }
        })
    }

    fn swap<'a>(&'a self, expected: Option<&'a Record>, new: &'a Record) -> BoxFuture<'a, SwapOutcome> {
        Box::pin(async move {
            match self.try_swap(expected, new).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    let in_doubt = matches!(error, DnsFailureOrRecord::Dns(DnsFailure::InDoubt(_)));
                    let error = self.witness_error(error);
                    if in_doubt {
                        SwapOutcome::Unknown(error)
                    } else {
                        SwapOutcome::Failed(error)
                    }
                }
            }
        })
    }
}

/// What can go wrong with a reading: the exchange, or what it brought.
enum DnsFailureOrRecord {
    Dns(DnsFailure),
    Record(WitnessError),
}

impl From<DnsFailure> for DnsFailureOrRecord {
    fn from(failure: DnsFailure) -> Self {
        Self::Dns(failure)
    }
}

impl From<WitnessError> for DnsFailureOrRecord {
    fn from(error: WitnessError) -> Self {
        Self::Record(error)
    }
}

/// The record as one character string: it has at most 201 bytes, and 255 fit.
fn data_of(record: &Record) -> RData {
    let text = String::from_utf8(encode_record(record)).expect("JSON is UTF-8");
    RData::TXT(TXT::new(vec![text]))
}

#[cfg(test)]
mod tests {
    use monolock_failover_core::{Incarnation, NodeId, Term};
    use monolock_protocol::Token;

    use super::*;

    #[test]
    fn the_longest_record_fits_one_character_string() {
        let longest = Record {
            format: Record::FORMAT,
            term: Term(u64::MAX),
            holder: Some(NodeId::B),
            incarnation: Incarnation(u64::MAX),
            beat: u64::MAX,
            floor: Token::MAX,
            max_lease_ms: u32::MAX,
        };
        assert!(
            encode_record(&longest).len() <= 201,
            "{}",
            encode_record(&longest).len()
        );
    }
}
