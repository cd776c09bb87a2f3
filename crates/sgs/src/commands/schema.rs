//! `sgs schema`: JSON schemas of the files that users write, generated from the keys, so that editors complete and check
//! them.

use super::pretrain::sft_keys;
use crate::args::MAX_JOBS;
use crate::exit::Outcome;
use crate::output;
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use sgs_data::base::config::PretrainConfig;
use sgs_data::sets::filter::FilterConfig;
use sgs_keys::{Allowed, KeySpec, KeyTable as _};
use sgs_run::config::{RunConfig, SIZES};
use sgs_selfplay::Method;

/// Writes a schema to standard output.
pub fn run(file: &str) -> Result<Outcome> {
    let schema = schema(file).with_context(|| format!("there is no schema of `{file}`"))?;
    output::line(serde_json::to_string_pretty(&schema).context("the schema")?)?;
    Ok(Outcome::Done)
}

/// Returns the schema of a file, or `None` if no file has this name.
fn schema(file: &str) -> Option<Value> {
    Some(match file {
        "run" => run_schema(),
        "sweep" => sweep_schema(),
        "pretrain" => {
            Value::Object(file_schema("pretrain", "The training of a new model", &PretrainConfig::keys("")))
        }
        "sft" => Value::Object(file_schema("sft", "The training of an existing model", &sft_keys())),
        "filter" => {
            Value::Object(file_schema("data filter", "A filter of problems", &FilterConfig::keys("")))
        }
        _ => return None,
    })
}

/// Returns the schema of the TOML file of a command.
fn file_schema(command: &str, about: &str, keys: &[KeySpec]) -> Map<String, Value> {
    let mut root = table(&format!("{about}, for `sgs {command} FILE`."));
    keys.iter().for_each(|key| insert(&mut root, key));
    root.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
    root.insert("title".into(), format!("sgs {command}").into());
    root
}

/// Returns the schema of a run's TOML file.
fn run_schema() -> Value {
    let mut root = file_schema("run", "The configuration of a run", &RunConfig::keys(""));
    let properties = properties_of(&mut root);
    properties.insert(
        "method".into(),
        names("The method, which selects a preset.", Method::ALL.into_iter().map(Method::as_str)),
    );
    properties.insert("size".into(), names("The size, which selects a preset.", SIZES.iter().map(|s| s.0)));
    Value::Object(root)
}

/// Returns the schema of a sweep's TOML file, whose tables `set` and `vary` refer to the keys of a run.
fn sweep_schema() -> Value {
    let mut set = run_schema();
    let keys: Map<String, Value> = RunConfig::keys("")
        .into_iter()
        .map(|key| {
            let values = json!({"type": "array", "minItems": 1, "items": value_schema(&key, None)});
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
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "sgs sweep",
        "description": "A grid of runs, for `sgs sweep FILE`.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "methods": {
                "description": "Methods, or TOML files as `sgs run` takes them, relative to this file's folder.",
                "type": "array", "minItems": 1, "items": {"type": "string"}, "default": ["sgs"],
            },
            "seeds": {
                "description": "Seeds of each method.",
                "type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}, "default": [1],
            },
            "size": names("The size of all runs.", SIZES.iter().map(|s| s.0)),
            "jobs": {"description": "Runs at the same time.", "type": "integer", "minimum": 1, "maximum": MAX_JOBS},
            "set": set,
            "vary": {
                "description": "Keys with their values: every combination is a run.",
                "type": "object", "additionalProperties": false, "properties": keys,
            },
        },
    })
}

/// Inserts a dotted key and creates the tables on its path. A list of tables is an array. If its tables have kinds,
/// each item is one of several tables.
fn insert(root: &mut Map<String, Value>, key: &KeySpec) {
    let (tables, name) = key.key.rsplit_once('.').unwrap_or(("", &key.key));
    let mut at = root;
    for part in tables.split('.').filter(|part| !part.is_empty()) {
        let (part, kind) = part.split_once('[').map_or((part, None), |(part, kind)| (part, Some(kind)));
        let mut entry = properties_of(at).entry(part).or_insert_with(|| match kind {
            None => Value::Object(table("")),
            Some("]") => json!({"type": "array", "items": table("")}),
            Some(_) => json!({"type": "array", "items": {"oneOf": []}}),
        });
        if let Some(kind) = kind {
            entry = &mut entry["items"];
            if kind != "]" {
                entry = variant(&mut entry["oneOf"], name == "kind");
            }
        }
        let Value::Object(inner) = entry else { return };
        at = inner;
    }
    let default = key.default.as_ref().and_then(|value| serde_json::to_value(value).ok());
    properties_of(at).insert(name.to_owned(), value_schema(key, default.as_ref()));
}

/// Returns the table of the last kind, or a new one if its first key, `kind`, is inserted.
fn variant(kinds: &mut Value, is_new: bool) -> &mut Value {
    if let (Value::Array(kinds), true) = (&mut *kinds, is_new) {
        let mut table = table("");
        table.insert("required".into(), json!(["kind"]));
        kinds.push(Value::Object(table));
    }
    let last = kinds.as_array().map_or(0, |kinds| kinds.len().saturating_sub(1));
    &mut kinds[last]
}

/// Returns an object schema that rejects unknown keys.
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

/// Returns the `properties` of an object schema that [`table`] has created.
#[allow(clippy::expect_used, reason = "an invariant of this file")]
fn properties_of(table: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let properties = table.get_mut("properties").and_then(Value::as_object_mut);
    properties.expect("invariant: every table has properties")
}

fn value_schema(key: &KeySpec, default: Option<&Value>) -> Value {
    let mut schema = match key.allowed {
        Allowed::Switch => json!({"type": "boolean"}),
        Allowed::Names(names) => json!({"enum": names}),
        Allowed::ListOf(names) => json!({"type": "array", "items": {"enum": names}}),
        Allowed::Whole { low, high } => json!({"type": "integer", "minimum": low, "maximum": high}),
        Allowed::Real { low, high } => json!({
            "type": "number",
            (if low.included { "minimum" } else { "exclusiveMinimum" }): low.at,
            (if high.included { "maximum" } else { "exclusiveMaximum" }): high.at,
        }),
        Allowed::NameOrWhole { name, low, high } => {
            json!({"anyOf": [{"const": name}, {"type": "integer", "minimum": low, "maximum": high}]})
        }
        // The default shows whether it is a text, a list or something else. Without a default, any value is allowed.
        Allowed::Text(_) => match default {
            Some(Value::String(_)) => json!({"type": "string"}),
            Some(Value::Array(_)) => json!({"type": "array"}),
            _ => json!({}),
        },
        Allowed::TextOrTable(_) => {
            json!({"type": ["string", "object"], "additionalProperties": {"type": "string"}})
        }
    };
    if let Some(schema) = schema.as_object_mut() {
        let description = match key.allowed {
            Allowed::Text(sentence) | Allowed::TextOrTable(sentence) => {
                format!("{} ({sentence})", key.meaning)
            }
            _ => key.meaning.clone(),
        };
        schema.insert("description".into(), description.into());
        if let Some(default) = default {
            schema.insert("default".into(), default.clone());
        }
    }
    schema
}

fn names<'a>(description: &str, names: impl Iterator<Item = &'a str>) -> Value {
    json!({"description": description, "enum": names.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_the_schema_with_its_range_and_default() {
        let schema = run_schema();
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
        for name in crate::arg_values::SCHEMAS {
            let schema = schema(name).unwrap();
            let path = format!("{}/../../docs/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
            let shipped = std::fs::read_to_string(&path).unwrap();
            let generated = serde_json::to_string_pretty(&schema).unwrap();
            assert!(shipped.trim_end() == generated, "sgs schema {name} > docs/schema/{name}.schema.json");
        }
    }
}
