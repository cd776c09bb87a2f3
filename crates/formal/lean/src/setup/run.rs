//! Execution of a setup plan.

use super::plan::{Action, DoneWhen, SetupPlan, SetupStep};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An event of a setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupEvent<'p> {
    /// The step was already done.
    Skipped(&'p SetupStep),
    /// The step begins.
    Begun(&'p SetupStep),
    /// The step is done.
    Finished(&'p SetupStep),
}

/// The reason why a setup stopped.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of a variant names its fields")]
pub enum SetupError {
    /// A file or folder could not be written.
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    /// A program could not be started.
    #[error("step `{step}`: cannot start `{program}`: {error}; install it and start the setup again")]
    Program { step: String, program: String, error: io::Error },
    /// A command failed.
    #[error("step `{step}` failed ({status}); completed steps are kept: start the setup again to continue")]
    Failed { step: String, status: String },
    /// A command succeeded without producing its result.
    #[error("step `{step}` succeeded, but {path} does not exist")]
    NoResult { step: String, path: PathBuf },
}

/// Runs a plan and reports each step. Commands inherit the terminal, so that the user sees their progress.
///
/// # Errors
/// Returns an error if a step fails. Completed steps are skipped in the next run.
pub fn run(plan: &SetupPlan, report: &mut dyn FnMut(SetupEvent<'_>)) -> Result<(), SetupError> {
    for step in &plan.steps {
        if is_done(step) {
            report(SetupEvent::Skipped(step));
            continue;
        }
        report(SetupEvent::Begun(step));
        match &step.action {
            Action::Command { argv, folder, env } => command(step, argv, folder, env)?,
            Action::Fetch { argv, folder, env, partial, whole } => {
                remove(partial).map_err(|error| SetupError::Io { path: partial.clone(), error })?;
                command(step, argv, folder, env)?;
                fs::rename(partial, whole).map_err(|error| SetupError::Io { path: whole.clone(), error })?;
            }
            Action::Files { files } => {
                for (path, text, program) in files {
                    write(path, text, *program)
                        .map_err(|error| SetupError::Io { path: path.clone(), error })?;
                }
            }
        }
        match &step.done {
            DoneWhen::Exists(path) if !path.exists() => {
                return Err(SetupError::NoResult { step: step.title.clone(), path: path.clone() });
            }
            DoneWhen::Mark { result, .. } if !result.exists() => {
                return Err(SetupError::NoResult { step: step.title.clone(), path: result.clone() });
            }
            DoneWhen::Mark { mark, .. } => {
                write(mark, "", false).map_err(|error| SetupError::Io { path: mark.clone(), error })?;
            }
            DoneWhen::Exists(_) | DoneWhen::Written => {}
        }
        report(SetupEvent::Finished(step));
    }
    Ok(())
}

/// Returns whether a step is done.
pub(super) fn is_done(step: &SetupStep) -> bool {
    match (&step.done, &step.action) {
        (DoneWhen::Exists(path), _) => path.exists(),
        (DoneWhen::Mark { mark, result }, _) => mark.exists() && result.exists(),
        (DoneWhen::Written, Action::Files { files }) => {
            files.iter().all(|(path, text, _)| fs::read_to_string(path).is_ok_and(|found| found == *text))
        }
        (DoneWhen::Written, Action::Command { .. } | Action::Fetch { .. }) => false,
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn command(
    step: &SetupStep,
    argv: &[String],
    folder: &Path,
    env: &[(String, String)],
) -> Result<(), SetupError> {
    fs::create_dir_all(folder).map_err(|error| SetupError::Io { path: folder.to_owned(), error })?;
    let Some((program, args)) = argv.split_first() else { return Ok(()) };
    let status = Command::new(program)
        .args(args)
        .current_dir(folder)
        .envs(env.iter().map(|(k, v)| (k, v)))
        .stdin(Stdio::null())
        .status()
        .map_err(|error| SetupError::Program { step: step.title.clone(), program: program.clone(), error })?;
    if status.success() {
        Ok(())
    } else {
        Err(SetupError::Failed { step: step.title.clone(), status: status.to_string() })
    }
}

/// Writes a file atomically.
fn write(path: &Path, text: &str, program: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let fresh = path.with_extension("partial");
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
    use super::super::plan::{SetupOptions, plan};
    use super::*;

    fn step(title: &str, argv: &[&str], folder: &Path, done: DoneWhen) -> SetupStep {
        let argv = argv.iter().map(|a| (*a).to_owned()).collect();
        let action = Action::Command { argv, folder: folder.to_owned(), env: Vec::new() };
        SetupStep { title: title.into(), action, done, network: false, disk: 0 }
    }

    fn events(plan: &SetupPlan) -> (Vec<String>, Result<(), SetupError>) {
        let mut seen = Vec::new();
        let result = run(plan, &mut |event| {
            seen.push(match event {
                SetupEvent::Skipped(s) => format!("skip {}", s.title),
                SetupEvent::Begun(s) => format!("begin {}", s.title),
                SetupEvent::Finished(s) => format!("end {}", s.title),
            });
        });
        (seen, result)
    }

    #[test]
    fn an_interrupted_setup_resumes() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        let gate = root.path().join("gate");
        let script = format!("test -e {0} && touch {1}", gate.display(), b.display());
        let plan = SetupPlan {
            steps: vec![
                step("one", &["touch", &a.display().to_string()], root.path(), DoneWhen::Exists(a.clone())),
                step("two", &["sh", "-c", &script], root.path(), DoneWhen::Exists(b)),
                step(
                    "three",
                    &["true"],
                    root.path(),
                    DoneWhen::Mark { mark: root.path().join("mark"), result: root.path().join("a") },
                ),
            ],
            result: String::new(),
        };
        let (seen, result) = events(&plan);
        assert!(matches!(result, Err(SetupError::Failed { .. })));
        assert_eq!(seen, ["begin one", "end one", "begin two"]);
        fs::write(gate, "").unwrap();
        let (seen, result) = events(&plan);
        result.unwrap();
        assert_eq!(seen, ["skip one", "begin two", "end two", "begin three", "end three"]);
        assert_eq!(events(&plan).0, ["skip one", "skip two", "skip three"]);
    }

    #[test]
    fn missing_programs_and_results_are_named() {
        let root = tempfile::tempdir().unwrap();
        let plan = |argv: &[&str]| SetupPlan {
            steps: vec![step("s", argv, root.path(), DoneWhen::Exists(root.path().join("x")))],
            result: String::new(),
        };
        let missing = run(&plan(&["no-such-program"]), &mut |_| {}).unwrap_err().to_string();
        assert!(missing.contains("no-such-program") && missing.contains("install it"), "{missing}");
        assert!(matches!(run(&plan(&["true"]), &mut |_| {}), Err(SetupError::NoResult { .. })));
    }

    /// Replacements of the real programs, which have the same effect on the file system in the layout of the real packages.
    /// They count their calls, and the call whose number is in the file `stop` fails in the middle of its work.
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
            let mut plan = plan(&SetupOptions { root: root.clone(), ..SetupOptions::default() });
            for step in &mut plan.steps {
                if let Action::Command { env, .. } | Action::Fetch { env, .. } = &mut step.action {
                    env.push(("ROOT".into(), root.display().to_string()));
                    let path = env.iter_mut().find(|(name, _)| name == "PATH").unwrap();
                    path.1 = format!("{}:/usr/bin:/bin", programs.path().display());
                }
            }
            fs::write(programs.path().join("calls"), "0").unwrap();
            fs::write(programs.path().join("stop"), stop.to_string()).unwrap();
            if let (seen, Err(error)) = events(&plan) {
                interrupted += 1;
                assert!(error.to_string().contains("start the setup again"), "{stop}: {error}: {seen:?}");
                fs::write(programs.path().join("stop"), "0").unwrap();
            }
            let (seen, result) = events(&plan);
            result.unwrap_or_else(|e| panic!("interrupted at call {stop}: {e}: {seen:?}"));
            assert!(events(&plan).0.iter().all(|e| e.starts_with("skip")), "{stop}");
            for made in ["repl/.lake/build/bin/repl", "judge/.lake/build/bin/sgs-judge", "mathlib-cache"] {
                assert!(root.join(made).exists(), "{stop}: {made}");
            }
        }
        // One interruption per call of a program. The installer of elan, which is the file that curl fetched, is not counted.
        assert_eq!(interrupted, 7);
    }

    #[test]
    fn paths_of_a_plan_do_not_depend_on_the_folder_of_a_command() {
        for wasm in [false, true] {
            let relative = plan(&SetupOptions { root: "some/where".into(), wasm, ..SetupOptions::default() });
            let here = std::env::current_dir().unwrap().join("some/where");
            let absolute = plan(&SetupOptions { root: here, wasm, ..SetupOptions::default() });
            assert_eq!(relative, absolute);
        }
    }

    #[test]
    fn plans_say_what_they_would_do_and_write_their_own_files() {
        let root = tempfile::tempdir().unwrap();
        let options = SetupOptions { root: root.path().to_owned(), ..SetupOptions::default() };
        let native = plan(&options);
        let text = native.describe();
        for word in ["elan", "Mathlib", "REPL", "judge", "v4.15.0", "from the internet"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let mut wasm = plan(&SetupOptions { wasm: true, ..options });
        wasm.steps.truncate(1);
        run(&wasm, &mut |_| {}).unwrap();
        assert!(root.path().join("lean").exists() && root.path().join("setup.mjs").exists());
        assert_eq!(events(&wasm).0, ["skip write the wrapper"]);
    }
}
