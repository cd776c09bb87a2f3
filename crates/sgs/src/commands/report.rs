//! `sgs report`: a page of figures and tables for a run, or for several side by side.

use crate::args::ReportArgs;
use crate::exit::Outcome;
use anyhow::Result;
use sgs_analysis::report::{self, ReportOptions};
use sgs_analysis::run::{Display, ReadOptions, read_run};
use sgs_formal::FormalSystem;
use sgs_metamath::system::Metamath;
use sgs_selfplay::{Problem, ProblemId};
use std::path::{Path, PathBuf};

/// Writes a report.
pub fn run(args: &ReportArgs) -> Result<Outcome> {
    let out = match (&args.out, args.runs.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [one]) => one.join("report"),
        (None, _) => PathBuf::from("report"),
    };
    crate::output::line(write_for(&args.runs, &out)?.display())?;
    Ok(Outcome::Done)
}

/// Statements and proofs as a formal system shows them.
pub struct Shown(pub Metamath);

impl Display for Shown {
    fn statement(&self, statement: &str) -> String {
        self.0.display_statement(statement)
    }

    fn proof(&self, statement: &str, context: &str, proof: &str) -> String {
        let problem =
            Problem { id: ProblemId::new("shown"), statement: statement.into(), context: context.into() };
        self.0.display_proof(&problem, proof)
    }
}

/// Writes the report of some runs into a folder; gives its page.
///
/// # Errors
/// A run cannot be read, or the folder cannot be written.
pub fn write_for(runs: &[PathBuf], out: &Path) -> Result<PathBuf> {
    let shown = Shown(Metamath::shipped()?);
    let options = ReadOptions { display: Some(&shown), ..ReadOptions::default() };
    let runs = runs.iter().map(|dir| Ok(read_run(dir, &options)?)).collect::<Result<Vec<_>>>()?;
    Ok(report::write(&runs, out, &ReportOptions::default())?.index)
}
