//! Stores results as lines of a file, as they arrive. After a crash, only the missing results are computed.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sgs_base::digest::checksum_of;
use sgs_run::error::{Context, Result, bail};
use sgs_selfplay::{Problem, ProblemId};
use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The subject of a result: the name of a problem and a hash of the question. Data sets are edited, and a result for an
/// older statement with the same name is not valid for the new one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// The problem.
    pub id: ProblemId,
    of: String,
}

impl Subject {
    /// Creates a question about a problem.
    pub fn new(id: &ProblemId, asked: &str) -> Self {
        let mut of = checksum_of(asked.as_bytes());
        of.truncate(16);
        Self { id: id.clone(), of }
    }

    /// The problem itself.
    pub fn problem(problem: &Problem) -> Self {
        Self::new(&problem.id, &format!("{}\n{}", problem.context, problem.statement))
    }
}

/// The first line.
#[derive(Deserialize)]
struct Head {
    made: Value,
}

#[derive(Serialize, Deserialize)]
struct Row<T> {
    #[serde(flatten)]
    subject: Subject,
    #[serde(flatten)]
    found: T,
}

/// A file of JSON Lines. The first line describes how the results were obtained. Each other line is one result. Only
/// one process at a time can open the file.
pub struct Ledger<T> {
    path: PathBuf,
    file: File,
    found: HashMap<Subject, T>,
}

impl<T: Serialize + DeserializeOwned> Ledger<T> {
    /// Opens or creates a file, and removes an incomplete last line. `made` describes everything that the results depend on,
    /// apart from their subjects.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, if another process has it open, if a line is invalid, or if
    /// its results were obtained in another way.
    pub fn open(path: &Path, made: &Value) -> Result<Self> {
        let place = || format!("cannot open {}", path.display());
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(path).with_context(place)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("{}: another process uses it; wait until that process ends", path.display())
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(place),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(place)?;
        let head = format!("{}\n", json!({ "made": made }));
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let is_begun = whole > 0 || !head.as_bytes().starts_with(&bytes);
        let is_torn = whole < bytes.len();
        bytes.truncate(whole);
        let mut ledger = Self { path: path.to_owned(), file, found: HashMap::new() };
        if is_begun {
            ledger.read(std::str::from_utf8(&bytes).with_context(place)?, made)?;
        }
        // Do this only after the first line is checked, because a foreign file must not be changed.
        if is_torn {
            ledger.file.set_len(whole as u64).with_context(place)?;
        }
        if !is_begun {
            ledger.write(&head)?;
        }
        Ok(ledger)
    }

    fn read(&mut self, text: &str, made: &Value) -> Result<()> {
        let mut lines = text.lines();
        let place = |number: usize, expected: &str| {
            format!(
                "{}:{number}: no {expected} that this program understands; choose another --out, or remove the file to \
                 compute it again",
                self.path.display()
            )
        };
        let head = serde_json::from_str(lines.next().unwrap_or_default());
        let Head { made: before } = head.with_context(|| place(1, "settings"))?;
        if before != *made {
            bail!(
                "{}: its results have other settings: {before}; now: {made}. Choose another --out, or remove the file to \
                 compute them again",
                self.path.display()
            );
        }
        for (number, line) in (2..).zip(lines) {
            let row = serde_json::from_str(line);
            let Row { subject, found } = row.with_context(|| place(number, "result"))?;
            self.found.insert(subject, found);
        }
        Ok(())
    }

    /// Returns the result for a subject.
    pub fn found(&self, subject: &Subject) -> Option<&T> {
        self.found.get(subject)
    }

    /// Adds results. They are durable when this function returns.
    pub fn add(&mut self, results: Vec<(Subject, T)>) -> Result<()> {
        let rows: Vec<Row<T>> = results.into_iter().map(|(subject, found)| Row { subject, found }).collect();
        let mut text = String::new();
        for row in &rows {
            text.push_str(&serde_json::to_string(row)?);
            text.push('\n');
        }
        self.write(&text)?;
        self.found.extend(rows.into_iter().map(|row| (row.subject, row.found)));
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<()> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| format!("cannot write to {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    struct Counted {
        n: u32,
    }

    fn subject(id: &str) -> Subject {
        Subject::new(&ProblemId::new(id), "theorem a : 1 = 1 := by")
    }

    #[test]
    fn an_incomplete_last_line_is_removed_and_the_results_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let made = json!({ "k": 8 });
        let open = || Ledger::<Counted>::open(&path, &made);
        // Simulate a crash while the first line was written.
        std::fs::write(&path, "{\"made\":{\"k").unwrap();
        open()
            .unwrap()
            .add(vec![(subject("p"), Counted { n: 1 }), (subject("q"), Counted { n: 2 })])
            .unwrap();
        // Simulate a crash in the middle of a character.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"id\":\"\xe2\x88").unwrap();
        let mut again = open().unwrap();
        assert_eq!(again.found(&subject("q")), Some(&Counted { n: 2 }));
        let busy = open().err().unwrap().to_string();
        assert!(busy.contains("another process uses it"), "{busy}");
        again.add(vec![(subject("∀"), Counted { n: 3 })]).unwrap();
        drop(again);
        let last = open().unwrap();
        assert_eq!(last.found(&subject("∀")), Some(&Counted { n: 3 }));
        let other = Subject::new(&ProblemId::new("p"), "theorem a : 1 = 2 := by");
        assert_eq!(last.found(&other), None, "the statement is another now");
        drop(last);
        let error = Ledger::<Counted>::open(&path, &json!({ "k": 4 })).err().unwrap().to_string();
        assert!(error.contains("other settings") && error.contains("\"k\":8"), "{error}");
        for damaged in ["{\"made\":{\"k\":8\n", "\0\0\n", "{}\n"] {
            std::fs::write(&path, damaged).unwrap();
            let error = format!("{:#}", open().err().unwrap());
            assert!(error.contains("a.jsonl:1: no settings") && error.contains("at line 1"), "{error}");
        }
        for foreign in ["foreign notes", "their first\ntheir second"] {
            std::fs::write(&path, foreign).unwrap();
            assert!(open().is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
        }
        std::fs::write(&path, "{\"made\":{\"k\":8}}\nx\n").unwrap();
        let error = format!("{:#}", open().err().unwrap());
        assert!(error.contains("a.jsonl:2: no result"), "{error}");
    }
}
