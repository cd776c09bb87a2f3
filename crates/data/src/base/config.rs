//! The configuration file of `sgs pretrain` and `sgs sft`.

use crate::error::{Context, Result};
use serde::{Deserialize, Serialize};
use sgs_run::Usage;
use std::path::{Path, PathBuf};

/// The configuration of a training.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Folder with the corpora, `tokenizer.json` and `tokenizer_config.json`, as `sgs data build` makes it.
    pub data: PathBuf,
    /// Seed of weights and order.
    pub seed: u64,
    /// The shape of a new model; absent for `sgs sft`, which starts from a model.
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

/// The hyperparameters of a training.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Sequences per optimizer step.
    pub batch_size: usize,
    /// Tokens run through the model at once.
    pub micro_batch_tokens: usize,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Warmup steps.
    pub warmup_steps: u64,
    /// Final learning rate as a fraction of the peak.
    pub floor: f64,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f64,
    /// Adam's second-moment decay (beta2).
    pub beta2: f64,
    /// Steps between checkpoints; the held-out loss is measured at each.
    pub checkpoint_every: u64,
    /// Recompute activations in the backward pass if not all of them fit: on a GPU for as few layers as its memory requires,
    /// on the CPU for all layers.
    #[serde(default)]
    pub recompute: bool,
    /// Longest example in tokens, for which memory is planned; 0 for the model's limit.
    #[serde(default)]
    pub context: usize,
    /// Examples of each corpus that are never trained on.
    #[serde(default)]
    pub held_out: usize,
}

impl PretrainConfig {
    /// Parses and checks a configuration; `source` names it in errors.
    ///
    /// # Errors
    /// Returns an error if a key is unknown or missing, or has a wrong value.
    pub fn parse(text: &str, source: &str) -> Result<Self> {
        let config: Self = toml::from_str(text).with_context(|| format!("in {source}"))?;
        for (key, value) in [
            ("batch_size", config.train.batch_size as u64),
            ("micro_batch_tokens", config.train.micro_batch_tokens as u64),
            ("checkpoint_every", config.train.checkpoint_every),
        ] {
            if value == 0 {
                return Err(Usage(format!("{source}: train.{key} is 0; give at least 1")).into());
            }
        }
        Ok(config)
    }

    /// Most positions that a model is loaded with.
    pub(super) fn positions(&self) -> usize {
        if self.train.context == 0 { usize::MAX } else { self.train.context }
    }

    /// The folder of the tokenizer: the one of the corpora, or if it has none, the one of the model to start from.
    pub(super) fn tokenizer_folder<'a>(&'a self, base: Option<&'a Path>) -> &'a Path {
        base.filter(|_| !self.data.join("tokenizer.json").is_file()).unwrap_or(&self.data)
    }
}

/// One corpus of a mixture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusConfig {
    /// Parquet or JSONL file with the columns of `CorpusRow`, relative to the data folder.
    pub file: String,
    /// Kinds of examples to take; empty for all.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Passes over the corpus; may be a fraction.
    pub passes: f64,
    /// Weight of prompt tokens in the loss; completion tokens have weight 1.
    #[serde(default)]
    pub prompt_weight: f32,
    /// Whether prompts are user messages for the tokenizer's chat template. The model's end token is then appended to each
    /// completion.
    #[serde(default)]
    pub chat: bool,
}
