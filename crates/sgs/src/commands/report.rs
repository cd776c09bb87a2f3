//! `sgs report`: writes a page of figures and tables for one or several runs.

use crate::args::ReportArgs;
use crate::display::TextDisplay;
use crate::exit::Outcome;
use crate::terminal::{Tone, paint};
use anyhow::{Context, Result};
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::fit::{Cut, FitOptions};
use sgs_analysis::report;
use sgs_analysis::run::{RunData, read_run};
use sgs_rundir::RunView;
use std::path::{Path, PathBuf};

/// Writes a report.
pub fn run(args: &ReportArgs) -> Result<Outcome> {
    let out = match (&args.out, args.runs.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [one]) => one.join("report"),
        (None, _) => PathBuf::from("report"),
    };
    let mut fit = FitOptions::default();
    if let Some(cut) = args.cut {
        fit.cut = Cut::At(cut);
    }
    let baseline = args.baseline.as_deref().map(|given| position(given, &args.runs)).transpose()?;
    let options = FigureOptions { fit, yardsticks: args.yardsticks.clone(), baseline };
    crate::output::line(write_for(&args.runs, &out, &options)?.display())?;
    Ok(Outcome::Done)
}

/// Returns the index of a folder among the runs.
fn position(given: &Path, runs: &[PathBuf]) -> Result<usize> {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let found = runs.iter().position(|run| whole(run) == whole(given));
    found.with_context(|| {
        let names: Vec<String> = runs.iter().map(|r| r.display().to_string()).collect();
        format!("--baseline {} is not one of the runs of this report: {}", given.display(), names.join(", "))
    })
}

/// Writes the report of runs into a folder and returns the path of its page.
///
/// # Errors
/// Returns an error if a run cannot be read or the folder cannot be written.
pub fn write_for(runs: &[PathBuf], out: &Path, options: &FigureOptions) -> Result<PathBuf> {
    let read = |dir: &PathBuf| -> Result<RunData> {
        let shown = TextDisplay::of_run(dir)?;
        if let Some(error) = RunView::open(dir)?.missing_round() {
            eprintln!("{} {error}", paint(Tone::Bad, "warning:"));
        }
        Ok(read_run(dir, Some(&shown))?)
    };
    let runs = runs.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(report::write(&runs, out, options)?.index)
}
