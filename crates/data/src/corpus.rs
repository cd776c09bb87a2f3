//! The rows of training corpora.

use sgs_rundir::table::{RowReader, TableRow as _};
use sgs_rundir::{Error, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

sgs_rundir::table_row! {
    /// A training text: a prompt for a role and the desired completion.
    #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
    pub struct CorpusRow {
        /// `solver`, `conjecturer` or `guide`.
        pub role: String,
        /// Where the example comes from (`theorem`, `sub-proof`, `composed`, `step`, …).
        pub kind: String,
        /// Label of the theorem that it comes from.
        pub source: String,
        /// The prompt as text.
        pub prompt: String,
        /// The completion as text, including the end token.
        pub completion: String,
    }
}

/// The role of texts that measure a model and must not train it.
pub const HELD_OUT: &str = "held-out";

/// Maximum length of a line in bytes.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// The rows of a corpus. An error is the last one.
pub type CorpusRows = Box<dyn Iterator<Item = Result<CorpusRow>>>;

/// Reads a corpus row by row: a table (`.parquet`), or JSON Lines (`.jsonl`), which are convenient for corpora that are
/// written manually. Empty lines and unknown keys are ignored.
///
/// # Errors
/// Returns an error if the name has another extension, or the file is not a table of such rows.
pub fn read(path: &Path) -> Result<CorpusRows> {
    match path.extension().and_then(OsStr::to_str) {
        Some("parquet") => Ok(Box::new(RowReader::open(path)?)),
        Some("jsonl") => Ok(Box::new(CorpusLines::open(path)?)),
        _ => {
            let names = columns();
            let what = format!("the name must end in .parquet or .jsonl; a corpus has the columns {names}");
            Err(error(path, None, what))
        }
    }
}

/// Returns the names of the columns of a corpus, for errors.
fn columns() -> String {
    let names: Vec<String> = CorpusRow::fields().into_iter().map(|field| field.name).collect();
    names.join(", ")
}

struct CorpusLines {
    path: PathBuf,
    reader: BufReader<File>,
    number: u64,
    failed: bool,
}

impl CorpusLines {
    fn open(path: &Path) -> Result<Self> {
        let file =
            sgs_base::files::open(path).map_err(|e| error(path, None, format!("cannot open it: {e}")))?;
        Ok(Self { path: path.to_owned(), reader: BufReader::new(file), number: 0, failed: false })
    }

    /// Reads lines up to the next row; `None` at the end.
    fn next_row(&mut self) -> Result<Option<CorpusRow>, String> {
        loop {
            let mut line = Vec::new();
            self.number += 1;
            let read = (&mut self.reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            let read = read.map_err(|e| format!("cannot read it: {e}"))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
                return Err(format!("the line is longer than {} MiB", MAX_LINE_BYTES >> 20));
            }
            if !line.trim_ascii().is_empty() {
                let row = serde_json::from_slice(&line);
                return row.map(Some).map_err(|e| {
                    format!("not a row of a corpus (a JSON object with the keys {}): {e}", columns())
                });
            }
        }
    }
}

impl Iterator for CorpusLines {
    type Item = Result<CorpusRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let row = self.next_row().transpose()?;
        self.failed = row.is_err();
        Some(row.map_err(|what| error(&self.path, Some(self.number), what)))
    }
}

fn error(path: &Path, row: Option<u64>, what: String) -> Error {
    Error::Table { path: path.to_owned(), row, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_json_lines_name_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let good =
            r#"{"role":"solver","kind":"step","source":"syl","prompt":"a","completion":"b","extra":{}}"#;
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path).unwrap().collect::<Result<Vec<_>>>()
        };
        let rows = read(&format!("{good}\n\n{good}")).unwrap();
        assert_eq!((rows.len(), rows[1].source.as_str()), (2, "syl"));
        for (line, expected) in [
            (good.replace(r#""syl""#, "1"), "invalid type: integer `1`, expected a string"),
            (good.replace("source", "sauce"), "missing field `source`"),
            (good.replace('}', ""), "EOF"),
        ] {
            std::fs::write(&path, format!("{good}\n\n{line}\n{good}\n")).unwrap();
            let rows: Vec<_> = super::read(&path).unwrap().collect();
            assert_eq!(rows.len(), 2, "an error is the last item");
            let message = rows[1].as_ref().unwrap_err().to_string();
            assert!(
                message.contains("row 3: not a row of a corpus") && message.contains(expected),
                "{message}"
            );
        }
    }
}
