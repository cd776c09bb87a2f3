//! Templates of the roles' prompts: the built-in ones, and those that a user replaces them with.

use serde::{Deserialize, Serialize};
use sgs_base::digest::checksum_of;
use sgs_base::files;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Name and text of a built-in template.
type BuiltIn = (&'static str, &'static str);

macro_rules! built_in {
    ($($template:ident = $name:literal, $text:expr;)*) => {
        $(pub(crate) const $template: BuiltIn = ($name, $text);)*

        /// Names and texts of the templates that [`Prompts`] can replace.
        pub const BUILT_IN_PROMPTS: &[BuiltIn] = &[$($template),*];
    };
}

built_in! {
    SOLVER = "solver", include_str!("prompts/solver.txt");
    SOLVER_COT = "solver_cot", include_str!("prompts/solver_cot.txt");
    REPAIR = "repair", include_str!("prompts/repair.txt");
    REPAIR_COT = "repair_cot", include_str!("prompts/repair_cot.txt");
    CONJECTURER = "conjecturer", include_str!("prompts/conjecturer.txt");
    CONJECTURER_STP = "conjecturer_stp", include_str!("prompts/conjecturer_stp.txt");
    CONJECTURER_UNCONDITIONED = "conjecturer_unconditioned", include_str!("prompts/conjecturer_unconditioned.txt");
    GUIDE = "guide", include_str!("prompts/guide.txt");
}

/// Maximum size of a template in bytes.
const MOST_BYTES: u64 = 1 << 16;

/// The value of the key `prompts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a folder, or a table of texts")]
pub enum Prompts {
    /// A folder with a file `NAME.txt` for each template that is replaced; empty for none.
    Folder(PathBuf),
    /// The texts that were read from a folder when a run began, by name.
    Texts(BTreeMap<String, String>),
}

impl Default for Prompts {
    fn default() -> Self {
        Self::Folder(PathBuf::new())
    }
}

/// A template that cannot be used. The message names the file, and the line if the error has one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PromptsError(pub(crate) String);

/// The templates of the prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Templates(BTreeMap<String, String>);

impl Templates {
    /// Returns the text that replaces a built-in template, or its own text.
    pub(crate) fn get(&self, (name, text): BuiltIn) -> &str {
        self.0.get(name).map_or(text, String::as_str)
    }

    /// Returns a checksum of the texts that replace built-in templates, or `None` if there are none.
    pub(crate) fn checksum(&self) -> Option<String> {
        let texts: String =
            self.0.iter().map(|(name, text)| format!("{name} {} {text}", text.len())).collect();
        (!self.is_built_in()).then(|| checksum_of(texts.as_bytes()))
    }

    /// Returns whether all templates are built-in ones.
    pub(crate) fn is_built_in(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Templates> for Prompts {
    fn from(templates: Templates) -> Self {
        Self::Texts(templates.0)
    }
}

impl Prompts {
    /// Reads and checks the templates.
    pub(crate) fn read(&self) -> Result<Templates, PromptsError> {
        let texts = match self {
            Self::Folder(folder) if folder.as_os_str().is_empty() => BTreeMap::new(),
            Self::Folder(folder) => read_folder(folder)?,
            Self::Texts(texts) => {
                texts.iter().try_for_each(|(name, text)| check(name, name, text))?;
                texts.clone()
            }
        };
        Ok(Templates(texts))
    }
}

fn read_folder(folder: &Path) -> Result<BTreeMap<String, String>, PromptsError> {
    let cannot_read =
        |path: &Path, error: io::Error| PromptsError(format!("cannot read {}: {error}", path.display()));
    let names = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<BTreeSet<_>>>())
        .map_err(|error| cannot_read(folder, error))?;
    let mut texts = BTreeMap::new();
    // Hidden files belong to editors and version control.
    for file in names.iter().map(|name| name.to_string_lossy()).filter(|name| !name.starts_with('.')) {
        let path = folder.join(&*file);
        let name =
            file.strip_suffix(".txt").filter(|name| BUILT_IN_PROMPTS.iter().any(|known| known.0 == *name));
        let name = name.ok_or_else(|| unknown(&path.display().to_string(), ".txt"))?;
        let text = files::read_to_string(&path, MOST_BYTES).map_err(|error| cannot_read(&path, error))?;
        check(&path.display().to_string(), name, &text)?;
        texts.insert(name.to_owned(), text);
    }
    match texts.is_empty() {
        true => Err(PromptsError(format!("{} contains no prompts: {}", folder.display(), known(".txt")))),
        false => Ok(texts),
    }
}

fn unknown(place: &str, suffix: &str) -> PromptsError {
    PromptsError(format!("{place}: there is no prompt of this name: {}", known(suffix)))
}

/// Lists the names of the templates.
fn known(suffix: &str) -> String {
    let names: Vec<String> = BUILT_IN_PROMPTS.iter().map(|(name, _)| format!("{name}{suffix}")).collect();
    format!("expected any of {}", names.join(", "))
}

/// Checks a template. `place` denotes it in errors.
fn check(place: &str, name: &str, text: &str) -> Result<(), PromptsError> {
    let built_in = BUILT_IN_PROMPTS.iter().find(|known| known.0 == name).ok_or_else(|| unknown(place, ""))?;
    if text.trim().is_empty() {
        return Err(PromptsError(format!("{place}: the prompt is empty")));
    }
    let expected: BTreeSet<&str> = placeholders(built_in.1).map(|(_, word)| word).collect();
    let found: BTreeSet<&str> = placeholders(text).map(|(_, word)| word).collect();
    // LaTeX has words in braces after a command, a brace or a sign, as in `\begin{align}`.
    let is_latex = |at: usize| text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "^_}".contains(c));
    if let Some((at, word)) = placeholders(text).find(|(at, word)| !expected.contains(word) && !is_latex(*at))
    {
        let line = text[..at].matches('\n').count() + 1;
        let listed: Vec<String> = expected.iter().map(|word| format!("{{{word}}}")).collect();
        let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
        return Err(PromptsError(format!(
            "{place}:{line}: unknown placeholder {{{word}}}; this prompt has {listed} (as plain text: {{ {word} }})"
        )));
    }
    match expected.difference(&found).next() {
        Some(word) => Err(PromptsError(format!("{place}: the placeholder {{{word}}} is missing"))),
        None => Ok(()),
    }
}

/// Returns the words in braces that are or could be meant as placeholders: of three or more lower-case letters, because
/// Lean has sets such as `{x}`. With each word, returns the offset of its opening brace.
fn placeholders(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices('{').filter_map(|(at, _)| {
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_')?;
        (end >= 3 && rest[end..].starts_with('}')).then(|| (at, &rest[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(folder: &Path) -> Result<Templates, PromptsError> {
        Prompts::Folder(folder.to_owned()).read()
    }

    /// Returns the error of a folder that contains one file.
    fn refusal(file: &str, text: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(file), text).unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        error.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn built_in_templates_have_these_placeholders() {
        let of = |(_, text): &BuiltIn| placeholders(text).map(|(_, word)| word).collect::<Vec<_>>().join(" ");
        let found: Vec<String> = BUILT_IN_PROMPTS.iter().map(of).collect();
        assert_eq!(found, ["code", "code", "error", "error", "seed", "seed proof", "", "seed conjecture"]);
        for (name, text) in BUILT_IN_PROMPTS {
            check("", name, text).unwrap();
        }
    }

    #[test]
    fn only_own_templates_have_a_checksum() {
        let of = |name: &str, text: &str| Templates([(name.into(), text.into())].into()).checksum().unwrap();
        assert_eq!(Templates::default().checksum(), None);
        assert_eq!(of("solver", "a"), of("solver", "a"));
        assert!(of("solver", "a") != of("solver", "b") && of("solver", "a") != of("guide", "a"));
    }

    #[test]
    fn files_replace_the_templates_of_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let text = "Given $x^{abc}$, \\begin{align} and {x}, { word }: {seed} {seed}\r\n";
        write("conjecturer.txt", text);
        write(".guide.txt.swp", "of an editor");
        let templates = read(folder.path()).unwrap();
        assert_eq!((templates.get(CONJECTURER), templates.get(GUIDE)), (text, GUIDE.1));
        assert!(Prompts::default().read().unwrap().is_built_in());
    }

    #[test]
    fn errors_name_the_file_and_the_placeholder() {
        for (file, text, told) in [
            (
                "guide.txt",
                "{seed}\n\nis {sed} {conjecture}",
                "guide.txt:3: unknown placeholder {sed}; this prompt has {conjecture}, {seed} (as plain text: { sed })",
            ),
            ("guide.txt", "{conjecture}", "guide.txt: the placeholder {seed} is missing"),
            (
                "conjecturer_unconditioned.txt",
                "a {seed}",
                "conjecturer_unconditioned.txt:1: unknown placeholder {seed}; this prompt has none",
            ),
            ("conjecturer_unconditioned.txt", " \n", "the prompt is empty"),
            (
                "judge.txt",
                "{seed}",
                "judge.txt: there is no prompt of this name: expected any of solver.txt, solver_cot.txt",
            ),
            ("guide.md", "{seed} {conjecture}", "guide.md: there is no prompt of this name"),
            (".guide.txt", "", "contains no prompts: expected any of solver.txt"),
        ] {
            let error = refusal(file, text.as_bytes());
            assert!(error.contains(told), "{error}");
        }
        assert!(refusal("solver.txt", b"{code}\xff").contains("cannot read solver.txt: invalid utf-8"));
        let long = [&b"{code}"[..], &[b' '; MOST_BYTES as usize]].concat();
        assert!(refusal("solver.txt", &long).contains("more than 65536 bytes"));
        let folder = tempfile::tempdir().unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(folder.path().join("guide.txt")).status();
        assert!(fifo.unwrap().success());
        assert!(read(folder.path()).unwrap_err().to_string().contains("regular file"));
        let none = read(&folder.path().join("none")).unwrap_err().to_string();
        assert!(none.starts_with("cannot read ") && none.contains("none: "), "{none}");
        let texts = |name: &str| Prompts::Texts([(name.to_owned(), "a\n{x_y}".to_owned())].into());
        assert!(
            texts("guide").read().unwrap_err().to_string().starts_with("guide:2: unknown placeholder {x_y}")
        );
        assert!(texts("judge").read().unwrap_err().to_string().contains("expected any of solver, "));
    }
}
