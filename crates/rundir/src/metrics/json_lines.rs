//! `metrics.jsonl`: the metrics of all rounds and evaluations, one per line.

use super::sink::LastRecorded;
use super::{MetricKind, MetricValues};
use crate::error::{Error, Result};
use crate::files;
use crate::write_point::reached;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Appends to a JSON Lines file. A torn last line is removed when the file is opened.
#[derive(Debug)]
pub struct JsonLinesSink {
    path: PathBuf,
    file: File,
    recorded: LastRecorded,
}

impl JsonLinesSink {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or if a complete line is not a set of metrics.
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = sgs_base::files::open_with(&mut options, path).map_err(Error::io("open", path))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(Error::io("read", path))?;
        let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let mut recorded = LastRecorded::default();
        for (_, metrics) in parse(path, &text[..whole])? {
            recorded.note(&metrics);
        }
        file.set_len(whole as u64).map_err(Error::io("cut the torn end of", path))?;
        file.seek(SeekFrom::End(0)).map_err(Error::io("read", path))?;
        Ok(Self { path: path.to_path_buf(), file, recorded })
    }

    /// Returns the last round and evaluation in the file.
    pub fn recorded(&self) -> LastRecorded {
        self.recorded
    }

    /// Appends a round or evaluation that the file does not have yet.
    pub(super) fn record(&mut self, metrics: &MetricValues) -> Result<()> {
        if !self.recorded.note(metrics) {
            return Ok(());
        }
        let mut line = serde_json::to_vec(metrics)
            .map_err(|error| Error::Schema(format!("metrics of round {}: {error}", metrics.round)))?;
        line.push(b'\n');
        reached("metrics.append", &self.path)?;
        self.file.write_all(&line).map_err(Error::io("write", &self.path))?;
        reached("metrics.flush", &self.path)?;
        self.file.sync_data().map_err(Error::io("flush", &self.path))
    }
}

/// Compares the file with the metrics of the published rounds and evaluations, which have checksums. A torn last line is
/// ignored, as is a missing file. The caller lists the rounds after the call, because a process may be writing.
///
/// # Errors
/// Returns an error that names the first line that differs, or the first round that is missing before a later one.
pub(crate) fn check(path: &Path, published: impl FnOnce() -> Result<Vec<MetricValues>>) -> Result<()> {
    let mut text = match files::read(path) {
        Err(error) if error.is_not_found() => return Ok(()),
        text => text?,
    };
    let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    // A torn line is not an object yet.
    if serde_json::from_slice::<serde::de::IgnoredAny>(&text[whole..]).is_err() {
        text.truncate(whole);
    }
    let lines = parse(path, &text)?;
    let published: BTreeMap<_, _> = published()?.into_iter().map(|m| ((m.kind, m.round), m)).collect();
    let mut recorded = BTreeSet::new();
    for (number, line) in &lines {
        let (kind, round) = (line.kind, line.round);
        let subject = subject(kind, round);
        match published.get(&(kind, round)) {
            // As text, because NaN is not equal to itself.
            Some(own) if json(own) == json(line) => {}
            Some(_) => {
                return Err(damaged(path, format!("line {number} differs from the metrics of {subject}")));
            }
            None => return Err(damaged(path, format!("line {number} is about {subject}, which is missing"))),
        }
        recorded.insert((kind, round));
    }
    let last = |kind| recorded.iter().rfind(|(of, _)| *of == kind).copied();
    match published.keys().find(|key| Some(**key) < last(key.0) && !recorded.contains(*key)) {
        Some((kind, round)) => Err(damaged(path, format!("it lacks {}", subject(*kind, *round)))),
        None => Ok(()),
    }
}

fn subject(kind: MetricKind, round: u32) -> String {
    match kind {
        MetricKind::Round => format!("round {round}"),
        MetricKind::Evaluation => format!("evaluation {round}"),
    }
}

fn json(metrics: &MetricValues) -> Option<String> {
    serde_json::to_string(metrics).ok()
}

/// Returns the metrics of all lines with their numbers.
fn parse(path: &Path, text: &[u8]) -> Result<Vec<(usize, MetricValues)>> {
    let lines = text.split(|&b| b == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let parsed = lines.map(|(before, line)| {
        let metrics = serde_json::from_slice(line);
        let what = |error| format!("line {} is not the metrics of a round: {error}", before + 1);
        Ok((before + 1, metrics.map_err(|error| damaged(path, what(error)))?))
    });
    parsed.collect()
}

fn damaged(path: &Path, what: String) -> Error {
    Error::damaged(path, what, "move it away: `sgs resume` writes it again from the rounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_removed_and_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut sink = JsonLinesSink::open(&path).unwrap();
        for round in 1..=3 {
            sink.record(&MetricValues::new(round)).unwrap();
        }
        drop(sink);
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut sink = JsonLinesSink::open(&path).unwrap();
        assert_eq!(sink.recorded().round, Some(2));
        sink.record(&MetricValues::new(3)).unwrap();
        drop(sink);
        let rounds: Vec<u32> = std::fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str::<MetricValues>(line).unwrap().round)
            .collect();
        assert_eq!(rounds, [1, 2, 3]);
    }

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        for error in [JsonLinesSink::open(&path).unwrap_err(), check(&path, || Ok(Vec::new())).unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains("metrics.jsonl") && error.contains("regular file"), "{error}");
        }
        check(&dir.path().join("none"), || Ok(Vec::new())).unwrap();
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"round\":1}\n").unwrap();
        let error = JsonLinesSink::open(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("unix_time"), "{error}");
    }
}
