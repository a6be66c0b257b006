//! Rows that carry the token they were last written with.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use monolock_protocol::Token;
use sqlx::{Arguments as _, Encode, Pool, Type};

use super::backend::Dialect;
use super::{
    Backend, Bind, Class, Ddl, Fenced, Ident, IdentError, Statement, TableName, bigint, classify, token,
};
use crate::{FenceError, Retry};

/// The token column unless another one is chosen.
const DEFAULT_TOKEN_COLUMN: &str = "fencing_token";

/// A table of yours whose rows carry their token in a `BIGINT` column (`fencing_token` unless chosen otherwise; NULL stands
/// for "never written under a lock").
///
/// Each write takes a [`Fenced`] transaction, so it cannot be reached without passing the fence of the whole resource;
/// it also compares the row's own token and stores the new one there, which is what the [trigger](Self::trigger_ddl)
/// enforces against every other program. A deleted row's token is not forgotten: the fence keeps it.
#[derive(Debug)]
pub struct GuardedTable<DB> {
    table: TableName,
    key: Vec<Ident>,
    token: Ident,
    database: PhantomData<fn() -> DB>,
}

/// Columns and values of one row, its key among them.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use monolock_adapters::sqlite::Row;
///
/// let row = Row::new().set("id", 7_i64).set("state", "paid").set("note", None::<String>);
/// # }
/// ```
pub struct Row<DB: Backend> {
    columns: Vec<(String, Bind<DB>)>,
}

/// One change of a guarded table.
#[derive(Debug)]
pub enum Change<DB: Backend> {
    /// Create a row that does not exist.
    Insert(Row<DB>),
    /// Change a row that exists.
    Update(Row<DB>),
    /// Create a row, or change the one that exists.
    Upsert(Row<DB>),
    /// Delete a row that exists; only its key is used.
    Delete(Row<DB>),
}

impl<DB: Backend> GuardedTable<DB> {
    /// A table whose rows are told apart by these columns: the primary key, or another unique one.
    ///
    /// # Errors
    ///
    /// [`IdentError`] for an impossible column name.
    pub fn new(table: TableName, key: &[&str]) -> Result<Self, IdentError> {
        if key.is_empty() {
            return Err(IdentError { name: String::new() });
        }
        Ok(Self {
            table,
            key: key
                .iter()
                .map(|column| Ident::new(column))
                .collect::<Result<_, _>>()?,
            token: Ident::new(DEFAULT_TOKEN_COLUMN)?,
            database: PhantomData,
        })
    }

    /// With another token column.
    ///
    /// # Errors
    ///
    /// [`IdentError`] for an impossible column name.
    pub fn with_token_column(mut self, column: &str) -> Result<Self, IdentError> {
        self.token = Ident::new(column)?;
        Ok(self)
    }

    /// The statements that create the enforcing trigger: from then on the database itself refuses to replace a row's
    /// token by a smaller one, or to take it away, whoever asks. A plain statement that leaves the token alone still
    /// passes, and so does a plain `DELETE`, which names no token, and an `INSERT` after it: the trigger knows the rows that are
    /// there. The [`Fence`](super::Fence) remembers the token of a deleted row.
    #[must_use]
    pub fn trigger_ddl(&self) -> Ddl {
        Ddl::trigger(&self.table, &self.key, &self.token, DB::DIALECT)
    }

    /// Creates the trigger. Safe to run at every start.
    ///
    /// # Errors
    ///
    /// [`FenceError::Backend`] (does the table exist, with its token column?) and [`FenceError::Conflict`].
    pub async fn install_trigger(&self, pool: &Pool<DB>) -> Result<(), FenceError> {
        super::ddl::install(pool, &self.trigger_ddl(), &Retry::default()).await
    }

    /// Applies one change: [`insert`](Self::insert), [`update`](Self::update), [`upsert`](Self::upsert) or
    /// [`delete`](Self::delete).
    ///
    /// # Errors
    ///
    /// Theirs.
    pub async fn apply(&self, tx: &mut Fenced<'_, DB>, change: &Change<DB>) -> Result<(), FenceError> {
        match change {
            Change::Insert(row) => self.insert(tx, row).await,
            Change::Update(row) => self.update(tx, row).await,
            Change::Upsert(row) => self.upsert(tx, row).await,
            Change::Delete(row) => self.delete(tx, row).await,
        }
    }

    /// Changes a row that exists.
    ///
    /// # Errors
    ///
    /// [`FenceError::Missing`], [`FenceError::Stale`], [`FenceError::Misuse`] for a row without its key, and what the
    /// database reports. Roll back after any of them.
    pub async fn update(&self, tx: &mut Fenced<'_, DB>, row: &Row<DB>) -> Result<(), FenceError> {
        let (key, values) = self.split(row)?;
        let mut update = Statement::new(format!("UPDATE {} SET ", self.quoted()));
        for (column, bind) in values {
            update
                .text(&format!("{} = ", self.column(&column)))
                .value(bind)?
                .text(", ");
        }
        update
            .text(&format!("{} = ", self.column(&self.token)))
            .value(&self.token_of(tx)?)?;
        self.where_key(&mut update, &key)?;
        self.and_not_newer(&mut update, tx)?;
        match self.run(tx, update).await? {
            Some(matched) if matched > 0 => Ok(()),
            Some(_) | None => Err(self
                .explain(
                    tx,
                    &key,
                    FenceError::Missing {
                        resource: tx.stamp().resource().clone(),
                        what: self.what(),
                    },
                )
                .await?),
        }
    }

    /// Creates a row that does not exist.
    ///
    /// # Errors
    ///
    /// [`FenceError::Exists`], [`FenceError::Stale`], [`FenceError::Misuse`] for a row without its key, and what the
    /// database reports. Roll back after any of them.
    pub async fn insert(&self, tx: &mut Fenced<'_, DB>, row: &Row<DB>) -> Result<(), FenceError> {
        let (key, _) = self.split(row)?;
        let mut insert = self.insert_of(tx, row)?;
        match DB::DIALECT {
            Dialect::Sqlite | Dialect::Postgres => insert.text(" ON CONFLICT DO NOTHING"),
            // A refused duplicate undoes the statement alone, and IGNORE would ignore more than that.
            Dialect::Mysql => &mut insert,
        };
        match self.run(tx, insert).await? {
            Some(1..) => Ok(()),
            Some(0) | None => Err(self
                .explain(
                    tx,
                    &key,
                    FenceError::Exists {
                        resource: tx.stamp().resource().clone(),
                        what: self.what(),
                    },
                )
                .await?),
        }
    }

    /// Creates a row, or changes the one that exists.
    ///
    /// # Errors
    ///
    /// [`FenceError::Stale`], [`FenceError::Exists`] when a unique column other than the key is taken (PostgreSQL
    /// reports that itself), [`FenceError::Misuse`] for a row without its key, and what the database reports. Roll back after
    /// any of them.
    pub async fn upsert(&self, tx: &mut Fenced<'_, DB>, row: &Row<DB>) -> Result<(), FenceError> {
        let (key, values) = self.split(row)?;
        let mut upsert = self.insert_of(tx, row)?;
        let columns: Vec<Ident> = values.into_iter().map(|(column, _)| column).collect();
        upsert.text(&self.on_conflict(&columns));
        let written = match (DB::DIALECT, self.run(tx, upsert).await?) {
            (Dialect::Sqlite | Dialect::Postgres, Some(matched)) => matched > 0,
            // The count does not tell a refused write from one of the same values: the row's token does.
            (Dialect::Mysql, Some(_)) => self
                .row_token(tx, &key)
                .await?
                .is_some_and(|found| found == Some(tx.stamp().token())),
            (_, None) => false,
        };
        if written {
            return Ok(());
        }
        Err(self
            .explain(
                tx,
                &key,
                FenceError::Exists {
                    resource: tx.stamp().resource().clone(),
                    what: self.what(),
                },
            )
            .await?)
    }

    /// Deletes a row that exists. Its token is not forgotten: the fence of the resource keeps at least as large a one.
    /// Of the row only the key columns are used.
    ///
    /// # Errors
    ///
    /// Those of [`update`](Self::update).
    pub async fn delete(&self, tx: &mut Fenced<'_, DB>, row: &Row<DB>) -> Result<(), FenceError> {
        let (key, _) = self.split(row)?;
        let mut delete = Statement::new(format!("DELETE FROM {}", self.quoted()));
        self.where_key(&mut delete, &key)?;
        self.and_not_newer(&mut delete, tx)?;
        match self.run(tx, delete).await? {
            Some(matched) if matched > 0 => Ok(()),
            Some(_) | None => Err(self
                .explain(
                    tx,
                    &key,
                    FenceError::Missing {
                        resource: tx.stamp().resource().clone(),
                        what: self.what(),
                    },
                )
                .await?),
        }
    }

    /// Runs a write; none when the trigger or a unique key refused it and the transaction can still be asked why.
    async fn run(&self, tx: &mut Fenced<'_, DB>, write: Statement<DB>) -> Result<Option<u64>, FenceError> {
        match (write.execute(tx.conn()).await, DB::DIALECT) {
            (Ok(matched), _) => Ok(Some(matched)),
            (Err(error), Dialect::Sqlite | Dialect::Mysql)
                if matches!(classify(&error), Class::Trigger | Class::Duplicate) =>
            {
                Ok(None)
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Why a write matched nothing: the row has a larger token, or it is as `otherwise` says.
    async fn explain(
        &self,
        tx: &mut Fenced<'_, DB>,
        key: &[(Ident, &Bind<DB>)],
        otherwise: FenceError,
    ) -> Result<FenceError, FenceError> {
        Ok(match self.row_token(tx, key).await? {
            Some(Some(highest)) if highest > tx.stamp().token() => FenceError::Stale {
                stamp: tx.stamp().clone(),
                highest,
            },
            // Created by somebody who passed no fence, after our write had looked.
            Some(_) if matches!(otherwise, FenceError::Missing { .. }) => FenceError::Conflict {
                attempts: 1,
                source: "the row appeared in between".into(),
            },
            Some(_) | None => otherwise,
        })
    }

    /// The token of a row; the outer none when there is no such row, the inner one when it has no token.
    async fn row_token(
        &self,
        tx: &mut Fenced<'_, DB>,
        key: &[(Ident, &Bind<DB>)],
    ) -> Result<Option<Option<Token>>, FenceError> {
        let token_column = self.column(&self.token);
        let mut select = Statement::new(format!(
            "SELECT {token_column}, {token_column} FROM {}",
            self.quoted()
        ));
        self.where_key(&mut select, key)?;
        if DB::DIALECT == Dialect::Mysql {
            select.text(" FOR UPDATE");
        }
        let row = select.numbers(tx.conn()).await?;
        Ok(row.map(|(found, _)| found.map(token)))
    }

    fn insert_of(&self, tx: &Fenced<'_, DB>, row: &Row<DB>) -> Result<Statement<DB>, FenceError> {
        let mut insert = Statement::new(format!("INSERT INTO {} (", self.quoted()));
        for (column, _) in &row.columns {
            insert.text(&self.column(&Ident::new(column)?)).text(", ");
        }
        insert.text(&self.column(&self.token)).text(") VALUES (");
        for (_, bind) in &row.columns {
            insert.value(bind)?.text(", ");
        }
        insert.value(&self.token_of(tx)?)?.text(")");
        Ok(insert)
    }

    fn on_conflict(&self, columns: &[Ident]) -> String {
        let token = self.column(&self.token);
        match DB::DIALECT {
            Dialect::Sqlite | Dialect::Postgres => {
                let key: Vec<_> = self.key.iter().map(|column| self.column(column)).collect();
                let set: Vec<_> = columns
                    .iter()
                    .chain([&self.token])
                    .map(|column| format!("{0} = excluded.{0}", self.column(column)))
                    .collect();
                let stored = format!("{}.{token}", self.table.table.quoted(DB::DIALECT));
                format!(
                    " ON CONFLICT ({}) DO UPDATE SET {} WHERE {stored} IS NULL OR {stored} <= excluded.{token}",
                    key.join(", "),
                    set.join(", "),
                )
            }
            Dialect::Mysql => {
                let newer = format!("{token} IS NULL OR {token} <= VALUES({token})");
                // Assignments run from left to right, so the token comes last.
                let set: Vec<_> = columns
                    .iter()
                    .chain([&self.token])
                    .map(|column| self.column(column))
                    .map(|column| format!("{column} = IF({newer}, VALUES({column}), {column})"))
                    .collect();
                format!(" ON DUPLICATE KEY UPDATE {}", set.join(", "))
            }
        }
    }

    fn where_key(&self, statement: &mut Statement<DB>, key: &[(Ident, &Bind<DB>)]) -> Result<(), FenceError> {
        for (n, (column, bind)) in key.iter().enumerate() {
            statement.text(if n == 0 { " WHERE " } else { " AND " });
            statement
                .text(&format!("{} = ", self.qualified(column)))
                .value(bind)?;
        }
        Ok(())
    }

    fn and_not_newer(&self, statement: &mut Statement<DB>, tx: &Fenced<'_, DB>) -> Result<(), FenceError> {
        let stored = self.qualified(&self.token);
        statement
            .text(&format!(" AND ({stored} IS NULL OR {stored} <= "))
            .value(&self.token_of(tx)?)?
            .text(")");
        Ok(())
    }

    /// The row's key in the order of the table's, and its other columns.
    #[allow(clippy::type_complexity, reason = "two lists of the same pairs")]
    fn split<'r>(
        &self,
        row: &'r Row<DB>,
    ) -> Result<(Vec<(Ident, &'r Bind<DB>)>, Vec<(Ident, &'r Bind<DB>)>), FenceError> {
        let mut values = Vec::with_capacity(row.columns.len());
        for (column, bind) in &row.columns {
            let column = Ident::new(column)?;
            if column == self.token {
                let problem = format!(
                    "column {} is the token's: it is set by the fence",
                    column.as_str()
                );
                return Err(FenceError::Misuse { problem });
            }
            values.push((column, bind));
        }
        let mut key = Vec::with_capacity(self.key.len());
        for column in &self.key {
            let Some(at) = values.iter().position(|(found, _)| found == column) else {
                let problem = format!(
                    "the row for {} lacks its key column {}",
                    self.table,
                    column.as_str()
                );
                return Err(FenceError::Misuse { problem });
            };
            key.push(values.remove(at));
        }
        Ok((key, values))
    }

    fn token_of(&self, tx: &Fenced<'_, DB>) -> Result<Bind<DB>, FenceError> {
        Ok(DB::bind_int(bigint(tx.stamp().token())?))
    }

    fn quoted(&self) -> String {
        self.table.quoted(DB::DIALECT)
    }

    fn column(&self, column: &Ident) -> String {
        column.quoted(DB::DIALECT)
    }

    /// With its table: SQLite reads an unknown quoted name that stands alone as a string.
    fn qualified(&self, column: &Ident) -> String {
        format!("{}.{}", self.table.table.quoted(DB::DIALECT), self.column(column))
    }

    fn what(&self) -> String {
        format!("a row of {} with this key", self.table)
    }
}

impl<DB: Backend> Row<DB> {
    /// A row without columns.
    #[must_use]
    pub fn new() -> Self {
        Self { columns: Vec::new() }
    }

    /// With a column and its value: any type that sqlx can send to this database.
    #[must_use]
    pub fn set<T>(mut self, column: &str, value: T) -> Self
    where
        T: for<'q> Encode<'q, DB> + Type<DB> + Clone + Send + Sync + 'static,
    {
        self.columns.push((
            column.to_owned(),
            Arc::new(move |arguments| arguments.add(value.clone())),
        ));
        self
    }
}

// Derived, these would ask the marker type for `Clone`.
impl<DB> Clone for GuardedTable<DB> {
    fn clone(&self) -> Self {
        Self {
            table: self.table.clone(),
            key: self.key.clone(),
            token: self.token.clone(),
            database: PhantomData,
        }
    }
}

impl<DB: Backend> Clone for Change<DB> {
    fn clone(&self) -> Self {
        match self {
            Self::Insert(row) => Self::Insert(row.clone()),
            Self::Update(row) => Self::Update(row.clone()),
            Self::Upsert(row) => Self::Upsert(row.clone()),
            Self::Delete(row) => Self::Delete(row.clone()),
        }
    }
}

impl<DB: Backend> Default for Row<DB> {
    fn default() -> Self {
        Self::new()
    }
}

impl<DB: Backend> Clone for Row<DB> {
    fn clone(&self) -> Self {
        Self {
            columns: self.columns.clone(),
        }
    }
}

impl<DB: Backend> fmt::Debug for Row<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.columns.iter().map(|(column, _)| column))
            .finish()
    }
}
