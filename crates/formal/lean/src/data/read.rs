//! One entry for every format: what a file holds is told by its name and its first bytes.

use super::record::{RecordError, target_from_record};
use super::shipped::D3K_TOOLCHAIN;
use super::source_file::targets_from_source;
use crate::text::Repair;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use sgs_selfplay::{Problem, Verdict};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest file that is read, decompressed: a data set of statements has no reason to be larger.
const LIMIT: u64 = 8 << 30;

/// A problem of a data set with what else is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Identity, statement in canonical text, header.
    pub problem: Problem,
    /// What had to be done to the statement's text, if anything.
    pub repair: Option<Repair>,
    /// A proof that came along, in canonical text: what stands after `:= by`, with helper theorems before it if
    /// there are any ([`crate::read::Proof::to_text`]).
    pub proof: Option<String>,
    /// The problem in words.
    pub informal: Option<String>,
    /// The data set's own split or tag.
    pub split: Option<String>,
    /// Where the data set says it is from.
    pub source: Option<String>,
    /// The toolchain that the data set is pinned to, as `v4.15.0` or `leanprover/lean4:v4.15.0`; `None` for any.
    pub toolchain: Option<String>,
    /// What the proof that came along is expected to get from the checker (our own small set only).
    pub expect: Option<Verdict>,
}

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// One JSON object with `target_statements`: the paper's D_3k.
    D3k,
    /// One JSON object a line: Goedel-Pset, NuminaMath-LEAN, miniF2F, our own.
    JsonLines,
    /// A JSON array of such objects.
    JsonArray,
    /// Lean source in which `sorry` stands where a proof is wanted.
    LeanSource,
    /// A table with one record a row; read by whoever has a reader for it, see [`from_records`].
    Parquet,
}

/// A record that was not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Line of the file, counted from 1; 0 where records have no line.
    pub line: usize,
    /// The record's name, where it has one.
    pub id: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What a file gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The format that was found.
    pub format: Format,
    /// The problems, in the file's order.
    pub targets: Vec<Target>,
    /// What was not taken.
    pub skipped: Vec<Skipped>,
}

/// Why a file could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system said no.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is larger than what is read.
    #[error("{path}: larger than {LIMIT} bytes when decompressed; split it")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The text is no JSON.
    #[error("{name}: not the JSON that its first bytes announce: {error}")]
    Json {
        /// The file.
        name: String,
        /// What the parser said, with line and column.
        error: serde_json::Error,
    },
}

/// Reads a file of any format; `.zst` is decompressed on the way.
///
/// `header` is the context of problems that bring none of their own.
pub fn read_file(path: &Path, header: &str) -> Result<Import, ReadError> {
    let io = |error| ReadError::Io { path: path.to_owned(), error };
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let file = File::open(path).map_err(io)?;
    let mut text = String::new();
    let read = if extension == "zst" {
        let decoder = zstd::stream::read::Decoder::new(file).map_err(io)?;
        decoder.take(LIMIT).read_to_string(&mut text)
    } else {
        file.take(LIMIT).read_to_string(&mut text)
    };
    if read.map_err(io)? as u64 == LIMIT {
        return Err(ReadError::TooLarge { path: path.to_owned() });
    }
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    read_text(name, &text, header)
}

/// Reads the text of a file of any format but Parquet; `name` is the file's name.
pub fn read_text(name: &str, text: &str, header: &str) -> Result<Import, ReadError> {
    let format = detect(name, text);
    let json = |error| ReadError::Json { name: name.to_owned(), error };
    let mut import = Import { format, targets: Vec::new(), skipped: Vec::new() };
    match format {
        Format::D3k => {
            let set: D3k = serde_json::from_str(text).map_err(json)?;
            for (_, record) in set.target_statements {
                let target = target_from_record(&record, header).map(|mut target| {
                    // The layout is the paper's, and so is Lean's version, unless the record names one.
                    target.toolchain.get_or_insert_with(|| D3K_TOOLCHAIN.to_owned());
                    target
                });
                import.take(0, target);
            }
        }
        Format::JsonArray => {
            let records: Vec<serde_json::Map<String, serde_json::Value>> =
                serde_json::from_str(text).map_err(json)?;
            for record in records {
                import.take(0, target_from_record(&record, header));
            }
        }
        Format::JsonLines => {
            for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let record = serde_json::from_str(line).map_err(|e| RecordError {
                    id: String::new(),
                    reason: format!("not a JSON object: {e}"),
                });
                import.take(index + 1, record.and_then(|record| target_from_record(&record, header)));
            }
        }
        // Its bytes are no text: `detect` never says so.
        Format::Parquet => {}
        Format::LeanSource => {
            for target in targets_from_source(name, text, header) {
                import.take(0, target);
            }
        }
    }
    import.refuse_duplicates();
    Ok(import)
}

/// Reads records that came out of a file of another kind, counted from 1. `header` is the context of problems that
/// bring none of their own.
pub fn from_records(
    format: Format,
    records: impl IntoIterator<Item = serde_json::Map<String, serde_json::Value>>,
    header: &str,
) -> Import {
    let mut import = Import { format, targets: Vec::new(), skipped: Vec::new() };
    for (index, record) in records.into_iter().enumerate() {
        import.take(index + 1, target_from_record(&record, header));
    }
    import.refuse_duplicates();
    import
}

/// Writes targets as JSON Lines in our own form, which [`read_text`] reads back unchanged.
pub fn write_jsonl(targets: &[Target]) -> String {
    let mut text = String::new();
    for target in targets {
        let mut record = serde_json::Map::new();
        let mut put = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                record.insert(key.to_owned(), value.into());
            }
        };
        put("id", Some(target.problem.id.as_str()));
        put("header", Some(&target.problem.context));
        put("statement", Some(&target.problem.statement));
        put("proof", target.proof.as_deref());
        put("expect", target.expect.map(Verdict::as_str));
        put("informal", target.informal.as_deref());
        put("split", target.split.as_deref());
        put("source", target.source.as_deref());
        put("toolchain", target.toolchain.as_deref());
        text.push_str(&serde_json::Value::Object(record).to_string());
        text.push('\n');
    }
    text
}

fn detect(name: &str, text: &str) -> Format {
    let start = text.trim_start();
    let name = name.strip_suffix(".zst").unwrap_or(name);
    if name.ends_with(".lean") {
        Format::LeanSource
    } else if start.starts_with('[') {
        Format::JsonArray
    } else if text.lines().next().is_some_and(|line| serde_json::from_str::<serde_json::Value>(line).is_ok())
        && !start.starts_with("{\"target_statements\"")
        && !is_d3k(start)
    {
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
    #[derive(Deserialize)]
    struct Probe {
        target_statements: Option<serde::de::IgnoredAny>,
    }
    start.lines().nth(1).is_none_or(|line| line.trim().is_empty())
        && serde_json::from_str::<Probe>(start).is_ok_and(|probe| probe.target_statements.is_some())
}

#[derive(Deserialize)]
struct D3k {
    #[serde(deserialize_with = "in_order")]
    target_statements: Vec<(String, serde_json::Map<String, serde_json::Value>)>,
}

/// Reads an object's entries in the file's order, which is the order of the paper's batches.
fn in_order<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<(String, T)>, D::Error> {
    struct Entries<T>(std::marker::PhantomData<T>);
    impl<'de, T: Deserialize<'de>> serde::de::Visitor<'de> for Entries<T> {
        type Value = Vec<(String, T)>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object from id to statement")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    from.deserialize_map(Entries(std::marker::PhantomData))
}

impl Import {
    fn take(&mut self, line: usize, target: Result<Target, RecordError>) {
        match target {
            Ok(target) => self.targets.push(target),
            Err(error) => self.skipped.push(Skipped { line, id: error.id, reason: error.reason }),
        }
    }

    fn refuse_duplicates(&mut self) {
        let mut seen = FxHashSet::default();
        let skipped = &mut self.skipped;
        self.targets.retain(|target| {
            let id = target.problem.id.as_str().to_owned();
            let new = seen.insert(id.clone());
            if !new {
                skipped.push(Skipped { line: 0, id, reason: "the id occurs a second time".into() });
            }
            new
        });
    }
}
