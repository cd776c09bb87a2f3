//! Row types of the tables. `docs/formats.md` explains each column.

use crate::table::{Cell, CellValue, ColumnType};
use crate::table_row;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};
pub use sgs_selfplay::outcome::ProblemKind;
use sgs_selfplay::{Completion, Features, FinishReason, ProblemId, Role, TaskKey, TaskKind, Verdict};
use std::sync::Arc;

/// The status of a requested conjecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConjectureRowStatus {
    /// It became a problem of the round.
    Accepted,
    /// A target or an earlier conjecture of the round has the same statement.
    Duplicate,
    /// It is not new.
    Refused,
    /// No well-formed statement could be read.
    Malformed,
    /// The system lost it.
    Lost,
}

impl ConjectureRowStatus {
    /// Returns the name that tables contain.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
            Self::Lost => "lost",
        }
    }
}

/// The kind of completion that is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleKind {
    /// A row of `rollouts.parquet`.
    Rollout,
    /// A row of `conjectures.parquet`.
    Conjecture,
}

/// The problems of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvaluatedSet {
    /// Held-out problems.
    HeldOut,
    /// The run's targets.
    Targets,
}

/// Implements [`Cell`] for types that serde writes as names.
macro_rules! named_cells {
    ($($type:ty = $what:literal),* $(,)?) => {$(
        impl Cell for $type {
            const COLUMN: ColumnType = ColumnType::Str;

            fn into_value(self) -> Result<CellValue, String> {
                match serde_json::to_value(self) {
                    Ok(serde_json::Value::String(name)) => Ok(CellValue::Str(name.into())),
                    other => Err(format!("{other:?} is not the name of a {}", $what)),
                }
            }

            fn from_value(value: CellValue) -> Result<Self, String> {
                let name = match &value {
                    CellValue::Str(name) => name,
                    other => return Err(format!("{other:?} is not a {}", $what)),
                };
                let parsed: Result<Self, serde::de::value::Error> = Self::deserialize((**name).into_deserializer());
                parsed.map_err(|_| format!("{value:?} is not a {}", $what))
            }
        }
    )*};
}

named_cells! {
    ProblemKind = "kind of problem",
    EvaluatedSet = "set of an evaluation",
    SampleKind = "kind of completion",
    ConjectureRowStatus = "status of a conjecture",
    Verdict = "verdict",
    FinishReason = "finish reason",
    Role = "role",
}

table_row! {
    /// A problem of the round: a sampled target or an accepted conjecture.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ProblemRow {
        /// Unique name within the run.
        pub id: ProblemId,
        /// Target or conjecture.
        pub kind: ProblemKind,
        /// The target that a conjecture was invented for.
        pub target: Option<ProblemId>,
        /// The statement in the formal system's canonical text.
        pub statement: Arc<str>,
        /// The premises that a proof may use, in the formal system's terms.
        pub context: Arc<str>,
        /// k, the requested rollouts.
        pub rollouts: u32,
        /// Rollouts with a verdict other than `infra`.
        pub judged: u32,
        /// Rollouts with the verdict `proved`.
        pub proved: u32,
        /// `proved / judged`, 0 to 1; absent if nothing was judged.
        pub solve_rate: Option<f64>,
        /// For targets: whether an earlier round had solved it.
        pub solved_before: bool,
        /// Whether this round is the first that solved it.
        pub newly_solved: bool,
        /// Whether the Solver's selection rule selects it.
        pub selected: bool;
        /// Features of the statement.
        pub features: Features
    }
}

table_row! {
    @impl Features {
        length: u32,
        conclusion_length: u32,
        disjunctions: u32,
        conjunctions: u32,
        implications: u32,
        depth: u32,
        hypotheses: u32,
    }
}

table_row! {
    /// The columns about a completion.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct SampleColumns {
        /// The decoded completion; empty if it was lost, and so are the three lists.
        pub text: String,
        /// Prompt token ids.
        pub prompt_tokens: Arc<[u32]>,
        /// Sampled token ids, the end token included.
        pub tokens: Vec<u32>,
        /// Log-probability of each sampled token at temperature 1, natural logarithm.
        pub log_probs: Vec<f32>,
        /// Mean entropy per sampled token, nats.
        pub entropy: Option<f32>,
        /// Why sampling ended; absent if it was lost.
        pub finish: Option<FinishReason>,
        /// Number of rounds whose updates the weights had seen; absent if it was lost.
        pub policy_version: Option<u32>,
        /// Seed of the sample. Seeds from 2^63 on are stored as the negative number with the same bits.
        pub seed: u64,
    }
}

impl SampleColumns {
    /// Returns the completion; `None` if it was lost.
    fn into_completion(self) -> Option<Completion> {
        Some(Completion {
            text: self.text,
            prompt_tokens: self.prompt_tokens,
            tokens: self.tokens,
            log_probs: self.log_probs,
            entropy: self.entropy,
            finish: self.finish?,
            policy_version: self.policy_version?,
        })
    }
}

table_row! {
    /// A requested conjecture.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ConjectureRow {
        /// Unique name; the `id` of the problem if it was accepted.
        pub id: ProblemId,
        /// The target that it was invented for.
        pub target: ProblemId,
        /// Number of the completion among those for this target, from 0.
        pub index: u32,
        /// Its status.
        pub status: ConjectureRowStatus,
        /// The defect of a malformed one, `known` or `seen` for a refused one, or why it was lost; empty otherwise.
        pub reason: String,
        /// The problem that has the same statement, for a duplicate.
        pub duplicate_of: Option<ProblemId>,
        /// The statement, if one could be parsed.
        pub statement: Option<Arc<str>>,
        /// Solve rate, 0 to 1, if the Solver tried it.
        pub solve_rate: Option<f64>,
        /// `R_solve`, 0 to 1.
        pub r_solve: Option<f64>,
        /// `R_guide`, 0 to 8; 1 without a Guide.
        pub r_guide: Option<f64>,
        /// Whether the Guide's reviews of it were all malformed.
        pub review_failed: bool,
        /// `R_synth = R_solve * R_guide`, before normalisation.
        pub r_synth: Option<f64>,
        /// `R_synth` normalised over the round, 0 to 1.
        pub reward: Option<f64>,
        /// Its weight in the Conjecturer's loss; absent if it does not train the Conjecturer.
        pub weight: Option<f64>;
        /// The completion.
        pub sample: SampleColumns
    }
}

table_row! {
    /// A rollout with its verdict.
    #[derive(Clone, Debug, PartialEq)]
    pub struct RolloutRow {
        /// The problem.
        pub problem: ProblemId,
        /// Number of the rollout among those of this problem and round, from 0: `t * k + i` for repair t of rollout i.
        pub index: u32,
        /// The parsed proof in the formal system's canonical text.
        pub proof: Option<Arc<str>>,
        /// The checker's decision.
        pub verdict: Verdict,
        /// The checker's reason, the defect of a malformed one, or why it was lost; empty for `proved`.
        pub reason: String,
        /// Step of the proof, from 1, at which the checker stopped, if known.
        pub step: Option<u32>,
        /// Time spent in the checker, microseconds.
        pub micros: u64,
        /// Whether the proof uses a tactic that the reward forbids.
        pub penalised: bool,
        /// The shaped reward; absent for `infra`.
        pub reward: Option<f64>,
        /// Its weight in the Solver's loss of this round, or its group advantage; absent if it does not train it.
        pub weight: Option<f64>;
        /// The completion.
        pub sample: SampleColumns
    }
}

table_row! {
    /// A completion of the Guide.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ReviewRow {
        /// The conjecture that was reviewed.
        pub conjecture: ProblemId,
        /// Number of the attempt, from 0: a malformed review is sampled again.
        pub index: u32,
        /// The defect of a malformed review, or why it was lost; empty for a well-formed review.
        pub reason: String,
        /// Relevance, 0 to 5; absent if malformed, and so are the next three.
        pub relevance: Option<f64>,
        /// Redundancy, 0 to 1.
        pub redundancy: Option<f64>,
        /// Complexity, 0 to 4.
        pub complexity: Option<f64>,
        /// `R_guide` of these scores, 0 to 8.
        pub r_guide: Option<f64>;
        /// The completion.
        pub sample: SampleColumns
    }
}

table_row! {
    /// A completion that the round's updates were trained on, in the order of selection.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ExampleRow {
        /// The trained role: `solver` or `conjecturer`.
        pub role: Role,
        /// The round of the completion: this one, or an earlier one (expert iteration).
        pub round: u32,
        /// The table of that round that contains the completion.
        pub kind: SampleKind,
        /// The rollout's `problem`, or the conjecture's `target`.
        pub problem: ProblemId,
        /// The completion's `index` in that table.
        pub index: u32,
        /// Weight of its log-likelihood, or its group advantage.
        pub weight: f64,
        /// Number of sampled tokens.
        pub generated_tokens: u32,
        /// Number of the group that it is trained with, under CISPO.
        pub group: Option<u32>,
        /// Sampled tokens of the whole group, under CISPO: the loss's denominator.
        pub group_tokens: Option<u64>,
    }
}

table_row! {
    /// A problem of an evaluation.
    #[derive(Clone, Debug, PartialEq)]
    pub struct EvaluationRow {
        /// `held-out`, or `targets` for the run's own.
        pub set: EvaluatedSet,
        /// Unique name within the set.
        pub id: ProblemId,
        /// The statement in the formal system's canonical text.
        pub statement: Arc<str>,
        /// The premises that a proof may use, in the formal system's terms.
        pub context: Arc<str>,
        /// Rollouts with a verdict other than `infra`.
        pub judged: u32,
        /// Rollouts with the verdict `proved`.
        pub proved: u32,
        /// The first proof, in the order of the rollouts.
        pub proof: Option<Arc<str>>,
    }
}

impl RolloutRow {
    /// Returns the row's task in `round` and its completion; `None` if the completion was lost.
    pub fn into_completion(self, round: u32) -> Option<(TaskKey, Completion)> {
        let key = TaskKey { round, kind: TaskKind::Rollout, problem: self.problem, index: self.index };
        Some((key, self.sample.into_completion()?))
    }
}

impl ConjectureRow {
    /// Returns the row's task in `round` and its completion; `None` if the completion was lost.
    pub fn into_completion(self, round: u32) -> Option<(TaskKey, Completion)> {
        let key = TaskKey { round, kind: TaskKind::Conjecture, problem: self.target, index: self.index };
        Some((key, self.sample.into_completion()?))
    }
}
