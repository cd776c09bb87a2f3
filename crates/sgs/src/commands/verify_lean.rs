//! `sgs verify --system lean`: verdicts of Lean on a file of proofs.

use crate::args::VerifyArgs;
use crate::exit::{Outcome, Usage};
use crate::lean;
use anyhow::{Context, Result};
use serde::Serialize;
use sgs_formal::FormalSystem;
use sgs_lean::Lean;
use sgs_lean::data::{Import, Skipped, Target, read_text};
use sgs_run::system::check_toolchain;
use sgs_selfplay::Verdict;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// One line of output.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    id: Option<&'a str>,
    pub(super) verdict: Verdict,
    pub(super) reason: String,
    step: Option<u32>,
    micros: u64,
    /// The axioms that the proof rests on, where the checker lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    axioms: Option<Vec<String>>,
    /// What `lean --version` says; absent where Lean was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    lean: Option<String>,
}

/// Checks every proof of the file with Lean.
pub fn run(args: &VerifyArgs) -> Result<Outcome> {
    for (given, name) in [(args.database.is_some(), "--database"), (args.export.is_some(), "--export")] {
        if given {
            return Err(Usage(format!("{name} is for Metamath; Lean has none")).into());
        }
    }
    let settings = lean::settings(&args.lean)?;
    let import = read(&args.file)?;
    let checker = lean::start(&settings)?;
    check_toolchain(&checker, &import.targets, &args.file.display().to_string())?;
    if !args.lean.skip_canaries
        && let Some(first) = import.targets.first()
    {
        checker.canaries(&first.problem.context)?;
        eprintln!("canaries: a theorem is proved, a falsehood and a disguised sorry are refused");
    }
    let mut out = io::stdout().lock();
    let mut counts = Counts::default();
    for s in &import.skipped {
        counts.bad += 1;
        let reason = place(s);
        eprintln!("{reason}");
        let id = (!s.id.is_empty()).then_some(s.id.as_str());
        write(
            &mut out,
            &Line {
                id,
                verdict: Verdict::Malformed,
                reason,
                step: None,
                micros: 0,
                axioms: None,
                lean: None,
            },
        )?;
    }
    verify_all(&checker, &import.targets, |target, line| {
        counts.add(target, &line);
        write(&mut out, &line)
    })?;
    eprintln!("{}", counts.summary());
    Ok(if counts.is_clean() { Outcome::Done } else { Outcome::Failed })
}

fn read(file: &Path) -> Result<Import> {
    if file != Path::new("-") {
        return sgs_run::lean_set::read(file, "");
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text).context("cannot read standard input")?;
    Ok(read_text("standard-input.jsonl", &text, "")?)
}

fn place(skipped: &Skipped) -> String {
    if skipped.line > 0 {
        format!("line {}: {}", skipped.line, skipped.reason)
    } else {
        skipped.reason.clone()
    }
}

fn write(out: &mut impl Write, line: &Line<'_>) -> Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the verdicts")
}

/// Checks all targets at once, as far as the pool goes, and hands out each line in the targets' order.
pub(super) fn verify_all<'t>(
    checker: &Lean,
    targets: &'t [Target],
    mut each: impl FnMut(&'t Target, Line<'t>) -> Result<()>,
) -> Result<()> {
    // Slots that check whole files want them full, and the next ones ready.
    let callers = checker.parallel_verifications().min(targets.len());
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..callers {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while let Some((i, target)) = take(targets, next) {
                    if send.send((i, verify(checker, target))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut waiting = BTreeMap::new();
        let mut due = targets.iter().enumerate();
        let mut wanted = due.next();
        for (i, line) in receive {
            waiting.insert(i, line);
            while let Some((w, target)) = wanted
                && let Some(line) = waiting.remove(&w)
            {
                if let Err(error) = each(target, line) {
                    // Nobody reads on: no further proof is begun.
                    next.store(targets.len(), Ordering::Relaxed);
                    return Err(error);
                }
                wanted = due.next();
            }
        }
        Ok(())
    })
}

fn take<'t>(targets: &'t [Target], next: &AtomicUsize) -> Option<(usize, &'t Target)> {
    let i = next
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |i| (i < targets.len()).then_some(i + 1))
        .ok()?;
    targets.get(i).map(|target| (i, target))
}

fn verify<'t>(checker: &Lean, target: &'t Target) -> Line<'t> {
    let id = Some(target.problem.id.as_str());
    let started = Instant::now();
    let Some(proof) = &target.proof else {
        let reason = "there is no proof in it".to_owned();
        return Line {
            id,
            verdict: Verdict::Malformed,
            reason,
            step: None,
            micros: 0,
            axioms: None,
            lean: None,
        };
    };
    let outcome = checker.outcome(&target.problem, proof);
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    Line {
        id,
        verdict: outcome.verdict,
        reason: outcome.reason,
        step: None,
        micros,
        axioms: outcome.axioms,
        lean: Some(checker.identity().version.text),
    }
}

#[derive(Default)]
struct Counts {
    verdicts: BTreeMap<&'static str, u64>,
    bad: u64,
    infra: u64,
    unexpected: u64,
}

impl Counts {
    fn add(&mut self, target: &Target, line: &Line<'_>) {
        if target.proof.is_none() {
            self.bad += 1;
            eprintln!("`{}`: {}", target.problem.id, line.reason);
            return;
        }
        *self.verdicts.entry(line.verdict.as_str()).or_default() += 1;
        self.infra += u64::from(line.verdict == Verdict::Infra);
        if let Some(expected) = target.expect.filter(|e| *e != line.verdict) {
            self.unexpected += 1;
            let (found, id) = (line.verdict.as_str(), &target.problem.id);
            eprintln!("`{id}`: expected {}, found {found}: {}", expected.as_str(), line.reason);
        }
    }

    fn is_clean(&self) -> bool {
        self.bad == 0 && self.infra == 0 && self.unexpected == 0
    }

    fn summary(&self) -> String {
        let all: u64 = self.verdicts.values().sum();
        let mut text: Vec<String> =
            self.verdicts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
        if self.unexpected > 0 {
            text.push(format!("{} not as the file expects", self.unexpected));
        }
        format!("{all} proofs: {}; {} bad lines", text.join(", "), self.bad)
    }
}
