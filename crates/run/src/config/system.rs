//! Opens the formal system of a configuration and reads its problems.

use crate::Usage;
use crate::config::held_out::{self, HeldOut};
use crate::config::layers::unknown;
use crate::config::lean;
pub use crate::config::problems::{LEAN_SETS, METAMATH_SETS};
use crate::config::problems::{SHIPPED, check_database};
use crate::config::{RunConfig, SystemName};
use crate::error::{Context, Result, RunError, bail};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sgs_base::digest::checksum_of;
use sgs_base::excerpt;
use sgs_external::{External, ExternalSettings};
use sgs_formal::FormalSystem;
use sgs_keys::{did_you_mean_path, is_typing_error};
use sgs_lean::data::{self, Target};
use sgs_lean::sandbox::Sandbox;
use sgs_lean::{Lean, LeanSettings};
use sgs_lm::tokenizer::Tokenizer;
use sgs_metamath::audit::DatabaseAudit;
use sgs_metamath::composed_sets::{ComposedProblem, ComposedSet};
use sgs_metamath::database::Database;
use sgs_metamath::slice::SLICE_SHA256;
use sgs_metamath::splits::SplitRule;
use sgs_metamath::system::Metamath;
use sgs_metamath::theory::RuleId;
use sgs_metamath::tokens::{UNKNOWN, label_token};
use sgs_selfplay::config::GuideKind;
use sgs_selfplay::{Problem, ProblemId};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Returns a [`Usage`] error with a formatted message.
macro_rules! wrong {
    ($($message:tt)*) => {
        return Err(Usage(format!($($message)*)).into())
    };
}

/// A running formal system and the problems of a run.
pub struct Opened {
    pub system: Arc<dyn FormalSystem>,
    /// The target problems, in the order of their set.
    pub targets: Vec<Problem>,
    /// Problems for evaluation, which the run is never trained on.
    pub held_out: Vec<Problem>,
    /// Notes for the user on the sandbox and the held-out problems, one line each.
    pub notes: Vec<String>,
}

/// Starts the formal system of a run and reads its problems. `scratch` is a folder of the run in which checkers may
/// write, and `base` is the folder of the base model.
///
/// # Errors
/// Returns an error if a set is unknown or invalid, if the model lacks a symbol of a target, if Lean is not installed or
/// has a different version from the one that the set is pinned to, or if the checker fails its canary checks.
pub fn open(config: &RunConfig, scratch: &Path, base: &Path) -> Result<Opened> {
    let (set, others) = (&config.problems.set, config.evaluation.source());
    match config.problems.system {
        SystemName::Metamath => {
            let system = metamath_database(&config.problems.database)?;
            let targets = metamath_targets(&system, set)?;
            let others = others.map(|set| metamath_targets(&system, set).context("evaluation.held_out"));
            let notes = match config.problems.database.as_str() {
                SHIPPED => Vec::new(),
                name => own_database_notes(name, &system, &targets, base)?,
            };
            Ok(with_held_out(config, system, targets, others.transpose()?, notes))
        }
        SystemName::Lean => {
            let mut settings = config.lean.clone().unwrap_or_default();
            settings.scratch.get_or_insert_with(|| scratch.to_owned());
            let targets = lean_targets(set)?;
            let others = others.map(|set| lean_targets(set).context("evaluation.held_out")).transpose()?;
            let count = targets.len();
            let all = targets.into_iter().chain(others.iter().flatten().cloned()).collect();
            let Opened { system, mut targets, notes, .. } = lean(&settings, all, set)?;
            let others = others.map(|_| targets.split_off(count));
            Ok(with_held_out(config, system, targets, others, notes))
        }
        SystemName::External => {
            let targets = external_targets(set)?;
            let others = others.map(|set| external_targets(set).context("evaluation.held_out"));
            let system = Arc::new(external(config)?);
            if let Some(first) = targets.first()
                && let Err(problem) = sgs_external::conformance::check_prompts(&system, first)
            {
                wrong!("the external system's prompt {problem} (`sgs external check` lists all problems)");
            }
            Ok(with_held_out(config, system, targets, others.transpose()?, Vec::new()))
        }
    }
}

/// Selects the held-out problems, from `others` if given, and adds a note about them.
fn with_held_out(
    config: &RunConfig,
    system: Arc<dyn FormalSystem>,
    mut targets: Vec<Problem>,
    others: Option<Vec<Problem>>,
    mut notes: Vec<String>,
) -> Opened {
    let says = says(config.problems.system);
    let HeldOut { problems, note } =
        held_out::choose(&config.evaluation, &mut targets, others.unwrap_or_default(), &says);
    notes.extend(note);
    Opened { system, targets, held_out: problems, notes }
}

/// Reads the problems of a run without starting its formal system.
pub fn problems(config: &RunConfig) -> Result<Vec<Problem>> {
    if config.problems.system == SystemName::Metamath {
        check_database(&config.problems.database, &config.problems.set)?;
    }
    read_set(config, &config.problems.set)
}

/// Selects the held-out problems of a run, as [`open`] does, without starting its formal system. `targets` are the
/// problems of the run.
pub fn held_out(config: &RunConfig, mut targets: Vec<Problem>) -> Result<HeldOut> {
    let others = config.evaluation.source().map(|set| read_set(config, set)).transpose()?;
    let says = says(config.problems.system);
    Ok(held_out::choose(&config.evaluation, &mut targets, others.unwrap_or_default(), &says))
}

/// Returns the number of targets of a run, without its held-out problems, as [`open`] does, without starting its formal
/// system.
pub fn target_count(config: &RunConfig) -> Result<usize> {
    let mut targets = problems(config)?;
    held_out::leave_out(&config.evaluation, &mut targets, &says(config.problems.system));
    Ok(targets.len())
}

fn read_set(config: &RunConfig, set: &str) -> Result<Vec<Problem>> {
    match config.problems.system {
        SystemName::Metamath => metamath_targets(&*metamath_database(&config.problems.database)?, set),
        SystemName::Lean => Ok(lean_targets(set)?.into_iter().map(|target| target.problem).collect()),
        SystemName::External => external_targets(set),
    }
}

/// Returns a function that maps a statement to its content without the theorem's name, in order to find duplicates.
/// Canonical Metamath text has no name, and its variables are numbered by first appearance. For Lean, the content is
/// the signature after the name, with white space normalised. An external system gives canonical text.
pub fn says(system: SystemName) -> fn(&str) -> String {
    match system {
        SystemName::Metamath | SystemName::External => str::to_owned,
        SystemName::Lean => |text| {
            let statement = sgs_lean::text::LeanStatement::read(text);
            let said = statement.as_ref().map_or(text, |statement| statement.signature());
            said.split_whitespace().collect::<Vec<_>>().join(" ")
        },
    }
}

/// Opens a Metamath database (`problems.database`). A process opens the shipped one once.
///
/// # Errors
/// Returns an error if the file cannot be read, is malformed, or has an unsupported grammar.
#[allow(clippy::expect_used, reason = "a panic of a thread that opens the database must stop the program")]
pub fn metamath_database(name: &str) -> Result<Arc<Metamath>> {
    static SHIPPED_DATABASE: Mutex<Option<Arc<Metamath>>> = Mutex::new(None);
    if name != SHIPPED {
        let opened = Metamath::read(Path::new(name));
        let opened = opened.map_err(|error| Usage(format!("problems.database: {}", Usage::of(error))));
        return Ok(Arc::new(opened?));
    }
    let mut shared =
        SHIPPED_DATABASE.lock().expect("invariant: no thread panics while it opens the database");
    if let Some(database) = &*shared {
        return Ok(Arc::clone(database));
    }
    Ok(Arc::clone(shared.insert(Arc::new(Metamath::shipped()?))))
}

/// Returns the SHA-256 of a Metamath database and the files that it includes.
pub(crate) fn database_hash(name: &str) -> Result<String> {
    if name == SHIPPED {
        return Ok(SLICE_SHA256.to_owned());
    }
    Ok(checksum_of(&Database::read(Path::new(name)).context("problems.database")?.text()))
}

/// Checks that the base model knows the symbols of the targets of a user's database. Returns notes about theorems that
/// it cannot cite, and about theorems without a valid proof.
fn own_database_notes(
    name: &str,
    system: &Metamath,
    targets: &[Problem],
    base: &Path,
) -> Result<Vec<String>> {
    let (tokenizer, theory) = (Tokenizer::load(base)?, system.theory());
    let unknown = tokenizer.id_of(UNKNOWN);
    // A tokenizer without a token for unknown words splits words instead, so it can encode any symbol.
    let lacks = |word: &str| unknown.is_some() && tokenizer.id_of(word).is_none();
    for target in targets {
        if let Some(symbol) = target.statement.split_ascii_whitespace().find(|word| lacks(word)) {
            bail!(
                "the base model has no token for `{symbol}`, a symbol of `{}` in {name}: train a model on this \
                 database, and give its folder as model.base (docs/guides.md)",
                target.id
            );
        }
    }
    let labels = (0..theory.rules().len()).map(|rule| theory.label(RuleId(rule as u32)));
    let without = labels.filter(|label| lacks(&label_token(label))).count();
    let facts = DatabaseAudit::of(theory.database());
    let mut notes = Vec::new();
    if without > 0 {
        let all = theory.rules().len();
        notes.push(format!(
            "the base model has no token for {without} of the {all} theorems of {name}, and cannot cite them"
        ));
    }
    if !facts.unproved.is_empty() {
        notes.push(format!("warning: {name}: {facts}; proofs that cite them are accepted"));
    }
    Ok(notes)
}

/// Opens the embedded Metamath system on a database, with a set of problems.
pub fn metamath(database: &str, set: &str) -> Result<Opened> {
    check_database(database, set)?;
    let system = metamath_database(database)?;
    let targets = metamath_targets(&system, set)?;
    Ok(Opened { system, targets, held_out: Vec::new(), notes: Vec::new() })
}

/// Starts the external system of a configuration.
///
/// # Errors
/// Returns a [`Usage`] error if its process cannot be started or does not describe itself.
pub fn external(config: &RunConfig) -> Result<External> {
    let mut settings = config
        .external
        .clone()
        .context("the configuration has no `external.command`, the system's program")?;
    let command = settings.command.join(" ");
    if !settings.folder.is_empty() && !Path::new(&settings.folder).is_dir() {
        wrong!("external.folder: {} is not a folder", settings.folder);
    }
    if settings.sandbox {
        settings.command = sandboxed(&settings)?;
    }
    let started = External::start(settings).map_err(Usage::of);
    let system = started.with_context(|| format!("cannot start the external system `{command}`"))?;
    let guide = &config.algorithm.guide;
    match guide.kind {
        GuideKind::Rubric if guide.on => Ok(system.with_rubric()),
        GuideKind::Model if guide.on && !system.has_guide_prompt() => Err(Usage(format!(
            "`{command}` has no prompt `guide`: add it, or set algorithm.guide.on = false"
        ))
        .into()),
        GuideKind::Model | GuideKind::Rubric => Ok(system),
    }
}

/// Returns the command of an external system, executed in the sandbox of Lean's processes.
fn sandboxed(settings: &ExternalSettings) -> Result<Vec<String>> {
    let mut read = Sandbox::system_files();
    // The launcher starts in `folder`, so a relative path would be resolved twice.
    let folder = if settings.folder.is_empty() { "." } else { &settings.folder };
    let paths = settings.read.iter().map(|path| ("read", path.as_str()));
    for (key, path) in [("folder", folder)].into_iter().chain(paths) {
        let found = fs::canonicalize(path);
        read.push(found.map_err(|error| Usage(format!("external.{key}: {path}: {error}")))?);
    }
    let sandbox = Sandbox { read, children: true, require: true, ..Sandbox::default() };
    let mut command = Vec::new();
    for part in lean::launcher()? {
        command.push(
            part.into_string().map_err(|part| RunError::Failed(format!("the path {part:?} is not UTF-8")))?,
        );
    }
    command.push(serde_json::to_string(&sandbox).context("the sandbox")?);
    Ok([command, settings.command.clone()].concat())
}

/// Starts Lean with the targets of a set and runs the canary checks before any verdict is used. `set` names the problem
/// set in errors.
pub fn lean(settings: &LeanSettings, targets: Vec<Target>, set: &str) -> Result<Opened> {
    let (system, notes) = lean::start(settings)?;
    check_toolchain(&system, &targets, set)?;
    if let Some(first) = targets.first() {
        system.canaries(&first.problem.context)?;
    }
    let targets = targets.into_iter().map(|t| t.problem).collect();
    Ok(Opened { system: Arc::new(system), targets, held_out: Vec::new(), notes })
}

/// Checks that Lean has the version that the data set is pinned to.
///
/// # Errors
/// Returns an error if a target requires another toolchain.
pub fn check_toolchain(system: &Lean, targets: &[Target], set: &str) -> Result<()> {
    let version = system.identity().version;
    for target in targets {
        if let Some(wanted) = &target.toolchain {
            version.require(&format!("`{}` of {set}", target.problem.id), wanted)?;
        }
    }
    Ok(())
}

/// Returns whether a set ships with the program. Any other name is the path of a file.
pub fn is_shipped_set(set: &str) -> bool {
    METAMATH_SETS.contains(&set) || LEAN_SETS.contains(&set)
}

/// Checks that a set ships with the program or is a file.
///
/// # Errors
/// Returns an error that suggests a set of the formal system.
pub fn check_set(system: SystemName, set: &str) -> Result<(), Usage> {
    let sets = match system {
        SystemName::Metamath => &METAMATH_SETS[..],
        SystemName::Lean => &LEAN_SETS[..],
        SystemName::External if Path::new(set).is_file() => return Ok(()),
        SystemName::External => {
            return Err(Usage(format!(
                "{set} is not a file (a relative path begins at the current folder): the problems of an external system \
                 are in a file of lines such as {PLAIN}"
            )));
        }
    };
    if sets.contains(&set) || Path::new(set).is_file() {
        return Ok(());
    }
    if is_shipped_set(set) {
        let (of, own) = match system {
            SystemName::Lean => ("Metamath", "Lean"),
            _ => ("Lean", "Metamath"),
        };
        return Err(Usage(format!(
            "the set `{set}` is one of {of}; for {own}: {}, or a file",
            sets.join(", ")
        )));
    }
    if Path::new(set).is_dir() {
        return Err(Usage(format!("{set} is a folder, not a file of problems")));
    }
    let near = did_you_mean_path(Path::new(set), Path::is_file);
    if set.contains(['.', '/']) && !near.is_empty() {
        return Err(Usage(format!("there is no problem set or file `{set}`{near}")));
    }
    Err(unknown("problem set or file", set, sets.iter().copied()))
}

/// Reads the targets of a Lean set: `d3k`, `core`, `composed`, `composed-held-out`, or a file in any format that
/// `sgs data import` supports.
///
/// # Errors
/// Returns an error if the file cannot be read or has no targets, or if a record is invalid. The error names the first
/// such record.
pub fn lean_targets(set: &str) -> Result<Vec<Target>> {
    match set {
        "d3k" => Ok(data::d3k()?),
        "core" => Ok(data::core()?),
        "composed" => Ok(data::composed()?),
        "composed-held-out" => Ok(data::composed_held_out()?),
        file => {
            check_set(SystemName::Lean, file)?;
            let import = super::lean_set::read(Path::new(file), "");
            let import = import.map_err(Usage::of)?;
            if let Some(first) = import.skipped.first() {
                let place =
                    if first.line > 0 { format!("{file}: line {}", first.line) } else { file.to_owned() };
                // A record without an id is often no record at all.
                let (id, expected) = match first.id.as_str() {
                    "" => (String::new(), format!("; a line must look like {LEAN_LINE}")),
                    id => (format!("{id}: "), String::new()),
                };
                wrong!(
                    "{place}: {id}{}{expected} ({} invalid records in all; `sgs data import` writes a file of the valid ones)",
                    first.reason,
                    import.skipped.len()
                );
            }
            if import.targets.is_empty() {
                wrong!(
                    "{file} contains no problems: a line must look like {LEAN_LINE}, or the file must be Lean source \
                     with theorems that end in `sorry`; found `{}`",
                    first_line(Path::new(file))
                );
            }
            Ok(import.targets)
        }
    }
}

/// Returns the beginning of the first line of a file that is not blank, or nothing if the file cannot be read.
fn first_line(path: &Path) -> String {
    let mut beginning = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(1 << 16).read_to_end(&mut beginning));
    let text = String::from_utf8_lossy(if read.is_ok() { &beginning } else { &[] });
    let line = text.lines().find(|line| !line.trim().is_empty());
    excerpt::beginning_of(line.unwrap_or_default()).into_owned()
}

/// Reads the targets of a Metamath set: one of [`METAMATH_SETS`], or a JSONL file.
pub fn metamath_targets(system: &Metamath, set: &str) -> Result<Vec<Problem>> {
    let rule = SplitRule::of(system.theory());
    let labels = |from: usize, to: usize| -> Result<Vec<Problem>> {
        let (targets, candidates) = system.targets();
        if targets.len() < rule.targets || from == to {
            let rules = system.theory().rules().len();
            bail!(
                "the database is too small for the set `{set}`: {candidates} of its {rules} axioms and theorems can be targets; \
                 give a file of problems"
            );
        }
        let chosen = targets.iter().take(to).skip(from);
        let labels = chosen.map(|&t| system.theory().label(t));
        labels
            .map(|l| system.problem(l).with_context(|| format!("{l} is not a theorem of the slice")))
            .collect()
    };
    if let Some((kind, held_out)) = ComposedSet::of_set(set) {
        return Ok(composed_problems(kind, held_out));
    }
    match set {
        "quick" => labels(0, rule.quick),
        "all" => labels(0, rule.targets),
        "train" => labels(0, rule.targets - rule.held_out),
        "held-out" => labels(rule.targets - rule.held_out, rule.targets),
        set if LEAN_SETS.contains(&set) => {
            let size = if set == "d3k" { "lean-d3k" } else { "lean-core" };
            wrong!(
                "`{set}` is a Lean set (add `--system lean`; for a run, `--size {size}`); the Metamath sets are {}",
                METAMATH_SETS.join(", ")
            )
        }
        file => {
            check_set(SystemName::Metamath, file)?;
            read_problems(system, Path::new(file))
        }
    }
}

/// A line of a file of Lean problems.
const LEAN_LINE: &str = r#"{"id": "a", "header": "import Mathlib", "statement": "theorem a : 1 = 1 := by"}"#;

/// A line of a file of problems.
const PLAIN: &str = r#"{"id": "a", "statement": "…"}"#;

/// Reads the targets of an external system from a JSONL file of objects with `id`, `statement` and optionally
/// `context`. Texts are used as they are.
///
/// # Errors
/// Returns an error if the file cannot be read or has no problems, or if a line is not a valid problem. The error names
/// the line.
pub fn external_targets(set: &str) -> Result<Vec<Problem>> {
    check_set(SystemName::External, set)?;
    problem_lines(
        Path::new(set),
        PLAIN,
        |_| String::new(),
        |line| {
            let ProblemLine { id, statement, context, .. } = line;
            Ok(Problem { id: ProblemId::new(id), statement: statement.into(), context: context.into() })
        },
    )
}

/// Returns the targets or the held-out problems of a composed set.
fn composed_problems(set: ComposedSet, held_out: bool) -> Vec<Problem> {
    let chosen = set.problems().into_iter().filter(|problem| problem.held_out == held_out);
    let problem = |p: ComposedProblem| Problem {
        id: ProblemId::new(p.id),
        statement: p.statement.into(),
        context: p.context.into(),
    };
    chosen.map(problem).collect()
}

#[derive(Deserialize)]
#[serde(expecting = "an object {…}")]
struct ProblemLine {
    id: String,
    statement: String,
    #[serde(default)]
    context: String,
    /// Data sets of others have more columns.
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

impl ProblemLine {
    /// Returns the defect of a line that cannot be parsed: a missing field, or the error of the parser.
    fn defect(line: &str, error: &serde_json::Error) -> String {
        let fields: BTreeMap<String, IgnoredAny> = serde_json::from_str(line).unwrap_or_default();
        let wanted = ["id", "statement"].into_iter().filter(|name| !fields.contains_key(*name));
        for name in wanted {
            let meant = fields.keys().find(|key| is_typing_error(key, name));
            match meant {
                Some(key) => return format!("unknown key `{key}`; did you mean `{name}`?"),
                None if !fields.is_empty() => return format!("the field `{name}` is missing"),
                None => {}
            }
        }
        // The parser sees one line, which is not the first one of the file.
        error.to_string().replace(" at line 1 column", " at column")
    }

    fn read(line: &str) -> Result<Self> {
        if line.trim_start().starts_with('[') {
            wrong!("a line must be an object {{…}}, not a list");
        }
        let read: Self = serde_json::from_str(line).map_err(|error| Usage(Self::defect(line, &error)))?;
        if read.id.trim().is_empty() {
            wrong!("`id` is empty");
        }
        // The other keys are required, so that their absence is an error.
        let is_misspelt = |key: &&String| read.context.is_empty() && is_typing_error(key, "context");
        if let Some(key) = read.others.keys().find(is_misspelt) {
            wrong!("unknown key `{key}`; did you mean `context`?");
        }
        Ok(read)
    }
}

/// Reads problems from a JSONL file. Each line is an object with `id`, `statement` and optionally `context`, which
/// defaults to the whole database. A statement is written in canonical or in display form.
///
/// # Errors
/// Returns an error if the file cannot be read or has no problems, or if a line is not a valid problem. The error names
/// the line.
pub fn read_problems(system: &Metamath, path: &Path) -> Result<Vec<Problem>> {
    // A file of plain statements.
    let hint = |line: &str| match line.trim_start().starts_with(['{', '[']) {
        true => String::new(),
        false => format!("; for statements in plain text: `sgs prove < {}`", path.display()),
    };
    let format = r#"{"id": "a", "statement": "|- ( ph -> ph )"}"#;
    problem_lines(path, format, hint, |line| {
        system.problem_from_text(&line.id, &line.statement, &line.context).map_err(|error| {
            let is_lean = line.statement.split_whitespace().next().is_some_and(is_lean_keyword);
            let advice = match is_lean {
                true => "for Lean: `--system lean`, for a run `--size lean-core`",
                false => statement_advice(&line.statement),
            };
            Usage(format!("{}; {advice}", error.detail)).into()
        })
    })
}

/// Returns advice on a text that is not a Metamath statement.
pub fn statement_advice(text: &str) -> &'static str {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.first().is_some_and(|word| is_lean_keyword(word)) {
        return "for a statement of Lean, add `--system lean`";
    }
    // A shell turns `"… ($d x ph)"` into `… ( x ph)`.
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphanumeric());
    let group = words.iter().rposition(|word| *word == "(").map(|at| &words[at + 1..]);
    let lost_d = group.is_some_and(|group| {
        group.len() > 1 && group.iter().all(is_name) && group.last().is_some_and(|last| last.ends_with(')'))
    });
    if lost_d {
        return "put statements that contain `$d` in single quotes; in double quotes the shell expands `$d`";
    }
    // `ph)` and `ph->ps` are several symbols; `C_` and `A.` are single ones.
    let is_glued = |word: &&str| {
        let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_';
        word.contains(|c: char| c.is_ascii_alphanumeric()) && word.contains(is_other)
    };
    if words.iter().any(is_glued) {
        return "separate symbols by spaces, as in \"|- ( ph -> ph )\" (symbols: `sgs prove --help`)";
    }
    "a statement looks like \"|- ( ph -> ph )\" (symbols: `sgs prove --help`)"
}

/// Returns whether a word begins a statement of Lean, but none of Metamath.
pub fn is_lean_keyword(word: &str) -> bool {
    ["theorem", "lemma", "example", "def", "import"].contains(&word)
}

/// Reads the problems of a JSONL file. `format` is an example of a line, and `hint` is added to the error about a line
/// that is not JSON.
fn problem_lines(
    path: &Path,
    format: &str,
    hint: impl Fn(&str) -> String,
    problem: impl Fn(ProblemLine) -> Result<Problem>,
) -> Result<Vec<Problem>> {
    let bytes = fs::read(path).map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    let place = |number: usize| format!("{}: line {number} is not a valid problem", path.display());
    let expected =
        |line: &str| format!("a line must look like {format}, found `{}`", excerpt::beginning_of(line));
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let number = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = bytes[start..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        Usage(format!("{}; {}: it is not UTF-8", place(number), expected(&line)))
    })?;
    // Some editors write a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    let mut ids = HashSet::new();
    let problems: Vec<Problem> = lines
        .map(|(i, line)| {
            let place = || place(i + 1);
            let line = ProblemLine::read(line)
                .with_context(|| format!("{}; {}{}", place(), expected(line), hint(line)))?;
            // Ids must be unique, because proofs refer to their problem by id.
            if !ids.insert(line.id.clone()) {
                wrong!("{}: line {}: duplicate id `{}`", path.display(), i + 1, line.id);
            }
            problem(line).with_context(place)
        })
        .collect::<Result<_>>()?;
    if problems.is_empty() {
        wrong!("{} contains no problems; a line must look like {format}", path.display());
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn advice_fits_the_mistake() {
        for (text, part) in [
            ("( ph -> A. x ph )  ( x ph)", "single quotes"),
            ("( ph -> ph)", "separate symbols by spaces"),
            ("(ph -> ph)", "separate symbols by spaces"),
            ("( -. ph -> ( ps -> ph))", "separate symbols by spaces"),
            ("|- ( ph", "a statement looks like"),
            ("theorem a (p : Prop) (h : p) : p", "--system lean"),
            ("", "a statement looks like"),
            ("( A -> B", "a statement looks like"),
            ("( ph->ps )", "separate symbols by spaces"),
        ] {
            assert!(statement_advice(text).contains(part), "{text}: {}", statement_advice(text));
        }
    }

    #[test]
    fn a_duplicate_id_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.jsonl");
        let line = r#"{"id":"a","statement":"|- ( ph -> ph )","context":""}"#;
        std::fs::write(&path, format!("{line}\n\n{line}\n")).unwrap();
        let error = read_problems(&Metamath::shipped().unwrap(), &path).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("`a`"), "{error}");
    }

    #[test]
    fn wrong_lines_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.jsonl");
        let read = |line: &str| {
            std::fs::write(&path, line).unwrap();
            external_targets(path.to_str().unwrap())
        };
        for (line, wrong) in [
            (r#"{"id":"a","statement":"s","contex":"c"}"#, "unknown key `contex`; did you mean `context`?"),
            (r#"{"id":"a","statement":"s","Context":"c"}"#, "unknown key `Context`"),
            (r#"{"id":" ","statement":"s"}"#, "`id` is empty"),
            (r#"["a","s","c"]"#, "a line must be an object {…}, not a list"),
            (
                r#"{"id": "a", "statment": "|- ( ph -> ph )"}"#,
                "unknown key `statment`; did you mean `statement`?",
            ),
            (r#"{"id": "a"}"#, "the field `statement` is missing"),
            ("some text", "a line must look like {\"id\": \"a\", \"statement\": \"…\"}, found `some text`"),
            ("[", "a line must be an object {…}, not a list"),
        ] {
            let error = format!("{:#}", read(line).unwrap_err());
            assert!(error.contains(wrong) && error.contains("line 1"), "{line}: {error}");
        }
        std::fs::write(&path, [b"{}\n".as_slice(), &[0xff, b'a'], &[b'b'; 500]].concat()).unwrap();
        let error = external_targets(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("bbb…`: it is not UTF-8"), "{error}");
        let columns = r#"{"id":"a","statement":"s","idx":1,"context":"c","contexts":[],"tags":{}}"#;
        assert_eq!(&*read(columns).unwrap()[0].context, "c");
    }

    #[test]
    fn wrong_lines_of_lean_problems_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            format!("{:#}", lean_targets(folder.path().join(name).to_str().unwrap()).unwrap_err())
        };
        let good = r#"{"id": "a", "header": "", "statement": "theorem a : 1 = 1 := by"}"#;
        let error = read("mine.jsonl", &format!("{good}\nsome text {}\n", "x".repeat(500)));
        let expected = format!("a line must look like {LEAN_LINE}");
        assert!(error.contains("mine.jsonl: line 2: expected a JSON object, found `some text x"), "{error}");
        assert!(error.contains("x…`: ") && error.contains(&expected) && error.len() < 600, "{error}");
        let error = read("mine.txt", "\nsome text\n");
        assert!(error.contains("contains no problems") && error.contains("found `some text`"), "{error}");
        assert!(error.contains(&expected), "{error}");
    }

    #[test]
    fn names_do_not_affect_the_content_of_statements() {
        let lean = says(SystemName::Lean);
        let [one, other] = ["a (p : Prop)", "lemma_of.mine  (p :\n Prop)"]
            .map(|begin| lean(&format!("theorem {begin} : p → p := by")));
        assert_eq!(one, other);
        assert_ne!(one, lean("theorem a (p : Prop) : p → p ∧ p := by"));
        // Two statements of set.mm that differ only in the names of their variables.
        let system = Metamath::shipped().unwrap();
        let said = ["( ph -> ph )", "( ch -> ch )"].map(|text| {
            says(SystemName::Metamath)(&system.problem_from_text("x", text, "").unwrap().statement)
        });
        assert_eq!(said[0], said[1]);
    }

    #[test]
    fn train_and_held_out_together_are_all_targets() {
        let system = Metamath::shipped().unwrap();
        let set = |name: &str| metamath_targets(&system, name).unwrap();
        let mut both = set("train");
        both.extend(set("held-out"));
        assert_eq!(both, set("all"));
        assert_eq!(set("held-out").len(), 200);
        assert!(METAMATH_SETS.iter().all(|set| is_shipped_set(set)) && !is_shipped_set("mine.jsonl"));
    }
}
