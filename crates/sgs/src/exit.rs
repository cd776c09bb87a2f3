//! How commands end: the exit codes, which scripts may rely on, and how an error is told.

use std::fmt::Write as _;
use std::process::ExitCode;

pub use sgs_run::{Code, Outcome, Usage};

/// The codes, for the end of `--help`.
pub fn help() -> String {
    let mut text = "Exit codes:".to_owned();
    for code in Code::ALL {
        let _ = write!(text, "\n  {:<4} {}", code as u8, code.meaning());
    }
    text
}

/// Prints an error with its causes and gives the exit code.
pub fn code_of(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => Code::Done.into(),
        Ok(Outcome::Failed) => Code::Failed.into(),
        Ok(Outcome::Interrupted) => Code::Interrupted.into(),
        Err(error) if is_broken_pipe(&error) => Code::Done.into(),
        Err(error) => {
            eprintln!("{}", told(&error));
            code_of_error(&error).into()
        }
    }
}

/// An error with its causes, one a line. An error's message never repeats its source, so nothing is told twice.
pub fn told(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}");
    for cause in error.chain().skip(1) {
        let _ = write!(text, "\n  because: {cause}");
    }
    text
}

fn code_of_error(error: &anyhow::Error) -> Code {
    let lost = error.chain().any(|c| matches!(c.downcast_ref(), Some(sgs_lm::LmError::Rank { .. })));
    match error.is::<Usage>() {
        true => Code::Usage,
        false if lost && sgs_run::seats::is_launched() => Code::RankLost,
        false => Code::Failed,
    }
}

/// Whoever reads our output has gone away, as `head` does: no failure of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|c| c.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    /// A cause is told even where the words above it happen to hold its own.
    #[test]
    fn every_cause_is_told_once_and_in_order() {
        let error = anyhow!("full").context("the disk is full of files").context("cannot publish round 3");
        assert_eq!(
            told(&error),
            "error: cannot publish round 3\n  because: the disk is full of files\n  because: full"
        );
        // An error of the libraries either explains what the system said or has it as its source.
        let missing = sgs_lm::ModelConfig::load(std::path::Path::new("no/such/folder"));
        let told = told(&anyhow::Error::from(missing.expect_err("there is no such folder")));
        assert_eq!(told.matches("os error 2").count(), 1, "{told}");
    }

    #[test]
    fn codes_are_documented() {
        let document = include_str!("../../../docs/configuration.md");
        for code in Code::ALL {
            let line = format!("| {} | {} |", code as u8, code.meaning());
            assert!(document.contains(&line), "docs/configuration.md lacks `{line}`");
        }
        assert_eq!(code_of_error(&Usage("no such key".into()).into()), Code::Usage);
        assert_eq!(code_of_error(&anyhow!("the disk is full")), Code::Failed);
    }
}
