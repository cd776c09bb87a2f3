//! The words of the system as plain, serialisable types.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Name of a problem, unique within a run: a target's name in its data set, or a conjecture's
/// `c<round>-<target id>-<index>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProblemId(pub Arc<str>);

impl ProblemId {
    /// Wraps a name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProblemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A formal statement to be proved: a target of the data set or a conjecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub id: ProblemId,
    /// The statement in the formal system's own canonical text: equal statements are equal strings.
    pub statement: Arc<str>,
    /// What a proof may use, in the formal system's own terms: for Metamath the label before which an
    /// assertion must stand, for Lean the header (imports and options).
    pub context: Arc<str>,
}

/// The three roles of the one language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Proves problems.
    Solver,
    /// Invents a simpler, related problem for an unsolved target.
    Conjecturer,
    /// Scores invented problems.
    Guide,
}

impl Role {
    /// The role's name as it is written in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Solver => "solver",
            Role::Conjecturer => "conjecturer",
            Role::Guide => "guide",
        }
    }
}

/// What the checker says of one rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The proof holds, and an independent check agrees.
    Proved,
    /// The proof was read and does not hold.
    Refused,
    /// No proof could be read out of the rollout.
    Malformed,
    /// Time, memory or size ran out before the checker could decide.
    Resource,
    /// The checker itself broke: never a reward, never counted as an attempt that failed.
    Infra,
}

impl Verdict {
    /// Whether the rollout counts as judged, that is, in the denominator of the solve rate.
    pub fn is_judged(self) -> bool {
        self != Verdict::Infra
    }

    /// The verdict's name as it is written in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Proved => "proved",
            Verdict::Refused => "refused",
            Verdict::Malformed => "malformed",
            Verdict::Resource => "resource",
            Verdict::Infra => "infra",
        }
    }
}

/// A verdict with the checker's reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    pub verdict: Verdict,
    /// Why, for everything but `proved`; empty otherwise.
    pub reason: String,
    /// The step of the proof, counted from 1, at which the checker stopped, where it knows one.
    pub step: Option<u32>,
    /// Time spent in the checker, microseconds.
    pub micros: u64,
}

/// The Guide's sub-scores of one conjecture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// How much the conjecture has to do with its target: 0 (nothing) to 5.
    pub relevance: f64,
    /// Whether the conjecture repeats the target or carries what it does not need: 0 (no) to 1.
    pub redundancy: f64,
    /// How artificial the conclusion is: 0 (natural) to 4.
    pub complexity: f64,
}

/// Features of a statement, for analysis only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Tokens of the whole statement.
    pub length: u32,
    /// Tokens of the conclusion.
    pub conclusion_length: u32,
    /// Disjunctions in the conclusion.
    pub disjunctions: u32,
    /// Conjunctions in the conclusion.
    pub conjunctions: u32,
    /// Implications in the conclusion.
    pub implications: u32,
    /// Nesting depth of the conclusion.
    pub depth: u32,
    pub hypotheses: u32,
}

/// Why sampling of a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// The model wrote its end token.
    Stop,
    /// The token limit was reached.
    Length,
    /// The prompt did not fit into the model's context: nothing was sampled.
    Refused,
    /// The request was withdrawn.
    Cancelled,
}

/// One completion sampled by any role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The decoded text, special tokens left out.
    pub text: String,
    pub prompt_tokens: Arc<[u32]>,
    /// Sampled token ids, the end token included.
    pub tokens: Vec<u32>,
    /// Log-probability of each sampled token at temperature 1, natural logarithm; empty if the backend gives none.
    pub log_probs: Vec<f32>,
    /// Mean entropy per sampled token in nats, where the backend knows the whole distribution.
    pub entropy: Option<f32>,
    pub finish: FinishReason,
    /// Number of rounds whose updates the weights had seen: the number of the round that they sampled for.
    pub policy_version: u32,
}

impl Review {
    /// Whether all three sub-scores are finite and inside the rubric's ranges (paper, Appendix E.3).
    ///
    /// A review outside of them is treated like a malformed one: a Guide that writes `100` must not be able to
    /// outweigh every other conjecture of the round.
    pub fn is_in_range(&self) -> bool {
        (0.0..=5.0).contains(&self.relevance)
            && (0.0..=1.0).contains(&self.redundancy)
            && (0.0..=4.0).contains(&self.complexity)
    }
}

/// What the algorithm needs to know of a completion, without its text and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleFacts {
    pub prompt_tokens: u32,
    /// Tokens sampled, the end token included.
    pub generated_tokens: u32,
    pub finish: FinishReason,
    /// Mean entropy per sampled token in nats, where the backend knows the whole distribution.
    pub entropy: Option<f32>,
    /// Mean log-probability per sampled token at temperature 1, natural logarithm, where the backend gives it.
    pub mean_log_prob: Option<f32>,
    /// Number of rounds whose updates the weights had seen: the number of the round that they sampled for.
    pub policy_version: u32,
}

impl SampleFacts {
    /// The facts of a completion.
    pub fn of(completion: &Completion) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let sum: f64 = completion.log_probs.iter().map(|&x| f64::from(x)).sum();
        let mean =
            (!completion.log_probs.is_empty()).then(|| (sum / completion.log_probs.len() as f64) as f32);
        Self {
            prompt_tokens: count(completion.prompt_tokens.len()),
            generated_tokens: count(completion.tokens.len()),
            finish: completion.finish,
            entropy: completion.entropy,
            mean_log_prob: mean,
            policy_version: completion.policy_version,
        }
    }
}
