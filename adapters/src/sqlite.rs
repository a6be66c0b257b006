//! SQLite: a file that several processes of one machine share.
//!
//! ```
//! use monolock_adapters::sqlite::{self, Change, Fence, GuardedTable, Row, TableName};
//! use monolock_adapters::{Resource, Token};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let pool = sqlite::open(dir.path().join("orders.db")).await?;
//! sqlx::raw_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, fencing_token INTEGER)")
//!     .execute(&pool)
//!     .await?;
//! let fence = Fence::new();
//! fence.install(&pool).await?;
//! let orders = GuardedTable::new(TableName::new("orders")?, &["id"])?;
//! orders.install_trigger(&pool).await?;
//!
//! // Under the lock "orders", with the token of its grant:
//! let lock = Resource::guarded_by("orders")?;
//! let row = Row::new().set("id", 7_i64).set("state", "paid");
//! fence.write(&pool, &lock.stamp(Token::new(42)), &orders, &[Change::Upsert(row.clone())]).await?;
//!
//! // A holder that slept through the end of its lease:
//! let refused = fence.write(&pool, &lock.stamp(Token::new(41)), &orders, &[Change::Upsert(row)]).await;
//! assert!(refused.unwrap_err().is_stale());
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{Arguments as _, AssertSqlSafe, Executor as _, Row as _, Sqlite, SqlitePool};

use crate::FenceError;
use crate::sql::{self, Backend, Bind, Class, Numbers};

pub use crate::sql::{Admission, Ddl, IdentError, Landed, TableName};

/// The fence of a SQLite file.
pub type Fence = sql::Fence<Sqlite>;
/// A transaction that passed the fence.
pub type Fenced<'t> = sql::Fenced<'t, Sqlite>;
/// A guarded table of a SQLite file.
pub type GuardedTable = sql::GuardedTable<Sqlite>;
/// A fenced transaction that can be committed.
pub type FencedTransaction = sql::FencedTransaction<Sqlite>;
/// One change of a guarded table.
pub type Change = sql::Change<Sqlite>;
/// A row of a guarded table.
pub type Row = sql::Row<Sqlite>;

/// How long a writer waits for the one before it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Options for a file that several processes write: created if missing, write-ahead log (readers do not block the writer),
/// `synchronous = FULL` (an accepted write survives a power cut), and a busy timeout of 5 s.
#[must_use]
pub fn options(file: impl AsRef<Path>) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
}

/// A small pool on a file with these [`options`]. Any other pool does as well.
///
/// # Errors
///
/// [`FenceError::Backend`] when the file cannot be opened or created.
pub async fn open(file: impl AsRef<Path>) -> Result<SqlitePool, FenceError> {
    Ok(SqlitePoolOptions::new()
        .max_connections(4)
        .connect_with(options(file))
        .await?)
}

impl sql::sealed::Sealed for Sqlite {}

impl Backend for Sqlite {
    const DIALECT: sql::Dialect = sql::Dialect::Sqlite;

    fn bind_int(value: i64) -> Bind<Self> {
        Arc::new(move |arguments| arguments.add(value))
    }

    fn bind_name(value: &str) -> Bind<Self> {
        let value = value.to_owned();
        Arc::new(move |arguments| arguments.add(value.clone()))
    }

    async fn execute(
        conn: &mut SqliteConnection,
        sql: String,
        arguments: SqliteArguments,
    ) -> Result<u64, sqlx::Error> {
        let done = sqlx::query_with(AssertSqlSafe(sql), arguments)
            .execute(conn)
            .await?;
        Ok(done.rows_affected())
    }

    async fn numbers(
        conn: &mut SqliteConnection,
        sql: String,
        arguments: SqliteArguments,
    ) -> Result<Option<Numbers>, sqlx::Error> {
        let row = sqlx::query_with(AssertSqlSafe(sql), arguments)
            .fetch_optional(conn)
            .await?;
        row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }

    async fn script(conn: &mut SqliteConnection, sql: String) -> Result<(), sqlx::Error> {
        conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
    }
}

/// The primary result code is the low byte: SQLITE_BUSY is 5 (517 when a snapshot grew old), SQLITE_LOCKED is 6.
pub(crate) fn class_of_result_code(code: &str) -> Class {
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(5 | 6) => Class::Conflict,
        Ok(_) | Err(_) => Class::Other,
    }
}
