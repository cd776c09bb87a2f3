//! Checks the files of a run.

use super::record;
use crate::config::base_model::{self, is_model};
use crate::config::folder::{CHECKER, check_system, config_of};
use crate::config::{BaseSource, RunConfig, SystemName};
use crate::error::Result;
use sgs_rundir::directories::{CHECKSUMS, IntegrityReport};
use sgs_rundir::{Error, RunView};
use std::io::ErrorKind;
use std::path::Path;
use toml::Value;

/// Reads all files of a run that can be verified: those of [`RunView::examine`], the base model, and the contents of
/// the journal's records.
///
/// # Errors
/// Returns an error if a directory cannot be listed. Damaged files are part of the result.
pub fn examine(run: &RunView) -> Result<IntegrityReport> {
    let mut examined = run.examine()?;
    if let Ok(config) = config_of(run) {
        // A changed configuration is already reported.
        if run.check_config().is_ok()
            && let Err(error) = check_system(run.path(), &config)
        {
            let what = format!("{error:#}");
            examined.damages.push(damaged(&run.path().join(CHECKER), &what, "restore it from a copy"));
        }
        examine_base(run, &config, &mut examined)?;
    }
    // An unreadable journal is already reported.
    let Ok(journal) = run.journal() else { return Ok(examined) };
    for round in journal.rounds_with_records().unwrap_or_default() {
        let read = journal.for_each_record(round, None, |record| match record::entries(&record.payload) {
            Ok(_) => Ok(()),
            Err(error) => {
                let what = format!("the record {:?} cannot be read: {error:#}", record.key);
                let advice = "move the journal to another folder: the run then continues after its last published round";
                Err(damaged(&run.path().join("journal.sqlite"), &what, advice))
            }
        });
        examined.damages.extend(read.err());
    }
    Ok(examined)
}

/// Compares the run's copy of its base model, if it has one, with the hash that was frozen when the run was created.
fn examine_base(run: &RunView, config: &RunConfig, examined: &mut IntegrityReport) -> Result<()> {
    let base = run.path().join("base");
    if config.model.base == "shipped" {
        return examine_shipped(run, config.problems.system, &base, examined);
    }
    if matches!(config.model.base_source(), BaseSource::Made(_)) && is_model(&base) {
        match base.join(CHECKSUMS).exists() {
            true => examined.directory(&base),
            false => examined.notes.push(format!(
                "{} is a copy by an older program, without checksums: `sgs resume` checks its weights, but not \
                 the other files",
                base.display()
            )),
        }
    }
    Ok(())
}

fn examine_shipped(
    run: &RunView,
    system: SystemName,
    base: &Path,
    examined: &mut IntegrityReport,
) -> Result<()> {
    let frozen =
        run.config()?.get("frozen").and_then(|frozen| frozen.get("data")?.get("base-model").cloned());
    let ships = base_model::hash(system)?;
    let other = frozen.as_ref().and_then(Value::as_str).filter(|frozen| **frozen != ships);
    if let Some(frozen) = other {
        match base_model::hash_in(base)? {
            Some(found) if found == frozen => examined.notes.push(format!(
                "{} is unchanged since the run was created; this program ships another base model, so only the program \
                 version that created the run can resume it",
                base.display()
            )),
            Some(_) => examined.damages.push(damaged(
                base,
                "its files differ from those that the run was created with (frozen.data.base-model) and from those of this program",
                "restore them from a copy, or resume the run with the program version that created it",
            )),
            None => examined.notes.push(format!(
                "{} is incomplete: the program version that created the run writes the rest when it resumes",
                base.display()
            )),
        }
        return Ok(());
    }
    for (name, bytes) in base_model::files(system)? {
        let path = base.join(name);
        match sgs_base::files::read(&path, base_model::MOST_BYTES) {
            Ok(found) if found == bytes => examined.file(&path, Ok(())),
            Err(error) if error.kind() == ErrorKind::NotFound => examined.notes.push(format!(
                "{} is missing: the run was stopped while it was being created, or the file was removed; `sgs resume` writes it",
                path.display()
            )),
            _ => {
                let what = "it differs from the shipped base model";
                examined.file(&path, Err(damaged(&path, what, "remove it: `sgs resume` writes it again")));
            }
        }
    }
    Ok(())
}

fn damaged(path: &Path, what: &str, advice: &str) -> Error {
    Error::Damaged { path: path.to_owned(), what: what.to_owned(), advice: advice.to_owned() }
}
