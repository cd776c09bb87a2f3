//! `sgs doctor`: checks which features this machine supports, and how to set up the rest.

mod gpu;
mod home;
mod lean;
mod lookup;
mod run;
mod slurm;

pub use run::read_whole;

use crate::args::DoctorArgs;
use crate::exit::Outcome;
use crate::terminal::columns;
use crate::{output, wrap};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::io::IsTerminal as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum CheckState {
    Ok,
    /// Usable, with a note.
    Warning,
    /// It is not installed, which is not an error.
    Absent,
    /// Installed, but not usable.
    Broken,
}

impl CheckState {
    fn mark(self) -> &'static str {
        match self {
            CheckState::Ok => "ok",
            CheckState::Warning => "note",
            CheckState::Absent => "--",
            CheckState::Broken => "bad",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Check {
    name: String,
    state: CheckState,
    found: String,
    /// The remedy; empty if none is needed.
    advice: String,
}

impl Check {
    fn new(
        name: impl Into<String>,
        state: CheckState,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), state, found: found.into(), advice: advice.into() }
    }

    fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(name, CheckState::Ok, found, "")
    }
}

#[derive(Clone, Debug, Serialize)]
struct Area {
    /// `metamath`, `gpu`, `lean` or `slurm`; or `run`.
    name: &'static str,
    purpose: &'static str,
    usable: bool,
    checks: Vec<Check>,
}

/// Checks the machine, or one run. Fails only if the embedded default does not work, or if the run is damaged.
pub fn run(args: &DoctorArgs) -> Result<Outcome> {
    let areas = match &args.run {
        Some(folder) => {
            crate::run_folder::check("sgs doctor", folder)?;
            vec![run::area(folder)?]
        }
        None => vec![home::area(args), gpu::area(), lean::area(args), slurm::area()],
    };
    if args.json {
        output::json(&json!({ "version": env!("CARGO_PKG_VERSION"), "areas": areas }))?;
    } else {
        let columns = if std::io::stdout().is_terminal() { columns() } else { usize::MAX };
        output::line(text(&areas, columns))?;
    }
    let works = areas.first().is_some_and(|first| first.usable);
    Ok(if works { Outcome::Done } else { Outcome::Failed })
}

/// Returns the missing requirements of runs on GPUs: name, and what was found instead.
pub fn missing_gpu_requirements() -> Vec<(String, String)> {
    let area = gpu::area();
    if area.usable {
        return Vec::new();
    }
    let lacks = area.checks.into_iter().filter(|c| c.state != CheckState::Ok && c.name != "NCCL");
    lacks.map(|c| (c.name, c.found)).collect()
}

pub use slurm::controller as slurm_controller;

pub fn lacks_program(name: &str) -> bool {
    lookup::program(name).is_none()
}

/// Formats the checks for a number of columns.
fn text(areas: &[Area], columns: usize) -> String {
    let mut out = format!("sgs {}\n", env!("CARGO_PKG_VERSION"));
    for area in areas {
        let state = match (area.name, area.usable) {
            (run::NAME, true) => "no damage found",
            (run::NAME, false) => "damaged",
            (_, true) => "usable",
            (_, false) => "not usable here",
        };
        out.push_str(&format!("\n{} ({}): {state}\n", area.name, area.purpose));
        let width = area.checks.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
        // Long names would leave too few columns.
        let indent = if width + 10 > columns / 2 { 10 } else { width + 10 };
        for check in &area.checks {
            let found = format!("  {:<4}  {:<width$}  {}", check.state.mark(), check.name, check.found);
            let advice = format!("{:indent$}-> {}", "", check.advice);
            for line in [Some(found), Some(advice).filter(|_| !check.advice.is_empty())].into_iter().flatten()
            {
                out.push_str(&(wrap::wrapped(&line, columns, indent) + "\n"));
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_broken_between_words() {
        let area = |name| {
            let check = Check::new(name, CheckState::Absent, "no such folder here", "sgs lean setup");
            Area { name: "lean", purpose: "problems", usable: false, checks: vec![check] }
        };
        let lines = |name, columns| -> Vec<String> {
            text(&[area(name)], columns).lines().skip(3).map(str::to_owned).collect()
        };
        let whole = ["  --    Lean  no such folder here", "              -> sgs lean setup"];
        assert_eq!(lines("Lean", usize::MAX), whole);
        let broken =
            ["  --    Lean  no such folder", "              here", "              -> sgs lean setup"];
        assert_eq!(lines("Lean", 32), broken);
        // A long name does not push the advice to the right.
        let long =
            ["  --    Lean with Mathlib  no", "          such folder here", "          -> sgs lean setup"];
        assert_eq!(lines("Lean with Mathlib", 30), long);
    }
}
