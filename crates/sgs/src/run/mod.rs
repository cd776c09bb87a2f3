//! A run of self-play: the stages of each round joined, on disk at every step.

pub mod config;
pub mod generate;
pub mod policies;
pub mod sampling;
pub mod tasks;
pub mod update;
pub mod verify;
pub mod view;

use crate::exit::Outcome;
use anyhow::{Context, Result, anyhow, bail};
use config::RunConfig;
use policies::Policies;
use sampling::{Completions, SamplingEnd, SamplingTimes, Stage};
use serde::{Deserialize, Serialize};
use sgs_fleet::{BoardConfig, Drain, Fleet, Session, TaskKind as BoardKind, WorkerConfig, WorkerName};
use sgs_formal::FormalSystem;
use sgs_lm::Device;
use sgs_lm::model::Mode;
use sgs_lm::sampler::{Decode, SamplerOptions};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_rundir::metrics::{MetricValues, names};
use sgs_rundir::{KeepPolicy, NextStep, OutcomeSources, RunDir, write_outcome};
use sgs_selfplay::{Problem, Round, RoundMetrics, RoundOutcome, RunState, Verdict};
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
    pub run: RunDir,
    /// Where the model computes.
    pub device: Arc<D>,
    /// Folder of the base model.
    pub base: PathBuf,
    /// Set when the user wants to stop.
    pub interrupt: Interrupt,
}

/// What is kept with the marker of the update, so that no number is lost in a crash before the tables.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    update: UpdateReport,
    times: Times,
}

/// Wall times of a round in seconds, and what was counted meanwhile.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Times {
    sampling: f64,
    role: [f64; 3],
    update: f64,
    checkpoint: f64,
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
    pub fn work(mut self, mut view: View) -> Result<Outcome> {
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
        let mut sinks = self.run.sinks()?;
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
            let done = self.round(
                &state,
                next,
                context,
                &tokenizer,
                &workers,
                &policies,
                &mut trainer,
                &mut kept,
                &mut view,
            )?;
            let Some((outcome, completions)) = done else { return Ok(Outcome::Interrupted) };
            let seconds = round_started.elapsed().as_secs_f64();
            let metrics = self.publish(&mut state, &outcome, &completions, &kept, seconds)?;
            sinks.record(&metrics);
            view.end_round(&outcome, &metrics);
            let policy =
                KeepPolicy { last: self.config.checkpoints.last, every: self.config.checkpoints.every };
            self.run.prune_checkpoints(policy)?;
            next = NextStep::Start;
            kept = Kept::default();
        }
        workers.stop()?;
        Ok(Outcome::Done)
    }

    /// A round up to its tables. `None` if the user interrupted it.
    #[allow(clippy::too_many_arguments)]
    fn round(
        &mut self,
        state: &RunState,
        next: NextStep,
        context: u32,
        tokenizer: &Tokenizer,
        workers: &Workers,
        policies: &Arc<RwLock<Policies<D>>>,
        trainer: &mut Trainer<D>,
        kept: &mut Kept,
        view: &mut View,
    ) -> Result<Option<(RoundOutcome, Completions)>> {
        let algorithm = Arc::new(self.config.algorithm.clone());
        let mut round = Round::new(algorithm, self.config.seed, context, &self.targets, state)?;
        let number = round.number();
        self.run.start_round(number, "")?;
        let mut completions = Completions::new();
        let stage = Stage {
            config: &self.config,
            system: &*self.system,
            tokenizer,
            fleet: &workers.fleet,
            journal: self.run.journal(),
            interrupt: &self.interrupt,
            policy_version: number,
        };
        let replayed = stage.replay(&mut round, &mut completions)?;
        if replayed > 0 {
            tracing::info!("round {number}: {replayed} results were in the journal");
        }
        view.begin_round(number, self.config.rounds, "sampling");
        if matches!(next, NextStep::Start | NextStep::Sample) {
            let before = completions.values().map(|c| c.tokens.len() as u64).sum::<u64>();
            let (end, times) = workers.watch(|| stage.run(&mut round, &mut completions, view))?;
            if end == SamplingEnd::Interrupted {
                return Ok(None);
            }
            let SamplingTimes { all, role } = times;
            (kept.times.sampling, kept.times.role) = (all, role);
            let after = completions.values().map(|c| c.tokens.len() as u64).sum::<u64>();
            kept.times.sampled_tokens = after - before;
            self.run.finish_sampling(number, "")?;
        }
        let outcome = round.finish(state)?;
        refuse_broken_checker(&outcome)?;
        if next != NextStep::Publish {
            self.update(&outcome, &completions, policies, trainer, kept, view)?;
        }
        Ok(Some((outcome, completions)))
    }

    fn update(
        &self,
        outcome: &RoundOutcome,
        completions: &Completions,
        policies: &Arc<RwLock<Policies<D>>>,
        trainer: &mut Trainer<D>,
        kept: &mut Kept,
        view: &mut View,
    ) -> Result<()> {
        view.stage(outcome.round, self.config.rounds, "updating");
        let mut policies = policies.write().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        kept.update =
            update::update(&self.config, self.run.view(), outcome, completions, &mut policies, trainer)?;
        kept.times.update = started.elapsed().as_secs_f64();
        let changed = kept.update.solver.is_some() || kept.update.conjecturer.is_some();
        let detail = serde_json::to_string(kept)?;
        if changed {
            let started = Instant::now();
            let companions = ["tokenizer.json", "tokenizer_config.json"].map(|n| self.base.join(n)).to_vec();
            self.run.publish_checkpoint(outcome.round, &detail, |folder| {
                Ok(policies.save(folder, &companions)?)
            })?;
            kept.times.checkpoint = started.elapsed().as_secs_f64();
        } else {
            self.run.skip_update(outcome.round, &detail)?;
        }
        Ok(())
    }

    /// Writes a round's tables and metrics; the state then has absorbed it.
    fn publish(
        &self,
        state: &mut RunState,
        outcome: &RoundOutcome,
        completions: &Completions,
        kept: &Kept,
        seconds: f64,
    ) -> Result<MetricValues> {
        let started = Instant::now();
        state.absorb(outcome)?;
        let system = Arc::clone(&self.system);
        let features = move |p: &Problem| system.features(&p.statement);
        let round = RoundMetrics::compute(outcome, state, &features);
        let mut metrics = MetricValues::of_round(&round);
        measured(&mut metrics, outcome, kept);
        metrics.set(names::TIME_PUBLISH, kept.times.checkpoint + started.elapsed().as_secs_f64());
        metrics.set(names::TIME_ROUND, seconds);
        metrics.set(names::RECORDS_REPEATED, self.run.journal().duplicates() as f64);
        self.run.publish_round(&metrics, |tables| {
            let mut completion = |key: &sgs_selfplay::TaskKey| Ok(completions.get(key).cloned());
            let sources = OutcomeSources {
                run_seed: self.config.seed,
                features: &features,
                completion: &mut completion,
            };
            Ok(write_outcome(tables, outcome, sources)?)
        })?;
        Ok(metrics)
    }
}

/// A checker that breaks more often than once in a hundred proofs cannot be trusted with the rest either.
fn refuse_broken_checker(outcome: &RoundOutcome) -> Result<()> {
    let infra = outcome.rollouts.iter().filter(|r| r.verdict == Verdict::Infra).count();
    if infra * 100 > outcome.rollouts.len() {
        let first = outcome.rollouts.iter().find(|r| r.verdict == Verdict::Infra).map(|r| r.reason.as_str());
        bail!(
            "{infra} of {} rollouts of round {} could not be judged (more than 1 %); the first: {}",
            outcome.rollouts.len(),
            outcome.round,
            first.unwrap_or("")
        );
    }
    Ok(())
}

fn measured(metrics: &mut MetricValues, outcome: &RoundOutcome, kept: &Kept) {
    let t = &kept.times;
    metrics.set(names::TIME_SAMPLING, t.sampling);
    metrics.set(names::TIME_ROLLOUTS, t.role[0]);
    metrics.set(names::TIME_CONJECTURES, t.role[1]);
    metrics.set(names::TIME_REVIEWS, t.role[2]);
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
            interrupt: Interrupt::default(),
        };
        let stop: Arc<[u32]> = tokenizer.eos().into();
        let s = &runner.config.sampling;
        let options = SamplerOptions {
            max_batch: s.batch,
            memory_budget_bytes: s.memory_mib << 20,
            ..SamplerOptions::default()
        };
        let (policies, drain) = (Arc::clone(policies), workers.drain.clone());
        workers.spawn("generate", BoardKind::Generate, move |session| {
            generate::work(session, &policies, stop, &options, &drain, |_| ())
        })?;
        let (system, drain) = (Arc::clone(&runner.system), workers.drain.clone());
        workers.spawn("verify", BoardKind::Verify, move |session| verify::work(session, &*system, &drain))?;
        Ok(workers)
    }

    fn spawn(
        &mut self,
        name: &str,
        kind: BoardKind,
        body: impl FnOnce(&Session) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let worker = WorkerName::new(&format!("{name}-local-{}", std::process::id()))?;
        let config =
            WorkerConfig { linger: std::time::Duration::from_millis(5), ..WorkerConfig::new(worker, kind) };
        let session = Session::start(Arc::new(self.fleet.clone()), config, self.drain.clone())?;
        let failure = Arc::clone(&self.failure);
        let interrupt = self.interrupt.clone();
        let thread =
            std::thread::Builder::new().name(name.to_owned()).stack_size(16 << 20).spawn(move || {
                if let Err(error) = body(&session) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    interrupt.flag().store(true, Ordering::Release);
                }
                let _ = session.close();
            });
        self.threads.push(thread.context("cannot start a worker's thread")?);
        Ok(())
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
