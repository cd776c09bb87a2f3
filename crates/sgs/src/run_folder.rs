//! Checks that the folders that a command needs are runs, and not folders of runs.

use crate::exit::Usage;
use crate::output::counted;
use sgs_fleet::launch::quote;
use sgs_rundir::RunView;
use std::path::{Path, PathBuf};

/// Maximum number of runs in a message.
const NAMED: usize = 5;

/// Checks that no folder that the user gave to `sgs COMMAND` is a folder of runs. Any other mistake is reported when the
/// folder is opened.
///
/// # Errors
/// Returns an error that names the runs in the first such folder and a command to use.
pub fn check<P: AsRef<Path>>(command: &str, folders: &[P]) -> Result<(), Usage> {
    folders.iter().try_for_each(|folder| check_one(command, folder.as_ref()))
}

fn check_one(command: &str, folder: &Path) -> Result<(), Usage> {
    if folder.join("config.toml").exists() {
        return Ok(());
    }
    let runs = runs_in(folder);
    let Some(first) = runs.first() else { return Ok(()) };
    let mut names: Vec<String> = runs.iter().take(NAMED).map(|run| run.display().to_string()).collect();
    if runs.len() > NAMED {
        names.push(format!("and {} more", runs.len() - NAMED));
    }
    let word = |run: &PathBuf| quote(&run.display().to_string());
    let advice = match (command, runs.get(1)) {
        ("compare", second) => {
            let second = second.map_or("RUN".to_owned(), word);
            format!("give two or more runs: `sgs compare {} {second}`", word(first))
        }
        _ => format!("give a run: `sgs {command} {}`", word(first)),
    };
    Err(Usage(format!(
        "{} is not a run, but contains {}: {}; {advice}",
        folder.display(),
        counted(runs.len(), "run"),
        names.join(", ")
    )))
}

/// Returns the runs directly in a folder, sorted by name. Entries that cannot be read are left out.
fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    // The folders of some other commands have a config.toml, too.
    let is_run = |path: &PathBuf| path.join("rounds").is_dir() && RunView::open(path).is_ok();
    let mut runs: Vec<PathBuf> = entries.filter(is_run).collect();
    runs.sort();
    runs
}
