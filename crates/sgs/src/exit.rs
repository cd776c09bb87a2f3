//! Exit codes, which scripts may rely on, and the output of errors.

use std::fmt::Write as _;
use std::process::ExitCode;

use sgs_keys::FileError;
pub use sgs_run::{Code, Outcome, RunError, Usage};

/// Returns the exit codes with their meanings, for `--help`.
pub fn help() -> String {
    let mut text = "Exit codes:".to_owned();
    for code in Code::ALL {
        let _ = write!(text, "\n  {:<4} {}", code as u8, code.meaning());
    }
    text
}

/// Prints an error with its causes and returns the exit code.
pub fn code_of(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => Code::Done.into(),
        Ok(Outcome::Failed) => Code::Failed.into(),
        Ok(Outcome::Interrupted) => Code::Interrupted.into(),
        Err(error) if is_broken_pipe(&error) => Code::Done.into(),
        Err(error) => {
            eprintln!("{}", format_error(&error));
            code_of_error(&error).into()
        }
    }
}

/// Converts an error about the arguments, or about a file that they name, to a usage error with all its causes.
pub fn usage(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Usage(format!("{:#}", error.into())).into()
}

/// Prints help, the version or a usage error, and returns the exit code.
pub fn code_of_parse_error(error: &clap::Error) -> ExitCode {
    // A closed output is not an error, because the exit code is still correct.
    let _ = error.print();
    if error.use_stderr() { Code::Usage.into() } else { Code::Done.into() }
}

/// Formats an error with its causes, one per line. No message repeats its source, so no cause appears twice.
pub fn format_error(error: &anyhow::Error) -> String {
    format_error_at("", error)
}

/// Formats an error like [`format_error`], after its place in the input, such as `line 3: `.
pub fn format_error_at(place: &str, error: &anyhow::Error) -> String {
    let mut text = format!("error: {place}{error}");
    for cause in error.chain().skip(1) {
        let _ = write!(text, "\n  because: {cause}");
    }
    text
}

fn code_of_error(error: &anyhow::Error) -> Code {
    let lost = error.chain().any(|c| matches!(c.downcast_ref(), Some(sgs_lm::LmError::Rank { .. })));
    let is_unusable = error.downcast_ref().is_some_and(sgs_rundir::Error::is_unusable);
    let code = match error.downcast_ref::<RunError>() {
        Some(error) => error.code(),
        _ if is_unusable || error.is::<Usage>() || error.is::<FileError>() => Code::Usage,
        _ if lost => Code::RankLost,
        _ => Code::Failed,
    };
    // Only the launcher of a rank understands this code.
    if code == Code::RankLost && !sgs_run::train::launcher::is_launched() { Code::Failed } else { code }
}

/// Returns whether the reader of the output has closed it, as `head` does. That is not a failure.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|c| c.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    /// Checks that a cause is printed even if the message above happens to contain its text.
    #[test]
    fn every_cause_is_printed_once_in_order() {
        let error = anyhow!("full").context("the disk is full of files").context("cannot publish round 3");
        assert_eq!(
            format_error(&error),
            "error: cannot publish round 3\n  because: the disk is full of files\n  because: full"
        );
        // A library's error either contains the system's error or has it as its source.
        let missing = sgs_lm::ModelConfig::load(std::path::Path::new("no/such/folder"));
        let told = format_error(&anyhow::Error::from(missing.expect_err("there is no such folder")));
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
