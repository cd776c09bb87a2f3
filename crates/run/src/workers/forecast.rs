//! Estimates the time, memory and disk space of a run from its configuration, its workers and the hardware.
//!
//! Everything that is not in the configuration is in [`Assumptions`] or [`Speed`] and is printed with the result.

use super::memory::{MemoryInputs, MemoryPart, Phase, ProcessMemory, sum};
use crate::Usage;
use crate::config::{RunConfig, SystemName};
use crate::error::Result;
use crate::workers::config::{By, FleetConfig, WorkerPoolConfig};
use crate::workers::generate::{ROLES, plan_samplers};
use crate::workers::sampling;
use serde::Serialize;
use sgs_lean::Backing;
use sgs_lm::ModelConfig;
use sgs_lm::device::Precision;
use sgs_lm::footprint::Footprint;
use sgs_lm::model::Mode;
use sgs_selfplay::Role;
use sgs_selfplay::config::{BatchSize, ConjectureForm, Selection};
use std::collections::BTreeSet;

/// Speed of one device with models of any size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// FLOP/s of training steps.
    pub training: f64,
    /// FLOP/s of prefill and of scoring.
    pub prefill: f64,
    /// FLOP/s of decoding, as far as arithmetic limits it.
    pub decoding: f64,
    /// Bytes of weights and cache that decoding reads per second, as far as memory limits it.
    pub reading: f64,
    /// Fixed time of a decoding step, in seconds.
    pub step_s: f64,
    /// Fixed time per layer of a decoding step, in seconds.
    pub layer_s: f64,
    /// Minimum time of a decoding step, in seconds: the host's work, which limits small models.
    pub shortest_step_s: f64,
    /// Bytes per second at which the weights are copied for a checkpoint.
    pub copying: f64,
    /// Bytes per second at which new weights are written for workers, and at which each worker then reads them, if all read
    /// at once without slowing each other.
    pub sending: f64,
    /// Bytes per second at which pinned host memory for these copies is allocated, once. `None` on a CPU, where it is
    /// ordinary memory.
    pub pinning: Option<f64>,
}

/// An H200 in bfloat16. Names in quotes are sections of docs/performance.md.
const H200: Speed = Speed {
    // "Several GPUs": MFU 0.51 to 0.52 with one micro-batch per rank and step; the peak is 989 TFLOP/s.
    training: 0.51 * 989e12,
    // 2,000 requests on an H200 (see the tests): prefill of 272,000 prompt tokens in the measured time, less the time to
    // read weights and cache in each step.
    prefill: 0.35 * 989e12,
    decoding: 0.35 * 989e12,
    // "Sampling": chosen so that the steps there agree within 5%.
    reading: 0.85 * 4.3e12,
    step_s: 2e-4,
    layer_s: 1.5e-5,
    // Rehearsals with 30 million parameters (docs/cluster.md).
    shortest_step_s: 8e-4,
    // "Whole rounds": 0.01 s for the copy of two policies of 13.2 million parameters, 16 bytes each.
    copying: 42e9,
    // docs/cluster.md, "Weights": the rate of the link over loopback. The disk was faster.
    sending: 2.1e9,
    // Five rehearsals with one and two ranks on an H100 host: 1.2e9 to 1.7e9. More ranks were not measured.
    pinning: Some(1.4e9),
};

/// An H100, where it was measured to be slower: `gpu_check step` and "Sampling".
const H100: Speed = Speed {
    training: 0.92 * H200.training,
    prefill: 0.92 * H200.prefill,
    decoding: 0.92 * H200.decoding,
    reading: 0.8 * 3.35e12,
    ..H200
};

impl Speed {
    /// Returns the speed of a GPU with this name. An unknown GPU is assumed to be as fast as an H200.
    pub fn of_gpu(name: &str) -> Self {
        if name.contains("H100") { H100 } else { H200 }
    }

    /// Returns the speed of a CPU whose best matrix product in f32 reaches `peak` FLOP/s and whose sampler has this
    /// precision. `sgs bench train` and `sgs bench sample` print the fractions of the peak that training and sampling
    /// reach: 0.43, and 0.64 in f32, on a busy machine with two cores.
    pub fn of_cpu(peak: f64, sampler: Precision) -> Self {
        let sampling = match sampler {
            Precision::F32 => 0.6 * peak,
            Precision::Bf16 => 0.9 * peak,
        };
        Self {
            training: 0.45 * peak,
            prefill: sampling,
            decoding: sampling,
            reading: 10e9,
            step_s: 0.0,
            layer_s: 0.0,
            shortest_step_s: 0.0,
            copying: 2e9,
            sending: 2.1e9,
            pinning: None,
        }
    }
}

/// The hardware that a forecast assumes or has detected.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hardware {
    pub device: String,
    /// Whether the device is in this machine.
    pub found: bool,
    /// Whether the device is the host's processor, which ranks and workers share, with the host's memory.
    pub is_host: bool,
    /// Number of devices of the coordinator's machine: GPUs, or 1 for the CPU.
    pub devices: usize,
    /// Memory of one device, in bytes.
    pub device_bytes: u64,
    /// Bytes of a device that are in use before the run allocates: driver, context, libraries, other programs.
    pub reserved_bytes: u64,
    pub speed: Speed,
    /// Number of cores that check proofs, one proof per core.
    pub cores: usize,
}

/// Quantities that neither configuration nor hardware gives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// Mean completion length of Solver, Conjecturer and Guide, in tokens.
    pub completion: [f64; 3],
    /// Mean length of a completion while it is sampled, relative to the mean length of all: 0.5 if all are equally long;
    /// more if few are much longer than the others, because these take most of the time.
    pub sampled_part: f64,
    /// Length of a round's longest completion, in tokens, if no limit cuts it.
    pub longest: f64,
    /// Number of statements in a prompt of Solver, Conjecturer and Guide.
    pub statements: [f64; 3],
    /// Characters of a statement per token.
    pub characters: f64,
    /// Tokens of a prompt in addition to its statements.
    pub template: f64,
    /// Mean fraction of unsolved targets over the run.
    pub unsolved: f64,
    /// Fraction of the conjectures that rollouts are sampled for.
    pub accepted: f64,
    /// Fraction of the Solver's rollouts used for training if only proofs of hard problems are used.
    pub trained_hard: f64,
    /// Fraction of the Solver's rollouts used for training if all proofs are used.
    pub trained_all: f64,
    pub trained_conjectures: f64,
    /// CPU time for checking one proof, in seconds.
    pub check_s: f64,
    /// Seconds per generation of the host that overlap with nothing.
    pub host_s: f64,
    /// Bytes of table data per sampled token.
    pub table_bytes: f64,
    /// Private memory of one checker, in bytes.
    pub checker_bytes: u64,
    /// Memory that all checkers share, in bytes.
    pub shared_bytes: u64,
}

/// The assumptions for Lean with Mathlib.
pub const LEAN: Assumptions = Assumptions {
    // Paper: more than 6 billion tokens in 6.3 million generations.
    completion: [950.0; 3],
    // Lengths as in the rehearsal: 2% reach 8,192 tokens, the others have a geometric distribution with mean 800.
    sampled_part: 1.4,
    longest: 1e6,
    statements: [1.0, 2.0, 3.0],
    characters: 2.5,
    template: 0.0,
    // Paper: about 40,000 generations per round.
    unsolved: 0.45,
    accepted: 1.0,
    trained_hard: 0.05,
    trained_all: 0.35,
    trained_conjectures: 1.0,
    // Published mean for proofs of Lean Workbook: 3.3.
    check_s: 3.0,
    host_s: 0.0,
    // Measured in Metamath runs: 15 to 17.
    table_bytes: 16.0,
    checker_bytes: 1_000_000_000,
    shared_bytes: 6_000_000_000,
};

/// The assumptions for core Lean as WebAssembly, measured in the first three rounds of the size `lean-core` (seed 1).
pub const LEAN_CORE: Assumptions = Assumptions {
    completion: [32.5, 43.3, 4.0],
    sampled_part: 0.5,
    statements: [1.0, 1.0, 2.0],
    template: 20.0,
    // docs/lean.md: all at first, 44% after 64 rounds.
    unsolved: 0.7,
    accepted: 0.99,
    trained_hard: 0.025,
    trained_conjectures: 0.17,
    check_s: 0.1,
    // docs/lean.md: the memory that each slot needs.
    checker_bytes: 6_000_000_000,
    shared_bytes: 0,
    ..LEAN
};

/// The assumptions for Metamath, measured in the first three rounds of the default run (seed 1).
pub const METAMATH: Assumptions = Assumptions {
    completion: [11.3, 34.5, 4.0],
    sampled_part: 0.5,
    longest: 1e6,
    statements: [1.0, 1.0, 2.0],
    characters: 2.2,
    template: 8.0,
    unsolved: 0.8,
    accepted: 0.85,
    trained_hard: 0.012,
    trained_all: 0.035,
    trained_conjectures: 0.03,
    check_s: 1e-5,
    host_s: 5e-5,
    table_bytes: 16.0,
    checker_bytes: 0,
    shared_bytes: 0,
};

impl Assumptions {
    /// The names of the assumptions that can be replaced.
    pub const NAMES: [&'static str; 10] = [
        "completion",
        "sampled_part",
        "longest",
        "unsolved",
        "accepted",
        "trained_hard",
        "trained_all",
        "trained_conjectures",
        "check_s",
        "host_s",
    ];

    pub fn of(config: &RunConfig) -> Self {
        let is_wasm = config.lean.as_ref().is_some_and(|lean| lean.backing == Backing::Wasm);
        match config.problems.system {
            SystemName::Metamath => METAMATH,
            SystemName::Lean if is_wasm => LEAN_CORE,
            SystemName::Lean => LEAN,
            // The size `external` is for small models.
            SystemName::External => Assumptions { check_s: 1e-3, ..METAMATH },
        }
    }

    /// Replaces an assumption, given as NAME=NUMBER.
    ///
    /// # Errors
    /// Returns an error if there is no such assumption or if the number is out of range.
    pub fn replace(&mut self, assumption: &str) -> Result<(), Usage> {
        let (name, value) = assumption.split_once('=').unwrap_or((assumption, ""));
        let (of, most): (&mut [f64], f64) = match name {
            "completion" => (&mut self.completion, 1e6),
            "sampled_part" => (std::slice::from_mut(&mut self.sampled_part), 1e3),
            "longest" => (std::slice::from_mut(&mut self.longest), 1e6),
            "unsolved" => (std::slice::from_mut(&mut self.unsolved), 1.0),
            "accepted" => (std::slice::from_mut(&mut self.accepted), 1.0),
            "trained_hard" => (std::slice::from_mut(&mut self.trained_hard), 1.0),
            "trained_all" => (std::slice::from_mut(&mut self.trained_all), 1.0),
            "trained_conjectures" => (std::slice::from_mut(&mut self.trained_conjectures), 1.0),
            "check_s" => (std::slice::from_mut(&mut self.check_s), 1e6),
            "host_s" => (std::slice::from_mut(&mut self.host_s), 1e6),
            _ => {
                let known = Self::NAMES.join(", ");
                return Err(Usage(format!(
                    "--assume {assumption}: there is no such assumption; the forecast has {known}"
                )));
            }
        };
        let number = value.parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
        let number = number
            .ok_or_else(|| Usage(format!("--assume {assumption}: expected a number from 0 to {most}")))?;
        of.fill(number);
        Ok(())
    }
}

/// The size of the problem set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoundWork {
    pub targets: usize,
    /// Number of held-out problems of an evaluation.
    pub held_out: usize,
    /// Mean length of a target with its header, in characters.
    pub characters: f64,
}

/// Work and time of one role's sampling, per round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RoleForecast {
    pub samples: f64,
    pub tokens: f64,
    /// Prompt tokens. A prompt that several samples share counts once.
    pub prompt_tokens: f64,
    /// Number of sequences that a device decodes at once.
    pub batch: f64,
    /// Mean length of these sequences, in tokens, with their prompts.
    pub context: f64,
    /// Seconds on one device.
    pub device_s: f64,
}

/// A forecast of a run. Times are in seconds, sizes in bytes. Values per round are means over the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Solver rollouts per round: `k` for each target and each conjecture.
    pub generations: f64,
    pub conjectures: f64,
    /// Sampling of Solver, Conjecturer and Guide. A role that a server plays has no samples here.
    pub roles: [RoleForecast; 3],
    /// The roles that servers play. Their time is unknown and not included.
    pub served: Vec<Role>,
    /// Number of devices that sample.
    pub samplers: usize,
    /// Wall time of sampling: prefill and decoding of all roles.
    pub sampling_s: f64,
    /// CPU time for checking proofs.
    pub checking_cpu_s: f64,
    /// Number of proofs checked at once.
    pub checkers: usize,
    /// Whether the coordinator's machine checks proofs.
    pub checks_here: bool,
    /// Wall time for checking proofs. Checking overlaps with sampling.
    pub checking_s: f64,
    /// Fraction of the Solver's rollouts used for training.
    pub trained_share: f64,
    pub training_flop: f64,
    /// Wall time of training, the KL reference and the copy of the weights.
    pub training_s: f64,
    /// Wall time until workers that sample have the new weights; 0 if ranks sample.
    pub weights_s: f64,
    /// Time per round: the longer of sampling and checking, then training, new weights and the host's own work.
    pub round_s: f64,
    /// The first round, in which every target is unsolved.
    pub first_round: FirstRound,
    /// Number of rounds until the first limit of the run: rounds, minutes or generations.
    pub rounds: f64,
    /// Time of one evaluation.
    pub evaluation_s: f64,
    /// Time of these rounds, with evaluations.
    pub run_s: f64,
    /// The processes of each device of the coordinator's machine.
    pub memory: Vec<Vec<ProcessMemory>>,
    /// Other memory of the coordinator's machine.
    pub host: Vec<MemoryPart>,
    /// A generation worker on another machine, if there are any.
    pub remote_worker: Option<ProcessMemory>,
    pub disk: DiskUse,
}

/// The first round of a run, which is the longest. Times are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FirstRound {
    pub generations: f64,
    pub sampling_s: f64,
    pub training_s: f64,
    pub round_s: f64,
}

/// Disk use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DiskUse {
    /// The base model and a separate Guide.
    pub base: f64,
    /// One checkpoint: the weights, Adam's moments and, for bfloat16, the f32 master weights of each trained policy.
    pub checkpoint: f64,
    /// Number of checkpoints that exist at once: those kept and the one being written.
    pub checkpoints: f64,
    /// The tables of all rounds.
    pub tables: f64,
}

impl DiskUse {
    pub fn total(&self) -> f64 {
        self.base + self.checkpoint * self.checkpoints + self.tables
    }
}

/// Returns the number of workers of a kind on other machines, and on this one.
fn workers_of(
    fleet: Option<&FleetConfig>,
    kind: impl Fn(&FleetConfig) -> &WorkerPoolConfig,
) -> (usize, usize) {
    match fleet.map(kind) {
        Some(pool) if pool.by == By::Local => (0, pool.count),
        Some(pool) if pool.by == By::Slurm => (pool.count, 0),
        // Their number is unknown before they connect.
        Some(pool) if pool.by == By::None => (1, 0),
        _ => (0, 0),
    }
}

struct Arithmetic {
    /// Number of layers.
    depth: f64,
    /// Parameters of the layers.
    layers: f64,
    /// Parameters of the layers and the head.
    multiplied: f64,
    /// Bytes that a step of decoding reads once.
    weight_bytes: f64,
    /// Bytes of keys and values per token.
    token_bytes: f64,
    /// FLOP of attention per token and token of context.
    attention: f64,
}

impl Arithmetic {
    fn new(model: &ModelConfig, footprint: &dyn Footprint) -> Self {
        let head = model.vocab_size * model.hidden_size;
        let layers = (model.parameters() - if model.tied_head { head } else { 2 * head }) as f64;
        let multiplied = layers + head as f64;
        let width = footprint.bytes_per_parameter().0 as f64;
        Self {
            depth: model.layers as f64,
            layers,
            multiplied,
            weight_bytes: width * multiplied,
            token_bytes: footprint.decoder_page_bytes(model, 16) as f64 / 16.0,
            attention: 4.0 * (model.layers * model.q_dim()) as f64,
        }
    }

    /// Returns the FLOP of the forward pass of a sequence.
    fn forward(&self, length: f64) -> f64 {
        length * (2.0 * self.multiplied + self.attention * length / 2.0)
    }

    /// Returns the seconds that one of `devices` devices, which share a role's samples, needs for the role's prefill
    /// and decoding. The longest completion has `longest` tokens.
    fn seconds(&self, role: &RoleForecast, longest: f64, devices: f64, speed: Speed) -> f64 {
        let (tokens, context) = (role.tokens / devices, role.context);
        // The longest sample runs alone at the end.
        let steps = tokens / role.batch + longest;
        let batch = tokens / steps;
        let flop = batch * (2.0 * self.multiplied + self.attention * context);
        let bytes = self.weight_bytes + batch * context * self.token_bytes;
        let work = (bytes / speed.reading).max(flop / speed.decoding);
        let step = (speed.step_s + speed.layer_s * self.depth + work).max(speed.shortest_step_s);
        let prefill = 2.0 * self.layers * role.prompt_tokens / devices / speed.prefill;
        steps * step + prefill
    }
}

/// Derives the forecast.
///
/// # Errors
/// Returns an error if the configuration does not suit the model, for example because the memory of a sampler is too
/// small.
pub fn forecast(
    inputs: MemoryInputs<'_>,
    work: RoundWork,
    hardware: &Hardware,
    assumed: &Assumptions,
) -> Result<Forecast> {
    let first = mean_round(inputs, work, hardware, &Assumptions { unsolved: 1.0, ..*assumed })?;
    let pinning_s = hardware.speed.pinning.map_or(0.0, |speed| host_copies(&first.memory) as f64 / speed);
    let first_round = FirstRound {
        generations: first.generations,
        sampling_s: first.sampling_s,
        training_s: first.training_s + pinning_s,
        round_s: first.round_s + pinning_s,
    };
    Ok(Forecast { first_round, ..mean_round(inputs, work, hardware, assumed)? })
}

/// Returns the bytes of the host copies of weights and optimizer states, in all processes.
fn host_copies(memory: &[Vec<ProcessMemory>]) -> u64 {
    memory.iter().flatten().map(|process| sum(&process.host)).sum()
}

/// Returns the seconds until workers that sample have the weights of an update: the coordinator writes them, then all
/// workers read them at the same time.
fn weights_s(inputs: MemoryInputs<'_>, speed: Speed) -> f64 {
    if inputs.ranks_sample() {
        return 0.0;
    }
    let width = inputs.footprint.bytes_per_parameter().0 as f64;
    let config = inputs.config;
    let sampled = ROLES.into_iter().filter(|role| config.samples_itself(*role));
    let sets: BTreeSet<_> =
        sampled.map(|role| config.weights_of(role)).filter(|set| set.is_trained()).collect();
    let bytes = width * inputs.model.parameters() as f64 * sets.len() as f64;
    2.0 * bytes / speed.sending
}

/// Derives the forecast without the first round.
fn mean_round(
    inputs: MemoryInputs<'_>,
    work: RoundWork,
    hardware: &Hardware,
    assumed: &Assumptions,
) -> Result<Forecast> {
    let MemoryInputs { config, fleet, .. } = inputs;
    let counts = RoundCounts::new(config, work, assumed);
    let devices = hardware.devices.max(1);
    // On the CPU, ranks share the cores.
    let ranks = if hardware.is_host { 1 } else { config.training.ranks };
    let samplers = match workers_of(fleet, |fleet| &fleet.generate) {
        _ if !ROLES.into_iter().any(|role| config.samples_itself(role)) => 0,
        _ if inputs.ranks_sample() => ranks,
        (remote, local) => remote + local.min(devices),
    };
    let round = RoundModel { inputs, hardware, assumed, statement: work.characters / assumed.characters };
    let roles = round.roles(&counts, samplers.max(1) as f64)?;
    let sampling_s = roles.iter().map(|role| role.device_s).sum::<f64>();
    // Servers' completions are in the tables, too.
    let tokens = |(i, (role, samples, _))| samples * round.completion(i, role);
    let sampled_tokens = counts.samples.into_iter().enumerate().map(tokens).sum::<f64>();

    let checkers = checkers(config, fleet, hardware);
    let checks_here = fleet.is_none_or(|fleet| matches!(fleet.verify.by, By::Embedded | By::Local));
    let checking_cpu_s = counts.generations * assumed.check_s;
    let checking_s = checking_cpu_s / checkers.max(1) as f64;

    let memory = inputs.machine(devices)?;
    let (trained_share, training_flop, scoring_s) = round.training(&counts);
    let speed = hardware.speed;
    let copying_s = host_copies(&memory) as f64 / speed.copying;
    let training_s = training_flop / (speed.training * ranks_in_step(config, ranks)) + scoring_s + copying_s;

    let generations = counts.generations;
    let weights_s = weights_s(inputs, speed);
    let round_s = sampling_s.max(checking_s) + training_s + weights_s + generations * assumed.host_s;
    let sampled_s = |counts: RoundCounts| -> Result<f64> {
        let sampling_s = round.roles(&counts, samplers.max(1) as f64)?[0].device_s;
        Ok(sampling_s.max(counts.generations * assumed.check_s / checkers.max(1) as f64))
    };
    let evaluation_s = sampled_s(RoundCounts::of_evaluation(config, work))?;
    let of_targets_s = sampled_s(RoundCounts::of_base_model(config, work))?;
    // Evaluations count towards the limit of minutes.
    let between = match config.evaluation.every {
        every if every > 0 && config.weights_of(Role::Solver).is_trained() => evaluation_s / f64::from(every),
        _ => 0.0,
    };
    let rounds = rounds_until_a_limit(config, generations, round_s + between, evaluation_s + of_targets_s);
    let is_remote = fleet.is_some_and(|fleet| matches!(fleet.generate.by, By::Slurm | By::None));
    Ok(Forecast {
        generations,
        conjectures: counts.conjectures,
        roles,
        served: ROLES.into_iter().filter(|role| config.sampling.endpoint.plays(*role)).collect(),
        samplers,
        sampling_s,
        checking_cpu_s,
        checkers,
        checks_here,
        checking_s,
        trained_share,
        training_flop,
        training_s,
        weights_s,
        round_s,
        first_round: FirstRound::default(),
        rounds,
        evaluation_s,
        run_s: round_s * rounds + evaluation_s * evaluations(config, rounds) + of_targets_s,
        host: round.host_memory(&memory, sampled_tokens, if checks_here { checkers } else { 0 }),
        memory,
        remote_worker: is_remote.then(|| inputs.worker()).transpose()?,
        disk: disk_use(inputs, rounds, sampled_tokens * assumed.table_bytes),
    })
}

/// Numbers of problems and samples in a round.
struct RoundCounts {
    /// Conjectures that a model writes.
    made: f64,
    /// Conjectures, with those that no model writes.
    conjectures: f64,
    generations: f64,
    /// Samples of each role, and the prompts that they share.
    samples: [(Role, f64, f64); 3],
}

impl RoundCounts {
    fn new(config: &RunConfig, work: RoundWork, assumed: &Assumptions) -> Self {
        let a = &config.algorithm;
        let targets = match a.batch.size {
            BatchSize::All => work.targets as f64,
            BatchSize::Count(n) => (n.get() as usize).min(work.targets) as f64,
        };
        let conjectured =
            if a.conjecturer.on { targets * assumed.unsolved * a.conjecturer.target_share } else { 0.0 };
        let derived = conjectured * f64::from(a.conjecturer.derived_per_target());
        let made = match a.conjecturer.form {
            ConjectureForm::Attempt => 0.0,
            _ => conjectured * f64::from(a.conjecturer.conjectures_per_target),
        };
        let conjectures = made + derived;
        let accepted = conjectures * assumed.accepted;
        // If conjectures are sampled, nothing rewards parts of rollouts, so these are not reviewed.
        let reviewed = if a.conjecturer.is_sampled() { made } else { conjectures } * assumed.accepted;
        // Most attempts at unsolved targets fail in every turn, so each is assumed to use all of them.
        let rollouts = f64::from(a.rollouts_per_problem * turns(config));
        let generations = rollouts * (targets + accepted);
        let written = if a.conjecturer.is_sampled() { made } else { 0.0 };
        let reviews = if a.has_model_reviews() { reviewed * f64::from(a.guide.samples) } else { 0.0 };
        let samples = [
            (Role::Solver, generations, targets + accepted),
            (Role::Conjecturer, written, written),
            (Role::Guide, reviews, reviewed),
        ];
        Self { made, conjectures, generations, samples }
    }

    /// Counts an evaluation on held-out problems as a round of the Solver alone.
    fn of_evaluation(config: &RunConfig, work: RoundWork) -> Self {
        Self::of_solver(config, work.held_out, config.evaluation.samples)
    }

    /// Counts the base model's samples of targets before the first round.
    fn of_base_model(config: &RunConfig, work: RoundWork) -> Self {
        Self::of_solver(config, work.targets, config.evaluation.target_samples)
    }

    fn of_solver(config: &RunConfig, problems: usize, samples: u32) -> Self {
        let prompts = problems as f64;
        let generations = prompts * f64::from(samples * turns(config));
        let none = |role| (role, 0.0, 0.0);
        let samples = [(Role::Solver, generations, prompts), none(Role::Conjecturer), none(Role::Guide)];
        Self { made: 0.0, conjectures: 0.0, generations, samples }
    }
}

/// Returns by how many ranks a training step's time is divided. A step distributes whole sequences, so it takes as long as
/// the rank with the most sequences.
fn ranks_in_step(config: &RunConfig, ranks: usize) -> f64 {
    let sequences = config.algorithm.optimizer.batch_size as usize;
    sequences as f64 / sequences.div_ceil(ranks) as f64
}

/// Returns the maximum number of turns of an attempt.
fn turns(config: &RunConfig) -> u32 {
    1 + config.algorithm.solver.repair_turns
}

/// Returns the number of rounds whose rollouts an update trains on.
fn rounds_trained_on(config: &RunConfig) -> f64 {
    let solver = &config.algorithm.solver;
    if solver.objective.is_stored() { f64::from(solver.window) } else { 1.0 }
}

/// Returns the number of evaluations: before the first round, after the last and, if weights change, in between.
fn evaluations(config: &RunConfig, rounds: f64) -> f64 {
    match config.evaluation.every {
        _ if !config.weights_of(Role::Solver).is_trained() => 1.0,
        0 => 2.0,
        every => 1.0 + (rounds / f64::from(every)).ceil(),
    }
}

/// Returns the number of proofs that are checked at once.
fn checkers(config: &RunConfig, fleet: Option<&FleetConfig>, hardware: &Hardware) -> usize {
    let of_run = config.lean.as_ref().map(|lean| lean.slots).filter(|slots| *slots > 0);
    // Workers use the run's setting unless they have their own.
    let slots = fleet.and_then(|fleet| fleet.verify.slots).or(of_run);
    match workers_of(fleet, |fleet| &fleet.verify) {
        (0, 0) => of_run.unwrap_or(hardware.cores),
        (0, local) => slots.map_or(hardware.cores, |slots| slots * local),
        (workers, _) => workers * slots.unwrap_or(hardware.cores),
    }
}

/// Everything that the time and the memory of a round depend on, apart from its counts.
struct RoundModel<'a> {
    inputs: MemoryInputs<'a>,
    hardware: &'a Hardware,
    assumed: &'a Assumptions,
    /// Mean length of a statement, in tokens.
    statement: f64,
}

impl RoundModel<'_> {
    /// Returns the length of a prompt of role `i`, in tokens.
    fn prompt(&self, i: usize) -> f64 {
        self.assumed.statements[i] * self.statement + self.assumed.template
    }

    /// Returns the token limit of a role's completions.
    fn token_limit(&self, role: Role) -> f64 {
        self.inputs.config.sampling.tokens(role) as f64
    }

    /// Returns the maximum length of role `i`'s completions, in tokens.
    fn room(&self, i: usize, role: Role) -> f64 {
        let window = self.inputs.config.window(self.inputs.model) as f64;
        self.token_limit(role).min((window - self.prompt(i)).max(1.0))
    }

    /// Returns the mean length of role `i`'s completions, in tokens.
    fn completion(&self, i: usize, role: Role) -> f64 {
        self.assumed.completion[i].min(self.room(i, role))
    }

    /// Returns the work of each role, whose samples `samplers` devices share.
    fn roles(&self, counts: &RoundCounts, samplers: f64) -> Result<[RoleForecast; 3]> {
        let MemoryInputs { config, footprint, .. } = self.inputs;
        let mut roles = [RoleForecast::default(); 3];
        for (i, (role, samples, prompts)) in counts.samples.into_iter().enumerate() {
            // A server's time is not known.
            if samples == 0.0 || !config.samples_itself(role) {
                continue;
            }
            let has_own = role == Role::Guide && config.has_own_guide();
            let model = if has_own { self.inputs.guide } else { self.inputs.model };
            let prompt = self.prompt(i);
            let limit = self.room(i, role);
            let all = sampling::options(config.sampling.batch, config.sampling.memory_mib);
            let (count, memory) = plan_samplers(footprint, model, role, &all, config.window(model))?;
            let length = self.completion(i, role);
            let turns = f64::from(if role == Role::Solver { turns(config) } else { 1 });
            let repairs = samples * (turns - 1.0) / turns;
            let context = prompt + (length * self.assumed.sampled_part).min(limit);
            let room = (count * memory.positions) as f64 / context;
            let mut role = RoleForecast {
                samples,
                tokens: samples * length,
                // Each repair has a prompt with the refused proof.
                prompt_tokens: prompts * prompt + repairs * (prompt + length),
                batch: room.min(config.sampling.batch as f64).max(1.0),
                context,
                device_s: 0.0,
            };
            let longest = limit.min(self.assumed.longest);
            role.device_s =
                Arithmetic::new(model, footprint).seconds(&role, longest, samplers, self.hardware.speed);
            roles[i] = role;
        }
        Ok(roles)
    }

    /// Returns the fraction of the Solver's rollouts that are trained on, the FLOP of training, and the seconds in which
    /// rank 0 scores the rollouts with the reference of the KL penalty.
    fn training(&self, counts: &RoundCounts) -> (f64, f64, f64) {
        let (config, assumed) = (self.inputs.config, self.assumed);
        let a = &config.algorithm;
        let epochs = f64::from(a.optimizer.epochs);
        let is_hard = a.solver.effective_selection() == Selection::Hard;
        let share = if is_hard { assumed.trained_hard } else { assumed.trained_all };
        let trains = [a.is_trained_on(Role::Solver), a.is_trained_on(Role::Conjecturer)];
        let examples = [
            counts.generations * share * rounds_trained_on(config),
            counts.made * assumed.trained_conjectures,
        ];
        let arithmetic = Arithmetic::new(self.inputs.model, self.inputs.footprint);
        let forward = [0, 1].map(|i| {
            let role = [Role::Solver, Role::Conjecturer][i];
            let length = self.prompt(i) + assumed.completion[i].min(self.token_limit(role));
            if trains[i] { examples[i] * arithmetic.forward(length) } else { 0.0 }
        });
        // Forward, backward at twice its cost, and the recomputation of the forward pass.
        let passes = if config.training.mode() == Mode::Train { 3.0 } else { 4.0 } * epochs;
        let is_scored = a.solver.kl_coefficient != 0.0;
        let scoring_s = if is_scored { forward[0] * epochs / self.hardware.speed.prefill } else { 0.0 };
        (share, passes * (forward[0] + forward[1]), scoring_s)
    }

    /// Returns the memory of the coordinator's host, on which this number of checkers runs.
    fn host_memory(
        &self,
        memory: &[Vec<ProcessMemory>],
        sampled_tokens: f64,
        checkers: usize,
    ) -> Vec<MemoryPart> {
        let assumed = self.assumed;
        let mut host: Vec<MemoryPart> = memory.iter().flatten().flat_map(|p| p.host.clone()).collect();
        // Tokens, log-probs and text of the round that samples and of the one that is published.
        let completions = 2.0 * assumed.table_bytes * sampled_tokens;
        host.push(MemoryPart {
            what: "completions of two rounds".to_owned(),
            bytes: completions as u64,
            phase: Phase::Always,
        });
        if checkers > 0 && assumed.checker_bytes > 0 {
            let bytes = assumed.shared_bytes + assumed.checker_bytes * checkers as u64;
            host.push(MemoryPart { what: format!("{checkers} checkers"), bytes, phase: Phase::Always });
        }
        host
    }
}

/// Returns the disk use of a run with this many rounds, each of which writes `table_bytes` of tables.
fn disk_use(inputs: MemoryInputs<'_>, rounds: f64, table_bytes: f64) -> DiskUse {
    let checkpoints = &inputs.config.checkpoints;
    let permanent = match checkpoints.every {
        0 => 0.0,
        every => (rounds / f64::from(every)).floor(),
    };
    let parameters = inputs.model.parameters() as f64;
    let is_bf16 = inputs.footprint.bytes_per_parameter().0 == 2;
    DiskUse {
        base: 2.0
            * (parameters
                + if inputs.config.has_own_guide() { inputs.guide.parameters() as f64 } else { 0.0 }),
        checkpoint: if is_bf16 { 14.0 } else { 12.0 } * parameters * inputs.policies() as f64,
        checkpoints: f64::from(checkpoints.last) + permanent + 1.0,
        tables: rounds * table_bytes,
    }
}

/// Returns the number of rounds until the first limit, if every round has this many generations and takes this long, and
/// the first begins after `begun_s`.
fn rounds_until_a_limit(config: &RunConfig, generations: f64, round_s: f64, begun_s: f64) -> f64 {
    // 0 means no limit. A round that has begun is finished.
    let until = |limit: f64, per_round: f64| match limit > 0.0 && per_round > 0.0 {
        true => (limit / per_round).ceil(),
        false => f64::INFINITY,
    };
    // One round begins even if the evaluation before it takes longer than the limit.
    let seconds = match config.minutes {
        0.0 => 0.0,
        minutes => (60.0 * minutes - begun_s).max(f64::MIN_POSITIVE),
    };
    f64::from(config.rounds).min(until(seconds, round_s)).min(until(config.generations as f64, generations))
}

impl Forecast {
    /// Returns the memory of a device's processes, with what is in use before they start.
    pub fn device_bytes(&self, device: usize, hardware: &Hardware) -> u64 {
        let processes = &self.memory[device];
        let host = if hardware.is_host { sum(&self.host) } else { 0 };
        host + processes.iter().map(|p| p.device_bytes + hardware.reserved_bytes).sum::<u64>()
    }

    /// Returns the device that needs the most memory.
    fn fullest(&self, hardware: &Hardware) -> usize {
        (0..self.memory.len()).rev().max_by_key(|i| self.device_bytes(*i, hardware)).unwrap_or(0)
    }

    /// Returns whether every device of the coordinator's machine has enough memory, and every worker elsewhere, whose
    /// devices are assumed to be equal.
    pub fn fits(&self, hardware: &Hardware) -> bool {
        let remote = self.remote_bytes(hardware).unwrap_or(0);
        self.device_bytes(self.fullest(hardware), hardware).max(remote) <= hardware.device_bytes
    }

    /// Returns the memory of a generation worker on another machine, if there are any.
    fn remote_bytes(&self, hardware: &Hardware) -> Option<u64> {
        self.remote_worker.as_ref().map(|worker| worker.device_bytes + hardware.reserved_bytes)
    }

    /// Formats the times for users. Each line includes the assumptions that it depends on.
    pub fn describe_times(
        &self,
        config: &RunConfig,
        work: RoundWork,
        hardware: &Hardware,
        assumed: &Assumptions,
    ) -> Vec<String> {
        let (f, h, a) = (self, hardware, assumed);
        let found = if h.found { "" } else { ", assumed" };
        let all = config.rounds;
        let noun = if all == 1 { "round" } else { "rounds" };
        let of_all = if f.rounds < all.into() { format!("{} of ", f.rounds) } else { String::new() };
        let conjectures = match f.conjectures > 0.0 {
            true => format!(
                " ({:.0}% unsolved) and of {:.0}% of {:.0} conjectures",
                a.unsolved * 100.0,
                a.accepted * 100.0,
                f.conjectures
            ),
            false => String::new(),
        };
        let repairs = match config.algorithm.solver.repair_turns {
            0 => String::new(),
            turns => format!(" (each of at most {} turns)", turns + 1),
        };
        let targets = match config.algorithm.batch.size {
            BatchSize::All => work.targets,
            BatchSize::Count(n) => work.targets.min(n.get() as usize),
        };
        let elsewhere = match f.remote_worker {
            Some(_) if f.samplers > 0 => format!(" and {} elsewhere", f.samplers),
            _ => String::new(),
        };
        let mut lines = vec![
            format!(
                "On {} x {}{elsewhere}{found}: about {} for {of_all}{all} {noun}, {} per round",
                h.devices,
                h.device,
                time(f.run_s),
                time(f.round_s)
            ),
            format!(
                "  a round   {:.0} generations: {} rollouts{repairs} of {targets} targets{conjectures}",
                f.generations, config.algorithm.rollouts_per_problem
            ),
            format!(
                "  round 0   {:.0} generations, {}: no target is solved yet",
                f.first_round.generations,
                time(f.first_round.round_s)
            ),
            format!("  sampling  {}; devices that sample: {}", time(f.sampling_s), f.samplers),
        ];
        if !f.served.is_empty() {
            let roles: Vec<&str> = f.served.iter().map(|role| role.as_str()).collect();
            lines.push(format!("            not included: {}, sampled by servers", roles.join(", ")));
        }
        for (i, (name, role)) in ["Solver", "Conjecturer", "Guide"].iter().zip(&f.roles).enumerate() {
            if role.samples > 0.0 {
                lines.push(format!(
                    "            {name} {}: {} tokens, {:.0} per completion, at most {:.0} sequences at once",
                    time(role.device_s),
                    count(role.tokens),
                    a.completion[i].min(role.tokens / role.samples),
                    role.batch
                ));
            }
        }
        lines.push(format!(
            "  checking  {} with {} checkers, while sampling: {:.1} CPU hours at {} s per proof",
            time(f.checking_s),
            f.checkers,
            f.checking_cpu_s / 3600.0,
            a.check_s
        ));
        if config.algorithm.trains() {
            let rounds = match rounds_trained_on(config) {
                1.0 => String::new(),
                rounds => format!(" of {rounds} rounds"),
            };
            lines.push(format!(
                "  training  {}; ranks: {}; {}FLOP, with {:.0}% of the rollouts{rounds}",
                time(f.training_s),
                config.training.ranks,
                count(f.training_flop),
                f.trained_share * 100.0
            ));
        }
        if a.host_s > 0.0 {
            lines.push(format!(
                "  host      {}, in which the devices are idle",
                time(f.generations * a.host_s)
            ));
        }
        if f.weights_s > 0.0 {
            lines.push(format!("  weights   {}, until every worker has them", time(f.weights_s)));
        }
        if f.evaluation_s > 0.0 {
            let times = evaluations(config, f.rounds);
            lines.push(format!(
                "  held out  {times:.0} evaluation{} of {}: {} proofs of {} problems",
                if times == 1.0 { "" } else { "s" },
                time(f.evaluation_s),
                config.evaluation.samples,
                work.held_out
            ));
        }
        lines
    }

    /// Formats the memory for users: every part of the fullest device and of the host, and the totals.
    pub fn describe_memory(&self, hardware: &Hardware) -> Vec<String> {
        let h = hardware;
        let fullest = self.fullest(h);
        let total = self.device_bytes(fullest, h);
        let verdict = |bytes| if bytes <= h.device_bytes { "fits into" } else { "DOES NOT FIT into" };
        let found = if h.found { "" } else { " (assumed)" };
        let device = match h.is_host {
            true => "this machine".to_owned(),
            false => format!("{} {fullest}, the fullest of {}", h.device, self.memory.len()),
        };
        let fit = |bytes| format!("{}, {} {}{found}", size(bytes), verdict(bytes), size(h.device_bytes));
        let mut lines = vec![format!("Memory of {device}: {}", fit(total))];
        let mut shown: Option<&ProcessMemory> = None;
        for process in &self.memory[fullest] {
            let own = process.device_bytes + h.reserved_bytes;
            lines.push(format!("  {:>9}  {}", size(own), process.process));
            // Show the first of several equal workers only.
            if shown.is_some_and(|before| before.device == process.device) {
                continue;
            }
            let parts = process.device.iter().filter(|part| part.bytes > 0);
            lines.extend(parts.map(|part| {
                let when = match part.phase {
                    Phase::Sampling if process.in_turns => ", while sampling",
                    Phase::Training if process.in_turns => ", while training",
                    _ => "",
                };
                format!("  {:>9}    {}{when}", size(part.bytes), part.what)
            }));
            if h.reserved_bytes > 0 {
                lines.push(format!("  {:>9}    context and libraries (assumed)", size(h.reserved_bytes)));
            }
            shown = Some(process);
        }
        if let (Some(worker), Some(bytes)) = (&self.remote_worker, self.remote_bytes(h)) {
            lines.push(format!("Memory of a {} elsewhere: {}", worker.process, fit(bytes)));
        }
        let part = if h.is_host { "of which outside the planned buffers" } else { "Memory of the host" };
        lines.push(format!("{part}: {}", size(sum(&self.host))));
        lines.extend(self.host.iter().map(|part| format!("  {:>9}  {}", size(part.bytes), part.what)));
        let disk = &self.disk;
        let checkpoints = match disk.checkpoint > 0.0 {
            true => format!(
                ", {:.0} checkpoints of {} (f32, Adam)",
                disk.checkpoints,
                size(disk.checkpoint as u64)
            ),
            false => String::new(),
        };
        lines.push(format!(
            "Disk: {}: models {}{checkpoints}, tables {}; {}/s written",
            size(disk.total() as u64),
            size(disk.base as u64),
            size(disk.tables as u64),
            // A round's checkpoint is written during the next round.
            size(((disk.checkpoint + disk.tables / self.rounds.max(1.0)) / self.round_s.max(1e-9)) as u64)
        ));
        lines
    }
}

/// Formats a size with decimal units, as in the data sheets of disks and GPUs.
fn size(bytes: u64) -> String {
    let n = bytes as f64;
    match n {
        n if n >= 1e12 => format!("{:.1} TB", n / 1e12),
        n if n >= 1e10 => format!("{:.0} GB", n / 1e9),
        n if n >= 1e9 => format!("{:.1} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.0} MB", n / 1e6),
        n => format!("{:.0} kB", n / 1e3),
    }
}

/// Formats a number with an SI prefix.
fn count(n: f64) -> String {
    let prefixes = [(1e18, " E"), (1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    let found = prefixes.iter().find(|(unit, _)| n >= *unit);
    found.map_or_else(|| format!("{n:.0}"), |(unit, prefix)| format!("{:.1}{prefix}", n / unit))
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.2} s"),
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 36_000.0 => format!("{:.1} h", s / 3600.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layers, resolve};
    use sgs_lm_cuda::{CudaFootprint, Precision};

    const GPU: CudaFootprint = CudaFootprint { precision: Precision::Bf16, processors: 132 };

    fn shape([layers, hidden, heads, intermediate, vocabulary]: [usize; 5]) -> ModelConfig {
        let json = serde_json::json!({
            "model_type": "llama", "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": intermediate,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
            "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        });
        ModelConfig::from_json(json, "a shape").expect("a shape")
    }

    fn config(set: &[&str]) -> RunConfig {
        let set = set.iter().map(|s| (*s).to_owned()).collect();
        resolve(&Layers { set, ..Layers::default() }, std::iter::empty()).expect("a configuration").config
    }

    fn inputs<'a>(
        config: &'a RunConfig,
        model: &'a ModelConfig,
        fleet: Option<&'a FleetConfig>,
    ) -> MemoryInputs<'a> {
        MemoryInputs { config, model, guide: model, fleet, footprint: &GPU, gpu_bytes: None }
    }

    fn hardware() -> Hardware {
        Hardware {
            device: "H200".to_owned(),
            found: false,
            is_host: false,
            devices: 1,
            device_bytes: 139 << 30,
            reserved_bytes: 1 << 30,
            speed: H200,
            cores: 128,
        }
    }

    fn is_close(predicted: f64, measured: f64, tolerance: f64) {
        let ratio = predicted / measured;
        assert!((ratio - 1.0).abs() <= tolerance, "predicted {predicted}, measured {measured}: {ratio:.3}");
    }

    /// The measurements of docs/performance.md on H200s.
    #[test]
    fn predictions_agree_with_recorded_measurements() {
        let seven = shape([30, 4096, 32, 11_008, 102_400]);
        let small = shape([16, 2048, 16, 5504, 32_000]);
        let peak = |model: &ModelConfig, ranks: usize| {
            let (ranks, tokens) = (format!("training.ranks={ranks}"), "training.micro_batch_tokens=8192");
            let config = config(&[&ranks, tokens, "sampling.memory_mib=8192"]);
            let inputs = inputs(&config, model, None);
            let trained =
                ["weights of the solver", "Adam's state of the solver", "gradients", "activations", "logits"];
            let parts = inputs.rank(0).expect("a plan").device;
            let is_trained = |part: &&MemoryPart| trained.iter().any(|name| part.what.starts_with(name));
            parts.iter().filter(is_trained).map(|part| part.bytes as f64).sum::<f64>() / f64::from(1 << 30)
        };
        // "Several GPUs": GiB per rank.
        for (model, ranks, measured) in
            [(&seven, 1, 129.4), (&seven, 2, 89.0), (&small, 1, 21.7), (&small, 2, 16.4)]
        {
            is_close(peak(model, ranks), measured, 0.01);
        }

        let config = config(&[]);
        let inputs = inputs(&config, &seven, None);
        let arithmetic = Arithmetic::new(inputs.model, inputs.footprint);
        // 128 steps of `batch` sequences with prompts of this length.
        let steps = |batch: f64, prompt: f64| RoleForecast {
            samples: batch,
            tokens: 128.0 * batch,
            batch,
            context: prompt + 64.0,
            ..RoleForecast::default()
        };
        // "Sampling": milliseconds per step, prompts of 256 tokens, 128 new tokens.
        for (batch, measured) in [(64.0, 6.72), (256.0, 15.9)] {
            is_close(arithmetic.seconds(&steps(batch, 256.0), 0.0, 1.0, H200) / 128.0 * 1e3, measured, 0.05);
        }
        // Measured on an H100.
        for (depth, batch, prompt, measured) in [(30, 64.0, 740.0, 14.9), (5, 1.0, 8000.0, 1.70)] {
            let model = shape([depth, 4096, 32, 11_008, 102_400]);
            let arithmetic = Arithmetic::new(&model, inputs.footprint);
            is_close(arithmetic.seconds(&steps(batch, prompt), 0.0, 1.0, H100) / 128.0 * 1e3, measured, 0.1);
        }
        // Measured on an H200: 2,000 requests with 22.0 s x 9,688 tokens/s, prompts of 136 tokens in the mean.
        let (samples, prompt) = (2000.0, 136.0);
        let tokens = 22.0 * 9688.0;
        let (prompt_tokens, context) = (prompt * samples, prompt + tokens / samples / 2.0);
        let role = RoleForecast { samples, tokens, prompt_tokens, batch: 256.0, context, device_s: 0.0 };
        is_close(arithmetic.seconds(&role, 768.0, 1.0, H200), 22.0, 0.1);
        // "Several GPUs": tokens/s of training steps, by number of GPUs and length of the sequences.
        for (gpus, length, measured) in [
            (1.0, 2048.0, 13_448.0),
            (1.0, 8192.0, 11_778.0),
            (2.0, 2048.0, 25_615.0),
            (2.0, 8192.0, 22_395.0),
        ] {
            is_close(gpus * H200.training * length / (3.0 * arithmetic.forward(length)), measured, 0.1);
        }
    }

    #[test]
    fn workers_check_with_their_own_slots_or_those_of_the_run() {
        let hardware = Hardware { devices: 8, ..hardware() };
        let of = |set: &[&str], workers: &str| {
            let config = config(&[&["problems.system=lean"], set].concat());
            let fleet = (!workers.is_empty()).then(|| FleetConfig::parse(workers).expect("workers"));
            checkers(&config, fleet.as_ref(), &hardware)
        };
        let slots = &["lean.slots=30"][..];
        assert_eq!([of(&[], ""), of(slots, ""), of(slots, "local:generate=8,slots=5")], [128, 30, 30]);
        assert_eq!([of(&[], "local:verify=2"), of(slots, "local:verify=2")], [128, 60]);
        assert_eq!([of(slots, "slurm:verify=2,slots=5"), of(&[], "slurm:verify=2")], [10, 256]);
    }

    #[test]
    fn assumptions_can_be_replaced() {
        let mut assumed = LEAN;
        for name in Assumptions::NAMES {
            { LEAN }.replace(&format!("{name}=0.5")).expect("an assumption");
        }
        for assumption in ["completion=400", "check_s=0.5", "accepted=0"] {
            assumed.replace(assumption).expect("an assumption");
        }
        assert_eq!(assumed, Assumptions { completion: [400.0; 3], check_s: 0.5, accepted: 0.0, ..LEAN });
        for wrong in
            ["accepted=1.5", "accepted=nan", "check_s=-1", "check_s", "check_s=", "checker_bytes=1", ""]
        {
            assert!(assumed.replace(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn steps_evaluations_and_repairs_are_counted() {
        let of = |set: &[&str]| config(set);
        let batch = of(&["algorithm.optimizer.batch_size=32"]);
        for (ranks, shared) in [(1, 1.0), (3, 32.0 / 11.0), (8, 8.0), (64, 32.0)] {
            assert!((ranks_in_step(&batch, ranks) - shared).abs() < 1e-9, "{ranks} ranks");
        }
        for (every, rounds, count) in [(0, 200.0, 2.0), (20, 200.0, 11.0), (20, 41.0, 4.0), (10, 1.0, 2.0)] {
            assert_eq!(evaluations(&of(&[&format!("evaluation.every={every}")]), rounds), count);
        }
        assert_eq!(evaluations(&of(&["algorithm.solver.train=false"]), 200.0), 1.0);
        let work = RoundWork { targets: 100, held_out: 50, characters: 200.0 };
        let generations = |set: &[&str]| RoundCounts::new(&of(set), work, &METAMATH).generations;
        assert!((generations(&["algorithm.solver.repair_turns=2"]) / generations(&[]) - 3.0).abs() < 1e-9);
        let evaluation = RoundCounts::of_evaluation(&of(&["evaluation.samples=4"]), work);
        assert_eq!((evaluation.generations, evaluation.samples[0].2), (200.0, 50.0));
    }

    /// docs/lean.md: 64 rounds in 23 minutes on two cores.
    #[test]
    fn a_round_of_core_lean_agrees_with_the_recorded_run() {
        let layers = Layers { size: Some("lean-core".to_owned()), ..Layers::default() };
        let config = resolve(&layers, std::iter::empty()).expect("a configuration").config;
        let assumed = Assumptions::of(&config);
        assert_eq!(assumed, LEAN_CORE);
        let counts =
            RoundCounts::new(&config, RoundWork { targets: 160, held_out: 50, characters: 80.0 }, &assumed);
        // Checking takes longer than sampling.
        is_close(counts.generations * assumed.check_s / 2.0, 23.0 * 60.0 / 64.0, 0.2);
    }

    #[test]
    fn parts_of_rollouts_are_reviewed_only_if_nothing_else_is() {
        let counts = |set: &[&str]| {
            let config = config(set);
            RoundCounts::new(&config, RoundWork { targets: 100, held_out: 0, characters: 200.0 }, &METAMATH)
        };
        let form = |name: &str| format!("algorithm.conjecturer.form={name}");
        let parts = "algorithm.conjecturer.attempts_per_target=6";
        for (set, share) in [
            (&[form("statement"), "seed=1".to_owned()], 1.0),
            (&[form("proof"), parts.to_owned()], 1.0 / 7.0),
            (&[form("attempt"), "algorithm.conjecturer.conjectures_per_target=6".to_owned()], 1.0),
        ] {
            let counts = counts(&[&set[0], &set[1]]);
            let of_solver = counts.samples[0].2 - 100.0;
            let (reviewed, of_guide) = (counts.samples[2].2, counts.samples[2].1);
            assert!(of_solver > 0.0, "{set:?}");
            assert!((reviewed / of_solver - share).abs() < 1e-9 && of_guide >= reviewed, "{set:?}");
        }
    }

    #[test]
    fn workers_wait_for_new_weights_and_ranks_do_not() {
        let model = shape([30, 4096, 32, 11_008, 102_400]);
        let seconds = |set: &[&str], workers: Option<&str>| {
            let config = config(set);
            let fleet = workers.map(|spec| FleetConfig::parse(spec).expect("workers"));
            weights_s(inputs(&config, &model, fleet.as_ref()), H200)
        };
        assert_eq!([seconds(&[], None), seconds(&[], Some("local:verify=2"))], [0.0, 0.0]);
        // Two policies of 13.8 GB are written and read.
        is_close(seconds(&[], Some("slurm:generate=64")), 4.0 * 13.8e9 / 2.1e9, 0.01);
        let (url, solver) =
            ("sampling.endpoint.url=http://server:8000", "sampling.endpoint.roles=[\"solver\"]");
        let served = [url, solver, "sampling.endpoint.refresh=vllm", "sampling.endpoint.folder=/weights"];
        is_close(seconds(&served, Some("slurm:generate=64")), 2.0 * 13.8e9 / 2.1e9, 0.01);
        let tied = "algorithm.tied_weights=true";
        is_close(seconds(&[tied], Some("local:generate=2")), 2.0 * 13.8e9 / 2.1e9, 0.01);
    }

    #[test]
    fn a_run_ends_at_the_first_of_its_limits() {
        let rounds = |set: &[&str]| {
            let set = [&["rounds=100", "minutes=0"], set].concat();
            rounds_until_a_limit(&config(&set), 1000.0, 4.0, 0.0)
        };
        assert_eq!(rounds(&[]), 100.0);
        assert_eq!(rounds(&["minutes=2.01"]), 31.0);
        assert_eq!(rounds(&["minutes=2.01", "generations=30000"]), 30.0);
        assert_eq!(rounds(&["minutes=60", "generations=1000000"]), 100.0);
    }

    #[test]
    fn workers_servers_and_a_separate_guide_count() {
        let model = shape([30, 4096, 32, 11_008, 102_400]);
        let weights = |set: &[&str], workers: Option<&str>| {
            let config = config(set);
            let fleet = workers.map(|spec| FleetConfig::parse(spec).expect("workers"));
            let fleet = fleet.as_ref();
            let inputs = inputs(&config, &model, fleet);
            let plan = inputs.machine(1).expect("a plan");
            let parts = plan[0].iter().flat_map(|process| &process.device);
            parts.filter(|part| part.what.starts_with("weights")).count()
        };
        let large = "sampling.memory_mib=8192";
        let guide = "algorithm.guide.kind=model";
        // Solver, Conjecturer and the base model, which is the Guide.
        assert_eq!(weights(&[large, guide], None), 3);
        // A separate Guide replaces the base model, unless a KL penalty needs that.
        let separate = "model.guide=elsewhere";
        assert_eq!(weights(&[large, guide, separate], None), 3);
        assert_eq!(weights(&[large, guide, separate, "algorithm.solver.kl_coefficient=0.1"], None), 4);
        // Seven workers on one GPU hold three models each, in addition to those that the rank trains.
        assert_eq!(weights(&[large, guide], Some("local:generate=7")), 2 + 7 * 3);
        let kl = "algorithm.solver.kl_coefficient=0.1";
        assert_eq!(weights(&[large, guide, kl], Some("local:generate=7")), 3 + 7 * 3);
        assert_eq!(weights(&["training.ranks=2", large, guide], None), 6);
        // A worker holds only the models of the roles that it samples.
        let alone = ["algorithm.conjecturer.on=false", "algorithm.guide.on=false", large];
        assert_eq!(weights(&alone, Some("local:generate=1")), 1 + 1);
    }

    #[test]
    fn roles_that_servers_play_have_no_samplers() {
        let model = shape([30, 4096, 32, 11_008, 102_400]);
        let caches = |set: &[&str], workers: Option<&str>| {
            let config = config(&[&["sampling.memory_mib=8192", "algorithm.guide.kind=model"], set].concat());
            let fleet = workers.map(|spec| FleetConfig::parse(spec).expect("workers"));
            let inputs = inputs(&config, &model, fleet.as_ref());
            let plan = inputs.machine(1).expect("a plan");
            let parts = plan[0].iter().flat_map(|process| &process.device);
            let caches = parts.filter_map(|part| part.what.strip_prefix("cache of the "));
            let roles: Vec<String> = caches.map(|what| what.split(',').next().unwrap_or("").into()).collect();
            let hardware = hardware();
            let work = RoundWork { targets: 100, held_out: 0, characters: 200.0 };
            let forecast = forecast(inputs, work, &hardware, &LEAN).expect("a forecast");
            assert!(forecast.disk.tables > 1e6, "the tables contain the servers' completions");
            (roles.join(" "), forecast.samplers, forecast.served.len(), forecast.sampling_s > 0.0)
        };
        assert_eq!(caches(&[], None), ("conjecturer guide solver".to_owned(), 1, 0, true));
        let (url, vllm) = ("sampling.endpoint.url=http://server:8000", "sampling.endpoint.refresh=vllm");
        let folder = "sampling.endpoint.folder=/weights";
        let two = "sampling.endpoint.roles=[\"solver\", \"conjecturer\"]";
        for (workers, ranks) in [(None, 1), (Some("local:generate=1"), 1)] {
            let set = [url, vllm, folder, two, "algorithm.tied_weights=true"];
            assert_eq!(caches(&set, workers), ("guide".to_owned(), ranks, 2, true), "{workers:?}");
        }
        let guide = ["sampling.endpoint.roles=[\"guide\"]", url];
        assert_eq!(caches(&guide, None), ("conjecturer solver".to_owned(), 1, 1, true));
        let alone = ["algorithm.conjecturer.on=false", "algorithm.guide.on=false"];
        let set = [alone[0], alone[1], url, vllm, folder, "sampling.endpoint.roles=[\"solver\"]"];
        assert_eq!(caches(&set, None), (String::new(), 0, 1, false));
        // Without conjectures, the Solver alone needs a cache, even with tied weights.
        let tied = [alone[0], alone[1], "algorithm.tied_weights=true"];
        assert_eq!(caches(&tied, None), ("solver".to_owned(), 1, 0, true));
    }
}
