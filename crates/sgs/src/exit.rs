//! Exit codes, which scripts may rely on: 0 done, 1 failed, 2 usage, 130 interrupted.

use std::process::ExitCode;

pub use sgs_run::{Outcome, Usage};

/// Prints an error with its causes and gives the exit code.
pub fn code_of(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let mut told = error.to_string();
            eprintln!("error: {told}");
            for cause in error.chain().skip(1).map(ToString::to_string) {
                // Libraries often end their message with that of its cause.
                if !told.contains(&cause) {
                    eprintln!("  because: {cause}");
                    told = cause;
                }
            }
            let lost = error.chain().any(|c| matches!(c.downcast_ref(), Some(sgs_lm::LmError::Rank { .. })));
            match error.is::<Usage>() {
                true => ExitCode::from(2),
                false if lost && sgs_run::seats::is_launched() => ExitCode::from(sgs_run::seats::LOST),
                false => ExitCode::from(1),
            }
        }
    }
}

/// Whoever reads our output has gone away, as `head` does: no failure of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|c| c.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
