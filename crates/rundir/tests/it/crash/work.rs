//! A small run whose content depends only on the round, so that every sequence of crashes must produce the same files.

use sgs_base::digest::checksum_of;
use sgs_rundir::rows::{ProblemKind, ProblemRow, RolloutRow, SampleColumns};
use sgs_rundir::{
    CallerError, FrozenConfig, Histogram, KeepPolicy, MetricValues, NextStep, Record, RecordKey, Result,
    RoundTables, RunDir,
};
use sgs_selfplay::{FinishReason, ProblemId, Verdict};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub const FIRST_ROUND: u32 = 1;

const LOSS: &str = "{\"loss\":1}";

#[derive(Clone, Copy)]
pub struct Scale {
    pub rounds: u32,
    pub problems: u32,
    pub rollouts: u32,
}

pub fn key_of(round: u32, problem: &str, index: u32) -> RecordKey {
    RecordKey { round, kind: "rollout".into(), problem: problem.into(), index }
}

/// Continues the run until it has all its rounds. Calls `acknowledge` for each durable record.
pub fn run(directory: &Path, scale: Scale, mut acknowledge: impl FnMut(&RecordKey)) -> Result<()> {
    let config = FrozenConfig {
        text: format!("problems = {}\n", scale.problems),
        version: "test".into(),
        data: [("data".to_owned(), checksum_of(b"data"))].into(),
    };
    let run = if directory.join("config.toml").exists() {
        RunDir::open(directory)?
    } else {
        RunDir::create(directory, &config, None)?
    };
    run.check_config(&config)?;
    let mut sinks = run.sinks()?;
    loop {
        let plan = run.plan(FIRST_ROUND)?;
        let round = plan.round;
        match plan.next {
            NextStep::Start if round >= FIRST_ROUND + scale.rounds => {
                // A sink may have missed the last rounds.
                run.prune_checkpoints(KeepPolicy { last: 1, every: 0 })?;
                return Ok(());
            }
            NextStep::Start => run.start_round(round)?,
            NextStep::Sample => {
                sample(&run, scale, round, &mut acknowledge)?;
                run.finish_sampling(round)?;
            }
            NextStep::Update if round % 2 == 0 => {
                sinks.record(&publish_side_by_side(&run, scale, round)?);
                run.prune_checkpoints(KeepPolicy { last: 1, every: 0 })?;
            }
            NextStep::Update => update(&run, round)?,
            NextStep::Publish => {
                sinks.record(&publish(&run, scale, round)?);
                run.prune_checkpoints(KeepPolicy { last: 1, every: 0 })?;
            }
        }
    }
}

fn sample(run: &RunDir, scale: Scale, round: u32, acknowledge: &mut impl FnMut(&RecordKey)) -> Result<()> {
    let known: BTreeSet<_> =
        run.journal().reader().records(round, None)?.into_iter().map(|r| r.key).collect();
    for problem in 0..scale.problems {
        let keys = (0..scale.rollouts).map(|index| key_of(round, &format!("p{problem}"), index));
        let missing: Vec<_> = keys.filter(|key| !known.contains(key)).collect();
        let records = missing.iter().map(|key| Record { key: key.clone(), payload: tokens_of(key) });
        run.journal().append_durably(records.collect())?;
        missing.iter().for_each(&mut *acknowledge);
    }
    Ok(())
}

/// Returns the sample of a task, which depends only on its key, like seeded sampling.
fn tokens_of(key: &RecordKey) -> Vec<u8> {
    checksum_of(format!("{key:?}").as_bytes()).into_bytes()
}

/// Returns the weights after a round: a digest of all data that they were trained on.
fn trained(run: &RunDir, round: u32) -> Result<String> {
    let plan = run.plan(FIRST_ROUND)?;
    let mut weights = match &plan.checkpoint {
        Some(checkpoint) => {
            fs::read_to_string(checkpoint.directory.join("solver/weights")).unwrap_or_default()
        }
        None => "base".into(),
    };
    for record in run.journal().reader().records(round, None)? {
        weights.push_str(&String::from_utf8_lossy(&record.payload));
    }
    Ok(checksum_of(weights.as_bytes()))
}

fn write_weights(staging: &Path, weights: &str) -> Result<(), CallerError> {
    fs::create_dir(staging.join("solver"))?;
    fs::write(staging.join("solver/weights"), weights)?;
    fs::create_dir(staging.join("optimizer"))?;
    fs::write(staging.join("optimizer/moments"), weights.repeat(100))?;
    Ok(())
}

fn update(run: &RunDir, round: u32) -> Result<()> {
    let weights = trained(run, round)?;
    run.publish_checkpoint(round, LOSS, |staging| write_weights(staging, &weights))?;
    Ok(())
}

fn metrics_of(records: &[Record], round: u32) -> MetricValues {
    let mut metrics = MetricValues::new(round);
    metrics.set("generations", records.len() as f64);
    metrics.set_histogram("rates", Histogram::equal_width(0.0, 0.5, vec![0, 1]));
    metrics
}

fn write_tables(
    tables: &mut RoundTables,
    records: &[Record],
    scale: Scale,
    round: u32,
) -> Result<(), CallerError> {
    for problem in 0..scale.problems {
        tables.problems.push(problem_row(&format!("p{problem}"), scale.rollouts))?;
    }
    for record in records {
        tables.rollouts.push(rollout_row(record))?;
    }
    tables.write_json("extra.json", &round)?;
    Ok(())
}

fn publish(run: &RunDir, scale: Scale, round: u32) -> Result<MetricValues> {
    let records = run.journal().reader().records(round, Some("rollout"))?;
    let metrics = metrics_of(&records, round);
    run.publish_round(&metrics, |tables| write_tables(tables, &records, scale, round))?;
    Ok(metrics)
}

/// Updates and publishes a round whose checkpoint and tables are written concurrently.
fn publish_side_by_side(run: &RunDir, scale: Scale, round: u32) -> Result<MetricValues> {
    let records = run.journal().reader().records(round, Some("rollout"))?;
    let metrics = metrics_of(&records, round);
    let weights = trained(run, round)?;
    let (checkpoint, tables) = std::thread::scope(|scope| {
        let checkpoint =
            scope.spawn(|| run.prepare_checkpoint(round, LOSS, |staging| write_weights(staging, &weights)));
        let tables = run.prepare_round(&metrics, |tables| write_tables(tables, &records, scale, round));
        (checkpoint.join().unwrap(), tables)
    });
    run.publish_prepared_checkpoint(checkpoint?)?;
    run.publish_prepared_round(tables?)?;
    Ok(metrics)
}

fn problem_row(id: &str, rollouts: u32) -> ProblemRow {
    ProblemRow {
        id: ProblemId::new(id),
        kind: ProblemKind::Target,
        target: None,
        statement: "|- ( ph -> ph )".into(),
        context: "".into(),
        rollouts,
        judged: rollouts,
        proved: 0,
        solve_rate: Some(0.0),
        solved_before: false,
        newly_solved: false,
        selected: false,
        features: sgs_selfplay::Features {
            length: 5,
            conclusion_length: 5,
            disjunctions: 0,
            conjunctions: 0,
            implications: 1,
            depth: 1,
            hypotheses: 0,
        },
    }
}

fn rollout_row(record: &Record) -> RolloutRow {
    RolloutRow {
        problem: ProblemId::new(record.key.problem.clone()),
        index: record.key.index,
        proof: None,
        verdict: Verdict::Refused,
        reason: "no proof".into(),
        step: Some(1),
        micros: 7,
        penalised: false,
        reward: Some(0.0),
        weight: None,
        sample: SampleColumns {
            text: String::from_utf8_lossy(&record.payload).into_owned(),
            prompt_tokens: vec![1, 2, 3].into(),
            tokens: record.payload.iter().map(|&byte| byte.into()).collect(),
            log_probs: vec![-0.5; record.payload.len()],
            entropy: None,
            finish: Some(FinishReason::Stop),
            policy_version: Some(record.key.round),
            seed: u64::MAX,
        },
    }
}
