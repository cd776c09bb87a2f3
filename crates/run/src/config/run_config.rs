//! The effective configuration of a run, from these layers in this order: size, method, file, environment, `--set`.

use super::endpoint::EndpointConfig;
use super::problems::{ProblemsConfig, SHIPPED, SystemName, check_database, is_drawn};
use crate::Usage;
use crate::config::held_out::EvaluationConfig;
use crate::error::{Context, Result, ensure};
use sgs_base::host::absolute;
use sgs_external::ExternalSettings;
use sgs_keys::{
    Allowed, InvalidValue, KeyFile, KeySpec, KeyTable as _, at_least, did_you_mean, dotted, unknown_key,
};
use sgs_lean::LeanSettings;
use sgs_lm::ModelConfig;
use sgs_lm::model::Mode;
use sgs_metamath::database::Database;
use sgs_selfplay::config::ConjectureForm;
use sgs_selfplay::{AlgorithmConfig, Method, Role, Weights};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::LazyLock;
use toml::{Table, Value};

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
        /// again.
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

    /// Returns whether samplers that need this many bytes take turns with training buffers beside which `free` bytes are
    /// free. `None` if the device does not have separate memory.
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

/// The names of the sizes and their presets (TOML).
pub const SIZES: [(&str, &str); 8] = [
    ("metamath-quick", include_str!("../../presets/size/metamath-quick.toml")),
    ("metamath", include_str!("../../presets/size/metamath.toml")),
    ("metamath-deep", include_str!("../../presets/size/metamath-deep.toml")),
    ("metamath-13m", include_str!("../../presets/size/metamath-13m.toml")),
    ("metamath-30m", include_str!("../../presets/size/metamath-30m.toml")),
    ("lean-d3k", include_str!("../../presets/size/lean-d3k.toml")),
    ("lean-core", include_str!("../../presets/size/lean-core.toml")),
    ("external", include_str!("../../presets/size/external.toml")),
];

/// Maximum length of `label`, in characters.
const LABEL: usize = 60;

/// The user's choices from which a configuration is resolved.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The name of a method, or the path of a TOML file. If absent: sgs.
    pub method: Option<String>,
    /// The name of a size.
    pub size: Option<String>,
    /// Whether to follow the paper's text instead of the size and the code, except for the size's learning rates.
    pub as_paper: bool,
    /// Whether to follow the paper's code where the paper's text is silent or differs.
    pub as_published: bool,
    /// `KEY=VALUE` settings.
    pub set: Vec<String>,
    /// Keys set by a dedicated flag: flag, key and value. Applied last.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

/// The layer that a key's value comes from. Later variants override earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The key's default.
    Default,
    /// The preset of a size.
    Size(String),
    /// The preset of a method.
    Method(String),
    /// The part of a method's preset that applies to one size only.
    MethodAtSize(String, String),
    /// A TOML file.
    File(String),
    /// An environment variable.
    Variable(String),
    /// A command-line argument.
    Argument(&'static str),
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Default => f.write_str("default"),
            Layer::Size(size) => write!(f, "size {size}"),
            Layer::Method(method) => write!(f, "method {method}"),
            Layer::MethodAtSize(method, size) => write!(f, "method {method} at size {size}"),
            Layer::File(path) => write!(f, "file {path}"),
            Layer::Variable(name) => write!(f, "environment {name}"),
            Layer::Argument(name) => f.write_str(name),
        }
    }
}

/// A configuration and the layer that each of its values comes from.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The configuration.
    pub config: RunConfig,
    /// All keys that have a value. Contains the Lean keys even if Lean is not the formal system.
    table: Table,
    /// The layer of each key. A key that is absent has its default value.
    pub(super) layers: BTreeMap<String, Layer>,
}

impl Resolved {
    /// Returns the value of a key, or `None` if it has none.
    pub fn value(&self, key: &str) -> Option<&Value> {
        value_of(&self.table, key)
    }

    /// Returns the layer that a key's value comes from.
    pub fn layer(&self, key: &str) -> &Layer {
        self.layers.get(key).unwrap_or(&Layer::Default)
    }

    /// Sets the number of training processes, as `--ranks` does.
    pub fn set_ranks(&mut self, ranks: usize) {
        self.config.training.ranks = ranks;
        self.layers.insert("training.ranks".to_owned(), Layer::Argument("--ranks"));
    }
}

/// Returns the value of a dotted key in a table.
pub fn value_of<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let mut parts = key.split('.');
    let first = table.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

/// Resolves the layers into one configuration.
///
/// # Errors
/// Returns an error if a method, size or key is unknown (the message suggests the closest name), or if a value has the
/// wrong type or is out of range.
#[allow(clippy::expect_used, reason = "a table has keys only if a file was read")]
pub fn resolve(layers: &Layers, environment: impl Iterator<Item = (String, String)>) -> Result<Resolved> {
    let environment: Vec<_> =
        environment.filter_map(|(name, value)| Some((key_of_variable(&name)?, name, value))).collect();
    let named = layers.method.as_deref();
    let source = match named {
        Some(name) if !is_method(name) => {
            check_method(name)?;
            Some(KeyFile::read(Path::new(name))?)
        }
        _ => None,
    };
    let mut file = source.as_ref().map(|source| source.table.clone()).unwrap_or_default();
    if let (Some(source), Some(name)) = (&source, named) {
        check_is_of_run(source, name)?;
    }
    let from_file = || Layer::File(named.expect("invariant: only a named file sets keys").to_owned());
    // Builds the error about an unknown name. If a file contains the name, the error names the line.
    let placed = |key: &str, layer: &Layer, error: Usage| match (&source, layer) {
        (Some(source), Layer::File(_)) => Usage(source.error(key, error).to_string()),
        _ => error,
    };
    let (size, sized) = match (&layers.size, text_of(&file, "size")?) {
        (Some(size), _) => (size.clone(), Layer::Argument("--size")),
        (None, Some(size)) => (size, from_file()),
        (None, None) => (default_size(&file, &environment, &layers.set).to_owned(), Layer::Default),
    };
    let Some((_, size_text)) = SIZES.iter().find(|s| s.0 == size) else {
        return Err(placed("size", &sized, unknown("size", &size, SIZES.iter().map(|s| s.0))).into());
    };
    let size_table: Table = size_text.parse().context("the size's preset")?;
    let (method, chosen) = match (named, text_of(&file, "method")?) {
        (Some(name), _) if is_method(name) => (name.to_owned(), Layer::Argument("command line")),
        (_, Some(method)) => (method, from_file()),
        (_, None) => ("sgs".to_owned(), Layer::Default),
    };
    let Ok(preset) = method.parse().map(Method::preset) else {
        let known = Method::ALL.into_iter().map(Method::as_str);
        return Err(placed("method", &chosen, unknown("method", &method, known)).into());
    };
    // Both keys have already selected their presets. If they stayed in the file's table, its `size` would override the
    // name given with `--size`.
    file.remove("method");
    file.remove("size");
    // A method's preset applies to every size, except for its `[size.NAME]` tables, which apply to one size each.
    let mut method_table: Table = preset.parse().context("the method's preset")?;
    let at_sizes = method_table.remove("size");
    let mut stack = LayerStack::of_defaults()?;
    stack.set("method", Value::String(method.clone()), chosen)?;
    stack.set("size", Value::String(size.clone()), sized)?;
    stack.lay(size_table, &Layer::Size(size.clone()))?;
    stack.lay(method_table, &Layer::Method(method.clone()))?;
    if let Some(Value::Table(mut at_sizes)) = at_sizes
        && let Some(Value::Table(at_size)) = at_sizes.remove(&size)
    {
        stack.lay(at_size, &Layer::MethodAtSize(method.clone(), size.clone()))?;
    }
    if layers.as_paper {
        stack.lay_paper_choices(&method)?;
    }
    if layers.as_published {
        stack.lay_code_choices()?;
    }
    stack.file = source;
    if stack.file.is_some() {
        if let Some(stem) = named.and_then(|name| Path::new(name).file_stem()?.to_str()) {
            stack.set("label", Value::String(stem.chars().take(LABEL).collect()), from_file())?;
        }
        // A frozen configuration that is used as a file repeats the values of its presets.
        drop_equal(&mut file, &stack.table);
        stack.lay(file, &from_file())?;
    }
    for (key, name, value) in environment {
        let is_meant = |known: &str| known.contains('.') && known.replace('.', "_") == key;
        if stack.keys.iter().any(|known| is_meant(&known.key)) {
            return Err(
                Usage(format!("environment {name}: write two underscores for each dot of the key")).into()
            );
        }
        stack.assign(&key, &value, Layer::Variable(name))?;
    }
    for setting in &layers.set {
        let (key, value) = key_and_value(setting)?;
        stack.assign(key, value, Layer::Argument("--set"))?;
    }
    for (flag, key, value) in &layers.flags {
        stack.assign(key, value, Layer::Argument(flag))?;
    }
    if layers.as_paper && !layers.as_published {
        stack.lay_text_choices()?;
    }
    stack.resolved()
}

/// Keys of `sampling.endpoint` that may change when a run is resumed: the addresses of the servers and the way requests
/// are sent, none of which affects the samples.
pub(crate) const OF_SERVERS: [&str; 14] = [
    "url",
    "urls",
    "solver_urls",
    "conjecturer_urls",
    "guide_urls",
    "folder",
    "folder_there",
    "concurrency",
    "tries",
    "timeout_s",
    "patience_s",
    "key_env",
    "key_file",
    "authority",
];

/// Those of [`OF_SERVERS`] that are paths on this machine.
const PATHS_OF_SERVERS: [&str; 3] = ["folder", "key_file", "authority"];

/// Returns the configuration of a resumed run with new values for some of [`OF_SERVERS`], given as `KEY=VALUE`.
///
/// # Errors
/// Returns an error if a setting names any other key or a value that is not allowed.
pub(crate) fn with_servers(config: &RunConfig, settings: &[String]) -> Result<RunConfig> {
    let table = Table::try_from(config).context("the configuration")?;
    let mut stack = LayerStack::new(table);
    for setting in settings {
        let (key, value) = key_and_value(setting)?;
        let name = key.strip_prefix("sampling.endpoint.").unwrap_or_default();
        if !OF_SERVERS.contains(&name) {
            return Err(Usage(format!(
                "--set {key}: this key cannot change after the run was created; only the settings of its servers can: \
                 `sampling.endpoint.` followed by one of {}",
                OF_SERVERS.join(", ")
            ))
            .into());
        }
        stack.assign(key, value, Layer::Argument("--set"))?;
        if PATHS_OF_SERVERS.contains(&name)
            && let Some(Value::String(path)) =
                value_of(&stack.table, key).filter(|path| path.as_str() != Some(""))
        {
            let path = Value::String(absolute(path));
            stack.set(key, path, Layer::Argument("--set"))?;
        }
    }
    Ok(stack.resolved()?.config)
}

fn key_and_value(setting: &str) -> Result<(&str, &str), Usage> {
    let (key, value) =
        setting.split_once('=').ok_or_else(|| Usage(format!("--set {setting}: expected KEY=VALUE")))?;
    Ok((key.trim(), value.trim()))
}

/// Returns the key that an environment variable sets, if it sets one.
fn key_of_variable(name: &str) -> Option<String> {
    name.strip_prefix("SGS_SET_").map(|key| key.to_lowercase().replace("__", "."))
}

/// Returns the size that is used if none is given. It depends on the formal system that the other layers choose.
fn default_size(file: &Table, environment: &[(String, String, String)], set: &[String]) -> &'static str {
    const KEY: &str = "problems.system";
    let in_file = value_of(file, KEY).and_then(Value::as_str);
    let in_environment = environment.iter().filter(|(key, ..)| key == KEY).map(|(.., value)| value.as_str());
    let set = set.iter().filter_map(|setting| key_and_value(setting).ok());
    let in_set = set.filter(|(key, _)| *key == KEY).map(|(_, value)| value);
    let last = in_file.into_iter().chain(in_environment).chain(in_set).last();
    match last.map(|value| value.trim_matches(['"', '\''])) {
        Some("external") => "external",
        _ => "metamath-quick",
    }
}

/// Returns the value of `method` or `size` in a file.
fn text_of(file: &Table, key: &str) -> Result<Option<String>> {
    match file.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(Usage(format!("`{key}` is {other}; expected a name in quotes")).into()),
    }
}

/// Accumulates configuration layers. Later layers override earlier ones.
struct LayerStack {
    keys: Vec<KeySpec>,
    table: Table,
    layers: BTreeMap<String, Layer>,
    /// The file among the layers, in which errors look for their line.
    file: Option<KeyFile>,
}

impl LayerStack {
    fn new(table: Table) -> Self {
        Self { keys: RunConfig::keys(""), table, layers: BTreeMap::new(), file: None }
    }

    fn of_defaults() -> Result<Self> {
        let (lean, external) = (Some(LeanSettings::default()), Some(ExternalSettings::default()));
        let defaults = RunConfig { lean, external, ..RunConfig::default() };
        Ok(Self::new(Table::try_from(defaults).context("the defaults")?))
    }

    /// Adds a layer on top of the others.
    fn lay(&mut self, over: Table, layer: &Layer) -> Result<()> {
        self.lay_at("", over, layer)
    }

    fn lay_at(&mut self, prefix: &str, over: Table, layer: &Layer) -> Result<()> {
        for (name, value) in over {
            let key = dotted(prefix, &name);
            match value {
                Value::Table(inner) if self.is_table(&key) => self.lay_at(&key, inner, layer)?,
                value => self.set(&key, value, layer.clone())?,
            }
        }
        Ok(())
    }

    /// Adds a layer that sets the method to the library's, except for the learning rates, which depend on the model.
    fn lay_paper_choices(&mut self, method: &str) -> Result<()> {
        let method: Method = method.parse().map_err(|e| Usage(format!("{e}")))?;
        let mut paper = Table::try_from(method.config())?;
        for policy in ["solver", "conjecturer"] {
            paper.get_mut(policy).and_then(Value::as_table_mut).and_then(|keys| keys.remove("learning_rate"));
        }
        self.lay_changes("algorithm", paper, "--as-paper")
    }

    /// Sets the keys that only presets have set to the paper's text. This depends on keys of the layers above the presets, such
    /// as the objective.
    fn lay_text_choices(&mut self) -> Result<()> {
        let mut wanted = Table::try_from(self.config()?.algorithm.with_text_choices())?;
        let given = |key: &str| {
            let is_in_file = self.file.as_ref().is_some_and(|file| value_of(&file.table, key).is_some());
            is_in_file || matches!(self.layers.get(key), Some(Layer::Variable(_) | Layer::Argument("--set")))
        };
        for (table, keys) in &mut wanted {
            if let Value::Table(keys) = keys {
                keys.retain(|name, _| !given(&format!("algorithm.{table}.{name}")));
            }
        }
        self.lay_changes("algorithm", wanted, "--as-paper")
    }

    /// Adds a layer with the choices of the paper's code.
    fn lay_code_choices(&mut self) -> Result<()> {
        let presets: RunConfig = self.table.clone().try_into().context("the presets")?;
        self.lay_changes(
            "algorithm",
            Table::try_from(presets.algorithm.with_code_choices())?,
            "--as-published",
        )?;
        let lean = presets.lean.unwrap_or_default().with_code_choices();
        self.lay_changes("lean", Table::try_from(lean)?, "--as-published")
    }

    /// Adds a layer with the keys of `wanted`, a value of `[section]`, that differ from the values so far.
    fn lay_changes(&mut self, section: &str, mut wanted: Table, flag: &'static str) -> Result<()> {
        if let Some(Value::Table(now)) = self.table.get(section) {
            drop_equal(&mut wanted, now);
        }
        self.lay_at(section, wanted, &Layer::Argument(flag))
    }

    fn is_table(&self, key: &str) -> bool {
        self.keys.iter().any(|k| k.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
    }

    /// Sets one key from text. Numbers, booleans and lists are parsed as TOML; anything else is a string.
    fn assign(&mut self, key: &str, text: &str, layer: Layer) -> Result<()> {
        if key == "method" || key == "size" {
            return Err(self.not_a_label(key, text, &layer).into());
        }
        let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
        let text = || Value::String(text.to_owned());
        let value = match (parsed, self.keys.iter().find(|k| k.key == key).map(|k| k.allowed)) {
            (Some(value @ (Value::String(_) | Value::Array(_))), _) => value,
            // A name or folder can look like a number.
            (_, Some(Allowed::Names(_) | Allowed::Text(_) | Allowed::TextOrTable(_))) => text(),
            (parsed, _) => parsed.unwrap_or_else(text),
        };
        self.set(key, value, layer)
    }

    /// Returns the error for setting `method` or `size` as a plain key: these names select presets.
    fn not_a_label(&self, key: &str, name: &str, layer: &Layer) -> Usage {
        let now = |key: &str| self.table.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (method, size) = match key {
            "method" => (name.to_owned(), now("size")),
            _ => (now("method"), name.to_owned()),
        };
        Usage(format!(
            "`{key}` cannot be set by {layer}, because it selects presets; choose it with \
             `sgs run {method} --size {size}`, or in a file: `sgs run FILE.toml`"
        ))
    }

    /// Sets one key.
    fn set(&mut self, key: &str, value: Value, layer: Layer) -> Result<()> {
        let Some(declared) = self.keys.iter().find(|k| k.key == key) else {
            let wrong = match self.is_table(key) {
                true => format!("`{key}` is a table: set one of its keys"),
                false => unknown_key(key, &self.keys, "sgs run --explain"),
            };
            return Err(Usage(self.place(key, &layer) + &wrong).into());
        };
        let value = declared.fit(value).map_err(|e| Usage(format!("{}{e}", self.place(key, &layer))))?;
        let (tables, name) = key.rsplit_once('.').map_or(("", key), |(tables, name)| (tables, name));
        let mut table = &mut self.table;
        for part in tables.split('.').filter(|part| !part.is_empty()) {
            let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
            table = inner.as_table_mut().with_context(|| format!("`{key}` is not in a table"))?;
        }
        table.insert(name.to_owned(), value);
        self.layers.insert(key.to_owned(), layer);
        Ok(())
    }

    /// Returns where a file or variable sets a key, as the start of an error message.
    fn place(&self, key: &str, layer: &Layer) -> String {
        match layer {
            Layer::File(_) => {
                self.file.as_ref().map_or_else(String::new, |file| file.error(key, "").to_string())
            }
            Layer::Variable(_) => format!("{layer}: "),
            _ => String::new(),
        }
    }

    fn config(&self) -> Result<RunConfig, Usage> {
        self.table.clone().try_into().map_err(|e| Usage(format!("the configuration: {e}")))
    }

    fn resolved(self) -> Result<Resolved> {
        let mut config = self.config()?;
        check(&config)?;
        if config.problems.system != SystemName::Lean {
            config.lean = None;
        }
        if config.problems.system != SystemName::External {
            config.external = None;
        }
        if let Some(lean) = &mut config.lean {
            lean.freeze_prompts().map_err(|error| Usage(format!("lean.prompts: {error}")))?;
        }
        Ok(Resolved { config, table: self.table, layers: self.layers })
    }
}

/// Removes the keys that have the same value in `other`.
fn drop_equal(table: &mut Table, other: &Table) {
    table.retain(|name, value| match (value, other.get(name)) {
        (Value::Table(inner), Some(Value::Table(other))) => {
            drop_equal(inner, other);
            !inner.is_empty()
        }
        (value, other) => other != Some(value),
    });
}

fn is_method(name: &str) -> bool {
    name.parse::<Method>().is_ok()
}

/// Checks that a name is that of a method or of a TOML file.
///
/// # Errors
/// Returns an error that suggests a name.
pub fn check_method(name: &str) -> Result<(), Usage> {
    let is_known = name.ends_with(".toml") || is_method(name);
    if is_known { Ok(()) } else { Err(no_method(name)) }
}

/// Returns the error for the argument of `sgs run` if it is neither a method nor a TOML file.
fn no_method(name: &str) -> Usage {
    if SIZES.iter().any(|size| size.0 == name) {
        return Usage(format!("`{name}` is a size: `sgs run --size {name}`"));
    }
    if Path::new(name).exists() {
        return Usage(format!("{name} is not a configuration file, whose name ends in .toml"));
    }
    unknown("method", name, Method::ALL.into_iter().map(Method::as_str))
}

/// Checks that a file is neither that of a sweep nor the frozen configuration of a run.
fn check_is_of_run(file: &KeyFile, name: &str) -> Result<(), Usage> {
    let find = |keys: &[&'static str]| keys.iter().copied().find(|key| file.table.contains_key(*key));
    if let Some(key) = find(&["methods", "seeds", "vary"]) {
        let told = format!("`{key}` is a key of a sweep: `sgs sweep {name}`");
        return Err(Usage(file.error(key, told).to_string()));
    }
    if let Some(key) = find(&["frozen"]) {
        let told = "[frozen] is part of an existing run: for a new one, remove it from a copy of this file";
        return Err(Usage(file.error(key, told).to_string()));
    }
    Ok(())
}

/// Returns the error for an unknown name of a method, size or problem set.
pub(crate) fn unknown<'a>(what: &str, name: &str, all: impl Iterator<Item = &'a str> + Clone) -> Usage {
    let list = all.clone().collect::<Vec<_>>().join(", ");
    Usage(format!("there is no {what} `{name}`{} (known: {list})", did_you_mean(&name.to_lowercase(), all)))
}

/// Checks each key, then the combinations of keys that depend on each other.
fn check(config: &RunConfig) -> Result<()> {
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

#[cfg(test)]
mod tests;
