//! Where untrusted code runs: no network, no writing outside a scratch folder, no other processes, bounded
//! memory, time, files.
//!
//! A small launcher enters the sandbox in its own process and then becomes Lean (`exec`), so that neither the
//! parent's threads nor a half-applied state are ever involved. Each layer says whether it is active; where
//! [`Sandbox::require`] is set, a missing one is an error before anything runs.

mod cgroup;
mod enter;
mod syscalls;

pub use cgroup::{base as cgroup_base, kill_group, remove_group};
pub use enter::{SandboxError, available, become_program, enter, run_launcher};

use crate::check::Launch;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

/// What a sandboxed process may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sandbox {
    /// Folders and files that may be read, and programs in them run.
    pub read: Vec<PathBuf>,
    /// Folders that may be written to.
    pub write: Vec<PathBuf>,
    /// CPU seconds of the process's whole life; none where it serves many proofs.
    pub cpu_s: Option<u64>,
    /// Largest file it may write, bytes.
    pub file_bytes: u64,
    pub files: u64,
    /// Largest address space, bytes. Lean maps gigabytes of libraries, so that it is left free by default.
    pub address_space: Option<u64>,
    /// Memory of its control group, bytes, where there is one.
    pub memory: u64,
    /// Threads of its control group.
    pub threads: u64,
    /// Folder of version 2 control groups in which groups may be made.
    pub cgroup: Option<PathBuf>,
    /// Whether it may start other processes (`lake env …` does; Lean itself does not).
    pub children: bool,
    /// Refuse to run without Landlock, seccomp and resource limits.
    pub require: bool,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            write: Vec::new(),
            cpu_s: None,
            file_bytes: 64 << 20,
            files: 4096,
            address_space: None,
            memory: 10 << 30,
            threads: 256,
            cgroup: None,
            children: false,
            require: false,
        }
    }
}

/// The layers of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// File access by path, TCP, signals (Linux 5.13 and later, as far as the kernel goes).
    Landlock,
    /// System calls.
    Seccomp,
    /// CPU time, file size, open files, core dumps.
    ResourceLimits,
    /// Capabilities dropped, and no way to gain privileges.
    Privileges,
    /// Memory and threads of the whole group, and a kill that nothing escapes.
    Cgroup,
}

/// A layer and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerStatus {
    pub layer: Layer,
    /// Whether it is (or would be) in force.
    pub active: bool,
    /// How far, or why not.
    pub detail: String,
}

impl Sandbox {
    /// The same process, started by way of the launcher `launcher` (program and leading arguments).
    pub fn wrap(&self, launch: &Launch, launcher: &[OsString]) -> Launch {
        let mut parts = launcher.iter().cloned();
        let program = parts.next().map_or_else(|| PathBuf::from("sgs-lean-sandbox"), PathBuf::from);
        let mut args: Vec<OsString> = parts.collect();
        let spec = serde_json::to_string(self).unwrap_or_default();
        args.push(spec.into());
        args.push(launch.program.clone().into_os_string());
        args.extend(launch.args.iter().cloned());
        Launch {
            program,
            args,
            env: launch.env.clone(),
            folder: launch.folder.clone(),
            cgroup: self.cgroup.clone(),
        }
    }

    /// What a dynamic program needs of any Linux system to start.
    pub fn system_files() -> Vec<PathBuf> {
        [
            "/lib",
            "/lib64",
            "/usr/lib",
            "/usr/lib64",
            "/usr/bin",
            "/bin",
            "/etc/ld.so.cache",
            "/etc/localtime",
            "/dev/zero",
            "/dev/urandom",
            "/dev/random",
            // How many processors there are and how much memory: a runtime that is refused this starts no threads.
            "/proc/cpuinfo",
            "/proc/stat",
            "/proc/meminfo",
            "/sys/devices/system/cpu",
        ]
        .iter()
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .collect()
    }
}
