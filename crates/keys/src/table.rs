//! Tables of configuration keys, and the types of their values.

use crate::Allowed;
use std::path::PathBuf;

/// Declaration of a key. Its default value is that of the table's struct.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySpec {
    /// The key, with the names of its tables, separated by dots.
    pub key: String,
    /// Meaning and unit.
    pub meaning: String,
    /// The allowed values.
    pub allowed: Allowed,
}

impl KeySpec {
    /// Creates the declaration of a key in the table `prefix`.
    pub fn new(prefix: &str, name: &str, doc: &str, allowed: impl Into<Allowed>) -> Self {
        Self { key: dotted(prefix, name), meaning: doc.trim().to_owned(), allowed: allowed.into() }
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
pub trait KeyTable {
    /// Returns all keys of the table and its subtables, in the order of declaration. `prefix` is the name of the table;
    /// empty for the root.
    fn keys(prefix: &str) -> Vec<KeySpec>;

    /// Checks all values.
    ///
    /// # Errors
    /// Returns an error at the first value that is not allowed.
    fn check(&self, prefix: &str) -> Result<(), InvalidValue>;
}

impl<T: KeyTable> KeyTable for Option<T> {
    fn keys(prefix: &str) -> Vec<KeySpec> {
        T::keys(prefix)
    }

    fn check(&self, prefix: &str) -> Result<(), InvalidValue> {
        self.as_ref().map_or(Ok(()), |table| table.check(prefix))
    }
}

/// A type of a key's value.
pub trait KeyValue {
    /// Returns the value as text if it is not allowed.
    fn rejected_by(&self, allowed: &Allowed) -> Option<String>;
}

/// A type whose allowed values are the same for all keys, so that they need not be declared.
pub trait FixedDomain: KeyValue {
    /// The allowed values.
    const ALLOWED: Allowed;
}

/// Checks the value of one key.
///
/// # Errors
/// Returns an error if the value is not allowed.
pub fn check(value: &impl KeyValue, prefix: &str, name: &str, allowed: &Allowed) -> Result<(), InvalidValue> {
    match value.rejected_by(allowed) {
        None => Ok(()),
        Some(value) => Err(InvalidValue { key: dotted(prefix, name), value, expected: allowed.to_string() }),
    }
}

/// Returns the full name of a key in the table `prefix`.
pub fn dotted(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

impl KeyValue for bool {
    fn rejected_by(&self, allowed: &Allowed) -> Option<String> {
        (*allowed != Allowed::Switch).then(|| self.to_string())
    }
}

impl FixedDomain for bool {
    const ALLOWED: Allowed = Allowed::Switch;
}

macro_rules! whole {
    ($($number:ty),*) => {$(
        impl KeyValue for $number {
            fn rejected_by(&self, allowed: &Allowed) -> Option<String> {
                let admitted = u64::try_from(*self).is_ok_and(|number| allowed.admits_whole(number));
                (!admitted).then(|| self.to_string())
            }
        }
    )*};
}

whole!(u32, u64, usize);

impl KeyValue for f64 {
    fn rejected_by(&self, allowed: &Allowed) -> Option<String> {
        (!allowed.admits_real(*self)).then(|| self.to_string())
    }
}

impl KeyValue for String {
    fn rejected_by(&self, allowed: &Allowed) -> Option<String> {
        (!allowed.admits_text(self)).then(|| format!("{self:?}"))
    }
}

impl KeyValue for PathBuf {
    fn rejected_by(&self, allowed: &Allowed) -> Option<String> {
        (!matches!(allowed, Allowed::Text(_))).then(|| self.display().to_string())
    }
}

/// A list, described by a phrase.
impl<T: std::fmt::Debug> KeyValue for Vec<T> {
    fn rejected_by(&self, allowed: &Allowed) -> Option<String> {
        (!matches!(allowed, Allowed::Text(_))).then(|| format!("{self:?}"))
    }
}

/// An optional value.
impl<T: KeyValue> KeyValue for Option<T> {
    fn rejected_by(&self, allowed: &Allowed) -> Option<String> {
        self.as_ref().and_then(|value| value.rejected_by(allowed))
    }
}
