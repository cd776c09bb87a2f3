//! Resolves the configuration of a run from its layers: defaults, presets, a file, the environment and arguments.

use super::problems::SystemName;
use super::run_config::{LABEL, RunConfig, check};
use crate::Usage;
use crate::error::{Context, Result};
use sgs_base::host::absolute;
use sgs_external::ExternalSettings;
use sgs_keys::{Allowed, KeyFile, KeySpec, KeyTable as _, did_you_mean, dotted, unknown_key};
use sgs_lean::LeanSettings;
use sgs_selfplay::Method;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use toml::{Table, Value};

/// The names of the sizes and their presets (TOML): those for CPUs, for one GPU and for eight GPUs.
pub const SIZES: [(&str, &str); 9] = [
    ("metamath-quick", include_str!("../../presets/size/metamath-quick.toml")),
    ("metamath", include_str!("../../presets/size/metamath.toml")),
    ("lean-core", include_str!("../../presets/size/lean-core.toml")),
    ("external", include_str!("../../presets/size/external.toml")),
    ("metamath-deep", include_str!("../../presets/size/metamath-deep.toml")),
    ("metamath-congruence", include_str!("../../presets/size/metamath-congruence.toml")),
    ("metamath-13m", include_str!("../../presets/size/metamath-13m.toml")),
    ("metamath-30m", include_str!("../../presets/size/metamath-30m.toml")),
    ("lean-d3k", include_str!("../../presets/size/lean-d3k.toml")),
];

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

/// The method that the user named, or the file of keys, if it is one.
struct NamedSource<'a> {
    name: Option<&'a str>,
    file: Option<KeyFile>,
}

impl<'a> NamedSource<'a> {
    fn open(name: Option<&'a str>) -> Result<Self> {
        let Some(path) = name.filter(|name| !is_method(name)) else { return Ok(Self { name, file: None }) };
        check_method(path)?;
        let file = KeyFile::read(Path::new(path))?;
        check_is_of_run(&file, path)?;
        Ok(Self { name, file: Some(file) })
    }

    /// Returns the keys of the file.
    fn table(&self) -> Table {
        self.file.as_ref().map(|file| file.table.clone()).unwrap_or_default()
    }

    /// Returns the layer of the file's keys.
    fn layer(&self) -> Layer {
        Layer::File(self.name.unwrap_or_default().to_owned())
    }

    /// Returns the error about an unknown name. If the file contains the name, the error names the line.
    fn place(&self, key: &str, layer: &Layer, error: Usage) -> Usage {
        match (&self.file, layer) {
            (Some(file), Layer::File(_)) => Usage(file.error(key, error).to_string()),
            _ => error,
        }
    }

    /// Returns the method with its preset and the layer that chooses it.
    fn method(&self) -> Result<(String, Table, Layer)> {
        let (method, chosen) = match (self.name, text_of(&self.table(), "method")?) {
            (Some(name), _) if self.file.is_none() => (name.to_owned(), Layer::Argument("command line")),
            (_, Some(method)) => (method, self.layer()),
            (_, None) => ("sgs".to_owned(), Layer::Default),
        };
        let Ok(preset) = method.parse().map(Method::preset) else {
            let known = Method::ALL.into_iter().map(Method::as_str);
            return Err(self.place("method", &chosen, unknown("method", &method, known)).into());
        };
        Ok((method, preset.parse().context("the method's preset")?, chosen))
    }

    /// Returns the size with its preset and the layer that chooses it.
    fn size(
        &self,
        layers: &Layers,
        environment: &[(String, String, String)],
    ) -> Result<(String, Table, Layer)> {
        let table = self.table();
        let (size, chosen) = match (&layers.size, text_of(&table, "size")?) {
            (Some(size), _) => (size.clone(), Layer::Argument("--size")),
            (None, Some(size)) => (size, self.layer()),
            (None, None) => (default_size(&table, environment, &layers.set).to_owned(), Layer::Default),
        };
        let Some((_, preset)) = SIZES.iter().find(|known| known.0 == size) else {
            let error = unknown("size", &size, SIZES.iter().map(|known| known.0));
            return Err(self.place("size", &chosen, error).into());
        };
        Ok((size, preset.parse().context("the size's preset")?, chosen))
    }
}

/// Resolves the layers into one configuration.
///
/// # Errors
/// Returns an error if a method, size or key is unknown (the message suggests the closest name), or if a value has the
/// wrong type or is out of range.
pub fn resolve(layers: &Layers, environment: impl Iterator<Item = (String, String)>) -> Result<Resolved> {
    let environment: Vec<_> =
        environment.filter_map(|(name, value)| Some((key_of_variable(&name)?, name, value))).collect();
    let source = NamedSource::open(layers.method.as_deref())?;
    let (size, size_table, sized) = source.size(layers, &environment)?;
    let (method, method_table, chosen) = source.method()?;
    let mut stack = LayerStack::of_defaults()?;
    stack.set("method", Value::String(method.clone()), chosen)?;
    stack.set("size", Value::String(size.clone()), sized)?;
    stack.lay(size_table, &Layer::Size(size.clone()))?;
    stack.lay_method(method_table, &method, &size)?;
    if layers.as_paper {
        stack.lay_paper_choices(&method)?;
    }
    if layers.as_published {
        stack.lay_code_choices()?;
    }
    stack.lay_file(source)?;
    for (key, name, value) in environment {
        stack.assign_variable(&key, name, &value)?;
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

/// Returns the keys that may change when a run is resumed, in addition to its limits. None of them affects results.
pub(crate) fn changeable() -> Vec<String> {
    let servers = OF_SERVERS.iter().map(|name| format!("sampling.endpoint.{name}"));
    servers.chain(["training.shared_memory".to_owned()]).collect()
}

/// Those of [`OF_SERVERS`] that are paths on this machine.
const PATHS_OF_SERVERS: [&str; 3] = ["folder", "key_file", "authority"];

/// Returns the configuration of a resumed run with new values for some [`changeable`] keys, given as `KEY=VALUE`.
///
/// # Errors
/// Returns an error if a setting names any other key or a value that is not allowed.
pub(crate) fn with_changes(config: &RunConfig, settings: &[String]) -> Result<RunConfig> {
    let table = Table::try_from(config).context("the configuration")?;
    let mut stack = LayerStack::new(table);
    for setting in settings {
        let (key, value) = key_and_value(setting)?;
        let name = key.strip_prefix("sampling.endpoint.").unwrap_or_default();
        if !changeable().iter().any(|known| known == key) {
            return Err(Usage(format!(
                "--set {key}: this key cannot change after the run was created; only `training.shared_memory` and the \
                 settings of its servers can: `sampling.endpoint.` followed by one of {}",
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

    /// Adds a method's preset. It applies to every size, except for its `[size.NAME]` tables, which apply to one size each.
    fn lay_method(&mut self, mut preset: Table, method: &str, size: &str) -> Result<()> {
        let at_sizes = preset.remove("size");
        self.lay(preset, &Layer::Method(method.to_owned()))?;
        if let Some(Value::Table(mut at_sizes)) = at_sizes
            && let Some(Value::Table(at_size)) = at_sizes.remove(size)
        {
            self.lay(at_size, &Layer::MethodAtSize(method.to_owned(), size.to_owned()))?;
        }
        Ok(())
    }

    /// Adds the keys of the file that the user named. Its name without the extension becomes the run's label.
    fn lay_file(&mut self, source: NamedSource<'_>) -> Result<()> {
        let (mut table, layer) = (source.table(), source.layer());
        self.file = source.file;
        if self.file.is_none() {
            return Ok(());
        }
        if let Some(stem) = source.name.and_then(|name| Path::new(name).file_stem()?.to_str()) {
            let label = stem.chars().take(LABEL).collect();
            self.set("label", Value::String(label), layer.clone())?;
        }
        // Both keys have already selected their presets, and `--size` may override that of the file.
        table.remove("method");
        table.remove("size");
        // A frozen configuration that is used as a file repeats the values of its presets.
        drop_equal(&mut table, &self.table);
        self.lay(table, &layer)
    }

    /// Sets a key from the environment variable `name`.
    fn assign_variable(&mut self, key: &str, name: String, value: &str) -> Result<()> {
        let is_meant = |known: &str| known.contains('.') && known.replace('.', "_") == key;
        if self.keys.iter().any(|known| is_meant(&known.key)) {
            let told = format!("environment {name}: write two underscores for each dot of the key");
            return Err(Usage(told).into());
        }
        self.assign(key, value, Layer::Variable(name))
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

#[cfg(test)]
mod tests;
