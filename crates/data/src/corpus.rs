//! The rows of training corpora.

use sgs_rundir::table::RowReader;
use sgs_rundir::{Error, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

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

/// The rows of a corpus. The rows after an error are not defined.
pub type CorpusRows = Box<dyn Iterator<Item = Result<CorpusRow>>>;

/// Reads a corpus row by row: a table (`.parquet`), or JSON Lines (`.jsonl`), which are convenient for corpora that are
/// written manually. Empty lines and unknown keys are ignored.
///
/// # Errors
/// Returns an error if the name has another extension, or the file is not a table of such rows.
pub fn read(path: &Path) -> Result<CorpusRows> {
    match path.extension().and_then(OsStr::to_str) {
        Some("parquet") => Ok(Box::new(RowReader::open(path)?)),
        Some("jsonl") => read_lines(path),
        _ => Err(error(path, None, "the name must end in .parquet or .jsonl".to_owned())),
    }
}

fn read_lines(path: &Path) -> Result<CorpusRows> {
    let file = File::open(path).map_err(|e| error(path, None, format!("cannot open it: {e}")))?;
    let (mut reader, mut number, path) = (BufReader::new(file), 0, path.to_owned());
    let next = move || loop {
        let mut line = Vec::new();
        number += 1;
        match (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => {
                let row = serde_json::from_slice(&line);
                return Some(
                    row.map_err(|e| error(&path, Some(number), format!("not a row of a corpus: {e}"))),
                );
            }
            Err(e) => return Some(Err(error(&path, Some(number), format!("cannot read it: {e}")))),
        }
    };
    Ok(Box::new(std::iter::from_fn(next)))
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
            let message = read(&format!("{good}\n\n{line}\n")).unwrap_err().to_string();
            assert!(
                message.contains("row 3: not a row of a corpus") && message.contains(expected),
                "{message}"
            );
        }
    }
}
