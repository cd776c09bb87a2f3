//! The rounds of a run, one after the other: sampled, trained on, published.

use crate::attempts::Attempts;
use crate::config::RunConfig;
use crate::dispatcher::{Completions, Dispatcher, SamplingEnd};
use crate::evaluation::{Schedule, When};
use crate::event::{Listener, RoundStage, RunEvent, Story};
use crate::folder::{self, EndedBy};
use crate::matching::Embedder;
use crate::policies::Policies;
use crate::publish::{Publication, PublishTimes, Publisher, StatementFeatures};
use crate::ranks::{Order, Team};
use crate::reading::Reader;
use crate::update::UpdateReport;
use crate::workers::Workers;
use crate::workers::config::FleetConfig;
use crate::{Interrupt, Outcome, guide, infra, policies, update};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use sgs_formal::FormalSystem;
use sgs_lm::ranks::{Meeting, Parallel};
use sgs_lm::sampler::Decode;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_rundir::metrics::{MetricValues, names};
use sgs_rundir::{NextStep, ResumePlan, RunDir};
use sgs_selfplay::stp::{Matching, unsolved_after};
use sgs_selfplay::{Problem, Role, Round, RoundMetrics, RoundOutcome, RunState};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// Everything a run works with.
pub struct Runner<D: Decode> {
    /// The effective configuration.
    pub config: Arc<RunConfig>,
    /// The formal system.
    pub system: Arc<dyn FormalSystem>,
    /// The targets, in their order.
    pub targets: Vec<Arc<Problem>>,
    /// Problems that the run is evaluated on and never trained on; there may be none.
    pub held_out: Vec<Arc<Problem>>,
    /// The run on disk.
    pub run: Arc<RunDir>,
    /// Where the model computes.
    pub device: Arc<D>,
    /// Folder of the base model.
    pub base: PathBuf,
    /// Set when the user wants to stop.
    pub interrupt: Interrupt,
    /// Who does the work, if not threads of this process alone.
    pub fleet: Option<FleetConfig>,
    /// The ranks that train with this process, if there are any.
    pub meeting: Option<Meeting>,
}

/// What is kept with the marker of the update, so that no number is lost in a crash before the tables.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    update: UpdateReport,
    /// What the conjectures were re-weighted by, with the weights before the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    matching: Option<Matching>,
    times: Times,
}

/// Wall times of a round in seconds, and what was counted meanwhile.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Times {
    sampling: f64,
    /// In the samplers of the Solver, the Conjecturer and the Guide.
    sampler: [f64; 3],
    dispatcher: f64,
    /// Publication of the round before this one, which runs beside the sampling and the updates.
    publishing: PublishTimes,
    /// In which the round waited for it.
    publish_wait: f64,
    update: f64,
    /// Embedding statements and matching them.
    matching: f64,
    /// Copying the weights to the host.
    snapshot: f64,
    sampled_tokens: u64,
}

impl Kept {
    /// Waits until the round before is published, tells, and notes what that took.
    fn wait_for(&mut self, publisher: &mut Publisher, story: &mut Story<'_>) -> Result<()> {
        let started = Instant::now();
        if let Some((round, times)) = publisher.wait()? {
            story.tell(RunEvent::RoundPublished { round, seconds: times.all });
            self.times.publishing = times;
            self.times.publish_wait = started.elapsed().as_secs_f64();
        }
        Ok(())
    }
}

/// A round up to its outcome.
struct SampledRound {
    outcome: RoundOutcome,
    completions: Completions,
}

impl<D: Parallel + Decode + 'static> Runner<D>
where
    Policies<D>: Send + Sync,
{
    /// Runs rounds until the configuration's end, the time limit or an interrupt. Goes on where the run stands.
    ///
    /// # Errors
    /// Anything that fails; what was finished is on the disk, and the run can be resumed.
    pub fn work<'a>(mut self, listener: &'a mut Listener<'a>) -> Result<Outcome> {
        let mut story = Story::new(&self.targets.clone(), listener);
        let plan = self.run.plan(0)?;
        let (policies, mut team) = self.load(&plan)?;
        let done = self.rounds(plan, policies, &mut team, &mut story);
        team.end(done)
    }

    /// Loads the weights and makes the trainer; with several ranks all of them do so at the same time.
    fn load(&mut self, plan: &ResumePlan) -> Result<(Policies<D>, Team<D>)> {
        let at = plan.checkpoint.as_ref().map(|c| c.directory.clone());
        let policy_version = match plan.next {
            NextStep::Publish => plan.round + 1,
            _ => plan.round,
        };
        let meeting = self.meeting.take();
        let place = meeting.as_ref().map_or((0, 1), |m| (m.rank(), m.ranks()));
        if let Some(meeting) = &meeting {
            let stop = self.interrupt.flag();
            meeting.on_loss(move || stop.store(true, Ordering::Release));
            let config = toml::to_string(&*self.config)?;
            let at = at.as_ref().map(std::path::absolute).transpose()?;
            let load = Order::Load { config, base: std::path::absolute(&self.base)?, at };
            meeting.orders().give(&load.encode()?)?;
        }
        let loaded =
            Policies::load(&self.config, &self.device, &self.base, at.as_deref(), policy_version, place);
        if let (Err(error), Some(meeting)) = (&loaded, &meeting) {
            meeting.fail(&format!("{error:#}"));
        }
        let policies = loaded?;
        let peers = meeting.map(|meeting| D::connect(&self.device, meeting)).transpose()?;
        let (mode, tokens) = (self.config.training.mode(), self.config.training_tokens(policies.config()));
        let device = Arc::clone(&self.device);
        let trainer = Trainer::with_peers(device, policies.config(), tokens, mode, peers)?;
        Ok((policies, Team::lead(trainer)))
    }

    fn rounds(
        &self,
        plan: ResumePlan,
        policies: Policies<D>,
        team: &mut Team<D>,
        story: &mut Story<'_>,
    ) -> Result<Outcome> {
        let (started, before) = (Instant::now(), folder::seconds_worked(self.run.view())?);
        let mut state = self.run.view().state()?;
        let tokenizer = policies::tokenizer(&self.base, policies.config())?;
        let context = self.config.window(policies.config()) as u32;
        let policies = Arc::new(RwLock::new(policies));
        let mut workers = Workers::start(self, &tokenizer, &policies)?;
        story.tell(RunEvent::Board(workers.fleet()));
        let mut publisher = Publisher::new(self.run.sinks()?);
        let mut kept: Kept = plan
            .markers
            .get(&sgs_rundir::Stage::Updated)
            .and_then(|m| serde_json::from_str(&m.detail).ok())
            .unwrap_or_default();
        let mut by = EndedBy::Rounds;
        while state.next_round < self.config.rounds {
            // A resumed run may find two rounds under way: one to be published, and the next half sampled.
            let next = self.run.next_step(state.next_round)?;
            let limit = self.config.minutes * 60.0;
            let worked = before + started.elapsed().as_secs_f64();
            if limit > 0.0 && worked > limit && next == NextStep::Start {
                by = EndedBy::Minutes;
                break;
            }
            folder::forget_end(self.run.view().path())?;
            if self.interrupt.is_set() {
                finish(&mut publisher, story)?;
                // A worker of this process that failed between two rounds has interrupted the run, not the user.
                return workers.watch(|| Ok(Outcome::Interrupted));
            }
            let mut round_started = Instant::now();
            let round = Round::new(
                Arc::new(self.config.algorithm.clone()),
                self.config.seed,
                context,
                &self.targets,
                &state,
            )?;
            if next.is_sampling() {
                if workers.read_weights_from_disk() {
                    // They read the checkpoint that is being written.
                    kept.wait_for(&mut publisher, story)?;
                }
                let notes =
                    workers.begin_round(self, round.number(), &tokenizer, &policies, team.trainer())?;
                notes.iter().for_each(|note| story.tell(RunEvent::Note(note)));
            }
            if next == NextStep::Start {
                let began = Instant::now();
                let stands = (round.number(), When::Before);
                if !self.evaluate(stands, context, &tokenizer, &workers, &mut publisher, story)? {
                    finish(&mut publisher, story)?;
                    return Ok(Outcome::Interrupted);
                }
                round_started += began.elapsed();
            }
            let sampled =
                self.sample(round, &state, next, context, &tokenizer, &workers, &mut kept, story)?;
            let Some(SampledRound { mut outcome, completions }) = sampled else {
                finish(&mut publisher, story)?;
                return Ok(Outcome::Interrupted);
            };
            let updated = next == NextStep::Publish;
            let orders = team.orders().cloned();
            // The other ranks write their parts of the round before out of the very weights that are trained now; and
            // what earlier rounds sampled is read from their tables.
            if orders.is_some() || update::needs_earlier_rounds(&outcome) {
                kept.wait_for(&mut publisher, story)?;
            }
            let trained = if updated {
                // The weights that it was made with are gone.
                kept.matching.clone().into_iter().for_each(|matching| outcome.reweigh(matching));
                false
            } else {
                // The weights depend on every result: all of them are on the disk first.
                self.run.finish_sampling(outcome.round, "")?;
                self.rematch(&mut outcome, &state, &tokenizer, &policies, team, &mut kept)?;
                self.update(&outcome, &completions, &policies, team, &mut kept, story)?
            };
            // One round is published at a time: their checkpoints and markers stand in order.
            kept.wait_for(&mut publisher, story)?;
            let copying = Instant::now();
            let policies_now = policies.read().unwrap_or_else(PoisonError::into_inner);
            // A copy: the next round's update changes the weights while these are written.
            let copy = || policies_now.trained.snapshot(orders, publisher.take_spare());
            let weights = trained.then(copy).transpose()?;
            drop(policies_now);
            kept.times.snapshot = copying.elapsed().as_secs_f64();
            state.absorb(&outcome)?;
            let features = StatementFeatures::find(&*self.system, &outcome);
            let metrics = self.metrics(&state, &outcome, &features, &kept, round_started);
            if let Some(warning) = guide::warning(outcome.round, &metrics) {
                story.tell(RunEvent::Warning(&warning));
            }
            story.tell(RunEvent::RoundFinished { outcome: &outcome, metrics: &metrics });
            publisher.start(Publication {
                run: Arc::clone(&self.run),
                config: Arc::clone(&self.config),
                features,
                outcome,
                completions,
                kept: std::mem::take(&mut kept),
                weights,
                updated,
                companions: ["tokenizer.json", "tokenizer_config.json"].map(|n| self.base.join(n)).to_vec(),
                metrics,
            })?;
        }
        finish(&mut publisher, story)?;
        let after = state.next_round;
        if self.schedule().is_due(after, When::AtTheEnd, self.run.view())? {
            let notes = workers.begin_round(self, after, &tokenizer, &policies, team.trainer())?;
            notes.iter().for_each(|note| story.tell(RunEvent::Note(note)));
            let stands = (after, When::AtTheEnd);
            if !self.evaluate(stands, context, &tokenizer, &workers, &mut publisher, story)? {
                return Ok(Outcome::Interrupted);
            }
        }
        workers.stop()?;
        // Last: a run that is marked as ended is whole, and nobody works for it.
        folder::mark_ended(self.run.view().path(), by, state.next_round)?;
        Ok(Outcome::Done)
    }

    fn schedule(&self) -> Schedule<'_> {
        Schedule { config: &self.config, held_out: &self.held_out, targets: &self.targets }
    }

    /// Evaluates the weights after so many rounds, if it is their turn. `false` if the user interrupted it.
    fn evaluate(
        &self,
        (after, when): (u32, When),
        context: u32,
        tokenizer: &Tokenizer,
        workers: &Workers,
        publisher: &mut Publisher,
        story: &mut Story<'_>,
    ) -> Result<bool> {
        let schedule = self.schedule();
        if !schedule.is_due(after, when, self.run.view())? {
            return Ok(true);
        }
        let watch = |silent, open: &dyn Fn() -> String| workers.check(silent, open);
        let attempts = Attempts {
            reader: self.reader(after, context, tokenizer, workers),
            fleet: workers.fleet(),
            interrupt: &self.interrupt,
            watch: &watch,
            seed: self.config.seed,
            second: workers.checks_here(&*self.system),
        };
        let metrics = workers.watch(|| schedule.evaluate(&attempts, &self.run, story))?;
        Ok(metrics.map(|metrics| publisher.evaluated(metrics)).is_some())
    }

    /// Asks the workers of a round, whose weights have seen so many rounds, and reads what they answer.
    fn reader<'a>(
        &'a self,
        policy_version: u32,
        context: u32,
        tokenizer: &'a Tokenizer,
        workers: &'a Workers,
    ) -> Reader<'a> {
        Reader {
            config: &self.config,
            system: &*self.system,
            tokenizer,
            policy_version,
            vocabulary: tokenizer.vocab_size(),
            context: context as usize,
            policy_id: workers.policy_id(),
        }
    }

    /// A round up to its outcome. `None` if the user interrupted it.
    #[allow(clippy::too_many_arguments)]
    fn sample(
        &self,
        mut round: Round,
        state: &RunState,
        next: NextStep,
        context: u32,
        tokenizer: &Tokenizer,
        workers: &Workers,
        kept: &mut Kept,
        story: &mut Story<'_>,
    ) -> Result<Option<SampledRound>> {
        let number = round.number();
        self.run.start_round(number, "")?;
        let mut completions = Completions::new();
        let reader = self.reader(number, context, tokenizer, workers);
        let second = workers.second_opinions(&*self.system, &self.targets, state);
        let watch = |silent, open: &dyn Fn() -> String| workers.check(silent, open);
        let (fleet, journal) = (workers.fleet(), self.run.journal());
        let mut dispatcher =
            Dispatcher::new(reader, fleet, journal, &self.interrupt, &watch, &mut round, &mut completions);
        dispatcher.second = second;
        // Before anything is asked for: what the journal holds is not asked for again.
        let replayed = dispatcher.replay(next.is_sampling())?;
        if replayed > 0 {
            tracing::info!("round {number}: {replayed} results were in the journal");
        }
        let rounds = self.config.rounds;
        story.tell(RunEvent::Stage { round: number, rounds, stage: RoundStage::Sampling });
        if next.is_sampling() {
            let before = dispatcher.sampled_tokens();
            let sampler = workers.counters().seconds;
            let (end, times) = workers.watch(|| dispatcher.run(story))?;
            if end == SamplingEnd::Interrupted {
                return Ok(None);
            }
            kept.times.sampling = times.all;
            kept.times.dispatcher = times.dispatcher;
            let after = workers.counters().seconds;
            kept.times.sampler = std::array::from_fn(|i| after[i] - sampler[i]);
            kept.times.sampled_tokens = dispatcher.sampled_tokens() - before;
        }
        let outcome = round.finish(state)?;
        infra::refuse_broken_round(&outcome)?;
        Ok(Some(SampledRound { outcome, completions }))
    }

    /// Re-weights the round's conjectures, under STP.
    fn rematch(
        &self,
        outcome: &mut RoundOutcome,
        before: &RunState,
        tokenizer: &Tokenizer,
        policies: &Arc<RwLock<Policies<D>>>,
        team: &mut Team<D>,
        kept: &mut Kept,
    ) -> Result<()> {
        let started = Instant::now();
        let policies = policies.read().unwrap_or_else(PoisonError::into_inner);
        let unsolved = unsolved_after(outcome, before, &self.targets, self.config.seed);
        let model = policies.model(Role::Conjecturer);
        let mut embedder = Embedder { model, tokenizer, trainer: team.trainer() };
        kept.matching = embedder.matching(&self.config, outcome, &unsolved)?;
        if let Some(matching) = &kept.matching {
            outcome.reweigh(matching.clone());
            kept.times.matching = started.elapsed().as_secs_f64();
        }
        Ok(())
    }

    /// Trains; returns whether there are new weights.
    fn update(
        &self,
        outcome: &RoundOutcome,
        completions: &Completions,
        policies: &Arc<RwLock<Policies<D>>>,
        team: &mut Team<D>,
        kept: &mut Kept,
        story: &mut Story<'_>,
    ) -> Result<bool> {
        story.tell(RunEvent::Stage {
            round: outcome.round,
            rounds: self.config.rounds,
            stage: RoundStage::Updating,
        });
        let mut policies = policies.write().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        kept.update =
            update::update(&self.config, self.run.view(), outcome, completions, &mut policies, team)?;
        kept.times.update = started.elapsed().as_secs_f64();
        // Before the new weights are kept anywhere: a run that stops here is resumed with those before, and samples the
        // round again.
        let warning = update::gap_warning(&self.config, &kept.update);
        if warning.is_err() {
            self.run.forget_round(outcome.round)?;
        }
        if let Some(warning) = warning? {
            story.tell(RunEvent::Warning(&warning));
        }
        Ok(kept.update.solver.is_some() || kept.update.conjecturer.is_some())
    }

    /// The round's numbers; the state has absorbed it.
    fn metrics(
        &self,
        state: &RunState,
        outcome: &RoundOutcome,
        features: &StatementFeatures,
        kept: &Kept,
        started: Instant,
    ) -> MetricValues {
        let round = RoundMetrics::compute(outcome, state, |problem| features.of(problem));
        let mut metrics = MetricValues::of_round(&round);
        measured(&mut metrics, outcome, kept);
        metrics.set(names::RECORDS_REPEATED, self.run.journal().duplicates() as f64);
        metrics.set(names::TIME_ROUND, started.elapsed().as_secs_f64());
        metrics
    }
}

/// Waits for the last publication, and tells.
fn finish(publisher: &mut Publisher, story: &mut Story<'_>) -> Result<()> {
    if let Some((round, times)) = publisher.finish()? {
        story.tell(RunEvent::RoundPublished { round, seconds: times.all });
    }
    Ok(())
}

fn measured(metrics: &mut MetricValues, outcome: &RoundOutcome, kept: &Kept) {
    let t = &kept.times;
    metrics.set(names::TIME_SAMPLING, t.sampling);
    if t.sampler != [0.0; 3] {
        let [rollouts, conjectures, reviews] = t.sampler;
        metrics.set(names::TIME_ROLLOUTS, rollouts);
        metrics.set(names::TIME_CONJECTURES, conjectures);
        metrics.set(names::TIME_REVIEWS, reviews);
    }
    metrics.set(names::TIME_DISPATCHER, t.dispatcher);
    if kept.matching.is_some() {
        metrics.set(names::TIME_MATCHING, t.matching);
    }
    metrics.set(names::TIME_SNAPSHOT, t.snapshot);
    metrics.set(names::TIME_PUBLISH, t.publishing.all);
    metrics.set(names::TIME_PUBLISH_CHECKPOINT, t.publishing.checkpoint);
    metrics.set(names::TIME_PUBLISH_TABLES, t.publishing.tables);
    metrics.set(names::TIME_PUBLISH_WAIT, t.publish_wait);
    let micros = outcome.rollouts.iter().fold(0u64, |sum, r| sum.saturating_add(r.micros));
    metrics.set(names::TIME_CHECKS, micros as f64 / 1e6);
    if t.sampling > 0.0 {
        metrics.set(names::SAMPLED_TOKENS_PER_S, t.sampled_tokens as f64 / t.sampling);
    }
    if let Some(bytes) = crate::machine::peak_memory() {
        metrics.set(names::MEMORY_PEAK, bytes as f64);
    }
    let (mut tokens, mut seconds) = (0, 0.0);
    if let Some(r) = &kept.update.solver {
        (tokens, seconds) = (tokens + r.tokens, seconds + r.seconds);
        metrics.set(names::TIME_UPDATE_SOLVER, r.seconds);
        metrics.set(names::SOLVER_LOSS, r.loss);
        metrics.set(names::SOLVER_GRADIENT_NORM, r.gradient_norm);
        metrics.set(names::SOLVER_STEPS, r.steps as f64);
        metrics.set(names::SOLVER_LEARNING_RATE, r.learning_rate);
        metrics.set(names::SOLVER_TRAINED_TOKENS, r.trained_tokens as f64);
        metrics.set(names::SOLVER_LOG_PROB_GAP, r.log_prob_gap);
        metrics.set(names::SOLVER_LOG_PROB_GAP_MAX, r.log_prob_gap_max);
        metrics.set(names::SOLVER_SHARE_CLIPPED, r.clipped);
        if let Some(kl) = r.kl {
            metrics.set(names::SOLVER_KL, kl);
        }
    }
    if let Some(r) = &kept.update.conjecturer {
        (tokens, seconds) = (tokens + r.tokens, seconds + r.seconds);
        metrics.set(names::TIME_UPDATE_CONJECTURER, r.seconds);
        metrics.set(names::CONJECTURER_LOSS, r.loss);
        metrics.set(names::CONJECTURER_GRADIENT_NORM, r.gradient_norm);
        metrics.set(names::CONJECTURER_STEPS, r.steps as f64);
        metrics.set(names::CONJECTURER_LEARNING_RATE, r.learning_rate);
        metrics.set(names::CONJECTURER_TRAINED_TOKENS, r.trained_tokens as f64);
        metrics.set(names::CONJECTURER_LOG_PROB_GAP, r.log_prob_gap);
        metrics.set(names::CONJECTURER_LOG_PROB_GAP_MAX, r.log_prob_gap_max);
    }
    if seconds > 0.0 {
        metrics.set(names::TRAINED_TOKENS_PER_S, tokens as f64 / seconds);
    }
}
