//! What a run takes on given hardware, derived from its configuration: time, memory, disk.
//!
//! Arithmetic on stated assumptions, not a measurement: every number that the configuration does not give stands in
//! [`Assumptions`] or [`Hardware`] and is printed with the result.

use super::config::RunConfig;
use crate::machine::bytes;
use serde::Serialize;
use sgs_lm::ModelConfig;
use sgs_selfplay::config::{BatchSize, GuideKind, Selection};

/// A node that a run is forecast for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hardware {
    /// Name of one GPU.
    pub gpu: &'static str,
    pub gpus: u32,
    /// Memory of one GPU, bytes.
    pub gpu_bytes: f64,
    /// Memory bandwidth of one GPU that kernels reach, bytes a second.
    pub bandwidth: f64,
    /// Dense bf16 peak of one GPU, FLOP a second.
    pub flops: f64,
    /// Cores that check proofs, one proof each.
    pub cores: u32,
}

/// One node with 8 H200: 141 GB, 4.3 of 4.8 TB/s, 989 TFLOP/s dense bf16 each; 128 cores for Lean.
pub const EIGHT_H200: Hardware =
    Hardware { gpu: "H200", gpus: 8, gpu_bytes: 141e9, bandwidth: 4.3e12, flops: 989e12, cores: 128 };

/// What the configuration does not say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// Mean tokens of a completion (the paper: more than 6 billion tokens over 6.3 million generations).
    pub completion: f64,
    /// Characters of Lean in a token.
    pub characters: f64,
    /// Share of the targets that are not solved yet, over the run (the paper: about 40,000 generations a round).
    pub unsolved: f64,
    /// Share of the Solver's rollouts that train it, where only proofs of hard problems do.
    pub trained_hard: f64,
    /// The same for objectives that take every proof.
    pub trained_all: f64,
    /// Share of the time of the memory's floor that a decoding step reaches.
    pub decoding: f64,
    /// Share of the peak that training and prompts reach (model FLOP utilisation).
    pub utilisation: f64,
    /// CPU seconds of checking a proof (published mean of Lean workbook proofs: 3.3).
    pub check_seconds: f64,
    /// Bytes of tables for one sampled token (measured on runs of the embedded system: 15 to 17).
    pub table_bytes: f64,
    /// Memory of a Lean process that is its own, bytes; 6 GB more are shared by all.
    pub slot_bytes: f64,
}

/// The assumptions that forecasts are made with.
pub const ASSUMED: Assumptions = Assumptions {
    completion: 950.0,
    characters: 2.5,
    unsolved: 0.45,
    trained_hard: 0.05,
    trained_all: 0.35,
    decoding: 0.5,
    utilisation: 0.4,
    check_seconds: 3.0,
    table_bytes: 16.0,
    slot_bytes: 1e9,
};

/// What the data set asks for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    pub targets: usize,
    /// Mean characters of a target with its header.
    pub characters: f64,
}

/// A forecast. Times are seconds, sizes bytes; those of a round are means over the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Rollouts of the Solver in a round, of which the last factor is `k`.
    pub generations: f64,
    /// Conjectures of a round.
    pub conjectures: f64,
    /// Tokens sampled in a round, all roles.
    pub sampled_tokens: f64,
    /// Tokens of prompts in a round, a prompt that rollouts share counted once.
    pub prompt_tokens: f64,
    /// Sequences that a GPU decodes at once.
    pub batch: f64,
    /// Tokens that a GPU decodes in a second.
    pub decoded_per_s: f64,
    /// Sampling a round: decoding and prompts.
    pub sampling_s: f64,
    /// CPU time of checking a round's proofs.
    pub checking_cpu_s: f64,
    /// Checking a round's proofs on all cores; goes on while sampling does.
    pub checking_s: f64,
    /// Share of the Solver's rollouts that train it.
    pub trained_share: f64,
    /// FLOP of training in a round.
    pub training_flop: f64,
    /// Training in a round.
    pub training_s: f64,
    /// A round: the longer of sampling and checking, then training.
    pub round_s: f64,
    /// All rounds.
    pub run_s: f64,
    pub gpu: GpuMemory,
    /// Memory of the machine for Lean.
    pub host_bytes: f64,
    pub disk: Disk,
}

/// Memory of one GPU, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GpuMemory {
    /// bf16 weights of all roles.
    pub weights: f64,
    /// f32 gradients, and of every policy that trains Adam's moments and what its weights lack of their f32 masters;
    /// sharded over the ranks.
    pub optimiser: f64,
    /// Buffers and key/value cache, as configured, for all roles.
    pub sampling: f64,
    /// Tokens that the key/value cache of one role then holds.
    pub cache_tokens: f64,
}

impl GpuMemory {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.weights + self.optimiser + self.sampling
    }
}

/// Disk space, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Disk {
    pub base: f64,
    /// One checkpoint: f32 weights and Adam's moments of every policy that trains.
    pub checkpoint: f64,
    /// Checkpoints at the same time: those that stay and the one being written.
    pub checkpoints: f64,
    /// Tables of all rounds.
    pub tables: f64,
}

impl Disk {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.base + self.checkpoint * self.checkpoints + self.tables
    }
}

/// Derives the forecast.
pub fn forecast(
    config: &RunConfig,
    model: &ModelConfig,
    work: Work,
    hardware: Hardware,
    assumed: Assumptions,
) -> Forecast {
    let a = &config.algorithm;
    let k = f64::from(a.rollouts_per_problem);
    let targets = match a.batch.size {
        BatchSize::All => work.targets as f64,
        BatchSize::Count(n) => (n.get() as usize).min(work.targets) as f64,
    };
    let conjectures = if a.conjecturer.on {
        let each = f64::from(a.conjecturer.conjectures_per_target);
        targets * assumed.unsolved * a.conjecturer.target_share * each
    } else {
        0.0
    };
    let by_model = a.guide.on && a.guide.kind != GuideKind::Rubric;
    let reviews = if by_model { conjectures * f64::from(a.guide.samples) } else { 0.0 };
    let generations = k * (targets + conjectures);
    // A prompt is the statement in its frame; rollouts of one problem share it. The Guide reads two statements and
    // its rubric, about three times as much.
    let prompt = work.characters / assumed.characters;
    let window = config.window(model) as f64;
    let length =
        |limit: usize, prompt: f64| assumed.completion.min(limit as f64).min((window - prompt).max(1.0));
    let solver = length(config.sampling.solver_tokens, prompt);
    let sampled_tokens = generations * solver
        + conjectures * length(config.sampling.conjecturer_tokens, 2.0 * prompt)
        + reviews * length(config.sampling.guide_tokens, 3.0 * prompt);
    let prompt_tokens = prompt * (targets + 2.0 * conjectures + 3.0 * reviews);

    let parameters = model.parameters() as f64;
    let embedding = (model.vocab_size * model.hidden_size) as f64;
    let read = 2.0 * (parameters - if model.tied_head { 0.0 } else { embedding });
    let per_token = (2 * 2 * model.layers * model.kv_dim()) as f64;
    let cache_tokens = config.sampling.memory_mib as f64 * f64::from(1u32 << 20) / per_token;
    let mean_length = prompt + solver / 2.0;
    let batch = (cache_tokens / mean_length).min(config.sampling.batch as f64).max(1.0);
    let floor = (read + batch * mean_length * per_token) / hardware.bandwidth;
    let decoded_per_s = batch / floor * assumed.decoding;
    let gpus = f64::from(hardware.gpus);
    let reached = gpus * hardware.flops * assumed.utilisation;
    let sampling_s = sampled_tokens / (decoded_per_s * gpus) + 2.0 * parameters * prompt_tokens / reached;

    let checking_cpu_s = generations * assumed.check_seconds;
    let checking_s = checking_cpu_s / f64::from(hardware.cores);

    let share = if a.solver.effective_selection() == Selection::Hard {
        assumed.trained_hard
    } else {
        assumed.trained_all
    };
    let trains_conjecturer = a.conjecturer.on && !a.conjecturer.frozen;
    let mut trained = if a.solver.train { generations * share } else { 0.0 };
    if trains_conjecturer {
        trained += conjectures;
    }
    // 6 FLOP a parameter and token, and 2 more for computing the layers a second time.
    let training_flop =
        8.0 * (parameters - embedding) * trained * (prompt + solver) * f64::from(a.optimizer.epochs);
    let training_s =
        training_flop / (f64::from(trainers(config, hardware)) * hardware.flops * assumed.utilisation);

    let policies =
        f64::from(u8::from(a.solver.train)) + f64::from(u8::from(trains_conjecturer && !a.tied_weights));
    let round_s = sampling_s.max(checking_s) + training_s;
    let rounds = f64::from(config.rounds);
    let kept = f64::from(config.checkpoints.last)
        + config.rounds.checked_div(config.checkpoints.every).map_or(0.0, f64::from);
    Forecast {
        generations,
        conjectures,
        sampled_tokens,
        prompt_tokens,
        batch,
        decoded_per_s,
        sampling_s,
        checking_cpu_s,
        checking_s,
        trained_share: share,
        training_flop,
        training_s,
        round_s,
        run_s: round_s * rounds,
        gpu: GpuMemory {
            weights: 2.0 * parameters * (policies + 1.0),
            optimiser: (4.0 + 10.0 * policies) * parameters / f64::from(trainers(config, hardware)),
            sampling: 3.0 * config.sampling.memory_mib as f64 * f64::from(1u32 << 20),
            cache_tokens,
        },
        host_bytes: 6e9 + assumed.slot_bytes * f64::from(hardware.cores),
        disk: Disk {
            base: 2.0 * parameters,
            checkpoint: 12.0 * parameters * policies,
            checkpoints: kept + 1.0,
            tables: sampled_tokens * rounds * assumed.table_bytes,
        },
    }
}

/// GPUs that train.
fn trainers(config: &RunConfig, hardware: Hardware) -> u32 {
    u32::try_from(config.training.ranks).unwrap_or(u32::MAX).min(hardware.gpus)
}

impl Forecast {
    /// The forecast for people, each line with what it rests on.
    pub fn describe(
        &self,
        config: &RunConfig,
        work: Work,
        hardware: Hardware,
        assumed: Assumptions,
    ) -> String {
        let (f, h, a) = (self, hardware, assumed);
        let s = &config.sampling;
        let fits = if f.gpu.total() < h.gpu_bytes * 0.95 {
            format!("fits into {}", size(h.gpu_bytes))
        } else {
            format!("DOES NOT FIT into {}: lower sampling.memory_mib", size(h.gpu_bytes))
        };
        [
            format!(
                "On {} {}: about {} for {} rounds, {} a round",
                h.gpus,
                h.gpu,
                time(f.run_s),
                config.rounds,
                time(f.round_s)
            ),
            format!(
                "  a round   {:.0} generations: {} rollouts of {} targets and {:.0} conjectures ({:.0} % unsolved)",
                f.generations,
                config.algorithm.rollouts_per_problem,
                work.targets,
                f.conjectures,
                a.unsolved * 100.0
            ),
            format!(
                "  sampling  {}: {:.1} M tokens ({:.0} a completion, at most {}) at {:.0} a second and GPU:",
                time(f.sampling_s),
                f.sampled_tokens / 1e6,
                a.completion,
                s.solver_tokens,
                f.decoded_per_s
            ),
            format!(
                "            {:.0} sequences at once, {:.0} % of what reading weights and cache at {:.1} TB/s allows",
                f.batch,
                a.decoding * 100.0,
                h.bandwidth / 1e12
            ),
            format!(
                "  checking  {} on {} cores, while sampling: {:.0} CPU hours at {} s a proof",
                time(f.checking_s),
                h.cores,
                f.checking_cpu_s / 3600.0,
                a.check_seconds
            ),
            format!(
                "  training  {}: {:.2} EFLOP, 8 a parameter and token (layers computed twice), at {:.0} % of",
                time(f.training_s),
                f.training_flop / 1e18,
                a.utilisation * 100.0
            ),
            format!(
                "            {:.0} TFLOP/s a GPU; {:.0} % of the rollouts and every conjecture train",
                h.flops / 1e12,
                f.trained_share * 100.0
            ),
            format!(
                "  a GPU     {}: weights {}, gradients and Adam over {} GPUs {}, cache and buffers",
                size(f.gpu.total()),
                size(f.gpu.weights),
                trainers(config, h),
                size(f.gpu.optimiser)
            ),
            format!(
                "            3 x {} ({:.0} k tokens a role); {fits}",
                bytes(s.memory_mib.saturating_mul(1 << 20)),
                f.gpu.cache_tokens / 1e3
            ),
            format!("  memory    {} for Lean: 6 GB shared, {} a core", size(f.host_bytes), size(a.slot_bytes)),
            format!(
                "  disk      {}: model {}, {:.0} checkpoints of {} (f32, Adam), tables {} ({:.0} bytes a token)",
                size(f.disk.total()),
                size(f.disk.base),
                f.disk.checkpoints,
                size(f.disk.checkpoint),
                size(f.disk.tables),
                a.table_bytes
            ),
        ]
        .join("\n")
    }
}

/// Decimal sizes, as disks and GPUs are sold.
fn size(n: f64) -> String {
    if n >= 1e12 { format!("{:.1} TB", n / 1e12) } else { format!("{:.0} GB", n / 1e9) }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}
