//! Table files: rows are structures.

use super::TableRow;
use super::parquet_read::ParquetReader;
use super::parquet_write::ParquetWriter;
use crate::error::{Error, Result};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

fn check_name(path: &Path) -> Result<()> {
    match path.extension() {
        Some(extension) if extension == "parquet" => Ok(()),
        _ => Err(error(path, None, "the name must end in .parquet".into())),
    }
}

fn error(path: &Path, row: Option<u64>, what: String) -> Error {
    Error::Table { path: path.to_path_buf(), row, what }
}

/// Writes a Parquet table row by row.
///
/// The file appears under its name when [`RowWriter::finish`] returns. If the writer is dropped before that, no file
/// appears.
pub struct RowWriter<R> {
    path: PathBuf,
    writer: Box<ParquetWriter>,
    rows: u64,
    row: PhantomData<fn(R)>,
}

impl<R: TableRow> RowWriter<R> {
    /// Creates a table at `path`, which must end in `.parquet`, in an existing directory.
    pub fn create(path: &Path) -> Result<Self> {
        check_name(path)?;
        let writer = Box::new(ParquetWriter::create(path, R::fields())?);
        Ok(Self { path: path.to_path_buf(), writer, rows: 0, row: PhantomData })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// Returns an error if a column type cannot represent a value, in which case the table stays usable, or if writing fails.
    pub fn push(&mut self, row: R) -> Result<()> {
        let values = row.into_values().map_err(|what| error(&self.path, Some(self.rows + 1), what))?;
        self.rows += 1;
        self.writer.push(values)
    }

    /// Completes the table and returns its number of rows.
    ///
    /// # Errors
    /// Returns an error if writing fails. No file appears in that case.
    pub fn finish(self) -> Result<u64> {
        self.writer.finish()?;
        Ok(self.rows)
    }
}

/// Reads a table row by row. Columns are matched by name: additional columns are ignored, and optional ones may be missing.
pub struct RowReader<R> {
    path: PathBuf,
    reader: Box<ParquetReader>,
    rows: u64,
    done: bool,
    row: PhantomData<fn() -> R>,
}

impl<R: TableRow> RowReader<R> {
    /// Opens a table whose name ends in `.parquet`.
    ///
    /// # Errors
    /// Returns an error if the name has another extension, the file is not a table, or a column is missing or has another type.
    pub fn open(path: &Path) -> Result<Self> {
        check_name(path)?;
        let reader = Box::new(ParquetReader::open(path, R::fields())?);
        Ok(Self { path: path.to_path_buf(), reader, rows: 0, done: false, row: PhantomData })
    }
}

impl<R: TableRow> Iterator for RowReader<R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.reader.next_row();
        self.done = !matches!(next, Ok(Some(_)));
        self.rows += 1;
        let read = |values| R::from_values(values).map_err(|what| error(&self.path, Some(self.rows), what));
        next.transpose().map(|values| values.and_then(read))
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
pub fn read_rows<R: TableRow>(path: &Path) -> Result<Vec<R>> {
    RowReader::open(path)?.collect()
}
