//! Runs with several training ranks: the same results as with one, and resumption after a process is killed.

use crate::program::{ProgramOutput, command, finish, path, sgs, small_model};
use crate::small_run::wait_for;
use crate::snapshot::snapshot;
use rustix::process::{Pid, Signal, kill_process};
use sgs_lm::{Device, checkpoint};
use sgs_lm_cpu::Cpu;
use sgs_rundir::RunView;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns the command of a short run that trains both policies.
fn run(rounds: u32, out: &str, more: &[&str]) -> Command {
    let (model, rounds) = (small_model(), format!("rounds={rounds}"));
    let mut all = vec!["run", "--out", out];
    for setting in [
        &model,
        &rounds,
        "minutes=0",
        // With this seed, both rounds train both roles.
        "seed=4",
        "algorithm.batch.size=16",
        "algorithm.guide.min_readable=0",
        "algorithm.rollouts_per_problem=4",
        "sampling.batch=16",
        "sampling.memory_mib=64",
        "algorithm.optimizer.batch_size=8",
        "training.micro_batch_tokens=512",
        "checkpoints.every=1",
        "evaluation.problems=2",
        "evaluation.samples=2",
    ] {
        all.extend(["--set", setting]);
    }
    all.extend(more);
    command(&all)
}

fn resume(out: &str, more: &[&str]) -> Command {
    command(&[&["resume", out], more].concat())
}

/// Loads the weights and both Adam moments of a policy.
fn policy(out: &str, round: u32, name: &str) -> [Vec<f32>; 3] {
    let folder = Path::new(out).join(format!("checkpoints/{round:04}/{name}"));
    let (policy, _) = checkpoint::load(&folder, Arc::new(Cpu::new(1).unwrap()), usize::MAX).unwrap();
    let adam = policy.model.device.adam_to_host(&policy.model.params, &policy.adam).unwrap();
    [policy.model.params.to_vec(), adam.m.to_vec(), adam.v.to_vec()]
}

fn policies(out: &str, round: u32) -> Vec<[Vec<f32>; 3]> {
    ["solver", "conjecturer"].map(|name| policy(out, round, name)).into()
}

/// Returns the names of the Solver's optimizer files.
fn optimizer_files(out: &str, round: u32) -> Vec<String> {
    let folder = Path::new(out).join(format!("checkpoints/{round:04}/solver"));
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| name.starts_with("optimizer")).collect();
    names.sort();
    names
}

#[track_caller]
fn assert_close(got: &[f32], want: &[f32], most: f32, what: &str) {
    assert_eq!(got.len(), want.len());
    let far = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
    assert!(far <= most, "{what} differ by {far}");
}

/// Asserts that two runs have the same round: equal rows, and metrics that differ only by rounding.
#[track_caller]
fn assert_same_round(got: &BTreeMap<String, String>, want: &BTreeMap<String, String>, round: u32) {
    let of_round = |all: &BTreeMap<String, String>| -> Vec<(String, String)> {
        let own = all.iter().filter(|(key, _)| key.starts_with(&format!("{round} ")));
        own.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let (got, want) = (of_round(got), of_round(want));
    assert!(got.len() == want.len() && got.len() > 50);
    for ((key, got), (other, want)) in got.iter().zip(&want) {
        assert_eq!(key, other);
        match (got.parse::<f64>(), want.parse::<f64>()) {
            (Ok(g), Ok(w)) if key.contains("metric") => {
                assert!((g - w).abs() < 1e-4 * w.abs().max(1.0), "{key}: {g}, expected {w}");
            }
            _ => assert_eq!(got, want, "{key}"),
        }
    }
}

#[test]
fn two_ranks_train_a_run_like_one_and_reproducibly() {
    let dir = tempfile::tempdir().unwrap();
    let [alone, two, again] = ["1", "2", "again"].map(|name| path(dir.path(), name));
    // With one rank, only the first round is compared: later rounds amplify rounding differences.
    finish(run(1, &alone, &["--set", "training.ranks=1"])).expect(0);
    let mut logged = run(2, &two, &["--set", "training.ranks=2"]);
    logged.env("RUST_LOG", "info");
    finish(logged).expect(0);
    // Whether sampling and training share memory changes no result.
    let mut in_turns = run(2, &again, &["--ranks", "2", "--set", "training.shared_memory=always"]);
    in_turns.env("RUST_LOG", "info");
    finish(in_turns).expect(0);
    let (one, both) = (snapshot(Path::new(&alone)), snapshot(Path::new(&two)));
    assert_same_round(&both, &one, 0);
    for (two, one) in policies(&two, 0).iter().zip(policies(&alone, 0)) {
        // Adam's first steps have the size of the learning rate even for tiny gradients, so rounding can flip their sign.
        assert_close(&two[0], &one[0], 5e-4, "weights");
        assert_close(&two[1], &one[1], 1e-4, "first moments");
        assert_close(&two[2], &one[2], 1e-4, "second moments");
    }
    let trained = |key: &str| both.get(key).is_some_and(|steps| steps.parse::<f64>().unwrap() > 0.0);
    assert!(trained("0 metric solver_steps") && trained("1 metric conjecturer_steps"), "{both:?}");
    assert_eq!(optimizer_files(&alone, 0), ["optimizer-m.safetensors", "optimizer-v.safetensors"]);
    assert_eq!(
        optimizer_files(&two, 1),
        ["optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"]
    );
    assert_eq!(snapshot(Path::new(&again)), both);
    assert!(policies(&again, 1) == policies(&two, 1), "the weights must be bit-identical");
    let log_of = |run: &str| std::fs::read_to_string(Path::new(run).join("ranks/rank-1.log")).unwrap();
    assert!(log_of(&again).contains(" of the device in turns") && !log_of(&two).contains("in turns"));
    let log = log_of(&two);
    assert!(log.contains("rank 1 of 2") && !log.contains("error"), "{log}");
    // Rank 1 has sampled, before and after the first update.
    assert!(sampled_tasks(&log) > 0 && log.contains("with policy 1"), "{log}");
    let metrics = RunView::open(Path::new(&two)).unwrap().rounds().unwrap()[0].metrics().unwrap().scalars;
    for rank in 0..2 {
        let of = |name: &str| metrics[&format!("{name}/{rank}")];
        assert!((0.0..1.0).contains(&of("rank_sampling_idle")), "{metrics:?}");
        assert!((0.0..0.9).contains(&of("rank_update_idle")), "{metrics:?}");
        assert!(of("rank_sent_bytes") > 0.0 && of("rank_memory_peak_bytes") > 0.0, "{metrics:?}");
    }
    let more = ["--rounds", "3", "--set", "training.shared_memory=always"];
    let mut resumed = resume(&two, &more);
    resumed.env("RUST_LOG", "info");
    finish(resumed).expect(0);
    assert!(log_of(&two).contains("in turns"), "a resumed run may change this key");
}

/// Returns the number of tasks that a rank has sampled, from its log.
fn sampled_tasks(log: &str) -> u64 {
    let line = log.lines().find_map(|line| line.split_once(" tasks were sampled"));
    let count = line.and_then(|(before, _)| before.split_whitespace().next_back());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count in {log}"))
}

#[test]
fn ranks_sample_only_if_rank_0_does() {
    let dir = tempfile::tempdir().unwrap();
    let (own, elsewhere) = (path(dir.path(), "own"), path(dir.path(), "elsewhere"));
    let log = |out: &str, more: &[&str]| {
        let mut command = run(1, out, &[&["--ranks", "2"], more].concat());
        command.env("RUST_LOG", "info");
        finish(command).expect(0);
        std::fs::read_to_string(Path::new(out).join("ranks/rank-1.log")).unwrap()
    };
    let sampled = log(&own, &[]);
    let idle = log(&elsewhere, &["--workers", "local:generate=1"]);
    assert!(sampled_tasks(&sampled) > 0, "{sampled}");
    assert!(!idle.contains("tasks were sampled") && idle.contains("examples, pass 0"), "{idle}");
    assert_eq!(snapshot(Path::new(&own)), snapshot(Path::new(&elsewhere)));
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// Returns the process id in the log of a rank.
fn process_of(out: &str, rank: usize) -> Pid {
    let log = std::fs::read_to_string(Path::new(out).join(format!("ranks/rank-{rank}.log"))).unwrap();
    pid(log.lines().find_map(|l| l.split_once("process ")).unwrap().1)
}

/// Waits until a process has ended; a zombie counts as ended.
fn wait_for_end(process: Pid) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
        stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim().starts_with('Z'))
    };
    while lives() {
        assert!(Instant::now() < deadline, "process {process:?} still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a run and calls `act` after it has published a round. Returns `None` if the run still succeeds.
fn run_and_disturb(mut command: Command, out: &str, act: impl FnOnce(&Child)) -> Option<ProgramOutput> {
    let published = || RunView::open(Path::new(out)).map_or(0, |run| run.rounds().unwrap().len());
    let before = published();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while published() == before && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    act(&child);
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(!err.contains("panicked"), "{err}");
    let code = output.status.code().unwrap_or(-1);
    (code != 0).then_some(ProgramOutput { code, out: String::new(), err })
}

/// Repeats an attempt up to ten times, because a run may end before this test disturbs it.
fn retry<T>(dir: &Path, attempt: impl FnMut(String) -> Option<T>) -> T {
    (0..10)
        .map(|i| path(dir, &format!("attempt-{i}")))
        .find_map(attempt)
        .expect("one of ten attempts disturbs the run")
}

#[test]
fn a_run_resumes_after_a_rank_or_the_coordinator_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let whole = path(dir.path(), "whole");
    finish(run(3, &whole, &["--ranks", "2"])).expect(0);
    let out = retry(dir.path(), |out| {
        let mut killed = None;
        let mut logged = run(3, &out, &["--ranks", "2"]);
        logged.env("RUST_LOG", "info");
        let done = run_and_disturb(logged, &out, |_| {
            let process = process_of(&out, 1);
            // The round may be published before rank 1 samples the next one.
            wait_for("rank 1 to sample the next round", || {
                let log = std::fs::read_to_string(Path::new(&out).join("ranks/rank-1.log")).unwrap();
                log.contains("sampling with policy 1")
            });
            killed = kill_process(process, Signal::KILL).ok().map(|()| process);
        })?;
        let process = killed?;
        assert_eq!(done.code, 1, "{}", done.err);
        for part in [
            "rank 1 of 2 was killed by signal 9",
            &format!("process {}", process.as_raw_nonzero()),
            "ranks/rank-1.log",
            &format!("sgs resume {out}"),
        ] {
            assert!(done.err.contains(part), "{part} in {}", done.err);
        }
        let mut other = None;
        run_and_disturb(resume(&out, &[]), &out, |child| {
            other = Some(process_of(&out, 1));
            let _ = kill_process(pid(&child.id().to_string()), Signal::KILL);
        })?;
        wait_for_end(other?);
        Some(out)
    });
    finish(resume(&out, &[])).expect(0);
    assert_eq!(snapshot(Path::new(&out)), snapshot(Path::new(&whole)));
    assert!(policies(&out, 2) == policies(&whole, 2), "the weights must be bit-identical");
    // No incomplete checkpoints are left behind.
    let count = |out: &str| std::fs::read_dir(Path::new(out).join("checkpoints")).unwrap().count();
    assert_eq!(count(&out), count(&whole));
}

#[test]
fn an_interrupted_run_resumes_with_another_number_of_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let out = retry(dir.path(), |out| {
        let interrupt = |child: &Child| {
            let _ = kill_process(pid(&child.id().to_string()), Signal::INT);
        };
        let done = run_and_disturb(run(3, &out, &["--ranks", "2"]), &out, interrupt)?;
        assert_eq!(done.code, 130, "{}", done.err);
        let log = std::fs::read_to_string(Path::new(&out).join("ranks/rank-1.log")).unwrap();
        // A warning that the coordinator cannot be reached may contain "os error", because the server ends before the
        // rank does.
        assert!(
            !log.lines().any(|line| line.starts_with("error")),
            "the rank did not shut down cleanly: {log}"
        );
        let done = run_and_disturb(resume(&out, &["--ranks", "1"]), &out, interrupt)?;
        assert_eq!(done.code, 130, "{}", done.err);
        finish(resume(&out, &["--ranks", "3"])).expect(0);
        Some(out)
    });
    assert_eq!(
        snapshot(Path::new(&out)).keys().filter(|key| key.contains("metric cumulative_solve_rate")).count(),
        3
    );
    assert_eq!(optimizer_files(&out, 0).len(), 2);
    assert_eq!(optimizer_files(&out, 2).len(), 3);
}

#[test]
fn externally_started_ranks_meet_and_learn_why_rank_0_fails() {
    let dir = tempfile::tempdir().unwrap();
    let with_token = |mut rank: Command| {
        rank.env("SGS_TOKEN", "a-token-of-this-test").stdout(Stdio::piped()).stderr(Stdio::piped());
        rank
    };
    for attempt in 0.. {
        // Another process may take the port before rank 0 does.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let meet = ["--rendezvous", &address, "--rank-patience", "120"];
        let out = path(dir.path(), &format!("two-{attempt}"));
        let rank_0 = |out: &str| {
            finish(with_token(run(1, out, &[&["--rank", "0", "--ranks", "2"], &meet[..]].concat())))
        };
        let rank_1 = |out: &str| {
            let rank = ["run", "--out", out, "--rank", "1", "--ranks", "2"];
            with_token(command(&[&rank, &meet[..]].concat())).spawn().unwrap()
        };
        let mut slurm = with_token(command(&[&["run", "--out", &out], &meet[..]].concat()));
        slurm.env("SLURM_PROCID", "1").env("SLURM_STEP_NUM_TASKS", "2").env("SLURM_LOCALID", "1");
        let second = slurm.spawn().unwrap();
        let first = rank_0(&out);
        let second = second.wait_with_output().unwrap();
        if first.err.contains("cannot listen") && attempt < 10 {
            continue;
        }
        first.expect(0);
        assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
        assert_eq!(optimizer_files(&out, 0).len(), 2);
        // With the same folder again, rank 0 refuses and rank 1 is notified immediately.
        let second = rank_1(&out);
        let first = rank_0(&out);
        let second = second.wait_with_output().unwrap();
        assert_eq!(first.code, 2, "{}", first.err);
        let err = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(second.status.code() == Some(1) && err.contains("rank 0"), "{err}");
        // Rank 1 writes nothing outside the folder of its own command line.
        let (own, other) = (path(dir.path(), "own"), path(dir.path(), "other"));
        std::fs::create_dir_all(Path::new(&own).join("checkpoints")).unwrap();
        let second = rank_1(&own);
        let first = rank_0(&other);
        second.wait_with_output().unwrap();
        assert!(first.code == 1 && first.err.contains("writes only into its run"), "{}", first.err);
        assert!(!Path::new(&other).join("checkpoints/0000").exists());
        break;
    }
}

#[test]
fn ranks_sample_for_a_run_that_trains_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [alone, two] = ["1", "2"].map(|name| path(dir.path(), name));
    finish(run(2, &alone, &["sampling-only"])).expect(0);
    finish(run(2, &two, &["sampling-only", "--ranks", "2"])).expect(0);
    let (one, both) = (snapshot(Path::new(&alone)), snapshot(Path::new(&two)));
    for round in [0, 1] {
        assert_same_round(&both, &one, round);
    }
    assert!(Path::new(&two).join("ranks/rank-1.log").is_file());
}

#[test]
fn impossible_rank_settings_are_refused_before_the_run_starts() {
    let dir = tempfile::tempdir().unwrap();
    let out = path(dir.path(), "out");
    for (more, part) in [
        (&["--set", "training.ranks=0"][..], "`training.ranks` is 0; expected an integer from 1 to 65536"),
        (
            &["--set", "training.ranks=two"],
            "`training.ranks` is \"two\"; expected an integer from 1 to 65536",
        ),
        (&["--set", "training.ranks=60000"], "this machine has processors for"),
        (&["--ranks", "2", "--rendezvous", "127.0.0.1:1"], "which of the 2 ranks"),
    ] {
        let done = finish(run(1, &out, more)).expect(2);
        assert!(done.err.contains(part), "{more:?}: {}", done.err);
    }
    assert!(!Path::new(&out).exists());
    let out = sgs(&["run", "--dry-run", "--set", "training.ranks=4"]).expect(0).out;
    assert!(out.contains("ranks = 4 ") && out.contains("# --set") && out.contains("rank 3\n"), "{out}");
    assert!(sgs(&["run", "--explain"]).expect(0).out.contains("training.ranks"));
}
