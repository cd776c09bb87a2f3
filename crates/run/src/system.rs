//! The formal system that a configuration names, and its targets.

use super::config::{RunConfig, SystemName};
use crate::held_out::{self, HeldOut};
use crate::lean;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sgs_formal::FormalSystem;
use sgs_lean::data::{self, Target};
use sgs_lean::{Lean, LeanSettings};
use sgs_metamath::corpus::splits::{SplitRule, split};
use sgs_metamath::system::Metamath;
use sgs_selfplay::Problem;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A formal system that is ready to check, with problems.
pub struct Opened {
    pub system: Arc<dyn FormalSystem>,
    /// The problems, in their order.
    pub targets: Vec<Problem>,
    /// Problems that a run is evaluated on and never trained on.
    pub held_out: Vec<Problem>,
    /// What a person should know of what guards the checker, a line each.
    pub notes: Vec<String>,
}

/// Starts the system of a run and reads its targets. `scratch` is a folder of the run in which checkers may write.
///
/// # Errors
/// The set is unknown or broken, Lean is not there or of another version than the set is pinned to, or its checker
/// cannot tell a theorem from a falsehood.
pub fn open(config: &RunConfig, scratch: &Path) -> Result<Opened> {
    let (set, others) = (&config.problems.set, config.evaluation.source());
    match config.problems.system {
        SystemName::Metamath => {
            let system = Metamath::shipped()?;
            let targets = metamath_targets(&system, set)?;
            let others = others.map(|set| metamath_targets(&system, set).context("evaluation.held_out"));
            Ok(with_held_out(config, Arc::new(system), targets, others.transpose()?, Vec::new()))
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
    }
}

/// Chooses the held-out problems, of `others` if there are any, and says which.
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

/// What a statement of a system says, whatever it is called. Metamath's canonical text is that already, with variables in
/// order of appearance; a Lean theorem says what stands behind its name, up to white space.
pub fn says(system: SystemName) -> fn(&str) -> String {
    match system {
        SystemName::Metamath => str::to_owned,
        SystemName::Lean => |text| {
            let statement = sgs_lean::text::Statement::read(text);
            let said = statement.as_ref().map_or(text, |statement| statement.signature());
            said.split_whitespace().collect::<Vec<_>>().join(" ")
        },
    }
}

/// The embedded system with problems of the slice.
///
/// # Errors
/// The set is unknown or its file is broken.
pub fn metamath(set: &str) -> Result<Opened> {
    let system = Metamath::shipped()?;
    let targets = metamath_targets(&system, set)?;
    Ok(Opened { system: Arc::new(system), targets, held_out: Vec::new(), notes: Vec::new() })
}

/// Lean with the targets of a set, believed only after its canaries. `set` names it in errors.
///
/// # Errors
/// See [`open`].
pub fn lean(settings: &LeanSettings, targets: Vec<Target>, set: &str) -> Result<Opened> {
    let (system, notes) = lean::start(settings)?;
    check_toolchain(&system, &targets, set)?;
    if let Some(first) = targets.first() {
        system.canaries(&first.problem.context)?;
    }
    let targets = targets.into_iter().map(|t| t.problem).collect();
    Ok(Opened { system: Arc::new(system), targets, held_out: Vec::new(), notes })
}

/// Refuses a checker of another version than the data set is pinned to.
///
/// # Errors
/// A target names another toolchain.
pub fn check_toolchain(system: &Lean, targets: &[Target], set: &str) -> Result<()> {
    let version = system.identity().version;
    for target in targets {
        if let Some(wanted) = &target.toolchain {
            version.must_be(&format!("`{}` of {set}", target.problem.id), wanted)?;
        }
    }
    Ok(())
}

/// Sets of Metamath problems that ship with the program.
const METAMATH_SETS: [&str; 4] = ["quick", "all", "train", "held-out"];

/// Sets of Lean problems that ship with the program.
const LEAN_SETS: [&str; 4] = ["d3k", "core", "composed", "composed-held-out"];

/// Whether a set ships with the program; otherwise its name is that of a file.
pub fn is_shipped_set(set: &str) -> bool {
    METAMATH_SETS.contains(&set) || LEAN_SETS.contains(&set)
}

/// Reads the targets of a Lean set: `d3k`, `core`, `composed`, `composed-held-out`, or a file of any layout that `sgs data import` knows.
///
/// # Errors
/// The file cannot be read, or a record of it is no problem: the error names the first.
pub fn lean_targets(set: &str) -> Result<Vec<Target>> {
    match set {
        "d3k" => Ok(data::d3k()?),
        "core" => Ok(data::core()?),
        "composed" => Ok(data::composed()?),
        "composed-held-out" => Ok(data::composed_held_out()?),
        set if METAMATH_SETS.contains(&set) => {
            bail!(
                "the set `{set}` is one of Metamath; for Lean: d3k, core, composed, composed-held-out, or a file"
            )
        }
        file => {
            let import = crate::lean_set::read(Path::new(file), "")?;
            if let Some(first) = import.skipped.first() {
                let place =
                    if first.line > 0 { format!("{file}: line {}", first.line) } else { file.to_owned() };
                bail!(
                    "{place}: {}: {} ({} records like it; `sgs data import` writes what can be read)",
                    first.id,
                    first.reason,
                    import.skipped.len()
                );
            }
            Ok(import.targets)
        }
    }
}

/// Reads the targets of a Metamath set: `quick`, `all`, `train`, `held-out`, or a JSONL file.
///
/// # Errors
/// The set is unknown or its file is broken.
pub fn metamath_targets(system: &Metamath, set: &str) -> Result<Vec<Problem>> {
    let rule = SplitRule::default();
    let labels = |from: usize, to: usize| -> Result<Vec<Problem>> {
        let split = split(system.theory(), rule);
        let chosen = split.targets.iter().take(to).skip(from);
        let labels = chosen.map(|&t| system.theory().label(t));
        labels.map(|l| system.problem(l).with_context(|| format!("{l} is no theorem of the slice"))).collect()
    };
    match set {
        "quick" => labels(0, rule.quick),
        "all" => labels(0, rule.targets),
        "train" => labels(0, rule.targets - rule.held_out),
        "held-out" => labels(rule.targets - rule.held_out, rule.targets),
        set if LEAN_SETS.contains(&set) => {
            bail!(
                "the set `{set}` is one of Lean: set problems.system=lean, or choose quick, all, train or held-out"
            )
        }
        file => read_problems(system, Path::new(file)),
    }
}

#[derive(Deserialize)]
struct ProblemLine {
    id: String,
    statement: String,
    #[serde(default)]
    context: String,
}

/// Reads problems, one JSON object a line with `id`, `statement` and, if it is not all of the database, `context`. A
/// statement is canonical text or as it is printed.
///
/// # Errors
/// The file cannot be read, or a line is no problem: the error names it.
pub fn read_problems(system: &Metamath, path: &Path) -> Result<Vec<Problem>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // Editors of another system begin a file so.
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    let mut ids = HashSet::new();
    lines
        .map(|(i, line)| {
            let place = || format!("{}: line {} is no problem", path.display(), i + 1);
            let line: ProblemLine = serde_json::from_str(line).with_context(place)?;
            // Proofs find their problem by its id.
            if !ids.insert(line.id.clone()) {
                bail!("{}: line {}: the id `{}` stands above already", path.display(), i + 1, line.id);
            }
            system.problem_from_text(&line.id, &line.statement, &line.context).with_context(place)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_repeated_id_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.jsonl");
        let line = r#"{"id":"a","statement":"|- ( ph -> ph )","context":""}"#;
        std::fs::write(&path, format!("{line}\n\n{line}\n")).unwrap();
        let error = read_problems(&Metamath::shipped().unwrap(), &path).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("`a`"), "{error}");
    }

    #[test]
    fn a_name_is_no_part_of_what_is_said() {
        let lean = says(SystemName::Lean);
        let [one, other] = ["a (p : Prop)", "lemma_of.mine  (p :\n Prop)"]
            .map(|begin| lean(&format!("theorem {begin} : p → p := by")));
        assert_eq!(one, other);
        assert_ne!(one, lean("theorem a (p : Prop) : p → p ∧ p := by"));
        // Targets of set.mm that say the same, in variables of their own.
        let system = Metamath::shipped().unwrap();
        let said = ["( ph -> ph )", "( ch -> ch )"].map(|text| {
            says(SystemName::Metamath)(&system.problem_from_text("x", text, "").unwrap().statement)
        });
        assert_eq!(said[0], said[1]);
    }

    #[test]
    fn training_and_held_out_targets_are_all_of_them() {
        let system = Metamath::shipped().unwrap();
        let set = |name: &str| metamath_targets(&system, name).unwrap();
        let mut both = set("train");
        both.extend(set("held-out"));
        assert_eq!(both, set("all"));
        assert_eq!(set("held-out").len(), 200);
        assert!(METAMATH_SETS.iter().all(|set| is_shipped_set(set)) && !is_shipped_set("mine.jsonl"));
    }
}
