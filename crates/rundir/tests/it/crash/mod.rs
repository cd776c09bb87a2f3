//! A process that works on a run is ended at every write point and at random times. Afterwards, no acknowledged record is
//! missing, no torn file is visible, and the run continues to the same result as an undisturbed one.

mod work;

use crate::tensorboard::{TensorBoardValue, read_events};
use sgs_rundir::directories::check_directory;
use sgs_rundir::files::TEMPORARY_PREFIX;
use sgs_rundir::{RecordKey, RunDir, RunView, write_point};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use work::{Scale, key_of};

const DIRECTORY: &str = "SGS_RUNDIR_CRASH_DIRECTORY";
const MODE: &str = "SGS_RUNDIR_CRASH_MODE";
const AT: &str = "SGS_RUNDIR_CRASH_AT";
const ROUNDS: &str = "SGS_RUNDIR_CRASH_ROUNDS";

const SMALL: Scale = Scale { rounds: 2, problems: 3, rollouts: 2 };

/// Creates a directory in memory if possible: flushing is free there, and a killed process leaves the same files.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

static REACHED: AtomicU64 = AtomicU64::new(0);
static STOP_AT: AtomicU64 = AtomicU64::new(u64::MAX);

fn dies(_name: &'static str) -> io::Result<()> {
    if REACHED.fetch_add(1, Ordering::SeqCst) + 1 == STOP_AT.load(Ordering::SeqCst) {
        std::process::abort();
    }
    Ok(())
}

fn finds_the_disk_full(_name: &'static str) -> io::Result<()> {
    // Like a real disk, it is full from this point on.
    if REACHED.fetch_add(1, Ordering::SeqCst) + 1 >= STOP_AT.load(Ordering::SeqCst) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

/// This is not a test, but the process that the tests below start and end.
#[test]
#[ignore = "started by the other tests as a child process"]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    STOP_AT.store(number(AT).unwrap_or(u64::MAX), Ordering::SeqCst);
    match std::env::var(MODE).as_deref() {
        Ok("die") => write_point::install(dies),
        Ok("full") => write_point::install(finds_the_disk_full),
        _ => {}
    }
    let scale = Scale { rounds: number(ROUNDS).map_or(SMALL.rounds, |n| n as u32), ..SMALL };
    match work::run(Path::new(&directory), scale, |key| {
        println!("\nACK {} {} {}", key.round, key.problem, key.index)
    }) {
        Ok(()) => println!("\nPOINTS {}", REACHED.load(Ordering::SeqCst)),
        Err(error) => println!("\nERROR {error}"),
    }
}

fn child_command(directory: &Path, mode: &str, at: u64, rounds: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "crash::child", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(MODE, mode)
        .env(AT, at.to_string())
        .env(ROUNDS, rounds.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Output of a child process.
#[derive(Default)]
struct ChildOutput {
    acknowledged: BTreeSet<RecordKey>,
    points: Option<u64>,
    error: Option<String>,
}

fn parse_output(bytes: &[u8]) -> ChildOutput {
    let mut output = ChildOutput::default();
    // A torn last line has no newline and is ignored.
    let text = String::from_utf8_lossy(bytes);
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        if let Some(key) = line.strip_prefix("ACK ") {
            let parts: Vec<&str> = key.split(' ').collect();
            output.acknowledged.insert(key_of(
                parts[0].parse().unwrap(),
                parts[1],
                parts[2].parse().unwrap(),
            ));
        } else if let Some(points) = line.strip_prefix("POINTS ") {
            output.points = Some(points.parse().unwrap());
        } else if let Some(error) = line.strip_prefix("ERROR ") {
            output.error = Some(error.to_owned());
        }
    }
    output
}

/// The content of a finished run, except times.
#[derive(Debug, PartialEq)]
struct Outcome {
    rollouts: Vec<(u32, String, u32, Vec<u32>)>,
    generations: BTreeMap<u32, u64>,
    metric_lines: Vec<u32>,
    event_steps: Vec<(i64, u64)>,
    weights: String,
    checkpoints: Vec<u32>,
    stray: Vec<String>,
}

fn outcome(directory: &Path) -> Outcome {
    let view = RunView::open(directory).unwrap();
    let mut rollouts = Vec::new();
    let mut generations = BTreeMap::new();
    for round in view.rounds().unwrap() {
        round.check().unwrap();
        for row in round.rollouts().unwrap() {
            let row = row.unwrap();
            rollouts.push((round.round(), row.problem.to_string(), row.index, row.sample.tokens));
        }
        generations.insert(round.round(), round.metrics().unwrap().scalars["generations"] as u64);
    }
    let lines = std::fs::read_to_string(view.metrics_file()).unwrap();
    let metric_lines = lines
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["round"].as_u64().unwrap() as u32);
    let mut events: Vec<_> = std::fs::read_dir(view.tensorboard_directory())
        .unwrap()
        .flat_map(|entry| read_events(&entry.unwrap().path()))
        .filter_map(|event| match event.values.first() {
            Some((_, TensorBoardValue::Scalar(x))) => Some((event.step, *x as u64)),
            _ => None,
        })
        .collect();
    events.sort_unstable();
    // A crash before the line in metrics.jsonl repeats the event.
    events.dedup();
    let checkpoints = view.checkpoints();
    let newest = checkpoints.newest_valid(u32::MAX).unwrap().unwrap();
    Outcome {
        rollouts,
        generations,
        metric_lines: metric_lines.collect(),
        event_steps: events,
        weights: std::fs::read_to_string(newest.directory.join("solver/weights")).unwrap(),
        checkpoints: checkpoints.list().unwrap().iter().map(|c| c.round).collect(),
        stray: temporaries(directory),
    }
}

fn temporaries(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with(TEMPORARY_PREFIX) {
            found.push(name);
        } else if path.is_dir() {
            found.extend(temporaries(&path));
        }
    }
    found
}

fn undisturbed(scale: Scale) -> Outcome {
    let dir = scratch();
    let run = dir.path().join("run");
    work::run(&run, scale, |_| ()).unwrap();
    outcome(&run)
}

/// Checks the files that a dead process left, and the run after it is opened again.
fn check_after_crash(run: &Path, acknowledged: &BTreeSet<RecordKey>) {
    for parent in ["rounds", "checkpoints"] {
        let Ok(entries) = std::fs::read_dir(run.join(parent)) else { continue };
        for path in entries.map(|e| e.unwrap().path()) {
            if !path.file_name().unwrap().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
                check_directory(&path).unwrap();
            }
        }
    }
    if !run.join("config.toml").exists() {
        assert!(acknowledged.is_empty());
        return;
    }
    let opened = RunDir::open(run).unwrap();
    assert_eq!(temporaries(run), [""; 0]);
    let mut present = BTreeSet::new();
    for round in opened.view().rounds().unwrap() {
        for row in round.rollouts().unwrap() {
            let row = row.unwrap();
            present.insert(key_of(round.round(), row.problem.as_str(), row.index));
        }
    }
    let plan = opened.plan(work::FIRST_ROUND).unwrap();
    present.extend(opened.journal().reader().records(plan.round, None).unwrap().into_iter().map(|r| r.key));
    let lost: Vec<_> = acknowledged.difference(&present).collect();
    assert!(lost.is_empty(), "acknowledged but lost: {lost:?}");
}

fn count_points() -> u64 {
    let dir = scratch();
    let output = child_command(&dir.path().join("run"), "die", u64::MAX, SMALL.rounds).output().unwrap();
    let points = parse_output(&output.stdout).points.expect("the undisturbed child succeeds");
    assert!(points > 60, "only {points} write points are reached");
    points
}

#[test]
fn a_crash_at_any_write_point_loses_nothing() {
    let expected = undisturbed(SMALL);
    let mut deaths = 0;
    for at in 1..=count_points() {
        let dir = scratch();
        let run = dir.path().join("run");
        let output = child_command(&run, "die", at, SMALL.rounds).output().unwrap();
        deaths += u32::from(!output.status.success());
        if run.exists() {
            check_after_crash(&run, &parse_output(&output.stdout).acknowledged);
        }
        work::run(&run, SMALL, |_| ()).unwrap();
        assert_eq!(outcome(&run), expected, "after a crash at write point {at}");
    }
    assert!(deaths > 60, "only {deaths} children died");
}

/// A journal that was moved away is created again; a crash leaves no journal or a complete one.
#[test]
fn a_crash_while_a_journal_is_created_leaves_no_invalid_journal() {
    let expected = undisturbed(SMALL);
    let mut deaths = 0;
    for at in 1..=12 {
        let dir = scratch();
        let run = dir.path().join("run");
        work::run(&run, Scale { rounds: 1, ..SMALL }, |_| ()).unwrap();
        for name in ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"] {
            let _ = std::fs::remove_file(run.join(name));
        }
        let output = child_command(&run, "die", at, SMALL.rounds).output().unwrap();
        deaths += u32::from(!output.status.success());
        work::run(&run, SMALL, |_| ()).unwrap();
        assert_eq!(outcome(&run), expected, "after a crash at write point {at}");
    }
    assert_eq!(deaths, 12);
}

#[test]
fn a_full_disk_at_any_write_point_is_an_error_and_loses_nothing() {
    let expected = undisturbed(SMALL);
    let mut errors = 0;
    for at in 1..=count_points() {
        let dir = scratch();
        let run = dir.path().join("run");
        let output = child_command(&run, "full", at, SMALL.rounds).output().unwrap();
        assert!(output.status.success(), "the process died when the disk was full at write point {at}");
        let output = parse_output(&output.stdout);
        if let Some(error) = &output.error {
            assert!(error.contains("the disk is full"), "write point {at}: {error}");
            errors += 1;
        }
        // Directories that were being removed may remain until the run is opened again.
        let left: Vec<_> = temporaries(dir.path()).into_iter().filter(|n| !n.contains("removed")).collect();
        assert_eq!(left, [""; 0], "leftovers after a full disk at write point {at}");
        if run.exists() {
            check_after_crash(&run, &output.acknowledged);
        }
        work::run(&run, SMALL, |_| ()).unwrap();
        assert_eq!(outcome(&run), expected, "after a full disk at write point {at}");
    }
    assert!(errors > 60, "only {errors} children found the disk full");
}

#[test]
fn fifty_kills_at_random_times_lose_nothing() {
    let scale = Scale { rounds: 60, ..SMALL };
    let expected = undisturbed(scale);
    let dir = scratch();
    let run = dir.path().join("run");
    let mut acknowledged = BTreeSet::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut kills = 0;
    for _ in 0..50 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut child = child_command(&run, "live", 0, scale.rounds).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(2_000 + (random >> 33) % 14_000));
        // SIGKILL cannot be handled by the process.
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let ended = output.status.success();
        kills += u32::from(!ended);
        let output = parse_output(&output.stdout);
        assert_eq!(output.error, None, "the files of an earlier process cause an error");
        acknowledged.extend(output.acknowledged);
        if run.exists() {
            check_after_crash(&run, &acknowledged);
        }
        if ended {
            // On a fast machine, the process may finish before it is killed. The next one then creates another run.
            assert_eq!(outcome(&run), expected);
            std::fs::remove_dir_all(&run).unwrap();
            acknowledged.clear();
        }
    }
    assert!(kills >= 25, "only {kills} children were alive when they were killed");
    work::run(&run, scale, |_| ()).unwrap();
    assert_eq!(outcome(&run), expected);
}
