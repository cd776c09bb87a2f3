//! Faults of the infrastructure: work that broke although nothing is wrong with the problem or the proof. They are
//! never rewards, and a run in which they are more than a hundredth of the work stops.

use anyhow::{Result, bail};
use sgs_fleet::BoardStatus;
use sgs_selfplay::outcome::ConjectureStatus;
use sgs_selfplay::{Event, RoundOutcome, TaskKind, Verdict};
use std::collections::BTreeMap;

/// Workers and reasons that an error names.
const NAMED: usize = 8;

/// How much of a round's work was asked for, and how much of it was lost to faults, by kind of task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    submitted: BTreeMap<TaskKind, usize>,
    lost: BTreeMap<TaskKind, usize>,
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
    /// A task of this kind was submitted.
    pub fn note_submitted(&mut self, kind: TaskKind) {
        *self.submitted.entry(kind).or_insert(0) += 1;
    }

    /// A task was answered or lost.
    pub fn note(&mut self, event: &Event) {
        let (reason, about) = match event {
            Event::Lost { key, reason } => (reason, key.kind),
            Event::Judgement { key, judgement } if judgement.verdict == Verdict::Infra => {
                (&judgement.reason, key.kind)
            }
            _ => return,
        };
        *self.lost.entry(about).or_insert(0) += 1;
        *self.reasons.entry(reason.chars().take(300).collect()).or_insert(0) += 1;
    }

    /// What was lost of a kind, of how many. Judgements and reviews are asked for one by one, long after what they are
    /// about: the first of them is not all of them.
    fn share(&self, kind: TaskKind) -> Share {
        let number = |numbers: &BTreeMap<TaskKind, usize>, kind| numbers.get(&kind).copied().unwrap_or(0);
        let about = match kind {
            TaskKind::Conjecture | TaskKind::Rollout => kind,
            TaskKind::Judgement => TaskKind::Rollout,
            TaskKind::Review => TaskKind::Conjecture,
        };
        let all = number(&self.submitted, kind).max(number(&self.submitted, about));
        Share { all, lost: number(&self.lost, kind) }
    }

    /// The kinds of which too much was lost.
    fn broken(&self) -> impl Iterator<Item = (TaskKind, Share)> {
        self.lost.keys().map(|kind| (*kind, self.share(*kind))).filter(|(_, share)| share.is_too_large())
    }

    /// Whether the round has to stop.
    pub fn are_too_many(&self) -> bool {
        self.broken().next().is_some()
    }

    /// What failed, who, and with what. `of` says whose work it was: a round or an evaluation.
    pub fn report(&self, of: &str, board: &BoardStatus) -> String {
        let broken = self.broken().map(|(kind, Share { all, lost })| {
            let share = 100.0 * lost as f64 / all.max(1) as f64;
            format!("{lost} of the {all} {}s ({share:.1} %)", kind.as_str())
        });
        let mut text = format!(
            "of {of}, {} failed by faults of the infrastructure; with more than 1 % of a kind a run stops. They \
             are no verdicts and no rewards, and `sgs resume` tries them again.\n",
            broken.collect::<Vec<_>>().join(" and "),
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

/// Refuses a finished round with too many rollouts that could not be judged, or conjectures that were lost. What is
/// counted while the round is sampled makes this rare: it can happen to a round that an older program has sampled.
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
    let lost =
        outcome.conjectures.iter().filter(|c| matches!(c.status, ConjectureStatus::Lost { .. })).count();
    let share = Share { all: outcome.conjectures.len(), lost };
    if share.is_too_large() {
        bail!("{lost} of {} conjectures of round {} were lost (more than 1 %)", share.all, outcome.round);
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

    fn submitted(counts: &[(TaskKind, usize)]) -> Faults {
        let mut faults = Faults::default();
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
            // They come in one by one: of as many as there may be.
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
        let mut faults = submitted(&[(TaskKind::Rollout, 20)]);
        (0..3).for_each(|index| faults.note(&lost(TaskKind::Judgement, index)));
        let text = faults.report("round 3", &board.status(Time(2)));
        assert!(text.contains("of round 3, 3 of the 20 judgements (15.0 %)"), "{text}");
        assert!(text.contains("3 times: given up after 3 failures: Lean ended by signal 9"), "{text}");
        assert!(text.contains("verify-node9-200: 10 failed, 0 done; last: Lean ended by signal 9"), "{text}");
        assert!(!text.contains("node7"), "{text}");
    }
}
