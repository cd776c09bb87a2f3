//! The update stage of a round: trains both policies on the selected examples.

use super::pass::{TrainingPass, learning_rate};
use crate::config::RunConfig;
use crate::error::{Context, Result, bail};
use crate::train::policies::{PolicySet, TrainablePolicies};
use crate::train::ranks::distributed_trainer::DistributedTrainer;
use crate::train::ranks::usage::RankUsage;
use serde::{Deserialize, Serialize};
use sgs_lm::Device;
use sgs_lm::loss::TrainExample;
use sgs_lm::model::Model;
use sgs_lm::trainer::{TrainReport, Trainer};
use sgs_rundir::RunView;
use sgs_selfplay::training::training_order;
use sgs_selfplay::{Completion, Example, Role, RoundOutcome, TaskKey};
use std::collections::{HashMap, HashSet};
use std::time::Instant;

pub type Completions = HashMap<TaskKey, Completion>;

/// Measurements of an update, stored with the checkpoint so that a crash before the tables are written loses none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateReport {
    pub solver: Option<RoleReport>,
    pub conjecturer: Option<RoleReport>,
    /// The usage of each rank since the previous update.
    #[serde(default)]
    pub ranks: Vec<RankUsage>,
}

/// Measurements of one policy's update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoleReport {
    pub steps: u64,
    pub sequences: u64,
    /// Tokens processed, including prompts.
    pub tokens: u64,
    /// Sampled tokens trained on.
    pub trained_tokens: u64,
    /// Mean loss over the steps.
    pub loss: f64,
    /// Mean gradient norm before clipping.
    pub gradient_norm: f64,
    /// Share of clipped importance ratios.
    pub clipped: f64,
    /// Mean gap between the trainer's and the sampler's log-probs before the first step, in nats.
    pub log_prob_gap: f64,
    /// Largest such gap.
    pub log_prob_gap_max: f64,
    /// KL divergence from the base model per token in nats, if the loss contains it.
    pub kl: Option<f64>,
    pub learning_rate: f64,
    pub seconds: f64,
}

/// Trains on a round's examples. The Solver's generations before the round determine its learning rate.
///
/// # Errors
/// Returns an error if a completion is missing, a loss is not finite, the device fails, or a rank is lost. The weights
/// are then undefined, and the caller must reload the last checkpoint.
pub fn update<D: Device>(
    config: &RunConfig,
    run: &RunView,
    outcome: &RoundOutcome,
    earlier_generations: u64,
    completions: &Completions,
    policies: &mut PolicySet<D>,
    trainer: &mut DistributedTrainer<D>,
) -> Result<UpdateReport> {
    let mut report = UpdateReport::default();
    let older = older_completions(run, outcome, completions)?;
    let find = |key: &TaskKey| completions.get(key).or_else(|| older.get(key));
    let a = &config.algorithm;
    let trains_solver = a.is_trained_on(Role::Solver) && !outcome.solver_examples.is_empty();
    if trains_solver || !outcome.conjecturer_examples.is_empty() {
        trainer.begin_passes(policies);
    }
    let PolicySet { trained, base, .. } = &mut *policies;
    let of =
        |role, reference| RoleUpdate { config, round: outcome.round, role, earlier_generations, reference };
    if trains_solver {
        let reference = base.as_deref().filter(|_| a.solver.kl_coefficient != 0.0);
        report.solver = of(Role::Solver, reference).run(&outcome.solver_examples, &find, trained, trainer)?;
    }
    if !outcome.conjecturer_examples.is_empty() {
        let job = of(Role::Conjecturer, None);
        report.conjecturer = job.run(&outcome.conjecturer_examples, &find, trained, trainer)?;
    }
    trainer.end_passes(policies);
    policies.policy_version = outcome.round + 1;
    report.ranks = trainer.end_update(policies.policy_version)?;
    Ok(report)
}

/// Returns the largest mean gap between the log-probs of sampler and trainer that rounding explains, in nats per token.
/// Both use the same weights: on the CPU, the trainer in f32 and the sampler possibly in bfloat16; on the GPU, both in
/// bfloat16 with different kernels.
pub(crate) fn largest_gap(device: &str) -> f64 {
    if device == "cuda" { 0.1 } else { 0.05 }
}

/// Returns a warning if the log-probs of sampler and trainer differ by more than rounding explains.
///
/// # Errors
/// Returns an error if the gap exceeds ten times the bound: the samples are not from the weights that are trained.
pub(crate) fn gap_warning(config: &RunConfig, report: &UpdateReport) -> Result<Option<String>> {
    let bound = largest_gap(&config.model.device);
    let roles = [(Role::Solver, &report.solver), (Role::Conjecturer, &report.conjecturer)];
    let worst = roles
        .into_iter()
        .filter_map(|(role, report)| Some((role, report.as_ref()?.log_prob_gap)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((role, gap)) = worst.filter(|(_, gap)| *gap > bound || gap.is_nan()) else { return Ok(None) };
    let told = format!(
        "the {}'s log-probs differ between sampler and trainer by {gap:.3} nats per token on average; rounding \
         accounts for at most {bound}",
        role.as_str()
    );
    if gap > 10.0 * bound || gap.is_nan() {
        bail!(
            "{told}. The samples do not come from the trained weights: most likely workers or a server sample with \
             another model or an older checkpoint (compare `model.base`, the workers' log and the checkpoint that the \
             run loaded). After the cause is fixed, `sgs resume` samples the round again"
        );
    }
    Ok(Some(told))
}

/// Returns true if the update reads the tables of earlier rounds, which must be published then (expert iteration).
pub(crate) fn needs_earlier_rounds(outcome: &RoundOutcome) -> bool {
    outcome.solver_examples.iter().any(|example| example.key.round != outcome.round)
}

/// Reads the completions of earlier rounds that the examples refer to (expert iteration).
fn older_completions(
    run: &RunView,
    outcome: &RoundOutcome,
    completions: &Completions,
) -> Result<HashMap<TaskKey, Completion>> {
    let mut wanted: HashMap<u32, HashSet<&TaskKey>> = HashMap::new();
    for example in &outcome.solver_examples {
        if !completions.contains_key(&example.key) {
            wanted.entry(example.key.round).or_default().insert(&example.key);
        }
    }
    let mut found = HashMap::new();
    for (round, keys) in wanted {
        let rows = run.round(round)?.rollouts()?;
        for row in rows {
            found.extend(row?.into_completion(round).filter(|(key, _)| keys.contains(key)));
        }
    }
    Ok(found)
}

struct RoleUpdate<'a, D: Device> {
    config: &'a RunConfig,
    round: u32,
    role: Role,
    /// The Solver's generations before this round.
    earlier_generations: u64,
    /// The reference model of the KL penalty.
    reference: Option<&'a Model<D>>,
}

impl<D: Device> RoleUpdate<'_, D> {
    /// Trains the role; `None` if its weights are not trained.
    fn run<'c>(
        &self,
        examples: &[Example],
        find: &impl Fn(&TaskKey) -> Option<&'c Completion>,
        trained: &mut TrainablePolicies<D>,
        trainer: &mut DistributedTrainer<D>,
    ) -> Result<Option<RoleReport>> {
        let started = Instant::now();
        let Self { config, round, role, earlier_generations, reference } = *self;
        let Some(policy) = trained.policy(role) else { return Ok(None) };
        let learning_rate = learning_rate(config, role, earlier_generations);
        let mut total = RoleReport { learning_rate, ..RoleReport::default() };
        for number in 0..config.algorithm.optimizer.epochs {
            let order = training_order(examples, config.seed, round, role.as_str(), number);
            let mut batch = Vec::with_capacity(order.len());
            for i in order {
                let key = &examples[i].key;
                let completion = find(key).with_context(|| format!("the completion of {key} is missing"))?;
                let mut example = example(&examples[i], completion);
                if key.round != round {
                    // Drop the log-probs of older policies, because no loss uses them, and the measured gap is that of
                    // this round's weights.
                    example.sampled_log_probs.clear();
                }
                batch.push(example);
            }
            if let Some(reference) = reference {
                add_reference(&mut batch, reference, trainer.trainer())?;
            }
            let pass = TrainingPass { role, number, learning_rate };
            let report = trainer.train_once(config, pass, policy, &batch)?;
            if reference.is_some() {
                total.kl.get_or_insert(0.0);
            }
            total.add(&report, number == 0);
        }
        total.seconds = started.elapsed().as_secs_f64();
        Ok(Some(total))
    }
}

fn example(example: &Example, completion: &Completion) -> TrainExample {
    let mut tokens = completion.prompt_tokens.to_vec();
    tokens.extend(&completion.tokens);
    TrainExample {
        tokens,
        prompt_len: completion.prompt_tokens.len(),
        weight: example.weight as f32,
        sampled_log_probs: completion.log_probs.clone(),
        group: example.group.map_or(0, |g| g.number),
        ..TrainExample::default()
    }
}

/// Adds the base model's log-probs for the KL penalty.
fn add_reference<D: Device>(
    batch: &mut [TrainExample],
    reference: &Model<D>,
    trainer: &mut Trainer<D>,
) -> Result<()> {
    let sequences: Vec<(Vec<u32>, usize)> = batch.iter().map(|e| (e.tokens.clone(), e.prompt_len)).collect();
    let stats = trainer.log_probs(reference, sequences.iter().map(|(t, p)| (t.as_slice(), *p)))?;
    for (example, stats) in batch.iter_mut().zip(stats) {
        example.reference_log_probs = stats.log_probs;
    }
    Ok(())
}

impl RoleReport {
    /// Adds a pass over the examples. Averages over the steps of all passes.
    fn add(&mut self, report: &TrainReport, first: bool) {
        let weight = report.steps as f64;
        let mean = |old: f64, steps: u64, new: f64| {
            (old * steps as f64 + new * weight) / (steps as f64 + weight).max(1.0)
        };
        self.loss = mean(self.loss, self.steps, report.stats.loss);
        self.gradient_norm = mean(self.gradient_norm, self.steps, report.mean_gradient_norm);
        self.clipped = mean(self.clipped, self.steps, report.stats.clipped_low + report.stats.clipped_high);
        self.kl = self.kl.map(|kl| mean(kl, self.steps, report.stats.kl));
        self.steps += report.steps as u64;
        self.sequences += report.sequences as u64;
        self.tokens += report.tokens as u64;
        self.trained_tokens += report.stats.tokens as u64;
        if first {
            self.log_prob_gap = report.first_step.log_prob_gap;
            self.log_prob_gap_max = report.first_step.max_log_prob_gap;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{self, Layers};
    use sgs_lm::loss::LossStats;

    #[test]
    fn the_kl_divergence_is_averaged_over_the_passes() {
        let pass = |steps, kl| {
            let stats = LossStats { kl, ..LossStats::default() };
            TrainReport { steps, stats, ..TrainReport::default() }
        };
        let mut with_kl = RoleReport { kl: Some(0.0), ..RoleReport::default() };
        with_kl.add(&pass(1, 0.0), true);
        assert_eq!(with_kl.kl, Some(0.0), "a divergence of zero is measured");
        with_kl.add(&pass(3, 0.4), false);
        assert!((with_kl.kl.unwrap() - 0.3).abs() < 1e-12, "{with_kl:?}");
        let mut without = RoleReport::default();
        without.add(&pass(2, 0.0), true);
        assert_eq!(without.kl, None, "the loss does not contain it");
    }

    #[test]
    fn a_gap_above_rounding_warns_and_a_large_one_stops() {
        let config = |device: &str| {
            let set = vec![format!("model.device={device}")];
            config::resolve(&Layers { set, ..Layers::default() }, std::iter::empty()).unwrap().config
        };
        let (cpu, gpu) = (config("cpu"), config("cuda"));
        assert_eq!(largest_gap("cpu-f32"), largest_gap("cpu"));
        let report = |solver: f64, conjecturer: f64| {
            let role = |log_prob_gap| Some(RoleReport { log_prob_gap, ..RoleReport::default() });
            UpdateReport { solver: role(solver), conjecturer: role(conjecturer), ranks: Vec::new() }
        };
        assert_eq!(gap_warning(&cpu, &UpdateReport::default()).unwrap(), None, "nothing was trained");
        assert_eq!(gap_warning(&cpu, &report(0.05, 1e-6)).unwrap(), None);
        let warning = gap_warning(&cpu, &report(1e-6, 0.06)).unwrap().unwrap();
        assert!(warning.contains("conjecturer") && warning.contains("0.060"), "{warning}");
        assert_eq!(gap_warning(&gpu, &report(0.06, 0.06)).unwrap(), None, "bfloat16 rounds more");
        assert!(gap_warning(&gpu, &report(0.11, 0.0)).unwrap().is_some());
        let error = gap_warning(&cpu, &report(0.51, 0.0)).unwrap_err().to_string();
        assert!(error.contains("solver") && error.contains("most likely"), "{error}");
        assert!(gap_warning(&gpu, &report(0.51, 0.0)).unwrap().is_some());
        assert!(gap_warning(&gpu, &report(0.0, f64::NAN)).is_err());
    }
}
