//! Finds programs and queries their version.

use sgs_base::command::{self, CommandOutput};
use sgs_base::excerpt;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Finds a program on the `PATH`.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|dir| dir.join(name)).find(|p| is_executable(p))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Returns the standard output of a program; `None` if it is empty or [`run`] fails.
pub fn ask(program: &Path, args: &[&str]) -> Option<String> {
    run(program, args).ok().filter(|text| !text.is_empty())
}

/// Runs a program that prints a few lines, and returns its standard output.
/// Returns the reason if the program cannot be started, fails, or takes longer than five seconds.
pub fn run(program: &Path, args: &[&str]) -> Result<String, String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let mut query = Command::new(program);
    query.args(args);
    let CommandOutput { status, out, err } = command::run(query, "", PATIENCE)?;
    match status.success() {
        true => Ok(out.trim().to_owned()),
        false => Err(format!("{status}: {}", excerpt::beginning_of(err.lines().next().unwrap_or_default()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_the_execute_permission_is_not_a_program() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("sgs-no-program"), "").unwrap();
        assert_eq!(program("sgs-no-program"), None);
    }
}
