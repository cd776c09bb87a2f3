//! `sgs export`: the theorems that a run has proved, for other programs.

use crate::args::{ExportArgs, Exported};
use crate::exit::{Outcome, Usage};
use crate::output;
use crate::shown::Shown;
use crate::theorems::{self, Open, Theorem};
use anyhow::{Context, Result};
use serde_json::json;
use sgs_analysis::run::Display as _;
use sgs_formal::FormalSystem;
use sgs_metamath::export::{ExportError, Exporter};
use sgs_metamath::system::Metamath;
use sgs_run::config::SystemName;
use sgs_run::folder;
use sgs_rundir::rows::ProblemKind;
use sgs_rundir::{RunView, files};
use std::path::Path;

/// Writes the theorems of a run.
pub fn run(args: &ExportArgs) -> Result<Outcome> {
    let view = RunView::open(&args.dir)?;
    let name = folder::config_of(&view)?.problems.system;
    let lines = args.jsonl.as_deref().unwrap_or(Path::new("-"));
    let wanted = |theorem: &Theorem| match args.only {
        None | Some(Exported::Unsolved) => true,
        Some(Exported::Targets) => theorem.kind == ProblemKind::Target,
        Some(Exported::Conjectures) => theorem.kind == ProblemKind::Conjecture,
    };
    let select = |steps: &dyn Fn(&str) -> u32| -> Result<Vec<Theorem>> {
        let mut all = theorems::proved(&view, steps)?;
        all.retain(wanted);
        Ok(all)
    };
    if args.only == Some(Exported::Unsolved) {
        if args.mm.is_some() {
            return Err(Usage("--only unsolved has no proofs for --mm: give --jsonl".to_owned()).into());
        }
        return open_as_lines(&theorems::unsolved(&view)?, name, lines);
    }
    match (&args.mm, name) {
        (Some(_), SystemName::Lean) => {
            Err(Usage("--mm is for Metamath, and this is a run of Lean: give --jsonl".to_owned()).into())
        }
        (Some(file), SystemName::Metamath) => {
            let system = Metamath::shipped()?;
            as_database(&system, &select(&|proof| system.proof_steps(proof))?, file)
        }
        (None, _) => {
            let shown = Shown::of(name)?;
            let theorems = select(&|proof| shown.steps(proof))?;
            as_lines(&theorems, name, &shown, lines)
        }
    }
}

/// A database that any Metamath verifier can check: the slice, and the theorems behind it. Each is judged again.
fn as_database(system: &Metamath, theorems: &[Theorem], file: &Path) -> Result<Outcome> {
    let mut exporter = Exporter::create(system.theory(), file)?;
    let mut left_out = 0;
    for theorem in theorems {
        let id = &theorem.problem.id;
        let (goal, ops) = system
            .proof_operations(&theorem.problem, &theorem.proof)
            .map_err(|reason| anyhow::anyhow!("{reason}"))
            .with_context(|| format!("the proof of {id} in round {} does not hold here", theorem.round))?;
        match exporter.add(id.as_str(), &about(theorem), &goal, &ops) {
            Ok(_) => {}
            Err(error @ ExportError::Io { .. }) => return Err(error.into()),
            Err(error) => {
                left_out += 1;
                eprintln!("{id} is left out: {error}");
            }
        }
    }
    let written = exporter.finish()?;
    eprintln!("{written} theorems, each judged again, behind the slice of set.mm: {}", file.display());
    eprintln!("check them: metamath \"read '{}'\" \"verify proof *\" exit", file.display());
    Ok(if left_out == 0 { Outcome::Done } else { Outcome::Failed })
}

/// Where a theorem comes from.
fn about(theorem: &Theorem) -> String {
    match &theorem.target {
        None => format!("Target {}, proved in round {}.", theorem.problem.id, theorem.round),
        Some(target) => format!("Invented for {target}, proved in round {}.", theorem.round),
    }
}

/// One JSON object a line, as `sgs verify` reads them.
fn as_lines(theorems: &[Theorem], system: SystemName, shown: &Shown, file: &Path) -> Result<Outcome> {
    let context = context_of(system);
    let mut text = String::new();
    for theorem in theorems {
        let problem = &theorem.problem;
        let line = json!({
            "id": problem.id, context: problem.context, "statement": problem.statement, "proof": theorem.proof,
            "found": {
                "kind": theorem.kind.name(), "target": theorem.target, "round": theorem.round,
                "steps": theorem.steps, "printed": shown.statement(&problem.statement),
            },
        });
        text.push_str(&format!("{line}\n"));
    }
    write(&text, file, &format!("{} theorems", theorems.len()))
}

/// One JSON object a line, as `problems.set` reads them.
fn open_as_lines(targets: &[Open], system: SystemName, file: &Path) -> Result<Outcome> {
    let context = context_of(system);
    let mut text = String::new();
    for Open { problem, judged } in targets {
        let line = json!({
            "id": problem.id, context: problem.context, "statement": problem.statement,
            "tried": { "judged": judged },
        });
        text.push_str(&format!("{line}\n"));
    }
    write(&text, file, &format!("{} targets that were tried and not proved", targets.len()))
}

/// What a data set calls the text that a problem stands under.
fn context_of(system: SystemName) -> &'static str {
    match system {
        SystemName::Metamath => "context",
        SystemName::Lean => "header",
    }
}

fn write(text: &str, file: &Path, what: &str) -> Result<Outcome> {
    if file == Path::new("-") {
        output::text(text)?;
    } else {
        files::write_file(file, text.as_bytes())?;
        eprintln!("{what}: {}", file.display());
    }
    Ok(Outcome::Done)
}
