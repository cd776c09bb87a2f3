//! A run whose formal system is a process that fails.

use crate::library::{runner, runner_with};
use sgs_external::{External, ExternalSettings};
use sgs_run::config::folder;
use sgs_run::{Outcome, RunEvent, Runner};
use std::path::Path;
use std::sync::Arc;

const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../formal/external/tests/it/hostile.py");

fn hostile(how: &str, healed: &Path) -> Arc<External> {
    let command = ["python3", HOSTILE, how, healed.to_str().unwrap()].map(str::to_owned).to_vec();
    Arc::new(External::start(ExternalSettings { command, ..ExternalSettings::default() }).unwrap())
}

#[test]
fn a_system_that_fails_stops_the_run_and_loses_nothing() {
    for (how, says) in [("dies", "no more"), ("error", "out of order"), ("dies on proofs", "no more")] {
        let dir = tempfile::tempdir().unwrap();
        let (path, healed) = (dir.path().join("run"), dir.path().join("healed"));
        let mut first = runner(&path, 1);
        first.system = hostile(how, &healed);
        let (targets, base) = (first.targets.clone(), first.base.clone());
        let device = Arc::clone(&first.device);
        let error = format!("{:#}", first.work(&mut |_| ()).unwrap_err());
        assert!(error.contains(says), "{how}: {error}");
        std::fs::write(&healed, "").unwrap();
        let (run, config) = folder::reopen(&path).unwrap();
        let mut judged = Vec::new();
        let again = Runner {
            run: Arc::new(run),
            config: Arc::new(config),
            system: hostile(how, &healed),
            targets,
            base,
            device,
            held_out: Vec::new(),
            interrupt: sgs_run::StopFlag::default(),
            fleet: None,
            process_group: None,
        };
        let outcome = again.work(&mut |event| {
            if let RunEvent::RoundFinished { outcome, .. } = event {
                judged.extend(outcome.rollouts.iter().map(|rollout| rollout.verdict));
            }
        });
        assert_eq!(outcome.unwrap(), Outcome::Done);
        assert!(judged.len() >= 64 && judged.iter().all(|verdict| verdict.is_judged()), "{how}: {judged:?}");
    }
}

/// A round would treat such reviews as malformed.
#[test]
fn reviews_with_scores_out_of_range_do_not_pass_the_check_of_the_guide() {
    let dir = tempfile::tempdir().unwrap();
    let end = |run: &str, healed: &str| {
        // Most reviews of this model do not end within the limit.
        let settings = ["algorithm.guide.min_readable=0.01", "sampling.guide_tokens=64"];
        let mut runner = runner_with(&dir.path().join(run), 1, &settings);
        runner.system = hostile("strange", Path::new(healed));
        runner.work(&mut |_| ())
    };
    let error = format!("{:#}", end("out-of-range", "/nonexistent").unwrap_err());
    assert!(error.contains("0 of the Guide's 64 reviews can be read"), "{error}");
    assert_eq!(end("in-range", HOSTILE).unwrap(), Outcome::Done);
}
