//! The limit of open file descriptors of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not used for connections, but for the journal, weights, logs and child processes.
const RESERVED: u64 = 256;
/// The limit to request if the system has no hard limit.
const UNLIMITED_REQUEST: u64 = 1 << 20;

/// Raises the limit to the highest value that this process may set, and returns the limit now in force.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(UNLIMITED_REQUEST);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    // A sandbox may forbid it. Then there are fewer connections.
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }) {
        Ok(()) => wanted,
        Err(_) => current,
    }
}

/// Returns the maximum number of simultaneous connections under a limit of open files.
pub fn max_connections(limit: u64) -> usize {
    let room = limit.saturating_sub(RESERVED).max(limit / 2);
    usize::try_from(room).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_files() {
        assert_eq!(max_connections(1024), 768);
        assert_eq!(max_connections(300), 150);
        assert_eq!(max_connections(u64::MAX), usize::MAX - 256);
    }
}
