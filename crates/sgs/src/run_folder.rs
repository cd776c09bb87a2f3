//! Folders of runs, such as those of a sweep.

use crate::exit::Usage;
use crate::output::counted;
use sgs_fleet::launch::quote;
use sgs_rundir::RunView;
use std::path::{Path, PathBuf};

/// Replaces folders of runs by their runs, sorted by name. Other paths are kept: a mistake is reported when they are opened.
pub fn expanded(paths: &[PathBuf]) -> Vec<PathBuf> {
    let expand = |path: &PathBuf| {
        let runs = runs_in(path);
        if runs.is_empty() { vec![path.clone()] } else { runs }
    };
    paths.iter().flat_map(expand).collect()
}

/// Checks that the folder that the user gave after `words`, such as `sgs status` or `--run`, is not a folder of runs.
pub fn check(words: &str, folder: &Path) -> Result<(), Usage> {
    let runs = runs_in(folder);
    let Some(first) = runs.first() else { return Ok(()) };
    Err(Usage(format!(
        "{} is not a run, but contains {}; give one of them: `{words} {}`",
        folder.display(),
        counted(runs.len(), "run"),
        quote(&first.display().to_string())
    )))
}

/// Returns the runs directly in a folder that is not a run. Entries that cannot be read are left out.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    if folder.join("config.toml").exists() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    // The folders of some other commands have a config.toml, too.
    let is_run = |path: &PathBuf| path.join("rounds").is_dir() && RunView::open(path).is_ok();
    let mut runs: Vec<PathBuf> = entries.filter(is_run).collect();
    runs.sort();
    runs
}
