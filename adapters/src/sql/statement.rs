//! One statement under construction: text with the dialect's placeholders, and its values in order.

use std::sync::Arc;

use sqlx::Database;

use super::backend::{Backend, Dialect, Numbers};
use crate::{BoxError, FenceError};

/// Adds one value to a statement's arguments; kept as a function, so that a row can be written more than once.
pub(crate) type Bind<DB> =
    Arc<dyn Fn(&mut <DB as Database>::Arguments) -> Result<(), BoxError> + Send + Sync + 'static>;

/// Text and values; generic over the database only for its arguments.
pub(crate) struct Statement<DB: Backend> {
    text: String,
    arguments: DB::Arguments,
    values: usize,
}

impl<DB: Backend> Statement<DB> {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            arguments: DB::Arguments::default(),
            values: 0,
        }
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// A placeholder with its value.
    pub(crate) fn value(&mut self, bind: &Bind<DB>) -> Result<&mut Self, FenceError> {
        bind(&mut self.arguments).map_err(|error| FenceError::Misuse {
            problem: format!("a value could not be encoded: {error}"),
        })?;
        self.values += 1;
        match DB::DIALECT {
            Dialect::Postgres => self.text.push_str(&format!("${}", self.values)),
            Dialect::Sqlite | Dialect::Mysql => self.text.push('?'),
        }
        Ok(self)
    }

    /// Runs it and tells how many rows it matched.
    pub(crate) async fn execute(self, conn: &mut DB::Connection) -> Result<u64, sqlx::Error> {
        DB::execute(conn, self.text, self.arguments).await
    }

    /// Runs it and takes the two numbers of the first row.
    pub(crate) async fn numbers(self, conn: &mut DB::Connection) -> Result<Option<Numbers>, sqlx::Error> {
        DB::numbers(conn, self.text, self.arguments).await
    }
}
