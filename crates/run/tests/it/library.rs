//! Tests a run as a library, with the formal system of the example, which is not part of this crate.
#![allow(clippy::unwrap_used)]

use crate::system;
use sgs_run::config::held_out::EvaluationConfig;
use sgs_run::config::{self, Layers};
use sgs_run::config::{SystemName, base_model, folder};
use sgs_run::lm_cpu::Cpu;
use sgs_run::round::record::{self, Entry};
use sgs_run::train::policies;
use sgs_run::{Outcome, RoundStage, RunEvent, Runner, StopFlag};
use sgs_rundir::rows::{ConjectureRowStatus, EvaluatedSet};
use sgs_rundir::{NextStep, PublishedRound, RunView};
use sgs_selfplay::{Event, ProblemId, TaskKey, TaskKind};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn runner(folder: &Path, rounds: u32) -> Runner<Cpu> {
    runner_with(folder, rounds, &[])
}

/// Returns the setting that makes a run start from the small model of the tests.
fn small_model() -> String {
    concat!("model.base=", env!("CARGO_MANIFEST_DIR"), "/tests/data/small-model").to_owned()
}

pub(crate) fn runner_with(folder: &Path, rounds: u32, settings: &[&str]) -> Runner<Cpu> {
    let mut set = vec![
        small_model(),
        format!("rounds={rounds}"),
        "sampling.solver_tokens=4".to_owned(),
        "sampling.batch=64".to_owned(),
        "algorithm.guide.min_readable=0".to_owned(),
    ];
    set.extend(settings.iter().map(|s| (*s).to_owned()));
    let config = config::resolve(&Layers { set, ..Layers::default() }, std::iter::empty()).unwrap().config;
    Runner {
        run: Arc::new(folder::begin(&config, folder).unwrap()),
        base: policies::base_folder(&config, &folder.join("base")).unwrap(),
        system: Arc::new(system::Echo),
        targets: system::targets(),
        held_out: Vec::new(),
        device: Arc::new(Cpu::new(2).unwrap()),
        config: Arc::new(config),
        interrupt: StopFlag::default(),
        fleet: None,
        process_group: None,
    }
}

/// Creates a run of the smallest size on Metamath.
pub(crate) fn metamath(folder: &Path, method: &str, settings: &[&str]) -> Runner<Cpu> {
    let small = [
        "minutes=0",
        "evaluation.held_out=none",
        "algorithm.rollouts_per_problem=4",
        "training.micro_batch_tokens=512",
    ];
    let own = small.iter().chain(settings).map(|s| (*s).to_owned());
    let set = std::iter::once(small_model()).chain(own).collect();
    let (method, size) = (Some(method.into()), Some("metamath-quick".into()));
    let layers = Layers { method, size, set, ..Layers::default() };
    let config = config::resolve(&layers, std::iter::empty()).unwrap().config;
    let opened = sgs_run::config::system::metamath("shipped", "quick").unwrap();
    Runner {
        run: Arc::new(folder::begin(&config, folder).unwrap()),
        base: policies::base_folder(&config, &folder.join("base")).unwrap(),
        system: opened.system,
        targets: opened.targets.into_iter().map(Arc::new).collect(),
        held_out: Vec::new(),
        device: Arc::new(Cpu::new(2).unwrap()),
        config: Arc::new(config),
        interrupt: StopFlag::default(),
        fleet: None,
        process_group: None,
    }
}

#[test]
fn a_process_opens_the_shipped_database_once() {
    let [one, other] =
        ["quick", "held-out"].map(|set| sgs_run::config::system::metamath("shipped", set).unwrap().system);
    assert!(Arc::ptr_eq(&one, &other));
}

#[test]
fn a_run_tells_what_happens_and_leaves_it_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run");
    let (mut boards, mut stages, mut finished, mut published) = (0, Vec::new(), Vec::new(), Vec::new());
    let outcome = runner(&folder, 2)
        .work(&mut |event| match event {
            RunEvent::Board(_) => boards += 1,
            RunEvent::Stage { round, stage, .. } => stages.push((round, stage.as_str())),
            RunEvent::RoundFinished { outcome, metrics } => {
                assert_eq!(outcome.round, metrics.round);
                assert_eq!(outcome.targets().count(), 8);
                finished.push(outcome.round);
            }
            RunEvent::RoundPublished { round, .. } => published.push(round),
            RunEvent::Warning(text) => panic!("{text}"),
            _ => {}
        })
        .unwrap();
    assert_eq!(outcome, Outcome::Done);
    assert_eq!((boards, finished, published), (1, vec![0, 1], vec![0, 1]));
    assert_eq!(stages, [(0, "sampling"), (0, "updating"), (1, "sampling"), (1, "updating")]);
    let view = RunView::open(&folder).unwrap();
    assert_eq!(view.rounds().unwrap().len(), 2);
    assert_eq!(view.state().unwrap().next_round, 2);
}

#[test]
fn the_check_of_the_guide_is_a_stage() {
    let dir = tempfile::tempdir().unwrap();
    let (mut stages, mut reviews) = (Vec::new(), 0);
    let ended =
        runner_with(&dir.path().join("run"), 1, &["algorithm.guide.min_readable=1"]).work(&mut |event| {
            match event {
                RunEvent::Stage { round, stage, .. } => stages.push((round, stage)),
                RunEvent::Progress(progress) => reviews = progress.reviews.asked,
                _ => {}
            }
        });
    let told = format!("{:#}", ended.unwrap_err());
    assert!(told.contains("reviews can be read"), "{told}");
    assert_eq!((stages, reviews), (vec![(0, RoundStage::Evaluating)], 64));
}

/// Returns the metrics of the rounds that do not depend on time or machine.
pub(crate) fn numbers(folder: &Path) -> Vec<BTreeMap<String, f64>> {
    let measured = ["time_", "memory", "_per_s", "rank_"];
    let rounds = RunView::open(folder).unwrap().rounds().unwrap();
    let of = |round: &PublishedRound| {
        let mut scalars = round.metrics().unwrap().scalars;
        scalars.retain(|name, value| value.is_finite() && !measured.iter().any(|m| name.contains(m)));
        scalars
    };
    rounds.iter().map(of).collect()
}

#[test]
fn held_out_problems_are_tried_and_change_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let evaluated = dir.path().join("evaluated");
    let mut with = runner(&evaluated, 3);
    let held_out = with.targets.split_off(6);
    let mut without = runner(&dir.path().join("without"), 3);
    without.targets.truncate(6);
    without.work(&mut |_| ()).unwrap();
    let config = Arc::make_mut(&mut with.config);
    config.evaluation =
        EvaluationConfig { samples: 4, every: 2, target_samples: 2, ..config.evaluation.clone() };
    with.held_out = held_out;
    let (mut told, mut stages) = (Vec::new(), Vec::new());
    with.work(&mut |event| match event {
        RunEvent::Evaluated { metrics } => told.push(metrics.clone()),
        RunEvent::Stage { round, stage: RoundStage::Evaluating, .. } => stages.push(round),
        _ => {}
    })
    .unwrap();
    assert_eq!(stages, [0, 2, 3], "before the first round, every second one, and at the end");
    assert_eq!(numbers(&evaluated), numbers(&dir.path().join("without")), "the rounds are what they were");
    let view = RunView::open(&evaluated).unwrap();
    let on_disk = view.evaluations().unwrap();
    assert_eq!(on_disk.iter().map(|e| e.metrics().unwrap()).collect::<Vec<_>>(), told);
    let rows = |i: usize| on_disk[i].problems().unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let tried = rows(0).iter().map(|r| (r.set, r.judged)).collect::<Vec<_>>();
    let expected = [vec![(EvaluatedSet::HeldOut, 4); 2], vec![(EvaluatedSet::Targets, 2); 6]].concat();
    assert_eq!(tried, expected, "the base model is tried on the targets too");
    assert_eq!(rows(2).len(), 2);
    let proved: f64 = rows(2).iter().map(|r| f64::from(r.proved) / f64::from(r.judged)).sum::<f64>() / 2.0;
    assert_eq!(told[2].scalars["held_out/pass@1"], proved);
    let seconds = told.iter().map(|m| m.scalars["held_out/seconds"]).sum::<f64>();
    assert!(seconds > 0.0);
    // The metrics have a line for every evaluation and every round.
    let lines = std::fs::read_to_string(evaluated.join("metrics.jsonl")).unwrap();
    assert_eq!(lines.lines().filter(|l| l.contains("held_out/pass@4")).count(), 3);
    assert_eq!(lines.lines().count(), 6);
    // A run that is finished and evaluated has nothing left to do.
    let (run, config) = folder::reopen(&evaluated).unwrap();
    assert_eq!(config.evaluation.held_out, "held-out");
    assert_eq!(run.view().evaluations().unwrap().len(), 3);
}

#[test]
fn an_interrupt_ends_a_run_that_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run");
    let first = runner(&folder, 3);
    let stop = first.interrupt.flag();
    let outcome = first
        .work(&mut |event| {
            if let RunEvent::Stage { round: 1, .. } = event {
                stop.store(true, std::sync::atomic::Ordering::Release);
            }
        })
        .unwrap();
    assert_eq!(outcome, Outcome::Interrupted);
    let (run, config) = folder::reopen(&folder).unwrap();
    let base = policies::base_folder(&config, &folder.join("base")).unwrap();
    let again = Runner {
        run: Arc::new(run),
        base,
        system: Arc::new(system::Echo),
        targets: system::targets(),
        held_out: Vec::new(),
        device: Arc::new(Cpu::new(2).unwrap()),
        config: Arc::new(config),
        interrupt: StopFlag::default(),
        fleet: None,
        process_group: None,
    };
    assert_eq!(again.work(&mut |_| ()).unwrap(), Outcome::Done);
    assert_eq!(RunView::open(&folder).unwrap().rounds().unwrap().len(), 3);
}

/// The checkpoint's configuration has the end tokens of the base model's `generation_config.json`.
#[test]
fn a_base_model_with_other_end_tokens_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let base = base_model::unpack(SystemName::Metamath, &dir.path().join("model")).unwrap();
    std::fs::write(base.join("generation_config.json"), r#"{"eos_token_id": [1, 5]}"#).unwrap();
    let folder = dir.path().join("run");
    let first = Runner { base: base.clone(), ..runner(&folder, 2) };
    let stop = first.interrupt.flag();
    let outcome = first.work(&mut |event| {
        if let RunEvent::Stage { round: 1, .. } = event {
            stop.store(true, std::sync::atomic::Ordering::Release);
        }
    });
    assert_eq!(outcome.unwrap(), Outcome::Interrupted);
    let (run, config) = folder::reopen(&folder).unwrap();
    let again = runner(&dir.path().join("unused"), 2);
    let again = Runner { run: Arc::new(run), base, config: Arc::new(config), ..again };
    assert_eq!(again.work(&mut |_| ()).unwrap(), Outcome::Done);
}

#[test]
fn what_was_lost_of_a_round_in_progress_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run");
    let runner = runner(&folder, 1);
    let key = |kind| TaskKey { round: 0, kind, problem: ProblemId::new("ph"), index: 0 };
    let lost = |kind| {
        let event = Event::Lost { key: key(kind), reason: "given up after 3 failures".into() };
        record::record(&mut [Entry { event, completion: None }]).unwrap().unwrap()
    };
    runner.run.start_round(0).unwrap();
    runner.run.journal().append_durably(vec![lost(TaskKind::Conjecture), lost(TaskKind::Rollout)]).unwrap();
    assert_eq!(runner.work(&mut |_| ()).unwrap(), Outcome::Done);
    let round = RunView::open(&folder).unwrap().round(0).unwrap();
    let conjectures: Vec<_> = round.conjectures().unwrap().map(Result::unwrap).collect();
    assert!(conjectures.iter().any(|row| &*row.target.0 == "ph" && row.index == 0));
    assert!(conjectures.iter().all(|row| row.status != ConjectureRowStatus::Lost));
    assert!(round.rollouts().unwrap().all(|row| !row.unwrap().sample.tokens.is_empty()));
}

/// The weights that the matching computed are stored in the update's marker. If another process writes the tables after
/// a crash, it cannot compute them again, because the model that they depend on no longer exists.
#[test]
fn conjectures_of_stp_keep_their_weights_through_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| {
        let folder = dir.path().join(name);
        let set = ["rounds=3", "algorithm.batch.size=24", "algorithm.conjecturer.stp.max_rate=1"];
        (metamath(&folder, "stp", &set), folder)
    };
    let weights = |folder: &Path| -> Vec<Vec<Option<f64>>> {
        let rounds = RunView::open(folder).unwrap().rounds().unwrap();
        let of =
            |round: &PublishedRound| round.conjectures().unwrap().map(|row| row.unwrap().weight).collect();
        rounds.iter().map(of).collect()
    };
    let (undisturbed, expected) = at("undisturbed");
    undisturbed.work(&mut |_| ()).unwrap();

    let (killed, folder) = at("killed");
    let taken = folder.join("rounds/0002");
    let (config, base, again) = (killed.config.clone(), killed.base.clone(), at("again").0);
    let told = killed.work(&mut |event| match event {
        // Create a folder with the name of the round's tables, so that publishing them fails after the update is
        // complete.
        RunEvent::RoundFinished { outcome, .. } if outcome.round == 2 => std::fs::create_dir(&taken).unwrap(),
        _ => {}
    });
    assert!(told.is_err());
    std::fs::remove_dir(&taken).unwrap();
    let run = Arc::new(folder::reopen(&folder).unwrap().0);
    assert_eq!(run.next_step(2).unwrap(), NextStep::Publish);
    Runner { run, config, base, ..again }.work(&mut |_| ()).unwrap();

    assert_eq!(weights(&folder), weights(&expected));
    assert_eq!(numbers(&folder), numbers(&expected));
    let matched = numbers(&expected).pop().unwrap();
    assert!(matched["conjecture_weight_max"] > 1.0, "{matched:?}");
    assert!(matched["conjecture_distance"] < matched["conjecture_distance_of_equals"], "{matched:?}");
}

/// The prompt and the completion share the context window: the completion is limited by the space that the prompt
/// leaves, and a prompt that leaves no space is refused. A window larger than that of the model is refused, too.
#[test]
fn the_context_window_is_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let rollouts = |name: &str, settings: &[&str]| {
        let folder = dir.path().join(name);
        runner_with(&folder, 1, settings).work(&mut |_| ()).unwrap();
        let round = RunView::open(&folder).unwrap().round(0).unwrap();
        let lengths = |row: Result<sgs_rundir::rows::RolloutRow, _>| {
            let row = row.unwrap();
            (row.sample.prompt_tokens.len(), row.sample.tokens.len())
        };
        round.rollouts().unwrap().map(lengths).collect::<Vec<_>>()
    };
    let wide = rollouts("wide", &[]);
    assert!(wide.iter().any(|(_, new)| *new == 4), "{wide:?}");
    let longest = wide.iter().map(|(prompt, _)| *prompt).max().unwrap();
    let window = longest + 1;
    let narrow = rollouts("narrow", &[&format!("model.context={window}")]);
    assert_eq!(narrow.len(), wide.len());
    assert!(narrow.iter().all(|(prompt, new)| prompt + new <= window), "{narrow:?}");
    assert!(narrow.iter().any(|(prompt, new)| *prompt == longest && *new == 1), "{narrow:?}");
    let short = rollouts("short", &[&format!("model.context={}", longest - 1)]);
    assert!(
        short.iter().any(|(_, new)| *new == 0),
        "a prompt that does not fit is no attempt of the model: {short:?}"
    );

    let refused = runner_with(&dir.path().join("refused"), 1, &["model.context=100000"]).work(&mut |_| ());
    let told = format!("{:#}", refused.unwrap_err());
    assert!(told.contains("model.context is 100000 tokens") && told.contains("or to 0"), "{told}");
}

#[test]
fn configurations_with_the_keys_of_earlier_versions_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let config = runner(dir.path(), 1).config;
    let path = dir.path().join("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let older = "[algorithm.solver]\nlemma_rollouts = 2\nlemma_rounds = 4\n";
    std::fs::write(&path, text.replacen("[algorithm.solver]\n", older, 1)).unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains("lemma_rounds"));
    assert_eq!(folder::config_of(&RunView::open(dir.path()).unwrap()).unwrap(), *config);
    let guide = |keys: &str| text.replacen("[algorithm.guide]\n", &format!("[algorithm.guide]\n{keys}"), 1);
    std::fs::write(&path, guide("learned_rounds = 8\nlearned_neighbours = 8\n")).unwrap();
    assert_eq!(folder::config_of(&RunView::open(dir.path()).unwrap()).unwrap(), *config);
    let learned = text.replacen("kind = \"model\"", "kind = \"learned\"", 1);
    std::fs::write(&path, learned.replacen("method = \"sgs\"", "method = \"sgs-learned-guide\"", 1)).unwrap();
    let refused = folder::config_of(&RunView::open(dir.path()).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("has no learned Guide: use the version that began the run"), "{refused}");
}
