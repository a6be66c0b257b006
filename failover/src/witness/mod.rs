//! The pair's second voice: a register with compare-and-swap on something the user already runs.
//!
//! A witness holds one [`Record`], or none (a value like any other). It must be linearizable and durable: once a swap
//! has won, no read returns anything older and no other swap from the old value wins, also after a power loss. What a
//! record means, and when to swap it, is the business of [`monolock_failover_core`]; nothing in here decides.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("witness");
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! use monolock_failover::core::{Incarnation, NodeId, Record, Term};
//! use monolock_failover::witness::{FileWitness, SwapOutcome, Witness};
//! use monolock_protocol::Token;
//!
//! let witness: Box<dyn Witness> = Box::new(FileWitness::open(&path)?);
//! let first = Record {
//!     format: Record::FORMAT,
//!     term: Term(1),
//!     holder: Some(NodeId::A),
//!     incarnation: Incarnation(7),
//!     beat: 0,
//!     floor: Token::new(1 << 20),
//!     max_lease_ms: 0,
//! };
//! assert_eq!(witness.read().await?, None);
//! assert!(matches!(witness.swap(None, &first).await, SwapOutcome::Won));
//! assert_eq!(witness.read().await?, Some(first));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use monolock_failover_core::Record;

use crate::config::WitnessSetting;

mod dns;
mod file;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "s3")]
mod s3;

pub use dns::DnsWitness;
pub use file::FileWitness;
#[cfg(feature = "postgres")]
pub use postgres::PostgresWitness;
#[cfg(feature = "s3")]
pub use s3::{S3Location, S3Witness};

/// Opens the witness that a setting names; `None` when the pair has none. Every operation is bounded to `time_limit`. Of a
/// file it makes sure that it can be written; a witness on the network is connected to when first used. Blocks.
///
/// # Errors
///
/// [`WitnessError`], when no node could use it as it is set.
pub fn open(
    setting: &WitnessSetting,
    time_limit: Duration,
) -> Result<Option<Arc<dyn Witness>>, WitnessError> {
    Ok(Some(match setting {
        WitnessSetting::None(_) => return Ok(None),
        WitnessSetting::File(path) => Arc::new(FileWitness::open(path)?.with_lock_wait(time_limit)),
        #[cfg(feature = "postgres")]
        WitnessSetting::Postgres { url, pair } => {
            Arc::new(PostgresWitness::new(url.reveal(), pair)?.with_time_limit(time_limit))
        }
        #[cfg(not(feature = "postgres"))]
        WitnessSetting::Postgres { .. } => {
            return Err(WitnessError::Refused {
                witness: "postgres".into(),
                reason: "this program was built without it".into(),
            });
        }
        #[cfg(feature = "s3")]
        WitnessSetting::S3(location) => {
            Arc::new(S3Witness::new(location.clone()).with_time_limit(time_limit))
        }
        WitnessSetting::Dns { primary, name } => {
            let primary = primary.clone().with_time_limit(time_limit);
            let witness = DnsWitness::new(primary, name).map_err(|error| WitnessError::Refused {
                witness: format!("dns {name}"),
                reason: error.to_string(),
            })?;
            Arc::new(witness)
        }
    }))
}

/// A register that both nodes can read and swap.
///
/// Dropping a future does not take its request back: a swap whose future was dropped is a swap of unknown outcome.
pub trait Witness: fmt::Debug + Send + Sync {
    /// What the register holds; `None` when it holds nothing.
    ///
    /// # Errors
    ///
    /// [`WitnessError`]: the register could not be read, or holds something that is no record.
    fn read(&self) -> BoxFuture<'_, Result<Option<Record>, WitnessError>>;

    /// Puts `new` in the place of `expected`, which is compared as a whole; `None` expects that there is no record.
    fn swap<'a>(&'a self, expected: Option<&'a Record>, new: &'a Record) -> BoxFuture<'a, SwapOutcome>;
}

/// How a swap ended.
#[derive(Debug)]
#[must_use]
pub enum SwapOutcome {
    /// The register holds the new record, durably.
    Won,
    /// It held something else than expected, and was not changed.
    Lost {
        /// What it held instead.
        current: Option<Record>,
    },
    /// The register was certainly not changed by this swap, and never will be.
    Failed(WitnessError),
    /// The register may or may not have been changed, or may still be.
    Unknown(WitnessError),
}

/// Why a witness could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessError {
    /// It could not be reached, or did not answer in time.
    #[error("the witness {witness} cannot be reached: {reason}")]
    Unreachable {
        /// Which witness.
        witness: String,
        /// What happened, and what to do about it.
        reason: String,
    },
    /// It answered that it would not, whatever the record: a missing permission, a wrong key, a full disk.
    #[error("the witness {witness} refuses: {reason}")]
    Refused {
        /// Which witness.
        witness: String,
        /// What it said, and what to do about it.
        reason: String,
    },
    /// It holds something that no node wrote.
    #[error(
        "the witness {witness} holds no record of this program ({reason}): if nothing else uses it, remove what it \
         holds; the nodes then write a new record from the terms and floors they remember"
    )]
    NotARecord {
        /// Which witness.
        witness: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A record as the witnesses keep it: JSON on one line.
pub(crate) fn encode_record(record: &Record) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record consists of numbers and names, which always serialise")
}

/// Reads what [`encode_record`] wrote; the error says what is wrong with it.
pub(crate) fn decode_record(bytes: &[u8]) -> Result<Record, String> {
    let record: Record = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if record.format != Record::FORMAT {
        return Err(format!(
            "it has version {}, this program knows {}: run the version that wrote it, or a later one",
            record.format,
            Record::FORMAT
        ));
    }
    Ok(record)
}
