//! Column lists: a type names the columns that it writes or reads once, with their values.
//!
//! The text of a statement and the values bound to it come from the same list, as do the selected columns and the fields
//! read from them. They cannot get out of step, and a new column is one more line.

use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

/// A query whose values are being bound.
pub(crate) type BoundQuery<'q> = Query<'q, Sqlite, SqliteArguments>;

/// A column that a record writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// SQL for the value to store. The values bound for a record are a row of the table `new`.
    pub(crate) value: &'static str,
}

/// A record that writes columns of one table. Implemented by [`write_columns!`].
pub(crate) trait WriteColumns {
    const COLUMNS_TO_WRITE: &'static [Column];

    /// Binds one value for each of [`COLUMNS_TO_WRITE`](Self::COLUMNS_TO_WRITE), in that order.
    fn bind<'q>(&'q self, query: BoundQuery<'q>) -> BoundQuery<'q>;
}

/// Implements [`WriteColumns`]: `column: value` binds the value and stores it as it is, `column = "SQL": value` binds the
/// value and stores what the SQL makes of it.
macro_rules! write_columns {
    ($record:ty, $this:ident => $($name:ident $(= $sql:literal)?: $value:expr,)+) => {
        impl $crate::columns::WriteColumns for $record {
            const COLUMNS_TO_WRITE: &'static [$crate::columns::Column] = &[$($crate::columns::Column {
                name: stringify!($name),
                value: $crate::columns::write_columns!(@sql $name $($sql)?),
            }),+];

            fn bind<'q>(&'q self, query: $crate::columns::BoundQuery<'q>) -> $crate::columns::BoundQuery<'q> {
                let $this = self;
                query$(.bind($value))+
            }
        }
    };
    (@sql $name:ident) => { concat!("new.", stringify!($name)) };
    (@sql $name:ident $sql:literal) => { $sql };
}
pub(crate) use write_columns;

/// Implements `FromRow` and the constant `COLUMNS` with the columns to select: `field: "SQL" => value` selects the SQL and
/// fills the field with the value.
macro_rules! read_columns {
    ($record:ty, $row:ident => $field:ident: $sql:literal => $value:expr, $($fields:ident: $sqls:literal => $values:expr,)*) => {
        impl $record {
            /// The columns to select, separated by commas.
            pub(crate) const COLUMNS: &'static str = concat!($sql $(, ", ", $sqls)*);
        }

        impl<'r> sqlx::FromRow<'r, sqlx::sqlite::SqliteRow> for $record {
            fn from_row($row: &'r sqlx::sqlite::SqliteRow) -> sqlx::Result<Self> {
                Ok(Self { $field: $value, $($fields: $values,)* })
            }
        }
    };
}
pub(crate) use read_columns;

#[cfg(test)]
mod tests {
    use super::*;

    struct Renamed {
        id: i64,
        name: String,
    }

    write_columns!(Renamed, renamed =>
        id: renamed.id,
        name = "upper(new.name)": &renamed.name,
    );

    #[test]
    fn lists_columns_with_their_values_in_order() {
        let id = Column { name: "id", value: "new.id" };
        let name = Column { name: "name", value: "upper(new.name)" };
        assert_eq!(Renamed::COLUMNS_TO_WRITE, [id, name]);
    }
}
