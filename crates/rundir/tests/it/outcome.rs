//! Writes rounds of the algorithm and reads them back. The tables match the outcome, and the run's state is rebuilt
//! from the directory alone.

use sgs_base::digest::checksum_of;
use sgs_rundir::metrics::{MetricValues, names};
use sgs_rundir::rows::{ConjectureRowStatus, ProblemKind};
use sgs_rundir::{FrozenConfig, OutcomeSources, RecordKey, Result, RunDir, table, write_outcome};
use sgs_selfplay::{
    Command, Completion, Event, Features, FinishReason, Judgement, Method, ParsedConjecture, ParsedProof,
    Problem, ProblemId, Review, Round, RoundMetrics, RoundOutcome, RunState, SampleFacts, TaskKey, TaskKind,
    Verdict,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const RUN_SEED: u64 = 11;

/// Returns a number from 0 to 99 that depends only on the key.
fn chance(key: &TaskKey) -> u32 {
    u32::from_str_radix(&checksum_of(key.to_string().as_bytes())[..6], 16).unwrap() % 100
}

fn completion(key: &TaskKey) -> Completion {
    Completion {
        text: format!("text of {key}"),
        prompt_tokens: vec![1, 2, 3].into(),
        tokens: (0..5 + chance(key)).collect(),
        log_probs: (0..5 + chance(key)).map(|t| -0.01 * t as f32).collect(),
        entropy: Some(0.5),
        finish: FinishReason::Stop,
        policy_version: key.round,
    }
}

fn answer(command: &Command) -> Event {
    let key = command.key().clone();
    let sample = SampleFacts::of(&completion(&key));
    let chance = chance(&key);
    if chance == 99 {
        return Event::Lost { key, reason: "the worker died".into() };
    }
    match command {
        Command::SampleConjecture { .. } => {
            let read = if chance < 20 {
                Err("no-statement".into())
            } else {
                Ok(ParsedConjecture::plain(format!("|- {}", chance / 3)))
            };
            Event::Conjecture { key, read, sample }
        }
        Command::SampleRollout { .. } => {
            let proof = ParsedProof { text: format!("proof {chance}").into(), penalised: false, steps: 1 };
            Event::Rollout { key, read: if chance < 15 { Err("no-end".into()) } else { Ok(proof) }, sample }
        }
        Command::Verify { .. } => {
            // Targets are hard, so that some of them remain unsolved.
            let proved = chance < if key.problem.as_str().starts_with('t') { 3 } else { 30 };
            let verdict = if proved { Verdict::Proved } else { Verdict::Refused };
            let reason = if proved { "" } else { "unification" };
            Event::Judgement {
                key,
                judgement: Judgement { verdict, reason: reason.into(), step: Some(2), micros: 5 },
            }
        }
        Command::SampleReview { .. } => {
            let review = Review { relevance: 4.0, redundancy: 0.0, complexity: f64::from(chance % 4) };
            Event::Review {
                key,
                read: if chance < 10 { Err("no-scores".into()) } else { Ok(review) },
                sample,
            }
        }
    }
}

fn play(round: &mut Round) {
    let mut commands = round.pending();
    while let Some(command) = commands.pop() {
        commands.extend(round.apply(answer(&command)));
    }
}

fn features(problem: &Problem) -> Features {
    Features { length: problem.statement.len() as u32, ..Features::default() }
}

fn write(run: &RunDir, outcome: &RoundOutcome, metrics: &MetricValues) -> Result<()> {
    run.start_round(outcome.round)?;
    run.finish_sampling(outcome.round)?;
    run.skip_update(outcome.round, "")?;
    run.publish_round(metrics, |tables| {
        let mut completion = |key: &TaskKey| Ok((chance(key) != 99).then(|| completion(key)));
        let sources = OutcomeSources { run_seed: RUN_SEED, features: &features, completion: &mut completion };
        Ok(write_outcome(tables, outcome, sources)?)
    })
    .map(drop)
}

#[test]
fn rounds_are_read_back_with_all_counts_and_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let config = FrozenConfig { text: String::new(), version: "1".into(), data: BTreeMap::new() };
    let run = RunDir::create(&dir.path().join("run"), &config, None).unwrap();
    let targets: Vec<_> = (0..30)
        .map(|n| {
            let id = ProblemId::new(format!("t{n}"));
            Arc::new(Problem { id, statement: format!("|- target {n}").into(), context: "".into() })
        })
        .collect();
    let algorithm = Arc::new(Method::Sgs.config());
    let mut state = RunState::default();
    for _ in 0..3 {
        let mut round = Round::new(Arc::clone(&algorithm), RUN_SEED, 8192, &targets, &state).unwrap();
        play(&mut round);
        let outcome = round.finish(&state).unwrap();
        state.absorb(&outcome).unwrap();
        let metrics = MetricValues::of_round(&RoundMetrics::compute(&outcome, &state, features));
        write(&run, &outcome, &metrics).unwrap();
        check_tables(&run, &outcome);
        assert_eq!(run.view().state().unwrap(), state, "the state is rebuilt from the directory");
    }
    assert!(!state.solved.is_empty() && state.solved.len() < 30);
    std::fs::remove_dir_all(run.view().round_directory(1)).unwrap();
    let error = run.view().state().unwrap_err().to_string();
    assert!(error.contains("0002") && error.contains("round 2"), "{error}");
}

fn check_tables(run: &RunDir, outcome: &RoundOutcome) {
    let round = run.view().round(outcome.round).unwrap();
    let problems: Vec<_> = round.problems().unwrap().map(Result::unwrap).collect();
    let conjectures: Vec<_> = round.conjectures().unwrap().map(Result::unwrap).collect();
    let rollouts: Vec<_> = round.rollouts().unwrap().map(Result::unwrap).collect();
    let reviews: Vec<_> = round.reviews().unwrap().map(Result::unwrap).collect();
    let examples: Vec<_> = round.examples().unwrap().map(Result::unwrap).collect();
    assert_eq!(problems.len(), outcome.problems.len());
    assert_eq!(rollouts.len(), problems.len() * 8);
    assert_eq!(reviews.len(), outcome.reviews.len());
    assert_eq!(examples.len(), outcome.solver_examples.len() + outcome.conjecturer_examples.len());

    let keys: BTreeSet<_> = rollouts.iter().map(|r| (r.problem.clone(), r.index)).collect();
    assert_eq!(keys.len(), rollouts.len(), "each rollout once");
    for row in &problems {
        let of_problem: Vec<_> = rollouts.iter().filter(|r| r.problem == row.id).collect();
        assert_eq!(of_problem.iter().filter(|r| r.verdict == Verdict::Proved).count(), row.proved as usize);
        assert_eq!(of_problem.iter().filter(|r| r.verdict.is_judged()).count(), row.judged as usize);
        assert_eq!(row.target.is_some(), row.kind == ProblemKind::Conjecture);
    }
    let accepted = conjectures.iter().filter(|c| c.status == ConjectureRowStatus::Accepted);
    assert_eq!(
        accepted.map(|c| &c.id).collect::<Vec<_>>(),
        problems.iter().filter(|p| p.kind == ProblemKind::Conjecture).map(|p| &p.id).collect::<Vec<_>>()
    );
    assert!(
        conjectures.iter().all(|c| (c.status == ConjectureRowStatus::Duplicate) == c.duplicate_of.is_some())
    );

    let rollout = rollouts.iter().find(|r| r.sample.finish.is_some()).unwrap();
    let key = TaskKey {
        round: outcome.round,
        kind: TaskKind::Rollout,
        problem: rollout.problem.clone(),
        index: rollout.index,
    };
    assert_eq!(
        (&rollout.sample.text, &rollout.sample.tokens),
        (&completion(&key).text, &completion(&key).tokens)
    );
    assert_eq!(RecordKey::from(&key).kind.as_ref(), "rollout");
    let trained: BTreeSet<_> = examples
        .iter()
        .filter(|e| e.role == sgs_selfplay::Role::Solver)
        .map(|e| (e.problem.clone(), e.index))
        .collect();
    let weighted: BTreeSet<_> =
        rollouts.iter().filter(|r| r.weight.is_some()).map(|r| (r.problem.clone(), r.index)).collect();
    assert_eq!(trained, weighted, "exactly the rows with a weight are trained on");
}

#[test]
fn every_column_and_every_metric_is_documented() {
    use sgs_rundir::rows::*;
    use table::TableRow;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let columns = [
        ("problems", ProblemRow::fields()),
        ("conjectures", ConjectureRow::fields()),
        ("rollouts", RolloutRow::fields()),
        ("reviews", ReviewRow::fields()),
        ("examples", ExampleRow::fields()),
    ];
    let evaluation = text.split("\n## `evaluations/").nth(1).unwrap_or_default();
    let of_rounds = columns.map(|(name, fields)| (&*text, name, fields));
    for (text, name, fields) in
        of_rounds.into_iter().chain([(evaluation, "problems", EvaluationRow::fields())])
    {
        let section = text.split(&format!("\n### `{name}.parquet`")).nth(1).unwrap_or_default();
        let section = section.split("\n### ").next().unwrap();
        for field in fields {
            let column = field.column.as_str();
            // Outside of code, Markdown interprets `<i32>` as HTML.
            let column = if column.contains('<') { format!("`{column}`") } else { column.to_owned() };
            let optional = if field.optional { "?" } else { "" };
            let row = format!("\n| `{}` | {column}{optional} |", field.name);
            assert!(section.contains(&row), "{name}.parquet: the row{row} is missing in docs/formats.md");
        }
    }
    let of_ranks = names::OF_RANKS.iter().map(|name| format!("{name}/<rank>"));
    let others = RoundMetrics::DESCRIPTIONS.iter().chain(names::MEASURED).map(|(name, _)| (*name).to_owned());
    for name in others.chain(of_ranks) {
        assert!(text.contains(&format!("`{name}`")), "docs/formats.md lacks the metric {name}");
    }
}
