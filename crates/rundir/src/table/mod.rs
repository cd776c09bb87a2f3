//! Typed tables, with Rust structures as rows.
//!
//! Tables are Parquet files. [`table_row!`](crate::table_row) declares rows.

mod cell;
mod file;
mod parquet_pages;
mod parquet_read;
mod parquet_write;

pub use cell::Cell;
pub use file::{RowReader, RowWriter, read_rows, write_rows};
pub use parquet_pages::{ParquetFile, call_library};

use crate::error::Error;
use parquet::errors::ParquetError;
use std::path::Path;
use std::sync::Arc;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// UTF-8 text.
    Str,
    /// 64-bit integers.
    I64,
    /// 64-bit floating-point numbers.
    F64,
    /// Booleans.
    Bool,
    /// Lists of 32-bit integers, such as token ids.
    I32List,
    /// Lists of 32-bit floating-point numbers, such as log-probabilities.
    F32List,
    /// Lists of UTF-8 strings.
    StrList,
}

impl ColumnType {
    /// Returns the type's name for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Str => "string",
            Self::I64 => "i64",
            Self::F64 => "f64",
            Self::Bool => "bool",
            Self::I32List => "list<i32>",
            Self::F32List => "list<f32>",
            Self::StrList => "list<string>",
        }
    }
}

/// A column of a table. Their names are distinct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The column's name.
    pub name: String,
    /// The column's type.
    pub column: ColumnType,
    /// Whether values may be missing.
    pub optional: bool,
}

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum CellValue {
    /// A missing value, in an optional column.
    Null,
    /// Text.
    Str(Arc<str>),
    /// An integer.
    I64(i64),
    /// A floating-point number.
    F64(f64),
    /// A boolean.
    Bool(bool),
    /// A list of integers.
    I32List(Vec<i32>),
    /// A list of floating-point numbers.
    F32List(Vec<f32>),
    /// A list of strings.
    StrList(Vec<String>),
}

impl CellValue {
    /// Returns the name of the value's type for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Str(_) => ColumnType::Str.as_str(),
            Self::I64(_) => ColumnType::I64.as_str(),
            Self::F64(_) => ColumnType::F64.as_str(),
            Self::Bool(_) => ColumnType::Bool.as_str(),
            Self::I32List(_) => ColumnType::I32List.as_str(),
            Self::F32List(_) => ColumnType::F32List.as_str(),
            Self::StrList(_) => ColumnType::StrList.as_str(),
        }
    }

    /// Returns the approximate memory use of the value in bytes.
    pub(crate) fn size(&self) -> usize {
        16 + match self {
            Self::Null | Self::I64(_) | Self::F64(_) | Self::Bool(_) => 0,
            Self::Str(text) => text.len(),
            Self::I32List(list) => 8 * list.len(),
            Self::F32List(list) => 8 * list.len(),
            Self::StrList(list) => list.iter().map(|text| 24 + text.len()).sum(),
        }
    }
}

/// A structure that is a row of a table. [`table_row!`](crate::table_row) implements it.
pub trait TableRow: Sized {
    /// Returns the columns, in the order of [`TableRow::into_values`].
    fn fields() -> Vec<Field>;

    /// Converts the row to values.
    ///
    /// # Errors
    /// Returns an error with the column's name if a column type cannot represent its value.
    fn into_values(self) -> Result<Vec<CellValue>, String>;

    /// Creates the row from one value for each column.
    ///
    /// # Errors
    /// Returns an error with the column's name if the structure cannot represent a value.
    fn from_values(values: Vec<CellValue>) -> Result<Self, String>;
}

/// Returns a converter from an error of the Parquet library to [`Error::Parquet`].
fn parquet_failed(path: &Path) -> impl FnOnce(ParquetError) -> Error + use<> {
    let path = path.to_path_buf();
    move |error| Error::Parquet { path, error }
}

fn is_list(column: ColumnType) -> bool {
    matches!(column, ColumnType::I32List | ColumnType::F32List | ColumnType::StrList)
}

/// Declares a structure whose fields are the columns of a table. Each field's type must implement
/// [`Cell`](crate::table::Cell). A field after a semicolon is a row itself and contributes all its columns.
///
/// ```
/// sgs_rundir::table_row! {
///     /// A theorem of a corpus.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct Theorem {
///         /// Its label.
///         pub label: String,
///         /// Labels that its proof uses.
///         pub uses: Vec<String>,
///         /// Length of the proof, where it is known.
///         pub steps: Option<i64>,
///     }
/// }
/// ```
#[macro_export]
macro_rules! table_row {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* pub $field:ident : $type:ty),* $(,)?
        $(; $(#[$group_meta:meta])* pub $group:ident : $columns:ty)?
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
            $($(#[$group_meta])* pub $group: $columns,)?
        }

        $crate::table_row! { @impl $name { $($field: $type,)* } $($group: $columns)? }
    };
    // Implements the trait for a structure that is declared elsewhere.
    (@impl $name:ident { $($field:ident : $type:ty),* $(,)? } $($group:ident : $columns:ty)?) => {
        impl $crate::table::TableRow for $name {
            fn fields() -> Vec<$crate::table::Field> {
                let own = vec![$($crate::table::Field {
                    name: stringify!($field).to_owned(),
                    column: <$type as $crate::table::Cell>::COLUMN,
                    optional: <$type as $crate::table::Cell>::OPTIONAL,
                }),*];
                $(let own = own.into_iter().chain(<$columns as $crate::table::TableRow>::fields()).collect();)?
                own
            }

            fn into_values(self) -> Result<Vec<$crate::table::CellValue>, String> {
                let own = vec![$(
                    $crate::table::Cell::into_value(self.$field)
                        .map_err(|what| format!("column '{}': {what}", stringify!($field)))?
                ),*];
                $(let own = own.into_iter().chain($crate::table::TableRow::into_values(self.$group)?).collect();)?
                Ok(own)
            }

            #[allow(clippy::expect_used, reason = "readers return a value for each column of the schema")]
            fn from_values(values: Vec<$crate::table::CellValue>) -> Result<Self, String> {
                let mut values = values.into_iter();
                Ok(Self {
                    $($field: $crate::table::Cell::from_value(
                        values.next().expect("invariant: a row has a value for each column")
                    ).map_err(|what| format!("column '{}': {what}", stringify!($field)))?,)*
                    $($group: $crate::table::TableRow::from_values(values.collect())?,)?
                })
            }
        }
    };
}
