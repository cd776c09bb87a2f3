//! Lean as the command line names it.

use crate::args::{LeanArgs, LeanChecker};
use anyhow::{Context, Result};
use sgs_keys::Table as _;
use sgs_lean::{Backing, Lean, LeanSettings};

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
            let settings: LeanSettings =
                toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
            settings.check("").with_context(|| format!("in {}", path.display()))?;
            settings
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
/// As [`sgs_run::lean::start`].
pub fn start(settings: &LeanSettings) -> Result<Lean> {
    let (lean, notes) = sgs_run::lean::start(settings)?;
    say(&notes);
    Ok(lean)
}

/// Says on standard error what a person should know of what guards the checker.
pub fn say(notes: &[String]) {
    notes.iter().for_each(|note| eprintln!("{note}"));
}
