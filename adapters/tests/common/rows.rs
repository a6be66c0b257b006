//! One row of a guarded table as a [`Store`](super::suite::Store), with every applied write noted in the same transaction.

/// Defines `Rows` for the databases of one module; only the placeholder differs.
macro_rules! rows_of {
    ($module:ident, $pool:ty, $note:literal) => {
        struct Rows {
            pool: $pool,
            fence: monolock_adapters::$module::Fence,
            table: monolock_adapters::$module::GuardedTable,
        }

        impl Rows {
            /// Takes a database with the tables `guarded` and `applied`, and adds the fence.
            async fn install(pool: $pool) -> Self {
                let rows = Self::attach(pool);
                rows.fence.install(&rows.pool).await.expect("installed");
                rows.table
                    .install_trigger(&rows.pool)
                    .await
                    .expect("installed");
                rows
            }

            fn attach(pool: $pool) -> Self {
                let name = monolock_adapters::$module::TableName::new("guarded").expect("a name");
                let table = monolock_adapters::$module::GuardedTable::new(name, &["id"]).expect("names");
                Self {
                    pool,
                    fence: Default::default(),
                    table,
                }
            }

            async fn write(
                &self,
                stamp: &monolock_adapters::Stamp,
                change: monolock_adapters::$module::Change,
            ) -> Result<(), monolock_adapters::FenceError> {
                let attempt = || async {
                    let mut tx = self.fence.begin(&self.pool, stamp).await?;
                    self.table.apply(&mut tx, &change).await?;
                    let token = i64::try_from(stamp.token().get()).expect("small tokens");
                    sqlx::query($note).bind(token).execute(tx.conn()).await?;
                    tx.commit().await
                };
                monolock_adapters::Retry::default().run(attempt).await
            }
        }

        impl $crate::common::suite::Store for Rows {
            async fn put(
                &self,
                stamp: &monolock_adapters::Stamp,
                value: i64,
            ) -> $crate::common::suite::Result {
                self.write(
                    stamp,
                    monolock_adapters::$module::Change::Upsert(row(value)),
                )
                .await
            }

            async fn create(
                &self,
                stamp: &monolock_adapters::Stamp,
                value: i64,
            ) -> $crate::common::suite::Result {
                self.write(
                    stamp,
                    monolock_adapters::$module::Change::Insert(row(value)),
                )
                .await
            }

            async fn update(
                &self,
                stamp: &monolock_adapters::Stamp,
                value: i64,
            ) -> $crate::common::suite::Result {
                self.write(
                    stamp,
                    monolock_adapters::$module::Change::Update(row(value)),
                )
                .await
            }

            async fn delete(&self, stamp: &monolock_adapters::Stamp) -> $crate::common::suite::Result {
                self.write(stamp, monolock_adapters::$module::Change::Delete(row(0)))
                    .await
            }

            async fn claim(&self, stamp: &monolock_adapters::Stamp) -> $crate::common::suite::Result {
                self.fence.claim(&self.pool, stamp).await
            }

            async fn get(&self) -> Option<i64> {
                let select = sqlx::query_scalar("SELECT value FROM guarded WHERE id = 1");
                select.fetch_optional(&self.pool).await.expect("readable")
            }

            async fn applied(&self) -> Option<Vec<u64>> {
                let select = sqlx::query_scalar("SELECT token FROM applied ORDER BY n");
                let tokens: Vec<i64> = select.fetch_all(&self.pool).await.expect("readable");
                Some(
                    tokens
                        .into_iter()
                        .map(|token| u64::try_from(token).expect("a token"))
                        .collect(),
                )
            }
        }

        /// The one row of the suite.
        fn row(value: i64) -> monolock_adapters::$module::Row {
            monolock_adapters::$module::Row::new()
                .set("id", 1_i64)
                .set("value", value)
        }

        fn stamp(token: u64) -> monolock_adapters::Stamp {
            let lock = monolock_adapters::Resource::guarded_by("lock").expect("a name");
            lock.stamp(monolock_adapters::Token::new(token))
        }
    };
}
pub(crate) use rows_of;
