//! How fast proofs are checked: the theory's own proofs, by the unifier alone and with the kernel.

use crate::judge::{Judge, TrueProof, true_proofs};
use crate::theory::Theory;
use crate::unify::{Checker, Goal, ProofLimits, RuleBook, Step};
use serde::Serialize;
use sgs_selfplay::Verdict;
use std::fmt;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchOptions {
    /// Proofs with more steps are left out.
    pub steps: usize,
    /// How often everything is checked; the fastest counts.
    pub repeats: usize,
    /// Threads of the parallel measurement.
    pub threads: usize,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self { steps: 60, repeats: 20, threads: 2 }
    }
}

/// Proofs per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    pub one_thread: f64,
    /// On [`BenchReport::threads`] threads together.
    pub all_threads: f64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// Proofs of the theory that were checked.
    pub proofs: usize,
    /// Their steps in all.
    pub steps: usize,
    /// How often all of them were checked; the fastest time counts.
    pub repeats: usize,
    /// Threads of the parallel measurement.
    pub threads: usize,
    pub unifier: Rate,
    /// Unifier, expansion and kernel.
    pub judge: Rate,
    /// Peak resident memory of the process, bytes, where the system tells.
    pub peak_memory: Option<u64>,
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = self.steps as f64 / self.proofs.max(1) as f64;
        writeln!(f, "{} proofs, {mean:.1} steps on average; best of {} repeats", self.proofs, self.repeats)?;
        writeln!(f, "{:<22}{:>16}{:>16}{:>10}", "proofs per second", "1 thread", "all threads", "scaling")?;
        for (name, rate) in [("unifier", self.unifier), ("unifier and kernel", self.judge)] {
            writeln!(
                f,
                "{name:<22}{:>16.0}{:>16.0}{:>9.2}x  ({} threads)",
                rate.one_thread,
                rate.all_threads,
                rate.all_threads / rate.one_thread,
                self.threads
            )?;
        }
        match self.peak_memory {
            Some(bytes) => write!(f, "peak memory {:.0} MB", bytes as f64 / 1e6),
            None => write!(f, "peak memory unknown on this system"),
        }
    }
}

/// Why there is nothing to measure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BenchError {
    /// The theory has no proofs that are short enough.
    #[error("the database has no proof of at most {0} steps")]
    NoProofs(usize),
    /// A proof of the database is not accepted.
    #[error("{label}: the database's own proof is not accepted: {reason}")]
    NotAccepted { label: String, reason: String },
}

/// A theorem and its proof.
struct Case {
    goal: Goal,
    steps: Vec<Step>,
}

/// Checks all short proofs of the theory again and again.
///
/// # Errors
/// If there are none, or one is not accepted.
pub fn bench(theory: &Theory, book: &RuleBook, options: BenchOptions) -> Result<BenchReport, BenchError> {
    let cases = cases(theory, book, options)?;
    let limits = ProofLimits::default();
    let unifier = |case: &Case, checker: &mut Checker| {
        checker.check(theory, book, &case.goal, &case.steps, limits).is_ok()
    };
    let judge = |case: &Case, judge: &mut Judge| {
        judge.decide(theory, book, &case.goal, &case.steps, limits).verdict == Verdict::Proved
    };
    let (threads, repeats) = (options.threads.max(1), options.repeats.max(1));
    let rate = |time: Duration| cases.len() as f64 / time.as_secs_f64().max(1e-9);
    Ok(BenchReport {
        proofs: cases.len(),
        steps: cases.iter().map(|c| c.steps.len()).sum(),
        repeats,
        threads,
        unifier: Rate {
            one_thread: rate(best_time(&cases, 1, repeats, unifier)),
            all_threads: rate(best_time(&cases, threads, repeats, unifier)),
        },
        judge: Rate {
            one_thread: rate(best_time(&cases, 1, repeats, judge)),
            all_threads: rate(best_time(&cases, threads, repeats, judge)),
        },
        peak_memory: peak_memory(),
    })
}

fn cases(theory: &Theory, book: &RuleBook, options: BenchOptions) -> Result<Vec<Case>, BenchError> {
    let mut judge = Judge::new();
    let proofs = true_proofs(theory, options.steps);
    let mut cases = Vec::with_capacity(proofs.len());
    for TrueProof { rule, steps, .. } in proofs {
        let fail = |reason| BenchError::NotAccepted { label: theory.label(rule).to_owned(), reason };
        let goal = Goal::of_rule(theory, rule).map_err(fail)?;
        let decision = judge.decide(theory, book, &goal, &steps, ProofLimits::default());
        if decision.verdict != Verdict::Proved {
            return Err(fail(decision.reason));
        }
        cases.push(Case { goal, steps });
    }
    if cases.is_empty() { Err(BenchError::NoProofs(options.steps)) } else { Ok(cases) }
}

/// The shortest time in which `threads` threads check all cases once, each thread with a checker of its own.
fn best_time<C: Default>(
    cases: &[Case],
    threads: usize,
    repeats: usize,
    check: impl Fn(&Case, &mut C) -> bool + Sync,
) -> Duration {
    let barrier = Barrier::new(threads);
    // One repeat of one thread: when it began and when it ended.
    let run = |number: usize| -> Vec<(Instant, Instant)> {
        let mut checker = C::default();
        let time_one = |_| {
            barrier.wait();
            let start = Instant::now();
            for case in cases.iter().skip(number).step_by(threads) {
                std::hint::black_box(check(case, &mut checker));
            }
            (start, Instant::now())
        };
        (0..repeats).map(time_one).collect()
    };
    let times: Vec<Vec<(Instant, Instant)>> = std::thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..threads).map(|n| scope.spawn(move || run(n))).collect();
        handles.into_iter().filter_map(|h| h.join().ok()).collect()
    });
    let whole = |repeat: usize| {
        let start = times.iter().map(|t| t[repeat].0).min()?;
        let end = times.iter().map(|t| t[repeat].1).max()?;
        Some(end.saturating_duration_since(start))
    };
    (0..repeats).filter_map(whole).min().unwrap_or_default()
}

/// The process's peak resident set (`VmHWM`), bytes.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;

    #[test]
    fn measures_the_small_database() {
        let text = include_bytes!("../tests/data/mini.mm");
        let theory = Theory::new(Database::parse("mini.mm", *text).unwrap()).unwrap();
        let book = RuleBook::new(&theory);
        let report = bench(&theory, &book, BenchOptions { repeats: 2, ..BenchOptions::default() }).unwrap();
        assert!(report.proofs > 500 && report.steps > report.proofs);
        assert!(report.unifier.one_thread > 0.0 && report.judge.one_thread > 0.0);
        let text = report.to_string();
        assert!(text.contains("unifier and kernel") && text.contains("2 threads"), "{text}");
        if cfg!(target_os = "linux") {
            assert!(report.peak_memory.unwrap() > 1_000_000);
        }
    }

    #[test]
    fn nothing_to_measure_is_an_error() {
        let text = b"$c wff |- $. $v p $. fp $f wff p $. a $a |- p $.";
        let theory = Theory::new(Database::parse("axioms.mm", *text).unwrap()).unwrap();
        let book = RuleBook::new(&theory);
        let none = bench(&theory, &book, BenchOptions::default());
        assert_eq!(none, Err(BenchError::NoProofs(60)));
    }
}
