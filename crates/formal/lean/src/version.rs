//! Lean's version, as Lean reports it, and its comparison with the required version.

use crate::limits::Limits;
use sgs_formal::process::{Launch, Process, ProcessFault};
use std::time::Instant;

/// The output of `lean --version`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The version number, for example `4.15.0` or `4.28.0-pre`.
    pub number: String,
    /// The complete line, with target and commit.
    pub text: String,
}

/// The version of Lean is unknown, or not the required one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VersionError(String);

impl Version {
    /// Parses a line such as `Lean (version 4.15.0, x86_64-unknown-linux-gnu, commit 11651562caae, Release)`.
    pub fn parse(answer: &str) -> Option<Self> {
        let line = answer.lines().map(str::trim).find(|l| l.starts_with("Lean (version "))?;
        let number = line.strip_prefix("Lean (version ")?.split([',', ')']).next()?.trim();
        let starts = number.starts_with(|c: char| c.is_ascii_digit());
        starts.then(|| Self { number: number.to_owned(), text: line.to_owned() })
    }

    /// Returns whether this is the version `wanted`: a number with or without `v`, or the name of a toolchain such as
    /// `leanprover/lean4:v4.15.0`.
    pub fn matches(&self, wanted: &str) -> bool {
        self.number == number(wanted)
    }

    /// Checks that this is the version `wanted`. `what` names the source of the requirement.
    pub fn require(&self, what: &str, wanted: &str) -> Result<(), VersionError> {
        if self.matches(wanted) {
            return Ok(());
        }
        Err(VersionError(format!(
            "{what} requires Lean {0}, but the checker runs {1}, and a proof may hold in one version only; \
             install the right one with `sgs lean setup --version v{0}`",
            number(wanted),
            self.text
        )))
    }
}

/// Returns the version number in the name of a version or a toolchain.
pub fn number(name: &str) -> &str {
    let name = name.trim();
    let name = name.rsplit_once(':').map_or(name, |(_, version)| version);
    name.strip_prefix('v').unwrap_or(name)
}

/// Runs `lean --version`. `launch` starts the checker's `lean`, in its sandbox and without arguments.
pub fn ask_version(launch: &Launch, limits: &Limits) -> Result<Version, VersionError> {
    let program = launch.program.display().to_string();
    let silent = |fault: ProcessFault| VersionError(format!("`{program} --version` gave no answer: {fault}"));
    let mut launch = launch.clone();
    launch.args.push("--version".into());
    let mut process = Process::start(&launch).map_err(silent)?;
    process.close_stdin();
    let until = Instant::now() + limits.start();
    let output = process
        .exchange(&[], limits.quota(), &mut || (until, limits.start()), &mut |out, ended| {
            ended.then_some(out.len())
        })
        .map_err(silent)?;
    let output = String::from_utf8_lossy(&output).trim().to_owned();
    match Version::parse(&output) {
        Some(version) => Ok(version),
        None if output.is_empty() => Err(silent(process.fault_of_end())),
        None => {
            let found: String = output.chars().take(200).collect();
            Err(VersionError(format!(
                "`{program} --version` printed `{found}`, which is not a version of Lean"
            )))
        }
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
            assert!(version.matches(wanted), "{wanted}");
        }
        for wanted in ["v4.15.1", "4.15", "v4.15.0-rc1", ""] {
            assert!(!version.matches(wanted), "{wanted}");
        }
        let error = version.require("the data set D_3k", "v4.9.0").unwrap_err().to_string();
        assert!(
            error.contains("D_3k requires Lean 4.9.0") && error.contains("4.15.0, x, commit y"),
            "{error}"
        );
    }
}
