//! Divides a machine among concurrent runs: a GPU with a share of the cores, which its runs share, or cores alone.

use super::mps::{MpsControl, MpsDaemon};
use super::plan::SweepRun;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sgs_run::config::device;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Cores per CPU run, unless the number of concurrent runs is given.
const CORES_PER_RUN: usize = 2;

/// The free slots.
pub struct SlotPool {
    free: Vec<RunSlot>,
    all: usize,
    what: String,
    /// Exists while runs share a GPU.
    mps: Option<MpsDaemon>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSlot {
    /// The value of `CUDA_VISIBLE_DEVICES` without MPS.
    gpu: Option<String>,
    cores: Vec<usize>,
    /// Variables of the run's environment.
    environment: Vec<(&'static str, OsString)>,
}

impl SlotPool {
    /// Creates `wanted` slots, or as many as fit: one per GPU, otherwise one per two cores.
    pub fn for_machine(wanted: Option<usize>, members: &[SweepRun]) -> Self {
        let on_gpu = members.iter().any(|member| member.config.model.device == "cuda");
        let gpus = if on_gpu { device::visible_gpus() } else { Vec::new() };
        Self::share(wanted, gpus, cores())
    }

    pub fn share(wanted: Option<usize>, gpus: Vec<String>, cores: Vec<usize>) -> Self {
        let fit = if gpus.is_empty() { cores.len() / CORES_PER_RUN } else { gpus.len() };
        let all = wanted.unwrap_or(fit).max(1);
        let slot = |i: usize| {
            let gpu = (!gpus.is_empty()).then(|| gpus[i % gpus.len()].clone());
            // Runs on one GPU need its cores at different times, so they share them.
            let parts = if gpus.is_empty() { all } else { gpus.len().min(all) };
            // With more parts than cores, all runs share all cores.
            let cores = match cores.len() >= parts {
                true => cores.iter().copied().skip(i % parts).step_by(parts).collect(),
                false => cores.clone(),
            };
            let environment = gpu.iter().map(|gpu| ("CUDA_VISIBLE_DEVICES", gpu.into())).collect();
            RunSlot { gpu, cores, environment }
        };
        let what = match gpus.len() {
            0 => format!("{} cores", cores.len()),
            n => format!("{n} GPUs and {} cores", cores.len()),
        };
        // Slots are taken from the end.
        Self { free: (0..all).rev().map(slot).collect(), all, what, mps: None }
    }

    /// Starts MPS if the given number of runs share GPUs. Returns a line for the user, empty if they do not.
    pub fn start_mps(&mut self, control: &MpsControl, runs: usize) -> String {
        let mut gpus: Vec<String> = Vec::new();
        for gpu in self.free.iter().rev().filter_map(|slot| slot.gpu.as_ref()) {
            if !gpus.contains(gpu) {
                gpus.push(gpu.clone());
            }
        }
        let (daemon, text) = control.start(&gpus, runs.min(self.all));
        if let Some(daemon) = &daemon {
            for slot in &mut self.free {
                slot.environment = slot.gpu.iter().flat_map(|gpu| daemon.environment(gpu)).collect();
            }
        }
        self.mps = daemon;
        text
    }

    pub fn len(&self) -> usize {
        self.all
    }

    /// Describes the divided resources.
    pub fn what(&self) -> &str {
        &self.what
    }

    pub fn free(&mut self) -> Option<RunSlot> {
        self.free.pop()
    }

    pub fn release(&mut self, slot: RunSlot) {
        self.free.push(slot);
    }
}

/// Returns the cores that this process may use.
fn cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => (0..device::threads()).collect(),
    }
}

impl RunSlot {
    /// Starts a process on the slot, in its own process group, so that Ctrl-C reaches only the sweep.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        command.envs(self.environment.iter().cloned()).process_group(0);
        // A process inherits the cores of the thread that starts it; if the system refuses, it gets all cores.
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
    fn runs_get_a_gpu_with_its_cores_or_a_share_of_the_cores() {
        let slots = |wanted, gpus: &[&str], cores: usize| {
            let gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
            let mut slots = SlotPool::share(wanted, gpus, (0..cores).collect());
            std::iter::from_fn(|| slots.free()).map(|p| (p.gpu, p.cores)).collect::<Vec<_>>()
        };
        let gpu = |name: &str| Some(name.to_owned());
        assert_eq!(slots(None, &[], 1), [(None, vec![0])]);
        assert_eq!(slots(None, &[], 4), [(None, vec![0, 2]), (None, vec![1, 3])]);
        assert_eq!(slots(Some(2), &[], 3), [(None, vec![0, 2]), (None, vec![1])]);
        assert_eq!(slots(Some(2), &[], 1), [(None, vec![0]), (None, vec![0])]);
        assert_eq!(slots(None, &["3", "5"], 2), [(gpu("3"), vec![0]), (gpu("5"), vec![1])]);
        let of_3 = (gpu("3"), vec![0, 2]);
        assert_eq!(slots(Some(3), &["3", "5"], 4), [of_3.clone(), (gpu("5"), vec![1, 3]), of_3]);
        assert_eq!(slots(Some(1), &["3", "5"], 4), [(gpu("3"), vec![0, 1, 2, 3])]);
    }
}
