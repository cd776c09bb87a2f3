//! Tables of keys, and the types that a key's value may have.

use crate::Allowed;
use std::path::PathBuf;

/// One key as it was declared. Its default is that of the table's struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its name, dotted.
    pub key: String,
    /// What it means, with its unit.
    pub meaning: String,
    /// What it may be.
    pub allowed: Allowed,
}

impl Key {
    /// A key of the table at `prefix`.
    pub fn new(prefix: &str, name: &str, doc: &str, allowed: impl Into<Allowed>) -> Self {
        Self { key: dotted(prefix, name), meaning: doc.trim().to_owned(), allowed: allowed.into() }
    }
}

/// A value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {value}; expected {expected}")]
pub struct Refused {
    /// The key, dotted.
    pub key: String,
    /// The value.
    pub value: String,
    /// What is allowed.
    pub expected: String,
}

/// A table of keys; [`crate::table!`] implements it.
pub trait Table {
    /// Every key of the table and of the tables in it, in their order. `prefix` is the table's own name, empty for the
    /// outermost.
    fn keys(prefix: &str) -> Vec<Key>;

    /// Holds every key against what it may be.
    ///
    /// # Errors
    /// The first that is not allowed.
    fn check(&self, prefix: &str) -> Result<(), Refused>;
}

impl<T: Table> Table for Option<T> {
    fn keys(prefix: &str) -> Vec<Key> {
        T::keys(prefix)
    }

    fn check(&self, prefix: &str) -> Result<(), Refused> {
        self.as_ref().map_or(Ok(()), |table| table.check(prefix))
    }
}

/// A type that a key's value may have.
pub trait Leaf {
    /// The value as it is written, if it is not allowed.
    fn refused_by(&self, allowed: &Allowed) -> Option<String>;
}

/// A type that says itself what is allowed, so that its keys do not have to.
pub trait Closed: Leaf {
    /// What is allowed.
    const ALLOWED: Allowed;
}

/// Holds one value against what its key may be.
///
/// # Errors
/// It is not allowed.
pub fn check(value: &impl Leaf, prefix: &str, name: &str, allowed: &Allowed) -> Result<(), Refused> {
    match value.refused_by(allowed) {
        None => Ok(()),
        Some(value) => Err(Refused { key: dotted(prefix, name), value, expected: allowed.to_string() }),
    }
}

/// The name of a key of the table at `prefix`.
pub fn dotted(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

impl Leaf for bool {
    fn refused_by(&self, allowed: &Allowed) -> Option<String> {
        (*allowed != Allowed::Switch).then(|| self.to_string())
    }
}

impl Closed for bool {
    const ALLOWED: Allowed = Allowed::Switch;
}

macro_rules! whole {
    ($($number:ty),*) => {$(
        impl Leaf for $number {
            fn refused_by(&self, allowed: &Allowed) -> Option<String> {
                let admitted = u64::try_from(*self).is_ok_and(|number| allowed.admits_whole(number));
                (!admitted).then(|| self.to_string())
            }
        }
    )*};
}

whole!(u32, u64, usize);

impl Leaf for f64 {
    fn refused_by(&self, allowed: &Allowed) -> Option<String> {
        (!allowed.admits_real(*self)).then(|| self.to_string())
    }
}

impl Leaf for String {
    fn refused_by(&self, allowed: &Allowed) -> Option<String> {
        (!allowed.admits_text(self)).then(|| format!("{self:?}"))
    }
}

impl Leaf for PathBuf {
    fn refused_by(&self, allowed: &Allowed) -> Option<String> {
        (!matches!(allowed, Allowed::Text(_))).then(|| self.display().to_string())
    }
}

/// A list, which a sentence describes.
impl<T: std::fmt::Debug> Leaf for Vec<T> {
    fn refused_by(&self, allowed: &Allowed) -> Option<String> {
        (!matches!(allowed, Allowed::Text(_))).then(|| format!("{self:?}"))
    }
}

/// A value that may be left out.
impl<T: Leaf> Leaf for Option<T> {
    fn refused_by(&self, allowed: &Allowed) -> Option<String> {
        self.as_ref().and_then(|value| value.refused_by(allowed))
    }
}
