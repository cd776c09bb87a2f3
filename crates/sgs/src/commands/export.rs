//! `sgs export`: exports the theorems that a run has proved.

use super::report::warn;
use crate::args::{ExportArgs, Exported};
use crate::display::TextDisplay;
use crate::exit::{Outcome, Usage};
use crate::output;
use crate::output_file::check_is_not_of_run;
use crate::theorems::{self, ProvedTheorem, UnsolvedTarget};
use anyhow::{Context, Result};
use serde_json::json;
use sgs_analysis::run::StatementDisplay as _;
use sgs_formal::FormalSystem;
use sgs_metamath::export::{ExportError, Exporter};
use sgs_metamath::system::Metamath;
use sgs_run::config::SystemName;
use sgs_run::config::folder;
use sgs_run::config::system::metamath_database;
use sgs_rundir::rows::ProblemKind;
use sgs_rundir::{RunView, files};
use std::path::Path;

pub fn run(args: &ExportArgs) -> Result<Outcome> {
    crate::run_folder::check("sgs export", &args.dir)?;
    let view = RunView::open(&args.dir)?;
    for (option, file) in [("--mm", &args.mm), ("--jsonl", &args.jsonl)] {
        if let Some(file) = file {
            check_is_not_of_run(option, file, &args.dir)?;
        }
    }
    let config = folder::config_of(&view)?;
    folder::check_system(view.path(), &config)?;
    let problems = config.problems;
    let name = problems.system;
    let lines = args.jsonl.as_deref().unwrap_or(Path::new("-"));
    let wanted = |kind| match args.only {
        None | Some(Exported::Unsolved) => true,
        Some(Exported::Targets) => kind == ProblemKind::Target,
        Some(Exported::Conjectures) => kind == ProblemKind::Conjecture,
    };
    let select = |steps: &(dyn Fn(&str) -> u32 + Sync)| theorems::proved(&view, wanted, steps);
    if args.only == Some(Exported::Unsolved) && args.mm.is_some() {
        return Err(Usage("unsolved targets have no proofs: use --jsonl instead of --mm".to_owned()).into());
    }
    let missing = view.missing_round();
    missing.iter().for_each(warn);
    let outcome = match (&args.mm, name) {
        _ if args.only == Some(Exported::Unsolved) => open_as_lines(&theorems::unsolved(&view)?, name, lines),
        (Some(_), SystemName::Lean | SystemName::External) => Err(Usage(
            "--mm needs a Metamath run, and this is a run of another system: use --jsonl".to_owned(),
        )
        .into()),
        (Some(file), SystemName::Metamath) => {
            let system = metamath_database(&problems.database)?;
            as_database(&system, &select(&|proof| system.proof_steps(proof))?, file)
        }
        (None, _) => {
            let shown = TextDisplay::of(&problems)?;
            let theorems = select(&|proof| shown.steps(proof))?;
            as_lines(&theorems, name, &shown, lines)
        }
    }?;
    Ok(if missing.is_some() { Outcome::Failed } else { outcome })
}

/// Writes a Metamath database: the run's, followed by the theorems. Verifies each theorem again.
fn as_database(system: &Metamath, theorems: &[ProvedTheorem], file: &Path) -> Result<Outcome> {
    let mut exporter = Exporter::create(system.theory(), file)?;
    let mut left_out = 0;
    for theorem in theorems {
        let id = &theorem.problem.id;
        let (goal, ops) = system
            .proof_operations(&theorem.problem, &theorem.proof)
            .map_err(|reason| anyhow::anyhow!("{reason}"))
            .with_context(|| format!("the proof of {id} in round {} is not valid here", theorem.round))?;
        match exporter.add(id.as_str(), &about(theorem), &goal, &ops) {
            Ok(_) => {}
            Err(error @ ExportError::Io { .. }) => return Err(error.into()),
            Err(error) => {
                left_out += 1;
                eprintln!("skipped {id}: {error}");
            }
        }
    }
    let written = exporter.finish()?;
    let theorems = output::counted(written as usize, "theorem");
    eprintln!("exported {theorems}, each verified again, to {}", file.display());
    eprintln!("to check them: metamath \"read '{}'\" \"verify proof *\" exit", file.display());
    Ok(if left_out == 0 { Outcome::Done } else { Outcome::Failed })
}

/// Returns the comment on the origin of a theorem.
fn about(theorem: &ProvedTheorem) -> String {
    match &theorem.target {
        None => format!("Target {}, proved in round {}.", theorem.problem.id, theorem.round),
        Some(target) => format!("Conjectured for {target}, proved in round {}.", theorem.round),
    }
}

/// Writes one JSON object per line, in the input format of `sgs verify`.
fn as_lines(
    theorems: &[ProvedTheorem],
    system: SystemName,
    shown: &TextDisplay,
    file: &Path,
) -> Result<Outcome> {
    let context = context_of(system);
    let mut text = String::new();
    for theorem in theorems {
        let problem = &theorem.problem;
        let line = json!({
            "id": problem.id, context: problem.context, "statement": problem.statement, "proof": theorem.proof,
            "found": {
                "kind": theorem.kind, "target": theorem.target, "round": theorem.round,
                "steps": theorem.steps, "printed": shown.statement(&problem.statement),
            },
        });
        text.push_str(&format!("{line}\n"));
    }
    write(&text, file, &output::counted(theorems.len(), "theorem"))
}

/// Writes one JSON object per line, in the format of `problems.set`.
fn open_as_lines(targets: &[UnsolvedTarget], system: SystemName, file: &Path) -> Result<Outcome> {
    let context = context_of(system);
    let mut text = String::new();
    for UnsolvedTarget { problem, judged } in targets {
        let line = json!({
            "id": problem.id, context: problem.context, "statement": problem.statement,
            "tried": { "judged": judged },
        });
        text.push_str(&format!("{line}\n"));
    }
    write(&text, file, &output::counted(targets.len(), "unsolved target"))
}

/// Returns the JSON key of a problem's context.
fn context_of(system: SystemName) -> &'static str {
    match system {
        SystemName::Metamath | SystemName::External => "context",
        SystemName::Lean => "header",
    }
}

fn write(text: &str, file: &Path, what: &str) -> Result<Outcome> {
    if file == Path::new("-") {
        output::text(text)?;
    } else {
        files::write_file(file, text.as_bytes())?;
        eprintln!("exported {what} to {}", file.display());
    }
    Ok(Outcome::Done)
}
