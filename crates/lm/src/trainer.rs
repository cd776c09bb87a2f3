//! The trainer: divides batches into micro-batches, and runs the forward pass, the backward pass, clipping and Adam.
//!
//! A [`Trainer`] owns the buffers and trains any number of [`Policy`]s of one shape, one after the other: a
//! Solver and a Conjecturer are two policies, a frozen Guide is only a [`Model`].
//!
//! With several ranks, each rank has a trainer and every policy. All ranks get the same batches, process their
//! parts of them, and have the same weights after each step. Losses are normalised over the whole batch, so
//! apart from rounding a step does not depend on the number of ranks.

use std::sync::Arc;
use std::time::Instant;

use crate::config::ModelConfig;
use crate::device::{AdamUpdate, Device, first};
use crate::error::{LmError, Result};
use crate::host_buffer::HostBuffer;
use crate::layout::Layout;
use crate::loss::{LossConfig, LossStats, LossSums, Normaliser, TrainExample};
use crate::model::{MemoryPlan, Mode, Model, Peers, Workspace, adam_bytes};
use crate::optim::{AdamConfig, LrSchedule};
use crate::pack::{LossRow, Packed};
use crate::ranks::{Collective, ProcessGroup};
use crate::shard::Shard;
use crate::weights::first_not_finite;
use sgs_base::random::SeededRng;

/// A model in training, with its optimizer state.
pub struct Policy<D: Device> {
    /// The model. Samplers hold clones of the pointer and must drop them before the next update.
    pub model: Arc<Model<D>>,
    /// Adam's moments of this rank's shard.
    pub adam: D::Adam,
    /// This rank's shard, which is the whole model if the rank trains alone.
    pub shard: Shard,
    /// Number of optimizer steps so far.
    pub step: u64,
}

impl<D: Device> std::fmt::Debug for Policy<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy").field("model", &self.model).field("step", &self.step).finish_non_exhaustive()
    }
}

impl<D: Device> Policy<D> {
    /// Creates a policy with new optimizer state.
    pub fn new(model: Model<D>) -> Result<Self> {
        let shard = Shard::whole(model.layout.len);
        Self::of_shard(model, shard)
    }

    /// Creates a policy, as [`Policy::new`] does, for one of several ranks (see [`Trainer::shard`]).
    pub fn of_shard(model: Model<D>, shard: Shard) -> Result<Self> {
        let adam = check_adam_fits(&model, &shard).and_then(|()| model.device.adam(&shard))?;
        Ok(Self { model: Arc::new(model), adam, shard, step: 0 })
    }

    /// Zeroes the optimizer's moments and restarts the step count.
    pub fn reset_optimizer(&mut self) -> Result<()> {
        self.model.device.reset_moments(&mut self.adam)?;
        self.step = 0;
        Ok(())
    }
}

/// Checks that the optimizer state fits into the device's free memory.
pub(crate) fn check_adam_fits<D: Device>(model: &Model<D>, shard: &Shard) -> Result<()> {
    let needed = adam_bytes(model.device.footprint(), shard);
    match model.device.free_bytes() {
        Some(free) if free < needed => Err(LmError::Memory {
            device: model.device.name(),
            what: format!("the optimizer's state of {} parameters", shard.len),
            needed,
            free,
            hint: "train with more ranks, each of which holds a shard of it, or use a smaller model"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Options for training on a list of examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainOptions {
    /// The loss.
    pub loss: LossConfig,
    /// Adam's constants.
    pub adam: AdamConfig,
    /// Learning-rate schedule over the policy's steps.
    pub schedule: LrSchedule,
    /// Sequences per optimizer step.
    pub batch_size: usize,
    /// Seed for shuffling the examples; `None` keeps their order.
    pub shuffle_seed: Option<u64>,
}

/// Report of one optimizer step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// The step, counted from 0 since the policy was created.
    pub step: u64,
    /// The learning rate.
    pub learning_rate: f64,
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Number of sequences in the batch.
    pub sequences: usize,
    /// Number of tokens processed by the model.
    pub tokens: usize,
    /// Loss and related statistics.
    pub stats: LossStats,
    /// Wall-clock time, in seconds.
    pub seconds: f64,
}

/// Report of a pass over a list of examples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainReport {
    /// Number of optimizer steps.
    pub steps: usize,
    /// Number of sequences.
    pub sequences: usize,
    /// Number of tokens processed by the model.
    pub tokens: usize,
    /// Loss and related statistics over all steps.
    pub stats: LossStats,
    /// Statistics of the first step. No update precedes it, so its difference from the sampler's log-probabilities
    /// measures only the disagreement of the two computations.
    pub first_step: LossStats,
    /// Mean global gradient norm before clipping.
    pub mean_gradient_norm: f64,
    /// Largest global gradient norm before clipping.
    pub max_gradient_norm: f64,
    /// Fraction of steps whose gradient was clipped.
    pub clipped_share: f64,
    /// Wall-clock time, in seconds.
    pub seconds: f64,
}

/// Log-probabilities of a given completion (teacher forcing).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenStats {
    /// Log-probability of each token of the completion at temperature 1.
    pub log_probs: Vec<f32>,
    /// Entropy of the distribution at each token, in nats.
    pub entropies: Vec<f32>,
}

/// A trainer's workspace, which is allocated again after it was freed.
struct Buffers<D: Device> {
    device: Arc<D>,
    config: ModelConfig,
    /// The rank and the number of ranks.
    place: (usize, usize),
    plan: MemoryPlan,
    workspace: Option<Workspace<D>>,
}

impl<D: Device> Buffers<D> {
    fn new(
        device: Arc<D>,
        config: &ModelConfig,
        tokens: usize,
        mode: Mode,
        place: (usize, usize),
    ) -> Result<Self> {
        let workspace = Workspace::for_rank(&*device, config, tokens, mode, place)?;
        let plan = workspace.plan.clone();
        Ok(Self { device, config: config.clone(), place, plan, workspace: Some(workspace) })
    }

    /// Returns the workspace, and allocates it if necessary.
    fn get(&mut self) -> Result<&mut Workspace<D>> {
        let workspace = match self.workspace.take() {
            Some(workspace) => workspace,
            None => {
                let MemoryPlan { tokens, mode, .. } = self.plan;
                Workspace::for_rank(&*self.device, &self.config, tokens, mode, self.place)?
            }
        };
        Ok(self.workspace.insert(workspace))
    }
}

/// Buffers and state for training on one device.
pub struct Trainer<D: Device> {
    device: Arc<D>,
    peers: Option<Box<dyn Collective<D>>>,
    buffers: Buffers<D>,
    packed: Packed,
    /// Rows of the last micro-batch whose log-probabilities have not been read yet.
    unread: usize,
    norms: Vec<f32>,
    log_prob: Vec<f32>,
    entropy: Vec<f32>,
}

impl<D: Device> std::fmt::Debug for Trainer<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trainer").field("workspace", &self.buffers.workspace).finish_non_exhaustive()
    }
}

/// Borrows the other ranks in the form that the model's passes need.
fn as_peers<D: Device>(peers: &mut Option<Box<dyn Collective<D>>>) -> Peers<'_, D> {
    peers.as_deref_mut()
}

impl<D: Device> Trainer<D> {
    /// Plans the buffers for micro-batches of at most `tokens` tokens, which is also the maximum length of a sequence.
    pub fn new(device: Arc<D>, config: &ModelConfig, tokens: usize, mode: Mode) -> Result<Self> {
        Self::with_peers(device, config, tokens, mode, None)
    }

    /// Creates a trainer, as [`Trainer::new`] does, for one of several ranks, all of which must make the same calls.
    pub fn with_peers(
        device: Arc<D>,
        config: &ModelConfig,
        tokens: usize,
        mode: Mode,
        mut peers: Option<Box<dyn Collective<D>>>,
    ) -> Result<Self> {
        let place = peers.as_mut().map_or((0, 1), |p| (p.group().rank(), p.group().ranks()));
        let buffers = Buffers::new(Arc::clone(&device), config, tokens, mode, place)?;
        let tokens = buffers.plan.tokens;
        Ok(Self {
            device,
            peers,
            buffers,
            packed: Packed::with_capacity(tokens),
            unread: 0,
            norms: Vec::new(),
            log_prob: vec![0.0; tokens],
            entropy: vec![0.0; tokens],
        })
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// Returns the memory plan.
    pub fn plan(&self) -> &MemoryPlan {
        &self.buffers.plan
    }

    /// Frees the gradients and the buffers of passes; the next pass allocates them again. Gradients that no update has
    /// used are lost.
    pub fn release_buffers(&mut self) {
        self.unread = 0;
        self.buffers.workspace = None;
    }

    /// Returns the process group, if several ranks train together.
    pub fn group(&mut self) -> Option<&mut ProcessGroup> {
        self.peers.as_mut().map(|peers| peers.group())
    }

    /// Returns this process's rank and the number of ranks.
    pub fn rank_and_size(&mut self) -> (usize, usize) {
        self.group().map_or((0, 1), |group| (group.rank(), group.ranks()))
    }

    /// Returns this rank's shard of a model.
    pub fn shard(&mut self, layout: &Layout) -> Shard {
        let (rank, ranks) = self.rank_and_size();
        Shard::of(layout, rank, ranks)
    }

    /// Runs one pass over `examples` in batches of [`TrainOptions::batch_size`] sequences (whole groups under
    /// [`Normaliser::Group`]); the last batch may be smaller. Calls `on_step` after each step.
    ///
    /// # Errors
    /// Returns an error if an example does not fit (before any update), if a sampler still holds the model, or
    /// if a loss or gradient is not finite (the policy is then in the state after its last finite step).
    pub fn train(
        &mut self,
        policy: &mut Policy<D>,
        examples: &[TrainExample],
        options: &TrainOptions,
        mut on_step: impl FnMut(&StepReport),
    ) -> Result<TrainReport> {
        let started = Instant::now();
        for (index, example) in examples.iter().enumerate() {
            self.check_example(&policy.model, index, example, &options.loss)?;
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
            report.clipped_share += f64::from(u8::from(step.gradient_norm > options.adam.clip_norm));
            on_step(&step);
        }
        let steps = report.steps.max(1) as f64;
        report.mean_gradient_norm /= steps;
        report.clipped_share /= steps;
        report.seconds = started.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Runs one optimizer step on one batch; ignores `options.batch_size` and the seed.
    pub fn step(
        &mut self,
        policy: &mut Policy<D>,
        batch: &[&TrainExample],
        options: &TrainOptions,
    ) -> Result<StepReport> {
        let started = Instant::now();
        if Arc::get_mut(&mut policy.model).is_none() {
            return Err(LmError::Input(
                "the policy's weights are still in use elsewhere (by a sampler?): drop every clone of its model \
                 before an update"
                    .to_owned(),
            ));
        }
        for (index, example) in batch.iter().enumerate() {
            self.check_example(&policy.model, index, example, &options.loss)?;
        }
        let (own, held) = (self.rank_and_size(), (policy.shard.rank, policy.shard.ranks));
        if own != held {
            return Err(LmError::Input(format!(
                "rank {} of {} was given the optimizer's state of rank {} of {}",
                own.0, own.1, held.0, held.1
            )));
        }
        let device = Arc::clone(&self.device);
        let step = policy.step;
        let accumulated = device.run(|| self.accumulate_and_measure(&policy.model, batch, &options.loss));
        if accumulated.is_err() {
            self.buffers.get()?.gradients()?.clear(&device)?;
        }
        let (sums, tokens, squares) = accumulated?;
        let (stats, gradient_norm) = (sums.stats(), squares.sqrt());
        if !stats.loss.is_finite() {
            return self.not_finite(&policy.model, step, "the loss".to_owned(), stats.loss);
        }
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
            // Add the same small term as PyTorch, so that both clip equally.
            gradient_scale: if gradient_norm > clip { clip / (gradient_norm + 1e-6) } else { 1.0 },
            zero_gradient: self.buffers.get()?.gradients()?.are_zeroed(),
        };
        let Some(model) = Arc::get_mut(&mut policy.model) else {
            return Err(LmError::Input("the policy's weights were in use during its update".to_owned()));
        };
        device.run(|| self.update(update, model, &mut policy.adam))?;
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

    /// Computes loss and gradient of a batch without an update; [`Trainer::gradient`] then returns the gradient.
    ///
    /// # Errors
    /// Returns an error if an example does not fit or if the device fails.
    pub fn loss_and_gradient(
        &mut self,
        model: &Model<D>,
        batch: &[&TrainExample],
        loss: &LossConfig,
    ) -> Result<LossStats> {
        for (index, example) in batch.iter().enumerate() {
            self.check_example(model, index, example, loss)?;
        }
        let device = Arc::clone(&self.device);
        self.buffers.get()?.gradients()?.clear(&device)?;
        let sums = device.run(|| {
            let (mut sums, _) = self.accumulate(model, batch, loss)?;
            self.read_rows(loss, &mut sums)?;
            Result::Ok(sums)
        })?;
        Ok(sums.stats())
    }

    /// Copies the gradient to the host, in the layout of the parameters; it is zero after an update.
    ///
    /// # Errors
    /// Returns an error if the workspace was planned for inference, if there are several ranks, or if the device fails.
    pub fn gradient(&mut self, model: &Model<D>) -> Result<HostBuffer> {
        self.buffers.get()?.gradients()?.zero_outdated(&self.device)?;
        let mut host = HostBuffer::zeros(model.layout.len);
        self.device.read_grad(self.buffers.get()?.gradients()?.whole()?, &mut host)?;
        Ok(host)
    }

    /// Zeroes the gradient that [`Trainer::loss_and_gradient`] computed.
    ///
    /// # Errors
    /// Returns an error if the workspace was planned for inference, or if the device fails.
    pub fn clear_gradient(&mut self) -> Result<()> {
        self.buffers.get()?.gradients()?.clear(&self.device)
    }

    /// Computes log-probabilities and entropies of given completions. Each of `sequences` consists of its
    /// tokens and the length of its prompt (at least 1).
    ///
    /// # Errors
    /// Returns an error if a sequence does not fit or has an unknown token, or if the device fails.
    pub fn log_probs<'a>(
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
            if self.packed.tokens.len() + inputs.len() > self.buffers.plan.tokens {
                self.flush_log_probs(model, &mut waiting, &mut results)?;
            }
            let rows = (prompt_len..tokens.len()).map(|i| LossRow {
                index: i - 1,
                target: tokens[i],
                ..LossRow::default()
            });
            self.packed.push(inputs, rows);
            waiting.push((index, tokens.len() - prompt_len));
        }
        self.flush_log_probs(model, &mut waiting, &mut results)?;
        Ok(results)
    }

    fn flush_log_probs(
        &mut self,
        model: &Model<D>,
        waiting: &mut Vec<(usize, usize)>,
        results: &mut [TokenStats],
    ) -> Result<()> {
        let rows = self.packed.rows.len();
        if rows > 0 {
            let device = Arc::clone(&self.device);
            self.pad(model);
            let (workspace, packed) = (self.buffers.get()?, &self.packed);
            device.run(|| workspace.forward(model, packed))?;
            let (log_prob, entropy) = (&mut self.log_prob[..rows], &mut self.entropy[..rows]);
            workspace.read_rows(&device, log_prob, entropy)?;
        }
        let mut at = 0;
        for (index, len) in waiting.drain(..) {
            results[index].log_probs = self.log_prob[at..at + len].to_vec();
            results[index].entropies = self.entropy[at..at + len].to_vec();
            at += len;
        }
        self.packed.clear();
        Ok(())
    }

    /// Computes the mean of the last hidden state (after the final norm) over the tokens of each sequence: one
    /// vector of the model's width per sequence.
    ///
    /// # Errors
    /// Returns an error if a sequence is empty, does not fit or has an unknown token, or if the device fails.
    pub fn embeddings<'a>(
        &mut self,
        model: &Model<D>,
        sequences: impl IntoIterator<Item = &'a [u32]>,
    ) -> Result<Vec<Vec<f32>>> {
        let mut means = Vec::new();
        self.packed.clear();
        for (index, tokens) in sequences.into_iter().enumerate() {
            if tokens.is_empty() {
                return Err(LmError::Input(format!("sequence {index} has no tokens")));
            }
            self.fits(model, index, tokens.len())?;
            if self.packed.tokens.len() + tokens.len() > self.buffers.plan.tokens {
                self.flush_embeddings(model, &mut means)?;
            }
            self.packed.push(tokens, (0..tokens.len()).map(|index| LossRow { index, ..LossRow::default() }));
        }
        self.flush_embeddings(model, &mut means)?;
        Ok(means)
    }

    fn flush_embeddings(&mut self, model: &Model<D>, means: &mut Vec<Vec<f32>>) -> Result<()> {
        let starts = self.packed.starts.clone();
        if self.packed.is_empty() {
            return Ok(());
        }
        let device = Arc::clone(&self.device);
        self.pad(model);
        let (workspace, packed, d) = (self.buffers.get()?, &self.packed, model.config.hidden_size);
        let mut sums = vec![vec![0.0f64; d]; starts.len() - 1];
        let mut add = |first: usize, states: &[f32]| {
            for (row, state) in (first..).zip(states.chunks_exact(d)) {
                // Every token has a row; rows after the last sequence are padding of the micro-batch.
                let sequence = starts.partition_point(|start| *start <= row) - 1;
                if let Some(sum) = sums.get_mut(sequence) {
                    sum.iter_mut().zip(state).for_each(|(sum, x)| *sum += f64::from(*x));
                }
            }
        };
        device.run(|| workspace.hidden(model, packed, &mut add))?;
        let lengths = starts.windows(2).map(|ends| (ends[1] - ends[0]) as f64);
        means.extend(
            sums.iter().zip(lengths).map(|(sum, n)| sum.iter().map(|x| (x / n) as f32).collect::<Vec<_>>()),
        );
        self.packed.clear();
        Ok(())
    }

    /// Computes the gradient of a batch over all ranks. Returns the sums of the loss, the number of tokens, and
    /// the sum of squares of the gradient.
    fn accumulate_and_measure(
        &mut self,
        model: &Model<D>,
        batch: &[&TrainExample],
        loss: &LossConfig,
    ) -> Result<(LossSums, usize, f64)> {
        let (mut sums, tokens) = self.accumulate(model, batch, loss)?;
        if let Some(peers) = &mut self.peers {
            peers.wait_all()?;
        }
        self.buffers.get()?.gradients()?.zero_outdated(&self.device)?;
        let mut squares = self.device.sum_of_squares(self.buffers.get()?.gradients()?.sum())?;
        // Read the rows only now, so that all kernels are started before this thread waits.
        self.read_rows(loss, &mut sums)?;
        if let Some(group) = self.group() {
            let mut own = sums.numbers().to_vec();
            own.push(squares);
            let rows = group.exchange(&own)?;
            (sums, squares) = (LossSums::default(), 0.0);
            for row in &rows {
                sums.join(row);
                squares += row.last().copied().unwrap_or(f64::NAN);
            }
        }
        Ok((sums, tokens, squares))
    }

    /// Accumulates the gradients of this rank's part of a batch over its micro-batches. Returns the sums of this part
    /// (without the last micro-batch, which [`Trainer::read_rows`] adds) and the number of tokens of the whole batch.
    fn accumulate(
        &mut self,
        model: &Model<D>,
        batch: &[&TrainExample],
        loss: &LossConfig,
    ) -> Result<(LossSums, usize)> {
        loss.norms(batch, &mut self.norms);
        let (rank, ranks) = self.rank_and_size();
        let inputs = |i: usize| batch[i].tokens.len() - 1;
        let active: Vec<usize> = (0..batch.len()).filter(|i| !loss.is_inert(batch[*i])).collect();
        let tokens = active.iter().map(|i| inputs(*i)).sum();
        let parts = distribute(&active, ranks, inputs);
        // Every rank takes part in as many reductions as the rank with the most micro-batches.
        let most = parts
            .iter()
            .map(|part| micro_batches(part, self.buffers.plan.tokens, inputs).len())
            .fold(0, usize::max);
        let mut sums = LossSums::default();
        self.unread = 0;
        let own = micro_batches(&parts[rank], self.buffers.plan.tokens, inputs);
        for micro_batch in 0..most {
            self.read_rows(loss, &mut sums)?;
            self.packed.clear();
            for i in own.get(micro_batch).into_iter().flatten() {
                loss.pack(batch[*i], self.norms[*i], &mut self.packed);
            }
            self.run_micro_batch(model, loss)?;
        }
        Ok((sums, tokens))
    }

    fn run_micro_batch(&mut self, model: &Model<D>, loss: &LossConfig) -> Result<()> {
        let rows = self.packed.rows.len();
        if rows == 0 {
            let peers = as_peers(&mut self.peers);
            return if peers.is_some() { self.buffers.get()?.stand_by(peers) } else { Ok(()) };
        }
        self.pad(model);
        let peers = as_peers(&mut self.peers);
        self.buffers.get()?.forward_backward(model, &self.packed, loss.row_loss(), peers)?;
        self.unread = rows;
        Ok(())
    }

    /// Pads the micro-batch to numbers of tokens and rows that the device prefers.
    fn pad(&mut self, model: &Model<D>) {
        let (tokens, rows) = (self.packed.tokens.len(), self.packed.rows.len());
        let surplus = self.device.round_up_rows(rows) - rows;
        // Every surplus row needs a surplus token.
        let all = self.device.round_up_rows(tokens + surplus);
        if all <= self.buffers.plan.tokens {
            self.packed.pad(all, rows + surplus, model.max_positions);
        }
    }

    /// Adds the sums of the last micro-batch.
    fn read_rows(&mut self, loss: &LossConfig, sums: &mut LossSums) -> Result<()> {
        let rows = std::mem::take(&mut self.unread);
        if rows > 0 {
            let (log_prob, entropy) = (&mut self.log_prob[..rows], &mut self.entropy[..rows]);
            self.buffers.get()?.read_rows(&self.device, log_prob, entropy)?;
            sums.add(loss, &self.packed, log_prob, entropy);
        }
        Ok(())
    }

    /// Updates this rank's shard and gathers the new weights on all ranks, bucket by bucket.
    fn update(&mut self, update: AdamUpdate, model: &mut Model<D>, adam: &mut D::Adam) -> Result<()> {
        let Model { params, layout, .. } = model;
        let gradients = self.buffers.get()?.gradients()?;
        gradients.mark_outdated();
        let mut peers = as_peers(&mut self.peers);
        for bucket in 0..gradients.buckets().len() {
            let range = gradients.buckets()[bucket].clone();
            let pieces: Vec<_> = gradients.shard().within(range).collect();
            for piece in pieces {
                self.device.adam_step(update, layout, piece, params, gradients.sum(), adam)?;
            }
            gradients.gather(bucket, self.device.footprint().bytes_per_parameter().0, params, &mut peers)?;
        }
        peers.map_or(Ok(()), |peers| peers.wait_all())
    }

    /// Checks everything about an example that could interrupt a step.
    fn check_example(
        &self,
        model: &Model<D>,
        index: usize,
        example: &TrainExample,
        loss: &LossConfig,
    ) -> Result<()> {
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
        let room = self.buffers.plan.tokens.min(model.max_positions);
        if inputs > room {
            return Err(LmError::Input(format!(
                "sequence {index} has {} tokens; micro-batches were planned for {} and the model runs {} \
                 positions",
                inputs + 1,
                self.buffers.plan.tokens,
                model.max_positions
            )));
        }
        Ok(())
    }

    /// Returns the first element of the flat gradient, over all ranks, that is not finite, and its value.
    fn first_bad_gradient(&mut self) -> Result<Option<(usize, f64)>> {
        let gradients = self.buffers.get()?.gradients()?;
        let shard = gradients.shard().clone();
        let mut host = HostBuffer::zeros(shard.len);
        self.device.read_grad(first(gradients.sum(), shard.len), &mut host)?;
        let found = first_not_finite(&host).and_then(|(at, value)| Some((shard.flat(at)?, f64::from(value))));
        let Some(group) = self.group() else { return Ok(found) };
        let own = found.map_or([f64::INFINITY, 0.0], |(at, value)| [at as f64, value]);
        let rows = group.exchange(&own)?;
        let earliest = rows.iter().filter(|row| row[0].is_finite()).min_by(|a, b| a[0].total_cmp(&b[0]));
        Ok(earliest.map(|row| (row[0] as usize, row[1])))
    }

    /// Returns the error that names the first tensor whose gradient is not finite, and discards the gradient.
    fn not_finite<T>(&mut self, model: &Model<D>, step: u64, what: String, value: f64) -> Result<T> {
        let found = self.first_bad_gradient()?;
        let found = found.and_then(|(at, value)| Some((model.layout.tensor_at(at)?, value)));
        let (what, value) = match found {
            Some((tensor, value)) => (format!("{what}, first the gradient of {}", tensor.name), value),
            None => (what, value),
        };
        self.buffers.get()?.gradients()?.clear(&self.device)?;
        Err(LmError::NotFinite { step, batch: 0, what, value })
    }
}

/// Distributes examples to ranks, the longest first and each to the rank with the fewest tokens. Within a rank,
/// examples keep their order.
fn distribute(examples: &[usize], ranks: usize, tokens: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let mut order = examples.to_vec();
    if ranks > 1 {
        order.sort_by_key(|i| (std::cmp::Reverse(tokens(*i)), *i));
    }
    let mut parts = vec![(0, Vec::new()); ranks];
    for i in order {
        if let Some((load, part)) = parts.iter_mut().min_by_key(|(load, _)| *load) {
            *load += tokens(i);
            part.push(i);
        }
    }
    parts.iter_mut().for_each(|(_, part)| part.sort_unstable());
    parts.into_iter().map(|(_, part)| part).collect()
}

/// Divides examples into micro-batches of at most `room` tokens, in their order.
fn micro_batches(examples: &[usize], room: usize, tokens: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let mut micro_batches: Vec<Vec<usize>> = Vec::new();
    let mut filled = 0;
    for i in examples {
        match micro_batches.last_mut() {
            Some(last) if filled + tokens(*i) <= room => {
                last.push(*i);
                filled += tokens(*i);
            }
            _ => {
                micro_batches.push(vec![*i]);
                filled = tokens(*i);
            }
        }
    }
    micro_batches
}

/// Divides examples into batches, shuffled if there is a seed. Groups that share a normaliser stay together.
fn batches<'a>(examples: &'a [TrainExample], options: &TrainOptions) -> Vec<Vec<&'a TrainExample>> {
    let mut units: Vec<Vec<&TrainExample>> = Vec::new();
    if options.loss.normaliser == Normaliser::Group {
        let mut unit_of = std::collections::HashMap::new();
        for example in examples {
            let unit = *unit_of.entry(example.group).or_insert(units.len());
            match units.get_mut(unit) {
                Some(group_members) => group_members.push(example),
                None => units.push(vec![example]),
            }
        }
    } else {
        units.extend(examples.iter().map(|e| vec![e]));
    }
    if let Some(seed) = options.shuffle_seed {
        SeededRng::stream(seed, 0).shuffle_by_index(&mut units);
    }
    let mut batches: Vec<Vec<&TrainExample>> = Vec::new();
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
            schedule: LrSchedule::Constant,
            batch_size: 4,
            shuffle_seed: seed,
        }
    }

    #[test]
    fn ranks_get_about_as_many_tokens_each_and_every_example_once() {
        let tokens = |i: usize| 1 + i * 7 % 40;
        let examples: Vec<usize> = (0..50).filter(|i| i % 3 != 0).collect();
        for ranks in [1, 2, 3, 4, 60] {
            let parts = distribute(&examples, ranks, tokens);
            assert_eq!(parts.len(), ranks);
            let mut all = parts.concat();
            all.sort_unstable();
            assert_eq!(all, examples);
            let loads: Vec<usize> = parts.iter().map(|p| p.iter().map(|i| tokens(*i)).sum()).collect();
            assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 40, "{loads:?}");
            for part in &parts {
                let micro = micro_batches(part, 45, tokens);
                assert_eq!(micro.concat(), *part);
                assert!(micro.iter().all(|m| m.iter().map(|i| tokens(*i)).sum::<usize>() <= 45));
            }
        }
        assert_eq!(distribute(&examples, 1, tokens)[0], examples);
    }

    #[test]
    fn batches_hold_every_example_once_and_keep_groups_whole() {
        let examples: Vec<TrainExample> = (0..10)
            .map(|i| TrainExample { group: i / 2, prompt_len: i as usize, ..TrainExample::default() })
            .collect();
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
