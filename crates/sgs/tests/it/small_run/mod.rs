//! A small run of two rounds, for tests with and without separate workers.
#![allow(dead_code)] // each test file uses a part

use crate::program::{sgs, small_model};
use crate::shared_run::shared_run;
use sgs_rundir::RunView;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit for each wait, which is long enough even for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Returns the arguments of a run of two rounds, which takes a few seconds.
pub fn settings() -> Vec<String> {
    let mut out = vec!["run".to_owned()];
    for setting in [
        small_model().as_str(),
        "rounds=2",
        "minutes=0",
        // With this seed, both rounds train both roles.
        "seed=11",
        "algorithm.batch.size=6",
        // Skip the check of the Guide before the first round.
        "algorithm.guide.min_readable=0",
        "algorithm.rollouts_per_problem=4",
        "sampling.batch=16",
        "sampling.conjecturer_tokens=64",
        "sampling.memory_mib=64",
        "evaluation.problems=2",
        "evaluation.samples=2",
        "evaluation.every=1",
        "algorithm.optimizer.batch_size=8",
        "training.micro_batch_tokens=512",
    ] {
        out.extend(["--set".to_owned(), setting.to_owned()]);
    }
    out
}

/// Returns the arguments of the same run without evaluations.
pub fn settings_without_evaluation() -> Vec<String> {
    [settings(), ["--set", "evaluation.held_out=none"].map(str::to_owned).into()].concat()
}

/// Returns the run, executed without separate workers. Tests share it.
pub fn embedded() -> PathBuf {
    embedded_with(&settings())
}

/// Returns a run with these arguments, executed without separate workers. Tests share it.
pub fn embedded_with(settings: &[String]) -> PathBuf {
    shared_run(&settings, |run| {
        sgs(&[settings, &["--out".to_owned(), run.display().to_string()]].concat()).expect(0);
    })
}

/// Returns the number of journal records of the round in progress.
pub fn journal_records(run: &Path) -> u64 {
    let count = || {
        let journal = RunView::open(run).ok()?.journal().ok()?;
        let round = journal.markers().ok()?.last()?.round;
        Some(journal.counts(round).ok()?.values().sum())
    };
    count().unwrap_or(0)
}

/// Returns the number of sampling tasks of a finished run: one per conjecture, per review, and per problem with rollouts.
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

/// Waits until a condition holds; panics after [`PATIENCE`].
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {} s for {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
