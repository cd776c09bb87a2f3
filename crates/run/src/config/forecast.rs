//! Estimates the time, memory and disk space of a run on given hardware from its configuration.
//!
//! The estimate is calculated, not measured. All numbers that are not in the configuration are in [`Assumptions`] or
//! [`HardwareSpec`] and are printed with the result.

use crate::config::RunConfig;
use crate::config::machine::bytes;
use serde::Serialize;
use sgs_lm::ModelConfig;
use sgs_selfplay::config::{BatchSize, Selection};

/// The hardware of a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HardwareSpec {
    /// Name of one GPU.
    pub gpu: &'static str,
    pub gpus: u32,
    /// Memory of one GPU, in bytes.
    pub gpu_bytes: f64,
    /// Achievable memory bandwidth of one GPU, in bytes per second.
    pub bandwidth: f64,
    /// Peak dense bf16 performance of one GPU, in FLOP/s.
    pub flops: f64,
    /// Number of CPU cores that check proofs, one proof per core.
    pub cores: u32,
}

/// A node with 8 H200 GPUs, each with 141 GB, 4.3 of 4.8 TB/s and 989 TFLOP/s dense bf16, and with 128 cores for Lean.
pub const EIGHT_H200: HardwareSpec =
    HardwareSpec { gpu: "H200", gpus: 8, gpu_bytes: 141e9, bandwidth: 4.3e12, flops: 989e12, cores: 128 };

/// Quantities that the configuration does not give.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Assumptions {
    /// Mean completion length, in tokens (paper: more than 6 billion tokens in 6.3 million generations).
    pub completion: f64,
    /// Characters of Lean text per token.
    pub characters: f64,
    /// Mean fraction of unsolved targets over the run (paper: about 40,000 generations per round).
    pub unsolved: f64,
    /// Fraction of the Solver's rollouts used for training if only proofs of hard problems are used.
    pub trained_hard: f64,
    /// Fraction of the Solver's rollouts used for training if all proofs are used.
    pub trained_all: f64,
    /// Decoding speed as a fraction of the limit set by memory bandwidth.
    pub decoding: f64,
    /// Model FLOP utilisation of training and prefill.
    pub utilisation: f64,
    /// CPU time for checking one proof, in seconds (published mean for Lean Workbook proofs: 3.3).
    pub check_seconds: f64,
    /// Bytes of table data per sampled token (measured in Metamath runs: 15 to 17).
    pub table_bytes: f64,
    /// Private memory of one Lean process, in bytes. All processes share another 6 GB.
    pub slot_bytes: f64,
}

/// The default assumptions.
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

/// The size of the problem set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoundWork {
    pub targets: usize,
    /// Mean length of a target with its header, in characters.
    pub characters: f64,
}

/// A forecast of a run. Times are in seconds, sizes in bytes. Values per round are means over the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Solver rollouts per round: `k` for each target and each conjecture.
    pub generations: f64,
    /// Conjectures per round.
    pub conjectures: f64,
    /// Sampled tokens per round, over all roles.
    pub sampled_tokens: f64,
    /// Prompt tokens per round. A prompt shared by several rollouts counts once.
    pub prompt_tokens: f64,
    /// Number of sequences that a GPU decodes at once.
    pub batch: f64,
    /// Decoded tokens per second and GPU.
    pub decoded_per_s: f64,
    /// Sampling time per round: prefill and decoding.
    pub sampling_s: f64,
    /// CPU time for checking proofs, per round.
    pub checking_cpu_s: f64,
    /// Wall time for checking proofs on all cores, per round. Checking overlaps with sampling.
    pub checking_s: f64,
    /// Fraction of the Solver's rollouts used for training.
    pub trained_share: f64,
    /// Training FLOP per round.
    pub training_flop: f64,
    /// Training time per round.
    pub training_s: f64,
    /// Time per round: the longer of sampling and checking, plus training.
    pub round_s: f64,
    /// Time of all rounds.
    pub run_s: f64,
    pub gpu: GpuMemory,
    /// Host memory for Lean.
    pub host_bytes: f64,
    pub disk: DiskUse,
}

/// Memory use of one GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GpuMemory {
    /// The bf16 weights of all roles.
    pub weights: f64,
    /// The f32 gradients, plus Adam's moments and the low-order bits of the f32 master weights of each trained policy,
    /// sharded over the ranks.
    pub optimiser: f64,
    /// Buffers and KV cache of all roles, as configured.
    pub sampling: f64,
    /// Capacity of one role's KV cache, in tokens.
    pub cache_tokens: f64,
}

impl GpuMemory {
    /// Returns the sum.
    pub fn total(&self) -> f64 {
        self.weights + self.optimiser + self.sampling
    }
}

/// Disk use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DiskUse {
    pub base: f64,
    /// One checkpoint: the f32 weights and Adam's moments of each trained policy.
    pub checkpoint: f64,
    /// Number of checkpoints that exist at once: those kept and the one being written.
    pub checkpoints: f64,
    /// The tables of all rounds.
    pub tables: f64,
}

impl DiskUse {
    /// Returns the sum.
    pub fn total(&self) -> f64 {
        self.base + self.checkpoint * self.checkpoints + self.tables
    }
}

/// Derives the forecast.
pub fn forecast(
    config: &RunConfig,
    model: &ModelConfig,
    work: RoundWork,
    hardware: HardwareSpec,
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
    let sampled_conjectures = if a.conjecturer.is_sampled() { conjectures } else { 0.0 };
    let reviews = if a.has_model_reviews() { conjectures * f64::from(a.guide.samples) } else { 0.0 };
    let generations = k * (targets + conjectures);
    // The prompt of a problem is its statement in a template; all its rollouts share it. A Guide prompt has two
    // statements and the rubric, about three times the length.
    let prompt = work.characters / assumed.characters;
    let window = config.window(model) as f64;
    let length =
        |limit: usize, prompt: f64| assumed.completion.min(limit as f64).min((window - prompt).max(1.0));
    let solver = length(config.sampling.solver_tokens, prompt);
    let sampled_tokens = generations * solver
        + sampled_conjectures * length(config.sampling.conjecturer_tokens, 2.0 * prompt)
        + reviews * length(config.sampling.guide_tokens, 3.0 * prompt);
    let prompt_tokens = prompt * (targets + conjectures + sampled_conjectures + 3.0 * reviews);

    let parameters = model.parameters() as f64;
    let embedding = (model.vocab_size * model.hidden_size) as f64;
    let read = 2.0 * (parameters - if model.tied_head { 0.0 } else { embedding });
    let per_token = (2 * 2 * model.layers * model.kv_dim()) as f64;
    let cache_tokens = config.sampling.memory_mib as f64 * f64::from(1u32 << 20) / per_token;
    let mean_length = prompt + solver / 2.0;
    let batch = (cache_tokens / mean_length).min(config.sampling.batch as f64).max(1.0);
    let floor = (read + batch * mean_length * per_token) / hardware.bandwidth;
    let decoded_per_s = batch / floor * assumed.decoding;
    // Every rank samples with its GPU, and then trains with it.
    let gpus = f64::from(ranks(config, hardware));
    let reached = gpus * hardware.flops * assumed.utilisation;
    let sampling_s = sampled_tokens / (decoded_per_s * gpus) + 2.0 * parameters * prompt_tokens / reached;

    let checking_cpu_s = generations * assumed.check_seconds;
    let checking_s = checking_cpu_s / f64::from(hardware.cores);

    let share = if a.solver.effective_selection() == Selection::Hard {
        assumed.trained_hard
    } else {
        assumed.trained_all
    };
    let trains_conjecturer = a.conjecturer.is_trained();
    let mut trained = if a.solver.train { generations * share } else { 0.0 };
    if trains_conjecturer {
        trained += conjectures;
    }
    // 6 FLOP per parameter and token, plus 2 for recomputing the layers in the backward pass.
    let training_flop =
        8.0 * (parameters - embedding) * trained * (prompt + solver) * f64::from(a.optimizer.epochs);
    let training_s = training_flop / reached;

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
            optimiser: (4.0 + 10.0 * policies) * parameters / gpus,
            sampling: 3.0 * config.sampling.memory_mib as f64 * f64::from(1u32 << 20),
            cache_tokens,
        },
        host_bytes: 6e9 + assumed.slot_bytes * f64::from(hardware.cores),
        disk: DiskUse {
            base: 2.0 * parameters,
            checkpoint: 12.0 * parameters * policies,
            checkpoints: kept + 1.0,
            tables: sampled_tokens * rounds * assumed.table_bytes,
        },
    }
}

/// Returns the number of GPUs that the run uses: one for each rank.
fn ranks(config: &RunConfig, hardware: HardwareSpec) -> u32 {
    u32::try_from(config.training.ranks).unwrap_or(u32::MAX).min(hardware.gpus)
}

impl Forecast {
    /// Formats the forecast for users. Each line includes the assumptions that it depends on.
    pub fn describe(
        &self,
        config: &RunConfig,
        work: RoundWork,
        hardware: HardwareSpec,
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
                "On {} {}: about {} for {} rounds, {} per round",
                h.gpus,
                h.gpu,
                time(f.run_s),
                config.rounds,
                time(f.round_s)
            ),
            format!(
                "  a round   {:.0} generations: {} rollouts of {} targets and {:.0} conjectures ({:.0}% unsolved)",
                f.generations,
                config.algorithm.rollouts_per_problem,
                work.targets,
                f.conjectures,
                a.unsolved * 100.0
            ),
            format!(
                "  sampling  {} on {} GPUs: {:.1} M tokens ({:.0} per completion, at most {}) at {:.0}/s per GPU:",
                time(f.sampling_s),
                ranks(config, h),
                f.sampled_tokens / 1e6,
                a.completion,
                s.solver_tokens,
                f.decoded_per_s
            ),
            format!(
                "            {:.0} sequences at once, {:.0}% of the limit for reading weights and cache at {:.1} TB/s",
                f.batch,
                a.decoding * 100.0,
                h.bandwidth / 1e12
            ),
            format!(
                "  checking  {} on {} cores, while sampling: {:.0} CPU hours at {} s per proof",
                time(f.checking_s),
                h.cores,
                f.checking_cpu_s / 3600.0,
                a.check_seconds
            ),
            format!(
                "  training  {}: {:.2} EFLOP, 8 per parameter and token (with recomputation), at {:.0}% of",
                time(f.training_s),
                f.training_flop / 1e18,
                a.utilisation * 100.0
            ),
            format!(
                "            {:.0} TFLOP/s per GPU; {:.0}% of the rollouts and all conjectures are trained on",
                h.flops / 1e12,
                f.trained_share * 100.0
            ),
            format!(
                "  a GPU     {}: weights {}, gradients and Adam over {} GPUs {}, cache and buffers",
                size(f.gpu.total()),
                size(f.gpu.weights),
                ranks(config, h),
                size(f.gpu.optimiser)
            ),
            format!(
                "            3 x {} ({:.0} k tokens per role); {fits}",
                bytes(s.memory_mib.saturating_mul(1 << 20)),
                f.gpu.cache_tokens / 1e3
            ),
            format!("  memory    {} for Lean: 6 GB shared, {} per core", size(f.host_bytes), size(a.slot_bytes)),
            format!(
                "  disk      {}: model {}, {:.0} checkpoints of {} (f32, Adam), tables {} ({:.0} bytes per token)",
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

/// Formats a size with decimal units, as in the data sheets of disks and GPUs.
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
