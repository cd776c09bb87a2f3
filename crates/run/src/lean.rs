//! Starting Lean: the sandbox's launcher, and what guards the checker.

use anyhow::{Context, Result};
use sgs_lean::{Lean, LeanSettings};
use std::ffi::OsString;
use std::process::ExitCode;

/// First argument that makes this program enter the sandbox and become another one. Not for people, and not on the
/// command line's help.
const SANDBOX: &str = "lean-sandbox";

/// Enters the sandbox if this process was started for that; returns only if it was not, or if that fails.
pub fn become_sandboxed() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == SANDBOX).then(|| ExitCode::from(sgs_lean::sandbox::run_launcher(args)))
}

/// The launcher of the sandbox: this program with [`SANDBOX`].
///
/// # Errors
/// The system does not tell where this program is.
pub fn launcher() -> Result<Vec<OsString>> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    Ok(vec![program.into_os_string(), SANDBOX.into()])
}

/// Starts Lean; gives it with what a person should know of what guards it, a line each.
///
/// # Errors
/// Lean is not there, the sandbox has a hole and is required, or no process can be started.
pub fn start(settings: &LeanSettings) -> Result<(Lean, Vec<String>)> {
    let prepared = settings.prepare(&launcher()?)?;
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
