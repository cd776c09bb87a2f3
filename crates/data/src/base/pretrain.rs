//! Supervised training on corpora, from scratch or from a model.

use super::config::{PretrainConfig, TrainConfig};
use super::loss_curve::LossCurve;
use super::mixture::Mixture;
use sgs_lm::checkpoint::{self, SaveOptions};
use sgs_lm::loss::{LossConfig, TrainExample};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::ranks::{Parallel, ProcessGroup};
use sgs_lm::shard::Shard;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::{FileType, HostWeights};
use sgs_lm::{Device, ModelConfig};
use sgs_run::config::device::DeviceKind;
use sgs_run::error::{Context, Result, bail};
use sgs_run::train::ranks::rank_group::RankGroup;
use sgs_run::with_device;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a training ended. `loss` is the mean of the last hundred steps.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the text of a variant names its fields")]
pub enum TrainingEnd {
    /// All steps are done and the folder `model` is written.
    Done { steps: u64, loss: f64, model: PathBuf },
    /// An earlier call has done all steps and written the folder `model`.
    AlreadyDone { steps: u64, model: PathBuf },
    /// All steps are done, and rank 0 writes the model; this process is another rank.
    DoneElsewhere,
    /// The observer stopped the training. The same training continues from its checkpoint.
    Interrupted,
}

/// An event that rank 0 reports while it trains: `step` of `steps` are done, and `loss` is the mean of the last hundred
/// steps.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the text of a variant names its fields")]
pub enum TrainingEvent {
    /// The model and the `examples` of all passes are loaded, without those that are `too_long` for the model; `done`
    /// steps were taken before.
    Started { parameters: usize, examples: usize, too_long: usize, steps: u64, done: u64, ranks: usize },
    /// A step is done.
    Step { step: u64, loss: f64 },
    /// A checkpoint is written, and more steps follow. `held_out` is the loss of the held-out examples, if there are any.
    Checkpoint { step: u64, steps: u64, loss: f64, held_out: Option<f64> },
    /// A checkpoint is written because the observer stopped the training.
    Stopped { step: u64, steps: u64 },
    /// The model is written. `peak_memory` is that of the named device in bytes, if it is recorded.
    Finished { peak_memory: Option<(String, u64)> },
}

/// Follows a training and may stop it.
pub trait TrainingObserver {
    /// Called on rank 0 for each event.
    ///
    /// # Errors
    /// Returning an error ends the training.
    fn on_event(&mut self, event: TrainingEvent) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Returns whether the training should stop after the current step. Called only if there is one rank, because
    /// several ranks would have to stop at the same step.
    fn should_stop(&self) -> bool;
}

/// Trains on a device, as one process or as a rank, and continues from the last checkpoint in `out` if there is one.
/// `base` is the model to start from; without it the training begins with random weights.
pub fn train(
    config: &PretrainConfig,
    out: &Path,
    base: Option<&Path>,
    device: DeviceKind,
    ranks: &mut RankGroup,
    observer: &mut dyn TrainingObserver,
) -> Result<TrainingEnd> {
    let (threads, gpu) = (ranks.threads(), ranks.gpu(device)?);
    with_device!(device, threads, gpu, device => start(config, out, base, device, ranks.group(), observer))
}

/// Trains, with the process group if there are several ranks. Reports a failure of this rank to the others.
fn start<D: Parallel>(
    config: &PretrainConfig,
    out: &Path,
    base: Option<&Path>,
    device: Arc<D>,
    mut group: Option<ProcessGroup>,
    observer: &mut dyn TrainingObserver,
) -> Result<TrainingEnd> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let work = match PreparedTraining::prepare(config, out, base, &device, group.as_mut()) {
        Ok(work) => work,
        Err(error) => {
            if let Some(group) = group {
                group.fail(&format!("{error:#}"));
            }
            return Err(error);
        }
    };
    let peers = group.map(|group| D::connect(&device, group)).transpose()?;
    let model = work.policy.model.config.clone();
    let tokens = config.train.micro_batch_tokens.max(work.policy.model.max_positions);
    let mode = match config.train.recompute {
        false => Mode::Train,
        true => {
            let place = (work.policy.shard.rank, work.policy.shard.ranks);
            Mode::recompute_as_needed(&*device, &model, tokens, place)
        }
    };
    let mut trainer = Trainer::with_peers(device, &model, tokens, mode, peers)?;
    let done = take_steps(config, out, config.tokenizer_folder(base), work, &mut trainer, observer);
    if let Some(group) = trainer.group() {
        match &done {
            Ok(_) => group.finish(),
            Err(error) => group.fail(&format!("{error:#}")),
        }
    }
    done
}

struct PreparedTraining<D: Device> {
    policy: Policy<D>,
    mixture: Mixture,
    /// Identifies the data in a checkpoint of this training.
    extra: serde_json::Value,
}

impl<D: Device> PreparedTraining<D> {
    /// Loads the data, and the model from the last checkpoint or from `base`; without either, creates a new model.
    fn prepare(
        config: &PretrainConfig,
        out: &Path,
        base: Option<&Path>,
        device: &Arc<D>,
        group: Option<&mut ProcessGroup>,
    ) -> Result<Self> {
        let tokenizer = Tokenizer::load(config.tokenizer_folder(base))?;
        let dir = out.join("checkpoint");
        let place = group.as_ref().map_or((0, 1), |group| (group.rank(), group.ranks()));
        // One rank completes an interrupted replacement of the checkpoint before any rank reads it.
        let goes_on = match group {
            None => checkpoint::exists(&dir)?,
            Some(group) => {
                group.together("looking for a checkpoint", || match place.0 {
                    0 => checkpoint::exists(&dir).map(|_| ()),
                    _ => Ok(()),
                })?;
                dir.exists()
            }
        };
        let (policy, seen) = if goes_on {
            let (policy, extra) =
                checkpoint::load_for_rank(&dir, Arc::clone(device), config.positions(), place)?;
            (policy, Some(extra))
        } else {
            let model = match base {
                Some(base) => Model::load(Arc::clone(device), base, config.positions())?,
                None => {
                    let (eos, pad) = (tokenizer.eos().first().copied(), tokenizer.pad());
                    let shape = shape(config, tokenizer.vocab_size(), eos, pad)?;
                    let weights = HostWeights::random(&shape, config.seed);
                    Model::new(Arc::clone(device), weights, config.positions())?
                }
            };
            let shard = Shard::of(&model.layout, place.0, place.1);
            (Policy::of_shard(model, shard)?, None)
        };
        let model_config = &policy.model.config;
        tokenizer.check_model(model_config)?;
        let mixture = Mixture::read(
            &config.corpus,
            &config.data,
            &tokenizer,
            policy.model.max_positions,
            config.seed,
            config.train.held_out,
        )?;
        let extra = serde_json::json!({ "mixture": mixture.digest(), "batch_size": config.train.batch_size });
        if seen.is_some_and(|seen| seen != extra) {
            bail!(
                "{} was trained on other corpora, in another order or with another batch size: give another --out, or \
                 the data and the configuration of before",
                dir.display()
            );
        }
        Ok(Self { policy, mixture, extra })
    }
}

fn take_steps<D: Device>(
    config: &PretrainConfig,
    out: &Path,
    tokenizer: &Path,
    prepared: PreparedTraining<D>,
    trainer: &mut Trainer<D>,
    observer: &mut dyn TrainingObserver,
) -> Result<TrainingEnd> {
    let PreparedTraining { mut policy, mixture, extra } = prepared;
    let (rank, ranks) = trainer.rank_and_size();
    let (dir, model) = (out.join("checkpoint"), out.join("model"));
    let steps = mixture.batches(config.train.batch_size) as u64;
    let mut curve = match rank {
        0 => Some(LossCurve::open(&out.join("loss.csv"), policy.step)?),
        _ => None,
    };
    if rank == 0 {
        observer.on_event(TrainingEvent::Started {
            parameters: policy.model.layout.len,
            examples: mixture.len(),
            too_long: mixture.left_out,
            steps,
            done: policy.step,
            ranks,
        })?;
    }
    if policy.step >= steps && ranks == 1 && model.join("config.json").is_file() {
        observer.on_event(TrainingEvent::Finished { peak_memory: None })?;
        return Ok(TrainingEnd::AlreadyDone { steps, model });
    }
    let options = options(&config.train, steps);
    let companions =
        ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"].map(|name| tokenizer.join(name));
    let companions: Vec<PathBuf> = companions.into_iter().filter(|file| file.is_file()).collect();
    while policy.step < steps {
        let batch = mixture.batch(policy.step as usize, config.train.batch_size);
        let batch: Vec<&TrainExample> = batch.iter().collect();
        let report = trainer.step(&mut policy, &batch, &options)?;
        let step = policy.step;
        if let Some(curve) = &mut curve {
            curve.add(&report)?;
            observer.on_event(TrainingEvent::Step { step, loss: curve.mean() })?;
        }
        // Several ranks would have to stop at the same step. A signal ends them instead, and they continue from
        // the last checkpoint.
        let stop = ranks == 1 && observer.should_stop() && step < steps;
        if stop || step.is_multiple_of(config.train.checkpoint_every) && step < steps {
            curve.as_mut().map_or(Ok(()), LossCurve::flush)?;
            save(&dir, &policy, &extra, &companions, trainer.group())?;
            if stop {
                observer.on_event(TrainingEvent::Stopped { step, steps })?;
                return Ok(TrainingEnd::Interrupted);
            }
            if let Some(curve) = &curve {
                let held_out = held_out_loss(trainer, &policy.model, &mixture.held_out)?;
                observer.on_event(TrainingEvent::Checkpoint { step, steps, loss: curve.mean(), held_out })?;
            }
        }
    }
    curve.as_mut().map_or(Ok(()), LossCurve::flush)?;
    save(&dir, &policy, &extra, &companions, trainer.group())?;
    let end = match &curve {
        Some(curve) => export(&policy, curve.mean(), model, companions, observer)?,
        None => TrainingEnd::DoneElsewhere,
    };
    // No rank may leave before rank 0 has written the model, because its end would end the others.
    if let Some(group) = trainer.group() {
        group.barrier()?;
    }
    Ok(end)
}

/// Writes the trained model in bfloat16 into the folder `model`.
fn export<D: Device>(
    policy: &Policy<D>,
    loss: f64,
    model: PathBuf,
    companions: Vec<PathBuf>,
    observer: &mut dyn TrainingObserver,
) -> Result<TrainingEnd> {
    let options = SaveOptions { file_type: FileType::Bf16, companions, ..SaveOptions::default() };
    checkpoint::export(&model, &policy.model, &options)?;
    let device = &policy.model.device;
    let peak_memory = device.peak_bytes().map(|bytes| (device.name(), bytes as u64));
    observer.on_event(TrainingEvent::Finished { peak_memory })?;
    Ok(TrainingEnd::Done { steps: policy.step, loss, model })
}

/// Returns the mean loss of the held-out examples, or `None` if there are none.
fn held_out_loss<D: Device>(
    trainer: &mut Trainer<D>,
    model: &Model<D>,
    held_out: &[TrainExample],
) -> Result<Option<f64>> {
    if held_out.is_empty() {
        return Ok(None);
    }
    let stats = trainer.log_probs(model, held_out.iter().map(|e| (e.tokens.as_slice(), e.prompt_len)))?;
    let tokens: usize = stats.iter().map(|s| s.log_probs.len()).sum();
    let sum: f64 = stats.iter().flat_map(|s| &s.log_probs).map(|&lp| f64::from(lp)).sum();
    Ok(Some(-sum / tokens.max(1) as f64))
}

fn save<D: Device>(
    dir: &Path,
    policy: &Policy<D>,
    extra: &serde_json::Value,
    companions: &[PathBuf],
    group: Option<&mut ProcessGroup>,
) -> Result<()> {
    let options = SaveOptions {
        file_type: FileType::F32,
        extra: extra.clone(),
        companions: companions.to_vec(),
        ..SaveOptions::default()
    };
    match group {
        Some(group) => checkpoint::save_together(dir, policy, &options, group)?,
        None => checkpoint::save(dir, policy, &options)?,
    }
    Ok(())
}

/// Returns the shape of a new model with a vocabulary of this size; `eos` ends a text.
///
/// # Errors
/// Returns an error if the configuration has no shape or an invalid one.
pub fn shape(
    config: &PretrainConfig,
    vocabulary: usize,
    eos: Option<u32>,
    pad: Option<u32>,
) -> Result<ModelConfig> {
    let Some(shape) = &config.model else {
        bail!("the configuration has no [model]: a training from scratch needs the shape of the new model")
    };
    let json = serde_json::json!({
        "model_type": "llama", "vocab_size": vocabulary, "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.max_positions, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "rope_theta": shape.rope_theta, "tie_word_embeddings": true, "eos_token_id": eos, "pad_token_id": pad,
    });
    Ok(ModelConfig::from_json(json, "the configuration")?)
}

fn options(train: &TrainConfig, steps: u64) -> TrainOptions {
    TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig {
            learning_rate: train.learning_rate,
            beta2: train.beta2,
            weight_decay: train.weight_decay,
            ..AdamConfig::default()
        },
        // A recipe for a large corpus has a longer warm-up than the whole training on a small one.
        schedule: LrSchedule::Cosine {
            warmup: train.warmup_steps.min(steps / 4),
            total: steps,
            floor: train.floor,
        },
        batch_size: train.batch_size,
        shuffle_seed: None,
    }
}
