//! Re-verifies proofs that remote workers report as valid.
//!
//! If the system verifies one proof at a time (Metamath), this process repeats every check. Otherwise (Lean), if the
//! configuration asks for it, another worker repeats a sample of them, and all proofs of targets that have never been
//! solved.
//!
//! If this process rejects a proof that a worker accepted, it rejects the worker's result. If a second worker rejects a
//! proof that the first accepted, the run stops and names both, because one of them must be faulty.

use crate::error::{Result, RunError, ensure};
use crate::round::record::Entry;
use sgs_fleet::{TaskResult, WorkerName};
use sgs_formal::FormalSystem;
use sgs_selfplay::{Command, Event, Judgement, ProblemId, TaskKey, Verdict};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// Which verdicts are rechecked, and by whom.
#[derive(Debug)]
pub(crate) enum RecheckPolicy {
    /// None: all verdicts come from this process, or workers are trusted.
    Off,
    /// All proofs, by this process.
    Local,
    /// Some proofs, by another worker.
    OtherWorker(RecheckSample),
}

/// Selects the proofs that another worker rechecks.
#[derive(Debug)]
pub(crate) struct RecheckSample {
    /// Targets that no earlier round has solved. All their proofs are rechecked.
    pub unsolved: HashSet<ProblemId>,
    /// Fraction of the remaining proofs to recheck, in 0..=1.
    pub share: f64,
    /// Random for each process, so that workers cannot predict the sample. The choice changes no result.
    pub draw: RandomState,
}

/// A verdict that waits for a second worker. It is kept in memory only, because nothing depends on it. After a crash,
/// both workers are asked again.
#[derive(Debug)]
pub(crate) struct PendingVerdict {
    pub worker: WorkerName,
    /// The worker's results, held until a second worker confirms them.
    pub entries: Vec<Entry>,
}

/// Decision on the verdicts of a task.
#[derive(Debug)]
pub(crate) enum RecheckDecision {
    Accepted(Vec<Entry>),
    /// Wait for a second worker to confirm them.
    Pending(PendingVerdict),
}

impl RecheckPolicy {
    /// Verifies the proofs that a worker reports as valid, if the policy is [`RecheckPolicy::Local`].
    ///
    /// # Errors
    /// Returns an error if the local check disagrees. The worker's result must be discarded.
    pub(crate) fn confirm_locally(
        &self,
        system: &dyn FormalSystem,
        commands: &[Command],
        entries: &[Entry],
        worker: &WorkerName,
    ) -> Result<()> {
        if !matches!(self, Self::Local) {
            return Ok(());
        }
        for (command, entry) in commands.iter().zip(entries) {
            let (Command::Verify { problem, proof, .. }, true) = (command, is_proved(entry)) else {
                continue;
            };
            let own = system.verify(problem, proof);
            ensure!(
                own.verdict == Verdict::Proved,
                "{worker} reports that the proof of {} is valid; checked again here, the verdict is `{}` ({})",
                entry.event.key(),
                own.verdict.as_str(),
                own.reason
            );
        }
        Ok(())
    }

    /// Decides about the entries of a task, which may be the recheck of `first`.
    pub(crate) fn decide(
        &self,
        first: Option<PendingVerdict>,
        ending: &TaskResult,
        entries: Vec<Entry>,
    ) -> Result<RecheckDecision> {
        let worker = match ending {
            TaskResult::Done { worker, .. } => worker,
            // The task failed on every worker. If it was a recheck, the first verdict is dropped with it: nothing can
            // confirm it.
            TaskResult::Quarantined { .. } => return Ok(RecheckDecision::Accepted(entries)),
        };
        match first {
            None if self.needs_recheck(&entries) => {
                Ok(RecheckDecision::Pending(PendingVerdict { worker: worker.clone(), entries }))
            }
            None => Ok(RecheckDecision::Accepted(entries)),
            Some(first) => Ok(RecheckDecision::Accepted(first.joined(worker, entries)?)),
        }
    }

    fn needs_recheck(&self, entries: &[Entry]) -> bool {
        let Self::OtherWorker(sample) = self else { return false };
        entries.iter().any(|entry| is_proved(entry) && sample.contains(entry.event.key()))
    }
}

impl RecheckSample {
    fn contains(&self, key: &TaskKey) -> bool {
        let drawn = || (self.draw.hash_one(key) as f64) < self.share * u64::MAX as f64;
        self.unsolved.contains(&key.problem) || drawn()
    }
}

impl PendingVerdict {
    /// Combines the verdicts of both workers. If the second ran out of time or memory, its verdict counts, so that
    /// every accepted proof has been verified twice.
    ///
    /// # Errors
    /// Returns an error if the second worker rejects a proof that the first accepted.
    fn joined(self, second: &WorkerName, others: Vec<Entry>) -> Result<Vec<Entry>> {
        let worker = &self.worker;
        let join = |(first, other): (Entry, Entry)| match judgement(&other) {
            Some(judged) if is_proved(&first) && judged.verdict != Verdict::Proved => match judged.verdict {
                Verdict::Refused | Verdict::Malformed => Err(RunError::Disagreement(format!(
                    "{worker} reports that the proof of {} is valid, {second} reports `{}` ({}): at least one of them is \
                     faulty. This result was not counted, but earlier ones of {worker} may be wrong: check both, remove the \
                     faulty worker, and continue with `sgs resume`",
                    first.event.key(),
                    judged.verdict.as_str(),
                    judged.reason
                ))),
                _ => Ok(other),
            },
            _ => Ok(first),
        };
        self.entries.into_iter().zip(others).map(join).collect()
    }
}

fn judgement(entry: &Entry) -> Option<&Judgement> {
    match &entry.event {
        Event::Judgement { judgement, .. } => Some(judgement),
        _ => None,
    }
}

fn is_proved(entry: &Entry) -> bool {
    judgement(entry).is_some_and(|judged| judged.verdict == Verdict::Proved)
}
