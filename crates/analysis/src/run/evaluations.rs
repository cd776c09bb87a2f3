//! Evaluations of a run on held-out problems and on its targets.

use super::{RunData, metric};
use crate::stats::pass_at_k_interval;
use sgs_rundir::directories::check_directory;
use sgs_rundir::rows::{EvaluatedSet, EvaluationRow};
use sgs_rundir::{Evaluation, MetricValues};
use std::collections::HashMap;

/// An evaluation.
#[derive(Clone, Debug, Default)]
pub struct EvaluationData {
    /// Number of rounds in which the weights were trained; 0 is the base model.
    pub after: u32,
    /// Metrics of the evaluation.
    pub metrics: MetricValues,
    /// Judged attempts and proofs for each held-out problem, by name.
    pub held_out: Vec<(String, (u32, u32))>,
    /// Judged attempts and proofs of the base model for each target that was evaluated, by name.
    pub targets: Vec<(String, (u32, u32))>,
}

impl EvaluationData {
    /// Reads a published evaluation and checks its checksums.
    pub fn read(evaluation: &Evaluation) -> Result<Self, sgs_rundir::Error> {
        check_directory(evaluation.directory())?;
        let mut data = Self { after: evaluation.after, metrics: evaluation.metrics()?, ..Self::default() };
        for row in evaluation.problems()? {
            let EvaluationRow { set, id, judged, proved, .. } = row?;
            let problems = match set {
                EvaluatedSet::HeldOut => &mut data.held_out,
                EvaluatedSet::Targets => &mut data.targets,
            };
            problems.push((id.as_str().to_owned(), (judged, proved)));
        }
        Ok(data)
    }

    /// Returns the largest number of attempts at a held-out problem.
    pub fn samples(&self) -> u32 {
        self.held_out.iter().map(|(_, (judged, _))| *judged).max().unwrap_or(0)
    }

    /// Returns the judged attempts and proofs for each held-out problem.
    pub fn held_out_tallies(&self) -> Vec<(u32, u32)> {
        self.held_out.iter().map(|(_, tally)| *tally).collect()
    }

    /// Returns pass@k on the held-out problems, or `None` if no problem has `k` judged attempts.
    pub fn held_out_pass_at(&self, k: u32) -> Option<f64> {
        pass_at_k_interval(&self.held_out_tallies(), k, 0.95, 1).map(|rate| rate.value)
    }

    /// Returns the wall time in seconds.
    pub fn seconds(&self) -> f64 {
        let seconds = self.metrics.scalars.iter().filter(|(name, _)| name.ends_with("/seconds"));
        seconds.map(|(_, s)| *s).filter(|s| s.is_finite()).sum()
    }
}

impl RunData {
    /// Returns the number of generations before an evaluation.
    pub fn generations_before(&self, evaluation: &EvaluationData) -> Option<f64> {
        let Some(last) = evaluation.after.checked_sub(1) else { return Some(0.0) };
        let round = self.rounds.iter().find(|r| r.round == last)?;
        Self::value(round, metric::GENERATIONS)
    }

    /// Returns the evaluations with held-out problems.
    pub fn held_out(&self) -> impl DoubleEndedIterator<Item = &EvaluationData> {
        self.evaluations.iter().filter(|e| !e.held_out.is_empty())
    }

    /// Returns the base model's judged attempts and proofs for each target, from its evaluation and from the first round, which
    /// it samples too.
    pub fn base_on_targets(&self) -> Vec<(u32, u32)> {
        let mut tallies: HashMap<&str, (u32, u32)> = HashMap::new();
        let first = self.targets.iter().filter_map(|t| {
            let first = t.rounds.first().filter(|r| r.round == 0)?;
            Some((t.id.as_str(), (first.judged, first.proved)))
        });
        let base = self.evaluations.first().filter(|e| e.after == 0);
        let tried = base.iter().flat_map(|e| &e.targets).map(|(id, tally)| (id.as_str(), *tally));
        for (id, (judged, proved)) in first.chain(tried) {
            let tally = tallies.entry(id).or_default();
            *tally = (tally.0 + judged, tally.1 + proved);
        }
        self.targets.iter().filter_map(|t| tallies.get(t.id.as_str()).copied()).collect()
    }
}
