//! Refuses output files that would destroy the input of a command, or a file of a run.

use crate::exit::Usage;
use anyhow::Result;
use std::path::Path;

/// Checks that an output file is not one of the command's input files, also through a symbolic link.
pub fn check_is_no_input(option: &str, out: &Path, inputs: &[&Path]) -> Result<()> {
    let Ok(out) = out.canonicalize() else { return Ok(()) };
    match inputs.iter().find(|input| input.canonicalize().is_ok_and(|input| input == out)) {
        None => Ok(()),
        Some(input) => {
            let input = input.display();
            Err(Usage(format!("{option} names the input {input}, which would be overwritten")).into())
        }
    }
}

/// Checks that an output file does not replace a file of a run. Files in the run's folder `report` may be replaced.
pub fn check_is_not_of_run(option: &str, out: &Path, run: &Path) -> Result<()> {
    let (Ok(file), Ok(run)) = (out.canonicalize(), run.canonicalize()) else { return Ok(()) };
    if !file.starts_with(&run) || file.starts_with(run.join("report")) {
        return Ok(());
    }
    Err(Usage(format!("{option} names {}, a file of the run: choose another name", out.display())).into())
}
