//! Tables of configuration keys, and the types of their values.

use crate::Allowed;
use serde::Serialize;
use toml::Value;

/// Declaration of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySpec {
    /// The key, with the names of its tables, separated by dots. `list[].key` is a key of every table of a list, `list[k].key`
    /// one of those whose `kind` is `k`.
    pub key: String,
    /// Meaning and unit.
    pub meaning: String,
    /// The allowed values.
    pub allowed: Allowed,
    /// The default value; `None` if the key is absent by default.
    pub default: Option<Value>,
}

impl KeySpec {
    /// Creates the declaration of a key in the table `prefix`.
    pub fn new<T: Serialize>(prefix: &str, name: &str, doc: &str, allowed: Allowed, default: &T) -> Self {
        let (meaning, default) = (doc.trim().to_owned(), Value::try_from(default).ok());
        Self { key: dotted(prefix, name), meaning, allowed, default }
    }

    /// Converts a value to the key's type.
    pub fn fit(&self, value: Value) -> Result<Value, InvalidValue> {
        let value = match (&self.allowed, value) {
            (Allowed::Real { .. }, Value::Integer(n)) => Value::Float(n as f64),
            (_, value) => value,
        };
        let is_list = self.default.as_ref().is_some_and(Value::is_array);
        let fits = match (&self.allowed, &value) {
            (Allowed::Switch, Value::Boolean(_)) => true,
            (Allowed::Real { .. }, Value::Float(x)) => self.allowed.admits_real(*x),
            (Allowed::Whole { .. } | Allowed::NameOrWhole { .. }, Value::Integer(n)) => {
                u64::try_from(*n).is_ok_and(|n| self.allowed.admits_whole(n))
            }
            (Allowed::ListOf(names), Value::Array(items)) => {
                items.iter().all(|item| item.as_str().is_some_and(|name| names.contains(&name)))
            }
            (Allowed::Text(_), Value::String(_)) => !is_list,
            (Allowed::Text(_), Value::Array(_)) => is_list,
            (Allowed::TextOrTable(_), Value::String(_)) => true,
            (Allowed::TextOrTable(_), Value::Table(texts)) => texts.values().all(Value::is_str),
            (Allowed::Names(_) | Allowed::NameOrWhole { .. }, Value::String(text)) => {
                self.allowed.admits_text(text)
            }
            _ => false,
        };
        let (key, expected) = (&self.key, &self.allowed);
        match fits {
            true => Ok(value),
            false => Err(InvalidValue {
                key: key.clone(),
                value: value.to_string(),
                expected: expected.to_string(),
            }),
        }
    }
}

/// A value that its key does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {value}; expected {expected}")]
pub struct InvalidValue {
    /// The key, with the names of its tables.
    pub key: String,
    /// The value.
    pub value: String,
    /// The allowed values.
    pub expected: String,
}

/// A table of configuration keys. [`crate::table!`] implements it.
pub trait KeyTable: Serialize {
    /// Returns all keys of the table and its subtables, in the order of declaration. `prefix` is the name of the table;
    /// empty for the root.
    fn keys(prefix: &str) -> Vec<KeySpec>;

    /// Checks the values of all keys, except those in lists of tables, which [`KeyFile::decode`](crate::KeyFile::decode)
    /// checks. `prefix` is the name of the table in errors.
    fn check(&self, prefix: &str) -> Result<(), InvalidValue> {
        let table = Value::try_from(self).map_err(|error| InvalidValue {
            key: prefix.to_owned(),
            value: "no TOML".to_owned(),
            expected: error.to_string(),
        })?;
        for key in Self::keys("") {
            let value = key.key.split('.').try_fold(&table, |value, part| value.get(part));
            if let Some(Err(error)) = value.map(|value| key.fit(value.clone())) {
                return Err(InvalidValue { key: dotted(prefix, &error.key), ..error });
            }
        }
        Ok(())
    }
}

impl<T: KeyTable> KeyTable for Option<T> {
    fn keys(prefix: &str) -> Vec<KeySpec> {
        T::keys(prefix)
    }
}

/// A list of tables: `[[name]]` in TOML.
impl<T: KeyTable> KeyTable for Vec<T> {
    fn keys(prefix: &str) -> Vec<KeySpec> {
        T::keys(&format!("{prefix}[]"))
    }
}

/// A type whose allowed values are the same for all keys, so that they need not be declared.
pub trait FixedDomain {
    /// The allowed values.
    const ALLOWED: Allowed;
}

impl FixedDomain for bool {
    const ALLOWED: Allowed = Allowed::Switch;
}

/// Returns the full name of a key in the table `prefix`.
pub fn dotted(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}
