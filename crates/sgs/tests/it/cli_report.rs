//! `sgs report`, `sgs fit` and `sgs status` on degenerate runs.

use crate::program::{path, sgs};
use sgs_run::round::record::{Entry, record};
use sgs_rundir::{FrozenConfig, MetricValues, RunDir};
use sgs_selfplay::{Event, ProblemId, TaskKey, TaskKind};
use std::path::Path;

/// Creates a run whose rounds have these cumulative solve rates.
fn run(path: &Path, rates: &[f64]) -> RunDir {
    // Derive the seed from the folder's name, because runs with equal seeds count as copies.
    let seed: u32 = path.file_name().unwrap().as_encoded_bytes().iter().map(|b| u32::from(*b)).sum();
    let text = format!("rounds = 40\nmethod = \"sgs\"\nseed = {seed}\n[problems]\nsystem = \"metamath\"\n");
    let config = FrozenConfig { text, version: "0.9".into(), data: Default::default() };
    let run = RunDir::create(path, &config, None).unwrap();
    for (round, rate) in (0..).zip(rates) {
        run.start_round(round).unwrap();
        run.finish_sampling(round).unwrap();
        run.skip_update(round, "").unwrap();
        let mut metrics = MetricValues::new(round);
        metrics.set("generations", 800.0 * f64::from(round + 1));
        for name in
            ["cumulative_solve_rate", "target_solve_rate", "target_share_solved", "solver_entropy", "r_synth"]
        {
            metrics.set(name, *rate);
        }
        run.publish_round(&metrics, |_| Ok(())).unwrap();
    }
    run
}

/// Returns the report, the output of `fit` (including errors) and that of `status`.
fn outputs(folder: &str, fits: bool) -> (String, String, String) {
    let out = sgs(&["report", folder]).expect(0).out;
    let page = std::fs::read_to_string(out.trim()).unwrap();
    assert!(page.contains("</html>"));
    for text in ["NaN", ">inf<", "inf%", "null%"] {
        assert!(!page.contains(text), "{text} in the page of {folder}");
    }
    let fit = sgs(&["fit", folder]).expect(i32::from(!fits));
    (page, fit.out + &fit.err, sgs(&["status", folder]).expect(0).out)
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        let start: String = text.chars().take(2000).collect();
        assert!(text.contains(part), "{part} is not in the text that begins with {start}");
    }
}

#[test]
fn empty_and_interrupted_runs() {
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "empty");
    drop(run(Path::new(&folder), &[]));
    let (page, fit, status) = outputs(&folder, false);
    assert_contains(&page, &["No round is finished yet"]);
    assert_contains(&fit, &["no finished round yet"]);
    assert_contains(&status, &["0 of 40 published", "stopped", "to continue  sgs resume"]);

    // This run was killed during its third round.
    let folder = path(dir.path(), "interrupted");
    let open = run(Path::new(&folder), &[0.1, 0.2]);
    open.start_round(2).unwrap();
    let key = TaskKey { round: 2, kind: TaskKind::Rollout, problem: ProblemId::new("p"), index: 0 };
    let mut entries = [Entry { event: Event::Lost { key, reason: "gone".into() }, completion: None }];
    open.journal().append_durably(vec![record(&mut entries).unwrap().unwrap()]).unwrap();
    drop(open);
    let (page, fit, status) = outputs(&folder, false);
    assert_contains(&page, &["<dd>2</dd><dt>rounds (numbered from 0)</dt>", "too few points for a fit"]);
    assert_contains(&fit, &["too few points"]);
    assert_contains(&status, &["2 of 40 published", "1 rollout", "20.0%"]);
}

#[test]
fn runs_with_one_round_and_with_three() {
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "single");
    drop(run(Path::new(&folder), &[0.25]));
    let (page, fit, status) = outputs(&folder, false);
    assert_contains(&page, &["<dd>25.0%</dd>", "<dd>1</dd><dt>round</dt>", "too few points for a fit"]);
    assert_contains(&fit, &["too few points"]);
    assert_contains(&status, &["1 of 40 published", "25.0%"]);
    let folder = path(dir.path(), "short");
    drop(run(Path::new(&folder), &[0.1, 0.2, 0.25]));
    let (page, fit, _) = outputs(&folder, false);
    assert_contains(&page, &["<dd>3</dd><dt>rounds (numbered from 0)</dt>", "too few points for a fit"]);
    assert_contains(&fit, &["too few points"]);
}

#[test]
fn runs_that_never_solve_anything() {
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "zeros");
    drop(run(Path::new(&folder), &[0.0; 20]));
    let (page, fit, status) = outputs(&folder, true);
    assert_contains(&page, &["<dd>0.0%</dd>", "the curve is flat", "not yet"]);
    assert_contains(&fit, &["the curve is flat"]);
    assert_contains(&status, &["20 of 40 published", "0.0%"]);
}

#[test]
fn runs_with_values_that_are_not_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "holes");
    let rate = |i: u32| if i % 3 == 2 { f64::NAN } else { 0.5 - 0.4 / f64::from(i + 1) };
    drop(run(Path::new(&folder), &(0..30).map(rate).collect::<Vec<_>>()));
    let (page, fit, _) = outputs(&folder, true);
    assert_contains(
        &page,
        &["Cumulative solve rate", "Scaling laws", "10 of 30 rounds have no cumulative solve rate"],
    );
    assert_contains(&fit, &["R_0", "C_mid"]);
    let folder = path(dir.path(), "nothing");
    drop(run(Path::new(&folder), &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]));
    let (page, fit, status) = outputs(&folder, false);
    assert_contains(
        &page,
        &["<dd>4</dd><dt>rounds (numbered from 0)</dt>", "4 of 4 rounds have no cumulative solve rate"],
    );
    assert_contains(&fit, &["too few points"]);
    assert_contains(&status, &["4 of 40 published"]);

    // Write a report on all of them and a normal run.
    let good = path(dir.path(), "good");
    drop(run(Path::new(&good), &(0..30).map(|i| 0.5 - 0.4 / f64::from(i + 1)).collect::<Vec<_>>()));
    let out = path(dir.path(), "all");
    let holes = path(dir.path(), "holes");
    sgs(&["report", "--out", &out, &holes, &folder, &good]).expect(0);
    let page = std::fs::read_to_string(dir.path().join("all/index.html")).unwrap();
    assert_contains(&page, &["Comparison of 3 runs", "3 seeds"]);
    assert!(!page.contains("NaN"));
}

#[test]
fn wrong_arguments_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let folder = path(dir.path(), "run");
    drop(run(Path::new(&folder), &[0.1, 0.2]));
    let elsewhere = path(dir.path(), "elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let done = sgs(&["report", &folder, &elsewhere]).expect(2);
    assert_contains(&done.err, &["elsewhere", "is not a run"]);
    let done = sgs(&["report", &folder, "--cut=-3"]).expect(2);
    assert_contains(&done.err, &["--cut", "expected a number from 0"]);
    let done = sgs(&["report", &folder, "--yardstick", "a model=42"]).expect(2);
    assert_contains(&done.err, &["between 0 and 1", "%"]);
}
