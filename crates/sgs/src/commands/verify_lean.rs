//! `sgs verify --system lean`: verifies a file of Lean proofs. Writes each verdict as soon as it is known.

use crate::args::VerifyArgs;
use crate::exit::{Outcome, Usage};
use crate::lean;
use crate::output::{counted, unwritten_verdicts};
use anyhow::{Context, Result};
use serde::Serialize;
use sgs_data::lean::{Verified, verify_all};
use sgs_formal::FormalSystem as _;
use sgs_lean::Lean;
use sgs_lean::data::{Import, SkippedRecord, Target, read_text};
use sgs_run::config::system::check_toolchain;
use sgs_selfplay::Verdict;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Instant;

#[derive(Serialize)]
struct VerdictLine<'a> {
    id: Option<&'a str>,
    verdict: Verdict,
    reason: String,
    step: Option<u32>,
    micros: u64,
    /// Axioms that the proof uses, if the checker lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    axioms: Option<Vec<String>>,
    /// Output of `lean --version`; absent if Lean was not called.
    #[serde(skip_serializing_if = "Option::is_none")]
    lean: Option<String>,
}

impl<'a> VerdictLine<'a> {
    fn invalid(id: Option<&'a str>, reason: String) -> Self {
        Self { id, verdict: Verdict::Malformed, reason, step: None, micros: 0, axioms: None, lean: None }
    }
}

/// Verifies every proof of the file with Lean.
pub fn run(args: &VerifyArgs) -> Result<Outcome> {
    for (given, name) in [(args.database.is_some(), "--database"), (args.export.is_some(), "--export")] {
        if given {
            return Err(Usage(format!("{name} applies only to Metamath")).into());
        }
    }
    let mut settings = lean::settings(&args.lean)?;
    // Each line is checked, so that the rate is that of the checkers even if proofs occur again.
    settings.cache = 0;
    let import = read(&args.file)?;
    let checker = lean::start(&settings)?;
    check_toolchain(&checker, &import.targets, &args.file.display().to_string())?;
    if !args.lean.skip_canaries
        && let Some(first) = import.targets.first()
    {
        checker.canaries(&first.problem.context)?;
        eprintln!("canaries: the checker accepts a theorem and rejects a falsehood and a disguised sorry");
    }
    let mut out = io::stdout().lock();
    let mut counts = VerdictCounts::default();
    for s in &import.skipped {
        counts.add_invalid();
        let id = (!s.id.is_empty()).then_some(s.id.as_str());
        write(&mut out, &VerdictLine::invalid(id, place(s)))?;
    }
    let mut rate = RateMeter::new(checker.parallel_verifications() as u64);
    // Do not keep the order of the file, because if this process ended, the results that wait for a slow proof would be
    // lost.
    verify_all(&checker, &import.targets, |target, verified| {
        if verified.outcome.is_some() {
            rate.count();
        }
        let line = line(&checker, target, verified);
        counts.add(target, &line);
        write(&mut out, &line)
    })?;
    eprintln!("{}", counts.summary(&rate));
    let is_clean = counts.is_clean() && (!args.fail_unproved || counts.all_proved());
    Ok(if is_clean { Outcome::Done } else { Outcome::Failed })
}

fn read(file: &Path) -> Result<Import> {
    if file != Path::new("-") {
        return Ok(sgs_run::config::lean_set::read(file, "")?);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text).context("cannot read standard input")?;
    Ok(read_text("standard-input.jsonl", &text, "")?)
}

fn place(skipped: &SkippedRecord) -> String {
    if skipped.line > 0 {
        format!("line {}: {}", skipped.line, skipped.reason)
    } else {
        skipped.reason.clone()
    }
}

fn write(out: &mut impl Write, line: &VerdictLine<'_>) -> Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| unwritten_verdicts(&error))
}

fn line<'t>(checker: &Lean, target: &'t Target, verified: Verified) -> VerdictLine<'t> {
    let id = Some(target.problem.id.as_str());
    let Some(outcome) = verified.outcome else {
        return VerdictLine::invalid(id, "it has no proof".to_owned());
    };
    VerdictLine {
        id,
        verdict: outcome.verdict,
        reason: outcome.reason,
        step: None,
        micros: u64::try_from(verified.time.as_micros()).unwrap_or(u64::MAX),
        axioms: outcome.axioms,
        lean: Some(checker.identity().version.text),
    }
}

#[derive(Default)]
struct VerdictCounts {
    verdicts: BTreeMap<&'static str, u64>,
    bad: u64,
    infra: u64,
    unexpected: u64,
}

impl VerdictCounts {
    fn add(&mut self, target: &Target, line: &VerdictLine<'_>) {
        if target.proof.is_none() {
            self.add_invalid();
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

    fn add_invalid(&mut self) {
        self.bad += 1;
        *self.verdicts.entry(Verdict::Malformed.as_str()).or_default() += 1;
    }

    fn is_clean(&self) -> bool {
        self.bad == 0 && self.infra == 0 && self.unexpected == 0
    }

    fn all_proved(&self) -> bool {
        self.verdicts.keys().all(|verdict| *verdict == Verdict::Proved.as_str())
    }

    fn summary(&self, rate: &RateMeter) -> String {
        let all: u64 = self.verdicts.values().sum();
        let mut text: Vec<String> =
            self.verdicts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
        if self.unexpected > 0 {
            text.push(format!("{} unexpected", self.unexpected));
        }
        format!(
            "{} in {}: {}; {}",
            counted(all as usize, "line"),
            rate.describe(Instant::now()),
            text.join(", "),
            counted(self.bad as usize, "invalid line")
        )
    }
}

/// Measures the proofs checked per second: in all, and after the first ones, in whose time the checkers import the header.
struct RateMeter {
    started: Instant,
    /// Number of proofs that the checkers take at once. After as many verdicts, the imports have ended.
    first: u64,
    /// When the last of the first proofs was checked.
    warm: Option<Instant>,
    checked: u64,
}

impl RateMeter {
    fn new(first: u64) -> Self {
        Self { started: Instant::now(), first, warm: None, checked: 0 }
    }

    fn count(&mut self) {
        self.checked += 1;
        if self.checked == self.first {
            self.warm = Some(Instant::now());
        }
    }

    /// Describes time and rates until `now`. Leaves out the second rate if fewer proofs than the first ones were checked
    /// afterwards.
    fn describe(&self, now: Instant) -> String {
        let per_second =
            |proofs: u64, since: Instant| proofs as f64 / now.duration_since(since).as_secs_f64().max(1e-9);
        let seconds = now.duration_since(self.started).as_secs_f64();
        let mut text = format!("{seconds:.1} s, {:.1} per second", per_second(self.checked, self.started));
        if let Some(warm) = self.warm.filter(|_| self.checked >= 2 * self.first) {
            let rate = per_second(self.checked - self.first, warm);
            text += &format!(" ({rate:.1} after the first {})", self.first);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    #[test]
    fn the_second_rate_leaves_out_the_imports() {
        let mut rate = RateMeter::new(4);
        let start = rate.started;
        (0..3).for_each(|_| rate.count());
        assert_eq!(rate.warm, None);
        rate.count();
        assert!(rate.warm.is_some());
        // The first four take 10 s, the next four 2 s.
        rate.warm = Some(start + Duration::from_secs(10));
        let end = start + Duration::from_secs(12);
        assert_eq!(rate.describe(end), "12.0 s, 0.3 per second");
        (0..4).for_each(|_| rate.count());
        assert_eq!(rate.describe(end), "12.0 s, 0.7 per second (2.0 after the first 4)");
    }

    #[test]
    fn proofs_are_all_proved_only_without_other_verdicts() {
        let mut counts = VerdictCounts::default();
        counts.verdicts.insert(Verdict::Proved.as_str(), 2);
        assert!(counts.all_proved() && counts.is_clean());
        counts.verdicts.insert(Verdict::Refused.as_str(), 1);
        assert!(!counts.all_proved() && counts.is_clean());
    }
}
