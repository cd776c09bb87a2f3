//! The processes of an external system. Failed ones are replaced until too many requests have failed.

use crate::child::{Child, Fault};
use crate::description::Description;
use crate::settings::ExternalSettings;
use serde_json::{Value, json};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Starts all processes of a pool, in one thread that lives as long as the pool. A sandboxed process is killed when the
/// thread that started it ends, so the threads of the callers, which may be short-lived, must not start processes.
struct Starter {
    requests: Sender<SyncSender<Result<Child, Fault>>>,
}

impl Starter {
    fn new(settings: ExternalSettings) -> Self {
        let (requests, received) = mpsc::channel::<SyncSender<_>>();
        std::thread::spawn(move || {
            for reply in received {
                // The caller waits for the reply, unless it has panicked.
                let _ = reply.send(Child::start(&settings));
            }
        });
        Self { requests }
    }

    #[allow(clippy::expect_used, reason = "the thread ends only when `self` is dropped")]
    fn start(&self) -> Result<Child, Fault> {
        let (reply, started) = mpsc::sync_channel(1);
        self.requests.send(reply).expect("invariant: the thread is alive");
        started.recv().expect("invariant: the thread is alive")
    }
}

/// A pool of processes that are started as they are needed.
pub(crate) struct Pool {
    settings: ExternalSettings,
    starter: Starter,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Child>,
    /// Number of processes that work on a request.
    busy: usize,
    failures: u32,
    /// Number of requests that failed since the last answer.
    in_succession: u32,
    last: String,
    is_given_up: bool,
}

impl State {
    fn given_up(&self) -> Option<Fault> {
        self.is_given_up.then(|| {
            let limit = match self.in_succession >= MOST_IN_SUCCESSION {
                true => format!("{} failed requests in succession", self.in_succession),
                false => format!("{} failed requests (external.failures)", self.failures),
            };
            Fault::GivenUp { limit, last: self.last.clone() }
        })
    }
}

/// Number of failed requests in succession after which the system is given up.
const MOST_IN_SUCCESSION: u32 = 10;

impl Pool {
    /// Starts the first process, and returns the system's description of itself.
    pub(crate) fn start(settings: ExternalSettings) -> Result<(Self, Description), Fault> {
        let starter = Starter::new(settings.clone());
        let mut first = starter.start()?;
        let described = first.ask(&settings, "describe", json!({}))?;
        let invalid = |error| Fault::Invalid { op: "describe", error };
        let description: Description =
            serde_json::from_value(described).map_err(|error| invalid(error.to_string()))?;
        description.check().map_err(invalid)?;
        let state = Mutex::new(State { idle: vec![first], ..State::default() });
        Ok((Self { settings, starter, state, freed: Condvar::new() }, description))
    }

    pub(crate) fn settings(&self) -> &ExternalSettings {
        &self.settings
    }

    /// Sends a request to a free process and decodes the result. Waits if none is free.
    pub(crate) fn ask<T>(
        &self,
        op: &'static str,
        request: &Value,
        decode: impl Fn(Value) -> Result<T, String>,
    ) -> Result<T, Fault> {
        let mut reserved = self.take()?;
        let answer = reserved.exchange(op, request);
        let answer = answer.and_then(|result| decode(result).map_err(|error| Fault::Invalid { op, error }));
        reserved.end(op, answer.as_ref().err());
        answer
    }

    /// Reserves a process.
    fn take(&self) -> Result<Reserved<'_>, Fault> {
        let mut state = self.state();
        loop {
            if let Some(fault) = state.given_up() {
                return Err(fault);
            }
            if state.busy < self.settings.processes {
                state.busy += 1;
                return Ok(Reserved { pool: self, child: state.idle.pop() });
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the fault of every request from now on, if too many have failed.
    pub(crate) fn broken(&self) -> Option<Fault> {
        self.state().given_up()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reservation of a process for one request. Dropping it ends the reservation, also if the request panics. A process
/// that is still in it then is killed, because its state is unknown.
struct Reserved<'p> {
    pool: &'p Pool,
    /// The process; `None` if it has yet to be started.
    child: Option<Child>,
}

impl Reserved<'_> {
    /// Sends a request to the process and returns the result.
    fn exchange(&mut self, op: &'static str, request: &Value) -> Result<Value, Fault> {
        let settings = &self.pool.settings;
        let child = match &mut self.child {
            Some(child) => child,
            none => none.insert(self.pool.starter.start()?),
        };
        child.ask(settings, op, request.clone())
    }

    /// Counts the result of the request. Keeps the process for the next one, unless the fault is fatal.
    fn end(mut self, op: &str, fault: Option<&Fault>) {
        let keeps = !fault.is_some_and(Fault::is_fatal);
        let mut state = self.pool.state();
        match fault {
            Some(fault) => {
                state.failures += 1;
                state.in_succession += 1;
                state.last = format!("`{op}`: {fault}");
            }
            None => state.in_succession = 0,
        }
        state.is_given_up |=
            state.failures > self.pool.settings.failures || state.in_succession >= MOST_IN_SUCCESSION;
        if keeps {
            state.idle.extend(self.child.take());
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        // The process ends before another one takes its place.
        self.child = None;
        self.pool.state().busy -= 1;
        self.pool.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    /// A system that describes itself in reply to every request.
    const ECHO: &str = r#"n=0; while read line; do n=$((n+1)); echo '{"id": '$n', "result": {"name": "echo",
        "version": "1", "prompts": {"solver": "", "conjecturer": "", "conjecturer_solved": "",
        "conjecturer_unconditioned": "", "guide": ""}}}' | tr '\n' ' '; echo; done"#;

    #[test]
    fn a_panic_during_a_request_frees_its_process() {
        let command = ["sh", "-c", ECHO].map(str::to_owned).to_vec();
        let (pool, _) =
            Pool::start(ExternalSettings { command, processes: 1, ..ExternalSettings::default() }).unwrap();
        let pool = Arc::new(pool);
        let panics = || pool.ask("describe", &json!({}), |_| -> Result<(), String> { panic!("as intended") });
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        let (answered, answer) = mpsc::channel();
        // A caller that waits forever must not keep the test from failing.
        std::thread::spawn({
            let pool = Arc::clone(&pool);
            move || answered.send(pool.ask("describe", &json!({}), |_| Ok(())))
        });
        answer.recv_timeout(Duration::from_secs(60)).expect("the only process is free").unwrap();
    }
}
