//! The effective configuration of a run: size, then method, then file, environment and `--set`, in this order.

use super::endpoint::{self, EndpointConfig};
use crate::exit::Usage;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sgs_lean::LeanSettings;
use sgs_lm::model::Mode;
use sgs_selfplay::{AlgorithmConfig, Method};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Name of the method, for legends.
    pub method: String,
    /// Name of the size.
    pub size: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Rounds to run.
    pub rounds: u32,
    /// No new round begins after so many minutes; 0 is no limit.
    pub minutes: f64,
    /// The formal system and its problems.
    pub problems: ProblemsConfig,
    /// The language model.
    pub model: ModelChoice,
    /// Sampling.
    pub sampling: SamplingConfig,
    /// What training may use of the machine.
    pub training: TrainingConfig,
    /// Which checkpoints stay.
    pub checkpoints: CheckpointsConfig,
    /// The algorithm.
    pub algorithm: AlgorithmConfig,
    /// Lean, where it is the formal system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lean: Option<LeanSettings>,
}

/// The formal system and its problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemsConfig {
    /// `metamath` or `lean`.
    pub system: SystemName,
    /// Metamath: `quick` (100 theorems of set.mm), `all` (1,000), `train` and `held-out` (800 and 200 of them). Lean: `d3k` (the paper's), `core` (ours, without
    /// Mathlib). Or a file.
    pub set: String,
}

/// A formal system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemName {
    /// The embedded one.
    Metamath,
    /// Lean 4.
    Lean,
}

/// The language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelChoice {
    /// `shipped`, or a folder in Hugging Face layout: what Solver and Conjecturer start from.
    pub base: String,
    /// The Guide's model: `base`, or a folder.
    pub guide: String,
    /// `cpu` or `cuda`.
    pub device: String,
}

/// Sampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingConfig {
    /// Longest completion of the Solver, in tokens.
    pub solver_tokens: usize,
    /// Longest completion of the Conjecturer, in tokens.
    pub conjecturer_tokens: usize,
    /// Longest completion of the Guide, in tokens.
    pub guide_tokens: usize,
    /// Sequences sampled at once, for each role.
    pub batch: usize,
    /// Memory for buffers and key/value cache, for each role, MiB.
    pub memory_mib: u64,
    /// Roles that another server plays.
    #[serde(default)]
    pub endpoint: EndpointConfig,
}

/// What training may use of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Processes that train together, each with a GPU or a part of the processor.
    #[serde(default = "one")]
    pub ranks: usize,
    /// Tokens run through the model at once.
    pub micro_batch_tokens: usize,
    /// Computes every layer's activations again in the backward pass: a quarter more work, memory of one layer.
    #[serde(default)]
    pub recompute: bool,
}

fn one() -> usize {
    1
}

impl RunConfig {
    /// Whether any weights change.
    pub fn trains(&self) -> bool {
        let a = &self.algorithm;
        a.solver.train || (a.conjecturer.on && !a.conjecturer.frozen)
    }
}

impl TrainingConfig {
    /// What the trainer keeps of a forward pass.
    pub fn mode(&self) -> Mode {
        if self.recompute { Mode::TrainRecompute { kept: 0 } } else { Mode::Train }
    }
}

/// Which checkpoints stay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointsConfig {
    /// How many of the newest.
    pub last: u32,
    /// Also those whose round is a multiple of this; 0 for none.
    pub every: u32,
}

/// Documentation of the keys outside of `algorithm` (whose documentation is the library's): key, meaning, allowed.
pub const FIELDS: &[(&str, &str, &str)] = &[
    ("method", "name of the method, for legends", "any text"),
    ("size", "name of the size", "any text"),
    ("seed", "seed of everything random", "a whole number"),
    ("rounds", "rounds to run", "from 1"),
    ("minutes", "no new round begins after so many minutes; 0 is no limit", "from 0"),
    ("problems.system", "the formal system", "metamath, lean"),
    (
        "problems.set",
        "the problems",
        "quick (100 theorems of set.mm), all (1,000), train and held-out (800 and 200 of them); for Lean d3k (the paper's 3,323), core (needs no Mathlib); a file",
    ),
    ("model.base", "what Solver and Conjecturer start from", "shipped, or a folder"),
    ("model.guide", "the Guide's model", "base, or a folder"),
    ("model.device", "where the model runs", "cpu, cuda"),
    ("sampling.solver_tokens", "longest completion of the Solver, tokens", "from 1"),
    ("sampling.conjecturer_tokens", "longest completion of the Conjecturer, tokens", "from 1"),
    ("sampling.guide_tokens", "longest completion of the Guide, tokens", "from 1"),
    ("sampling.batch", "sequences sampled at once, for each role", "from 1"),
    ("sampling.memory_mib", "memory for buffers and key/value cache, for each role, MiB", "from 16"),
    (
        "training.ranks",
        "processes that train together: gradients and optimiser state are shared out, a GPU each",
        "from 1",
    ),
    ("training.micro_batch_tokens", "tokens run through the model at once", "from 64"),
    (
        "training.recompute",
        "computes activations again in the backward pass: slower, less memory",
        "true, false",
    ),
    ("checkpoints.last", "newest checkpoints that stay", "from 1"),
    ("checkpoints.every", "also those whose round is a multiple of this; 0 for none", "from 0"),
    ("lean.backing", "which program judges", "repl, file, wasm"),
    ("lean.root", "folder of `sgs lean setup`; empty for lean-setup (wasm: lean-wasm)", "a folder"),
    ("lean.version", "Lean's version there; empty for v4.15.0 (wasm: v4.28.0-pre)", "a version"),
    ("lean.slots", "proofs checked at the same time; 0 for one a core", "from 0"),
    ("lean.theorems_per_file", "theorems in one file; 0 for 16 (wasm: 128)", "from 0"),
    ("lean.options", "options set after every header", "a list of [name, value]"),
    ("lean.reading", "how completions are read", "lenient, strict"),
    ("lean.form", "how the Solver is asked", "non-cot, cot"),
    ("lean.judge", "replay accepted proofs in a second process", "true, false"),
    ("lean.sandbox", "run Lean in the sandbox", "true, false"),
    ("lean.require_sandbox", "refuse to run where the sandbox has a hole", "true, false"),
    ("lean.cache", "verdicts that are remembered", "from 0"),
    ("lean.limits.proof_ms", "time limit of a proof, milliseconds", "from 1"),
    ("lean.limits.start_ms", "time limit of a start with its header, milliseconds", "from 1"),
    ("lean.limits.memory", "resident memory of a Lean process, bytes", "from 1"),
    ("lean.limits.output", "bytes of one answer", "from 1"),
    ("lean.bounds.bytes", "bytes of a model's text that are read", "from 1"),
    ("lean.bounds.depth", "nesting of brackets in it", "from 1"),
    ("lean.bounds.numeral", "characters of a number in it", "from 1"),
    ("lean.bounds.name", "bytes of a name in it", "from 1"),
    ("lean.recycling.uses", "proofs after which a REPL is replaced", "from 1"),
    ("lean.recycling.age_ms", "age at which a REPL is replaced, milliseconds", "from 1"),
    ("lean.recycling.growth", "growth at which a REPL is replaced, bytes", "from 1"),
];

/// The sizes, with their presets.
pub const SIZES: [(&str, &str); 4] = [
    ("metamath-quick", include_str!("../../../../presets/size/metamath-quick.toml")),
    ("metamath", include_str!("../../../../presets/size/metamath.toml")),
    ("lean-d3k", include_str!("../../../../presets/size/lean-d3k.toml")),
    ("lean-core", include_str!("../../../../presets/size/lean-core.toml")),
];

/// The methods, with their presets.
pub const METHODS: [(&str, &str); 11] = [
    ("sgs", include_str!("../../../../presets/method/sgs.toml")),
    ("reinforce-half", include_str!("../../../../presets/method/reinforce-half.toml")),
    ("reinforce", include_str!("../../../../presets/method/reinforce.toml")),
    ("expert-iteration", include_str!("../../../../presets/method/expert-iteration.toml")),
    ("cispo", include_str!("../../../../presets/method/cispo.toml")),
    ("sgs-no-guide", include_str!("../../../../presets/method/sgs-no-guide.toml")),
    ("sgs-frozen-conjecturer", include_str!("../../../../presets/method/sgs-frozen-conjecturer.toml")),
    ("sgs-no-conditioning", include_str!("../../../../presets/method/sgs-no-conditioning.toml")),
    ("sgs-cispo", include_str!("../../../../presets/method/sgs-cispo.toml")),
    ("stp", include_str!("../../../../presets/method/stp.toml")),
    ("sampling-only", include_str!("../../../../presets/method/sampling-only.toml")),
];

/// Where the layers come from.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// A method's name or a TOML file; `sgs` if absent.
    pub method: Option<String>,
    /// A size's name.
    pub size: Option<String>,
    /// `key=value`, last.
    pub set: Vec<String>,
}

/// Puts the layers on top of each other.
///
/// # Errors
/// An unknown method, size or key (with the nearest one), a value of the wrong type or out of its range.
pub fn resolve(layers: &Layers, environment: impl Iterator<Item = (String, String)>) -> Result<RunConfig> {
    let named = layers.method.as_deref().unwrap_or("sgs");
    let (file, method) = match METHODS.iter().find(|m| m.0 == named) {
        Some(_) => (Table::new(), named.to_owned()),
        None if named.ends_with(".toml") => {
            let file = read_file(Path::new(named))?;
            let method = text_of(&file, "method").unwrap_or_else(|| "sgs".to_owned());
            (file, method)
        }
        None => {
            return Err(unknown("method", named, METHODS.iter().map(|m| m.0)).into());
        }
    };
    let size =
        layers.size.clone().or_else(|| text_of(&file, "size")).unwrap_or_else(|| "metamath-quick".to_owned());
    let size_text = SIZES.iter().find(|s| s.0 == size).map(|s| s.1);
    let Some(size_text) = size_text else {
        return Err(unknown("size", &size, SIZES.iter().map(|s| s.0)).into());
    };
    let Some((_, method_text)) = METHODS.iter().find(|m| m.0 == method) else {
        return Err(unknown("method", &method, METHODS.iter().map(|m| m.0)).into());
    };
    let mut table = Table::try_from(defaults(&method, &size)).context("the defaults")?;
    // A method's own table holds what it changes everywhere; `[size.NAME]` what it changes at one size only.
    let mut method_table: Table = method_text.parse().context("the method's preset")?;
    let at_sizes = method_table.remove("size");
    merge(&mut table, size_text.parse().context("the size's preset")?, "")?;
    merge(&mut table, method_table, "")?;
    if let Some(Value::Table(mut at_sizes)) = at_sizes
        && let Some(Value::Table(at_size)) = at_sizes.remove(&size)
    {
        merge(&mut table, at_size, "")?;
    }
    merge(&mut table, file, "")?;
    for (key, value) in environment.filter(|(k, _)| k.starts_with("SGS_SET_")) {
        let key = key["SGS_SET_".len()..].to_lowercase().replace("__", ".");
        assign(&mut table, &key, &value)?;
    }
    for setting in &layers.set {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(Usage(format!("--set {setting}: expected KEY=VALUE")).into());
        };
        assign(&mut table, key.trim(), value.trim())?;
    }
    let mut config: RunConfig = table.try_into().map_err(|e| Usage(format!("the configuration: {e}")))?;
    check(&config)?;
    if config.problems.system != SystemName::Lean {
        config.lean = None;
    }
    Ok(config)
}

fn defaults(method: &str, size: &str) -> RunConfig {
    RunConfig {
        method: method.to_owned(),
        size: size.to_owned(),
        seed: 1,
        rounds: 40,
        minutes: 0.0,
        problems: ProblemsConfig { system: SystemName::Metamath, set: "quick".to_owned() },
        model: ModelChoice { base: "shipped".to_owned(), guide: "base".to_owned(), device: "cpu".to_owned() },
        sampling: SamplingConfig {
            solver_tokens: 48,
            conjecturer_tokens: 120,
            guide_tokens: 6,
            batch: 256,
            memory_mib: 512,
            endpoint: EndpointConfig::default(),
        },
        training: TrainingConfig { ranks: 1, micro_batch_tokens: 4096, recompute: false },
        checkpoints: CheckpointsConfig { last: 2, every: 0 },
        algorithm: method.parse::<Method>().map(Method::config).unwrap_or_default(),
        lean: Some(LeanSettings::default()),
    }
}

fn read_file(path: &Path) -> Result<Table> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    text.parse::<Table>().with_context(|| format!("{} is not TOML", path.display()))
}

fn text_of(table: &Table, key: &str) -> Option<String> {
    table.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// Lays `over` on `base`; every key must exist there already.
fn merge(base: &mut Table, over: Table, prefix: &str) -> Result<()> {
    for (key, value) in over {
        let dotted = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match (base.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => merge(inner, value, &dotted)?,
            (Some(slot), value) => *slot = value,
            (None, _) => return Err(unknown_key(&dotted).into()),
        }
    }
    Ok(())
}

/// Sets one key from text: a number, truth value or list as in TOML, anything else as a string.
fn assign(table: &mut Table, key: &str, text: &str) -> Result<()> {
    let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
    let mut value = parsed.unwrap_or_else(|| Value::String(text.to_owned()));
    let mut slot = None;
    let mut here = Some(&mut *table);
    let parts: Vec<&str> = key.split('.').collect();
    for (i, part) in parts.iter().enumerate() {
        let Some(found) = here.take().and_then(|t| t.get_mut(*part)) else {
            return Err(unknown_key(key).into());
        };
        if i + 1 == parts.len() {
            slot = Some(found);
        } else {
            here = found.as_table_mut();
        }
    }
    let Some(slot) = slot else { return Err(unknown_key(key).into()) };
    match (&*slot, &value) {
        (Value::Table(_), _) => return Err(Usage(format!("`{key}` is a table: set one of its keys")).into()),
        (Value::Float(_), Value::Integer(n)) => value = Value::Float(*n as f64),
        (Value::String(_), Value::String(_)) => {}
        // `batch.size` is "all" or a number.
        (Value::String(_), Value::Integer(_)) if key == "algorithm.batch.size" => {}
        (old, new) if old.type_str() != new.type_str() => {
            let allowed = allowed(key);
            return Err(Usage(format!("`{key}` is {text}; expected {allowed}")).into());
        }
        _ => {}
    }
    *slot = value;
    Ok(())
}

fn allowed(key: &str) -> String {
    let own = FIELDS.iter().chain(&endpoint::FIELDS).find(|f| f.0 == key).map(|f| f.2.to_owned());
    let inner = key
        .strip_prefix("algorithm.")
        .and_then(|k| sgs_selfplay::config::FIELDS.iter().find(|f| f.key == k).map(|f| f.allowed.to_owned()));
    own.or(inner).unwrap_or_else(|| "another type".to_owned())
}

/// Every key with its meaning and what is allowed.
pub fn documentation() -> Vec<(String, String, String)> {
    let own =
        FIELDS.iter().chain(&endpoint::FIELDS).map(|f| (f.0.to_owned(), f.1.to_owned(), f.2.to_owned()));
    let algorithm = sgs_selfplay::config::FIELDS
        .iter()
        .map(|f| (format!("algorithm.{}", f.key), f.meaning.to_owned(), f.allowed.to_owned()));
    own.chain(algorithm).collect()
}

fn unknown_key(key: &str) -> Usage {
    let all: Vec<String> = documentation().into_iter().map(|d| d.0).collect();
    let near = nearest(key, all.iter().map(String::as_str));
    Usage(format!("there is no key `{key}`{near} (`sgs run --explain` lists all)"))
}

fn unknown<'a>(what: &str, name: &str, all: impl Iterator<Item = &'a str> + Clone) -> Usage {
    let list = all.clone().collect::<Vec<_>>().join(", ");
    Usage(format!("there is no {what} `{name}`{}; there are {list}", nearest(name, all)))
}

fn nearest<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> String {
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let score = |key: &str| {
        let whole = strsim::jaro_winkler(name, key);
        let end = strsim::jaro_winkler(&last(name), &last(key));
        whole.max(end * 0.98)
    };
    all.map(|key| (score(key), key))
        .filter(|(s, _)| *s > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, key)| format!("; did you mean `{key}`?"))
        .unwrap_or_default()
}

fn check(config: &RunConfig) -> Result<()> {
    config
        .algorithm
        .validate()
        .map_err(|e| Usage(format!("`algorithm.{}` is {}; expected {}", e.key, e.value, e.expected)))?;
    let least = [
        ("rounds", u64::from(config.rounds), 1),
        ("sampling.solver_tokens", config.sampling.solver_tokens as u64, 1),
        ("sampling.conjecturer_tokens", config.sampling.conjecturer_tokens as u64, 1),
        ("sampling.guide_tokens", config.sampling.guide_tokens as u64, 1),
        ("sampling.batch", config.sampling.batch as u64, 1),
        ("sampling.memory_mib", config.sampling.memory_mib, 16),
        ("training.ranks", config.training.ranks as u64, 1),
        ("training.micro_batch_tokens", config.training.micro_batch_tokens as u64, 64),
        ("checkpoints.last", u64::from(config.checkpoints.last), 1),
    ];
    for (key, value, least) in least {
        if value < least {
            return Err(Usage(format!("`{key}` is {value}; expected at least {least}")).into());
        }
    }
    if config.minutes.is_nan() || config.minutes < 0.0 {
        return Err(Usage(format!("`minutes` is {}; expected a number from 0", config.minutes)).into());
    }
    config.sampling.endpoint.check(&config.algorithm)
}

/// The folder that a model's name in the configuration stands for; `None` is the shipped one.
pub fn model_folder(name: &str) -> Option<PathBuf> {
    (name != "shipped").then(|| PathBuf::from(name))
}
