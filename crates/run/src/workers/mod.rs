//! Who does a run's work: threads of this process, and workers in processes elsewhere.

pub mod config;
pub mod follow;
pub mod outside;
pub mod sheet;

use super::config::RunConfig;
use super::generate::{self, GenerateCounters, GenerateSettings};
use super::policies::{self, Policies};
use super::reading::is_quick;
use super::second::Second;
use super::served::{RECORDED, Servers};
use super::tasks::{GENERATE, VERIFY};
use super::{Interrupt, Runner, verify};
use anyhow::{Context, Result, anyhow, bail};
use config::By;
use outside::Outside;
use sgs_fleet::{BoardConfig, Drain, Fleet, Session, TaskKind, WorkerConfig, WorkerName};
use sgs_formal::FormalSystem;
use sgs_lm::sampler::{Decode, SamplerOptions};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_lm::{Device, ModelConfig};
use sgs_selfplay::{Problem, RunState};
use sheet::Sheet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// An outcome of a worker in this process waits at most this long for company.
const LINGER: Duration = Duration::from_millis(5);

/// Longest time without any result before a run whose workers are all in this process says so and stops.
const SILENCE: Duration = Duration::from_secs(600);

/// A run's workers: the threads of this process, and those outside.
pub struct Workers {
    fleet: Fleet,
    drain: Drain,
    threads: Vec<std::thread::JoinHandle<()>>,
    failure: Arc<Mutex<Option<anyhow::Error>>>,
    counters: Arc<Mutex<GenerateCounters>>,
    interrupt: Interrupt,
    outside: Option<Outside>,
    /// Those that play roles.
    servers: Option<Servers>,
    /// Whether those outside have been started.
    started: bool,
    base: PathBuf,
    /// Id of the weights that are laid out.
    policy_id: Option<String>,
}

impl Workers {
    /// Starts the threads of this process, and listens if others are to connect.
    ///
    /// # Errors
    /// A thread cannot be started, or the address is taken.
    pub fn start<D: Device + Decode + 'static>(
        runner: &Runner<D>,
        tokenizer: &Tokenizer,
        policies: &Arc<RwLock<Policies<D>>>,
    ) -> Result<Self>
    where
        Policies<D>: Send + Sync,
    {
        let run = runner.run.view().path();
        let outside = match &runner.fleet {
            Some(config) => {
                let mut outside = Outside::open(config, run)?;
                if runner.config.model.device == "cuda" {
                    outside.spread_over(crate::device::visible_gpus());
                }
                Some(outside)
            }
            None => {
                Outside::forget(run)?;
                None
            }
        };
        let in_process = || Fleet::in_memory(BoardConfig { speculation: None, ..BoardConfig::default() });
        let mut workers = Self {
            fleet: outside.as_ref().map_or_else(in_process, |outside| outside.fleet().clone()),
            drain: Drain::default(),
            threads: Vec::new(),
            failure: Arc::default(),
            counters: Arc::default(),
            interrupt: runner.interrupt.clone(),
            outside,
            servers: None,
            started: false,
            base: runner.base.clone(),
            policy_id: None,
        };
        if workers.is_embedded(&GENERATE) {
            let settings = settings(&runner.config, tokenizer);
            let (policies, drain) = (Arc::clone(policies), workers.drain.clone());
            let counters = Arc::clone(&workers.counters);
            workers.spawn(GENERATE, move |session| {
                // The weights of this process are always those that the run asks for.
                generate::work(session, &policies, |_| Ok(()), &settings, &drain, &counters)
            })?;
        }
        if workers.is_embedded(&VERIFY) {
            let (system, drain) = (Arc::clone(&runner.system), workers.drain.clone());
            workers.spawn(VERIFY, move |session| verify::work(session, &*system, &drain))?;
        }
        let model = policies.read().unwrap_or_else(PoisonError::into_inner).config().clone();
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
        let prompt = |target| crate::evaluate::encode(tokenizer, &runner.system.solver_prompt(target));
        let probes =
            runner.targets.iter().take(RECORDED).map(|target| prompt(target)).collect::<Result<Vec<_>>>()?;
        let own = || policies::tokenizer(&runner.base, model);
        let context = runner.config.window(model);
        let (servers, works) = Servers::connect(&runner.config, own, &probes, context)?;
        self.servers = Some(servers);
        for (name, work) in works {
            let (fleet, drain) = (self.fleet.clone(), self.drain.clone());
            self.spawn_thread(&name, move || work(Arc::new(fleet), drain))?;
        }
        Ok(())
    }

    fn is_embedded(&self, kind: &TaskKind) -> bool {
        self.outside.as_ref().is_none_or(|outside| outside.by(kind) == By::Embedded)
    }

    fn spawn(
        &mut self,
        kind: TaskKind,
        body: impl FnOnce(&Session) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let name = kind.to_string();
        let worker =
            WorkerName::new(&format!("{name}-{}-{}", crate::machine::host_name(), std::process::id()))?;
        let config = WorkerConfig { linger: LINGER, ..WorkerConfig::new(worker, kind) };
        let session = Session::start(Arc::new(self.fleet.clone()), config, self.drain.clone())?;
        self.spawn_thread(&name, move || {
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

    /// Runs the dispatcher; the failure of a worker of this process becomes its error.
    pub fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = work();
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error.context("a worker of this process failed")),
            None => result,
        }
    }

    /// The board.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Id of the weights that those outside sample with.
    pub fn policy_id(&self) -> Option<&str> {
        self.policy_id.as_deref()
    }

    /// Which verdicts of the round are asked again. Whoever has the token may be a worker of any name, so that none is
    /// exempt once others may connect.
    pub fn second_opinions(
        &self,
        system: &dyn FormalSystem,
        targets: &[Arc<Problem>],
        state: &RunState,
    ) -> Second {
        match self.outside.as_ref().map(Outside::recheck) {
            Some(Some(share)) if !is_quick(system) => {
                let unsolved = targets.iter().map(|target| &target.id).filter(|id| !state.is_solved(id));
                Second::elsewhere(share, unsolved.cloned().collect())
            }
            _ => self.checks_here(system),
        }
    }

    /// Which verdicts this process checks again itself: all, where others may connect and a check takes no time.
    pub fn checks_here(&self, system: &dyn FormalSystem) -> Second {
        if self.outside.is_some() && is_quick(system) { Second::Here } else { Second::Nothing }
    }

    /// What the samplers of this process have counted since the start.
    pub fn counters(&self) -> GenerateCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a round's first task: lays out its weights for servers and for those outside, and starts the latter if they
    /// are not at work yet; gives what a person should know of that, a line each.
    ///
    /// # Errors
    /// The weights cannot be read, or a launcher refuses its configuration.
    pub fn begin_round<D: Device + Decode>(
        &mut self,
        runner: &Runner<D>,
        policy_version: u32,
        tokenizer: &Tokenizer,
        policies: &RwLock<Policies<D>>,
        trainer: &mut Trainer<D>,
    ) -> Result<Vec<String>> {
        let at = runner.run.checkpoint()?.map(|checkpoint| checkpoint.directory);
        if let Some(servers) = &mut self.servers {
            let policies = policies.read().unwrap_or_else(PoisonError::into_inner);
            servers.refresh(&runner.config, policy_version, &self.base, at.as_deref(), &policies, trainer)?;
        }
        let Some(outside) = &mut self.outside else { return Ok(Vec::new()) };
        let folders = policies::folders(&runner.config, &self.base, at.as_deref());
        let header = runner.targets.first().map(|target| Arc::clone(&target.context)).unwrap_or_default();
        let sheet = |policy| Sheet::new(&runner.config, &header, tokenizer.eos(), policy);
        self.policy_id = Some(outside.lay_out(policy_version, &folders, sheet)?);
        if self.started {
            return Ok(Vec::new());
        }
        self.started = true;
        outside.start_workers()
    }

    /// To be asked while no results come in, for how long that has been; `open` describes what is waited for.
    ///
    /// # Errors
    /// Workers have failed, or nothing has come in for too long.
    pub fn check(&self, silent: Duration, open: &dyn Fn() -> String) -> Result<()> {
        match &self.outside {
            Some(outside) => outside.check(silent, open),
            None if silent > SILENCE => {
                let status = serde_json::to_string(&self.fleet.status()?).unwrap_or_default();
                bail!("nothing has come in for {} s; {}; board: {status}", silent.as_secs(), open())
            }
            None => Ok(()),
        }
    }

    /// Whether a round may begin only when the weights before it are on the disk.
    pub fn read_weights_from_disk(&self) -> bool {
        self.outside.is_some() || self.servers.as_ref().is_some_and(Servers::follow)
    }

    /// The run is over: everybody goes home.
    ///
    /// # Errors
    /// A thread panicked, or the board is broken.
    pub fn stop(mut self) -> Result<()> {
        self.drain.begin();
        self.servers = None;
        self.fleet.set_drain(true)?;
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| anyhow!("a worker's thread panicked"))?;
        }
        self.outside.take().map_or(Ok(()), Outside::finish)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.drain.begin();
        // Workers elsewhere that somebody else has started stay: the run may be resumed.
        if self.outside.is_none() {
            let _ = self.fleet.set_drain(true);
        }
    }
}

/// How the worker of this process samples.
fn settings(config: &RunConfig, tokenizer: &Tokenizer) -> GenerateSettings {
    let s = &config.sampling;
    GenerateSettings {
        stop: tokenizer.eos().into(),
        sampler: SamplerOptions {
            max_batch: s.batch,
            memory_budget_bytes: s.memory_mib.saturating_mul(1 << 20),
            ..SamplerOptions::default()
        },
        in_hand: 2 * s.batch,
        grace: Duration::ZERO,
    }
}
