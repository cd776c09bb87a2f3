//! Configuration files, read so that errors name the line of a key.

use crate::{KeySpec, KeyTable, did_you_mean, dotted, no_such_path};
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use toml::Table;
use toml::de::{DeTable, DeValue};

/// Maximum size of a configuration file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A TOML file with configuration keys.
#[derive(Clone, Debug)]
pub struct KeyFile {
    /// The keys and their values.
    pub table: Table,
    /// The content.
    pub text: String,
    name: String,
}

/// The error of a configuration file that cannot be used. The message names the file, the line if it is known, and the
/// key.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

impl KeyFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        read.map_err(|e| match e.kind() {
            ErrorKind::NotFound => FileError(no_such_path(path, Path::is_file)),
            _ => FileError(format!("cannot read the configuration {name}: {e}")),
        })?;
        if text.len() as u64 > MAX_BYTES {
            return Err(FileError(format!(
                "{name} is longer than {} KiB: not a configuration",
                MAX_BYTES >> 10
            )));
        }
        Self::parse(text, name)
    }

    /// Parses the content of a file; `name` denotes it in errors.
    pub fn parse(text: String, name: String) -> Result<Self, FileError> {
        match parse_table(text.clone()) {
            Ok(table) => Ok(Self { table, text, name }),
            Err(error) => Err(Self { table: Table::new(), text, name }.toml_error(&error)),
        }
    }

    /// Returns the file as a configuration. A key that is absent has its default; `command` lists all keys.
    pub fn decode<T: KeyTable + DeserializeOwned>(&self, command: &str) -> Result<T, FileError> {
        self.check(&T::keys(""), command)?;
        self.deserialize()
    }

    /// Returns the file as a type that checks its keys when it is deserialized.
    pub fn deserialize<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        toml::from_str(&self.text).map_err(|error| self.toml_error(&error))
    }

    /// Checks that every key of the file is one of `keys` and has an allowed value; `command` lists all keys.
    pub fn check(&self, keys: &[KeySpec], command: &str) -> Result<(), FileError> {
        self.check_table(keys, command, ["", ""], &self.table)
    }

    /// Checks a table of the file as if its keys were at the top of the file.
    pub fn check_section(&self, section: &str, keys: &[KeySpec], command: &str) -> Result<(), FileError> {
        let table = self.table.get(section).and_then(|value| value.as_table());
        table.map_or(Ok(()), |table| self.check_table(keys, command, ["", section], table))
    }

    /// Checks a table, given its name in declarations (`stage[sample]`) and its path in the file (`stage[2]`).
    fn check_table(
        &self,
        keys: &[KeySpec],
        command: &str,
        [table_name, table_path]: [&str; 2],
        table: &Table,
    ) -> Result<(), FileError> {
        let is_table =
            |key: &str| keys.iter().any(|k| k.key.strip_prefix(key).is_some_and(|k| k.starts_with('.')));
        for (name, value) in table {
            let (key, path) = (dotted(table_name, name), dotted(table_path, name));
            let variants: Vec<&str> = keys.iter().filter_map(|k| variant(&k.key, &key)).collect();
            if let Some(declared) = keys.iter().find(|k| k.key == key) {
                declared.fit(value.clone()).map_err(|error| self.error(&path, error))?;
            } else if is_table(&key) {
                let inner = value.as_table();
                let inner =
                    inner.ok_or_else(|| self.error(&path, format!("`{key}` must be a table, [{key}]")))?;
                self.check_table(keys, command, [&key, &path], inner)?;
            } else if !variants.is_empty() {
                let no_list = || self.error(&path, format!("`{key}` must be a list of tables, [[{key}]]"));
                for (at, element) in value.as_array().ok_or_else(no_list)?.iter().enumerate() {
                    let (path, element) = (format!("{path}[{at}]"), element.as_table().ok_or_else(no_list)?);
                    let kind = element.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default();
                    let kind = if variants.contains(&"") { "" } else { kind };
                    if !variants.contains(&kind) {
                        let mut kinds = variants;
                        kinds.dedup();
                        let told = format!("`kind` of [[{key}]] is {kind:?}; expected {}", kinds.join(", "));
                        return Err(self.error(&dotted(&path, "kind"), told));
                    }
                    self.check_table(keys, command, [&format!("{key}[{kind}]"), &path], element)?;
                }
            } else {
                return Err(self.error(&path, unknown_key(&key, keys, command)));
            }
        }
        Ok(())
    }

    /// Returns an error about a key, with the key's line. `path` is the key's name, in which a number in brackets counts the
    /// tables of a list: `stage[2].name`. If the key is absent, the line is that of its table.
    pub fn error(&self, path: &str, what: impl Display) -> FileError {
        self.error_at(self.position(path), what)
    }

    fn toml_error(&self, error: &toml::de::Error) -> FileError {
        let start = error.span().map(|span| span.start);
        // The parser's message about a missing value is about quotes.
        let is_empty = error.span().is_some_and(|span| span.is_empty());
        let before = start.filter(|_| is_empty).and_then(|start| self.text.get(..start));
        match before.and_then(key_without_value) {
            Some(key) => self.error_at(start, format!("a value is missing after `{key} =`")),
            None => self.error_at(start, error.message()),
        }
    }

    fn error_at(&self, position: Option<usize>, what: impl Display) -> FileError {
        let before = position.and_then(|position| self.text.as_bytes().get(..position));
        let line = before.map(|text| text.iter().filter(|&&byte| byte == b'\n').count() + 1);
        FileError(match line {
            Some(line) => format!("{}:{line}: {what}", self.name),
            None => format!("{}: {what}", self.name),
        })
    }

    /// Returns the offset of a key in the text, or of the innermost table on its path that the text contains.
    fn position(&self, path: &str) -> Option<usize> {
        let root = DeTable::parse(&self.text).ok()?;
        let (mut table, mut position) = (root.get_ref(), None);
        let mut rest = path;
        while !rest.is_empty() {
            let (part, after) = rest.split_once('.').unwrap_or((rest, ""));
            let (name, number) = part.split_once('[').unwrap_or((part, ""));
            // A key in quotes can contain dots.
            let (found, after) = match table.get_key_value(rest) {
                Some(found) => (Some(found), ""),
                None => (table.get_key_value(name), after),
            };
            let Some((key, value)) = found else { break };
            rest = after;
            let number: Option<usize> = number.trim_end_matches(']').parse().ok();
            let element = number.and_then(|number| value.get_ref().as_array()?.get(number));
            position = Some(element.map_or(key.span().start, |element| element.span().start));
            match element.unwrap_or(value).get_ref() {
                DeValue::Table(inner) => table = inner,
                _ => break,
            }
        }
        position
    }
}

/// Returns the key if the last line of a text is `KEY =`.
fn key_without_value(text: &str) -> Option<&str> {
    let key = text.rsplit('\n').next()?.trim_end().strip_suffix('=')?.trim();
    // Another `=` may be part of a text in quotes.
    (!key.contains('=')).then_some(key)
}

/// Returns the kind `K` if a declared key is in the list of tables `list`: its name is `list[K].…`.
fn variant<'a>(key: &'a str, list: &str) -> Option<&'a str> {
    key.strip_prefix(list)?.strip_prefix('[')?.split_once(']').map(|(kind, _)| kind)
}

/// Returns the message about a key that does not exist; `command` lists all keys.
pub fn unknown_key(key: &str, keys: &[KeySpec], command: &str) -> String {
    // The mistake may be in the name of a table.
    let tables = keys.iter().flat_map(|key| key.key.match_indices('.').map(|(end, _)| &key.key[..end]));
    let near = did_you_mean(key, keys.iter().map(|key| key.key.as_str()).chain(tables));
    format!("there is no key `{key}`{near} (`{command}` lists all)")
}

/// Parses a text. Integers that are too large for TOML become real numbers, so that the error about them is that of their key.
fn parse_table(mut text: String) -> Result<Table, toml::de::Error> {
    // Each of them needs another pass over the text.
    const MOST_INTEGERS: usize = 16;
    // An integer of 64 bits has at most 19 digits. Errors about shorter literals have other reasons.
    const FEWEST_DIGITS: usize = 19;
    for _ in 0..MOST_INTEGERS {
        let error: toml::de::Error = match text.parse() {
            Ok(table) => return Ok(table),
            Err(error) => error,
        };
        let literal = error.span().and_then(|span| Some((span.end, text.get(span)?)));
        let is_too_large = |text: &str| {
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            digits >= FEWEST_DIGITS
                && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-_".contains(&byte))
        };
        match literal {
            Some((end, literal)) if is_too_large(literal) => text.insert_str(end, ".0"),
            _ => return Err(error),
        }
    }
    text.parse()
}

#[cfg(test)]
mod tests;
