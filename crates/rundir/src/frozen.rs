//! The frozen configuration of a run.

use crate::directories::{CHECKSUMS, listed_checksums};
use crate::error::{Error, Result};
use crate::files::{self, parent_of};
use sgs_base::digest::checksum_of;
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};

/// Name of the table at the end of `config.toml` that records the program's version, the data and later changes.
const FROZEN: &str = "frozen";
/// Name of the list in that table that records changes. It is ignored when configurations are compared.
const HISTORY: &str = "history";
/// Name of the key in that table that says whether the run has a `fleet.toml`; absent in runs without one. It is ignored
/// when configurations are compared.
const FLEET: &str = "fleet";
/// Maximum number of differences in a message.
const NAMED_DIFFERENCES: usize = 8;

/// The configuration that a run is started with and must be resumed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenConfig {
    /// The whole effective configuration as TOML, which may contain comments. The table `frozen` is reserved.
    pub text: String,
    /// Version of the program.
    pub version: String,
    /// SHA-256 of each data file that the run depends on, by a name that is independent of the file's location.
    pub data: BTreeMap<String, String>,
}

impl FrozenConfig {
    /// Returns the text of `config.toml`. `path` is its location, for error messages.
    ///
    /// # Errors
    /// Returns an error if `text` is not valid TOML or has a table `frozen`.
    pub fn render(&self, path: &Path) -> Result<String> {
        let table = parse(path, &self.text)?;
        if table.contains_key(FROZEN) {
            let what = format!("the table '{FROZEN}' is reserved for what the program records");
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

    /// Writes the list with the checksum of `config.toml`, then `config.toml`. The checksum reveals later edits.
    pub(crate) fn write(&self, path: &Path, has_fleet: bool) -> Result<()> {
        let mut text = self.render(path)?;
        if has_fleet {
            text = with_fleet(&text, true).ok_or_else(|| no_table(path))?;
        }
        write_sums(path, &[text.as_bytes()])?;
        files::write_file(path, text.as_bytes())
    }

    /// Compares keys and values with `config.toml`. Comments and order are ignored.
    ///
    /// # Errors
    /// Returns [`Error::ConfigDiffers`] with the keys that differ.
    pub fn check(&self, path: &Path) -> Result<()> {
        let (mut frozen, given) = (read(path)?, parse(path, &self.render(path)?)?);
        if let Some(Value::Table(recorded)) = frozen.get_mut(FROZEN) {
            recorded.remove(HISTORY);
            recorded.remove(FLEET);
        }
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

/// Changes values of keys (`a.b` is the key `b` of the table `a`) and records the changes, which were made after `rounds`
/// rounds. `config.toml` keeps its order and its comments.
pub(crate) fn change(path: &Path, changes: &[(&str, Value)], rounds: u32, unix_time: f64) -> Result<()> {
    let (table, mut text) = (read(path)?, files::read_to_string(path)?);
    for (key, to) in changes {
        let refused =
            |what: &str| Error::Config { path: path.to_path_buf(), what: format!("'{key}' {what}") };
        let from = value_of(&table, key).ok_or_else(|| refused("is not one of its keys"))?;
        text = with_value(&text, key, to)
            .ok_or_else(|| refused("is not on a separate line and cannot be changed"))?;
        text.push_str(&format!(
            "\n[[{FROZEN}.{HISTORY}]]\nkey = {}\nfrom = {from}\nto = {to}\nrounds = {rounds}\nunix_time = {unix_time:?}\n",
            Value::from(*key)
        ));
        if value_of(&parse(path, &text)?, key) != Some(to) {
            return Err(refused("cannot be changed"));
        }
    }
    let before = files::read_to_string(path)?;
    replace(path, &before, &text)
}

/// Replaces the text of `config.toml`. The list of checksums names both texts until the new one is written, so that it is
/// valid at every moment.
fn replace(path: &Path, before: &str, after: &str) -> Result<()> {
    write_sums(path, &[before.as_bytes(), after.as_bytes()])?;
    files::write_file(path, after.as_bytes())?;
    write_sums(path, &[after.as_bytes()])
}

/// Returns whether the run has a `fleet.toml`, as far as `config.toml` records it.
pub(crate) fn has_fleet(path: &Path) -> Result<bool> {
    let table = read(path)?;
    Ok(value_of(&table, &format!("{FROZEN}.{FLEET}")).and_then(Value::as_bool).unwrap_or_default())
}

/// Records whether the run has a `fleet.toml`, so that the loss of the file is noticed.
pub(crate) fn record_fleet(path: &Path, has_fleet: bool) -> Result<()> {
    if self::has_fleet(path)? == has_fleet {
        return Ok(());
    }
    let text = files::read_to_string(path)?;
    replace(path, &text, &with_fleet(&text, has_fleet).ok_or_else(|| no_table(path))?)
}

/// Returns the text with another value of this key, or `None` if it has no table `frozen`.
fn with_fleet(text: &str, has_fleet: bool) -> Option<String> {
    let head = format!("\n[{FROZEN}]\n");
    with_value(text, &format!("{FROZEN}.{FLEET}"), &Value::from(has_fleet)).or_else(|| {
        let (before, after) = text.rsplit_once(&head)?;
        Some(format!("{before}{head}{FLEET} = {has_fleet}\n{after}"))
    })
}

fn no_table(path: &Path) -> Error {
    Error::Config { path: path.to_path_buf(), what: format!("has no line `[{FROZEN}]`") }
}

fn value_of<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        None => table.get(key),
        Some((table_name, rest)) => value_of(table.get(table_name)?.as_table()?, rest),
    }
}

/// Returns the text with another value for a key that is on separate lines.
fn with_value(text: &str, key: &str, to: &Value) -> Option<String> {
    let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
    let head = format!("[{table}]\n");
    let line = format!("\n{head}");
    // The table `frozen` is the last one; a text before it can contain the same line.
    let found = if table == FROZEN { text.rfind(&line) } else { text.find(&line) };
    let begin = if table.is_empty() { 0 } else { found? + line.len() };
    // No continuation line of a list begins with an opening bracket.
    let rest = &text[begin..];
    let end =
        begin + if rest.starts_with('[') { 0 } else { rest.find("\n[").map_or(rest.len(), |at| at + 1) };
    let is_key = |line: &&str| line.split_once('=').is_some_and(|(found, _)| found.trim() == name);
    let lines = text[begin..end].split_inclusive('\n');
    let at = begin + lines.clone().take_while(|line| !is_key(line)).map(str::len).sum::<usize>();
    // The value ends with the first line that makes it valid TOML.
    let mut ends = text[at..end].split_inclusive('\n').scan(at, |to, line| {
        *to += line.len();
        Some(*to)
    });
    let until =
        ends.find(|until| text[at..*until].parse::<Table>().is_ok_and(|read| read.contains_key(name)))?;
    let newline = if text[at..until].ends_with('\n') { "\n" } else { "" };
    Some(format!("{}{name} = {to}{newline}{}", &text[..at], &text[until..]))
}

/// Writes the list with the checksum of each text that `config.toml` may contain.
fn write_sums(path: &Path, texts: &[&[u8]]) -> Result<()> {
    let line = |text: &&[u8]| format!("{}  {}\n", checksum_of(text), name_of(path));
    let list: String = texts.iter().map(line).collect();
    files::write_file(&path.with_file_name(CHECKSUMS), list.as_bytes())
}

#[allow(clippy::expect_used, reason = "the path always ends in config.toml")]
fn name_of(path: &Path) -> String {
    path.file_name().expect("invariant: the configuration is a file").to_string_lossy().into_owned()
}

/// Adds the checksum of `config.toml` to a run of an older program that has none.
pub(crate) fn note_sum(path: &Path) -> Result<()> {
    let list = path.with_file_name(CHECKSUMS);
    if list.exists() {
        return Ok(());
    }
    tracing::warn!("{} is missing: edits of config.toml cannot be detected", list.display());
    write_sums(path, &[&files::read(path)?])
}

/// Checks `config.toml` against its checksum.
pub(crate) fn check(path: &Path) -> Result<()> {
    let name = name_of(path);
    let mut listed = listed_checksums(parent_of(path))?;
    listed.retain(|(listed, _)| *listed == name);
    let found = checksum_of(&files::read(path)?);
    if listed.iter().any(|(_, expected)| *expected == found) {
        return Ok(());
    }
    let what = match listed.first() {
        Some((_, expected)) => {
            format!("it has SHA-256 {found}, not {expected} as {CHECKSUMS} says")
        }
        None => format!("{CHECKSUMS} does not name it: the list has lost a line"),
    };
    let advice = "the configuration of a run is fixed: undo the change or restore the file from a copy; `sgs resume` \
                  changes its length (`--rounds`, `--minutes`) and the addresses of its servers (`--set`); for other \
                  changes, start a new run";
    Err(Error::damaged(path, what, advice))
}

/// Parses `config.toml`.
pub(crate) fn read(path: &Path) -> Result<Table> {
    let text = files::read_to_string(path)?;
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let (line, message) = (1 + before.matches('\n').count(), error.message());
        Error::damaged(path, format!("line {line} is not TOML: {message}"), "restore it from a copy")
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
            (_, None) => out.push(format!("'{name}' is set in the run but not now")),
        }
    }
    for key in given.keys().filter(|key| !frozen.contains_key(*key)) {
        out.push(format!("'{prefix}{key}' is set now but not in the run"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn config(text: &str) -> FrozenConfig {
        let data = [("set \"mm\"".to_owned(), "ab".repeat(32))].into();
        FrozenConfig { text: text.into(), version: "0.1.0".into(), data }
    }

    #[test]
    fn the_same_configuration_passes_in_another_order_and_with_comments() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        config("k = 8\n[lm]\nlr = 1e-3\nname = 'a'\n").write(&path, false).unwrap();
        config("# again\nk = 8\n[lm]\nname = \"a\"\nlr = 0.001\n").check(&path).unwrap();
    }

    #[test]
    fn a_configuration_that_is_not_toml_is_reported_on_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, "k = 8\nseed = = 1\n").unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("line 2 is not TOML") && !message.contains('\n'), "{message}");
    }

    #[test]
    fn every_difference_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        config("k = 8\nold = 1\n[lm]\nlr = 1e-3\n").write(&path, false).unwrap();
        let mut other = config("k = 9\nnew = 1\n[lm]\nlr = 1e-3\n");
        other.version = "0.2.0".into();
        other.data.insert("extra".into(), "cd".into());
        let message = other.check(&path).unwrap_err().to_string();
        for part in [
            "'k' is 8 in the run and 9 now",
            "'old' is set in the run but not now",
            "'new' is set now but not in the run",
            "'frozen.version'",
            "'frozen.data.extra'",
        ] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert!(!message.contains("lm"), "{message}");
    }

    #[test]
    fn a_change_is_recorded_and_is_not_a_difference() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        config("# mine\nk = 8\nrounds = 40\n[lm]\nrounds = 1\n").write(&path, false).unwrap();
        change(&path, &[("rounds", Value::from(80))], 40, 1.5).unwrap();
        change(&path, &[("rounds", Value::from(90)), ("k", Value::from(9))], 80, 2.0).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# mine\nk = 9\nrounds = 90\n[lm]\nrounds = 1\n"), "{text}");
        let history = read(&path).unwrap()[FROZEN][HISTORY].as_array().unwrap().clone();
        let changes: Vec<String> =
            history.iter().map(|h| format!("{} {} {}", h["key"], h["from"], h["to"])).collect();
        assert_eq!(changes, ["\"rounds\" 40 80", "\"rounds\" 80 90", "\"k\" 8 9"]);
        config("k = 9\nrounds = 90\n[lm]\nrounds = 1\n").check(&path).unwrap();
        // Lists in tables, on one line or several.
        config("k = 9\n[a]\nurls = []\n[a.b]\nurls = [\n    \"u\",\n    \"[v]\",\n]\nz = 1\n")
            .write(&path, false)
            .unwrap();
        let list = |url: &str| Value::Array(vec![url.into()]);
        change(&path, &[("a.b.urls", list("w")), ("a.urls", list("=")), ("a.b.z", 2.into())], 3, 1.5)
            .unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("k = 9\n[a]\nurls = [\"=\"]\n[a.b]\nurls = [\"w\"]\nz = 2\n"), "{text}");
        let before = fs::read(&path).unwrap();
        assert!(change(&path, &[("a.nix", Value::from(1))], 90, 3.0).is_err());
        assert!(change(&path, &[("nix", Value::from(1))], 90, 3.0).is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn invalid_configurations_and_reserved_keys_are_refused() {
        let path = Path::new("config.toml");
        assert!(config("k = ").render(path).unwrap_err().to_string().contains("not TOML"));
        assert!(config("[frozen]\nx = 1").render(path).unwrap_err().to_string().contains("reserved"));
    }
}
