//! The configuration of a run: its keys with their defaults and ranges, and the checks of their combinations.

use super::endpoint::EndpointConfig;
use super::problems::{ProblemsConfig, SHIPPED, SystemName, check_database, is_drawn};
use crate::Usage;
use crate::config::held_out::EvaluationConfig;
use crate::error::{Result, ensure};
use sgs_external::ExternalSettings;
use sgs_keys::{InvalidValue, KeyTable as _, at_least, dotted};
use sgs_lean::LeanSettings;
use sgs_lm::ModelConfig;
use sgs_lm::model::Mode;
use sgs_metamath::database::Database;
use sgs_selfplay::config::ConjectureForm;
use sgs_selfplay::{AlgorithmConfig, Role, RoleBackend, Weights};
use std::path::Path;
use std::sync::LazyLock;

sgs_keys::table! {
    /// The complete configuration of a run.
    #[derive(Clone, Debug, PartialEq)]
    pub struct RunConfig {
        /// Name of the method.
        pub method: String = "sgs".to_owned(), in "a method, as `sgs run METHOD` or in a file",
        /// Name of the method in tables and figures; empty: that of `method`. A run of FILE.toml is labelled FILE.
        pub label: String = String::new(), in "at most 60 characters",
        /// Name of the size.
        pub size: String = "metamath-quick".to_owned(), in "a size, as `--size SIZE` or in a file",
        /// Seed of all random numbers.
        pub seed: u64 = 1, in 0..=i64::MAX as u64,
        /// Number of rounds.
        pub rounds: u32 = 40, in 1..=1_000_000,
        /// Time limit, in minutes of work summed over all resumptions: no round starts after it. 0 means no limit.
        pub minutes: f64 = 0.0, in at_least(0.0).at_most(1e7),
        /// Limit on the Solver's generations: no round starts after it. 0 means no limit.
        pub generations: u64 = 0, in 0..=1_000_000_000_000,
        /// The formal system and its problems.
        pub problems: ProblemsConfig,
        /// The language model.
        pub model: ModelChoice,
        /// Sampling of completions.
        pub sampling: SamplingConfig,
        /// Resources for training.
        pub training: TrainingConfig,
        /// Which checkpoints are kept.
        pub checkpoints: CheckpointsConfig,
        /// Evaluation of the Solver on held-out problems.
        pub evaluation: EvaluationConfig,
        /// The algorithm.
        pub algorithm: AlgorithmConfig,
        /// Lean settings, used if Lean is the formal system.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub lean: Option<LeanSettings>,
        /// Settings of an external formal system, used if problems.system is external.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub external: Option<ExternalSettings>,
    }
}

/// Values of `model.base` for models that the program trains before the run begins.
pub const MADE: [&str; 3] = ["made:deep", "made:13m", "made:30m"];

/// The allowed values of `model.base`.
static BASES: LazyLock<String> = LazyLock::new(|| {
    let made = MADE.join(", ");
    format!("shipped, {made} (each made by the run if absent), or a folder in Hugging Face layout")
});

sgs_keys::table! {
    /// The language model.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ModelChoice {
        /// Initial model of the Solver and the Conjecturer.
        pub base: String = "shipped".to_owned(), in BASES.as_str(),
        /// Model of the Guide.
        pub guide: String = "base".to_owned(), in "base, or a folder",
        /// Context window of all roles, in tokens (prompt plus completion). 0 means the model's own.
        pub context: usize = 0, in 0..=10_000_000,
        /// Device that the model runs on. `cpu` samples in bfloat16 if the processor can multiply it, `cpu-f32` never.
        pub device: String = "cpu".to_owned(), in &["cpu", "cpu-f32", "cuda"],
    }
}

sgs_keys::table! {
    /// Sampling of completions.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SamplingConfig {
        /// Maximum completion length of the Solver, in tokens.
        pub solver_tokens: usize = 48, in 1..=10_000_000,
        /// Maximum completion length of the Conjecturer, in tokens.
        pub conjecturer_tokens: usize = 120, in 1..=10_000_000,
        /// Maximum completion length of the Guide, in tokens.
        pub guide_tokens: usize = 6, in 1..=10_000_000,
        /// Number of sequences sampled at once, per role.
        pub batch: usize = 256, in 1..=1_000_000,
        /// Mean memory of a role for its buffers and KV cache, in MiB: the Solver gets twice as much, the Conjecturer and the
        /// Guide half as much.
        pub memory_mib: u64 = 512, in 16..=1_000_000_000,
        /// Roles that are sampled by external servers.
        pub endpoint: EndpointConfig,
    }
}

sgs_keys::table! {
    /// Resources for training.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TrainingConfig {
        /// Number of processes that sample and train, each with one GPU or a share of the CPU cores. Gradients and
        /// optimizer state are sharded over them.
        pub ranks: usize = 1, in 1..=65_536,
        /// Number of tokens in a micro-batch, the unit of one forward and backward pass.
        pub micro_batch_tokens: usize = 4096, in 64..=100_000_000,
        /// Whether to recompute activations in the backward pass. This needs memory for only one layer's activations,
        /// and about 25% more computation.
        pub recompute: bool = false,
        /// Whether a rank frees the memory of its samplers before an update, and that of the update before it samples
        /// again. In the meantime, another process may take it. `sgs resume` can change this.
        pub shared_memory: SharedMemory = SharedMemory::Auto,
    }
}

sgs_keys::choice! {
    /// Whether sampling and training use the same device memory in turns.
    pub enum SharedMemory {
        /// If they do not fit on the GPU together.
        Auto = "auto",
        /// In each round, even if there is enough memory for both.
        Always = "always",
        /// Never: both keep their memory.
        Never = "never",
    }
}

impl SharedMemory {
    /// Device memory in bytes that stays free, because libraries allocate some when they are first used.
    pub const SPARED: u64 = 2 << 30;

    /// Returns whether samplers that need this many bytes take turns with the training buffers. `free` is the device's free
    /// memory while those are allocated; `None` if the device does not have separate memory.
    pub fn takes_turns(self, needed: u64, free: Option<u64>) -> bool {
        match self {
            Self::Auto => free.is_some_and(|free| needed + Self::SPARED > free),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

sgs_keys::table! {
    /// Which checkpoints are kept.
    #[derive(Clone, Debug, PartialEq)]
    pub struct CheckpointsConfig {
        /// Number of most recent checkpoints to keep.
        pub last: u32 = 2, in 1..=1_000_000,
        /// Also keep checkpoints of rounds that are a multiple of this. 0 means none.
        pub every: u32 = 0, in 0..=1_000_000,
    }
}

impl RunConfig {
    /// Returns the weights that a role uses.
    pub fn weights_of(&self, role: Role) -> Weights {
        self.algorithm.weights_of(role, self.sampling.endpoint.backend_of(role))
    }

    /// Returns whether the run's own samplers, and not an external server, sample a role.
    pub fn samples_itself(&self, role: Role) -> bool {
        self.algorithm.samples(role) && self.sampling.endpoint.backend_of(role) == RoleBackend::Local
    }

    /// Returns whether the run's own samplers use a separate model as the Guide.
    pub fn has_own_guide(&self) -> bool {
        self.model.guide != "base" && self.samples_itself(Role::Guide)
    }

    /// Returns whether a run with this many generations has used up its limit.
    pub fn has_spent(&self, generations: u64) -> bool {
        self.generations > 0 && generations >= self.generations
    }

    /// Returns the context window of a model in this run, in tokens (prompt plus completion).
    pub fn window(&self, model: &ModelConfig) -> usize {
        self.model.positions().min(model.max_positions)
    }

    /// Returns the capacity of a training workspace, in tokens: a micro-batch, or one sequence that fills the window if
    /// that is larger.
    pub fn training_tokens(&self, model: &ModelConfig) -> usize {
        self.training.micro_batch_tokens.max(self.window(model))
    }
}

/// The source of a run's base model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseSource<'a> {
    /// The model embedded in the program.
    Shipped,
    /// A model that the program trains before the run begins (`made:NAME`). The run's folder holds a copy.
    Made(&'a str),
    /// A folder given by the user.
    Folder(&'a Path),
}

impl ModelChoice {
    /// Returns the source of the base model.
    pub fn base_source(&self) -> BaseSource<'_> {
        match (self.base.as_str(), self.base.strip_prefix("made:")) {
            ("shipped", _) => BaseSource::Shipped,
            (_, Some(name)) => BaseSource::Made(name),
            (folder, None) => BaseSource::Folder(Path::new(folder)),
        }
    }

    /// Returns the number of positions to load a model with. A model that has fewer keeps its own number.
    pub fn positions(&self) -> usize {
        if self.context == 0 { usize::MAX } else { self.context }
    }

    /// Checks that a model's own context window is at least as large as the configured one. `what` names the model in
    /// errors.
    ///
    /// # Errors
    /// Returns an error if the model's window is smaller.
    pub(crate) fn check_window(&self, model: &ModelConfig, what: &str) -> Result<()> {
        let (asked, own) = (self.context, model.max_positions);
        ensure!(
            asked <= own,
            "model.context is {asked} tokens, and {what} has {own} positions: set model.context to {own} or less, or to 0"
        );
        Ok(())
    }
}

impl SamplingConfig {
    /// Returns the maximum completion length of a role, in tokens.
    pub fn tokens(&self, role: Role) -> usize {
        match role {
            Role::Solver => self.solver_tokens,
            Role::Conjecturer => self.conjecturer_tokens,
            Role::Guide => self.guide_tokens,
        }
    }
}

impl TrainingConfig {
    /// Returns which activations the trainer keeps from the forward pass.
    pub fn mode(&self) -> Mode {
        if self.recompute { Mode::TrainRecompute { kept: 0 } } else { Mode::Train }
    }
}

/// Maximum length of `label`, in characters.
pub(super) const LABEL: usize = 60;

/// Checks each key, then the combinations of keys that depend on each other.
pub(super) fn check(config: &RunConfig) -> Result<()> {
    config.check("").map_err(Usage::of)?;
    if config.label.chars().count() > LABEL {
        return Err(Usage(format!("`label` has more than {LABEL} characters")).into());
    }
    let algorithm = config.algorithm.validate();
    algorithm.map_err(|e| Usage::of(InvalidValue { key: dotted("algorithm", &e.key), ..e }))?;
    let conjecturer = &config.algorithm.conjecturer;
    if config.problems.system != SystemName::Metamath {
        let refused = match (conjecturer.form, conjecturer.attempts_per_target) {
            (ConjectureForm::Statement, 0) => None,
            (ConjectureForm::Statement, _) => Some("attempts_per_target is not 0"),
            _ => Some("form is not `statement`"),
        };
        if let Some(refused) = refused {
            let RunConfig { method, size, .. } = config;
            let wrong = format!(
                "algorithm.conjecturer.{refused}, which needs problems.system=metamath (method `{method}`, size `{size}`)"
            );
            return Err(Usage(wrong).into());
        }
    }
    config.sampling.endpoint.check(&config.algorithm)?;
    check_own_database(config)?;
    check_external(config)
}

/// Checks that the formal system and the problem sets fit a Metamath database of the user's.
fn check_own_database(config: &RunConfig) -> Result<()> {
    let ProblemsConfig { system, database, set } = &config.problems;
    if database != SHIPPED && *system != SystemName::Metamath {
        return Err(Usage("problems.database requires problems.system=metamath".to_owned()).into());
    }
    let is_ours = !matches!(config.model.base_source(), BaseSource::Folder(_));
    for set in std::iter::once(set.as_str()).chain(config.evaluation.source()) {
        check_database(database, set)?;
        if database != SHIPPED && is_ours && is_drawn(set) {
            // A mistake in the name comes first.
            let read = Database::read(Path::new(database));
            read.map_err(|error| Usage(format!("problems.database: {}", Usage::of(error))))?;
            return Err(Usage(format!(
                "the model `{}` was trained on theorems of set.mm, which may be in the set `{set}` of {database}: give \
                 a model trained for this database as model.base (docs/guides.md), or a file of problems instead of \
                 the set",
                config.model.base
            ))
            .into());
        }
    }
    Ok(())
}

/// Checks that a run with an external system names the system and a model.
fn check_external(config: &RunConfig) -> Result<()> {
    if config.problems.system != SystemName::External {
        return Ok(());
    }
    let lacks = |what: &str| Err(Usage(format!("problems.system is external, which requires {what}")).into());
    if config.external.as_ref().is_none_or(|external| external.command.is_empty()) {
        return lacks("external.command: the program of the formal system and its arguments");
    }
    match config.model.base_source() {
        BaseSource::Folder(_) => Ok(()),
        _ => lacks("model.base: the folder of a model, such as `sgs pretrain` makes"),
    }
}
