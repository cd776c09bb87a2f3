//! A run of self-play: the stages of each round joined, on disk at every step.

pub mod config;
pub mod endpoint;
pub mod generate;
pub mod infra;
pub mod policies;
pub mod publish;
pub mod sampling;
pub mod tasks;
pub mod update;
pub mod verify;
pub mod view;

use crate::exit::Outcome;
use anyhow::{Context, Result, anyhow};
use config::RunConfig;
use endpoint::ServedRoles;
use generate::GenerateCounters;
use infra::Faults;
use policies::{Policies, Snapshots};
use publish::{Publication, Publisher};
use sampling::{Completions, SamplingEnd, Stage};
use serde::{Deserialize, Serialize};
use sgs_fleet::{BoardConfig, Drain, Fleet, Session, TaskKind as BoardKind, WorkerConfig, WorkerName};
use sgs_formal::FormalSystem;
use sgs_lm::model::Mode;
use sgs_lm::sampler::{Decode, SamplerOptions};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_lm::{Device, ModelConfig};
use sgs_rundir::metrics::{MetricValues, names};
use sgs_rundir::{NextStep, RunDir};
use sgs_selfplay::{Problem, Round, RoundMetrics, RoundOutcome, RunState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;
use update::UpdateReport;
use view::View;

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
    /// Publication of the round before this one, which runs beside the sampling.
    publish: f64,
    update: f64,
    sampled_tokens: u64,
}

impl<D: Device + Decode + 'static> Runner<D>
where
    Policies<D>: Send + Sync,
{
    /// Runs rounds until the configuration's end, the time limit or an interrupt. Goes on where the run stands.
    ///
    /// # Errors
    /// Anything that fails; what was finished is on the disk, and the run can be resumed.
    pub fn work(self, mut view: View) -> Result<Outcome> {
        let started = Instant::now();
        let plan = self.run.plan(0)?;
        let mut state = self.run.view().state()?;
        let at = plan.weights.as_ref().map(|c| c.directory.clone());
        let version = match plan.next {
            NextStep::Publish => plan.round + 1,
            _ => plan.round,
        };
        let policies = Policies::load(&self.config, &self.device, &self.base, at.as_deref(), version)?;
        let tokenizer = policies::tokenizer(&self.base, policies.config())?;
        let context = policies.config().max_positions as u32;
        let tokens = self.config.training.micro_batch_tokens.max(policies.config().max_positions);
        let mut trainer = Trainer::new(Arc::clone(&self.device), policies.config(), tokens, Mode::Train)?;
        let policies = Arc::new(RwLock::new(policies));
        let workers = Workers::start(&self, &tokenizer, &policies)?;
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
                return Ok(Outcome::Interrupted);
            }
            let round_started = Instant::now();
            let sampled = self.sample(
                &state,
                next,
                context,
                &tokenizer,
                &workers,
                &mut publisher,
                &mut kept,
                &mut view,
            )?;
            let Some((outcome, completions)) = sampled else { return Ok(Outcome::Interrupted) };
            let updated = next == NextStep::Publish;
            let weights = if updated {
                None
            } else {
                self.update(&outcome, &completions, &policies, &mut trainer, &mut kept, &mut view)?
            };
            state.absorb(&outcome)?;
            let metrics = self.metrics(&state, &outcome, &kept, round_started);
            view.end_round(&outcome, &metrics);
            publisher.start(Publication {
                run: Arc::clone(&self.run),
                config: Arc::clone(&self.config),
                system: Arc::clone(&self.system),
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
        publisher.wait()?;
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
        workers: &Workers,
        publisher: &mut Publisher,
        kept: &mut Kept,
        view: &mut View,
    ) -> Result<Option<(RoundOutcome, Completions)>> {
        let algorithm = Arc::new(self.config.algorithm.clone());
        let mut round = Round::new(algorithm, self.config.seed, context, &self.targets, state)?;
        let number = round.number();
        let (mut completions, mut faults) = (Completions::new(), Faults::default());
        let stage = Stage {
            config: &self.config,
            system: &*self.system,
            tokenizer,
            fleet: &workers.fleet,
            journal: self.run.journal(),
            interrupt: &self.interrupt,
            policy_version: number,
        };
        // While the round before is being published, this one has nothing in the journal.
        if !publisher.is_busy() {
            self.run.start_round(number, "")?;
            let replayed = stage.replay(&mut round, &mut completions, &mut faults)?;
            if replayed > 0 {
                tracing::info!("round {number}: {replayed} results were in the journal");
            }
        }
        view.begin_round(number, self.config.rounds, "sampling");
        if matches!(next, NextStep::Start | NextStep::Sample) {
            let tokens = |c: &Completions| c.values().map(|c| c.tokens.len() as u64).sum::<u64>();
            let before = tokens(&completions);
            let sampler = workers.counters().seconds;
            let mut ready = || {
                if publisher.is_busy() {
                    kept.times.publish = publisher.wait()?;
                    self.run.start_round(number, "")?;
                }
                Ok(())
            };
            let (end, times) =
                workers.watch(|| stage.run(&mut round, &mut completions, &mut faults, &mut ready, view))?;
            if end == SamplingEnd::Interrupted {
                return Ok(None);
            }
            // A round without a single task has not called it.
            ready()?;
            kept.times.sampling = times.all;
            kept.times.dispatcher = times.dispatcher;
            let after = workers.counters().seconds;
            kept.times.sampler = std::array::from_fn(|i| after[i] - sampler[i]);
            kept.times.sampled_tokens = tokens(&completions) - before;
            self.run.finish_sampling(number, "")?;
        }
        let outcome = round.finish(state)?;
        infra::refuse_broken_round(&outcome)?;
        Ok(Some((outcome, completions)))
    }

    /// Trains; returns a copy of the new weights, if there are any.
    fn update(
        &self,
        outcome: &RoundOutcome,
        completions: &Completions,
        policies: &Arc<RwLock<Policies<D>>>,
        trainer: &mut Trainer<D>,
        kept: &mut Kept,
        view: &mut View,
    ) -> Result<Option<Snapshots>> {
        view.stage(outcome.round, self.config.rounds, "updating");
        let mut policies = policies.write().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        kept.update =
            update::update(&self.config, self.run.view(), outcome, completions, &mut policies, trainer)?;
        kept.times.update = started.elapsed().as_secs_f64();
        let changed = kept.update.solver.is_some() || kept.update.conjecturer.is_some();
        changed.then(|| policies.snapshot()).transpose()
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
    metrics.set(names::TIME_PUBLISH, t.publish);
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

/// The workers of this process: one thread that samples, some that check.
struct Workers {
    fleet: Fleet,
    drain: Drain,
    threads: Vec<std::thread::JoinHandle<()>>,
    failure: Arc<Mutex<Option<anyhow::Error>>>,
    counters: Arc<Mutex<GenerateCounters>>,
    interrupt: Interrupt,
}

impl Workers {
    fn start<D: Device + Decode + 'static>(
        runner: &Runner<D>,
        tokenizer: &Tokenizer,
        policies: &Arc<RwLock<Policies<D>>>,
    ) -> Result<Self>
    where
        Policies<D>: Send + Sync,
    {
        let board = BoardConfig { speculation: None, ..BoardConfig::default() };
        let mut workers = Self {
            fleet: Fleet::in_memory(board),
            drain: Drain::default(),
            threads: Vec::new(),
            failure: Arc::default(),
            counters: Arc::default(),
            interrupt: runner.interrupt.clone(),
        };
        let model = policies.read().unwrap_or_else(PoisonError::into_inner).config().clone();
        let stop: Arc<[u32]> = tokenizer.eos().into();
        let s = &runner.config.sampling;
        let options = SamplerOptions {
            max_batch: s.batch,
            memory_budget_bytes: s.memory_mib << 20,
            ..SamplerOptions::default()
        };
        let (policies, drain) = (Arc::clone(policies), workers.drain.clone());
        let counters = Arc::clone(&workers.counters);
        workers.spawn("generate", BoardKind::Generate, move |session| {
            generate::work(session, &policies, stop, &options, &drain, &counters)
        })?;
        let (system, drain) = (Arc::clone(&runner.system), workers.drain.clone());
        workers.spawn("verify", BoardKind::Verify, move |session| verify::work(session, &*system, &drain))?;
        workers.serve_roles(runner, tokenizer, &model)?;
        Ok(workers)
    }

    /// The roles that another server plays, if the configuration says so.
    fn serve_roles<D: Decode>(
        &mut self,
        runner: &Runner<D>,
        tokenizer: &Tokenizer,
        model: &ModelConfig,
    ) -> Result<()> {
        let Some(target) = runner.targets.first() else { return Ok(()) };
        let probe = crate::evaluate::encode(tokenizer, &runner.system.solver_prompt(target))?;
        let own = policies::tokenizer(&runner.base, model)?;
        let Some(served) = ServedRoles::connect(&runner.config, own, &probe, model.max_positions)? else {
            return Ok(());
        };
        let worker =
            WorkerName::new(&format!("endpoint-{}-{}", crate::machine::host_name(), std::process::id()))?;
        let (fleet, drain) = (self.fleet.clone(), self.drain.clone());
        self.spawn_thread("endpoint", move || served.work(Arc::new(fleet), worker, &drain))
    }

    fn spawn(
        &mut self,
        name: &str,
        kind: BoardKind,
        body: impl FnOnce(&Session) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let worker =
            WorkerName::new(&format!("{name}-{}-{}", crate::machine::host_name(), std::process::id()))?;
        let config =
            WorkerConfig { linger: std::time::Duration::from_millis(5), ..WorkerConfig::new(worker, kind) };
        let session = Session::start(Arc::new(self.fleet.clone()), config, self.drain.clone())?;
        self.spawn_thread(name, move || {
            let end = body(&session);
            let _ = session.close();
            end
        })
    }

    /// Runs a worker; if it fails, the run ends with its error.
    fn spawn_thread(&mut self, name: &str, body: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let failure = Arc::clone(&self.failure);
        let interrupt = self.interrupt.clone();
        let thread =
            std::thread::Builder::new().name(name.to_owned()).stack_size(16 << 20).spawn(move || {
                if let Err(error) = body() {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    interrupt.flag().store(true, Ordering::Release);
                }
            });
        self.threads.push(thread.context("cannot start a worker's thread")?);
        Ok(())
    }

    /// What the samplers have counted since the start.
    fn counters(&self) -> GenerateCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the dispatcher; a worker's failure becomes its error.
    fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = work();
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error.context("a worker of this process failed")),
            None => result,
        }
    }

    fn stop(mut self) -> Result<()> {
        self.drain.begin();
        self.fleet.set_drain(true)?;
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| anyhow!("a worker's thread panicked"))?;
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.drain.begin();
        let _ = self.fleet.set_drain(true);
    }
}

/// Reads the targets that a configuration names.
///
/// # Errors
/// The set is unknown or its file is broken.
pub fn metamath_targets(system: &sgs_metamath::system::Metamath, set: &str) -> Result<Vec<Problem>> {
    use sgs_metamath::corpus::splits::{SplitRule, split};
    let labels = |count: usize| -> Result<Vec<Problem>> {
        let split = split(system.theory(), SplitRule::default());
        let labels = split.targets.iter().take(count).map(|&t| system.theory().label(t));
        labels.map(|l| system.problem(l).with_context(|| format!("{l} is no theorem of the slice"))).collect()
    };
    match set {
        "quick" => labels(SplitRule::default().quick),
        "all" => labels(usize::MAX),
        file => crate::commands::eval::read_problems(Path::new(file)),
    }
}
