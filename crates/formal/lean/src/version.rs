//! Lean's own word on its version, and whether it is the one that is wanted.

use crate::check::{Fault, Launch, Limits, Process};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What `lean --version` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The number, as `4.15.0` or `4.28.0-pre`.
    pub number: String,
    /// The whole line, with target and commit.
    pub text: String,
}

/// Why the version is not known, or not the right one.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// Lean did not answer.
    #[error("`{program} --version` gave no answer: {fault}")]
    Silent {
        program: String,
        /// What became of it.
        fault: Fault,
    },
    /// The answer holds no version.
    #[error("`{program} --version` says `{said}`, which names no version of Lean")]
    Unknown { program: String, said: String },
    /// Another version than wanted.
    #[error(
        "{what} wants Lean {wanted}, and the checker runs {}: a proof for one version need not be one for another; \
         get the right one (`sgs lean setup --version v{wanted}`)",
        found.text
    )]
    Mismatch { what: String, wanted: String, found: Version },
}

impl Version {
    /// Reads the answer: `Lean (version 4.15.0, x86_64-unknown-linux-gnu, commit 11651562caae, Release)`.
    pub fn parse(answer: &str) -> Option<Self> {
        let line = answer.lines().map(str::trim).find(|l| l.starts_with("Lean (version "))?;
        let number = line.strip_prefix("Lean (version ")?.split([',', ')']).next()?.trim();
        let starts = number.starts_with(|c: char| c.is_ascii_digit());
        starts.then(|| Self { number: number.to_owned(), text: line.to_owned() })
    }

    /// Whether this is the version that `wanted` names: a number, with or without `v`, or a toolchain's name such as
    /// `leanprover/lean4:v4.15.0`.
    pub fn is(&self, wanted: &str) -> bool {
        self.number == number(wanted)
    }

    /// Refuses another version.
    ///
    /// # Errors
    /// It is another one; `what` says who wants it.
    pub fn must_be(&self, what: &str, wanted: &str) -> Result<(), VersionError> {
        if self.is(wanted) {
            return Ok(());
        }
        Err(VersionError::Mismatch {
            what: what.to_owned(),
            wanted: number(wanted).to_owned(),
            found: self.clone(),
        })
    }
}

/// The number in a version's or a toolchain's name.
pub fn number(name: &str) -> &str {
    let name = name.trim();
    let name = name.rsplit_once(':').map_or(name, |(_, version)| version);
    name.strip_prefix('v').unwrap_or(name)
}

/// Asks a `lean` for its version. `launch` is that of the checker's own `lean`, sandbox included, without arguments
/// of a check.
///
/// # Errors
/// It does not answer in the time of a start, or with something else.
pub fn ask_version(launch: &Launch, limits: &Limits) -> Result<Version, VersionError> {
    let program = launch.program.display().to_string();
    let silent = |fault| VersionError::Silent { program: program.clone(), fault };
    let mut launch = launch.clone();
    launch.args.push("--version".into());
    let mut process = Process::start(&launch).map_err(silent)?;
    process.close_stdin();
    let until = Instant::now() + limits.start();
    let output = process
        .exchange(&[], limits, &mut || (until, limits.start()), &mut |out, ended| ended.then_some(out.len()))
        .map_err(silent)?;
    let said = String::from_utf8_lossy(&output).trim().to_owned();
    match Version::parse(&said) {
        Some(version) => Ok(version),
        None if said.is_empty() => Err(silent(process.fault_of_end())),
        None => Err(VersionError::Unknown { program, said: said.chars().take(200).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let native = "Lean (version 4.15.0, x86_64-unknown-linux-gnu, commit 11651562caae, Release)\n";
        let version = Version::parse(native).unwrap();
        assert_eq!((version.number.as_str(), version.text.as_str()), ("4.15.0", native.trim()));
        let wasm = "noise\nLean (version 4.28.0-pre, wasm32-unknown-emscripten, commit 38f3c0c, Release)";
        assert_eq!(Version::parse(wasm).unwrap().number, "4.28.0-pre");
        assert_eq!(Version::parse("Lean (version )"), None);
        assert_eq!(Version::parse("lean: command not found"), None);
    }

    #[test]
    fn another_version_is_refused_with_both_names() {
        let version = Version::parse("Lean (version 4.15.0, x, commit y, Release)").unwrap();
        for wanted in ["4.15.0", "v4.15.0", "leanprover/lean4:v4.15.0", " v4.15.0\n"] {
            assert!(version.is(wanted), "{wanted}");
        }
        for wanted in ["v4.15.1", "4.15", "v4.15.0-rc1", ""] {
            assert!(!version.is(wanted), "{wanted}");
        }
        let error = version.must_be("the data set D_3k", "v4.9.0").unwrap_err().to_string();
        assert!(error.contains("D_3k wants Lean 4.9.0") && error.contains("4.15.0, x, commit y"), "{error}");
    }
}
