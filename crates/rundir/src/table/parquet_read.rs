//! Reads tables from Parquet files of any writer, column by column and without Arrow.

use super::{CellValue, ColumnType, Field, ParquetFile, call_library};
use crate::error::{Error, Result};
use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescriptor, Type};
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads some columns of a Parquet file, in batches of rows.
pub(super) struct ParquetReader {
    path: PathBuf,
    file: SerializedFileReader<File>,
    batch_rows: usize,
    fields: Vec<Field>,
    /// For each field, its position in the file; `None` if the file lacks an optional column.
    columns: Vec<Option<ColumnSource>>,
    next_group: usize,
    group: Option<RowGroup>,
    batch: VecDeque<Vec<CellValue>>,
    /// Rows returned so far.
    rows_read: u64,
}

/// The position of a column in the file and its definition levels.
#[derive(Clone, Copy)]
struct ColumnSource {
    leaf: usize,
    levels: Levels,
}

/// Definition levels of a column.
#[derive(Clone, Copy)]
struct Levels {
    /// Level of a value that is present.
    present: i16,
    /// For lists: the lowest level at which an element exists, even if it is null.
    element: Option<i16>,
}

struct RowGroup {
    readers: Vec<Option<ColumnReader>>,
    remaining: usize,
}

impl ParquetReader {
    pub(super) fn open(path: &Path, fields: Vec<Field>) -> Result<Self> {
        let ParquetFile { reader: file, batch_rows } = ParquetFile::open(path)?;
        let found = columns_of(&file);
        let mut columns = Vec::new();
        for field in &fields {
            let name = &field.name;
            let source = found.iter().find(|(found, ..)| found == name);
            let what = match source {
                Some((_, leaf, Ok((column, levels)))) if readable_as(*column, field.column) => {
                    columns.push(Some(ColumnSource { leaf: *leaf, levels: *levels }));
                    continue;
                }
                None if field.optional => {
                    columns.push(None);
                    continue;
                }
                Some((_, _, Ok((column, _)))) => {
                    format!("column '{name}' holds {}, expected {}", column.as_str(), field.column.as_str())
                }
                Some((_, _, Err(what))) => format!("column '{name}' {what}"),
                None => {
                    let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
                    let needed = fields.iter().filter(|field| !field.optional);
                    let needed: Vec<_> = needed.map(|field| field.name.as_str()).collect();
                    let (names, needed) = (names.join(", "), needed.join(", "));
                    format!("column '{name}' is missing; there are: {names}; expected: {needed}")
                }
            };
            return Err(Error::Table { path: path.to_path_buf(), row: None, what });
        }
        Ok(Self {
            path: path.to_path_buf(),
            file,
            batch_rows,
            fields,
            columns,
            next_group: 0,
            group: None,
            batch: VecDeque::new(),
            rows_read: 0,
        })
    }

    pub(super) fn next_row(&mut self) -> Result<Option<Vec<CellValue>>> {
        while self.batch.is_empty() {
            if !self.read_batch()? {
                return Ok(None);
            }
        }
        self.rows_read += 1;
        Ok(self.batch.pop_front())
    }

    /// Decodes the next batch of rows. Returns `false` at the end of the file.
    fn read_batch(&mut self) -> Result<bool> {
        let group = match &mut self.group {
            Some(group) if group.remaining > 0 => group,
            _ => {
                if self.next_group >= self.file.num_row_groups() {
                    return Ok(false);
                }
                let (file, columns, number) = (&self.file, &self.columns, self.next_group);
                let (readers, rows) = call_library(&self.path, || {
                    let reader = file.get_row_group(number)?;
                    let of_column =
                        |c: &Option<ColumnSource>| c.map(|c| reader.get_column_reader(c.leaf)).transpose();
                    let readers = columns.iter().map(of_column).collect::<Result<Vec<_>, _>>()?;
                    Ok((readers, reader.metadata().num_rows()))
                })?;
                self.next_group += 1;
                let remaining = usize::try_from(rows).map_err(|_| {
                    let what = format!("row group {number} has {rows} rows");
                    Error::damaged(&self.path, what, "write the file again")
                })?;
                self.group.insert(RowGroup { readers, remaining })
            }
        };
        let wanted = group.remaining.min(self.batch_rows);
        group.remaining -= wanted;
        let mut rows: Vec<Vec<CellValue>> = vec![Vec::with_capacity(self.columns.len()); wanted];
        for ((source, reader), field) in self.columns.iter().zip(&mut group.readers).zip(&self.fields) {
            let mut values = Vec::with_capacity(wanted);
            match (source, reader) {
                (Some(source), Some(reader)) => {
                    let batch = ColumnBatch {
                        path: &self.path,
                        field,
                        levels: source.levels,
                        first_row: self.rows_read,
                    };
                    batch.decode(reader, wanted, &mut values)?;
                }
                _ => values.resize(wanted, CellValue::Null),
            }
            if values.len() != wanted {
                let what = format!("column '{}' has {} rows, expected {wanted}", field.name, values.len());
                return Err(Error::damaged(&self.path, what, "write the file again"));
            }
            for (row, value) in rows.iter_mut().zip(values) {
                row.push(value);
            }
        }
        self.batch = rows.into();
        Ok(true)
    }
}

/// A top-level column: its name, the index of its first leaf, and its type or the reason why it cannot be read.
type FoundColumn = (String, usize, Result<(ColumnType, Levels), String>);

fn columns_of(file: &SerializedFileReader<File>) -> Vec<FoundColumn> {
    let schema = file.metadata().file_metadata().schema_descr();
    let mut found: Vec<FoundColumn> = Vec::new();
    for (leaf, column) in schema.columns().iter().enumerate() {
        let root = schema.get_column_root(leaf);
        if let Some(earlier) = found.iter_mut().find(|(name, ..)| name == root.name()) {
            earlier.2 = Err("holds structures, which are not supported".into());
            continue;
        }
        found.push((root.name().to_owned(), leaf, column_type(column, root)));
    }
    found
}

/// Determines the type of a column. Integers and floats of either width are accepted.
fn column_type(column: &ColumnDescriptor, root: &Type) -> Result<(ColumnType, Levels), String> {
    let present = column.max_def_level();
    let list = match column.max_rep_level() {
        0 if root.is_primitive() => false,
        1 => true,
        _ => return Err("holds structures or nested lists, which are not supported".into()),
    };
    let column_type = match (column.physical_type(), list) {
        (Physical::BOOLEAN, false) => ColumnType::Bool,
        (Physical::INT32 | Physical::INT64, false) => ColumnType::I64,
        (Physical::INT32 | Physical::INT64, true) => ColumnType::I32List,
        (Physical::FLOAT | Physical::DOUBLE, false) => ColumnType::F64,
        (Physical::FLOAT | Physical::DOUBLE, true) => ColumnType::F32List,
        (Physical::BYTE_ARRAY, false) => ColumnType::Str,
        (Physical::BYTE_ARRAY, true) => ColumnType::StrList,
        (other, _) => return Err(format!("holds {other}, which is not supported")),
    };
    Ok((column_type, Levels { present, element: list.then(|| column.repeated_ancestor_def_level()) }))
}

fn readable_as(found: ColumnType, expected: ColumnType) -> bool {
    found == expected || (found == ColumnType::I64 && expected == ColumnType::F64)
}

/// Decodes one column of a batch of rows.
struct ColumnBatch<'a> {
    path: &'a Path,
    field: &'a Field,
    levels: Levels,
    /// Index of the batch's first row in the file.
    first_row: u64,
}

impl ColumnBatch<'_> {
    fn decode(&self, reader: &mut ColumnReader, rows: usize, out: &mut Vec<CellValue>) -> Result<()> {
        use CellValue as V;
        use ColumnReader as R;
        use ColumnType as C;
        let narrow = |n: i64| i32::try_from(n).map_err(|_| format!("{n} does not fit into 32 bits"));
        let text = |bytes: ByteArray| match bytes.as_utf8() {
            Ok(text) => Ok(Arc::<str>::from(text)),
            Err(_) => Err("is not UTF-8".to_owned()),
        };
        match (reader, self.field.column) {
            (R::BoolColumnReader(r), C::Bool) => self.scalars(r, rows, out, |b| Ok(V::Bool(b))),
            (R::Int32ColumnReader(r), C::I64) => self.scalars(r, rows, out, |n| Ok(V::I64(n.into()))),
            (R::Int64ColumnReader(r), C::I64) => self.scalars(r, rows, out, |n| Ok(V::I64(n))),
            (R::Int32ColumnReader(r), C::F64) => self.scalars(r, rows, out, |n| Ok(V::F64(n.into()))),
            (R::Int64ColumnReader(r), C::F64) => self.scalars(r, rows, out, |n| Ok(V::F64(n as f64))),
            (R::FloatColumnReader(r), C::F64) => self.scalars(r, rows, out, |x| Ok(V::F64(x.into()))),
            (R::DoubleColumnReader(r), C::F64) => self.scalars(r, rows, out, |x| Ok(V::F64(x))),
            (R::ByteArrayColumnReader(r), C::Str) => self.scalars(r, rows, out, |b| text(b).map(V::Str)),
            (R::Int32ColumnReader(r), C::I32List) => self.lists(r, rows, out, Ok, V::I32List),
            (R::Int64ColumnReader(r), C::I32List) => self.lists(r, rows, out, narrow, V::I32List),
            (R::FloatColumnReader(r), C::F32List) => self.lists(r, rows, out, Ok, V::F32List),
            (R::DoubleColumnReader(r), C::F32List) => self.lists(r, rows, out, |x| Ok(x as f32), V::F32List),
            (R::ByteArrayColumnReader(r), C::StrList) => {
                self.lists(r, rows, out, |b| text(b).map(|t| (*t).to_owned()), V::StrList)
            }
            _ => Err(self.error(0, "changes its type within the file")),
        }
    }

    fn scalars<T: DataType>(
        &self,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        out: &mut Vec<CellValue>,
        convert: impl Fn(T::T) -> Result<CellValue, String>,
    ) -> Result<()> {
        let (mut definition, mut values) = (Vec::new(), Vec::new());
        let (records, ..) =
            call_library(self.path, || reader.read_records(rows, Some(&mut definition), None, &mut values))?;
        let mut values = values.into_iter();
        for row in 0..records {
            let present = self.levels.present == 0 || definition.get(row) == Some(&self.levels.present);
            let value = match present.then(|| values.next()).flatten() {
                Some(value) => convert(value).map_err(|what| self.error(row, &what))?,
                None if self.field.optional => CellValue::Null,
                None => return Err(self.error(row, "has no value")),
            };
            out.push(value);
        }
        Ok(())
    }

    #[allow(clippy::expect_used, reason = "lists are decoded for columns of lists only")]
    fn lists<T: DataType, E>(
        &self,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        out: &mut Vec<CellValue>,
        convert: impl Fn(T::T) -> Result<E, String>,
        wrap: impl Fn(Vec<E>) -> CellValue,
    ) -> Result<()> {
        let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
        call_library(self.path, || {
            reader.read_records(rows, Some(&mut definition), Some(&mut repetition), &mut values)
        })?;
        let element = self.levels.element.expect("invariant: a list has an element level");
        let finish = |list: Option<Vec<E>>, row| match list {
            Some(list) => Ok(wrap(list)),
            None if self.field.optional => Ok(CellValue::Null),
            None => Err(self.error(row, "has no list")),
        };
        let mut values = values.into_iter();
        let mut list: Option<Vec<E>> = None;
        let mut row = 0;
        for (index, (&definition, &repetition)) in definition.iter().zip(&repetition).enumerate() {
            if index > 0 && repetition == 0 {
                out.push(finish(list.take(), row)?);
                row += 1;
            }
            if definition == self.levels.present {
                let value = values.next().ok_or_else(|| self.error(row, "has too few values"))?;
                let value = convert(value).map_err(|what| self.error(row, &what))?;
                list.get_or_insert_default().push(value);
            } else if definition >= element {
                return Err(self.error(row, "has a null within a list"));
            } else if definition == element - 1 {
                list = Some(Vec::new());
            }
        }
        if !definition.is_empty() {
            out.push(finish(list, row)?);
        }
        Ok(())
    }

    /// Creates an error about a row of the batch, counted from 0.
    fn error(&self, row: usize, what: &str) -> Error {
        Error::Table {
            path: self.path.to_path_buf(),
            row: Some(self.first_row + row as u64 + 1),
            what: format!("column '{}' {what}", self.field.name),
        }
    }
}
