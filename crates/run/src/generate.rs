//! The generation worker: leases completions to be sampled, keeps the samplers full, hands results back one by one.

use super::policies::RoleModels;
use crate::tasks::{self, GenerateResult, GenerateTask, Sample};
use anyhow::{Context, Result};
use sgs_fleet::{Drain, LeaseId, Outcome, Session};
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_lm::sampler::{Choice, Completion, Decode, Finish, Request, RequestId, Sampler, SamplerOptions};
use sgs_selfplay::{FinishReason, Role};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

const ROLES: [Role; 3] = [Role::Conjecturer, Role::Guide, Role::Solver];

/// What a generation worker counts, for the view and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerateCounters {
    /// Prompt tokens computed.
    pub prefilled: u64,
    pub decoded: u64,
    /// Time inside the samplers of the Solver, the Conjecturer and the Guide, seconds.
    pub seconds: [f64; 3],
}

/// How a generation worker works.
pub struct GenerateSettings {
    /// Tokens that end a completion.
    pub stop: Arc<[u32]>,
    /// The samplers, one for each role.
    pub sampler: SamplerOptions,
    /// Most completions in hand, those that wait for their turn included.
    pub in_hand: usize,
    /// Once the drain has begun, completions have so long to end before they are given back.
    pub grace: Duration,
}

/// Samples until the drain begins. `follow` is asked for weights that a task wants and the worker has not; a task whose
/// policy version the worker has not then either is a failure of the worker.
///
/// # Errors
/// The sampler or the coordinator fails, or `follow` does.
pub fn work<D: Device + Decode, W: RoleModels<D>>(
    session: &Session,
    weights: &RwLock<W>,
    mut follow: impl FnMut(u32) -> Result<()>,
    settings: &GenerateSettings,
    drain: &Drain,
    counters: &Mutex<GenerateCounters>,
) -> Result<()> {
    let mut bench = Bench::new(weights, &settings.sampler)?;
    while !drain.has_begun() {
        let wait = if bench.in_flight() == 0 { Duration::from_millis(200) } else { Duration::ZERO };
        let room = bench.room(settings.in_hand);
        if room > 0 {
            for (lease, _) in session.lease(room, wait)? {
                let task: GenerateTask = match tasks::unpack(lease.payload.as_bytes()) {
                    Ok(task) => task,
                    Err(e) => {
                        session.finish(lease.id(), Outcome::Failed(format!("{e:#}")));
                        continue;
                    }
                };
                if task.policy_version > bench.policy_version {
                    bench.leave(|lease| session.finish(lease, Outcome::Returned));
                    follow(task.policy_version)?;
                    bench.take_up(&*weights.read().unwrap_or_else(PoisonError::into_inner));
                }
                if task.policy_version == bench.policy_version {
                    if bench.submit(lease.id(), &task, &settings.stop)? {
                        bench.answer(lease.id(), session)?;
                    }
                } else {
                    let (asked, has) = (task.policy_version, bench.policy_version);
                    let reason = format!("asked for policy {asked}, the worker has {has}");
                    session.finish(lease.id(), Outcome::Failed(reason));
                }
            }
        }
        for lease in session.take_abandoned() {
            bench.cancel(lease);
        }
        bench.step(weights, session, counters)?;
    }
    let deadline = Instant::now() + settings.grace;
    while bench.in_flight() > 0 && Instant::now() < deadline {
        bench.step(weights, session, counters)?;
    }
    Ok(())
}

/// One sampler for each role, and whose request is whose lease.
struct Bench<D: Decode> {
    /// In the order of [`ROLES`]; the Solver, whose rollouts are most of the work, may have several.
    samplers: Vec<(Role, Sampler<D>)>,
    /// The policy version that everything in flight is sampled with.
    policy_version: u32,
    policy_id: String,
    /// The task of each request, and the request's place in it.
    requests: HashMap<RequestId, (LeaseId, usize)>,
    tasks: HashMap<LeaseId, InHand>,
    next: u64,
    /// Completions that the last task asked for: the next one's are expected to be as many.
    a_task: usize,
    finished: Vec<Completion>,
}

/// A task whose completions are on their way.
struct InHand {
    sampler: usize,
    requests: Vec<RequestId>,
    samples: Vec<Option<Sample>>,
    left: usize,
}

impl<D: Device + Decode> Bench<D> {
    fn new(weights: &RwLock<impl RoleModels<D>>, options: &SamplerOptions) -> Result<Self> {
        let weights = weights.read().unwrap_or_else(PoisonError::into_inner);
        let mut samplers = Vec::new();
        for role in ROLES {
            let model = model(&*weights, role)?;
            let count = if role == Role::Solver { model.device.samplers(&model.config) } else { 1 };
            let options = SamplerOptions {
                max_batch: options.max_batch.div_ceil(count),
                memory_budget_bytes: options.memory_budget_bytes / count as u64,
                ..options.clone()
            };
            for _ in 0..count {
                samplers.push((role, Sampler::new(model, &options)?));
            }
        }
        Ok(Self {
            samplers,
            policy_version: weights.policy_version(),
            policy_id: weights.policy_id(),
            requests: HashMap::new(),
            tasks: HashMap::new(),
            next: 0,
            a_task: 1,
            finished: Vec::new(),
        })
    }

    /// From now on everything is sampled with these weights.
    fn take_up(&mut self, weights: &impl RoleModels<D>) {
        self.policy_version = weights.policy_version();
        self.policy_id = weights.policy_id();
    }

    /// Completions on their way.
    fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Tasks to ask for, so that about `most` completions are in hand.
    fn room(&self, most: usize) -> usize {
        most.saturating_sub(self.in_flight()).div_ceil(self.a_task)
    }

    /// Takes a task; `true` if it asks for nothing and is done already.
    fn submit(&mut self, lease: LeaseId, task: &GenerateTask, stop: &Arc<[u32]>) -> Result<bool> {
        let own = self.samplers.iter().enumerate().filter(|(_, (role, _))| *role == task.role);
        let sampler = own.min_by_key(|(_, (_, s))| s.running() + s.waiting()).map_or(0, |(i, _)| i);
        let prompt: Arc<[u32]> = task.prompt.as_slice().into();
        let mut requests = Vec::with_capacity(task.seeds.len());
        for (place, &seed) in task.seeds.iter().enumerate() {
            let id = RequestId(self.next);
            self.next += 1;
            self.samplers[sampler].1.submit(Request {
                id,
                prompt: Arc::clone(&prompt),
                seed,
                max_new_tokens: task.max_new_tokens,
                choice: Choice { temperature: task.temperature, ..Choice::default() },
                stop: Arc::clone(stop),
            })?;
            self.requests.insert(id, (lease, place));
            requests.push(id);
        }
        let left = requests.len();
        self.a_task = left.max(1);
        self.tasks.insert(lease, InHand { sampler, samples: vec![None; left], requests, left });
        Ok(left == 0)
    }

    fn cancel(&mut self, lease: LeaseId) {
        let Some(task) = self.tasks.remove(&lease) else { return };
        for id in task.requests {
            if self.requests.remove(&id).is_some() {
                self.samplers[task.sampler].1.cancel(id);
            }
        }
    }

    /// Gives up everything in flight: it is of weights that the run has left behind.
    fn leave(&mut self, mut give_back: impl FnMut(LeaseId)) {
        self.samplers.iter_mut().for_each(|(_, sampler)| sampler.cancel_all());
        self.requests.clear();
        self.tasks.drain().for_each(|(lease, _)| give_back(lease));
    }

    /// Hands back a task whose completions are all there.
    fn answer(&mut self, lease: LeaseId, session: &Session) -> Result<()> {
        let Some(task) = self.tasks.remove(&lease) else { return Ok(()) };
        let samples = task.samples.into_iter().flatten().collect();
        let result = GenerateResult { samples, policy_id: self.policy_id.clone() };
        session.finish(lease, Outcome::Done(tasks::pack(&result)?));
        Ok(())
    }

    /// Starts a step of every sampler that has work, and takes the results of those that are done: on a GPU the samplers
    /// run side by side, and none waits for another's longer steps. If none is done, waits for one.
    fn step(
        &mut self,
        weights: &RwLock<impl RoleModels<D>>,
        session: &Session,
        counters: &Mutex<GenerateCounters>,
    ) -> Result<()> {
        if self.in_flight() == 0 {
            return Ok(());
        }
        let weights = weights.read().unwrap_or_else(PoisonError::into_inner);
        for (role, sampler) in &mut self.samplers {
            if !sampler.is_idle() {
                sampler.start(model(&*weights, *role)?)?;
            }
        }
        let mut done = Vec::with_capacity(self.samplers.len());
        for (i, (_, sampler)) in self.samplers.iter().enumerate() {
            if !sampler.is_idle() && sampler.is_ready()? {
                done.push(i);
            }
        }
        if done.is_empty() {
            // In the order of the roles: the Solver's rollouts of a conjecture wait for the others.
            done.extend(self.samplers.iter().position(|(_, sampler)| !sampler.is_idle()));
        }
        for i in done {
            self.samplers[i].1.finish(&mut self.finished)?;
        }
        // A completion that began with other weights would be of none: its task fails, and is asked for again.
        let exchanged = self.policy_version != weights.policy_version();
        for completion in std::mem::take(&mut self.finished) {
            let Some((lease, place)) = self.requests.remove(&completion.id) else { continue };
            if exchanged {
                self.cancel(lease);
                let reason = format!("sampled while policy {} was exchanged", self.policy_version);
                session.finish(lease, Outcome::Failed(reason));
                continue;
            }
            let Some(task) = self.tasks.get_mut(&lease) else { continue };
            task.samples[place] = Some(sample_of(completion));
            task.left -= 1;
            if task.left == 0 {
                self.answer(lease, session)?;
            }
        }
        *counters.lock().unwrap_or_else(PoisonError::into_inner) = self.counters();
        Ok(())
    }

    fn counters(&self) -> GenerateCounters {
        let mut sum = GenerateCounters::default();
        for (role, sampler) in &self.samplers {
            let c = sampler.counters();
            sum.prefilled += c.prefilled_tokens;
            sum.decoded += c.decoded_tokens;
            let seconds = &mut sum.seconds[place(*role)];
            *seconds = seconds.max(c.time.as_secs_f64());
        }
        sum
    }
}

/// Place of a role in [`GenerateCounters::seconds`].
fn place(role: Role) -> usize {
    match role {
        Role::Solver => 0,
        Role::Conjecturer => 1,
        Role::Guide => 2,
    }
}

fn model<D: Device, W: RoleModels<D>>(weights: &W, role: Role) -> Result<&Model<D>> {
    weights.model(role).with_context(|| format!("the worker has no weights for {role:?}"))
}

fn sample_of(completion: Completion) -> Sample {
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
