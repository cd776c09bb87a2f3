//! Workers as jobs of a real Slurm, started by the test itself: one controller, one node, all on loopback.
//!
//! Needs `munged`, `slurmctld`, `slurmd` and root (Debian: `slurm-wlm`, `munge`); says so and passes where they are
//! missing, unless `SGS_NEED_SLURM` is set.
#![cfg(feature = "http")]
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod slurm_cluster;
mod worker_process;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use sgs_fleet::launch::{JobState, Stop};
use sgs_fleet::{CrashRules, End, Ending, Fleet, Launcher, SlurmConfig, SlurmLauncher, Supervisor};
use slurm_cluster::{Cluster, cluster, running};
use worker_process::{board, command, process_of, square, start_service, task, wait_for};

const LONG: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the worker process of the other tests"]
fn worker_process() {
    worker_process::obey_orders();
}

fn config(cluster: &Cluster, command: Vec<String>, prefix: &str) -> SlurmConfig {
    let mut config = SlurmConfig::new(command, prefix, &cluster.folder.path().join("logs"));
    config.bin = Some(cluster.bin());
    config.interval = Duration::from_millis(300);
    config.options.insert("partition".into(), "main".into());
    config.options.insert("time".into(), "00:10:00".into());
    config
}

#[test]
fn jobs_that_are_cancelled_or_killed_are_replaced_and_every_task_is_done_once() {
    let Some(cluster) = cluster() else { return };
    const TASKS: u64 = 400;
    let fleet = Fleet::in_memory(board());
    let service = start_service(&fleet);
    let config = config(&cluster, command(&service.url("127.0.0.1"), 1), "ver");
    let launcher = SlurmLauncher::new(config).unwrap();
    let rules = CrashRules { shortest_life: Duration::ZERO, ..CrashRules::default() };
    let supervisor = Supervisor::start(Box::new(launcher), 3, rules, Some(fleet.clone())).unwrap();
    wait_for("three jobs to ask", LONG, || {
        supervisor.check().unwrap();
        fleet.status().unwrap().workers.len() >= 3
    });
    fleet.submit((0..TASKS).map(|id| task(id, 60))).unwrap();
    wait_for("three jobs at work", LONG, || {
        supervisor.check().unwrap();
        fleet.status().unwrap().workers.iter().filter(|w| w.done > 0).count() >= 3
    });
    let mut jobs = running(&cluster);
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    assert!(jobs.iter().all(|job| job.contains('_')), "one array: {jobs:?}");
    // One job is cancelled by somebody, one is killed as by the kernel.
    println!("{}", cluster.run("scancel", &[&jobs.remove(0)]));
    let victim = format!("ver-0-{}", jobs.remove(0).rsplit('_').next().unwrap());
    kill_process(process_of(&victim).expect("it lives"), Signal::KILL).unwrap();
    let mut ended = BTreeSet::new();
    let deadline = Instant::now() + LONG;
    while (ended.len() as u64) < TASKS {
        assert!(Instant::now() < deadline, "{} of {TASKS}: {:?}", ended.len(), supervisor.status());
        supervisor.check().unwrap();
        for finished in fleet.take_finished(None, 100, Duration::from_secs(1)).unwrap() {
            let id = finished.task.0;
            let Ending::Done { outcome, .. } = finished.ending else { panic!("task {id} is quarantined") };
            assert_eq!(outcome, square(id), "whole results");
            assert!(ended.insert(id), "task {id} ended twice");
        }
    }
    wait_for("the dead to be replaced", LONG, || {
        supervisor.status().launched == 5 && running(&cluster).len() == 3
    });
    assert_eq!(supervisor.status().lost, 2);
    supervisor.stop(Duration::from_secs(20));
    wait_for("an empty queue", LONG, || running(&cluster).is_empty());
    let counters = fleet.status().unwrap().counters;
    println!(
        "leases {}, died {}, returned {}, late {}",
        counters.leases, counters.died, counters.returned, counters.late
    );
}

#[test]
fn slurm_tells_how_jobs_ended() {
    let Some(cluster) = cluster() else { return };
    let script = "case {worker} in *-0) exit 0;; *-1) echo 'no model here' >&2; exit 7;; *) sleep 100;; esac";
    let command = vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let mut launcher = SlurmLauncher::new(config(&cluster, command, "end")).unwrap();
    let jobs = launcher.launch(3).unwrap();
    let mut states = Vec::new();
    wait_for("two ends", LONG, || {
        states = launcher.poll(&jobs).unwrap();
        states[..2].iter().all(|s| matches!(s, JobState::Ended { .. })) && states[2] == JobState::Running
    });
    assert_eq!(states[0], JobState::Ended { end: End::Well, how: "completed".into() });
    assert_eq!(states[1], JobState::Ended { end: End::Gone, how: "Slurm says FAILED, exit code 7:0".into() });
    assert!(launcher.last_lines(&jobs[1], 5).contains("no model here"));
    launcher.stop(&jobs, Stop::Now).unwrap();
    wait_for("the third to end", LONG, || {
        states = launcher.poll(&jobs).unwrap();
        matches!(states[2], JobState::Ended { .. })
    });
    assert!(
        matches!(&states[2], JobState::Ended { end: End::Gone, how } if how.contains("CANCELLED")),
        "{:?}",
        states[2]
    );
    // What Slurm refuses is refused in its words.
    let mut config = config(&cluster, vec!["true".into()], "bad");
    config.options.insert("partition".into(), "nowhere".into());
    let error = SlurmLauncher::new(config).unwrap().launch(1).unwrap_err();
    assert!(error.to_string().contains("nowhere") || error.to_string().contains("partition"), "{error}");
}
