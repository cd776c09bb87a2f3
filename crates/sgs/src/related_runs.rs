//! Finds existing runs with the same configuration and seed as a new run.

use crate::activity::{Activity, activity_of};
use crate::output::counted;
use crate::summary::continue_command;
use anyhow::Result;
use sgs_run::config::RunConfig;
use sgs_run::config::folder;
use sgs_rundir::RunView;
use std::path::Path;

/// Returns a message about a run in the parent folder of `out` that has this configuration and seed: of several, one that is
/// not finished or has the most rounds. Ignores folders that cannot be read.
pub fn message(config: &RunConfig, out: &Path) -> Option<String> {
    let parent = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut folders: Vec<_> =
        std::fs::read_dir(parent).into_iter().flatten().flatten().map(|e| e.path()).collect();
    folders.sort();
    let others = folders.iter().filter(|folder| folder.as_path() != out);
    let found = others.filter_map(|folder| matching_run_message(config, folder).ok()?);
    found.max_by_key(|(is_open, rounds, _)| (*is_open, *rounds)).map(|(.., message)| message)
}

/// Returns whether a folder's run with this configuration and seed is not finished, its number of rounds, and the message
/// about it.
fn matching_run_message(config: &RunConfig, path: &Path) -> Result<Option<(bool, usize, String)>> {
    if !path.join("config.toml").is_file() {
        return Ok(None);
    }
    let view = RunView::open(path)?;
    if !folder::differences(&view, config)?.is_empty() {
        return Ok(None);
    }
    let (published, all) = (view.rounds()?.len(), folder::config_of(&view)?.rounds);
    let (name, seed) = (path.display(), config.seed);
    let activity = activity_of(&view, Some(u64::from(all)), published, false);
    let is_open = activity != Activity::Finished;
    let message = match activity {
        Activity::Running { holder } => {
            format!("{name} has this configuration and seed, and {holder} is running it")
        }
        Activity::Stopped => format!(
            "{name} has this configuration and seed, with {published} of {all} rounds done; to continue it: \
             `sgs resume {name}`"
        ),
        Activity::Finished if published == 0 => return Ok(None),
        Activity::Damaged { .. } => return Ok(None),
        Activity::Finished => format!(
            "{name} already has this configuration (apart from limits) and seed; the new run will repeat its first {}. \
             For another run: `--seed {}`; to continue that one: `{}`",
            counted(published.min(config.rounds as usize), "round"),
            seed.wrapping_add(1),
            if config.rounds > all {
                format!("sgs resume {name} --rounds {}", config.rounds)
            } else {
                continue_command(&view, &folder::config_of(&view)?)
            }
        ),
    };
    Ok(Some((is_open, published, message)))
}
