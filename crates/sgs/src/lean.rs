//! Lean as the command line names it: settings, the sandbox's launcher, the start.

use crate::args::{LeanArgs, LeanChecker};
use anyhow::{Context, Result};
use sgs_lean::{Backing, Lean, LeanSettings};
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

/// The settings of a file, and what the command line says besides.
///
/// # Errors
/// The file cannot be read, or has an unknown key or a wrong value.
pub fn settings(args: &LeanArgs) -> Result<LeanSettings> {
    settings_over(LeanSettings::default(), args)
}

/// The same over settings that come from elsewhere; a file replaces them whole.
///
/// # Errors
/// As [`settings`].
pub fn settings_over(base: LeanSettings, args: &LeanArgs) -> Result<LeanSettings> {
    let mut settings = match &args.lean {
        None => base,
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read Lean's settings {}", path.display()))?;
            toml::from_str(&text).with_context(|| format!("in {}", path.display()))?
        }
    };
    if let Some(checker) = args.lean_checker {
        settings.backing = match checker {
            LeanChecker::Repl => Backing::Repl,
            LeanChecker::File => Backing::File,
            LeanChecker::Wasm => Backing::Wasm,
        };
    }
    if let Some(root) = &args.lean_root {
        settings.root.clone_from(root);
    }
    if let Some(version) = &args.lean_version {
        settings.version.clone_from(version);
    }
    if let Some(slots) = args.lean_slots {
        settings.slots = slots.max(1);
    }
    settings.require_sandbox |= args.require_sandbox;
    Ok(settings)
}

/// Starts Lean and says on standard error what guards it.
///
/// # Errors
/// Lean is not there, the sandbox has a hole and is required, or no process can be started.
pub fn start(settings: &LeanSettings) -> Result<Lean> {
    let prepared = settings.prepare(&launcher()?)?;
    let slots = prepared.config.slots;
    if prepared.sandbox.is_empty() {
        eprintln!("warning: Lean runs without a sandbox: a proof can read and write what you can");
    }
    for layer in &prepared.sandbox {
        let state = if layer.active { "" } else { " NOT in force:" };
        eprintln!("sandbox: {:?}:{state} {}", layer.layer, layer.detail);
    }
    let lean = prepared.start()?;
    eprintln!("{}, {slots} slots", lean.identity().version.text);
    Ok(lean)
}
