//! The sandbox for untrusted code: no network, no writes outside of a scratch folder, no other processes, and limited
//! memory, time and files.
//!
//! A small launcher process enters the sandbox and then becomes Lean (`exec`). The parent's threads are therefore not
//! affected, and no process is left with a partly applied sandbox. Each layer reports whether it is active. If
//! [`Sandbox::require`] is set and a required layer is missing, an error is returned before anything runs.

mod enter;
mod syscalls;

pub(crate) use enter::check_required;
pub use enter::{available, run_launcher};

use serde::{Deserialize, Serialize};
use sgs_formal::process::Launch;
use std::ffi::OsString;
use std::path::PathBuf;

/// Permissions and limits of a sandboxed process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sandbox {
    /// Files and folders that it may read, and run programs from.
    pub read: Vec<PathBuf>,
    /// Folders that it may write to.
    pub write: Vec<PathBuf>,
    /// Maximum size of a file that it writes, in bytes.
    pub file_bytes: u64,
    /// Memory limit of its control group, in bytes.
    pub memory: u64,
    /// Folder of version 2 control groups in which groups can be created.
    pub cgroup: Option<PathBuf>,
    /// Whether it may start other processes (`lake env …` does; Lean itself does not).
    pub children: bool,
    /// Whether to refuse to run without Landlock, seccomp and resource limits.
    pub require: bool,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            write: Vec::new(),
            file_bytes: 64 << 20,
            memory: 10 << 30,
            cgroup: None,
            children: false,
            require: false,
        }
    }
}

/// A layer of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxLayer {
    /// Access to files, TCP and signals (Linux 5.13 and later, depending on the kernel).
    Landlock,
    /// System calls.
    Seccomp,
    /// File size, open files, core dumps.
    ResourceLimits,
    /// Capabilities are dropped, and privileges cannot be gained.
    Privileges,
    /// Limits on memory and threads for all processes together, and a kill that no process escapes.
    Cgroup,
}

/// The status of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerStatus {
    /// The layer.
    pub layer: SandboxLayer,
    /// Whether it is active, or would be.
    pub active: bool,
    /// The extent of an active layer, or the reason why it is not active.
    pub detail: String,
}

impl Sandbox {
    /// Returns a launch of the same process through the launcher (program and leading arguments).
    pub fn wrap(&self, launch: &Launch, launcher: &[OsString]) -> Launch {
        let mut parts = launcher.iter().cloned();
        let program = parts.next().map_or_else(|| PathBuf::from("sgs-lean-sandbox"), PathBuf::from);
        let mut args: Vec<OsString> = parts.collect();
        args.push(self.specification().into());
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

    /// Returns the launcher's argument. [`available`] reports a path that cannot be part of it.
    #[allow(clippy::expect_used, reason = "a path that is not UTF-8 is reported before anything is started")]
    fn specification(&self) -> String {
        serde_json::to_string(self).expect("invariant: the paths of a sandbox are UTF-8")
    }

    /// Returns the files that a dynamically linked program needs on any Linux system.
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
            // The number of processors and the amount of memory. Without them, some runtimes start no threads.
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
