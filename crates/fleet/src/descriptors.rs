//! Open files of this process: the limit raised as far as the system allows, and a part of it kept for files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that connections leave to the journal, weights, logs and children.
const RESERVED: u64 = 256;
/// What is asked for where the system names no highest limit.
const PLENTY: u64 = 1 << 20;

/// Raises the limit of open files to the highest that this process may set. Gives the limit that holds now.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(PLENTY);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    // In vain where a sandbox forbids it; then there are fewer connections.
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }) {
        Ok(()) => wanted,
        Err(_) => current,
    }
}

/// How many connections there may be at a time under a limit of open files.
#[must_use]
pub fn most_connections(limit: u64) -> usize {
    let room = limit.saturating_sub(RESERVED).max(limit / 2);
    usize::try_from(room).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_files() {
        assert_eq!(most_connections(1024), 768);
        assert_eq!(most_connections(300), 150);
        assert_eq!(most_connections(u64::MAX), usize::MAX - 256);
    }
}
