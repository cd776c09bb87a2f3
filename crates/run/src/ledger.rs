//! Results that are found one after the other, as lines of a file: what stands in it is done, and whoever goes on after a
//! crash does the rest.

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file of JSON Lines: the first says how the others were found, each other line is one result.
pub struct Ledger<T> {
    path: PathBuf,
    file: File,
    rows: Vec<T>,
}

impl<T: Serialize + DeserializeOwned> Ledger<T> {
    /// Opens a file, or makes it. A last line that a crash cut short goes. `made` is all that the results depend on.
    ///
    /// # Errors
    /// The file cannot be read or written, a line of it is none, or its results were found in another way.
    pub fn open(path: &Path, made: &Value) -> Result<Self> {
        let place = || format!("cannot open {}", path.display());
        if !path.exists() {
            sgs_rundir::files::write_file(path, format!("{}\n", json!({ "made": made })).as_bytes())?;
        }
        let text = fs::read_to_string(path).with_context(place)?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let mut lines = text[..whole].lines();
        let head: Value = serde_json::from_str(lines.next().unwrap_or_default()).unwrap_or_default();
        if head["made"] != *made {
            bail!(
                "{}: what it holds was found with other settings: {}; now: {made}. Give another --out, or take the file \
                 away to find it anew",
                path.display(),
                head["made"]
            );
        }
        let row = |(i, line)| {
            serde_json::from_str(line).with_context(|| format!("{}:{}: no result", path.display(), i + 2))
        };
        let rows = lines.enumerate().map(row).collect::<Result<_>>()?;
        let file = OpenOptions::new().append(true).open(path).with_context(place)?;
        if whole < text.len() {
            file.set_len(whole as u64).with_context(place)?;
        }
        Ok(Self { path: path.to_owned(), file, rows })
    }

    /// What was found so far.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Adds results; they are on the disk when this returns.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn add(&mut self, rows: Vec<T>) -> Result<()> {
        let mut text = String::new();
        for row in &rows {
            text.push_str(&serde_json::to_string(row)?);
            text.push('\n');
        }
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| format!("cannot write to {}", self.path.display()))?;
        self.rows.extend(rows);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_cut_short_goes_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let made = json!({ "k": 8 });
        Ledger::open(&path, &made).unwrap().add(vec![1, 2]).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"torn").unwrap();
        let mut again = Ledger::<u32>::open(&path, &made).unwrap();
        assert_eq!(again.rows(), [1, 2]);
        again.add(vec![3]).unwrap();
        assert_eq!(Ledger::<u32>::open(&path, &made).unwrap().rows(), [1, 2, 3]);
        let error = Ledger::<u32>::open(&path, &json!({ "k": 4 })).err().unwrap().to_string();
        assert!(
            error.contains("a.jsonl") && error.contains("{\"k\":8}") && error.contains("--out"),
            "{error}"
        );
        fs::write(&path, format!("{}\n1\nx\n3\n", json!({ "made": made }))).unwrap();
        let error = format!("{:#}", Ledger::<u32>::open(&path, &made).err().unwrap());
        assert!(error.contains("a.jsonl:3: no result"), "{error}");
    }
}
