//! From a few settings to a running Lean: where the programs are, what they may read, which options are pinned.

use crate::check::{Checker, FileChecker, Launch, Layers, Limits, Probe, Recycling, ReplChecker};
use crate::prompt::SolverForm;
use crate::read::Reading;
use crate::sandbox::{LayerStatus, Sandbox, SandboxError, available, cgroup_base};
use crate::text::Bounds;
use crate::{Judge, LeanConfig};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Which program judges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// The community REPL with Mathlib, as the setup builds it.
    #[default]
    Repl,
    /// `lean --json` of the same installation, several theorems a file.
    File,
    /// The WebAssembly build: core Lean, no axioms listed.
    Wasm,
}

/// Everything about Lean that a configuration file may say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeanSettings {
    /// Which program judges.
    pub backing: Backing,
    /// Folder of the setup (of the WebAssembly build for `wasm`).
    pub root: PathBuf,
    /// Lean's version in that folder, as `v4.15.0`.
    pub version: String,
    /// Folder that processes may write to, made if it is not there; by default one of its own among the system's
    /// temporary files.
    pub scratch: Option<PathBuf>,
    /// Proofs checked at the same time.
    pub slots: usize,
    /// Theorems in one file, where files are checked.
    pub theorems_per_file: usize,
    /// Bounds of a check.
    pub limits: Limits,
    /// When a healthy process is replaced.
    pub recycling: Recycling,
    /// Options set after every header.
    pub options: Vec<(String, String)>,
    /// How completions are read.
    pub reading: Reading,
    /// How the Solver is asked.
    pub form: SolverForm,
    /// Bounds on model text.
    pub bounds: Bounds,
    /// Replay accepted proofs in a second process.
    pub judge: bool,
    /// Run Lean in the sandbox.
    pub sandbox: bool,
    /// Refuse to run where the sandbox has a hole.
    pub require_sandbox: bool,
    /// Verdicts that are remembered.
    pub cache: usize,
}

impl Default for LeanSettings {
    fn default() -> Self {
        Self {
            backing: Backing::Repl,
            root: PathBuf::from("lean-setup"),
            version: "v4.15.0".into(),
            scratch: None,
            slots: std::thread::available_parallelism().map_or(1, usize::from),
            theorems_per_file: 16,
            limits: Limits::default(),
            recycling: Recycling::default(),
            options: [("autoImplicit", "false"), ("maxSynthPendingDepth", "3")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            reading: Reading::Lenient,
            form: SolverForm::NonCot,
            bounds: Bounds::default(),
            judge: false,
            sandbox: true,
            require_sandbox: false,
            cache: 100_000,
        }
    }
}

/// Why settings do not make a Lean.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A program is not where it should be.
    #[error("{what} is not at {path}: run the setup first (`sgs lean setup`), or set `root`")]
    Missing {
        /// What.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A folder could not be made or resolved.
    #[error("{path}: {error}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The sandbox has a hole and is required.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The launcher does not answer.
    #[error("the sandbox's launcher: {0}")]
    Launcher(String),
}

/// What came of settings: the configuration to start, and the sandbox's layers for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// For [`crate::Lean::start`].
    pub config: LeanConfig,
    /// Layers of the sandbox, each with whether it is in force; empty if it is switched off.
    pub sandbox: Vec<LayerStatus>,
}

impl LeanSettings {
    /// Finds the programs, builds the sandbox, and says which of its layers are in force. `launcher` is the program
    /// that enters the sandbox, with its leading arguments.
    pub fn prepare(&self, launcher: &[OsString]) -> Result<Prepared, SettingsError> {
        let root = absolute(&self.root)?;
        let own = || std::env::temp_dir().join(format!("sgs-lean-{}", std::process::id()));
        let scratch = self.scratch.clone().unwrap_or_else(own);
        std::fs::create_dir_all(&scratch)
            .map_err(|error| SettingsError::Folder { path: scratch.clone(), error })?;
        let scratch = absolute(&scratch)?;
        let programs = Programs::find(self, &root)?;
        let cgroup = cgroup_base().ok();
        let mut read = Sandbox::system_files();
        read.push(root);
        let sandbox = Sandbox {
            read,
            write: vec![scratch.clone()],
            memory: self.limits.memory,
            cgroup,
            require: self.require_sandbox,
            ..Sandbox::default()
        };
        let layers = if self.sandbox { self.layers(&sandbox, launcher)? } else { Vec::new() };
        let enclosed =
            |launch: &Launch| if self.sandbox { sandbox.wrap(launch, launcher) } else { launch.clone() };
        let launch = |program: &Path, args: &[&str]| Launch {
            program: program.to_owned(),
            args: args.iter().map(OsString::from).collect(),
            env: programs.env.clone(),
            folder: scratch.clone(),
            cgroup: None,
        };
        let checker = match self.backing {
            Backing::Repl => Checker::Repl(ReplChecker {
                launch: enclosed(&launch(&programs.checker, &[])),
                options: self.options.clone(),
                probe: Probe::Axioms,
                layers: Layers::ALL,
                limits: self.limits,
                recycling: self.recycling,
            }),
            Backing::File | Backing::Wasm => Checker::File(FileChecker {
                launch: enclosed(&launch(&programs.checker, &["--json"])),
                scratch: scratch.clone(),
                options: self.options.clone(),
                probe: if self.backing == Backing::Wasm { Probe::Presence } else { Probe::Axioms },
                layers: Layers::ALL,
                limits: self.limits,
                batch: self.theorems_per_file,
            }),
        };
        let judge = programs.judge.as_ref().map(|program| Judge {
            elaborate: enclosed(&launch(program, &[])),
            replay: launch(program, &[]),
            scratch: scratch.clone(),
            options: self.options.clone(),
            limits: self.limits,
        });
        let version = match self.backing {
            Backing::Wasm => "Lean 4.28.0-pre (WebAssembly)".to_owned(),
            _ => format!("Lean {}", self.version),
        };
        let config = LeanConfig {
            reading: self.reading,
            form: self.form,
            bounds: self.bounds,
            checker,
            judge,
            slots: self.slots,
            cache: self.cache,
            version,
        };
        Ok(Prepared { config, sandbox: layers })
    }

    fn layers(&self, sandbox: &Sandbox, launcher: &[OsString]) -> Result<Vec<LayerStatus>, SettingsError> {
        use crate::sandbox::Layer;
        let layers = available(sandbox, launcher).map_err(SettingsError::Launcher)?;
        let needed = [Layer::Landlock, Layer::Seccomp, Layer::ResourceLimits];
        let missing = layers.iter().find(|l| !l.active && needed.contains(&l.layer));
        match missing.filter(|_| self.require_sandbox) {
            Some(layer) => {
                Err(SandboxError::Missing { layer: layer.layer, detail: layer.detail.clone() }.into())
            }
            None => Ok(layers),
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, SettingsError> {
    path.canonicalize().map_err(|error| SettingsError::Folder { path: path.to_owned(), error })
}

/// The programs of an installation and the environment that they need.
struct Programs {
    checker: PathBuf,
    judge: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
}

impl Programs {
    fn find(settings: &LeanSettings, root: &Path) -> Result<Self, SettingsError> {
        let program = |what: &'static str, path: PathBuf| {
            if path.is_file() { Ok(path) } else { Err(SettingsError::Missing { what, path }) }
        };
        let mut env: Vec<(OsString, OsString)> = vec![("PATH".into(), "/usr/bin:/bin".into())];
        if settings.backing == Backing::Wasm {
            let checker = program("Lean as WebAssembly", root.join("lean"))?;
            program("Lean as WebAssembly, prepared,", root.join("build/lean.js"))?;
            return Ok(Self { checker, judge: None, env });
        }
        let toolchain = root.join(format!("elan/toolchains/leanprover--lean4---{}", settings.version));
        let lean = program("Lean", toolchain.join("bin/lean"))?;
        let checker = match settings.backing {
            Backing::Repl => program("the REPL", root.join("repl/.lake/build/bin/repl"))?,
            _ => lean,
        };
        let judge = match settings.judge {
            true => Some(program("the judge", root.join("judge/.lake/build/bin/sgs-judge"))?),
            false => None,
        };
        // Set, so that neither program asks `lake` or `lean` where things are: that would be a process a proof.
        env.push(("LEAN_SYSROOT".into(), toolchain.into()));
        env.push(("LEAN_PATH".into(), library_path(&root.join("mathlib4"))));
        env.push(("LEAN_ABORT_ON_PANIC".into(), "1".into()));
        env.push(("LEAN_NUM_THREADS".into(), "1".into()));
        Ok(Self { checker, judge, env })
    }
}

/// Compiled files of Mathlib and of what it depends on, in either of the two layouts that Lake has had.
fn library_path(mathlib: &Path) -> OsString {
    let packages = std::fs::read_dir(mathlib.join(".lake/packages")).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = packages.map(|package| package.path()).collect();
    folders.sort();
    folders.insert(0, mathlib.to_owned());
    let mut path = OsString::new();
    for folder in folders {
        let new = folder.join(".lake/build/lib/lean");
        let library = if new.is_dir() { new } else { folder.join(".lake/build/lib") };
        if !path.is_empty() {
            path.push(":");
        }
        path.push(library);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn an_installation_is_found_and_what_is_missing_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let settings = LeanSettings {
            root: root.clone(),
            scratch: Some(root.join("scratch")),
            sandbox: false,
            judge: true,
            ..LeanSettings::default()
        };
        let missing = settings.prepare(&[]).unwrap_err().to_string();
        assert!(missing.starts_with("Lean is not at") && missing.contains("setup"), "{missing}");
        touch(&root.join("elan/toolchains/leanprover--lean4---v4.15.0/bin/lean"));
        touch(&root.join("repl/.lake/build/bin/repl"));
        touch(&root.join("judge/.lake/build/bin/sgs-judge"));
        touch(&root.join("mathlib4/.lake/packages/batteries/.lake/build/lib/lean/x"));
        let prepared = settings.prepare(&[]).unwrap();
        let Checker::Repl(repl) = &prepared.config.checker else { panic!("{:?}", prepared.config.checker) };
        let path =
            repl.launch.env.iter().find(|(k, _)| k == "LEAN_PATH").unwrap().1.to_string_lossy().into_owned();
        assert!(
            path.contains("mathlib4/.lake/build/lib:") && path.ends_with("batteries/.lake/build/lib/lean"),
            "{path}"
        );
        assert!(prepared.config.judge.is_some());
        assert!(prepared.sandbox.is_empty());
        let strict = LeanSettings { sandbox: true, require_sandbox: true, ..settings };
        assert!(matches!(strict.prepare(&["/nonexistent".into()]), Err(SettingsError::Launcher(_))));
    }
}
