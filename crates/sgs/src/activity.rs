//! The activity of a run: whether a process is executing it, and its workers.

use crate::output::counted;
use anyhow::Result;
use serde::Serialize;
use sgs_base::host::host_name;
use sgs_fleet::{BoardStatus, Client};
use sgs_run::served::ca_certs;
use sgs_run::workers::coordinator::CoordinatorAddress;
use sgs_rundir::RunView;
use std::fs::{File, TryLockError};
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// Timeout of a request to the coordinator.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// First bytes of an SQLite database.
const HEADER: &[u8] = b"SQLite format 3\0";

/// Whether a process is executing a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Activity {
    /// A process holds the run's lock.
    Running { holder: String },
    /// No process holds the lock; the run can be resumed.
    Stopped,
    /// The run has used its rounds or minutes.
    Finished,
    /// No process holds the lock, and the journal cannot be read, so the run cannot be resumed.
    Damaged { problem: String },
}

/// Returns the activity of a run with `rounds` rounds in total and `published` published ones.
pub fn activity_of(run: &RunView, rounds: Option<u64>, published: usize, in_progress: bool) -> Activity {
    let holder = holder(run.path());
    if holder.is_none()
        && let Some(damage) = journal_damage(run)
    {
        return Activity::Damaged { problem: damage.to_string() };
    }
    let ended = run.ended().map(|end| end.rounds as usize);
    if holder.is_none() && ended.is_some_and(|rounds| published < rounds) {
        let problem = format!(
            "{} is damaged: it has {}, but the run ended with {}; restore them from a copy",
            run.path().join("rounds").display(),
            counted(published, "round"),
            ended.unwrap_or_default()
        );
        return Activity::Damaged { problem };
    }
    match holder {
        Some(holder) => Activity::Running { holder },
        None if in_progress => Activity::Stopped,
        None if rounds.is_some_and(|all| published as u64 >= all) => Activity::Finished,
        // The run reached a limit before its last round.
        None if run.ended().is_some() => Activity::Finished,
        None => Activity::Stopped,
    }
}

/// Returns why the journal cannot be read, or `None` if it can, or if there is none.
fn journal_damage(run: &RunView) -> Option<sgs_rundir::Error> {
    let path = run.path().join("journal.sqlite");
    let mut start = Vec::new();
    File::open(&path).ok()?.take(HEADER.len() as u64).read_to_end(&mut start).ok()?;
    // SQLite takes a file that is shorter than its header for an empty database.
    if !start.is_empty() && start != HEADER {
        let what = "it is not an SQLite database".to_owned();
        let advice =
            "restore it from a copy, or move it to another folder (with its -wal and -shm files) and resume"
                .to_owned();
        return Some(sgs_rundir::Error::Damaged { path, what, advice });
    }
    run.journal().and_then(|journal| journal.markers()).err()
}

/// Returns the coordinator's address and board, if it accepts workers. Adds a note if it does not answer.
pub fn fleet(run: &Path, notes: &mut Vec<String>) -> (Option<String>, Option<BoardStatus>) {
    let remembered = match CoordinatorAddress::read(run) {
        Ok(remembered) => remembered,
        Err(error) => {
            notes.push(format!("{error:#}"));
            return (None, None);
        }
    };
    let Some((url, remembered)) = remembered.and_then(|mut found| Some((found.url.take()?, found))) else {
        return (None, None);
    };
    let ask = || -> Result<BoardStatus> {
        let trusted = remembered.fleet.authority.as_deref();
        let trusted =
            trusted.map(|path| ca_certs::certificates(path, "the workers' `authority`")).transpose()?;
        let client = Client::new(&url, Some(CoordinatorAddress::token(run)?), trusted.as_deref())?;
        Ok(client.status_within(ANSWER_TIMEOUT)?)
    };
    match ask() {
        Ok(board) => (Some(url), Some(board)),
        Err(error) => {
            notes.push(format!("cannot query the workers: {error:#}"));
            (Some(url), None)
        }
    }
}

/// Returns the process that holds the run's lock. Tries the lock only if its holder may be alive, and releases it
/// immediately.
fn holder(run: &Path) -> Option<String> {
    let path = run.join("lock");
    let holder = std::fs::read_to_string(&path).ok()?.trim().to_owned();
    if is_gone(&holder) {
        return None;
    }
    match File::open(&path).ok()?.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            Some(if holder.is_empty() { "a process".to_owned() } else { holder })
        }
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// Returns whether `process N on host H` names a process of this host that does not exist.
fn is_gone(holder: &str) -> bool {
    let Some((process, host)) = holder.strip_prefix("process ").and_then(|h| h.split_once(" on host "))
    else {
        return false;
    };
    host == host_name() && process.parse::<u32>().is_ok_and(|p| !Path::new(&format!("/proc/{p}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_no_longer_exists_is_detected() {
        let here = host_name();
        assert!(!is_gone(&format!("process {} on host {here}", std::process::id())));
        // This number is above the kernel's largest process id.
        assert_eq!(is_gone(&format!("process 4194999 on host {here}")), Path::new("/proc").exists());
        assert!(!is_gone("process 4194999 on host elsewhere.invalid"));
        assert!(!is_gone("anything"));
    }
}
