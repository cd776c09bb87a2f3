//! Validated names of workers, kinds of work, files and digests.
//!
//! Such names arrive over the network and from files. The types check them on construction and deserialization. A valid
//! name has no character with a meaning in a path, a shell or a log line.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

/// An invalid name: the kind of name, its rule, and the beginning of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} {2:?}: it has to be {1}")]
pub struct NameError(&'static str, &'static str, String);

/// Maximum length of the name of a kind, in bytes.
const MAX_KIND: usize = 64;
const KIND: &str = "1 to 64 characters of a-z, 0-9, '-' and '_'";
/// Number of characters of an invalid name that an error shows.
const SHOWN: usize = 128;

/// A kind of work. Workers lease tasks of one kind; the fleet gives the name no other meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct WorkKind(Cow<'static, str>);

impl WorkKind {
    /// Creates a kind from a constant.
    ///
    /// # Panics
    /// Panics if [`WorkKind::new`] would return an error; at compile time if the result is a constant.
    pub const fn of(name: &'static str) -> Self {
        assert!(is_kind(name), "not a valid name of a kind of work");
        Self(Cow::Borrowed(name))
    }

    /// Creates a kind.
    ///
    /// # Errors
    /// Returns an error unless the name is 1 to 64 characters of `a-z`, `0-9`, `-` and `_`.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if is_kind(name) {
            Ok(Self(Cow::Owned(name.to_owned())))
        } else {
            Err(NameError("task kind", KIND, shorten(name)))
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const fn is_kind(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !matches!(bytes[at], b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_') {
            return false;
        }
        at += 1;
    }
    !bytes.is_empty() && bytes.len() <= MAX_KIND
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for WorkKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// Declares a string type that is validated on construction and deserialization.
macro_rules! checked {
    ($(#[$about:meta])* $name:ident, $what:literal, $rule:literal, $test:expr) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Creates a name.
            ///
            /// # Errors
            #[doc = concat!("Returns an error unless the text is ", $rule, ".")]
            pub fn new(name: &str) -> Result<Self, NameError> {
                let test: fn(&str) -> bool = $test;
                if test(name) { Ok(Self(name.into())) } else { Err(NameError($what, $rule, shorten(name))) }
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::new(&String::deserialize(from)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

checked!(
    /// Name of a worker process, unique among the workers of one coordinator. By convention `kind-host-pid-nonce`.
    WorkerName,
    "worker name",
    "1 to 128 letters, digits and characters of -_.:@+, and to begin with a letter or a digit",
    |name| name.len() <= 128 && is_plain(name, b"-_.:@+")
);

checked!(
    /// Name of a file without a path.
    FileName,
    "file name",
    "1 to 128 letters, digits and characters of -_.+, and to begin with a letter or a digit",
    |name| name.len() <= 128 && is_plain(name, b"-_.+")
);

checked!(
    /// A SHA-256 digest in hexadecimal.
    Digest,
    "SHA-256",
    "64 hexadecimal digits, in lower case",
    |name| name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
);

/// Returns true if the name consists of letters, digits and `others`, and begins with a letter or a digit.
fn is_plain(name: &str, others: &[u8]) -> bool {
    name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || others.contains(&b))
}

fn shorten(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        const VERIFY: WorkKind = WorkKind::of("verify");
        assert_eq!(WorkKind::new("verify"), Ok(VERIFY));
        assert_eq!(WorkKind::new("guide-2").map(|k| k.to_string()), Ok("guide-2".into()));
        for bad in ["", "Verify", "a b", "ü", &"x".repeat(65)] {
            assert!(WorkKind::new(bad).is_err(), "{bad}");
        }
        assert!(WorkerName::new("gen-host.example-12:3").is_ok());
        for bad in ["", "a b", "a\nb", "ü", "../a", "/a", "a/b", ".a", "-a", "a%", "a\\b", &"x".repeat(129)]
        {
            assert!(WorkerName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_could_escape_a_folder_are_rejected() {
        assert!(FileName::new("model-00001-of-00002.safetensors").is_ok());
        for bad in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", ".hidden", "~", "a b", "a\0", "-rf"]
        {
            assert!(FileName::new(bad).is_err(), "{bad}");
            assert!(Digest::new(bad).is_err(), "{bad}");
            let json = serde_json::to_string(bad).expect("JSON");
            assert!(serde_json::from_str::<FileName>(&json).is_err(), "{bad}");
        }
        let sum = "ab".repeat(32);
        assert_eq!(Digest::new(&sum).map(|d| d.to_string()), Ok(sum.clone()));
        for bad in [&sum[1..], &sum.to_uppercase(), &format!("{}/..", &sum[3..]), &format!("{sum}0")] {
            let error = Digest::new(bad).expect_err("no digest").to_string();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
    }
}
