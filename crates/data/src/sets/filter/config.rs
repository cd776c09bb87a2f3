//! The configuration file of `sgs data filter`.

use crate::error::{Context, DataError, Result, bail};
use serde::{Deserialize, Serialize};
use sgs_keys::{KeyTable as _, at_least};
use sgs_run::Usage;
use sgs_run::config::endpoint::EndpointConfig;
use std::collections::HashSet;
use std::path::Path;

/// A data set and the stages of its filter.
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
    /// Rejects problems that a model proves too often, and those whose negation it proves.
    Rollouts(Rollouts),
    /// Keeps a random sample.
    Sample(Sample),
    /// Rejects problems that have no proof according to a model.
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
    /// Asks a model whether problems are solvable, and rejects unsolvable ones.
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
    /// The unique name of the stage, of its file and of its part of the report.
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
    /// Reads and validates a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if a key is unknown, missing or has an invalid value.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let told = |error: DataError| Usage(format!("in {}: {error:#}", path.display()));
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
            // The folder also contains files with these names.
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
    fn an_invalid_configuration_is_refused_with_its_key() {
        let good = "[[stage]]\nkind = \"rollouts\"\nname = \"a\"\nmodel = \"m\"\n";
        let Stage::Rollouts(stage) = read(good).unwrap().stage.remove(0) else { panic!("{good}") };
        assert_eq!((stage.k, stage.drop_above, stage.negation), (8, 0.5, false));
        let label = "[[stage]]\nkind = \"label\"\nname = \"b\"\n";
        for (text, part) in [
            (format!("{good}k = 0"), "`a.k` is 0; expected an integer from 1 to 1024"),
            (format!("{good}modle = 1"), "modle"),
            (good.replace("rollouts", "roll"), "roll"),
            (good.replace("\"m\"", "\"\""), "`a.model` is empty"),
            (format!("{good}prompt = \"x\""), "{code}"),
            (good.replace("\"a\"", "\"a/b\""), "stage 1: `name` is \"a/b\""),
            (good.repeat(2), "stage 2: the name \"a\" is taken"),
            (label.to_owned(), "`b.endpoint.url` is empty"),
            // Such a key would have no effect.
            (format!("{good}endpoint.urls = [\"http://h\"]"), "`a.endpoint.urls` applies only to runs"),
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
