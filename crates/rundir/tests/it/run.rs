//! Tests runs from the caller's perspective: order of steps, rejected steps, recovery and resume.

use crate::tensorboard::read_events;
use sgs_rundir::metrics::{MetricKind, MetricValues};
use sgs_rundir::rows::*;
use sgs_rundir::*;
use sgs_selfplay::{FinishReason, ProblemId, Role, Verdict};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn config() -> FrozenConfig {
    FrozenConfig { text: "k = 8\n".into(), version: "1".into(), data: Default::default() }
}

fn create(path: &Path) -> RunDir {
    RunDir::create(path, &config(), None).unwrap()
}

fn open(path: &Path) -> Result<RunDir> {
    RunDir::open(path)
}

fn record(round: u32, index: u32) -> Record {
    let key = RecordKey { round, kind: "rollout".into(), problem: "p".into(), index };
    Record { key, payload: vec![index as u8; 10] }
}

fn weights(text: &str) -> impl FnOnce(&Path) -> Result<(), CallerError> {
    let text = text.to_owned();
    move |staging| Ok(fs::write(staging.join("weights"), text)?)
}

fn metrics(round: u32) -> MetricValues {
    let mut metrics = MetricValues::new(round);
    metrics.set("generations", f64::from(round) * 8.0);
    metrics
}

fn whole_round(run: &RunDir, round: u32) {
    run.start_round(round).unwrap();
    run.journal().append_durably(vec![record(round, 0), record(round, 1)]).unwrap();
    run.finish_sampling(round).unwrap();
    run.publish_checkpoint(round, "", weights(&round.to_string())).unwrap();
    run.publish_round(&metrics(round), |_| Ok(())).unwrap();
}

#[test]
fn a_round_goes_through_its_stages_and_the_plan_follows() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let step = |run: &RunDir| {
        let plan = run.plan(0).unwrap();
        (plan.round, plan.next, plan.checkpoint.map(|c| c.round))
    };
    let run = create(&path);
    assert_eq!(step(&run), (0, NextStep::Start, None));
    run.start_round(0).unwrap();
    assert_eq!(step(&run), (0, NextStep::Sample, None));
    assert!(!RunView::open(&path).unwrap().has_results().unwrap());
    run.journal().append_durably(vec![record(0, 0), record(0, 1)]).unwrap();
    assert!(RunView::open(&path).unwrap().has_results().unwrap());
    drop(run);

    let run = open(&path).unwrap();
    assert_eq!(run.plan(0).unwrap().records["rollout"], 2);
    run.finish_sampling(0).unwrap();
    assert_eq!(step(&run), (0, NextStep::Update, None));
    run.publish_checkpoint(0, "loss", weights("a")).unwrap();
    assert_eq!(step(&run), (0, NextStep::Publish, Some(0)));
    run.publish_round(&metrics(0), |_| Ok(())).unwrap();
    assert_eq!(step(&run), (1, NextStep::Start, Some(0)));
    assert!(run.journal().reader().rounds_with_records().unwrap().is_empty(), "the journal stays small");

    run.start_round(1).unwrap();
    run.finish_sampling(1).unwrap();
    run.skip_update(1, "").unwrap();
    assert_eq!(step(&run), (1, NextStep::Publish, Some(0)), "the weights are unchanged");
    run.publish_round(&metrics(1), |_| Ok(())).unwrap();
    drop(run);
    assert!(!path.join("journal.sqlite-wal").exists(), "a closed journal is one file");
    assert_eq!(step(&open(&path).unwrap()), (2, NextStep::Start, Some(0)));
    let view = RunView::open(&path).unwrap();
    assert_eq!(view.plan(0).unwrap().round, 2, "the run can be read without its lock");
    assert_eq!(view.config().unwrap()["k"].as_integer(), Some(8));
}

/// Early versions stored a text with every marker.
#[test]
fn a_marker_of_any_stage_can_have_a_detail() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    let (stage, detail) = (JournalStage::Started, "cursor 5".to_owned());
    let marker = journal::Marker { round: 0, stage, checkpoint: None, detail, unix_time: 1.0 };
    run.journal().mark(marker.clone()).unwrap();
    drop(run);
    let run = open(&path).unwrap();
    assert_eq!(run.plan(0).unwrap().markers[&stage], marker);
    run.finish_sampling(0).unwrap();
    assert_eq!(run.plan(0).unwrap().next, NextStep::Update);
}

#[test]
fn weights_for_workers_are_removed_and_made_again() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    run.remove_weights().unwrap();
    for round in [0, 1] {
        let folder = run.publish_weights(round, weights("a")).unwrap();
        assert_eq!(fs::read(folder.join("weights")).unwrap(), b"a");
        run.remove_weights().unwrap();
        assert!(!path.join("weights").exists());
    }
    // A process that is killed leaves these weights behind.
    run.publish_weights(2, weights("a")).unwrap();
    drop(run);
    open(&path).unwrap();
    assert!(!path.join("weights").exists());
}

#[test]
fn steps_out_of_order_are_rejected_and_repeated_steps_have_no_effect() {
    let dir = TempDir::new().unwrap();
    let run = create(&dir.path().join("run"));
    let refused = |result: Result<()>, expected: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    refused(run.finish_sampling(0), "no round has begun");
    run.start_round(3).unwrap();
    let started = run.plan(0).unwrap();
    run.start_round(3).unwrap();
    assert_eq!(run.plan(0).unwrap(), started);
    refused(run.start_round(4), "round 4 cannot be started now: round 3 is started");
    refused(run.skip_update(3, ""), "cannot be updated now");
    refused(run.publish_round(&metrics(3), |_| Ok(())).map(drop), "cannot be published now");
    run.finish_sampling(3).unwrap();
    let first = run.publish_checkpoint(3, "", weights("a")).unwrap();
    let second = run.publish_checkpoint(3, "", weights("b")).unwrap();
    assert_eq!((first, fs::read(second.directory.join("weights")).unwrap()), (second.clone(), b"a".to_vec()));
    run.publish_round(&metrics(3), |_| Ok(())).unwrap();
    run.publish_round(&metrics(3), |_| panic!("published twice")).unwrap();
    refused(run.start_round(5), "round 5 cannot");
}

/// While a round is being published, the next one is sampled and its results are journalled.
#[test]
fn a_round_may_start_while_the_previous_one_is_published() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let begin = |run: &RunDir| {
        run.start_round(0).unwrap();
        run.journal().append(vec![record(0, 0)]).unwrap();
        run.finish_sampling(0).unwrap();
        run.start_round(1).unwrap();
        run.journal().append_durably(vec![record(1, 0), record(1, 1)]).unwrap();
    };
    // The weights were lost with the process, so samples from these weights are removed, and samples for their update
    // are kept.
    let run = create(&path);
    begin(&run);
    run.finish_sampling(1).unwrap();
    let error = run.skip_update(1, "").unwrap_err().to_string();
    assert!(
        error.contains("round 1 cannot be updated now"),
        "an update before that of the previous round: {error}"
    );
    let error = run.start_round(2).unwrap_err().to_string();
    assert!(error.contains("round 2 cannot be started now"), "two rounds are already in progress: {error}");
    drop(run);
    let run = open(&path).unwrap();
    assert_eq!(run.journal().reader().rounds_with_records().unwrap(), [0]);
    let plan = run.plan(0).unwrap();
    assert_eq!((plan.round, plan.next), (0, NextStep::Update));
    assert_eq!(run.next_step(1).unwrap(), NextStep::Start);
    drop(run);

    // The weights are durable, so the next round's results are kept, and it continues after the publication.
    let path = dir.path().join("other");
    let run = create(&path);
    begin(&run);
    run.publish_checkpoint(0, "", weights("a")).unwrap();
    drop(run);
    let run = open(&path).unwrap();
    let plan = run.plan(0).unwrap();
    assert_eq!((plan.round, plan.next), (0, NextStep::Publish));
    assert_eq!(run.next_step(1).unwrap(), NextStep::Sample);
    run.publish_round(&metrics(0), |_| Ok(())).unwrap();
    assert_eq!(
        run.journal().reader().rounds_with_records().unwrap(),
        [1],
        "only the published round is retired"
    );
    let plan = run.plan(0).unwrap();
    assert_eq!((plan.round, plan.next, plan.records["rollout"]), (1, NextStep::Sample, 2));
}

#[test]
fn prepared_directories_appear_when_they_are_published() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    let shown = |part: &str| {
        let names = fs::read_dir(path.join(part)).unwrap().map(|e| e.unwrap().file_name());
        names.filter(|name| !name.to_string_lossy().starts_with('.')).count()
    };
    // Prepare them before the round has started, in any order, and one of them twice.
    let tables = run.prepare_round(&metrics(0), |_| Ok(())).unwrap();
    let checkpoint = run.prepare_checkpoint(0, "loss", weights("a")).unwrap();
    drop(run.prepare_checkpoint(0, "", weights("never published")).unwrap());
    assert_eq!((shown("checkpoints"), shown("rounds")), (0, 0));
    run.start_round(0).unwrap();
    run.journal().append(vec![record(0, 0), record(0, 1)]).unwrap();
    let early = run.prepare_checkpoint(0, "", weights("b")).unwrap();
    let error = run.publish_prepared_checkpoint(early).unwrap_err().to_string();
    assert!(error.contains("cannot be updated now"), "{error}");
    run.finish_sampling(0).unwrap();
    let checkpoint = run.publish_prepared_checkpoint(checkpoint).unwrap();
    checkpoint.check().unwrap();
    assert_eq!(checkpoint.about().unwrap().detail, "loss");
    assert_eq!(fs::read(checkpoint.directory.join("weights")).unwrap(), b"a");
    run.publish_prepared_round(tables).unwrap().check().unwrap();
    assert_eq!(run.plan(0).unwrap().next, NextStep::Start);
    assert!(run.prepare_checkpoint(0, "", weights("c")).is_err(), "it is published");
    assert_eq!(fs::read_dir(path.join("checkpoints")).unwrap().count(), 1, "no unfinished directory remains");
    drop(run);
    // The records are removed before the journal closes.
    let view = RunView::open(&path).unwrap();
    assert!(view.journal().unwrap().rounds_with_records().unwrap().is_empty());
}

#[test]
fn a_failing_caller_leaves_no_files_and_may_try_again() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    run.start_round(0).unwrap();
    run.finish_sampling(0).unwrap();
    let failed = run.publish_checkpoint(0, "", |staging| {
        fs::write(staging.join("half"), b"x")?;
        Err("the loss is not a number".into())
    });
    let failed = failed.unwrap_err();
    let cause = std::error::Error::source(&failed).map(ToString::to_string);
    assert_eq!(cause.as_deref(), Some("the loss is not a number"));
    assert_eq!(fs::read_dir(path.join("checkpoints")).unwrap().count(), 0);
    run.publish_checkpoint(0, "", weights("a")).unwrap();
    assert!(run.publish_round(&metrics(0), |_| Err("no tables".into())).is_err());
    assert_eq!(fs::read_dir(path.join("rounds")).unwrap().count(), 0);
    run.publish_round(&metrics(0), |_| Ok(())).unwrap();
}

#[test]
fn a_second_process_and_a_directory_with_other_files_are_rejected() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    let error = open(&path).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }));
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    drop(run);
    let error = RunDir::create(&path, &config(), None).unwrap_err().to_string();
    assert!(error.contains("already holds a run; to continue it: `sgs resume "), "{error}");
    let foreign = dir.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.tex"), b"").unwrap();
    let error = RunDir::create(&foreign, &config(), None).unwrap_err().to_string();
    assert!(error.contains("thesis.tex") && !error.contains("resume"), "{error}");
    let error = RunDir::create(&foreign.join("thesis.tex"), &config(), None).unwrap_err().to_string();
    assert!(error.contains("cannot create the folder") && error.contains("it is a file"), "{error}");
    for folder in [foreign, dir.path().join("absent")] {
        let error = open(&folder).unwrap_err().to_string();
        assert!(error.contains("is not a run: it has no config.toml; give a folder"), "{error}");
    }
}

#[test]
fn another_configuration_is_rejected() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    drop(create(&path));
    let run = open(&path).unwrap();
    run.check_config(&config()).unwrap();
    let other = FrozenConfig { text: "k = 16".into(), ..config() };
    let error = run.check_config(&other).unwrap_err().to_string();
    assert!(error.contains("'k' is 8 in the run and 16 now"), "{error}");
}

#[test]
fn a_damaged_checkpoint_is_reported_with_the_newest_intact_one() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    whole_round(&run, 0);
    whole_round(&run, 1);
    fs::write(path.join("checkpoints/0001/weights"), b"torn").unwrap();
    let error = run.plan(0).unwrap_err().to_string();
    assert!(error.contains("checkpoints/0001 is damaged: weights has SHA-256"), "{error}");
    assert!(error.contains("checkpoints/0000"), "{error}");
    fs::remove_dir_all(path.join("checkpoints/0001")).unwrap();
    let error = run.plan(0).unwrap_err().to_string();
    assert!(error.contains("it is missing") && error.contains("checkpoints/0000"), "{error}");
}

#[test]
fn without_its_journal_a_run_continues_after_the_last_published_round() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    whole_round(&run, 0);
    whole_round(&run, 1);
    run.start_round(2).unwrap();
    run.finish_sampling(2).unwrap();
    run.publish_checkpoint(2, "", weights("2")).unwrap();
    drop(run);
    fs::write(path.join("journal.sqlite"), vec![0x55; 9000]).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }) && error.to_string().contains("move it away"), "{error}");
    for name in ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"] {
        let _ = fs::remove_file(path.join(name));
    }
    let run = open(&path).unwrap();
    let plan = run.plan(0).unwrap();
    assert_eq!((plan.round, plan.next, plan.published), (2, NextStep::Start, 2));
    assert_eq!(plan.checkpoint.unwrap().round, 1);
    whole_round(&run, 2);
}

#[test]
fn a_missing_published_round_is_reported() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    whole_round(&run, 0);
    drop(run);
    fs::remove_dir_all(path.join("rounds/0000")).unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("rounds/0000") && error.contains("missing"), "{error}");
}

#[test]
fn sinks_are_brought_up_to_date_and_a_failing_one_is_disabled() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    whole_round(&run, 0);
    run.sinks().unwrap();
    whole_round(&run, 1);
    whole_round(&run, 2);
    let sinks = run.sinks().unwrap();
    assert!(sinks.failures().is_empty());
    let lines = || fs::read_to_string(path.join("metrics.jsonl")).unwrap().lines().count();
    assert_eq!(lines(), 3);
    drop(sinks);
    // Replace the directory of event files by a file.
    fs::remove_dir_all(path.join("tensorboard")).unwrap();
    fs::write(path.join("tensorboard"), b"").unwrap();
    whole_round(&run, 3);
    let sinks = run.sinks().unwrap();
    assert_eq!((sinks.failures().len(), lines()), (1, 4));
    assert!(sinks.failures()[0].contains("TensorBoard"), "{:?}", sinks.failures());
}

#[test]
fn altered_metrics_of_all_rounds_are_reported() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    (0..3).for_each(|round| whole_round(&run, round));
    let mut evaluation = MetricValues::of_evaluation(2);
    evaluation.set("held_out/pass@1", f64::NAN);
    run.publish_evaluation(&evaluation, Vec::new()).unwrap();
    run.sinks().unwrap();
    let file = path.join("metrics.jsonl");
    let damages = || RunView::open(&path).unwrap().examine().unwrap().damages;
    assert!(damages().is_empty(), "{:?}", damages());
    let text = fs::read_to_string(&file).unwrap();
    let without =
        |n: usize| text.lines().enumerate().filter(move |(i, _)| *i != n).map(|(_, l)| format!("{l}\n"));
    for (altered, what) in [
        (text.replace("16.0", "17.0"), "line 3 differs from the metrics of round 2"),
        (text.replace("null", "0.5"), "line 4 differs from the metrics of evaluation 2"),
        (text.replace("{\"round\":1,", "{\"round\":8,"), "line 2 is about round 8, which is missing"),
        (without(1).collect(), "it lacks round 1"),
        ("{}".into(), "line 1 is not the metrics of a round"),
        ("{}\n".into(), "line 1 is not the metrics of a round"),
    ] {
        assert_ne!(altered, text);
        fs::write(&file, altered).unwrap();
        let found = damages();
        assert!(found.len() == 1 && found[0].to_string().contains(what), "{what}: {found:?}");
        let sinks = run.sinks().unwrap();
        assert!(sinks.failures()[0].contains(what), "{:?}", sinks.failures());
    }
    // Without the last lines, or with a torn one, it is only behind.
    fs::write(&file, &text[..text.len() - 5]).unwrap();
    assert!(damages().is_empty(), "{:?}", damages());
    assert!(run.sinks().unwrap().failures().is_empty());
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn evaluations_are_recorded_once_and_removed_with_lost_weights() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    let row = EvaluationRow {
        set: EvaluatedSet::HeldOut,
        id: ProblemId::new("p"),
        statement: "s".into(),
        context: "c".into(),
        judged: 8,
        proved: 1,
        proof: Some("proof".into()),
    };
    let evaluate = |run: &RunDir, after| {
        let mut metrics = MetricValues::of_evaluation(after);
        metrics.set("held_out/pass@1", 0.125);
        run.publish_evaluation(&metrics, vec![row.clone()]).unwrap()
    };
    let read: Vec<_> = evaluate(&run, 0).problems().unwrap().map(Result::unwrap).collect();
    assert_eq!(read, std::slice::from_ref(&row));
    whole_round(&run, 0);
    evaluate(&run, 1);
    run.sinks().unwrap();
    // Publish an evaluation during the publication of the previous round, whose update is then lost.
    run.start_round(1).unwrap();
    run.finish_sampling(1).unwrap();
    evaluate(&run, 2);
    drop(run);
    let run = open(&path).unwrap();
    let after = |run: &RunDir| run.view().evaluations().unwrap().iter().map(|e| e.after).collect::<Vec<_>>();
    assert_eq!(after(&run), [0, 1]);
    // Altered metrics are detected.
    let evaluation = run.view().evaluations().unwrap().remove(0);
    let file = evaluation.directory().join("metrics.json");
    let published = fs::read_to_string(&file).unwrap();
    assert_eq!(evaluation.metrics().unwrap().scalars["held_out/pass@1"], 0.125);
    fs::write(&file, published.replace("0.125", "0.875")).unwrap();
    let error = evaluation.metrics().unwrap_err().to_string();
    assert!(error.contains("metrics.json has SHA-256"), "{error}");
    fs::write(&file, published).unwrap();
    // Each evaluation is recorded once, even if the sinks are opened repeatedly. A round with the same number is
    // recorded as well.
    run.skip_update(1, "").unwrap();
    run.publish_round(&metrics(1), |_| Ok(())).unwrap();
    for _ in 0..2 {
        assert!(run.sinks().unwrap().failures().is_empty());
    }
    let text = fs::read_to_string(path.join("metrics.jsonl")).unwrap();
    let lines: Vec<MetricValues> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind| lines.iter().filter(|m| m.kind == kind).map(|m| m.round).collect::<Vec<_>>();
    assert_eq!((of(MetricKind::Round), of(MetricKind::Evaluation)), (vec![0, 1], vec![0, 1]));
    let mut steps = Vec::new();
    for entry in fs::read_dir(path.join("tensorboard")).unwrap() {
        steps.extend(read_events(&entry.unwrap().path()).iter().map(|e| e.step));
    }
    assert_eq!(
        steps.len(),
        4 + fs::read_dir(path.join("tensorboard")).unwrap().count(),
        "and one head per file"
    );
}

#[test]
fn every_table_of_a_round_is_read_back_unchanged() {
    let dir = TempDir::new().unwrap();
    let run = create(&dir.path().join("run"));
    run.start_round(0).unwrap();
    run.finish_sampling(0).unwrap();
    run.skip_update(0, "").unwrap();
    let (problem, conjecture, rollout, review, example) = rows();
    let published = run
        .publish_round(&metrics(0), |tables| {
            tables.problems.push(problem.clone())?;
            tables.conjectures.push(conjecture.clone())?;
            tables.rollouts.push(rollout.clone())?;
            tables.reviews.push(review.clone())?;
            tables.examples.push(example.clone())?;
            tables.write_json("state.json", &[1, 2])?;
            Ok(())
        })
        .unwrap();
    published.check().unwrap();
    assert_eq!(published.problems().unwrap().collect::<Result<Vec<_>>>().unwrap(), [problem]);
    assert_eq!(published.conjectures().unwrap().collect::<Result<Vec<_>>>().unwrap(), [conjecture]);
    assert_eq!(published.rollouts().unwrap().collect::<Result<Vec<_>>>().unwrap(), [rollout]);
    assert_eq!(published.reviews().unwrap().collect::<Result<Vec<_>>>().unwrap(), [review]);
    assert_eq!(published.examples().unwrap().collect::<Result<Vec<_>>>().unwrap(), [example]);
    assert_eq!(published.read_json::<Vec<u32>>("state.json").unwrap(), [1, 2]);
    assert_eq!(published.metrics().unwrap().scalars, metrics(0).scalars);
}

fn rows() -> (ProblemRow, ConjectureRow, RolloutRow, ReviewRow, ExampleRow) {
    let id = ProblemId::new("syl");
    let conjecture_id = ProblemId::new("c0-syl-0");
    let problem = ProblemRow {
        id: id.clone(),
        kind: ProblemKind::Target,
        target: None,
        statement: "|- ( ph -> ch )".into(),
        context: "syl".into(),
        rollouts: 8,
        judged: 7,
        proved: 1,
        solve_rate: Some(1.0 / 7.0),
        solved_before: false,
        newly_solved: true,
        selected: true,
        features: sgs_selfplay::Features {
            length: 12,
            conclusion_length: 5,
            disjunctions: 0,
            conjunctions: 0,
            implications: 1,
            depth: 1,
            hypotheses: 2,
        },
    };
    let conjecture = ConjectureRow {
        id: conjecture_id.clone(),
        target: id.clone(),
        index: 0,
        status: ConjectureRowStatus::Duplicate,
        reason: String::new(),
        duplicate_of: Some(id.clone()),
        statement: Some("|- ( ph -> ch )".into()),
        solve_rate: None,
        r_solve: None,
        r_guide: Some(8.0),
        review_failed: false,
        r_synth: None,
        reward: Some(0.0),
        weight: Some(-0.25),
        sample: SampleColumns {
            text: "|- ( ph -> ch ) é".into(),
            prompt_tokens: vec![1, 2].into(),
            tokens: vec![3, 4, 5],
            log_probs: vec![-0.5, -1.25, 0.0],
            entropy: Some(0.75),
            finish: Some(FinishReason::Stop),
            policy_version: Some(4),
            seed: u64::MAX - 5,
        },
    };
    let rollout = RolloutRow {
        problem: id.clone(),
        index: 7,
        proof: None,
        verdict: Verdict::Infra,
        reason: "the worker died".into(),
        step: None,
        micros: 0,
        penalised: false,
        reward: None,
        weight: None,
        sample: SampleColumns {
            text: String::new(),
            prompt_tokens: vec![].into(),
            tokens: vec![],
            log_probs: vec![],
            entropy: None,
            finish: None,
            policy_version: None,
            seed: 3,
        },
    };
    let review = ReviewRow {
        conjecture: conjecture_id,
        index: 1,
        reason: String::new(),
        relevance: Some(5.0),
        redundancy: Some(0.0),
        complexity: Some(1.0),
        r_guide: Some(7.0),
        sample: SampleColumns {
            text: "relevance 5".into(),
            prompt_tokens: vec![9].into(),
            tokens: vec![8],
            log_probs: vec![-0.125],
            entropy: Some(0.5),
            finish: Some(FinishReason::Length),
            policy_version: Some(0),
            seed: 1 << 63,
        },
    };
    let example = ExampleRow {
        role: Role::Solver,
        round: 0,
        kind: SampleKind::Rollout,
        problem: id,
        index: 2,
        weight: -0.5,
        generated_tokens: 40,
        group: Some(3),
        group_tokens: Some(320),
    };
    (problem, conjecture, rollout, review, example)
}

#[test]
fn a_forgotten_round_starts_again() {
    let dir = TempDir::new().unwrap();
    let run = create(&dir.path().join("run"));
    run.start_round(0).unwrap();
    run.journal().append(vec![record(0, 0)]).unwrap();
    run.finish_sampling(0).unwrap();
    run.forget_round(0).unwrap();
    let plan = run.plan(0).unwrap();
    assert_eq!((plan.round, plan.next, plan.records.len()), (0, NextStep::Start, 0));
    whole_round(&run, 0);
    assert_eq!(run.plan(0).unwrap().round, 1);
}

#[test]
fn files_that_a_run_needs_are_checked_when_it_is_opened() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    for round in 0..2 {
        run.start_round(round).unwrap();
        run.finish_sampling(round).unwrap();
        run.publish_checkpoint(round, "", weights(&round.to_string())).unwrap();
        run.publish_round(&metrics(round), |tables| Ok(tables.write_json("outcome.json", &[round, 17])?))
            .unwrap();
    }
    drop(run);
    // Name of the altered file, the alteration, and two parts of the expected message.
    type Change = fn(String) -> String;
    let changes: [(&str, Change, [&str; 2]); 6] = [
        (
            "rounds/0000/outcome.json",
            |text| text.replace("17", "18"),
            ["rounds/0000", "outcome.json has SHA-256"],
        ),
        (
            "rounds/0001/metrics.json",
            |text| text.replace('8', "9"),
            ["rounds/0001", "metrics.json has SHA-256"],
        ),
        (
            "rounds/0000/SHA256SUMS",
            |text| {
                text.lines().filter(|l| !l.ends_with("rollouts.parquet")).map(|l| format!("{l}\n")).collect()
            },
            ["rounds/0000", "does not name rollouts.parquet: the list has lost a line"],
        ),
        ("rounds/0000/SHA256SUMS", |_| String::new(), ["rounds/0000", "the list has lost a line"]),
        (
            "config.toml",
            |text| text.replace("k = 8", "k = 9"),
            ["config.toml is damaged: it has SHA-256", "undo the change"],
        ),
        (
            "SHA256SUMS",
            |_| String::new(),
            ["the list has lost a line", "the configuration of a run is fixed"],
        ),
    ];
    for (name, change, words) in changes {
        let file = path.join(name);
        let text = fs::read_to_string(&file).unwrap();
        let changed = change(text.clone());
        assert_ne!(changed, text, "{name}");
        fs::write(&file, changed).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{name}: {error}");
        fs::write(&file, text).unwrap();
    }
    let journal = fs::read(path.join("journal.sqlite")).unwrap();
    fs::write(path.join("journal.sqlite"), b"").unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(
        error.contains("journal.sqlite is damaged: it is empty") && error.contains("move it away"),
        "{error}"
    );
    fs::write(path.join("journal.sqlite"), journal).unwrap();
    drop(open(&path).unwrap());
    // Large files are only read by `examine`, which reports all damage.
    let view = RunView::open(&path).unwrap();
    let examined = view.examine().unwrap();
    // The files are the configuration and the journal; five tables and two JSON files in each round; two files in each
    // checkpoint.
    assert_eq!((examined.files, examined.damages.len()), (2 + 2 * 7 + 2 * 2, 0));
    fs::write(path.join("rounds/0000/rollouts.parquet"), b"altered").unwrap();
    fs::write(path.join("checkpoints/0000/weights"), b"altered").unwrap();
    fs::write(path.join("checkpoints/0001/stranger"), b"added").unwrap();
    drop(open(&path).unwrap());
    let damages: Vec<String> = view.examine().unwrap().damages.iter().map(ToString::to_string).collect();
    assert_eq!(damages.len(), 3, "{damages:?}");
    for (damage, words) in damages.iter().zip(["rollouts.parquet has", "weights has", "stranger is not in"]) {
        assert!(damage.contains(words), "{damages:?}");
    }
    // Without the directory of a round, the run does not resume.
    assert!(!damages[0].contains("remove") && damages[1].contains("or remove the folder"), "{damages:?}");
    // A run of an older program gets a checksum of its configuration.
    fs::remove_file(path.join("SHA256SUMS")).unwrap();
    drop(open(&path).unwrap());
    assert!(fs::read_to_string(path.join("SHA256SUMS")).unwrap().ends_with("  config.toml\n"));
}

/// An interrupted creation can be repeated, but the remains of a run are not mistaken for one.
#[test]
fn an_interrupted_creation_is_repeated_and_the_remains_of_a_run_are_rejected() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    // Create files of SQLite next to an unfinished database, as older programs left them.
    fs::create_dir_all(path.join("rounds")).unwrap();
    for name in ["journal.sqlite", "journal.sqlite-journal", ".tmp-7-0-journal.sqlite-wal"] {
        fs::write(path.join(name), b"").unwrap();
    }
    // The file that says where the workers come from is the last one before the configuration.
    fs::write(path.join("fleet.toml"), "").unwrap();
    assert!(RunDir::create(&path, &config(), None).is_err(), "a file of the user");
    fs::write(path.join("lock"), "").unwrap();
    let run = create(&path);
    assert_eq!(run.removed().len(), 1);
    assert!(!path.join("fleet.toml").exists());
    run.record_fleet(Some("url = 1")).unwrap();
    assert_eq!(fs::read_to_string(path.join("fleet.toml")).unwrap(), "url = 1");
    whole_round(&run, 0);
    drop(run);
    fs::remove_file(path.join("config.toml")).unwrap();
    let refused = |what: &str| {
        let error = RunDir::create(&path, &config(), None).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("whose config.toml is missing"), "{error}");
    };
    refused("rounds");
    for part in ["rounds/0000", "checkpoints/0000"] {
        fs::remove_dir_all(path.join(part)).unwrap();
    }
    refused("the journal");
    fs::remove_file(path.join("journal.sqlite")).unwrap();
    drop(create(&path));
}

#[test]
fn a_lost_fleet_file_is_reported_until_it_is_replaced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let file = path.join("fleet.toml");
    let missing = || {
        let view = RunView::open(&path).unwrap();
        view.check_fleet().is_err_and(|error| error.to_string().contains("resume with `--workers SPEC`"))
    };
    drop(RunDir::create(&path, &config(), Some("url = 1")).unwrap());
    assert!(!missing());
    fs::remove_file(&file).unwrap();
    assert!(missing());
    let run = open(&path).unwrap();
    run.check_config(&config()).unwrap();
    run.record_fleet(None).unwrap();
    assert!(!missing());
    run.record_fleet(Some("url = 2")).unwrap();
    run.change_config(&[("k", 9.into())]).unwrap();
    assert!(!missing());
    fs::remove_file(&file).unwrap();
    assert!(missing());
    drop(run);
    // Older programs did not record the file.
    let text = fs::read_to_string(path.join("config.toml")).unwrap();
    fs::write(path.join("config.toml"), text.replace("fleet = true\n", "")).unwrap();
    fs::remove_file(path.join("SHA256SUMS")).unwrap();
    let run = open(&path).unwrap();
    assert!(!missing());
    run.record_fleet(Some("url = 3")).unwrap();
    drop(run);
    assert!(open(&path).is_ok() && !missing());
    fs::remove_file(&file).unwrap();
    assert!(missing());
}

fn sql(path: &Path, statement: &str) {
    rusqlite::Connection::open(path.join("journal.sqlite")).unwrap().execute_batch(statement).unwrap();
}

/// Replaces the table of markers by that of an older program, in which checksums may be missing.
const OLDER_MARKERS: &str = "
    ALTER TABLE marker RENAME TO other;
    CREATE TABLE marker (round INTEGER NOT NULL, stage TEXT NOT NULL, checkpoint INTEGER, detail TEXT NOT NULL,
        unix_time REAL NOT NULL, sum TEXT, PRIMARY KEY (round, stage)) STRICT;
    INSERT INTO marker SELECT * FROM other;
    DROP TABLE other;
";

#[test]
fn an_altered_marker_is_reported_and_never_followed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    (0..3).for_each(|round| whole_round(&run, round));
    drop(run);
    sql(&path, "UPDATE marker SET checkpoint = 1");
    for error in [open(&path).unwrap_err(), RunView::open(&path).unwrap().plan(0).unwrap_err()] {
        let message = error.to_string();
        assert!(message.contains("of round 0 does not match its checksum"), "{message}");
    }
    let damages = RunView::open(&path).unwrap().examine().unwrap().damages;
    assert_eq!(damages.len(), 1, "{damages:?}");
}

#[test]
fn a_marker_whose_checksum_was_removed_is_reported() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    (0..3).for_each(|round| whole_round(&run, round));
    drop(run);
    let journal = rusqlite::Connection::open(path.join("journal.sqlite")).unwrap();
    let error = journal.execute("UPDATE marker SET sum = NULL", []).unwrap_err().to_string();
    assert!(error.contains("NOT NULL constraint"), "{error}");
    drop(journal);
    // A journal that an older program began may lack checksums.
    sql(&path, OLDER_MARKERS);
    sql(&path, "UPDATE marker SET checkpoint = 1, sum = NULL WHERE round = 2");
    let message = open(&path).unwrap_err().to_string();
    assert!(message.contains("of round 2 has lost its checksum"), "{message}");
    // Markers of an older program precede those with checksums.
    sql(
        &path,
        "UPDATE marker SET checkpoint = round WHERE stage IN ('updated', 'published'); UPDATE marker SET sum = NULL",
    );
    assert_eq!(open(&path).unwrap().plan(0).unwrap().checkpoint.unwrap().round, 2);
}

/// Without checksums of markers, the checkpoints reveal that a marker names older weights.
#[test]
fn a_marker_that_names_an_older_checkpoint_is_reported_and_never_followed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    (0..3).for_each(|round| whole_round(&run, round));
    run.start_round(3).unwrap();
    run.finish_sampling(3).unwrap();
    run.skip_update(3, "").unwrap();
    drop(run);
    sql(&path, OLDER_MARKERS);
    sql(&path, "UPDATE marker SET sum = NULL");
    fs::remove_dir_all(path.join("checkpoints/0000")).unwrap();
    assert_eq!(open(&path).unwrap().plan(0).unwrap().checkpoint.unwrap().round, 2);
    assert!(RunView::open(&path).unwrap().examine().unwrap().damages.is_empty());
    for (older, named) in [("1", "checkpoint 1"), ("NULL", "the base model")] {
        sql(&path, &format!("UPDATE marker SET checkpoint = {older} WHERE round >= 2 AND checkpoint = 2"));
        let error = open(&path).unwrap().plan(0).unwrap_err().to_string();
        assert!(
            error.contains("checkpoints/0002 is damaged: it is newer than") && error.contains(named),
            "{error}"
        );
        let damages = RunView::open(&path).unwrap().examine().unwrap().damages;
        assert!(damages.len() == 1 && damages[0].to_string() == error, "{damages:?}");
        sql(&path, "UPDATE marker SET checkpoint = 2 WHERE round >= 2 AND stage IN ('updated', 'published')");
    }
    // Without the journal, the newest checkpoint is used.
    fs::remove_file(path.join("journal.sqlite")).unwrap();
    assert_eq!(open(&path).unwrap().plan(0).unwrap().checkpoint.unwrap().round, 2);
}

/// Every file of an exchanged directory matches its checksum.
#[test]
fn exchanged_directories_are_reported_and_never_followed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    for round in 0..3 {
        whole_round(&run, round);
        run.publish_evaluation(&MetricValues::of_evaluation(round + 1), Vec::new()).unwrap();
    }
    drop(run);
    for part in ["checkpoints", "rounds", "evaluations"] {
        let [first, second, spare] = ["0001", "0002", "spare"].map(|name| path.join(part).join(name));
        let exchange = || {
            fs::rename(&first, &spare).unwrap();
            fs::rename(&second, &first).unwrap();
            fs::rename(&spare, &second).unwrap();
        };
        exchange();
        let damages = RunView::open(&path).unwrap().examine().unwrap().damages;
        assert_eq!(damages.len(), 2, "{part}: {damages:?}");
        assert!(damages[0].to_string().contains("its files are those of round 2"), "{damages:?}");
        if part != "evaluations" {
            let error = open(&path).and_then(|run| run.plan(0)).unwrap_err().to_string();
            assert!(error.contains("its files are those of round"), "{part}: {error}");
        }
        exchange();
        assert!(open(&path).unwrap().plan(0).is_ok());
    }
}

#[test]
fn links_to_other_files_are_not_written_through() {
    let dir = TempDir::new().unwrap();
    let (path, other) = (dir.path().join("run"), dir.path().join("other"));
    drop(create(&path));
    fs::write(&other, "precious").unwrap();
    for name in ["lock", "metrics.jsonl", "journal.sqlite"] {
        let file = path.join(name);
        let own = fs::read(&file).ok();
        let _ = fs::remove_file(&file);
        std::os::unix::fs::symlink(&other, &file).unwrap();
        let error = RunDir::open(&path).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("not a regular file"), "{error}");
        fs::remove_file(&file).unwrap();
        if let Some(own) = own {
            fs::write(&file, own).unwrap();
        }
    }
    assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    RunDir::open(&path).unwrap();
}

#[test]
fn a_checkpoint_of_another_run_is_not_loaded() {
    let dir = TempDir::new().unwrap();
    let [own, other] = ["own", "other"].map(|name| dir.path().join(name));
    for path in [&own, &other] {
        let run = create(path);
        run.start_round(0).unwrap();
        run.finish_sampling(0).unwrap();
        run.publish_checkpoint(0, &format!("loss of {}", path.display()), weights("a")).unwrap();
        run.publish_round(&metrics(0), |_| Ok(())).unwrap();
    }
    fs::remove_dir_all(own.join("checkpoints/0000")).unwrap();
    fs::rename(other.join("checkpoints/0000"), own.join("checkpoints/0000")).unwrap();
    let error = open(&own).unwrap().plan(0).unwrap_err().to_string();
    assert!(error.contains("is not the checkpoint that the journal records"), "{error}");
}

/// Training and exports read these tables.
#[test]
fn an_altered_table_is_not_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    (0..2).for_each(|round| whole_round(&run, round));
    let table = |round: &str| path.join("rounds").join(round).join("rollouts.parquet");
    fs::write(table("0000"), b"PAR1").unwrap();
    let error = run.view().round(0).unwrap().rollouts().err().unwrap().to_string();
    assert!(error.contains("rollouts.parquet has SHA-256"), "{error}");
    assert_eq!(run.view().round(1).unwrap().rollouts().unwrap().count(), 0);
}

/// Older programs wrote markers without checksums, into a table without the column.
#[test]
fn a_journal_without_checksums_of_markers_is_resumed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    whole_round(&run, 0);
    drop(run);
    sql(&path, "ALTER TABLE marker DROP COLUMN sum");
    assert_eq!(RunView::open(&path).unwrap().plan(0).unwrap().round, 1);
    let run = open(&path).unwrap();
    whole_round(&run, 1);
    assert_eq!(run.plan(0).unwrap().checkpoint.unwrap().round, 1);
}

const READ_ONLY_RUN: &str = "SGS_RUNDIR_READ_ONLY_RUN";
const CLOSED_PARTS: &str = "SGS_RUNDIR_CLOSED_PARTS";

/// This is not a test, but the process that `a_run_is_sound_for_a_user_who_may_only_read_it` starts as another user.
#[test]
#[ignore = "started by another test as a child process"]
fn read_only_child() {
    let Ok(path) = std::env::var(READ_ONLY_RUN) else { return };
    let view = RunView::open(Path::new(&path)).unwrap();
    let report = view.examine().unwrap();
    let closed = std::env::var(CLOSED_PARTS).is_ok();
    assert!(report.damages.is_empty() && report.notes.len() == if closed { 3 } else { 0 }, "{report:?}");
    assert!(closed || view.plan(0).unwrap().round == 2);
    assert!(fs::write(Path::new(&path).join("probe"), "").is_err(), "the user may write");
}

#[test]
fn a_run_is_sound_for_a_user_who_may_only_read_it() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let open_to_all = |base: &Path| {
        base.ancestors().all(|part| fs::metadata(part).is_ok_and(|about| about.mode() & 0o001 != 0))
    };
    // The other user must be able to reach the files, but TMPDIR may be in a folder that only this user may enter.
    let bases = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
    let base = bases.iter().find(|base| open_to_all(base)).expect("no temporary folder is open to all users");
    let dir = TempDir::new_in(base).unwrap();
    let path = dir.path().join("run");
    let run = create(&path);
    (0..2).for_each(|round| whole_round(&run, round));
    drop(run);
    let is_root = fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
    let program = dir.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mode = |part: &str, mode| {
        fs::set_permissions(path.join(part), fs::Permissions::from_mode(mode)).unwrap();
    };
    let mut child = std::process::Command::new(&program);
    child.args(["--exact", "run::read_only_child", "--ignored"]).env(READ_ONLY_RUN, &path);
    if is_root {
        child.uid(NOBODY).gid(NOBODY);
    }
    mode("", 0o555);
    let open = child.output().unwrap();
    // Parts that the user may not even list are not reported as damaged, either.
    let parts = ["rounds/0001", "checkpoints/0000", "checkpoints/0001/SHA256SUMS"];
    parts.iter().for_each(|part| mode(part, 0o000));
    let closed = is_root.then(|| child.env(CLOSED_PARTS, "").output().unwrap());
    parts.iter().for_each(|part| mode(part, 0o755));
    mode("", 0o755);
    for output in [Some(open), closed].into_iter().flatten() {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
