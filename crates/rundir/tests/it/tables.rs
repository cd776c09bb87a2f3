//! Tables are read back as they were written, and files of other programs are read.

use proptest::collection::vec;
use proptest::prelude::*;
use sgs_rundir::Error;
use sgs_rundir::table::*;
use std::path::{Path, PathBuf};

const TYPES: [ColumnType; 7] = [
    ColumnType::Str,
    ColumnType::I64,
    ColumnType::F64,
    ColumnType::Bool,
    ColumnType::I32List,
    ColumnType::F32List,
    ColumnType::StrList,
];

fn any_value(column: ColumnType) -> BoxedStrategy<CellValue> {
    match column {
        ColumnType::Str => any::<String>().prop_map(|t| CellValue::Str(t.into())).boxed(),
        ColumnType::I64 => any::<i64>().prop_map(CellValue::I64).boxed(),
        ColumnType::F64 => (-1e300..1e300).prop_map(CellValue::F64).boxed(),
        ColumnType::Bool => any::<bool>().prop_map(CellValue::Bool).boxed(),
        ColumnType::I32List => vec(any::<i32>(), 0..5).prop_map(CellValue::I32List).boxed(),
        ColumnType::F32List => vec(-1e30f32..1e30, 0..5).prop_map(CellValue::F32List).boxed(),
        ColumnType::StrList => vec(any::<String>(), 0..4).prop_map(CellValue::StrList).boxed(),
    }
}

fn any_table() -> impl Strategy<Value = (Schema, Vec<Vec<CellValue>>)> {
    vec((0..TYPES.len(), any::<bool>()), 1..8).prop_flat_map(|columns| {
        let fields: Vec<_> = columns
            .iter()
            .enumerate()
            .map(|(i, &(t, optional))| Field { name: format!("c{i}"), column: TYPES[t], optional })
            .collect();
        let cells: Vec<BoxedStrategy<CellValue>> = fields
            .iter()
            .map(|f| match f.optional {
                true => prop_oneof![Just(CellValue::Null), any_value(f.column)].boxed(),
                false => any_value(f.column),
            })
            .collect();
        (Just(Schema::new(fields).unwrap()), vec(cells, 0..20))
    })
}

fn write(path: &Path, schema: &Schema, rows: &[Vec<CellValue>]) -> Result<u64, Error> {
    let mut writer = TableWriter::create(path, schema)?;
    for row in rows {
        writer.push(row.clone())?;
    }
    writer.finish()
}

fn read(path: &Path, schema: &Schema) -> Result<Vec<Vec<CellValue>>, Error> {
    TableReader::open(path, schema)?.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn what_is_written_is_read((schema, rows) in any_table()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        prop_assert_eq!(write(&path, &schema, &rows).unwrap(), rows.len() as u64);
        prop_assert_eq!(&read(&path, &schema).unwrap(), &rows);
    }

    #[test]
    fn a_parquet_file_that_was_cut_off_is_refused(cut in 1usize..200) {
        let dir = tempfile::tempdir().unwrap();
        let (path, schema, whole) = small_parquet(dir.path());
        std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        prop_assert!(read(&path, &schema).is_err());
    }
}

/// Writes a Parquet file with two rows. Returns its path, schema and bytes.
fn small_parquet(dir: &Path) -> (PathBuf, Schema, Vec<u8>) {
    let path = dir.join("t.parquet");
    let fields = vec![Field::required("t", ColumnType::Str), Field::optional("l", ColumnType::I32List)];
    let schema = Schema::new(fields).unwrap();
    let row = vec![CellValue::Str("x".repeat(50).into()), CellValue::I32List(vec![1, 2, 3])];
    write(&path, &schema, &[row.clone(), row]).unwrap();
    let whole = std::fs::read(&path).unwrap();
    (path, schema, whole)
}

#[test]
fn no_flipped_bit_in_a_parquet_file_causes_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let (path, schema, whole) = small_parquet(dir.path());
    for (place, bit) in (0..whole.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
        let mut flipped = whole.clone();
        flipped[place] ^= 1 << bit;
        std::fs::write(&path, &flipped).unwrap();
        // The result may be correct, wrong or an error, which only a checksum can decide. There must be no panic.
        let _ = read(&path, &schema);
    }
}

#[test]
fn several_row_groups_and_batches_are_read_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let schema = Schema::new(vec![
        Field::required("n", ColumnType::I64),
        Field::required("tokens", ColumnType::I32List),
        Field::optional("log_probs", ColumnType::F32List),
    ])
    .unwrap();
    let row = |n: i64| {
        let length = (n % 3) as usize * 1500;
        let log_probs = vec![-(n as f32); length];
        let log_probs = if n % 2 == 0 { CellValue::F32List(log_probs) } else { CellValue::Null };
        vec![CellValue::I64(n), CellValue::I32List(vec![n as i32; length]), log_probs]
    };
    let mut writer = TableWriter::create(&path, &schema).unwrap();
    for n in 0..4000 {
        writer.push(row(n)).unwrap();
    }
    assert!(!path.exists(), "the file appears before it is finished");
    assert_eq!(writer.finish().unwrap(), 4000);
    let mut count = 0;
    for (n, found) in TableReader::open(&path, &schema).unwrap().enumerate() {
        assert_eq!(found.unwrap(), row(n as i64));
        count += 1;
    }
    assert_eq!(count, 4000);
}

fn foreign(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn a_file_written_by_pyarrow_is_read() {
    let path = foreign("pyarrow_snappy.parquet");
    let columns = ["name", "n", "x", "ok", "ids", "lp", "tags"].into_iter().zip(TYPES);
    let schema = Schema::new(columns.map(|(name, column)| Field::optional(name, column)).collect()).unwrap();
    let rows = read(&path, &schema).unwrap();
    assert_eq!(
        rows[0],
        [
            CellValue::Str("a".into()),
            CellValue::I64(1),
            CellValue::F64(0.5),
            CellValue::Bool(true),
            CellValue::I32List(vec![1, 2]),
            CellValue::F32List(vec![0.25]),
            CellValue::StrList(vec!["p".into(), "q".into()]),
        ]
    );
    assert_eq!(rows[1][0], CellValue::Null);
    assert_eq!(rows[1][2], CellValue::Null);
    assert_eq!(rows[1][4], CellValue::Null);
    assert_eq!(rows[2][4], CellValue::I32List(vec![]));
    assert_eq!(rows[2][6], CellValue::Null);
    let projected =
        Schema::new(vec![Field::required("n", ColumnType::F64), Field::optional("absent", ColumnType::Str)])
            .unwrap();
    assert_eq!(read(&path, &projected).unwrap()[2], [CellValue::F64(3.0), CellValue::Null]);
}

#[test]
fn errors_name_file_row_and_column() {
    let path = foreign("pyarrow_snappy.parquet");
    let message = |fields: Vec<Field>| read(&path, &Schema::new(fields).unwrap()).unwrap_err().to_string();
    let missing = message(vec![Field::required("tokens", ColumnType::I32List)]);
    assert!(missing.contains("'tokens' is missing; there are: name, n"), "{missing}");
    let wrong = message(vec![Field::required("n", ColumnType::Str)]);
    assert!(wrong.contains("column 'n' holds i64, expected string"), "{wrong}");
    let null = message(vec![Field::required("name", ColumnType::Str)]);
    assert!(null.contains("row 2: column 'name' has no value"), "{null}");
    let list = message(vec![Field::required("ids", ColumnType::I32List)]);
    assert!(list.contains("row 2: column 'ids' has no list"), "{list}");
    let nested = message(vec![Field::optional("nested", ColumnType::I64)]);
    assert!(nested.contains("structures"), "{nested}");
    let element = Schema::new(vec![Field::optional("ids", ColumnType::I32List)]).unwrap();
    let element = read(&foreign("pyarrow_null_element.parquet"), &element).unwrap_err().to_string();
    assert!(element.contains("row 1: column 'ids' has a null within a list"), "{element}");
}

#[test]
fn errors_in_json_lines_name_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let schema = Schema::new(vec![
        Field::required("id", ColumnType::Str),
        Field::optional("ids", ColumnType::I32List),
    ])
    .unwrap();
    let check = |text: &str, expected: &str| {
        std::fs::write(&path, text).unwrap();
        let message = read(&path, &schema).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check("{\"id\":\"a\"}\n\n{\"id\":1}\n", "row 3: field 'id' should be string, found a number");
    check("{\"id\":\"a\"}\n{\"ids\":[]}\n", "row 2: field 'id' is missing");
    check("{\"id\":\"a\",\"ids\":[1,2.5]}", "row 1: field 'ids' should be list<i32>");
    check("{\"id\":\"a\",\"ids\":[4294967296]}", "row 1: field 'ids' should be list<i32>");
    check("{\"id\":\"a\"", "row 1: not a JSON object");
    std::fs::write(&path, "{\"id\":\"a\",\"extra\":{}}\n").unwrap();
    assert_eq!(read(&path, &schema).unwrap(), [[CellValue::Str("a".into()), CellValue::Null]]);
    let message = TableWriter::create(&path, &schema).err().unwrap().to_string();
    assert!(message.contains("written as .parquet only"), "{message}");
}

#[test]
fn invalid_rows_and_names_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema::new(vec![Field::required("n", ColumnType::I64)]).unwrap();
    assert!(TableWriter::create(&dir.path().join("t.csv"), &schema).is_err());
    let path = dir.path().join("t.parquet");
    let mut writer = TableWriter::create(&path, &schema).unwrap();
    writer.push(vec![CellValue::I64(1)]).unwrap();
    assert!(writer.push(vec![]).is_err());
    assert!(
        writer
            .push(vec![CellValue::Null])
            .unwrap_err()
            .to_string()
            .contains("row 2: column 'n' holds i64, not null")
    );
    assert_eq!(writer.finish().unwrap(), 1);
    assert_eq!(read(&path, &schema).unwrap(), [[CellValue::I64(1)]]);
    assert!(Schema::new(vec![]).is_err());
    let twice = vec![Field::required("n", ColumnType::I64), Field::required("n", ColumnType::Str)];
    assert!(Schema::new(twice).is_err());
}
