//! Tests runs with each form of conjectures.

use crate::library::{metamath, numbers};
use sgs_formal::Condition;
use sgs_run::config::folder;
use sgs_run::{Outcome, RunEvent, Runner};
use sgs_rundir::RunView;
use sgs_rundir::rows::ConjectureRow;
use sgs_selfplay::Problem;
use sgs_selfplay::config::ConjectureForm;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn conjectures(folder: &Path) -> Vec<ConjectureRow> {
    let rounds = RunView::open(folder).unwrap().rounds().unwrap();
    rounds.iter().flat_map(|round| round.conjectures().unwrap().map(Result::unwrap)).collect()
}

/// Runs three rounds twice: once without interruption, and once with an interrupt during the second round (or after it,
/// if the round is too short). Checks that the results are equal, and that tables and checkpoint match the form.
fn check(method: &str, form: ConjectureForm, attempts: u32) {
    let dir = tempfile::tempdir().unwrap();
    let derives = form == ConjectureForm::Attempt || attempts > 0;
    let small = [
        "rounds=3",
        &format!("algorithm.conjecturer.attempts_per_target={attempts}"),
        if derives { "algorithm.batch.size=all" } else { "algorithm.batch.size=6" },
        "algorithm.rollouts_per_problem=2",
        "algorithm.guide.kind=rubric",
    ];
    let new = |folder: &Path| {
        let mut runner = metamath(folder, method, &small);
        if derives {
            // Failed attempts become conjectures when their target is sampled again, so every round must sample the
            // same targets.
            runner.targets.truncate(24);
        }
        runner
    };
    let [whole, parts] = ["whole", "parts"].map(|name| dir.path().join(name));
    let runner = new(&whole);
    assert_eq!(runner.config.algorithm.conjecturer.form, form);
    let (system, targets) = (Arc::clone(&runner.system), runner.targets.clone());
    let conjecturer = runner.config.algorithm.conjecturer.clone();
    assert_eq!(runner.work(&mut |_| ()).unwrap(), Outcome::Done);

    let first = new(&parts);
    let (config, base, stop) = (first.config.clone(), first.base.clone(), first.interrupt.flag());
    let mut finished = 0;
    let ended = first.work(&mut |event| match event {
        RunEvent::RoundFinished { .. } => {
            finished += 1;
            stop.store(finished == 2, Ordering::Release);
        }
        RunEvent::Progress(progress) if finished == 1 && progress.rollouts.done > 0 => {
            stop.store(true, Ordering::Release);
        }
        _ => {}
    });
    assert_eq!(ended.unwrap(), Outcome::Interrupted);
    let run = Arc::new(folder::reopen(&parts).unwrap().0);
    let again = Runner { run, config, base, ..new(&dir.path().join("unused")) };
    assert_eq!(again.work(&mut |_| ()).unwrap(), Outcome::Done);
    assert_eq!(numbers(&parts), numbers(&whole));

    let rows = conjectures(&whole);
    assert_eq!(rows, conjectures(&parts));
    let (is_sampled, is_trained) = match form {
        ConjectureForm::Statement | ConjectureForm::Proof => (true, true),
        ConjectureForm::Attempt | ConjectureForm::Composed => (false, false),
    };
    assert!(rows.iter().any(|row| row.statement.is_some()), "{rows:?}");
    let from_tokens = rows.iter().filter(|row| !row.sample.tokens.is_empty()).count();
    assert_eq!((from_tokens > 0, from_tokens < rows.len()), (is_sampled, !is_sampled || derives));
    for row in &rows {
        let is_sampled = !row.sample.tokens.is_empty();
        assert!((is_trained && is_sampled) || row.weight.is_none(), "{row:?}");
        // The statement is the one that the form reads from the completion.
        let Some(statement) = row.statement.as_ref().filter(|_| is_sampled) else { continue };
        let target: &Problem = targets.iter().find(|target| target.id == row.target).unwrap();
        let read =
            sgs_formal::read_conjecture(&*system, &conjecturer, Condition::Target(target), &row.sample.text)
                .unwrap();
        assert_eq!(&read.statement, statement, "{row:?}");
    }
    let is_kept = |role: &str| whole.join("checkpoints/0002").join(role).is_dir();
    assert_eq!((is_kept("solver"), is_kept("conjecturer")), (true, is_trained));
}

#[test]
fn statements() {
    check("sgs", ConjectureForm::Statement, 0);
}

#[test]
fn proofs() {
    check("sgs-proofs", ConjectureForm::Proof, 2);
}

#[test]
fn attempts() {
    check("sgs-attempts", ConjectureForm::Attempt, 0);
}

#[test]
fn composed_theorems() {
    check("composer", ConjectureForm::Composed, 2);
}
