//! The tasks of a round: their keys, the commands that request them, and the events that answer them.

use crate::data::{Judgement, Problem, ProblemId, Review, Role, SampleFacts};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// A completion of the Conjecturer.
    Conjecture,
    /// A completion of the Solver.
    Rollout,
    /// A proof to verify.
    Judgement,
    /// A completion of the Guide.
    Review,
}

impl TaskKind {
    /// Returns the kind's name in task keys.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskKind::Conjecture => "conjecture",
            TaskKind::Rollout => "rollout",
            TaskKind::Judgement => "judgement",
            TaskKind::Review => "review",
        }
    }

    /// Returns the role that samples the task; `None` for judgements.
    pub fn role(self) -> Option<Role> {
        match self {
            TaskKind::Conjecture => Some(Role::Conjecturer),
            TaskKind::Rollout => Some(Role::Solver),
            TaskKind::Judgement => None,
            TaskKind::Review => Some(Role::Guide),
        }
    }
}

/// Identifies a task. A task has the same key in every replay of a run.
///
/// The meaning of `problem` and `index` depends on the kind. Conjecture: the problem it is invented for, and its index among
/// that problem's conjectures. Rollout and judgement: the problem to solve, and the rollout's index: turn t of attempt i has
/// the index `t * k + i`, with i in `0..k`. Review: the conjecture, and the attempt. Keys sort by round, kind, problem and
/// index. The text form is `7/rollout/3/problem`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskKey {
    /// Number of the round.
    pub round: u32,
    /// Kind of the task.
    pub kind: TaskKind,
    /// The problem that the task belongs to.
    pub problem: ProblemId,
    /// Index among the tasks of this kind and problem, from 0.
    pub index: u32,
}

impl TaskKey {
    /// Returns the key with another kind, such as the judgement of a rollout.
    pub fn with_kind(&self, kind: TaskKind) -> Self {
        Self { kind, ..self.clone() }
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.round, self.kind.as_str(), self.index, self.problem)
    }
}

/// The error of parsing an invalid task key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a task key: expected ROUND/KIND/INDEX/PROBLEM with KIND one of conjecture, rollout, judgement, review"
)]
pub struct BadTaskKey(pub String);

impl FromStr for TaskKey {
    type Err = BadTaskKey;

    fn from_str(text: &str) -> Result<Self, BadTaskKey> {
        let parse = || {
            let mut parts = text.splitn(4, '/');
            let round = parts.next()?.parse().ok()?;
            let kind = match parts.next()? {
                "conjecture" => TaskKind::Conjecture,
                "rollout" => TaskKind::Rollout,
                "judgement" => TaskKind::Judgement,
                "review" => TaskKind::Review,
                _ => return None,
            };
            let index = parts.next()?.parse().ok()?;
            let problem = parts.next().filter(|id| !id.is_empty())?;
            Some(TaskKey { round, kind, problem: ProblemId::new(problem), index })
        };
        parse().ok_or_else(|| BadTaskKey(text.to_owned()))
    }
}

impl Serialize for TaskKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The condition of a conjecture: the content of the Conjecturer's prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnedCondition {
    /// An unsolved target.
    Target(Arc<Problem>),
    /// A solved problem with one of its proofs.
    Solved {
        /// The solved problem.
        problem: Arc<Problem>,
        /// The first proof of the problem.
        proof: Arc<str>,
    },
    /// No condition; the target only determines the context.
    Nothing(Arc<Problem>),
    /// An unsolved target with a failed proof of it.
    Attempt {
        /// The unsolved target.
        problem: Arc<Problem>,
        /// A proof that was refused.
        proof: Arc<str>,
    },
}

impl OwnedCondition {
    /// Returns the problem whose context the conjecture inherits and that it is reviewed against.
    pub fn problem(&self) -> &Arc<Problem> {
        match self {
            OwnedCondition::Target(problem)
            | OwnedCondition::Solved { problem, .. }
            | OwnedCondition::Attempt { problem, .. }
            | OwnedCondition::Nothing(problem) => problem,
        }
    }
}

/// A task to perform. Seeds depend only on the task's key and the run's seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sample the Conjecturer and parse a statement, or make a conjecture without a model.
    SampleConjecture {
        /// Key of the task; the answering event has the same key.
        key: TaskKey,
        /// Sampling seed.
        seed: u64,
        /// Condition of the conjecture.
        condition: OwnedCondition,
    },
    /// Sample the Solver and parse a proof.
    SampleRollout {
        /// Key of the task; the answering event has the same key.
        key: TaskKey,
        /// Sampling seed.
        seed: u64,
        /// The problem to prove.
        problem: Arc<Problem>,
        /// The refused proof that this turn of an attempt repairs.
        failed: Option<Arc<FailedProof>>,
    },
    /// Verify a proof.
    Verify {
        /// Key of the task; the answering event has the same key.
        key: TaskKey,
        /// The problem to prove.
        problem: Arc<Problem>,
        /// The proof in canonical text.
        proof: Arc<str>,
    },
    /// Sample the Guide and parse a review.
    SampleReview {
        /// Key of the task; the answering event has the same key.
        key: TaskKey,
        /// Sampling seed.
        seed: u64,
        /// The problem that the conjecture was invented for.
        target: Arc<Problem>,
        /// The conjecture to review.
        conjecture: Arc<Problem>,
    },
}

impl Command {
    /// Returns the key of the task.
    pub fn key(&self) -> &TaskKey {
        match self {
            Command::SampleConjecture { key, .. }
            | Command::SampleRollout { key, .. }
            | Command::Verify { key, .. }
            | Command::SampleReview { key, .. } => key,
        }
    }

    /// Returns the sampling seed; `None` for a judgement, which is deterministic.
    pub fn seed(&self) -> Option<u64> {
        match self {
            Command::SampleConjecture { seed, .. }
            | Command::SampleRollout { seed, .. }
            | Command::SampleReview { seed, .. } => Some(*seed),
            Command::Verify { .. } => None,
        }
    }
}

/// A proof parsed from a completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParsedProof {
    /// The proof in the formal system's canonical text.
    pub text: Arc<str>,
    /// Whether it uses a tactic that the formal system marks as forbidden.
    pub penalised: bool,
    /// Number of inferences, as counted by the formal system.
    #[serde(default)]
    pub steps: u32,
}

/// A conjecture parsed from a completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParsedConjecture {
    /// The statement in the formal system's canonical text; equal statements are equal strings.
    pub statement: Arc<str>,
    /// An equivalent theorem that precedes the conjecture's context, if there is one.
    pub known: Option<Arc<str>>,
    /// Unused. The journals of earlier versions contain it.
    pub lemma: Option<Arc<str>>,
    /// Score of the formal system's rubric in `0..=8`; 0 if it has none.
    pub rubric: f64,
    /// Whether it is padded: more of its variables than of the target's occur once, and at least two. `None` if the formal
    /// system cannot tell.
    #[serde(default)]
    pub padded: Option<bool>,
}

impl ParsedConjecture {
    /// Creates a conjecture from its statement, with no further information.
    pub fn plain(statement: impl Into<Arc<str>>) -> Self {
        Self { statement: statement.into(), known: None, lemma: None, rubric: 0.0, padded: None }
    }
}

/// A refused proof with the checker's error, as shown to the Solver in the next turn of the attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedProof {
    /// The proof in the formal system's canonical text.
    pub proof: Arc<str>,
    /// The checker's reason, at most [`FailedProof::MAX_ERROR`] characters.
    pub error: Arc<str>,
    /// Step of the proof at which the checker stopped, from 1, if known.
    pub step: Option<u32>,
}

impl FailedProof {
    /// Maximum length of the error, in characters. Errors are untrusted text.
    pub const MAX_ERROR: usize = 1000;

    /// Creates it from a proof and its judgement.
    pub fn new(proof: Arc<str>, judgement: &Judgement) -> Self {
        let error = judgement.reason.chars().take(Self::MAX_ERROR).collect::<String>().into();
        Self { proof, error, step: judgement.step }
    }
}

/// The result of a task. If parsing failed, it contains a short, stable name of the defect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The Conjecturer's completion was parsed.
    Conjecture {
        /// Key of the command.
        key: TaskKey,
        /// The conjecture, or the name of the defect.
        read: Result<ParsedConjecture, String>,
        /// Facts about the completion.
        sample: SampleFacts,
    },
    /// The Solver's completion was parsed.
    Rollout {
        /// Key of the command.
        key: TaskKey,
        /// The proof, or the name of the defect.
        read: Result<ParsedProof, String>,
        /// Facts about the completion.
        sample: SampleFacts,
    },
    /// A proof was verified.
    Judgement {
        /// Key of the command.
        key: TaskKey,
        /// The checker's verdict.
        judgement: Judgement,
    },
    /// The Guide's completion was parsed.
    Review {
        /// Key of the command.
        key: TaskKey,
        /// The sub-scores, or the name of the defect.
        read: Result<Review, String>,
        /// Facts about the completion.
        sample: SampleFacts,
    },
    /// The task was abandoned because of a system failure.
    Lost {
        /// Key of the command.
        key: TaskKey,
        /// Description of the failure.
        reason: String,
    },
}

impl Event {
    /// Returns the key of the task.
    pub fn key(&self) -> &TaskKey {
        match self {
            Event::Conjecture { key, .. }
            | Event::Rollout { key, .. }
            | Event::Judgement { key, .. }
            | Event::Review { key, .. }
            | Event::Lost { key, .. } => key,
        }
    }

    /// Returns the kind of task that the event answers; `None` for a loss, which can answer any kind.
    pub fn kind(&self) -> Option<TaskKind> {
        match self {
            Event::Conjecture { .. } => Some(TaskKind::Conjecture),
            Event::Rollout { .. } => Some(TaskKind::Rollout),
            Event::Judgement { .. } => Some(TaskKind::Judgement),
            Event::Review { .. } => Some(TaskKind::Review),
            Event::Lost { .. } => None,
        }
    }
}
