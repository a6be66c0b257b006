//! What differs between the databases.

use std::future::Future;

use sqlx::Database;

use super::Bind;
use crate::FenceError;

/// A database whose rows can be fenced: `sqlx::Sqlite`, `sqlx::Postgres` and `sqlx::MySql`, each behind its feature.
///
/// Sealed: the items are no part of the public interface.
pub trait Backend: sealed::Sealed + Database {
    #[doc(hidden)]
    const DIALECT: Dialect;

    #[doc(hidden)]
    fn bind_int(value: i64) -> Bind<Self>;

    #[doc(hidden)]
    fn bind_name(value: &str) -> Bind<Self>;

    #[doc(hidden)]
    fn execute(
        conn: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn numbers(
        conn: &mut Self::Connection,
        sql: String,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Option<Numbers>, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn script(
        conn: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// The first two columns of a row.
#[doc(hidden)]
pub type Numbers = (Option<i64>, Option<i64>);

pub(crate) mod sealed {
    /// Keeps [`Backend`](super::Backend) ours.
    pub trait Sealed {}
}

/// Whose SQL.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
}

impl Dialect {
    /// How a transaction starts that is going to write.
    pub(crate) const fn begin(self) -> &'static str {
        match self {
            // A deferred one that reads first cannot become a writer once somebody else has written.
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
            Self::Mysql => "START TRANSACTION",
        }
    }

    /// A statement that fails if the commit would quietly roll back instead.
    pub(crate) const fn commit_check(self) -> Option<&'static str> {
        match self {
            // PostgreSQL answers COMMIT with success in a transaction one of whose statements failed.
            Self::Postgres => Some("SET CONSTRAINTS ALL IMMEDIATE"),
            Self::Sqlite | Self::Mysql => None,
        }
    }
}

/// Marks the message of the enforcing trigger.
pub(crate) const TRIGGER_MESSAGE: &str = "fencing token is older than the one stored";

/// What a database error says about our statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Lost a race: nothing happened, try the transaction again.
    Conflict,
    /// The enforcing trigger refused.
    Trigger,
    /// A unique key exists already.
    Duplicate,
    /// The connection is gone, and an answer with it.
    Lost,
    /// Anything else.
    Other,
}

pub(crate) fn classify(error: &sqlx::Error) -> Class {
    let database = match error {
        sqlx::Error::Database(database) => database,
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::Tls(_) | sqlx::Error::WorkerCrashed => {
            return Class::Lost;
        }
        _ => return Class::Other,
    };
    if database.message().contains(TRIGGER_MESSAGE) {
        return Class::Trigger;
    }
    if database.is_unique_violation() {
        return Class::Duplicate;
    }
    class_of_code(database.as_ref())
}

fn class_of_code(error: &dyn sqlx::error::DatabaseError) -> Class {
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return crate::mysql::class_of_number(error.number());
    }
    let code = error.code().unwrap_or_default();
    #[cfg(feature = "postgres")]
    if error
        .try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
        .is_some()
    {
        return crate::postgres::class_of_sqlstate(&code);
    }
    #[cfg(feature = "sqlite")]
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        return crate::sqlite::class_of_result_code(&code);
    }
    let _ = code;
    Class::Other
}

impl From<sqlx::Error> for FenceError {
    /// What a failed statement inside a transaction means; a transaction that is not committed has written nothing.
    fn from(error: sqlx::Error) -> Self {
        match classify(&error) {
            Class::Conflict => Self::Conflict {
                attempts: 1,
                source: error.into(),
            },
            Class::Trigger => Self::RefusedByTrigger {
                message: error.to_string(),
            },
            Class::Duplicate | Class::Lost | Class::Other => Self::Backend(error.into()),
        }
    }
}
