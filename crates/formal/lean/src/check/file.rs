//! Checking with plain `lean --json`: one process a file, several theorems in it. Works with any toolchain.

use super::assemble::{Assembled, Candidate, Probe, assemble};
use super::evidence::{Layers, Message, Outcome, judge_messages};
use super::limits::Limits;
use super::pool::{Backend, fresh_nonce};
use super::process::{Fault, Launch, Process};
use sgs_selfplay::Verdict;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How files are checked.
#[derive(Clone, Debug, PartialEq)]
pub struct FileChecker {
    /// Starts Lean; the file's name is added as the last argument.
    pub launch: Launch,
    /// Folder under which every worker has one of its own, the only place a process may write to.
    pub scratch: PathBuf,
    /// Options set after the header, as `set_option` lines.
    pub options: Vec<(String, String)>,
    /// How evidence is asked for.
    pub probe: Probe,
    /// Layers of trust.
    pub layers: Layers,
    /// Bounds.
    pub limits: Limits,
    /// Theorems in one file.
    pub batch: usize,
    /// How long a file that is not full waits for more theorems, milliseconds.
    pub linger_ms: u64,
}

/// One slot that runs a process a file.
#[derive(Debug)]
pub struct FileWorker {
    checker: FileChecker,
    folder: PathBuf,
}

impl FileChecker {
    /// Makes a worker with a folder of its own.
    pub fn worker(&self, slot: usize) -> std::io::Result<FileWorker> {
        let folder = self.scratch.join(format!("slot-{slot}"));
        std::fs::create_dir_all(&folder)?;
        Ok(FileWorker { checker: self.clone(), folder })
    }

    fn prelude(&self, header: &str) -> String {
        let mut prelude = header.trim_end().to_owned();
        for (name, value) in &self.options {
            prelude.push_str(&format!("\nset_option {name} {value}"));
        }
        prelude
    }
}

/// What a run of Lean over a file gave.
struct Run {
    messages: Vec<Message>,
    fault: Option<Fault>,
}

impl FileWorker {
    fn run(&self, file: &Assembled) -> Run {
        let path = self.folder.join("Candidate.lean");
        if let Err(e) = std::fs::write(&path, &file.text) {
            let fault = Fault::Start { program: path.display().to_string(), error: e.to_string() };
            return Run { messages: Vec::new(), fault: Some(fault) };
        }
        let mut launch = self.checker.launch.clone();
        launch.args.push(path.into());
        launch.folder = self.folder.clone();
        let mut process = match Process::start(&launch) {
            Ok(process) => process,
            Err(fault) => return Run { messages: Vec::new(), fault: Some(fault) },
        };
        process.close_stdin();
        let mut reader = Lines { messages: Vec::new(), read: 0, torn: None };
        let limits = &self.checker.limits;
        // The first theorem's time includes the header's; each theorem that is decided gives the next its own.
        let until =
            Cell::new((Instant::now() + limits.start() + limits.proof(), limits.start() + limits.proof()));
        let mut decided = 0;
        let result = process.exchange(&[], limits, &mut || until.get(), &mut |out, ended| {
            reader.take(out, ended);
            let now = file.regions.iter().filter(|r| reader.has_answered(r)).count();
            if now > decided {
                decided = now;
                until.set((Instant::now() + limits.proof(), limits.proof()));
            }
            (ended || reader.torn.is_some()).then_some(out.len())
        });
        let status = process.kill();
        let fault = match (result, reader.torn) {
            (Err(fault), _) => Some(fault),
            (Ok(_), Some(torn)) => Some(Fault::Protocol(torn)),
            // 0: no errors, 1: errors. Anything else is no verdict of Lean's.
            (Ok(_), None) if status.is_some_and(|s| matches!(s.code(), Some(0 | 1))) => None,
            (Ok(_), None) => Some(process.fault_of_end()),
        };
        Run { messages: reader.messages, fault }
    }

    fn judge(&self, candidates: &[&Candidate], retried: bool) -> Vec<Outcome> {
        let Some(first) = candidates.first() else { return Vec::new() };
        let prelude = self.checker.prelude(&first.header);
        let file = assemble(&prelude, candidates, &fresh_nonce(), self.checker.probe);
        let run = self.run(&file);
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(candidates.len());
        let header_end = file.regions.first().map_or(1, |r| *r.all.start());
        let early = run.messages.iter().find(|m| m.line < header_end && m.severity == super::Severity::Error);
        if let Some(error) = early {
            let outcome = Outcome::new(Verdict::Infra, format!("the header does not stand: {}", error.text));
            return vec![outcome; candidates.len()];
        }
        for region in &file.regions {
            let own: Vec<&Message> = run.messages.iter().filter(|m| region.all.contains(&m.line)).collect();
            let answered = own.iter().any(|m| region.probe.contains(&m.line));
            // After a fault, only what Lean had finished with is decided.
            let decided = run.fault.is_none() || answered;
            outcomes.push(
                decided.then(|| judge_messages(&own, 0, region, self.checker.probe, self.checker.layers)),
            );
        }
        match run.fault {
            None => outcomes
                .into_iter()
                .map(|o| o.unwrap_or_else(|| Outcome::new(Verdict::Infra, "undecided")))
                .collect(),
            Some(fault) => self.after_fault(candidates, outcomes, &fault, retried),
        }
    }

    /// The first undecided candidate is what Lean was at: it is tried once more alone, the rest without it.
    fn after_fault(
        &self,
        candidates: &[&Candidate],
        mut outcomes: Vec<Option<Outcome>>,
        fault: &Fault,
        retried: bool,
    ) -> Vec<Outcome> {
        let Some(culprit) = outcomes.iter().position(Option::is_none) else {
            return outcomes.into_iter().flatten().collect();
        };
        let alone = candidates.len() == 1;
        let outcome = match fault {
            Fault::Start { .. } => {
                let outcome = Outcome::new(Verdict::Infra, fault.to_string());
                return outcomes.into_iter().map(|o| o.unwrap_or_else(|| outcome.clone())).collect();
            }
            Fault::Timeout(_) | Fault::Memory { .. } | Fault::Output(_) => {
                Outcome::new(Verdict::Resource, fault.to_string())
            }
            Fault::Ended { by_signal: true, .. } if alone && retried => {
                Outcome::new(Verdict::Resource, format!("Lean died twice on this proof: {fault}"))
            }
            Fault::Ended { .. } | Fault::Protocol(_) if alone && retried => {
                Outcome::new(Verdict::Infra, fault.to_string())
            }
            Fault::Ended { .. } | Fault::Protocol(_) => {
                let one = candidates.get(culprit..=culprit).unwrap_or_default();
                self.judge(one, true).pop().unwrap_or_else(|| Outcome::new(Verdict::Infra, "undecided"))
            }
        };
        if let Some(slot) = outcomes.get_mut(culprit) {
            *slot = Some(outcome);
        }
        let rest: Vec<usize> =
            (0..outcomes.len()).filter(|i| outcomes.get(*i).is_some_and(Option::is_none)).collect();
        let again: Vec<&Candidate> = rest.iter().filter_map(|i| candidates.get(*i).copied()).collect();
        for (index, outcome) in rest.into_iter().zip(self.judge(&again, false)) {
            if let Some(slot) = outcomes.get_mut(index) {
                *slot = Some(outcome);
            }
        }
        outcomes.into_iter().map(|o| o.unwrap_or_else(|| Outcome::new(Verdict::Infra, "undecided"))).collect()
    }
}

impl Backend for FileWorker {
    fn batch(&self) -> usize {
        self.checker.batch.max(1)
    }

    fn prefers(&self, _header: &str) -> bool {
        true
    }

    fn check(&mut self, candidates: &[&Candidate]) -> Vec<Outcome> {
        self.judge(candidates, false)
    }

    fn linger(&self) -> Duration {
        Duration::from_millis(self.checker.linger_ms)
    }

    fn deadline(&self, candidates: usize) -> Duration {
        let n = u32::try_from(candidates).unwrap_or(u32::MAX);
        (self.checker.limits.start() + self.checker.limits.proof()) * (2 * n + 1)
    }
}

/// Reads JSON lines as they arrive.
struct Lines {
    messages: Vec<Message>,
    read: usize,
    torn: Option<String>,
}

impl Lines {
    fn take(&mut self, out: &[u8], ended: bool) {
        while self.torn.is_none() {
            let rest = out.get(self.read..).unwrap_or_default();
            let length = match rest.iter().position(|b| *b == b'\n') {
                Some(at) => at + 1,
                None if ended && !rest.is_empty() => rest.len(),
                None => return,
            };
            let line = rest.get(..length).unwrap_or_default();
            self.read += length;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let message = serde_json::from_slice(line)
                .map_err(|e| e.to_string())
                .and_then(|value: serde_json::Value| Message::from_json(&value));
            match message {
                Ok(message) => self.messages.push(message),
                Err(error) => {
                    let shown: String = String::from_utf8_lossy(line).chars().take(120).collect();
                    self.torn = Some(format!("a line that is no message ({error}): {shown}"));
                }
            }
        }
    }

    fn has_answered(&self, region: &super::Region) -> bool {
        self.messages.iter().any(|m| region.probe.contains(&m.line))
    }
}
