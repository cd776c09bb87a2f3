//! The fleet inside one process: threads as workers, a run as consumer, a log on disk.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sgs_fleet::{
    Attempt, Backpressure, BoardConfig, Coordinator, Drain, Ending, FileLog, Fleet, FleetError, LeaseId,
    LogError, Outcome, Payload, Receipt, Record, Report, Session, Speculation, Task, TaskId, TaskKind,
    TaskLog, WorkerConfig, WorkerName, serve,
};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(120);

fn task(id: u64, kind: TaskKind) -> Task {
    Task { id: TaskId(id), kind, priority: 0, payload: format!("{id}").into() }
}

fn verifications(range: std::ops::Range<u64>) -> impl Iterator<Item = Task> {
    range.map(|id| task(id, TaskKind::Verify))
}

fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

fn squared(payload: &Payload) -> Payload {
    let number: u64 = std::str::from_utf8(payload.as_bytes()).unwrap().parse().unwrap();
    (number * number).to_string().into()
}

fn collect(fleet: &Fleet, number: usize) -> BTreeMap<u64, Ending> {
    let mut endings = BTreeMap::new();
    let deadline = Instant::now() + LONG;
    while endings.len() < number {
        assert!(Instant::now() < deadline, "only {} of {number} came", endings.len());
        for finished in fleet.take_finished(None, 100, SECOND).unwrap() {
            let id = finished.task.0;
            assert!(endings.insert(id, finished.ending).is_none(), "task {id} ended twice");
            fleet.remove(&[TaskId(id)]).unwrap();
        }
    }
    endings
}

#[test]
fn threads_work_off_everything_once() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let drain = Drain::default();
    let runs = AtomicUsize::new(0);
    let endings = thread::scope(|scope| {
        for n in 0..3 {
            let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
            let config = WorkerConfig::new(worker(&format!("w{n}")), TaskKind::Verify);
            let (drain, runs) = (drain.clone(), &runs);
            scope.spawn(move || {
                serve(coordinator, config, drain, 2, |lease, _| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    Ok(squared(&lease.payload))
                })
                .unwrap()
            });
        }
        assert_eq!(fleet.submit(verifications(0..3000)).unwrap(), 3000);
        assert_eq!(fleet.submit(verifications(0..3000)).unwrap(), 0, "the same work again is no work");
        let endings = collect(&fleet, 3000);
        drain.begin();
        endings
    });
    for (id, ending) in endings {
        let Ending::Done { outcome, .. } = ending else { panic!("task {id}: {ending:?}") };
        assert_eq!(
            outcome.as_bytes(),
            (id * id).to_string().as_bytes(),
            "an outcome belongs to its own task"
        );
    }
    assert_eq!(runs.into_inner(), 3000);
    assert!(fleet.status().unwrap().tasks == 0);
}

#[test]
fn every_wait_ends_at_its_deadline() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let begun = Instant::now();
    assert_eq!(fleet.next_finished(Duration::from_millis(60)).unwrap(), None);
    let grant = fleet.lease(&worker("w"), &TaskKind::Generate, 4, Duration::from_millis(60)).unwrap();
    assert!(grant.leases.is_empty() && !grant.drain);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(120) && took < LONG, "{took:?}");
}

#[test]
fn a_waiting_worker_is_woken_by_a_task_and_a_waiting_consumer_by_an_ending() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let mut latencies = Vec::new();
    for id in 0..15 {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let grant = fleet.lease(&worker("w"), &TaskKind::Verify, 1, LONG).unwrap();
                (grant, Instant::now())
            });
            thread::sleep(Duration::from_millis(10));
            let submitted = Instant::now();
            fleet.submit([task(id, TaskKind::Verify)]).unwrap();
            let (grant, at) = waiting.join().unwrap();
            latencies.push(at - submitted);
            let lease = &grant.leases[0];
            let consumer = scope.spawn(|| (fleet.next_finished(LONG).unwrap(), Instant::now()));
            thread::sleep(Duration::from_millis(10));
            let reported = Instant::now();
            let report =
                Report { task: lease.task, attempt: lease.attempt, outcome: Outcome::Done("x".into()) };
            fleet.report(&worker("w"), vec![report]).unwrap();
            let (finished, at) = consumer.join().unwrap();
            assert!(finished.is_some());
            latencies.push(at - reported);
        });
    }
    latencies.sort();
    // Without being woken they would look again after a quarter of a second.
    assert!(latencies[0] < Duration::from_millis(200), "{latencies:?}");
}

#[test]
fn a_poisonous_task_is_quarantined_with_its_reasons_and_the_rest_goes_on() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..50)).unwrap();
    let drain = Drain::default();
    let endings = thread::scope(|scope| {
        let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
        let config = WorkerConfig::new(worker("w"), TaskKind::Verify);
        let drain2 = drain.clone();
        scope.spawn(move || {
            serve(coordinator, config, drain2, 2, |lease, _| match lease.task.0 {
                13 => panic!("no luck with {}", lease.task),
                17 => Err("the checker broke".into()),
                _ => Ok("fine".into()),
            })
        });
        let endings = collect(&fleet, 50);
        drain.begin();
        endings
    });
    for (id, expected) in [(13, "the handler panicked: no luck with 13"), (17, "the checker broke")] {
        let Ending::Quarantined { failures } = &endings[&id] else { panic!("{id} is not quarantined") };
        assert_eq!(failures.len(), 3);
        assert!(failures.iter().all(|f| f.message == expected && f.worker == worker("w")), "{failures:?}");
    }
    assert_eq!(endings.values().filter(|e| matches!(e, Ending::Done { .. })).count(), 48);
    let status = fleet.status().unwrap();
    assert!(status.infra_rate() > 0.01 && status.worst_workers(3).contains("w: 6 failed, 48 done"));
}

#[test]
fn back_pressure_holds_generation_until_verification_catches_up() {
    let config =
        BoardConfig { backpressure: Some(Backpressure::of_verification(2)), ..BoardConfig::default() };
    let fleet = Fleet::in_memory(config);
    fleet
        .submit([task(1, TaskKind::Generate), task(2, TaskKind::Verify), task(3, TaskKind::Verify)])
        .unwrap();
    let none = fleet.lease(&worker("g"), &TaskKind::Generate, 1, Duration::from_millis(20)).unwrap();
    assert!(none.leases.is_empty() && fleet.status().unwrap().kinds[0].held_back);
    let lease = fleet.lease(&worker("v"), &TaskKind::Verify, 1, SECOND).unwrap().leases.remove(0);
    let waiting = {
        let fleet = fleet.clone();
        thread::spawn(move || fleet.lease(&worker("g"), &TaskKind::Generate, 1, LONG).unwrap())
    };
    let done = Report { task: lease.task, attempt: lease.attempt, outcome: Outcome::Done("x".into()) };
    fleet.report(&worker("v"), vec![done]).unwrap();
    assert_eq!(waiting.join().unwrap().leases.len(), 1);
}

#[test]
fn a_cancelled_task_stops_its_handler() {
    let config = BoardConfig { lease: Duration::from_secs(3), ..BoardConfig::default() };
    let fleet = Fleet::in_memory(config);
    fleet.submit([task(1, TaskKind::Verify)]).unwrap();
    let drain = Drain::default();
    thread::scope(|scope| {
        let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
        let config = WorkerConfig::new(worker("w"), TaskKind::Verify);
        let begun = Arc::new(AtomicUsize::new(0));
        let (drain2, begun2) = (drain.clone(), Arc::clone(&begun));
        let working = scope.spawn(move || {
            serve(coordinator, config, drain2, 1, |_, cancel| {
                begun2.fetch_add(1, Ordering::SeqCst);
                let deadline = Instant::now() + LONG;
                while !cancel.is_cancelled() && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(format!("stopped: {}", cancel.is_cancelled()))
            })
        });
        while begun.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(3500));
        assert_eq!(
            fleet.status().unwrap().kinds[0].leased,
            1,
            "heartbeats keep a lease past its first deadline"
        );
        assert_eq!(fleet.cancel(&[TaskId(1)]).unwrap(), 1);
        let stopped = Instant::now();
        while fleet.status().unwrap().workers[0].leases > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(300));
        drain.begin();
        let summary = working.join().unwrap().unwrap();
        assert!(stopped.elapsed() < LONG);
        assert_eq!((summary.abandoned, summary.noted, summary.accepted), (1, 0, 0));
    });
    assert_eq!(fleet.status().unwrap().counters.failed, 0, "who is told to stop has not failed");
}

#[test]
fn a_drained_worker_gives_back_what_it_cannot_finish() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    fleet.submit(verifications(0..5)).unwrap();
    let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
    let mut config = WorkerConfig::new(worker("w"), TaskKind::Verify);
    config.grace = Duration::from_millis(50);
    let drain = Drain::default();
    let asked = drain.clone();
    let summary = serve(coordinator, config, drain, 2, |_, cancel| {
        asked.begin();
        while !cancel.is_cancelled() {
            thread::sleep(Duration::from_millis(2));
        }
        Err("cut short".into())
    })
    .unwrap();
    assert_eq!((summary.leased, summary.noted), (2, 2));
    let status = fleet.status().unwrap();
    assert_eq!((status.kinds[0].pending, status.kinds[0].leased), (5, 0));
    assert_eq!((status.counters.returned, status.counters.failed), (2, 0));
}

#[test]
fn a_drained_fleet_sends_its_workers_home() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let coordinator: Arc<dyn Coordinator> = Arc::new(fleet.clone());
    let config = WorkerConfig::new(worker("w"), TaskKind::Verify);
    let working =
        thread::spawn(move || serve(coordinator, config, Drain::default(), 2, |_, _| Ok("x".into())));
    thread::sleep(Duration::from_millis(50));
    fleet.set_drain(true).unwrap();
    let begun = Instant::now();
    working.join().unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_copy_goes_to_an_idle_worker_and_the_loser_is_told() {
    let speculation = Some(Speculation { min_age: Duration::from_millis(30), max_per_request: 16 });
    let fleet = Fleet::in_memory(BoardConfig { speculation, ..BoardConfig::default() });
    fleet.submit(verifications(0..1)).unwrap();
    let slow = fleet.lease(&worker("slow"), &TaskKind::Verify, 1, SECOND).unwrap().leases.remove(0);
    let fast = fleet.lease(&worker("fast"), &TaskKind::Verify, 8, LONG).unwrap().leases;
    assert_eq!((fast.len(), fast[0].task, fast[0].attempt), (1, slow.task, Attempt(2)));
    let none = fleet.lease(&worker("third"), &TaskKind::Verify, 8, Duration::from_millis(100)).unwrap();
    assert!(none.leases.is_empty(), "one extra copy at most");
    let done = |lease: &LeaseId, text: &str| Report {
        task: lease.task,
        attempt: lease.attempt,
        outcome: Outcome::Done(text.into()),
    };
    let won = fleet.report(&worker("fast"), vec![done(&fast[0].id(), "fast")]).unwrap();
    assert_eq!(won, [Receipt::Accepted]);
    assert_eq!(fleet.heartbeat(&worker("slow"), &[slow.id()]).unwrap().abandon, [slow.id()]);
    assert_eq!(fleet.report(&worker("slow"), vec![done(&slow.id(), "slow")]).unwrap(), [Receipt::Duplicate]);
    let finished = fleet.next_finished(SECOND).unwrap().unwrap();
    assert!(matches!(finished.ending, Ending::Done { outcome, .. } if outcome.as_bytes() == b"fast"));
    assert_eq!(fleet.status().unwrap().counters.copies, 1);
}

fn open(path: &std::path::Path) -> Fleet {
    let (log, found) = FileLog::open(path).unwrap();
    Fleet::with_log(BoardConfig::default(), found.records, Box::new(log)).unwrap()
}

#[test]
fn a_coordinator_comes_back_with_everything_it_promised() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.log");
    let fleet = open(&path);
    fleet.submit(verifications(0..10)).unwrap();
    let leases = fleet.lease(&worker("w"), &TaskKind::Verify, 4, SECOND).unwrap().leases;
    let done = |n: usize| Report {
        task: leases[n].task,
        attempt: leases[n].attempt,
        outcome: Outcome::Done(squared(&leases[n].payload)),
    };
    assert_eq!(fleet.report(&worker("w"), vec![done(0), done(1)]).unwrap(), [Receipt::Accepted; 2]);
    let first = fleet.next_finished(SECOND).unwrap().unwrap();
    fleet.remove(&[first.task]).unwrap();
    drop(fleet);

    let fleet = open(&path);
    assert_eq!(fleet.submit(verifications(1..10)).unwrap(), 0, "the round's tasks are there");
    let status = fleet.status().unwrap();
    assert_eq!((status.kinds[0].pending, status.kinds[0].leased, status.kinds[0].undelivered), (6, 2, 1));
    assert!(fleet.heartbeat(&worker("w"), &[leases[2].id(), leases[3].id()]).unwrap().abandon.is_empty());
    assert_eq!(
        fleet.report(&worker("w"), vec![done(2)]).unwrap(),
        [Receipt::Accepted],
        "a lease outlives a restart"
    );
    assert_eq!(fleet.report(&worker("w"), vec![done(1)]).unwrap(), [Receipt::Duplicate]);
    fleet.compact().unwrap();
    fleet.submit(verifications(10..12)).unwrap();
    drop(fleet);

    let fleet = open(&path);
    let mut leases = fleet.lease(&worker("v"), &TaskKind::Verify, 99, SECOND).unwrap().leases;
    assert_eq!(leases.len(), 8);
    let session = Session::start(
        Arc::new(fleet.clone()),
        WorkerConfig::new(worker("v"), TaskKind::Verify),
        Drain::default(),
    )
    .unwrap();
    assert_eq!(session.held(), 0);
    leases.sort_by_key(|l| l.task);
    let reports = leases.iter().map(|l| Report {
        task: l.task,
        attempt: l.attempt,
        outcome: Outcome::Done(squared(&l.payload)),
    });
    fleet.report(&worker("v"), reports.collect()).unwrap();
    let endings = collect(&fleet, 10);
    assert_eq!(endings.keys().copied().collect::<Vec<_>>(), [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);
    session.close().unwrap();
}

/// A disk that is full after some records.
struct FullDisk(usize);

impl TaskLog for FullDisk {
    fn append(&mut self, records: &[Record]) -> Result<(), LogError> {
        if self.0 < records.len() {
            return Err(LogError::new("write to tasks.log", std::io::ErrorKind::StorageFull.into()));
        }
        self.0 -= records.len();
        Ok(())
    }

    fn replace(&mut self, _: &[Record]) -> Result<(), LogError> {
        Ok(())
    }
}

#[test]
fn a_full_disk_stops_the_fleet_and_says_so() {
    let fleet = Fleet::with_log(BoardConfig::default(), [], Box::new(FullDisk(10))).unwrap();
    fleet.submit(verifications(0..5)).unwrap();
    let error = fleet.submit(verifications(5..50)).unwrap_err();
    assert!(matches!(&error, FleetError::Stopped(reason) if reason.contains("tasks.log")), "{error}");
    assert!(fleet.next_finished(SECOND).is_err());
    assert!(fleet.lease(&worker("w"), &TaskKind::Verify, 1, SECOND).is_err());
}

/// A disk on which an outcome is not written before the test says so.
struct SlowDisk(Mutex<Receiver<()>>);

impl TaskLog for SlowDisk {
    fn append(&mut self, records: &[Record]) -> Result<(), LogError> {
        if records.iter().any(|record| matches!(record, Record::Done { .. })) {
            self.0.lock().unwrap().recv().unwrap();
        }
        Ok(())
    }

    fn replace(&mut self, _: &[Record]) -> Result<(), LogError> {
        Ok(())
    }
}

#[test]
fn nobody_hears_of_an_outcome_before_it_is_on_the_disk() {
    let (write, gate) = channel();
    let log = SlowDisk(Mutex::new(gate));
    let fleet = Fleet::with_log(BoardConfig::default(), [], Box::new(log)).unwrap();
    fleet.submit(verifications(0..1)).unwrap();
    let lease = fleet.lease(&worker("w"), &TaskKind::Verify, 1, SECOND).unwrap().leases.remove(0);
    let report =
        Report { task: lease.task, attempt: lease.attempt, outcome: Outcome::Done(squared(&lease.payload)) };
    let heard = AtomicUsize::new(0);
    let too_early = thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(fleet.report(&worker("w"), vec![report]).unwrap(), [Receipt::Accepted]);
            heard.fetch_add(1, Ordering::SeqCst);
        });
        scope.spawn(|| {
            assert_eq!(fleet.take_finished(None, 5, LONG).unwrap().len(), 1);
            heard.fetch_add(1, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(300));
        let too_early = heard.load(Ordering::SeqCst);
        write.send(()).unwrap();
        too_early
    });
    assert_eq!((too_early, heard.into_inner()), (0, 2), "a promise that a crash would break");
}
