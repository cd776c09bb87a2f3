//! `sgs run --explain`: every configuration key; and the annotated configuration of `--dry-run`.

use crate::exit::Outcome;
use crate::output;
use anyhow::{Context, Result};
use sgs_keys::{KeyTable as _, dotted};
use sgs_lean::LeanSettings;
use sgs_run::config::{Layer, Resolved, RunConfig, value_of};
use std::fmt::Write as _;
use toml::{Table, Value};

/// Prints every key with its meaning, allowed values, default, current value and source.
///
/// # Errors
/// Returns an error if the output cannot be written.
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
        "\nLayers, in order of increasing precedence: default, size, method, method at this size, file, SGS_SET_… variables,\n\
         --set. Add METHOD, --size or --set to --explain to see their effect.",
    );
    output::line(text)?;
    Ok(Outcome::Done)
}

/// Formats the configuration as TOML, with the source of each value.
///
/// # Errors
/// Returns an error if the configuration cannot be serialised, which no resolved configuration causes.
pub fn annotated(resolved: &Resolved) -> Result<String> {
    let table = Table::try_from(&resolved.config).context("the configuration")?;
    let mut text = String::new();
    write_table(&mut text, "", &table, resolved);
    Ok(text)
}

fn write_table(text: &mut String, prefix: &str, table: &Table, resolved: &Resolved) {
    // Write keys before tables, because keys after a table's header belong to the table.
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

/// Returns the source of every key that has a value.
pub fn layers(resolved: &Resolved) -> serde_json::Map<String, serde_json::Value> {
    let keys = RunConfig::keys("").into_iter().filter(|key| resolved.value(&key.key).is_some());
    keys.map(|key| (key.key.clone(), resolved.layer(&key.key).to_string().into())).collect()
}
