//! What a filtering is: the file that `sgs data filter` reads.

use crate::Usage;
use crate::endpoint::EndpointConfig;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sgs_keys::{Table as _, at_least};
use std::collections::HashSet;
use std::path::Path;

/// A data set and the stages that it goes through.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// The problems: `d3k`, `core`, or a file of any layout that `sgs data import` knows.
    pub problems: String,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// The stages, in their order.
    pub stage: Vec<Stage>,
}

/// One stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Stage {
    /// Drops what a model proves too often, and what it proves false.
    Rollouts(Rollouts),
    /// Keeps a random part.
    Sample(Sample),
    /// Drops what a model says has no proof.
    Label(Label),
}

sgs_keys::table! {
    /// Attempts of a model at every problem, and at its negation if that is wanted.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Rollouts {
        /// Name of the stage and of its file.
        pub name: String = String::new(), in "letters, digits and -",
        /// Folder of the model; of one that is served, that of its tokenizer.
        pub model: String = String::new(), in "a folder",
        /// Attempts at each statement.
        pub k: u32 = 8, in 1..=1024,
        /// A problem goes of which more than this share of the attempts are proofs.
        pub drop_above: f64 = 0.5, in at_least(0.0).at_most(1.0),
        /// Attempt the negation too; a problem goes of which it is proved once.
        pub negation: bool = false,
        /// The message in which the model's authors ask for a proof, with {code} for header and statement.
        pub prompt: String = String::new(), in "empty for that of DeepSeek-Prover-V2, or a text with {code}",
        /// Longest prompt and completion together, tokens.
        pub context: usize = 8192, in 64..=10_000_000,
        /// Sequences sampled at once here.
        pub batch: usize = 256, in 1..=1_000_000,
        /// Memory for buffers and key/value cache here, MiB.
        pub memory_mib: u64 = 1024, in 16..=1_000_000_000,
        /// The server that plays the model, if one does.
        pub endpoint: EndpointConfig,
    }
}

sgs_keys::table! {
    /// A random part of the problems.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Sample {
        /// Name of the stage.
        pub name: String = String::new(), in "letters, digits and -",
        /// Problems that are kept.
        pub count: usize = 5000, in 1..=1_000_000_000,
    }
}

sgs_keys::table! {
    /// What a model says: solvable, unknown, unsolvable.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Label {
        /// Name of the stage and of its file.
        pub name: String = String::new(), in "letters, digits and -",
        /// Longest answer, tokens.
        pub max_tokens: usize = 16_384, in 1..=10_000_000,
        /// How often a problem is asked about until the answer can be read.
        pub tries: u32 = 4, in 1..=1000,
        /// The server, which answers chats.
        pub endpoint: EndpointConfig,
    }
}

impl Stage {
    /// What its folder and its part of the report are called; no two stages of a filter share it.
    pub fn name(&self) -> &str {
        match self {
            Stage::Rollouts(Rollouts { name, .. })
            | Stage::Sample(Sample { name, .. })
            | Stage::Label(Label { name, .. }) => name,
        }
    }

    fn check(&self) -> Result<()> {
        match self {
            Stage::Rollouts(stage) => {
                stage.check(&stage.name)?;
                stage.endpoint.check_alone(&format!("{}.endpoint", stage.name))?;
                if stage.model.is_empty() {
                    bail!(
                        "`{}.model` is empty; expected a folder with the model or its tokenizer",
                        stage.name
                    );
                }
                if !stage.prompt.is_empty() && !stage.prompt.contains("{code}") {
                    bail!("`{}.prompt` holds no {{code}}, which stands for header and statement", stage.name);
                }
            }
            Stage::Sample(stage) => stage.check(&stage.name)?,
            Stage::Label(stage) => {
                stage.check(&stage.name)?;
                stage.endpoint.check_alone(&format!("{}.endpoint", stage.name))?;
                if stage.endpoint.url.is_empty() {
                    bail!("`{}.endpoint.url` is empty; expected the address of a chat endpoint", stage.name);
                }
            }
        }
        Ok(())
    }
}

impl FilterConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, or a key is unknown, missing or has a wrong value.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let told =
            |error: anyhow::Error| anyhow::Error::new(Usage(format!("in {}: {error:#}", path.display())));
        let config: Self = toml::from_str(&text).map_err(|error| told(error.into()))?;
        config.check().map_err(told)?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        let mut names = HashSet::new();
        for (number, stage) in self.stage.iter().enumerate() {
            let name = stage.name();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if name.is_empty() || !name.chars().all(is_plain) {
                bail!("stage {}: `name` is {name:?}; expected letters, digits and -", number + 1);
            }
            // Beside the stages' own files stand these.
            if !names.insert(name.to_lowercase()) || ["kept", "fates"].contains(&name) {
                bail!("stage {}: the name {name:?} is taken", number + 1);
            }
            stage.check()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(stage: &str) -> Result<FilterConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("filter.toml");
        std::fs::write(&path, format!("problems = \"core\"\nseed = 1\n{stage}")).unwrap();
        FilterConfig::read(&path).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let good = "[[stage]]\nkind = \"rollouts\"\nname = \"a\"\nmodel = \"m\"\n";
        let Stage::Rollouts(stage) = read(good).unwrap().stage.remove(0) else { panic!("{good}") };
        assert_eq!((stage.k, stage.drop_above, stage.negation), (8, 0.5, false));
        let label = "[[stage]]\nkind = \"label\"\nname = \"b\"\n";
        for (text, part) in [
            (format!("{good}k = 0"), "`a.k` is 0; expected 1 to 1024"),
            (format!("{good}modle = 1"), "modle"),
            (good.replace("rollouts", "roll"), "roll"),
            (good.replace("\"m\"", "\"\""), "`a.model` is empty"),
            (format!("{good}prompt = \"x\""), "{code}"),
            (good.replace("\"a\"", "\"a/b\""), "stage 1: `name` is \"a/b\""),
            (good.repeat(2), "stage 2: the name \"a\" is taken"),
            (label.to_owned(), "`b.endpoint.url` is empty"),
            // It would be tried here, with nobody asked.
            (format!("{good}endpoint.urls = [\"http://h\"]"), "`a.endpoint.urls` is a key of runs"),
            (
                format!("{label}endpoint = {{ url = \"http://h\", roles = [\"guide\"] }}"),
                "`b.endpoint.roles`",
            ),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(part) && error.contains("filter.toml"), "{part}: {error}");
        }
    }
}
