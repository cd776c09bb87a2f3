//! Manages the external servers of a run. A thread per server leases tasks and sends them to it. Servers of trained
//! roles load the weights of each update before they get its tasks.
//!
//! A refreshed server only gets tasks of the policy version that it holds. It is known to hold a version when its
//! log-probs of recorded completions match the trainer's. While a server is being refreshed, the other servers
//! continue. After each outage its weights are checked again, because it may have been restarted.

use super::client::{RecordedCompletion, ServedRoles, WeightBinding};
use super::weight_folder::{LaidOut, ServersFolder};
use crate::config::RunConfig;
use crate::config::endpoint::ServerGroup;
use crate::error::{Context, Result, RunError, bail};
use crate::train::policies::{self, PolicySet};
use crate::train::update::largest_gap;
use sgs_fleet::{Coordinator, StopFlag, WorkKind, WorkerName};
use sgs_lm::Device;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_selfplay::Role;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of attempts to refresh a server before it is excluded from the round.
const TRIES: u32 = 3;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// Number of recorded completions. Several are needed, because different weights can give similar log-probs for one.
pub(crate) const RECORDED: usize = 8;
/// Maximum length of a recorded completion, in tokens.
const RECORDED_TOKENS: usize = 64;

/// The weights that the servers of a group must sample with.
#[derive(Clone, Debug)]
struct SyncTarget {
    /// Number of rounds whose updates the weights have seen.
    policy_version: u32,
    laid_out: LaidOut,
    /// The trainer's log-probs of the recorded completions with these weights, concatenated.
    expected: Vec<f32>,
    /// The same log-probs with older weights that the servers may still hold.
    others: Vec<Vec<f32>>,
}

/// A group of servers that are refreshed with the weights of a role.
struct SyncedGroup {
    sync: ServerSync,
    /// The trainer's log-probs of the recorded completions with the weights of the previous target.
    last: Option<Vec<f32>>,
}

/// The servers of a run. Dropping this stops the work of the refreshed servers.
pub(crate) struct Servers {
    following: Vec<SyncedGroup>,
    folder: Option<ServersFolder>,
}

/// The work of one server, to be run in a separate thread.
pub(crate) type ServerWork = Box<dyn FnOnce(Arc<dyn Coordinator>, StopFlag) -> Result<()> + Send>;

impl Servers {
    /// Connects to the servers of a run and checks that they are suitable. `probes` are some prompts of the run;
    /// `context` is the maximum sequence length of its model, in tokens. Also returns the name and the work of each
    /// server.
    pub(crate) fn connect(
        config: &RunConfig,
        tokenizer: impl Fn() -> Result<Tokenizer>,
        probes: &[Arc<[u32]>],
        context: usize,
    ) -> Result<(Self, Vec<(String, ServerWork)>)> {
        let e = &config.sampling.endpoint;
        let mut servers = Self { following: Vec::new(), folder: None };
        let mut works: Vec<(String, ServerWork)> = Vec::new();
        let Some(probe) = probes.first() else { return Ok((servers, works)) };
        for ServerGroup { kind, roles, urls } in e.groups() {
            let connect = |url: &String| {
                let served = ServedRoles::of_run(config, url, &roles, tokenizer()?, probe, context);
                served.context("the endpoint of `sampling.endpoint` cannot be used")
            };
            let connected: Vec<ServedRoles> = urls.iter().map(connect).collect::<Result<_>>()?;
            let trained = roles.iter().copied().find(|role| config.weights_of(*role).is_trained());
            let sync = trained.zip(connected.first()).map(|(role, first)| -> Result<ServerSync> {
                Ok(ServerSync {
                    number: 0,
                    role,
                    recorded: first.record(probes, RECORDED_TOKENS)?.into(),
                    bound: largest_gap(&config.model.device),
                    control: Arc::new(SyncControl::new(urls.len())),
                })
            });
            let sync = sync.transpose()?;
            servers.following.extend(sync.clone().map(|sync| SyncedGroup { sync, last: None }));
            for (number, server) in connected.into_iter().enumerate() {
                let suffix = if urls.len() == 1 { String::new() } else { format!("-{number}") };
                let name = format!("{kind}{suffix}-{}-{}", sgs_base::host::host_name(), std::process::id());
                let (worker, kind) = (WorkerName::new(&name)?, kind.clone());
                let work: ServerWork = match sync.clone().map(|sync| ServerSync { number, ..sync }) {
                    None => Box::new(move |fleet, drain| server.work(fleet, worker, kind, None, &drain)),
                    Some(sync) => Box::new(move |fleet, _| sync.work(&server, &fleet, &worker, &kind)),
                };
                works.push((name, work));
            }
        }
        if !servers.following.is_empty() {
            servers.folder = Some(ServersFolder::open(&e.folder, &e.folder_there)?);
        }
        Ok((servers, works))
    }

    /// Returns whether any server is refreshed with this run's weights.
    pub(crate) fn follow(&self) -> bool {
        self.folder.is_some()
    }

    /// Writes the weights of a policy version to the servers' folder and makes them the target of the servers. `at` is
    /// the checkpoint with the weights, or `None` for the base model.
    pub(crate) fn refresh<D: Device>(
        &mut self,
        config: &RunConfig,
        policy_version: u32,
        base: &Path,
        at: Option<&Path>,
        policies: &PolicySet<D>,
        trainer: &mut Trainer<D>,
    ) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let [solver, conjecturer, _] = policies::folders(config, base, at);
        for group in &mut self.following {
            let Some(set) = config.weights_of(group.sync.role).folder() else { continue };
            let model = if group.sync.role == Role::Conjecturer { &conjecturer } else { &solver };
            let laid_out = folder.lay_out(set, policy_version, model, base)?;
            let mut log_probs = |model| -> Result<Vec<f32>> {
                let recorded = group.sync.recorded.iter().map(|(tokens, from)| (tokens.as_slice(), *from));
                let stats = trainer.log_probs(model, recorded)?;
                Ok(stats.into_iter().flat_map(|stats| stats.log_probs).collect())
            };
            let Some(model) = policies.model(group.sync.role) else { continue };
            let expected = log_probs(model)?;
            let mut others: Vec<Vec<f32>> = group.last.replace(expected.clone()).into_iter().collect();
            others.extend(policies.base.as_deref().map(log_probs).transpose()?);
            group.sync.control.set(SyncTarget { policy_version, laid_out, expected, others });
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.following.iter().for_each(|group| group.sync.control.end());
    }
}

/// The current target of a group's servers. Waiting servers are notified when it changes.
struct SyncControl {
    state: Mutex<SyncState>,
    changed: Condvar,
}

struct SyncState {
    target: Option<Arc<SyncTarget>>,
    /// The drain flag of each working server. They are set when the target changes or the run ends.
    phases: Vec<StopFlag>,
    is_over: bool,
    /// Which servers are excluded until the target changes.
    left_out: Vec<bool>,
}

impl SyncControl {
    fn new(servers: usize) -> Self {
        let state =
            SyncState { target: None, phases: Vec::new(), is_over: false, left_out: vec![false; servers] };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, SyncState> {
        // No code can panic in the middle of a change while it holds the lock, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, target: SyncTarget) {
        let mut state = self.lock();
        state.target = Some(Arc::new(target));
        state.left_out.iter_mut().for_each(|left_out| *left_out = false);
        state.phases.drain(..).for_each(|phase| phase.set());
        self.changed.notify_all();
    }

    fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.phases.drain(..).for_each(|phase| phase.set());
        self.changed.notify_all();
    }

    /// Waits until a server has a target. Returns the target and a drain flag that is set when the target changes, or
    /// `None` when the run is over.
    fn next(&self, server: usize) -> Option<(Arc<SyncTarget>, StopFlag)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(target) = state.target.clone().filter(|_| !state.left_out[server]) {
                let phase = StopFlag::default();
                state.phases.retain(|phase| !phase.is_set());
                state.phases.push(phase.clone());
                return Some((target, phase));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Excludes a server until the target changes, unless `target` is outdated. Returns `false` if no server is left.
    fn leave_out(&self, server: usize, target: &Arc<SyncTarget>) -> bool {
        let mut state = self.lock();
        if state.target.as_ref().is_some_and(|control| Arc::ptr_eq(control, target)) {
            state.left_out[server] = true;
        }
        state.left_out.contains(&false)
    }
}

/// Keeps the weights of one refreshed server up to date while it works on tasks.
#[derive(Clone)]
struct ServerSync {
    /// The index of the server in its group.
    number: usize,
    role: Role,
    recorded: Arc<[RecordedCompletion]>,
    /// Largest mean difference of log-probs that rounding can explain, in nats per token.
    bound: f64,
    control: Arc<SyncControl>,
}

impl ServerSync {
    fn work(
        &self,
        server: &ServedRoles,
        fleet: &Arc<dyn Coordinator>,
        worker: &WorkerName,
        kind: &WorkKind,
    ) -> Result<()> {
        let mut held: Option<Arc<SyncTarget>> = None;
        let mut tries = 0;
        while let Some((target, phase)) = self.control.next(self.number) {
            let is_over = || phase.is_set();
            let is_held = held.as_ref().is_some_and(|held| Arc::ptr_eq(held, &target));
            match self.bring(server, &target, is_held, &is_over) {
                Ok(outages) => {
                    (held, tries) = (Some(Arc::clone(&target)), 0);
                    let bound = WeightBinding {
                        policy_version: target.policy_version,
                        name: &target.laid_out.name,
                        outages,
                    };
                    let (fleet, worker, kind) = (Arc::clone(fleet), worker.clone(), kind.clone());
                    let done = server.work(fleet, worker, kind, Some(&bound), &phase);
                    if let Err(error) = done {
                        self.fail(error, &target)?;
                    }
                }
                Err(_) if is_over() => {}
                Err(error) => {
                    (held, tries) = (None, tries + 1);
                    let is_final = error.final_endpoint_error().is_some();
                    if tries >= TRIES || is_final {
                        tries = 0;
                        self.fail(error, &target)?;
                    } else {
                        tracing::warn!("{error:#}; retrying");
                        wait(PAUSE, &is_over);
                    }
                }
            }
        }
        Ok(())
    }

    /// Excludes the server from the round.
    ///
    /// # Errors
    /// Returns `error` if no other server is left.
    fn fail(&self, error: RunError, target: &Arc<SyncTarget>) -> Result<()> {
        if !self.control.leave_out(self.number, target) {
            return Err(error);
        }
        tracing::warn!("{error:#}; this server is excluded until the next round");
        Ok(())
    }

    /// Makes sure that the server holds the target weights, and refreshes it if needed. `is_held` says whether it held
    /// them before. Returns the server's number of outages at the check.
    fn bring(
        &self,
        server: &ServedRoles,
        target: &SyncTarget,
        is_held: bool,
        is_over: &impl Fn() -> bool,
    ) -> Result<u64> {
        let SyncTarget { policy_version, laid_out: LaidOut { name, there }, .. } = target;
        let (url, role) = (server.endpoint.url(), self.role.as_str());
        let about =
            || format!("the server {url} for the {role} in round {policy_version} with the weights {name}");
        if is_held && let Ok(outages) = self.check_weights(server, target, is_over) {
            return Ok(outages);
        }
        server.endpoint.refresh(there, name, is_over).with_context(about)?;
        self.check_weights(server, target, is_over).with_context(about)
    }

    fn check_weights(
        &self,
        server: &ServedRoles,
        target: &SyncTarget,
        is_over: &impl Fn() -> bool,
    ) -> Result<u64> {
        // Read the counter before the check, so that an outage during the check is detected later.
        let outages = server.endpoint.outages();
        let mut told = Vec::with_capacity(target.expected.len());
        for (tokens, from) in self.recorded.iter() {
            let (log_probs, weights) = server.endpoint.score(tokens, *from, is_over)?;
            if let Some(weights) = weights.filter(|weights| *weights != target.laid_out.name) {
                bail!("it reports that its weights are {weights:?}");
            }
            told.extend(log_probs);
        }
        let gap = check(&told, &target.expected, &target.others, self.bound)?;
        tracing::info!(
            "{} serves {}: log-probs differ by {gap:.2e} nats per token",
            server.endpoint.url(),
            target.laid_out.name
        );
        Ok(outages)
    }
}

/// Returns the mean absolute difference between two lists of log-probs, in nats, or NaN if their lengths differ.
fn gap(a: &[f32], b: &[f32]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).sum();
    if a.len() == b.len() { sum / a.len() as f64 } else { f64::NAN }
}

/// Checks that a server's log-probs are those of the target weights: within rounding of them, and not closer to those
/// of older weights. Returns the mean difference, in nats per token.
fn check(told: &[f32], expected: &[f32], others: &[Vec<f32>], bound: f64) -> Result<f64> {
    let own = gap(told, expected);
    if own > bound || own.is_nan() {
        bail!(
            "its log-probs of recorded completions differ from the trainer's by {own:.3} nats per token on average; \
             rounding accounts for at most {bound}. It samples with another model or an older checkpoint"
        );
    }
    // If the update hardly changed the weights, rounding makes the old and new log-probs equally close.
    if let Some(other) = others.iter().map(|other| gap(told, other)).find(|other| 2.0 * other < own) {
        bail!(
            "its log-probs of recorded completions are those of older weights: they differ by {own:.2e} nats per token \
             from the current weights, and by {other:.2e} from older ones. It has not loaded the new weights"
        );
    }
    Ok(own)
}

fn wait(span: Duration, is_over: &impl Fn() -> bool) {
    let end = std::time::Instant::now() + span;
    while std::time::Instant::now() < end && !is_over() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_excluded_server_waits_for_new_weights_and_the_last_one_is_reported() {
        let control = SyncControl::new(2);
        let set = |policy_version| {
            let laid_out = LaidOut { name: format!("solver-{policy_version}"), there: String::new() };
            control.set(SyncTarget { policy_version, laid_out, expected: Vec::new(), others: Vec::new() });
        };
        set(1);
        let (first, phase) = control.next(0).unwrap();
        assert!(control.leave_out(0, &first), "the other continues");
        assert!(!phase.is_set());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| control.next(0).map(|(target, _)| target.policy_version));
            assert_eq!(control.next(1).unwrap().0.policy_version, 1);
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waits.is_finished(), "it is excluded");
            set(2);
            assert_eq!(waits.join().unwrap(), Some(2));
        });
        assert!(phase.is_set());
        // A failure with outdated weights excludes no server.
        assert!(control.leave_out(0, &first) && control.leave_out(1, &first));
        let (second, _) = control.next(0).unwrap();
        assert!(control.leave_out(0, &second));
        assert!(!control.leave_out(1, &second), "no other is left");
        control.end();
        assert!(control.next(0).is_none());
    }

    #[test]
    fn a_server_with_other_weights_is_detected_by_its_log_probs() {
        let new = vec![-1.0, -0.5, -2.0];
        let old = vec![-1.01, -0.52, -2.01];
        let others = std::slice::from_ref(&old);
        assert!(check(&new, &new, others, 0.05).unwrap() == 0.0);
        let rounded: Vec<f32> = new.iter().map(|p| p + 0.004).collect();
        assert!(check(&rounded, &new, others, 0.05).is_ok());
        let stale = check(&old, &new, others, 0.05).unwrap_err().to_string();
        assert!(stale.contains("those of older weights"), "{stale}");
        let stale: Vec<f32> = old.iter().map(|p| p - 0.003).collect();
        assert!(check(&stale, &new, others, 0.05).is_err(), "rounding does not hide it");
        // An update that did not change the weights.
        assert!(check(&rounded, &new, std::slice::from_ref(&new), 0.05).is_ok());
        let other = check(&[-3.0, -0.5, -2.0], &new, &[], 0.05).unwrap_err().to_string();
        assert!(other.contains("0.667 nats"), "{other}");
        for odd in [&[-1.0][..], &[], &[f32::NAN, -0.5, -2.0]] {
            assert!(check(odd, &new, &[], 0.05).is_err(), "{odd:?}");
        }
    }
}
