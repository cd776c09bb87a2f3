//! `sgs doctor RUN` and `sgs resume --verify`: all that a run has on the disk, read to its end.

use super::{Area, Check, State};
use anyhow::Result;
use sgs_run::{folder, machine};
use sgs_rundir::RunView;
use std::path::Path;
use std::time::Instant;

/// Name of the area.
pub const NAME: &str = "run";

/// Reads it all.
pub fn area(run: &Path) -> Result<Area> {
    let started = Instant::now();
    let examined = folder::examine(&RunView::open(run)?)?;
    let damages = examined.damages.iter().map(|damage| damage.to_string());
    let usable = examined.damages.is_empty();
    let found = format!(
        "{} files, {}, in {:.1} s: configuration, base model, rounds, checkpoints, journal",
        examined.files,
        machine::bytes(examined.bytes),
        started.elapsed().as_secs_f64()
    );
    let mut checks = vec![Check::ok("read", found)];
    let notes = examined.notes.iter().map(|note| Check::new("note", State::Warning, note, ""));
    checks.extend(notes);
    checks.extend(damages.map(|damage| Check::new("damage", State::Broken, damage, "")));
    Ok(Area { name: NAME, purpose: "every file against its checksum", usable, checks })
}

/// Reads it all, says what was read, and refuses what is damaged.
///
/// # Errors
/// Something is damaged; all of it is named.
pub fn read_whole(run: &Path) -> Result<()> {
    let area = area(run)?;
    let found = |check: &Check| format!("{}: {}", check.name, check.found);
    let lines: Vec<String> = area.checks.iter().map(found).collect();
    if area.usable {
        lines.iter().for_each(|line| eprintln!("{line}"));
        return Ok(());
    }
    anyhow::bail!("{} is not resumed\n  {}", run.display(), lines.join("\n  "))
}
