//! Properties of this machine: processor, memory, disk. `None` means that the operating system does not report a value.

use serde::Serialize;
use sgs_base::host::bytes_in;
use std::fs;
use std::path::Path;

/// The CPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Processor {
    pub name: Option<String>,
    /// Number of threads that this process may use.
    pub threads: usize,
    /// Vector extensions that affect speed, as reported by the processor.
    pub features: Vec<&'static str>,
}

/// Returns the CPU as this process sees it.
pub fn processor() -> Processor {
    let name = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Processor { name, threads, features: features() }
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let mut out = Vec::new();
    for (name, present) in [
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512bf16", std::is_x86_feature_detected!("avx512bf16")),
    ] {
        if present {
            out.push(name);
        }
    }
    out
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Total memory: the machine's, or the limit of the control group if that is lower.
    pub total: u64,
    /// Memory that is free or can be reclaimed now.
    pub available: u64,
}

/// Returns the memory that this process may use.
pub fn memory() -> Option<Memory> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let machine =
        Memory { total: bytes_in(&text, "MemTotal:")?, available: bytes_in(&text, "MemAvailable:")? };
    Some(limited(machine, cgroup("memory.max"), cgroup("memory.current")))
}

/// Reads a value of this process's control group (version 2).
fn cgroup(file: &str) -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|l| l.strip_prefix("0::"))?.trim().trim_start_matches('/').to_owned();
    let text = fs::read_to_string(Path::new("/sys/fs/cgroup").join(path).join(file)).ok()?;
    text.trim().parse().ok()
}

fn limited(machine: Memory, limit: Option<u64>, used: Option<u64>) -> Memory {
    match limit {
        Some(limit) if limit < machine.total => {
            Memory { total: limit, available: machine.available.min(limit.saturating_sub(used.unwrap_or(0))) }
        }
        _ => machine,
    }
}

/// Returns the free space of the file system of `path` that is available to this user, in bytes.
pub fn free_disk(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Formats a number of bytes with a binary unit, for example `3.0 GiB`.
pub fn bytes(n: u64) -> String {
    let n = n as f64;
    for (unit, size) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let size = f64::from(2u32).powi(size);
        if n >= size {
            return format!("{:.1} {unit}", n / size);
        }
    }
    format!("{n:.0} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_limits_the_memory() {
        let machine = Memory { total: 100, available: 80 };
        assert_eq!(limited(machine, None, None), machine);
        assert_eq!(limited(machine, Some(1_000), Some(5)), machine);
        assert_eq!(limited(machine, Some(50), Some(20)), Memory { total: 50, available: 30 });
        assert_eq!(limited(machine, Some(50), Some(60)).available, 0);
    }

    #[test]
    fn sizes_are_formatted_and_parsed() {
        assert_eq!(bytes(12), "12 B");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }
}
