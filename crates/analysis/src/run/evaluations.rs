//! A run's evaluations: what its Solver proves of problems that it is not trained on.

use super::{RunData, metric};
use crate::stats::Alone;
use sgs_rundir::rows::{EvaluatedSet, EvaluationRow};
use sgs_rundir::{Evaluation, MetricValues};
use std::collections::HashMap;

/// One evaluation.
#[derive(Clone, Debug, Default)]
pub struct EvaluationData {
    /// How many rounds the weights had been trained in; 0 is the base model.
    pub after: u32,
    pub metrics: MetricValues,
    /// Attempts that were judged, and those that proved, for each held-out problem.
    pub held_out: Vec<(u32, u32)>,
    /// The same for the run's targets, where the base model was tried on them, by name.
    pub targets: Vec<(String, (u32, u32))>,
}

impl EvaluationData {
    /// Reads a published evaluation.
    ///
    /// # Errors
    /// A file is missing or damaged.
    pub fn read(evaluation: &Evaluation) -> Result<Self, sgs_rundir::Error> {
        let mut data = Self { after: evaluation.after, metrics: evaluation.metrics()?, ..Self::default() };
        for row in evaluation.problems()? {
            let EvaluationRow { set, id, judged, proved, .. } = row?;
            match set {
                EvaluatedSet::HeldOut => data.held_out.push((judged, proved)),
                EvaluatedSet::Targets => data.targets.push((id.as_str().to_owned(), (judged, proved))),
            }
        }
        Ok(data)
    }

    /// Most attempts at a held-out problem.
    pub fn samples(&self) -> u32 {
        self.held_out.iter().map(|t| t.0).max().unwrap_or(0)
    }

    /// Wall time, seconds.
    pub fn seconds(&self) -> f64 {
        let seconds = self.metrics.scalars.iter().filter(|(name, _)| name.ends_with("/seconds"));
        seconds.map(|(_, s)| *s).filter(|s| s.is_finite()).sum()
    }
}

impl RunData {
    /// Generations before an evaluation.
    pub fn generations_before(&self, evaluation: &EvaluationData) -> Option<f64> {
        let Some(last) = evaluation.after.checked_sub(1) else { return Some(0.0) };
        let round = self.rounds.iter().find(|r| r.round == last)?;
        Self::value(round, metric::GENERATIONS)
    }

    /// The evaluations that have held-out problems.
    pub fn held_out(&self) -> impl DoubleEndedIterator<Item = &EvaluationData> {
        self.evaluations.iter().filter(|e| !e.held_out.is_empty())
    }

    /// How many targets the run has, and what the base model would prove of them; `None` if its samples say nothing.
    pub fn sampling_alone(&self) -> Option<(f64, Alone)> {
        let targets = self.last(metric::TARGETS).unwrap_or(self.targets.len() as f64);
        Some((targets, Alone::of(&self.base_on_targets())?))
    }

    /// What the base model proved of each target: attempts that were judged, and those that proved, in its evaluation and
    /// in the first round, which it samples too.
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
        // In the targets' order, those that the base model has tried, so that what is made of it is the same every time.
        self.targets.iter().filter_map(|t| tallies.get(t.id.as_str()).copied()).collect()
    }
}
