//! `sgs doctor`: what of this machine sgs can use, and how to get the rest.

mod gpu;
mod home;
mod lean;
mod lookup;
mod run;
mod slurm;

pub use run::read_whole;

use crate::args::DoctorArgs;
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use serde::Serialize;
use serde_json::json;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// There and usable.
    Ok,
    /// Usable, with something to know.
    Warning,
    /// Not there; nothing is wrong with that.
    Absent,
    /// There and not usable.
    Broken,
}

impl State {
    fn mark(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warning => "note",
            State::Absent => "--",
            State::Broken => "BAD",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
struct Check {
    name: String,
    state: State,
    /// What was found, or where it was looked for.
    found: String,
    /// What to do about it; empty where there is nothing to do.
    advice: String,
}

impl Check {
    fn new(
        name: impl Into<String>,
        state: State,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), state, found: found.into(), advice: advice.into() }
    }

    fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(name, State::Ok, found, "")
    }
}

/// A part of sgs with what it needs.
#[derive(Clone, Debug, Serialize)]
struct Area {
    /// `metamath`, `gpu`, `lean` or `slurm`; or `run`.
    name: &'static str,
    purpose: &'static str,
    /// Whether it can be used here.
    usable: bool,
    /// What was looked at.
    checks: Vec<Check>,
}

/// Looks at everything, or at one run; fails only if what every run needs does not work, or something of the run is damaged.
pub fn run(args: &DoctorArgs) -> Result<Outcome> {
    let areas = match &args.run {
        Some(folder) => vec![run::area(folder)?],
        None => vec![home::area(args), gpu::area(), lean::area(args), slurm::area()],
    };
    if args.json {
        output::json(&json!({ "version": env!("CARGO_PKG_VERSION"), "areas": areas }))?;
    } else {
        output::line(text(&areas))?;
    }
    let works = areas.first().is_some_and(|first| first.usable);
    Ok(if works { Outcome::Done } else { Outcome::Failed })
}

/// What a run on GPUs lacks here, each as a name and what was found in its place; empty if nothing.
pub fn gpu_lacks() -> Vec<(String, String)> {
    let area = gpu::area();
    if area.usable {
        return Vec::new();
    }
    let lacks =
        area.checks.into_iter().filter(|c| c.state != State::Ok && !matches!(&*c.name, "NCCL" | "looked in"));
    lacks.map(|c| (c.name, c.found)).collect()
}

/// Whether a program is not on the PATH.
pub fn lacks_program(name: &str) -> bool {
    lookup::program(name, &[]).is_none()
}

fn text(areas: &[Area]) -> String {
    let mut out = format!("sgs {}\n", env!("CARGO_PKG_VERSION"));
    for area in areas {
        let state = match (area.name, area.usable) {
            (run::NAME, true) => "sound",
            (run::NAME, false) => "damaged",
            (_, true) => "usable",
            (_, false) => "not usable here",
        };
        out.push_str(&format!("\n{} ({}): {state}\n", area.name, area.purpose));
        let width = area.checks.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
        for check in &area.checks {
            out.push_str(&format!("  {:<4}  {:<width$}  {}\n", check.state.mark(), check.name, check.found));
            if !check.advice.is_empty() {
                out.push_str(&format!("        {:<width$}  -> {}\n", "", check.advice));
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}
