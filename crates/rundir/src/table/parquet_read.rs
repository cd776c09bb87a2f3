//! Reads tables out of Parquet files, whoever wrote them, column by column without Arrow.

use super::{ColumnType, Field, ParquetFile, Schema, Value, guarded, parquet_failed as failed};
use crate::error::{Error, Result};
use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescriptor, Type};
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads the columns of a schema out of a Parquet file, in batches of rows.
pub(super) struct ParquetReader {
    path: PathBuf,
    file: SerializedFileReader<File>,
    rows_at_once: usize,
    /// For each column of the schema: where it is in the file.
    columns: Vec<Option<Source>>,
    schema: Schema,
    next_group: usize,
    group: Option<Group>,
    batch: VecDeque<Vec<Value>>,
    rows_read: u64,
}

/// Where a column is and how its levels are read.
#[derive(Clone, Copy)]
struct Source {
    leaf: usize,
    levels: Levels,
}

/// Definition levels of a column: of a present value; and for lists of "there is an element, perhaps null".
#[derive(Clone, Copy)]
struct Levels {
    present: i16,
    element: Option<i16>,
}

struct Group {
    readers: Vec<Option<ColumnReader>>,
    remaining: usize,
}

impl ParquetReader {
    pub(super) fn open(path: &Path, schema: &Schema) -> Result<Self> {
        guarded(path, || Self::open_unguarded(path, schema))
    }

    fn open_unguarded(path: &Path, schema: &Schema) -> Result<Self> {
        let ParquetFile { reader: file, rows_at_once } = ParquetFile::open(path)?;
        let found = columns_of(&file);
        let mut columns = Vec::new();
        for field in schema.fields() {
            let source = found.iter().find(|(name, ..)| *name == field.name);
            match source {
                Some((_, leaf, Ok((column, levels)))) if readable_as(*column, field.column) => {
                    columns.push(Some(Source { leaf: *leaf, levels: *levels }));
                }
                Some((_, _, Ok((column, _)))) => {
                    let what = format!(
                        "column '{}' holds {}, expected {}",
                        field.name,
                        column.as_str(),
                        field.column.as_str()
                    );
                    return Err(Error::Table { path: path.to_path_buf(), row: None, what });
                }
                Some((_, _, Err(what))) => {
                    let what = format!("column '{}' {what}", field.name);
                    return Err(Error::Table { path: path.to_path_buf(), row: None, what });
                }
                None if field.optional => columns.push(None),
                None => {
                    let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
                    let what = format!("column '{}' is missing; there are: {}", field.name, names.join(", "));
                    return Err(Error::Table { path: path.to_path_buf(), row: None, what });
                }
            }
        }
        Ok(Self {
            path: path.to_path_buf(),
            file,
            rows_at_once,
            columns,
            schema: schema.clone(),
            next_group: 0,
            group: None,
            batch: VecDeque::new(),
            rows_read: 0,
        })
    }

    pub(super) fn next_row(&mut self) -> Result<Option<Vec<Value>>> {
        while self.batch.is_empty() {
            let path = self.path.clone();
            if !guarded(&path, || self.read_batch())? {
                return Ok(None);
            }
        }
        self.rows_read += 1;
        Ok(self.batch.pop_front())
    }

    /// Decodes the next rows; `false` at the end of the file.
    fn read_batch(&mut self) -> Result<bool> {
        let group = match &mut self.group {
            Some(group) if group.remaining > 0 => group,
            _ => {
                if self.next_group >= self.file.num_row_groups() {
                    return Ok(false);
                }
                let reader = self.file.get_row_group(self.next_group).map_err(failed(&self.path))?;
                self.next_group += 1;
                let rows = reader.metadata().num_rows();
                let readers = self
                    .columns
                    .iter()
                    .map(|c| c.map(|c| reader.get_column_reader(c.leaf)).transpose())
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(failed(&self.path))?;
                let remaining = usize::try_from(rows).unwrap_or(0);
                self.group.insert(Group { readers, remaining })
            }
        };
        let wanted = group.remaining.min(self.rows_at_once);
        group.remaining -= wanted;
        let mut rows: Vec<Vec<Value>> = vec![Vec::with_capacity(self.columns.len()); wanted];
        for ((source, reader), field) in self.columns.iter().zip(&mut group.readers).zip(self.schema.fields())
        {
            let mut values = Vec::with_capacity(wanted);
            match (source, reader) {
                (Some(source), Some(reader)) => {
                    decode(reader, source.levels, field, wanted, &mut values)
                        .map_err(|what| what.into_error(&self.path, self.rows_read))?;
                }
                _ => values.resize(wanted, Value::Null),
            }
            if values.len() != wanted {
                let what = format!("column '{}' ends {} rows early", field.name, wanted - values.len());
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

/// The columns of a file that this module can read; others are left out.
pub(super) fn schema_of(path: &Path) -> Result<Schema> {
    guarded(path, || schema_of_unguarded(path))
}

fn schema_of_unguarded(path: &Path) -> Result<Schema> {
    let file = ParquetFile::open(path)?;
    let fields = columns_of(&file.reader)
        .into_iter()
        .filter_map(|(name, _, found)| {
            let (column, levels) = found.ok()?;
            let required = levels.element.map_or(levels.present == 0, |element| element == 1);
            Some(Field { name, column, optional: !required })
        })
        .collect();
    Schema::new(fields)
}

type FoundColumn = (String, usize, Result<(ColumnType, Levels), String>);

/// Every top-level column: its name, its first leaf, and what it holds, or why it cannot be read.
fn columns_of(file: &SerializedFileReader<File>) -> Vec<FoundColumn> {
    let schema = file.metadata().file_metadata().schema_descr();
    let mut found: Vec<FoundColumn> = Vec::new();
    for (leaf, column) in schema.columns().iter().enumerate() {
        let root = schema.get_column_root(leaf);
        if let Some(earlier) = found.iter_mut().find(|(name, ..)| name == root.name()) {
            earlier.2 = Err("holds structures, which are not read here".into());
            continue;
        }
        found.push((root.name().to_owned(), leaf, column_type(column, root)));
    }
    found
}

/// The type of a column, whoever wrote it; integers and floats of either width are read.
fn column_type(column: &ColumnDescriptor, root: &Type) -> Result<(ColumnType, Levels), String> {
    let present = column.max_def_level();
    let list = match column.max_rep_level() {
        0 if root.is_primitive() => false,
        1 => true,
        _ => return Err("holds structures or nested lists, which are not read here".into()),
    };
    let column_type = match (column.physical_type(), list) {
        (Physical::BOOLEAN, false) => ColumnType::Bool,
        (Physical::INT32 | Physical::INT64, false) => ColumnType::I64,
        (Physical::INT32 | Physical::INT64, true) => ColumnType::I32List,
        (Physical::FLOAT | Physical::DOUBLE, false) => ColumnType::F64,
        (Physical::FLOAT | Physical::DOUBLE, true) => ColumnType::F32List,
        (Physical::BYTE_ARRAY, false) => ColumnType::Str,
        (Physical::BYTE_ARRAY, true) => ColumnType::StrList,
        (other, _) => return Err(format!("holds {other}, which is not read here")),
    };
    Ok((column_type, Levels { present, element: list.then(|| column.repeated_ancestor_def_level()) }))
}

fn readable_as(found: ColumnType, expected: ColumnType) -> bool {
    found == expected || (found == ColumnType::I64 && expected == ColumnType::F64)
}

/// Why a batch could not be decoded; the row counts from 0 within the batch.
enum Undecodable {
    Library(ParquetError),
    Row(usize, String),
}

impl Undecodable {
    fn into_error(self, path: &Path, rows_before: u64) -> Error {
        match self {
            Self::Library(error) => Error::Parquet { path: path.to_path_buf(), error },
            Self::Row(row, what) => {
                Error::Table { path: path.to_path_buf(), row: Some(rows_before + row as u64 + 1), what }
            }
        }
    }
}

fn decode(
    reader: &mut ColumnReader,
    levels: Levels,
    field: &Field,
    rows: usize,
    out: &mut Vec<Value>,
) -> Result<(), Undecodable> {
    use ColumnReader as R;
    use ColumnType as C;
    let narrow = |n: i64| i32::try_from(n).map_err(|_| format!("{n} does not fit into 32 bits"));
    let text = |bytes: ByteArray| match bytes.as_utf8() {
        Ok(text) => Ok(Arc::<str>::from(text)),
        Err(_) => Err("is not UTF-8".to_owned()),
    };
    match (reader, field.column) {
        (R::BoolColumnReader(r), C::Bool) => scalars(r, levels, field, rows, out, |b| Ok(Value::Bool(b))),
        (R::Int32ColumnReader(r), C::I64) => {
            scalars(r, levels, field, rows, out, |n| Ok(Value::I64(n.into())))
        }
        (R::Int64ColumnReader(r), C::I64) => scalars(r, levels, field, rows, out, |n| Ok(Value::I64(n))),
        (R::Int32ColumnReader(r), C::F64) => {
            scalars(r, levels, field, rows, out, |n| Ok(Value::F64(n.into())))
        }
        (R::Int64ColumnReader(r), C::F64) => {
            scalars(r, levels, field, rows, out, |n| Ok(Value::F64(n as f64)))
        }
        (R::FloatColumnReader(r), C::F64) => {
            scalars(r, levels, field, rows, out, |x| Ok(Value::F64(x.into())))
        }
        (R::DoubleColumnReader(r), C::F64) => scalars(r, levels, field, rows, out, |x| Ok(Value::F64(x))),
        (R::ByteArrayColumnReader(r), C::Str) => {
            scalars(r, levels, field, rows, out, |b| text(b).map(Value::Str))
        }
        (R::Int32ColumnReader(r), C::I32List) => lists(r, levels, field, rows, out, Ok, Value::I32List),
        (R::Int64ColumnReader(r), C::I32List) => lists(r, levels, field, rows, out, narrow, Value::I32List),
        (R::FloatColumnReader(r), C::F32List) => lists(r, levels, field, rows, out, Ok, Value::F32List),
        (R::DoubleColumnReader(r), C::F32List) => {
            lists(r, levels, field, rows, out, |x| Ok(x as f32), Value::F32List)
        }
        (R::ByteArrayColumnReader(r), C::StrList) => {
            lists(r, levels, field, rows, out, |b| text(b).map(|t| (*t).to_owned()), Value::StrList)
        }
        _ => Err(Undecodable::Row(0, format!("column '{}' changes its type within the file", field.name))),
    }
}

fn scalars<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    levels: Levels,
    field: &Field,
    rows: usize,
    out: &mut Vec<Value>,
    convert: impl Fn(T::T) -> Result<Value, String>,
) -> Result<(), Undecodable> {
    let (mut definition, mut values) = (Vec::new(), Vec::new());
    let (records, ..) =
        reader.read_records(rows, Some(&mut definition), None, &mut values).map_err(Undecodable::Library)?;
    let mut values = values.into_iter();
    for row in 0..records {
        let present = levels.present == 0 || definition.get(row) == Some(&levels.present);
        let value = match present.then(|| values.next()).flatten() {
            Some(value) => convert(value).map_err(|what| blame(row, field, &what))?,
            None if field.optional => Value::Null,
            None => return Err(blame(row, field, "has no value")),
        };
        out.push(value);
    }
    Ok(())
}

fn lists<T: DataType, E>(
    reader: &mut ColumnReaderImpl<T>,
    levels: Levels,
    field: &Field,
    rows: usize,
    out: &mut Vec<Value>,
    convert: impl Fn(T::T) -> Result<E, String>,
    wrap: impl Fn(Vec<E>) -> Value,
) -> Result<(), Undecodable> {
    let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
    reader
        .read_records(rows, Some(&mut definition), Some(&mut repetition), &mut values)
        .map_err(Undecodable::Library)?;
    let element = levels.element.unwrap_or(levels.present);
    let mut values = values.into_iter();
    let mut list: Option<Vec<E>> = None;
    let mut row = 0;
    for (index, (&definition, &repetition)) in definition.iter().zip(&repetition).enumerate() {
        if index > 0 && repetition == 0 {
            out.push(finish_list(list.take(), row, field, &wrap)?);
            row += 1;
        }
        if definition == levels.present {
            let value = values.next().ok_or_else(|| blame(row, field, "has too few values"))?;
            let value = convert(value).map_err(|what| blame(row, field, &what))?;
            list.get_or_insert_default().push(value);
        } else if definition >= element {
            return Err(blame(row, field, "has a null within a list"));
        } else if definition == element - 1 {
            list = Some(Vec::new());
        }
    }
    if !definition.is_empty() {
        out.push(finish_list(list, row, field, &wrap)?);
    }
    Ok(())
}

fn finish_list<E>(
    list: Option<Vec<E>>,
    row: usize,
    field: &Field,
    wrap: &impl Fn(Vec<E>) -> Value,
) -> Result<Value, Undecodable> {
    match list {
        Some(list) => Ok(wrap(list)),
        None if field.optional => Ok(Value::Null),
        None => Err(blame(row, field, "has no list")),
    }
}

fn blame(row: usize, field: &Field, what: &str) -> Undecodable {
    Undecodable::Row(row, format!("column '{}' {what}", field.name))
}
