//! The fence of a whole transaction.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use monolock_protocol::Token;
use sqlx::{Pool, Transaction};

use super::backend::Dialect;
use super::{Backend, Change, Class, Ddl, GuardedTable, Statement, TableName, bigint, classify, token};
use crate::{FenceError, Grant, Resource, Retry, Stamp};

/// The fence table unless another name is chosen.
pub const DEFAULT_FENCE_TABLE: &str = "fencing_tokens";

/// A table with the highest token of each resource, and the one statement that compares and locks.
///
/// The fence is only a name: it holds no connection, is cheap to clone, and works with any pool or transaction of its
/// database.
#[derive(Debug)]
pub struct Fence<DB> {
    table: TableName,
    retry: Retry,
    database: PhantomData<fn() -> DB>,
}

/// Proof that a transaction passed the fence; it can tell later whether the transaction was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    stamp: Stamp,
    write_id: i64,
}

/// A transaction that passed the fence: the only way to [`GuardedTable`]'s writes, and [`conn`](Self::conn) for any
/// statement of your own. [`Fence::admit`] makes one that borrows your transaction; [`Fence::begin`] makes one that owns its own.
pub struct Fenced<'t, DB: Backend> {
    held: Held<'t, DB>,
    admission: Admission,
}

enum Held<'t, DB: Backend> {
    Lent(&'t mut DB::Connection),
    Own(Transaction<'static, DB>),
}

impl<DB: Backend> Fenced<'_, DB> {
    /// The transaction's connection, for statements of your own.
    pub fn conn(&mut self) -> &mut DB::Connection {
        match &mut self.held {
            Held::Lent(conn) => conn,
            Held::Own(tx) => tx,
        }
    }

    /// The token that passed, and its resource.
    #[must_use]
    pub fn stamp(&self) -> &Stamp {
        &self.admission.stamp
    }

    /// What [`Fence::landed`] needs if the answer to the commit is lost.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }
}

impl<DB: Backend> fmt::Debug for Fenced<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced")
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}

/// A fenced transaction that can be committed; dropped, it is rolled back.
#[derive(Debug)]
pub struct FencedTransaction<DB: Backend> {
    fenced: Fenced<'static, DB>,
    fence: Fence<DB>,
    pool: Pool<DB>,
}

impl<DB: Backend> FencedTransaction<DB> {
    /// Commits. When the answer is lost, the database is asked on another connection what became of the transaction.
    ///
    /// # Errors
    ///
    /// [`FenceError::Unknown`] when the answer was lost and could not be found out; any other error says that nothing
    /// was written.
    pub async fn commit(mut self) -> Result<(), FenceError> {
        if let Some(check) = DB::DIALECT.commit_check() {
            DB::script(self.fenced.conn(), check.to_owned()).await?;
        }
        let Fenced {
            held: Held::Own(tx),
            admission,
        } = self.fenced
        else {
            return Ok(());
        };
        let Err(error) = tx.commit().await else {
            return Ok(());
        };
        if classify(&error) != Class::Lost {
            return Err(error.into());
        }
        match self.fence.landed(&self.pool, &admission).await {
            Ok(Landed::Yes) => Ok(()),
            Ok(Landed::No) => Err(FenceError::Backend(error.into())),
            Ok(Landed::Unknown) | Err(_) => Err(FenceError::Unknown {
                stamp: admission.stamp,
                source: error.into(),
            }),
        }
    }

    /// Rolls back. Nothing is written, and the token is not noted.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`]: the database rolls back by itself then.
    pub async fn rollback(self) -> Result<(), FenceError> {
        match self.fenced.held {
            Held::Own(tx) => Ok(tx.rollback().await?),
            Held::Lent(_) => Ok(()),
        }
    }
}

impl<DB: Backend> Deref for FencedTransaction<DB> {
    type Target = Fenced<'static, DB>;

    fn deref(&self) -> &Self::Target {
        &self.fenced
    }
}

impl<DB: Backend> DerefMut for FencedTransaction<DB> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.fenced
    }
}

/// What the fence table says about a transaction whose commit was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landed {
    /// It was committed.
    Yes,
    /// It was not, and never will be.
    No,
    /// Somebody wrote after it, or instead of it.
    Unknown,
}

impl<DB: Backend> Fence<DB> {
    /// A fence in the table [`DEFAULT_FENCE_TABLE`].
    #[must_use]
    pub fn new() -> Self {
        Self::in_table(TableName::new(DEFAULT_FENCE_TABLE).expect("the default name is a valid identifier"))
    }

    /// A fence in a table of your choice.
    #[must_use]
    pub fn in_table(table: TableName) -> Self {
        Self {
            table,
            retry: Retry::default(),
            database: PhantomData,
        }
    }

    /// With other bounds for trying again after a conflict.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The statements that create the fence table and the trigger that keeps it from going back: print them into a
    /// migration, or let [`install`](Self::install) run them.
    #[must_use]
    pub fn ddl(&self) -> Ddl {
        Ddl::fence_table(&self.table, DB::DIALECT)
    }

    /// Creates what [`ddl`](Self::ddl) lists, as far as it is missing. Safe to run at every start.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`], and [`FenceError::Conflict`] after too many collisions with others who install.
    pub async fn install(&self, pool: &Pool<DB>) -> Result<(), FenceError> {
        super::ddl::install(pool, &self.ddl(), &self.retry).await
    }

    /// Lets a transaction of yours through if no larger token was accepted for the resource, and locks the resource's row
    /// until the transaction ends: **every statement after it is covered**, in any table, at any isolation level. Equal
    /// tokens pass: a holder writes many times. Call it *first*: what the transaction read before it is not covered.
    ///
    /// # Errors
    ///
    /// [`FenceError::LockLost`]; [`FenceError::Stale`] with the highest token; [`FenceError::Conflict`] (a serialization failure, a deadlock, a
    /// busy file: roll back and run the whole transaction again, [`Retry::run`] helps);
    /// [`FenceError::TokenTooLarge`]; [`FenceError::Backend`]. After any of them, roll back.
    pub async fn admit<'t>(
        &self,
        tx: &'t mut Transaction<'_, DB>,
        grant: &dyn Grant,
    ) -> Result<Fenced<'t, DB>, FenceError> {
        let conn: &'t mut DB::Connection = tx;
        let admission = self.pass(conn, grant).await?;
        Ok(Fenced {
            held: Held::Lent(conn),
            admission,
        })
    }

    /// Begins a transaction (for writing, at the database's default isolation level) that has passed the fence.
    ///
    /// # Errors
    ///
    /// Those of [`admit`](Self::admit).
    pub async fn begin(
        &self,
        pool: &Pool<DB>,
        grant: &dyn Grant,
    ) -> Result<FencedTransaction<DB>, FenceError> {
        // A lost lock asks for no connection; it can also be lost while one is waited for.
        grant.stamp()?;
        let mut tx = pool.begin_with(DB::DIALECT.begin()).await?;
        let admission = self.pass(&mut tx, grant).await?;
        let fenced = Fenced {
            held: Held::Own(tx),
            admission,
        };
        Ok(FencedTransaction {
            fenced,
            fence: self.clone(),
            pool: pool.clone(),
        })
    }

    /// Applies changes to rows of one guarded table in one fenced transaction: all or none. Conflicts are tried again from
    /// the start, bounded and with jitter.
    ///
    /// # Errors
    ///
    /// Those of [`admit`](Self::admit), of [`GuardedTable`]'s writes and of [`FencedTransaction::commit`]. Only after
    /// [`FenceError::Unknown`] something may be written.
    pub async fn write(
        &self,
        pool: &Pool<DB>,
        grant: &dyn Grant,
        table: &GuardedTable<DB>,
        changes: &[Change<DB>],
    ) -> Result<(), FenceError> {
        let attempt = || async {
            let mut tx = self.begin(pool, grant).await?;
            for change in changes {
                table.apply(&mut tx, change).await?;
            }
            tx.commit().await
        };
        self.retry.run(attempt).await
    }

    /// Fences before the first write: from now on the resource refuses every smaller token.
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write).
    pub async fn claim(&self, pool: &Pool<DB>, grant: &dyn Grant) -> Result<(), FenceError> {
        self.retry
            .run(|| async { self.begin(pool, grant).await?.commit().await })
            .await
    }

    /// The highest token accepted for a resource; none if it never saw one. For display: by the time it is read,
    /// a larger one may have been accepted.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`].
    pub async fn highest(&self, pool: &Pool<DB>, resource: &Resource) -> Result<Option<Token>, FenceError> {
        let mut conn = pool.acquire().await?;
        let mut select = Statement::<DB>::new(self.select());
        select.value(&DB::bind_name(resource.as_str()))?;
        let row = select.numbers(&mut conn).await?;
        Ok(row.map(|(highest, _)| token(highest.unwrap_or(0))))
    }

    /// Finds out what became of a transaction whose commit was not answered. Waits until the database has ended it.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`] and [`FenceError::Conflict`]: the question is still open.
    pub async fn landed(&self, pool: &Pool<DB>, admission: &Admission) -> Result<Landed, FenceError> {
        let mut tx = pool.begin_with(DB::DIALECT.begin()).await?;
        // Locks the resource's row even if only the transaction in doubt has created it; rolled back below.
        let probe = Admission {
            stamp: admission.stamp.resource().stamp(Token::ZERO),
            write_id: 0,
        };
        self.upsert(&probe)?.execute(&mut tx).await?;
        let stored = self.stored(&mut tx, admission.stamp.resource()).await?;
        tx.rollback().await?;
        Ok(match stored {
            Some((_, write_id)) if write_id == admission.write_id => Landed::Yes,
            Some((highest, _)) if highest >= admission.stamp.token() => Landed::Unknown,
            // A committed admission never leaves a smaller token behind.
            Some(_) | None => Landed::No,
        })
    }

    async fn pass(&self, conn: &mut DB::Connection, grant: &dyn Grant) -> Result<Admission, FenceError> {
        let admission = Admission {
            stamp: grant.stamp()?,
            write_id: fastrand::i64(1..),
        };
        let stamp = &admission.stamp;
        let matched = self.upsert(&admission)?.execute(conn).await?;
        let admitted = match DB::DIALECT {
            Dialect::Sqlite | Dialect::Postgres => matched == 1,
            // The count does not tell a refused write from one of the same values.
            Dialect::Mysql => false,
        };
        if admitted {
            return Ok(admission);
        }
        match self.stored(conn, stamp.resource()).await? {
            Some((_, write_id)) if write_id == admission.write_id => Ok(admission),
            Some((highest, _)) if highest > stamp.token() => Err(FenceError::Stale {
                stamp: stamp.clone(),
                highest,
            }),
            Some(_) | None => Err(FenceError::Backend(
                format!(
                    "table {} was changed by something other than the fence",
                    self.table
                )
                .into(),
            )),
        }
    }

    /// The token and the write id of a resource, as this transaction sees (and has locked) them.
    async fn stored(
        &self,
        conn: &mut DB::Connection,
        resource: &Resource,
    ) -> Result<Option<(Token, i64)>, FenceError> {
        let mut select = Statement::<DB>::new(self.select());
        select.value(&DB::bind_name(resource.as_str()))?;
        if DB::DIALECT == Dialect::Mysql {
            // A plain read would see the transaction's snapshot.
            select.text(" FOR UPDATE");
        }
        let row = select.numbers(conn).await?;
        Ok(row.map(|(highest, write_id)| (token(highest.unwrap_or(0)), write_id.unwrap_or(0))))
    }

    fn select(&self) -> String {
        format!(
            "SELECT token, write_id FROM {} WHERE resource = ",
            self.table.quoted(DB::DIALECT)
        )
    }

    fn upsert(&self, admission: &Admission) -> Result<Statement<DB>, FenceError> {
        let table = self.table.quoted(DB::DIALECT);
        let alias = if DB::DIALECT == Dialect::Mysql {
            ""
        } else {
            " AS fence"
        };
        let mut upsert = Statement::new(format!(
            "INSERT INTO {table}{alias} (resource, token, write_id) VALUES ("
        ));
        upsert
            .value(&DB::bind_name(admission.stamp.resource().as_str()))?
            .text(", ")
            .value(&DB::bind_int(bigint(admission.stamp.token())?))?
            .text(", ")
            .value(&DB::bind_int(admission.write_id))?
            .text(match DB::DIALECT {
                Dialect::Sqlite | Dialect::Postgres => {
                    ") ON CONFLICT (resource) DO UPDATE SET token = excluded.token, write_id = excluded.write_id \
                     WHERE fence.token <= excluded.token"
                }
                // Assignments run from left to right, so the token comes last.
                Dialect::Mysql => {
                    ") ON DUPLICATE KEY UPDATE write_id = IF(token <= VALUES(token), VALUES(write_id), write_id), \
                     token = GREATEST(token, VALUES(token))"
                }
            });
        Ok(upsert)
    }
}

// Derived, it would ask the marker type for `Clone`.
impl<DB> Clone for Fence<DB> {
    fn clone(&self) -> Self {
        Self {
            table: self.table.clone(),
            retry: self.retry,
            database: PhantomData,
        }
    }
}

impl<DB: Backend> Default for Fence<DB> {
    fn default() -> Self {
        Self::new()
    }
}
