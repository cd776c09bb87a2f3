//! SGS on Metamath with generation and verification as jobs of a real Slurm, of which some die in the middle.
//!
//! The test starts the cluster itself (see `slurm_cluster`); where that cannot be, it says so and passes, unless
//! `SGS_NEED_SLURM` is set.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod content;
mod fleet_run;
mod program;
mod shared_run;
#[path = "../../fleet/tests/slurm_cluster/mod.rs"]
mod slurm_cluster;

use content::content;
use fleet_run::{embedded_as, records, settings, unevaluated, wait_for};
use program::{command, file, sgs};
use rustix::process::{Pid, Signal, kill_process};
use sgs_rundir::RunView;
use slurm_cluster::{Cluster, cluster, running};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends with the test, however that ends.
struct Coordinator(Child);

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `count` that sample and one that checks, as jobs. The one that checks begins when the file `go` is there: until then no
/// round can end, nor an evaluation, so that these runs have none.
fn workers(cluster: &Cluster, folder: &Path, count: usize, go: &Path) -> String {
    let bin = cluster.bin().display().to_string();
    let crew = |count: usize| {
        format!(
            "by = \"slurm\"\ncount = {count}\nthreads = 1\nslots = 2\npoll-s = 0.3\nbin = \"{bin}\"\n\
             options = {{ partition = \"main\", time = \"00:10:00\" }}\n"
        )
    };
    let text = format!(
        "listen = \"127.0.0.1:0\"\nhost = \"127.0.0.1\"\n[generate]\n{}[verify]\nsetup = \"{}\"\n{}",
        crew(count),
        format_args!("while [ ! -e {} ]; do sleep 0.1; done", go.display()),
        crew(1)
    );
    file(folder, "cluster.toml", &text)
}

/// Name and process of every worker of this run that lives.
fn live(run: &Path) -> Vec<(String, Pid)> {
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

/// The workers that were ever started.
fn names(run: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(run.join("workers")).unwrap();
    let name = |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".log")?.to_owned());
    entries.filter_map(|entry| name(entry.unwrap())).collect()
}

/// The job of a worker: `KIND-NONCE-BATCH-INDEX` is the task INDEX of an array that is named `KIND-NONCE`.
fn job_of(cluster: &Cluster, worker: &str) -> String {
    let mut parts = worker.rsplitn(3, '-');
    let (index, _, name) = (parts.next().unwrap(), parts.next(), parts.next().unwrap());
    let queue = cluster.run("squeue", &["--array", "--noheader", "--format=%i %j"]);
    let jobs = queue.lines().filter_map(|line| line.trim().split_once(' '));
    let mut own = jobs.filter(|(id, job)| *job == name && id.ends_with(&format!("_{index}")));
    own.next().unwrap_or_else(|| panic!("no job of {worker} in {queue}")).0.to_owned()
}

#[test]
fn workers_are_slurm_jobs_some_die_and_the_run_is_whole() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    let expected = content(&embedded_as(&unevaluated()));
    let run = folder.path().join("slurm");
    let go = folder.path().join("go");
    let spec = workers(&cluster, folder.path(), 2, &go);
    let arguments = ["--workers", &spec, "--out", run.to_str().unwrap()].map(str::to_owned);
    let log = folder.path().join("log");
    let mut coordinator = command(&[&unevaluated()[..], &arguments].concat());
    coordinator.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let mut coordinator = Coordinator(coordinator.spawn().unwrap());
    let words = || std::fs::read_to_string(&log).unwrap_or_default();
    let mut wait_while_it_runs = |what: &str, so: &dyn Fn() -> bool| {
        wait_for(what, || {
            assert!(coordinator.0.try_wait().unwrap().is_none(), "it ended: {}", words());
            so()
        });
    };
    wait_while_it_runs("two jobs that sample, and results", &|| live(&run).len() == 2 && records(&run) >= 5);
    // One of them is cancelled by somebody, the other is killed as by the kernel.
    let first = live(&run);
    println!("scancel {} {}", first[0].0, cluster.run("scancel", &[&job_of(&cluster, &first[0].0)]));
    kill_process(first[1].1, Signal::KILL).unwrap();
    // So is the one that checks, as soon as it is there.
    std::fs::write(&go, "").unwrap();
    let checks = || live(&run).into_iter().find(|(name, _)| name.starts_with("verify-"));
    wait_while_it_runs("the job that checks", &|| checks().is_some());
    let (checker, pid) = checks().expect("it was there");
    kill_process(pid, Signal::KILL).unwrap();
    println!("SIGKILL {} and {checker}", first[1].0);
    println!("{} results of the round were in the journal", records(&run));
    wait_for("the run to end", || coordinator.0.try_wait().unwrap().is_some());
    let status = coordinator.0.wait().unwrap();
    assert!(status.success(), "{status}: {}", words());
    assert_eq!(content(&run), expected, "the same tables as without Slurm and without deaths");
    let names = names(&run);
    let count = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
    assert!(count("generate-") > 2 && count("verify-") > 1, "the dead were replaced: {names:?}");
    wait_for("an empty queue", || running(&cluster).is_empty());
    assert!(live(&run).is_empty(), "nobody is left behind");
    let text = sgs(&["status", run.to_str().unwrap()]).expect(0).out;
    assert!(text.contains("finished"), "{text}");
}

#[test]
fn a_new_coordinator_takes_over_the_jobs_of_a_dead_one() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    let expected = content(&embedded_as(&unevaluated()));
    let run = folder.path().join("slurm");
    let go = folder.path().join("go");
    let spec = workers(&cluster, folder.path(), 1, &go);
    let arguments = ["--workers", &spec, "--out", run.to_str().unwrap()].map(str::to_owned);
    let mut coordinator = command(&[&unevaluated()[..], &arguments].concat());
    coordinator.stdout(Stdio::null()).stderr(Stdio::null());
    let mut coordinator = Coordinator(coordinator.spawn().unwrap());
    let listed = |kind: &str| {
        let list = run.join("workers").join(format!("{kind}-slurm.json"));
        std::fs::read_to_string(list).is_ok_and(|text| text.contains(kind))
    };
    wait_for("both jobs, and results", || {
        running(&cluster).len() == 2 && listed("generate") && listed("verify") && records(&run) >= 5
    });
    coordinator.0.kill().unwrap();
    coordinator.0.wait().unwrap();
    std::fs::write(&go, "").unwrap();
    wait_for("both workers", || live(&run).len() == 2);
    let before = live(&run);
    sgs(&["resume", run.to_str().unwrap()]).expect(0);
    assert_eq!(content(&run), expected);
    let before: BTreeSet<String> = before.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names(&run), before, "nobody was started anew");
    wait_for("an empty queue", || running(&cluster).is_empty());
}

#[test]
fn the_tasks_of_a_step_train_a_run_together() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    // The port follows from the job's number: somebody else on this machine may have it.
    for attempt in 0.. {
        let run = folder.path().join(format!("run-{attempt}"));
        let mut step = Command::new(cluster.bin().join("srun"));
        step.args(["--ntasks=2", "--kill-on-bad-exit=1", "--time=00:10:00", env!("CARGO_BIN_EXE_sgs")])
            .args(settings());
        step.arg("--out").arg(&run).env("SGS_TOKEN", "a token of this test").stdin(Stdio::null());
        let output = step.output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if words.contains("cannot listen") && attempt < 5 {
            continue;
        }
        assert!(output.status.success(), "{words}");
        assert_eq!(RunView::open(&run).unwrap().rounds().unwrap().len(), 2, "{words}");
        for part in ["optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"] {
            assert!(run.join("checkpoints/0001/solver").join(part).is_file(), "{part}: {words}");
        }
        let config = std::fs::read_to_string(run.join("config.toml")).unwrap();
        assert!(config.contains("ranks = 2"), "{config}");
        break;
    }
}
