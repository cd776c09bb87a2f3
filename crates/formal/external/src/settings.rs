//! The configuration keys of an external formal system.

use sgs_formal::process::{Launch, Quota};
use sgs_keys::above;
use std::ffi::OsStr;
use std::time::Duration;

sgs_keys::table! {
    /// A formal system in a separate process (docs/external.md).
    #[derive(Clone, Debug, PartialEq)]
    pub struct ExternalSettings {
        /// The program that implements the formal system, and its arguments. Relative paths start at `folder`.
        pub command: Vec<String> = Vec::new(), in "a list: the program and its arguments (required)",
        /// Folder in which the processes start.
        pub folder: String = String::new(), in "empty for that in which the run is started, or a folder",
        /// Whether the processes run in a sandbox, which must be complete: no network, no writes, no signals to other
        /// processes, few environment variables, and only the system's programs and libraries, `folder` and `read` can be
        /// read.
        pub sandbox: bool = false,
        /// Other files and folders that the processes may read in the sandbox.
        pub read: Vec<String> = Vec::new(), in "a list of paths, such as the folder of a Python environment",
        /// Number of processes, each of which answers one request at a time.
        pub processes: usize = 2, in 1..=256,
        /// Maximum number of proofs in a request to verify.
        pub batch: usize = 32, in 1..=4096,
        /// Time limit of a request, in seconds.
        pub timeout_s: f64 = 60.0, in above(0.0).at_most(1e5),
        /// Maximum length of a reply, in bytes.
        pub reply_bytes: usize = 1 << 20, in 1024..=1 << 30,
        /// Limit on the resident memory of a process and its descendants, in MiB.
        pub memory_mib: u64 = 4096, in 1..=1_000_000_000,
        /// Number of requests that may fail before the run stops; ten in succession also stop it.
        pub failures: u32 = 20, in 0..=1_000_000,
    }
}

impl ExternalSettings {
    /// Returns the program to start; `None` without a command.
    pub(crate) fn launch(&self) -> Option<Launch> {
        let (program, args) = self.command.split_first()?;
        Some(Launch {
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            env: std::env::vars_os().filter(|(name, _)| self.passes_on(name)).collect(),
            folder: if self.folder.is_empty() { "." } else { &self.folder }.into(),
            cgroup: None,
        })
    }

    /// Returns whether the processes get the environment variable `name`. Variables of sgs can contain tokens and keys. The
    /// variables of others can, too, so the sandbox admits only those that programs need.
    fn passes_on(&self, name: &OsStr) -> bool {
        let name = name.as_encoded_bytes();
        let is_needed = matches!(name, b"PATH" | b"HOME" | b"LANG" | b"LC_ALL" | b"TMPDIR")
            || name.starts_with(b"PYTHON");
        !name.starts_with(b"SGS_") && (is_needed || !self.sandbox)
    }

    pub(crate) fn quota(&self) -> Quota {
        Quota { memory: self.memory_mib.saturating_mul(1 << 20), output: self.reply_bytes }
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout_s)
    }
}
