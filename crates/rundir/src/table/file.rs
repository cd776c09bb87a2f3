//! Tables as files: the format follows from the name.

use super::json_lines::{JsonLinesReader, JsonLinesWriter};
use super::parquet_read::{self, ParquetReader};
use super::parquet_write::ParquetWriter;
use super::{Schema, TableRow, Value, check_row};
use crate::error::{Error, Result};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

enum Format {
    Parquet,
    JsonLines,
}

fn format_of(path: &Path) -> Result<Format> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("parquet") => Ok(Format::Parquet),
        Some("jsonl") => Ok(Format::JsonLines),
        _ => Err(Error::Table {
            path: path.to_path_buf(),
            row: None,
            what: "the name must end in .parquet or .jsonl".into(),
        }),
    }
}

enum WriterOf {
    Parquet(Box<ParquetWriter>),
    JsonLines(JsonLinesWriter),
}

/// Writes a table row by row; the file appears under its name when [`TableWriter::finish`] returns, and never
/// if the writer is dropped before.
pub struct TableWriter {
    path: PathBuf,
    schema: Schema,
    writer: WriterOf,
    rows: u64,
}

impl TableWriter {
    /// Begins a table at `path`, which ends in `.parquet` or `.jsonl`, in an existing directory.
    ///
    /// # Errors
    /// Another ending, or the file system refuses.
    pub fn create(path: &Path, schema: &Schema) -> Result<Self> {
        let writer = match format_of(path)? {
            Format::Parquet => WriterOf::Parquet(Box::new(ParquetWriter::create(path, schema)?)),
            Format::JsonLines => WriterOf::JsonLines(JsonLinesWriter::create(path, schema)?),
        };
        Ok(Self { path: path.to_path_buf(), schema: schema.clone(), writer, rows: 0 })
    }

    /// Appends a row: one value for each column.
    ///
    /// # Errors
    /// A value does not fit its column (the table stays usable), or the file system refuses.
    pub fn push(&mut self, row: Vec<Value>) -> Result<()> {
        check_row(&self.schema, &row).map_err(|what| self.blame(what))?;
        self.rows += 1;
        match &mut self.writer {
            WriterOf::Parquet(writer) => writer.push(row),
            WriterOf::JsonLines(writer) => writer.push(row),
        }
    }

    /// Ends the table; returns its number of rows.
    ///
    /// # Errors
    /// The file system refuses; then there is no file.
    pub fn finish(self) -> Result<u64> {
        match self.writer {
            WriterOf::Parquet(writer) => writer.finish()?,
            WriterOf::JsonLines(writer) => writer.finish()?,
        }
        Ok(self.rows)
    }

    fn blame(&self, what: String) -> Error {
        Error::Table { path: self.path.clone(), row: Some(self.rows + 1), what }
    }
}

enum ReaderOf {
    Parquet(Box<ParquetReader>),
    JsonLines(JsonLinesReader),
}

/// Reads a table row by row. Columns are found by name; a file may have more of them, and may lack optional ones.
pub struct TableReader {
    reader: ReaderOf,
    done: bool,
}

impl TableReader {
    /// Opens a table whose name ends in `.parquet` or `.jsonl`.
    ///
    /// # Errors
    /// Another ending, a file that is no table, or one that lacks a required column or holds another type in it.
    pub fn open(path: &Path, schema: &Schema) -> Result<Self> {
        let reader = match format_of(path)? {
            Format::Parquet => ReaderOf::Parquet(Box::new(ParquetReader::open(path, schema)?)),
            Format::JsonLines => ReaderOf::JsonLines(JsonLinesReader::open(path, schema)?),
        };
        Ok(Self { reader, done: false })
    }
}

impl Iterator for TableReader {
    type Item = Result<Vec<Value>>;

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

/// The columns of a Parquet file that [`TableReader`] can read; columns of other types are left out.
///
/// # Errors
/// The file cannot be read or is not Parquet.
pub fn parquet_schema(path: &Path) -> Result<Schema> {
    parquet_read::schema_of(path)
}

/// A [`TableWriter`] for structures.
pub struct RowWriter<R> {
    table: TableWriter,
    rows: PhantomData<fn(R)>,
}

impl<R: TableRow> RowWriter<R> {
    /// Begins a table, as [`TableWriter::create`].
    ///
    /// # Errors
    /// As [`TableWriter::create`].
    pub fn create(path: &Path) -> Result<Self> {
        let schema = Schema::new(R::fields())?;
        Ok(Self { table: TableWriter::create(path, &schema)?, rows: PhantomData })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// As [`TableWriter::push`].
    pub fn push(&mut self, row: R) -> Result<()> {
        let values = row.into_values().map_err(|what| self.table.blame(what))?;
        self.table.push(values)
    }

    /// Ends the table; returns its number of rows.
    ///
    /// # Errors
    /// As [`TableWriter::finish`].
    pub fn finish(self) -> Result<u64> {
        self.table.finish()
    }
}

/// A [`TableReader`] for structures.
pub struct RowReader<R> {
    path: PathBuf,
    table: TableReader,
    row: u64,
    rows: PhantomData<fn() -> R>,
}

impl<R: TableRow> RowReader<R> {
    /// Opens a table, as [`TableReader::open`].
    ///
    /// # Errors
    /// As [`TableReader::open`].
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

/// Writes a whole table of structures; returns its number of rows.
///
/// # Errors
/// As [`TableWriter`]; then there is no file.
pub fn write_rows<R: TableRow>(path: &Path, rows: impl IntoIterator<Item = R>) -> Result<u64> {
    let mut writer = RowWriter::create(path)?;
    for row in rows {
        writer.push(row)?;
    }
    writer.finish()
}

/// Reads a whole table of structures into memory.
///
/// # Errors
/// As [`TableReader`], or a value that the structure cannot hold.
pub fn read_rows<R: TableRow>(path: &Path) -> Result<Vec<R>> {
    RowReader::open(path)?.collect()
}
