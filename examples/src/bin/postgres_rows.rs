//! Rows of PostgreSQL that refuse a stale writer: `make example-postgres`.

use std::process::ExitCode;

use anyhow::Result;
use monolock_adapters::postgres::{Change, Fence, GuardedTable, Row, TableName};
use monolock_adapters::{FenceError, Grant};
use monolock_examples::stage::{self, GuardedResource, servers};
use sqlx::PgPool;

struct Orders {
    pool: PgPool,
    fence: Fence,
    orders: GuardedTable,
}

impl GuardedResource for Orders {
    const LOCK: &str = "orders";

    async fn open(address: &str) -> Result<Self> {
        Ok(Self {
            pool: PgPool::connect(address).await?,
            fence: Fence::new(),
            orders: GuardedTable::new(TableName::new("orders")?, &["id"])?,
        })
    }

    /// A migration of your own can hold these statements: `fence.ddl()` and `orders.trigger_ddl()` print them.
    async fn prepare(&self) -> Result<()> {
        const ORDERS: &str =
            "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, state TEXT, fencing_token BIGINT)";
        sqlx::query(ORDERS).execute(&self.pool).await?;
        self.fence.install(&self.pool).await?;
        self.orders.install_trigger(&self.pool).await?; // from now on plain SQL with an old token fails, too
        Ok(())
    }

    /// Under the lock: `grant` is what the client hands to the work.
    async fn write(&self, grant: &dyn Grant, text: &str) -> Result<(), FenceError> {
        let row = Row::new().set("id", 7_i64).set("state", text.to_owned());
        self.fence
            .write(&self.pool, grant, &self.orders, &[Change::Upsert(row)])
            .await
    }

    async fn read(&self) -> Result<String> {
        let state = sqlx::query_scalar("SELECT state FROM orders WHERE id = 7");
        Ok(state.fetch_one(&self.pool).await?)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    stage::play::<Orders>(servers::postgres).await
}
