//! Following a run by its directory, whoever makes it.

use super::LiveServer;
use crate::report::ReportOptions;
use crate::run::{ReadError, ReadOptions, RunReader};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Publishes the run at `path` on `server` whenever it has a new round, until `stop` is set. Looks every `pause`, and
/// calls `each` after every look, for what is not in the published rounds.
///
/// # Errors
/// The directory is no run, or no longer one.
pub fn follow(
    server: &LiveServer,
    path: &Path,
    read: &ReadOptions<'_>,
    options: &ReportOptions,
    pause: Duration,
    stop: &AtomicBool,
    mut each: impl FnMut(&LiveServer),
) -> Result<(), ReadError> {
    let mut reader = RunReader::open(path, read)?;
    let mut is_shown = false;
    while !stop.load(Ordering::SeqCst) {
        if reader.update()? || !is_shown {
            server.publish(std::slice::from_ref(reader.run()), options);
            is_shown = true;
        }
        each(server);
        // Short naps, so that stopping does not wait for a long pause.
        let mut left = pause;
        while !left.is_zero() && !stop.load(Ordering::SeqCst) {
            let nap = left.min(Duration::from_millis(200));
            std::thread::sleep(nap);
            left -= nap;
        }
    }
    // The round that was published just before.
    if reader.update()? {
        server.publish(std::slice::from_ref(reader.run()), options);
    }
    Ok(())
}
