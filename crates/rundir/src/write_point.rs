//! The places between two effects on the disk at which a crash leaves a different state.
//!
//! Code that writes calls `reached` at each of them. Nothing happens there unless a hook is installed, which
//! the crash tests do in order to end the process, or to fail as a full disk would, at every single place.

use crate::error::{Error, Result};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Called with a write point's name; an error is taken for the operating system's.
pub type Hook = fn(&'static str) -> io::Result<()>;

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Installs the hook, once in a process; later calls change nothing.
pub fn install(hook: Hook) {
    let _ = HOOK.set(hook);
}

/// Tells the hook, if there is one, that `name` has been reached while working on `path`.
pub(crate) fn reached(name: &'static str, path: &Path) -> Result<()> {
    match HOOK.get() {
        None => Ok(()),
        Some(hook) => hook(name).map_err(Error::io("write", path)),
    }
}
