//! Tests the protocols under faults: a scripted REPL that crashes, hangs, floods and lies, and the reaction of the
//! pool.

use crate::scripted;
use sgs_lean::check::{
    Backend, Candidate, CheckOutcome, CheckerConfig, FileChecker, JudgeProgram, Launch, Limits, NO_REPLAY,
    Pool, Probe, Recycling, ReplChecker, TrustLayers,
};
use sgs_lean::read::Proof;
use sgs_selfplay::Verdict;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn launch(folder: &Path, args: &[&str]) -> Launch {
    Launch {
        program: scripted::repl(),
        args: args.iter().map(Into::into).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        folder: folder.to_owned(),
        cgroup: None,
    }
}

/// Returns generous time limits for a busy machine. Only a hanging process reaches them.
fn limits() -> Limits {
    Limits { proof_ms: 30_000, start_ms: 60_000, memory: 256 << 20, output: 1 << 20 }
}

/// Returns short time limits for processes that hang or are late.
fn brief() -> Limits {
    Limits { proof_ms: 2000, ..limits() }
}

fn repl(folder: &Path) -> ReplChecker {
    ReplChecker {
        launch: launch(folder, &[]),
        options: vec![("autoImplicit".into(), "false".into())],
        probe: Probe::Axioms,
        limits: limits(),
        recycling: Recycling { uses: 20, ..Recycling::default() },
    }
}

fn candidate(body: &str) -> Arc<Candidate> {
    under("", body)
}

/// Returns a candidate with these commands in its header.
fn under(commands: &str, body: &str) -> Arc<Candidate> {
    Arc::new(Candidate {
        header: format!("import Mathlib\n{commands}").into(),
        statement: "theorem t (n : ℕ) : n = n := by".into(),
        proof: Proof::new(format!("\n  {body}")),
    })
}

fn one(body: &str, limits: Limits) -> (CheckOutcome, CheckOutcome) {
    let folder = tempfile::tempdir().unwrap();
    let checker = ReplChecker { limits, ..repl(folder.path()) };
    let pool = Pool::new(&CheckerConfig::Repl(checker), 1).unwrap();
    let outcome = pool.check(candidate(body));
    // The slot must serve the next proof, regardless of the result.
    (outcome, pool.check(candidate("rfl")))
}

fn expect(body: &str, verdict: Verdict, reason: &str) {
    expect_within(limits(), body, verdict, reason);
}

fn expect_within(limits: Limits, body: &str, verdict: Verdict, reason: &str) {
    let (outcome, after) = one(body, limits);
    assert_eq!(outcome.verdict, verdict, "{body}: {}", outcome.reason);
    assert!(outcome.reason.contains(reason), "{body}: {}", outcome.reason);
    assert_eq!(after.verdict, Verdict::Proved, "after {body}: {}", after.reason);
}

#[test]
fn the_time_of_a_check_excludes_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Pool::new(&CheckerConfig::Repl(repl(folder.path())), 1).unwrap();
    pool.check(candidate("rfl"));
    let begun = Instant::now();
    let times: Vec<Duration> = std::thread::scope(|scope| {
        let check = || pool.check_timed(candidate("exact scripted_sleep_200")).1;
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(check)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(times.iter().all(|time| *time >= Duration::from_millis(200)), "{times:?}");
    assert!(times.iter().sum::<Duration>() <= begun.elapsed(), "{times:?}");
}

#[test]
fn honest_replies_are_verdicts() {
    expect("rfl", Verdict::Proved, "");
    expect("exact scripted_wrong", Verdict::Refused, "unsolved goals");
    expect("exact scripted_axiom", Verdict::Refused, "axioms layer: cheat");
    expect("exact scripted_split", Verdict::Proved, "");
    expect("exact scripted_flood_stderr", Verdict::Proved, "");
}

#[test]
fn a_process_that_dies_is_replaced_and_the_proof_retried() {
    expect("exact scripted_crash_once", Verdict::Proved, "");
    expect("exact scripted_crash", Verdict::Resource, "died twice");
    // Lean exits when it runs out of memory, so this is also the proof's fault.
    expect("exact scripted_exit", Verdict::Resource, "died twice");
}

#[test]
fn processes_over_their_limits_are_killed() {
    expect_within(brief(), "exact scripted_hang", Verdict::Resource, "no answer within 2s");
    expect_within(brief(), "exact scripted_late", Verdict::Resource, "no answer within 2s");
    expect("exact scripted_memory", Verdict::Resource, "bytes resident");
    expect("exact scripted_flood_stdout", Verdict::Resource, "bytes of output");
}

#[test]
fn wrong_replies_give_no_verdict() {
    expect("exact scripted_torn", Verdict::Infra, "not JSON");
    expect("exact scripted_wrong_id", Verdict::Infra, "instead of 2");
    // The candidate suppresses the answer twice, in two processes.
    expect("exact scripted_silent", Verdict::Refused, "without an answer");
    expect("exact scripted_refuse", Verdict::Infra, "refused the request");
    expect("exact scripted_forge", Verdict::Refused, "without an answer");
    // The first answer is correct. The second must not be taken for that of the next proof.
    expect("exact scripted_twice", Verdict::Proved, "");
}

#[test]
fn the_whole_process_group_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().to_string_lossy().into_owned();
    let checker = ReplChecker { limits: brief(), ..repl(folder.path()) };
    let pool = Pool::new(&CheckerConfig::Repl(checker), 1).unwrap();
    assert_eq!(pool.check(candidate("exact scripted_grandchild")).verdict, Verdict::Resource);
    assert_eq!(left_in(&mark), Vec::<String>::new(), "neither the REPL nor its child is left");
    assert_eq!(pool.check(candidate("rfl")).verdict, Verdict::Proved);
    drop(pool);
    assert_eq!(left_in(&mark), Vec::<String>::new(), "a dropped pool leaves nothing");
}

/// Returns the remaining processes. The kernel may take a while to remove a killed grandchild.
fn left_in(folder: &str) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let left = processes_in(folder);
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the command lines of processes whose working directory is below `folder`, including zombies.
fn processes_in(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let cwd = |e: &std::fs::DirEntry| std::fs::read_link(e.path().join("cwd")).ok();
    entries
        .filter(|e| cwd(e).is_some_and(|c| c.to_string_lossy().starts_with(folder)))
        .map(|e| std::fs::read_to_string(e.path().join("cmdline")).unwrap_or_default())
        .collect()
}

fn zombies() -> usize {
    let own = std::process::id().to_string();
    let stat = |e: std::fs::DirEntry| std::fs::read_to_string(e.path().join("stat")).ok();
    let is_ours = |text: &String| {
        let rest: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        rest.first() == Some(&"Z") && rest.get(1) == Some(&own.as_str())
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(stat).filter(is_ours).count()
}

#[test]
fn workers_are_recycled_by_uses_age_and_growth() {
    let folder = tempfile::tempdir().unwrap();
    let mut checker = repl(folder.path());
    checker.recycling = Recycling { uses: 3, ..Recycling::default() };
    let mut worker = checker.worker();
    let check = |worker: &mut sgs_lean::check::ReplWorker, body: &str| {
        worker.check(&[&candidate(body)]).pop().unwrap().verdict
    };
    for _ in 0..7 {
        assert_eq!(check(&mut worker, "rfl"), Verdict::Proved);
    }
    assert_eq!(worker.starts(), 3, "after 3 and 6 uses");
    checker.recycling = Recycling { growth: 50 << 20, ..Recycling::default() };
    let mut worker = checker.worker();
    assert_eq!(check(&mut worker, "exact scripted_grow"), Verdict::Proved);
    assert_eq!(check(&mut worker, "rfl"), Verdict::Proved);
    assert_eq!(worker.starts(), 2, "96 MiB more than at its start");
    checker.recycling = Recycling { age_ms: 1, ..Recycling::default() };
    let mut worker = checker.worker();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(check(&mut worker, "rfl"), Verdict::Proved);
    }
    assert_eq!(worker.starts(), 2, "by age");
}

#[test]
fn faults_do_not_affect_other_slots() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { proof_ms: 5000, ..limits() };
    let checker = ReplChecker { limits, ..repl(folder.path()) };
    let pool = Arc::new(Pool::new(&CheckerConfig::Repl(checker), 8).unwrap());
    let faults = ["hang", "crash", "forge", "torn", "flood_stdout", "twice", "silent", "memory"];
    let outcomes: Vec<(usize, CheckOutcome)> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..64)
            .map(|i| {
                let pool = Arc::clone(&pool);
                let body = if i % 4 == 0 {
                    format!("exact scripted_{}", faults[(i / 4) % faults.len()])
                } else {
                    "rfl".into()
                };
                scope.spawn(move || (i, pool.check(candidate(&body))))
            })
            .collect();
        calls.into_iter().map(|c| c.join().unwrap()).collect()
    });
    for (i, outcome) in outcomes {
        if i % 4 != 0 {
            assert_eq!(outcome.verdict, Verdict::Proved, "{i}: {}", outcome.reason);
        } else if faults[(i / 4) % faults.len()] != "twice" {
            assert_ne!(outcome.verdict, Verdict::Proved, "{i}: {outcome:?}");
        }
    }
    let status = pool.status();
    assert_eq!((status.waiting, status.running, status.judged), (0, 0, 64));
    assert_eq!(zombies(), 0);
}

#[test]
fn a_checker_that_cannot_start_gives_infra_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut checker = repl(folder.path());
    checker.launch.program = "/nonexistent/repl".into();
    let pool = Pool::new(&CheckerConfig::Repl(checker), 2).unwrap();
    let outcome = pool.check(candidate("rfl"));
    assert_eq!(outcome.verdict, Verdict::Infra);
    assert!(outcome.reason.contains("/nonexistent/repl"), "{}", outcome.reason);
}

#[test]
fn a_header_is_accepted_only_if_its_modules_are_present() {
    let folder = tempfile::tempdir().unwrap();
    let under = |header: &str| {
        let one = Arc::new(Candidate { header: header.into(), ..(*candidate("rfl")).clone() });
        let repl = Pool::new(&CheckerConfig::Repl(repl(folder.path())), 1).unwrap().check(Arc::clone(&one));
        let file = file_pool(folder.path(), 4).check(one);
        (repl, file)
    };
    let (repl, file) = under("import Mathlib\nopen Real");
    assert_eq!((repl.verdict, file.verdict), (Verdict::Proved, Verdict::Proved), "{}", repl.reason);
    // The REPL does not report a failed import, and continues without it.
    let (repl, file) = under("import Missing\nopen Real");
    assert_eq!((repl.verdict, file.verdict), (Verdict::Infra, Verdict::Infra));
    assert!(
        repl.reason.contains("header cannot be used") && repl.reason.contains("unknown identifier"),
        "{}",
        repl.reason
    );
    assert!(file.reason.contains("unknown module prefix"), "{}", file.reason);
    let (repl, _) = under("import Mathlib\nimport Unlisted\n");
    assert_eq!(repl.verdict, Verdict::Infra);
    assert!(repl.reason.contains("`Unlisted` is not imported"), "{}", repl.reason);
    let (_, file) = under("import Mathlib -- scripted_header_crash\nopen Real");
    assert_eq!(file.verdict, Verdict::Infra, "no candidate's fault: {}", file.reason);
}

fn files(folder: &Path) -> FileChecker {
    FileChecker {
        judge: JudgeProgram::Built(launch(folder, &[])),
        replay: false,
        scratch: folder.to_owned(),
        options: Vec::new(),
        layers: TrustLayers::ALL,
        limits: limits(),
        batch: 16,
        linger_ms: 50,
        keep_alive: false,
    }
}

fn file_pool(folder: &Path, batch: usize) -> Pool {
    Pool::new(&CheckerConfig::File(FileChecker { batch, ..files(folder) }), 1).unwrap()
}

fn all(pool: &Pool, bodies: &[&str]) -> Vec<CheckOutcome> {
    std::thread::scope(|scope| {
        let calls: Vec<_> = bodies.iter().map(|body| scope.spawn(|| pool.check(candidate(body)))).collect();
        calls.into_iter().map(|c| c.join().unwrap()).collect()
    })
}

#[test]
fn several_theorems_in_one_file_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let pool = file_pool(folder.path(), 16);
    let mut bodies = vec!["rfl"; 12];
    bodies[5] = "exact scripted_wrong";
    let outcomes = all(&pool, &bodies);
    for (i, outcome) in outcomes.iter().enumerate() {
        assert_eq!(
            outcome.verdict,
            if i == 5 { Verdict::Refused } else { Verdict::Proved },
            "{i}: {}",
            outcome.reason
        );
    }
}

#[test]
fn a_theorem_that_breaks_a_file_is_isolated() {
    for (fault, verdict) in [
        ("hang", Verdict::Resource),
        ("crash", Verdict::Resource),
        ("crash_once", Verdict::Proved),
        // An exit without an answer is a failure, whatever the exit code.
        ("exit", Verdict::Resource),
        ("memory", Verdict::Resource),
        ("noise", Verdict::Resource),
        ("forge", Verdict::Resource),
        ("flood_stdout", Verdict::Resource),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let limits = if fault == "hang" { brief() } else { limits() };
        let checker = FileChecker { limits, ..files(folder.path()) };
        let pool = Pool::new(&CheckerConfig::File(checker), 1).unwrap();
        let broken = format!("exact scripted_{fault}");
        let bodies = ["rfl", "rfl", &broken, "rfl", "exact scripted_wrong"];
        let outcomes = all(&pool, &bodies);
        let verdicts: Vec<Verdict> = outcomes.iter().map(|o| o.verdict).collect();
        let p = Verdict::Proved;
        assert_eq!(verdicts, [p, p, verdict, p, Verdict::Refused], "{fault}: {outcomes:?}");
        assert_eq!(zombies(), 0);
    }
}

/// Judges ten candidates that end or block their process, together with five correct ones.
#[test]
fn ten_bombs_do_not_affect_five_correct_proofs() {
    let folder = tempfile::tempdir().unwrap();
    let checker = FileChecker { limits: brief(), ..files(folder.path()) };
    let pool = Pool::new(&CheckerConfig::File(checker), 1).unwrap();
    let bombs = ["hang", "crash", "exit", "memory", "flood_stdout"].repeat(2);
    let bombs: Vec<String> = bombs.iter().map(|fault| format!("exact scripted_{fault}")).collect();
    let bodies: Vec<&str> =
        bombs.chunks(2).flat_map(|two| [two[0].as_str(), "rfl", two[1].as_str()]).collect();
    let started = Instant::now();
    for (body, outcome) in bodies.iter().zip(all(&pool, &bodies)) {
        let expected = if *body == "rfl" { Verdict::Proved } else { Verdict::Resource };
        assert_eq!(outcome.verdict, expected, "{body}: {}", outcome.reason);
    }
    // Two of them use up their time limit of two seconds. The others end at once, each in two processes.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!(zombies(), 0);
}

#[test]
fn replies_before_a_protocol_violation_are_discarded() {
    let folder = tempfile::tempdir().unwrap();
    let outcomes = all(&file_pool(folder.path(), 16), &["rfl", "exact scripted_taint", "rfl", "rfl"]);
    let verdicts: Vec<Verdict> = outcomes.iter().map(|o| o.verdict).collect();
    let p = Verdict::Proved;
    assert_eq!(verdicts, [p, Verdict::Refused, p, p], "{outcomes:?}");
}

#[test]
fn a_replay_overrides_the_first_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let checker = FileChecker { replay: true, ..files(folder.path()) };
    let pool = Pool::new(&CheckerConfig::File(checker), 1).unwrap();
    let bodies = [
        "rfl",
        "exact scripted_replay_axiom",
        "exact scripted_replay_denied",
        "exact scripted_replay_crash",
        "exact scripted_wrong",
        "exact scripted_axiom",
        "exact rfl",
    ];
    let outcomes = all(&pool, &bodies);
    let said: Vec<(Verdict, &str)> = outcomes.iter().map(|o| (o.verdict, o.reason.as_str())).collect();
    assert_eq!(said[0], (Verdict::Proved, ""));
    assert_eq!(said[1], (Verdict::Refused, "replay layer: axioms layer: cheat"));
    assert_eq!(said[2], (Verdict::Refused, "replay layer: kernel layer: the kernel refuses `t`"));
    assert!(said[3].0 == Verdict::Resource && said[3].1.contains("died twice"), "{:?}", said[3]);
    assert_eq!(said[4], (Verdict::Refused, "unsolved goals"));
    assert_eq!(said[5], (Verdict::Refused, "axioms layer: cheat"));
    assert_eq!(said[6], (Verdict::Proved, ""));
    let without = all(&file_pool(folder.path(), 16), &["rfl"]);
    assert_eq!(without[0].reason, NO_REPLAY, "a layer that is missing is named");
}

#[test]
fn a_process_is_kept_until_a_candidate_is_odd_or_the_replay_rejects_it() {
    let folder = tempfile::tempdir().unwrap();
    let judge = JudgeProgram::Built(launch(folder.path(), &["stays"]));
    let checker = FileChecker { judge, replay: true, keep_alive: true, ..files(folder.path()) };
    let pool = Pool::new(&CheckerConfig::File(checker), 1).unwrap();
    // The reason names the process.
    let process = || pool.check(candidate("exact scripted_process")).reason;
    for (header, body, verdict, is_kept) in [
        ("", "rfl", Verdict::Proved, true),
        ("", "exact scripted_wrong", Verdict::Refused, true),
        ("", "exact scripted_axiom", Verdict::Refused, false),
        ("", "exact scripted_tactic", Verdict::Refused, false),
        ("", "exact scripted_replay_denied", Verdict::Refused, false),
        ("", "exact scripted_replay_axiom", Verdict::Refused, false),
        ("", "exact scripted_replay_crash", Verdict::Resource, false),
        ("axiom foo : False", "rfl", Verdict::Refused, false),
    ] {
        let before = process();
        assert!(before.contains("process "), "{before}");
        let outcome = pool.check(under(header, body));
        assert_eq!(outcome.verdict, verdict, "{header} {body}: {outcome:?}");
        assert_eq!(process() == before, is_kept, "{header} {body}");
    }
}

#[test]
fn the_candidates_after_an_odd_one_have_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = ["process", "axiom", "process", "process"];
    let candidates = bodies.map(|body| candidate(&format!("exact scripted_{body}")));
    let mut worker = files(folder.path()).worker(0).unwrap();
    let outcomes = worker.check(&candidates.each_ref().map(|one| &**one));
    let reasons: Vec<&str> = outcomes.iter().map(|outcome| outcome.reason.as_str()).collect();
    assert!(reasons[0].starts_with("process "), "{reasons:?}");
    assert_eq!(reasons[1], "axioms layer: cheat");
    assert!(reasons[2].starts_with("process ") && reasons[2] != reasons[0], "{reasons:?}");
    assert_eq!(reasons[2], reasons[3]);
}

/// The result of a soak test.
#[derive(Debug, Default)]
struct Soak {
    expected: u64,
    unexpected: Vec<String>,
    judged: u64,
}

/// Keeps all slots of `workers` pools busy for a while, with proofs that take some time and a few that kill their process
/// twice.
fn soak(workers: usize, slots: usize, time: Duration, proof_ms: u64) -> Soak {
    let folder = tempfile::tempdir().unwrap();
    let mut checker = repl(folder.path());
    // Thousands of processes on a few cores are slow. The limits are for processes that hang.
    checker.limits = Limits { proof_ms: 300_000, start_ms: 600_000, ..limits() };
    let checker = CheckerConfig::Repl(checker);
    let pools: Vec<Pool> = (0..workers).map(|_| Pool::new(&checker, slots).unwrap()).collect();
    let until = Instant::now() + time;
    let caller = |pool: &Pool, caller: usize| {
        let mut soak = Soak::default();
        let mut i = caller;
        loop {
            i += 1;
            let crash = i.is_multiple_of(997);
            let sleep = proof_ms + (i % 7) as u64 * proof_ms / 20;
            let body =
                if crash { "exact scripted_crash".into() } else { format!("exact scripted_sleep_{sleep}") };
            let outcome = pool.check(candidate(&body));
            match (outcome.verdict, crash) {
                (Verdict::Proved, false) | (Verdict::Resource, true) => soak.expected += 1,
                _ => soak.unexpected.push(format!("{body}: {outcome:?}")),
            }
            if Instant::now() >= until {
                return soak;
            }
        }
    };
    let mut all = Soak::default();
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..workers * slots)
            .map(|i| {
                let pool = &pools[i % workers];
                let builder = std::thread::Builder::new().stack_size(256 * 1024);
                builder.spawn_scoped(scope, move || caller(pool, i)).unwrap()
            })
            .collect();
        for call in calls {
            let one = call.join().unwrap();
            all.expected += one.expected;
            all.unexpected.extend(one.unexpected);
        }
    });
    for pool in &pools {
        let status = pool.status();
        assert_eq!((status.waiting, status.running), (0, 0), "{status:?}");
        all.judged += status.judged;
    }
    drop(pools);
    assert_eq!(zombies(), 0);
    assert_eq!(left_in(&folder.path().to_string_lossy()), Vec::<String>::new());
    all
}

#[test]
fn hundreds_of_slots_of_several_workers_hold() {
    let soak = soak(4, 50, Duration::from_secs(3), 400);
    assert_eq!(soak.unexpected, Vec::<String>::new());
    assert_eq!(soak.judged, soak.expected);
    assert!(soak.expected >= 200, "{soak:?}");
}

#[test]
#[ignore = "a soak test: SGS_SOAK_WORKERS (40) workers of SGS_SOAK_SLOTS (100) slots for SGS_SOAK_SECONDS (600); .ci/run runs a small one"]
fn thousands_of_slots_hold() {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (workers, slots) = (number("SGS_SOAK_WORKERS", 40) as usize, number("SGS_SOAK_SLOTS", 100) as usize);
    let seconds = number("SGS_SOAK_SECONDS", 600);
    let soak = soak(workers, slots, Duration::from_secs(seconds), 20_000);
    println!(
        "{workers} workers of {slots} slots for {seconds} s: {} verdicts as expected, {} not, {} judged",
        soak.expected,
        soak.unexpected.len(),
        soak.judged
    );
    assert_eq!(soak.unexpected, Vec::<String>::new());
}
