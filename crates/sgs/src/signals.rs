//! What Ctrl-C, `kill` and a terminal that goes away do.
//!
//! While something attends, the first signal asks it to stop and the second ends the process. While nothing does, the
//! first ends the process: whatever is under a final name is whole.

use anyhow::{Context, Result};
use sgs_run::{Code, Interrupt};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What the handlers look at: made once, as a handler that was taken away would leave the signal without any effect.
struct Handlers {
    interrupt: Interrupt,
    /// Whether nothing attends.
    idle: Arc<AtomicBool>,
}

static HANDLERS: Mutex<Option<Handlers>> = Mutex::new(None);

/// While it lives, a signal asks its owner to stop.
pub struct Attending {
    idle: Arc<AtomicBool>,
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.idle.store(true, Ordering::Release);
    }
}

/// From now on a signal sets what comes back; there is one for the process.
///
/// # Errors
/// The system refuses.
pub fn attend() -> Result<(Interrupt, Attending)> {
    let mut handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
    let Handlers { interrupt, idle } = match &mut *handlers {
        Some(made) => made,
        none => none.insert(register().context("the system takes no signal handlers")?),
    };
    idle.store(false, Ordering::Release);
    Ok((interrupt.clone(), Attending { idle: Arc::clone(idle) }))
}

/// Whether a signal came while something attended.
pub fn is_asked_to_stop() -> bool {
    let handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
    handlers.as_ref().is_some_and(|handlers| handlers.interrupt.is_set())
}

fn register() -> std::io::Result<Handlers> {
    let (interrupt, idle) = (Interrupt::default(), Arc::new(AtomicBool::new(false)));
    let mut signals = vec![SIGINT, SIGTERM];
    // `nohup` ignores it, and so shall we.
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

/// Whether whoever started this process had it ignore the signal, as Linux tells it.
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
    fn what_is_ignored_is_read_from_the_mask() {
        let status =
            "Name:\tsgs\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        assert!(is_in_mask(status, SIGHUP) && !is_in_mask(status, SIGINT) && !is_in_mask("", SIGHUP));
    }
}
