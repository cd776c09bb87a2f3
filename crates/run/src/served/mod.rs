//! Servers that play roles of a run: each has a thread of this process that takes tasks for it, and servers of roles that
//! are trained are given each update's weights before they are asked for anything.
//!
//! A server takes only tasks of the policy version that it holds, and it holds one once its log-probs of recorded
//! completions are the trainer's. One that is being refreshed takes none; the others go on. Whenever it has not answered,
//! it is looked at again: it may have been started anew.

pub mod folder;

use crate::config::RunConfig;
use crate::endpoint::{Bound, Group, Recorded, ServedRoles};
use crate::policies::{self, Policies};
use crate::update::largest_gap;
use anyhow::{Context, Error, Result, bail};
use folder::{LaidOut, ServersFolder};
use sgs_endpoint::EndpointError;
use sgs_fleet::{Coordinator, Drain, TaskKind, WorkerName};
use sgs_lm::Device;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::trainer::Trainer;
use sgs_selfplay::Role;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a server is given the weights before it is left out of the round.
const TRIES: u32 = 3;
/// Between two of these tries.
const PAUSE: Duration = Duration::from_secs(2);

/// So many completions are recorded: of one alone other weights may say nearly the same.
pub const RECORDED: usize = 8;
/// Longest of them, tokens.
const RECORDED_TOKENS: usize = 64;

/// What the servers of a group are to sample with.
#[derive(Clone, Debug)]
struct Target {
    /// Number of rounds whose updates the weights have seen.
    policy_version: u32,
    laid_out: LaidOut,
    /// The trainer's log-probs of the recorded completions with these weights, one after the other.
    expected: Vec<f32>,
    /// The same with weights that they may have had before.
    others: Vec<Vec<f32>>,
}

/// Servers whose weights follow those of a role.
struct Following {
    role: Role,
    recorded: Arc<[Recorded]>,
    /// The trainer's log-probs of these with the weights that were wanted last.
    last: Option<Vec<f32>>,
    wanted: Arc<Wanted>,
}

/// The servers of a run. Those of roles that are trained end their work when this is dropped.
pub struct Servers {
    following: Vec<Following>,
    folder: Option<ServersFolder>,
}

/// A server's work, for a thread of its own.
pub type Work = Box<dyn FnOnce(Arc<dyn Coordinator>, Drain) -> Result<()> + Send>;

impl Servers {
    /// Finds out whether the servers fit that a run is configured with; `probes` are some prompts of the run, `context` is
    /// the longest sequence of its model in tokens. Gives what each has to do, with a name.
    ///
    /// # Errors
    /// One of them does not fit, or their folder cannot be made.
    pub fn connect(
        config: &RunConfig,
        tokenizer: impl Fn() -> Result<Tokenizer>,
        probes: &[Arc<[u32]>],
        context: usize,
    ) -> Result<(Self, Vec<(String, Work)>)> {
        let e = &config.sampling.endpoint;
        let mut servers = Self { following: Vec::new(), folder: None };
        let mut works: Vec<(String, Work)> = Vec::new();
        let Some(probe) = probes.first() else { return Ok((servers, works)) };
        for Group { kind, roles, urls } in e.groups() {
            let connect = |url: &String| {
                let served = ServedRoles::of_run(config, url, &roles, tokenizer()?, probe, context);
                served.context("the endpoint of `sampling.endpoint`")
            };
            let connected: Vec<ServedRoles> = urls.iter().map(connect).collect::<Result<_>>()?;
            let trained = roles.iter().copied().find(|role| config.weights_of(*role).is_trained());
            let desk = trained.zip(connected.first()).map(|(role, first)| -> Result<Desk> {
                Ok(Desk {
                    number: 0,
                    role,
                    recorded: first.record(probes, RECORDED_TOKENS)?.into(),
                    bound: largest_gap(&config.model.device),
                    wanted: Arc::new(Wanted::new(urls.len())),
                })
            });
            let desk = desk.transpose()?;
            servers.following.extend(desk.as_ref().map(Desk::following));
            for (number, server) in connected.into_iter().enumerate() {
                let suffix = if urls.len() == 1 { String::new() } else { format!("-{number}") };
                let name = format!("{kind}{suffix}-{}-{}", crate::machine::host_name(), std::process::id());
                let (worker, kind) = (WorkerName::new(&name)?, kind.clone());
                let work: Work = match desk.clone().map(|desk| Desk { number, ..desk }) {
                    None => Box::new(move |fleet, drain| server.work(fleet, worker, kind, None, &drain)),
                    Some(desk) => Box::new(move |fleet, _| desk.work(&server, &fleet, &worker, &kind)),
                };
                works.push((name, work));
            }
        }
        if !servers.following.is_empty() {
            servers.folder = Some(ServersFolder::open(&e.folder, &e.folder_there)?);
        }
        Ok((servers, works))
    }

    /// Whether weights go from this run to servers.
    pub fn follow(&self) -> bool {
        self.folder.is_some()
    }

    /// Lays out the weights that have seen so many rounds and has the servers take them; `at` is the checkpoint that they
    /// stand in, if it is not the base model.
    ///
    /// # Errors
    /// They cannot be laid out, or the device fails.
    pub fn refresh<D: Device>(
        &mut self,
        config: &RunConfig,
        policy_version: u32,
        base: &Path,
        at: Option<&Path>,
        policies: &Policies<D>,
        trainer: &mut Trainer<D>,
    ) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let [solver, conjecturer, _] = policies::folders(config, base, at);
        for group in &mut self.following {
            let Some(set) = config.weights_of(group.role).folder() else { continue };
            let model = if group.role == Role::Conjecturer { &conjecturer } else { &solver };
            let laid_out = folder.lay_out(set, policy_version, model, base)?;
            let mut log_probs = |model| -> Result<Vec<f32>> {
                let recorded = group.recorded.iter().map(|(tokens, from)| (tokens.as_slice(), *from));
                let stats = trainer.log_probs(model, recorded)?;
                Ok(stats.into_iter().flat_map(|stats| stats.log_probs).collect())
            };
            let expected = log_probs(policies.model(group.role))?;
            let mut others: Vec<Vec<f32>> = group.last.replace(expected.clone()).into_iter().collect();
            others.push(log_probs(&policies.base)?);
            group.wanted.set(Target { policy_version, laid_out, expected, others });
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.following.iter().for_each(|group| group.wanted.end());
    }
}

/// What a group's servers are to do; they are told when it changes.
struct Wanted {
    state: Mutex<State>,
    bell: Condvar,
}

struct State {
    target: Option<Arc<Target>>,
    /// Begun when the target changes or the run is over: the work of each server.
    phases: Vec<Drain>,
    is_over: bool,
    /// Which servers take no part until the target changes.
    left_out: Vec<bool>,
}

impl Wanted {
    fn new(servers: usize) -> Self {
        let state =
            State { target: None, phases: Vec::new(), is_over: false, left_out: vec![false; servers] };
        Self { state: Mutex::new(state), bell: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under it can panic halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, target: Target) {
        let mut state = self.lock();
        state.target = Some(Arc::new(target));
        state.left_out.iter_mut().for_each(|left_out| *left_out = false);
        state.phases.drain(..).for_each(|phase| phase.begin());
        self.bell.notify_all();
    }

    /// The run is over.
    fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.phases.drain(..).for_each(|phase| phase.begin());
        self.bell.notify_all();
    }

    /// Waits until a server has something to do; gives what, and a drain that begins when that changes. `None` when the
    /// run is over.
    fn next(&self, server: usize) -> Option<(Arc<Target>, Drain)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(target) = state.target.clone().filter(|_| !state.left_out[server]) {
                let phase = Drain::default();
                state.phases.retain(|phase| !phase.has_begun());
                state.phases.push(phase.clone());
                return Some((target, phase));
            }
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Leaves a server out of this version, if the version is still wanted; `false` if no other is left.
    fn leave_out(&self, server: usize, target: &Arc<Target>) -> bool {
        let mut state = self.lock();
        if state.target.as_ref().is_some_and(|wanted| Arc::ptr_eq(wanted, target)) {
            state.left_out[server] = true;
        }
        state.left_out.contains(&false)
    }
}

/// The thread of one server of a role that is trained.
#[derive(Clone)]
struct Desk {
    /// Its place in its group.
    number: usize,
    role: Role,
    recorded: Arc<[Recorded]>,
    /// Largest gap that is rounding, nats a token in the mean.
    bound: f64,
    wanted: Arc<Wanted>,
}

impl Desk {
    fn following(&self) -> Following {
        let Self { role, recorded, wanted, .. } = self.clone();
        Following { role, recorded, last: None, wanted }
    }

    fn work(
        &self,
        server: &ServedRoles,
        fleet: &Arc<dyn Coordinator>,
        worker: &WorkerName,
        kind: &TaskKind,
    ) -> Result<()> {
        let mut held: Option<Arc<Target>> = None;
        let mut tries = 0;
        while let Some((target, phase)) = self.wanted.next(self.number) {
            let is_over = || phase.has_begun();
            let is_held = held.as_ref().is_some_and(|held| Arc::ptr_eq(held, &target));
            match self.bring(server, &target, is_held, &is_over) {
                Ok(breaks) => {
                    (held, tries) = (Some(Arc::clone(&target)), 0);
                    let bound =
                        Bound { policy_version: target.policy_version, name: &target.laid_out.name, breaks };
                    let (fleet, worker, kind) = (Arc::clone(fleet), worker.clone(), kind.clone());
                    let done = server.work(fleet, worker, kind, Some(&bound), &phase);
                    if let Err(error) = done {
                        self.fail(error, &target)?;
                    }
                }
                Err(_) if is_over() => {}
                Err(error) => {
                    (held, tries) = (None, tries + 1);
                    let is_final = error.downcast_ref::<EndpointError>().is_some_and(EndpointError::is_final);
                    if tries >= TRIES || is_final {
                        tries = 0;
                        self.fail(error, &target)?;
                    } else {
                        tracing::warn!("{error:#}; trying again");
                        wait(PAUSE, &is_over);
                    }
                }
            }
        }
        Ok(())
    }

    /// Leaves the server out of the round, and ends the run if it was the last.
    fn fail(&self, error: Error, target: &Arc<Target>) -> Result<()> {
        if !self.wanted.leave_out(self.number, target) {
            return Err(error);
        }
        tracing::warn!("{error:#}; the others go on without it until the next round");
        Ok(())
    }

    /// Has the server hold the wanted weights, if it does not (`is_held`: it did); gives how often it had not answered
    /// when it was seen that it does.
    fn bring(
        &self,
        server: &ServedRoles,
        target: &Target,
        is_held: bool,
        is_over: &impl Fn() -> bool,
    ) -> Result<u64> {
        let Target { policy_version, laid_out: LaidOut { name, there }, .. } = target;
        let (url, role) = (server.endpoint.url(), self.role.as_str());
        let about = || {
            format!(
                "the server {url}, which is to play the {role} in round {policy_version} with the weights {name}"
            )
        };
        if is_held && let Ok(breaks) = self.check_weights(server, target, is_over) {
            return Ok(breaks);
        }
        server.endpoint.refresh(there, name, is_over).with_context(about)?;
        self.check_weights(server, target, is_over).with_context(about)
    }

    fn check_weights(
        &self,
        server: &ServedRoles,
        target: &Target,
        is_over: &impl Fn() -> bool,
    ) -> Result<u64> {
        // Counted before: whatever happens from here on is noticed.
        let breaks = server.endpoint.breaks();
        let mut told = Vec::with_capacity(target.expected.len());
        for (tokens, from) in self.recorded.iter() {
            let (log_probs, weights) = server.endpoint.score(tokens, *from, is_over)?;
            if let Some(weights) = weights.filter(|weights| *weights != target.laid_out.name) {
                bail!("it says that its weights are {weights:?}");
            }
            told.extend(log_probs);
        }
        let gap = check(&told, &target.expected, &target.others, self.bound)?;
        tracing::info!(
            "{} holds {}: gap {gap:.2e} nats a token",
            server.endpoint.url(),
            target.laid_out.name
        );
        Ok(breaks)
    }
}

/// Mean gap between two lists of log-probs, nats.
fn gap(a: &[f32], b: &[f32]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).sum();
    if a.len() == b.len() { sum / a.len() as f64 } else { f64::NAN }
}

/// Whether log-probs that a server tells are those of the wanted weights: within rounding of them, and not nearer to
/// those of others. Gives the gap.
fn check(told: &[f32], expected: &[f32], others: &[Vec<f32>], bound: f64) -> Result<f64> {
    let own = gap(told, expected);
    if own > bound || own.is_nan() {
        bail!(
            "its log-probs of recorded completions differ from the trainer's by {own:.3} nats a token in the mean; \
             rounding accounts for at most {bound}. It samples with another model or an older checkpoint"
        );
    }
    // Rounding alone is as near to the one as to the other.
    if let Some(other) = others.iter().map(|other| gap(told, other)).find(|other| 2.0 * other < own) {
        bail!(
            "its log-probs of recorded completions are those of older weights: they differ by {own:.2e} nats a token from \
             the trainer's now, and by {other:.2e} from those before. It has not taken the new ones"
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
    fn a_server_takes_no_part_until_the_weights_change_and_the_last_one_is_told() {
        let wanted = Wanted::new(2);
        let set = |policy_version| {
            let laid_out = LaidOut { name: format!("solver-{policy_version}"), there: String::new() };
            wanted.set(Target { policy_version, laid_out, expected: Vec::new(), others: Vec::new() });
        };
        set(1);
        let (first, phase) = wanted.next(0).unwrap();
        assert!(wanted.leave_out(0, &first), "the other goes on");
        assert!(!phase.has_begun());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wanted.next(0).map(|(target, _)| target.policy_version));
            assert_eq!(wanted.next(1).unwrap().0.policy_version, 1);
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waits.is_finished(), "it is left out");
            set(2);
            assert_eq!(waits.join().unwrap(), Some(2));
        });
        assert!(phase.has_begun());
        // What failed with weights that nobody wants any more leaves nobody out.
        assert!(wanted.leave_out(0, &first) && wanted.leave_out(1, &first));
        let (second, _) = wanted.next(0).unwrap();
        assert!(wanted.leave_out(0, &second));
        assert!(!wanted.leave_out(1, &second), "no other is left");
        wanted.end();
        assert!(wanted.next(0).is_none());
    }

    #[test]
    fn a_server_with_other_weights_is_known_by_its_log_probs() {
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
        // Weights that an update has left as they were.
        assert!(check(&rounded, &new, std::slice::from_ref(&new), 0.05).is_ok());
        let other = check(&[-3.0, -0.5, -2.0], &new, &[], 0.05).unwrap_err().to_string();
        assert!(other.contains("0.667 nats"), "{other}");
        for odd in [&[-1.0][..], &[], &[f32::NAN, -0.5, -2.0]] {
            assert!(check(odd, &new, &[], 0.05).is_err(), "{odd:?}");
        }
    }
}
