//! Metamath runs whose workers are jobs of a real Slurm cluster, some of which are killed.
//!
//! The tests start the cluster themselves (see `slurm_cluster`). If that is impossible, they print the reason and pass,
//! unless `SGS_NEED_SLURM` is set.

use crate::program::{command, file, sgs};
use crate::slurm_cluster::{Cluster, cluster, running};
use crate::small_run::{embedded_with, journal_records, settings, settings_without_evaluation, wait_for};
use crate::snapshot::snapshot;
use rustix::process::{Pid, Signal, kill_process};
use sgs_rundir::RunView;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A coordinator process that is killed on drop.
struct Coordinator(Child);

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes a fleet configuration with `count` generate workers and one verify worker as Slurm jobs.
///
/// The verify worker starts when the file `go` exists, so that no round ends before that. Evaluations could not end
/// either, so these runs have none.
fn fleet_config(cluster: &Cluster, folder: &Path, count: usize, go: &Path) -> String {
    let bin = cluster.bin().display().to_string();
    let pool = |count: usize| {
        format!(
            "by = \"slurm\"\ncount = {count}\nthreads = 1\nslots = 2\npoll-s = 0.3\nbin = \"{bin}\"\n\
             options = {{ partition = \"main\", time = \"00:10:00\" }}\n"
        )
    };
    let text = format!(
        "listen = \"127.0.0.1:0\"\nhost = \"127.0.0.1\"\n[generate]\n{}[verify]\nsetup = \"{}\"\n{}",
        pool(count),
        format_args!("while [ ! -e {} ]; do sleep 0.1; done", go.display()),
        pool(1)
    );
    file(folder, "cluster.toml", &text)
}

/// Returns name and process id of the running workers of a run.
fn live_workers(run: &Path) -> Vec<(String, Pid)> {
    let token = run.join("fleet.token").display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words: Vec<String> =
            line.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
        let after = |option: &str| words.iter().skip_while(|w| *w != option).nth(1).cloned();
        if words.get(1).is_some_and(|w| w == "worker")
            && after("--token-file").is_some_and(|t| t == token)
            && let (Some(name), Some(pid)) = (after("--name"), Pid::from_raw(pid))
        {
            found.push((name, pid));
        }
    }
    found
}

/// Returns the names of all workers that were ever started.
fn worker_names(run: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(run.join("workers")).unwrap();
    let name = |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".log")?.to_owned());
    entries.filter_map(|entry| name(entry.unwrap())).collect()
}

/// Returns the job of a worker: `KIND-NONCE-BATCH-INDEX` is task INDEX of a job array named `KIND-NONCE`.
fn job_of(cluster: &Cluster, worker: &str) -> String {
    let mut parts = worker.rsplitn(3, '-');
    let (index, _, name) = (parts.next().unwrap(), parts.next(), parts.next().unwrap());
    let queue = cluster.run("squeue", &["--array", "--noheader", "--format=%i %j"]);
    let jobs = queue.lines().filter_map(|line| line.trim().split_once(' '));
    let mut own = jobs.filter(|(id, job)| *job == name && id.ends_with(&format!("_{index}")));
    own.next().unwrap_or_else(|| panic!("no job for {worker} in {queue}")).0.to_owned()
}

#[test]
fn a_run_survives_the_death_of_slurm_workers() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    let expected = snapshot(&embedded_with(&settings_without_evaluation()));
    let run = folder.path().join("slurm");
    let go = folder.path().join("go");
    let spec = fleet_config(&cluster, folder.path(), 2, &go);
    let arguments = ["--workers", &spec, "--out", run.to_str().unwrap()].map(str::to_owned);
    let log = folder.path().join("log");
    let mut coordinator = command(&[&settings_without_evaluation()[..], &arguments].concat());
    coordinator.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let mut coordinator = Coordinator(coordinator.spawn().unwrap());
    let stderr = || std::fs::read_to_string(&log).unwrap_or_default();
    let mut wait_while_it_runs = |what: &str, condition: &dyn Fn() -> bool| {
        wait_for(what, || {
            assert!(coordinator.0.try_wait().unwrap().is_none(), "the run ended: {}", stderr());
            condition()
        });
    };
    wait_while_it_runs("two generate jobs and results", &|| {
        live_workers(&run).len() == 2 && journal_records(&run) >= 5
    });
    // Cancel one generate job, as a user could, and kill the other, as the kernel could.
    let first = live_workers(&run);
    println!("scancel {} {}", first[0].0, cluster.run("scancel", &[&job_of(&cluster, &first[0].0)]));
    kill_process(first[1].1, Signal::KILL).unwrap();
    // Kill the verify job as soon as it runs.
    std::fs::write(&go, "").unwrap();
    let verifier = || live_workers(&run).into_iter().find(|(name, _)| name.starts_with("verify-"));
    wait_while_it_runs("the verify job", &|| verifier().is_some());
    let (verify_worker, pid) = verifier().expect("the verify job runs");
    kill_process(pid, Signal::KILL).unwrap();
    println!("SIGKILL {} and {verify_worker}", first[1].0);
    println!("{} results of the round were in the journal", journal_records(&run));
    wait_for("the run to end", || coordinator.0.try_wait().unwrap().is_some());
    let status = coordinator.0.wait().unwrap();
    assert!(status.success(), "{status}: {}", stderr());
    assert_eq!(snapshot(&run), expected, "the tables must equal those of an undisturbed run without Slurm");
    let names = worker_names(&run);
    let count = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
    assert!(count("generate-") > 2 && count("verify-") > 1, "killed workers were not replaced: {names:?}");
    wait_for("an empty queue", || running(&cluster).is_empty());
    assert!(live_workers(&run).is_empty(), "workers are left running");
    let text = sgs(&["status", run.to_str().unwrap()]).expect(0).out;
    assert!(text.contains("finished"), "{text}");
}

#[test]
fn a_new_coordinator_takes_over_the_jobs_of_a_dead_one() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    let expected = snapshot(&embedded_with(&settings_without_evaluation()));
    let run = folder.path().join("slurm");
    let go = folder.path().join("go");
    let spec = fleet_config(&cluster, folder.path(), 1, &go);
    let arguments = ["--workers", &spec, "--out", run.to_str().unwrap()].map(str::to_owned);
    let mut coordinator = command(&[&settings_without_evaluation()[..], &arguments].concat());
    coordinator.stdout(Stdio::null()).stderr(Stdio::null());
    let mut coordinator = Coordinator(coordinator.spawn().unwrap());
    let listed = |kind: &str| {
        let list = run.join("workers").join(format!("{kind}-slurm.json"));
        std::fs::read_to_string(list).is_ok_and(|text| text.contains(kind))
    };
    wait_for("both jobs, and results", || {
        running(&cluster).len() == 2 && listed("generate") && listed("verify") && journal_records(&run) >= 5
    });
    coordinator.0.kill().unwrap();
    coordinator.0.wait().unwrap();
    std::fs::write(&go, "").unwrap();
    wait_for("both workers", || live_workers(&run).len() == 2);
    let before = live_workers(&run);
    sgs(&["resume", run.to_str().unwrap()]).expect(0);
    assert_eq!(snapshot(&run), expected);
    let before: BTreeSet<String> = before.into_iter().map(|(name, _)| name).collect();
    assert_eq!(worker_names(&run), before, "a new worker was started");
    wait_for("an empty queue", || running(&cluster).is_empty());
}

#[test]
fn the_tasks_of_a_slurm_step_are_ranks() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    // The port is derived from the job id, so another process may use it.
    for attempt in 0.. {
        let run = folder.path().join(format!("run-{attempt}"));
        let mut step = Command::new(cluster.bin().join("srun"));
        step.args(["--ntasks=2", "--kill-on-bad-exit=1", "--time=00:10:00", env!("CARGO_BIN_EXE_sgs")])
            .args(settings());
        step.arg("--out").arg(&run).env("SGS_TOKEN", "a-token-of-this-test").stdin(Stdio::null());
        let output = step.output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        if err.contains("cannot listen") && attempt < 5 {
            continue;
        }
        assert!(output.status.success(), "{err}");
        assert_eq!(RunView::open(&run).unwrap().rounds().unwrap().len(), 2, "{err}");
        for part in ["optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"] {
            assert!(run.join("checkpoints/0001/solver").join(part).is_file(), "{part}: {err}");
        }
        let config = std::fs::read_to_string(run.join("config.toml")).unwrap();
        assert!(config.contains("ranks = 2"), "{config}");
        break;
    }
}
