//! This machine: its name, its memory, the user's cache folder, and the working directory.

use std::path::PathBuf;

/// Returns the host name, reduced to letters, digits, `-`, `.` and `_` and to 64 characters; `localhost` if it is unknown.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"))
        .unwrap_or_default();
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || "-._".contains(*c);
    let name: String = name.trim().chars().filter(is_allowed).take(64).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// Returns the folder of the user's cache: `$XDG_CACHE_HOME` or `~/.cache`; `None` if the user has no home.
pub fn cache_folder() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    named.or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
}

/// Makes a path absolute. It stays as it is if the working directory is unknown or not UTF-8, because a configuration file
/// could not contain the result.
pub fn absolute(path: &str) -> String {
    let found = std::path::absolute(path).ok().and_then(|found| found.into_os_string().into_string().ok());
    found.unwrap_or_else(|| path.to_owned())
}

/// Returns the peak resident memory of this process so far, in bytes, if the system reports it.
pub fn peak_memory() -> Option<u64> {
    bytes_in(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Returns the number of bytes that this process has sent to disks so far, if the system reports it.
pub fn written_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
}

/// Returns a number of bytes from a line `KEY NUMBER kB` of `/proc`.
pub fn bytes_in(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?.trim();
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(bytes_in("MemTotal:  2 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(2048));
        assert_eq!(bytes_in("MemTotal:  x kB\n", "MemTotal:"), None);
        if cfg!(target_os = "linux") {
            assert!(peak_memory().unwrap() > 100_000);
        }
    }
}
