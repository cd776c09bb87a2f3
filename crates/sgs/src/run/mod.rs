//! A run of self-play: the stages of each round joined, on disk at every step.

pub mod config;
pub mod endpoint;
pub mod forecast;
pub mod generate;
pub mod infra;
pub mod policies;
pub mod publish;
pub mod ranks;
pub mod requirements;
pub mod sampling;
pub mod system;
pub mod tasks;
pub mod update;
pub mod verify;
pub mod view;
pub mod workers;

use crate::exit::Outcome;
use anyhow::Result;
use config::RunConfig;
use infra::Faults;
use policies::Policies;
use publish::{Publication, PublishTimes, Publisher};
use ranks::{Order, Team};
use sampling::{Completions, Sampled, SamplingEnd, Stage};
use serde::{Deserialize, Serialize};
use sgs_formal::FormalSystem;
use sgs_lm::ranks::{Meeting, Parallel};
use sgs_lm::sampler::Decode;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_rundir::metrics::{MetricValues, names};
use sgs_rundir::{NextStep, Record, ResumePlan, RunDir};
use sgs_selfplay::{Problem, Round, RoundMetrics, RoundOutcome, RunState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;
use update::UpdateReport;
use view::View;
use workers::Workers;
use workers::config::FleetConfig;

/// Set when the user wants the run to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The flag, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// Everything a run works with.
pub struct Runner<D: Decode> {
    /// The effective configuration.
    pub config: Arc<RunConfig>,
    /// The formal system.
    pub system: Arc<dyn FormalSystem>,
    /// The targets, in their order.
    pub targets: Vec<Arc<Problem>>,
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
    /// Copying the weights to the host.
    snapshot: f64,
    sampled_tokens: u64,
}

impl Kept {
    /// Waits until the round before is published, and notes what that took.
    fn wait_for(&mut self, publisher: &mut Publisher) -> Result<()> {
        let started = Instant::now();
        if let Some(times) = publisher.wait()? {
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
    /// Results that the journal has not taken yet.
    early: Vec<Record>,
}

impl<D: Parallel + Decode + 'static> Runner<D>
where
    Policies<D>: Send + Sync,
{
    /// Runs rounds until the configuration's end, the time limit or an interrupt. Goes on where the run stands.
    ///
    /// # Errors
    /// Anything that fails; what was finished is on the disk, and the run can be resumed.
    pub fn work(mut self, view: View) -> Result<Outcome> {
        let plan = self.run.plan(0)?;
        let (policies, mut team) = self.load(&plan)?;
        let done = self.rounds(plan, policies, &mut team, view);
        team.end(done)
    }

    /// Loads the weights and makes the trainer; with several ranks all of them do so at the same time.
    fn load(&mut self, plan: &ResumePlan) -> Result<(Policies<D>, Team<D>)> {
        let at = plan.weights.as_ref().map(|c| c.directory.clone());
        let version = match plan.next {
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
        let loaded = Policies::load(&self.config, &self.device, &self.base, at.as_deref(), version, place);
        if let (Err(error), Some(meeting)) = (&loaded, &meeting) {
            meeting.fail(&format!("{error:#}"));
        }
        let policies = loaded?;
        let peers = meeting.map(|meeting| D::connect(&self.device, meeting)).transpose()?;
        let training = &self.config.training;
        let tokens = training.micro_batch_tokens.max(policies.config().max_positions);
        let device = Arc::clone(&self.device);
        let trainer = Trainer::with_peers(device, policies.config(), tokens, training.mode(), peers)?;
        Ok((policies, Team::lead(trainer)))
    }

    fn rounds(
        &self,
        plan: ResumePlan,
        policies: Policies<D>,
        team: &mut Team<D>,
        mut view: View,
    ) -> Result<Outcome> {
        let started = Instant::now();
        let mut state = self.run.view().state()?;
        let tokenizer = policies::tokenizer(&self.base, policies.config())?;
        let context = policies.config().max_positions as u32;
        let policies = Arc::new(RwLock::new(policies));
        let mut workers = Workers::start(self, &tokenizer, &policies)?;
        view.set_fleet(workers.fleet());
        let mut publisher = Publisher::new(self.run.sinks()?);
        let mut next = plan.next;
        let mut kept: Kept = plan
            .markers
            .get(&sgs_rundir::Stage::Updated)
            .and_then(|m| serde_json::from_str(&m.detail).ok())
            .unwrap_or_default();
        while state.next_round < self.config.rounds {
            let limit = self.config.minutes * 60.0;
            if limit > 0.0 && started.elapsed().as_secs_f64() > limit && next == NextStep::Start {
                break;
            }
            if self.interrupt.is_set() {
                publisher.finish()?;
                return Ok(Outcome::Interrupted);
            }
            let round_started = Instant::now();
            let sampled = self.sample(
                &state,
                next,
                context,
                &tokenizer,
                &mut workers,
                &mut publisher,
                &mut kept,
                &mut view,
            )?;
            let Some(SampledRound { outcome, completions, early }) = sampled else {
                publisher.finish()?;
                return Ok(Outcome::Interrupted);
            };
            let updated = next == NextStep::Publish;
            let orders = team.orders().cloned();
            // The other ranks write their parts of the round before out of the very weights that are trained now; and
            // what earlier rounds sampled is read from their tables.
            if orders.is_some() || update::needs_earlier_rounds(&outcome) {
                kept.wait_for(&mut publisher)?;
            }
            let trained = if updated {
                Ok(false)
            } else {
                self.update(&outcome, &completions, &policies, team, &mut kept, &mut view)
            };
            kept.wait_for(&mut publisher)?;
            let trained = match trained {
                Ok(trained) => trained,
                Err(error) => {
                    self.keep(outcome.round, early)?;
                    return Err(error);
                }
            };
            let copying = Instant::now();
            let policies_now = policies.read().unwrap_or_else(PoisonError::into_inner);
            let copy = || policies_now.trained.snapshot(orders, publisher.take_spare());
            let weights = trained.then(copy).transpose()?;
            drop(policies_now);
            kept.times.snapshot = copying.elapsed().as_secs_f64();
            state.absorb(&outcome)?;
            let metrics = self.metrics(&state, &outcome, &kept, round_started);
            view.end_round(&outcome, &metrics);
            publisher.start(Publication {
                run: Arc::clone(&self.run),
                config: Arc::clone(&self.config),
                system: Arc::clone(&self.system),
                early,
                outcome,
                completions,
                kept: std::mem::take(&mut kept),
                weights,
                updated,
                companions: ["tokenizer.json", "tokenizer_config.json"].map(|n| self.base.join(n)).to_vec(),
                metrics,
            })?;
            next = NextStep::Start;
        }
        publisher.finish()?;
        workers.stop()?;
        Ok(Outcome::Done)
    }

    /// A round up to its outcome. `None` if the user interrupted it.
    #[allow(clippy::too_many_arguments)]
    fn sample(
        &self,
        state: &RunState,
        next: NextStep,
        context: u32,
        tokenizer: &Tokenizer,
        workers: &mut Workers,
        publisher: &mut Publisher,
        kept: &mut Kept,
        view: &mut View,
    ) -> Result<Option<SampledRound>> {
        let algorithm = Arc::new(self.config.algorithm.clone());
        let mut round = Round::new(algorithm, self.config.seed, context, &self.targets, state)?;
        let number = round.number();
        let (mut completions, mut faults) = (Completions::new(), Faults::default());
        if matches!(next, NextStep::Start | NextStep::Sample) {
            if workers.read_weights_from_disk() && publisher.is_busy() {
                kept.wait_for(publisher)?;
            }
            workers.begin_round(self, number, tokenizer)?;
        }
        let stage = Stage {
            config: &self.config,
            system: &*self.system,
            tokenizer,
            fleet: workers.fleet(),
            journal: self.run.journal(),
            board_lasts: workers.read_weights_from_disk(),
            interrupt: &self.interrupt,
            policy_version: number,
            weights: workers.weights(),
            watch: &|silent, open| workers.check(silent, open),
        };
        // While the round before is being published, this one has nothing in the journal.
        if !publisher.is_busy() {
            self.run.start_round(number, "")?;
            let replayed = stage.replay(&mut round, &mut completions, &mut faults)?;
            if replayed > 0 {
                tracing::info!("round {number}: {replayed} results were in the journal");
            }
        }
        let mut left = Vec::new();
        view.begin_round(number, self.config.rounds, "sampling");
        if matches!(next, NextStep::Start | NextStep::Sample) {
            let tokens = |c: &Completions| c.values().map(|c| c.tokens.len() as u64).sum::<u64>();
            let before = tokens(&completions);
            let sampler = workers.counters().seconds;
            let mut ready = |wait: bool| {
                if publisher.is_busy() {
                    if !wait && !publisher.is_done() {
                        return Ok(false);
                    }
                    kept.times.publishing = publisher.wait()?.unwrap_or_default();
                    self.run.start_round(number, "")?;
                }
                Ok(true)
            };
            let Sampled { end, early, times } =
                workers.watch(|| stage.run(&mut round, &mut completions, &mut faults, &mut ready, view))?;
            if end == SamplingEnd::Interrupted {
                return Ok(None);
            }
            left = early;
            kept.times.sampling = times.all;
            kept.times.dispatcher = times.dispatcher;
            let after = workers.counters().seconds;
            kept.times.sampler = std::array::from_fn(|i| after[i] - sampler[i]);
            kept.times.sampled_tokens = tokens(&completions) - before;
            if !publisher.is_busy() {
                self.run.finish_sampling_later(number, "")?;
            }
        }
        let outcome = round.finish(state)?;
        infra::refuse_broken_round(&outcome)?;
        Ok(Some(SampledRound { outcome, completions, early: left }))
    }

    /// Brings a round's results to the disk although it goes no further.
    fn keep(&self, round: u32, early: Vec<Record>) -> Result<()> {
        self.run.start_round(round, "")?;
        self.run.journal().append(early)?;
        Ok(self.run.finish_sampling(round, "")?)
    }

    /// Trains; returns whether there are new weights.
    fn update(
        &self,
        outcome: &RoundOutcome,
        completions: &Completions,
        policies: &Arc<RwLock<Policies<D>>>,
        team: &mut Team<D>,
        kept: &mut Kept,
        view: &mut View,
    ) -> Result<bool> {
        view.stage(outcome.round, self.config.rounds, "updating");
        let mut policies = policies.write().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        kept.update =
            update::update(&self.config, self.run.view(), outcome, completions, &mut policies, team)?;
        kept.times.update = started.elapsed().as_secs_f64();
        Ok(kept.update.solver.is_some() || kept.update.conjecturer.is_some())
    }

    /// The round's numbers; the state has absorbed it.
    fn metrics(
        &self,
        state: &RunState,
        outcome: &RoundOutcome,
        kept: &Kept,
        started: Instant,
    ) -> MetricValues {
        let features = |p: &Problem| self.system.features(&p.statement);
        let mut metrics = MetricValues::of_round(&RoundMetrics::compute(outcome, state, features));
        measured(&mut metrics, outcome, kept);
        metrics.set(names::RECORDS_REPEATED, self.run.journal().duplicates() as f64);
        metrics.set(names::TIME_ROUND, started.elapsed().as_secs_f64());
        metrics
    }
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
    metrics.set(names::TIME_SNAPSHOT, t.snapshot);
    metrics.set(names::TIME_PUBLISH, t.publishing.all);
    metrics.set(names::TIME_PUBLISH_CHECKPOINT, t.publishing.checkpoint);
    metrics.set(names::TIME_PUBLISH_TABLES, t.publishing.tables);
    metrics.set(names::TIME_PUBLISH_JOURNAL, t.publishing.journal);
    metrics.set(names::TIME_PUBLISH_WAIT, t.publish_wait);
    let micros: u64 = outcome.rollouts.iter().map(|r| r.micros).sum();
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
