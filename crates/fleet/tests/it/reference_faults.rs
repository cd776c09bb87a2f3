//! One test per fault of the task server published with the paper. The numbers refer to the table in `docs/cluster.md`,
//! which also lists the tests in `launchers.rs`, `service.rs` and `slurm.rs`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sgs_fleet::launch::{JobState, WorkerJob};
use sgs_fleet::{
    AttemptId, Board, BoardConfig, CallError, Coordinator, Fleet, Grant, HeartbeatAck, LaunchError, Launcher,
    Lease, LeaseId, LeaseOutcome, LocalLauncher, Receipt, Report, SlurmConfig, SlurmLauncher, Speculation,
    StopFlag, Task, TaskId, TaskResult, Time, WorkKind, WorkerConfig, WorkerExit, WorkerName, WorkerSession,
    WorkerSummary,
};

const VERIFY: WorkKind = WorkKind::of("verify");

const SECOND: u64 = 1000;

fn board() -> Board {
    let mut board = Board::new(BoardConfig::default());
    submit(&mut board, 0..10);
    board
}

fn submit(board: &mut Board, ids: std::ops::Range<u64>) {
    for id in ids {
        let task = Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: format!("work {id}").into() };
        board.submit(Time(0), task).unwrap();
    }
}

fn name(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

fn lease(board: &mut Board, at: u64, worker: &str, capacity: usize) -> Vec<Lease> {
    board.lease(Time(at), &name(worker), &VERIFY, capacity)
}

fn done(lease: &Lease) -> Report {
    let outcome = LeaseOutcome::Done(format!("done {}", lease.task).into());
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
    assert_eq!(ids(&lease(&mut board, 61 * SECOND, "w", 4)), [0, 1, 2, 4], "returned tasks go first");
}

#[test]
fn fault_4_a_task_that_kills_is_put_away_and_its_neighbours_are_not() {
    let mut board = board();
    let mut now = 0;
    for round in 0..12 {
        // The workers have four slots. Task 5 kills its worker.
        let worker = format!("w{round}");
        let leases = lease(&mut board, now, &worker, 4);
        if ids(&leases).contains(&5) {
            board.worker_ended(Time(now), &name(&worker), WorkerExit::Crashed, "killed by signal 11");
        } else {
            for lease in &leases {
                board.report(Time(now), &name(&worker), done(lease));
            }
        }
        now += SECOND;
    }
    let mut endings = Vec::new();
    while let Some(finished) = board.next_finished() {
        if let TaskResult::Quarantined { failures } = &finished.result {
            assert_eq!((finished.task.0, failures.len()), (5, 3));
            assert!(failures[2].message.contains("signal 11"));
        }
        endings.push(finished.task.0);
    }
    endings.sort_unstable();
    assert_eq!(endings, (0..10).collect::<Vec<_>>(), "all other tasks end");
    assert_eq!(board.counters().quarantined, 1);
}

#[test]
fn fault_4_a_task_that_nobody_ends_is_put_away_although_nobody_dies() {
    let mut board = Board::new(BoardConfig { max_leases: 5, ..BoardConfig::default() });
    submit(&mut board, 0..1);
    for turn in 0..5 {
        let lease = lease(&mut board, turn, &format!("w{turn}"), 1).remove(0);
        assert!(board.next_finished().is_none(), "quarantined after {turn} leases");
        let report = Report { task: lease.task, attempt: lease.attempt, outcome: LeaseOutcome::Returned };
        assert_eq!(board.report(Time(turn), &name(&format!("w{turn}")), report), Receipt::Noted);
    }
    assert!(lease(&mut board, 9, "w9", 1).is_empty());
    let result = board.next_finished().unwrap().result;
    assert!(matches!(result, TaskResult::Quarantined { .. }), "{result:?}");
}

#[test]
fn fault_5_a_late_result_of_a_task_that_was_requeued_counts() {
    let mut board = board();
    let late = lease(&mut board, 0, "slow", 1).remove(0);
    board.expire(Time(100 * SECOND));
    assert_eq!(board.report(Time(101 * SECOND), &name("slow"), done(&late)), Receipt::Accepted);
    assert_eq!(board.counters().late, 1);
    assert!(!ids(&lease(&mut board, 102 * SECOND, "w", 10)).contains(&0), "and it is not leased again");
}

#[test]
fn fault_7_copies_are_few_and_losers_are_told() {
    let speculation = Some(Speculation { min_age: Duration::from_secs(30), max_per_request: 4 });
    let mut board =
        Board::new(BoardConfig { speculation, lease: Duration::from_secs(600), ..BoardConfig::default() });
    submit(&mut board, 0..10);
    let first = lease(&mut board, 0, "slow", 10);
    assert!(
        lease(&mut board, 29 * SECOND, "idle", 128).is_empty(),
        "a task that has just started is not copied"
    );
    let copies = lease(&mut board, 31 * SECOND, "idle", 128);
    assert_eq!(copies.len(), 4, "not a whole batch");
    let more: usize = (0..50).map(|n| lease(&mut board, 32 * SECOND, &format!("idle-{n}"), 128).len()).sum();
    assert_eq!(copies.len() + more, 10, "one copy of each task in all");
    assert_eq!(board.counters().copies, 10, "copies are counted");
    board.report(Time(33 * SECOND), &name("idle"), done(&copies[0]));
    let held: Vec<LeaseId> = first.iter().map(Lease::id).collect();
    let pulse = board.heartbeat(Time(34 * SECOND), &name("slow"), &held);
    assert_eq!(pulse.abandon, [LeaseId { task: copies[0].task, attempt: AttemptId(1) }]);
}

/// Returns the CPU time of this thread, which excludes other processes.
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
    let mut board = Board::new(config);
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
        board.next_finished().expect("it has just ended");
    }
    (per_copy, (worked() - begun).as_nanos() as f64 / 4000.0)
}

#[test]
fn fault_8_no_call_looks_at_all_tasks() {
    // A linear scan would cost fifty times as much, far more than measurement noise.
    let best = |running| {
        (0..3).map(|_| cost(running)).fold((f64::MAX, f64::MAX), |a, b| (a.0.min(b.0), a.1.min(b.1)))
    };
    let (small, large) = (best(5_000), best(250_000));
    assert!(
        large.0 < 20.0 * small.0,
        "copies: {} ns with 5,000 running, {} ns with 250,000",
        small.0,
        large.0
    );
    assert!(
        large.1 < 20.0 * small.1,
        "results: {} ns with 5,000 running, {} ns with 250,000",
        small.1,
        large.1
    );
}

/// An in-process coordinator that records how many leases each heartbeat names.
struct Noting {
    fleet: Fleet,
    named: Mutex<Vec<usize>>,
}

impl Coordinator for Noting {
    fn lease(
        &self,
        w: &WorkerName,
        kind: &WorkKind,
        capacity: usize,
        wait: Duration,
    ) -> Result<Grant, CallError> {
        self.fleet.lease(w, kind, capacity, wait)
    }

    fn heartbeat(&self, worker: &WorkerName, held: &[LeaseId]) -> Result<HeartbeatAck, CallError> {
        self.named.lock().unwrap().push(held.len());
        self.fleet.heartbeat(worker, held)
    }

    fn report(&self, worker: &WorkerName, reports: Vec<Report>) -> Result<Vec<Receipt>, CallError> {
        self.fleet.report(worker, reports)
    }
}

#[test]
fn fault_9_a_heartbeat_names_what_is_in_hand_and_nothing_else() {
    let config = BoardConfig { lease: Duration::from_secs(2), ..BoardConfig::default() };
    let noting = Arc::new(Noting { fleet: Fleet::in_memory(config), named: Mutex::default() });
    let task = |id| Task { id: TaskId(id), kind: VERIFY, priority: 0, payload: "x".into() };
    noting.fleet.submit((0..300).map(task)).unwrap();
    let mut worker = WorkerConfig::new(name("w"), VERIFY);
    worker.linger = Duration::ZERO;
    let session =
        WorkerSession::start(Arc::clone(&noting) as Arc<dyn Coordinator>, worker, StopFlag::default())
            .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut done = 0;
    // Hold two leases at a time, until hundreds of tasks are done and several heartbeats have been sent.
    while done < 300 || noting.named.lock().unwrap().len() < 4 {
        assert!(Instant::now() < deadline, "{done} done");
        let leases = session.lease(2, Duration::from_millis(50)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        for (lease, _) in leases {
            session.finish(lease.id(), LeaseOutcome::Done("y".into()));
            done += 1;
        }
        let id = 1000 + done;
        noting.fleet.submit([task(id)]).unwrap();
        // Unsent reports count as held.
        let answered = |s: WorkerSummary| s.accepted + s.duplicates + s.noted;
        while answered(session.summary()) < done && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let named = noting.named.lock().unwrap().clone();
    assert!(named.iter().all(|n| *n <= 2), "heartbeats grow with the number of finished tasks: {named:?}");
    session.close().unwrap();
}

#[test]
fn fault_10_a_result_is_taken_from_who_has_the_lease_and_nobody_else() {
    let mut board = board();
    let mine = lease(&mut board, 0, "w", 1).remove(0);
    lease(&mut board, 0, "thief", 1);
    assert_eq!(board.report(Time(1), &name("thief"), done(&mine)), Receipt::Refused);
    assert_eq!(board.report(Time(1), &name("stranger"), done(&mine)), Receipt::Refused);
    let never = Lease { attempt: AttemptId(2), ..mine.clone() };
    assert_eq!(board.report(Time(1), &name("w"), done(&never)), Receipt::Refused);
    assert_eq!(board.report(Time(1), &name("w"), done(&mine)), Receipt::Accepted);
}

/// Creates a launcher of shell commands.
fn shell(lines: &str, logs: &Path) -> LocalLauncher {
    LocalLauncher::new(["sh", "-c", lines].map(str::to_owned).to_vec(), "w", logs).unwrap()
}

/// Waits until all workers have exited cleanly, and returns their logs.
fn say(launcher: &mut LocalLauncher, jobs: &[WorkerJob]) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut open = jobs.to_vec();
    while !open.is_empty() {
        assert!(Instant::now() < deadline, "{} workers hang", open.len());
        let states = launcher.poll(&open).unwrap();
        let mut states = states.into_iter();
        open.retain(|job| match states.next() {
            Some(JobState::Ended { end, how }) => {
                assert!(end == WorkerExit::Well, "{}: {how}: {}", job.worker, launcher.last_lines(job, 20));
                false
            }
            _ => true,
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    jobs.iter().map(|job| launcher.last_lines(job, 20)).collect()
}

/// A process forked while other threads hold locks (of the allocator, of standard output) inherits the locked locks and
/// all open sockets. Launched workers do not, because they are started with exec.
#[test]
fn fault_11_a_worker_inherits_no_thread_no_lock_and_no_socket_of_a_busy_parent() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stop = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _out = std::io::stdout().lock();
                    std::hint::black_box(vec![0u8; 4096]);
                }
            });
        }
        let lines = "echo program $(readlink /proc/$$/exe); echo threads $(ls /proc/$$/task | wc -l); \
                     for f in /proc/$$/fd/*; do echo open $(readlink $f); done";
        let mut launcher = shell(lines, folder.path());
        let jobs = launcher.launch(20).unwrap();
        let said = say(&mut launcher, &jobs);
        stop.store(true, Ordering::Relaxed);
        said
    });
    drop(listener);
    let own = std::env::current_exe().unwrap().display().to_string();
    for text in said {
        let program = text.lines().find_map(|line| line.strip_prefix("program ")).unwrap();
        assert_ne!(program, own, "{text}");
        assert!(text.contains("threads 1\n"), "{text}");
        assert!(text.contains("open /dev/null") && !text.contains("socket:"), "{text}");
    }
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
fn fault_15_a_folder_that_is_not_there_is_made_and_one_that_cannot_be_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("not/there/yet");
    let mut launcher = shell("echo {worker} was here", &logs);
    let jobs = launcher.launch(1).unwrap();
    assert!(say(&mut launcher, &jobs)[0].ends_with("\nw-0 was here"));
    assert!(logs.join("w-0.log").is_file());
    std::fs::remove_dir_all(folder.path().join("not")).unwrap();
    let jobs = launcher.launch(1).unwrap();
    assert!(
        say(&mut launcher, &jobs)[0].ends_with("\nw-1 was here"),
        "the folder was deleted in the meantime"
    );
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refusals = [
        LocalLauncher::new(vec!["true".into()], "w", &file.join("logs")).map(|_| ()),
        SlurmLauncher::new(SlurmConfig::new(vec!["true".into()], "w", &file.join("logs"))).map(|_| ()),
    ];
    for refusal in refusals {
        let Err(LaunchError::Refused(message)) = refusal else { panic!("{refusal:?}") };
        assert!(message.contains(&file.display().to_string()), "{message}");
    }
    let slurm = folder.path().join("slurm/logs");
    let launcher = SlurmLauncher::new(SlurmConfig::new(vec!["true".into()], "w", &slurm)).unwrap();
    assert!(slurm.is_dir());
    // A job may start in any folder of its node, so paths must be absolute.
    let output = format!("#SBATCH --output={}/", std::fs::canonicalize(&slurm).unwrap().display());
    assert!(launcher.script(1).unwrap().contains(&output));
}

#[test]
fn fault_16_a_slot_is_filled_as_soon_as_it_is_free() {
    let mut board = board();
    let first = lease(&mut board, 0, "gpu", 4);
    // The longest task continues, and new tasks take the free slots.
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
    while let Some(finished) = board.next_finished() {
        let TaskResult::Done { outcome, .. } = &finished.result else { panic!("not done") };
        assert_eq!(outcome.as_bytes(), format!("done {}", finished.task).as_bytes());
        order.push(finished.task);
    }
    assert_eq!(order, leases.iter().map(|l| l.task).collect::<Vec<_>>(), "in the order in which they ended");
}
