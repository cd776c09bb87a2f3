//! The trainer: batches into micro-batches, forward, backward, clip, Adam.
//!
//! One [`Trainer`] owns the buffers and serves any number of [`Policy`]s of the same shape one after the
//! other: a Solver and a Conjecturer are two policies, a frozen Guide is a bare [`Model`].

use std::sync::Arc;
use std::time::Instant;

use crate::config::ModelConfig;
use crate::cpu::Floats;
use crate::device::{AdamUpdate, Device, Part};
use crate::error::{LmError, Result};
use crate::loss::{Example, LossConfig, LossStats, LossSums, Normaliser};
use crate::model::{Mode, Model, Plan, Workspace};
use crate::optim::{AdamConfig, Schedule};
use crate::pack::{LossRow, Packed};
use crate::rng::Rng;
use crate::weights::first_not_finite;

/// A model that is being trained, with its optimiser's state.
pub struct Policy<D: Device> {
    /// The model; samplers hold clones of the pointer and must drop them before the next update.
    pub model: Arc<Model<D>>,
    /// Adam's moments.
    pub adam: D::Adam,
    /// Optimiser steps taken so far.
    pub step: u64,
}

impl<D: Device> std::fmt::Debug for Policy<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy").field("model", &self.model).field("step", &self.step).finish_non_exhaustive()
    }
}

impl<D: Device> Policy<D> {
    /// A policy with fresh optimiser state.
    ///
    /// # Errors
    /// The device has no room.
    pub fn new(model: Model<D>) -> Result<Self> {
        let adam = model.device.adam(&model.params, model.layout.len)?;
        Ok(Self { model: Arc::new(model), adam, step: 0 })
    }

    /// Forgets the optimiser's moments and restarts the count of steps.
    ///
    /// # Errors
    /// The device has no room.
    pub fn reset_optimiser(&mut self) -> Result<()> {
        self.adam = self.model.device.adam(&self.model.params, self.model.layout.len)?;
        self.step = 0;
        Ok(())
    }
}

/// How to train on a list of examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainOptions {
    /// The loss.
    pub loss: LossConfig,
    /// Adam's constants.
    pub adam: AdamConfig,
    /// Learning rate over the policy's steps.
    pub schedule: Schedule,
    /// Sequences per optimiser step.
    pub batch_size: usize,
    /// Seed of the order of examples; `None` keeps the order given.
    pub shuffle_seed: Option<u64>,
}

/// What one optimiser step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// The step, counted from 0 over the policy's life.
    pub step: u64,
    /// Learning rate used.
    pub learning_rate: f64,
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Sequences of the batch.
    pub sequences: usize,
    /// Tokens run through the model.
    pub tokens: usize,
    /// Loss and what belongs to it.
    pub stats: LossStats,
    /// Wall-clock time, in seconds.
    pub seconds: f64,
}

/// What a pass over a list of examples did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainReport {
    /// Optimiser steps taken.
    pub steps: usize,
    /// Sequences seen.
    pub sequences: usize,
    /// Tokens run through the model.
    pub tokens: usize,
    /// Loss and what belongs to it, over all steps.
    pub stats: LossStats,
    /// The numbers of the first step alone: before any update, so that its gap to the sampler's log-probs
    /// is pure disagreement.
    pub first_step: LossStats,
    /// Mean and largest global gradient norm before clipping.
    pub mean_gradient_norm: f64,
    /// See `mean_gradient_norm`.
    pub max_gradient_norm: f64,
    /// Share of steps whose gradient was clipped.
    pub clipped_steps: f64,
    /// Wall-clock time, in seconds.
    pub seconds: f64,
}

/// Teacher-forced log-probs of a sequence's completion.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenStats {
    /// Log-prob of each completion token at temperature 1.
    pub logprobs: Vec<f32>,
    /// Entropy of the distribution each was drawn from, in nats.
    pub entropies: Vec<f32>,
}

/// Buffers and bookkeeping of training on one device.
#[derive(Debug)]
pub struct Trainer<D: Device> {
    device: Arc<D>,
    workspace: Workspace<D>,
    packed: Packed,
    norms: Vec<f32>,
    logprob: Vec<f32>,
    entropy: Vec<f32>,
}

impl<D: Device> Trainer<D> {
    /// Plans the buffers for micro-batches of at most `tokens` tokens; no sequence may be longer.
    ///
    /// # Errors
    /// The device has no room.
    pub fn new(device: Arc<D>, config: &ModelConfig, tokens: usize, mode: Mode) -> Result<Self> {
        let workspace = Workspace::new(&*device, config, tokens, mode)?;
        let tokens = workspace.plan.tokens;
        Ok(Self {
            device,
            workspace,
            packed: Packed::with_capacity(tokens),
            norms: Vec::new(),
            logprob: vec![0.0; tokens],
            entropy: vec![0.0; tokens],
        })
    }

    /// The memory plan.
    pub fn plan(&self) -> &Plan {
        &self.workspace.plan
    }

    /// One pass over `examples` in batches of [`TrainOptions::batch_size`] sequences (whole groups under
    /// [`Normaliser::Group`]); the last batch may be smaller. `on_step` sees every step.
    ///
    /// # Errors
    /// An example does not fit (nothing is trained then); the model is still held by a sampler; a loss or
    /// gradient is not finite (the policy is left after its last finite step).
    pub fn train(
        &mut self,
        policy: &mut Policy<D>,
        examples: &[Example],
        options: &TrainOptions,
        mut on_step: impl FnMut(&StepReport),
    ) -> Result<TrainReport> {
        let started = Instant::now();
        for (index, example) in examples.iter().enumerate() {
            self.admit(&policy.model, index, example, &options.loss)?;
        }
        let mut report = TrainReport::default();
        for (batch_index, batch) in batches(examples, options).iter().enumerate() {
            let step = self.step(policy, batch, options).map_err(|e| match e {
                LmError::NotFinite { step, what, value, .. } => {
                    LmError::NotFinite { step, batch: batch_index, what, value }
                }
                other => other,
            })?;
            if report.steps == 0 {
                report.first_step = step.stats;
            }
            report.steps += 1;
            report.sequences += step.sequences;
            report.tokens += step.tokens;
            report.stats.merge(&step.stats);
            report.mean_gradient_norm += step.gradient_norm;
            report.max_gradient_norm = report.max_gradient_norm.max(step.gradient_norm);
            report.clipped_steps += f64::from(u8::from(step.gradient_norm > options.adam.clip_norm));
            on_step(&step);
        }
        let steps = report.steps.max(1) as f64;
        report.mean_gradient_norm /= steps;
        report.clipped_steps /= steps;
        report.seconds = started.elapsed().as_secs_f64();
        Ok(report)
    }

    /// One optimiser step on one batch; `options.batch_size` and the seed are not looked at.
    ///
    /// # Errors
    /// As [`Trainer::train`].
    pub fn step(
        &mut self,
        policy: &mut Policy<D>,
        batch: &[&Example],
        options: &TrainOptions,
    ) -> Result<StepReport> {
        let started = Instant::now();
        if Arc::get_mut(&mut policy.model).is_none() {
            return Err(LmError::Input(
                "the policy's weights are still held elsewhere (a sampler?): drop every clone of its model \
                 before an update"
                    .to_owned(),
            ));
        }
        for (index, example) in batch.iter().enumerate() {
            self.admit(&policy.model, index, example, &options.loss)?;
        }
        let device = Arc::clone(&self.device);
        let step = policy.step;
        let accumulated = device.run(|| self.accumulate(&policy.model, batch, &options.loss));
        if accumulated.is_err() {
            device.zero_grad(self.workspace.grads()?)?;
        }
        let (stats, tokens) = accumulated?;
        if !stats.loss.is_finite() {
            return self.not_finite(&policy.model, step, "the loss".to_owned(), stats.loss);
        }
        let grads = self.workspace.grads()?;
        let gradient_norm = device.run(|| device.sum_of_squares(grads))?.sqrt();
        if !gradient_norm.is_finite() {
            return self.not_finite(&policy.model, step, "the gradient".to_owned(), gradient_norm);
        }
        let learning_rate = options.adam.learning_rate * options.schedule.factor(step);
        let clip = options.adam.clip_norm;
        let update = AdamUpdate {
            t: step + 1,
            learning_rate,
            beta1: options.adam.beta1,
            beta2: options.adam.beta2,
            eps: options.adam.eps,
            weight_decay: options.adam.weight_decay,
            // The small term is PyTorch's, so that both clip alike.
            gradient_scale: if gradient_norm > clip { clip / (gradient_norm + 1e-6) } else { 1.0 },
        };
        let Some(model) = Arc::get_mut(&mut policy.model) else {
            return Err(LmError::Input("the policy's weights were taken during its update".to_owned()));
        };
        let (params, adam) = (&mut model.params, &mut policy.adam);
        let layout = &model.layout;
        device.run(|| device.adam_step(update, layout, params, grads, adam))?;
        policy.step += 1;
        Ok(StepReport {
            step,
            learning_rate,
            gradient_norm,
            sequences: batch.len(),
            tokens,
            stats,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Loss and gradient of a batch without an update: [`Trainer::gradient`] then holds the gradient.
    ///
    /// # Errors
    /// An example does not fit or the device fails.
    pub fn loss_and_gradient(
        &mut self,
        model: &Model<D>,
        batch: &[&Example],
        loss: &LossConfig,
    ) -> Result<LossStats> {
        for (index, example) in batch.iter().enumerate() {
            self.admit(model, index, example, loss)?;
        }
        let device = Arc::clone(&self.device);
        device.zero_grad(self.workspace.grads()?)?;
        Ok(device.run(|| self.accumulate(model, batch, loss))?.0)
    }

    /// The gradient on the host, in the parameters' layout; zero after an update.
    ///
    /// # Errors
    /// The workspace was planned for inference, or the device fails.
    pub fn gradient(&mut self, model: &Model<D>) -> Result<Floats> {
        let mut host = Floats::zeros(model.layout.len);
        let grads = self.workspace.grads()?;
        self.device.read_grad(Part { buf: grads, range: 0..host.len() }, &mut host)?;
        Ok(host)
    }

    /// Zeroes the gradient that [`Trainer::loss_and_gradient`] left.
    ///
    /// # Errors
    /// The workspace was planned for inference, or the device fails.
    pub fn clear_gradient(&mut self) -> Result<()> {
        self.device.zero_grad(self.workspace.grads()?)
    }

    /// Teacher-forced log-probs and entropies of the completions of `sequences`, each tokens and length of
    /// the prompt (at least 1).
    ///
    /// # Errors
    /// A sequence does not fit or holds an unknown token, or the device fails.
    pub fn logprobs<'a>(
        &mut self,
        model: &Model<D>,
        sequences: impl IntoIterator<Item = (&'a [u32], usize)>,
    ) -> Result<Vec<TokenStats>> {
        let mut results: Vec<TokenStats> = Vec::new();
        let mut waiting: Vec<(usize, usize)> = Vec::new();
        self.packed.clear();
        for (index, (tokens, prompt_len)) in sequences.into_iter().enumerate() {
            results.push(TokenStats::default());
            if prompt_len == 0 || prompt_len > tokens.len() {
                return Err(LmError::Input(format!(
                    "sequence {index}: a prompt of {prompt_len} in {} tokens",
                    tokens.len()
                )));
            }
            let inputs = &tokens[..tokens.len() - 1];
            self.fits(model, index, inputs.len())?;
            if self.packed.tokens.len() + inputs.len() > self.workspace.plan.tokens {
                self.flush_logprobs(model, &mut waiting, &mut results)?;
            }
            let rows = (prompt_len..tokens.len()).map(|i| LossRow {
                index: i - 1,
                target: tokens[i],
                ..LossRow::default()
            });
            self.packed.push(inputs, rows);
            waiting.push((index, tokens.len() - prompt_len));
        }
        self.flush_logprobs(model, &mut waiting, &mut results)?;
        Ok(results)
    }

    fn flush_logprobs(
        &mut self,
        model: &Model<D>,
        waiting: &mut Vec<(usize, usize)>,
        results: &mut [TokenStats],
    ) -> Result<()> {
        let rows = self.packed.rows.len();
        if rows > 0 {
            let device = Arc::clone(&self.device);
            let (workspace, packed) = (&mut self.workspace, &self.packed);
            device.run(|| workspace.forward(model, packed))?;
            let (logprob, entropy) = (&mut self.logprob[..rows], &mut self.entropy[..rows]);
            workspace.read_rows(&device, logprob, entropy)?;
        }
        let mut at = 0;
        for (index, len) in waiting.drain(..) {
            results[index].logprobs = self.logprob[at..at + len].to_vec();
            results[index].entropies = self.entropy[at..at + len].to_vec();
            at += len;
        }
        self.packed.clear();
        Ok(())
    }

    /// Adds a batch's gradients, micro-batch after micro-batch; returns its stats and the tokens run.
    fn accumulate(
        &mut self,
        model: &Model<D>,
        batch: &[&Example],
        loss: &LossConfig,
    ) -> Result<(LossStats, usize)> {
        loss.norms(batch, &mut self.norms);
        let mut sums = LossSums::default();
        let mut tokens = 0;
        self.packed.clear();
        for (i, example) in batch.iter().enumerate() {
            if loss.is_inert(example) {
                continue;
            }
            let inputs = example.tokens.len() - 1;
            if self.packed.tokens.len() + inputs > self.workspace.plan.tokens {
                self.run_micro_batch(model, loss, &mut sums)?;
            }
            tokens += inputs;
            loss.pack(example, self.norms[i], &mut self.packed);
        }
        self.run_micro_batch(model, loss, &mut sums)?;
        Ok((sums.stats(), tokens))
    }

    fn run_micro_batch(&mut self, model: &Model<D>, loss: &LossConfig, sums: &mut LossSums) -> Result<()> {
        let rows = self.packed.rows.len();
        if rows > 0 {
            self.workspace.forward_backward(model, &self.packed, loss.row_loss())?;
            let (logprob, entropy) = (&mut self.logprob[..rows], &mut self.entropy[..rows]);
            self.workspace.read_rows(&self.device, logprob, entropy)?;
            sums.add(loss, &self.packed, logprob, entropy);
        }
        self.packed.clear();
        Ok(())
    }

    /// Checks everything about an example that could stop a step half-way.
    fn admit(&self, model: &Model<D>, index: usize, example: &Example, loss: &LossConfig) -> Result<()> {
        example.validate(index, loss)?;
        self.fits(model, index, example.tokens.len() - 1)?;
        let vocabulary = model.config.vocab_size;
        match example.tokens.iter().find(|id| **id as usize >= vocabulary) {
            None => Ok(()),
            Some(id) => Err(LmError::Input(format!(
                "training example {index}: token id {id} is beyond the vocabulary of {vocabulary}"
            ))),
        }
    }

    fn fits(&self, model: &Model<D>, index: usize, inputs: usize) -> Result<()> {
        let room = self.workspace.plan.tokens.min(model.max_positions);
        if inputs > room {
            return Err(LmError::Input(format!(
                "sequence {index} has {} tokens; micro-batches were planned for {} and the model runs {} \
                 positions",
                inputs + 1,
                self.workspace.plan.tokens,
                model.max_positions
            )));
        }
        Ok(())
    }

    /// Names the first tensor whose gradient is not finite, throws the gradient away and fails.
    fn not_finite<T>(&mut self, model: &Model<D>, step: u64, what: String, value: f64) -> Result<T> {
        let gradient = self.gradient(model)?;
        let found = first_not_finite(&gradient)
            .and_then(|(at, value)| model.layout.tensor_at(at).map(|tensor| (tensor, value)));
        let (what, value) = match found {
            Some((tensor, value)) => {
                (format!("{what}, first the gradient of {}", tensor.name), f64::from(value))
            }
            None => (what, value),
        };
        self.device.zero_grad(self.workspace.grads()?)?;
        Err(LmError::NotFinite { step, batch: 0, what, value })
    }
}

/// The examples in batches: shuffled by the seed, groups kept together when they share a normaliser.
fn batches<'a>(examples: &'a [Example], options: &TrainOptions) -> Vec<Vec<&'a Example>> {
    let mut units: Vec<Vec<&Example>> = Vec::new();
    if options.loss.normaliser == Normaliser::Group {
        let mut unit_of = std::collections::HashMap::new();
        for example in examples {
            let unit = *unit_of.entry(example.group).or_insert(units.len());
            match units.get_mut(unit) {
                Some(mates) => mates.push(example),
                None => units.push(vec![example]),
            }
        }
    } else {
        units.extend(examples.iter().map(|e| vec![e]));
    }
    if let Some(seed) = options.shuffle_seed {
        Rng::new(seed, 0).shuffle(&mut units);
    }
    let mut batches: Vec<Vec<&Example>> = Vec::new();
    for unit in units {
        match batches.last_mut() {
            Some(batch) if batch.len() + unit.len() <= options.batch_size => batch.extend(unit),
            _ => batches.push(unit),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Objective;

    fn options(normaliser: Normaliser, seed: Option<u64>) -> TrainOptions {
        TrainOptions {
            loss: LossConfig::new(Objective::Reinforce, normaliser),
            adam: AdamConfig::default(),
            schedule: Schedule::Constant,
            batch_size: 4,
            shuffle_seed: seed,
        }
    }

    #[test]
    fn batches_hold_every_example_once_and_keep_groups_whole() {
        let examples: Vec<Example> =
            (0..10).map(|i| Example { group: i / 2, prompt_len: i as usize, ..Example::default() }).collect();
        for normaliser in [Normaliser::Token, Normaliser::Group] {
            let batches = batches(&examples, &options(normaliser, Some(3)));
            assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
            let mut seen: Vec<usize> = batches.iter().flatten().map(|e| e.prompt_len).collect();
            assert_ne!(seen, (0..10).collect::<Vec<_>>());
            seen.sort_unstable();
            assert_eq!(seen, (0..10).collect::<Vec<_>>());
            if normaliser == Normaliser::Group {
                assert!(batches.iter().flat_map(|b| b.chunks(2)).all(|pair| pair[0].group == pair[1].group));
            }
        }
    }
}
