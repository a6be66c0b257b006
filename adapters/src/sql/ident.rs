//! Names of tables and columns: checked once, always quoted.

use std::fmt;

use super::backend::Dialect;

/// The longest name of a table or column, in bytes. PostgreSQL silently cuts longer ones, so that two could meet.
pub const MAX_IDENT_LEN: usize = 63;

/// Why a string is no name of a table or column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot name a table or column: it needs 1 to 63 bytes, none of them NUL")]
pub struct IdentError {
    /// The string.
    pub name: String,
}

impl From<IdentError> for crate::FenceError {
    fn from(error: IdentError) -> Self {
        Self::Misuse {
            problem: error.to_string(),
        }
    }
}

/// One checked identifier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ident(String);

impl Ident {
    pub(crate) fn new(name: &str) -> Result<Self, IdentError> {
        if name.is_empty() || name.len() > MAX_IDENT_LEN || name.contains('\0') {
            return Err(IdentError {
                name: name.to_owned(),
            });
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The identifier as SQL, quoted so that it can be nothing else.
    pub(crate) fn quoted(&self, dialect: Dialect) -> String {
        let quote = match dialect {
            Dialect::Sqlite | Dialect::Postgres => '"',
            Dialect::Mysql => '`',
        };
        let doubled = self.0.replace(quote, &format!("{quote}{quote}"));
        format!("{quote}{doubled}{quote}")
    }

    /// An identifier derived from this one; a long one is cut and told apart by a hash.
    pub(crate) fn derived(&self, suffix: &str) -> Self {
        let whole = format!("{}{suffix}", self.0);
        if whole.len() <= MAX_IDENT_LEN {
            return Self(whole);
        }
        let tail = format!("_{:016x}{suffix}", fnv1a(self.0.as_bytes()));
        let mut end = MAX_IDENT_LEN.saturating_sub(tail.len());
        while !self.0.is_char_boundary(end) {
            end -= 1;
        }
        Self(format!("{}{tail}", &self.0[..end]))
    }
}

/// A table, in a schema if one is given. Any characters are allowed: names are always quoted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    pub(crate) schema: Option<Ident>,
    pub(crate) table: Ident,
}

impl TableName {
    /// A table found by the connection's own search path.
    ///
    /// # Errors
    ///
    /// [`IdentError`] unless the name has 1 to 63 bytes without NUL.
    pub fn new(table: &str) -> Result<Self, IdentError> {
        Ok(Self {
            schema: None,
            table: Ident::new(table)?,
        })
    }

    /// A table of this schema (PostgreSQL), database (MySQL) or attached file (SQLite).
    ///
    /// # Errors
    ///
    /// [`IdentError`] unless both names have 1 to 63 bytes without NUL.
    pub fn in_schema(schema: &str, table: &str) -> Result<Self, IdentError> {
        Ok(Self {
            schema: Some(Ident::new(schema)?),
            table: Ident::new(table)?,
        })
    }

    /// The name as SQL.
    pub(crate) fn quoted(&self, dialect: Dialect) -> String {
        self.sibling(&self.table, dialect)
    }

    /// Another object of the same schema, as SQL.
    pub(crate) fn sibling(&self, name: &Ident, dialect: Dialect) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", schema.quoted(dialect), name.quoted(dialect)),
            None => name.quoted(dialect),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", schema.as_str())?;
        }
        f.write_str(self.table.as_str())
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_inside_a_name_stay_inside() {
        let name = Ident::new(r#"a"; DROP TABLE x; --`"#).expect("a name");
        assert_eq!(name.quoted(Dialect::Postgres), r#""a""; DROP TABLE x; --`""#);
        assert_eq!(name.quoted(Dialect::Mysql), r#"`a"; DROP TABLE x; --```"#);
    }

    #[test]
    fn impossible_names_are_refused() {
        for name in ["", "a\0b", &"x".repeat(64)] {
            assert!(Ident::new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn long_derived_names_stay_apart() {
        let (one, two) = (format!("{}1", "é".repeat(31)), format!("{}2", "é".repeat(31)));
        let derive = |name: &str| Ident::new(name).expect("63 bytes").derived("_fence_update");
        assert_ne!(derive(&one), derive(&two));
        assert!(derive(&one).as_str().len() <= MAX_IDENT_LEN);
        assert_eq!(derive("orders").as_str(), "orders_fence_update");
    }
}
