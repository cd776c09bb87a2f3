//! A small run of two rounds, with and without workers elsewhere.
#![allow(dead_code, clippy::expect_used, clippy::unwrap_used)] // tests say so by panicking; each uses a part

use crate::program::sgs;
use crate::shared_run::shared_run;
use sgs_rundir::RunView;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a busy machine may take for anything.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Two rounds that take a few seconds.
pub fn settings() -> Vec<String> {
    let mut out = vec!["run".to_owned()];
    for setting in [
        "rounds=2",
        "minutes=0",
        "algorithm.batch.size=12",
        "algorithm.rollouts_per_problem=4",
        "sampling.batch=8",
        "sampling.memory_mib=64",
        "evaluation.problems=5",
        "evaluation.samples=2",
        "evaluation.every=1",
        "algorithm.optimizer.batch_size=8",
    ] {
        out.extend(["--set".to_owned(), setting.to_owned()]);
    }
    out
}

/// The settings without evaluations.
pub fn unevaluated() -> Vec<String> {
    [settings(), ["--set", "evaluation.held_out=none"].map(str::to_owned).into()].concat()
}

/// The run, done by the coordinator alone; tests share it.
pub fn embedded() -> PathBuf {
    embedded_as(&settings())
}

/// A run with these settings, done by the coordinator alone; tests share it.
pub fn embedded_as(settings: &[String]) -> PathBuf {
    shared_run(&settings, |run| {
        sgs(&[settings, &["--out".to_owned(), run.display().to_string()]].concat()).expect(0);
    })
}

/// Results of the round in progress that are in the journal.
pub fn records(run: &Path) -> u64 {
    let count = || {
        let journal = RunView::open(run).ok()?.journal().ok()?;
        let round = journal.markers().ok()?.last()?.round;
        Some(journal.counts(round).ok()?.values().sum())
    };
    count().unwrap_or(0)
}

/// The sampling tasks that a whole run consisted of: each conjecture, each review, and the rollouts of a problem.
pub fn sampling_tasks(run: &Path) -> u64 {
    let mut count = 0;
    for round in RunView::open(run).expect("a run").rounds().expect("rounds") {
        count +=
            round.conjectures().expect("conjectures").count() + round.reviews().expect("reviews").count();
        let problems = round.rollouts().expect("rollouts").map(|row| row.expect("a row").problem);
        count += problems.collect::<BTreeSet<_>>().len();
    }
    count as u64
}

/// Waits until it is so.
pub fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waited {} s for {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
