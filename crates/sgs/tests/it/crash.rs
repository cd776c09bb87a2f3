//! Runs that are killed at random moments and resumed produce the same tables as undisturbed ones.

use crate::program::small_model;
use crate::small_run;
use crate::snapshot::snapshot;
use sgs_rundir::RunView;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: u32 = 6;
const KILLS: usize = 50;

fn sgs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sgs"));
    command.env_remove("RUST_LOG").stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        // Ignore the developer's configuration.
        if name.to_string_lossy().starts_with("SGS_SET_") {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the arguments of a run with this number of rounds.
fn settings(rounds: u32) -> Vec<String> {
    let mut out = vec!["run".to_owned()];
    for setting in [
        small_model(),
        format!("rounds={rounds}"),
        "minutes=0".to_owned(),
        "algorithm.batch.size=24".to_owned(),
        "algorithm.guide.min_readable=0".to_owned(),
        "algorithm.rollouts_per_problem=4".to_owned(),
        "sampling.batch=64".to_owned(),
        "sampling.memory_mib=64".to_owned(),
        "evaluation.problems=5".to_owned(),
        "evaluation.samples=2".to_owned(),
        "evaluation.every=2".to_owned(),
        "algorithm.optimizer.batch_size=8".to_owned(),
        "training.micro_batch_tokens=512".to_owned(),
    ] {
        out.extend(["--set".to_owned(), setting]);
    }
    out
}

/// Asserts that every published round is complete. Unfinished rounds have temporary names.
fn assert_no_torn_rounds(run: &Path) {
    for entry in std::fs::read_dir(run.join("rounds")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|b| b.is_ascii_digit()) {
            for file in ["problems", "conjectures", "rollouts", "reviews"] {
                assert!(entry.path().join(format!("{file}.parquet")).is_file(), "round {name} lacks {file}");
            }
        }
    }
}

fn finish(mut command: Command, what: &str) {
    let output = command.output().expect("starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {:?}\n{stderr}", output.status);
}

fn undisturbed(settings: &[String], folder: &Path) -> PathBuf {
    let run = folder.join("undisturbed");
    let mut command = sgs();
    command.args(settings).arg("--out").arg(&run);
    finish(command, "undisturbed");
    run
}

/// With tied weights that only the Conjecturer trains, resumed runs and workers load the Solver's weights from the
/// checkpoint, not from the base model.
#[test]
#[ignore = "half a minute: three runs; .ci/run runs it"]
fn crash_with_tied_weights() {
    let folder = tempfile::tempdir().expect("a folder");
    let command = |out: &Path| {
        let mut command = sgs();
        command.args(settings(3));
        for setting in ["algorithm.tied_weights=true", "algorithm.solver.train=false"] {
            command.args(["--set", setting]);
        }
        command.arg("--out").arg(out);
        command
    };
    let expected = {
        let run = folder.path().join("undisturbed");
        finish(command(&run), "undisturbed");
        snapshot(&run)
    };
    let run = folder.path().join("killed");
    let mut child = command(&run).stderr(Stdio::null()).spawn().expect("starts");
    let patience = Instant::now() + Duration::from_secs(120);
    while !run.join("rounds/0000").is_dir() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("kills");
    child.wait().expect("waits");
    let mut resume = sgs();
    resume.arg("resume").arg(&run);
    finish(resume, "resumed");
    assert_eq!(snapshot(&run), expected, "resumed from the checkpoint");
    let run = folder.path().join("workers");
    let mut with_workers = command(&run);
    with_workers.args(["--workers", "local:generate=1"]);
    finish(with_workers, "with a worker");
    assert_eq!(snapshot(&run), expected, "sampled by a worker of another process");
}

#[test]
#[ignore = "a minute or two: kills a run fifty times; .ci/run runs it"]
fn crash_fifty_times_and_resume() {
    crash_and_resume(&settings(ROUNDS), KILLS);
}

#[test]
#[ignore = "half a minute: kills a run ten times; .ci/run runs it"]
fn crash_between_the_turns_of_attempts() {
    let mut settings = settings(ROUNDS);
    settings.extend(["--set", "algorithm.solver.repair_turns=2"].map(str::to_owned));
    let run = crash_and_resume(&settings, 10);
    let view = RunView::open(&run.path().join("killed")).expect("a run");
    let rounds = view.rounds().expect("rounds");
    let turns = rounds.iter().flat_map(|round| round.rollouts().expect("rollouts"));
    let repairs = turns.filter(|row| row.as_ref().expect("a row").index >= 4).count();
    assert!(repairs > 100, "{repairs} rollouts repair a proof");
}

/// Kills a run `kills` times at random moments, and asserts that it has the tables of an undisturbed one. Returns the folder
/// of both.
fn crash_and_resume(settings: &[String], kills_wanted: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let expected = snapshot(&undisturbed(settings, folder.path()));
    assert!(!expected.is_empty());
    let run = folder.path().join("killed");
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let (mut kills, mut exists) = (0, false);
    for attempt in 0..kills_wanted * 20 {
        if kills == kills_wanted {
            break;
        }
        let mut command = sgs();
        exists = exists || run.join("config.toml").exists();
        if exists {
            command.arg("resume").arg(&run);
        } else {
            command.args(settings).arg("--out").arg(&run);
        }
        command.stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(20 + (random >> 33) % 1_400));
        if child.try_wait().expect("waits").is_none() {
            child.kill().expect("kills");
            kills += 1;
        }
        let ended = child.wait().expect("waits").success();
        assert_no_torn_rounds(&run);
        // The last evaluation follows the last round, so only the exit status shows that the run is complete.
        if ended && kills < kills_wanted {
            // The run ended before all kills were done, so continue with a new run.
            assert_eq!(snapshot(&run), expected, "after {kills} kills, attempt {attempt}");
            std::fs::remove_dir_all(&run).expect("removes");
            exists = false;
        }
    }
    assert_eq!(kills, kills_wanted);
    if !run.join("config.toml").exists() {
        let _ = std::fs::remove_dir_all(&run);
        let mut command = sgs();
        command.args(settings).arg("--out").arg(&run);
        finish(command, "started again");
    } else {
        let mut command = sgs();
        command.arg("resume").arg(&run);
        finish(command, "the last resume");
    }
    assert_eq!(snapshot(&run), expected);
    folder
}

/// Returns the worker processes that a coordinator has started.
fn workers_of(coordinator: u32) -> Vec<i32> {
    // `PID (NAME) STATE PARENT …`; the name may contain spaces and parentheses.
    let parent = |stat: &str| stat.rsplit(") ").next()?.split(' ').nth(1)?.parse::<u32>().ok();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        parent(&stat) == Some(coordinator)
    };
    pids.filter(is_child).collect()
}

/// Kills a hundred workers and coordinators in random order, over as many runs as that takes.
#[test]
#[ignore = "some minutes: kills workers and coordinator a hundred times; .ci/run runs it"]
fn crash_of_workers_and_coordinator_a_hundred_times() {
    const KILLS: u32 = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let expected = snapshot(&undisturbed(&settings(ROUNDS), folder.path()));
    let run = folder.path().join("killed");
    let launch = |run: &Path| {
        let mut command = sgs();
        if run.join("config.toml").exists() {
            command.arg("resume").arg(run);
        } else {
            command
                .args(settings(ROUNDS))
                .args(["--workers", "local:generate=2,verify=1,threads=1", "--out"])
                .arg(run);
        }
        command.stderr(Stdio::null()).spawn().expect("starts")
    };
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (mut workers, mut coordinators, mut completed) = (0, 0, 0);
    let mut next = draw(4);
    let mut child = launch(&run);
    let deadline = Instant::now() + Duration::from_secs(3600);
    while workers + coordinators < KILLS {
        assert!(Instant::now() < deadline, "{workers} workers and {coordinators} coordinators in an hour");
        std::thread::sleep(Duration::from_millis(50 + draw(1_200)));
        if let Some(status) = child.try_wait().expect("waits") {
            if status.success() {
                // The run ended before all kills were done, so continue with a new run.
                assert_eq!(
                    snapshot(&run),
                    expected,
                    "{workers} workers, {coordinators} coordinators were killed"
                );
                std::fs::remove_dir_all(&run).expect("removes");
                completed += 1;
            }
            child = launch(&run);
            next = draw(4);
            continue;
        }
        let children = workers_of(child.id());
        // Kill three workers for each coordinator on average, regardless of how long workers take to start.
        if next == 0 {
            child.kill().expect("kills");
            child.wait().expect("waits");
            coordinators += 1;
            assert_no_torn_rounds(&run);
            child = launch(&run);
            next = draw(4);
        } else if !children.is_empty() {
            let pid = rustix::process::Pid::from_raw(children[draw(children.len() as u64) as usize])
                .expect("a process");
            // The worker may have exited in the meantime.
            workers += u32::from(rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
            next = draw(4);
        }
    }
    assert!(child.wait().expect("waits").success() || run.join("config.toml").exists());
    let mut resume = sgs();
    resume.arg("resume").arg(&run);
    finish(resume, "the last resume");
    assert_eq!(snapshot(&run), expected);
    assert!(workers > 0 && coordinators > 0, "{workers} workers and {coordinators} coordinators were killed");
    let address = std::fs::read_to_string(run.join("fleet.toml")).expect("the coordinator's address");
    assert!(address.contains("https://"), "the workers did not use TLS: {address}");
    println!("{workers} workers and {coordinators} coordinators killed, {} runs completed", completed + 1);
}

#[test]
fn a_second_process_on_the_same_run_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    let mut first = sgs().args(settings(1000)).arg("--out").arg(&run).spawn().expect("starts");
    let start = Instant::now();
    while !run.join("config.toml").exists() {
        let alive = first.try_wait().expect("waits").is_none();
        assert!(alive && start.elapsed() < Duration::from_secs(240), "no run was started");
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = sgs().arg("resume").arg(&run).output().expect("starts");
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    first.kill().expect("kills");
    first.wait().expect("waits");
    assert_eq!(second.status.code(), Some(2));
    assert!(message.contains(&first.id().to_string()), "the message names the process: {message}");
}

/// Returns the arguments of a small run with the shipped model, which is copied to the run. With this seed, the run trains.
fn shipped_model() -> Vec<String> {
    let more = ["model.base=shipped", "rounds=1", "seed=1"].map(|set| ["--set".to_owned(), set.to_owned()]);
    [small_run::settings_without_evaluation(), more.concat()].concat()
}

/// Runs or resumes with a file size limit of `kib` KiB, which simulates a nearly full disk.
fn with_files_limited(kib: u32, run: &Path) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", kib * 2));
    command.arg(env!("CARGO_BIN_EXE_sgs"));
    if run.join("config.toml").exists() {
        command.arg("resume").arg(run);
    } else {
        command.args(shipped_model()).arg("--out").arg(run);
    }
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().expect("starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn failed_writes_stop_the_run_name_the_file_and_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let expected = snapshot(&small_run::embedded_with(&shipped_model()));
    let run = folder.path().join("limited");
    // First the base model exceeds the limit, then the files of a checkpoint, which are written in parallel: in the
    // middle and near the end.
    for (kib, files) in [(64, "base"), (10_000, "checkpoints"), (16_000, "checkpoints")] {
        let (code, message) = with_files_limited(kib, &run);
        assert_eq!(code, Some(1), "{kib} KiB: {message}");
        assert!(!message.contains("panicked"), "{message}");
        assert!(message.contains(files) && message.contains("File too large"), "{kib} KiB: {message}");
        assert_no_torn_rounds(&run);
    }
    let mut command = sgs();
    command.arg("resume").arg(&run);
    finish(command, "without the limit");
    assert_eq!(snapshot(&run), expected);
}

fn mount(args: &[&str]) -> bool {
    Command::new("mount").args(args).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// A mounted file system that is unmounted on drop.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_or_read_only_disk_stops_the_run_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let at = disk.to_str().expect("a path");
    // The files of a checkpoint need more.
    if !mount(&["-t", "tmpfs", "-o", "size=14m", "tmpfs", at]) {
        println!("skipped: this user has no permission to mount a file system");
        return;
    }
    let mounted = Mounted(disk.clone());
    let expected = snapshot(&small_run::embedded());
    let run = disk.join("run");
    let resumed = |code: Option<i32>, expected_message: &str| {
        let output = sgs().arg("resume").arg(&run).output().expect("starts");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), code, "{message}");
        assert!(message.contains(expected_message) && !message.contains("panicked"), "{message}");
    };
    let first = sgs().args(small_run::settings()).arg("--out").arg(&run).output().expect("starts");
    let message = String::from_utf8_lossy(&first.stderr).into_owned();
    assert_eq!(first.status.code(), Some(1), "{message}");
    assert!(message.contains("No space left") && !message.contains("panicked"), "{message}");
    assert_no_torn_rounds(&run);
    resumed(Some(1), "No space left");
    assert!(mount(&["-o", "remount,ro", at]));
    resumed(Some(1), "Read-only file system");
    assert!(mount(&["-o", "remount,rw,size=2g", at]));
    resumed(Some(0), "");
    assert_eq!(snapshot(&run), expected);
    drop(mounted);
}

#[test]
fn misspelled_keys_and_values_get_a_suggestion() {
    let fails = |args: &[&str]| {
        let output = sgs().arg("run").args(args).output().expect("starts");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let message = fails(&["--set", "algorithm.solver.lerning_rate=1e-4"]);
    assert!(message.contains("algorithm.solver.learning_rate"), "{message}");
    let message = fails(&["--set", "algorithm.solver.objective=reinforc"]);
    assert!(message.contains("reinforce-half"), "{message}");
    let message = fails(&["--set", "rounds=many"]);
    assert!(message.contains("rounds") && message.contains("expected an integer from 1 to"), "{message}");
    let message = fails(&["sgs-no-gide"]);
    assert!(message.contains("sgs-no-guide"), "{message}");
    let message = fails(&["--size", "metamath-quik"]);
    assert!(message.contains("metamath-quick"), "{message}");
}
