//! Table files. The file's extension determines its format.

use super::json_lines::JsonLinesReader;
use super::parquet_read::ParquetReader;
use super::parquet_write::ParquetWriter;
use super::{CellValue, Schema, TableRow, check_row};
use crate::error::{Error, Result};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

enum TableFormat {
    Parquet,
    JsonLines,
}

fn format_of(path: &Path) -> Result<TableFormat> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("parquet") => Ok(TableFormat::Parquet),
        Some("jsonl") => Ok(TableFormat::JsonLines),
        _ => Err(Error::Table {
            path: path.to_path_buf(),
            row: None,
            what: "the name must end in .parquet or .jsonl".into(),
        }),
    }
}

/// Writes a Parquet table row by row.
///
/// The file appears under its name when [`TableWriter::finish`] returns. If the writer is dropped before that, no file
/// appears.
pub struct TableWriter {
    path: PathBuf,
    schema: Schema,
    writer: Box<ParquetWriter>,
    rows: u64,
}

impl TableWriter {
    /// Creates a table at `path`, which must end in `.parquet`, in an existing directory.
    ///
    /// # Errors
    /// Returns an error if the name has another extension or the file cannot be created.
    pub fn create(path: &Path, schema: &Schema) -> Result<Self> {
        if !matches!(format_of(path)?, TableFormat::Parquet) {
            let what = "tables are written as .parquet only".into();
            return Err(Error::Table { path: path.to_path_buf(), row: None, what });
        }
        let writer = Box::new(ParquetWriter::create(path, schema)?);
        Ok(Self { path: path.to_path_buf(), schema: schema.clone(), writer, rows: 0 })
    }

    /// Appends a row: one value for each column.
    ///
    /// # Errors
    /// Returns an error if a value does not fit its column, in which case the table stays usable, or if writing fails.
    pub fn push(&mut self, row: Vec<CellValue>) -> Result<()> {
        check_row(&self.schema, &row).map_err(|what| self.row_error(what))?;
        self.rows += 1;
        self.writer.push(row)
    }

    /// Completes the table and returns its number of rows.
    ///
    /// # Errors
    /// Returns an error if writing fails. No file appears in that case.
    pub fn finish(self) -> Result<u64> {
        self.writer.finish()?;
        Ok(self.rows)
    }

    fn row_error(&self, what: String) -> Error {
        Error::Table { path: self.path.clone(), row: Some(self.rows + 1), what }
    }
}

enum ReaderOf {
    Parquet(Box<ParquetReader>),
    JsonLines(JsonLinesReader),
}

/// Reads a table row by row. Columns are matched by name: additional columns are ignored, and optional ones may be missing.
pub struct TableReader {
    reader: ReaderOf,
    done: bool,
}

impl TableReader {
    /// Opens a table whose name ends in `.parquet` or `.jsonl`.
    ///
    /// # Errors
    /// Returns an error if the name has another extension, the file is not a table, or a column is missing or has another type.
    pub fn open(path: &Path, schema: &Schema) -> Result<Self> {
        let reader = match format_of(path)? {
            TableFormat::Parquet => ReaderOf::Parquet(Box::new(ParquetReader::open(path, schema)?)),
            TableFormat::JsonLines => ReaderOf::JsonLines(JsonLinesReader::open(path, schema)?),
        };
        Ok(Self { reader, done: false })
    }
}

impl Iterator for TableReader {
    type Item = Result<Vec<CellValue>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = match &mut self.reader {
            ReaderOf::Parquet(reader) => reader.next_row(),
            ReaderOf::JsonLines(reader) => reader.next_row(),
        };
        self.done = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

/// A [`TableWriter`] of structures.
pub struct RowWriter<R> {
    table: TableWriter,
    rows: PhantomData<fn(R)>,
}

impl<R: TableRow> RowWriter<R> {
    /// Creates a table.
    ///
    /// # Errors
    /// Returns the same errors as [`TableWriter::create`].
    pub fn create(path: &Path) -> Result<Self> {
        let schema = Schema::new(R::fields())?;
        Ok(Self { table: TableWriter::create(path, &schema)?, rows: PhantomData })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// Returns the same errors as [`TableWriter::push`].
    pub fn push(&mut self, row: R) -> Result<()> {
        let values = row.into_values().map_err(|what| self.table.row_error(what))?;
        self.table.push(values)
    }

    /// Completes the table and returns its number of rows.
    ///
    /// # Errors
    /// Returns the same errors as [`TableWriter::finish`].
    pub fn finish(self) -> Result<u64> {
        self.table.finish()
    }
}

/// A [`TableReader`] of structures.
pub struct RowReader<R> {
    path: PathBuf,
    table: TableReader,
    row: u64,
    rows: PhantomData<fn() -> R>,
}

impl<R: TableRow> RowReader<R> {
    /// Opens a table.
    ///
    /// # Errors
    /// Returns the same errors as [`TableReader::open`].
    pub fn open(path: &Path) -> Result<Self> {
        let schema = Schema::new(R::fields())?;
        let table = TableReader::open(path, &schema)?;
        Ok(Self { path: path.to_path_buf(), table, row: 0, rows: PhantomData })
    }
}

impl<R: TableRow> Iterator for RowReader<R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Self::Item> {
        let values = self.table.next()?;
        self.row += 1;
        Some(values.and_then(|values| {
            R::from_values(values).map_err(|what| Error::Table {
                path: self.path.clone(),
                row: Some(self.row),
                what,
            })
        }))
    }
}

/// Writes a table of structures and returns its number of rows.
///
/// # Errors
/// Returns an error if a row does not fit or writing fails. No file appears in that case.
pub fn write_rows<R: TableRow>(path: &Path, rows: impl IntoIterator<Item = R>) -> Result<u64> {
    let mut writer = RowWriter::create(path)?;
    for row in rows {
        writer.push(row)?;
    }
    writer.finish()
}

/// Reads a table of structures into memory.
///
/// # Errors
/// Returns an error if the table cannot be read, or if the structure cannot represent a value.
pub fn read_rows<R: TableRow>(path: &Path) -> Result<Vec<R>> {
    RowReader::open(path)?.collect()
}
