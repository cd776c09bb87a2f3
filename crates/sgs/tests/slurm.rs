//! SGS on Metamath with generation and verification as jobs of a real Slurm, of which some die in the middle.
//!
//! The test starts the cluster itself (see `slurm_cluster`); where that cannot be, it says so and passes, unless
//! `SGS_NEED_SLURM` is set.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod content;
mod fleet_run;
mod program;
#[path = "../../fleet/tests/slurm_cluster/mod.rs"]
mod slurm_cluster;

use content::content;
use fleet_run::{embedded, records, settings, wait_for};
use program::{command, file, sgs};
use rustix::process::{Pid, Signal, kill_process};
use slurm_cluster::{Cluster, cluster, running};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Stdio};

/// Ends with the test, however that ends.
struct Coordinator(Child);

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two that sample and one that checks, as jobs.
fn workers(cluster: &Cluster, folder: &Path) -> String {
    let bin = cluster.bin().display().to_string();
    let crew = |count: usize| {
        format!(
            "by = \"slurm\"\ncount = {count}\nthreads = 1\nslots = 2\npoll-s = 0.3\nbin = \"{bin}\"\n\
             options = {{ partition = \"main\", time = \"00:10:00\" }}\n"
        )
    };
    let text = format!(
        "listen = \"127.0.0.1:0\"\nhost = \"127.0.0.1\"\n[generate]\n{}[verify]\n{}",
        crew(2),
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

#[test]
fn workers_are_slurm_jobs_some_die_and_the_run_is_whole() {
    let Some(cluster) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    let expected = content(&embedded(folder.path()));
    let run = folder.path().join("slurm");
    let spec = workers(&cluster, folder.path());
    let arguments = ["--workers", &spec, "--out", run.to_str().unwrap()].map(str::to_owned);
    let log = folder.path().join("log");
    let mut coordinator = command(&[&settings()[..], &arguments].concat());
    coordinator.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let mut coordinator = Coordinator(coordinator.spawn().unwrap());
    let words = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_for("three jobs at work, and results", || {
        assert!(coordinator.0.try_wait().unwrap().is_none(), "it ended: {}", words());
        live(&run).len() == 3 && records(&run) >= 5
    });
    let first: BTreeSet<String> = live(&run).into_iter().map(|(name, _)| name).collect();
    // One that samples is cancelled by somebody; the other, and the one that checks, are killed as by the kernel. The
    // rest of the round is the work of those that take their places.
    let mut jobs = running(&cluster);
    jobs.sort();
    let cancelled = first.iter().find(|name| name.starts_with("generate-")).unwrap().clone();
    let job = cluster.run("squeue", &["--array", "--noheader", "--format=%i %j"]);
    let prefix = cancelled.rsplit_once("-0-").unwrap().0;
    let index = cancelled.rsplit('-').next().unwrap();
    let id = job
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .find(|(id, name)| *name == prefix && id.ends_with(&format!("_{index}")))
        .unwrap_or_else(|| panic!("no job of {cancelled} in {job}"))
        .0
        .to_owned();
    println!("scancel {id} ({cancelled}) {}", cluster.run("scancel", &[&id]));
    for (name, pid) in live(&run).into_iter().filter(|(name, _)| *name != cancelled && first.contains(name)) {
        println!("SIGKILL {name}");
        kill_process(pid, Signal::KILL).unwrap();
    }
    println!("{} results of the first round were in the journal", records(&run));
    wait_for("the run to end", || coordinator.0.try_wait().unwrap().is_some());
    let status = coordinator.0.wait().unwrap();
    assert!(status.success(), "{status}: {}", words());
    assert_eq!(content(&run), expected, "the same tables as without Slurm and without deaths");
    let names: BTreeSet<String> = std::fs::read_dir(run.join("workers"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".log").map(str::to_owned))
        .collect();
    assert!(first.is_subset(&names));
    assert!(names.len() >= 6, "the dead were replaced: {names:?}");
    wait_for("an empty queue", || running(&cluster).is_empty());
    assert!(live(&run).is_empty(), "nobody is left behind");
    let text = sgs(&["status", run.to_str().unwrap()]).expect(0).out;
    assert!(text.contains("finished"), "{text}");
}
