//! Names that come from elsewhere: from workers, from the coordinator, from files. Every one is of a type of this module,
//! which checks it wherever it is made or read. None has a character that means something in a path, a shell or a log.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name that is not taken: of what, what such a name is, and how it begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} {2:?}: it has to be {1}")]
pub struct NameError(&'static str, &'static str, String);

/// Longest name of a task kind, in bytes.
const LONGEST_KIND: usize = 64;
const KIND: &str = "1 to 64 characters of a-z, 0-9, '-' and '_'";
/// Characters of a name that an error shows.
const SHOWN: usize = 128;

/// What sort of worker a task needs: a name that means something to the consumer and to the workers, not to the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskKind(Cow<'static, str>);

impl TaskKind {
    /// The kind of a name that stands in the program.
    ///
    /// # Panics
    /// Unless the name is one that [`TaskKind::new`] takes; for a constant that is when the program is compiled.
    #[must_use]
    pub const fn of(name: &'static str) -> Self {
        assert!(is_kind(name), "this is no name of a task kind");
        Self(Cow::Borrowed(name))
    }

    /// The kind of that name.
    ///
    /// # Errors
    /// [`NameError`] unless the name is 1 to 64 characters of `a-z`, `0-9`, `-` and `_`.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if is_kind(name) {
            Ok(Self(Cow::Owned(name.to_owned())))
        } else {
            Err(NameError("task kind", KIND, shorten(name)))
        }
    }

    /// The kind's name, as it stands on the wire.
    #[must_use]
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
    !bytes.is_empty() && bytes.len() <= LONGEST_KIND
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for TaskKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TaskKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// A checked text: its constructor, its text, and its way through serde, which checks it again.
macro_rules! checked {
    ($(#[$about:meta])* $name:ident, $what:literal, $rule:literal, $test:expr) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and wraps a name.
            ///
            /// # Errors
            #[doc = concat!("[`NameError`] unless it is ", $rule, ".")]
            pub fn new(name: &str) -> Result<Self, NameError> {
                let test: fn(&str) -> bool = $test;
                if test(name) { Ok(Self(name.into())) } else { Err(NameError($what, $rule, shorten(name))) }
            }

            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
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
    /// Names a worker process; unique among the workers of one coordinator. By convention `kind-host-pid-nonce`.
    WorkerName,
    "worker name",
    "1 to 128 letters, digits and characters of -_.:@+, and to begin with a letter or a digit",
    |name| name.len() <= 128 && is_plain(name, b"-_.:@+")
);

checked!(
    /// Name of a file in a folder that is known: no path.
    FileName,
    "file name",
    "1 to 128 letters, digits and characters of -_.+, and to begin with a letter or a digit",
    |name| name.len() <= 128 && is_plain(name, b"-_.+")
);

checked!(
    /// A SHA-256.
    Digest,
    "SHA-256",
    "64 hexadecimal digits, in lower case",
    |name| name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
);

/// Letters, digits and some others, of which none stands first.
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
        const VERIFY: TaskKind = TaskKind::of("verify");
        assert_eq!(TaskKind::new("verify"), Ok(VERIFY));
        assert_eq!(TaskKind::new("guide-2").map(|k| k.to_string()), Ok("guide-2".into()));
        for bad in ["", "Verify", "a b", "ü", &"x".repeat(65)] {
            assert!(TaskKind::new(bad).is_err(), "{bad}");
        }
        assert!(WorkerName::new("gen-host.example-12:3").is_ok());
        for bad in ["", "a b", "a\nb", "ü", "../a", "/a", "a/b", ".a", "-a", "a%", "a\\b", &"x".repeat(129)]
        {
            assert!(WorkerName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_could_lead_a_path_elsewhere_is_no_name() {
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
