//! Data sets of Lean problems as files: what `sgs-lean` reads itself, and Parquet tables.

use anyhow::{Context, Result};
use parquet::file::reader::FileReader;
use parquet::record::{Field, Row};
use serde_json::{Map, Value};
use sgs_lean::data::{Format, Import, Records, Take, collect, stream_file};
use sgs_rundir::table::{ParquetFile, guarded};
use std::path::Path;

/// Reads a data set of any known layout whole; `header` is the context of problems that bring none of their own.
///
/// # Errors
/// The file cannot be read, is too large, or is not what its name or its first bytes say.
pub fn read(path: &Path, header: &str) -> Result<Import> {
    collect(|take| each(path, header, take))
}

/// Hands over a data set of any known layout record by record.
///
/// # Errors
/// As [`read`], or the taker's.
pub fn each<'a>(path: &Path, header: &'a str, take: &'a mut Take<'a>) -> Result<Format> {
    if path.extension().is_some_and(|e| e == "parquet") {
        return guarded(path, || parquet_records(path, header, take))
            .with_context(|| format!("{}: as Parquet", path.display()));
    }
    Ok(stream_file(path, header, take)?)
}

fn parquet_records<'a>(path: &Path, header: &'a str, take: &'a mut Take<'a>) -> Result<Format> {
    let ParquetFile { reader, rows_at_once } = ParquetFile::open(path)?;
    let mut records = Records::new(header, take);
    for (index, row) in reader.get_row_iter(None)?.with_batch_size(rows_at_once).enumerate() {
        records.record(index + 1, &record(&row?))?;
    }
    Ok(Format::Parquet)
}

/// The texts and numbers of a row; nothing else is asked of a problem.
fn record(row: &Row) -> Map<String, Value> {
    let value = |field: &Field| match field {
        Field::Str(text) => Some(Value::from(text.as_str())),
        Field::Int(n) => Some(Value::from(*n)),
        Field::Long(n) => Some(Value::from(*n)),
        Field::UInt(n) => Some(Value::from(*n)),
        Field::ULong(n) => Some(Value::from(*n)),
        // Text of writers that do not mark it as such.
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).ok().map(Value::from),
        _ => None,
    };
    row.get_column_iter().filter_map(|(name, field)| Some((name.clone(), value(field)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::fs::File;
    use std::sync::Arc;

    #[test]
    fn a_table_of_problems_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("set.parquet");
        let schema =
            "message set { required binary problem_id (UTF8); required binary formal_statement (UTF8); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = File::create(&path).unwrap();
        let mut writer =
            SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::builder().build())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let columns =
            [["g1", "g2"], ["import Mathlib\n\ntheorem a (x : ℝ) : x = x := by sorry", "def nothing := 1"]];
        for texts in columns {
            let mut column = group.next_column().unwrap().unwrap();
            let values: Vec<ByteArray> = texts.iter().map(|t| ByteArray::from(*t)).collect();
            column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        let import = read(&path, "").unwrap();
        assert_eq!(import.format, Format::Parquet);
        assert_eq!(import.targets.len(), 1);
        assert_eq!(&*import.targets[0].problem.statement, "theorem a (x : ℝ) : x = x := by");
        assert_eq!(&*import.targets[0].problem.context, "import Mathlib\n\n");
        assert_eq!((import.skipped[0].line, import.skipped[0].id.as_str()), (2, "g2"));
        std::fs::write(&path, "not a table").unwrap();
        assert!(format!("{:#}", read(&path, "").unwrap_err()).contains("set.parquet: as Parquet"));
    }
}
