//! What a machine has for several runs at once: a GPU or some cores for each.

use super::plan::Member;
use crate::exit::Usage;
use anyhow::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sgs_run::device;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Cores that a run on the processor gets, if nobody says how many runs there are to be.
const CORES: usize = 2;

/// The places for runs that are free.
pub struct Places {
    free: Vec<Place>,
    all: usize,
    what: String,
}

/// Where one run works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The value of `CUDA_VISIBLE_DEVICES`.
    gpu: Option<String>,
    cores: Vec<usize>,
}

impl Places {
    /// So many places, or as many as fit: one for each GPU, else one for every two cores.
    ///
    /// # Errors
    /// A number of zero.
    pub fn of_machine(wanted: Option<usize>, members: &[Member]) -> Result<Self> {
        if wanted == Some(0) {
            return Err(Usage("jobs is 0: give at least 1".to_owned()).into());
        }
        let on_gpu = members.iter().any(|member| member.config.model.device != "cpu");
        let gpus = if on_gpu { device::visible_gpus() } else { Vec::new() };
        Ok(Self::share(wanted, gpus, cores()))
    }

    /// Shares GPUs and cores out.
    fn share(wanted: Option<usize>, gpus: Vec<String>, cores: Vec<usize>) -> Self {
        let fit = if gpus.is_empty() { cores.len() / CORES } else { gpus.len() };
        let all = wanted.unwrap_or(fit).max(1);
        let place = |i: usize| Place {
            gpu: (!gpus.is_empty()).then(|| gpus[i % gpus.len()].clone()),
            // More runs than cores share them all.
            cores: match cores.len() >= all {
                true => cores.iter().copied().skip(i).step_by(all).collect(),
                false => cores.clone(),
            },
        };
        let what = match gpus.len() {
            0 => format!("{} cores", cores.len()),
            n => format!("{n} GPUs and {} cores", cores.len()),
        };
        // The last is taken first.
        Self { free: (0..all).rev().map(place).collect(), all, what }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all
    }

    /// What they are made of.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// One that is free.
    pub fn free(&mut self) -> Option<Place> {
        self.free.pop()
    }

    /// A run there has ended.
    pub fn give_back(&mut self, place: Place) {
        self.free.push(place);
    }
}

/// The cores that this process may use.
fn cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => (0..device::threads()).collect(),
    }
}

impl Place {
    /// Starts a process there, in a group of its own: a key pressed at the terminal is for the sweep.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        if let Some(gpu) = &self.gpu {
            command.env("CUDA_VISIBLE_DEVICES", gpu);
        }
        command.process_group(0);
        // A process has the cores of the thread that starts it. Where the system refuses, it has them all.
        let before = sched_getaffinity(None);
        let mut own = CpuSet::new();
        self.cores.iter().for_each(|core| own.set(*core));
        let _ = sched_setaffinity(None, &own);
        let child = command.spawn();
        if let Ok(before) = before {
            let _ = sched_setaffinity(None, &before);
        }
        child
    }

    /// For people.
    pub fn what(&self) -> String {
        match &self.gpu {
            Some(gpu) => format!("GPU {gpu}"),
            None => format!("{} cores", self.cores.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_shared_out() {
        let places = |wanted, gpus: &[&str], cores: usize| {
            let gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
            let mut places = Places::share(wanted, gpus, (0..cores).collect());
            std::iter::from_fn(|| places.free()).map(|p| (p.gpu, p.cores)).collect::<Vec<_>>()
        };
        let gpu = |name: &str| Some(name.to_owned());
        assert_eq!(places(None, &[], 1), [(None, vec![0])]);
        assert_eq!(places(None, &[], 4), [(None, vec![0, 2]), (None, vec![1, 3])]);
        assert_eq!(places(Some(2), &[], 3), [(None, vec![0, 2]), (None, vec![1])]);
        assert_eq!(places(Some(2), &[], 1), [(None, vec![0]), (None, vec![0])]);
        assert_eq!(places(None, &["3", "5"], 2), [(gpu("3"), vec![0]), (gpu("5"), vec![1])]);
        let shared = places(Some(3), &["3"], 3);
        assert!(shared.iter().all(|(g, cores)| *g == gpu("3") && cores.len() == 1), "{shared:?}");
    }
}
