//! A round's outcome, as the algorithm computes it, on disk: its tables, and what of it the next rounds build on.

use crate::error::{Error, Result};
use crate::journal::RecordKey;
use crate::rounds::{PublishedRound, RoundTables};
use crate::rows::{
    ConjectureRow, ConjectureStatus, ExampleRow, ProblemKind, ProblemRow, ReviewRow, RolloutRow, SampleKind,
};
use sgs_selfplay::outcome::{
    self, ConjectureOutcome, ConjectureStatus as Status, ProblemOutcome, ReviewOutcome, RolloutOutcome,
};
use sgs_selfplay::reward::guide_score;
use sgs_selfplay::round::Refusal;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{
    Completion, Example, Features, FinishReason, Problem, ProblemId, Role, RoundOutcome, RunState, TaskKey,
    TaskKind,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const OUTCOME: &str = "outcome.json";

/// What the tables need beside the outcome.
pub struct OutcomeSources<'a> {
    /// The run's seed, from which every sample's seed follows.
    pub run_seed: u64,
    /// Features of a statement.
    pub features: &'a dyn Fn(&Problem) -> Features,
    /// The completion of a task, such as one read back from the journal; `None` if the system lost it.
    pub completion: &'a mut dyn FnMut(&TaskKey) -> Result<Option<Completion>>,
}

/// Writes all tables of a round, and `outcome.json`, in the order of the outcome.
///
/// # Errors
/// The source of completions fails, or the file system refuses.
pub fn write_outcome(
    tables: &mut RoundTables,
    outcome: &RoundOutcome,
    mut sources: OutcomeSources<'_>,
) -> Result<()> {
    write_problems(tables, outcome, &sources)?;
    for conjecture in &outcome.conjectures {
        let sample = Sample::of(&conjecture.key, &mut sources)?;
        tables.conjectures.push(conjecture_row(conjecture, sample))?;
    }
    for rollout in &outcome.rollouts {
        let sample = Sample::of(&rollout.key, &mut sources)?;
        tables.rollouts.push(rollout_row(rollout, sample))?;
    }
    for review in &outcome.reviews {
        let sample = Sample::of(&review.key, &mut sources)?;
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
    /// The name under which a task's result is journalled: the same round, kind, problem and index.
    fn from(key: &TaskKey) -> Self {
        Self {
            round: key.round,
            kind: key.kind.as_str().into(),
            problem: Arc::clone(&key.problem.0),
            index: key.index,
        }
    }
}

/// What [`RunState::absorb`] needs of an outcome: the rest stands in the tables.
fn remembered(outcome: &RoundOutcome) -> RoundOutcome {
    let is_target = |problem: &&ProblemOutcome| problem.kind == outcome::ProblemKind::Target;
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
        lemmas: outcome.lemmas.clone(),
        lessons: outcome.lessons.clone(),
        threshold: outcome.threshold,
        solver_examples: Vec::new(),
        conjecturer_examples: Vec::new(),
        matching: None,
        generations: outcome.generations,
        conjecture_samples: outcome.conjecture_samples,
    }
}

/// What a published round passes on to the following ones.
///
/// # Errors
/// Its `outcome.json` is missing or damaged.
pub fn read_outcome(round: &PublishedRound) -> Result<RoundOutcome> {
    round.read_json(OUTCOME)
}

/// The state after these rounds, ascending from the first: the empty state that has absorbed each of them.
///
/// # Errors
/// A round is missing between them, or its `outcome.json` is missing or damaged.
pub fn state_after(rounds: &[PublishedRound]) -> Result<RunState> {
    let mut state = RunState::default();
    for round in rounds {
        state.absorb(&read_outcome(round)?).map_err(|error| {
            Error::damaged(round.directory(), error.to_string(), "restore the missing round from a copy")
        })?;
    }
    Ok(state)
}

/// A completion with its seed, or the traces of a lost one.
struct Sample {
    text: String,
    prompt_tokens: Arc<[u32]>,
    tokens: Vec<u32>,
    log_probs: Vec<f32>,
    entropy: Option<f32>,
    finish: Option<FinishReason>,
    policy_version: Option<u32>,
    seed: u64,
}

impl Sample {
    fn of(key: &TaskKey, sources: &mut OutcomeSources<'_>) -> Result<Self> {
        let role = key.kind.role().unwrap_or(Role::Solver);
        let seed = task_seed(sources.run_seed, key.round, role, &key.problem, key.index);
        Ok(match (sources.completion)(key)? {
            Some(completion) => Self {
                text: completion.text,
                prompt_tokens: completion.prompt_tokens,
                tokens: completion.tokens,
                log_probs: completion.log_probs,
                entropy: completion.entropy,
                finish: Some(completion.finish),
                policy_version: Some(completion.policy_version),
                seed,
            },
            None => Self {
                text: String::new(),
                prompt_tokens: Arc::default(),
                tokens: Vec::new(),
                log_probs: Vec::new(),
                entropy: None,
                finish: None,
                policy_version: None,
                seed,
            },
        })
    }
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
        let is_conjecture = problem.kind == outcome::ProblemKind::Conjecture;
        tables.problems.push(ProblemRow {
            id: id.clone(),
            kind: if is_conjecture { ProblemKind::Conjecture } else { ProblemKind::Target },
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

fn refused(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Known(_) => "known",
        Refusal::Seen => "seen",
    }
}

fn conjecture_row(conjecture: &ConjectureOutcome, sample: Sample) -> ConjectureRow {
    let (status, statement, duplicate_of, reason) = match &conjecture.status {
        Status::Accepted { statement } => (ConjectureStatus::Accepted, Some(statement), None, ""),
        Status::Duplicate { statement, of } => (ConjectureStatus::Duplicate, Some(statement), Some(of), ""),
        Status::Refused { statement, refusal } => {
            (ConjectureStatus::Refused, Some(statement), None, refused(refusal))
        }
        Status::Malformed { defect } => (ConjectureStatus::Malformed, None, None, defect.as_str()),
        Status::Lost { reason } => (ConjectureStatus::Lost, None, None, reason.as_str()),
    };
    ConjectureRow {
        id: conjecture.id.clone(),
        target: conjecture.target.clone(),
        index: conjecture.key.index,
        status,
        reason: reason.to_owned(),
        duplicate_of: duplicate_of.cloned(),
        statement: statement.cloned(),
        text: sample.text,
        prompt_tokens: sample.prompt_tokens,
        tokens: sample.tokens,
        log_probs: sample.log_probs,
        entropy: sample.entropy,
        finish: sample.finish,
        policy_version: sample.policy_version,
        seed: sample.seed,
        solve_rate: conjecture.tally.and_then(|tally| tally.rate()),
        r_solve: conjecture.solve_reward,
        r_guide: conjecture.guide_score,
        review_failed: conjecture.review_failed,
        r_synth: conjecture.synth_reward,
        reward: conjecture.normalised,
        weight: conjecture.weight,
    }
}

fn rollout_row(rollout: &RolloutOutcome, sample: Sample) -> RolloutRow {
    RolloutRow {
        problem: rollout.key.problem.clone(),
        index: rollout.key.index,
        text: sample.text,
        proof: rollout.proof.as_ref().map(|proof| Arc::clone(&proof.text)),
        prompt_tokens: sample.prompt_tokens,
        tokens: sample.tokens,
        log_probs: sample.log_probs,
        entropy: sample.entropy,
        finish: sample.finish,
        policy_version: sample.policy_version,
        seed: sample.seed,
        verdict: rollout.verdict,
        reason: rollout.reason.clone(),
        step: rollout.step,
        micros: rollout.micros,
        penalised: rollout.proof.as_ref().is_some_and(|proof| proof.penalised),
        reward: rollout.reward,
        weight: rollout.weight,
    }
}

fn review_row(review: &ReviewOutcome, sample: Sample) -> ReviewRow {
    let scores = review.read.as_ref().ok();
    ReviewRow {
        conjecture: review.key.problem.clone(),
        index: review.key.index,
        reason: review.read.as_ref().err().cloned().unwrap_or_default(),
        relevance: scores.map(|s| s.relevance),
        redundancy: scores.map(|s| s.redundancy),
        complexity: scores.map(|s| s.complexity),
        r_guide: scores.map(guide_score),
        text: sample.text,
        prompt_tokens: sample.prompt_tokens,
        tokens: sample.tokens,
        log_probs: sample.log_probs,
        entropy: sample.entropy,
        finish: sample.finish,
        policy_version: sample.policy_version,
        seed: sample.seed,
    }
}

fn example_row(role: Role, example: &Example) -> ExampleRow {
    ExampleRow {
        role,
        round: example.key.round,
        kind: if example.key.kind == TaskKind::Conjecture {
            SampleKind::Conjecture
        } else {
            SampleKind::Rollout
        },
        problem: example.key.problem.clone(),
        index: example.key.index,
        weight: example.weight,
        generated_tokens: example.generated_tokens,
        group: example.group.map(|group| group.number),
        group_tokens: example.group.map(|group| group.tokens),
    }
}
