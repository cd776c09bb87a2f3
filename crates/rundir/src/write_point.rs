//! Named points between two effects on the disk, for crash tests.
//!
//! Code that writes calls `reached` at each point. The crash tests install a hook that ends the process, or fails like a
//! full disk, at each point in turn.

use crate::error::{Error, Result};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Called with the name of a write point. An error is treated as one of the operating system.
pub type Hook = fn(&'static str) -> io::Result<()>;

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Installs the hook. Later calls in the same process have no effect.
pub fn install(hook: Hook) {
    let _ = HOOK.set(hook);
}

/// Calls the hook, if there is one, with the name of a write point. `path` is the file being written.
pub(crate) fn reached(name: &'static str, path: &Path) -> Result<()> {
    match HOOK.get() {
        None => Ok(()),
        Some(hook) => hook(name).map_err(Error::io("write", path)),
    }
}
