//! What a run tells while it goes on: a view, a live page and a log are made of this, and of nothing else.

use sgs_fleet::Fleet;
use sgs_rundir::metrics::MetricValues;
use sgs_selfplay::round::conjecture_id;
use sgs_selfplay::{Event, Problem, ProblemId, Progress, Review, RoundOutcome, TaskKey, TaskKind, Verdict};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Something that a run tells, in the order in which it happens.
pub enum RunEvent<'a> {
    /// The board that the run's tasks stand on; told once, before the first round.
    Board(&'a Fleet),
    /// A round begins, goes on after an interruption, or enters its next stage.
    Stage {
        round: u32,
        /// Rounds that the run is to have.
        rounds: u32,
        stage: RoundStage,
    },
    /// The counts of the round so far.
    Progress(Progress),
    /// The Conjecturer's completion was read as a statement.
    Conjecture {
        /// Its name in the round.
        id: &'a ProblemId,
        statement: &'a Arc<str>,
    },
    /// The Guide's completion was read as a review.
    Reviewed {
        /// The conjecture's name.
        id: &'a ProblemId,
        /// What it states; `None` if the conjecture was told before this process began.
        statement: Option<&'a Arc<str>>,
        review: &'a Review,
    },
    /// The first proof of a problem in this round.
    Solved {
        problem: &'a Problem,
        /// Whether it is a target; else a conjecture.
        target: bool,
        /// The proof in canonical text.
        proof: &'a str,
    },
    /// A round is over: its outcome stands, its files are on their way.
    RoundFinished {
        /// What came of it.
        outcome: &'a RoundOutcome,
        metrics: &'a MetricValues,
    },
    /// An evaluation stands on the disk.
    Evaluated {
        /// Its numbers; their `round` is the number of rounds before it.
        metrics: &'a MetricValues,
    },
    /// A round's checkpoint, tables and metrics stand on the disk.
    RoundPublished {
        round: u32,
        /// Seconds that it took, beside the next round.
        seconds: f64,
    },
    /// Something that a person may want to act on: how workers connect, what guards the checker.
    Note(&'a str),
    /// Something is not as it should be, and the run goes on.
    Warning(&'a str),
}

/// What a round does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundStage {
    /// Held-out problems are tried, before the round or after the last one.
    Evaluating,
    /// Conjectures, rollouts, verdicts and reviews.
    Sampling,
    /// Solver and Conjecturer are trained.
    Updating,
}

impl RoundStage {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Evaluating => "evaluating",
            Self::Sampling => "sampling",
            Self::Updating => "updating",
        }
    }
}

/// Where a run's events go.
pub type Listener<'a> = dyn FnMut(RunEvent<'_>) + 'a;

/// A listener, and what it has been told of the round so far.
pub struct Story<'a> {
    teller: Teller,
    listener: &'a mut Listener<'a>,
}

impl<'a> Story<'a> {
    /// Of a run with these targets.
    pub fn new(targets: &[Arc<Problem>], listener: &'a mut Listener<'a>) -> Self {
        Self { teller: Teller::new(targets), listener }
    }

    /// Tells.
    pub fn tell(&mut self, event: RunEvent<'_>) {
        (self.listener)(event);
    }

    /// Tells what there is to say of a result, before the round takes it.
    pub fn result(&mut self, event: &Event) {
        self.teller.tell(event, self.listener);
    }
}

/// Turns the results of a round, in the order in which they come in, into what is told of them.
pub struct Teller {
    targets: HashMap<ProblemId, Arc<Problem>>,
    round: Option<u32>,
    /// Conjectures of the round by name: statement, and the target whose context they share.
    conjectures: HashMap<ProblemId, (Arc<str>, ProblemId)>,
    /// Proofs that wait for their verdicts.
    unjudged: HashMap<TaskKey, Arc<str>>,
    /// Problems of the round of which a proof was told.
    solved: HashSet<ProblemId>,
}

impl Teller {
    /// Of a run with these targets.
    pub fn new(targets: &[Arc<Problem>]) -> Self {
        Self {
            targets: targets.iter().map(|t| (t.id.clone(), Arc::clone(t))).collect(),
            round: None,
            conjectures: HashMap::new(),
            unjudged: HashMap::new(),
            solved: HashSet::new(),
        }
    }

    /// One result, before the round takes it.
    pub fn tell(&mut self, event: &Event, listener: &mut Listener<'_>) {
        self.begin(event.key().round);
        match event {
            Event::Conjecture { key, read: Ok(read), .. } => {
                let statement = &read.statement;
                let id = conjecture_id(key.round, &key.problem, key.index);
                listener(RunEvent::Conjecture { id: &id, statement });
                self.conjectures.insert(id, (Arc::clone(statement), key.problem.clone()));
            }
            Event::Rollout { key, read: Ok(proof), .. } => {
                self.unjudged.insert(key.clone(), Arc::clone(&proof.text));
            }
            Event::Judgement { key, judgement } => {
                let proof = self.unjudged.remove(&key.with_kind(TaskKind::Rollout));
                if let (Verdict::Proved, Some(proof)) = (judgement.verdict, proof) {
                    self.solved(&key.problem, &proof, listener);
                }
            }
            Event::Review { key, read: Ok(review), .. } => {
                let statement = self.conjectures.get(&key.problem).map(|(statement, _)| statement);
                listener(RunEvent::Reviewed { id: &key.problem, statement, review });
            }
            _ => {}
        }
    }

    /// Forgets the round before, if this is another one.
    fn begin(&mut self, round: u32) {
        if self.round != Some(round) {
            self.round = Some(round);
            self.conjectures.clear();
            self.unjudged.clear();
            self.solved.clear();
        }
    }

    fn solved(&mut self, id: &ProblemId, proof: &str, listener: &mut Listener<'_>) {
        if !self.solved.insert(id.clone()) {
            return;
        }
        match (self.targets.get(id), self.conjectures.get(id)) {
            (Some(problem), _) => listener(RunEvent::Solved { problem, target: true, proof }),
            (None, Some((statement, target))) => {
                let context = self.targets.get(target).map_or_else(|| "".into(), |t| Arc::clone(&t.context));
                let problem = Problem { id: id.clone(), statement: Arc::clone(statement), context };
                listener(RunEvent::Solved { problem: &problem, target: false, proof });
            }
            // A conjecture that was told before this process began.
            (None, None) => {}
        }
    }
}
