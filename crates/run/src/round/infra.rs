//! Infrastructure faults: work that failed although neither the problem nor the proof is at fault. They are never
//! rewarded, and a run stops if they exceed 1% of the work.

use crate::error::{Result, bail};
use sgs_base::excerpt;
use sgs_fleet::BoardStatus;
use sgs_selfplay::outcome::ConjectureStatus;
use sgs_selfplay::{Event, RoundOutcome, TaskKind, Verdict};
use std::collections::BTreeMap;

/// Maximum number of workers and reasons in an error message.
const NAMED: usize = 8;

/// Number of tasks submitted and lost in a round, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultCounts {
    submitted: BTreeMap<TaskKind, usize>,
    lost: BTreeMap<TaskKind, usize>,
    reasons: BTreeMap<String, usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FaultShare {
    all: usize,
    lost: usize,
}

impl FaultShare {
    /// Returns true if more than 1% was lost.
    fn is_too_large(self) -> bool {
        self.lost * 100 > self.all
    }
}

impl FaultCounts {
    pub(crate) fn note_submitted(&mut self, kind: TaskKind) {
        *self.submitted.entry(kind).or_insert(0) += 1;
    }

    /// Counts a result that was lost.
    pub(crate) fn note(&mut self, event: &Event) {
        let (reason, about) = match event {
            Event::Lost { key, reason } => (reason, key.kind),
            Event::Judgement { key, judgement } if judgement.verdict == Verdict::Infra => {
                (&judgement.reason, key.kind)
            }
            _ => return,
        };
        *self.lost.entry(about).or_insert(0) += 1;
        *self.reasons.entry(excerpt::ends_of(reason).into_owned()).or_insert(0) += 1;
    }

    /// Returns the lost share of a kind. Judgements and reviews are submitted one by one, long after their subjects.
    /// Their share is therefore computed relative to the larger of two numbers: that of submitted tasks and that of
    /// subjects.
    fn share(&self, kind: TaskKind) -> FaultShare {
        let number = |numbers: &BTreeMap<TaskKind, usize>, kind| numbers.get(&kind).copied().unwrap_or(0);
        let about = match kind {
            TaskKind::Conjecture | TaskKind::Rollout => kind,
            TaskKind::Judgement => TaskKind::Rollout,
            TaskKind::Review => TaskKind::Conjecture,
        };
        let all = number(&self.submitted, kind).max(number(&self.submitted, about));
        FaultShare { all, lost: number(&self.lost, kind) }
    }

    /// Returns the kinds with too many losses.
    fn broken(&self) -> impl Iterator<Item = (TaskKind, FaultShare)> {
        self.lost.keys().map(|kind| (*kind, self.share(*kind))).filter(|(_, share)| share.is_too_large())
    }

    /// Returns true if the round must stop.
    pub(crate) fn are_too_many(&self) -> bool {
        self.broken().next().is_some()
    }

    /// Describes the faults: how many, which workers, for what reasons. `of` names the round or evaluation.
    pub(crate) fn report(&self, of: &str, board: &BoardStatus) -> String {
        let broken = self.broken().map(|(kind, FaultShare { all, lost })| {
            let share = 100.0 * lost as f64 / all.max(1) as f64;
            format!("{lost} of the {all} {}s ({share:.1}%)", kind.as_str())
        });
        let mut text = format!(
            "of {of}, {} were lost to infrastructure failures. A run stops if more than 1% of a kind is lost. Lost \
             results are not verdicts and earn no reward; `sgs resume` retries them.\n",
            broken.collect::<Vec<_>>().join(" and "),
        );
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (reason, count) in reasons.iter().take(NAMED) {
            text.push_str(&format!("  {count} × {reason}\n"));
        }
        let workers = board.worst_workers(NAMED);
        if !workers.is_empty() {
            text.push_str("Workers (kind, host, process) that failed:\n");
            workers.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text.trim_end().to_owned()
    }
}

/// Rejects a finished round in which too many rollouts could not be judged or too many conjectures were lost. The
/// counters above usually stop such a round earlier, except if an older program sampled it.
pub(crate) fn refuse_broken_round(outcome: &RoundOutcome) -> Result<()> {
    let infra = || outcome.rollouts.iter().filter(|r| r.verdict == Verdict::Infra);
    let share = FaultShare { all: outcome.rollouts.len(), lost: infra().count() };
    if share.is_too_large() {
        let first = infra().next().map_or("", |r| r.reason.as_str());
        bail!(
            "{} of {} rollouts of round {} could not be judged (more than 1%); the first: {first}",
            share.lost,
            share.all,
            outcome.round,
        );
    }
    let lost =
        outcome.conjectures.iter().filter(|c| matches!(c.status, ConjectureStatus::Lost { .. })).count();
    let share = FaultShare { all: outcome.conjectures.len(), lost };
    if share.is_too_large() {
        bail!("{lost} of {} conjectures of round {} were lost (more than 1%)", share.all, outcome.round);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::workers::tasks::VERIFY;
    use sgs_fleet::{Board, BoardConfig, LeaseOutcome, Report, Task, TaskId, Time, WorkerName};
    use sgs_selfplay::TaskKey;

    fn lost(kind: TaskKind, index: u32) -> Event {
        let key = TaskKey { round: 3, kind, problem: sgs_selfplay::ProblemId::new("p"), index };
        Event::Lost { key, reason: "given up after 3 failures: Lean ended by signal 9".into() }
    }

    fn submitted(counts: &[(TaskKind, usize)]) -> FaultCounts {
        let mut faults = FaultCounts::default();
        for (kind, count) in counts {
            (0..*count).for_each(|_| faults.note_submitted(*kind));
        }
        faults
    }

    #[test]
    fn one_in_a_hundred_of_a_kind_is_borne_and_more_is_not() {
        let all = [(TaskKind::Conjecture, 100), (TaskKind::Rollout, 1000), (TaskKind::Review, 40)];
        for (kind, borne) in [
            (TaskKind::Conjecture, 1),
            (TaskKind::Rollout, 10),
            // Judgements are submitted one by one, so their share is computed relative to the number of rollouts.
            (TaskKind::Judgement, 10),
            (TaskKind::Review, 1),
        ] {
            let mut faults = submitted(&all);
            for index in 0..borne {
                faults.note(&lost(kind, index));
                assert!(!faults.are_too_many(), "{kind:?} {index}");
            }
            faults.note(&lost(kind, borne));
            assert!(faults.are_too_many(), "{kind:?}, however many tasks of other kinds there are");
        }
    }

    /// A worker whose checker fails reports this to the board. The error names the worker, its host and the reason.
    #[test]
    fn the_error_names_workers_hosts_and_reasons() {
        let mut board = Board::new(BoardConfig::default());
        let (good, bad) = ("verify-node7-100", "verify-node9-200");
        for id in 0..40 {
            let task = Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() };
            board.submit(Time(0), task).unwrap();
        }
        for name in [good, bad] {
            let worker = WorkerName::new(name).unwrap();
            for lease in board.lease(Time(0), &worker, &VERIFY, 10) {
                let outcome = match name == good {
                    true => LeaseOutcome::Done("{}".into()),
                    false => LeaseOutcome::Failed("Lean ended by signal 9".into()),
                };
                board.report(Time(1), &worker, Report { task: lease.task, attempt: lease.attempt, outcome });
            }
        }
        let mut faults = submitted(&[(TaskKind::Rollout, 20)]);
        (0..3).for_each(|index| faults.note(&lost(TaskKind::Judgement, index)));
        let text = faults.report("round 3", &board.status(Time(2)));
        assert!(text.contains("of round 3, 3 of the 20 judgements (15.0%)"), "{text}");
        assert!(text.contains("3 × given up after 3 failures: Lean ended by signal 9"), "{text}");
        assert!(text.contains("verify-node9-200: 10 failed, 0 done; last: Lean ended by signal 9"), "{text}");
        assert!(!text.contains("node7"), "{text}");
    }
}
