//! Control groups, version 2: memory and threads of everything that a process starts, and one kill for all of it.

use super::Sandbox;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder in which groups may be made: the caller's own group, if it is of version 2, writable, and hands the
/// memory controller on.
pub fn base() -> Result<PathBuf, String> {
    let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
    let line = own.lines().find_map(|line| line.strip_prefix("0::"));
    let path = line.ok_or("control groups of version 2 are not mounted here")?;
    let folder = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let controllers = fs::read_to_string(folder.join("cgroup.subtree_control"))
        .map_err(|e| format!("{}: {e}", folder.join("cgroup.subtree_control").display()))?;
    if !controllers.split_whitespace().any(|c| c == "memory") {
        return Err(format!("{} does not hand the memory controller on", folder.display()));
    }
    Ok(folder)
}

fn folder(base: &Path, pid: u32) -> PathBuf {
    base.join(format!("sgs-lean-{pid}"))
}

/// Makes a group for this process, bounds it and moves the process into it.
pub(super) fn join(base: &Path, sandbox: &Sandbox) -> io::Result<()> {
    let folder = folder(base, std::process::id());
    fs::create_dir(&folder)?;
    let write = |file: &str, value: &str| fs::write(folder.join(file), value);
    write("memory.max", &sandbox.memory.to_string())?;
    write("pids.max", &sandbox.threads.to_string())?;
    // Kernels without swap accounting have no such file; the limit above holds all the same.
    let _ = write("memory.swap.max", "0");
    let _ = write("memory.oom.group", "1");
    write("cgroup.procs", "0")
}

/// Kills everything in the group of the process `pid`. Does nothing where there is no such group.
pub fn kill_group(base: &Path, pid: u32) {
    // The kill is repeated by process group in any case; a group that is gone needs none.
    let _ = fs::write(folder(base, pid).join("cgroup.kill"), "1");
}

/// Takes the group's folder away, once its processes are gone.
pub fn remove_group(base: &Path, pid: u32) {
    let folder = folder(base, pid);
    for _ in 0..50 {
        if fs::remove_dir(&folder).is_ok() || !folder.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_before_the_process_moves_in() {
        // A plain folder stands in for the mount: the files and their values are what the kernel would read.
        let base = tempfile::tempdir().unwrap();
        let sandbox = Sandbox { memory: 12345, threads: 7, ..Sandbox::default() };
        join(base.path(), &sandbox).unwrap();
        let group = folder(base.path(), std::process::id());
        let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(
            (read("memory.max"), read("pids.max"), read("cgroup.procs")),
            ("12345".into(), "7".into(), "0".into())
        );
        kill_group(base.path(), std::process::id());
        assert_eq!(read("cgroup.kill"), "1");
        assert!(join(Path::new("/nonexistent/cgroup"), &sandbox).is_err());
    }
}
