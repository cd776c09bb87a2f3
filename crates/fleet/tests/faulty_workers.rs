//! What becomes of tasks whose workers are gone, broken or cut off.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sgs_fleet::{
    Beat, Board, BoardConfig, CallError, Coordinator, Drain, End, Ending, Fleet, Grant, Lease, LeaseId,
    Outcome, Receipt, Report, Session, Task, TaskId, TaskKind, Time, WorkerConfig, WorkerName, serve,
};

const VERIFY: TaskKind = TaskKind::of("verify");

const SECOND: u64 = 1000;

fn board(tasks: u64) -> Board {
    let mut board = Board::new(BoardConfig::default());
    for id in 0..tasks {
        let task = Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() };
        board.submit(Time(0), task).unwrap();
    }
    board
}

fn name(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

fn lease(board: &mut Board, at: u64, worker: &str, capacity: usize) -> Vec<Lease> {
    board.lease(Time(at), &name(worker), &VERIFY, capacity)
}

fn end(board: &mut Board, at: u64, worker: &str, lease: &Lease, outcome: Outcome) -> Receipt {
    board.report(Time(at), &name(worker), Report { task: lease.task, attempt: lease.attempt, outcome })
}

fn broken() -> Outcome {
    Outcome::Failed("broken".into())
}

#[test]
fn a_hundred_lost_workers_cost_no_task() {
    let mut board = board(200);
    let mut now = 0;
    let mut killed = 0;
    // Every worker is killed with what it has in hand after it has ended one task.
    while board.counters().done < 100 {
        let worker = format!("w{killed}");
        for leased in lease(&mut board, now, &worker, 16).iter().take(1) {
            end(&mut board, now, &worker, leased, Outcome::Done("y".into()));
        }
        lease(&mut board, now, &worker, 16);
        board.worker_ended(Time(now), &name(&worker), End::Gone, "killed by signal 9");
        killed += 1;
        now += SECOND;
        assert!(killed < 1000);
    }
    assert!(killed >= 100 && board.counters().died >= 500, "{:?}", board.counters());
    while !lease(&mut board, now, "survivor", 16).is_empty() {
        let held: Vec<LeaseId> = (0..200)
            .flat_map(|id| (1..64).map(move |n| LeaseId { task: TaskId(id), attempt: sgs_fleet::Attempt(n) }))
            .collect();
        for LeaseId { task, attempt } in held {
            let outcome = Outcome::Done("y".into());
            board.report(Time(now), &name("survivor"), Report { task, attempt, outcome });
        }
    }
    assert_eq!((board.counters().done, board.counters().quarantined), (200, 0));
}

#[test]
fn a_task_that_takes_every_worker_down_alone_is_given_up_and_its_neighbours_are_not() {
    let mut board = board(12);
    let mut now = 0;
    // The system ends whoever holds task 5, as one that runs out of memory does.
    for turn in 0..60 {
        let worker = format!("w{turn}");
        let leases = lease(&mut board, now, &worker, 4);
        if leases.iter().any(|l| l.task.0 == 5) {
            board.worker_ended(Time(now), &name(&worker), End::Gone, "killed by signal 9");
        } else {
            for leased in &leases {
                end(&mut board, now, &worker, leased, Outcome::Done("y".into()));
            }
        }
        now += SECOND;
    }
    for finished in std::iter::from_fn(|| board.next_finished(None)) {
        match finished.ending {
            // Four times in company, then three times alone.
            Ending::Quarantined { failures } => assert_eq!((finished.task.0, failures.len()), (5, 7)),
            Ending::Done { .. } => assert_ne!(finished.task.0, 5),
        }
    }
    assert_eq!((board.counters().done, board.counters().quarantined), (11, 1));
}

#[test]
fn a_worker_does_not_get_again_what_it_failed_while_another_is_there() {
    let mut board = board(6);
    lease(&mut board, 0, "healthy", 0);
    let first = lease(&mut board, 0, "broken", 3);
    for leased in &first {
        assert_eq!(end(&mut board, 1, "broken", leased, broken()), Receipt::Noted);
    }
    let second = lease(&mut board, 2, "broken", 6);
    assert_eq!(second.iter().map(|l| l.task.0).collect::<Vec<_>>(), [3, 4, 5]);
    for leased in &second {
        end(&mut board, 3, "broken", leased, broken());
    }
    assert!(lease(&mut board, 5 * SECOND, "broken", 6).is_empty(), "all of them are for others now");
    let others = lease(&mut board, 6 * SECOND, "healthy", 6);
    assert_eq!(others.len(), 6);
    for leased in &others {
        end(&mut board, 7 * SECOND, "healthy", leased, Outcome::Returned);
    }
    // Alone for longer than a lease, it may try again.
    let left = lease(&mut board, 80 * SECOND, "broken", 6);
    assert_eq!(left.len(), 6);
}

#[test]
fn a_worker_that_only_fails_pauses_for_longer_and_longer_and_the_status_says_so() {
    let mut board = board(100);
    let (mut now, mut pauses) = (0, Vec::new());
    while pauses.len() < 12 {
        // Some outcomes come from elsewhere, so that there is always work.
        let Some(leased) = lease(&mut board, now, "broken", 1).pop() else {
            let benched = board.status(Time(now)).workers[0].benched_s;
            assert!(benched > 0.0, "no work for a reason");
            pauses.push(benched);
            now += (benched * 1000.0) as u64;
            continue;
        };
        end(&mut board, now, "broken", &leased, broken());
    }
    assert_eq!(pauses[..4], [1.0, 2.0, 4.0, 8.0]);
    assert_eq!(pauses.last(), Some(&300.0));
    let leased = lease(&mut board, now, "broken", 1).remove(0);
    end(&mut board, now, "broken", &leased, Outcome::Done("y".into()));
    assert!(board.remove(leased.task));
    for leased in lease(&mut board, now, "broken", 4) {
        end(&mut board, now, "broken", &leased, broken());
    }
    assert_eq!(board.status(Time(now)).workers[0].benched_s, 0.0, "an outcome that was kept makes up for it");
}

#[test]
fn a_worker_whose_outcomes_are_all_rejected_pauses_although_each_was_taken_first() {
    let mut board = board(20);
    for now in 0..5 {
        let leased = lease(&mut board, now, "forger", 1).remove(0);
        assert_eq!(
            end(&mut board, now, "forger", &leased, Outcome::Done("forged".into())),
            Receipt::Accepted
        );
        assert!(board.reject(Time(now), leased.task, "it does not hold"));
    }
    assert!(board.status(Time(5)).workers[0].benched_s > 0.0);
    assert!(lease(&mut board, 5, "forger", 1).is_empty());
}

#[test]
fn who_waits_is_woken_for_what_another_has_failed() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let (broken, healthy) = (name("broken"), name("healthy"));
    fleet.lease(&healthy, &VERIFY, 1, Duration::ZERO).unwrap();
    let task = Task { id: TaskId(1), kind: VERIFY, priority: 0, payload: "x".into() };
    fleet.submit([task]).unwrap();
    fleet.lease(&healthy, &VERIFY, 0, Duration::ZERO).unwrap();
    let leased = fleet.lease(&broken, &VERIFY, 1, Duration::ZERO).unwrap().leases.remove(0);
    let failed = Report { task: leased.task, attempt: leased.attempt, outcome: Outcome::Failed("no".into()) };
    let (first, second) = thread::scope(|scope| {
        let wait = |worker| {
            let fleet = fleet.clone();
            move || fleet.lease(worker, &VERIFY, 1, Duration::from_secs(3)).unwrap().leases.len()
        };
        let first = scope.spawn(wait(&broken));
        thread::sleep(Duration::from_millis(50));
        let second = scope.spawn(wait(&healthy));
        thread::sleep(Duration::from_millis(50));
        fleet.report(&broken, vec![failed]).unwrap();
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!((first, second), (0, 1));
}

#[test]
fn only_time_in_which_workers_hold_tasks_counts_as_a_stall() {
    let mut board = board(3);
    let stalled = |board: &mut Board, at: u64| {
        board.expire(Time(at));
        board.status(Time(at)).stalled_s
    };
    assert_eq!(stalled(&mut board, 3600 * SECOND), 0.0, "an hour in a queue");
    let leases = lease(&mut board, 3600 * SECOND, "w", 2);
    for beat in 1..=10 {
        let held: Vec<LeaseId> = leases.iter().map(Lease::id).collect();
        board.heartbeat(Time((3600 + 10 * beat) * SECOND), &name("w"), &held);
    }
    assert_eq!(stalled(&mut board, 3700 * SECOND), 100.0);
    end(&mut board, 3700 * SECOND, "w", &leases[0], Outcome::Done("y".into()));
    assert_eq!(stalled(&mut board, 3710 * SECOND), 10.0, "since the last outcome");
    end(&mut board, 3710 * SECOND, "w", &leases[1], Outcome::Returned);
    assert_eq!(stalled(&mut board, 9999 * SECOND), 10.0, "nobody holds anything");
}

/// A coordinator that hands out tasks and is out of reach for all else, or hangs.
struct CutOff {
    hangs: bool,
    leases: AtomicUsize,
}

impl CutOff {
    fn fail<T>(&self) -> Result<T, CallError> {
        if self.hangs {
            thread::sleep(Duration::from_secs(60));
        }
        Err(CallError::Away("no route to host".into()))
    }
}

impl Coordinator for CutOff {
    fn lease(&self, _: &WorkerName, kind: &TaskKind, _: usize, _: Duration) -> Result<Grant, CallError> {
        let number = self.leases.fetch_add(1, Ordering::SeqCst) as u64;
        if number > 0 {
            return Err(CallError::Away("no route to host".into()));
        }
        let attempt = sgs_fleet::Attempt(1);
        let lease = Lease { task: TaskId(number), attempt, kind: kind.clone(), payload: "x".into() };
        Ok(Grant { leases: vec![lease], lease_time: Duration::from_secs(60), drain: false })
    }

    fn heartbeat(&self, _: &WorkerName, _: &[LeaseId]) -> Result<Beat, CallError> {
        self.fail()
    }

    fn report(&self, _: &WorkerName, _: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        self.fail()
    }
}

#[test]
fn a_worker_without_a_coordinator_leaves_within_its_grace() {
    for hangs in [false, true] {
        let drain = Drain::default();
        let mut config = WorkerConfig::new(name("w"), VERIFY);
        config.grace = Duration::from_secs(2);
        let coordinator = Arc::new(CutOff { hangs, leases: AtomicUsize::new(0) });
        let asked = drain.clone();
        let working = thread::spawn(move || serve(coordinator, config, asked, 1, |_, _| Ok("y".into())));
        thread::sleep(Duration::from_millis(500));
        assert!(!working.is_finished());
        drain.begin();
        let begun = Instant::now();
        let left = working.join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert!(
            left.is_err() || left.is_ok_and(|summary| summary.unsettled == 1),
            "its outcome did not arrive"
        );
    }
}

/// Of a session's outcomes those that the coordinator made wait are sent again, the others are not.
#[test]
fn only_what_waits_is_sent_again() {
    let fleet = Fleet::journalled(BoardConfig::default());
    let task = |id| Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() };
    fleet.submit((0..20).map(task)).unwrap();
    let config = WorkerConfig::new(name("w"), VERIFY);
    let session = Session::start(Arc::new(fleet.clone()), config, Drain::default()).unwrap();
    let leases = session.lease(20, Duration::from_secs(1)).unwrap();
    for (leased, _) in &leases {
        session.finish(leased.id(), Outcome::Done("y".into()));
    }
    let mut seen = BTreeSet::new();
    while seen.len() < 20 {
        for finished in fleet.take_finished(None, 20, Duration::from_secs(5)).unwrap() {
            assert!(seen.insert(finished.task), "delivered twice");
            fleet.remove(&[finished.task]).unwrap();
        }
    }
    // In this process nobody waits for the journal.
    assert_eq!(session.close().unwrap().accepted, 20);
}

/// Lets every outcome wait until all of them have come.
struct AllOrNone {
    fleet: Fleet,
    heard: Mutex<BTreeSet<TaskId>>,
    all: usize,
}

impl Coordinator for AllOrNone {
    fn lease(
        &self,
        w: &WorkerName,
        kind: &TaskKind,
        most: usize,
        wait: Duration,
    ) -> Result<Grant, CallError> {
        self.fleet.lease(w, kind, most, wait)
    }

    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<Beat, CallError> {
        self.fleet.heartbeat(worker, held)
    }

    fn report(&self, _: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        let mut heard = self.heard.lock().unwrap();
        heard.extend(reports.iter().map(|report| report.task));
        let receipt = if heard.len() == self.all { Receipt::Accepted } else { Receipt::Waiting };
        Ok(vec![receipt; reports.len()])
    }
}

#[test]
fn what_waits_does_not_hold_up_what_was_not_sent() {
    let fleet = Fleet::journalled(BoardConfig::default());
    let task = |id| Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() };
    fleet.submit((0..150).map(task)).unwrap();
    let coordinator = Arc::new(AllOrNone { fleet, heard: Mutex::default(), all: 150 });
    let config = WorkerConfig::new(name("w"), VERIFY);
    assert!(config.batch < 150 / 2, "or there is nothing behind what waits");
    let session = Session::start(coordinator, config, Drain::default()).unwrap();
    for (leased, _) in session.lease(150, Duration::from_secs(1)).unwrap() {
        session.finish(leased.id(), Outcome::Done("y".into()));
    }
    let begun = Instant::now();
    while session.summary().accepted < 150 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", session.summary());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(session.close().unwrap().unsettled, 0);
}

#[test]
fn a_second_opinion_never_comes_from_whom_the_first_did() {
    let mut board = Board::new(BoardConfig::default());
    let task = Task { id: TaskId(1), kind: VERIFY, priority: 0, payload: "x".into() };
    board.submit_barring(Time(0), task, Some(name("first"))).unwrap();
    // Not even where nobody else is there, or after somebody else has failed it.
    assert!(lease(&mut board, 1, "first", 9).is_empty());
    assert!(!board.has_work_for(Time(1), &name("first"), &VERIFY));
    let second = lease(&mut board, 2, "second", 9);
    assert_eq!(second.len(), 1);
    end(&mut board, 3, "second", &second[0], broken());
    assert!(lease(&mut board, 4, "first", 9).is_empty());
    // The other is the only one who can try again. No copy goes to the first, no lease of a coordinator before is his.
    let second = lease(&mut board, 5, "second", 9);
    assert!(lease(&mut board, 5 + 40 * SECOND, "first", 9).is_empty());
    let old = sgs_fleet::Epoch::new(77).attempt(1);
    let claimed = LeaseId { task: TaskId(1), attempt: old };
    assert_eq!(board.heartbeat(Time(41 * SECOND), &name("first"), &[claimed]).abandon, [claimed]);
    let forged = Report { task: TaskId(1), attempt: old, outcome: Outcome::Done("forged".into()) };
    assert_eq!(board.report(Time(42 * SECOND), &name("first"), forged), Receipt::Refused);
    let answer = Outcome::Done("y".into());
    assert_eq!(end(&mut board, 43 * SECOND, "second", &second[0], answer), Receipt::Accepted);
}
