//! Worker processes under a supervisor, which replaces them and gives up on crash loops.

use crate::worker_process;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use sgs_fleet::launch::{JobId, JobState, StopMode, WorkerJob};
use sgs_fleet::{
    Coordinator, Fleet, LaunchError, Launcher, LocalLauncher, RestartPolicy, Supervisor, Task, TaskId,
    TaskResult, WorkKind, WorkerExit, WorkerName,
};
use worker_process::{board, command, process_of, start_service, task, wait_for};

const VERIFY: WorkKind = WorkKind::of("verify");

const LONG: Duration = Duration::from_secs(120);

fn quick() -> RestartPolicy {
    RestartPolicy {
        shortest_life: Duration::ZERO,
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(100),
        ..RestartPolicy::default()
    }
}

fn local(command: Vec<String>, logs: &std::path::Path) -> Box<dyn Launcher> {
    Box::new(LocalLauncher::new(command, "w", logs).unwrap())
}

fn collect(fleet: &Fleet, number: usize) -> Vec<(u64, TaskResult)> {
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    let deadline = Instant::now() + LONG;
    while all.len() < number {
        assert!(Instant::now() < deadline, "only {} of {number} ended", all.len());
        for finished in fleet.take_finished(100, Duration::from_secs(1)) {
            assert!(seen.insert(finished.task), "{} ended twice", finished.task);
            all.push((finished.task.0, finished.result));
        }
    }
    all
}

#[test]
fn a_killed_worker_is_replaced_and_its_tasks_are_leased_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::in_memory(board());
    let service = start_service(&fleet);
    // Use a unique name, to find the right process.
    let command = command(&service.url("127.0.0.1"), 2);
    let prefix = format!("k{}", std::process::id());
    let launcher = LocalLauncher::new(command, &prefix, folder.path()).unwrap();
    let supervisor =
        Supervisor::start(Box::new(launcher), 2, quick(), Some(fleet.clone()), Vec::new(), Box::new(|_| ()))
            .unwrap();
    wait_for("both workers to ask", LONG, || fleet.status().workers.len() == 2);
    // The tasks take long enough that the victim is still working when it is killed.
    fleet.submit((0..60).map(|id| task(id, 200))).unwrap();
    wait_for("both workers to work", LONG, || {
        fleet.status().workers.iter().filter(|w| w.leases > 0).count() == 2
    });
    let victim = format!("{prefix}-0");
    kill_process(process_of(&victim).expect("it lives"), Signal::KILL).unwrap();
    let killed = Instant::now();
    wait_for("its leases to end", LONG, || fleet.status().counters.died > 0);
    assert!(killed.elapsed() < Duration::from_secs(10), "before the leases' deadline of 20 s");
    let all = collect(&fleet, 60);
    assert!(all.iter().all(|(_, result)| matches!(result, TaskResult::Done { .. })));
    let status = supervisor.status();
    assert_eq!((status.wanted, status.launched, status.lost), (2, 3, 1));
    // A dead worker is replaced even if nothing is pending.
    let next = format!("{prefix}-1");
    kill_process(process_of(&next).expect("it lives"), Signal::KILL).unwrap();
    wait_for("a replacement with an empty queue", LONG, || supervisor.status().launched == 4);
    supervisor.check().unwrap();
    supervisor.stop(Duration::from_secs(10));
}

#[test]
fn a_worker_asked_to_leave_returns_its_tasks_and_exits_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::in_memory(board());
    let service = start_service(&fleet);
    let mut launcher = local(command(&service.url("127.0.0.1"), 1), folder.path());
    fleet.submit([task(1, 10), task(2, 60_000)]).unwrap();
    let jobs = launcher.launch(1).unwrap();
    wait_for("the long task to run", LONG, || {
        fleet.status().counters.done == 1 && fleet.status().kinds[0].leased == 1
    });
    launcher.stop(&jobs, StopMode::Gently).unwrap();
    let mut state = JobState::Running;
    wait_for("the worker to leave", LONG, || {
        state = launcher.poll(&jobs).unwrap().remove(0);
        state != JobState::Running
    });
    // The worker's grace period is 5 s, but the task would take a minute.
    assert_eq!(
        state,
        JobState::Ended { end: WorkerExit::Well, how: "exit status 0".into() },
        "{}",
        launcher.last_lines(&jobs[0], 9)
    );
    let counters = fleet.status().counters;
    assert_eq!((counters.returned, counters.died, counters.failed), (1, 0, 0));
    let log = launcher.last_lines(&jobs[0], 5);
    assert!(log.contains("accepted: 1"), "a summary counts each task once: {log}");
}

#[test]
fn poison_kills_three_workers_and_is_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::in_memory(board());
    let service = start_service(&fleet);
    let poison = Task { id: TaskId(999), kind: VERIFY, priority: 9, payload: "poison".into() };
    fleet.submit((0..40).map(|id| task(id, 5)).chain([poison])).unwrap();
    let launcher = local(command(&service.url("127.0.0.1"), 4), folder.path());
    let supervisor =
        Supervisor::start(launcher, 2, quick(), Some(fleet.clone()), Vec::new(), Box::new(|_| ())).unwrap();
    let all = collect(&fleet, 41);
    for (id, result) in all {
        match result {
            TaskResult::Quarantined { failures } => {
                assert_eq!((id, failures.len()), (999, 3));
                assert!(failures.iter().all(|f| f.message.contains("killed by signal 6")), "{failures:?}");
            }
            TaskResult::Done { .. } => assert_ne!(id, 999),
        }
    }
    drop(supervisor);
}

#[test]
fn a_crash_loop_ends_with_the_log_of_a_worker() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["sh", "-c", "echo loading {worker}; echo 'no model at /nowhere' >&2; exit 3"];
    let launcher = local(command.map(str::to_owned).to_vec(), folder.path());
    let rules = RestartPolicy { shortest_life: Duration::from_secs(60), ..quick() };
    let supervisor = Supervisor::start(launcher, 2, rules, None, Vec::new(), Box::new(|_| ())).unwrap();
    wait_for("the supervisor to give up", LONG, || supervisor.check().is_err());
    let why = supervisor.check().unwrap_err().to_string();
    assert!(
        why.contains("exit status 3") && why.contains("no model at /nowhere") && why.contains("loading w-"),
        "{why}"
    );
    let launched = supervisor.status().launched;
    assert!((10..=14).contains(&launched), "a budget of 5, and 2 per worker: {launched}");
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(supervisor.status().launched, launched, "no launch after giving up");
    let missing = local(vec!["/nowhere/worker".into()], folder.path());
    let supervisor = Supervisor::start(missing, 1, quick(), None, Vec::new(), Box::new(|_| ())).unwrap();
    wait_for("the supervisor to give up", LONG, || supervisor.check().is_err());
    assert!(supervisor.check().unwrap_err().to_string().contains("/nowhere/worker"));
}

#[test]
fn fewer_workers_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let mut launcher = local(["sleep", "1000"].map(str::to_owned).to_vec(), folder.path());
    let jobs = launcher.launch(4).unwrap();
    let supervisor = Supervisor::start(launcher, 1, quick(), None, jobs, Box::new(|_| ())).unwrap();
    wait_for("one worker", LONG, || supervisor.status().running == 1);
    assert_eq!((supervisor.status().launched, supervisor.status().lost), (0, 0));
    let begun = Instant::now();
    supervisor.stop(Duration::from_secs(20));
    assert!(begun.elapsed() < Duration::from_secs(10), "sleep ends on SIGTERM");
}

/// A launcher that takes seconds per call, like a busy Slurm controller.
struct Slow;

impl Launcher for Slow {
    fn launch(&mut self, number: usize) -> Result<Vec<WorkerJob>, LaunchError> {
        std::thread::sleep(Duration::from_secs(2));
        let job =
            |n| WorkerJob { id: JobId(format!("{n}")), worker: WorkerName::new(&format!("s-{n}")).unwrap() };
        Ok((0..number).map(job).collect())
    }
    fn poll(&mut self, jobs: &[WorkerJob]) -> Result<Vec<JobState>, LaunchError> {
        std::thread::sleep(Duration::from_secs(2));
        Ok(jobs.iter().map(|_| JobState::Ended { end: WorkerExit::Gone, how: "lost".into() }).collect())
    }
    fn stop(&mut self, _: &[WorkerJob], _: StopMode) -> Result<(), LaunchError> {
        Ok(())
    }
    fn last_lines(&self, _: &WorkerJob, _: usize) -> String {
        String::new()
    }
    fn interval(&self) -> Duration {
        Duration::from_millis(1)
    }
}

#[test]
fn a_slow_launcher_does_not_block_other_calls() {
    let fleet = Fleet::in_memory(board());
    fleet.submit((0..2000).map(|id| task(id, 0))).unwrap();
    let supervisor =
        Supervisor::start(Box::new(Slow), 50, quick(), Some(fleet.clone()), Vec::new(), Box::new(|_| ()))
            .unwrap();
    let worker = WorkerName::new("w").unwrap();
    let mut latencies = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        let call = Instant::now();
        let grant = fleet.lease(&worker, &VERIFY, 1, Duration::from_secs(5)).unwrap();
        fleet.heartbeat(&worker, &grant.leases.iter().map(|l| l.id()).collect::<Vec<_>>()).unwrap();
        let _ = supervisor.status();
        latencies.push(call.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    latencies.sort();
    let slowest = latencies[latencies.len() - 1];
    assert!(latencies.len() > 5 && slowest < Duration::from_millis(1800), "{slowest:?}");
}
