//! The statements that create the fence table and the enforcing triggers.

use std::fmt;

use sqlx::Pool;

use super::backend::{Dialect, TRIGGER_MESSAGE};
use super::{Backend, Ident, TableName};
use crate::{FenceError, Retry};

/// Statements to run once: `Display` prints them as a script, [`statements`](Self::statements) lists them. They change
/// nothing when they are run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ddl {
    statements: Vec<String>,
    dialect: Dialect,
}

impl Ddl {
    /// The statements, in order, without a terminator.
    #[must_use]
    pub fn statements(&self) -> &[String] {
        &self.statements
    }

    pub(crate) fn fence_table(table: &TableName, dialect: Dialect) -> Self {
        let (name, end) = match dialect {
            // Keeps a text from slipping into an integer column; such a row could never be compared.
            Dialect::Sqlite => ("TEXT", ") STRICT"),
            Dialect::Postgres => ("TEXT", ")"),
            // Text columns of MySQL ignore trailing blanks, and most of them ignore case.
            Dialect::Mysql => ("VARBINARY(255)", ") ENGINE = InnoDB"),
        };
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {} (resource {name} NOT NULL PRIMARY KEY, token BIGINT NOT NULL, \
             write_id BIGINT NOT NULL{end}",
            table.quoted(dialect),
        );
        let create = if dialect == Dialect::Sqlite {
            create.replace("BIGINT", "INTEGER")
        } else {
            create
        };
        let token = Ident::new("token").expect("a constant that is a valid identifier");
        let mut ddl = Self {
            statements: vec![create],
            dialect,
        };
        ddl.statements
            .extend(refuse_smaller_on_update(table, &token, dialect));
        ddl
    }

    pub(crate) fn trigger(table: &TableName, key: &[Ident], token: &Ident, dialect: Dialect) -> Self {
        let mut statements = refuse_smaller_on_update(table, token, dialect);
        match dialect {
            Dialect::Sqlite => statements.push(refuse_smaller_on_replace(table, key, token)),
            Dialect::Mysql => statements.extend(refuse_smaller_after_delete(table, key, token)),
            // It has no REPLACE: a row changes by UPDATE or not at all.
            Dialect::Postgres => {}
        }
        Self { statements, dialect }
    }
}

impl fmt::Display for Ddl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for statement in &self.statements {
            if self.dialect == Dialect::Mysql && statement.contains("BEGIN") {
                writeln!(f, "DELIMITER //\n{statement} //\nDELIMITER ;")?;
            } else {
                writeln!(f, "{statement};")?;
            }
        }
        Ok(())
    }
}

/// Runs the statements, all or none where the database can do that.
pub(crate) async fn install<DB: Backend>(
    pool: &Pool<DB>,
    ddl: &Ddl,
    retry: &Retry,
) -> Result<(), FenceError> {
    retry.run(|| install_once(pool, ddl)).await
}

async fn install_once<DB: Backend>(pool: &Pool<DB>, ddl: &Ddl) -> Result<(), FenceError> {
    let mut tx = pool.begin_with(DB::DIALECT.begin()).await?;
    if DB::DIALECT == Dialect::Postgres {
        // Two programs that start at once would collide in the catalogue.
        DB::script(&mut tx, format!("SELECT pg_advisory_xact_lock({INSTALL_LOCK})")).await?;
    }
    for statement in ddl.statements() {
        DB::script(&mut tx, statement.clone()).await?;
    }
    Ok(tx.commit().await?)
}

/// The advisory lock that orders installations: "monolock" in ASCII.
const INSTALL_LOCK: i64 = 0x6d6f_6e6f_6c6f_636b;

fn refuse_smaller_on_update(table: &TableName, token: &Ident, dialect: Dialect) -> Vec<String> {
    let name = table.table.derived("_fence_update_v1");
    let trigger = table.sibling(&name, dialect);
    let on = table.quoted(dialect);
    let column = token.quoted(dialect);
    match dialect {
        Dialect::Sqlite => vec![format!(
            "CREATE TRIGGER IF NOT EXISTS {trigger} BEFORE UPDATE ON {}\n\
             WHEN OLD.{column} IS NOT NULL AND (typeof(NEW.{column}) <> 'integer' OR NEW.{column} < OLD.{column})\n\
             BEGIN SELECT RAISE(ABORT, '{TRIGGER_MESSAGE}'); END",
            table.table.quoted(dialect),
        )],
        Dialect::Postgres => vec![
            format!(
                "CREATE OR REPLACE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql \
                 SET search_path = pg_catalog AS $fence$\n\
                 BEGIN\n\
                 \x20 IF OLD.{column} IS NOT NULL AND (NEW.{column} IS NULL OR NEW.{column} < OLD.{column}) THEN\n\
                 \x20   RAISE EXCEPTION '{TRIGGER_MESSAGE}: % comes after %', NEW.{column}, OLD.{column}\n\
                 \x20     USING ERRCODE = 'integrity_constraint_violation';\n\
                 \x20 END IF;\n\
                 \x20 RETURN NEW;\n\
                 END $fence$"
            ),
            format!(
                "CREATE OR REPLACE TRIGGER {} BEFORE UPDATE ON {on} FOR EACH ROW EXECUTE FUNCTION {trigger}()",
                name.quoted(dialect),
            ),
        ],
        Dialect::Mysql => vec![format!(
            "CREATE TRIGGER IF NOT EXISTS {trigger} BEFORE UPDATE ON {on} FOR EACH ROW BEGIN\n\
             \x20 IF OLD.{column} IS NOT NULL AND (NEW.{column} IS NULL OR NEW.{column} < OLD.{column}) THEN\n\
             \x20   SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{TRIGGER_MESSAGE}';\n\
             \x20 END IF;\n\
             END"
        )],
    }
}

/// `REPLACE` deletes the old row and inserts the new one, without an update. There is one writer at a time, so the row
/// that is read here is the one that goes.
fn refuse_smaller_on_replace(table: &TableName, key: &[Ident], token: &Ident) -> String {
    let dialect = Dialect::Sqlite;
    let trigger = table.sibling(&table.table.derived("_fence_insert_v1"), dialect);
    let on = table.table.quoted(dialect);
    let column = token.quoted(dialect);
    let same_key: Vec<_> = key
        .iter()
        .map(|key| key.quoted(dialect))
        .map(|key| format!("stored.{key} = NEW.{key}"))
        .collect();
    format!(
        "CREATE TRIGGER IF NOT EXISTS {trigger} BEFORE INSERT ON {on}\n\
         WHEN EXISTS (SELECT 1 FROM {on} AS stored WHERE {} AND stored.{column} > COALESCE(NEW.{column}, -1))\n\
         BEGIN SELECT RAISE(ABORT, '{TRIGGER_MESSAGE}'); END",
        same_key.join(" AND "),
    )
}

/// `REPLACE` deletes the old row and inserts the new one, without an update. A trigger cannot lock rows of its own
/// table, so what it could read may be old; but it is given the row that goes. It is remembered for the insert that follows.
fn refuse_smaller_after_delete(table: &TableName, key: &[Ident], token: &Ident) -> [String; 2] {
    let dialect = Dialect::Mysql;
    let on = table.quoted(dialect);
    let column = token.quoted(dialect);
    let variable = |name: &str| format!("@{}", table.table.derived(name).quoted(dialect));
    let gone = variable("_fence_gone");
    let keys: Vec<_> = key
        .iter()
        .enumerate()
        .map(|(n, key)| (variable(&format!("_fence_key_{n}")), key.quoted(dialect)))
        .collect();
    let remember: String = keys
        .iter()
        .map(|(variable, key)| format!(", {variable} = OLD.{key}"))
        .collect();
    let same_key: String = keys
        .iter()
        .map(|(variable, key)| format!(" AND {variable} <=> NEW.{key}"))
        .collect();
    let deleting = table.sibling(&table.table.derived("_fence_delete_v1"), dialect);
    let inserted = table.sibling(&table.table.derived("_fence_insert_v1"), dialect);
    [
        format!(
            "CREATE TRIGGER IF NOT EXISTS {deleting} BEFORE DELETE ON {on} FOR EACH ROW BEGIN\n\
             \x20 SET {gone} = OLD.{column}{remember};\n\
             END"
        ),
        format!(
            "CREATE TRIGGER IF NOT EXISTS {inserted} AFTER INSERT ON {on} FOR EACH ROW BEGIN\n\
             \x20 IF {gone} > COALESCE(NEW.{column}, -1){same_key} THEN\n\
             \x20   SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{TRIGGER_MESSAGE}';\n\
             \x20 END IF;\n\
             END"
        ),
    ]
}
