//! One round as a state machine: results come in as events, work goes out as commands.
//!
//! The machine is a function of its beginning and of the *set* of answers it was given, one for each task: neither their
//! order nor repeats change what it asks for or what comes out. After a crash, a new machine that is given the same events again stands
//! where the old one stood, and [`Round::pending`] is the work that is still to be done.
//!
//! Rollouts of targets start at once. Conjectures are accepted in the order of their slots: slot n is decided once the
//! slots before it are known, so that which of two equal conjectures is the duplicate does not depend on who came first.
//! An accepted conjecture's rollouts (and its review) start right then.

use crate::batch::select_batch;
use crate::config::{AlgorithmConfig, Conditioning, GuideConfig, GuideKind, GuideScope, Selection};
use crate::data::{Judgement, Problem, ProblemId, Review, SampleFacts, Verdict};
use crate::duplicates::Statements;
use crate::rate::Tally;
use crate::reward::{conjecture_threshold, passes_threshold};
use crate::seed::{Stream, shuffle_seed, task_seed};
use crate::state::RunState;
use crate::store::{fingerprint, in_window};
use crate::stp::draw_solved;
use crate::task::{Command, Event, Lemma, OwnedCondition, ReadConjecture, ReadProof, TaskKey, TaskKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A round in progress.
#[derive(Clone, Debug)]
pub struct Round {
    pub(crate) config: Arc<AlgorithmConfig>,
    pub(crate) run_seed: u64,
    pub(crate) number: u32,
    pub(crate) epoch: u64,
    pub(crate) context_window: u32,
    pub(crate) targets_total: usize,
    pub(crate) batch_size: usize,
    /// Targets to be sampled, then accepted conjectures in the order of their slots.
    pub(crate) works: Vec<Work>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) ignored: Ignored,
    work_of: HashMap<ProblemId, usize>,
    slot_of: HashMap<(ProblemId, u32), usize>,
    conjecture_ids: HashSet<ProblemId>,
    decided_slots: usize,
    open_conjecture_rollouts: usize,
    reviews_released: bool,
    statements: Statements,
    /// Fingerprints of the conjectures of earlier rounds, if those are refused.
    seen: Arc<HashSet<u64>>,
    early: BTreeMap<TaskKey, Event>,
    progress: Progress,
}

/// One problem being solved.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub problem: Arc<Problem>,
    pub origin: Origin,
    pub rollouts: Vec<RolloutState>,
    pub review: ReviewState,
    /// What the last rollouts may cite, one each.
    pub lemmas: Vec<Arc<Lemma>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Target { solved_before: bool },
    Conjecture { slot: usize },
}

#[derive(Clone, Debug)]
pub(crate) enum RolloutState {
    Waiting,
    Sampled {
        proof: ReadProof,
        sample: SampleFacts,
    },
    Judged {
        proof: ReadProof,
        sample: SampleFacts,
        judgement: Judgement,
    },
    Malformed {
        defect: String,
        sample: SampleFacts,
    },
    /// Lost before or after it was sampled.
    Lost {
        reason: String,
        sampled: Option<(ReadProof, SampleFacts)>,
    },
}

impl RolloutState {
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            RolloutState::Waiting | RolloutState::Sampled { .. } => None,
            RolloutState::Judged { judgement, .. } => Some(judgement.verdict),
            RolloutState::Malformed { .. } => Some(Verdict::Malformed),
            RolloutState::Lost { .. } => Some(Verdict::Infra),
        }
    }
}

/// The reviews of one conjecture.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReviewState {
    pub wanted: bool,
    pub attempts: Vec<ReviewAttempt>,
    pub settled: bool,
}

impl ReviewState {
    /// Its well-formed reviews.
    pub fn well_formed(&self) -> impl Iterator<Item = &Review> {
        self.attempts.iter().filter_map(|attempt| attempt.read.as_ref().ok())
    }

    fn wants_more(&self, guide: &GuideConfig) -> bool {
        let read = self.well_formed().count();
        let malformed = self.attempts.len() - read;
        read < guide.samples as usize && malformed <= guide.resamples as usize
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ReviewAttempt {
    pub read: Result<Review, String>,
    pub sample: Option<SampleFacts>,
}

/// One conjecture to be invented.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub key: TaskKey,
    pub id: ProblemId,
    pub condition: OwnedCondition,
    pub state: SlotState,
}

#[derive(Clone, Debug)]
pub(crate) enum SlotState {
    Waiting,
    /// Read, but not yet compared with the slots before it.
    Read {
        read: ReadConjecture,
        sample: SampleFacts,
    },
    Accepted {
        work: usize,
        read: ReadConjecture,
        sample: SampleFacts,
    },
    Duplicate {
        statement: Arc<str>,
        of: ProblemId,
        sample: SampleFacts,
    },
    /// Left out since it is not new.
    Refused {
        statement: Arc<str>,
        refusal: Refusal,
        sample: SampleFacts,
    },
    Malformed {
        defect: String,
        sample: SampleFacts,
    },
    Lost {
        reason: String,
    },
}

/// Why a well-formed conjecture is not taken, although no problem of the round says the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// This theorem before its context says the same.
    Known(Arc<str>),
    /// It was a problem of an earlier round.
    Seen,
}

/// Events that changed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ignored {
    /// The task was already answered.
    pub repeated: u64,
    /// No such task exists in this round.
    pub unknown: u64,
}

/// How far one kind of task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageProgress {
    pub done: u64,
    /// Tasks asked for so far.
    pub asked: u64,
}

/// How far a round is, by kind of task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Completions of the Conjecturer.
    pub conjectures: StageProgress,
    /// Completions of the Solver.
    pub rollouts: StageProgress,
    pub judgements: StageProgress,
    /// Completions of the Guide.
    pub reviews: StageProgress,
}

impl Progress {
    /// The counts of one kind.
    pub fn of(&self, kind: TaskKind) -> StageProgress {
        match kind {
            TaskKind::Conjecture => self.conjectures,
            TaskKind::Rollout => self.rollouts,
            TaskKind::Judgement => self.judgements,
            TaskKind::Review => self.reviews,
        }
    }

    fn stage(&mut self, kind: TaskKind) -> &mut StageProgress {
        match kind {
            TaskKind::Conjecture => &mut self.conjectures,
            TaskKind::Rollout => &mut self.rollouts,
            TaskKind::Judgement => &mut self.judgements,
            TaskKind::Review => &mut self.reviews,
        }
    }

    fn open(&self) -> u64 {
        [self.conjectures, self.rollouts, self.judgements, self.reviews]
            .iter()
            .map(|s| s.asked - s.done)
            .sum()
    }
}

/// Why a round cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoundError {
    /// Ids name problems in every file of a run.
    #[error("two targets are called {0:?}; ids must be unique within a data set")]
    RepeatedTarget(ProblemId),
    /// A target has the name that a conjecture of this round will get.
    #[error("the target {0:?} has the name of a conjecture of this round; rename it in the data set")]
    ClashingName(ProblemId),
}

/// Whether an event was of use.
enum Taken {
    Changed(Vec<Command>),
    Repeated,
    Unknown,
    Early,
}

impl Round {
    /// Begins the round that `state` waits for.
    ///
    /// `targets` is the whole data set, in a fixed order; `context_window` the window, in tokens, that the length penalty
    /// is measured against.
    ///
    /// # Errors
    /// If ids are not unique.
    pub fn new(
        config: Arc<AlgorithmConfig>,
        run_seed: u64,
        context_window: u32,
        targets: &[Arc<Problem>],
        state: &RunState,
    ) -> Result<Self, RoundError> {
        let number = state.next_round;
        let mut names = HashSet::new();
        let mut statements = Statements::default();
        for target in targets {
            if !names.insert(&target.id) {
                return Err(RoundError::RepeatedTarget(target.id.clone()));
            }
            // Targets with equal statements are the data set's affair; the first stands for all.
            let _ = statements.enter(&target.statement, &target.id);
        }
        let ids: Vec<&str> = targets.iter().map(|target| target.id.as_str()).collect();
        let batch = select_batch(&ids, &config.batch, run_seed, number);
        let chosen: Vec<&Arc<Problem>> = batch.indices.iter().map(|&i| &targets[i]).collect();

        let mut round = Self {
            run_seed,
            number,
            epoch: batch.epoch,
            context_window,
            targets_total: targets.len(),
            batch_size: chosen.len(),
            works: Vec::new(),
            slots: conjecture_slots(&config, run_seed, targets, &chosen, state),
            ignored: Ignored::default(),
            work_of: HashMap::new(),
            slot_of: HashMap::new(),
            conjecture_ids: HashSet::new(),
            decided_slots: 0,
            open_conjecture_rollouts: 0,
            reviews_released: config.guide.scope == GuideScope::All,
            statements,
            seen: if config.conjecturer.refuse_seen { Arc::clone(&state.seen) } else { Arc::default() },
            early: BTreeMap::new(),
            progress: Progress::default(),
            config,
        };
        if let Some(slot) = round.slots.iter().find(|slot| names.contains(&slot.id)) {
            return Err(RoundError::ClashingName(slot.id.clone()));
        }
        let keys = round.slots.iter().enumerate();
        round.slot_of = keys.map(|(i, slot)| ((slot.key.problem.clone(), slot.key.index), i)).collect();
        round.conjecture_ids = round.slots.iter().map(|slot| slot.id.clone()).collect();
        round.progress.conjectures.asked = round.slots.len() as u64;
        let rehearsed = round.rehearsed(&chosen, state);
        for target in chosen {
            if !round.is_retired(target, state) || rehearsed.contains(&target.id) {
                let solved_before = state.is_solved(&target.id);
                let work = round.begin_work(target.clone(), Origin::Target { solved_before });
                if !solved_before {
                    round.works[work].lemmas = round.lemmas_for(target, state);
                }
            }
        }
        Ok(round)
    }

    /// The round's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How far the round is.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Events that changed nothing so far.
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Whether every task is answered, so that [`Round::finish`](crate::outcome) can be called.
    pub fn is_complete(&self) -> bool {
        self.progress.open() == 0
    }

    /// Takes an event and gives the commands that it opened.
    ///
    /// An event that comes before its command is kept until the command is due, and then stands in for it. Events of
    /// other rounds, of unknown tasks and of tasks already answered change nothing; they are counted.
    pub fn apply(&mut self, event: Event) -> Vec<Command> {
        let mut events = vec![event];
        let mut commands = Vec::new();
        while let Some(event) = events.pop() {
            let key = event.key().clone();
            let opened = match self.take(event) {
                Taken::Changed(opened) => {
                    self.progress.stage(key.kind).done += 1;
                    opened
                }
                Taken::Repeated => {
                    self.ignored.repeated += 1;
                    continue;
                }
                Taken::Unknown => {
                    self.ignored.unknown += 1;
                    continue;
                }
                Taken::Early => continue,
            };
            for command in opened {
                match self.early.remove(command.key()) {
                    Some(event) => events.push(event),
                    None => commands.push(command),
                }
            }
        }
        commands
    }

    /// All work that was asked for and is not answered, in a fixed order: conjectures, then by problem the judgements and
    /// rollouts, then reviews. What a machine that was just begun, or just replayed, wants done.
    pub fn pending(&self) -> Vec<Command> {
        let waiting = self.slots.iter().filter(|slot| matches!(slot.state, SlotState::Waiting));
        let mut commands: Vec<Command> = waiting.map(|slot| self.conjecture_command(slot)).collect();
        for work in &self.works {
            for (index, rollout) in (0u32..).zip(&work.rollouts) {
                match rollout {
                    RolloutState::Waiting => commands.push(self.rollout_command(work, index)),
                    RolloutState::Sampled { proof, .. } => {
                        commands.push(self.verify_command(work, index, proof))
                    }
                    _ => {}
                }
            }
        }
        let open = self.works.iter().filter(|work| work.review.wanted && !work.review.settled);
        commands.extend(open.map(|work| self.review_command(work)));
        commands
    }

    /// Targets that are still solved too seldom to be dropped from sampling (expert iteration samples those with fewer
    /// than 16 stored proofs only; every other selection samples the whole batch).
    /// Whether a target has so many proofs that rounds leave it alone.
    fn is_retired(&self, target: &Problem, state: &RunState) -> bool {
        let solver = &self.config.solver;
        let enough = match solver.effective_selection() {
            Selection::FewProofs => solver.proofs_cap,
            _ => self.config.batch.retire_after,
        };
        enough > 0 && state.proofs.of(&target.id).len() >= enough as usize
    }

    /// The retired targets of the batch that this round samples all the same.
    fn rehearsed(&self, batch: &[&Arc<Problem>], state: &RunState) -> HashSet<ProblemId> {
        let share = self.config.batch.rehearsed_share;
        let mut retired: Vec<&ProblemId> = batch
            .iter()
            .filter(|target| share > 0.0 && self.is_retired(target, state))
            .map(|target| &target.id)
            .collect();
        let seed = shuffle_seed(self.run_seed, "rehearsed", u64::from(self.number));
        Stream::new(seed).shuffle(&mut retired);
        let count = (share * retired.len() as f64).ceil() as usize;
        retired.into_iter().take(count).cloned().collect()
    }

    fn begin_work(&mut self, problem: Arc<Problem>, origin: Origin) -> usize {
        let k = self.config.rollouts_per_problem;
        let position = self.works.len();
        self.work_of.insert(problem.id.clone(), position);
        let rollouts = (0..k).map(|_| RolloutState::Waiting).collect();
        let review = ReviewState::default();
        self.works.push(Work { problem, origin, rollouts, review, lemmas: Vec::new() });
        self.progress.rollouts.asked += u64::from(k);
        position
    }

    /// The lemmas that were proved last for a target, newest first: one for each rollout that may cite one. Old ones had
    /// their chance, and the plain problem is worth more than trying them for ever.
    fn lemmas_for(&self, target: &Problem, state: &RunState) -> Vec<Arc<Lemma>> {
        let solver = &self.config.solver;
        let is_fresh = |lemma: &&Arc<Lemma>| in_window(lemma.round + 1, self.number, solver.lemma_rounds);
        let lemmas = state.lemmas.get(&target.id).into_iter().flatten().rev().filter(is_fresh);
        lemmas.take(solver.lemma_rollouts as usize).cloned().collect()
    }

    fn take(&mut self, event: Event) -> Taken {
        let key = event.key();
        let fits = event.kind().is_none_or(|kind| kind == key.kind);
        if key.round != self.number || !fits {
            return Taken::Unknown;
        }
        if self.early.contains_key(key) {
            return Taken::Repeated;
        }
        match key.kind {
            TaskKind::Conjecture => self.take_conjecture(event),
            TaskKind::Rollout => self.take_rollout(event),
            TaskKind::Judgement => self.take_judgement(event),
            TaskKind::Review => self.take_review(event),
        }
    }

    /// Keeps an event whose command is not yet due, if it may become due at all.
    fn keep(&mut self, event: Event) -> Taken {
        let key = event.key();
        let possible = self.work_of.contains_key(&key.problem) || self.conjecture_ids.contains(&key.problem);
        let bound = if key.kind == TaskKind::Review {
            self.config.guide.samples + self.config.guide.resamples
        } else {
            self.config.rollouts_per_problem
        };
        if !possible || key.index >= bound {
            return Taken::Unknown;
        }
        self.early.insert(key.clone(), event);
        Taken::Early
    }

    fn take_conjecture(&mut self, event: Event) -> Taken {
        let key = event.key();
        let Some(&position) = self.slot_of.get(&(key.problem.clone(), key.index)) else {
            return Taken::Unknown;
        };
        let slot = &mut self.slots[position];
        if !matches!(slot.state, SlotState::Waiting) {
            return Taken::Repeated;
        }
        slot.state = match event {
            Event::Conjecture { read: Ok(read), sample, .. } => SlotState::Read { read, sample },
            Event::Conjecture { read: Err(defect), sample, .. } => SlotState::Malformed { defect, sample },
            Event::Lost { reason, .. } => SlotState::Lost { reason },
            _ => return Taken::Unknown,
        };
        let mut opened = Vec::new();
        self.decide_slots(&mut opened);
        self.release_reviews(&mut opened);
        Taken::Changed(opened)
    }

    /// Decides all slots up to the first that is still waited for.
    fn decide_slots(&mut self, opened: &mut Vec<Command>) {
        while let Some(slot) = self.slots.get(self.decided_slots) {
            match slot.state.clone() {
                SlotState::Waiting => return,
                SlotState::Read { read, sample } => {
                    self.decide_slot(self.decided_slots, read, sample, opened)
                }
                _ => {}
            }
            self.decided_slots += 1;
        }
    }

    fn decide_slot(
        &mut self,
        position: usize,
        read: ReadConjecture,
        sample: SampleFacts,
        opened: &mut Vec<Command>,
    ) {
        let slot = &self.slots[position];
        let id = slot.id.clone();
        let statement = read.statement.clone();
        // Before the duplicates: a refused statement must not make duplicates of others.
        if let Some(refusal) = self.refusal(&read) {
            self.slots[position].state = SlotState::Refused { statement, refusal, sample };
            return;
        }
        if let Err(of) = self.statements.enter(&statement, &id) {
            self.slots[position].state = SlotState::Duplicate { statement, of, sample };
            return;
        }
        let context = slot.condition.problem().context.clone();
        let problem = Arc::new(Problem { id, statement, context });
        let work = self.begin_work(problem, Origin::Conjecture { slot: position });
        self.slots[position].state = SlotState::Accepted { work, read, sample };
        let k = self.config.rollouts_per_problem;
        self.open_conjecture_rollouts += k as usize;
        opened.extend((0..k).map(|index| self.rollout_command(&self.works[work], index)));
        if self.reviews_by_model() && self.config.guide.scope == GuideScope::All {
            self.open_review(work, opened);
        }
    }

    fn refusal(&self, read: &ReadConjecture) -> Option<Refusal> {
        if self.config.conjecturer.refuse_known
            && let Some(theorem) = &read.known
        {
            return Some(Refusal::Known(theorem.clone()));
        }
        self.seen.contains(&fingerprint(&read.statement)).then_some(Refusal::Seen)
    }

    fn reviews_by_model(&self) -> bool {
        self.config.guide.on && self.config.guide.kind != GuideKind::Rubric
    }

    fn take_rollout(&mut self, event: Event) -> Taken {
        let key = event.key();
        let Some(&position) = self.work_of.get(&key.problem) else { return self.keep(event) };
        let index = key.index;
        let Some(rollout) = self.works[position].rollouts.get_mut(index as usize) else {
            return Taken::Unknown;
        };
        if !matches!(rollout, RolloutState::Waiting) {
            return Taken::Repeated;
        }
        let to_verify = match event {
            Event::Rollout { read: Ok(proof), sample, .. } => {
                *rollout = RolloutState::Sampled { proof: proof.clone(), sample };
                Some(proof)
            }
            Event::Rollout { read: Err(defect), sample, .. } => {
                *rollout = RolloutState::Malformed { defect, sample };
                None
            }
            Event::Lost { reason, .. } => {
                *rollout = RolloutState::Lost { reason, sampled: None };
                None
            }
            _ => return Taken::Unknown,
        };
        let mut opened = Vec::new();
        match to_verify {
            Some(proof) => {
                self.progress.judgements.asked += 1;
                opened.push(self.verify_command(&self.works[position], index, &proof));
            }
            None => self.close_rollout(position, &mut opened),
        }
        Taken::Changed(opened)
    }

    fn take_judgement(&mut self, event: Event) -> Taken {
        let key = event.key();
        let Some(&position) = self.work_of.get(&key.problem) else { return self.keep(event) };
        let Some(rollout) = self.works[position].rollouts.get_mut(key.index as usize) else {
            return Taken::Unknown;
        };
        let (proof, sample) = match rollout {
            RolloutState::Waiting => return self.keep(event),
            RolloutState::Sampled { proof, sample } => (proof.clone(), *sample),
            RolloutState::Judged { .. } => return Taken::Repeated,
            RolloutState::Lost { sampled: Some(_), .. } => return Taken::Repeated,
            RolloutState::Malformed { .. } | RolloutState::Lost { .. } => return Taken::Unknown,
        };
        *rollout = match event {
            Event::Judgement { judgement, .. } => RolloutState::Judged { proof, sample, judgement },
            Event::Lost { reason, .. } => RolloutState::Lost { reason, sampled: Some((proof, sample)) },
            _ => return Taken::Unknown,
        };
        let mut opened = Vec::new();
        self.close_rollout(position, &mut opened);
        Taken::Changed(opened)
    }

    fn close_rollout(&mut self, position: usize, opened: &mut Vec<Command>) {
        if matches!(self.works[position].origin, Origin::Conjecture { .. }) {
            self.open_conjecture_rollouts -= 1;
            self.release_reviews(opened);
        }
    }

    fn take_review(&mut self, event: Event) -> Taken {
        let key = event.key();
        let Some(&position) = self.work_of.get(&key.problem) else { return self.keep(event) };
        let index = key.index as usize;
        let review = &mut self.works[position].review;
        if index < review.attempts.len() {
            return Taken::Repeated;
        }
        if review.settled || (self.reviews_released && !review.wanted) {
            return Taken::Unknown;
        }
        if !review.wanted || index > review.attempts.len() {
            return self.keep(event);
        }
        let (attempt, lost) = match event {
            Event::Review { read, sample, .. } => {
                let read =
                    read.and_then(|r| if r.is_in_range() { Ok(r) } else { Err("out-of-range".to_owned()) });
                (ReviewAttempt { read, sample: Some(sample) }, false)
            }
            Event::Lost { reason, .. } => (ReviewAttempt { read: Err(reason), sample: None }, true),
            _ => return Taken::Unknown,
        };
        review.attempts.push(attempt);
        review.settled = lost || !review.wants_more(&self.config.guide);
        if review.settled {
            return Taken::Changed(Vec::new());
        }
        self.progress.reviews.asked += 1;
        Taken::Changed(vec![self.review_command(&self.works[position])])
    }

    fn open_review(&mut self, position: usize, opened: &mut Vec<Command>) {
        self.works[position].review.wanted = true;
        self.progress.reviews.asked += 1;
        opened.push(self.review_command(&self.works[position]));
    }

    /// Under [`GuideScope::Selected`], asks for reviews once every conjecture is judged.
    fn release_reviews(&mut self, opened: &mut Vec<Command>) {
        let judged = self.decided_slots == self.slots.len() && self.open_conjecture_rollouts == 0;
        if self.reviews_released || !judged {
            return;
        }
        self.reviews_released = true;
        if !self.reviews_by_model() {
            return;
        }
        let threshold = self.conjecture_threshold();
        let of_conjecture =
            |work: &Work| matches!(work.origin, Origin::Conjecture { .. }) && !self.is_trivial(work);
        let suits = |work: &Work| work.tally().rate().is_some_and(|rate| passes_threshold(rate, threshold));
        let selected: Vec<usize> = (0..self.works.len())
            .filter(|&i| of_conjecture(&self.works[i]) && suits(&self.works[i]))
            .collect();
        for position in selected {
            self.open_review(position, opened);
        }
    }

    /// The highest solve rate of this round's conjectures that is not too easy. Trivial ones do not count.
    pub(crate) fn conjecture_threshold(&self) -> f64 {
        let conjectures = self
            .works
            .iter()
            .filter(|work| matches!(work.origin, Origin::Conjecture { .. }) && !self.is_trivial(work));
        let rates: Vec<f64> = conjectures.filter_map(|work| work.tally().rate()).collect();
        let config = &self.config.conjecturer;
        let relative = conjecture_threshold(&rates, config.rate_population, config.hardest_fraction);
        relative.min(config.max_solve_rate)
    }

    /// Whether a proof was found that is too short for the problem to be worth anything as a conjecture.
    pub(crate) fn is_trivial(&self, work: &Work) -> bool {
        work.shortest_proof().is_some_and(|steps| steps < self.config.conjecturer.min_proof_steps)
    }

    /// Events that were kept for a command that never came.
    pub(crate) fn unclaimed(&self) -> u64 {
        self.early.len() as u64
    }

    fn key(&self, kind: TaskKind, problem: &ProblemId, index: u32) -> TaskKey {
        TaskKey { round: self.number, kind, problem: problem.clone(), index }
    }

    fn seed_of(&self, key: &TaskKey) -> u64 {
        let role = key.kind.role().unwrap_or(crate::data::Role::Solver);
        task_seed(self.run_seed, key.round, role, &key.problem, key.index)
    }

    fn conjecture_command(&self, slot: &Slot) -> Command {
        let seed = self.seed_of(&slot.key);
        Command::SampleConjecture { key: slot.key.clone(), seed, condition: slot.condition.clone() }
    }

    fn rollout_command(&self, work: &Work, index: u32) -> Command {
        let key = self.key(TaskKind::Rollout, &work.problem.id, index);
        let (problem, lemma) = (work.problem.clone(), work.lemma_of(index).cloned());
        Command::SampleRollout { seed: self.seed_of(&key), key, problem, lemma }
    }

    fn verify_command(&self, work: &Work, index: u32, proof: &ReadProof) -> Command {
        let key = self.key(TaskKind::Judgement, &work.problem.id, index);
        Command::Verify { key, problem: work.problem.clone(), proof: proof.text.clone() }
    }

    fn review_command(&self, work: &Work) -> Command {
        let target = match work.origin {
            Origin::Conjecture { slot } => self.slots[slot].condition.problem().clone(),
            Origin::Target { .. } => work.problem.clone(),
        };
        let attempt = u32::try_from(work.review.attempts.len()).unwrap_or(u32::MAX);
        let key = self.key(TaskKind::Review, &work.problem.id, attempt);
        Command::SampleReview { seed: self.seed_of(&key), key, target, conjecture: work.problem.clone() }
    }
}

impl Work {
    pub fn tally(&self) -> Tally {
        Tally::of(self.rollouts.iter().filter_map(RolloutState::verdict))
    }

    /// Inferences of the shortest proof found; `None` without a proof.
    pub fn shortest_proof(&self) -> Option<u32> {
        let steps = |rollout: &RolloutState| match rollout {
            RolloutState::Judged { proof, judgement, .. } if judgement.verdict == Verdict::Proved => {
                Some(proof.steps)
            }
            _ => None,
        };
        self.rollouts.iter().filter_map(steps).min()
    }

    /// What a rollout may cite. The first rollouts cite nothing, so that the plain problem is tried in each round.
    pub fn lemma_of(&self, index: u32) -> Option<&Arc<Lemma>> {
        let plain = self.rollouts.len().saturating_sub(self.lemmas.len());
        self.lemmas.get((index as usize).checked_sub(plain)?)
    }
}

/// The conjectures to be invented: `conjectures_per_target` for each target of the batch that was never solved before
/// (paper, §3.1), in the batch's order; under STP as many, for solved targets drawn by the run's seed.
fn conjecture_slots(
    config: &AlgorithmConfig,
    run_seed: u64,
    targets: &[Arc<Problem>],
    batch: &[&Arc<Problem>],
    state: &RunState,
) -> Vec<Slot> {
    if !config.conjecturer.on {
        return Vec::new();
    }
    let per_target = config.conjecturer.conjectures_per_target;
    let unsolved = batch.iter().copied().filter(|target| !state.is_solved(&target.id)).collect();
    let seeded = drawn_share(unsolved, config.conjecturer.target_share, run_seed, state.next_round);
    let wanted = seeded.iter().flat_map(|&target| (0..per_target).map(move |_| target));
    let conditions: Vec<OwnedCondition> = match config.conjecturer.conditioning {
        Conditioning::Target => wanted.cloned().map(OwnedCondition::Target).collect(),
        Conditioning::None => wanted.cloned().map(OwnedCondition::Nothing).collect(),
        Conditioning::Solved => {
            let pool = solved_pool(targets, state, config.conjecturer.stp.min_seed_rate);
            let seed = shuffle_seed(run_seed, "stp-seeds", u64::from(state.next_round));
            draw_solved(pool.len(), wanted.count(), seed).into_iter().map(|i| pool[i].clone()).collect()
        }
    };
    let mut numbers: HashMap<ProblemId, u32> = HashMap::new();
    let mut slot = |condition: OwnedCondition| {
        let problem = condition.problem().id.clone();
        let next = numbers.entry(problem.clone()).or_default();
        let index = *next;
        *next += 1;
        let id = conjecture_id(state.next_round, &problem, index);
        let key = TaskKey { round: state.next_round, kind: TaskKind::Conjecture, problem, index };
        Slot { key, id, condition, state: SlotState::Waiting }
    };
    conditions.into_iter().map(&mut slot).collect()
}

/// A share of the targets, at least one of them, drawn by the run's seed, in their old order.
fn drawn_share(targets: Vec<&Arc<Problem>>, share: f64, run_seed: u64, round: u32) -> Vec<&Arc<Problem>> {
    if share >= 1.0 || targets.is_empty() {
        return targets;
    }
    let mut order: Vec<usize> = (0..targets.len()).collect();
    Stream::new(shuffle_seed(run_seed, "conjecture-targets", u64::from(round))).shuffle(&mut order);
    order.truncate(((targets.len() as f64 * share) as usize).max(1));
    order.sort_unstable();
    order.into_iter().map(|i| targets[i]).collect()
}

/// The name of the `index`-th conjecture that a round invents for a problem, should it become a problem itself.
pub fn conjecture_id(round: u32, problem: &ProblemId, index: u32) -> ProblemId {
    ProblemId::new(format!("c{round}-{problem}-{index}"))
}

/// Solved targets of the data set that are easy enough to be built upon (Dong and Ma 2025).
fn solved_pool(targets: &[Arc<Problem>], state: &RunState, min_rate: f64) -> Vec<OwnedCondition> {
    let condition = |target: &Arc<Problem>| {
        let solved = state.solved.get(&target.id).filter(|solved| solved.best_rate > min_rate)?;
        Some(OwnedCondition::Solved { problem: target.clone(), proof: solved.proof.clone() })
    };
    targets.iter().filter_map(condition).collect()
}
