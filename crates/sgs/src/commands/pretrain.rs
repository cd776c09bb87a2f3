//! `sgs pretrain` and `sgs sft`: supervised training on corpora, from scratch or from a model.

use crate::args::PretrainArgs;
use crate::corpus::{CorpusConfig, Mixture};
use crate::exit::{Outcome, Usage};
use crate::{output, signals};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use sgs_lm::checkpoint::{self, SaveOptions};
use sgs_lm::loss::{Example, LossConfig};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, Schedule};
use sgs_lm::ranks::{Meeting, Parallel, Shard};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::{Policy, StepReport, TrainOptions, Trainer};
use sgs_lm::weights::{FileType, HostWeights};
use sgs_lm::{Device, ModelConfig};
use sgs_run::device::{DeviceKind, gpu_of, threads};
use sgs_run::machine;
use sgs_run::seats::{self, Role, Seat};
use sgs_run::with_device;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a training is: the file that `sgs pretrain` reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Folder with the corpora, `tokenizer.json` and `tokenizer_config.json`, as `sgs data build` makes it.
    pub data: PathBuf,
    /// Seed of weights and order.
    pub seed: u64,
    /// The shape of a new model; `sgs sft` starts from a model and has none.
    pub model: Option<ShapeConfig>,
    pub corpus: Vec<CorpusConfig>,
    pub train: TrainConfig,
}

/// The shape of a new model.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeConfig {
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Longest sequence in tokens.
    pub max_positions: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
}

/// How to train.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Sequences per optimizer step.
    pub batch_size: usize,
    /// Tokens run through the model at once.
    pub micro_batch_tokens: usize,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Steps of the rise.
    pub warmup_steps: u64,
    /// Last learning rate as a share of the highest.
    pub floor: f64,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f64,
    /// Adam's decay of the second moment.
    pub beta2: f64,
    /// Steps between checkpoints; the held-out loss is measured at each.
    pub checkpoint_every: u64,
    /// Compute activations again in the backward pass where keeping all of them does not fit: on a GPU those of as few
    /// layers as its memory asks for, on the processor those of all.
    #[serde(default)]
    pub recompute: bool,
    /// Longest example in tokens, which memory is planned for; 0 for what the model can take.
    #[serde(default)]
    pub context: usize,
    /// Examples of each corpus that are never trained on.
    #[serde(default)]
    pub held_out: usize,
}

impl PretrainConfig {
    /// Positions that a model is loaded with, where its own are not fewer.
    fn positions(&self) -> usize {
        if self.train.context == 0 { usize::MAX } else { self.train.context }
    }

    /// The folder of the tokenizer: the corpora's, or else that of the model that is trained further.
    fn words<'a>(&'a self, base: Option<&'a Path>) -> &'a Path {
        base.filter(|_| !self.data.join("tokenizer.json").is_file()).unwrap_or(&self.data)
    }
}

/// How a training ended.
pub enum Ended {
    /// All steps are taken and the model is written; rank 0 says what came of it.
    Whole(Option<String>),
    /// The user stopped it; the same training goes on from its checkpoint.
    Interrupted,
}

/// Trains after a configuration file; goes on from the last checkpoint in the output folder if there is one.
pub fn run(args: &PretrainArgs, base: Option<&Path>) -> Result<Outcome> {
    let text = fs::read_to_string(&args.config)
        .with_context(|| format!("cannot read the configuration {}", args.config.display()))?;
    let config: PretrainConfig =
        toml::from_str(&text).with_context(|| format!("in {}", args.config.display()))?;
    for (key, value) in [
        ("batch_size", config.train.batch_size as u64),
        ("micro_batch_tokens", config.train.micro_batch_tokens as u64),
        ("checkpoint_every", config.train.checkpoint_every),
    ] {
        if value == 0 {
            return Err(Usage(format!("{}: train.{key} is 0; give at least 1", args.config.display())).into());
        }
    }
    let seat = match seats::role(&args.ranks.asked(), args.token_file.as_deref(), &args.out)? {
        Role::Launched(outcome) => return Ok(outcome),
        Role::Alone => None,
        Role::Member(seat) => Some(seat),
    };
    let job = format!("{text}\n{}\n{base:?}\n{:?}", args.out.display(), args.device);
    let threads = seat.as_ref().map_or(threads(), |seat| seat.threads(threads()));
    let gpu = gpu_of(args.device, seat.as_ref())?;
    let ended = with_device!(args.device, threads, gpu, device => {
        start(&config, &args.out, base, device, seat.as_ref(), &job)
    })?;
    match ended {
        Ended::Whole(summary) => summary.map_or(Ok(()), output::line).map(|()| Outcome::Done),
        Ended::Interrupted => Ok(Outcome::Interrupted),
    }
}

/// Trains in this process alone.
///
/// # Errors
/// As `sgs pretrain`.
pub fn train_here(
    config: &PretrainConfig,
    out: &Path,
    base: Option<&Path>,
    device: DeviceKind,
) -> Result<Ended> {
    with_device!(device, threads(), gpu_of(device, None)?, device => start(config, out, base, device, None, ""))
}

/// Meets the other ranks, if there are any, and trains; tells them if this one fails.
fn start<D: Parallel>(
    config: &PretrainConfig,
    out: &Path,
    base: Option<&Path>,
    device: Arc<D>,
    seat: Option<&Seat>,
    job: &str,
) -> Result<Ended> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut meeting = seat.map(|seat| seat.meet(job, seats::UNWIND)).transpose()?;
    let work = match Work::prepare(config, out, base, &device, meeting.as_mut()) {
        Ok(work) => work,
        Err(error) => {
            if let Some(meeting) = meeting {
                meeting.fail(&format!("{error:#}"));
            }
            return Err(error);
        }
    };
    let peers = meeting.map(|meeting| D::connect(&device, meeting)).transpose()?;
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
    let done = train(config, out, config.words(base), work, &mut trainer);
    if let Some(meeting) = trainer.meeting() {
        match &done {
            Ok(_) => meeting.finish(),
            Err(error) => meeting.fail(&format!("{error:#}")),
        }
    }
    done
}

/// What a training works on.
struct Work<D: Device> {
    policy: Policy<D>,
    mixture: Mixture,
    /// What a checkpoint of this training says of its data.
    extra: serde_json::Value,
}

impl<D: Device> Work<D> {
    /// Reads the data and the model: that of the last checkpoint, of `base`, or a new one.
    fn prepare(
        config: &PretrainConfig,
        out: &Path,
        base: Option<&Path>,
        device: &Arc<D>,
        meeting: Option<&mut Meeting>,
    ) -> Result<Self> {
        let tokenizer = Tokenizer::load(config.words(base))?;
        let dir = out.join("checkpoint");
        let place = meeting.as_ref().map_or((0, 1), |m| (m.rank(), m.ranks()));
        // An interrupted replacement is finished once, before anybody reads.
        let goes_on = match meeting {
            None => checkpoint::exists(&dir)?,
            Some(meeting) => {
                meeting.together("looking for a checkpoint", || match place.0 {
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

/// Takes the steps that are left and writes the model.
fn train<D: Device>(
    config: &PretrainConfig,
    out: &Path,
    words: &Path,
    work: Work<D>,
    trainer: &mut Trainer<D>,
) -> Result<Ended> {
    let Work { mut policy, mixture, extra } = work;
    let (rank, ranks) = trainer.place();
    let dir = out.join("checkpoint");
    let steps = mixture.batches(config.train.batch_size) as u64;
    let mut log = match rank {
        0 => Some(Log::open(out, steps, policy.step)?),
        _ => None,
    };
    if rank == 0 {
        eprintln!(
            "{} parameters; {} examples in {} steps, {} too long; from step {}{}",
            policy.model.layout.len,
            mixture.len(),
            steps,
            mixture.left_out,
            policy.step,
            if ranks > 1 { format!(", on {ranks} ranks") } else { String::new() }
        );
    }
    if policy.step >= steps && ranks == 1 && out.join("model/config.json").is_file() {
        let model = out.join("model");
        return Ok(Ended::Whole(Some(format!("already done: {steps} steps, {}", model.display()))));
    }
    // Ranks would have to stop at the same step: they are simply ended, and go on from the last checkpoint.
    let attending = (ranks == 1).then(signals::attend).transpose()?;
    let is_asked_to_stop = || attending.as_ref().is_some_and(|(interrupt, _)| interrupt.is_set());
    let options = options(&config.train, steps);
    let companions =
        ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"].map(|name| words.join(name));
    let companions: Vec<PathBuf> = companions.into_iter().filter(|file| file.is_file()).collect();
    while policy.step < steps {
        let batch = mixture.batch(policy.step as usize, config.train.batch_size);
        let batch: Vec<&Example> = batch.iter().collect();
        let report = trainer.step(&mut policy, &batch, &options)?;
        if let Some(log) = &mut log {
            log.add(&report, policy.step)?;
        }
        let stop = is_asked_to_stop() && policy.step < steps;
        if stop || policy.step.is_multiple_of(config.train.checkpoint_every) && policy.step < steps {
            if let Some(log) = &mut log {
                log.curve.flush()?;
            }
            save(&dir, &policy, &extra, &companions, trainer.meeting())?;
            if stop {
                eprintln!(
                    "stopped after step {} of {steps}; the same command goes on from there",
                    policy.step
                );
                return Ok(Ended::Interrupted);
            }
            if let Some(log) = &log {
                let held_out = held_out_loss(trainer, &policy.model, &mixture.held_out)?;
                eprintln!("step {} of {steps}, loss {:.4}{held_out}", policy.step, log.curve.mean());
            }
        }
    }
    if let Some(log) = &mut log {
        log.curve.flush()?;
    }
    save(&dir, &policy, &extra, &companions, trainer.meeting())?;
    let mut summary = None;
    if let Some(log) = &mut log {
        let options = SaveOptions { file_type: FileType::Bf16, companions, ..SaveOptions::default() };
        checkpoint::export(&out.join("model"), &policy.model, &options)?;
        log.bar.finish_and_clear();
        if let Some(bytes) = policy.model.device.peak_bytes() {
            eprintln!("peak memory of {}: {}", policy.model.device.name(), machine::bytes(bytes as u64));
        }
        let (mean, model) = (log.curve.mean(), out.join("model"));
        summary = Some(format!("trained {} steps, last loss {mean:.4}: {}", policy.step, model.display()));
    }
    // Nobody leaves before the model is written.
    if let Some(meeting) = trainer.meeting() {
        meeting.barrier()?;
    }
    Ok(Ended::Whole(summary))
}

/// What rank 0 tells of the steps.
struct Log {
    curve: LossCurve,
    bar: ProgressBar,
}

impl Log {
    fn open(out: &Path, steps: u64, step: u64) -> Result<Self> {
        Ok(Self { curve: LossCurve::open(&out.join("loss.csv"), step)?, bar: progress_bar(steps, step) })
    }

    fn add(&mut self, report: &StepReport, step: u64) -> Result<()> {
        self.curve.add(report)?;
        self.bar.set_position(step);
        self.bar.set_message(format!("loss {:.4}", self.curve.mean()));
        Ok(())
    }
}

/// The mean loss of the examples that are never trained on, as text; empty if there are none.
fn held_out_loss<D: Device>(
    trainer: &mut Trainer<D>,
    model: &Model<D>,
    held_out: &[Example],
) -> Result<String> {
    if held_out.is_empty() {
        return Ok(String::new());
    }
    let stats = trainer.log_probs(model, held_out.iter().map(|e| (e.tokens.as_slice(), e.prompt_len)))?;
    let tokens: usize = stats.iter().map(|s| s.log_probs.len()).sum();
    let sum: f64 = stats.iter().flat_map(|s| &s.log_probs).map(|&lp| f64::from(lp)).sum();
    let loss = -sum / tokens.max(1) as f64;
    Ok(format!(", held-out loss {loss:.4}"))
}

fn save<D: Device>(
    dir: &Path,
    policy: &Policy<D>,
    extra: &serde_json::Value,
    companions: &[PathBuf],
    meeting: Option<&mut Meeting>,
) -> Result<()> {
    let options = SaveOptions {
        file_type: FileType::F32,
        extra: extra.clone(),
        companions: companions.to_vec(),
        ..SaveOptions::default()
    };
    match meeting {
        Some(meeting) => checkpoint::save_together(dir, policy, &options, meeting)?,
        None => checkpoint::save(dir, policy, &options)?,
    }
    Ok(())
}

/// The shape of the model that a training from scratch makes, for so many tokens, of which `eos` ends a text.
///
/// # Errors
/// The configuration has no shape, or one that is none.
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
        schedule: Schedule::Cosine { warmup: train.warmup_steps, total: steps, floor: train.floor },
        batch_size: train.batch_size,
        shuffle_seed: None,
    }
}

fn progress_bar(steps: u64, from: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_position(from);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {per_sec} ETA {eta}") {
        bar.set_style(style);
    }
    bar.reset_eta();
    bar
}

/// The loss of every step as CSV, written in blocks.
struct LossCurve {
    file: fs::File,
    waiting: String,
    recent: Vec<f64>,
}

impl LossCurve {
    /// Opens the file for going on at a step: rows of later steps, from before a crash, are cut off.
    fn open(path: &Path, step: u64) -> Result<Self> {
        let old = fs::read_to_string(path).unwrap_or_default();
        let mut text = String::from("step,loss,learning_rate,gradient_norm,tokens,seconds\n");
        let kept = old.lines().skip(1).filter(|line| {
            line.split(',').next().and_then(|s| s.parse::<u64>().ok()).is_some_and(|s| s < step)
        });
        for line in kept {
            text.push_str(line);
            text.push('\n');
        }
        sgs_rundir::files::write_file(path, text.as_bytes())?;
        let file = fs::OpenOptions::new()
            .append(true)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file, waiting: String::new(), recent: Vec::new() })
    }

    fn add(&mut self, r: &StepReport) -> Result<()> {
        self.waiting.push_str(&format!(
            "{},{:.6},{:.3e},{:.4},{},{:.4}\n",
            r.step, r.stats.loss, r.learning_rate, r.gradient_norm, r.tokens, r.seconds
        ));
        if self.recent.len() == 100 {
            self.recent.remove(0);
        }
        self.recent.push(r.stats.loss);
        if self.waiting.len() > 16_384 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all(self.waiting.as_bytes()).context("cannot write loss.csv")?;
        self.waiting.clear();
        Ok(())
    }

    /// Mean loss of the last hundred steps.
    fn mean(&self) -> f64 {
        self.recent.iter().sum::<f64>() / self.recent.len().max(1) as f64
    }
}
