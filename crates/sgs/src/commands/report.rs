//! `sgs report`: writes a page of figures and tables for one or several runs.

use crate::args::ReportArgs;
use crate::display::TextDisplay;
use crate::exit::{Outcome, Usage};
use crate::run_folder;
use crate::terminal::{Tone, paint};
use anyhow::Result;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::fit::{Cut, FitOptions};
use sgs_analysis::report;
use sgs_analysis::run::{RunData, read_run};
use sgs_rundir::RunView;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Writes a report.
pub fn run(args: &ReportArgs) -> Result<Outcome> {
    run_folder::check("report", &args.runs)?;
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
    let (page, outcome) = write_for(&args.runs, &out, &options)?;
    crate::output::line(page.display())?;
    Ok(outcome)
}

/// Returns the index of a folder among the runs.
fn position(given: &Path, runs: &[PathBuf]) -> Result<usize> {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let found = runs.iter().position(|run| whole(run) == whole(given));
    let names: Vec<String> = runs.iter().map(|r| r.display().to_string()).collect();
    let (given, names) = (given.display(), names.join(", "));
    found.ok_or_else(|| {
        Usage(format!("--baseline {given} is not one of the runs of this report: {names}")).into()
    })
}

/// Writes the report of runs into a folder and returns the path of its page. Warns of each damaged file; the outcome is
/// then a failure.
///
/// # Errors
/// Returns an error if a run cannot be read or the folder cannot be written.
pub fn write_for(runs: &[PathBuf], out: &Path, options: &FigureOptions) -> Result<(PathBuf, Outcome)> {
    let mut outcome = Outcome::Done;
    let mut read = |dir: &PathBuf| -> Result<RunData> {
        let shown = TextDisplay::of_run(dir)?;
        let missing = RunView::open(dir)?.missing_round().map(|error| error.to_string());
        let run = read_run(dir, Some(&shown))?;
        for damage in missing.iter().chain(&run.damages) {
            warn(damage);
            outcome = Outcome::Failed;
        }
        Ok(run)
    };
    let runs = runs.iter().map(&mut read).collect::<Result<Vec<_>>>()?;
    Ok((report::write(&runs, out, options)?.index, outcome))
}

/// Prints a warning to standard error.
pub fn warn(text: impl Display) {
    eprintln!("{} {text}", paint(Tone::Bad, "warning:"));
}
