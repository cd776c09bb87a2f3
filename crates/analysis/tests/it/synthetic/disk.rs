//! Writes a synthetic run to a directory with the same writer as real runs.

use sgs_analysis::run::RunData;
use sgs_rundir::rounds::RoundTables;
use sgs_rundir::rows::{
    ConjectureRow, ConjectureRowStatus, ProblemKind, ProblemRow, ReviewRow, RolloutRow, SampleColumns,
};
use sgs_rundir::{FrozenConfig, RunDir};
use sgs_selfplay::{Features, FinishReason, ProblemId, Verdict};
use std::path::Path;
use std::sync::Arc;

/// Writes `run` to `path` with `tokens` tokens per rollout.
pub fn write(run: &RunData, path: &Path, tokens: usize) {
    let config = FrozenConfig { text: run.config.clone(), version: "0.1.0".into(), data: Default::default() };
    let dir = RunDir::create(path, &config, None).unwrap();
    for metrics in &run.rounds {
        dir.start_round(metrics.round).unwrap();
        dir.finish_sampling(metrics.round).unwrap();
        dir.skip_update(metrics.round, "").unwrap();
        dir.publish_round(metrics, |tables| {
            fill(run, metrics.round, tokens, tables);
            Ok(())
        })
        .unwrap();
    }
}

fn fill(run: &RunData, round: u32, tokens: usize, tables: &mut RoundTables) {
    for target in &run.targets {
        let Some(t) = target.rounds.iter().find(|t| t.round == round) else { continue };
        let id = ProblemId::new(target.id.as_str());
        let statement: Arc<str> = target.statement.as_str().into();
        let problem = ProblemRow {
            id: id.clone(),
            kind: ProblemKind::Target,
            target: None,
            statement: Arc::clone(&statement),
            context: "context".into(),
            rollouts: 8,
            judged: t.judged,
            proved: t.proved,
            solve_rate: (t.judged > 0).then(|| f64::from(t.proved) / f64::from(t.judged)),
            solved_before: target.solved_round.is_some_and(|s| s < round),
            newly_solved: target.solved_round == Some(round),
            selected: false,
            features: Features { length: 9, conclusion_length: 9, ..Features::default() },
        };
        rollouts(&id, t.judged, t.proved, tokens, tables);
        if target.solved_round.is_none_or(|solved| round <= solved) {
            conjecture(&problem, round, round.is_multiple_of(2), tokens, tables);
        }
        tables.problems.push(problem).unwrap();
    }
}

fn conjecture(target: &ProblemRow, round: u32, fit: bool, tokens: usize, tables: &mut RoundTables) {
    let id = ProblemId::new(format!("c{round}-{}-0", target.id));
    let proved = if fit { 2 } else { 0 };
    let statement: Arc<str> = format!("|- ( ph -> {} )", target.statement).into();
    let rate = f64::from(proved) / 8.0;
    tables
        .problems
        .push(ProblemRow {
            id: id.clone(),
            kind: ProblemKind::Conjecture,
            target: Some(target.id.clone()),
            statement: Arc::clone(&statement),
            proved,
            judged: 8,
            selected: fit,
            solve_rate: Some(rate),
            ..target.clone()
        })
        .unwrap();
    rollouts(&id, 8, proved, tokens, tables);
    tables
        .conjectures
        .push(ConjectureRow {
            id: id.clone(),
            target: target.id.clone(),
            index: 0,
            status: ConjectureRowStatus::Accepted,
            reason: String::new(),
            duplicate_of: None,
            statement: Some(statement),
            solve_rate: Some(rate),
            r_solve: Some(if fit { 1.0 - rate } else { 0.0 }),
            r_guide: Some(6.0),
            review_failed: false,
            r_synth: Some(if fit { 6.0 * (1.0 - rate) } else { 0.0 }),
            reward: Some(0.5),
            weight: Some(0.5),
            sample: SampleColumns {
                text: "a completion".into(),
                prompt_tokens: vec![1; 20].into(),
                tokens: vec![7; 20],
                log_probs: vec![-0.5; 20],
                entropy: Some(0.5),
                finish: Some(FinishReason::Stop),
                policy_version: Some(round),
                seed: 1,
            },
        })
        .unwrap();
    tables
        .reviews
        .push(ReviewRow {
            conjecture: id,
            index: 0,
            reason: String::new(),
            relevance: Some(4.0),
            redundancy: Some(0.0),
            complexity: Some(1.0),
            r_guide: Some(6.0),
            sample: SampleColumns {
                text: "relevance 4 redundancy 0 complexity 1".into(),
                prompt_tokens: vec![1; 20].into(),
                tokens: vec![7; 10],
                log_probs: vec![-0.5; 10],
                entropy: Some(0.1),
                finish: Some(FinishReason::Stop),
                policy_version: Some(0),
                seed: 2,
            },
        })
        .unwrap();
}

fn rollouts(problem: &ProblemId, judged: u32, proved: u32, tokens: usize, tables: &mut RoundTables) {
    // Use incompressible data, so that reading is not unrealistically fast.
    let mut rng = fastrand::Rng::new();
    let prompt: Arc<[u32]> = vec![3; tokens / 4].into();
    for index in 0..judged {
        let is_proved = index < proved;
        tables
            .rollouts
            .push(RolloutRow {
                problem: problem.clone(),
                index,
                proof: is_proved.then(|| format!("proof {index} of {problem}").into()),
                verdict: if is_proved { Verdict::Proved } else { Verdict::Refused },
                reason: String::new(),
                step: None,
                micros: 10,
                penalised: false,
                reward: Some(1.0),
                weight: None,
                sample: SampleColumns {
                    text: (0..tokens * 4).map(|_| rng.lowercase()).collect(),
                    prompt_tokens: Arc::clone(&prompt),
                    tokens: (0..tokens).map(|_| rng.u32(..1000)).collect(),
                    log_probs: (0..tokens).map(|_| -rng.f32()).collect(),
                    entropy: Some(0.4),
                    finish: Some(FinishReason::Stop),
                    policy_version: Some(0),
                    seed: 5,
                },
            })
            .unwrap();
    }
}
