//! The result of a finished round: solve rates, rewards and training examples, as plain data.

use crate::data::{Problem, ProblemId, Review, SampleFacts, Verdict};
use crate::rate::Tally;
use crate::store::{SolvedTarget, StoredProof};
use crate::stp::Matching;
use crate::task::{ParsedProof, TaskKey};
use crate::training::Example;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The result of a round. It depends only on the round's initial state and its events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundOutcome {
    /// Number of the round.
    pub round: u32,
    /// Number of complete passes over the data set before this round.
    pub epoch: u64,
    /// k, the number of attempts per problem.
    pub rollouts_per_problem: u32,
    /// Number of targets in the data set.
    pub targets_total: u64,
    /// Number of targets in the round's batch. Expert iteration samples only some of them.
    pub targets_in_batch: u64,
    /// Sampled targets in batch order, then accepted conjectures in slot order.
    pub problems: Vec<ProblemOutcome>,
    /// Every requested conjecture, in slot order.
    pub conjectures: Vec<ConjectureOutcome>,
    /// All rollouts, grouped by problem in the order of `problems`, then by index. Turn t of attempt i has the index
    /// `t * rollouts_per_problem + i`.
    pub rollouts: Vec<RolloutOutcome>,
    /// All sampled reviews, by conjecture, then by attempt.
    pub reviews: Vec<ReviewOutcome>,
    /// Targets proved for the first time, with their first proof.
    pub newly_solved: Vec<(ProblemId, SolvedTarget)>,
    /// Proofs added to the proof store, by target.
    pub stored_proofs: Vec<(ProblemId, Vec<StoredProof>)>,
    /// Fingerprints of the accepted conjectures, if later rounds reject repeated conjectures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<u64>,
    /// Failed proofs of the sampled targets that are still unsolved, if the next round's conjectures are derived from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<(ProblemId, Vec<Arc<str>>)>,
    /// Highest conjecture solve rate that does not count as too easy.
    pub threshold: f64,
    /// Training examples of the Solver; empty if it is not trained.
    pub solver_examples: Vec<Example>,
    /// Training examples of the Conjecturer; empty if it is not trained or if all weights are 0.
    pub conjecturer_examples: Vec<Example>,
    /// The matching that reweighted the selected conjectures (STP only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<Matching>,
    /// Number of rollouts sampled in this round.
    pub generations: u64,
    /// Number of conjectures that a model sampled in this round.
    pub conjecture_samples: u64,
}

/// Whether a problem is a target or a conjecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// A problem of the user's data set.
    Target,
    /// A problem invented in this round.
    Conjecture,
}

/// One problem of the round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProblemOutcome {
    /// The problem.
    pub problem: Arc<Problem>,
    /// Target or conjecture.
    pub kind: ProblemKind,
    /// Whether the problem was proved in an earlier round.
    pub solved_before: bool,
    /// Counts of its attempts' verdicts.
    pub tally: Tally,
    /// Whether the Solver's selection rule includes the problem.
    pub selected: bool,
}

/// The status of one requested conjecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConjectureStatus {
    /// It became a problem of the round.
    Accepted {
        /// Its statement.
        statement: Arc<str>,
    },
    /// A target or an earlier conjecture of the round has the same statement.
    Duplicate {
        /// Its statement.
        statement: Arc<str>,
        /// The problem with the same statement.
        of: ProblemId,
    },
    /// It was rejected because it is not new.
    Refused {
        /// Its statement.
        statement: Arc<str>,
        /// Reason for the rejection.
        refusal: RefusalReason,
    },
    /// The completion does not contain a well-formed statement.
    Malformed {
        /// Name of the defect.
        defect: String,
    },
    /// The task was lost because of a system failure.
    Lost {
        /// Description of the failure.
        reason: String,
    },
}

/// One requested conjecture with its rewards. Rewards that do not exist are `None`: `solve_reward` of a conjecture
/// without judged rollouts, `guide_score` of one without a review, `weight` of one that is not trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConjectureOutcome {
    /// Key of the Conjecturer's task.
    pub key: TaskKey,
    /// The conjecture's id as a problem.
    pub id: ProblemId,
    /// The problem that the conjecture was invented for.
    pub target: ProblemId,
    /// Whether it was accepted, and if not, why.
    pub status: ConjectureStatus,
    /// Whether it is padded, if it was accepted and the formal system can tell.
    pub padded: Option<bool>,
    /// Facts about the completion; `None` if no model sampled the conjecture, or if it was lost.
    pub sample: Option<SampleFacts>,
    /// Counts of its verdicts, if it was accepted.
    pub tally: Option<Tally>,
    /// Whether it earns nothing because a proof was found that is too short.
    pub trivial: bool,
    /// R_solve, in `0..1`.
    pub solve_reward: Option<f64>,
    /// Mean sub-scores of the well-formed reviews.
    pub review: Option<Review>,
    /// Whether it was scored by a Guide: by a review, even a failed one, or by the rubric.
    pub reviewed: bool,
    /// Whether all of its reviews were malformed or lost.
    pub review_failed: bool,
    /// R_guide, in `0..=8`; 1 without a Guide.
    pub guide_score: Option<f64>,
    /// R_synth, in `0..8`; 0 or 1 under STP.
    pub synth_reward: Option<f64>,
    /// R_synth normalised to `0..=1`.
    pub normalised: Option<f64>,
    /// Weight in the Conjecturer's loss: the length penalty if it is negative, otherwise the normalised reward. Under
    /// STP, the weight of [`RoundOutcome::matching`] is a further factor.
    pub weight: Option<f64>,
}

/// One rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutOutcome {
    /// Key of the Solver's task.
    pub key: TaskKey,
    /// The verdict.
    pub verdict: Verdict,
    /// The checker's reason, the defect of a malformed completion, or the cause of a loss; empty for `proved`.
    pub reason: String,
    /// Step of the proof at which the checker stopped, from 1.
    pub step: Option<u32>,
    /// Time spent in the checker, in microseconds.
    pub micros: u64,
    /// The proof, if the completion contained one.
    pub proof: Option<ParsedProof>,
    /// Facts about the completion; `None` if the rollout was lost before it was sampled.
    pub sample: Option<SampleFacts>,
    /// The shaped reward; `None` without a verdict.
    pub reward: Option<f64>,
    /// Weight in the Solver's loss of this round; `None` if the rollout is not trained on.
    pub weight: Option<f64>,
}

/// One sampled review.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReviewOutcome {
    /// Key of the Guide's task: the conjecture and the attempt.
    pub key: TaskKey,
    /// The sub-scores, or the name of the defect.
    pub read: Result<Review, String>,
    /// Facts about the completion; `None` if it was lost.
    pub sample: Option<SampleFacts>,
}

/// Why a well-formed conjecture is rejected although no problem of the round has the same statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalReason {
    /// It is equivalent to this theorem, which precedes its context.
    Known(Arc<str>),
    /// It was a problem of an earlier round.
    Seen,
}

impl RoundOutcome {
    /// Returns the outcomes of the sampled targets.
    pub fn targets(&self) -> impl Iterator<Item = &ProblemOutcome> {
        self.problems.iter().filter(|problem| problem.kind == ProblemKind::Target)
    }

    /// Returns the outcomes of the accepted conjectures.
    pub fn accepted_conjectures(&self) -> impl Iterator<Item = &ProblemOutcome> {
        self.problems.iter().filter(|problem| problem.kind == ProblemKind::Conjecture)
    }

    /// Returns the conjectures that the Conjecturer is rewarded for, in slot order.
    pub fn chosen_conjectures(&self) -> impl Iterator<Item = &ConjectureOutcome> {
        self.conjectures.iter().filter(is_chosen)
    }

    /// Multiplies the weights of the chosen conjectures by those of a matching, in slot order. A conjecture that no
    /// target was matched to is dropped from the training examples.
    pub fn reweigh(&mut self, matching: Matching) {
        let chosen = self.conjectures.iter_mut().filter(|conjecture| is_chosen(&&**conjecture));
        for (conjecture, factor) in chosen.zip(&matching.weights) {
            conjecture.weight =
                conjecture.weight.map(|weight| weight * factor).filter(|weight| *weight > 0.0);
        }
        self.conjecturer_examples = conjecturer_examples(&self.conjectures);
        self.matching = Some(matching);
    }
}

fn is_chosen(conjecture: &&ConjectureOutcome) -> bool {
    conjecture.weight.is_some_and(|weight| weight > 0.0)
}

/// Returns the Conjecturer's training examples; empty if all weights are 0.
pub(crate) fn conjecturer_examples(conjectures: &[ConjectureOutcome]) -> Vec<Example> {
    let example = |conjecture: &ConjectureOutcome| {
        let (weight, sample) = (conjecture.weight?, conjecture.sample?);
        let generated_tokens = sample.generated_tokens;
        Some(Example { key: conjecture.key.clone(), weight, generated_tokens, group: None })
    };
    let examples: Vec<Example> = conjectures.iter().filter_map(example).collect();
    let has_signal = examples.iter().any(|example| example.weight != 0.0);
    if has_signal { examples } else { Vec::new() }
}
