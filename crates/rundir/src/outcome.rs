//! Stores a round's outcome: its tables, and the part that later rounds need.

use crate::error::{Error, Result};
use crate::journal::RecordKey;
use crate::rounds::{PublishedRound, RoundTables};
use crate::rows::{
    ConjectureRow, ConjectureRowStatus, ExampleRow, ProblemRow, ReviewRow, RolloutRow, SampleColumns,
    SampleKind,
};
use sgs_selfplay::outcome::{
    ConjectureOutcome, ConjectureStatus, ProblemKind, ProblemOutcome, RefusalReason, ReviewOutcome,
    RolloutOutcome,
};
use sgs_selfplay::reward::guide_score;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{
    Completion, Example, Features, Problem, ProblemId, Role, RoundOutcome, RunState, TaskKey, TaskKind,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const OUTCOME: &str = "outcome.json";

/// Data that the tables need in addition to the outcome.
pub struct OutcomeSources<'a> {
    /// The run's seed, from which every sample's seed is derived.
    pub run_seed: u64,
    /// Computes the features of a problem's statement.
    pub features: &'a dyn Fn(&Problem) -> Features,
    /// Returns the completion of a task, for example from the journal, or `None` if the system lost it.
    pub completion: &'a mut dyn FnMut(&TaskKey) -> Result<Option<Completion>>,
}

/// Writes all tables of a round and `outcome.json`. The rows are in the order of the outcome.
pub fn write_outcome(
    tables: &mut RoundTables,
    outcome: &RoundOutcome,
    mut sources: OutcomeSources<'_>,
) -> Result<()> {
    write_problems(tables, outcome, &sources)?;
    for conjecture in &outcome.conjectures {
        let sample = sample_columns(&conjecture.key, &mut sources)?;
        tables.conjectures.push(conjecture_row(conjecture, sample))?;
    }
    for rollout in &outcome.rollouts {
        let sample = sample_columns(&rollout.key, &mut sources)?;
        tables.rollouts.push(rollout_row(rollout, sample))?;
    }
    for review in &outcome.reviews {
        let sample = sample_columns(&review.key, &mut sources)?;
        tables.reviews.push(review_row(review, sample))?;
    }
    for (role, examples) in
        [(Role::Solver, &outcome.solver_examples), (Role::Conjecturer, &outcome.conjecturer_examples)]
    {
        for example in examples {
            tables.examples.push(example_row(role, example))?;
        }
    }
    tables.write_json(OUTCOME, &remembered(outcome))
}

impl From<&TaskKey> for RecordKey {
    /// Returns the key of the task's result in the journal, which has the same round, kind, problem and index.
    fn from(key: &TaskKey) -> Self {
        Self {
            round: key.round,
            kind: key.kind.as_str().into(),
            problem: Arc::clone(&key.problem.0),
            index: key.index,
        }
    }
}

/// Returns the part of an outcome that [`RunState::absorb`] needs. The rest is in the tables.
fn remembered(outcome: &RoundOutcome) -> RoundOutcome {
    let is_target = |problem: &&ProblemOutcome| problem.kind == ProblemKind::Target;
    RoundOutcome {
        round: outcome.round,
        epoch: outcome.epoch,
        rollouts_per_problem: outcome.rollouts_per_problem,
        targets_total: outcome.targets_total,
        targets_in_batch: outcome.targets_in_batch,
        problems: outcome.problems.iter().filter(is_target).cloned().collect(),
        conjectures: Vec::new(),
        rollouts: Vec::new(),
        reviews: Vec::new(),
        newly_solved: outcome.newly_solved.clone(),
        stored_proofs: outcome.stored_proofs.clone(),
        seen: outcome.seen.clone(),
        attempts: outcome.attempts.clone(),
        threshold: outcome.threshold,
        solver_examples: Vec::new(),
        conjecturer_examples: Vec::new(),
        matching: None,
        generations: outcome.generations,
        conjecture_samples: outcome.conjecture_samples,
    }
}

/// Reads the part of a published round's outcome that later rounds need.
pub fn read_outcome(round: &PublishedRound) -> Result<RoundOutcome> {
    round.read_json(OUTCOME)
}

/// Rebuilds the run's state from its rounds, which must be in ascending order from the first.
///
/// # Errors
/// Returns an error if a round between them is missing, or if an `outcome.json` is missing or damaged.
pub fn state_after(rounds: &[PublishedRound]) -> Result<RunState> {
    let mut state = RunState::default();
    for round in rounds {
        state.absorb(&read_outcome(round)?).map_err(|error| {
            Error::damaged(round.directory(), error.to_string(), "restore the missing round from a copy")
        })?;
    }
    Ok(state)
}

/// Returns the columns about a task's completion. They are empty if the completion is lost.
#[allow(clippy::expect_used, reason = "only judgements have no role, and no row is about one")]
fn sample_columns(key: &TaskKey, sources: &mut OutcomeSources<'_>) -> Result<SampleColumns> {
    let role = key.kind.role().expect("invariant: a sampling task has a role");
    let seed = task_seed(sources.run_seed, key.round, role, &key.problem, key.index);
    Ok(match (sources.completion)(key)? {
        Some(completion) => SampleColumns {
            text: completion.text,
            prompt_tokens: completion.prompt_tokens,
            tokens: completion.tokens,
            log_probs: completion.log_probs,
            entropy: completion.entropy,
            finish: Some(completion.finish),
            policy_version: Some(completion.policy_version),
            seed,
        },
        None => SampleColumns { seed, ..SampleColumns::default() },
    })
}

fn write_problems(
    tables: &mut RoundTables,
    outcome: &RoundOutcome,
    sources: &OutcomeSources<'_>,
) -> Result<()> {
    let targets: HashMap<&ProblemId, &ProblemId> =
        outcome.conjectures.iter().map(|c| (&c.id, &c.target)).collect();
    let newly: HashSet<&ProblemId> = outcome.newly_solved.iter().map(|(id, _)| id).collect();
    for problem in &outcome.problems {
        let id = &problem.problem.id;
        let is_conjecture = problem.kind == ProblemKind::Conjecture;
        tables.problems.push(ProblemRow {
            id: id.clone(),
            kind: problem.kind,
            target: targets.get(id).filter(|_| is_conjecture).map(|&target| target.clone()),
            statement: Arc::clone(&problem.problem.statement),
            context: Arc::clone(&problem.problem.context),
            rollouts: outcome.rollouts_per_problem,
            judged: problem.tally.judged,
            proved: problem.tally.proved,
            solve_rate: problem.tally.rate(),
            solved_before: problem.solved_before,
            newly_solved: newly.contains(id),
            selected: problem.selected,
            features: (sources.features)(&problem.problem),
        })?;
    }
    Ok(())
}

fn refused(refusal: &RefusalReason) -> &'static str {
    match refusal {
        RefusalReason::Known(_) => "known",
        RefusalReason::Seen => "seen",
    }
}

fn conjecture_row(conjecture: &ConjectureOutcome, sample: SampleColumns) -> ConjectureRow {
    let (status, statement, duplicate_of, reason) = match &conjecture.status {
        ConjectureStatus::Accepted { statement } => {
            (ConjectureRowStatus::Accepted, Some(statement), None, "")
        }
        ConjectureStatus::Duplicate { statement, of } => {
            (ConjectureRowStatus::Duplicate, Some(statement), Some(of), "")
        }
        ConjectureStatus::Refused { statement, refusal } => {
            (ConjectureRowStatus::Refused, Some(statement), None, refused(refusal))
        }
        ConjectureStatus::Malformed { defect } => {
            (ConjectureRowStatus::Malformed, None, None, defect.as_str())
        }
        ConjectureStatus::Lost { reason } => (ConjectureRowStatus::Lost, None, None, reason.as_str()),
    };
    ConjectureRow {
        id: conjecture.id.clone(),
        target: conjecture.target.clone(),
        index: conjecture.key.index,
        status,
        reason: reason.to_owned(),
        duplicate_of: duplicate_of.cloned(),
        statement: statement.cloned(),
        solve_rate: conjecture.tally.and_then(|tally| tally.rate()),
        r_solve: conjecture.solve_reward,
        r_guide: conjecture.guide_score,
        review_failed: conjecture.review_failed,
        r_synth: conjecture.synth_reward,
        reward: conjecture.normalised,
        weight: conjecture.weight,
        sample,
    }
}

fn rollout_row(rollout: &RolloutOutcome, sample: SampleColumns) -> RolloutRow {
    RolloutRow {
        problem: rollout.key.problem.clone(),
        index: rollout.key.index,
        proof: rollout.proof.as_ref().map(|proof| Arc::clone(&proof.text)),
        verdict: rollout.verdict,
        reason: rollout.reason.clone(),
        step: rollout.step,
        micros: rollout.micros,
        penalised: rollout.proof.as_ref().is_some_and(|proof| proof.penalised),
        reward: rollout.reward,
        weight: rollout.weight,
        sample,
    }
}

fn review_row(review: &ReviewOutcome, sample: SampleColumns) -> ReviewRow {
    let scores = review.read.as_ref().ok();
    ReviewRow {
        conjecture: review.key.problem.clone(),
        index: review.key.index,
        reason: review.read.as_ref().err().cloned().unwrap_or_default(),
        relevance: scores.map(|s| s.relevance),
        redundancy: scores.map(|s| s.redundancy),
        complexity: scores.map(|s| s.complexity),
        r_guide: scores.map(guide_score),
        sample,
    }
}

fn example_row(role: Role, example: &Example) -> ExampleRow {
    ExampleRow {
        role,
        round: example.key.round,
        kind: match example.key.kind {
            TaskKind::Conjecture => SampleKind::Conjecture,
            TaskKind::Rollout => SampleKind::Rollout,
            other => panic!("invariant: no role is trained on a task of the kind {}", other.as_str()),
        },
        problem: example.key.problem.clone(),
        index: example.key.index,
        weight: example.weight,
        generated_tokens: example.generated_tokens,
        group: example.group.map(|group| group.number),
        group_tokens: example.group.map(|group| group.tokens),
    }
}
