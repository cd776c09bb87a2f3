//! Workers as jobs of a real Slurm cluster, which the test starts: one controller and one node on loopback.
//!
//! Needs `munged`, `slurmctld`, `slurmd` and root (Debian: `slurm-wlm`, `munge`). Without them, the tests are skipped, unless
//! `SGS_NEED_SLURM` is set.

use crate::slurm_cluster;
use crate::worker_process;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use sgs_fleet::launch::{JobState, StopMode};
use sgs_fleet::{
    Fleet, Launcher, RestartPolicy, SlurmConfig, SlurmLauncher, Supervisor, TaskResult, WorkerExit,
};
use slurm_cluster::{Cluster, cluster, running};
use worker_process::{board, command, process_of, square, start_service, task, wait_for};

const LONG: Duration = Duration::from_secs(60);

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
    let rules = RestartPolicy { shortest_life: Duration::ZERO, ..RestartPolicy::default() };
    let supervisor =
        Supervisor::start(Box::new(launcher), 3, rules, Some(fleet.clone()), Vec::new(), Box::new(|_| ()))
            .unwrap();
    wait_for("three jobs to ask", LONG, || {
        supervisor.check().unwrap();
        fleet.status().workers.len() >= 3
    });
    fleet.submit((0..TASKS).map(|id| task(id, 60))).unwrap();
    wait_for("three jobs at work", LONG, || {
        supervisor.check().unwrap();
        fleet.status().workers.iter().filter(|w| w.done > 0).count() >= 3
    });
    let mut jobs = running(&cluster);
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    assert!(jobs.iter().all(|job| job.contains('_')), "one array: {jobs:?}");
    // One job is cancelled, and one is killed.
    println!("{}", cluster.run("scancel", &[&jobs.remove(0)]));
    let victim = format!("ver-0-{}", jobs.remove(0).rsplit('_').next().unwrap());
    kill_process(process_of(&victim).expect("it lives"), Signal::KILL).unwrap();
    let mut ended = BTreeSet::new();
    let deadline = Instant::now() + LONG;
    while (ended.len() as u64) < TASKS {
        assert!(Instant::now() < deadline, "{} of {TASKS}: {:?}", ended.len(), supervisor.status());
        supervisor.check().unwrap();
        for finished in fleet.take_finished(100, Duration::from_secs(1)) {
            let id = finished.task.0;
            let TaskResult::Done { outcome, .. } = finished.result else {
                panic!("task {id} is quarantined")
            };
            assert_eq!(outcome, square(id), "a complete result");
            assert!(ended.insert(id), "task {id} ended twice");
        }
    }
    wait_for("the dead to be replaced", LONG, || {
        supervisor.status().launched == 5 && running(&cluster).len() == 3
    });
    assert_eq!(supervisor.status().lost, 2);
    supervisor.stop(Duration::from_secs(20));
    wait_for("an empty queue", LONG, || running(&cluster).is_empty());
    let counters = fleet.status().counters;
    println!(
        "leases {}, died {}, returned {}, late {}",
        counters.leases, counters.died, counters.returned, counters.late
    );
}

#[test]
fn the_ends_of_jobs_are_read_from_slurm() {
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
    assert_eq!(states[0], JobState::Ended { end: WorkerExit::Well, how: "completed".into() });
    assert_eq!(
        states[1],
        JobState::Ended { end: WorkerExit::Gone, how: "Slurm says FAILED, exit code 7:0".into() }
    );
    assert!(launcher.last_lines(&jobs[1], 5).contains("no model here"));
    launcher.stop(&jobs, StopMode::Now).unwrap();
    wait_for("the third to end", LONG, || {
        states = launcher.poll(&jobs).unwrap();
        matches!(states[2], JobState::Ended { .. })
    });
    assert!(
        matches!(&states[2], JobState::Ended { end: WorkerExit::Gone, how } if how.contains("CANCELLED")),
        "{:?}",
        states[2]
    );
    // Slurm's own error message is returned.
    let mut config = config(&cluster, vec!["true".into()], "bad");
    config.options.insert("partition".into(), "nowhere".into());
    let error = SlurmLauncher::new(config).unwrap().launch(1).unwrap_err();
    assert!(error.to_string().contains("nowhere") || error.to_string().contains("partition"), "{error}");
}
