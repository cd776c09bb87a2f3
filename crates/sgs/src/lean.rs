//! Lean settings from the command line.

use crate::args::{LeanArgs, LeanChecker};
use anyhow::Result;
use sgs_keys::KeyFile;
use sgs_lean::{Backing, Lean, LeanSettings};

/// Reads the settings file, and applies the command line's options.
pub fn settings(args: &LeanArgs) -> Result<LeanSettings> {
    settings_over(LeanSettings::default(), args)
}

/// Reads the same as [`settings`], starting from `base`; a settings file replaces `base` completely.
pub fn settings_over(base: LeanSettings, args: &LeanArgs) -> Result<LeanSettings> {
    let mut settings = match &args.lean {
        None => base,
        Some(path) => KeyFile::read(path)?.decode("sgs run --explain")?,
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

/// Starts Lean, and prints the state of its sandbox on standard error.
pub fn start(settings: &LeanSettings) -> Result<Lean> {
    let (lean, notes) = sgs_run::config::lean::start(settings)?;
    print_notes(&notes);
    Ok(lean)
}

/// Warns that options of Lean have no effect on another formal system.
pub fn note_unused(args: &LeanArgs) {
    let LeanArgs { lean, lean_checker, lean_root, lean_version, lean_slots, require_sandbox, skip_canaries } =
        args;
    let is_given = lean.is_some()
        || lean_checker.is_some()
        || lean_root.is_some()
        || lean_version.is_some()
        || lean_slots.is_some()
        || *require_sandbox
        || *skip_canaries;
    if is_given {
        eprintln!("warning: the options of Lean have no effect on another formal system");
    }
}

/// Prints notes about the checker's sandbox on standard error.
pub fn print_notes(notes: &[String]) {
    notes.iter().for_each(|note| eprintln!("{note}"));
}
