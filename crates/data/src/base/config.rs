//! The configuration file of `sgs pretrain` and `sgs sft`.

use sgs_keys::{FileError, KeyFile, above, at_least};
use std::path::{Path, PathBuf};

sgs_keys::table! {
    /// The configuration of a training.
    #[derive(Clone, Debug, PartialEq)]
    pub struct PretrainConfig {
        /// Folder with the corpora, tokenizer.json and tokenizer_config.json, from sgs data build or sgs data compose. If it
        /// has no tokenizer, sgs sft uses the model's.
        pub data: PathBuf = PathBuf::new(), in "a folder (required)",
        /// Seed of the initial weights and of the order of the examples.
        pub seed: u64 = 1, in 0..=i64::MAX as u64,
        /// The shape of a new model; absent for `sgs sft`, which starts from a model.
        pub model: Option<ShapeConfig>,
        /// The mixture of corpora.
        pub corpus: Vec<CorpusConfig>,
        /// The hyperparameters.
        pub train: TrainConfig,
    }
}

sgs_keys::table! {
    /// The shape of a new model. Embeddings are tied.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ShapeConfig {
        /// Number of layers.
        pub layers: usize = 6, in 1..=10_000,
        /// Width of the residual stream.
        pub hidden_size: usize = 192, in 1..=1_000_000,
        /// Number of query heads.
        pub heads: usize = 6, in 1..=100_000,
        /// Number of key and value heads.
        pub kv_heads: usize = 6, in 1..=100_000,
        /// Width of the feed-forward layers.
        pub intermediate_size: usize = 512, in 1..=10_000_000,
        /// Maximum sequence length, in tokens.
        pub max_positions: usize = 512, in 1..=10_000_000,
        /// Base of the rotary frequencies.
        pub rope_theta: f64 = 10_000.0, in above(0.0).at_most(1e12),
    }
}

sgs_keys::table! {
    /// One corpus of a mixture.
    #[derive(Clone, Debug, PartialEq)]
    pub struct CorpusConfig {
        /// Parquet or JSONL file with the columns role, kind, source, prompt and completion, relative to the data folder.
        pub file: String = String::new(), in "a file (required)",
        /// Kinds of examples to train on.
        pub kinds: Vec<String> = Vec::new(), in "a list of kinds; empty for all",
        /// Passes over the corpus, possibly fractional.
        pub passes: f64 = 1.0, in above(0.0).at_most(1e6),
        /// Weight of prompt tokens in the loss; completion tokens have weight 1.
        pub prompt_weight: f64 = 0.0, in at_least(0.0).at_most(1e6),
        /// Whether prompts are user messages for the tokenizer's chat template. The model's end token is then appended to
        /// each completion.
        pub chat: bool = false,
    }
}

sgs_keys::table! {
    /// The hyperparameters of a training.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TrainConfig {
        /// Sequences per optimizer step.
        pub batch_size: usize = 256, in 1..=1 << 20,
        /// Number of tokens in a micro-batch, the unit of one forward and backward pass.
        pub micro_batch_tokens: usize = 16_384, in 1..=100_000_000,
        /// Peak learning rate.
        pub learning_rate: f64 = 1e-3, in at_least(0.0).at_most(1e3),
        /// Steps of linear warmup, at most a quarter of all steps.
        pub warmup_steps: u64 = 200, in 0..=1_000_000_000,
        /// Final learning rate, as a fraction of the peak.
        pub floor: f64 = 0.1, in at_least(0.0).at_most(1.0),
        /// Decoupled weight decay of matrices.
        pub weight_decay: f64 = 0.0, in at_least(0.0).at_most(1e3),
        /// Adam's decay of the second moment.
        pub beta2: f64 = 0.98, in at_least(0.0).below(1.0),
        /// Steps between checkpoints; the held-out loss is measured at each.
        pub checkpoint_every: u64 = 1000, in 1..=1_000_000_000,
        /// Whether to recompute activations in the backward pass if they do not all fit: on a GPU for as few layers as
        /// its memory requires, on the CPU for all layers.
        pub recompute: bool = false,
        /// Maximum example length, in tokens, for which memory is planned; 0: the model's.
        pub context: usize = 0, in 0..=10_000_000,
        /// Number of examples of each corpus that are never trained on.
        pub held_out: usize = 0, in 0..=1_000_000_000,
    }
}

impl PretrainConfig {
    /// Returns the configuration in a file.
    pub fn of(file: &KeyFile) -> Result<Self, FileError> {
        let config: Self = file.decode("sgs pretrain --explain")?;
        if config.data.as_os_str().is_empty() {
            return Err(
                file.error("data", "`data` is required: the folder with the corpora and the tokenizer")
            );
        }
        if config.corpus.is_empty() {
            return Err(file.error("corpus", "a [[corpus]] is required: there is nothing to train on"));
        }
        if let Some(at) = config.corpus.iter().position(|corpus| corpus.file.is_empty()) {
            return Err(file.error(&format!("corpus[{at}]"), "`file` of [[corpus]] is required"));
        }
        Ok(config)
    }

    /// Returns the maximum number of positions that a model is loaded with.
    pub(super) fn positions(&self) -> usize {
        if self.train.context == 0 { usize::MAX } else { self.train.context }
    }

    /// Returns the folder of the tokenizer: that of the corpora or, if they have none, that of the model to start from.
    pub(super) fn tokenizer_folder<'a>(&'a self, base: Option<&'a Path>) -> &'a Path {
        base.filter(|_| !self.data.join("tokenizer.json").is_file()).unwrap_or(&self.data)
    }
}
