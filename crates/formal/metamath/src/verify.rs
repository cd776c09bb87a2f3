//! Verdicts on a file of problems with proofs: JSON Lines in, JSON Lines out, in order and in bounded memory.
//!
//! A line of input is
//! `{"id": "…", "context": "label", "distinct": [["x", "y"], …], "hypotheses": ["|- …", …], "conclusion": "|- …",
//! "proof": ["h1", "syl", …]}`; `context`, `distinct` and `hypotheses` may be left out. `conclusion`, which may be
//! called `statement`, takes a whole statement, canonical or as it is printed; `proof` may be one text. Fields that are
//! none of these are reported. A line of output is
//! `{"id", "verdict", "reason", "step", "micros"}`. Lines that are no problem at all (no JSON, a statement that does
//! not parse, an unknown context) are *bad*: they get the verdict `malformed` with their number in the reason, and
//! are counted apart from proofs that are malformed.

use crate::export::{ExportError, Exporter};
use crate::judge::Judge;
use crate::printed;
use crate::proof::ProofOp;
use crate::proof_text::read_steps;
use crate::statement::{Statement, StatementLimits, context_limit};
use crate::theory::Theory;
use crate::unify::{Goal, ProofLimits, RuleBook};
use rayon::prelude::*;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sgs_selfplay::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Instant;

/// How to verify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Threads; 0 means one for each core.
    pub threads: usize,
    pub proofs: ProofLimits,
    pub statements: StatementLimits,
}

/// Longer lines are bad, and are not kept.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Lines are checked in batches: those that have arrived, at most this many of them …
const BATCH_LINES: usize = 2_048;
/// … and about this many bytes.
const BATCH_BYTES: usize = 8 << 20;
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Why verification stopped before the end of the input.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The input cannot be read.
    #[error("line {line}: cannot read the input: {error}")]
    Read {
        /// The line at which it failed, from 1.
        line: u64,
        error: io::Error,
    },
    /// The output cannot be written.
    #[error("cannot write the verdicts: {0}")]
    Write(io::Error),
    /// The exported file cannot be written.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The threads cannot be started.
    #[error("cannot start {0} threads: {1}")]
    Threads(usize, String),
}

/// Counts of a whole input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifySummary {
    /// Lines that are not blank.
    pub lines: u64,
    pub proved: u64,
    /// Proofs that do not.
    pub refused: u64,
    /// Proofs that could not be read; bad lines are not among them.
    pub malformed: u64,
    /// Proofs that passed a bound.
    pub resource: u64,
    /// Disagreements of unifier and kernel: defects of the checker.
    pub infra: u64,
    /// Lines that are no problem.
    pub bad_lines: u64,
    /// Proofs that hold and could not be exported.
    pub not_exported: u64,
    /// Time in the checker over all threads, microseconds.
    pub checker_micros: u64,
}

impl VerifySummary {
    /// Whether everything in the input could be decided: no bad line, no `infra`, nothing left out of the export.
    pub fn is_clean(&self) -> bool {
        self.bad_lines == 0 && self.infra == 0 && self.not_exported == 0
    }

    fn count(&mut self, line: &Checked) {
        self.lines += 1;
        self.checker_micros += line.output.micros;
        let counter = match line.output.verdict {
            _ if line.bad => &mut self.bad_lines,
            Verdict::Proved => &mut self.proved,
            Verdict::Refused => &mut self.refused,
            Verdict::Malformed => &mut self.malformed,
            Verdict::Resource => &mut self.resource,
            Verdict::Infra => &mut self.infra,
        };
        *counter += 1;
    }
}

impl fmt::Display for VerifySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} proofs: {} proved, {} refused, {} malformed, {} resource, {} infra; {} bad lines",
            self.lines - self.bad_lines,
            self.proved,
            self.refused,
            self.malformed,
            self.resource,
            self.infra,
            self.bad_lines
        )?;
        if self.not_exported > 0 {
            write!(f, "; {} proved and not exported", self.not_exported)?;
        }
        write!(f, "; {:.3} s in the checker", self.checker_micros as f64 / 1e6)
    }
}

#[derive(Deserialize)]
struct InputLine {
    id: String,
    #[serde(default)]
    context: Option<String>,
    #[serde(default)]
    distinct: Vec<Vec<String>>,
    #[serde(default)]
    hypotheses: Vec<String>,
    #[serde(default)]
    conclusion: Option<String>,
    #[serde(default)]
    statement: Option<String>,
    proof: ProofText,
    /// What was found with a proof, for people: nothing of it is checked.
    #[serde(default, rename = "found")]
    _found: Option<IgnoredAny>,
    #[serde(flatten)]
    unknown: BTreeMap<String, IgnoredAny>,
}

/// The fields of a line of input, for those who write another.
const FIELDS: &str = "id, context, statement, distinct, hypotheses, conclusion, proof, found";

/// A proof as a list of steps, or as they are printed.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the proof is neither a list of steps nor a text of them")]
enum ProofText {
    Steps(Vec<String>),
    Line(String),
}

impl ProofText {
    fn steps(&self) -> Vec<&str> {
        match self {
            Self::Steps(steps) => steps.iter().map(String::as_str).collect(),
            Self::Line(line) => line.split_ascii_whitespace().collect(),
        }
    }
}

/// Only the id of a line of which the rest does not fit.
#[derive(Deserialize)]
struct InputId {
    id: String,
}

#[derive(Serialize)]
struct OutputLine {
    id: Option<String>,
    verdict: Verdict,
    reason: String,
    step: Option<u32>,
    micros: u64,
}

/// A line with its verdict.
struct Checked {
    number: u64,
    bad: bool,
    output: OutputLine,
    /// Goal and full proof, where they are wanted and the proof holds.
    proof: Option<Box<(Goal, Vec<ProofOp>)>>,
    /// Fields that mean nothing here.
    unknown: Vec<String>,
}

/// Checks every line of `input` and writes a verdict for each to `output`, in the same order. Accepted proofs go to
/// `export`, which the caller finishes. `report` gets a message for each line that is bad or cannot be exported.
///
/// # Errors
/// Only if reading or writing fails.
pub fn verify(
    theory: &Theory,
    book: &RuleBook,
    input: &mut dyn Read,
    output: &mut dyn Write,
    mut export: Option<&mut Exporter<'_>>,
    report: &mut dyn FnMut(&str),
    options: VerifyOptions,
) -> Result<VerifySummary, VerifyError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()
        .map_err(|e| VerifyError::Threads(options.threads, e.to_string()))?;
    let mut summary = VerifySummary::default();
    let mut lines = Lines { input: BufReader::with_capacity(BUFFER_BYTES, input), number: 0 };
    let keep = export.is_some();
    let mut unknown = BTreeSet::new();
    loop {
        let batch = lines.batch()?;
        if batch.is_empty() {
            break;
        }
        let checked: Vec<Checked> = pool.install(|| {
            batch
                .par_iter()
                .with_min_len(16)
                .map_init(Judge::new, |judge, line| check_line(theory, book, judge, line, options, keep))
                .collect()
        });
        for line in &checked {
            if line.bad {
                report(&line.output.reason);
            }
            for field in &line.unknown {
                if unknown.insert(field.clone()) {
                    report(&format!(
                        "line {}: no field is called `{field}`, it is ignored; there are {FIELDS}",
                        line.number
                    ));
                }
            }
            if let (Some(export), Some(proof)) = (export.as_deref_mut(), &line.proof) {
                let id = line.output.id.as_deref().unwrap_or_default();
                match export.add(id, "", &proof.0, &proof.1) {
                    Err(error @ ExportError::Io { .. }) => return Err(error.into()),
                    Err(error) => {
                        summary.not_exported += 1;
                        report(&format!("line {}: `{id}` is not exported: {error}", line.number));
                    }
                    Ok(_) => {}
                }
            }
            summary.count(line);
            serde_json::to_writer(&mut *output, &line.output).map_err(|e| VerifyError::Write(e.into()))?;
            output.write_all(b"\n").map_err(VerifyError::Write)?;
        }
        output.flush().map_err(VerifyError::Write)?;
    }
    Ok(summary)
}

/// A line of input: its number and its bytes, or how long it is if it is too long.
struct Line {
    number: u64,
    text: Result<Vec<u8>, u64>,
}

struct Lines<'a> {
    input: BufReader<&'a mut dyn Read>,
    number: u64,
}

impl Lines<'_> {
    /// The next lines that are not blank, as many as can be had without waiting, but at least one; none at the end.
    fn batch(&mut self) -> Result<Vec<Line>, VerifyError> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_LINES && bytes < BATCH_BYTES {
            if !batch.is_empty() && self.input.buffer().is_empty() {
                break;
            }
            let Some(line) = self.next()? else { break };
            let blank = line.text.as_ref().is_ok_and(|t| t.trim_ascii().is_empty());
            if !blank {
                bytes += line.text.as_ref().map_or(0, Vec::len);
                batch.push(line);
            }
        }
        Ok(batch)
    }

    fn next(&mut self) -> Result<Option<Line>, VerifyError> {
        let (mut text, mut length, mut ended) = (Vec::new(), 0u64, false);
        while !ended {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(VerifyError::Read { line: self.number + 1, error }),
            };
            if chunk.is_empty() {
                break;
            }
            let end = chunk.iter().position(|&b| b == b'\n');
            ended = end.is_some();
            let (part, used) = end.map_or((chunk, chunk.len()), |n| (&chunk[..n], n + 1));
            length += part.len() as u64;
            if length <= MAX_LINE_BYTES as u64 {
                text.extend_from_slice(part);
            } else {
                text = Vec::new();
            }
            self.input.consume(used);
        }
        if length == 0 && !ended {
            return Ok(None);
        }
        self.number += 1;
        let text = if length <= MAX_LINE_BYTES as u64 { Ok(text) } else { Err(length) };
        Ok(Some(Line { number: self.number, text }))
    }
}

fn check_line(
    theory: &Theory,
    book: &RuleBook,
    judge: &mut Judge,
    line: &Line,
    options: VerifyOptions,
    keep: bool,
) -> Checked {
    let start = Instant::now();
    let micros = || u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let (input, goal) = match read_line(theory, line, options) {
        Ok(problem) => problem,
        Err((id, reason)) => {
            let reason = format!("line {}: {reason}", line.number);
            let output = OutputLine { id, verdict: Verdict::Malformed, reason, step: None, micros: micros() };
            return Checked { number: line.number, bad: true, output, proof: None, unknown: Vec::new() };
        }
    };
    let (verdict, reason, step, ops) = match read_steps(theory, goal.hypothesis_count(), input.proof.steps())
    {
        Err(e) => (Verdict::Malformed, e.to_string(), e.step, None),
        Ok(steps) => match judge.prove(theory, book, &goal, &steps, options.proofs) {
            Ok(ops) => (Verdict::Proved, String::new(), None, Some(ops)),
            Err(d) => (d.verdict, d.reason, d.step, None),
        },
    };
    let output = OutputLine { id: Some(input.id), verdict, reason, step, micros: micros() };
    let proof = ops.filter(|_| keep).map(|ops| Box::new((goal, ops)));
    let unknown = input.unknown.into_keys().collect();
    Checked { number: line.number, bad: false, output, proof, unknown }
}

/// Reads a line as a problem with a proof; on failure gives the line's id, if that can be read, and the reason.
fn read_line(
    theory: &Theory,
    line: &Line,
    options: VerifyOptions,
) -> Result<(InputLine, Goal), (Option<String>, String)> {
    let text = match &line.text {
        Ok(text) => text,
        Err(n) => return Err((None, format!("{n} bytes, more than {MAX_LINE_BYTES}"))),
    };
    // Editors of another system begin a file so.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let input: InputLine = serde_json::from_slice(text).map_err(|e| {
        let id = serde_json::from_slice::<InputId>(text).ok().map(|i| i.id);
        (id, json_message(&e))
    })?;
    match goal_of(theory, &input, options.statements) {
        Ok(goal) => Ok((input, goal)),
        Err(reason) => Err((Some(input.id), reason)),
    }
}

/// What `serde_json` says, with the column alone: its line is always 1.
fn json_message(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("column {}: {what}", e.column())
}

fn goal_of(theory: &Theory, input: &InputLine, limits: StatementLimits) -> Result<Goal, String> {
    let before = context_limit(theory, input.context.as_deref().unwrap_or("")).map_err(|e| e.to_string())?;
    let stated = match (&input.statement, &input.conclusion) {
        (Some(_), Some(_)) => return Err("it has both `statement` and `conclusion`: give one".to_owned()),
        (None, None) => {
            let unknown: Vec<String> = input.unknown.keys().map(|field| format!("`{field}`")).collect();
            let instead = match unknown.is_empty() {
                true => String::new(),
                false => format!(", but {}; there are {FIELDS}", unknown.join(", ")),
            };
            return Err(format!("it has neither `statement` nor `conclusion`{instead}"));
        }
        (Some(text), None) | (None, Some(text)) => text,
    };
    let mut text = printed::split(theory, stated).map_err(|e| e.to_string())?;
    let listed = input.hypotheses.iter().map(|h| printed::formula(h));
    text.hypotheses.splice(0..0, listed);
    text.distinct.extend(input.distinct.iter().map(|g| g.iter().map(String::as_str).collect()));
    let statement = Statement::from_person(theory, &text, limits).map_err(|e| e.to_string())?;
    Goal::new(theory, &statement, before)
}
