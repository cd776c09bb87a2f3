//! The generation worker: leases sampling tasks, keeps the samplers busy, and reports results.

use crate::config::RunConfig;
use crate::config::machine::bytes;
use crate::error::{Context, Result, RunError};
use crate::train::policies::{self, PolicySet};
use crate::train::ranks::distributed_trainer::DistributedTrainer;
use crate::workers::sampling;
use crate::workers::tasks::{self, GenerateResult, GenerateTask, Sample};
use sgs_fleet::{LeaseId, LeaseOutcome, StopFlag, WorkerSession};
use sgs_lm::footprint::Footprint;
use sgs_lm::model::Model;
use sgs_lm::{Device, ModelConfig};
use sgs_lm_sampler::{
    Decode, Finish, Request, RequestId, SampledCompletion, Sampler, SamplerError, SamplerMemory,
    SamplerOptions, SamplingParams,
};
use sgs_selfplay::{FinishReason, Role};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The models of a generation worker: the run's own, or copies that follow them.
pub trait RoleModels<D: Device> {
    /// Returns the number of rounds whose updates the weights have seen.
    fn policy_version(&self) -> u32;

    /// Returns the model with which this process samples a role, or `None` if it does not sample it.
    fn model(&self, role: Role) -> Option<&Model<D>>;

    /// Identifies the weights; see [`GenerateResult`].
    fn policy_id(&self) -> String;

    /// Returns whether these are the weights that a task asks for.
    fn holds(&self, task: &GenerateTask) -> bool {
        task.policy_version == self.policy_version()
    }
}

impl<D: Device> RoleModels<D> for PolicySet<D> {
    fn policy_version(&self) -> u32 {
        self.policy_version
    }

    fn model(&self, role: Role) -> Option<&Model<D>> {
        if self.roles.contains(role) { PolicySet::model(self, role) } else { None }
    }

    fn policy_id(&self) -> String {
        self.mark.clone()
    }
}

pub(crate) const ROLES: [Role; 3] = [Role::Conjecturer, Role::Guide, Role::Solver];

/// Returns a role's memory as a multiple of `sampling.memory_mib`, a fraction. The three multiples add up to three.
///
/// The total time of the roles is least if their memory is proportional to the square roots of their tokens, and the
/// Solver samples about 25 times as many tokens as each of the others.
fn memory_multiple(role: Role) -> (u64, u64) {
    match role {
        Role::Solver => (2, 1),
        Role::Conjecturer | Role::Guide => (1, 2),
    }
}

/// Returns the number of samplers of a role, and the options of each. The Solver may have several, because it does most of
/// the work.
fn share(
    footprint: &dyn Footprint,
    model: &ModelConfig,
    role: Role,
    all: &SamplerOptions,
) -> (usize, SamplerOptions) {
    let count = if role == Role::Solver { footprint.samplers(model) } else { 1 };
    let (times, parts) = memory_multiple(role);
    let each = SamplerOptions {
        max_batch: all.max_batch.div_ceil(count),
        memory_budget_bytes: all.memory_budget_bytes.saturating_mul(times) / (parts * count as u64),
        ..all.clone()
    };
    (count, each)
}

/// Returns the number of samplers of a role and the memory of each, for a context window of `positions` tokens.
pub(crate) fn plan_samplers(
    footprint: &dyn Footprint,
    model: &ModelConfig,
    role: Role,
    all: &SamplerOptions,
    positions: usize,
) -> Result<(usize, SamplerMemory)> {
    let (count, options) = share(footprint, model, role, all);
    let planned = options.plan(footprint, model, positions);
    let (_, memory) = planned.map_err(|error| in_keys(role, count, error))?;
    Ok((count, memory))
}

/// Returns the error of a role with `count` samplers; about too little memory, it names the run's keys.
fn in_keys(role: Role, count: usize, error: SamplerError) -> RunError {
    match error {
        SamplerError::Budget { work, page, .. } => {
            let mib = memory_for(role, count, work + page);
            let few = "the sampling buffers and one page of the cache do not fit";
            let told = format!("{few}: raise sampling.memory_mib to {mib}, or lower sampling.batch");
            RunError::CannotBegin(told)
        }
        other => other.into(),
    }
}

/// Returns the value of `sampling.memory_mib` with which each of a role's `count` samplers gets this number of bytes.
fn memory_for(role: Role, count: usize, bytes: u64) -> u64 {
    let (times, parts) = memory_multiple(role);
    bytes.saturating_mul(count as u64).saturating_mul(parts).div_ceil(times).div_ceil(1 << 20)
}

/// Checks that the cache of each of a role's `count` samplers holds a completion of `longest` tokens with its prompt.
///
/// # Errors
/// Returns [`RunError::CannotBegin`] with the keys to change.
pub(crate) fn check_cache(
    role: Role,
    count: usize,
    memory: &SamplerMemory,
    page_len: usize,
    longest: usize,
) -> Result<()> {
    if memory.positions >= longest {
        return Ok(());
    }
    let page = memory.cache_bytes / memory.pages as u64;
    let cache = page * (longest.div_ceil(page_len) as u64 + 1);
    // With more memory, the plan may choose working buffers that take up to a quarter of it.
    let mib = memory_for(role, count, (memory.work_bytes + cache).max(cache.div_ceil(3) * 4));
    let role = role.as_str();
    Err(RunError::CannotBegin(format!(
        "the cache of the {role} holds {} tokens, and a prompt with its completion may have {longest}: raise \
         sampling.memory_mib to {mib}, or lower sampling.batch or sampling.{role}_tokens",
        memory.positions
    )))
}

/// Counters of a generation worker, for views and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerateCounters {
    /// Prompt tokens processed.
    pub prefilled: u64,
    pub decoded: u64,
    /// Time in the samplers of Solver, Conjecturer and Guide, in seconds.
    pub seconds: [f64; 3],
    /// Time in which a step of any sampler was in flight, in seconds.
    pub busy: f64,
}

impl GenerateCounters {
    /// Returns the counters that the worker updates.
    pub fn of(worker: &Mutex<Self>) -> Self {
        // The counters are replaced as a whole, so a poisoned lock is safe to use, here and where they are set.
        *worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct GenerateSettings {
    /// Tokens that end a completion.
    pub stop: Arc<[u32]>,
    /// The samplers, one for each role.
    pub sampler: SamplerOptions,
    /// Maximum number of completions leased at once, including those that wait for a slot.
    pub in_hand: usize,
    /// Time for completions to finish after the drain begins; the rest are returned.
    pub grace: Duration,
}

impl GenerateSettings {
    /// Settings of a process of the run itself. If others sample as well, it leases few tasks in advance, because they
    /// cannot take them.
    pub fn of_run(config: &RunConfig, stop: &[u32], is_alone: bool) -> Self {
        let s = &config.sampling;
        let ahead = if is_alone { s.batch } else { s.batch.div_ceil(8) };
        Self {
            stop: stop.into(),
            sampler: sampling::options(s.batch, s.memory_mib),
            in_hand: s.batch + ahead,
            grace: Duration::ZERO,
        }
    }
}

/// Pause of a busy worker after a lease request that found too few tasks. Over the network, a request takes as long as
/// a step of a small model.
const PAUSE: Duration = Duration::from_millis(5);

/// One sampler per role that the process samples, in the order of [`ROLES`]; the Solver may have several.
type Samplers<D> = Vec<(Role, Sampler<D>)>;

/// The samplers of a process. The thread that samples creates them when it needs them; the thread that trains may drop
/// them to use their memory.
///
/// The former holds the lock of the policies for reading while it creates them, and the latter holds it for writing. So
/// no sampler exists from its release until the end of an update.
pub struct SamplerSlot<D: Decode>(Mutex<Samplers<D>>);

impl<D: Decode> Default for SamplerSlot<D> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<D: Decode> SamplerSlot<D> {
    /// Creates the slot of a rank that samples and trains. If its samplers do not fit on the device together with the
    /// training buffers, both take turns.
    pub(crate) fn of_rank(
        config: &RunConfig,
        policies: &RwLock<PolicySet<D>>,
        trainer: &mut DistributedTrainer<D>,
    ) -> Result<Arc<Self>>
    where
        D: Device + 'static,
    {
        let slot = Arc::new(Self::default());
        let settings = &config.sampling;
        let options = sampling::options(settings.batch, settings.memory_mib);
        let needed = sampler_bytes(&*policies::read(policies), &options)?;
        let free = trainer.trainer().device().free_bytes().map(|bytes| bytes as u64);
        if config.training.shared_memory.takes_turns(needed, free) {
            tracing::info!("sampling and training use the same {} of the device in turns", bytes(needed));
            let own = Arc::clone(&slot);
            trainer.take_turns(Box::new(move || own.release()));
        }
        Ok(slot)
    }

    fn lock(&self) -> MutexGuard<'_, Samplers<D>> {
        // If a panic has interrupted a step, the thread that samples has ended, and the samplers are not used again.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the samplers after the end of a step in flight, whose results are lost. The caller must hold the lock of the
    /// policies for writing.
    pub(crate) fn release(&self) {
        self.lock().clear();
    }
}

/// Creates the samplers of a process.
fn new_samplers<D: Device + Decode>(
    weights: &impl RoleModels<D>,
    options: &SamplerOptions,
) -> Result<Samplers<D>> {
    let mut samplers = Vec::new();
    for role in ROLES {
        let Some(model) = weights.model(role) else { continue };
        let (count, options) = share(model.device.footprint(), &model.config, role, options);
        for _ in 0..count {
            let sampler = Sampler::new(model, &options).map_err(|error| in_keys(role, count, error))?;
            samplers.push((role, sampler));
        }
    }
    Ok(samplers)
}

/// Returns the size of a process's samplers in bytes.
pub(crate) fn sampler_bytes<D: Device>(
    weights: &impl RoleModels<D>,
    options: &SamplerOptions,
) -> Result<u64> {
    let mut bytes = 0;
    for role in ROLES {
        let Some(model) = weights.model(role) else { continue };
        let footprint = model.device.footprint();
        let (count, memory) = plan_samplers(footprint, &model.config, role, options, model.max_positions)?;
        bytes += count as u64 * (memory.cache_bytes + memory.work_bytes);
    }
    Ok(bytes)
}

/// Samples until the drain begins. If a task needs weights that the worker does not have, calls `follow`. If the
/// worker's policy version still differs afterwards, it fails the task.
pub fn work<D: Device + Decode, W: RoleModels<D>>(
    session: &WorkerSession,
    weights: &RwLock<W>,
    slot: &SamplerSlot<D>,
    mut follow: impl FnMut(u32) -> Result<()>,
    settings: &GenerateSettings,
    drain: &StopFlag,
    counters: &Mutex<GenerateCounters>,
) -> Result<()> {
    let mut role_samplers = RoleSamplers::new(weights, slot, settings)?;
    let mut ask_at = Instant::now();
    while !drain.is_set() {
        let is_idle = role_samplers.in_flight() == 0;
        let wait = if is_idle { Duration::from_millis(200) } else { Duration::ZERO };
        let room = role_samplers.room(settings.in_hand);
        if is_idle || (room > 0 && Instant::now() >= ask_at) {
            let leases = session.lease(room, wait)?;
            if leases.len() < room {
                ask_at = Instant::now() + PAUSE;
            }
            for (lease, _) in leases {
                let task: GenerateTask = match tasks::unpack(lease.payload.as_bytes()) {
                    Ok(task) => task,
                    Err(e) => {
                        session.finish(lease.id(), LeaseOutcome::Failed(format!("{e:#}")));
                        continue;
                    }
                };
                let held = || policies::read(weights).holds(&task);
                if task.policy_version > role_samplers.policy_version
                    || (task.policy_version == role_samplers.policy_version && !held())
                {
                    role_samplers.cancel_all(|lease| session.finish(lease, LeaseOutcome::Returned));
                    follow(task.policy_version)?;
                    role_samplers.set_policy(&*policies::read(weights));
                }
                if policies::read(weights).model(task.role).is_none() {
                    let reason = format!("the worker has no weights for the {}", task.role.as_str());
                    session.finish(lease.id(), LeaseOutcome::Failed(reason));
                } else if task.policy_version == role_samplers.policy_version {
                    if role_samplers.submit(&*policies::read(weights), session, lease.id(), &task)? {
                        role_samplers.answer(lease.id(), session)?;
                    }
                } else {
                    let (asked, has) = (task.policy_version, role_samplers.policy_version);
                    let reason = format!("the task needs policy version {asked}, the worker has {has}");
                    session.finish(lease.id(), LeaseOutcome::Failed(reason));
                }
            }
        }
        for lease in session.take_abandoned() {
            role_samplers.cancel(lease);
        }
        role_samplers.step(weights, session, counters)?;
    }
    let deadline = Instant::now() + settings.grace;
    while role_samplers.in_flight() > 0 && Instant::now() < deadline {
        role_samplers.step(weights, session, counters)?;
    }
    Ok(())
}

/// The samplers of a process and the tasks whose completions they sample.
struct RoleSamplers<'a, D: Decode> {
    slot: &'a SamplerSlot<D>,
    settings: &'a GenerateSettings,
    /// Counters of the samplers that were dropped.
    dropped: GenerateCounters,
    /// Counters after the last step.
    latest: GenerateCounters,
    /// The policy version of everything in flight.
    policy_version: u32,
    policy_id: String,
    /// The task of each request, and the request's index in it.
    requests: HashMap<RequestId, (LeaseId, usize)>,
    tasks: HashMap<LeaseId, TaskInFlight>,
    next: u64,
    /// Largest number of completions of a task so far, an estimate for the next; `None` before the first task.
    completions_per_task: Option<usize>,
    finished: Vec<SampledCompletion>,
    /// Since when a step has been in flight, and the total time before that.
    in_flight_since: Option<Instant>,
    busy: Duration,
}

struct TaskInFlight {
    sampler: usize,
    requests: Vec<RequestId>,
    samples: Vec<Option<Sample>>,
    left: usize,
}

impl<'a, D: Device + Decode> RoleSamplers<'a, D> {
    fn new<W: RoleModels<D>>(
        weights: &RwLock<W>,
        slot: &'a SamplerSlot<D>,
        settings: &'a GenerateSettings,
    ) -> Result<Self> {
        let weights = policies::read(weights);
        // Create them now, so that a lack of memory is noticed before the first task.
        *slot.lock() = new_samplers(&*weights, &settings.sampler)?;
        Ok(Self {
            slot,
            settings,
            dropped: GenerateCounters::default(),
            latest: GenerateCounters::default(),
            policy_version: weights.policy_version(),
            policy_id: weights.policy_id(),
            requests: HashMap::new(),
            tasks: HashMap::new(),
            next: 0,
            completions_per_task: None,
            finished: Vec::new(),
            in_flight_since: None,
            busy: Duration::ZERO,
        })
    }

    /// Locks the samplers. If they were dropped, returns their tasks to the board.
    fn samplers(&mut self, session: &WorkerSession) -> MutexGuard<'a, Samplers<D>> {
        let slot = self.slot;
        let samplers = slot.lock();
        if samplers.is_empty() {
            self.dropped = self.latest;
            // The time since the last step does not count as sampling.
            (self.busy, self.in_flight_since) = (Duration::from_secs_f64(self.latest.busy), None);
            self.forget_all(|lease| session.finish(lease, LeaseOutcome::Returned));
        }
        samplers
    }

    fn set_policy(&mut self, weights: &impl RoleModels<D>) {
        self.policy_version = weights.policy_version();
        self.policy_id = weights.policy_id();
    }

    fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Returns how many tasks to lease for about `most` completions in flight. Returns one as long as the size of tasks
    /// is unknown, and none if too few are missing to justify a request.
    fn room(&self, most: usize) -> usize {
        let free = most.saturating_sub(self.in_flight());
        match self.completions_per_task {
            _ if free < (most / 16).max(1) => 0,
            None => 1,
            Some(completions) => free.div_ceil(completions),
        }
    }

    /// Accepts a task. Returns true if it asks for no completions and is done.
    fn submit(
        &mut self,
        weights: &impl RoleModels<D>,
        session: &WorkerSession,
        lease: LeaseId,
        task: &GenerateTask,
    ) -> Result<bool> {
        let mut samplers = self.samplers(session);
        if samplers.is_empty() {
            *samplers = new_samplers(weights, &self.settings.sampler)?;
        }
        let own = samplers.iter().enumerate().filter(|(_, (role, _))| *role == task.role);
        let sampler = own.min_by_key(|(_, (_, s))| s.running() + s.waiting()).map_or(0, |(i, _)| i);
        let prompt: Arc<[u32]> = task.prompt.as_slice().into();
        let mut requests = Vec::with_capacity(task.seeds.len());
        for (place, &seed) in task.seeds.iter().enumerate() {
            let id = RequestId(self.next);
            self.next += 1;
            samplers[sampler].1.submit(Request {
                id,
                prompt: Arc::clone(&prompt),
                seed,
                max_new_tokens: task.max_new_tokens,
                params: SamplingParams { temperature: task.temperature, ..SamplingParams::default() },
                stop: Arc::clone(&self.settings.stop),
            })?;
            self.requests.insert(id, (lease, place));
            requests.push(id);
        }
        let left = requests.len();
        self.completions_per_task = Some(left.max(self.completions_per_task.unwrap_or(1)));
        self.tasks.insert(lease, TaskInFlight { sampler, samples: vec![None; left], requests, left });
        Ok(left == 0)
    }

    fn cancel(&mut self, lease: LeaseId) {
        let Some(task) = self.tasks.remove(&lease) else { return };
        let mut samplers = self.slot.lock();
        for id in task.requests {
            if self.requests.remove(&id).is_some()
                && let Some((_, sampler)) = samplers.get_mut(task.sampler)
            {
                sampler.cancel(id);
            }
        }
    }

    /// Cancels everything in flight, because the run has moved on to other weights.
    fn cancel_all(&mut self, give_back: impl FnMut(LeaseId)) {
        self.slot.lock().iter_mut().for_each(|(_, sampler)| sampler.cancel_all());
        self.forget_all(give_back);
    }

    fn forget_all(&mut self, mut give_back: impl FnMut(LeaseId)) {
        self.note_idle();
        self.requests.clear();
        self.tasks.drain().for_each(|(lease, _)| give_back(lease));
    }

    /// Reports a task whose completions are all finished.
    fn answer(&mut self, lease: LeaseId, session: &WorkerSession) -> Result<()> {
        let Some(task) = self.tasks.remove(&lease) else { return Ok(()) };
        let samples = task.samples.into_iter().flatten().collect();
        let result = GenerateResult { samples, policy_id: self.policy_id.clone() };
        session.finish(lease, LeaseOutcome::Done(tasks::pack(&result)?));
        Ok(())
    }

    /// Starts steps of every busy sampler and takes the results of those that are ready. On a GPU the samplers run
    /// concurrently, so that none waits for another's longer steps. If none is ready, waits for one.
    fn step(
        &mut self,
        weights: &RwLock<impl RoleModels<D>>,
        session: &WorkerSession,
        counters: &Mutex<GenerateCounters>,
    ) -> Result<()> {
        if self.in_flight() == 0 {
            self.note_idle();
            return Ok(());
        }
        let weights = policies::read(weights);
        let mut samplers = self.samplers(session);
        if samplers.is_empty() {
            return Ok(());
        }
        self.in_flight_since.get_or_insert_with(Instant::now);
        for (role, sampler) in samplers.iter_mut() {
            if !sampler.is_idle() {
                let model = weights.model(*role);
                let model = model.with_context(|| format!("the worker has no weights for {role:?}"))?;
                sampler.start(model)?;
            }
        }
        let mut done = Vec::with_capacity(samplers.len());
        for (i, (_, sampler)) in samplers.iter().enumerate() {
            if !sampler.is_idle() && sampler.is_ready()? {
                done.push(i);
            }
        }
        if done.is_empty() {
            // Prefer the earlier roles, because rollouts of a conjecture depend on the other roles.
            done.extend(samplers.iter().position(|(_, sampler)| !sampler.is_idle()));
        }
        for i in done {
            samplers[i].1.finish(&mut self.finished)?;
        }
        if !samplers.iter().any(|(_, sampler)| sampler.has_step_in_flight()) {
            self.note_idle();
        }
        self.latest = self.counters(&samplers);
        *counters.lock().unwrap_or_else(PoisonError::into_inner) = self.latest;
        // `cancel` locks them again.
        drop(samplers);
        // The weights changed during the completion. Fail the task, so that it is sampled again.
        let exchanged = self.policy_version != weights.policy_version();
        for completion in std::mem::take(&mut self.finished) {
            let Some((lease, place)) = self.requests.remove(&completion.id) else { continue };
            if exchanged {
                self.cancel(lease);
                let reason = format!("sampled while policy {} was exchanged", self.policy_version);
                session.finish(lease, LeaseOutcome::Failed(reason));
                continue;
            }
            let Some(task) = self.tasks.get_mut(&lease) else { continue };
            task.samples[place] = Some(sample_of(completion));
            task.left -= 1;
            if task.left == 0 {
                self.answer(lease, session)?;
            }
        }
        Ok(())
    }

    /// Records that no step is in flight.
    fn note_idle(&mut self) {
        self.busy += self.in_flight_since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    fn counters(&self, samplers: &Samplers<D>) -> GenerateCounters {
        let now = self.in_flight_since.map_or(Duration::ZERO, |since| since.elapsed());
        let mut sum = GenerateCounters { busy: (self.busy + now).as_secs_f64(), ..self.dropped };
        let mut seconds = [0.0f64; 3];
        for (role, sampler) in samplers {
            let c = sampler.counters();
            sum.prefilled += c.prefilled_tokens;
            sum.decoded += c.decoded_tokens;
            let seconds = &mut seconds[place(*role)];
            *seconds = seconds.max(c.time.as_secs_f64());
        }
        sum.seconds.iter_mut().zip(seconds).for_each(|(sum, seconds)| *sum += seconds);
        sum
    }
}

/// Returns the index of a role in [`GenerateCounters::seconds`].
fn place(role: Role) -> usize {
    match role {
        Role::Solver => 0,
        Role::Conjecturer => 1,
        Role::Guide => 2,
    }
}

fn sample_of(completion: SampledCompletion) -> Sample {
    let n = completion.entropies.len();
    let entropy = (n > 0).then(|| completion.entropies.iter().sum::<f32>() / n as f32);
    let (finish, refusal) = match completion.finish {
        Finish::Stop => (FinishReason::Stop, None),
        Finish::Length => (FinishReason::Length, None),
        Finish::Cancelled => (FinishReason::Cancelled, None),
        Finish::Refused(why) => (FinishReason::Refused, Some(why.to_string())),
    };
    Sample { tokens: completion.tokens, log_probs: completion.log_probs, entropy, finish, refusal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_in_an_error_is_the_least_that_is_enough() {
        const MIB: u64 = 1 << 20;
        let (work, page, count) = (900 * MIB + 1, 5 * MIB, 2);
        for role in ROLES {
            let (times, parts) = memory_multiple(role);
            let error = SamplerError::Budget { budget: MIB, work, page };
            let told = in_keys(role, count, error).to_string();
            let rest = told.split("sampling.memory_mib to ").nth(1).unwrap_or_default();
            let mib: u64 = rest.split(',').next().and_then(|n| n.parse().ok()).unwrap_or_default();
            let suffices = |mib: u64| mib * MIB * times / (parts * count as u64) >= work + page;
            assert!(suffices(mib) && !suffices(mib - 1), "{role:?}: {told}");
        }
    }

    #[test]
    fn the_roles_have_three_times_their_mean_memory() {
        let halves = ROLES.map(|role| {
            let (times, parts) = memory_multiple(role);
            2 * times / parts
        });
        assert_eq!(halves.iter().sum::<u64>(), 6);
    }
}
