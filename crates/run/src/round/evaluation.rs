//! Evaluations during a run: how many held-out problems the Solver proves.

use crate::config::RunConfig;
use crate::error::Result;
use crate::round::attempts::Attempts;
use crate::round::dispatcher::{Dispatcher, Work};
use crate::round::event::{EventStream, RoundStage, RunEvent};
use crate::workers::attempts::{AttemptSummary, ProblemAttempts};
use sgs_rundir::metrics::{MetricValues, names};
use sgs_rundir::rows::{EvaluatedSet, EvaluationRow};
use sgs_rundir::{RunDir, RunView};
use sgs_selfplay::{Problem, Role};
use std::sync::Arc;
use std::time::Instant;

/// The problems that a run evaluates, and the schedule of the evaluations.
pub(crate) struct EvalSchedule<'a> {
    pub config: &'a RunConfig,
    /// Problems that the run is never trained on.
    pub held_out: &'a [Arc<Problem>],
    pub targets: &'a [Arc<Problem>],
}

/// The point of a run at which an evaluation can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvalPoint {
    BeforeRound,
    AfterLastRound,
}

impl EvalSchedule<'_> {
    /// Returns true if the weights after `after` rounds should be evaluated at this point and have not been yet.
    pub(crate) fn is_due(&self, after: u32, point: EvalPoint, run: &RunView) -> Result<bool> {
        let plan = &self.config.evaluation;
        let trained = self.config.weights_of(Role::Solver).is_trained();
        let in_turn = point == EvalPoint::AfterLastRound || after.checked_rem(plan.every) == Some(0);
        let due = match after {
            0 => !self.held_out.is_empty() || plan.target_samples > 0,
            // An untrained Solver never changes, so its first evaluation is enough.
            _ => !self.held_out.is_empty() && trained && in_turn,
        };
        Ok(due && !run.evaluations()?.iter().any(|evaluation| evaluation.after == after))
    }

    /// Evaluates the weights after `after` rounds, stores the result and reports it. Returns `None` if the user
    /// interrupts it.
    pub(crate) fn evaluate<'d>(
        &self,
        after: u32,
        dispatcher: impl Fn() -> Dispatcher<'d>,
        run: &RunDir,
        events: &mut EventStream<'_>,
    ) -> Result<Option<MetricValues>> {
        let (plan, rounds) = (&self.config.evaluation, self.config.rounds);
        events.emit(RunEvent::Stage { round: after, rounds, stage: RoundStage::Evaluating });
        let mut parts = vec![(EvaluatedSet::HeldOut, self.held_out, plan.samples)];
        if after == 0 && plan.target_samples > 0 {
            parts.push((EvaluatedSet::Targets, self.targets, plan.target_samples));
        }
        let mut metrics = MetricValues::of_evaluation(after);
        let mut rows = Vec::new();
        for (set, problems, samples) in parts.into_iter().filter(|(_, problems, _)| !problems.is_empty()) {
            let started = Instant::now();
            let solver = &self.config.algorithm.solver;
            let mut attempts = Attempts::new(problems, samples, solver, after, self.config.seed);
            dispatcher().run(&mut attempts, events)?;
            if !attempts.is_complete() {
                return Ok(None);
            }
            if solver.repair_turns > 0 {
                let name = format!("{}generations", names::evaluation_group(set));
                metrics.set(name, attempts.progress().rollouts.done as f64);
            }
            let attempts_of = attempts.by_problem();
            describe(&mut metrics, set, &attempts_of, samples, started.elapsed().as_secs_f64());
            rows.extend(attempts_of.into_iter().map(|attempts_of| row(set, attempts_of)));
        }
        run.publish_evaluation(&metrics, rows)?;
        events.emit(RunEvent::Evaluated { metrics: &metrics });
        Ok(Some(metrics))
    }
}

fn describe(
    metrics: &mut MetricValues,
    set: EvaluatedSet,
    attempts_of: &[ProblemAttempts],
    samples: u32,
    seconds: f64,
) {
    let group = names::evaluation_group(set);
    let mut set = |name: &str, value: f64| metrics.set(format!("{group}{name}"), value);
    set("problems", attempts_of.len() as f64);
    set("samples", f64::from(samples));
    set("solved", attempts_of.iter().filter(|a| a.summary.proved > 0).count() as f64);
    set("seconds", seconds);
    let mut ks: Vec<u64> =
        std::iter::successors(Some(1_u64), |k| Some(2 * k)).take_while(|k| *k < u64::from(samples)).collect();
    ks.push(samples.into());
    for k in ks {
        let rates = attempts_of.iter().filter_map(|a| a.summary.pass_at(k));
        let (count, sum) = rates.fold((0_u32, 0.0), |(count, sum), rate| (count + 1, sum + rate));
        if count > 0 {
            set(&format!("pass@{k}"), sum / f64::from(count));
        }
    }
}

fn row(set: EvaluatedSet, attempts_of: ProblemAttempts) -> EvaluationRow {
    let ProblemAttempts { problem, summary: AttemptSummary { judged, proved, proof } } = attempts_of;
    EvaluationRow {
        set,
        id: problem.id.clone(),
        statement: Arc::clone(&problem.statement),
        context: Arc::clone(&problem.context),
        judged,
        proved,
        proof,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sgs_selfplay::ProblemId;

    fn attempts_of(judged: u32, proved: u32) -> ProblemAttempts {
        let problem = Problem { id: ProblemId::new("p"), statement: "s".into(), context: "".into() };
        ProblemAttempts {
            problem: Arc::new(problem),
            summary: AttemptSummary { judged, proved, proof: None },
        }
    }

    #[test]
    fn the_numbers_of_an_evaluation_are_means_over_problems() {
        let mut metrics = MetricValues::of_evaluation(3);
        // One problem lost an attempt, so it does not count for pass@4.
        let all = [attempts_of(4, 1), attempts_of(4, 0), attempts_of(3, 3)];
        describe(&mut metrics, EvaluatedSet::HeldOut, &all, 4, 1.5);
        let of = |name: &str| metrics.scalars.get(name).copied();
        assert_eq!(of("held_out/problems"), Some(3.0));
        assert_eq!(of("held_out/solved"), Some(2.0));
        assert!((of("held_out/pass@1").unwrap() - (0.25 + 0.0 + 1.0) / 3.0).abs() < 1e-12);
        assert!((of("held_out/pass@2").unwrap() - (0.5 + 0.0 + 1.0) / 3.0).abs() < 1e-12);
        assert_eq!(of("held_out/pass@4"), Some(0.5));
        assert_eq!(of("held_out/pass@8"), None);
    }
}
