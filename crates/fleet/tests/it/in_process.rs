//! A fleet within one process: threads as workers, a run as the consumer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sgs_fleet::{
    AttemptId, Backpressure, BoardConfig, CallError, Coordinator, Fleet, Grant, HeartbeatAck, Lease, LeaseId,
    LeaseOutcome, Payload, Receipt, Report, Speculation, StopFlag, Task, TaskId, TaskResult, WorkKind,
    WorkerConfig, WorkerName, WorkerSession, run_worker,
};

const GENERATE: WorkKind = WorkKind::of("generate");
const VERIFY: WorkKind = WorkKind::of("verify");

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(120);

fn task(id: u64, kind: WorkKind) -> Task {
    Task { id: TaskId(id), kind, priority: 0, payload: format!("{id}").into() }
}

fn verifications(range: std::ops::Range<u64>) -> impl Iterator<Item = Task> {
    range.map(|id| task(id, VERIFY))
}

fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

fn squared(payload: &Payload) -> Payload {
    let number: u64 = std::str::from_utf8(payload.as_bytes()).unwrap().parse().unwrap();
    (number * number).to_string().into()
}

fn collect(fleet: &Fleet, number: usize) -> BTreeMap<u64, TaskResult> {
    let mut endings = BTreeMap::new();
    let deadline = Instant::now() + LONG;
    while endings.len() < number {
        assert!(Instant::now() < deadline, "only {} of {number} ended", endings.len());
        for finished in fleet.take_finished(100, SECOND) {
            let id = finished.task.0;
            assert!(endings.insert(id, finished.result).is_none(), "task {id} ended twice");
            fleet.remove(&[TaskId(id)]);
        }
    }
    endings
}

#[test]
fn threads_complete_every_task_once() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let drain = StopFlag::default();
    let runs = AtomicUsize::new(0);
    let endings = thread::scope(|scope| {
        for n in 0..3 {
            let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
            let config = WorkerConfig::new(worker(&format!("w{n}")), VERIFY);
            let (drain, runs) = (drain.clone(), &runs);
            scope.spawn(move || {
                run_worker(coordinator, config, drain, 2, |lease, _| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    Ok(squared(&lease.payload))
                })
                .unwrap()
            });
        }
        assert_eq!(fleet.submit(verifications(0..3000)).unwrap(), 3000);
        assert_eq!(fleet.submit(verifications(0..3000)).unwrap(), 0, "resubmitted tasks are not new");
        let endings = collect(&fleet, 3000);
        drain.set();
        endings
    });
    for (id, result) in endings {
        let TaskResult::Done { outcome, .. } = result else { panic!("task {id}: {result:?}") };
        assert_eq!(
            outcome.as_bytes(),
            (id * id).to_string().as_bytes(),
            "an outcome belongs to its own task"
        );
    }
    assert_eq!(runs.into_inner(), 3000);
    assert!(fleet.status().tasks == 0);
}

#[test]
fn every_wait_ends_at_its_deadline() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let begun = Instant::now();
    assert_eq!(fleet.take_finished(1, Duration::from_millis(60)).pop(), None);
    let grant = fleet.lease(&worker("w"), &GENERATE, 4, Duration::from_millis(60)).unwrap();
    assert!(grant.leases.is_empty() && !grant.drain);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(120) && took < LONG, "{took:?}");
}

#[test]
fn a_task_wakes_a_waiting_worker_and_its_end_a_waiting_consumer() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let mut latencies = Vec::new();
    for id in 0..15 {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let grant = fleet.lease(&worker("w"), &VERIFY, 1, LONG).unwrap();
                (grant, Instant::now())
            });
            thread::sleep(Duration::from_millis(10));
            let submitted = Instant::now();
            fleet.submit([task(id, VERIFY)]).unwrap();
            let (grant, at) = waiting.join().unwrap();
            latencies.push(at - submitted);
            let lease = &grant.leases[0];
            let consumer = scope.spawn(|| (fleet.take_finished(1, LONG).pop(), Instant::now()));
            thread::sleep(Duration::from_millis(10));
            let reported = Instant::now();
            let report =
                Report { task: lease.task, attempt: lease.attempt, outcome: LeaseOutcome::Done("x".into()) };
            fleet.report(&worker("w"), vec![report]).unwrap();
            let (finished, at) = consumer.join().unwrap();
            assert!(finished.is_some());
            latencies.push(at - reported);
        });
    }
    latencies.sort();
    // Without being woken, they would poll after a quarter of a second.
    assert!(latencies[0] < Duration::from_millis(200), "{latencies:?}");
}

#[test]
fn a_poisonous_task_is_quarantined_and_the_others_are_done() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..50)).unwrap();
    let drain = StopFlag::default();
    let endings = thread::scope(|scope| {
        let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
        let config = WorkerConfig::new(worker("w"), VERIFY);
        let drain2 = drain.clone();
        scope.spawn(move || {
            run_worker(coordinator, config, drain2, 2, |lease, _| match lease.task.0 {
                13 => panic!("no luck with {}", lease.task),
                17 => Err("the checker broke".into()),
                _ => Ok("fine".into()),
            })
        });
        let endings = collect(&fleet, 50);
        drain.set();
        endings
    });
    for (id, expected) in [(13, "the handler panicked: no luck with 13"), (17, "the checker broke")] {
        let TaskResult::Quarantined { failures } = &endings[&id] else { panic!("{id} is not quarantined") };
        assert_eq!(failures.len(), 3);
        assert!(failures.iter().all(|f| f.message == expected && f.worker == worker("w")), "{failures:?}");
    }
    assert_eq!(endings.values().filter(|e| matches!(e, TaskResult::Done { .. })).count(), 48);
    let status = fleet.status();
    assert!(status.infra_rate() > 0.01 && status.worst_workers(3).contains("w: 6 failed, 48 done"));
}

#[test]
fn backpressure_withholds_generation_until_verification_catches_up() {
    let config = BoardConfig {
        backpressure: Some(Backpressure { hold: GENERATE, while_open: VERIFY, limit: 2 }),
        ..BoardConfig::default()
    };
    let fleet = Fleet::in_memory(config);
    fleet.submit([task(1, GENERATE), task(2, VERIFY), task(3, VERIFY)]).unwrap();
    let none = fleet.lease(&worker("g"), &GENERATE, 1, Duration::from_millis(20)).unwrap();
    assert!(none.leases.is_empty() && fleet.status().kinds[0].held_back);
    let lease = fleet.lease(&worker("v"), &VERIFY, 1, SECOND).unwrap().leases.remove(0);
    let waiting = {
        let fleet = fleet.clone();
        thread::spawn(move || fleet.lease(&worker("g"), &GENERATE, 1, LONG).unwrap())
    };
    let done = Report { task: lease.task, attempt: lease.attempt, outcome: LeaseOutcome::Done("x".into()) };
    fleet.report(&worker("v"), vec![done]).unwrap();
    assert_eq!(waiting.join().unwrap().leases.len(), 1);
}

#[test]
fn a_cancelled_task_stops_its_handler() {
    let config = BoardConfig { lease: Duration::from_secs(3), ..BoardConfig::default() };
    let fleet = Fleet::in_memory(config);
    fleet.submit([task(1, VERIFY)]).unwrap();
    let drain = StopFlag::default();
    thread::scope(|scope| {
        let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
        let config = WorkerConfig::new(worker("w"), VERIFY);
        let begun = Arc::new(AtomicUsize::new(0));
        let (drain2, begun2) = (drain.clone(), Arc::clone(&begun));
        let working = scope.spawn(move || {
            run_worker(coordinator, config, drain2, 1, |_, cancel| {
                begun2.fetch_add(1, Ordering::SeqCst);
                let deadline = Instant::now() + LONG;
                while !cancel.is_set() && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(format!("stopped: {}", cancel.is_set()))
            })
        });
        while begun.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(3500));
        assert_eq!(fleet.status().kinds[0].leased, 1, "heartbeats keep a lease past its first deadline");
        assert_eq!(fleet.cancel(&[TaskId(1)]), 1);
        let stopped = Instant::now();
        while fleet.status().workers[0].leases > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(300));
        drain.set();
        let summary = working.join().unwrap().unwrap();
        assert!(stopped.elapsed() < LONG);
        assert_eq!((summary.abandoned, summary.noted, summary.accepted), (1, 0, 0));
    });
    assert_eq!(fleet.status().counters.failed, 0, "a cancelled handler has not failed");
}

#[test]
fn a_drained_worker_returns_the_tasks_that_it_cannot_finish() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..5)).unwrap();
    let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
    let mut config = WorkerConfig::new(worker("w"), VERIFY);
    config.grace = Duration::from_millis(50);
    let drain = StopFlag::default();
    let asked = drain.clone();
    let summary = run_worker(coordinator, config, drain, 2, |_, cancel| {
        asked.set();
        while !cancel.is_set() {
            thread::sleep(Duration::from_millis(2));
        }
        Err("cut short".into())
    })
    .unwrap();
    assert_eq!((summary.leased, summary.noted), (2, 2));
    let status = fleet.status();
    assert_eq!((status.kinds[0].pending, status.kinds[0].leased), (5, 0));
    assert_eq!((status.counters.returned, status.counters.failed), (2, 0));
}

/// A coordinator that starts a drain while the worker waits for leases.
struct DrainsMeanwhile(Fleet, StopFlag);

impl Coordinator for DrainsMeanwhile {
    fn lease(
        &self,
        worker: &WorkerName,
        kind: &WorkKind,
        capacity: usize,
        wait: Duration,
    ) -> Result<Grant, CallError> {
        let grant = self.0.lease(worker, kind, capacity, wait);
        self.1.set();
        grant
    }

    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<HeartbeatAck, CallError> {
        Coordinator::heartbeat(&self.0, worker, held)
    }

    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        Coordinator::report(&self.0, worker, reports)
    }
}

#[test]
fn leases_granted_after_the_drain_began_are_returned_unstarted() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..2)).unwrap();
    let drain = StopFlag::default();
    let coordinator: Arc<dyn Coordinator> = Arc::new(DrainsMeanwhile(fleet.clone(), drain.clone()));
    let config = WorkerConfig { grace: LONG, ..WorkerConfig::new(worker("w"), VERIFY) };
    // A started task would panic, and so count as failed.
    let begun = |lease: &Lease, _: &StopFlag| panic!("{:?} was started", lease.task);
    let summary = run_worker(coordinator, config, drain, 2, begun).unwrap();
    assert_eq!((summary.leased, summary.noted), (2, 2), "{summary:?}");
    let counters = fleet.status().counters;
    assert_eq!((counters.returned, counters.failed), (2, 0));
    let grant = fleet.lease(&worker("x"), &VERIFY, 4, SECOND).unwrap();
    assert_eq!(grant.leases.len(), 2, "another worker gets them at once");
}

#[test]
fn the_workers_of_a_drained_fleet_leave() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
    let config = WorkerConfig::new(worker("w"), VERIFY);
    let working =
        thread::spawn(move || run_worker(coordinator, config, StopFlag::default(), 2, |_, _| Ok("x".into())));
    thread::sleep(Duration::from_millis(50));
    fleet.set_drain(true);
    let begun = Instant::now();
    working.join().unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_copy_goes_to_an_idle_worker_and_the_loser_is_told() {
    let speculation = Some(Speculation { min_age: Duration::from_millis(30), max_per_request: 16 });
    let fleet = Fleet::in_memory(BoardConfig { speculation, ..BoardConfig::default() });
    fleet.submit(verifications(0..1)).unwrap();
    let slow = fleet.lease(&worker("slow"), &VERIFY, 1, SECOND).unwrap().leases.remove(0);
    let fast = fleet.lease(&worker("fast"), &VERIFY, 8, LONG).unwrap().leases;
    assert_eq!((fast.len(), fast[0].task, fast[0].attempt), (1, slow.task, AttemptId(2)));
    let none = fleet.lease(&worker("third"), &VERIFY, 8, Duration::from_millis(100)).unwrap();
    assert!(none.leases.is_empty(), "one extra copy at most");
    let done = |lease: &LeaseId, text: &str| Report {
        task: lease.task,
        attempt: lease.attempt,
        outcome: LeaseOutcome::Done(text.into()),
    };
    let won = fleet.report(&worker("fast"), vec![done(&fast[0].id(), "fast")]).unwrap();
    assert_eq!(won, [Receipt::Accepted]);
    assert_eq!(fleet.heartbeat(&worker("slow"), &[slow.id()]).unwrap().abandon, [slow.id()]);
    assert_eq!(fleet.report(&worker("slow"), vec![done(&slow.id(), "slow")]).unwrap(), [Receipt::Duplicate]);
    let finished = fleet.take_finished(1, SECOND).pop().unwrap();
    assert!(matches!(finished.result, TaskResult::Done { outcome, .. } if outcome.as_bytes() == b"fast"));
    assert_eq!(fleet.status().counters.copies, 1);
}

fn answer(lease: &sgs_fleet::Lease) -> Report {
    Report { task: lease.task, attempt: lease.attempt, outcome: LeaseOutcome::Done(squared(&lease.payload)) }
}

#[test]
fn a_restarted_coordinator_reclaims_the_leases_of_workers() {
    let fleet = Fleet::journalled(BoardConfig::default());
    fleet.submit(verifications(0..10)).unwrap();
    let leases = fleet.lease(&worker("w"), &VERIFY, 5, SECOND).unwrap().leases;
    let receipts = fleet.report(&worker("w"), vec![answer(&leases[0]), answer(&leases[1])]).unwrap();
    assert_eq!(receipts, [Receipt::Accepted; 2]);
    let first = fleet.take_finished(1, SECOND).pop().unwrap();
    assert_eq!(fleet.remove(&[first.task]), 1);
    drop(fleet);

    let fleet = Fleet::journalled(BoardConfig::default());
    let held: Vec<LeaseId> = leases.iter().map(|l| l.id()).collect();
    assert!(
        fleet.heartbeat(&worker("w"), &held[1..4]).unwrap().abandon.is_empty(),
        "the recovery is not finished"
    );
    assert_eq!(fleet.report(&worker("w"), vec![answer(&leases[1])]).unwrap(), [Receipt::Waiting]);
    assert_eq!(fleet.submit(verifications(1..10)).unwrap(), 9);
    let status = fleet.status();
    assert_eq!((status.kinds[0].pending, status.kinds[0].leased, status.counters.reclaimed), (6, 3, 3));
    let others = fleet.lease(&worker("v"), &VERIFY, 99, SECOND).unwrap().leases;
    assert_eq!(others.iter().map(|l| l.task.0).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
    assert!(others.iter().all(|l| l.attempt.epoch() != leases[0].attempt.epoch()));
    // Journalled tasks have ended. A task with two leases is done by the first worker to report.
    let pulse = fleet.heartbeat(&worker("w"), &held).unwrap();
    assert_eq!(pulse.abandon, [held[0]]);
    let receipts = fleet.report(&worker("w"), leases.iter().map(answer).collect()).unwrap();
    let accepted = Receipt::Accepted;
    assert_eq!(receipts, [Receipt::Duplicate, accepted, accepted, accepted, accepted]);
    let receipts = fleet.report(&worker("v"), others.iter().map(answer).collect()).unwrap();
    assert_eq!(receipts, [Receipt::Duplicate, accepted, accepted, accepted, accepted, accepted]);
    let endings = collect(&fleet, 9);
    assert_eq!(endings.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(fleet.status().counters.died, 0);
}

#[test]
fn an_outcome_is_safe_only_when_the_consumer_has_removed_it() {
    let fleet = Fleet::journalled(BoardConfig::default());
    fleet.submit(verifications(0..3)).unwrap();
    let leases = fleet.lease(&worker("w"), &VERIFY, 3, SECOND).unwrap().leases;
    let reports: Vec<Report> = leases.iter().map(answer).collect();
    let ask = || {
        let mut reported = fleet.accept_reports(&worker("w"), reports.clone());
        let deadline = Instant::now() + Duration::from_millis(100);
        let settled = sgs_fleet::wait::block_until(deadline, reported.settled());
        (settled.is_some(), reported.receipts())
    };
    assert_eq!(ask(), (false, vec![Receipt::Waiting; 3]));
    assert_eq!(ask(), (false, vec![Receipt::Waiting; 3]), "repeated reports change nothing");
    assert_eq!(fleet.take_finished(9, SECOND).len(), 3);
    assert_eq!(ask(), (false, vec![Receipt::Waiting; 3]), "taken, but not stored yet");
    assert!(fleet.reject(leases[0].task, "invalid"));
    fleet.remove(&[leases[1].task]);
    let receipts = [Receipt::Rejected, Receipt::Duplicate, Receipt::Waiting];
    assert_eq!(ask(), (false, receipts.to_vec()));
    // A waiting report is answered as soon as the consumer removes the task.
    let told = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut reported = fleet.accept_reports(&worker("w"), vec![reports[2].clone()]);
            let begun = Instant::now();
            sgs_fleet::wait::block_until(begun + LONG, reported.settled()).unwrap();
            (reported.receipts(), begun.elapsed())
        });
        thread::sleep(Duration::from_millis(50));
        fleet.remove(&[leases[2].task]);
        waiting.join().unwrap()
    });
    assert_eq!(told.0, [Receipt::Duplicate]);
    assert!(told.1 < LONG / 2);
}

/// An in-process coordinator whose reports wait for the consumer, like those over HTTP.
struct Afar(Fleet);

impl Coordinator for Afar {
    fn lease(
        &self,
        worker: &WorkerName,
        kind: &WorkKind,
        capacity: usize,
        wait: Duration,
    ) -> Result<sgs_fleet::Grant, sgs_fleet::CallError> {
        self.0.lease(worker, kind, capacity, wait)
    }

    fn heartbeat(
        &self,
        worker: &WorkerName,
        held: &[LeaseId],
    ) -> Result<sgs_fleet::HeartbeatAck, sgs_fleet::CallError> {
        self.0.heartbeat(worker, held)
    }

    fn report(
        &self,
        worker: &WorkerName,
        reports: Vec<Report>,
    ) -> Result<Vec<Receipt>, sgs_fleet::CallError> {
        Ok(self.0.accept_reports(worker, reports).receipts())
    }
}

#[test]
fn a_worker_keeps_an_outcome_until_it_is_safe() {
    let fleet = Fleet::journalled(BoardConfig::default());
    fleet.submit(verifications(0..4)).unwrap();
    let config = WorkerConfig::new(worker("w"), VERIFY);
    let session = WorkerSession::start(Arc::new(Afar(fleet.clone())), config, StopFlag::default()).unwrap();
    for (lease, _) in session.lease(4, SECOND).unwrap() {
        session.finish(lease.id(), LeaseOutcome::Done(squared(&lease.payload)));
    }
    let taken = fleet.take_finished(9, LONG);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(session.summary().accepted + session.summary().duplicates, 0);
    let ids: Vec<TaskId> = taken.iter().map(|f| f.task).collect();
    fleet.remove(&ids);
    let begun = Instant::now();
    while session.summary().accepted + session.summary().duplicates < ids.len() as u64 {
        assert!(begun.elapsed() < LONG, "{:?}", session.summary());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(session.close().unwrap().unsettled, 0);
}
