//! `sgs lean prompts`: writes the built-in prompts into a folder.

use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::{Context, Result};
use sgs_rundir::files::write_file;
use std::path::Path;

/// Writes the prompts that `lean.prompts` can replace.
pub fn run(out: &Path) -> Result<Outcome> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let files = sgs_lean::BUILT_IN_PROMPTS.iter().map(|(name, text)| (out.join(format!("{name}.txt")), text));
    if let Some((path, _)) = files.clone().find(|(path, _)| path.exists()) {
        return Err(Usage(format!("{} exists: choose another --out", path.display())).into());
    }
    for (path, text) in files {
        write_file(&path, text.as_bytes())?;
    }
    output::line(format!(
        "{} prompts: {}\nnext: change them, and run with --set lean.prompts={}",
        sgs_lean::BUILT_IN_PROMPTS.len(),
        out.display(),
        out.display()
    ))?;
    Ok(Outcome::Done)
}
