//! One round as a state machine: it receives results as events and returns tasks as commands.
//!
//! The machine depends only on its initial state and on the *set* of events it has received, one per task. The order of
//! the events and repeated events change neither its commands nor its outcome. After a crash, a new machine that receives
//! the same events reaches the same state, and [`Round::pending`] returns the tasks that are still unanswered.
//!
//! Rollouts of targets start at once. Conjectures are decided in slot order: slot n is decided once all slots before it
//! are decided, so that which of two equal conjectures is the duplicate does not depend on timing. The rollouts (and the
//! review) of a conjecture start as soon as it is accepted.

use crate::batch::select_batch;
use crate::config::{AlgorithmConfig, Conditioning, ConjectureForm, GuideConfig, GuideScope, Selection};
use crate::data::{Judgement, Problem, ProblemId, Review, Role, SampleFacts, Verdict};
use crate::duplicates::StatementIndex;
use crate::objective::{attempt_verdict, is_repaired};
use crate::outcome::{ConjectureStatus, RefusalReason};
use crate::rate::Tally;
use crate::reward::{conjecture_threshold, passes_threshold};
use crate::seed::{SeededRng, shuffle_seed, task_seed};
use crate::state::RunState;
use crate::store::fingerprint;
use crate::stp::draw_solved;
use crate::task::{
    Command, Event, FailedProof, OwnedCondition, ParsedConjecture, ParsedProof, TaskKey, TaskKind,
};
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
    /// The sampled targets, then the accepted conjectures in slot order.
    pub(crate) problems: Vec<ProblemState>,
    pub(crate) slots: Vec<ConjectureSlot>,
    ignored: Ignored,
    /// Positions in `problems`.
    problem_positions: HashMap<ProblemId, usize>,
    /// Positions in `slots`, by target and index.
    slot_positions: HashMap<(ProblemId, u32), usize>,
    conjecture_ids: HashSet<ProblemId>,
    decided_slots: usize,
    open_conjecture_rollouts: usize,
    reviews_released: bool,
    statements: StatementIndex,
    /// Fingerprints of the conjectures of earlier rounds, if repeated conjectures are rejected.
    seen: Arc<HashSet<u64>>,
    /// Events received before their commands.
    early: BTreeMap<TaskKey, Event>,
    progress: Progress,
}

/// A problem of the round, with the state of its rollouts and reviews.
#[derive(Clone, Debug)]
pub(crate) struct ProblemState {
    pub problem: Arc<Problem>,
    pub origin: ProblemOrigin,
    /// The first turns of all attempts, then the second turns, and so on.
    pub rollouts: Vec<RolloutState>,
    /// k: number of attempts.
    pub attempts: usize,
    pub review: ReviewState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProblemOrigin {
    Target { solved_before: bool },
    Conjecture { slot: usize },
}

#[derive(Clone, Debug)]
pub(crate) enum RolloutState {
    /// A turn that its attempt has not reached.
    Unrequested,
    Waiting,
    Sampled {
        proof: ParsedProof,
        sample: SampleFacts,
    },
    Judged {
        proof: ParsedProof,
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
        sampled: Option<(ParsedProof, SampleFacts)>,
    },
}

impl RolloutState {
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            RolloutState::Unrequested | RolloutState::Waiting | RolloutState::Sampled { .. } => None,
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
    settled: bool,
}

impl ReviewState {
    pub fn well_formed(&self) -> impl Iterator<Item = &Review> {
        self.attempts.iter().filter_map(|attempt| attempt.read.as_ref().ok())
    }

    fn wants_more(&self, guide: &GuideConfig) -> bool {
        let well_formed = self.well_formed().count();
        let malformed = self.attempts.len() - well_formed;
        well_formed < guide.samples as usize && malformed <= guide.resamples as usize
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ReviewAttempt {
    pub read: Result<Review, String>,
    pub sample: Option<SampleFacts>,
}

/// A requested conjecture.
#[derive(Clone, Debug)]
pub(crate) struct ConjectureSlot {
    pub key: TaskKey,
    pub id: ProblemId,
    pub condition: OwnedCondition,
    pub state: SlotState,
}

#[derive(Clone, Debug)]
pub(crate) enum SlotState {
    Waiting,
    /// Parsed, but not decided yet.
    Read {
        read: ParsedConjecture,
        sample: SampleFacts,
    },
    Accepted {
        /// Position in [`Round::problems`].
        problem: usize,
        read: ParsedConjecture,
        sample: SampleFacts,
    },
    /// It becomes no problem, for this reason.
    Closed {
        status: ConjectureStatus,
        sample: Option<SampleFacts>,
    },
}

/// Counts of ignored events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ignored {
    /// Events for tasks that were already answered.
    pub repeated: u64,
    /// Events for tasks that do not exist in this round.
    pub unknown: u64,
}

/// Progress of one kind of task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageProgress {
    /// Answered tasks.
    pub done: u64,
    /// Tasks requested so far.
    pub asked: u64,
}

/// Progress of a round, by kind of task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Completions of the Conjecturer.
    pub conjectures: StageProgress,
    /// Completions of the Solver.
    pub rollouts: StageProgress,
    /// Proofs to verify.
    pub judgements: StageProgress,
    /// Completions of the Guide.
    pub reviews: StageProgress,
}

impl Progress {
    /// Returns the progress of one kind of task.
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
    /// Two targets have the same id.
    #[error("two targets are called {0:?}; ids must be unique within a data set")]
    RepeatedTarget(ProblemId),
    /// A target's id equals that of a conjecture of this round.
    #[error("the target {0:?} has the name of a conjecture of this round; rename it in the data set")]
    ClashingName(ProblemId),
}

/// The effect of an event on the round.
enum EventEffect {
    /// The event answers its task and unblocks these commands.
    Applied(Vec<Command>),
    Repeated,
    Unknown,
    /// The event's command is not due yet.
    Early,
}

impl Round {
    /// Begins the round that follows `state`.
    ///
    /// `targets` is the whole data set in a fixed order. `context_window` is the window, in tokens, that the length
    /// penalty refers to.
    ///
    /// # Errors
    /// Returns an error if ids are not unique.
    pub fn new(
        config: Arc<AlgorithmConfig>,
        run_seed: u64,
        context_window: u32,
        targets: &[Arc<Problem>],
        state: &RunState,
    ) -> Result<Self, RoundError> {
        let number = state.next_round;
        let mut names = HashSet::new();
        let mut statements = StatementIndex::default();
        for target in targets {
            if !names.insert(&target.id) {
                return Err(RoundError::RepeatedTarget(target.id.clone()));
            }
            // A data set may contain the same statement twice; duplicates then name the first target.
            let _ = statements.insert(&target.statement, &target.id);
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
            problems: Vec::new(),
            slots: conjecture_slots(&config, run_seed, targets, &chosen, state),
            ignored: Ignored::default(),
            problem_positions: HashMap::new(),
            slot_positions: HashMap::new(),
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
        round.slot_positions =
            keys.map(|(i, slot)| ((slot.key.problem.clone(), slot.key.index), i)).collect();
        round.conjecture_ids = round.slots.iter().map(|slot| slot.id.clone()).collect();
        round.progress.conjectures.asked = round.slots.len() as u64;
        let rehearsed = round.rehearsed(&chosen, state);
        for target in chosen {
            if !round.is_retired(target, state) || rehearsed.contains(&target.id) {
                let solved_before = state.is_solved(&target.id);
                round.add_problem(target.clone(), ProblemOrigin::Target { solved_before });
            }
        }
        Ok(round)
    }

    /// Returns the number of the round.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the progress by kind of task.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Returns the counts of events ignored so far.
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Returns whether every task is answered, so that [`Round::finish`] can be called.
    pub fn is_complete(&self) -> bool {
        self.progress.open() == 0
    }

    /// Returns the number of events whose command was never issued.
    pub fn unclaimed_events(&self) -> u64 {
        self.early.len() as u64
    }

    /// Applies an event and returns the commands that it unblocks.
    ///
    /// An event that arrives before its command is kept and applied when the command is due. Events of other rounds, of
    /// unknown tasks and of answered tasks are ignored and counted.
    pub fn apply(&mut self, event: Event) -> Vec<Command> {
        let mut events = vec![event];
        let mut commands = Vec::new();
        while let Some(event) = events.pop() {
            let key = event.key().clone();
            let unblocked = match self.take(event) {
                EventEffect::Applied(unblocked) => {
                    self.progress.stage(key.kind).done += 1;
                    unblocked
                }
                EventEffect::Repeated => {
                    self.ignored.repeated += 1;
                    continue;
                }
                EventEffect::Unknown => {
                    self.ignored.unknown += 1;
                    continue;
                }
                EventEffect::Early => continue,
            };
            for command in unblocked {
                match self.early.remove(command.key()) {
                    Some(event) => events.push(event),
                    None => commands.push(command),
                }
            }
        }
        commands
    }

    /// Returns the commands of all requested but unanswered tasks in a fixed order: conjectures, then the judgements and
    /// rollouts of each problem, then reviews.
    pub fn pending(&self) -> Vec<Command> {
        let waiting = self.slots.iter().filter(|slot| matches!(slot.state, SlotState::Waiting));
        let mut commands: Vec<Command> = waiting.map(|slot| self.conjecture_command(slot)).collect();
        for problem in &self.problems {
            for (index, rollout) in (0u32..).zip(&problem.rollouts) {
                match rollout {
                    RolloutState::Waiting => commands.push(self.rollout_command(problem, index)),
                    RolloutState::Sampled { proof, .. } => {
                        commands.push(self.verify_command(problem, index, proof))
                    }
                    _ => {}
                }
            }
        }
        let open = self.problems.iter().filter(|problem| problem.review.wanted && !problem.review.settled);
        commands.extend(open.map(|problem| self.review_command(problem)));
        commands
    }

    /// Returns whether a target has enough stored proofs to be left out of the round.
    fn is_retired(&self, target: &Problem, state: &RunState) -> bool {
        let solver = &self.config.solver;
        let enough = match solver.effective_selection() {
            Selection::FewProofs => solver.proofs_cap,
            _ => self.config.batch.retire_after,
        };
        enough > 0 && state.proofs.of(&target.id).len() >= enough as usize
    }

    /// Returns the retired targets of the batch that are nevertheless sampled in this round.
    fn rehearsed(&self, batch: &[&Arc<Problem>], state: &RunState) -> HashSet<ProblemId> {
        let share = self.config.batch.rehearsed_share;
        let mut retired: Vec<&ProblemId> = batch
            .iter()
            .filter(|target| share > 0.0 && self.is_retired(target, state))
            .map(|target| &target.id)
            .collect();
        let seed = shuffle_seed(self.run_seed, "rehearsed", u64::from(self.number));
        SeededRng::new(seed).shuffle(&mut retired);
        let count = (share * retired.len() as f64).ceil() as usize;
        retired.into_iter().take(count).cloned().collect()
    }

    /// Adds a problem with its k attempts and returns its position.
    fn add_problem(&mut self, problem: Arc<Problem>, origin: ProblemOrigin) -> usize {
        let k = self.config.rollouts_per_problem;
        let position = self.problems.len();
        self.problem_positions.insert(problem.id.clone(), position);
        let attempts = k as usize;
        let mut rollouts = vec![RolloutState::Waiting; attempts];
        rollouts.resize(self.rollouts_at_most() as usize, RolloutState::Unrequested);
        let review = ReviewState::default();
        self.problems.push(ProblemState { problem, origin, rollouts, attempts, review });
        self.progress.rollouts.asked += u64::from(k);
        position
    }

    /// Returns the maximum number of rollouts of a problem: the turns of all attempts.
    fn rollouts_at_most(&self) -> u32 {
        self.config.rollouts_per_problem * (1 + self.config.solver.repair_turns)
    }

    fn take(&mut self, event: Event) -> EventEffect {
        let key = event.key();
        let kind_matches = event.kind().is_none_or(|kind| kind == key.kind);
        if key.round != self.number || !kind_matches {
            return EventEffect::Unknown;
        }
        if self.early.contains_key(key) {
            return EventEffect::Repeated;
        }
        match key.kind {
            TaskKind::Conjecture => self.take_conjecture(event),
            TaskKind::Rollout => self.take_rollout(event),
            TaskKind::Judgement => self.take_judgement(event),
            TaskKind::Review => self.take_review(event),
        }
    }

    /// Keeps an event whose command is not due yet, if the command may still become due.
    fn keep_early(&mut self, event: Event) -> EventEffect {
        let key = event.key();
        let possible =
            self.problem_positions.contains_key(&key.problem) || self.conjecture_ids.contains(&key.problem);
        let bound = if key.kind == TaskKind::Review {
            self.config.guide.samples + self.config.guide.resamples
        } else {
            self.rollouts_at_most()
        };
        if !possible || key.index >= bound {
            return EventEffect::Unknown;
        }
        self.early.insert(key.clone(), event);
        EventEffect::Early
    }

    fn take_conjecture(&mut self, event: Event) -> EventEffect {
        let key = event.key();
        let Some(&position) = self.slot_positions.get(&(key.problem.clone(), key.index)) else {
            return EventEffect::Unknown;
        };
        let slot = &mut self.slots[position];
        if !matches!(slot.state, SlotState::Waiting) {
            return EventEffect::Repeated;
        }
        slot.state = match event {
            Event::Conjecture { read: Ok(read), sample, .. } => SlotState::Read { read, sample },
            Event::Conjecture { read: Err(defect), sample, .. } => {
                SlotState::Closed { status: ConjectureStatus::Malformed { defect }, sample: Some(sample) }
            }
            Event::Lost { reason, .. } => {
                SlotState::Closed { status: ConjectureStatus::Lost { reason }, sample: None }
            }
            _ => return EventEffect::Unknown,
        };
        let mut unblocked = Vec::new();
        self.decide_slots(&mut unblocked);
        self.release_reviews(&mut unblocked);
        EventEffect::Applied(unblocked)
    }

    /// Decides all slots before the first that is still waiting.
    fn decide_slots(&mut self, unblocked: &mut Vec<Command>) {
        while let Some(slot) = self.slots.get(self.decided_slots) {
            match slot.state.clone() {
                SlotState::Waiting => return,
                SlotState::Read { read, sample } => {
                    self.decide_slot(self.decided_slots, read, sample, unblocked)
                }
                _ => {}
            }
            self.decided_slots += 1;
        }
    }

    fn decide_slot(
        &mut self,
        position: usize,
        read: ParsedConjecture,
        sample: SampleFacts,
        unblocked: &mut Vec<Command>,
    ) {
        let slot = &self.slots[position];
        let id = slot.id.clone();
        let statement = read.statement.clone();
        // Do this before the check for duplicates, because a rejected statement must not turn later ones into
        // duplicates.
        if let Some(refusal) = self.refusal(&read) {
            let status = ConjectureStatus::Refused { statement, refusal };
            self.slots[position].state = SlotState::Closed { status, sample: Some(sample) };
            return;
        }
        if let Err(of) = self.statements.insert(&statement, &id) {
            let status = ConjectureStatus::Duplicate { statement, of };
            self.slots[position].state = SlotState::Closed { status, sample: Some(sample) };
            return;
        }
        let context = slot.condition.problem().context.clone();
        let problem = Arc::new(Problem { id, statement, context });
        let problem = self.add_problem(problem, ProblemOrigin::Conjecture { slot: position });
        self.slots[position].state = SlotState::Accepted { problem, read, sample };
        let k = self.config.rollouts_per_problem;
        self.open_conjecture_rollouts += k as usize;
        unblocked.extend((0..k).map(|index| self.rollout_command(&self.problems[problem], index)));
        if self.config.has_model_reviews() && self.config.guide.scope == GuideScope::All {
            self.request_review(problem, unblocked);
        }
    }

    fn refusal(&self, read: &ParsedConjecture) -> Option<RefusalReason> {
        if self.config.conjecturer.refuse_known
            && let Some(theorem) = &read.known
        {
            return Some(RefusalReason::Known(theorem.clone()));
        }
        self.seen.contains(&fingerprint(&read.statement)).then_some(RefusalReason::Seen)
    }

    fn take_rollout(&mut self, event: Event) -> EventEffect {
        let key = event.key();
        let Some(&position) = self.problem_positions.get(&key.problem) else {
            return self.keep_early(event);
        };
        let index = key.index;
        let Some(rollout) = self.problems[position].rollouts.get_mut(index as usize) else {
            return EventEffect::Unknown;
        };
        match rollout {
            RolloutState::Waiting => {}
            RolloutState::Unrequested => return self.keep_early(event),
            _ => return EventEffect::Repeated,
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
            _ => return EventEffect::Unknown,
        };
        let mut unblocked = Vec::new();
        match to_verify {
            Some(proof) => {
                self.progress.judgements.asked += 1;
                unblocked.push(self.verify_command(&self.problems[position], index, &proof));
            }
            None => self.close_attempt(position, &mut unblocked),
        }
        EventEffect::Applied(unblocked)
    }

    fn take_judgement(&mut self, event: Event) -> EventEffect {
        let key = event.key();
        let Some(&position) = self.problem_positions.get(&key.problem) else {
            return self.keep_early(event);
        };
        let index = key.index;
        let Some(rollout) = self.problems[position].rollouts.get_mut(index as usize) else {
            return EventEffect::Unknown;
        };
        let (proof, sample) = match rollout {
            RolloutState::Unrequested | RolloutState::Waiting => return self.keep_early(event),
            RolloutState::Sampled { proof, sample } => (proof.clone(), *sample),
            RolloutState::Judged { .. } => return EventEffect::Repeated,
            RolloutState::Lost { sampled: Some(_), .. } => return EventEffect::Repeated,
            RolloutState::Malformed { .. } | RolloutState::Lost { .. } => return EventEffect::Unknown,
        };
        *rollout = match event {
            Event::Judgement { judgement, .. } => RolloutState::Judged { proof, sample, judgement },
            Event::Lost { reason, .. } => RolloutState::Lost { reason, sampled: Some((proof, sample)) },
            _ => return EventEffect::Unknown,
        };
        let next = match &self.problems[position].rollouts[index as usize] {
            RolloutState::Judged { judgement, .. } => self.next_turn(index, judgement),
            _ => None,
        };
        let mut unblocked = Vec::new();
        match next {
            Some(next) => {
                self.problems[position].rollouts[next as usize] = RolloutState::Waiting;
                self.progress.rollouts.asked += 1;
                unblocked.push(self.rollout_command(&self.problems[position], next));
            }
            None => self.close_attempt(position, &mut unblocked),
        }
        EventEffect::Applied(unblocked)
    }

    /// Returns the index of the rollout that repairs the rollout `index`, if its attempt continues.
    fn next_turn(&self, index: u32, judgement: &Judgement) -> Option<u32> {
        let k = self.config.rollouts_per_problem;
        is_repaired(judgement, index / k, &self.config.solver).then_some(index + k)
    }

    fn close_attempt(&mut self, position: usize, unblocked: &mut Vec<Command>) {
        if self.problems[position].is_conjecture() {
            self.open_conjecture_rollouts -= 1;
            self.release_reviews(unblocked);
        }
    }

    fn take_review(&mut self, event: Event) -> EventEffect {
        let key = event.key();
        let Some(&position) = self.problem_positions.get(&key.problem) else {
            return self.keep_early(event);
        };
        let index = key.index as usize;
        let review = &mut self.problems[position].review;
        if index < review.attempts.len() {
            return EventEffect::Repeated;
        }
        if review.settled || (self.reviews_released && !review.wanted) {
            return EventEffect::Unknown;
        }
        if !review.wanted || index > review.attempts.len() {
            return self.keep_early(event);
        }
        let (attempt, lost) = match event {
            Event::Review { read, sample, .. } => {
                let read =
                    read.and_then(|r| if r.is_in_range() { Ok(r) } else { Err("out-of-range".to_owned()) });
                (ReviewAttempt { read, sample: Some(sample) }, false)
            }
            Event::Lost { reason, .. } => (ReviewAttempt { read: Err(reason), sample: None }, true),
            _ => return EventEffect::Unknown,
        };
        review.attempts.push(attempt);
        review.settled = lost || !review.wants_more(&self.config.guide);
        if review.settled {
            return EventEffect::Applied(Vec::new());
        }
        self.progress.reviews.asked += 1;
        EventEffect::Applied(vec![self.review_command(&self.problems[position])])
    }

    /// Requests reviews of a conjecture, if the Conjecturer's reward uses them.
    fn request_review(&mut self, position: usize, unblocked: &mut Vec<Command>) {
        let ProblemOrigin::Conjecture { slot } = self.problems[position].origin else {
            unreachable!("invariant: only conjectures are reviewed")
        };
        if self.is_derived(&self.slots[slot]) {
            return;
        }
        self.problems[position].review.wanted = true;
        self.progress.reviews.asked += 1;
        unblocked.push(self.review_command(&self.problems[position]));
    }

    /// Under [`GuideScope::Selected`], requests reviews once every conjecture is judged.
    fn release_reviews(&mut self, unblocked: &mut Vec<Command>) {
        let judged = self.decided_slots == self.slots.len() && self.open_conjecture_rollouts == 0;
        if self.reviews_released || !judged {
            return;
        }
        self.reviews_released = true;
        if !self.config.has_model_reviews() {
            return;
        }
        let threshold = self.conjecture_threshold();
        let is_selected = |problem: &ProblemState| {
            problem.is_conjecture()
                && !self.is_trivial(problem)
                && problem.tally().rate().is_some_and(|rate| passes_threshold(rate, threshold))
        };
        let selected: Vec<usize> =
            (0..self.problems.len()).filter(|&i| is_selected(&self.problems[i])).collect();
        for position in selected {
            self.request_review(position, unblocked);
        }
    }

    /// Returns the highest solve rate of this round's conjectures that is not too easy (paper, §3.2). Trivial conjectures
    /// do not count.
    pub(crate) fn conjecture_threshold(&self) -> f64 {
        let counts = |problem: &&ProblemState| match problem.origin {
            ProblemOrigin::Target { .. } => false,
            ProblemOrigin::Conjecture { slot } => {
                !self.is_derived(&self.slots[slot]) && !self.is_trivial(problem)
            }
        };
        let conjectures = self.problems.iter().filter(counts);
        let rates: Vec<f64> = conjectures.filter_map(|problem| problem.tally().rate()).collect();
        let config = &self.config.conjecturer;
        let relative = conjecture_threshold(&rates, config.rate_population, config.hardest_fraction);
        relative.min(config.max_solve_rate)
    }

    /// Returns whether a conjecture is derived from an attempt although the model samples the others. Such a conjecture must
    /// not change the rewards of the model's conjectures.
    pub(crate) fn is_derived(&self, slot: &ConjectureSlot) -> bool {
        self.config.conjecturer.is_sampled() && matches!(slot.condition, OwnedCondition::Attempt { .. })
    }

    /// Returns whether a proof was found with fewer than `conjecturer.min_proof_steps` inferences.
    pub(crate) fn is_trivial(&self, problem: &ProblemState) -> bool {
        problem.shortest_proof().is_some_and(|steps| steps < self.config.conjecturer.min_proof_steps)
    }

    pub(crate) fn key(&self, kind: TaskKind, problem: &ProblemId, index: u32) -> TaskKey {
        TaskKey { round: self.number, kind, problem: problem.clone(), index }
    }

    fn seed_of(&self, role: Role, key: &TaskKey) -> u64 {
        task_seed(self.run_seed, key.round, role, &key.problem, key.index)
    }

    fn conjecture_command(&self, slot: &ConjectureSlot) -> Command {
        let seed = self.seed_of(Role::Conjecturer, &slot.key);
        Command::SampleConjecture { key: slot.key.clone(), seed, condition: slot.condition.clone() }
    }

    fn rollout_command(&self, problem: &ProblemState, index: u32) -> Command {
        let key = self.key(TaskKind::Rollout, &problem.problem.id, index);
        let seed = self.seed_of(Role::Solver, &key);
        let failed = problem
            .repaired_by(index)
            .map(|(proof, judgement)| Arc::new(FailedProof::new(Arc::clone(&proof.text), judgement)));
        Command::SampleRollout { key, seed, problem: problem.problem.clone(), failed }
    }

    fn verify_command(&self, problem: &ProblemState, index: u32, proof: &ParsedProof) -> Command {
        let key = self.key(TaskKind::Judgement, &problem.problem.id, index);
        Command::Verify { key, problem: problem.problem.clone(), proof: proof.text.clone() }
    }

    fn review_command(&self, problem: &ProblemState) -> Command {
        let target = match problem.origin {
            ProblemOrigin::Conjecture { slot } => self.slots[slot].condition.problem().clone(),
            ProblemOrigin::Target { .. } => unreachable!("invariant: only conjectures are reviewed"),
        };
        let attempt = problem.review.attempts.len() as u32;
        let key = self.key(TaskKind::Review, &problem.problem.id, attempt);
        let seed = self.seed_of(Role::Guide, &key);
        Command::SampleReview { key, seed, target, conjecture: problem.problem.clone() }
    }
}

impl ProblemState {
    pub fn is_conjecture(&self) -> bool {
        matches!(self.origin, ProblemOrigin::Conjecture { .. })
    }

    /// Returns the requested rollouts with their indices.
    pub fn requested(&self) -> impl Iterator<Item = (u32, &RolloutState)> {
        let is_requested =
            |(_, rollout): &(u32, &RolloutState)| !matches!(rollout, RolloutState::Unrequested);
        (0u32..).zip(&self.rollouts).filter(is_requested)
    }

    /// Counts the verdicts of the attempts.
    pub fn tally(&self) -> Tally {
        let attempt = |attempt: usize| {
            let turns = self.rollouts[attempt..].iter().step_by(self.attempts);
            let requested = turns.filter(|turn| !matches!(turn, RolloutState::Unrequested));
            attempt_verdict(requested.map(RolloutState::verdict))
        };
        Tally::of((0..self.attempts).filter_map(attempt))
    }

    /// Returns the refused proof that a rollout repairs, with its judgement; `None` in the first turn of an attempt.
    pub fn repaired_by(&self, index: u32) -> Option<(&ParsedProof, &Judgement)> {
        match &self.rollouts[(index as usize).checked_sub(self.attempts)?] {
            RolloutState::Judged { proof, judgement, .. } => Some((proof, judgement)),
            _ => None,
        }
    }

    /// Returns the number of inferences of the shortest proof found; `None` without a proof.
    pub fn shortest_proof(&self) -> Option<u32> {
        let steps = |rollout: &RolloutState| match rollout {
            RolloutState::Judged { proof, judgement, .. } if judgement.verdict == Verdict::Proved => {
                Some(proof.steps)
            }
            _ => None,
        };
        self.rollouts.iter().filter_map(steps).min()
    }
}

/// Returns the conjectures to request: `conjectures_per_target` for each unsolved target of the batch (paper, §3.1), in
/// batch order, then those that are derived from failed proofs, at most as many as there are. STP requests the same
/// number, but for solved targets drawn by the run's seed.
fn conjecture_slots(
    config: &AlgorithmConfig,
    run_seed: u64,
    targets: &[Arc<Problem>],
    batch: &[&Arc<Problem>],
    state: &RunState,
) -> Vec<ConjectureSlot> {
    if !config.conjecturer.on {
        return Vec::new();
    }
    let per_target = config.conjecturer.conjectures_per_target;
    let unsolved = batch.iter().copied().filter(|target| !state.is_solved(&target.id)).collect();
    let seeded = draw_share(unsolved, config.conjecturer.target_share, run_seed, state.next_round);
    let wanted = seeded.iter().flat_map(|&target| (0..per_target).map(move |_| target));
    let mut conditions: Vec<OwnedCondition> = match config.conjecturer.conditioning {
        _ if config.conjecturer.form == ConjectureForm::Attempt => Vec::new(),
        Conditioning::Target => wanted.cloned().map(OwnedCondition::Target).collect(),
        Conditioning::None => wanted.cloned().map(OwnedCondition::Nothing).collect(),
        Conditioning::Solved => {
            let pool = solved_pool(targets, state, config.conjecturer.stp.min_seed_rate);
            let seed = shuffle_seed(run_seed, "stp-seeds", u64::from(state.next_round));
            draw_solved(pool.len(), wanted.count(), seed).into_iter().map(|i| pool[i].clone()).collect()
        }
    };
    let attempts = |target: &&Arc<Problem>| {
        let problem = Arc::clone(target);
        let limit = config.conjecturer.derived_per_target() as usize;
        let proofs = state.attempts.get(&problem.id).into_iter().flatten().take(limit);
        let condition =
            |proof: &Arc<str>| OwnedCondition::Attempt { problem: problem.clone(), proof: proof.clone() };
        proofs.map(condition).collect::<Vec<_>>()
    };
    conditions.extend(seeded.iter().flat_map(attempts));
    let mut numbers: HashMap<ProblemId, u32> = HashMap::new();
    let mut slot = |condition: OwnedCondition| {
        let problem = condition.problem().id.clone();
        let next = numbers.entry(problem.clone()).or_default();
        let index = *next;
        *next += 1;
        let id = conjecture_id(state.next_round, &problem, index);
        let key = TaskKey { round: state.next_round, kind: TaskKind::Conjecture, problem, index };
        ConjectureSlot { key, id, condition, state: SlotState::Waiting }
    };
    conditions.into_iter().map(&mut slot).collect()
}

/// Draws a share of the targets, at least one, by the run's seed. The result keeps the order of `targets`.
fn draw_share(targets: Vec<&Arc<Problem>>, share: f64, run_seed: u64, round: u32) -> Vec<&Arc<Problem>> {
    if share >= 1.0 || targets.is_empty() {
        return targets;
    }
    let mut order: Vec<usize> = (0..targets.len()).collect();
    SeededRng::new(shuffle_seed(run_seed, "conjecture-targets", u64::from(round))).shuffle(&mut order);
    order.truncate(((targets.len() as f64 * share) as usize).max(1));
    order.sort_unstable();
    order.into_iter().map(|i| targets[i]).collect()
}

/// Returns the id of the `index`-th conjecture that a round requests for a problem.
pub fn conjecture_id(round: u32, problem: &ProblemId, index: u32) -> ProblemId {
    ProblemId::new(format!("c{round}-{problem}-{index}"))
}

/// Returns the solved targets whose best solve rate is above `min_rate`, as conditions for STP (Dong and Ma 2025).
fn solved_pool(targets: &[Arc<Problem>], state: &RunState, min_rate: f64) -> Vec<OwnedCondition> {
    let condition = |target: &Arc<Problem>| {
        let solved = state.solved.get(&target.id).filter(|solved| solved.best_rate > min_rate)?;
        Some(OwnedCondition::Solved { problem: target.clone(), proof: solved.proof.clone() })
    };
    targets.iter().filter_map(condition).collect()
}
