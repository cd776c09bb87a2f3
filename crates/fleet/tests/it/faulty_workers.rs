//! Tasks of workers that die, fail or lose their connection.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sgs_fleet::{
    Board, BoardConfig, CallError, Coordinator, Epoch, Fleet, Grant, HeartbeatAck, Lease, LeaseId,
    LeaseOutcome, Receipt, Report, StopFlag, Task, TaskId, TaskResult, Time, WorkKind, WorkerConfig,
    WorkerExit, WorkerName, WorkerSession, run_worker,
};

const VERIFY: WorkKind = WorkKind::of("verify");

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

fn end(board: &mut Board, at: u64, worker: &str, lease: &Lease, outcome: LeaseOutcome) -> Receipt {
    board.report(Time(at), &name(worker), Report { task: lease.task, attempt: lease.attempt, outcome })
}

fn broken() -> LeaseOutcome {
    LeaseOutcome::Failed("broken".into())
}

#[test]
fn a_hundred_lost_workers_cost_no_task() {
    let mut board = board(200);
    let mut now = 0;
    let mut killed = 0;
    // Every worker is killed after it has finished one task, while it holds others.
    while board.counters().done < 100 {
        let worker = format!("w{killed}");
        for leased in lease(&mut board, now, &worker, 16).iter().take(1) {
            end(&mut board, now, &worker, leased, LeaseOutcome::Done("y".into()));
        }
        lease(&mut board, now, &worker, 16);
        board.worker_ended(Time(now), &name(&worker), WorkerExit::Gone, "killed by signal 9");
        killed += 1;
        now += SECOND;
        assert!(killed < 1000);
    }
    assert!(killed >= 100 && board.counters().died >= 500, "{:?}", board.counters());
    while !lease(&mut board, now, "survivor", 16).is_empty() {
        let held: Vec<LeaseId> = (0..200)
            .flat_map(|id| {
                (1..64).map(move |n| LeaseId { task: TaskId(id), attempt: sgs_fleet::AttemptId(n) })
            })
            .collect();
        for LeaseId { task, attempt } in held {
            let outcome = LeaseOutcome::Done("y".into());
            board.report(Time(now), &name("survivor"), Report { task, attempt, outcome });
        }
    }
    assert_eq!((board.counters().done, board.counters().quarantined), (200, 0));
}

#[test]
fn only_the_task_that_kills_its_workers_is_quarantined() {
    let mut board = board(12);
    let mut now = 0;
    // Task 5 kills every worker that holds it, for example by running out of memory.
    for turn in 0..60 {
        let worker = format!("w{turn}");
        let leases = lease(&mut board, now, &worker, 4);
        if leases.iter().any(|l| l.task.0 == 5) {
            board.worker_ended(Time(now), &name(&worker), WorkerExit::Gone, "killed by signal 9");
        } else {
            for leased in &leases {
                end(&mut board, now, &worker, leased, LeaseOutcome::Done("y".into()));
            }
        }
        now += SECOND;
    }
    for finished in std::iter::from_fn(|| board.next_finished()) {
        match finished.result {
            // Its workers died four times while they held other tasks too, then three times while they held it alone.
            TaskResult::Quarantined { failures } => assert_eq!((finished.task.0, failures.len()), (5, 7)),
            TaskResult::Done { .. } => assert_ne!(finished.task.0, 5),
        }
    }
    assert_eq!((board.counters().done, board.counters().quarantined), (11, 1));
}

#[test]
fn a_worker_does_not_get_a_failed_task_again_while_another_can_try() {
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
    assert!(
        lease(&mut board, 5 * SECOND, "broken", 6).is_empty(),
        "all of them are reserved for other workers"
    );
    let others = lease(&mut board, 6 * SECOND, "healthy", 6);
    assert_eq!(others.len(), 6);
    for leased in &others {
        end(&mut board, 7 * SECOND, "healthy", leased, LeaseOutcome::Returned);
    }
    // It may try again when it has been the only worker for longer than a lease.
    let left = lease(&mut board, 80 * SECOND, "broken", 6);
    assert_eq!(left.len(), 6);
}

#[test]
fn a_worker_that_only_fails_backs_off_exponentially() {
    let mut board = board(100);
    let (mut now, mut pauses) = (0, Vec::new());
    while pauses.len() < 12 {
        // Submit new tasks, so that there is always work.
        let Some(leased) = lease(&mut board, now, "broken", 1).pop() else {
            let benched = board.status(Time(now)).workers[0].backoff_s;
            assert!(benched > 0.0, "the worker backs off");
            pauses.push(benched);
            now += (benched * 1000.0) as u64;
            continue;
        };
        end(&mut board, now, "broken", &leased, broken());
    }
    assert_eq!(pauses[..4], [1.0, 2.0, 4.0, 8.0]);
    assert_eq!(pauses.last(), Some(&300.0));
    let leased = lease(&mut board, now, "broken", 1).remove(0);
    end(&mut board, now, "broken", &leased, LeaseOutcome::Done("y".into()));
    assert!(board.remove(leased.task));
    for leased in lease(&mut board, now, "broken", 4) {
        end(&mut board, now, "broken", &leased, broken());
    }
    assert_eq!(board.status(Time(now)).workers[0].backoff_s, 0.0, "a kept outcome ends the back-off");
}

#[test]
fn a_worker_whose_outcomes_are_all_rejected_backs_off() {
    let mut board = board(20);
    for now in 0..5 {
        let leased = lease(&mut board, now, "forger", 1).remove(0);
        assert_eq!(
            end(&mut board, now, "forger", &leased, LeaseOutcome::Done("forged".into())),
            Receipt::Accepted
        );
        assert!(board.reject(Time(now), leased.task, "invalid"));
    }
    assert!(board.status(Time(5)).workers[0].backoff_s > 0.0);
    assert!(lease(&mut board, 5, "forger", 1).is_empty());
}

#[test]
fn a_waiting_worker_is_woken_for_a_task_that_another_failed() {
    let fleet = Fleet::in_memory(BoardConfig::default());
    let (broken, healthy) = (name("broken"), name("healthy"));
    fleet.lease(&healthy, &VERIFY, 1, Duration::ZERO).unwrap();
    let task = Task { id: TaskId(1), kind: VERIFY, priority: 0, payload: "x".into() };
    fleet.submit([task]).unwrap();
    fleet.lease(&healthy, &VERIFY, 0, Duration::ZERO).unwrap();
    let leased = fleet.lease(&broken, &VERIFY, 1, Duration::ZERO).unwrap().leases.remove(0);
    let failed =
        Report { task: leased.task, attempt: leased.attempt, outcome: LeaseOutcome::Failed("no".into()) };
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
fn a_stall_counts_only_time_with_leases() {
    let mut board = board(3);
    let stalled = |board: &mut Board, at: u64| {
        board.expire(Time(at));
        board.status(Time(at)).stalled_s
    };
    assert_eq!(stalled(&mut board, 3600 * SECOND), 0.0, "an hour without a worker");
    let leases = lease(&mut board, 3600 * SECOND, "w", 2);
    for beat in 1..=10 {
        let held: Vec<LeaseId> = leases.iter().map(Lease::id).collect();
        board.heartbeat(Time((3600 + 10 * beat) * SECOND), &name("w"), &held);
    }
    assert_eq!(stalled(&mut board, 3700 * SECOND), 100.0);
    end(&mut board, 3700 * SECOND, "w", &leases[0], LeaseOutcome::Done("y".into()));
    assert_eq!(stalled(&mut board, 3710 * SECOND), 10.0, "since the last outcome");
    end(&mut board, 3710 * SECOND, "w", &leases[1], LeaseOutcome::Returned);
    assert_eq!(stalled(&mut board, 9999 * SECOND), 10.0, "no leases");
}

/// A coordinator that grants leases, but fails or hangs on all other calls.
struct CutOff {
    hangs: bool,
    leases: AtomicUsize,
}

impl CutOff {
    fn fail<T>(&self) -> Result<T, CallError> {
        if self.hangs {
            thread::sleep(Duration::from_secs(60));
        }
        Err(CallError::Unavailable("no route to host".into()))
    }
}

impl Coordinator for CutOff {
    fn lease(&self, _: &WorkerName, kind: &WorkKind, _: usize, _: Duration) -> Result<Grant, CallError> {
        let number = self.leases.fetch_add(1, Ordering::SeqCst) as u64;
        if number > 0 {
            return Err(CallError::Unavailable("no route to host".into()));
        }
        let attempt = sgs_fleet::AttemptId(1);
        let lease = Lease { task: TaskId(number), attempt, kind: kind.clone(), payload: "x".into() };
        Ok(Grant { leases: vec![lease], lease_time: Duration::from_secs(60), drain: false })
    }

    fn heartbeat(&self, _: &WorkerName, _: &[LeaseId]) -> Result<HeartbeatAck, CallError> {
        self.fail()
    }

    fn report(&self, _: &WorkerName, _: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        self.fail()
    }
}

#[test]
fn a_worker_without_a_coordinator_leaves_within_its_grace() {
    for hangs in [false, true] {
        let drain = StopFlag::default();
        let mut config = WorkerConfig::new(name("w"), VERIFY);
        config.grace = Duration::from_secs(2);
        let coordinator = Arc::new(CutOff { hangs, leases: AtomicUsize::new(0) });
        let asked = drain.clone();
        let working = thread::spawn(move || run_worker(coordinator, config, asked, 1, |_, _| Ok("y".into())));
        thread::sleep(Duration::from_millis(500));
        assert!(!working.is_finished());
        drain.set();
        let begun = Instant::now();
        let left = working.join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert!(
            left.is_err() || left.is_ok_and(|summary| summary.unsettled == 1),
            "its outcome did not arrive"
        );
    }
}

/// A session sends only those outcomes again for which the coordinator replied `Waiting`.
#[test]
fn only_waiting_outcomes_are_sent_again() {
    let fleet = Fleet::journalled(BoardConfig::default());
    let task = |id| Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() };
    fleet.submit((0..20).map(task)).unwrap();
    let config = WorkerConfig::new(name("w"), VERIFY);
    let session = WorkerSession::start(Arc::new(fleet.clone()), config, StopFlag::default()).unwrap();
    let leases = session.lease(20, Duration::from_secs(1)).unwrap();
    for (leased, _) in &leases {
        session.finish(leased.id(), LeaseOutcome::Done("y".into()));
    }
    let mut seen = BTreeSet::new();
    while seen.len() < 20 {
        for finished in fleet.take_finished(20, Duration::from_secs(5)) {
            assert!(seen.insert(finished.task), "delivered twice");
            fleet.remove(&[finished.task]);
        }
    }
    // An in-process fleet does not wait for the journal.
    assert_eq!(session.close().unwrap().accepted, 20);
}

/// Replies `Waiting` until all outcomes have arrived.
struct AllOrNone {
    fleet: Fleet,
    heard: Mutex<BTreeSet<TaskId>>,
    all: usize,
}

impl Coordinator for AllOrNone {
    fn lease(
        &self,
        w: &WorkerName,
        kind: &WorkKind,
        most: usize,
        wait: Duration,
    ) -> Result<Grant, CallError> {
        self.fleet.lease(w, kind, most, wait)
    }

    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<HeartbeatAck, CallError> {
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
fn waiting_outcomes_do_not_delay_unsent_ones() {
    let fleet = Fleet::journalled(BoardConfig::default());
    let task = |id| Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() };
    fleet.submit((0..150).map(task)).unwrap();
    let coordinator = Arc::new(AllOrNone { fleet, heard: Mutex::default(), all: 150 });
    let config = WorkerConfig::new(name("w"), VERIFY);
    assert!(config.batch < 150 / 2, "otherwise no outcome is behind the waiting ones");
    let session = WorkerSession::start(coordinator, config, StopFlag::default()).unwrap();
    for (leased, _) in session.lease(150, Duration::from_secs(1)).unwrap() {
        session.finish(leased.id(), LeaseOutcome::Done("y".into()));
    }
    let begun = Instant::now();
    while session.summary().accepted < 150 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", session.summary());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(session.close().unwrap().unsettled, 0);
}

#[test]
fn an_excluded_worker_never_gets_the_task() {
    let mut board = Board::new(BoardConfig::default());
    let task = Task { id: TaskId(1), kind: VERIFY, priority: 0, payload: "x".into() };
    board.submit_excluding(Time(0), task, Some(name("first"))).unwrap();
    // This holds even if no other worker is present, or another worker has failed it.
    assert!(lease(&mut board, 1, "first", 9).is_empty());
    assert!(!board.has_work_for(Time(1), &name("first"), &VERIFY));
    let second = lease(&mut board, 2, "second", 9);
    assert_eq!(second.len(), 1);
    end(&mut board, 3, "second", &second[0], broken());
    assert!(lease(&mut board, 4, "first", 9).is_empty());
    // The excluded worker gets no copy, and cannot reclaim a lease of an earlier coordinator.
    let second = lease(&mut board, 5, "second", 9);
    assert!(lease(&mut board, 5 + 40 * SECOND, "first", 9).is_empty());
    let old = sgs_fleet::Epoch::new(77).attempt(1);
    let claimed = LeaseId { task: TaskId(1), attempt: old };
    assert_eq!(board.heartbeat(Time(41 * SECOND), &name("first"), &[claimed]).abandon, [claimed]);
    let forged = Report { task: TaskId(1), attempt: old, outcome: LeaseOutcome::Done("forged".into()) };
    assert_eq!(board.report(Time(42 * SECOND), &name("first"), forged), Receipt::Refused);
    let answer = LeaseOutcome::Done("y".into());
    assert_eq!(end(&mut board, 43 * SECOND, "second", &second[0], answer), Receipt::Accepted);
}

/// A worker that fails a lease cannot multiply the failure by naming leases of other epochs.
#[test]
fn leases_that_the_board_did_not_grant_do_not_quarantine_a_task() {
    let mut board = Board::recovering(BoardConfig::default(), Epoch::new(9));
    let (kind, bad) = (VERIFY, name("bad"));
    let task = |id| Task { id: TaskId(id), kind: kind.clone(), priority: 0, payload: "x".into() };
    board.submit(Time(0), task(1)).unwrap();
    board.submit(Time(0), task(2)).unwrap();
    board.finish_recovery();
    let failed = |task, epoch: u32| Report {
        task: TaskId(task),
        attempt: Epoch::new(epoch).attempt(1),
        outcome: LeaseOutcome::Failed("broken".into()),
    };
    // A granted lease counts once; other epochs are refused.
    assert_eq!(board.lease(Time(0), &bad, &kind, 1).len(), 1);
    assert_eq!(board.report(Time(1), &bad, failed(1, 9)), Receipt::Noted);
    for epoch in 1..9 {
        assert_eq!(board.report(Time(1), &bad, failed(1, epoch)), Receipt::Refused);
    }
    // Without a granted lease, a failure is noted once, but does not count.
    assert_eq!(board.report(Time(1), &bad, failed(2, 1)), Receipt::Noted);
    for epoch in 2..9 {
        assert_eq!(board.report(Time(1), &bad, failed(2, epoch)), Receipt::Refused);
    }
    // Rejected outcomes and deaths do not count, either.
    for epoch in 2..9 {
        let name = WorkerName::new(&format!("bad-{epoch}")).unwrap();
        let report = Report { outcome: LeaseOutcome::Done("garbage".into()), ..failed(2, epoch) };
        assert_eq!(board.report(Time(2), &name, report), Receipt::Accepted);
        assert!(board.reject(Time(2), TaskId(2), "unusable"));
        let lease = LeaseId { task: TaskId(1), attempt: Epoch::new(epoch).attempt(1) };
        assert!(board.heartbeat(Time(2), &name, &[lease]).abandon.is_empty());
        board.worker_ended(Time(2), &name, WorkerExit::Gone, "killed");
    }
    assert_eq!(board.counters().quarantined, 0);
    let good = WorkerName::new("good").unwrap();
    assert_eq!(board.lease(Time(3), &good, &kind, 8).len(), 2, "neither task is a suspect");
}

/// Two workers that name leases of other epochs do not get all tasks.
#[test]
fn a_worker_reclaims_no_more_leases_than_it_may_hold() {
    const HELD: usize = 3;
    let config = BoardConfig { max_leases_per_worker: HELD, ..BoardConfig::default() };
    let task = |id| Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() };
    let named = |epoch| -> Vec<LeaseId> {
        (0..20).map(|id| LeaseId { task: TaskId(id), attempt: Epoch::new(epoch).attempt(1) }).collect()
    };
    let leases = |board: &Board| -> Vec<usize> {
        let status = board.status(Time(9));
        status.workers.iter().map(|worker| worker.leases).collect()
    };
    let mut board = Board::recovering(config, Epoch::new(9));
    // During the recovery, the board does not know how many of these tasks it will have.
    assert_eq!(board.heartbeat(Time(0), &name("a"), &named(1)).abandon, []);
    for id in 0..20 {
        board.submit(Time(0), task(id)).unwrap();
    }
    board.finish_recovery();
    assert_eq!(leases(&board), [HELD]);
    assert_eq!(board.heartbeat(Time(1), &name("a"), &named(1)).abandon, named(1)[HELD..]);
    assert_eq!(board.heartbeat(Time(1), &name("a"), &named(2)).abandon, named(2));
    assert_eq!(board.heartbeat(Time(1), &name("b"), &named(3)[HELD..]).abandon, named(3)[2 * HELD..]);
    assert_eq!(leases(&board), [HELD, HELD]);
    assert_eq!(lease(&mut board, 2, "c", 20).len(), HELD);
    // An outcome that a worker finished under the earlier coordinator still counts.
    let LeaseId { task, attempt } = named(1)[19];
    let finished = Report { task, attempt, outcome: LeaseOutcome::Done("y".into()) };
    assert_eq!(board.report(Time(3), &name("a"), finished), Receipt::Accepted);
}

#[test]
fn the_kept_failures_of_a_task_are_bounded() {
    let mut board = board(1);
    for number in 0..100 {
        let report = Report {
            task: TaskId(0),
            attempt: Epoch::new(1 + number).attempt(1),
            outcome: LeaseOutcome::Failed(format!("{number} {}", "∀".repeat(100_000))),
        };
        assert_eq!(board.report(Time(1), &name(&format!("w{number}")), report), Receipt::Noted);
    }
    assert!(board.status(Time(1)).workers.iter().all(|w| w.last_error.as_ref().unwrap().len() <= 4096));
    for number in 0..3 {
        let worker = format!("good-{number}");
        let leased = lease(&mut board, 2, &worker, 1).remove(0);
        end(&mut board, 2, &worker, &leased, broken());
    }
    let TaskResult::Quarantined { failures } = board.next_finished().unwrap().result else {
        panic!("the task is not quarantined")
    };
    let numbers: Vec<&str> = failures.iter().map(|f| f.message.split(' ').next().unwrap()).collect();
    let expected: Vec<String> =
        (87..100).map(|n| n.to_string()).chain(["broken".into(), "broken".into(), "broken".into()]).collect();
    assert_eq!(numbers, expected);
    assert!(failures.iter().all(|f| f.message.len() <= 4096));
}

/// Outcomes of a malicious worker cannot fill the coordinator's memory.
#[test]
fn large_outcomes_fail_and_many_wait_for_the_consumer() {
    let config = BoardConfig { max_outcome_bytes: 10, max_held_bytes: 15, ..BoardConfig::default() };
    let mut board = Board::new(config);
    for id in 0..3 {
        let task = Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() };
        board.submit(Time(0), task).unwrap();
    }
    let leases = lease(&mut board, 0, "w", 3);
    let outcome = |bytes: usize| LeaseOutcome::Done("y".repeat(bytes).into());
    assert_eq!(end(&mut board, 1, "w", &leases[0], outcome(11)), Receipt::Noted);
    assert_eq!(board.counters().failed, 1);
    assert_eq!(end(&mut board, 1, "w", &leases[1], outcome(10)), Receipt::Accepted);
    assert_eq!(end(&mut board, 1, "w", &leases[2], outcome(10)), Receipt::Waiting);
    let first = board.next_finished().unwrap();
    assert_eq!(end(&mut board, 1, "w", &leases[2], outcome(10)), Receipt::Waiting, "it is not removed yet");
    assert!(board.remove(first.task));
    assert_eq!(end(&mut board, 1, "w", &leases[2], outcome(10)), Receipt::Accepted);
}
