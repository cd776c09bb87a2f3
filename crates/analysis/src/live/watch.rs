//! Follows a run through its directory, regardless of which process writes it.

use super::LiveServer;
use crate::figures::FigureOptions;
use crate::run::{Display, RunReader};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Publishes the run at `path` on `server` whenever it has a new round, until `stop` is set. Checks every `pause`, and calls
/// `each` after every check, for example to update the status.
pub fn follow(
    server: &LiveServer,
    path: &Path,
    display: Display<'_>,
    options: &FigureOptions,
    pause: Duration,
    stop: &AtomicBool,
    mut each: impl FnMut(&LiveServer),
) -> Result<(), sgs_rundir::Error> {
    let mut reader = RunReader::open(path, display)?;
    let mut is_shown = false;
    while !stop.load(Ordering::SeqCst) {
        if reader.update()? || !is_shown {
            server.publish(std::slice::from_ref(reader.run()), options);
            is_shown = true;
        }
        each(server);
        // Sleep in short intervals, so that stopping is fast.
        let mut left = pause;
        while !left.is_zero() && !stop.load(Ordering::SeqCst) {
            let nap = left.min(Duration::from_millis(200));
            std::thread::sleep(nap);
            left -= nap;
        }
    }
    // The last round may have been published after the last check.
    if reader.update()? {
        server.publish(std::slice::from_ref(reader.run()), options);
    }
    Ok(())
}
