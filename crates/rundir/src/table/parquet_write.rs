//! Writes tables as Parquet files, column by column and without Arrow.

use super::{CellValue, ColumnType, Field, is_list, parquet_failed as failed};
use crate::error::{Error, Result};
use crate::files::AtomicFile;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Approximate memory use at which a row group is written, in bytes.
const ROW_GROUP_BYTES: usize = 48 << 20;

/// Values of a leaf column with Parquet's definition and repetition levels.
#[derive(Default)]
struct LeafBuffer<T> {
    values: Vec<T>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

enum Buffer {
    Str(LeafBuffer<ByteArray>),
    I64(LeafBuffer<i64>),
    F64(LeafBuffer<f64>),
    Bool(LeafBuffer<bool>),
    I32(LeafBuffer<i32>),
    F32(LeafBuffer<f32>),
}

impl<T> LeafBuffer<T> {
    fn push(&mut self, value: Option<T>) {
        self.definition.push(value.is_some().into());
        self.values.extend(value);
    }

    /// Appends a list. `None` is a missing list, which differs from an empty one.
    fn push_list(&mut self, optional: bool, list: Option<impl Iterator<Item = T>>) {
        let empty = i16::from(optional);
        let mut first = true;
        let present = list.is_some();
        for value in list.into_iter().flatten() {
            self.values.push(value);
            self.definition.push(empty + 1);
            self.repetition.push(i16::from(!first));
            first = false;
        }
        if first {
            self.definition.push(if present { empty } else { 0 });
            self.repetition.push(0);
        }
    }

    fn clear(&mut self) {
        self.values.clear();
        self.definition.clear();
        self.repetition.clear();
    }

    /// Returns the definition and repetition levels, if Parquet stores them for this column.
    fn levels(&self, field: &Field) -> (Option<&[i16]>, Option<&[i16]>) {
        let list = is_list(field.column);
        ((list || field.optional).then_some(&*self.definition), list.then_some(&*self.repetition))
    }
}

impl Buffer {
    fn new(column: ColumnType) -> Self {
        match column {
            ColumnType::Str | ColumnType::StrList => Self::Str(LeafBuffer::default()),
            ColumnType::I64 => Self::I64(LeafBuffer::default()),
            ColumnType::F64 => Self::F64(LeafBuffer::default()),
            ColumnType::Bool => Self::Bool(LeafBuffer::default()),
            ColumnType::I32List => Self::I32(LeafBuffer::default()),
            ColumnType::F32List => Self::F32(LeafBuffer::default()),
        }
    }

    /// Appends a value of the column's type.
    fn push(&mut self, field: &Field, value: CellValue) {
        let optional = field.optional;
        match (self, value) {
            (Self::Str(leaf), CellValue::Str(text)) => leaf.push(Some(text.as_bytes().to_vec().into())),
            (Self::Str(leaf), CellValue::StrList(list)) => {
                leaf.push_list(optional, Some(list.into_iter().map(|t| ByteArray::from(t.into_bytes()))));
            }
            (Self::I64(leaf), CellValue::I64(n)) => leaf.push(Some(n)),
            (Self::F64(leaf), CellValue::F64(x)) => leaf.push(Some(x)),
            (Self::Bool(leaf), CellValue::Bool(b)) => leaf.push(Some(b)),
            (Self::I32(leaf), CellValue::I32List(list)) => leaf.push_list(optional, Some(list.into_iter())),
            (Self::F32(leaf), CellValue::F32List(list)) => leaf.push_list(optional, Some(list.into_iter())),
            (buffer, CellValue::Null) => buffer.push_null(field),
            (_, value) => panic!("invariant: column '{}' holds no {}", field.name, value.kind()),
        }
    }

    fn push_null(&mut self, field: &Field) {
        fn push<T>(leaf: &mut LeafBuffer<T>, field: &Field) {
            if is_list(field.column) {
                leaf.push_list(field.optional, None::<std::iter::Empty<T>>);
            } else {
                leaf.push(None);
            }
        }
        match self {
            Self::Str(leaf) => push(leaf, field),
            Self::I64(leaf) => push(leaf, field),
            Self::F64(leaf) => push(leaf, field),
            Self::Bool(leaf) => push(leaf, field),
            Self::I32(leaf) => push(leaf, field),
            Self::F32(leaf) => push(leaf, field),
        }
    }

    /// Writes the values as one column chunk and empties the buffer.
    fn write(&mut self, field: &Field, column: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        macro_rules! write {
            ($writer:expr, $leaf:expr) => {{
                let (definition, repetition) = $leaf.levels(field);
                $writer.write_batch(&$leaf.values, definition, repetition)?;
                $leaf.clear();
                Ok(())
            }};
        }
        match (column, self) {
            (ColumnWriter::ByteArrayColumnWriter(w), Self::Str(leaf)) => write!(w, leaf),
            (ColumnWriter::Int64ColumnWriter(w), Self::I64(leaf)) => write!(w, leaf),
            (ColumnWriter::DoubleColumnWriter(w), Self::F64(leaf)) => write!(w, leaf),
            (ColumnWriter::BoolColumnWriter(w), Self::Bool(leaf)) => write!(w, leaf),
            (ColumnWriter::Int32ColumnWriter(w), Self::I32(leaf)) => write!(w, leaf),
            (ColumnWriter::FloatColumnWriter(w), Self::F32(leaf)) => write!(w, leaf),
            _ => Err(ParquetError::General(format!("column '{}' changed its type", field.name))),
        }
    }
}

/// Writes a Parquet file that appears when it is complete.
pub(super) struct ParquetWriter {
    fields: Vec<Field>,
    path: PathBuf,
    writer: SerializedFileWriter<AtomicFile>,
    buffers: Vec<Buffer>,
    buffered_rows: usize,
    buffered_bytes: usize,
}

impl ParquetWriter {
    pub(super) fn create(path: &Path, fields: Vec<Field>) -> Result<Self> {
        let file = AtomicFile::create(path)?;
        let root = parquet_type(&fields).map_err(failed(path))?;
        let writer =
            SerializedFileWriter::new(file, root, Arc::new(properties(&fields))).map_err(failed(path))?;
        Ok(Self {
            buffers: fields.iter().map(|f| Buffer::new(f.column)).collect(),
            fields,
            path: path.to_path_buf(),
            writer,
            buffered_rows: 0,
            buffered_bytes: 0,
        })
    }

    pub(super) fn push(&mut self, row: Vec<CellValue>) -> Result<()> {
        self.buffered_bytes += row.iter().map(CellValue::size).sum::<usize>();
        self.buffered_rows += 1;
        for ((buffer, field), value) in self.buffers.iter_mut().zip(&self.fields).zip(row) {
            buffer.push(field, value);
        }
        if self.buffered_bytes >= ROW_GROUP_BYTES { self.write_row_group() } else { Ok(()) }
    }

    fn write_row_group(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group().map_err(failed(&self.path))?;
        for (buffer, field) in self.buffers.iter_mut().zip(&self.fields) {
            let column = group.next_column().map_err(failed(&self.path))?;
            let mut column = column.ok_or_else(|| {
                Error::Schema(format!("the Parquet schema lacks the column '{}'", field.name))
            })?;
            buffer.write(field, column.untyped()).map_err(failed(&self.path))?;
            column.close().map_err(failed(&self.path))?;
        }
        group.close().map_err(failed(&self.path))?;
        self.buffered_rows = 0;
        self.buffered_bytes = 0;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        if self.buffered_rows > 0 {
            self.write_row_group()?;
        }
        self.writer.into_inner().map_err(failed(&self.path))?.commit()
    }
}

fn leaf_path(field: &Field) -> ColumnPath {
    let mut parts = vec![field.name.clone()];
    if is_list(field.column) {
        parts.extend(["list".to_owned(), "element".to_owned()]);
    }
    ColumnPath::new(parts)
}

fn properties(fields: &[Field]) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by(concat!("sgs-rundir ", env!("CARGO_PKG_VERSION")).to_owned());
    for field in fields {
        // Log-probabilities rarely repeat, so a dictionary is useless. Grouping their bytes by position compresses better.
        if field.column == ColumnType::F32List {
            let path = leaf_path(field);
            builder = builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT);
        }
    }
    builder.build()
}

fn parquet_type(fields: &[Field]) -> Result<TypePtr, ParquetError> {
    let fields = fields.iter().map(field_type).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?))
}

fn field_type(field: &Field) -> Result<TypePtr, ParquetError> {
    let (physical, text) = match field.column {
        ColumnType::Str | ColumnType::StrList => (Physical::BYTE_ARRAY, true),
        ColumnType::I64 => (Physical::INT64, false),
        ColumnType::F64 => (Physical::DOUBLE, false),
        ColumnType::Bool => (Physical::BOOLEAN, false),
        ColumnType::I32List => (Physical::INT32, false),
        ColumnType::F32List => (Physical::FLOAT, false),
    };
    let repetition = if field.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let leaf = |name: &str, repetition| {
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(text.then_some(LogicalType::String))
            .build()
            .map(Arc::new)
    };
    if !is_list(field.column) {
        return leaf(&field.name, repetition);
    }
    let repeated = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![leaf("element", Repetition::REQUIRED)?])
        .build()?;
    Type::group_type_builder(&field.name)
        .with_repetition(repetition)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(repeated)])
        .build()
        .map(Arc::new)
}
