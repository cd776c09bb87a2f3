//! `sgs external check`: checks the program of an external formal system.

use crate::args::ExternalCheckArgs;
use crate::exit::{Outcome, Usage};
use crate::model_source::{configuration, is_configuration};
use crate::output;
use anyhow::Result;
use serde::Deserialize;
use serde_json::json;
use sgs_external::conformance::{Check, CheckResult, ProvedProblem, conformance};
use sgs_formal::FormalSystem;
use sgs_run::config::{SystemName, folder, system};
use sgs_rundir::RunView;
use sgs_selfplay::{Problem, ProblemId};
use std::fs;
use std::path::Path;

/// Starts the program, performs all checks and prints their results.
pub fn run(args: &ExternalCheckArgs) -> Result<Outcome> {
    let name = args.run.display();
    let config = match is_configuration(&args.run) {
        true => configuration(&args.run, &args.set)?,
        false if args.set.is_empty() => folder::config_of(&RunView::open(&args.run)?)?,
        false => {
            return Err(Usage("--set cannot change the configuration of a run that exists".to_owned()).into());
        }
    };
    if config.problems.system != SystemName::External {
        return Err(Usage(format!("{name} has no `problems.system = \"external\"`")).into());
    }
    let problems = system::external_targets(&config.problems.set)?;
    let proved = args.proofs.as_deref().map(proofs).transpose()?.unwrap_or_default();
    let system = system::external(&config)?;
    let checks = conformance(&system, &problems, &proved);
    match args.json {
        true => output::json(&json!({ "system": system.identity(), "checks": checks }))?,
        false => output::line(as_text(&system.identity(), &checks))?,
    }
    let is_failed = checks.iter().any(|check| check.outcome == CheckResult::Failed);
    Ok(if is_failed { Outcome::Failed } else { Outcome::Done })
}

fn as_text(identity: &str, checks: &[Check]) -> String {
    let line = |check: &Check| {
        let outcome = match check.outcome {
            CheckResult::Ok => "ok",
            CheckResult::Warning => "warning",
            CheckResult::Failed => "FAILED",
        };
        format!("\n{outcome:<8} {:<18} {}", check.name, check.detail)
    };
    identity.to_owned() + &checks.iter().map(line).collect::<String>()
}

/// A line of a file of proofs; `sgs export` writes further fields.
#[derive(Deserialize)]
struct ProofLine {
    id: String,
    statement: String,
    #[serde(default)]
    context: String,
    proof: String,
}

fn proofs(path: &Path) -> Result<Vec<ProvedProblem>> {
    let text = fs::read_to_string(path).map_err(|e| Usage(format!("cannot read {}: {e}", path.display())))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            let read: ProofLine = serde_json::from_str(line)
                .map_err(|error| Usage(format!("{}: line {}: {error}", path.display(), i + 1)))?;
            let ProofLine { id, statement, context, proof } = read;
            let problem =
                Problem { id: ProblemId::new(id), statement: statement.into(), context: context.into() };
            Ok(ProvedProblem { problem, proof })
        })
        .collect()
}
