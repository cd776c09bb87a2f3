//! The machine.

use sgs_base::host::{bytes_in, peak_memory};

#[test]
fn memory_is_read_in_bytes() {
    assert_eq!(bytes_in("MemTotal:  2 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(2048));
    assert_eq!(bytes_in("MemTotal:  x kB\n", "MemTotal:"), None);
    if cfg!(target_os = "linux") {
        assert!(peak_memory().unwrap() > 100_000);
    }
}
