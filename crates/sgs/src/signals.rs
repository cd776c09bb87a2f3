//! Handlers of SIGINT, SIGTERM and SIGHUP.
//!
//! While a [`SignalGuard`] exists, the first signal sets its interrupt flag and the second ends the process. Otherwise the
//! first signal ends the process; this is safe because files under a final name are always complete. Temporary folders are
//! removed first if no guard has existed.

use anyhow::{Context, Result};
use sgs_formal::scratch;
use sgs_run::{Code, StopFlag};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// State of the handlers. They are registered once and never removed, because after removal a signal would have no
/// effect at all.
struct Handlers {
    interrupt: StopFlag,
    /// True while no guard exists.
    idle: Arc<AtomicBool>,
}

static HANDLERS: Mutex<Option<Handlers>> = Mutex::new(None);

/// While it exists, the first signal sets the interrupt flag instead of ending the process.
pub struct SignalGuard {
    idle: Arc<AtomicBool>,
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        self.idle.store(true, Ordering::Release);
    }
}

/// Returns the process-wide interrupt flag, which signals set while the guard exists.
pub fn guard() -> Result<(StopFlag, SignalGuard)> {
    let mut handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
    let Handlers { interrupt, idle } = match &mut *handlers {
        Some(made) => made,
        none => none.insert(register().context("cannot register signal handlers")?),
    };
    idle.store(false, Ordering::Release);
    Ok((interrupt.clone(), SignalGuard { idle: Arc::clone(idle) }))
}

/// Returns whether a signal has set the interrupt flag.
pub fn is_interrupted() -> bool {
    let handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
    handlers.as_ref().is_some_and(|handlers| handlers.interrupt.is_set())
}

fn register() -> std::io::Result<Handlers> {
    let (interrupt, idle) = (StopFlag::default(), Arc::new(AtomicBool::new(false)));
    let mut signals = vec![SIGINT, SIGTERM];
    // `nohup` ignores SIGHUP; keep it ignored.
    if !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    for signal in signals {
        flag::register_conditional_default(signal, Arc::clone(&idle))?;
        flag::register_conditional_shutdown(signal, Code::Interrupted.into(), interrupt.flag())?;
        flag::register(signal, interrupt.flag())?;
    }
    Ok(Handlers { interrupt, idle })
}

/// From now on, the first of these signals removes the temporary folders of this process before it ends it, and the second
/// ends it at once. [`guard`] replaces this.
pub fn remove_folders_on(signals: &[i32]) -> Result<()> {
    let watch = || -> std::io::Result<()> {
        // Shells make background jobs ignore SIGINT, and `nohup` makes its command ignore SIGHUP.
        let signals: Vec<i32> = signals.iter().copied().filter(|signal| !is_ignored(*signal)).collect();
        let ending = Arc::new(AtomicBool::new(false));
        for &signal in &signals {
            flag::register_conditional_default(signal, Arc::clone(&ending))?;
        }
        let mut arriving = Signals::new(&signals)?;
        let end = move || {
            for signal in arriving.forever() {
                let handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(handlers) = &*handlers {
                    // The signal may have arrived before the handlers were registered.
                    handlers.interrupt.set();
                    continue;
                }
                ending.store(true, Ordering::Release);
                scratch::remove_all();
                // This fails only for an unknown signal.
                let _ = emulate_default_handler(signal);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(end)?;
        Ok(())
    };
    watch().context("cannot register signal handlers")
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

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status =
            "Name:\tsgs\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        assert!(is_in_mask(status, SIGHUP) && !is_in_mask(status, SIGINT) && !is_in_mask("", SIGHUP));
    }
}
