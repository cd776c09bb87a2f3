//! Starts Lean in its sandbox.

use crate::Usage;
use crate::error::{Context, Result};
use sgs_lean::{Lean, LeanSettings, PreparedLean, SettingsError};
use std::ffi::OsString;
use std::process::ExitCode;

/// First argument that makes this program enter the sandbox and execute another program. It is internal and does not
/// appear in the command-line help.
const SANDBOX: &str = "lean-sandbox";

/// Enters the sandbox if this process was started as its launcher. Returns `None` if it was not, and an exit code if
/// entering fails.
pub fn become_sandboxed() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == SANDBOX).then(|| ExitCode::from(sgs_lean::sandbox::run_launcher(args)))
}

/// Returns the command of the sandbox launcher: this program with `SANDBOX`.
pub fn launcher() -> Result<Vec<OsString>> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    Ok(vec![program.into_os_string(), SANDBOX.into()])
}

/// Checks that Lean can be started: it is installed, and a required sandbox is complete.
pub fn check(settings: &LeanSettings) -> Result<()> {
    prepare(settings).map(drop)
}

fn prepare(settings: &LeanSettings) -> Result<PreparedLean> {
    match settings.prepare(&launcher()?) {
        Err(error @ SettingsError::Folder { .. }) => Err(error.into()),
        prepared => Ok(prepared.map_err(Usage::of)?),
    }
}

/// Starts Lean. Also returns notes for the user on the state of the sandbox, one line each.
///
/// # Errors
/// Returns an error if Lean is not installed, if the sandbox is required but incomplete, or if a process cannot be
/// started.
pub fn start(settings: &LeanSettings) -> Result<(Lean, Vec<String>)> {
    let prepared = prepare(settings)?;
    let slots = prepared.config.slots;
    let mut notes = Vec::new();
    if prepared.sandbox.is_empty() {
        notes
            .push("warning: Lean runs without a sandbox: a proof can read and write what you can".to_owned());
    }
    for layer in &prepared.sandbox {
        let state = if layer.active { "" } else { " NOT in force:" };
        notes.push(format!("sandbox: {:?}:{state} {}", layer.layer, layer.detail));
    }
    let lean = prepared.start()?;
    notes.push(format!("{}, {slots} slots", lean.identity().version.text));
    Ok((lean, notes))
}
