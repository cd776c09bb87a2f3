//! Tests reading of run directories that are intact, damaged or large.

use crate::disk;
use crate::synthetic;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::report;
use sgs_analysis::run::{ReviewCounts, RunData, RunReader, StatementDisplay, TargetHistory, read_run};
use sgs_rundir::{EndReason, RunDir};
use sgs_selfplay::Method;
use std::time::Instant;

fn small() -> RunData {
    let mut run = synthetic::run(Method::Sgs, 3, synthetic::Size { rounds: 6, targets: 40 });
    run.config = "method = \"sgs\"\nsize = \"metamath-quick\"\nseed = 3\n".into();
    run
}

#[test]
fn a_run_is_read_back() {
    let (run, dir) = (small(), tempfile::tempdir().unwrap());
    let path = dir.path().join("first");
    disk::write(&run, &path, 8);
    let read = read_run(&path, None).unwrap();
    assert_eq!((read.name.as_str(), read.method, read.seed), ("first", Some(Method::Sgs), Some(3)));
    assert_eq!((read.version.as_deref(), read.size.as_deref()), (Some("0.1.0"), Some("metamath-quick")));
    assert_eq!(read.rounds.len(), 6);
    assert_eq!(read.curve(), run.curve());
    assert_eq!(read.targets.len(), 40);
    for (a, b) in read.targets.iter().zip(&run.targets) {
        assert_eq!((&a.id, &a.statement, a.solved_round), (&b.id, &b.statement, b.solved_round));
        assert_eq!(a.rounds, b.rounds);
    }
    let solved = run.targets.iter().filter(|t| t.solved_round.is_some()).count();
    assert_eq!(read.solved.len(), solved);
    assert!(read.solved.iter().all(|s| s.proof.starts_with("proof 0 of target")));
    assert!(!read.shown_conjectures.is_empty());
    // Every other round, a reviewed conjecture is rewarded.
    let asked = |t: &TargetHistory| t.solved_round.map_or(6, |round| u64::from(round) + 1);
    let reviewed = run.targets.iter().map(asked).sum();
    let rewarded = run.targets.iter().map(|t| asked(t).div_ceil(2)).sum();
    assert_eq!(read.reviews, ReviewCounts { reviewed, rewarded, removed: 0 });
    assert!(
        read.shown_conjectures
            .iter()
            .all(|c| c.review == Some([4.0, 0.0, 1.0]) && !c.target_statement.is_empty())
    );
    assert_eq!(read.notes, [] as [String; 0]);
}

#[test]
fn a_report_says_why_the_run_ended() {
    let (mut run, dir) = (small(), tempfile::tempdir().unwrap());
    run.config.push_str("rounds = 9\nminutes = 30.0\n");
    disk::write(&run, dir.path(), 8);
    let mut reader = RunReader::open(dir.path(), None).unwrap();
    assert!(reader.update().unwrap() && !reader.update().unwrap());
    RunDir::open(dir.path()).unwrap().mark_ended(EndReason::Minutes, 6).unwrap();
    assert!(reader.update().unwrap(), "an open page must show the end");
    let fragment = report::fragment(std::slice::from_ref(reader.run()), &FigureOptions::default());
    let text = "The run has ended: 30-minute time limit, after 6 of 9 rounds.";
    assert!(report::page(&fragment, None).contains(text), "{:?}", reader.run().ended);
}

struct Loud;

impl StatementDisplay for Loud {
    fn statement(&self, statement: &str) -> String {
        format!("shown: {statement}")
    }

    fn proof(&self, _: &str, context: &str, proof: &str) -> String {
        format!("{context}: {proof}")
    }
}

#[test]
fn statements_and_proofs_are_formatted_by_the_formal_system() {
    let dir = tempfile::tempdir().unwrap();
    disk::write(&small(), &dir.path().join("run"), 8);
    let read = read_run(&dir.path().join("run"), Some(&Loud)).unwrap();
    assert!(read.targets[0].statement.starts_with("shown: "));
    assert!(read.solved[0].proof.starts_with("context: proof 0"));
    assert!(read.shown_conjectures[0].statement.starts_with("shown: |- ( ph ->"));
}

#[test]
fn damage_is_noted_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    disk::write(&small(), &path, 8);
    std::fs::write(path.join("rounds/0001/metrics.json"), "{ torn").unwrap();
    std::fs::write(path.join("rounds/0002/problems.parquet"), "PAR1 torn").unwrap();
    std::fs::remove_file(path.join("rounds/0003/reviews.parquet")).unwrap();
    std::fs::remove_dir_all(path.join("rounds/0004")).unwrap();
    let read = read_run(&path, None).unwrap();
    assert_eq!(read.rounds.len(), 4);
    for what in
        ["round 1 is left out", "part of round 2 is left out", "part of round 3", "round 4 is missing"]
    {
        assert!(read.notes.iter().any(|n| n.contains(what)), "{what} in {:?}", read.notes);
    }
    let written = report::write(&[read], &dir.path().join("report"), &FigureOptions::default()).unwrap();
    assert!(std::fs::read_to_string(written.index).unwrap().contains("round 1 is left out"));
}

#[test]
fn a_missing_run_is_an_error_and_a_run_without_rounds_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let error = read_run(dir.path(), None).unwrap_err().to_string();
    assert!(error.contains("config.toml"), "{error}");
    let path = dir.path().join("run");
    disk::write(&RunData { rounds: Vec::new(), ..small() }, &path, 8);
    let read = read_run(&path, None).unwrap();
    assert!(read.is_empty() && read.targets.is_empty() && read.notes.is_empty());
}

/// Analyses 200 rounds of 16,000 rollouts with 40 tokens each. `SGS_LARGE_RUN` names a directory that keeps the run.
#[test]
#[ignore = "writes some GB: minutes"]
fn a_large_run_is_analysed_in_ten_seconds() {
    let temporary = tempfile::tempdir().unwrap();
    let path = std::env::var("SGS_LARGE_RUN").map_or_else(|_| temporary.path().join("large"), Into::into);
    if !path.exists() {
        // The run has 1,000 targets and about 1,000 conjectures per round, with 8 rollouts each.
        let mut run = synthetic::run(Method::Sgs, 1, synthetic::Size { rounds: 200, targets: 1000 });
        run.targets.iter_mut().for_each(|target| target.solved_round = None);
        run.config = "method = \"sgs\"\nseed = 1\n".into();
        disk::write(&run, &path, 40);
    }
    let start = Instant::now();
    let run = read_run(&path, None).unwrap();
    let read = start.elapsed();
    report::write(&[run], &temporary.path().join("report"), &FigureOptions::default()).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default().to_owned();
    println!("read {read:?}, read and reported {:?}, {peak}", start.elapsed());
    assert!(start.elapsed().as_secs_f64() < 10.0);
}

#[test]
fn exchanged_rounds_are_left_out_and_noted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    disk::write(&small(), &path, 8);
    let [first, second, spare] = ["0001", "0002", "spare"].map(|name| path.join("rounds").join(name));
    std::fs::rename(&first, &spare).unwrap();
    std::fs::rename(&second, &first).unwrap();
    std::fs::rename(&spare, &second).unwrap();
    let read = read_run(&path, None).unwrap();
    for (round, other) in [(1, 2), (2, 1)] {
        assert!(read.rounds.iter().all(|r| r.round != round));
        assert!(read.targets.iter().all(|t| t.rounds.iter().all(|r| r.round != round)));
        let is_noted = |note: &String| {
            note.contains(&format!("round {round} is left out"))
                && note.contains(&format!("of round {other}"))
        };
        assert!(read.notes.iter().any(is_noted), "{:?}", read.notes);
    }
}

#[test]
fn swapped_tables_are_left_out_and_noted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    disk::write(&small(), &path, 8);
    let rounds = path.join("rounds");
    let [first, second] = ["0001", "0002"].map(|round| rounds.join(round).join("problems.parquet"));
    let spare = dir.path().join("spare");
    std::fs::rename(&first, &spare).unwrap();
    std::fs::rename(&second, &first).unwrap();
    std::fs::rename(&spare, &second).unwrap();
    let read = read_run(&path, None).unwrap();
    for round in [1, 2] {
        let note = format!("part of round {round} is left out");
        let found = read.notes.iter().filter(|n| n.contains(&note)).collect::<Vec<_>>();
        assert!(found.len() == 1 && found[0].contains("problems.parquet has SHA-256"), "{:?}", read.notes);
        assert!(read.targets.iter().all(|t| t.rounds.iter().all(|r| r.round != round)));
    }
}
