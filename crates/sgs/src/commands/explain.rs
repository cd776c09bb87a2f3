//! `--explain`: every key of a configuration file; and the annotated configuration of `--dry-run`.

use crate::exit::Outcome;
use crate::output;
use anyhow::{Context, Result};
use sgs_keys::{KeySpec, KeyTable as _, dotted};
use sgs_run::config::{Layer, Resolved, RunConfig};
use std::fmt::Write as _;
use toml::{Table, Value};

/// Prints every key of a run with its meaning, allowed values and default; if the current value is
/// another, with that value and its source.
pub fn run(resolved: &Resolved) -> Result<Outcome> {
    let here = |key: &KeySpec| match resolved.layer(&key.key) {
        Layer::Default => String::new(),
        _ if resolved.value(&key.key) == key.default.as_ref() => String::new(),
        layer => format!("; here: {} ({layer})", shown(resolved.value(&key.key))),
    };
    let mut text =
        described("a run's configuration, for --set KEY=VALUE and TOML files", &RunConfig::keys(""), here);
    text.push_str(
        "\nLayers, in order of increasing precedence: default, size, method, method at this size, file, SGS_SET_… variables, \
         --set, flags such as --rounds and --seed. Add METHOD, --size or --set to --explain to see their effect.",
    );
    output::prose(text)?;
    Ok(Outcome::Done)
}

/// Prints every key of a file that a command reads.
pub fn file(command: &str, keys: &[KeySpec]) -> Result<Outcome> {
    let mut text = described(&format!("the file of `{command}`"), keys, |_| String::new());
    text.push_str(
        "\n`list[].key` is a key of each [[list]] table, `list[k].key` of those with kind = \"k\".",
    );
    output::prose(text)?;
    Ok(Outcome::Done)
}

/// Describes keys; `here` adds to the line of the default.
fn described(of: &str, keys: &[KeySpec], here: impl Fn(&KeySpec) -> String) -> String {
    let mut text = format!("Every key of {of}.\n\n");
    for key in keys {
        let (default, here) = (shown(key.default.as_ref()), here(key));
        let _ = writeln!(text, "{}\n    {}\n    allowed: {}", key.key, key.meaning, key.allowed);
        let _ = writeln!(text, "    default: {default}{here}");
    }
    text
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "left out".to_owned(), Value::to_string)
}

/// Formats the configuration as TOML, with the source of each value.
pub fn annotated(resolved: &Resolved) -> Result<String> {
    let table = Table::try_from(&resolved.config).context("the configuration")?;
    let mut text = String::new();
    write_table(&mut text, "", &table, resolved);
    Ok(text)
}

fn write_table(text: &mut String, prefix: &str, table: &Table, resolved: &Resolved) {
    // A folder stands for the texts that were read from it.
    let shown = |(name, value): (&String, &Value)| {
        let given = resolved.value(&dotted(prefix, name)).filter(|given| value.is_table() && given.is_str());
        (name.clone(), given.unwrap_or(value).clone())
    };
    let table: Table = table.iter().map(shown).collect();
    // Write keys before tables, because keys after a table's header belong to the table.
    for (name, value) in table.iter().filter(|(_, value)| !value.is_table()) {
        let layer = resolved.layer(&dotted(prefix, name));
        let _ = writeln!(text, "{:<40} # {layer}", format!("{name} = {value}"));
    }
    for (name, value) in &table {
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
