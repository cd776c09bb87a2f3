//! Handlers of SIGINT, SIGTERM and SIGHUP.
//!
//! While a [`SignalGuard`] exists, the first signal sets its interrupt flag and the second ends the process at once.
//! Otherwise, the first signal removes the temporary files and folders of this process, then ends it.

use anyhow::{Context, Result};
use sgs_base::temporary;
use sgs_run::{Code, StopFlag};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Time after a signal during which another one counts as the same, because `timeout` sends its signal twice.
const SAME_REQUEST: Duration = Duration::from_millis(200);

struct Handlers {
    /// The signals that have handlers. These are never removed, because after removal a signal would have no effect at all.
    handled: Vec<i32>,
    /// Set by the first signal.
    interrupt: Option<StopFlag>,
    guards: usize,
    /// Whether a signal has arrived while a guard existed. The command then ends as interrupted.
    is_taken: bool,
}

static HANDLERS: Mutex<Handlers> =
    Mutex::new(Handlers { handled: Vec::new(), interrupt: None, guards: 0, is_taken: false });

fn handlers() -> MutexGuard<'static, Handlers> {
    HANDLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it exists, the first signal sets the interrupt flag instead of ending the process.
pub struct SignalGuard(());

impl Drop for SignalGuard {
    fn drop(&mut self) {
        let mut handlers = handlers();
        handlers.guards -= 1;
        handlers.is_taken |= handlers.interrupt.as_ref().is_some_and(StopFlag::is_set);
    }
}

/// Returns the process-wide interrupt flag, which signals set while the guard exists.
pub fn guard() -> Result<(StopFlag, SignalGuard)> {
    end_cleanly()?;
    let mut handlers = handlers();
    handlers.guards += 1;
    Ok((handlers.interrupt.get_or_insert_default().clone(), SignalGuard(())))
}

/// Returns whether a signal has set the interrupt flag.
pub fn is_interrupted() -> bool {
    handlers().interrupt.as_ref().is_some_and(StopFlag::is_set)
}

/// From now on, the first SIGINT, SIGTERM or SIGHUP ends this process without leaving temporary files or folders, unless a
/// guard exists. The second ends it at once.
pub fn end_cleanly() -> Result<()> {
    end_cleanly_on(&[SIGINT, SIGTERM, SIGHUP])
}

/// Does what [`end_cleanly`] does, for a process that has its own handlers of the other signals.
pub fn end_cleanly_on(signals: &[i32]) -> Result<()> {
    register(signals).context("cannot register signal handlers")
}

/// Waits for the end of the process if a signal is ending it. Otherwise, its end could be preceded by that of a command that
/// failed because its temporary files are gone.
pub fn wait_if_ending() {
    drop(handlers());
}

fn register(signals: &[i32]) -> std::io::Result<()> {
    let mut handlers = handlers();
    // Shells make background jobs ignore SIGINT, and `nohup` makes its command ignore SIGHUP.
    let is_new = |signal: &i32| !handlers.handled.contains(signal) && !is_ignored(*signal);
    let signals: Vec<i32> = signals.iter().copied().filter(is_new).collect();
    if signals.is_empty() {
        return Ok(());
    }
    let interrupt = handlers.interrupt.get_or_insert_default().flag();
    let second = SecondSignal::default();
    for &signal in &signals {
        flag::register_conditional_default(signal, Arc::clone(&second.while_ending))?;
        flag::register_conditional_shutdown(
            signal,
            Code::Interrupted.into(),
            Arc::clone(&second.with_guard),
        )?;
        flag::register(signal, Arc::clone(&interrupt))?;
    }
    let arriving = Signals::new(&signals)?;
    thread::Builder::new().name("signals".into()).spawn(move || wait_for_signals(arriving, &second))?;
    handlers.handled.extend(signals);
    Ok(())
}

/// Flags that make the next signal end the process at once.
#[derive(Default)]
struct SecondSignal {
    with_guard: Arc<AtomicBool>,
    while_ending: Arc<AtomicBool>,
}

/// Ends the process when a signal arrives while no guard exists.
fn wait_for_signals(mut arriving: Signals, second: &SecondSignal) {
    for signal in arriving.forever() {
        let handlers = handlers();
        if handlers.guards > 0 || handlers.is_taken {
            drop(handlers);
            thread::sleep(SAME_REQUEST);
            second.with_guard.store(true, Ordering::Release);
            continue;
        }
        let while_ending = Arc::clone(&second.while_ending);
        // If this thread does not start, only SIGKILL ends the process at once.
        let _ = thread::Builder::new().spawn(move || {
            thread::sleep(SAME_REQUEST);
            while_ending.store(true, Ordering::Release);
        });
        // The locks are held until the process ends, so that no other thread ends it or reports that its files are gone.
        let _removed = temporary::remove_all();
        // This fails only for an unknown signal.
        let _ = emulate_default_handler(signal);
    }
}

/// Returns whether this process was started with the signal ignored (Linux).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in_mask(&status, signal)
}

fn is_in_mask(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use sgs_base::temporary::Temporary;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::{Command, ExitStatus, Stdio};

    /// Name of the variable with the folder of a test's child process.
    const FOLDER: &str = "SGS_TEST_SIGNALS";

    /// Starts [`child`] in a folder, sends it a signal twice when it is ready, and returns how it ended.
    fn end_child(folder: &Path, signal: Signal) -> ExitStatus {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "signals::tests::child"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        // Twice, as `timeout` does.
        kill_process(Pid::from_child(&child), signal).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap()
    }

    /// Is ended by the other tests. If the name of its folder is `guarded`, it has a guard when it is ready.
    #[test]
    #[ignore = "a child process of other tests"]
    fn child() {
        let folder = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap());
        let (_temporary, _file) = Temporary::file_beside(&folder.join("file")).unwrap();
        let (_, outer) = guard().unwrap();
        let (interrupt, inner) = guard().unwrap();
        drop(inner);
        if !folder.ends_with("guarded") {
            drop(outer);
            println!("\nready");
            thread::sleep(Duration::from_secs(600));
            return;
        }
        println!("\nready");
        while !interrupt.is_set() {
            thread::sleep(Duration::from_millis(1));
        }
        drop(outer);
        // Time for the thread that would end the process.
        thread::sleep(Duration::from_millis(200));
        std::process::exit(77);
    }

    #[test]
    fn after_the_last_guard_a_signal_ends_the_process_cleanly() {
        let folder = tempfile::tempdir().unwrap();
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let ended = end_child(folder.path(), signal);
            assert_eq!(ended.signal(), Some(signal.as_raw()));
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_signal_that_a_guard_has_taken_does_not_end_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let guarded = folder.path().join("guarded");
        std::fs::create_dir(&guarded).unwrap();
        assert_eq!(end_child(&guarded, Signal::TERM).code(), Some(77));
    }

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status =
            "Name:\tsgs\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        assert!(is_in_mask(status, SIGHUP) && !is_in_mask(status, SIGINT) && !is_in_mask("", SIGHUP));
    }
}
