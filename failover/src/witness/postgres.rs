//! A row in PostgreSQL as the witness.
//!
//! The row is compared and changed by one statement, so two swaps from one value cannot both win. Every commit is
//! synchronous, whatever the server's default. It must be *one named primary*: a server in recovery is refused, since
//! what it shows may be old. When PostgreSQL itself fails over to a replica, the swaps of the last moments survive only
//! with synchronous replication; a record that went back is then noticed by the nodes (they remember the largest term
//! and floor), and never lowers a token.

use std::time::Duration;

use futures_util::future::BoxFuture;
use monolock_failover_core::Record;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgQueryResult, PgRow};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::Mutex;

use super::{SwapOutcome, Witness, WitnessError, decode_record, encode_record};

/// A record in a row of the table `monolock_witness`, which is created when it is missing.
#[derive(Debug)]
pub struct PostgresWitness {
    options: PgConnectOptions,
    pair: String,
    time_limit: Duration,
    /// Kept while it is good. An operation takes it out and puts it back only when it has ended well, so that a dropped
    /// future or an error closes it.
    connection: Mutex<Option<PgConnection>>,
}

/// Why a statement has no result.
enum Failure {
    /// It was certainly not carried out.
    NotDone(WitnessError),
    /// It may have been, or may still be.
    InDoubt(WitnessError),
}

/// What the row held.
struct Found {
    text: Option<String>,
    record: Option<Record>,
}

impl PostgresWitness {
    /// How long an operation may take, unless set otherwise.
    pub const TIME_LIMIT: Duration = Duration::from_secs(2);

    /// The witness at `url` (`postgres://user:password@host/database?sslmode=verify-full`), in the row named `pair`.
    /// Connects when first used: a node may start while its witness is down.
    ///
    /// # Errors
    ///
    /// [`WitnessError::Refused`] when the address cannot be understood.
    pub fn new(url: &str, pair: &str) -> Result<Self, WitnessError> {
        let misunderstood = |problem: &str| WitnessError::Refused {
            witness: "postgres".into(),
            reason: format!("its address is no postgres://user@host/database: {problem}"),
        };
        if !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(misunderstood("it begins otherwise"));
        }
        let options: PgConnectOptions = url
            .parse()
            .map_err(|error: sqlx::Error| misunderstood(&error.to_string()))?;
        let options = options
            .application_name("monolock-failover")
            .options([("synchronous_commit", "on")])
            .disable_statement_logging();
        Ok(Self {
            options,
            pair: pair.into(),
            time_limit: Self::TIME_LIMIT,
            connection: Mutex::default(),
        })
    }

    /// Bounds every operation to `time_limit`, connecting included.
    #[must_use]
    pub fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// Takes the kept connection or makes one.
    async fn connect(&self) -> Result<PgConnection, WitnessError> {
        if let Some(connection) = self.connection.lock().await.take() {
            return Ok(connection);
        }
        let connecting = PgConnection::connect_with(&self.options);
        match tokio::time::timeout(self.time_limit, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(sqlx::Error::Database(error))) => Err(self.refused(error)),
            Ok(Err(error)) => Err(self.unreachable(error)),
            Err(_elapsed) => Err(self.unreachable("it takes no connection in time")),
        }
    }

    async fn within_limit<T>(
        &self,
        operation: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::time::timeout(self.time_limit, operation)
            .await
            .unwrap_or_else(|_| Err(Failure::InDoubt(self.unreachable("it did not answer in time"))))
    }

    async fn keep(&self, connection: PgConnection) {
        *self.connection.lock().await = Some(connection);
    }

    async fn find(&self, connection: &mut PgConnection) -> Result<Found, Failure> {
        let mut row = self.select(connection).await;
        if is_without_table(&row) {
            create_table(connection).await;
            row = self.select(connection).await;
        }
        let row = row.map_err(|error| self.failure(error))?;
        let (in_recovery, text): (bool, Option<String>) = (row.get(0), row.get(1));
        if in_recovery {
            return Err(Failure::NotDone(self.refused(IN_RECOVERY)));
        }
        let record = match &text {
            None => None,
            Some(text) => Some(decode_record(text.as_bytes()).map_err(|reason| {
                Failure::NotDone(WitnessError::NotARecord {
                    witness: self.name(),
                    reason,
                })
            })?),
        };
        Ok(Found { text, record })
    }

    async fn try_swap(
        &self,
        connection: &mut PgConnection,
        expected: Option<&Record>,
        new: &Record,
    ) -> Result<SwapOutcome, Failure> {
        let new = text_of(new);
        let mut compared = expected.map(text_of);
        // The second attempt is for a row that somebody wrote by hand: the same record in other letters.
        for _ in 0..2 {
            if self.write(connection, compared.as_deref(), &new).await? {
                return Ok(SwapOutcome::Won);
            }
            let found = self.find(connection).await?;
            if found.record.as_ref() != expected || found.text == compared {
                return Ok(SwapOutcome::Lost {
                    current: found.record,
                });
            }
            compared = found.text;
        }
        Err(Failure::NotDone(self.unreachable("its row changes all the time")))
    }

    /// Whether the row held `compared` and now holds `new`.
    async fn write(
        &self,
        connection: &mut PgConnection,
        compared: Option<&str>,
        new: &str,
    ) -> Result<bool, Failure> {
        let mut done = self.change(connection, compared, new).await;
        if is_without_table(&done) {
            create_table(connection).await;
            done = self.change(connection, compared, new).await;
        }
        let done = done.map_err(|error| self.failure(error))?;
        Ok(done.rows_affected() == 1)
    }

    async fn select(&self, connection: &mut PgConnection) -> Result<PgRow, sqlx::Error> {
        sqlx::query(READ).bind(&self.pair).fetch_one(connection).await
    }

    async fn change(
        &self,
        connection: &mut PgConnection,
        compared: Option<&str>,
        new: &str,
    ) -> Result<PgQueryResult, sqlx::Error> {
        let change = match compared {
            None => sqlx::query(INSERT).bind(&self.pair).bind(new),
            Some(compared) => sqlx::query(UPDATE).bind(&self.pair).bind(new).bind(compared),
        };
        change.execute(connection).await
    }

    fn failure(&self, error: sqlx::Error) -> Failure {
        let refuses = sql_state(&error).is_some_and(|state| {
            NOTHING_DONE
                .iter()
                .any(|class_or_state| state.starts_with(class_or_state))
        });
        if refuses {
            Failure::NotDone(self.refused(error))
        } else {
            Failure::InDoubt(self.unreachable(error))
        }
    }

    fn name(&self) -> String {
        format!(
            "postgres {}:{}/{} pair {:?}",
            self.options.get_host(),
            self.options.get_port(),
            self.options.get_database().unwrap_or_default(),
            self.pair
        )
    }

    fn refused(&self, reason: impl std::fmt::Display) -> WitnessError {
        WitnessError::Refused {
            witness: self.name(),
            reason: format!(
                "{reason}: its user needs SELECT, INSERT and UPDATE on a table made by {CREATE_TABLE}"
            ),
        }
    }

    fn unreachable(&self, reason: impl std::fmt::Display) -> WitnessError {
        WitnessError::Unreachable {
            witness: self.name(),
            reason: reason.to_string(),
        }
    }
}

impl Witness for PostgresWitness {
    fn read(&self) -> BoxFuture<'_, Result<Option<Record>, WitnessError>> {
        Box::pin(async move {
            let mut connection = self.connect().await?;
            match self.within_limit(self.find(&mut connection)).await {
                Ok(found) => {
                    self.keep(connection).await;
                    Ok(found.record)
                }
                Err(Failure::NotDone(error) | Failure::InDoubt(error)) => Err(error),
            }
        })
    }

    fn swap<'a>(&'a self, expected: Option<&'a Record>, new: &'a Record) -> BoxFuture<'a, SwapOutcome> {
        Box::pin(async move {
            let mut connection = match self.connect().await {
                Ok(connection) => connection,
                Err(error) => return SwapOutcome::Failed(error),
            };
            let swapping = self.try_swap(&mut connection, expected, new);
            match self.within_limit(swapping).await {
                Ok(outcome) => {
                    self.keep(connection).await;
                    outcome
                }
                Err(Failure::NotDone(error)) => SwapOutcome::Failed(error),
                Err(Failure::InDoubt(error)) => SwapOutcome::Unknown(error),
            }
        })
    }
}

fn is_without_table<T>(result: &Result<T, sqlx::Error>) -> bool {
    matches!(result, Err(error) if sql_state(error).as_deref() == Some(UNDEFINED_TABLE))
}

/// Two nodes may create it at once; whoever loses finds it all the same, and whoever may not is told by what follows.
async fn create_table(connection: &mut PgConnection) {
    if let Err(error) = sqlx::query(CREATE_TABLE).execute(connection).await {
        tracing::debug!(%error, "the witness's table was not created");
    }
}

fn text_of(record: &Record) -> String {
    String::from_utf8(encode_record(record)).expect("JSON is UTF-8")
}

fn sql_state(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
const READ: &str = "SELECT pg_is_in_recovery(), (SELECT record FROM monolock_witness WHERE pair = $1)";
const INSERT: &str =
    "INSERT INTO monolock_witness (pair, record) VALUES ($1, $2) ON CONFLICT (pair) DO NOTHING";
const UPDATE: &str = "UPDATE monolock_witness SET record = $2 WHERE pair = $1 AND record = $3";
const CREATE_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS monolock_witness (pair text PRIMARY KEY, record text NOT NULL)";
const IN_RECOVERY: &str = "it is a replica, which may show old values: give the address of the primary";

const UNDEFINED_TABLE: &str = "42P01";
/// Classes and states with which the server answers *instead of* carrying a statement out: no such object or right, and a
/// read-only server. An error at the commit, a lost connection or a stop of the server is not among them.
const NOTHING_DONE: [&str; 4] = ["42", "25006", "28", "3D"];
