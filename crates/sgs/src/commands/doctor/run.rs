//! `sgs doctor RUN` and `sgs resume --verify`: checks all files of a run against their checksums.

use super::{Area, Check, CheckState};
use anyhow::Result;
use sgs_run::config::machine;
use sgs_run::round::examine::examine;
use sgs_rundir::RunView;
use std::path::Path;
use std::time::Instant;

pub const NAME: &str = "run";

pub fn area(run: &Path) -> Result<Area> {
    let fleet = RunView::open(run)?.check_fleet();
    area_with(run, fleet)
}

/// Checks the files of a run, and adds the result of another check.
fn area_with(run: &Path, other: sgs_rundir::Result<()>) -> Result<Area> {
    let started = Instant::now();
    let mut examined = examine(&RunView::open(run)?)?;
    examined.found(other);
    let damages = examined.damages.iter().map(|damage| damage.to_string());
    let usable = examined.damages.is_empty();
    let found = format!(
        "{} files, {}, in {:.1} s: configuration, base model, rounds, checkpoints, journal",
        examined.files,
        machine::bytes(examined.bytes),
        started.elapsed().as_secs_f64()
    );
    let mut checks = vec![Check::ok("read", found)];
    let notes = examined.notes.iter().map(|note| Check::new("note", CheckState::Warning, note, ""));
    checks.extend(notes);
    checks.extend(damages.map(|damage| Check::new("damage", CheckState::Broken, damage, "")));
    Ok(Area { name: NAME, purpose: "checksums of all files", usable, checks })
}

/// Checks the files of a run and prints a summary. `sgs resume` itself decides whether the run needs its `fleet.toml`.
/// Returns an error that lists all damage.
pub fn read_whole(run: &Path) -> Result<()> {
    let area = area_with(run, Ok(()))?;
    let found = |check: &Check| format!("{}: {}", check.name, check.found);
    let lines: Vec<String> = area.checks.iter().map(found).collect();
    if area.usable {
        lines.iter().for_each(|line| eprintln!("{line}"));
        return Ok(());
    }
    anyhow::bail!("{} is damaged and is not resumed\n  {}", run.display(), lines.join("\n  "))
}
