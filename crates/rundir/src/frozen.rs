//! The configuration that a run keeps from its first moment on.

use crate::error::{Error, Result};
use crate::files;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use toml::{Table, Value};

/// The table at the end of `config.toml` that records what the configuration alone does not say.
const FROZEN: &str = "frozen";
/// Differences that a message names.
const NAMED_DIFFERENCES: usize = 8;

/// What a run is started with and must be resumed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenConfig {
    /// The whole effective configuration as TOML, comments welcome; the table `frozen` is reserved.
    pub text: String,
    /// Version of the program.
    pub version: String,
    /// SHA-256 of each data file that the run depends on, by a name that does not change when the file moves.
    pub data: BTreeMap<String, String>,
}

impl FrozenConfig {
    /// The text of `config.toml`.
    ///
    /// # Errors
    /// `text` is not TOML or has a table `frozen`; `path` is where it would be written.
    pub fn render(&self, path: &Path) -> Result<String> {
        let table = parse(path, &self.text)?;
        if table.contains_key(FROZEN) {
            let what = format!("the table '{FROZEN}' is reserved for what the run records itself");
            return Err(Error::Config { path: path.to_path_buf(), what });
        }
        let mut text = self.text.trim_end().to_owned();
        text.push_str(
            "\n\n# Recorded when the run began. A run is resumed with the same program and data only.\n",
        );
        text.push_str(&format!("[{FROZEN}]\nversion = {}\n", Value::from(self.version.as_str())));
        text.push_str(&format!("\n[{FROZEN}.data]\n"));
        for (name, checksum) in &self.data {
            text.push_str(&format!("{} = {}\n", Value::from(name.as_str()), Value::from(checksum.as_str())));
        }
        parse(path, &text)?;
        Ok(text)
    }

    /// Writes `config.toml`.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        files::write_file(path, self.render(path)?.as_bytes())
    }

    /// Compares with what stands in `config.toml`: keys and values count, comments and order do not.
    ///
    /// # Errors
    /// [`Error::ConfigDiffers`] names the keys.
    pub fn check(&self, path: &Path) -> Result<()> {
        let (frozen, given) = (read(path)?, parse(path, &self.render(path)?)?);
        let mut differences = Vec::new();
        compare("", &frozen, &given, &mut differences);
        if differences.is_empty() {
            return Ok(());
        }
        let more = differences.len().saturating_sub(NAMED_DIFFERENCES);
        differences.truncate(NAMED_DIFFERENCES);
        if more > 0 {
            differences.push(format!("and {more} more"));
        }
        Err(Error::ConfigDiffers { path: path.to_path_buf(), differences })
    }
}

/// Reads `config.toml`.
pub(crate) fn read(path: &Path) -> Result<Table> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    text.parse().map_err(|error: toml::de::Error| {
        Error::damaged(path, format!("it is not TOML: {error}"), "restore it from a copy")
    })
}

fn parse(path: &Path, text: &str) -> Result<Table> {
    text.parse().map_err(|error: toml::de::Error| Error::Config {
        path: path.to_path_buf(),
        what: format!("is not TOML: {error}"),
    })
}

fn compare(prefix: &str, frozen: &Table, given: &Table, out: &mut Vec<String>) {
    for (key, old) in frozen {
        let name = format!("{prefix}{key}");
        match (old, given.get(key)) {
            (Value::Table(old), Some(Value::Table(new))) => compare(&format!("{name}."), old, new, out),
            (old, Some(new)) if old == new => {}
            (old, Some(new)) => out.push(format!("'{name}' is {old} in the run and {new} now")),
            (_, None) => out.push(format!("'{name}' is in the run and not here")),
        }
    }
    for key in given.keys().filter(|key| !frozen.contains_key(*key)) {
        out.push(format!("'{prefix}{key}' is here and not in the run"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> FrozenConfig {
        let data = [("set \"mm\"".to_owned(), "ab".repeat(32))].into();
        FrozenConfig { text: text.into(), version: "0.1.0".into(), data }
    }

    #[test]
    fn the_same_configuration_passes_in_another_order_and_with_comments() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        config("k = 8\n[lm]\nlr = 1e-3\nname = 'a'\n").write(&path).unwrap();
        config("# again\nk = 8\n[lm]\nname = \"a\"\nlr = 0.001\n").check(&path).unwrap();
    }

    #[test]
    fn every_difference_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        config("k = 8\nold = 1\n[lm]\nlr = 1e-3\n").write(&path).unwrap();
        let mut other = config("k = 9\nnew = 1\n[lm]\nlr = 1e-3\n");
        other.version = "0.2.0".into();
        other.data.insert("extra".into(), "cd".into());
        let message = other.check(&path).unwrap_err().to_string();
        for part in [
            "'k' is 8 in the run and 9 now",
            "'old' is in the run",
            "'new' is here",
            "'frozen.version'",
            "'frozen.data.extra'",
        ] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert!(!message.contains("lm"), "{message}");
    }

    #[test]
    fn bad_and_reserved_configurations_are_refused() {
        let path = Path::new("config.toml");
        assert!(config("k = ").render(path).unwrap_err().to_string().contains("not TOML"));
        assert!(config("[frozen]\nx = 1").render(path).unwrap_err().to_string().contains("reserved"));
    }
}
