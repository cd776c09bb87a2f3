//! The integration tests of this crate, in one binary.
// Tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod checks;
mod example;
mod hostile;

use sgs_external::{External, ExternalSettings, Fault};
use sgs_selfplay::{Problem, ProblemId};

fn problem(statement: &str) -> Problem {
    Problem { id: ProblemId::new("p"), statement: statement.into(), context: "".into() }
}

fn settings(command: &[&str]) -> ExternalSettings {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    ExternalSettings { command, timeout_s: 60.0, ..ExternalSettings::default() }
}

fn start(settings: ExternalSettings) -> Result<External, Fault> {
    External::start(settings)
}
