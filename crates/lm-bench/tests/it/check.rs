//! Checks a model folder with recorded numbers: runs it through this engine and compares every quantity.
//!
//! In addition to `config.json` and `model.safetensors`, the folder has `io.safetensors` (`input_ids`,
//! `loss_mask`, `old_logprobs`, `advantages` and the expected `logits`, `logprobs`, `entropy`) and
//! `expected.json` (losses, gradient norms, losses of six Adam steps). docs/language-model.md describes them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use sgs_lm::device::Device;
use sgs_lm::error::{LmError, Result};
use sgs_lm::loss::{LossConfig, Normaliser, Objective, TrainExample};
use sgs_lm::model::{Mode, Model, Workspace};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::pack::{LossRow, Packed};
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::{HostWeights, NamedTensors, read_all};

/// The largest error of one quantity.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// For example `logits` or `gradient norms of ce`.
    pub name: String,
    /// Largest error; NaN counts as infinite.
    pub error: f64,
    /// Tolerance of the error.
    pub tolerance: f64,
    /// Where the error is, and whether it is absolute or relative.
    pub place: String,
}

/// The errors of all quantities of a folder.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckReport {
    /// One entry per quantity.
    pub quantities: Vec<Quantity>,
}

impl CheckReport {
    /// Returns whether every error is within its tolerance.
    pub fn passes(&self) -> bool {
        self.quantities.iter().all(|q| q.error <= q.tolerance)
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for q in &self.quantities {
            let verdict = if q.error <= q.tolerance { "ok" } else { "FAILED" };
            writeln!(f, "{:<40} {:>9.2e} of {:.0e}  {verdict}  {}", q.name, q.error, q.tolerance, q.place)?;
        }
        Ok(())
    }
}

/// Tolerances of a check; the defaults are for an f32 device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerances {
    /// Logits, relative to the largest.
    pub logits: f64,
    /// Log-probabilities and entropies, absolute.
    pub log_probs: f64,
    /// Losses, absolute.
    pub losses: f64,
    /// Gradient norm of every parameter, relative.
    pub gradient_norms: f64,
    /// Losses of six Adam steps, absolute.
    pub adam: f64,
    /// Norms of the whole gradient in these steps, relative.
    pub adam_norms: f64,
}

impl Tolerances {
    /// Returns the tolerances for a device that computes in bfloat16. Its numbers have 8 significant bits, so logits
    /// differ in the second digit, and the differences grow during the steps, which have a high learning rate.
    pub fn bf16() -> Self {
        Self {
            logits: 2e-2,
            log_probs: 6e-2,
            losses: 1e-2,
            gradient_norms: 3e-2,
            adam: 6e-2,
            adam_norms: 0.1,
        }
    }
}

impl Default for Tolerances {
    fn default() -> Self {
        Self {
            logits: 1e-4,
            log_probs: 1e-4,
            losses: 1e-5,
            gradient_norms: 1e-3,
            adam: 1e-4,
            adam_norms: 1e-3,
        }
    }
}

/// Checks a folder on a device.
///
/// # Errors
/// Returns an error if a file is missing or invalid, or if the device fails. Errors that exceed their
/// tolerances are not an `Err`; see [`CheckReport::passes`].
pub fn run<D: Device>(dir: &Path, device: Arc<D>, tolerances: Tolerances) -> Result<CheckReport> {
    let vectors = Vectors::load(dir)?;
    let weights = HostWeights::load(dir)?;
    let config = weights.config.clone();
    let tokens = vectors.examples.iter().map(|e| e.tokens.len()).sum();
    let max_positions = vectors.examples.iter().map(|e| e.tokens.len()).max().unwrap_or(1);
    let mut report = CheckReport::default();

    let head = weights.data[weights.layout.head.range()].to_vec();
    let model = Model::new(Arc::clone(&device), weights, max_positions)?;
    check_outputs(&vectors, &model, tokens, tolerances, &mut report)?;
    let mut trainer = Trainer::new(Arc::clone(&device), &config, tokens, Mode::Train)?;
    check_embeddings(&vectors, &head, &model, &mut trainer, tolerances, &mut report)?;
    check_losses(&vectors, &model, &mut trainer, tolerances, &mut report)?;
    check_adam(&vectors, model, &mut trainer, tolerances, &mut report)?;
    Ok(report)
}

/// Contents of `expected.json`.
#[derive(Deserialize)]
struct Expected {
    valid_lengths: Vec<usize>,
    ce: f64,
    reinforce_per_sequence: f64,
    cispo: f64,
    grad_norms: BTreeMap<String, BTreeMap<String, f64>>,
    adam: Vec<(f64, f64)>,
}

struct Vectors {
    expected: Expected,
    /// The sequences, truncated to their valid lengths, as examples with `prompt_len` 1.
    examples: Vec<TrainExample>,
    /// Expected values per sequence: logits `[len, vocabulary]`, log-probabilities `[len - 1]`, entropies `[len]`.
    outputs: Vec<Outputs>,
}

struct Outputs {
    logits: Vec<f32>,
    log_probs: Vec<f32>,
    entropy: Vec<f32>,
}

impl Vectors {
    fn load(dir: &Path) -> Result<Self> {
        let path = dir.join("expected.json");
        let text = std::fs::read_to_string(&path).map_err(LmError::io(&path))?;
        let expected: Expected = serde_json::from_str(&text).map_err(LmError::json(&path))?;
        let io = Io::load(dir.join("io.safetensors"))?;
        let [batch, length] = io.shape("input_ids")?;
        if expected.valid_lengths.len() != batch
            || expected.valid_lengths.iter().any(|l| *l < 2 || *l > length)
        {
            let message = format!("valid_lengths are inconsistent with input_ids of {batch}x{length}");
            return Err(LmError::Config { origin: path.display().to_string(), message });
        }
        let row = |name: &str, b: usize, width: usize, len: usize| -> Result<Vec<f32>> {
            let (_, values) = io.get(name)?;
            let from = b * width;
            values
                .get(from..from + len)
                .map(<[f32]>::to_vec)
                .ok_or_else(|| LmError::tensor(&io.path, name, "is shorter than its sequences"))
        };
        let (logits_shape, _) = io.get("logits")?;
        let [_, _, vocabulary] = logits_shape[..] else {
            let message = format!("has shape {logits_shape:?}, not three dimensions");
            return Err(LmError::tensor(&io.path, "logits", message));
        };
        let (mut examples, mut outputs) = (Vec::new(), Vec::new());
        for (b, len) in expected.valid_lengths.iter().copied().enumerate() {
            let tokens = row("input_ids", b, length, len)?.iter().map(|t| *t as u32).collect();
            examples.push(TrainExample {
                tokens,
                prompt_len: 1,
                weight: 1.0,
                sampled_log_probs: row("old_logprobs", b, length - 1, len - 1)?,
                token_weights: row("loss_mask", b, length, len)?[1..].to_vec(),
                ..TrainExample::default()
            });
            outputs.push(Outputs {
                logits: row("logits", b, length * vocabulary, len * vocabulary)?,
                log_probs: row("logprobs", b, length - 1, len - 1)?,
                entropy: row("entropy", b, length, len)?,
            });
        }
        let (_, advantages) = io.get("advantages")?;
        for (example, advantage) in examples.iter_mut().zip(advantages) {
            example.weight = *advantage;
        }
        Ok(Self { expected, examples, outputs })
    }
}

struct Io {
    path: PathBuf,
    tensors: NamedTensors,
}

impl Io {
    fn load(path: PathBuf) -> Result<Self> {
        Ok(Self { tensors: read_all(&path)?, path })
    }

    fn get(&self, name: &str) -> Result<&(Vec<usize>, Vec<f32>)> {
        self.tensors.get(name).ok_or_else(|| LmError::tensor(&self.path, name, "is missing"))
    }

    fn shape(&self, name: &str) -> Result<[usize; 2]> {
        let (shape, _) = self.get(name)?;
        shape.as_slice().try_into().map_err(|_| {
            LmError::tensor(&self.path, name, format!("has shape {shape:?}, not two dimensions"))
        })
    }
}

/// Determines the largest error of one quantity.
struct LargestError {
    error: f64,
    place: String,
}

impl LargestError {
    fn new() -> Self {
        Self { error: 0.0, place: String::new() }
    }

    fn see(&mut self, error: f64, place: impl FnOnce() -> String) {
        let error = if error.is_nan() { f64::INFINITY } else { error };
        if error > self.error || self.place.is_empty() {
            (self.error, self.place) = (error, place());
        }
    }

    fn report(self, name: &str, tolerance: f64, kind: &str, report: &mut CheckReport) {
        report.quantities.push(Quantity {
            name: name.to_owned(),
            error: self.error,
            tolerance,
            place: format!("{kind}, at {}", self.place),
        });
    }
}

fn check_outputs<D: Device>(
    vectors: &Vectors,
    model: &Model<D>,
    tokens: usize,
    tolerances: Tolerances,
    report: &mut CheckReport,
) -> Result<()> {
    let vocabulary = model.config.vocab_size;
    let mut workspace = Workspace::for_rank(&*model.device, &model.config, tokens, Mode::Infer, (0, 1))?;
    let mut packed = Packed::with_capacity(tokens);
    for example in &vectors.examples {
        let tokens = &example.tokens;
        let rows = (0..tokens.len()).map(|index| LossRow {
            index,
            target: tokens.get(index + 1).copied().unwrap_or(0),
            ..LossRow::default()
        });
        packed.push(tokens, rows);
    }
    let expected: Vec<f32> = vectors.outputs.iter().flat_map(|o| o.logits.iter().copied()).collect();
    let peak = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let mut worst = LargestError::new();
    let device = Arc::clone(&model.device);
    let mut blocks: Vec<f32> = Vec::with_capacity(expected.len());
    device.run(|| {
        workspace.logits(model, &packed, |_, logits| {
            blocks.extend_from_slice(logits);
            Ok(())
        })
    })?;
    if blocks.len() != expected.len() {
        return Err(LmError::Input(format!(
            "the recorded logits have {} numbers, those of the model {}",
            expected.len(),
            blocks.len()
        )));
    }
    for (i, (a, b)) in blocks.iter().zip(&expected).enumerate() {
        let place = || format!("row {} token {}", i / vocabulary, i % vocabulary);
        worst.see(f64::from((a - b).abs()) / f64::from(peak), place);
    }
    worst.report("logits", tolerances.logits, "relative to the largest", report);

    let n = packed.rows.len();
    let (mut log_prob, mut entropy) = (vec![0.0; n], vec![0.0; n]);
    workspace.read_rows(&device, &mut log_prob, &mut entropy)?;
    let (mut worst_log_prob, mut worst_entropy) = (LargestError::new(), LargestError::new());
    let mut at = 0;
    for (b, outputs) in vectors.outputs.iter().enumerate() {
        for (t, want) in outputs.log_probs.iter().enumerate() {
            let error = f64::from((log_prob[at + t] - want).abs());
            worst_log_prob.see(error, || format!("sequence {b} token {t}"));
        }
        for (t, want) in outputs.entropy.iter().enumerate() {
            let error = f64::from((entropy[at + t] - want).abs());
            worst_entropy.see(error, || format!("sequence {b} token {t}"));
        }
        at += outputs.entropy.len();
    }
    worst_log_prob.report("log-probs", tolerances.log_probs, "absolute", report);
    worst_entropy.report("entropies", tolerances.log_probs, "absolute", report);
    Ok(())
}

/// Checks that the head is linear: applied to a sequence's embedding, it gives the mean of the sequence's logits.
fn check_embeddings<D: Device>(
    vectors: &Vectors,
    head: &[f32],
    model: &Model<D>,
    trainer: &mut Trainer<D>,
    tolerances: Tolerances,
    report: &mut CheckReport,
) -> Result<()> {
    let (vocabulary, d) = (model.config.vocab_size, model.config.hidden_size);
    let sequences = || vectors.examples.iter().map(|example| example.tokens.as_slice());
    // Pass more sequences than fit into one micro-batch.
    let embeddings = trainer.embeddings(model, sequences().chain(sequences()))?;
    let peak = vectors.outputs.iter().flat_map(|o| &o.logits).fold(0.0f32, |m, x| m.max(x.abs()));
    let mut worst = LargestError::new();
    for (b, (embedding, outputs)) in embeddings.iter().zip(vectors.outputs.iter().cycle()).enumerate() {
        for (token, row) in head.chunks_exact(d).enumerate() {
            let logits = outputs.logits.iter().skip(token).step_by(vocabulary).map(|x| f64::from(*x));
            let mean = logits.sum::<f64>() * vocabulary as f64 / outputs.logits.len() as f64;
            let made: f64 = row.iter().zip(embedding).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            worst.see((made - mean).abs() / f64::from(peak), || format!("sequence {b} token {token}"));
        }
    }
    worst.report("embeddings", tolerances.logits, "relative to the largest logit", report);
    Ok(())
}

/// Returns the three losses of the format; the REINFORCE weights are 1, 0, 1, ….
fn losses(vectors: &Vectors) -> [(&'static str, LossConfig, f64, Vec<TrainExample>); 3] {
    let alternating = vectors
        .examples
        .iter()
        .enumerate()
        .map(|(b, e)| TrainExample { weight: ((b + 1) % 2) as f32, ..e.clone() })
        .collect();
    let reinforce = LossConfig::new(Objective::Reinforce, Normaliser::Sequence);
    let cispo = LossConfig::new(Objective::Cispo { eps_low: 1.0, eps_high: 3.0 }, Normaliser::Token);
    let expected = &vectors.expected;
    [
        ("ce", LossConfig::supervised(), expected.ce, vectors.examples.clone()),
        ("reinforce_per_sequence", reinforce, expected.reinforce_per_sequence, alternating),
        ("cispo", cispo, expected.cispo, vectors.examples.clone()),
    ]
}

fn check_losses<D: Device>(
    vectors: &Vectors,
    model: &Model<D>,
    trainer: &mut Trainer<D>,
    tolerances: Tolerances,
    report: &mut CheckReport,
) -> Result<()> {
    for (name, loss, want, examples) in losses(vectors) {
        let batch: Vec<&TrainExample> = examples.iter().collect();
        let stats = trainer.loss_and_gradient(model, &batch, &loss)?;
        let mut worst = LargestError::new();
        worst.see((stats.loss - want).abs(), || format!("{:.6} for {want:.6}", stats.loss));
        worst.report(&format!("loss {name}"), tolerances.losses, "absolute", report);

        let Some(norms) = vectors.expected.grad_norms.get(name) else { continue };
        let gradient = trainer.gradient(model)?;
        let mut worst = LargestError::new();
        for tensor in &model.layout.tensors {
            let squares = gradient[tensor.span.range()].iter().map(|g| f64::from(*g).powi(2));
            let norm = squares.sum::<f64>().sqrt();
            match norms.get(&tensor.name) {
                Some(want) => worst.see((norm - want).abs() / want.abs().max(1e-12), || tensor.name.clone()),
                None => worst.see(f64::INFINITY, || format!("{}, which has no recorded norm", tensor.name)),
            }
        }
        worst.report(&format!("gradient norms of {name}"), tolerances.gradient_norms, "relative", report);
    }
    Ok(())
}

fn check_adam<D: Device>(
    vectors: &Vectors,
    model: Model<D>,
    trainer: &mut Trainer<D>,
    tolerances: Tolerances,
    report: &mut CheckReport,
) -> Result<()> {
    let mut policy = Policy::new(model)?;
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig { learning_rate: 1e-2, ..AdamConfig::default() },
        schedule: LrSchedule::Constant,
        batch_size: vectors.examples.len(),
        shuffle_seed: None,
    };
    // Discard the gradient of the loss check, so that it does not enter the first step.
    trainer.clear_gradient()?;
    let batch: Vec<&TrainExample> = vectors.examples.iter().collect();
    let (mut loss, mut norm) = (LargestError::new(), LargestError::new());
    for (i, (want_loss, want_norm)) in vectors.expected.adam.iter().enumerate() {
        let step = trainer.step(&mut policy, &batch, &options)?;
        loss.see((step.stats.loss - want_loss).abs(), || format!("step {i}"));
        norm.see((step.gradient_norm - want_norm).abs() / want_norm, || format!("step {i}"));
    }
    loss.report("losses along Adam steps", tolerances.adam, "absolute", report);
    norm.report("gradient norms along Adam steps", tolerances.adam_norms, "relative", report);
    Ok(())
}
