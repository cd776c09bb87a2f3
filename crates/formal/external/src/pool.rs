//! The processes of an external system. Failed ones are replaced until too many requests have failed.

use crate::child::{Child, Fault};
use crate::description::Description;
use crate::settings::ExternalSettings;
use serde_json::{Value, json};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A pool of processes that are started as they are needed.
pub(crate) struct Pool {
    settings: ExternalSettings,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Child>,
    /// Number of processes that work on a request.
    busy: usize,
    /// Number of requests that failed.
    failures: u32,
    /// Number of requests that failed since the last answer.
    in_succession: u32,
    /// The last failure.
    last: String,
    /// Whether too many requests have failed.
    is_given_up: bool,
}

impl State {
    fn given_up(&self) -> Option<Fault> {
        self.is_given_up.then(|| Fault::GivenUp { failures: self.failures, last: self.last.clone() })
    }
}

/// Number of failed requests in succession after which the system is given up.
const MOST_IN_SUCCESSION: u32 = 10;

impl Pool {
    /// Starts the first process, and returns the system's description of itself.
    pub(crate) fn start(settings: ExternalSettings) -> Result<(Self, Description), Fault> {
        let mut first = Child::start(&settings)?;
        let described = first.ask(&settings, "describe", json!({}))?;
        let invalid = |error| Fault::Invalid { op: "describe", error };
        let description: Description =
            serde_json::from_value(described).map_err(|error| invalid(error.to_string()))?;
        description.check().map_err(invalid)?;
        let state = Mutex::new(State { idle: vec![first], ..State::default() });
        Ok((Self { settings, state, freed: Condvar::new() }, description))
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
        let child = self.take()?;
        let (child, answer) = self.exchange(child, op, request);
        let answer = answer.and_then(|result| decode(result).map_err(|error| Fault::Invalid { op, error }));
        let child = child.filter(|_| !answer.as_ref().is_err_and(Fault::is_fatal));
        self.give_back(child, answer.as_ref().err());
        answer
    }

    fn exchange(
        &self,
        child: Option<Child>,
        op: &'static str,
        request: &Value,
    ) -> (Option<Child>, Result<Value, Fault>) {
        let mut child = match child.map_or_else(|| Child::start(&self.settings), Ok) {
            Ok(child) => child,
            Err(fault) => return (None, Err(fault)),
        };
        let answer = child.ask(&self.settings, op, request.clone());
        (Some(child), answer)
    }

    /// Reserves a process; `None` means that the caller starts it.
    fn take(&self) -> Result<Option<Child>, Fault> {
        let mut state = self.state();
        loop {
            if let Some(fault) = state.given_up() {
                return Err(fault);
            }
            if state.busy < self.settings.processes {
                state.busy += 1;
                return Ok(state.idle.pop());
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends a reservation. The process was dropped if the fault is fatal.
    fn give_back(&self, child: Option<Child>, fault: Option<&Fault>) {
        let mut state = self.state();
        state.busy -= 1;
        state.idle.extend(child);
        match fault {
            Some(fault) => {
                state.failures += 1;
                state.in_succession += 1;
                state.last = fault.to_string();
            }
            None => state.in_succession = 0,
        }
        state.is_given_up |=
            state.failures > self.settings.failures || state.in_succession >= MOST_IN_SUCCESSION;
        drop(state);
        self.freed.notify_all();
    }

    /// Returns the fault of every request from now on, if too many have failed.
    pub(crate) fn broken(&self) -> Option<Fault> {
        self.state().given_up()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
