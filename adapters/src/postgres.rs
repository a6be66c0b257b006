//! PostgreSQL, version 14 or later.
//!
//! ```no_run
//! use monolock_adapters::postgres::{Change, Fence, GuardedTable, Row, TableName};
//! use monolock_adapters::{FenceError, Grant};
//!
//! # async fn pay(pool: sqlx::PgPool, grant: &dyn Grant) -> Result<(), Box<dyn std::error::Error>> {
//! let fence = Fence::new();
//! fence.install(&pool).await?;
//! let orders = GuardedTable::new(TableName::in_schema("shop", "orders")?, &["id"])?;
//! orders.install_trigger(&pool).await?;
//!
//! let row = Row::new().set("id", 7_i64).set("state", "paid");
//! match fence.write(&pool, grant, &orders, &[Change::Update(row)]).await {
//!     Ok(()) => println!("paid"),
//!     Err(FenceError::Stale { highest, .. }) => println!("the lock is lost: {highest} was here"),
//!     Err(other) => return Err(other.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! In a transaction of your own, at any isolation level:
//!
//! ```no_run
//! # use monolock_adapters::{postgres::Fence, FenceError, Grant};
//! # async fn pay(pool: sqlx::PgPool, fence: Fence, grant: &dyn Grant) -> Result<(), FenceError> {
//! let mut tx = pool.begin().await?;
//! fence.admit(&mut tx, grant).await?;
//! sqlx::query("UPDATE accounts SET balance = balance - 10 WHERE id = 3").execute(&mut *tx).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{Arguments as _, AssertSqlSafe, Executor as _, Postgres, Row as _};

use crate::sql::{self, Backend, Bind, Class, Numbers};

pub use crate::sql::{Admission, Ddl, IdentError, Landed, TableName};

/// The fence of a PostgreSQL database.
pub type Fence = sql::Fence<Postgres>;
/// A transaction that passed the fence.
pub type Fenced<'t> = sql::Fenced<'t, Postgres>;
/// A guarded table of a PostgreSQL database.
pub type GuardedTable = sql::GuardedTable<Postgres>;
/// A fenced transaction that can be committed.
pub type FencedTransaction = sql::FencedTransaction<Postgres>;
/// One change of a guarded table.
pub type Change = sql::Change<Postgres>;
/// A row of a guarded table.
pub type Row = sql::Row<Postgres>;

impl sql::sealed::Sealed for Postgres {}

impl Backend for Postgres {
    const DIALECT: sql::Dialect = sql::Dialect::Postgres;

    fn bind_int(value: i64) -> Bind<Self> {
        Arc::new(move |arguments| arguments.add(value))
    }

    fn bind_name(value: &str) -> Bind<Self> {
        let value = value.to_owned();
        Arc::new(move |arguments| arguments.add(value.as_str()))
    }

    async fn execute(
        conn: &mut PgConnection,
        sql: String,
        arguments: PgArguments,
    ) -> Result<u64, sqlx::Error> {
        let done = sqlx::query_with(AssertSqlSafe(sql), arguments)
            .execute(conn)
            .await?;
        Ok(done.rows_affected())
    }

    async fn numbers(
        conn: &mut PgConnection,
        sql: String,
        arguments: PgArguments,
    ) -> Result<Option<Numbers>, sqlx::Error> {
        let row = sqlx::query_with(AssertSqlSafe(sql), arguments)
            .fetch_optional(conn)
            .await?;
        row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }

    async fn script(conn: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
        conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
    }
}

pub(crate) fn class_of_sqlstate(code: &str) -> Class {
    match code {
        // Serialization failure, deadlock, lock not available.
        "40001" | "40P01" | "55P03" => Class::Conflict,
        // The server ended the session: it can have been in the middle of a commit.
        "40003" | "57P01" | "57P02" | "57P05" => Class::Lost,
        code if code.starts_with("08") => Class::Lost,
        _ => Class::Other,
    }
}
