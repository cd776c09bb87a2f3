//! Following a run that another process makes, by its directory.

use super::{LiveServer, Status};
use crate::report::ReportOptions;
use crate::run::{ReadError, ReadOptions, read_run};
use sgs_rundir::RunView;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Why a run can no longer be followed.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// A directory is no run (any more).
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Publishes the runs in `paths` on `server` whenever one has a new round, until `stop` is set. Looks every `pause`.
///
/// # Errors
/// A directory is no run.
pub fn follow(
    server: &LiveServer,
    paths: &[PathBuf],
    read: &ReadOptions<'_>,
    options: &ReportOptions,
    pause: Duration,
    stop: &AtomicBool,
) -> Result<(), WatchError> {
    let mut shown: Option<Vec<usize>> = None;
    while !stop.load(Ordering::SeqCst) {
        let counts = paths.iter().map(|path| count_rounds(path)).collect::<Result<Vec<usize>, _>>()?;
        if shown.as_ref() != Some(&counts) {
            let runs = paths.iter().map(|path| read_run(path, read)).collect::<Result<Vec<_>, _>>()?;
            let last = runs.iter().filter_map(|r| r.rounds.last()).map(|r| r.round).max();
            let message = last
                .map_or_else(|| "no round is published yet".into(), |r| format!("round {r} is published"));
            server.publish(&runs, options);
            server.set_status(&Status { message, ..Status::default() });
            shown = Some(counts);
        }
        // Short naps, so that stopping does not wait for a long pause.
        let mut left = pause;
        while !left.is_zero() && !stop.load(Ordering::SeqCst) {
            let nap = left.min(Duration::from_millis(200));
            std::thread::sleep(nap);
            left -= nap;
        }
    }
    Ok(())
}

fn count_rounds(path: &std::path::Path) -> Result<usize, ReadError> {
    Ok(RunView::open(path)?.rounds()?.len())
}
