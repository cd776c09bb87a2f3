//! `sgs schema`: JSON schemas of the files that users write, generated from the keys, so that editors complete and check
//! them.

use crate::exit::Outcome;
use crate::output;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use sgs_keys::{Allowed, KeySpec, KeyTable as _};
use sgs_lean::LeanSettings;
use sgs_run::config::{METHODS, RunConfig, SIZES};

/// Writes a schema to standard output.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub fn run(file: &str) -> Result<Outcome> {
    let schema = match file {
        "run" => run_schema()?,
        "sweep" => sweep_schema()?,
        other => bail!("there is no schema of `{other}`"),
    };
    output::line(serde_json::to_string_pretty(&schema).context("the schema")?)?;
    Ok(Outcome::Done)
}

/// The schema of a run's TOML file.
fn run_schema() -> Result<Value> {
    let defaults = RunConfig { lean: Some(LeanSettings::default()), ..RunConfig::default() };
    let defaults = serde_json::to_value(defaults).context("the defaults")?;
    let mut root = table("The configuration of a run, for `sgs run FILE`.");
    for key in RunConfig::keys("") {
        insert(&mut root, &key, default_of(&defaults, &key.key));
    }
    let properties = properties_of(&mut root);
    properties
        .insert("method".into(), names("The method, which selects a preset.", METHODS.iter().map(|m| m.0)));
    properties.insert("size".into(), names("The size, which selects a preset.", SIZES.iter().map(|s| s.0)));
    root.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
    root.insert("title".into(), "sgs run".into());
    Ok(Value::Object(root))
}

/// The schema of a sweep's TOML file, whose tables `set` and `vary` refer to the keys of a run.
fn sweep_schema() -> Result<Value> {
    let mut set = run_schema()?;
    let keys: Map<String, Value> = RunConfig::keys("")
        .into_iter()
        .map(|key| {
            let values = json!({"type": "array", "minItems": 1, "items": value_schema(&key, &Value::Null)});
            (key.key, values)
        })
        .collect();
    if let Some(root) = set.as_object_mut() {
        root.remove("$schema");
        root.insert("title".into(), "Keys that all runs share.".into());
        let properties = properties_of(root);
        properties.remove("method");
        properties.remove("size");
    }
    Ok(json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "sgs sweep",
        "description": "A grid of runs, for `sgs sweep FILE`.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "methods": {
                "description": "Methods, or TOML files as `sgs run` takes them.",
                "type": "array", "minItems": 1, "items": {"type": "string"}, "default": ["sgs"],
            },
            "seeds": {
                "description": "Seeds of each method.",
                "type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}, "default": [1],
            },
            "size": names("The size of all runs.", SIZES.iter().map(|s| s.0)),
            "jobs": {"description": "Runs at the same time.", "type": "integer", "minimum": 1},
            "set": set,
            "vary": {
                "description": "Keys with their values: every combination is a run.",
                "type": "object", "additionalProperties": false, "properties": keys,
            },
        },
    }))
}

/// Inserts a dotted key, making the tables on its path.
fn insert(root: &mut Map<String, Value>, key: &KeySpec, default: &Value) {
    let mut parts: Vec<&str> = key.key.split('.').collect();
    let name = parts.pop().unwrap_or(&key.key);
    let mut at = properties_of(root);
    for part in parts {
        let entry = at.entry(part).or_insert_with(|| Value::Object(table("")));
        let Value::Object(inner) = entry else { return };
        at = properties_of(inner);
    }
    at.insert(name.to_owned(), value_schema(key, default));
}

/// An object schema without unknown keys.
fn table(description: &str) -> Map<String, Value> {
    let mut table = Map::new();
    if !description.is_empty() {
        table.insert("description".into(), description.into());
    }
    table.insert("type".into(), "object".into());
    table.insert("additionalProperties".into(), false.into());
    table.insert("properties".into(), json!({}));
    table
}

/// The `properties` of an object schema; [`table`] has made them.
#[allow(clippy::expect_used, reason = "an invariant of this file")]
fn properties_of(table: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let properties = table.get_mut("properties").and_then(Value::as_object_mut);
    properties.expect("invariant: every table has properties")
}

/// The schema of one key.
fn value_schema(key: &KeySpec, default: &Value) -> Value {
    let mut schema = match key.allowed {
        Allowed::Switch => json!({"type": "boolean"}),
        Allowed::Names(names) => json!({"enum": names}),
        Allowed::Whole { low, high } => json!({"type": "integer", "minimum": low, "maximum": high}),
        Allowed::Real { low, high } => json!({
            "type": "number",
            (if low.included { "minimum" } else { "exclusiveMinimum" }): low.at,
            (if high.included { "maximum" } else { "exclusiveMaximum" }): high.at,
        }),
        Allowed::NameOrWhole { name, low, high } => {
            json!({"anyOf": [{"const": name}, {"type": "integer", "minimum": low, "maximum": high}]})
        }
        // The default shows whether it is a text, a list or something else; without one, any value will do.
        Allowed::Text(_) => match default {
            Value::String(_) => json!({"type": "string"}),
            Value::Array(_) => json!({"type": "array"}),
            _ => json!({}),
        },
    };
    if let Some(schema) = schema.as_object_mut() {
        let description = match key.allowed {
            Allowed::Text(sentence) => format!("{} ({sentence})", key.meaning),
            _ => key.meaning.clone(),
        };
        schema.insert("description".into(), description.into());
        if !default.is_null() {
            schema.insert("default".into(), default.clone());
        }
    }
    schema
}

fn names<'a>(description: &str, names: impl Iterator<Item = &'a str>) -> Value {
    json!({"description": description, "enum": names.collect::<Vec<_>>()})
}

/// The default of a dotted key; null if it has none.
fn default_of<'a>(defaults: &'a Value, key: &str) -> &'a Value {
    key.split('.').fold(defaults, |value, part| &value[part])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_the_schema_with_its_range_and_default() {
        let schema = run_schema().unwrap();
        let keys = RunConfig::keys("").into_iter().filter(|key| !matches!(&*key.key, "method" | "size"));
        for key in keys {
            let found = key.key.split('.').fold(&schema, |at, part| &at["properties"][part]);
            assert!(found["description"].as_str().unwrap().starts_with(&key.meaning), "{}: {found}", key.key);
        }
        let rate = &schema["properties"]["algorithm"]["properties"]["solver"]["properties"]["learning_rate"];
        assert_eq!(rate["type"], "number");
        assert!(rate["default"].is_number(), "{rate}");
    }

    #[test]
    fn the_shipped_schemas_are_the_generated_ones() {
        for (name, schema) in [("run", run_schema().unwrap()), ("sweep", sweep_schema().unwrap())] {
            let path = format!("{}/../../docs/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
            let shipped = std::fs::read_to_string(&path).unwrap();
            let generated = serde_json::to_string_pretty(&schema).unwrap();
            assert!(shipped.trim_end() == generated, "sgs schema {name} > docs/schema/{name}.schema.json");
        }
    }
}
