//! The generation worker: leases completions to be sampled, keeps the samplers full, hands results back one by one.

use super::policies::Policies;
use super::tasks::{GenerateResult, GenerateTask};
use anyhow::{Context, Result};
use sgs_fleet::{Drain, LeaseId, Outcome, Session};
use sgs_lm::Device;
use sgs_lm::sampler::{Choice, Completion, Decode, Finish, Request, RequestId, Sampler, SamplerOptions};
use sgs_selfplay::{FinishReason, Role};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

const ROLES: [Role; 3] = [Role::Conjecturer, Role::Guide, Role::Solver];

/// What a generation worker counts, for the view and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerateCounters {
    /// Prompt tokens computed.
    pub prefilled: u64,
    /// Tokens sampled.
    pub decoded: u64,
    /// Time inside the samplers of the Solver, the Conjecturer and the Guide, seconds.
    pub seconds: [f64; 3],
}

/// Samples until the drain begins.
///
/// # Errors
/// The sampler or the coordinator fails.
pub fn work<D: Device + Decode>(
    session: &Session,
    policies: &RwLock<Policies<D>>,
    stop: Arc<[u32]>,
    options: &SamplerOptions,
    drain: &Drain,
    counters: &Mutex<GenerateCounters>,
) -> Result<()> {
    let mut bench = Bench::new(policies, options)?;
    while !drain.has_begun() {
        let room = (options.max_batch * 2).saturating_sub(bench.in_flight());
        let wait = if bench.in_flight() == 0 { Duration::from_millis(200) } else { Duration::ZERO };
        if room > 0 {
            for (lease, _) in session.lease(room, wait)? {
                let task: GenerateTask = match serde_json::from_slice(lease.payload.as_bytes()) {
                    Ok(task) => task,
                    Err(e) => {
                        session.finish(lease.id(), Outcome::Failed(format!("unreadable task: {e}")));
                        continue;
                    }
                };
                bench.submit(lease.id(), &task, &stop)?;
            }
        }
        for lease in session.take_abandoned() {
            bench.cancel(lease);
        }
        if bench.in_flight() > 0 {
            let policies = policies.read().unwrap_or_else(PoisonError::into_inner);
            bench.step(&policies, |lease, outcome| session.finish(lease, outcome))?;
            *counters.lock().unwrap_or_else(PoisonError::into_inner) = bench.counters();
        }
    }
    Ok(())
}

/// One sampler for each role, and whose request is whose lease.
struct Bench<D: Decode> {
    samplers: Vec<Sampler<D>>,
    leases: HashMap<RequestId, (LeaseId, u32)>,
    requests: HashMap<LeaseId, (usize, RequestId)>,
    next: u64,
    finished: Vec<Completion>,
}

impl<D: Device + Decode> Bench<D> {
    fn new(policies: &RwLock<Policies<D>>, options: &SamplerOptions) -> Result<Self> {
        let policies = policies.read().unwrap_or_else(PoisonError::into_inner);
        let samplers = ROLES
            .iter()
            .map(|&role| Sampler::new(policies.model(role), options))
            .collect::<Result<_, _>>()?;
        Ok(Self { samplers, leases: HashMap::new(), requests: HashMap::new(), next: 0, finished: Vec::new() })
    }

    fn in_flight(&self) -> usize {
        self.leases.len()
    }

    fn submit(&mut self, lease: LeaseId, task: &GenerateTask, stop: &Arc<[u32]>) -> Result<()> {
        let sampler = ROLES.iter().position(|&r| r == task.role).unwrap_or(0);
        let id = RequestId(self.next);
        self.next += 1;
        self.samplers[sampler].submit(Request {
            id,
            prompt: task.prompt.as_slice().into(),
            seed: task.seed,
            max_new_tokens: task.max_new_tokens,
            choice: Choice { temperature: task.temperature, ..Choice::default() },
            stop: Arc::clone(stop),
        })?;
        self.leases.insert(id, (lease, task.policy));
        self.requests.insert(lease, (sampler, id));
        Ok(())
    }

    fn cancel(&mut self, lease: LeaseId) {
        if let Some((sampler, id)) = self.requests.remove(&lease) {
            self.samplers[sampler].cancel(id);
        }
    }

    fn step(&mut self, policies: &Policies<D>, mut finish: impl FnMut(LeaseId, Outcome)) -> Result<()> {
        for (sampler, role) in self.samplers.iter_mut().zip(ROLES) {
            if sampler.is_idle() {
                continue;
            }
            sampler.step(policies.model(role), &mut self.finished)?;
            for completion in self.finished.drain(..) {
                let Some((lease, version)) = self.leases.remove(&completion.id) else { continue };
                self.requests.remove(&lease);
                let outcome = if version == policies.version {
                    let result = result_of(completion);
                    Outcome::Done(serde_json::to_vec(&result).context("a result as JSON")?.into())
                } else {
                    Outcome::Failed(format!(
                        "asked for policy {version}, the worker has {}",
                        policies.version
                    ))
                };
                finish(lease, outcome);
            }
        }
        Ok(())
    }

    fn counters(&self) -> GenerateCounters {
        let mut sum = GenerateCounters::default();
        for (sampler, role) in self.samplers.iter().zip(ROLES) {
            let c = sampler.counters();
            sum.prefilled += c.prefilled_tokens;
            sum.decoded += c.decoded_tokens;
            sum.seconds[place(role)] = c.time.as_secs_f64();
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

fn result_of(completion: Completion) -> GenerateResult {
    let n = completion.entropies.len();
    let entropy = (n > 0).then(|| completion.entropies.iter().sum::<f32>() / n as f32);
    let (finish, refusal) = match completion.finish {
        Finish::Stop => (FinishReason::Stop, None),
        Finish::Length => (FinishReason::Length, None),
        Finish::Cancelled => (FinishReason::Cancelled, None),
        Finish::Refused(why) => (FinishReason::Refused, Some(why.to_string())),
    };
    GenerateResult { tokens: completion.tokens, log_probs: completion.logprobs, entropy, finish, refusal }
}
