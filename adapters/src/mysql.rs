//! MySQL 8.0.29 or later, and MariaDB 10.3 or later; tables must be InnoDB's. **Tested on MariaDB 10.11 only**: Oracle's MySQL is
//! written for by its manual, and has not been run.
//!
//! ```no_run
//! use monolock_adapters::mysql::{Change, Fence, GuardedTable, Row, TableName};
//! use monolock_adapters::Grant;
//!
//! # async fn pay(pool: sqlx::MySqlPool, grant: &dyn Grant) -> Result<(), Box<dyn std::error::Error>> {
//! let fence = Fence::new();
//! fence.install(&pool).await?;
//! let orders = GuardedTable::new(TableName::new("orders")?, &["id"])?;
//! orders.install_trigger(&pool).await?;
//!
//! let row = Row::new().set("id", 7_i64).set("state", "paid");
//! fence.write(&pool, grant, &orders, &[Change::Update(row)]).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Two things are not as in the other databases. Statements that define tables and triggers commit by themselves, so
//! [`Fence::install`] is not all or nothing (it completes when it is run again). And a foreign key's cascades run no
//! triggers: do not let one write a guarded table.

use std::sync::Arc;

use sqlx::mysql::{MySqlArguments, MySqlConnection};
use sqlx::{Arguments as _, AssertSqlSafe, Executor as _, MySql, Row as _};

use crate::sql::{self, Backend, Bind, Class, Numbers};

pub use crate::sql::{Admission, Ddl, IdentError, Landed, TableName};

/// The fence of a MySQL database.
pub type Fence = sql::Fence<MySql>;
/// A transaction that passed the fence.
pub type Fenced<'t> = sql::Fenced<'t, MySql>;
/// A guarded table of a MySQL database.
pub type GuardedTable = sql::GuardedTable<MySql>;
/// A fenced transaction that can be committed.
pub type FencedTransaction = sql::FencedTransaction<MySql>;
/// One change of a guarded table.
pub type Change = sql::Change<MySql>;
/// A row of a guarded table.
pub type Row = sql::Row<MySql>;

impl sql::sealed::Sealed for MySql {}

impl Backend for MySql {
    const DIALECT: sql::Dialect = sql::Dialect::Mysql;

    fn bind_int(value: i64) -> Bind<Self> {
        Arc::new(move |arguments| arguments.add(value))
    }

    /// As bytes: a text would be compared by its collation.
    fn bind_name(value: &str) -> Bind<Self> {
        let value = value.as_bytes().to_vec();
        Arc::new(move |arguments| arguments.add(value.as_slice()))
    }

    async fn execute(
        conn: &mut MySqlConnection,
        sql: String,
        arguments: MySqlArguments,
    ) -> Result<u64, sqlx::Error> {
        let done = sqlx::query_with(AssertSqlSafe(sql), arguments)
            .execute(conn)
            .await?;
        Ok(done.rows_affected())
    }

    async fn numbers(
        conn: &mut MySqlConnection,
        sql: String,
        arguments: MySqlArguments,
    ) -> Result<Option<Numbers>, sqlx::Error> {
        let row = sqlx::query_with(AssertSqlSafe(sql), arguments)
            .fetch_optional(conn)
            .await?;
        row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }

    async fn script(conn: &mut MySqlConnection, sql: String) -> Result<(), sqlx::Error> {
        conn.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop)
    }
}

pub(crate) fn class_of_number(number: u16) -> Class {
    match number {
        // Record changed since the snapshot, lock wait timeout, deadlock, lock not available.
        1020 | 1205 | 1213 | 3572 => Class::Conflict,
        // Server shutdown, session killed, session ended for its age.
        1053 | 1927 | 4031 => Class::Lost,
        _ => Class::Other,
    }
}
