//! One row of a guarded table as a [`Store`], with every applied write noted in the same transaction.

use monolock_adapters::sql::{Backend, Change, Dialect, Fence, GuardedTable, Row, TableName};
use monolock_adapters::{Resource, Retry, Stamp, Token};
use sqlx::Pool;

use super::suite::{self, Store, Writer};

/// A database that the tests know rows of.
pub trait Database: Backend {
    /// A row of the table `guarded`.
    fn row(id: i64, value: i64) -> Row<Self>;
}

#[cfg(feature = "sqlite")]
impl Database for sqlx::Sqlite {
    fn row(id: i64, value: i64) -> Row<Self> {
        Row::new().set("id", id).set("value", value)
    }
}

#[cfg(feature = "postgres")]
impl Database for sqlx::Postgres {
    fn row(id: i64, value: i64) -> Row<Self> {
        Row::new().set("id", id).set("value", value)
    }
}

#[cfg(feature = "mysql")]
impl Database for sqlx::MySql {
    fn row(id: i64, value: i64) -> Row<Self> {
        Row::new().set("id", id).set("value", value)
    }
}

/// The row with the number 1.
pub struct Rows<DB: Database> {
    pub pool: Pool<DB>,
    pub fence: Fence<DB>,
    pub table: GuardedTable<DB>,
    pub retry: Retry,
}

impl<DB: Database> Rows<DB> {
    /// Creates the tables, the fence and the trigger in an empty database.
    pub async fn create(pool: Pool<DB>) -> Self {
        let counter = match DB::DIALECT {
            Dialect::Sqlite => "INTEGER PRIMARY KEY AUTOINCREMENT",
            Dialect::Postgres => "BIGSERIAL PRIMARY KEY",
            Dialect::Mysql => "BIGINT AUTO_INCREMENT PRIMARY KEY",
        };
        let schema = format!(
            "CREATE TABLE guarded (id BIGINT PRIMARY KEY, value BIGINT, fencing_token BIGINT);
             CREATE TABLE applied (n {counter}, token BIGINT NOT NULL)"
        );
        let rows = Self::attach(pool);
        let mut conn = rows.pool.acquire().await.expect("a connection");
        DB::script(&mut conn, schema).await.expect("tables");
        drop(conn);
        rows.fence.install(&rows.pool).await.expect("installed");
        rows.table.install_trigger(&rows.pool).await.expect("installed");
        rows
    }

    /// Takes a database that has them.
    pub fn attach(pool: Pool<DB>) -> Self {
        let name = TableName::new("guarded").expect("a name");
        Self {
            pool,
            fence: Fence::new(),
            table: GuardedTable::new(name, &["id"]).expect("names"),
            retry: Retry::default(),
        }
    }

    /// As [`attach`](Self::attach), but a lost race is told at once.
    pub fn attach_impatient(pool: Pool<DB>) -> Self {
        let mut rows = Self::attach(pool);
        rows.retry = Retry::NEVER;
        rows.fence = rows.fence.with_retry(Retry::NEVER);
        rows
    }

    async fn apply(&self, stamp: &Stamp, change: Change<DB>) -> suite::Result {
        let attempt = || async {
            let mut tx = self.fence.begin(&self.pool, stamp).await?;
            self.table.apply(&mut tx, &change).await?;
            let note = format!("INSERT INTO applied (token) VALUES ({})", stamp.token());
            DB::script(tx.conn(), note).await?;
            tx.commit().await
        };
        self.retry.run(attempt).await
    }
}

impl<DB: Database> Writer for Rows<DB> {
    async fn put(&self, stamp: &Stamp, value: i64) -> suite::Result {
        self.apply(stamp, Change::Upsert(row(value))).await
    }

    async fn claim(&self, stamp: &Stamp) -> suite::Result {
        self.fence.claim(&self.pool, stamp).await
    }

    async fn step_back(&self) -> Option<(i64, i64)> {
        let steps = "SELECT earlier, token FROM \
                     (SELECT token, LAG(token) OVER (ORDER BY n) AS earlier FROM applied) AS steps \
                     WHERE earlier > token";
        let mut conn = self.pool.acquire().await.expect("a connection");
        let step = DB::numbers(&mut conn, steps.to_owned(), Default::default()).await;
        let (earlier, token) = step.expect("readable")?;
        Some((earlier?, token?))
    }
}

impl<DB: Database> Store for Rows<DB> {
    async fn create(&self, stamp: &Stamp, value: i64) -> suite::Result {
        self.apply(stamp, Change::Insert(row(value))).await
    }

    async fn update(&self, stamp: &Stamp, value: i64) -> suite::Result {
        self.apply(stamp, Change::Update(row(value))).await
    }

    async fn delete(&self, stamp: &Stamp) -> suite::Result {
        self.apply(stamp, Change::Delete(row(0))).await
    }

    async fn get(&self) -> Option<i64> {
        let select = "SELECT value, value FROM guarded WHERE id = 1";
        let mut conn = self.pool.acquire().await.expect("a connection");
        let row = DB::numbers(&mut conn, select.to_owned(), Default::default()).await;
        row.expect("readable").and_then(|(value, _)| value)
    }
}

/// The one row of the suite.
pub fn row<DB: Database>(value: i64) -> Row<DB> {
    DB::row(1, value)
}

pub fn stamp(token: u64) -> Stamp {
    let lock = Resource::guarded_by("lock").expect("a name");
    lock.stamp(Token::new(token))
}
