//! Verifies a file of problems with proofs. Input and output are JSON Lines, in the same order, and memory is bounded.
//!
//! An input line is
//! `{"id": "…", "context": "label", "distinct": [["x", "y"], …], "hypotheses": ["|- …", …], "conclusion": "|- …",
//! "proof": ["h1", "syl", …]}`. `context`, `distinct` and `hypotheses` are optional. `conclusion`, which may also be called
//! `statement`, can be a whole statement in canonical text or in human-readable notation. `proof` may be a single string.
//! Unknown fields are reported. An output line is `{"id", "verdict", "reason", "step", "micros"}`.
//!
//! A line without a valid problem (invalid JSON, a statement that does not parse, an unknown context) is *bad*. It gets the
//! verdict `malformed` with its line number in the reason, and is also counted as an invalid line.

use crate::export::{ExportError, Exporter};
use crate::judge::Judge;
use crate::notation;
use crate::proof::ProofOp;
use crate::proof_text::read_steps;
use crate::statement::{Statement, StatementLimits, context_limit};
use crate::theory::Theory;
use crate::unify::{Goal, ProofLimits};
use rayon::prelude::*;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sgs_selfplay::{Judgement, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc;
use std::time::Instant;

/// Options of [`verify`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Number of threads; 0 for one per core.
    pub threads: usize,
    /// Limits of proofs.
    pub proofs: ProofLimits,
    /// Limits of statements.
    pub statements: StatementLimits,
}

/// Maximum length of a line. Longer lines are bad and are not kept in memory.
pub const MAX_LINE_BYTES: usize = 1 << 20;
const BATCH_LINES: usize = 2_048;
/// Approximate maximum number of bytes in a batch.
const BATCH_BYTES: usize = 8 << 20;
const BUFFER_BYTES: usize = 1 << 20;

/// A message of [`verify`] about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineMessage<'a> {
    /// A line is bad.
    Bad {
        /// Why. The line's verdict contains this reason.
        reason: &'a str,
        /// Whether the line has all fields. Then its statement or its context is not one of this database.
        is_complete: bool,
    },
    /// A warning that no verdict contains.
    Warning(&'a str),
}

/// Why verification stopped before the end of the input.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum VerifyError {
    #[error("line {line}: cannot read the input: {error}")]
    Read { line: u64, error: io::Error },
    #[error("cannot write the verdicts: {0}")]
    Write(io::Error),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("cannot start {0} threads: {1}")]
    Threads(usize, String),
}

/// Statistics of a verified file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifySummary {
    /// Number of non-blank lines.
    pub lines: u64,
    /// Number of valid proofs.
    pub proved: u64,
    /// Number of invalid proofs.
    pub refused: u64,
    /// Number of malformed proofs, without bad lines.
    pub malformed: u64,
    /// Number of proofs that exceeded a limit.
    pub resource: u64,
    /// Number of disagreements between unifier and kernel, which are bugs.
    pub infra: u64,
    /// Number of lines without a valid problem.
    pub bad_lines: u64,
    /// Number of valid proofs that could not be exported.
    pub not_exported: u64,
    /// Time in the checker, summed over all threads, in microseconds.
    pub checker_micros: u64,
}

impl VerifySummary {
    /// Returns whether every line was decided and exported: without bad lines, `infra` verdicts or failed exports.
    pub fn is_clean(&self) -> bool {
        self.bad_lines == 0 && self.infra == 0 && self.not_exported == 0
    }

    fn count(&mut self, line: &CheckedLine) {
        self.lines += 1;
        self.checker_micros += line.output.judgement.micros;
        let counter = match line.output.judgement.verdict {
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
        let Self { lines, proved, refused, resource, infra, bad_lines, .. } = self;
        let malformed = self.malformed + bad_lines;
        let plural = if *lines == 1 { "" } else { "s" };
        write!(f, "{lines} line{plural}: {proved} proved, {refused} refused, {malformed} malformed")?;
        if *bad_lines > 0 {
            write!(f, " ({bad_lines} invalid line{})", if *bad_lines == 1 { "" } else { "s" })?;
        }
        write!(f, ", {resource} resource, {infra} infra")?;
        if self.not_exported > 0 {
            write!(f, "; {} proved and not exported", self.not_exported)?;
        }
        write!(f, "; {:.3} s in the checker", self.checker_micros as f64 / 1e6)
    }
}

#[derive(Deserialize)]
#[serde(expecting = "an object {…}")]
struct VerifyInput {
    id: String,
    context: Option<String>,
    #[serde(default)]
    distinct: Vec<Vec<String>>,
    #[serde(default)]
    hypotheses: Vec<String>,
    conclusion: Option<String>,
    statement: Option<String>,
    proof: ProofText,
    /// Information about the proof for the user; not checked.
    #[serde(default, rename = "found")]
    _found: Option<IgnoredAny>,
    #[serde(flatten)]
    unknown: BTreeMap<String, IgnoredAny>,
}

/// The fields of an input line, for error messages.
const FIELDS: &str = "id, context, statement, distinct, hypotheses, conclusion, proof, found";

/// A proof as a list of steps or as a single string.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the proof must be a list of steps or a string of steps")]
enum ProofText {
    Steps(Vec<String>),
    Text(String),
}

impl ProofText {
    fn steps(&self) -> Vec<&str> {
        match self {
            Self::Steps(steps) => steps.iter().map(String::as_str).collect(),
            Self::Text(text) => text.split_ascii_whitespace().collect(),
        }
    }
}

/// The id of a line whose other fields are invalid.
#[derive(Deserialize)]
struct InputId {
    id: String,
}

#[derive(Serialize)]
struct VerifyOutput {
    id: Option<String>,
    #[serde(flatten)]
    judgement: Judgement,
}

struct CheckedLine {
    number: u64,
    bad: bool,
    /// Whether the line has all fields.
    is_complete: bool,
    output: VerifyOutput,
    /// Goal and full proof of a valid proof, if it is to be exported.
    proof: Option<Box<(Goal, Vec<ProofOp>)>>,
    unknown: Vec<String>,
}

/// Verifies every line of `input` and writes their verdicts to `output` in the same order. Valid proofs are added to
/// `export`, which the caller must finish. `report` is called with a message for each line that is bad or cannot be
/// exported, and for each unknown field.
pub fn verify(
    theory: &Theory,
    input: &mut dyn Read,
    output: &mut dyn Write,
    mut export: Option<&mut Exporter<'_>>,
    report: &mut dyn FnMut(LineMessage<'_>),
    options: VerifyOptions,
) -> Result<VerifySummary, VerifyError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()
        .map_err(|e| VerifyError::Threads(options.threads, e.to_string()))?;
    let mut summary = VerifySummary::default();
    let mut lines = LineReader { input: BufReader::with_capacity(BUFFER_BYTES, input), number: 0 };
    let keep = export.is_some();
    let mut unknown = BTreeSet::new();
    loop {
        let batch = lines.batch()?;
        if batch.is_empty() {
            break;
        }
        let check = |judge: &mut Judge, line: &RawLine| check_line(theory, judge, line, options, keep);
        let mut write = |line: &CheckedLine| -> Result<(), VerifyError> {
            if line.bad {
                let reason = &line.output.judgement.reason;
                report(LineMessage::Bad { reason, is_complete: line.is_complete });
            }
            for field in &line.unknown {
                if unknown.insert(field.clone()) {
                    report(LineMessage::Warning(&format!(
                        "line {}: unknown field `{field}` is ignored; known fields: {FIELDS}",
                        line.number
                    )));
                }
            }
            if let (Some(export), Some(proof)) = (export.as_deref_mut(), &line.proof) {
                #[allow(clippy::expect_used, reason = "only lines with an id are judged")]
                let id = line.output.id.as_deref().expect("invariant: a line with a proof has an id");
                match export.add(id, "", &proof.0, &proof.1) {
                    Err(error @ ExportError::Io { .. }) => return Err(error.into()),
                    Err(error) => {
                        summary.not_exported += 1;
                        let text = format!("line {}: `{id}` is not exported: {error}", line.number);
                        report(LineMessage::Warning(&text));
                    }
                    Ok(_) => {}
                }
            }
            summary.count(line);
            serde_json::to_writer(&mut *output, &line.output).map_err(|e| VerifyError::Write(e.into()))?;
            output.write_all(b"\n").map_err(VerifyError::Write)
        };
        check_in_order(&pool, &batch, check, &mut write)?;
        output.flush().map_err(VerifyError::Write)?;
    }
    Ok(summary)
}

/// Checks the lines of a batch in parallel and passes each one to `write` as soon as it and all lines before it are checked.
fn check_in_order(
    pool: &rayon::ThreadPool,
    batch: &[RawLine],
    check: impl Fn(&mut Judge, &RawLine) -> CheckedLine + Sync,
    write: &mut dyn FnMut(&CheckedLine) -> Result<(), VerifyError>,
) -> Result<(), VerifyError> {
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let send = send;
            pool.install(|| {
                batch.par_iter().enumerate().with_min_len(16).try_for_each_init(
                    || (Judge::new(), send.clone()),
                    // Sending fails after a failed write. The remaining lines are then not checked.
                    |(judge, send), (number, line)| send.send((number, check(judge, line))).ok(),
                )
            })
        });
        let (mut waiting, mut next) = (BTreeMap::new(), 0);
        for (number, line) in receive {
            waiting.insert(number, line);
            while let Some(line) = waiting.remove(&next) {
                write(&line)?;
                next += 1;
            }
        }
        Ok(())
    })
}

/// An input line: its number, and its bytes, unless it is too long.
struct RawLine {
    number: u64,
    text: Option<Vec<u8>>,
}

struct LineReader<'a> {
    input: BufReader<&'a mut dyn Read>,
    number: u64,
}

impl LineReader<'_> {
    /// Returns the next non-blank lines that are available without blocking, but at least one; none at the end of the input.
    fn batch(&mut self) -> Result<Vec<RawLine>, VerifyError> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_LINES && bytes < BATCH_BYTES {
            if !batch.is_empty() && self.input.buffer().is_empty() {
                break;
            }
            let Some(line) = self.next()? else { break };
            let blank = line.text.as_ref().is_some_and(|t| t.trim_ascii().is_empty());
            if !blank {
                bytes += line.text.as_ref().map_or(0, Vec::len);
                batch.push(line);
            }
        }
        Ok(batch)
    }

    fn next(&mut self) -> Result<Option<RawLine>, VerifyError> {
        let line = self.number + 1;
        let failed = |error| VerifyError::Read { line, error };
        let mut text = Vec::new();
        let mut start = self.input.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        start.read_until(b'\n', &mut text).map_err(failed)?;
        if text.is_empty() {
            return Ok(None);
        }
        self.number = line;
        if text.last() == Some(&b'\n') {
            text.pop();
        } else if text.len() > MAX_LINE_BYTES {
            self.input.skip_until(b'\n').map_err(failed)?;
            return Ok(Some(RawLine { number: line, text: None }));
        }
        Ok(Some(RawLine { number: line, text: Some(text) }))
    }
}

fn check_line(
    theory: &Theory,
    judge: &mut Judge,
    line: &RawLine,
    options: VerifyOptions,
    keep: bool,
) -> CheckedLine {
    let start = Instant::now();
    let micros = || u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let (input, goal) = match read_line(theory, line, options) {
        Ok(problem) => problem,
        Err(BadLine { id, reason, is_complete }) => {
            let reason = format!("line {}: {reason}", line.number);
            let judgement = Judgement { verdict: Verdict::Malformed, reason, step: None, micros: micros() };
            let output = VerifyOutput { id, judgement };
            let number = line.number;
            return CheckedLine { number, bad: true, is_complete, output, proof: None, unknown: Vec::new() };
        }
    };
    let (verdict, reason, step, ops) = match read_steps(theory, goal.hypothesis_count(), input.proof.steps())
    {
        Err(e) => (Verdict::Malformed, e.to_string(), e.step, None),
        Ok(steps) => match judge.prove(theory, &goal, &steps, options.proofs) {
            Ok(ops) => (Verdict::Proved, String::new(), None, Some(ops)),
            Err(j) => (j.verdict, j.reason, j.step, None),
        },
    };
    let judgement = Judgement { verdict, reason, step, micros: micros() };
    let output = VerifyOutput { id: Some(input.id), judgement };
    let proof = ops.filter(|_| keep).map(|ops| Box::new((goal, ops)));
    let unknown = input.unknown.into_keys().collect();
    CheckedLine { number: line.number, bad: false, is_complete: true, output, proof, unknown }
}

/// Why a line is bad.
struct BadLine {
    /// The line's id, if it can be parsed.
    id: Option<String>,
    reason: String,
    is_complete: bool,
}

impl BadLine {
    fn incomplete(id: Option<String>, reason: String) -> Self {
        Self { id, reason, is_complete: false }
    }
}

/// Parses a line as a problem with a proof.
fn read_line(
    theory: &Theory,
    line: &RawLine,
    options: VerifyOptions,
) -> Result<(VerifyInput, Goal), BadLine> {
    let Some(text) = &line.text else {
        return Err(BadLine::incomplete(None, format!("more than {MAX_LINE_BYTES} bytes")));
    };
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    if !text.trim_ascii_start().starts_with(b"{") {
        let expected = "expected a JSON object {…}, as `sgs export RUN --jsonl FILE` writes it";
        return Err(BadLine::incomplete(None, expected.to_owned()));
    }
    let input: VerifyInput = serde_json::from_slice(text).map_err(|e| {
        let id = serde_json::from_slice::<InputId>(text).ok().map(|i| i.id);
        BadLine::incomplete(id, json_message(&e))
    })?;
    match goal_of(theory, &input, options.statements) {
        Ok(goal) => Ok((input, goal)),
        Err(reason) => {
            let is_complete = input.statement.is_some() != input.conclusion.is_some();
            Err(BadLine { id: Some(input.id), reason, is_complete })
        }
    }
}

/// Formats an error of `serde_json` without its line number, which is always 1.
fn json_message(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("column {}: {what}", e.column())
}

fn goal_of(theory: &Theory, input: &VerifyInput, limits: StatementLimits) -> Result<Goal, String> {
    let before = context_limit(theory, input.context.as_deref().unwrap_or("")).map_err(|e| e.to_string())?;
    let stated = match (&input.statement, &input.conclusion) {
        (Some(_), Some(_)) => return Err("both `statement` and `conclusion` are given".to_owned()),
        (None, None) => {
            let unknown: Vec<String> = input.unknown.keys().map(|field| format!("`{field}`")).collect();
            let instead = match unknown.is_empty() {
                true => String::new(),
                false => format!(", but {}; known fields: {FIELDS}", unknown.join(", ")),
            };
            return Err(format!("neither `statement` nor `conclusion` is given{instead}"));
        }
        (Some(text), None) | (None, Some(text)) => text,
    };
    let mut text = notation::split(theory, stated).map_err(|e| e.to_string())?;
    let listed = input.hypotheses.iter().map(|h| notation::formula(h));
    text.hypotheses.splice(0..0, listed);
    text.distinct.extend(input.distinct.iter().map(|g| g.iter().map(String::as_str).collect()));
    let statement = Statement::from_user_parts(theory, &text, limits).map_err(|e| e.to_string())?;
    Goal::new(theory, &statement, before)
}
