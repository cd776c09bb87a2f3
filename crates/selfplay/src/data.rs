//! Problems, roles, verdicts and completions as plain, serialisable types.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Identifies a problem within a run: a target's name in its data set, or `c<round>-<target id>-<index>` for a
/// conjecture.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProblemId(pub Arc<str>);

impl ProblemId {
    /// Creates an id from a name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProblemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A formal statement to be proved: a target of the data set, or a conjecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Name of the problem.
    pub id: ProblemId,
    /// The statement in the formal system's canonical text; equal statements are equal strings.
    pub statement: Arc<str>,
    /// The context that a proof may use, in the formal system's terms. For Metamath: the label that all cited assertions must
    /// precede. For Lean: the header (imports and options).
    pub context: Arc<str>,
}

/// The roles of the language model (paper, §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Proves problems.
    Solver,
    /// Proposes a simpler, related problem for an unsolved target.
    Conjecturer,
    /// Scores proposed problems.
    Guide,
}

impl Role {
    /// Returns the role's name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Solver => "solver",
            Role::Conjecturer => "conjecturer",
            Role::Guide => "guide",
        }
    }
}

/// The checker's decision about one rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The proof is valid, and a second check confirms it.
    Proved,
    /// The proof is well-formed but not valid.
    Refused,
    /// The completion contains no well-formed proof.
    Malformed,
    /// The checker exceeded its limit of time, memory or size.
    Resource,
    /// The checker failed. Such a rollout earns no reward and does not count as a failed attempt.
    Infra,
}

impl Verdict {
    /// Returns whether the rollout counts in the denominator of the solve rate.
    pub fn is_judged(self) -> bool {
        self != Verdict::Infra
    }

    /// Returns the verdict's name in files.
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
    /// The verdict.
    pub verdict: Verdict,
    /// Reason for the verdict; empty for `proved`.
    pub reason: String,
    /// Step of the proof at which the checker stopped, from 1, if known.
    pub step: Option<u32>,
    /// Time spent in the checker, in microseconds.
    pub micros: u64,
}

/// The Guide's sub-scores of a conjecture (paper, Appendix E.3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// Relevance to the target, from 0 (unrelated) to 5.
    pub relevance: f64,
    /// Whether the conjecture repeats the target or contains superfluous parts, from 0 (no) to 1 (yes).
    pub redundancy: f64,
    /// Artificial complexity of the conclusion, from 0 (natural) to 4.
    pub complexity: f64,
}

/// Features of a statement, used only for analysis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Number of tokens of the statement.
    pub length: u32,
    /// Number of tokens of the conclusion.
    pub conclusion_length: u32,
    /// Number of disjunctions in the conclusion.
    pub disjunctions: u32,
    /// Number of conjunctions in the conclusion.
    pub conjunctions: u32,
    /// Number of implications in the conclusion.
    pub implications: u32,
    /// Nesting depth of the conclusion.
    pub depth: u32,
    /// Number of hypotheses.
    pub hypotheses: u32,
}

/// Why sampling of a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// The model sampled its end token.
    Stop,
    /// The token limit was reached.
    Length,
    /// The prompt does not fit into the model's context; nothing was sampled.
    Refused,
    /// The request was cancelled.
    Cancelled,
}

/// A sampled completion of any role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The decoded text without special tokens.
    pub text: String,
    /// Token ids of the prompt.
    pub prompt_tokens: Arc<[u32]>,
    /// Sampled token ids, including the end token.
    pub tokens: Vec<u32>,
    /// Natural log-probability of each sampled token at temperature 1; empty if the backend does not report it.
    pub log_probs: Vec<f32>,
    /// Mean entropy per sampled token in nats, if the backend knows the full distribution.
    pub entropy: Option<f32>,
    /// Why sampling ended.
    pub finish: FinishReason,
    /// Number of updates that the sampling weights have received, which equals the number of the round.
    pub policy_version: u32,
}

impl Review {
    /// Returns whether all three sub-scores are finite and within their ranges (paper, Appendix E.3).
    ///
    /// Other reviews are treated as malformed, so that a Guide that writes `100` cannot outweigh every other
    /// conjecture of the round.
    pub fn is_in_range(&self) -> bool {
        (0.0..=5.0).contains(&self.relevance)
            && (0.0..=1.0).contains(&self.redundancy)
            && (0.0..=4.0).contains(&self.complexity)
    }
}

/// The facts about a completion that the algorithm needs, without its text and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleFacts {
    /// Number of tokens of the prompt.
    pub prompt_tokens: u32,
    /// Number of sampled tokens, including the end token.
    pub generated_tokens: u32,
    /// Why sampling ended.
    pub finish: FinishReason,
    /// Mean entropy per sampled token in nats, if the backend knows the full distribution.
    pub entropy: Option<f32>,
    /// Mean natural log-probability per sampled token at temperature 1, if the backend reports it.
    pub mean_log_prob: Option<f32>,
    /// Number of updates that the sampling weights have received, which equals the number of the round.
    pub policy_version: u32,
}

impl SampleFacts {
    /// Extracts the facts from a completion.
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
