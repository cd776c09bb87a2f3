//! Runs that lie beside a new one, and of which it would be a repetition.

use crate::commands::status::{Activity, activity_of};
use anyhow::Result;
use sgs_run::config::RunConfig;
use sgs_run::folder;
use sgs_rundir::RunView;
use std::path::Path;

/// Says which runs beside `out` have the configuration that is about to be run, and what to do with them. What cannot be
/// read is passed over: it is none of the new run's business.
pub fn tell(config: &RunConfig, out: &Path) {
    let beside = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut folders: Vec<_> =
        std::fs::read_dir(beside).into_iter().flatten().flatten().map(|e| e.path()).collect();
    folders.sort();
    for folder in folders.iter().filter(|folder| folder.as_path() != out) {
        if let Ok(Some(told)) = same(config, folder) {
            eprintln!("{told}");
        }
    }
}

/// What to say of a folder that holds a run of this configuration and seed.
fn same(config: &RunConfig, path: &Path) -> Result<Option<String>> {
    if !path.join("config.toml").is_file() {
        return Ok(None);
    }
    let view = RunView::open(path)?;
    if !folder::differences(&view, config)?.is_empty() {
        return Ok(None);
    }
    let (published, all) = (view.rounds()?.len(), folder::config_of(&view)?.rounds);
    let (name, seed) = (path.display(), config.seed);
    Ok(Some(match activity_of(path, Some(u64::from(all)), published, false) {
        Activity::Running { holder } => format!("{name} is the same run, and {holder} works on it"),
        Activity::Stopped => format!(
            "{name} is an unfinished run of the same configuration and seed, {published} of {all} rounds done: \
             `sgs resume {name}` goes on with it"
        ),
        Activity::Finished => format!(
            "{name} is a run of the same configuration and seed: this one will be the same again; \
             `--set seed={}` makes another, `sgs resume {name} --rounds {}` goes on with that one",
            seed.wrapping_add(1),
            2 * all
        ),
    }))
}
