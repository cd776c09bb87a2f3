//! Reads files of Lean problems: Parquet tables, and all formats that `sgs-lean` supports.

use crate::error::{Context, Result};
use parquet::file::reader::FileReader;
use parquet::record::{Field, Row};
use serde_json::{Map, Value};
use sgs_lean::data::{Import, Records, Take, collect, stream_file};
use sgs_rundir::table::{ParquetFile, call_library};
use std::path::Path;

/// Reads a whole data set in any supported format. `header` is the context of problems that have none.
///
/// # Errors
/// Returns an error if the file cannot be read, is too large, or does not match the format indicated by its name or
/// first bytes.
pub fn read(path: &Path, header: &str) -> Result<Import> {
    collect(|take| each(path, header, take))
}

/// Passes the records of a data set in any supported format to `take`, one at a time.
pub fn each<'a>(path: &Path, header: &'a str, take: &'a mut Take<'a>) -> Result<()> {
    if path.extension().is_some_and(|e| e == "parquet") {
        return parquet_records(path, header, take)
            .with_context(|| format!("{}: as Parquet", path.display()));
    }
    Ok(stream_file(path, header, take)?)
}

fn parquet_records<'a>(path: &Path, header: &'a str, take: &'a mut Take<'a>) -> Result<()> {
    let ParquetFile { reader, batch_rows } = ParquetFile::open(path)?;
    let mut records = Records::new(header, take);
    let mut rows = call_library(path, || Ok(reader.get_row_iter(None)?.with_batch_size(batch_rows)))?;
    let mut number = 0;
    while let Some(row) = call_library(path, || rows.next().transpose())? {
        number += 1;
        records.record(number, &record(&row))?;
    }
    Ok(())
}

/// Returns the text and integer columns of a row. Problems do not use any other column types.
fn record(row: &Row) -> Map<String, Value> {
    let value = |field: &Field| match field {
        Field::Str(text) => Some(Value::from(text.as_str())),
        Field::Int(n) => Some(Value::from(*n)),
        Field::Long(n) => Some(Value::from(*n)),
        Field::UInt(n) => Some(Value::from(*n)),
        Field::ULong(n) => Some(Value::from(*n)),
        // Some writers do not mark text columns as UTF-8.
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
    fn a_parquet_table_of_problems_is_read() {
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
        assert_eq!(import.targets.len(), 1);
        assert_eq!(&*import.targets[0].problem.statement, "theorem a (x : ℝ) : x = x := by");
        assert_eq!(&*import.targets[0].problem.context, "import Mathlib\n\n");
        assert_eq!((import.skipped[0].line, import.skipped[0].id.as_str()), (2, "g2"));
        std::fs::write(&path, "not a table").unwrap();
        assert!(format!("{:#}", read(&path, "").unwrap_err()).contains("set.parquet: as Parquet"));
    }
}
