//! `sgs bench verify`: measures how fast the theorems of a database are verified, with the unifier only and with the judge.

use anyhow::{Result, bail};
use serde::Serialize;
use sgs_base::host::peak_memory;
use sgs_metamath::judge::Judge;
use sgs_metamath::theorem_proofs::{TheoremProof, theorem_proofs};
use sgs_metamath::theory::Theory;
use sgs_metamath::unify::{Goal, ProofLimits, ProofStep, Unifier};
use sgs_selfplay::Verdict;
use std::fmt;
use std::sync::Barrier;
use std::time::{Duration, Instant};

pub struct VerifyBench {
    /// Maximum number of steps of a proof.
    pub steps: usize,
    /// Number of repeats; the fastest counts.
    pub repeats: usize,
    /// Number of threads of the parallel measurement.
    pub threads: usize,
}

#[derive(Clone, Copy, Serialize)]
struct ProofRate {
    one_thread: f64,
    all_threads: f64,
}

#[derive(Serialize)]
pub struct VerifyBenchReport {
    proofs: usize,
    steps: usize,
    repeats: usize,
    threads: usize,
    unifier: ProofRate,
    /// Rate of unifier, expansion and kernel together.
    judge: ProofRate,
    /// Peak resident memory of the process in bytes, if known.
    peak_memory: Option<u64>,
}

impl fmt::Display for VerifyBenchReport {
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

struct Case {
    goal: Goal,
    steps: Vec<ProofStep>,
}

/// Verifies all short proofs of a database repeatedly.
pub fn bench(theory: &Theory, options: &VerifyBench) -> Result<VerifyBenchReport> {
    let cases = cases(theory, options.steps)?;
    let limits = ProofLimits::default();
    let unifier =
        |case: &Case, unifier: &mut Unifier| unifier.check(theory, &case.goal, &case.steps, limits).is_ok();
    let judge = |case: &Case, judge: &mut Judge| {
        judge.decide(theory, &case.goal, &case.steps, limits).verdict == Verdict::Proved
    };
    let (threads, repeats) = (options.threads.max(1), options.repeats.max(1));
    let rate = |time: Duration| cases.len() as f64 / time.as_secs_f64().max(1e-9);
    Ok(VerifyBenchReport {
        proofs: cases.len(),
        steps: cases.iter().map(|c| c.steps.len()).sum(),
        repeats,
        threads,
        unifier: ProofRate {
            one_thread: rate(best_time(&cases, 1, repeats, unifier)),
            all_threads: rate(best_time(&cases, threads, repeats, unifier)),
        },
        judge: ProofRate {
            one_thread: rate(best_time(&cases, 1, repeats, judge)),
            all_threads: rate(best_time(&cases, threads, repeats, judge)),
        },
        peak_memory: peak_memory(),
    })
}

fn cases(theory: &Theory, max_steps: usize) -> Result<Vec<Case>> {
    let mut judge = Judge::new();
    let mut cases = Vec::new();
    for TheoremProof { rule, steps, .. } in theorem_proofs(theory, max_steps) {
        let label = theory.label(rule);
        let goal = match Goal::of_rule(theory, rule) {
            Ok(goal) => goal,
            Err(reason) => bail!("{label}: the theorem is not supported: {reason}"),
        };
        let decision = judge.decide(theory, &goal, &steps, ProofLimits::default());
        if decision.verdict != Verdict::Proved {
            bail!("{label}: the database's own proof is rejected: {}", decision.reason);
        }
        cases.push(Case { goal, steps });
    }
    if cases.is_empty() {
        bail!("the database has no proof of at most {max_steps} steps");
    }
    Ok(cases)
}

/// Returns the shortest time in which `threads` threads verify all cases once, each thread with its own checker.
#[allow(clippy::expect_used, reason = "a panic of a thread is passed on, and there is at least one repeat")]
fn best_time<C: Default>(
    cases: &[Case],
    threads: usize,
    repeats: usize,
    check: impl Fn(&Case, &mut C) -> bool + Sync,
) -> Duration {
    let barrier = Barrier::new(threads);
    // Return the start and end of each repeat on one thread.
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
        handles.into_iter().map(|handle| handle.join().expect("a benchmark thread panicked")).collect()
    });
    let whole = |repeat: usize| {
        let start = times.iter().map(|t| t[repeat].0).min()?;
        let end = times.iter().map(|t| t[repeat].1).max()?;
        Some(end.saturating_duration_since(start))
    };
    (0..repeats).filter_map(whole).min().expect("invariant: there is at least one repeat and one thread")
}
