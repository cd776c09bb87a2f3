//! The workers of a run: threads of this process, endpoints, and remote workers.

use crate::config::SHIPPED;
use crate::error::{Context, Result, RunError, bail};
use crate::round::recheck::{RecheckPolicy, RecheckSample};
use crate::round::sampling_context::verifies_one_by_one;
use crate::served::{RECORDED, Servers};
use crate::train::policies::{self, PolicySet};
use crate::train::ranks::distributed_trainer::DistributedTrainer;
use crate::workers::config::By;
use crate::workers::coordinator::RemoteWorkers;
use crate::workers::generate::{self, GenerateCounters, GenerateSettings, SamplerSlot};
use crate::workers::manifest::RunManifest;
use crate::workers::tasks::{self, GENERATE, VERIFY};
use crate::workers::{sampling, verify};
use crate::{Runner, StopFlag};
use sgs_endpoint::EndpointError;
use sgs_fleet::{BoardConfig, Fleet, WorkKind, WorkerConfig, WorkerName, WorkerSession};
use sgs_formal::FormalSystem;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::{Device, ModelConfig};
use sgs_lm_sampler::Decode;
use sgs_selfplay::{Problem, RunState};
use std::hash::RandomState;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Time for which a worker of this process collects results before it reports them.
const LINGER: Duration = Duration::from_millis(5);

/// Time without any result after which a run with only local workers stops.
const SILENCE: Duration = Duration::from_secs(600);

/// Interval between checks of the interrupt flag while the run connects to servers.
const INTERRUPT_POLL: Duration = Duration::from_millis(50);

pub(crate) struct RunWorkers {
    fleet: Fleet,
    drain: StopFlag,
    threads: Vec<std::thread::JoinHandle<()>>,
    failure: Arc<Mutex<Option<RunError>>>,
    counters: Arc<Mutex<GenerateCounters>>,
    interrupt: StopFlag,
    remote: Option<RemoteWorkers>,
    servers: Option<Servers>,
    base: PathBuf,
    /// Id of the weights that remote workers use. `None` until these workers are started.
    policy_id: Option<String>,
}

impl RunWorkers {
    /// Starts the worker threads of this process, and listens if remote workers may connect. The other ranks sample if
    /// this process does.
    pub(crate) fn start<D: Device + Decode + 'static>(
        runner: &Runner<D>,
        tokenizer: &Tokenizer,
        policies: &Arc<RwLock<PolicySet<D>>>,
        trainer: &mut DistributedTrainer<D>,
    ) -> Result<Self>
    where
        PolicySet<D>: Send + Sync,
    {
        let run = runner.run.view().path();
        let remote = match &runner.fleet {
            Some(config) => {
                let mut remote = RemoteWorkers::open(config, run)?;
                // Other workers do not have the external system or the user's database.
                let is_local =
                    runner.system.name() == "external" || runner.config.problems.database != SHIPPED;
                if is_local && remote.by(&VERIFY) != By::Embedded {
                    bail!(
                        "the run itself verifies the proofs of an external system or of a database other than the \
                         shipped one: let other workers only generate (`--workers local:generate=2`, or [verify] \
                         by = \"embedded\")"
                    );
                }
                if runner.config.model.device == "cuda" {
                    let mut gpus = crate::config::device::visible_gpus();
                    // A worker samples faster on a GPU that no rank uses.
                    let ranks = runner.config.training.ranks % gpus.len().max(1);
                    gpus.rotate_left(ranks);
                    remote.assign_gpus(gpus);
                }
                Some(remote)
            }
            None => {
                runner.run.record_fleet(None)?;
                None
            }
        };
        let in_process = || Fleet::in_memory(BoardConfig { speculation: None, ..BoardConfig::default() });
        let mut workers = Self {
            fleet: remote.as_ref().map_or_else(in_process, |remote| remote.fleet().clone()),
            drain: StopFlag::default(),
            threads: Vec::new(),
            failure: Arc::default(),
            counters: Arc::default(),
            interrupt: runner.interrupt.clone(),
            remote,
            servers: None,
            base: runner.base.clone(),
            policy_id: None,
        };
        if workers.is_embedded(&GENERATE) {
            let is_alone = trainer.commands().is_none();
            let settings = GenerateSettings::of_run(&runner.config, tokenizer.eos(), is_alone);
            let (policies, drain) = (Arc::clone(policies), workers.drain.clone());
            let counters = Arc::clone(&workers.counters);
            let slot = SamplerSlot::of_rank(&runner.config, &policies, trainer)?;
            workers.spawn(GENERATE, move |session| {
                // The weights of this process are always those of the current round.
                generate::work(session, &policies, &slot, |_| Ok(()), &settings, &drain, &counters)
            })?;
            let counters = Arc::clone(&workers.counters);
            trainer.watch(Box::new(move || GenerateCounters::of(&counters).busy));
            trainer.share_board(&workers.fleet, GENERATE, tasks::own_mark(), tokenizer.eos())?;
        }
        if workers.is_embedded(&VERIFY) {
            let (system, drain) = (Arc::clone(&runner.system), workers.drain.clone());
            workers.spawn(VERIFY, move |session| verify::work(session, &*system, &drain))?;
        }
        let model = policies::read(policies).config().clone();
        workers.serve_roles(runner, tokenizer, &model)?;
        Ok(workers)
    }

    /// Connects to the endpoints that sample roles, if the configuration names any.
    fn serve_roles<D: Decode>(
        &mut self,
        runner: &Runner<D>,
        tokenizer: &Tokenizer,
        model: &ModelConfig,
    ) -> Result<()> {
        let prompt = |target| sampling::encode(tokenizer, &runner.system.solver_prompt(target));
        let probes =
            runner.targets.iter().take(RECORDED).map(|target| prompt(target)).collect::<Result<Vec<_>>>()?;
        let (config, base, model) = (Arc::clone(&runner.config), runner.base.clone(), model.clone());
        let (sender, connected) = mpsc::channel();
        // A server may take minutes to reply. In a separate thread, it does not delay an interrupt.
        let connect = move || {
            let own = || policies::tokenizer(&base, &model);
            // After an interrupt, the receiver is gone.
            let _ = sender.send(Servers::connect(&config, own, &probes, config.window(&model)));
        };
        std::thread::Builder::new().name("connect".into()).spawn(connect).context("cannot start a thread")?;
        let (servers, works) = loop {
            match connected.recv_timeout(INTERRUPT_POLL) {
                Ok(connected) => break connected?,
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that connects to servers panicked"),
                Err(RecvTimeoutError::Timeout) if self.is_interrupted() => {
                    return self.watch(|| Err(EndpointError::Cancelled.into()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        self.servers = Some(servers);
        for (name, work) in works {
            let (fleet, drain) = (self.fleet.clone(), self.drain.clone());
            self.spawn_thread(&name, move || work(Arc::new(fleet), drain))?;
        }
        Ok(())
    }

    fn is_embedded(&self, kind: &WorkKind) -> bool {
        self.remote.as_ref().is_none_or(|remote| remote.by(kind) == By::Embedded)
    }

    fn spawn(
        &mut self,
        kind: WorkKind,
        body: impl FnOnce(&WorkerSession) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let name = kind.to_string();
        let worker =
            WorkerName::new(&format!("{name}-{}-{}", sgs_base::host::host_name(), std::process::id()))?;
        let config = WorkerConfig { linger: LINGER, ..WorkerConfig::new(worker, kind) };
        let session = WorkerSession::start(Arc::new(self.fleet.clone()), config, self.drain.clone())?;
        self.spawn_thread(&name, move || {
            let end = body(&session);
            let _ = session.close();
            end
        })
    }

    /// Runs a worker thread. If it fails, the run ends with its error.
    fn spawn_thread(&mut self, name: &str, body: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let failure = Arc::clone(&self.failure);
        let interrupt = self.interrupt.clone();
        let thread =
            std::thread::Builder::new().name(name.to_owned()).stack_size(16 << 20).spawn(move || {
                if let Err(error) = body() {
                    // A poisoned lock is safe to use here and below, because an error is stored as a whole.
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    interrupt.flag().store(true, Ordering::Release);
                }
            });
        self.threads.push(thread.context("cannot start a worker's thread")?);
        Ok(())
    }

    /// Runs the dispatcher. If a worker thread fails, returns that error.
    pub(crate) fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = work();
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => {
                Err(error.context("a worker of this process failed; `sgs resume` continues the run"))
            }
            None => result,
        }
    }

    /// Returns true if the user wants the run to stop, or a worker thread has failed.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Returns the id of the weights that remote workers sample with.
    pub(crate) fn policy_id(&self) -> Option<&str> {
        self.policy_id.as_deref()
    }

    /// Returns the recheck policy of a round. Any worker with the token can use any name, so once remote workers may
    /// connect, no worker is exempt.
    pub(crate) fn recheck_policy(
        &self,
        system: &dyn FormalSystem,
        targets: &[Arc<Problem>],
        state: &RunState,
    ) -> RecheckPolicy {
        match self.remote.as_ref().map(RemoteWorkers::recheck) {
            Some(Some(share)) if !verifies_one_by_one(system) => {
                let unsolved = targets.iter().map(|target| &target.id).filter(|id| !state.is_solved(id));
                let (unsolved, draw) = (unsolved.cloned().collect(), RandomState::new());
                RecheckPolicy::OtherWorker(RecheckSample { unsolved, share, draw })
            }
            _ => self.local_recheck(system),
        }
    }

    /// Returns the policy without rechecks by other workers. If remote workers may connect and the system verifies one
    /// proof at a time, this process rechecks all verdicts. Otherwise, none is rechecked.
    pub(crate) fn local_recheck(&self, system: &dyn FormalSystem) -> RecheckPolicy {
        if self.remote.is_some() && verifies_one_by_one(system) {
            RecheckPolicy::Local
        } else {
            RecheckPolicy::Off
        }
    }

    /// Returns true if proofs are verified where their texts are read, without a task on the board. This needs a quick
    /// system, and no other workers that are to verify.
    pub(crate) fn verifies_in_place(&self, system: &dyn FormalSystem) -> bool {
        system.is_quick() && self.is_embedded(&VERIFY)
    }

    /// Counters of this process's samplers since the start.
    pub(crate) fn counters(&self) -> GenerateCounters {
        GenerateCounters::of(&self.counters)
    }

    /// Prepares workers for a round: makes its weights, which are in the folder `at` or the base model, available to servers
    /// and remote workers, and starts the latter once. Returns notes for the user.
    pub(crate) fn begin_round<D: Device + Decode>(
        &mut self,
        runner: &Runner<D>,
        policy_version: u32,
        at: Option<&Path>,
        tokenizer: &Tokenizer,
        policies: &RwLock<PolicySet<D>>,
        trainer: &mut DistributedTrainer<D>,
    ) -> Result<Vec<String>> {
        if let Some(servers) = self.servers.as_mut().filter(|servers| servers.follow()) {
            let mut policies = policies::write(policies);
            trainer.begin_passes(&mut policies);
            let own = trainer.trainer();
            servers.refresh(&runner.config, policy_version, &self.base, at, &policies, own)?;
            trainer.end_passes(&mut policies);
        }
        let Some(remote) = &mut self.remote else { return Ok(Vec::new()) };
        let folders = policies::sampled_folders(&runner.config, &self.base, at);
        let header = runner.targets.first().map(|target| Arc::clone(&target.context)).unwrap_or_default();
        let manifest = |policy| RunManifest::new(&runner.config, &header, tokenizer.eos(), policy);
        match self.policy_id.replace(remote.publish_policy(policy_version, &folders, manifest)?) {
            Some(_) => Ok(Vec::new()),
            None => remote.start_workers(),
        }
    }

    /// Called while no results arrive, with the idle time and a description of the pending work.
    ///
    /// # Errors
    /// Returns an error if workers have failed or the idle time is too long.
    pub(crate) fn check(&self, silent: Duration, open: &dyn Fn() -> String) -> Result<()> {
        match &self.remote {
            Some(remote) => remote.check(silent, open),
            None if silent > SILENCE => {
                bail!(
                    "no result for {} s; {}. Look at `sgs status RUN`, then resume",
                    silent.as_secs(),
                    open()
                )
            }
            None => Ok(()),
        }
    }

    /// Returns true if a round may begin only after its weights are on disk.
    pub(crate) fn read_weights_from_disk(&self) -> bool {
        self.remote.is_some() || self.servers.as_ref().is_some_and(Servers::follow)
    }

    /// Stops all workers at the end of the run.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.drain.set();
        self.servers = None;
        self.fleet.set_drain(true);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| RunError::Failed("a worker's thread panicked".into()))?;
        }
        self.remote.take().map_or(Ok(()), RemoteWorkers::finish)
    }
}

impl Drop for RunWorkers {
    fn drop(&mut self) {
        self.drain.set();
        // Do not stop remote workers that were started by others, because the run may be resumed.
        if self.remote.is_none() && !std::thread::panicking() {
            self.fleet.set_drain(true);
        }
    }
}
