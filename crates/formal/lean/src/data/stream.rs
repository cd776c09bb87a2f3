//! Data sets read one record after the other: what is in memory at a time is a record, not the file.
//!
//! A file says little of what it unpacks to. The text of a file, a record, and the number of records are bounded.

use super::read::{Format, ReadError, Target};
use super::record::{RecordError, target_from_record};
use super::shipped::D3K_TOOLCHAIN;
use super::source_file::targets_from_source;
use rustc_hash::FxHashSet;
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

/// Largest text of a file, decompressed: a data set of statements has no reason to be larger.
const LARGEST_FILE: u64 = 8 << 30;
/// Largest record, and largest file of Lean source, in bytes.
const LARGEST_RECORD: u64 = 64 << 20;
/// Most records of a file.
const MOST_RECORDS: usize = 10_000_000;
/// So much of a file is looked at to tell what it is.
const HEAD: u64 = 64 << 10;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Takes what was read: the line, 0 where records have none, and the record or why it is none.
pub type Take<'a> = dyn FnMut(usize, Result<Target, RecordError>) -> Result<(), ReadError> + 'a;

/// The records of one file on their way to whoever takes them. A name that comes a second time is refused.
pub struct Records<'a> {
    header: &'a str,
    take: &'a mut Take<'a>,
    seen: FxHashSet<(u64, u64)>,
    hashers: [RandomState; 2],
    count: usize,
}

impl<'a> Records<'a> {
    /// No record yet. `header` is the context of problems that bring none of their own.
    pub fn new(header: &'a str, take: &'a mut Take<'a>) -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        Self { header, take, seen: FxHashSet::default(), hashers, count: 0 }
    }

    /// The next record, of fields.
    ///
    /// # Errors
    /// There are too many, or the taker's.
    pub fn record(&mut self, line: usize, record: &Map<String, Value>) -> Result<(), ReadError> {
        self.target(line, target_from_record(record, self.header))
    }

    fn target(&mut self, line: usize, target: Result<Target, RecordError>) -> Result<(), ReadError> {
        self.count += 1;
        if self.count > MOST_RECORDS {
            return Err(ReadError::TooMany { most: MOST_RECORDS });
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

/// Reads a file of any format but Parquet, and hands over each record; `.zst` is decompressed on the way.
///
/// # Errors
/// The file cannot be read, is too large or is not what its first bytes announce; or the taker's.
pub fn stream_file<'a>(path: &Path, header: &'a str, take: &'a mut Take<'a>) -> Result<Format, ReadError> {
    let io = |error| ReadError::Io { path: path.to_owned(), error };
    let file = File::open(path).map_err(io)?;
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let records = Records::new(header, take);
    if path.extension().is_some_and(|extension| extension == "zst") {
        stream(name, zstd::stream::read::Decoder::new(file).map_err(io)?, records)
    } else {
        stream(name, file, records)
    }
}

/// Reads the text of a file of any format but Parquet; `name` is the file's name.
pub(super) fn stream(name: &str, text: impl Read, records: Records<'_>) -> Result<Format, ReadError> {
    let io = |error| ReadError::Io { path: name.into(), error };
    let mut text = BufReader::with_capacity(1 << 16, text.take(LARGEST_FILE));
    let mut head = Vec::new();
    text.by_ref().take(HEAD).read_to_end(&mut head).map_err(io)?;
    let is_all = (head.len() as u64) < HEAD;
    // As some editors mark UTF-8.
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    let format = detect(name, &String::from_utf8_lossy(&head), is_all);
    let mut whole = Cursor::new(head).chain(&mut text);
    match format {
        Format::JsonLines => lines(name, &mut whole, records)?,
        Format::JsonArray | Format::D3k => document(name, &mut whole, records, format)?,
        Format::LeanSource => source(name, &mut whole, records)?,
        // Its bytes are no text: `detect` never says so.
        Format::Parquet => {}
    }
    if text.get_ref().limit() == 0 {
        return Err(ReadError::TooLarge { path: name.into(), most: LARGEST_FILE });
    }
    Ok(format)
}

fn lines(name: &str, text: &mut impl BufRead, mut records: Records<'_>) -> Result<(), ReadError> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = text.by_ref().take(LARGEST_RECORD + 1).read_until(b'\n', &mut line);
        let read = read.map_err(|error| ReadError::Io { path: name.into(), error })?;
        if read as u64 > LARGEST_RECORD {
            return Err(ReadError::TooLarge {
                path: format!("{name}: line {number}").into(),
                most: LARGEST_RECORD,
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
                let reason = format!("not a JSON object: {error}");
                records.target(number, Err(RecordError { id: String::new(), reason }))?;
            }
        }
    }
    Ok(())
}

fn source(name: &str, text: &mut impl Read, mut records: Records<'_>) -> Result<(), ReadError> {
    let mut source = String::new();
    let read = text.take(LARGEST_RECORD + 1).read_to_string(&mut source);
    if read.map_err(|error| ReadError::Io { path: name.into(), error })? as u64 > LARGEST_RECORD {
        return Err(ReadError::TooLarge { path: name.into(), most: LARGEST_RECORD });
    }
    let header = records.header;
    targets_from_source(name, &source, header).into_iter().try_for_each(|target| records.target(0, target))
}

/// One JSON value: an array of records, or the paper's object of them.
fn document(name: &str, text: &mut impl Read, records: Records<'_>, format: Format) -> Result<(), ReadError> {
    let left = Cell::new(LARGEST_RECORD);
    let failed = Cell::new(None);
    let each = Each { records, left: &left, failed: &failed, is_d3k: format == Format::D3k };
    let reader = BufReader::with_capacity(1 << 16, Bounded { text, left: &left });
    let mut json = serde_json::Deserializer::from_reader(reader);
    let read = match format {
        Format::JsonArray => json.deserialize_seq(each),
        _ => json.deserialize_map(Document(each)),
    };
    let read = read.and_then(|()| json.end());
    match failed.take() {
        Some(error) => Err(error),
        None => read.map_err(|error| ReadError::Json { name: name.to_owned(), error }),
    }
}

/// A text of which no record may be larger than what is left.
struct Bounded<'a, R> {
    text: R,
    left: &'a Cell<u64>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.get() == 0 {
            return Err(io::Error::other(format!("a record is larger than {LARGEST_RECORD} bytes")));
        }
        let read = self.text.read(buffer)?;
        self.left.set(self.left.get().saturating_sub(read as u64));
        Ok(read)
    }
}

/// Hands over the records of an array, or the values of an object.
struct Each<'a, 'b> {
    records: Records<'a>,
    left: &'b Cell<u64>,
    failed: &'b Cell<Option<ReadError>>,
    is_d3k: bool,
}

impl Each<'_, '_> {
    fn take<E: serde::de::Error>(&mut self, record: &Map<String, Value>) -> Result<(), E> {
        self.left.set(LARGEST_RECORD);
        let mut target = target_from_record(record, self.records.header);
        if let (true, Ok(target)) = (self.is_d3k, &mut target) {
            // The layout is the paper's, and so is Lean's version, unless the record names one.
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

/// The paper's file: an object whose `target_statements` are the records.
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

/// Tells a file's format by its name and how it begins; `is_all` says that this is the whole text.
fn detect(name: &str, head: &str, is_all: bool) -> Format {
    let start = head.trim_start();
    let name = name.strip_suffix(".zst").unwrap_or(name);
    let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    let first = head.lines().next().unwrap_or_default();
    // A line that goes on behind the head can be told by its beginning only.
    let is_cut = !is_all && !head.contains('\n');
    if name.ends_with(".lean") {
        Format::LeanSource
    } else if start.starts_with('[') {
        Format::JsonArray
    } else if is_cut && start.starts_with('{') {
        let is_d3k = start.contains("\"target_statements\"") && !name.ends_with(".jsonl");
        if is_d3k { Format::D3k } else { Format::JsonLines }
    } else if is_json(first) && !start.starts_with("{\"target_statements\"") && !is_d3k(start) {
        Format::JsonLines
    } else if start.starts_with('{') && !name.ends_with(".jsonl") {
        Format::D3k
    } else if start.starts_with('{') || name.ends_with(".jsonl") {
        Format::JsonLines
    } else {
        Format::LeanSource
    }
}

/// A whole D_3k file on one line is one JSON object with the key `target_statements`.
fn is_d3k(start: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Probe {
        target_statements: Option<IgnoredAny>,
    }
    start.lines().nth(1).is_none_or(|line| line.trim().is_empty())
        && serde_json::from_str::<Probe>(start).is_ok_and(|probe| probe.target_statements.is_some())
}
