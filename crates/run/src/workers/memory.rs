//! Plans the memory of a run's processes before they start, with the functions by which they allocate.
//!
//! A rank always holds its models and its shard of the optimizer state. It also holds the buffers of training and its
//! samplers, both at the same time if there is room for both, otherwise in turns (`training.shared_memory`).

use crate::config::RunConfig;
use crate::error::Result;
use crate::train::policies::{self, LoadedModels};
use crate::workers::config::{By, FleetConfig};
use crate::workers::generate::{ROLES, check_cache, plan_samplers};
use crate::workers::sampling;
use serde::Serialize;
use sgs_lm::ModelConfig;
use sgs_lm::checkpoint::Snapshot;
use sgs_lm::footprint::Footprint;
use sgs_lm::layout::Layout;
use sgs_lm::model::{MemoryPlan, adam_bytes, model_bytes};
use sgs_lm::shard::Shard;
use sgs_selfplay::{Role, Weights};
use std::collections::BTreeSet;
use std::path::Path;

/// When memory is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Always,
    Sampling,
    Training,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryPart {
    /// The purpose of the memory.
    pub what: String,
    pub bytes: u64,
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessMemory {
    /// Name of the process, for example `rank 0`.
    pub process: String,
    /// Buffers on the model's device: a GPU, or the CPU.
    pub device: Vec<MemoryPart>,
    /// Whether sampling and training use the same memory of the device in turns.
    pub in_turns: bool,
    /// Peak of the device's memory, in bytes.
    pub device_bytes: u64,
    /// Other memory of the host.
    pub host: Vec<MemoryPart>,
}

impl ProcessMemory {
    fn new(process: String, device: Vec<MemoryPart>, host: Vec<MemoryPart>, in_turns: bool) -> Self {
        let [always, sampling, training] = by_phase(&device);
        let device_bytes = always + if in_turns { sampling.max(training) } else { sampling + training };
        Self { process, device, in_turns, device_bytes, host }
    }
}

/// Returns the sum of the parts, in bytes.
pub fn sum(parts: &[MemoryPart]) -> u64 {
    parts.iter().map(|part| part.bytes).sum()
}

/// Returns the sums of the parts that are needed always, in sampling and in training, in bytes.
fn by_phase(parts: &[MemoryPart]) -> [u64; 3] {
    [Phase::Always, Phase::Sampling, Phase::Training]
        .map(|phase| parts.iter().filter(|part| part.phase == phase).map(|part| part.bytes).sum())
}

/// The inputs from which the memory of a run's processes is planned.
#[derive(Clone, Copy)]
pub struct MemoryInputs<'a> {
    pub config: &'a RunConfig,
    /// Shape of the base model.
    pub model: &'a ModelConfig,
    /// Shape of the Guide's model.
    pub guide: &'a ModelConfig,
    pub fleet: Option<&'a FleetConfig>,
    /// Sizes of the device's buffers.
    pub footprint: &'a dyn Footprint,
    /// Memory of a GPU that the run can allocate, in bytes. `None` on the CPU.
    pub gpu_bytes: Option<u64>,
}

impl MemoryInputs<'_> {
    /// Returns true if the ranks sample.
    pub fn ranks_sample(&self) -> bool {
        self.fleet.is_none_or(|fleet| fleet.generate.by == By::Embedded)
    }

    pub fn policies(&self) -> usize {
        LoadedModels::of_rank(self.config, 0, false).trained().len()
    }

    fn part(what: impl Into<String>, bytes: usize) -> MemoryPart {
        MemoryPart { what: what.into(), bytes: bytes as u64, phase: Phase::Always }
    }

    fn model_part(&self, what: String, shape: &ModelConfig) -> Result<MemoryPart> {
        let positions = shape.positions(self.config.model.positions())?;
        Ok(Self::part(what, model_bytes(self.footprint, shape, positions)))
    }

    /// Plans a training rank.
    ///
    /// # Errors
    /// Returns an error if the context window does not suit the model, or a sampler's memory is too small.
    pub fn rank(&self, rank: usize) -> Result<ProcessMemory> {
        let (config, ranks) = (self.config, self.config.training.ranks);
        let samples = self.ranks_sample();
        let loaded = LoadedModels::of_rank(config, rank, samples);
        let shard = Shard::of(&Layout::new(self.model), rank, ranks);
        let (mut device, mut host) = (Vec::new(), Vec::new());
        for name in loaded.trained().values() {
            device.push(self.model_part(format!("weights of the {name}"), self.model)?);
            device
                .push(Self::part(format!("Adam's state of the {name}"), adam_bytes(self.footprint, &shard)));
            if rank == 0 {
                let bytes = Snapshot::planned_bytes(self.footprint, self.model, &shard);
                host.push(Self::part(format!("copy of the {name} for its checkpoint"), bytes));
            }
        }
        if loaded.base {
            device.push(self.model_part("weights of the base model".to_owned(), self.model)?);
        }
        if loaded.guide {
            device.push(self.model_part("weights of the Guide".to_owned(), self.guide)?);
        }
        let tokens = config.training_tokens(self.model);
        let place = (rank, ranks);
        let plan = MemoryPlan::for_rank(self.footprint, self.model, tokens, config.training.mode(), place);
        device.push(Self::part("scratch of the device", self.footprint.device_bytes()));
        for (what, bytes) in [
            ("gradients".to_owned(), plan.gradient_bytes),
            (format!("activations of {tokens} tokens"), plan.activation_bytes),
            (format!("logits of {} tokens", plan.logit_rows), plan.logit_bytes),
        ]
        .into_iter()
        .filter(|_| config.algorithm.trains())
        {
            device.push(MemoryPart { phase: Phase::Training, ..Self::part(what, bytes) });
        }
        if samples {
            let shape = |role| match loaded.sampled(role)? {
                Weights::Guide => Some(self.guide),
                _ => Some(self.model),
            };
            device.extend(self.samplers(shape)?);
        }
        let [always, sampling, training] = by_phase(&device);
        let free = self.gpu_bytes.map(|bytes| bytes.saturating_sub(always + training));
        let in_turns = samples && config.training.shared_memory.takes_turns(sampling, free);
        Ok(ProcessMemory::new(format!("rank {rank}"), device, host, in_turns))
    }

    /// Plans a generation worker, after the first update.
    pub fn worker(&self) -> Result<ProcessMemory> {
        let (base, checkpoint) = (Path::new("base"), Path::new("checkpoint"));
        let folders = policies::sampled_folders(self.config, base, Some(checkpoint));
        let own_guide = folders.get(&Role::Guide).filter(|guide| *guide != base);
        let names: BTreeSet<_> = folders.values().collect();
        let mut device = Vec::new();
        for folder in names {
            let is_guide = own_guide == Some(folder);
            let name = match folder == base {
                _ if is_guide => "Guide".into(),
                true => "base model".into(),
                false => folder.file_name().unwrap_or_default().to_string_lossy(),
            };
            let shape = if is_guide { self.guide } else { self.model };
            device.push(self.model_part(format!("weights of the {name}"), shape)?);
        }
        let shape = |role: Role| {
            let is_guide = role == Role::Guide && own_guide.is_some();
            folders.contains_key(&role).then_some(if is_guide { self.guide } else { self.model })
        };
        device.extend(self.samplers(shape)?);
        device.push(Self::part("scratch of the device", self.footprint.device_bytes()));
        Ok(ProcessMemory::new("generation worker".to_owned(), device, Vec::new(), false))
    }

    /// Plans the samplers of the roles that the process samples.
    fn samplers<'m>(&self, shape: impl Fn(Role) -> Option<&'m ModelConfig>) -> Result<Vec<MemoryPart>> {
        let settings = &self.config.sampling;
        let all = sampling::options(settings.batch, settings.memory_mib);
        let mut parts = Vec::new();
        for role in ROLES {
            let Some(model) = shape(role) else { continue };
            let positions = model.positions(self.config.model.positions())?;
            let (count, memory) = plan_samplers(self.footprint, model, role, &all, positions)?;
            check_cache(role, count, &memory, all.page_len, settings.tokens(role).min(positions))?;
            let (name, tokens) = (role.as_str(), count * memory.positions);
            for (what, bytes) in [
                (format!("cache of the {name}, {tokens} tokens"), memory.cache_bytes),
                (format!("sampling buffers of the {name}"), memory.work_bytes),
            ] {
                let part = Self::part(what, count * bytes as usize);
                parts.push(MemoryPart { phase: Phase::Sampling, ..part });
            }
        }
        Ok(parts)
    }

    /// Plans the processes of the coordinator's machine, by GPU. Each rank has its own GPU; workers use the GPUs in
    /// turn, first those without a rank. On the CPU, `gpus` is 1 and represents the machine.
    pub fn machine(&self, gpus: usize) -> Result<Vec<Vec<ProcessMemory>>> {
        let mut plan = vec![Vec::new(); gpus.max(1)];
        let ranks = self.config.training.ranks;
        for rank in 0..if gpus > 1 { ranks.min(gpus) } else { ranks } {
            plan[rank % gpus.max(1)].push(self.rank(rank)?);
        }
        let local = self.fleet.filter(|fleet| fleet.generate.by == By::Local);
        let workers = local.map_or(0, |fleet| fleet.generate.count);
        if workers > 0 {
            let worker = self.worker()?;
            for i in 0..workers {
                let process = format!("{} {i}", worker.process);
                plan[(ranks + i) % gpus.max(1)].push(ProcessMemory { process, ..worker.clone() });
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layers, SharedMemory, resolve};
    use crate::error::RunError;
    use sgs_lm_cuda::{CudaFootprint, Precision};

    /// Plans rank 0 of eight for a model of 7 billion parameters.
    fn plan(keys: &[&str], gpu_bytes: Option<u64>) -> Result<ProcessMemory> {
        let json = serde_json::json!({
            "model_type": "llama", "vocab_size": 102_400, "hidden_size": 4096, "intermediate_size": 11_008,
            "num_hidden_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 32,
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        });
        let model = ModelConfig::from_json(json, "7B").expect("a shape");
        let set = keys.iter().copied().map(str::to_owned);
        let set = set.chain(["training.ranks=8".to_owned()]).collect();
        let config = resolve(&Layers { set, ..Layers::default() }, std::iter::empty()).expect("valid").config;
        let footprint = CudaFootprint { precision: Precision::Bf16, processors: 132 };
        let (guide, fleet) = (&model, None);
        MemoryInputs { config: &config, model: &model, guide, fleet, footprint: &footprint, gpu_bytes }
            .rank(0)
    }

    #[test]
    fn phases_take_turns_only_if_both_do_not_fit() {
        let keys = ["sampling.memory_mib=16384", "model.context=8192"];
        let together = plan(&keys, None).expect("a plan");
        assert!(!together.in_turns && together.device_bytes == sum(&together.device));
        let [always, sampling, training] = by_phase(&together.device);
        assert!(sampling > training && training > 10 << 30);
        let all = always + sampling + training + SharedMemory::SPARED;
        assert_eq!(plan(&keys, Some(all)).expect("a plan"), together);
        let in_turns = plan(&keys, Some(all - 1)).expect("a plan");
        assert!(in_turns.in_turns && in_turns.device_bytes == always + sampling);
        let never = plan(&[keys[0], keys[1], "training.shared_memory=never"], Some(all - 1)).expect("a plan");
        assert_eq!(never, together);
    }

    #[test]
    fn a_cache_holds_the_longest_completion() {
        let plan = |mib: &str| plan(&[mib, "sampling.conjecturer_tokens=8192", "model.context=8192"], None);
        let Err(RunError::CannotBegin(told)) = plan("sampling.memory_mib=8192") else { panic!("it fits") };
        let (before, after) = told.split_once("raise sampling.memory_mib to ").expect("a remedy");
        assert!(before.starts_with("the cache of the conjecturer holds 7"), "{told}");
        let mib: u64 = after.split(',').next().and_then(|mib| mib.parse().ok()).expect("a number");
        assert!(mib < 16_384, "{told}");
        plan(&format!("sampling.memory_mib={mib}")).expect("it fits");
    }
}
