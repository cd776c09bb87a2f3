//! Second opinions: what a worker elsewhere says is proved is asked of somebody else before it counts.
//!
//! Where a check takes microseconds, this process makes every such check again. Where it takes seconds, another worker
//! does, for a share of the proofs and for every one of a target that no round before has solved, if the run is told to.
//! This process decides against a worker: its answer is refused. Two workers that differ cannot both be right: the run
//! stops and names both.

use crate::record::Entry;
use anyhow::ensure;
use sgs_fleet::{Ending, WorkerName};
use sgs_formal::FormalSystem;
use sgs_selfplay::{Command, Event, Judgement, ProblemId, TaskKey, Verdict};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// What is asked again, and of whom.
#[derive(Debug)]
pub enum Second {
    /// Nothing: all verdicts are this process's own, or workers are trusted with them.
    Nothing,
    /// Every proof, of this process.
    Here,
    /// Some, of other workers.
    Elsewhere(Sample),
}

/// What of a round is asked of another worker.
#[derive(Debug)]
pub struct Sample {
    /// Targets that no round before has solved.
    unsolved: HashSet<ProblemId>,
    /// Of everything else so much.
    share: f64,
    /// Nobody can foresee what is drawn; it changes no result.
    draw: RandomState,
}

/// A worker's verdict that waits for another's. It is kept in memory alone, since nobody has acted on it: after a crash
/// both are asked again.
#[derive(Debug)]
pub struct First {
    pub worker: WorkerName,
    /// What it came to.
    pub entries: Vec<Entry>,
}

/// What verdicts come to for now.
#[derive(Debug)]
pub enum Weighed {
    /// They count.
    Counts(Vec<Entry>),
    /// Another worker has to say the same.
    Waits(First),
}

/// Two workers that differ about a proof.
#[derive(Debug, thiserror::Error)]
#[error(
    "{first} says that the proof of {key} holds, {second} says `{}` ({reason}): one of them is broken or lies. Nothing \
     of it was counted, but what {first} said before may be as wrong: look at both, then go on with `sgs resume`, without \
     the one that is not to be trusted", verdict.as_str()
)]
pub struct Disagreement {
    key: TaskKey,
    first: WorkerName,
    second: WorkerName,
    verdict: Verdict,
    reason: String,
}

impl Second {
    /// Asks other workers about `share` of the proofs, and about all of these targets.
    pub fn elsewhere(share: f64, unsolved: HashSet<ProblemId>) -> Self {
        Self::Elsewhere(Sample { unsolved, share, draw: RandomState::new() })
    }

    /// Checks again here what a worker says is proved, if that is what is done.
    ///
    /// # Errors
    /// It is not: the answer cannot be used.
    pub fn confirm_here(
        &self,
        system: &dyn FormalSystem,
        commands: &[Command],
        entries: &[Entry],
        worker: &WorkerName,
    ) -> anyhow::Result<()> {
        if !matches!(self, Self::Here) {
            return Ok(());
        }
        for (command, entry) in commands.iter().zip(entries) {
            let (Command::Verify { problem, proof, .. }, true) = (command, is_proved(entry)) else {
                continue;
            };
            let own = system.verify(problem, proof);
            ensure!(
                own.verdict == Verdict::Proved,
                "{worker} says that the proof of {} holds, checked again here it comes to `{}` ({})",
                entry.event.key(),
                own.verdict.as_str(),
                own.reason
            );
        }
        Ok(())
    }

    /// What a task's entries come to, which may be a second opinion on `first`.
    ///
    /// # Errors
    /// The two differ.
    pub fn weigh(
        &self,
        first: Option<First>,
        ending: &Ending,
        entries: Vec<Entry>,
    ) -> Result<Weighed, Disagreement> {
        let worker = match ending {
            Ending::Done { worker, .. } => worker,
            // Nobody could say anything.
            Ending::Quarantined { .. } => return Ok(Weighed::Counts(entries)),
        };
        match first {
            None if self.wants_another(&entries) => {
                Ok(Weighed::Waits(First { worker: worker.clone(), entries }))
            }
            None => Ok(Weighed::Counts(entries)),
            Some(first) => Ok(Weighed::Counts(first.joined(worker, entries)?)),
        }
    }

    fn wants_another(&self, entries: &[Entry]) -> bool {
        let Self::Elsewhere(sample) = self else { return false };
        entries.iter().any(|entry| is_proved(entry) && sample.holds(entry.event.key()))
    }
}

impl Sample {
    fn holds(&self, key: &TaskKey) -> bool {
        let drawn = || (self.draw.hash_one(key) as f64) < self.share * u64::MAX as f64;
        self.unsolved.contains(&key.problem) || drawn()
    }
}

impl First {
    /// What the verdicts come to now that another worker has judged too. Where the other ran out of time or memory the
    /// proof counts as its verdict: what counts as proved has been proved twice.
    ///
    /// # Errors
    /// The other says that a proof does not hold.
    fn joined(self, second: &WorkerName, others: Vec<Entry>) -> Result<Vec<Entry>, Disagreement> {
        let join = |(first, other): (Entry, Entry)| match judgement(&other) {
            Some(judged) if is_proved(&first) && judged.verdict != Verdict::Proved => match judged.verdict {
                Verdict::Refused | Verdict::Malformed => {
                    Err(differ(first.event.key(), &self.worker, second, judged.clone()))
                }
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

fn differ(key: &TaskKey, first: &WorkerName, second: &WorkerName, judged: Judgement) -> Disagreement {
    let Judgement { verdict, reason, .. } = judged;
    Disagreement { key: key.clone(), first: first.clone(), second: second.clone(), verdict, reason }
}
