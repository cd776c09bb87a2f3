//! Supervised training over tokenised corpora in memory: from scratch, or from a checkpoint on prompts and
//! answers.
//!
//! Every optimiser step takes whole documents from the corpora, the next one always from the corpus that is
//! furthest behind its share of tokens, each corpus in an order that the seed shuffles anew every epoch.
//! The position in that stream is a few numbers, so that a resumed run sees the same documents.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, SaveOptions};
use crate::device::Device;
use crate::error::{LmError, Result};
use crate::loss::{Example, LossConfig};
use crate::model::Model;
use crate::optim::{AdamConfig, Schedule};
use crate::rng::Rng;
use crate::trainer::{Policy, TrainOptions, Trainer};
use crate::weights::FileType;

/// Tokenised documents of one origin.
#[derive(Debug, Clone, Default)]
pub struct Corpus {
    name: String,
    weight: f64,
    tokens: Vec<u32>,
    /// Where each document ends in `tokens`, and how many of its tokens are prompt.
    documents: Vec<(usize, u32)>,
}

impl Corpus {
    /// An empty corpus whose documents shall make up `weight / Σ weights` of all tokens seen.
    pub fn new(name: impl Into<String>, weight: f64) -> Self {
        Self { name: name.into(), weight, ..Self::default() }
    }

    /// Appends a document. Its first `prompt_len` tokens (at least 1) are context, the others are learned.
    /// What is longer than `context` tokens is cut into pieces that overlap by one token, so that every
    /// token keeps its loss; a piece without a token to learn is left out.
    pub fn push(&mut self, tokens: &[u32], prompt_len: usize, context: usize) {
        let context = context.max(2);
        let mut from = 0;
        while from + 1 < tokens.len() {
            let to = tokens.len().min(from + context);
            let prompt = prompt_len.saturating_sub(from).max(1);
            if prompt < to - from {
                self.tokens.extend_from_slice(&tokens[from..to]);
                self.documents.push((self.tokens.len(), prompt as u32));
            }
            from = to - 1;
        }
    }

    /// The corpus's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of documents, the pieces of long ones counted.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether it holds no document.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Document `index` as an example.
    ///
    /// # Panics
    /// When there is no such document.
    pub fn example(&self, index: usize) -> Example {
        let from = if index == 0 { 0 } else { self.documents[index - 1].0 };
        let (to, prompt_len) = self.documents[index];
        Example { prompt_len: prompt_len as usize, ..Example::plain(self.tokens[from..to].to_vec()) }
    }
}

/// How to train.
#[derive(Debug, Clone)]
pub struct PretrainConfig {
    /// Optimiser steps of the whole run.
    pub steps: u64,
    /// Tokens of one optimiser step (the document that reaches it still enters).
    pub tokens_per_step: usize,
    /// Adam's constants.
    pub adam: AdamConfig,
    /// Steps of the learning rate's rise.
    pub warmup: u64,
    /// Last learning rate over the largest.
    pub floor: f64,
    /// Seed of the order of documents.
    pub seed: u64,
    /// Steps between evaluations; 0 for one at the end only.
    pub evaluate_every: u64,
    /// Steps between checkpoints; 0 for one at the end only.
    pub checkpoint_every: u64,
    /// Folder of the checkpoint, replaced each time; `None` for none.
    pub checkpoint_dir: Option<PathBuf>,
    /// Element type of the checkpoint's model file (the state beside it is exact either way).
    pub file_type: FileType,
    /// Files copied into every checkpoint, such as the tokenizer's.
    pub companions: Vec<PathBuf>,
}

/// One row of the loss curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurveRow {
    /// The step, counted from 1.
    pub step: u64,
    /// Tokens run through the model since the run's beginning.
    pub tokens: u64,
    /// Mean cross-entropy of the step's loss tokens, in nats.
    pub loss: f64,
    /// Mean entropy of the model's distributions, in nats.
    pub entropy: f64,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Tokens per second of the step.
    pub tokens_per_second: f64,
    /// Passes over each corpus so far, in their order.
    pub epochs: Vec<f64>,
    /// What the evaluation said after this step, if there was one.
    pub evaluation: Vec<(String, f64)>,
}

/// The position in the stream of documents; it lies in the checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DataState {
    /// Tokens run through the model so far.
    tokens: u64,
    corpora: Vec<CorpusState>,
    /// What the stream depends on besides: a resumed run must have the same.
    seed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CorpusState {
    name: String,
    documents: usize,
    epoch: u64,
    next: usize,
    tokens: u64,
}

/// What the caller does during a run.
pub trait Hooks<D: Device> {
    /// Sees every step.
    fn on_step(&mut self, row: &CurveRow);

    /// Judges the model; the names and values go into the curve.
    ///
    /// # Errors
    /// Whatever the evaluation meets; it ends the run after a checkpoint.
    fn evaluate(&mut self, trainer: &mut Trainer<D>, model: &Model<D>) -> Result<Vec<(String, f64)>>;

    /// Asked after every step: whether to write a checkpoint and return early.
    fn stop(&mut self) -> bool {
        false
    }
}

/// Trains until `config.steps`, from `policy.step` and `state` on (the state that [`checkpoint::load`]
/// handed back, or `None` at the start). Returns whether the run is complete.
///
/// # Errors
/// A corpus is empty or changed since the checkpoint, a document is longer than the trainer was planned for,
/// a loss is not finite (the last checkpoint stays), or the disk fails.
pub fn run<D: Device>(
    trainer: &mut Trainer<D>,
    policy: &mut Policy<D>,
    corpora: &[Corpus],
    config: &PretrainConfig,
    state: Option<serde_json::Value>,
    hooks: &mut impl Hooks<D>,
) -> Result<bool> {
    let mut stream = Stream::new(corpora, config.seed, state, policy.step)?;
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: config.adam,
        schedule: Schedule::Cosine { warmup: config.warmup, total: config.steps, floor: config.floor },
        batch_size: usize::MAX,
        shuffle_seed: None,
    };
    while policy.step < config.steps {
        let examples = stream.take(config.tokens_per_step);
        let batch: Vec<&Example> = examples.iter().collect();
        let report = trainer.step(policy, &batch, &options)?;
        stream.state.tokens += report.tokens as u64;
        let done = policy.step == config.steps;
        let due = |every: u64| done || (every > 0 && policy.step.is_multiple_of(every));
        let evaluation =
            if due(config.evaluate_every) { hooks.evaluate(trainer, &policy.model) } else { Ok(Vec::new()) };
        let stop = evaluation.is_err() || hooks.stop();
        hooks.on_step(&CurveRow {
            step: policy.step,
            tokens: stream.state.tokens,
            loss: report.stats.loss,
            entropy: report.stats.entropy,
            gradient_norm: report.gradient_norm,
            learning_rate: report.learning_rate,
            tokens_per_second: report.tokens as f64 / report.seconds.max(1e-9),
            epochs: stream.epochs(),
            evaluation: evaluation.as_ref().map_or_else(|_| Vec::new(), Clone::clone),
        });
        if (stop || due(config.checkpoint_every))
            && let Some(dir) = &config.checkpoint_dir
        {
            let options = SaveOptions {
                file_type: config.file_type,
                extra: serde_json::to_value(&stream.state).map_err(LmError::json(dir))?,
                companions: config.companions.clone(),
            };
            checkpoint::save(dir, policy, &options)?;
        }
        evaluation?;
        if stop {
            return Ok(done);
        }
    }
    Ok(true)
}

/// Mean cross-entropy, in nats per learned token, of documents that are not trained on.
///
/// # Errors
/// A document does not fit, or the device fails.
pub fn mean_loss<D: Device>(trainer: &mut Trainer<D>, model: &Model<D>, held_out: &Corpus) -> Result<f64> {
    let examples: Vec<Example> = (0..held_out.len()).map(|i| held_out.example(i)).collect();
    let sequences = examples.iter().map(|e| (e.tokens.as_slice(), e.prompt_len));
    let stats = trainer.logprobs(model, sequences)?;
    let tokens: usize = stats.iter().map(|s| s.logprobs.len()).sum();
    let total: f64 = stats.iter().flat_map(|s| &s.logprobs).map(|lp| f64::from(*lp)).sum();
    Ok(if tokens == 0 { 0.0 } else { -total / tokens as f64 })
}

/// The documents in the order in which they are trained on.
struct Stream<'a> {
    corpora: &'a [Corpus],
    state: DataState,
    /// This epoch's order of each corpus.
    orders: Vec<Vec<u32>>,
}

impl<'a> Stream<'a> {
    fn new(corpora: &'a [Corpus], seed: u64, state: Option<serde_json::Value>, step: u64) -> Result<Self> {
        let fail = |message: String| Err(LmError::Input(message));
        if corpora.is_empty() {
            return fail("there is no corpus to train on".to_owned());
        }
        for corpus in corpora {
            if corpus.is_empty() {
                return fail(format!("corpus {:?} holds no document", corpus.name));
            }
            if !(corpus.weight > 0.0 && corpus.weight.is_finite()) {
                return fail(format!("corpus {:?} has weight {}", corpus.name, corpus.weight));
            }
        }
        let fresh = DataState {
            tokens: 0,
            seed,
            corpora: corpora
                .iter()
                .map(|c| CorpusState {
                    name: c.name.clone(),
                    documents: c.len(),
                    epoch: 0,
                    next: 0,
                    tokens: 0,
                })
                .collect(),
        };
        let state = match state {
            None if step > 0 => {
                return fail(format!("step {step} of a run, but its position in the corpora is not given"));
            }
            None => fresh,
            Some(value) => {
                let state: DataState = serde_json::from_value(value).map_err(|e| {
                    LmError::Input(format!("the position in the corpora does not parse: {e}"))
                })?;
                let same = |(a, b): (&CorpusState, &CorpusState)| {
                    a.name == b.name && a.documents == b.documents && a.next <= a.documents
                };
                let alike = state.seed == seed
                    && state.corpora.len() == fresh.corpora.len()
                    && state.corpora.iter().zip(&fresh.corpora).all(same);
                if !alike {
                    return fail(
                        "the corpora or the seed are not those that the checkpoint was trained on".to_owned(),
                    );
                }
                state
            }
        };
        let orders = state.corpora.iter().enumerate().map(|(i, c)| order(seed, i, c)).collect();
        Ok(Self { corpora, state, orders })
    }

    /// Documents of at least `tokens` tokens together.
    fn take(&mut self, tokens: usize) -> Vec<Example> {
        let mut examples = Vec::new();
        let mut taken = 0;
        while taken < tokens.max(1) {
            let example = self.next_document();
            taken += example.tokens.len() - 1;
            examples.push(example);
        }
        examples
    }

    fn next_document(&mut self) -> Example {
        let behind = |i: usize| self.state.corpora[i].tokens as f64 / self.corpora[i].weight;
        let corpus =
            (1..self.corpora.len()).fold(0, |best, i| if behind(i) < behind(best) { i } else { best });
        let state = &mut self.state.corpora[corpus];
        if state.next == state.documents {
            (state.epoch, state.next) = (state.epoch + 1, 0);
            self.orders[corpus] = order(self.state.seed, corpus, state);
        }
        let example = self.corpora[corpus].example(self.orders[corpus][state.next] as usize);
        state.next += 1;
        state.tokens += example.tokens.len() as u64 - 1;
        example
    }

    fn epochs(&self) -> Vec<f64> {
        self.state.corpora.iter().map(|c| c.epoch as f64 + c.next as f64 / c.documents as f64).collect()
    }
}

/// The order of a corpus's documents in its current epoch.
fn order(seed: u64, corpus: usize, state: &CorpusState) -> Vec<u32> {
    let mut order: Vec<u32> = (0..state.documents as u32).collect();
    Rng::new(seed, ((corpus as u64) << 32) | state.epoch).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_documents_lose_no_learned_token() {
        let mut corpus = Corpus::new("a", 1.0);
        let tokens: Vec<u32> = (0..10).collect();
        corpus.push(&tokens, 6, 4);
        corpus.push(&[7], 1, 4);
        let pieces: Vec<Example> = (0..corpus.len()).map(|i| corpus.example(i)).collect();
        let learned: Vec<u32> = pieces.iter().flat_map(|e| e.tokens[e.prompt_len..].to_vec()).collect();
        assert_eq!(learned, [6, 7, 8, 9]);
        assert!(pieces.iter().all(|e| e.tokens.len() <= 4 && e.prompt_len >= 1));
    }

    #[test]
    fn corpora_keep_their_shares_and_every_epoch_sees_every_document() {
        let mut corpora = [Corpus::new("a", 3.0), Corpus::new("b", 1.0)];
        for i in 0..50u32 {
            corpora[0].push(&[i; 9], 1, 64);
            corpora[1].push(&[100 + i; 5], 1, 64);
        }
        let mut stream = Stream::new(&corpora, 4, None, 0).unwrap();
        let seen: Vec<u32> = stream.take(3200).iter().map(|e| e.tokens[0]).collect();
        let share = stream.state.corpora[0].tokens as f64 / 3200.0;
        assert!((share - 0.75).abs() < 0.01, "{share}");
        let mut first: Vec<u32> = seen.iter().copied().filter(|t| *t < 100).take(50).collect();
        assert_ne!(first, (0..50).collect::<Vec<_>>());
        first.sort_unstable();
        assert_eq!(first, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn the_stream_goes_on_where_it_stopped() {
        let mut corpora = [Corpus::new("a", 2.0), Corpus::new("b", 1.0)];
        for i in 0..7u32 {
            corpora[0].push(&[i; 4], 1, 64);
            corpora[1].push(&[i + 10; 3], 1, 64);
        }
        let mut whole = Stream::new(&corpora, 1, None, 0).unwrap();
        whole.take(50);
        let state = serde_json::to_value(&whole.state).unwrap();
        let mut resumed = Stream::new(&corpora, 1, Some(state.clone()), 3).unwrap();
        assert_eq!(resumed.take(60), whole.take(60));
        assert!(Stream::new(&corpora[..1], 1, Some(state.clone()), 3).is_err());
        assert!(Stream::new(&corpora, 2, Some(state), 3).is_err());
        assert!(Stream::new(&corpora, 1, None, 3).is_err());
    }
}
