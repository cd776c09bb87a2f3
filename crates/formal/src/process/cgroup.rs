//! Control groups, version 2. They limit the memory and threads of a process and its descendants, and kill all of them at
//! once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the folder in which groups can be created: the caller's own group, if it is a writable version 2 group that
/// delegates the memory controller.
///
/// # Errors
/// Returns the reason why groups cannot be created.
pub fn base() -> Result<PathBuf, String> {
    let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
    let line = own.lines().find_map(|line| line.strip_prefix("0::"));
    let path = line.ok_or("control groups of version 2 are not mounted here")?;
    let folder = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let controllers = fs::read_to_string(folder.join("cgroup.subtree_control"))
        .map_err(|e| format!("{}: {e}", folder.join("cgroup.subtree_control").display()))?;
    if !controllers.split_whitespace().any(|c| c == "memory") {
        return Err(format!("{} does not delegate the memory controller", folder.display()));
    }
    Ok(folder)
}

fn folder(base: &Path, pid: u32) -> PathBuf {
    base.join(format!("sgs-lean-{pid}"))
}

/// Creates a group for this process, sets its limits and moves the process into it.
pub fn join(base: &Path, memory: u64, threads: u64) -> io::Result<()> {
    let folder = folder(base, std::process::id());
    fs::create_dir(&folder)?;
    let write = |file: &str, value: &str| fs::write(folder.join(file), value);
    write("memory.max", &memory.to_string())?;
    write("pids.max", &threads.to_string())?;
    // Kernels without swap accounting do not have this file. The limit above applies regardless.
    let _ = write("memory.swap.max", "0");
    let _ = write("memory.oom.group", "1");
    write("cgroup.procs", "0")
}

/// Kills all processes in the group of the process `pid`. Does nothing if there is no such group.
pub fn kill_group(base: &Path, pid: u32) {
    // The caller also kills the process group. A control group that no longer exists needs no kill.
    let _ = fs::write(folder(base, pid).join("cgroup.kill"), "1");
}

/// Removes the group's folder after its processes have ended.
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
        // A plain folder replaces the mount. The kernel would read the same files and values.
        let base = tempfile::tempdir().unwrap();
        join(base.path(), 12345, 7).unwrap();
        let group = folder(base.path(), std::process::id());
        let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(
            (read("memory.max"), read("pids.max"), read("cgroup.procs")),
            ("12345".into(), "7".into(), "0".into())
        );
        kill_group(base.path(), std::process::id());
        assert_eq!(read("cgroup.kill"), "1");
        assert!(join(Path::new("/nonexistent/cgroup"), 12345, 7).is_err());
    }
}
