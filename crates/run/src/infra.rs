//! Faults of the infrastructure: work that broke although nothing is wrong with the problem or the proof. They are
//! never rewards, and a run in which they are more than a hundredth of the work stops.

use anyhow::{Result, bail};
use sgs_fleet::BoardStatus;
use sgs_selfplay::{Event, RoundOutcome, TaskKind, Verdict};
use std::collections::BTreeMap;

/// Workers and reasons that an error names.
const NAMED: usize = 8;

/// How much of a round's work was answered, and how much of it was lost to faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// All tasks: answered, lost.
    tasks: Share,
    /// Rollouts, sampled or judged: submitted, lost.
    rollouts: Share,
    reasons: BTreeMap<String, usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    all: usize,
    lost: usize,
}

impl Share {
    /// More than one in a hundred.
    fn is_too_large(self) -> bool {
        self.lost * 100 > self.all
    }
}

impl Faults {
    /// A rollout was submitted.
    pub fn note_rollout(&mut self) {
        self.rollouts.all += 1;
    }

    /// A task was answered or lost.
    pub fn note(&mut self, event: &Event) {
        self.tasks.all += 1;
        let (reason, about) = match event {
            Event::Lost { key, reason } => (reason, key.kind),
            Event::Judgement { key, judgement } if judgement.verdict == Verdict::Infra => {
                (&judgement.reason, key.kind)
            }
            _ => return,
        };
        self.tasks.lost += 1;
        self.rollouts.lost += usize::from(matches!(about, TaskKind::Rollout | TaskKind::Judgement));
        *self.reasons.entry(reason.chars().take(300).collect()).or_insert(0) += 1;
    }

    /// Whether the round has to stop, of which `open` tasks are still out.
    pub fn are_too_many(&self, open: usize) -> bool {
        let tasks = Share { all: self.tasks.all + open, ..self.tasks };
        tasks.is_too_large() || self.rollouts.is_too_large()
    }

    /// Who failed, and with what.
    pub fn report(&self, round: u32, open: usize, board: &BoardStatus) -> String {
        let all = self.tasks.all + open;
        let share = 100.0 * self.tasks.lost as f64 / all.max(1) as f64;
        let mut text = format!(
            "{} of the {all} tasks of round {round} ({share:.1} %) failed by faults of the infrastructure; with more \
             than 1 % a run stops. They are no verdicts and no rewards, and `sgs resume` tries them again.\n",
            self.tasks.lost
        );
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (reason, count) in reasons.iter().take(NAMED) {
            text.push_str(&format!("  {count} times: {reason}\n"));
        }
        let workers = board.worst_workers(NAMED);
        if !workers.is_empty() {
            text.push_str("Workers (kind, host, process) that failed:\n");
            workers.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text.trim_end().to_owned()
    }
}

/// Refuses a finished round with too many rollouts that could not be judged. What is counted while the round is
/// sampled makes this rare: it can happen where a round was resumed again and again.
///
/// # Errors
/// More than one in a hundred.
pub fn refuse_broken_round(outcome: &RoundOutcome) -> Result<()> {
    let infra = || outcome.rollouts.iter().filter(|r| r.verdict == Verdict::Infra);
    let share = Share { all: outcome.rollouts.len(), lost: infra().count() };
    if share.is_too_large() {
        let first = infra().next().map_or("", |r| r.reason.as_str());
        bail!(
            "{} of {} rollouts of round {} could not be judged (more than 1 %); the first: {first}",
            share.lost,
            share.all,
            outcome.round,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tasks::VERIFY;
    use super::*;
    use sgs_fleet::{Board, BoardConfig, Outcome, Report, Task, TaskId, Time, WorkerName};
    use sgs_selfplay::TaskKey;

    fn lost(kind: TaskKind, index: u32) -> Event {
        let key = TaskKey { round: 3, kind, problem: sgs_selfplay::ProblemId::new("p"), index };
        Event::Lost { key, reason: "given up after 3 failures: Lean ended by signal 9".into() }
    }

    #[test]
    fn one_in_a_hundred_is_borne_and_more_is_not() {
        let mut faults = Faults::default();
        (0..1000).for_each(|_| faults.note_rollout());
        for index in 0..10 {
            faults.note(&lost(TaskKind::Judgement, index));
            assert!(!faults.are_too_many(2000), "{index}");
        }
        faults.note(&lost(TaskKind::Judgement, 10));
        assert!(faults.are_too_many(2000), "11 of 1,000 rollouts, however many tasks there are");
        let mut faults = Faults::default();
        (0..1000).for_each(|_| faults.note_rollout());
        (0..11).for_each(|index| faults.note(&lost(TaskKind::Review, index)));
        assert!(!faults.are_too_many(1100) && faults.are_too_many(1000), "reviews count among all tasks");
    }

    /// A worker whose checker breaks says so to the board; the error says who, where and why.
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
                    true => Outcome::Done("{}".into()),
                    false => Outcome::Failed("Lean ended by signal 9".into()),
                };
                board.report(Time(1), &worker, Report { task: lease.task, attempt: lease.attempt, outcome });
            }
        }
        let mut faults = Faults::default();
        (0..20).for_each(|_| faults.note_rollout());
        (0..3).for_each(|index| faults.note(&lost(TaskKind::Judgement, index)));
        let text = faults.report(3, 37, &board.status(Time(2)));
        assert!(text.contains("3 of the 40 tasks of round 3 (7.5 %)"), "{text}");
        assert!(text.contains("3 times: given up after 3 failures: Lean ended by signal 9"), "{text}");
        assert!(text.contains("verify-node9-200: 10 failed, 0 done; last: Lean ended by signal 9"), "{text}");
        assert!(!text.contains("node7"), "{text}");
    }
}
