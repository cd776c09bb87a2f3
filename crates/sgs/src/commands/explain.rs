//! `sgs run --explain`: every key of a run's configuration, and `--dry-run`'s view of their values.

use crate::exit::Outcome;
use crate::output;
use anyhow::{Context, Result};
use sgs_keys::{Table as _, dotted};
use sgs_lean::LeanSettings;
use sgs_run::config::{Layer, Resolved, RunConfig, value_of};
use std::fmt::Write as _;
use toml::{Table, Value};

/// Prints every key: what it means, what it may be, its default, and its value here with the layer that gave it.
///
/// # Errors
/// The output cannot be written.
pub fn run(resolved: &Resolved) -> Result<Outcome> {
    let defaults = RunConfig { lean: Some(LeanSettings::default()), ..RunConfig::default() };
    let defaults = Table::try_from(defaults).context("the defaults")?;
    let mut text =
        String::from("Every key of a run's configuration, for --set KEY=VALUE and TOML files.\n\n");
    for key in RunConfig::keys("") {
        let shown = |value: Option<&Value>| value.map_or_else(|| "left out".to_owned(), Value::to_string);
        let default = shown(value_of(&defaults, &key.key));
        let _ = writeln!(text, "{}\n    {}\n    allowed: {}", key.key, key.meaning, key.allowed);
        let _ = match resolved.layer(&key.key) {
            Layer::Default => writeln!(text, "    default: {default}"),
            layer => {
                writeln!(text, "    default: {default}; here: {} ({layer})", shown(resolved.value(&key.key)))
            }
        };
    }
    text.push_str(
        "\nLayers, each over the one before: default, size, method, method at this size, file, SGS_SET_… variables,\n\
         --set. METHOD, --size and --set beside --explain show what they come to.",
    );
    output::line(text)?;
    Ok(Outcome::Done)
}

/// The configuration as TOML, each value with the layer that gave it.
///
/// # Errors
/// Never for a configuration that was resolved.
pub fn annotated(resolved: &Resolved) -> Result<String> {
    let table = Table::try_from(&resolved.config).context("the configuration")?;
    let mut text = String::new();
    write_table(&mut text, "", &table, resolved);
    Ok(text)
}

fn write_table(text: &mut String, prefix: &str, table: &Table, resolved: &Resolved) {
    // Keys before tables: whatever follows a table's head belongs to it.
    for (name, value) in table.iter().filter(|(_, value)| !value.is_table()) {
        let layer = resolved.layer(&dotted(prefix, name));
        let _ = writeln!(text, "{:<40} # {layer}", format!("{name} = {value}"));
    }
    for (name, value) in table {
        if let Value::Table(inner) = value {
            let key = dotted(prefix, name);
            if inner.values().any(|value| !value.is_table()) {
                let _ = writeln!(text, "\n[{key}]");
            }
            write_table(text, &key, inner, resolved);
        }
    }
}

/// Every key with a value and the layer that gave it.
pub fn layers(resolved: &Resolved) -> serde_json::Map<String, serde_json::Value> {
    let keys = RunConfig::keys("").into_iter().filter(|key| resolved.value(&key.key).is_some());
    keys.map(|key| (key.key.clone(), resolved.layer(&key.key).to_string().into())).collect()
}
