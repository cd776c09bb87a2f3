//! `sgs report`: writes a page of figures and tables for one or several runs.

use crate::args::ReportArgs;
use crate::display::TextDisplay;
use crate::exit::Outcome;
use crate::terminal::{Tone, paint};
use anyhow::Result;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::fit::{Cut, FitOptions};
use sgs_analysis::report;
use sgs_analysis::run::{RunData, read_run};
use sgs_rundir::RunView;
use std::fmt::Display;
use std::path::{Path, PathBuf};

pub fn run(args: &ReportArgs) -> Result<Outcome> {
    let runs = crate::run_folder::expanded(&args.runs);
    let out = match (&args.out, args.runs.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [one]) => one.join("report"),
        (None, _) => PathBuf::from("report"),
    };
    let mut fit = FitOptions::default();
    if let Some(cut) = args.cut {
        fit.cut = Cut::At(cut);
    }
    let options = FigureOptions { fit, yardsticks: args.yardsticks.clone() };
    let (page, outcome) = write_for(&runs, &out, &options)?;
    crate::output::line(page.display())?;
    Ok(outcome)
}

/// Writes the report of runs into a folder and returns the path of its page. Warns of each damaged file; the outcome is
/// then a failure.
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
