//! Tables are read back as they were written, and files of other programs are read.

use proptest::collection::vec;
use proptest::prelude::*;
use sgs_rundir::table::*;
use std::path::{Path, PathBuf};

sgs_rundir::table_row! {
    /// A row with all types of columns.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Wide {
        pub text: String,
        pub integer: i64,
        pub float: f64,
        pub boolean: bool,
        pub integers: Vec<i32>,
        pub floats: Vec<f32>,
        pub texts: Vec<String>;
        pub optional: Narrow
    }
}

sgs_rundir::table_row! {
    /// A row with all types of columns, with missing values.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Narrow {
        pub name: Option<String>,
        pub n: Option<i64>,
        pub x: Option<f64>,
        pub ok: Option<bool>,
        pub ids: Option<Vec<i32>>,
        pub lp: Option<Vec<f32>>,
        pub tags: Option<Vec<String>>,
    }
}

fn any_floats() -> impl Strategy<Value = Vec<f32>> {
    vec(-1e30f32..1e30, 0..5)
}

fn any_narrow() -> impl Strategy<Value = Narrow> {
    let scalars = any::<(Option<String>, Option<i64>, Option<bool>)>();
    let lists = (any::<(Option<Vec<i32>>, Option<Vec<String>>)>(), proptest::option::of(any_floats()));
    (scalars, proptest::option::of(-1e300..1e300), lists)
        .prop_map(|((name, n, ok), x, ((ids, tags), lp))| Narrow { name, n, x, ok, ids, lp, tags })
}

fn any_wide() -> impl Strategy<Value = Wide> {
    let values = any::<(String, i64, bool, Vec<i32>, Vec<String>)>();
    (values, -1e300..1e300, any_floats(), any_narrow()).prop_map(
        |((text, integer, boolean, integers, texts), float, floats, optional)| Wide {
            text,
            integer,
            float,
            boolean,
            integers,
            floats,
            texts,
            optional,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn what_is_written_is_read(rows in vec(any_wide(), 0..8)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        prop_assert_eq!(write_rows(&path, rows.clone()).unwrap(), rows.len() as u64);
        prop_assert_eq!(read_rows::<Wide>(&path).unwrap(), rows);
    }

    #[test]
    fn a_parquet_file_that_was_cut_off_is_refused(cut in 1usize..200) {
        let dir = tempfile::tempdir().unwrap();
        let (path, whole) = small_parquet(dir.path());
        std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        prop_assert!(read_rows::<Small>(&path).is_err());
    }
}

sgs_rundir::table_row! {
    #[derive(Clone, Debug, PartialEq)]
    pub struct Small {
        pub t: String,
        pub l: Option<Vec<i32>>,
    }
}

/// Writes a Parquet file with two rows. Returns its path and bytes.
fn small_parquet(dir: &Path) -> (PathBuf, Vec<u8>) {
    let path = dir.join("t.parquet");
    let row = Small { t: "x".repeat(50), l: Some(vec![1, 2, 3]) };
    write_rows(&path, [row.clone(), row]).unwrap();
    let whole = std::fs::read(&path).unwrap();
    (path, whole)
}

#[test]
fn no_flipped_bit_in_a_parquet_file_causes_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let (path, whole) = small_parquet(dir.path());
    for (place, bit) in (0..whole.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
        let mut flipped = whole.clone();
        flipped[place] ^= 1 << bit;
        std::fs::write(&path, &flipped).unwrap();
        // Without a checksum, the result may be correct, wrong or an error. There must be no panic.
        let _ = read_rows::<Small>(&path);
    }
}

sgs_rundir::table_row! {
    #[derive(Clone, Debug, PartialEq)]
    pub struct Sample {
        pub n: i64,
        pub tokens: Vec<i32>,
        pub log_probs: Option<Vec<f32>>,
    }
}

#[test]
fn several_row_groups_and_batches_are_read_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let row = |n: i64| {
        let length = (n % 3) as usize * 1500;
        let log_probs = (n % 2 == 0).then(|| vec![-(n as f32); length]);
        Sample { n, tokens: vec![n as i32; length], log_probs }
    };
    let mut writer = RowWriter::create(&path).unwrap();
    for n in 0..4000 {
        writer.push(row(n)).unwrap();
    }
    assert!(!path.exists(), "the file appears before it is finished");
    assert_eq!(writer.finish().unwrap(), 4000);
    let mut count = 0;
    for (n, found) in RowReader::<Sample>::open(&path).unwrap().enumerate() {
        assert_eq!(found.unwrap(), row(n as i64));
        count += 1;
    }
    assert_eq!(count, 4000);
}

fn foreign(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Declares a row with these columns.
macro_rules! row {
    ($name:ident { $($field:ident: $type:ty),* }) => {
        sgs_rundir::table_row! {
            #[derive(Clone, Debug, PartialEq)]
            pub struct $name { $(pub $field: $type),* }
        }
    };
}

row!(Projected { n: f64, absent: Option<String> });
row!(MissingColumn { tokens: Vec<i32> });
row!(WrongType { n: String });
row!(NoValue { name: String });
row!(NoList { ids: Vec<i32> });
row!(Nested { nested: Option<i64> });
row!(NullElement { ids: Option<Vec<i32>> });
row!(Token { t: u32 });

#[test]
fn a_file_written_by_pyarrow_is_read() {
    let path = foreign("pyarrow_snappy.parquet");
    let rows = read_rows::<Narrow>(&path).unwrap();
    let first = Narrow {
        name: Some("a".into()),
        n: Some(1),
        x: Some(0.5),
        ok: Some(true),
        ids: Some(vec![1, 2]),
        lp: Some(vec![0.25]),
        tags: Some(vec!["p".into(), "q".into()]),
    };
    assert_eq!(rows[0], first);
    assert_eq!((&rows[1].name, rows[1].x, &rows[1].ids), (&None, None, &None));
    assert_eq!((&rows[2].ids, &rows[2].tags), (&Some(vec![]), &None));
    assert_eq!(read_rows::<Projected>(&path).unwrap()[2], Projected { n: 3.0, absent: None });
}

fn refusal<R: TableRow>(path: &Path) -> String {
    read_rows::<R>(path).err().unwrap().to_string()
}

#[test]
fn errors_name_file_row_and_column() {
    let path = foreign("pyarrow_snappy.parquet");
    let missing = refusal::<MissingColumn>(&path);
    assert!(missing.contains("'tokens' is missing; there are: name, n"), "{missing}");
    assert!(missing.ends_with("; expected: tokens"), "{missing}");
    let wrong = refusal::<WrongType>(&path);
    assert!(wrong.contains("column 'n' holds i64, expected string"), "{wrong}");
    let null = refusal::<NoValue>(&path);
    assert!(null.contains("row 2: column 'name' has no value"), "{null}");
    let list = refusal::<NoList>(&path);
    assert!(list.contains("row 2: column 'ids' has no list"), "{list}");
    let nested = refusal::<Nested>(&path);
    assert!(nested.contains("structures"), "{nested}");
    let element = refusal::<NullElement>(&foreign("pyarrow_null_element.parquet"));
    assert!(element.contains("row 1: column 'ids' has a null within a list"), "{element}");
}

#[test]
fn invalid_values_and_names_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    assert!(RowWriter::<Token>::create(&dir.path().join("t.csv")).is_err());
    let path = dir.path().join("t.parquet");
    row!(Tokens { t: Vec<u32> });
    let mut writer = RowWriter::create(&path).unwrap();
    writer.push(Tokens { t: vec![1] }).unwrap();
    let message = writer.push(Tokens { t: vec![1 << 31] }).unwrap_err().to_string();
    assert!(message.contains("row 2: column 't': 2147483648 does not fit into 31 bits"), "{message}");
    assert_eq!(writer.finish().unwrap(), 1);
    assert_eq!(read_rows::<Tokens>(&path).unwrap(), [Tokens { t: vec![1] }]);
    row!(Signed { t: i64 });
    write_rows(&path, [Signed { t: 1 }, Signed { t: -1 }]).unwrap();
    assert!(refusal::<Token>(&path).contains("row 2: column 't': -1 does not fit into 32 bits"));
}
