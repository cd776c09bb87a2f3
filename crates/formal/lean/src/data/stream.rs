//! Streams data sets, so that only one record is in memory at a time.
//!
//! A small compressed file can expand to any size. The size of its text, the size of a record, and the number of
//! records are therefore limited.

use super::record::{RecordError, target_from_record};
use super::source_file::targets_from_source;
use super::target::{D3K_TOOLCHAIN, DataSetError, DataSetFormat, Target};
use crate::text::unix_lines;
use rustc_hash::FxHashSet;
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use sgs_base::excerpt;
use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

/// Maximum size of a decompressed file, in bytes. No data set of statements is larger.
const MAX_FILE_BYTES: u64 = 8 << 30;
/// Maximum size of a record, and of a file of Lean source, in bytes.
const MAX_RECORD_BYTES: u64 = 64 << 20;
const MAX_RECORDS: usize = 10_000_000;
/// Number of bytes that are examined to detect the format.
const HEAD: u64 = 64 << 10;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Receives each record, or the reason why it was skipped, with its line (0 if the format has no lines).
pub type Take<'a> = dyn FnMut(usize, Result<Target, RecordError>) -> Result<(), DataSetError> + 'a;

/// Passes the records of one file to a consumer. A repeated id is an error of its record.
pub struct Records<'a> {
    header: &'a str,
    take: &'a mut Take<'a>,
    seen: FxHashSet<(u64, u64)>,
    hashers: [RandomState; 2],
    count: usize,
}

impl<'a> Records<'a> {
    /// Makes a reader without records so far. `header` is the context of problems without their own.
    pub fn new(header: &'a str, take: &'a mut Take<'a>) -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        Self { header, take, seen: FxHashSet::default(), hashers, count: 0 }
    }

    /// Passes on the next record, given as a JSON object.
    ///
    /// # Errors
    /// Returns an error if there are too many records, or if the consumer does.
    pub fn record(&mut self, line: usize, record: &Map<String, Value>) -> Result<(), DataSetError> {
        self.target(line, target_from_record(record, self.header))
    }

    fn target(&mut self, line: usize, target: Result<Target, RecordError>) -> Result<(), DataSetError> {
        self.count += 1;
        if self.count > MAX_RECORDS {
            return Err(DataSetError::TooMany { most: MAX_RECORDS });
        }
        let target = target.and_then(|target| {
            let id = target.problem.id.as_str();
            let [a, b] = &self.hashers;
            match self.seen.insert((a.hash_one(id), b.hash_one(id))) {
                true => Ok(target),
                false => {
                    Err(RecordError { id: id.to_owned(), reason: "the id occurs a second time".to_owned() })
                }
            }
        });
        (self.take)(line, target)
    }
}

/// Reads a file of any format except Parquet and passes on each record. `.zst` is decompressed.
pub fn stream_file<'a>(path: &Path, header: &'a str, take: &'a mut Take<'a>) -> Result<(), DataSetError> {
    let io = |error| DataSetError::Io { path: path.to_owned(), error };
    let file = File::open(path).map_err(io)?;
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let records = Records::new(header, take);
    if path.extension().is_some_and(|extension| extension == "zst") {
        stream(name, zstd::stream::read::Decoder::new(file).map_err(io)?, records)
    } else {
        stream(name, file, records)
    }
}

/// Reads the text of a file of any format except Parquet. `name` is the file's name.
pub(super) fn stream(name: &str, text: impl Read, records: Records<'_>) -> Result<(), DataSetError> {
    let io = |error| DataSetError::Io { path: name.into(), error };
    let mut text = BufReader::with_capacity(1 << 16, text.take(MAX_FILE_BYTES));
    let mut head = Vec::new();
    text.by_ref().take(HEAD).read_to_end(&mut head).map_err(io)?;
    let is_all = (head.len() as u64) < HEAD;
    // Some editors write this mark at the beginning of UTF-8 files.
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    let format = detect(name, &String::from_utf8_lossy(&head), is_all);
    let mut whole = Cursor::new(head).chain(&mut text);
    match format {
        DataSetFormat::JsonLines => lines(name, &mut whole, records)?,
        DataSetFormat::JsonArray | DataSetFormat::D3k => document(name, &mut whole, records, format)?,
        DataSetFormat::LeanSource => source(name, &mut whole, records)?,
    }
    if text.get_ref().limit() == 0 {
        return Err(DataSetError::TooLarge { path: name.into(), most: MAX_FILE_BYTES });
    }
    Ok(())
}

fn lines(name: &str, text: &mut impl BufRead, mut records: Records<'_>) -> Result<(), DataSetError> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = text.by_ref().take(MAX_RECORD_BYTES + 1).read_until(b'\n', &mut line);
        let read = read.map_err(|error| DataSetError::Io { path: name.into(), error })?;
        if read as u64 > MAX_RECORD_BYTES {
            return Err(DataSetError::TooLarge {
                path: format!("{name}: line {number}").into(),
                most: MAX_RECORD_BYTES,
            });
        }
        if read == 0 {
            break;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(record) => records.record(number, &record)?,
            Err(error) => {
                let found = String::from_utf8_lossy(&line);
                let found = excerpt::beginning_of(&found);
                let reason = format!("expected a JSON object, found `{found}`: {error}");
                records.target(number, Err(RecordError { id: String::new(), reason }))?;
            }
        }
    }
    Ok(())
}

fn source(name: &str, text: &mut impl Read, mut records: Records<'_>) -> Result<(), DataSetError> {
    let mut source = String::new();
    let read = text.take(MAX_RECORD_BYTES + 1).read_to_string(&mut source);
    if read.map_err(|error| DataSetError::Io { path: name.into(), error })? as u64 > MAX_RECORD_BYTES {
        return Err(DataSetError::TooLarge { path: name.into(), most: MAX_RECORD_BYTES });
    }
    let header = records.header;
    targets_from_source(name, &unix_lines(&source), header, |target| records.target(0, target))
}

/// Returns the deserializer of a JSON document: an array of records, or the paper's object of them.
fn document(
    name: &str,
    text: &mut impl Read,
    records: Records<'_>,
    format: DataSetFormat,
) -> Result<(), DataSetError> {
    let left = Cell::new(MAX_RECORD_BYTES);
    let failed = Cell::new(None);
    let each = Each { records, left: &left, failed: &failed, is_d3k: format == DataSetFormat::D3k };
    let reader = BufReader::with_capacity(1 << 16, Bounded { text, left: &left });
    let mut json = serde_json::Deserializer::from_reader(reader);
    let read = match format {
        DataSetFormat::JsonArray => json.deserialize_seq(each),
        _ => json.deserialize_map(Document(each)),
    };
    let read = read.and_then(|()| json.end());
    match failed.take() {
        Some(error) => Err(error),
        None => read.map_err(|error| DataSetError::Json { name: name.to_owned(), error }),
    }
}

/// A reader that fails if a record exceeds the remaining limit.
struct Bounded<'a, R> {
    text: R,
    left: &'a Cell<u64>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.get() == 0 {
            return Err(io::Error::other(format!("a record is larger than {MAX_RECORD_BYTES} bytes")));
        }
        let read = self.text.read(buffer)?;
        self.left.set(self.left.get().saturating_sub(read as u64));
        Ok(read)
    }
}

/// Passes on the elements of an array, or the values of an object.
struct Each<'a, 'b> {
    records: Records<'a>,
    left: &'b Cell<u64>,
    failed: &'b Cell<Option<DataSetError>>,
    is_d3k: bool,
}

impl Each<'_, '_> {
    fn take<E: serde::de::Error>(&mut self, record: &Map<String, Value>) -> Result<(), E> {
        self.left.set(MAX_RECORD_BYTES);
        let mut target = target_from_record(record, self.records.header);
        if let (true, Ok(target)) = (self.is_d3k, &mut target) {
            // The paper's layout implies its version of Lean, unless the record names another.
            target.toolchain.get_or_insert_with(|| D3K_TOOLCHAIN.to_owned());
        }
        self.records.target(0, target).map_err(|error| {
            self.failed.set(Some(error));
            E::custom("not taken")
        })
    }
}

impl<'de> Visitor<'de> for Each<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_d3k { "an object from id to statement" } else { "an array of records" })
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut records: A) -> Result<(), A::Error> {
        while let Some(record) = records.next_element::<Map<String, Value>>()? {
            self.take(&record)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut records: A) -> Result<(), A::Error> {
        // In the file's order, which is the order of the paper's batches.
        while let Some((_, record)) = records.next_entry::<IgnoredAny, Map<String, Value>>()? {
            self.take(&record)?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Each<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

/// The deserializer of the paper's file, an object with the records in `target_statements`.
struct Document<'a, 'b>(Each<'a, 'b>);

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `target_statements`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut each = Some(self.0);
        while let Some(key) = entries.next_key::<String>()? {
            match each.take_if(|_| key == "target_statements") {
                Some(each) => entries.next_value_seed(each)?,
                None => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        match each {
            None => Ok(()),
            Some(_) => Err(serde::de::Error::missing_field("target_statements")),
        }
    }
}

/// Detects a file's format from its name and its beginning. `is_all` means that this is the complete text.
fn detect(name: &str, head: &str, is_all: bool) -> DataSetFormat {
    let start = head.trim_start();
    let name = name.strip_suffix(".zst").unwrap_or(name);
    let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    let first = head.lines().next().unwrap_or_default();
    // If a line is longer than the examined part, only its beginning is known.
    let is_cut = !is_all && !head.contains('\n');
    if name.ends_with(".lean") {
        DataSetFormat::LeanSource
    } else if start.starts_with('[') {
        DataSetFormat::JsonArray
    } else if is_cut && start.starts_with('{') {
        let is_d3k = start.contains("\"target_statements\"") && !name.ends_with(".jsonl");
        if is_d3k { DataSetFormat::D3k } else { DataSetFormat::JsonLines }
    } else if is_json(first) && !start.starts_with("{\"target_statements\"") && !is_d3k(start) {
        DataSetFormat::JsonLines
    } else if start.starts_with('{') && !name.ends_with(".jsonl") {
        DataSetFormat::D3k
    } else if start.starts_with('{') || name.ends_with(".jsonl") {
        DataSetFormat::JsonLines
    } else {
        DataSetFormat::LeanSource
    }
}

/// Returns whether a single line is a complete D_3k file: a JSON object with the key `target_statements`.
fn is_d3k(start: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Probe {
        target_statements: Option<IgnoredAny>,
    }
    start.lines().nth(1).is_none_or(|line| line.trim().is_empty())
        && serde_json::from_str::<Probe>(start).is_ok_and(|probe| probe.target_statements.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_of_source_files_are_read() {
        let mut read = Vec::new();
        let mut take = |_, target: Result<Target, RecordError>| {
            read.push(target.unwrap().problem);
            Ok(())
        };
        let source = "import Mathlib\r\n\r\ntheorem a :\r\n  1 = 1 := by sorry\r\n";
        stream("a.lean", source.as_bytes(), Records::new("", &mut take)).unwrap();
        assert_eq!(
            (&*read[0].context, &*read[0].statement),
            ("import Mathlib\n\n", "theorem a :\n  1 = 1 := by")
        );
    }

    #[test]
    fn contexts_that_are_much_larger_than_their_file_are_refused() {
        // A hundred theorems after a comment of 16 MiB.
        let long = format!("open Nat\n/-{}-/\n", " ".repeat(16 << 20));
        let theorems: String = (0..100).map(|i| format!("theorem t{i} : 1 = 1 := sorry\n")).collect();
        let mut read = 0;
        let mut take = |_, target: Result<Target, RecordError>| {
            read += usize::from(target.is_ok());
            Ok(())
        };
        let refused = stream("a.lean", (long + &theorems).as_bytes(), Records::new("", &mut take));
        assert!(matches!(refused, Err(DataSetError::TooMuch)) && read == 63, "{refused:?} after {read}");
    }
}
