//! What a library crate shows is explained where it stands: its modules, and the items and methods in them. Fields,
//! variants and what is private are free: a good name says enough there.
#![allow(clippy::unwrap_used)] // tests say so by panicking

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What is looked for in a file.
enum Shown {
    /// All that is public in it: the file of a public module.
    All,
    /// What the crate's root exports of a private module.
    Named(BTreeSet<String>),
}

/// Files of a crate's public surface that lack words, each as `file:line: what`.
fn unexplained(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    look(root, &Shown::All, &mut found);
    found
}

fn look(file: &Path, shown: &Shown, found: &mut Vec<String>) {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let lines: Vec<&str> = text.lines().take_while(|line| *line != "mod tests {").collect();
    if !text.starts_with("//!") {
        found.push(format!("{}:1: the module", file.display()));
    }
    let types = public_types(&lines);
    let is_shown = |name: &str| match shown {
        Shown::All => types.contains(name) || !declares(&lines, name),
        Shown::Named(names) => names.contains(name),
    };
    // Whether methods of the block that has begun are shown, and how their lines begin.
    let mut methods: Option<&str> = None;
    for (i, line) in lines.iter().enumerate() {
        if line.starts_with('}') {
            methods = None;
        } else if let Some(of) = line.strip_prefix("impl") {
            let is_inherent = !of.contains(" for ");
            methods = (is_inherent && type_of(of).is_some_and(is_shown)).then_some("    pub ");
        } else if let Some(name) = line.strip_prefix("pub trait ").and_then(first_word) {
            methods = is_shown(name).then_some("    ");
        }
        let item = match (line.strip_prefix("pub "), shown) {
            (Some(rest), Shown::All) => item(rest),
            (Some(rest), Shown::Named(names)) => item(rest).filter(|name| names.contains(*name)),
            (None, _) => methods.and_then(|start| line.strip_prefix(start)).and_then(function),
        };
        if let Some(name) = item.filter(|_| !is_explained(&lines[..i])) {
            found.push(format!("{}:{}: {name}", file.display(), i + 1));
        }
        if let (Shown::All, Some(name)) =
            (shown, line.strip_prefix("pub mod ").and_then(|m| m.strip_suffix(';')))
        {
            look(&module_file(file, name), &Shown::All, found);
        }
    }
    if matches!(shown, Shown::All) {
        for (module, names) in exports(&lines.join("\n")) {
            if lines.contains(&format!("mod {module};").as_str()) {
                look(&module_file(file, &module), &Shown::Named(names), found);
            }
        }
    }
}

/// The file of a module that another file declares.
fn module_file(parent: &Path, name: &str) -> PathBuf {
    let stem = parent.file_stem().unwrap().to_str().unwrap();
    let folder = parent.parent().unwrap();
    let folder = if matches!(stem, "lib" | "mod") { folder.to_owned() } else { folder.join(stem) };
    let file = folder.join(format!("{name}.rs"));
    if file.exists() { file } else { folder.join(name).join("mod.rs") }
}

/// Modules of this crate and what is exported of each: `pub use module::{A, deeper::B};`, one level deep.
fn exports(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let uses = text.split("\npub use ").skip(1).filter_map(|rest| rest.split_once(';'));
    let read = |(path, _): (&str, _)| {
        let (module, names) = path.split_once("::")?;
        let names = names.trim_matches(['{', '}', ' ', '\n']).split(',').map(str::trim);
        Some((module.to_owned(), names.filter_map(|n| Some(n.rsplit("::").next()?.to_owned())).collect()))
    };
    uses.filter_map(read).collect()
}

fn first_word(text: &str) -> Option<&str> {
    let name = text.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then_some(name)
}

/// The name of what `pub ...` declares, if it is to be explained here: a module is in its own file, an export where it
/// is declared.
fn item(rest: &str) -> Option<&str> {
    let kinds = ["struct ", "enum ", "trait ", "union ", "type ", "static "];
    let named = kinds.iter().find_map(|kind| rest.strip_prefix(kind)).and_then(first_word);
    named.or_else(|| function(rest)).or_else(|| rest.strip_prefix("const ").and_then(first_word))
}

/// The name of a function, if the line declares one.
fn function(rest: &str) -> Option<&str> {
    let mut rest = rest;
    for before in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(before).unwrap_or(rest);
    }
    rest.strip_prefix("fn ").and_then(first_word)
}

/// The type that the rest of a line `impl<...> Type<...> {` is about.
fn type_of(rest: &str) -> Option<&str> {
    let mut depth = 0;
    let bare = rest.find(|c: char| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0 && c == ' '
    })?;
    first_word(rest[bare..].trim_start())
}

/// Types that a file declares for everybody.
fn public_types<'t>(lines: &[&'t str]) -> BTreeSet<&'t str> {
    lines.iter().filter_map(|line| item(line.strip_prefix("pub ")?)).collect()
}

/// Whether a file declares a type for itself or its crate.
fn declares(lines: &[&str], name: &str) -> bool {
    let own = |line: &str| {
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) ")).unwrap_or(line);
        ["struct ", "enum "].iter().any(|kind| line.strip_prefix(kind).and_then(first_word) == Some(name))
    };
    lines.iter().any(|line| own(line))
}

/// Whether the lines before an item end with words about it, attributes apart.
fn is_explained(before: &[&str]) -> bool {
    let mut in_attribute = false;
    let mut is_apart = |line: &&str| {
        let line = line.trim();
        // From below, an attribute of several lines begins with its end.
        in_attribute = (in_attribute || line.ends_with(")]")) && !line.starts_with("#[");
        in_attribute || line.starts_with("#[") || line.starts_with("// ")
    };
    let last = before.iter().rev().find(|line| !is_apart(line)).map_or("", |line| line.trim_start());
    last.strip_prefix("///")
        .is_some_and(|words| words.split_whitespace().count() > 0 && words.trim() != "Its name.")
}

fn libraries() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let below = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let roots = below(crates).chain(below(&crates.join("formal"))).map(|folder| folder.join("src/lib.rs"));
    roots.filter(|root| root.exists()).collect()
}

#[test]
fn what_a_library_shows_is_explained() {
    let libraries = libraries();
    assert!(libraries.len() >= 13, "{libraries:?}");
    let found: Vec<String> = libraries.iter().flat_map(|root| unexplained(root)).collect();
    assert!(found.is_empty(), "{} without words:\n{}", found.len(), found.join("\n"));
}

#[test]
fn what_lacks_words_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "lib.rs",
        "//! A crate.\npub mod open;\nmod closed;\npub use closed::{Exported, explained};\n\npub const BARE: u8 = 0;\n",
    );
    write(
        "open.rs",
        "pub struct Bare<T>(T);\nimpl<T> Bare<T> {\n    pub fn bare() {}\n    /// Says.\n    #[cfg(\n        unix\n    )]\n    \
         pub const fn said() {}\n    fn own() {}\n}\nstruct Own;\nimpl Own {\n    pub fn free() {}\n}\n\
         /// Its name.\npub type Empty = u8;\n/// A seam.\npub trait Seam {\n    fn bare(&self);\n}\n",
    );
    write(
        "closed.rs",
        "//! Closed.\npub struct Exported;\n/// Says.\npub fn explained() {}\npub fn kept() {}\n",
    );
    let found = unexplained(&folder.path().join("lib.rs"));
    let found: Vec<&str> = found.iter().map(|f| f.rsplit('/').next().unwrap()).collect();
    let expected = [
        "open.rs:1: the module",
        "open.rs:1: Bare",
        "open.rs:3: bare",
        "open.rs:16: Empty",
        "open.rs:19: bare",
        "lib.rs:6: BARE",
        "closed.rs:2: Exported",
    ];
    assert_eq!(found, expected);
}
