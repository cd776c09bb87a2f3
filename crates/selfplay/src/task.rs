//! Names of a round's tasks, what the loop is asked to do, and what it answers.

use crate::data::{Judgement, Problem, ProblemId, Review, Role, SampleFacts};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What kind of work a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// One completion of the Conjecturer.
    Conjecture,
    /// One completion of the Solver.
    Rollout,
    /// One proof to be checked.
    Judgement,
    /// One completion of the Guide.
    Review,
}

impl TaskKind {
    /// The kind's name in keys.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskKind::Conjecture => "conjecture",
            TaskKind::Rollout => "rollout",
            TaskKind::Judgement => "judgement",
            TaskKind::Review => "review",
        }
    }

    /// The role that samples, if the task is sampling.
    pub fn role(self) -> Option<Role> {
        match self {
            TaskKind::Conjecture => Some(Role::Conjecturer),
            TaskKind::Rollout => Some(Role::Solver),
            TaskKind::Judgement => None,
            TaskKind::Review => Some(Role::Guide),
        }
    }
}

/// The stable name of a task: the same work has the same key in every replay of a run.
///
/// `problem` and `index` are: for a conjecture the problem it is invented for and its number among that problem's; for a
/// rollout and its judgement the problem to be solved and the rollout's number in `0..k`; for a review the conjecture and
/// the attempt. Keys sort by round, kind, problem and index. As text: `7/rollout/3/problem`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskKey {
    pub round: u32,
    /// The kind of work.
    pub kind: TaskKind,
    /// The problem it is about.
    pub problem: ProblemId,
    /// The number among tasks of this kind for this problem.
    pub index: u32,
}

impl TaskKey {
    /// The same rollout's key of another kind.
    pub fn with_kind(&self, kind: TaskKind) -> Self {
        Self { kind, ..self.clone() }
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.round, self.kind.as_str(), self.index, self.problem)
    }
}

/// A text that is no task key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no task key: expected ROUND/KIND/INDEX/PROBLEM with KIND one of conjecture, rollout, judgement, review"
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

/// What a conjecture is invented for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnedCondition {
    /// An unsolved target.
    Target(Arc<Problem>),
    /// A solved problem and one of its proofs.
    Solved {
        problem: Arc<Problem>,
        /// Its first proof.
        proof: Arc<str>,
    },
    /// Nothing; the target lends its context alone.
    Nothing(Arc<Problem>),
}

impl OwnedCondition {
    /// The problem whose context the conjecture inherits, and which it is reviewed against.
    pub fn problem(&self) -> &Arc<Problem> {
        match self {
            OwnedCondition::Target(problem)
            | OwnedCondition::Solved { problem, .. }
            | OwnedCondition::Nothing(problem) => problem,
        }
    }
}

/// What the loop is asked to do. Seeds depend on the key and the run's seed alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sample the Conjecturer and read a statement.
    SampleConjecture {
        /// Name of the task; the answer bears it.
        key: TaskKey,
        seed: u64,
        condition: OwnedCondition,
    },
    /// Sample the Solver and read a proof.
    SampleRollout {
        /// Name of the task; the answer bears it.
        key: TaskKey,
        seed: u64,
        problem: Arc<Problem>,
        /// What the proof may cite besides, if anything.
        lemma: Option<Arc<Lemma>>,
    },
    /// Verify a proof.
    Verify {
        /// Name of the task; the answer bears it.
        key: TaskKey,
        /// What it should prove.
        problem: Arc<Problem>,
        proof: Arc<str>,
    },
    /// Sample the Guide and read a review.
    SampleReview {
        /// Name of the task; the answer bears it.
        key: TaskKey,
        seed: u64,
        /// What the conjecture was invented for.
        target: Arc<Problem>,
        conjecture: Arc<Problem>,
    },
}

impl Command {
    /// The task's name.
    pub fn key(&self) -> &TaskKey {
        match self {
            Command::SampleConjecture { key, .. }
            | Command::SampleRollout { key, .. }
            | Command::Verify { key, .. }
            | Command::SampleReview { key, .. } => key,
        }
    }

    /// The sampling seed; `None` for a judgement, which has no randomness.
    pub fn seed(&self) -> Option<u64> {
        match self {
            Command::SampleConjecture { seed, .. }
            | Command::SampleRollout { seed, .. }
            | Command::SampleReview { seed, .. } => Some(*seed),
            Command::Verify { .. } => None,
        }
    }
}

/// A proof as it was read out of a completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadProof {
    /// The proof in the formal system's canonical text, a cited lemma's proof put in its place.
    pub text: Arc<str>,
    /// Whether it uses a tactic that the reward forbids.
    pub penalised: bool,
    /// Inferences that it makes, as the formal system counts them.
    #[serde(default)]
    pub steps: u32,
}

/// A conjecture as it was read out of a completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadConjecture {
    /// The statement in the formal system's canonical text: equal statements are equal strings.
    pub statement: Arc<str>,
    /// The theorem before the conjecture's context that says the same, if there is one.
    pub known: Option<Arc<str>>,
    /// The statement in its target's own terms, if a proof of the target could cite it.
    pub lemma: Option<Arc<str>>,
    /// The score of the formal system's own rubric, `0..=8`; 0 where it has none.
    pub rubric: f64,
}

impl ReadConjecture {
    /// A statement of which the formal system says nothing more.
    pub fn plain(statement: impl Into<Arc<str>>) -> Self {
        Self { statement: statement.into(), known: None, lemma: None, rubric: 0.0 }
    }
}

/// A conjecture that was proved for a target, which the Solver may cite there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lemma {
    pub conjecture: ProblemId,
    /// The round that proved it.
    pub round: u32,
    /// The statement in the target's own terms.
    pub statement: Arc<str>,
    /// Its proof in the formal system's canonical text.
    pub proof: Arc<str>,
}

/// What became of a task. A reading that failed carries the short stable name of the defect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The Conjecturer's completion was read.
    Conjecture {
        /// The command's key.
        key: TaskKey,
        /// The conjecture, or the defect.
        read: Result<ReadConjecture, String>,
        /// The completion's facts.
        sample: SampleFacts,
    },
    /// The Solver's completion was read.
    Rollout {
        /// The command's key.
        key: TaskKey,
        /// The proof, or the defect.
        read: Result<ReadProof, String>,
        /// The completion's facts.
        sample: SampleFacts,
    },
    /// A proof was checked.
    Judgement {
        /// The command's key.
        key: TaskKey,
        /// The checker's verdict.
        judgement: Judgement,
    },
    /// The Guide's completion was read.
    Review {
        /// The command's key.
        key: TaskKey,
        /// The sub-scores, or the defect.
        read: Result<Review, String>,
        /// The completion's facts.
        sample: SampleFacts,
    },
    /// The task was given up by the system, for a reason that lies in the system.
    Lost {
        /// The command's key.
        key: TaskKey,
        reason: String,
    },
}

impl Event {
    /// The task's name.
    pub fn key(&self) -> &TaskKey {
        match self {
            Event::Conjecture { key, .. }
            | Event::Rollout { key, .. }
            | Event::Judgement { key, .. }
            | Event::Review { key, .. }
            | Event::Lost { key, .. } => key,
        }
    }

    /// The kind of task that the event answers; `None` for a loss, which answers any.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bad_keys_are_refused() {
        for text in ["", "1", "1/rollout/2", "1/rollout/2/", "x/rollout/2/p", "1/guess/2/p", "1/rollout/-2/p"]
        {
            assert!(text.parse::<TaskKey>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn keys_are_read_back(round: u32, kind in 0usize..4, index: u32, problem in ".{1,20}") {
            let kinds = [TaskKind::Conjecture, TaskKind::Rollout, TaskKind::Judgement, TaskKind::Review];
            let key = TaskKey { round, kind: kinds[kind], problem: ProblemId::new(problem), index };
            prop_assert_eq!(&key.to_string().parse::<TaskKey>().unwrap(), &key);
            let json = serde_json::to_string(&key).unwrap();
            prop_assert_eq!(serde_json::from_str::<TaskKey>(&json).unwrap(), key);
        }

        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            let _ = text.parse::<TaskKey>();
        }
    }
}
