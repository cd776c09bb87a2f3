//! The weak points of the task server that the paper's authors published, one test each. The number is that of the
//! list in `docs/cluster.md`; those that need processes, sockets or Slurm are tested in `launchers.rs`, `service.rs`
//! and `slurm.rs`, as that list says.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::time::Duration;

use sgs_fleet::{
    Attempt, Board, BoardConfig, Ending, Lease, LeaseId, Outcome, Receipt, Report, Speculation, Task, TaskId,
    TaskKind, Time, WorkerName,
};

const SECOND: u64 = 1000;

fn board() -> Board {
    let mut board = Board::new(BoardConfig::default());
    submit(&mut board, 0..10);
    board
}

fn submit(board: &mut Board, ids: std::ops::Range<u64>) {
    for id in ids {
        let task = Task {
            id: TaskId(id),
            kind: TaskKind::Verify,
            priority: 0,
            payload: format!("work {id}").into(),
        };
        board.submit(Time(0), task).unwrap();
    }
}

fn name(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

fn lease(board: &mut Board, at: u64, worker: &str, capacity: usize) -> Vec<Lease> {
    board.lease(Time(at), &name(worker), &TaskKind::Verify, capacity)
}

fn done(lease: &Lease) -> Report {
    let outcome = Outcome::Done(format!("done {}", lease.task).into());
    Report { task: lease.task, attempt: lease.attempt, outcome }
}

fn ids(leases: &[Lease]) -> Vec<u64> {
    leases.iter().map(|l| l.task.0).collect()
}

#[test]
fn fault_1_a_worker_that_never_speaks_again_loses_its_tasks_although_others_are_pending() {
    let mut board = board();
    assert_eq!(ids(&lease(&mut board, 0, "dead", 3)), [0, 1, 2]);
    assert_eq!(ids(&lease(&mut board, 59 * SECOND, "w", 1)), [3]);
    assert_eq!(ids(&lease(&mut board, 61 * SECOND, "w", 4)), [0, 1, 2, 4], "what came back goes first");
}

#[test]
fn fault_4_a_task_that_kills_is_put_away_and_its_neighbours_are_not() {
    let mut board = board();
    let mut now = 0;
    for round in 0..12 {
        // Workers of four slots; whoever holds task 5 dies of it.
        let worker = format!("w{round}");
        let leases = lease(&mut board, now, &worker, 4);
        if ids(&leases).contains(&5) {
            board.worker_died(Time(now), &name(&worker), "killed by signal 11");
        } else {
            for lease in &leases {
                board.report(Time(now), &name(&worker), done(lease));
            }
        }
        now += SECOND;
    }
    let mut endings = Vec::new();
    while let Some(finished) = board.next_finished(None) {
        if let Ending::Quarantined { failures } = &finished.ending {
            assert_eq!((finished.task.0, failures.len()), (5, 3));
            assert!(failures[2].message.contains("signal 11"));
        }
        endings.push(finished.task.0);
    }
    endings.sort_unstable();
    assert_eq!(endings, (0..10).collect::<Vec<_>>(), "the round goes on");
    assert_eq!(board.counters().quarantined, 1);
}

#[test]
fn fault_5_a_late_result_of_a_task_that_was_requeued_counts() {
    let mut board = board();
    let late = lease(&mut board, 0, "slow", 1).remove(0);
    board.expire(Time(100 * SECOND));
    assert_eq!(board.report(Time(101 * SECOND), &name("slow"), done(&late)), Receipt::Accepted);
    assert_eq!(board.counters().late, 1);
    assert!(!ids(&lease(&mut board, 102 * SECOND, "w", 10)).contains(&0), "and nobody does it again");
}

#[test]
fn fault_7_copies_are_few_and_losers_are_told() {
    let speculation = Some(Speculation { min_age: Duration::from_secs(30), max_per_request: 4 });
    let mut board =
        Board::new(BoardConfig { speculation, lease: Duration::from_secs(600), ..BoardConfig::default() });
    submit(&mut board, 0..10);
    let first = lease(&mut board, 0, "slow", 10);
    assert!(lease(&mut board, 29 * SECOND, "idle", 128).is_empty(), "what has just begun is not copied");
    let copies = lease(&mut board, 31 * SECOND, "idle", 128);
    assert_eq!(copies.len(), 4, "not a whole batch");
    let more: usize = (0..50).map(|n| lease(&mut board, 32 * SECOND, &format!("idle-{n}"), 128).len()).sum();
    assert_eq!(copies.len() + more, 10, "one copy of each, whoever asks");
    assert_eq!(board.counters().copies, 10, "and they are counted");
    board.report(Time(33 * SECOND), &name("idle"), done(&copies[0]));
    let held: Vec<LeaseId> = first.iter().map(Lease::id).collect();
    let pulse = board.heartbeat(Time(34 * SECOND), &name("slow"), &held);
    assert_eq!(pulse.abandon, [LeaseId { task: copies[0].task, attempt: Attempt(1) }]);
}

/// Nanoseconds per copy and per finished task with so many tasks in progress.
/// Time that this thread has had a processor for: what else runs on the machine does not count.
fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn cost(running: u64) -> (f64, f64) {
    let config = BoardConfig {
        lease: Duration::from_secs(600),
        max_leases_per_worker: usize::MAX,
        ..BoardConfig::default()
    };
    let mut board = Board::without_records(config);
    submit(&mut board, 0..running);
    let leases = lease(&mut board, 0, "slow", running as usize);
    let begun = worked();
    let mut copies = 0;
    while copies < 4000 {
        copies += lease(&mut board, 60 * SECOND, "idle", 4).len();
    }
    let per_copy = (worked() - begun).as_nanos() as f64 / copies as f64;
    let begun = worked();
    for lease in &leases[leases.len() - 4000..] {
        board.report(Time(61 * SECOND), &name("slow"), done(lease));
        board.next_finished(None).expect("it has just ended");
    }
    (per_copy, (worked() - begun).as_nanos() as f64 / 4000.0)
}

#[test]
fn fault_8_no_call_looks_at_all_tasks() {
    // A linear scan would cost a hundred times as much; noise of a busy machine does not.
    let best = |running| {
        (0..3).map(|_| cost(running)).fold((f64::MAX, f64::MAX), |a, b| (a.0.min(b.0), a.1.min(b.1)))
    };
    let (small, large) = (best(5_000), best(500_000));
    assert!(
        large.0 < 20.0 * small.0,
        "copies: {} ns with 5,000 running, {} ns with 500,000",
        small.0,
        large.0
    );
    assert!(
        large.1 < 20.0 * small.1,
        "results: {} ns with 5,000 running, {} ns with 500,000",
        small.1,
        large.1
    );
}

#[test]
fn fault_9_a_heartbeat_names_what_is_in_hand_and_nothing_else() {
    let mut board = board();
    let mut sizes = Vec::new();
    for _ in 0..10 {
        let lease = lease(&mut board, 0, "w", 1).remove(0);
        let call = sgs_fleet::wire::HeartbeatRequest { worker: name("w"), tasks: vec![lease.id()] };
        sizes.push(serde_json::to_vec(&call).unwrap().len());
        board.report(Time(0), &name("w"), done(&lease));
    }
    assert!(
        sizes.iter().all(|size| *size == sizes[0]),
        "a report of life grows with what was done: {sizes:?}"
    );
}

#[test]
fn fault_10_a_result_is_taken_from_who_has_the_lease_and_nobody_else() {
    let mut board = board();
    let mine = lease(&mut board, 0, "w", 1).remove(0);
    lease(&mut board, 0, "thief", 1);
    assert_eq!(board.report(Time(1), &name("thief"), done(&mine)), Receipt::Refused);
    assert_eq!(board.report(Time(1), &name("stranger"), done(&mine)), Receipt::Refused);
    let never = Lease { attempt: Attempt(2), ..mine.clone() };
    assert_eq!(board.report(Time(1), &name("w"), done(&never)), Receipt::Refused);
    assert_eq!(board.report(Time(1), &name("w"), done(&mine)), Receipt::Accepted);
}

#[test]
fn fault_13_what_is_done_is_counted_once() {
    let mut board = board();
    for lease in lease(&mut board, 0, "w", 10) {
        for _ in 0..3 {
            board.report(Time(1), &name("w"), done(&lease));
        }
    }
    let status = board.status(Time(2));
    assert_eq!((status.counters.done, status.counters.duplicates, status.workers[0].done), (10, 20, 10));
}

#[test]
fn fault_16_a_slot_is_filled_as_soon_as_it_is_free() {
    let mut board = board();
    let first = lease(&mut board, 0, "gpu", 4);
    // The longest of the batch goes on; the others' places are taken by new tasks.
    for short in &first[..3] {
        board.report(Time(SECOND), &name("gpu"), done(short));
    }
    assert_eq!(ids(&lease(&mut board, SECOND, "gpu", 3)), [4, 5, 6]);
    assert_eq!(board.status(Time(SECOND)).workers[0].leases, 4);
}

#[test]
fn fault_17_an_outcome_belongs_to_its_own_task_whatever_the_order() {
    let mut board = board();
    let mut leases = lease(&mut board, 0, "w", 10);
    leases.sort_by_key(|l| (l.task.0 * 7) % 10);
    for lease in &leases {
        board.report(Time(1), &name("w"), done(lease));
    }
    let mut order = Vec::new();
    while let Some(finished) = board.next_finished(None) {
        let Ending::Done { outcome, .. } = &finished.ending else { panic!("not done") };
        assert_eq!(outcome.as_bytes(), format!("done {}", finished.task).as_bytes());
        order.push(finished.task);
    }
    assert_eq!(order, leases.iter().map(|l| l.task).collect::<Vec<_>>(), "in order of ending");
}
