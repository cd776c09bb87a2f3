//! Settings of Lean, and their resolution to programs, sandbox and pinned options.

use crate::check::{
    CheckerConfig, FileChecker, JudgeProgram, Launch, Limits, Probe, Recycling, ReplChecker, TrustLayers,
};
use crate::prompt::SolverForm;
use crate::read::Reading;
use crate::sandbox::{LayerStatus, Sandbox, available};
use crate::templates::{Prompts, PromptsError, Templates};
use crate::text::Bounds;
use crate::version::{Version, ask_version, number};
use crate::{Lean, LeanConfig, StartError};
use sgs_formal::process::cgroup;
use sgs_formal::scratch::{PrivateFolder, private_folder};
use sgs_keys::Allowed;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Default version of Lean, the paper's.
pub const VERSION: &str = "v4.15.0";
/// Default folder of Lean with Mathlib.
pub const ROOT: &str = "lean-setup";
/// Default folder of the WebAssembly build.
pub const WASM_ROOT: &str = "lean-wasm";
/// Version of the WebAssembly build.
pub const WASM_VERSION: &str = "v4.28.0-pre";

sgs_keys::choice! {
    /// The program that judges proofs.
    #[derive(Default)]
    pub enum Backing {
        /// The community REPL with Mathlib, as installed by the setup.
        #[default]
        Repl = "repl",
        /// The judge over the same installation, with several theorems per file.
        File = "file",
        /// The judge over the WebAssembly build: core Lean.
        Wasm = "wasm",
    }
}

sgs_keys::table! {
    /// Settings of Lean in a configuration file.
    #[derive(Clone, Debug, PartialEq)]
    pub struct LeanSettings {
        /// Checker program (`--lean-checker`): the REPL with Mathlib, the judge over the same installation, or the judge over core Lean as WebAssembly.
        pub backing: Backing = Backing::Repl,
        /// Folder of `sgs lean setup`.
        pub root: PathBuf = PathBuf::new(), in "a folder; empty for lean-setup (wasm: lean-wasm)",
        /// Version of Lean in that folder. It is compared with the version that Lean reports.
        pub version: String = String::new(), in "a version; empty for v4.15.0 (wasm: v4.28.0-pre)",
        /// Folder that Lean's processes may write to; created if it does not exist.
        pub scratch: Option<PathBuf> = None, in "a folder; left out: one of the run's own",
        /// Number of proofs checked concurrently; 0 for one per core.
        pub slots: usize = 0, in 0..=100_000,
        /// Theorems per file; 0 for 16, or 128 with wasm, where a start takes 80 s of CPU time and a theorem a tenth of a
        /// second.
        pub theorems_per_file: usize = 0, in 0..=100_000,
        /// Limits of a check.
        pub limits: Limits,
        /// When a healthy REPL is replaced.
        pub recycling: Recycling,
        /// Options set after every header.
        pub options: Vec<(String, String)> = pinned_options(), in "a list of [name, value]",
        /// How completions are read.
        pub reading: Reading = Reading::Lenient,
        /// How the Solver is prompted; compact applies to all roles, for prompts and answers.
        pub form: SolverForm = SolverForm::NonCot,
        /// Folder with prompts that replace built-in ones of the same file names, which `sgs lean prompts` writes. A run
        /// keeps the texts that it began with.
        pub prompts: Prompts = Prompts::default(), in Allowed::TextOrTable("a folder; empty for the built-in prompts"),
        /// Limits on text from a model.
        pub bounds: Bounds,
        /// Replays accepted proofs in a second process, which keeps running and never sees a proof. The REPL requires it.
        pub judge: bool = true,
        /// Runs Lean in the sandbox.
        pub sandbox: bool = true,
        /// Refuses to run if a required layer of the sandbox is unavailable.
        pub require_sandbox: bool = false,
        /// Maximum number of cached verdicts.
        pub cache: usize = 100_000, in 0..=1_000_000_000,
    }
}

impl LeanSettings {
    /// Returns these settings with the choices of the paper's code (`docs/fidelity-lean.md`).
    #[must_use]
    pub fn with_code_choices(mut self) -> Self {
        self.reading = Reading::Strict;
        self.options.clear();
        self.limits.proof_ms = 500_000;
        self
    }
}

/// Returns the default options. `autoImplicit` keeps Lean's default, because 152 of the 3,323 statements of D_3k depend
/// on it.
fn pinned_options() -> Vec<(String, String)> {
    vec![("maxSynthPendingDepth".to_owned(), "3".to_owned())]
}

/// The settings cannot be resolved.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum SettingsError {
    #[error(
        "{what} was not found at {path}: install it with `sgs lean setup` (--wasm for core Lean only), or give its \
         folder: `--lean-root DIR`, for a run `--set lean.root=DIR`"
    )]
    Missing { what: &'static str, path: PathBuf },
    #[error(
        "{path} names `{found}`, but Lean {wanted} is required: correct the version, or run the setup again"
    )]
    Toolchain { path: PathBuf, found: String, wanted: String },
    #[error(
        "`judge` is off: the REPL runs any code of a proof, so only the judge may accept what the REPL accepts (use `file` to run without a replay)"
    )]
    ReplAlone,
    /// A folder could not be created or resolved.
    #[error("{path}: {error}")]
    Folder { path: PathBuf, error: std::io::Error },
    #[error("{0}")]
    Sandbox(String),
    #[error("the launcher of the sandbox failed: {0}")]
    Launcher(String),
    #[error("`prompts`: {0}")]
    Prompts(PromptsError),
}

/// The result of resolving settings: a configuration to start, and the sandbox's layers for the log.
#[derive(Debug)]
pub struct PreparedLean {
    /// The configuration, for [`crate::Lean::start`].
    pub config: LeanConfig,
    /// The layers of the sandbox, and whether each is active; empty if the sandbox is disabled.
    pub sandbox: Vec<LayerStatus>,
    /// Starts the installation's `lean`, to query its version.
    pub lean: Launch,
    /// The required version.
    pub version: String,
    /// The scratch folder. Dropping it removes the folder.
    own_scratch: PrivateFolder,
}

impl PreparedLean {
    /// Checks Lean's version, and starts the pool.
    pub fn start(self) -> Result<Lean, StartError> {
        let limits = match &self.config.checker {
            CheckerConfig::Repl(c) => c.limits,
            CheckerConfig::File(c) => c.limits,
        };
        let version = ask_version(&self.lean, &limits)?;
        version.require("the configuration (`version`)", &self.version)?;
        let mut lean = Lean::start(LeanConfig { version, ..self.config })?;
        lean.keep_scratch(Some(self.own_scratch));
        Ok(lean)
    }
}

impl LeanSettings {
    /// Returns the version that the installation must have.
    pub fn version(&self) -> &str {
        match (self.version.as_str(), self.backing) {
            ("", Backing::Wasm) => WASM_VERSION,
            ("", _) => VERSION,
            (named, _) => named,
        }
    }

    /// Returns the folder of the installation.
    pub fn root(&self) -> PathBuf {
        match (self.root.as_os_str().is_empty(), self.backing) {
            (true, Backing::Wasm) => WASM_ROOT.into(),
            (true, _) => ROOT.into(),
            (false, _) => self.root.clone(),
        }
    }

    /// Adapts the settings of a run to this machine: the default folder replaces an installation's folder that does not
    /// exist here, and a folder for scratch files whose parent does not exist is ignored.
    #[must_use]
    pub fn on_this_machine(mut self) -> Self {
        let default = Self { root: PathBuf::new(), ..self.clone() }.root();
        if !self.root().is_dir() && default.is_dir() {
            self.root = std::path::absolute(&default).unwrap_or(default);
        }
        let has_parent = |path: &PathBuf| {
            path.parent().is_some_and(|parent| parent.as_os_str().is_empty() || parent.is_dir())
        };
        self.scratch = self.scratch.filter(has_parent);
        self
    }

    /// Returns the maximum number of theorems per file.
    pub fn theorems_per_file(&self) -> usize {
        match (self.theorems_per_file, self.backing) {
            (0, Backing::Wasm) => 128,
            (0, _) => 16,
            (n, _) => n,
        }
    }

    /// Reads the templates of the prompts.
    ///
    /// # Errors
    /// Returns an error if a template cannot be used, or if the form has none.
    pub fn templates(&self) -> Result<Templates, PromptsError> {
        let templates = self.prompts.read()?;
        if self.form == SolverForm::Compact && !templates.is_built_in() {
            return Err(PromptsError(
                "with the form `compact`, prompts cannot be replaced: choose non-cot or cot".to_owned(),
            ));
        }
        Ok(templates)
    }

    /// Replaces the folder of prompts by their texts, so that later changes of the folder have no effect.
    pub fn freeze_prompts(&mut self) -> Result<(), PromptsError> {
        let templates = self.templates()?;
        if !templates.is_built_in() {
            self.prompts = templates.into();
        }
        Ok(())
    }

    /// Returns the number of proofs that are checked concurrently.
    pub fn slots(&self) -> usize {
        match self.slots {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }

    /// Locates the programs, builds the sandbox, and determines which of its layers are available. `launcher` is the program
    /// that enters the sandbox, followed by its leading arguments.
    pub fn prepare(&self, launcher: &[OsString]) -> Result<PreparedLean, SettingsError> {
        let root = self.root();
        // Check this before creating folders.
        if !root.is_dir() {
            return Err(SettingsError::Missing { what: "Lean", path: root });
        }
        if self.backing == Backing::Repl && !self.judge {
            return Err(SettingsError::ReplAlone);
        }
        let templates = self.templates().map_err(SettingsError::Prompts)?;
        let root = absolute(&root)?;
        let folders = Folders::create(self.scratch.as_deref())?;
        let programs = Programs::find(self, &root)?;
        let mut read = Sandbox::system_files();
        read.extend([root, folders.sources.clone()]);
        let sandbox = Sandbox {
            read,
            write: vec![folders.work.clone()],
            memory: self.limits.memory,
            cgroup: cgroup::base().ok(),
            require: self.require_sandbox,
            ..Sandbox::default()
        };
        let layers = if self.sandbox { Self::layers(&sandbox, launcher)? } else { Vec::new() };
        let launch = |program: &Path| {
            let launch = Launch {
                program: program.to_owned(),
                args: Vec::new(),
                env: programs.env.clone(),
                folder: folders.work.clone(),
                cgroup: None,
            };
            if self.sandbox { sandbox.wrap(&launch, launcher) } else { launch }
        };
        let (checker, second) = self.checkers(&programs, &folders, launch);
        let config = LeanConfig {
            reading: self.reading,
            form: self.form,
            templates,
            bounds: self.bounds,
            checker,
            second,
            slots: self.slots(),
            cache: self.cache,
            version: Version::default(),
        };
        let lean = launch(&programs.lean);
        let (version, own_scratch) = (self.version().to_owned(), folders.own_scratch);
        Ok(PreparedLean { config, sandbox: layers, lean, version, own_scratch })
    }

    /// Returns the checker, and the one that rechecks what a REPL accepts. Every process is sandboxed: a replay runs no
    /// proof, but it elaborates statements that a model wrote.
    fn checkers(
        &self,
        programs: &Programs,
        folders: &Folders,
        launch: impl Fn(&Path) -> Launch,
    ) -> (CheckerConfig, Option<FileChecker>) {
        let native =
            |program: &PathBuf| self.file_checker(JudgeProgram::Built(launch(program)), folders.work.clone());
        match self.backing {
            Backing::Repl => {
                let repl = ReplChecker {
                    launch: launch(&programs.checker),
                    options: self.options.clone(),
                    probe: Probe::Axioms,
                    limits: self.limits,
                    recycling: self.recycling,
                };
                (CheckerConfig::Repl(repl), programs.judge.as_ref().map(native))
            }
            Backing::File => (CheckerConfig::File(native(&programs.checker)), None),
            Backing::Wasm => {
                let (lean, sources) = (launch(&programs.checker), folders.sources.clone());
                let judge = JudgeProgram::Interpreted { lean, sources };
                // Lean first elaborates the judge's source, which takes 80 s of CPU time and minutes on a busy machine.
                let start_ms = if self.limits.start_ms == 0 { 900_000 } else { self.limits.start_ms };
                let limits = Limits { start_ms, ..self.limits };
                let checker = FileChecker { limits, ..self.file_checker(judge, folders.work.clone()) };
                (CheckerConfig::File(checker), None)
            }
        }
    }

    fn file_checker(&self, judge: JudgeProgram, scratch: PathBuf) -> FileChecker {
        FileChecker {
            judge,
            replay: self.judge,
            scratch,
            options: self.options.clone(),
            layers: TrustLayers::ALL,
            limits: self.limits,
            batch: self.theorems_per_file(),
            // A start takes seconds, or 80 s with WebAssembly, so it is worth waiting for a full file.
            linger_ms: if self.backing == Backing::Repl { 200 } else { 1000 },
            keep_alive: self.backing == Backing::Wasm,
        }
    }

    fn layers(sandbox: &Sandbox, launcher: &[OsString]) -> Result<Vec<LayerStatus>, SettingsError> {
        let layers = available(sandbox, launcher).map_err(SettingsError::Launcher)?;
        crate::sandbox::check_required(sandbox, &layers).map_err(SettingsError::Sandbox)?;
        Ok(layers)
    }
}

fn absolute(path: &Path) -> Result<PathBuf, SettingsError> {
    path.canonicalize().map_err(|error| SettingsError::Folder { path: path.to_owned(), error })
}

/// The folders that the processes use.
struct Folders {
    /// The processes write here. They must not be able to write to the files that they are started from.
    work: PathBuf,
    /// The judge's sources, if Lean interprets it.
    sources: PathBuf,
    /// Contains both.
    own_scratch: PrivateFolder,
}

impl Folders {
    /// Creates the folders below `scratch`, or below the system's temporary folder.
    fn create(scratch: Option<&Path>) -> Result<Self, SettingsError> {
        let own_scratch = private_folder(scratch, "sgs-lean-").map_err(|error| {
            let path = scratch.map_or_else(std::env::temp_dir, Path::to_owned);
            SettingsError::Folder { path, error }
        })?;
        let scratch = absolute(own_scratch.path())?;
        let (work, sources) = (scratch.join("work"), scratch.join("judge"));
        for folder in [&work, &sources] {
            std::fs::create_dir_all(folder)
                .map_err(|error| SettingsError::Folder { path: folder.clone(), error })?;
        }
        Ok(Self { work, sources, own_scratch })
    }
}

/// The programs of an installation and the environment that they need.
struct Programs {
    lean: PathBuf,
    checker: PathBuf,
    /// Rechecks proofs that a REPL accepts.
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
        let (checker, judge) = match settings.backing {
            Backing::Repl => {
                let repl = program("the REPL", root.join("repl/.lake/build/bin/repl"))?;
                (repl, Some(judge()?))
            }
            _ => (judge()?, None),
        };
        for part in ["mathlib4", "repl", "judge"] {
            let path = root.join(part).join("lean-toolchain");
            // Old REPLs do not have this file. If it exists, it must agree.
            let Ok(found) = std::fs::read_to_string(&path) else { continue };
            if number(&found) != number(settings.version()) {
                let (found, wanted) = (found.trim().to_owned(), settings.version().to_owned());
                return Err(SettingsError::Toolchain { path, found, wanted });
            }
        }
        // Without these, each program would start `lake` or `lean` to find its files, once per proof.
        env.push(("LEAN_SYSROOT".into(), toolchain.into()));
        env.push(("LEAN_PATH".into(), library_path(&root.join("mathlib4"))));
        env.push(("LEAN_ABORT_ON_PANIC".into(), "1".into()));
        env.push(("LEAN_NUM_THREADS".into(), "1".into()));
        Ok(Self { lean, checker, judge, env })
    }
}

/// Returns the search path for the compiled files of Mathlib and its dependencies, in either of Lake's two layouts.
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
    use sgs_keys::KeyTable;

    #[test]
    fn paths_of_another_machine_are_left_out() {
        let here = tempfile::tempdir().unwrap();
        let scratch = Some(here.path().join("scratch"));
        let kept = LeanSettings { root: here.path().into(), scratch, ..LeanSettings::default() };
        assert_eq!(kept.clone().on_this_machine(), kept);
        let moved = LeanSettings { scratch: Some(here.path().join("none/scratch")), ..kept };
        assert_eq!(moved.on_this_machine().scratch, None);
    }

    /// The texts of the keys must name the constants that an empty value selects.
    #[test]
    fn texts_of_keys_name_their_defaults() {
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
    fn a_limit_of_starts_that_is_set_is_kept() {
        let root = tempfile::tempdir().unwrap();
        touch(&root.path().join("lean"));
        touch(&root.path().join("build/lean.js"));
        let seconds = |start_ms| {
            let limits = Limits { start_ms, ..Limits::default() };
            let settings = LeanSettings {
                backing: Backing::Wasm,
                root: root.path().to_owned(),
                limits,
                sandbox: false,
                ..LeanSettings::default()
            };
            match settings.prepare(&[]).unwrap().config.checker {
                CheckerConfig::File(file) => file.limits.start().as_secs(),
                CheckerConfig::Repl(_) => panic!("not a file checker"),
            }
        };
        assert_eq!([Limits::default().start_ms, 300_000, 1_000_000].map(seconds), [900, 300, 1000]);
        assert_eq!(Limits::default().start().as_secs(), 300);
    }

    #[test]
    fn an_installation_is_located_and_missing_parts_are_named() {
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
        assert!(missing.starts_with("Lean was not found at") && missing.contains("setup"), "{missing}");
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
        let CheckerConfig::Repl(repl) = &prepared.config.checker else {
            panic!("{:?}", prepared.config.checker)
        };
        let path =
            repl.launch.env.iter().find(|(k, _)| k == "LEAN_PATH").unwrap().1.to_string_lossy().into_owned();
        assert!(
            path.contains("mathlib4/.lake/build/lib:") && path.ends_with("batteries/.lake/build/lib/lean"),
            "{path}"
        );
        let second = prepared.config.second.as_ref().expect("replay is on unless it is switched off");
        assert!(second.replay);
        let parts = repl.launch.folder.strip_prefix(root.join("scratch")).unwrap().iter().collect::<Vec<_>>();
        assert!(parts.len() == 2 && parts[1] == "work", "the scratch folder is a new one: {parts:?}");
        let alone = LeanSettings { judge: false, ..settings.clone() }.prepare(&[]);
        assert!(matches!(alone, Err(SettingsError::ReplAlone)), "{alone:?}");
        assert!(prepared.sandbox.is_empty());
        let strict = LeanSettings { sandbox: true, require_sandbox: true, ..settings };
        assert!(matches!(strict.prepare(&["/nonexistent".into()]), Err(SettingsError::Launcher(_))));
    }
}
