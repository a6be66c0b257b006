//! The guarded resource: one row, and the history of the writes that the database accepted.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use monolock_adapters::{FenceError, Resource, Stamp, Token, postgres, sqlite};
use sqlx::{PgPool, SqlitePool};

/// Where the ledger is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A file: `sqlite:PATH`.
    Sqlite(String),
    /// A server: `postgres://...`.
    Postgres(String),
}

impl FromStr for Database {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            Ok(Self::Sqlite(path.to_owned()))
        } else if text.starts_with("postgres:") || text.starts_with("postgresql:") {
            Ok(Self::Postgres(text.to_owned()))
        } else {
            bail!("{text:?} is no ledger: write sqlite:PATH or postgres://USER@HOST/DATABASE")
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{path}"),
            Self::Postgres(url) => f.write_str(url),
        }
    }
}

/// An open ledger.
#[derive(Clone, Debug)]
pub enum Ledger {
    /// In a SQLite file.
    Sqlite(SqlitePool),
    /// In a PostgreSQL database.
    Postgres(PgPool),
}

/// What the ledger holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Who wrote the row last.
    pub writer: String,
    /// The token in the row.
    pub token: Token,
    /// The token of each accepted write, in the order in which the database took them.
    pub history: Vec<Token>,
}

const ROW: i64 = 1;
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS balance (id BIGINT PRIMARY KEY, writer TEXT NOT NULL, fencing_token BIGINT);
    CREATE TABLE IF NOT EXISTS history (sequence {SEQUENCE}, writer TEXT NOT NULL, token BIGINT NOT NULL);
";

impl Ledger {
    /// Opens the ledger, and creates what is missing: the tables, the fence, and the trigger that makes the database
    /// itself refuse an older token.
    ///
    /// # Errors
    ///
    /// When the database cannot be opened or does not take the schema.
    pub async fn open(database: &Database) -> Result<Self> {
        match database {
            Database::Sqlite(path) => {
                let pool = sqlite::open(path)
                    .await
                    .with_context(|| format!("cannot open {database}"))?;
                let schema = SCHEMA.replace("{SEQUENCE}", "INTEGER PRIMARY KEY AUTOINCREMENT");
                sqlx::raw_sql(sqlx::AssertSqlSafe(schema)).execute(&pool).await?;
                sqlite::Fence::new().install(&pool).await?;
                sqlite::GuardedTable::new(sqlite::TableName::new("balance")?, &["id"])?
                    .install_trigger(&pool)
                    .await?;
                Ok(Self::Sqlite(pool))
            }
            Database::Postgres(url) => {
                let pool = PgPool::connect(url)
                    .await
                    .context("cannot connect to PostgreSQL")?;
                let schema = SCHEMA.replace("{SEQUENCE}", "BIGSERIAL PRIMARY KEY");
                sqlx::raw_sql(sqlx::AssertSqlSafe(schema)).execute(&pool).await?;
                postgres::Fence::new().install(&pool).await?;
                postgres::GuardedTable::new(postgres::TableName::new("balance")?, &["id"])?
                    .install_trigger(&pool)
                    .await?;
                Ok(Self::Postgres(pool))
            }
        }
    }

    /// Writes the guarded row and a line of history in one fenced transaction.
    ///
    /// # Errors
    ///
    /// [`FenceError::Stale`] when the ledger has accepted a larger token: nothing was written.
    pub async fn write(&self, stamp: &Stamp, writer: &str) -> Result<(), FenceError> {
        const HISTORY: &str = "INSERT INTO history (writer, token) VALUES ($1, $2)";
        let token = i64::try_from(stamp.token().get()).map_err(FenceError::caller)?;
        match self {
            Self::Sqlite(pool) => {
                let table = sqlite::GuardedTable::new(
                    sqlite::TableName::new("balance").map_err(FenceError::caller)?,
                    &["id"],
                )
                .map_err(FenceError::caller)?;
                let mut tx = sqlite::Fence::new().begin(pool, stamp).await?;
                let row = sqlite::Row::new().set("id", ROW).set("writer", writer.to_owned());
                table.upsert(&mut tx, &row).await?;
                sqlx::query(HISTORY)
                    .bind(writer)
                    .bind(token)
                    .execute(tx.conn())
                    .await?;
                tx.commit().await
            }
            Self::Postgres(pool) => {
                let table = postgres::GuardedTable::new(
                    postgres::TableName::new("balance").map_err(FenceError::caller)?,
                    &["id"],
                )
                .map_err(FenceError::caller)?;
                let mut tx = postgres::Fence::new().begin(pool, stamp).await?;
                let row = postgres::Row::new()
                    .set("id", ROW)
                    .set("writer", writer.to_owned());
                table.upsert(&mut tx, &row).await?;
                sqlx::query(HISTORY)
                    .bind(writer)
                    .bind(token)
                    .execute(tx.conn())
                    .await?;
                tx.commit().await
            }
        }
    }

    /// Writes the row's token with plain SQL, as a program would that knows nothing of the fence.
    ///
    /// # Errors
    ///
    /// The database's own refusal, when the token is older than the row's.
    pub async fn write_without_the_library(&self, token: Token) -> Result<(), sqlx::Error> {
        const UPDATE: &str = "UPDATE balance SET writer = 'plain SQL', fencing_token = $1 WHERE id = $2";
        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
        match self {
            Self::Sqlite(pool) => sqlx::query(UPDATE)
                .bind(token)
                .bind(ROW)
                .execute(pool)
                .await
                .map(drop),
            Self::Postgres(pool) => sqlx::query(UPDATE)
                .bind(token)
                .bind(ROW)
                .execute(pool)
                .await
                .map(drop),
        }
    }

    /// Reads everything.
    ///
    /// # Errors
    ///
    /// When the database cannot be read or nothing was written yet.
    pub async fn contents(&self) -> Result<Contents> {
        const LAST: &str = "SELECT writer, fencing_token FROM balance WHERE id = $1";
        const HISTORY: &str = "SELECT token FROM history ORDER BY sequence";
        let ((writer, token), history): ((String, i64), Vec<i64>) = match self {
            Self::Sqlite(pool) => (
                sqlx::query_as(LAST).bind(ROW).fetch_one(pool).await?,
                sqlx::query_scalar(HISTORY).fetch_all(pool).await?,
            ),
            Self::Postgres(pool) => (
                sqlx::query_as(LAST).bind(ROW).fetch_one(pool).await?,
                sqlx::query_scalar(HISTORY).fetch_all(pool).await?,
            ),
        };
        let as_token = |token: i64| {
            u64::try_from(token)
                .map(Token::new)
                .context("a token is not negative")
        };
        Ok(Contents {
            writer,
            token: as_token(token)?,
            history: history.into_iter().map(as_token).collect::<Result<_>>()?,
        })
    }
}

/// The one resource of the demo, called after its lock.
///
/// # Errors
///
/// When the name cannot name a resource.
pub fn resource(lock: &str) -> Result<Resource> {
    Resource::guarded_by(lock).with_context(|| format!("{lock:?} cannot guard a resource"))
}
