//! The configuration file of `sgs data filter`.

use serde::{Deserialize, Serialize};
use sgs_keys::{Allowed, FileError, KeyFile, KeySpec, KeyTable, at_least, dotted};
use sgs_run::config::endpoint::{EndpointConfig, RUN_KEYS};
use std::collections::HashSet;

sgs_keys::table! {
    /// A data set and the stages of its filter.
    #[derive(Clone, Debug, PartialEq)]
    pub struct FilterConfig {
        /// The problems to filter.
        pub problems: String = String::new(), in "d3k, core, or a file that sgs data import reads (required)",
        /// Seed of samples and draws.
        pub seed: u64 = 1, in 0..=i64::MAX as u64,
        /// The stages, in their order.
        pub stage: Vec<Stage>,
    }
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        pub name: String = String::new(), in "letters, digits and - (required, unique)",
        /// Folder of the model; with an endpoint, of its tokenizer.
        pub model: String = String::new(), in "a folder (required)",
        /// Attempts at each statement.
        pub k: u32 = 8, in 1..=1024,
        /// A problem is dropped if more than this share of the rollouts are proofs.
        pub drop_above: f64 = 0.5, in at_least(0.0).at_most(1.0),
        /// Whether to sample proofs of the negation too. A problem is dropped if its negation is proved once.
        pub negation: bool = false,
        /// The message that asks for a proof, with {code} for the header and the statement.
        pub prompt: String = String::new(), in "empty for that of DeepSeek-Prover-V2, or a text with {code}",
        /// Maximum length of prompt and completion together, in tokens.
        pub context: usize = 8192, in 64..=10_000_000,
        /// Number of sequences sampled at once by a local model.
        pub batch: usize = 256, in 1..=1_000_000,
        /// Memory for the buffers and the KV cache of a local model, in MiB.
        pub memory_mib: u64 = 1024, in 16..=1_000_000_000,
        /// The server of the model, if it is not local.
        pub endpoint: EndpointConfig,
    }
}

sgs_keys::table! {
    /// A random part of the problems.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Sample {
        /// Name of the stage.
        pub name: String = String::new(), in "letters, digits and - (required, unique)",
        /// Number of problems that are kept.
        pub count: usize = 5000, in 1..=1_000_000_000,
    }
}

sgs_keys::table! {
    /// Asks a model whether problems are solvable, and rejects unsolvable ones.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Label {
        /// Name of the stage and of its file.
        pub name: String = String::new(), in "letters, digits and - (required, unique)",
        /// Maximum length of an answer, in tokens.
        pub max_tokens: usize = 16_384, in 1..=10_000_000,
        /// Maximum number of questions about a problem until an answer can be parsed.
        pub tries: u32 = 4, in 1..=1000,
        /// The server, which answers chats.
        pub endpoint: EndpointConfig,
    }
}

impl KeyTable for Stage {
    fn keys(prefix: &str) -> Vec<KeySpec> {
        type Keys = fn(&str) -> Vec<KeySpec>;
        let kinds: [(&'static [&'static str], &str, Keys); 3] = [
            (
                &["rollouts"],
                "Rejects problems that a model proves too often, or whose negation it proves.",
                Rollouts::keys,
            ),
            (&["sample"], "Keeps a random sample of the problems.", Sample::keys),
            (&["label"], "Rejects problems that a model labels unsolvable.", Label::keys),
        ];
        let mut keys = Vec::new();
        for (kind, meaning, keys_of) in kinds {
            let prefix = prefix.replace("[]", &format!("[{}]", kind[0]));
            let (key, allowed) = (dotted(&prefix, "kind"), Allowed::Names(kind));
            keys.push(KeySpec { key, meaning: meaning.to_owned(), allowed, default: None });
            keys.extend(keys_of(&prefix));
        }
        keys.retain(|key| !RUN_KEYS.iter().any(|name| key.key.ends_with(&format!(".endpoint.{name}"))));
        keys
    }
}

impl Stage {
    /// Returns the unique name of the stage, of its file and of its part of the report.
    pub fn name(&self) -> &str {
        match self {
            Stage::Rollouts(Rollouts { name, .. })
            | Stage::Sample(Sample { name, .. })
            | Stage::Label(Label { name, .. }) => name,
        }
    }

    /// Returns the first key whose value cannot be used, with the reason.
    fn invalid_key(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Stage::Rollouts(stage) if stage.model.is_empty() => {
                Some(("model", "`model` is required: a folder with the model or its tokenizer"))
            }
            Stage::Rollouts(stage) if !stage.prompt.is_empty() && !stage.prompt.contains("{code}") => {
                Some(("prompt", "`prompt` lacks {code}, which stands for the header and the statement"))
            }
            Stage::Label(stage) if stage.endpoint.url.is_empty() => {
                Some(("endpoint.url", "`endpoint.url` is required: the address of a chat endpoint"))
            }
            _ => None,
        }
    }
}

impl FilterConfig {
    /// Returns the configuration in a file.
    pub fn of(file: &KeyFile) -> Result<Self, FileError> {
        let config: Self = file.decode("sgs data filter --explain")?;
        if config.problems.is_empty() {
            return Err(file.error("problems", "`problems` is required: d3k, core, or a file"));
        }
        let mut names = HashSet::new();
        for (at, stage) in config.stage.iter().enumerate() {
            let error = |key: &str, what: &str| file.error(&format!("stage[{at}].{key}"), what);
            let name = stage.name();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if name.is_empty() || !name.chars().all(is_plain) {
                return Err(error("name", &format!("`name` is {name:?}; expected letters, digits and -")));
            }
            // The folder also contains files with these names.
            if !names.insert(name.to_lowercase()) || ["kept", "fates"].contains(&name) {
                return Err(error("name", &format!("the name {name:?} is already in use")));
            }
            if let Some((key, why)) = stage.invalid_key() {
                return Err(error(key, why));
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stages: &str) -> Result<FilterConfig, String> {
        let text = format!("problems = \"core\"\nseed = 1\n{stages}");
        let file = KeyFile::parse(text, "filter.toml".to_owned()).map_err(|e| e.to_string())?;
        FilterConfig::of(&file).map_err(|e| e.to_string())
    }

    #[test]
    fn an_invalid_configuration_is_refused_with_its_line_and_key() {
        let good = "[[stage]]\nkind = \"rollouts\"\nname = \"a\"\nmodel = \"m\"\n";
        let Stage::Rollouts(stage) = read(good).unwrap().stage.remove(0) else { panic!("{good}") };
        assert_eq!((stage.k, stage.drop_above, stage.negation), (8, 0.5, false));
        let label = "[[stage]]\nkind = \"label\"\nname = \"b\"\n";
        for (text, told) in [
            (format!("{good}k = 0"), "7: `stage[rollouts].k` is 0; expected an integer from 1 to 1024"),
            (
                format!("{good}modle = 1"),
                "7: there is no key `stage[rollouts].modle`; did you mean `stage[rollouts].model`?",
            ),
            (
                good.replace("rollouts", "roll"),
                "4: `kind` of [[stage]] is \"roll\"; expected rollouts, sample, label",
            ),
            (good.replace("kind", "kin"), "3: `kind` of [[stage]] is \"\"; expected rollouts, sample, label"),
            (good.replace("\"m\"", "\"\""), "6: `model` is required"),
            (format!("{good}prompt = \"x\""), "7: `prompt` lacks {code}"),
            (good.replace("\"a\"", "\"a/b\""), "5: `name` is \"a/b\""),
            (good.repeat(2), "9: the name \"a\" is already in use"),
            (label.to_owned(), "3: `endpoint.url` is required"),
            // Such a key would have no effect.
            (
                format!("{good}endpoint.urls = [\"http://h\"]"),
                "7: there is no key `stage[rollouts].endpoint.urls`",
            ),
            (
                format!("{label}endpoint = {{ url = \"http://h\", roles = [\"guide\"] }}"),
                "6: there is no key `stage[label].endpoint.roles`",
            ),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.starts_with(&format!("filter.toml:{told}")), "{told}: {error}");
        }
        assert!(read("problem = \"core\"").unwrap_err().contains("did you mean `problems`?"));
    }
}
