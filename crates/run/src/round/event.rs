//! The events that a run reports. Views, live pages and logs are built from these alone.

use sgs_fleet::Fleet;
use sgs_rundir::metrics::MetricValues;
use sgs_selfplay::round::conjecture_id;
use sgs_selfplay::{Event, Problem, ProblemId, Progress, Review, RoundOutcome, TaskKey, TaskKind, Verdict};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An event of a run, reported in the order of occurrence.
pub enum RunEvent<'a> {
    /// The task board, reported once before the first round.
    Board(&'a Fleet),
    /// A round begins, resumes, or enters its next stage.
    Stage {
        round: u32,
        /// Number of rounds of the run.
        rounds: u32,
        stage: RoundStage,
    },
    /// The round's counts so far.
    Progress(Progress),
    /// The Conjecturer proposed a well-formed statement.
    Conjecture { id: &'a ProblemId, statement: &'a Arc<str> },
    /// The Guide wrote a well-formed review.
    Reviewed {
        id: &'a ProblemId,
        /// Its statement; `None` if it was reported before this process started.
        statement: Option<&'a Arc<str>>,
        review: &'a Review,
    },
    /// The first proof of a problem in this round.
    Solved {
        problem: &'a Problem,
        /// True for a target, false for a conjecture.
        target: bool,
        /// The proof in canonical form.
        proof: &'a str,
    },
    /// A round has its outcome; its files are being written.
    RoundFinished { outcome: &'a RoundOutcome, metrics: &'a MetricValues },
    /// An evaluation is on disk.
    Evaluated {
        /// Its metrics; their `round` is the number of rounds before the evaluation.
        metrics: &'a MetricValues,
    },
    /// A round's checkpoint, tables and metrics are on disk.
    RoundPublished {
        round: u32,
        /// Duration of the publication, which runs in parallel with the next round.
        seconds: f64,
    },
    /// Information for the user: how workers connect, which sandbox protects the checker.
    Note(&'a str),
    /// A problem that does not stop the run.
    Warning(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundStage {
    /// Evaluation on held-out problems, before the round or after the last one; before round 0 also the Guide's check.
    Evaluating,
    /// Sampling of conjectures, rollouts and reviews, and verification.
    Sampling,
    /// Training of Solver and Conjecturer.
    Updating,
}

impl RoundStage {
    /// Returns the name that is shown to users.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Evaluating => "evaluating",
            Self::Sampling => "sampling",
            Self::Updating => "updating",
        }
    }
}

pub type Listener<'a> = dyn FnMut(RunEvent<'_>) + 'a;

/// A listener together with the state that translating results needs.
pub struct EventStream<'a> {
    listener: &'a mut Listener<'a>,
    targets: HashMap<ProblemId, Arc<Problem>>,
    round: Option<u32>,
    /// Conjectures of the round by id: statement, and the target whose context they share.
    conjectures: HashMap<ProblemId, (Arc<str>, ProblemId)>,
    /// Proofs without a verdict yet.
    unjudged: HashMap<TaskKey, Arc<str>>,
    /// Problems of the round that were reported as solved.
    solved: HashSet<ProblemId>,
}

impl<'a> EventStream<'a> {
    /// Creates the stream of a run with these targets.
    pub fn new(targets: &[Arc<Problem>], listener: &'a mut Listener<'a>) -> Self {
        Self {
            listener,
            targets: targets.iter().map(|t| (t.id.clone(), Arc::clone(t))).collect(),
            round: None,
            conjectures: HashMap::new(),
            unjudged: HashMap::new(),
            solved: HashSet::new(),
        }
    }

    pub fn emit(&mut self, event: RunEvent<'_>) {
        (self.listener)(event);
    }

    /// Emits the events of a result. Call it before the round applies the result.
    pub fn result(&mut self, event: &Event) {
        self.begin(event.key().round);
        match event {
            Event::Conjecture { key, read: Ok(read), .. } => {
                let statement = &read.statement;
                let id = conjecture_id(key.round, &key.problem, key.index);
                (self.listener)(RunEvent::Conjecture { id: &id, statement });
                self.conjectures.insert(id, (Arc::clone(statement), key.problem.clone()));
            }
            Event::Rollout { key, read: Ok(proof), .. } => {
                self.unjudged.insert(key.clone(), Arc::clone(&proof.text));
            }
            Event::Judgement { key, judgement } => {
                let proof = self.unjudged.remove(&key.with_kind(TaskKind::Rollout));
                if let (Verdict::Proved, Some(proof)) = (judgement.verdict, proof) {
                    self.solved(&key.problem, &proof);
                }
            }
            Event::Review { key, read: Ok(review), .. } => {
                let statement = self.conjectures.get(&key.problem).map(|(statement, _)| statement);
                (self.listener)(RunEvent::Reviewed { id: &key.problem, statement, review });
            }
            _ => {}
        }
    }

    /// Resets the state if this is a new round.
    fn begin(&mut self, round: u32) {
        if self.round != Some(round) {
            self.round = Some(round);
            self.conjectures.clear();
            self.unjudged.clear();
            self.solved.clear();
        }
    }

    fn solved(&mut self, id: &ProblemId, proof: &str) {
        if !self.solved.insert(id.clone()) {
            return;
        }
        match (self.targets.get(id), self.conjectures.get(id)) {
            (Some(problem), _) => (self.listener)(RunEvent::Solved { problem, target: true, proof }),
            (None, Some((statement, target))) => {
                let context = self.targets.get(target).map_or_else(|| "".into(), |t| Arc::clone(&t.context));
                let problem = Problem { id: id.clone(), statement: Arc::clone(statement), context };
                (self.listener)(RunEvent::Solved { problem: &problem, target: false, proof });
            }
            // The conjecture was reported before this process started.
            (None, None) => {}
        }
    }
}
