//! The lock that lets only one process work on a run.

use crate::error::{Error, Result};
use sgs_base::host::host_name;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

/// An exclusive lock on a file of the run (`flock` on Linux). The operating system releases it when the value is dropped or
/// the process ends.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl RunLock {
    /// Locks the file at `path` and writes this process's id and host into it. `run` is the run's directory, for messages.
    ///
    /// # Errors
    /// Returns [`Error::InUse`] with the holder's process id, or an error if the file cannot be opened or locked.
    pub fn take(path: &Path, run: &Path) -> Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file =
            sgs_base::files::open_with(&mut options, path).map_err(Error::io("open the lock", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.take(256).read_to_string(&mut holder);
                let holder = holder.trim();
                let holder = if holder.is_empty() { "another process" } else { holder }.to_owned();
                return Err(Error::InUse { run: run.to_path_buf(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(Error::io("lock", path)(source)),
        }
        let text = format!("process {} on host {}\n", std::process::id(), host_name());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(Error::io("write the lock", path))?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_gets_the_id_of_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = RunLock::take(&path, dir.path()).unwrap();
        let error = RunLock::take(&path, dir.path()).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }));
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        RunLock::take(&path, dir.path()).unwrap();
    }
}
