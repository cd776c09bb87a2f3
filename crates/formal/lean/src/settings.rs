//! From a few settings to a running Lean: where the programs are, what they may read, which options are pinned.

use crate::check::{
    Checker, FileChecker, JudgeProgram, Launch, Layers, Limits, Probe, Recycling, ReplChecker,
};
use crate::prompt::SolverForm;
use crate::read::Reading;
use crate::sandbox::{LayerStatus, Sandbox, SandboxError, available, cgroup_base};
use crate::text::Bounds;
use crate::version::{Version, ask_version, number};
use crate::{Lean, LeanConfig, StartError};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Lean's version where none is named: the paper's.
pub const VERSION: &str = "v4.15.0";
/// Folder of Lean with Mathlib where none is named.
pub const ROOT: &str = "lean-setup";
/// Folder of the WebAssembly build where none is named.
pub const WASM_ROOT: &str = "lean-wasm";
/// The version of the WebAssembly build.
pub const WASM_VERSION: &str = "v4.28.0-pre";

sgs_keys::choice! {
    /// Which program judges.
    #[derive(Default)]
    pub enum Backing {
        /// The community REPL with Mathlib, as the setup builds it.
        #[default]
        Repl = "repl",
        /// The judge's own process over the same installation, several theorems a file.
        File = "file",
        /// The same with the WebAssembly build: core Lean, and the kernel asked again by the same process only.
        Wasm = "wasm",
    }
}

sgs_keys::table! {
    /// Everything about Lean that a configuration file may say.
    #[derive(Clone, Debug, PartialEq)]
    pub struct LeanSettings {
        /// Which program judges: the REPL with Mathlib, the judge's own process over the same installation, core Lean as WebAssembly.
        pub backing: Backing = Backing::Repl,
        /// Folder of `sgs lean setup`.
        pub root: PathBuf = PathBuf::new(), in "a folder; empty for lean-setup (wasm: lean-wasm)",
        /// Lean's version there. The checker is asked for its version, and must be this one.
        pub version: String = String::new(), in "a version; empty for v4.15.0 (wasm: v4.28.0-pre)",
        /// Folder that Lean's processes may write to, made if it is not there.
        pub scratch: Option<PathBuf> = None, in "a folder; left out: one of the run's own",
        /// Proofs checked at the same time; 0 for one a core.
        pub slots: usize = 0, in 0..=100_000,
        /// Theorems in one file, where files are checked; 0 for 16, or 128 with wasm, whose start takes half a minute of
        /// CPU time and a theorem a tenth of a second.
        pub theorems_per_file: usize = 0, in 0..=100_000,
        /// Bounds of a check.
        pub limits: Limits,
        /// When a healthy process is replaced.
        pub recycling: Recycling,
        /// Options set after every header.
        pub options: Vec<(String, String)> = pinned_options(), in "a list of [name, value]",
        /// How completions are read.
        pub reading: Reading = Reading::Lenient,
        /// How the Solver is asked; with compact the other roles, too, and answers are read so.
        pub form: SolverForm = SolverForm::NonCot,
        /// Bounds on model text.
        pub bounds: Bounds,
        /// Replays accepted proofs in a process that runs none; not with wasm, where a start takes half a minute.
        pub judge: bool = true,
        /// Runs Lean in the sandbox.
        pub sandbox: bool = true,
        /// Refuses to run where the sandbox has a hole.
        pub require_sandbox: bool = false,
        /// Verdicts that are remembered.
        pub cache: usize = 100_000, in 0..=1_000_000_000,
    }
}

/// `autoImplicit` stays as Lean has it: 152 of the 3,323 statements of D_3k count on it.
fn pinned_options() -> Vec<(String, String)> {
    vec![("maxSynthPendingDepth".to_owned(), "3".to_owned())]
}

/// Why settings do not make a Lean.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A program is not where it should be.
    #[error(
        "{what} is not at {path}: get it with `sgs lean setup` (with --wasm: core Lean for trials), or say where it is \
         (`root`, --lean-root)"
    )]
    Missing {
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A part of the installation is for another version.
    #[error(
        "{path} says `{found}`, but Lean {wanted} is wanted: set the version right, or run the setup again"
    )]
    Toolchain {
        /// The file that says so.
        path: PathBuf,
        found: String,
        wanted: String,
    },
    /// A folder could not be made or resolved.
    #[error("{path}: {error}")]
    Folder {
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
    /// Starts the `lean` of the installation, for asking its version.
    pub lean: Launch,
    /// The version that it must have.
    pub version: String,
    /// A scratch folder that was made for this process alone.
    own_scratch: Option<PathBuf>,
}

impl Prepared {
    /// Asks Lean for its version, refuses another than the settings name, and starts the pool.
    ///
    /// # Errors
    /// Lean does not answer, is of another version, or the pool cannot be started.
    pub fn start(self) -> Result<Lean, StartError> {
        let limits = match &self.config.checker {
            Checker::Repl(c) => c.limits,
            Checker::File(c) => c.limits,
        };
        let version = ask_version(&self.lean, &limits)?;
        version.must_be("the configuration (`version`)", &self.version)?;
        let mut lean = Lean::start(LeanConfig { version, ..self.config })?;
        lean.remove_at_end(self.own_scratch);
        Ok(lean)
    }
}

impl LeanSettings {
    /// The version that the installation must have.
    pub fn version(&self) -> &str {
        match (self.version.as_str(), self.backing) {
            ("", Backing::Wasm) => WASM_VERSION,
            ("", _) => VERSION,
            (named, _) => named,
        }
    }

    /// The folder of the installation.
    pub fn root(&self) -> PathBuf {
        match (self.root.as_os_str().is_empty(), self.backing) {
            (true, Backing::Wasm) => WASM_ROOT.into(),
            (true, _) => ROOT.into(),
            (false, _) => self.root.clone(),
        }
    }

    /// Theorems in one file, where files are checked.
    pub fn theorems_per_file(&self) -> usize {
        match (self.theorems_per_file, self.backing) {
            (0, Backing::Wasm) => 128,
            (0, _) => 16,
            (n, _) => n,
        }
    }

    /// Proofs checked at the same time.
    pub fn slots(&self) -> usize {
        match self.slots {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }

    /// Finds the programs, builds the sandbox, and says which of its layers are in force. `launcher` is the program
    /// that enters the sandbox, with its leading arguments.
    pub fn prepare(&self, launcher: &[OsString]) -> Result<Prepared, SettingsError> {
        let root = self.root();
        // Before anything is made: a setup that is not there is told as such.
        if !root.is_dir() {
            return Err(SettingsError::Missing { what: "Lean", path: root });
        }
        let root = absolute(&root)?;
        let own = || std::env::temp_dir().join(format!("sgs-lean-{}", std::process::id()));
        let scratch = self.scratch.clone().unwrap_or_else(own);
        std::fs::create_dir_all(&scratch)
            .map_err(|error| SettingsError::Folder { path: scratch.clone(), error })?;
        let scratch = absolute(&scratch)?;
        let programs = Programs::find(self, &root)?;
        // Processes write to a folder of theirs: what they are started with must be out of their reach.
        let (work, sources) = (scratch.join("work"), scratch.join("judge"));
        for folder in [&work, &sources] {
            std::fs::create_dir_all(folder)
                .map_err(|error| SettingsError::Folder { path: folder.clone(), error })?;
        }
        let cgroup = cgroup_base().ok();
        let mut read = Sandbox::system_files();
        read.extend([root, sources.clone()]);
        let sandbox = Sandbox {
            read,
            write: vec![work.clone()],
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
            folder: work.clone(),
            cgroup: None,
        };
        let file = |judge: JudgeProgram, replay: bool| FileChecker {
            judge,
            replay,
            scratch: work.clone(),
            options: self.options.clone(),
            layers: Layers::ALL,
            limits: self.limits,
            batch: self.theorems_per_file(),
            // A start takes seconds, half a minute with WebAssembly: a full file is worth a wait.
            linger_ms: if self.backing == Backing::Repl { 200 } else { 1000 },
            stays: self.backing == Backing::Wasm,
        };
        // The replay runs no proof, but it elaborates statements that a model wrote: both are enclosed.
        let native =
            |program: &PathBuf| file(JudgeProgram::Built(enclosed(&launch(program, &[]))), self.judge);
        let (checker, second) = match self.backing {
            Backing::Repl => {
                let repl = ReplChecker {
                    launch: enclosed(&launch(&programs.checker, &[])),
                    options: self.options.clone(),
                    probe: Probe::Axioms,
                    layers: Layers::ALL,
                    limits: self.limits,
                    recycling: self.recycling,
                };
                (Checker::Repl(repl), programs.judge.as_ref().map(native))
            }
            Backing::File => (Checker::File(native(&programs.checker)), None),
            Backing::Wasm => {
                let lean = enclosed(&launch(&programs.checker, &[]));
                let checker = file(JudgeProgram::Interpreted { lean, sources }, false);
                // It elaborates the judge's own text first: half a minute of CPU time, which can be many on a busy machine.
                let limits = Limits { start_ms: self.limits.start_ms.max(900_000), ..self.limits };
                (Checker::File(FileChecker { limits, ..checker }), None)
            }
        };
        let config = LeanConfig {
            reading: self.reading,
            form: self.form,
            bounds: self.bounds,
            checker,
            second,
            slots: self.slots(),
            cache: self.cache,
            version: Version::default(),
        };
        let lean = enclosed(&launch(&programs.lean, &[]));
        let own_scratch = self.scratch.is_none().then_some(scratch);
        Ok(Prepared { config, sandbox: layers, lean, version: self.version().to_owned(), own_scratch })
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
    lean: PathBuf,
    checker: PathBuf,
    /// The second opinion on what a REPL accepts.
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
            return Ok(Self { lean: checker.clone(), checker, judge: None, env });
        }
        let toolchain = root.join(format!("elan/toolchains/leanprover--lean4---{}", settings.version()));
        let lean = program("Lean", toolchain.join("bin/lean"))?;
        let judge = || program("the judge", root.join("judge/.lake/build/bin/sgs-judge"));
        let (checker, judge) = match (settings.backing, settings.judge) {
            (Backing::Repl, replayed) => {
                let repl = program("the REPL", root.join("repl/.lake/build/bin/repl"))?;
                (repl, if replayed { Some(judge()?) } else { None })
            }
            _ => (judge()?, None),
        };
        for part in ["mathlib4", "repl", "judge"] {
            let path = root.join(part).join("lean-toolchain");
            // Old REPLs have no such file; what is there must agree.
            let Ok(found) = std::fs::read_to_string(&path) else { continue };
            if number(&found) != number(settings.version()) {
                let (found, wanted) = (found.trim().to_owned(), settings.version().to_owned());
                return Err(SettingsError::Toolchain { path, found, wanted });
            }
        }
        // Set, so that neither program asks `lake` or `lean` where things are: that would be a process a proof.
        env.push(("LEAN_SYSROOT".into(), toolchain.into()));
        env.push(("LEAN_PATH".into(), library_path(&root.join("mathlib4"))));
        env.push(("LEAN_ABORT_ON_PANIC".into(), "1".into()));
        env.push(("LEAN_NUM_THREADS".into(), "1".into()));
        Ok(Self { lean, checker, judge, env })
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
    use sgs_keys::Table;

    /// Folder and version that an empty key stands for are constants; the texts that name them must follow.
    #[test]
    fn what_an_empty_key_stands_for_is_said() {
        let keys = LeanSettings::keys("lean");
        let said = |name: &str| keys.iter().find(|key| key.key == name).unwrap().allowed.to_string();
        let (root, version) = (said("lean.root"), said("lean.version"));
        assert!(root.contains(ROOT) && root.contains(WASM_ROOT), "{root}");
        assert!(version.contains(VERSION) && version.contains(WASM_VERSION), "{version}");
        LeanSettings::default().check("lean").unwrap();
    }

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn any_key_may_be_left_out_of_a_table() {
        type Holds = fn(&LeanSettings) -> bool;
        let parts: [(&str, Holds); 3] = [
            (r#"{"limits": {"proof_ms": 7}}"#, |s| s.limits == Limits { proof_ms: 7, ..Limits::default() }),
            (r#"{"recycling": {"uses": 7}}"#, |s| {
                s.recycling == Recycling { uses: 7, ..Recycling::default() }
            }),
            (r#"{"bounds": {"bytes": 7}}"#, |s| s.bounds == Bounds { bytes: 7, ..Bounds::default() }),
        ];
        for (text, holds) in parts {
            assert!(holds(&serde_json::from_str(text).unwrap()), "{text}");
        }
        assert!(serde_json::from_str::<LeanSettings>(r#"{"limits": {"proof_mss": 7}}"#).is_err());
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
        let toolchain = root.join("mathlib4/lean-toolchain");
        std::fs::write(&toolchain, "leanprover/lean4:v4.9.0\n").unwrap();
        let other = settings.prepare(&[]).unwrap_err().to_string();
        assert!(other.contains("v4.9.0") && other.contains("v4.15.0"), "{other}");
        std::fs::write(&toolchain, "leanprover/lean4:v4.15.0\n").unwrap();
        let prepared = settings.prepare(&[]).unwrap();
        let Checker::Repl(repl) = &prepared.config.checker else { panic!("{:?}", prepared.config.checker) };
        let path =
            repl.launch.env.iter().find(|(k, _)| k == "LEAN_PATH").unwrap().1.to_string_lossy().into_owned();
        assert!(
            path.contains("mathlib4/.lake/build/lib:") && path.ends_with("batteries/.lake/build/lib/lean"),
            "{path}"
        );
        let second = prepared.config.second.as_ref().expect("replay is on unless it is switched off");
        assert!(second.replay);
        assert_eq!(repl.launch.folder, root.join("scratch/work"));
        let off = LeanSettings { judge: false, ..settings.clone() }.prepare(&[]).unwrap();
        assert_eq!(off.config.second, None);
        assert!(prepared.sandbox.is_empty());
        let strict = LeanSettings { sandbox: true, require_sandbox: true, ..settings };
        assert!(matches!(strict.prepare(&["/nonexistent".into()]), Err(SettingsError::Launcher(_))));
    }
}
