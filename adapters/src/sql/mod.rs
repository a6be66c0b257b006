//! Fenced writes to SQL databases: what is common to [`sqlite`](crate::sqlite), [`postgres`](crate::postgres) and
//! [`mysql`](crate::mysql).
//!
//! Two tools, which share one small table:
//!
//! - [`Fence`] guards **a whole transaction**: its first statement, one upsert, checks the token against the highest
//!   one of the resource and locks that row until the commit. Whatever statements follow are covered, in any table.
//! - [`GuardedTable`] writes **single rows** that carry their token in a column, tells stale from missing, and comes with
//!   a **trigger** by which the database itself refuses an older token from any program, ours or not.

mod backend;
mod ddl;
mod fence;
mod ident;
mod statement;
mod table;

pub use backend::Backend;
#[doc(hidden)]
pub use backend::{Dialect, Numbers};
pub use ddl::Ddl;
pub use fence::{Admission, DEFAULT_FENCE_TABLE, Fence, Fenced, FencedTransaction, Landed};
pub use ident::{IdentError, MAX_IDENT_LEN, TableName};
pub use table::{Change, GuardedTable, Row};

pub(crate) use backend::{Class, classify, sealed};
pub(crate) use ident::Ident;
pub(crate) use statement::{Bind, Statement};

use crate::FenceError;
use monolock_protocol::Token;

/// A token as a signed column holds it.
pub(crate) fn bigint(token: Token) -> Result<i64, FenceError> {
    i64::try_from(token.get()).map_err(|_| FenceError::TokenTooLarge { token })
}

/// A token as it was read from a signed column. Negative numbers were not written by us and are below every token.
pub(crate) fn token(bigint: i64) -> Token {
    Token::new(u64::try_from(bigint).unwrap_or(0))
}
