//! The name of this machine.

/// Returns the host name, reduced to letters, digits, `-`, `.` and `_` and to 64 characters; `localhost` if it is unknown.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"))
        .unwrap_or_default();
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || "-._".contains(*c);
    let name: String = name.trim().chars().filter(is_allowed).take(64).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
