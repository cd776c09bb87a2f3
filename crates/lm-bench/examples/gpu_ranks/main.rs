//! Training and sampling on several GPUs. Requires a machine that has them.
//!
//! Usage: `gpu_ranks SECTION...`. Sections:
//!
//! - `curve RANKS`: the loss curve of 1 to `RANKS` ranks.
//! - `speed SHAPE SEQUENCES LENGTH RANKS`: tokens per second and fraction of linear scaling, with shape `0.94`
//!   or `7`, micro-batches of `SEQUENCES` x `LENGTH` per rank, and 1, 2, 4, … ranks.
//! - `files LAYERS`: writes `LAYERS` layers of the 7B shape to several files and reads them directly to the
//!   GPU.
//! - `sampling RANKS`: independent samplers, one per GPU, compared with a single one.
//! - `seven`: the 7B shape on one GPU, with recomputation.
//! - `kill`: one of four ranks is killed; the others must name it, and training resumes from the checkpoint.
//! - `errors`: missing or too small resources.
//!
//! With `SGS_CHECK_DEVICE=cpu` the same sections run on CPUs, with small shapes. Every line ends with `ok` or
//! `FAILED`; the exit code is 1 if a check failed.

#![allow(clippy::print_stdout, missing_docs)]

#[path = "../common/requests.rs"]
mod requests;
mod sampling;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sgs_base::host::peak_memory;
use sgs_base::random::SeededRng;
use sgs_lm::checkpoint::{self, SaveOptions};
use sgs_lm::config::RopeScaling;
use sgs_lm::loss::{LossConfig, TrainExample};
use sgs_lm::model::{Mode, Model};
use sgs_lm::optim::{AdamConfig, LrSchedule};
use sgs_lm::ranks::{Parallel, ProcessGroup, RankConfig, Rendezvous};
use sgs_lm::shard::Shard;
use sgs_lm::testing::{random_model, small_shape};
use sgs_lm::trainer::{Policy, TrainOptions, Trainer};
use sgs_lm::weights::FileType;
use sgs_lm::{LmError, ModelConfig, Result};
use sgs_lm_bench::train_flops_per_token;
use sgs_lm_cpu::Cpu;
use sgs_lm_cuda::{Cuda, Precision};

/// Peak throughput of an H100 or H200 for dense bfloat16 products, in operations per second.
const PEAK: f64 = 989e12;
/// Maximum time of a job.
const LIMIT: Duration = Duration::from_secs(75);

fn main() -> ExitCode {
    if let Ok(job) = std::env::var("SGS_CHECK_JOB") {
        return member(&job);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut rest = arguments.iter().map(String::as_str);
    let mut good = true;
    while let Some(section) = rest.next() {
        println!("== {section}");
        let started = Instant::now();
        let mut number = |otherwise: usize| rest.next().and_then(|n| n.parse().ok()).unwrap_or(otherwise);
        good &= match section {
            "curve" => curve(number(4)),
            "speed" => {
                let shape = rest.next().unwrap_or("0.94");
                let mut number =
                    |otherwise: usize| rest.next().and_then(|n| n.parse().ok()).unwrap_or(otherwise);
                let (sequences, length) = (number(8), number(1024));
                speed(shape, sequences, length, rest.next().unwrap_or("1,2,4"))
            }
            "seven" => seven(),
            "files" => files(number(8)),
            "sampling" => sampling::scales(rest.next().unwrap_or("1,2,4")),
            "kill" => kill(),
            "errors" => errors(),
            other => {
                println!("no section {other}: FAILED");
                false
            }
        };
        println!("-- {section}: {:.1} s", started.elapsed().as_secs_f64());
    }
    ExitCode::from(u8::from(!good))
}

fn on_cpu() -> bool {
    std::env::var("SGS_CHECK_DEVICE").is_ok_and(|d| d == "cpu")
}

/// Returns the number of micro-batches per step in speed measurements: `SGS_CHECK_MICRO_BATCHES`, or 1.
fn micro_batches() -> usize {
    std::env::var("SGS_CHECK_MICRO_BATCHES").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// The job of a rank.
#[derive(Clone, Serialize, Deserialize)]
struct Job {
    /// `curve`, `speed`, `kill` or `sampling`.
    kind: String,
    rank: usize,
    ranks: usize,
    folder: PathBuf,
    precision: String,
    shape: String,
    sequences: usize,
    length: usize,
    steps: usize,
}

/// Rank 0's results.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    losses: Vec<f64>,
    seconds: Vec<f64>,
    kept: Option<usize>,
    peak_gib: f64,
    parameters: usize,
    flops_per_token: f64,
    /// Number of new tokens of a sampler.
    tokens: usize,
}

/// The RoPE scaling of the 7B models that are the base of provers.
const YARN: RopeScaling = RopeScaling::Yarn {
    factor: 16.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    original_max_positions: 4096,
    attention_factor: 1.0,
    truncate: true,
};

/// A device that a rank opens by its index.
trait Machine: Parallel {
    fn open(ordinal: usize, precision: &str) -> Result<Self>;
    fn model(self: &Arc<Self>, config: &ModelConfig) -> Result<Model<Self>>;
}

impl Machine for Cpu {
    fn open(_: usize, _: &str) -> Result<Self> {
        Self::new(1)
    }

    fn model(self: &Arc<Self>, config: &ModelConfig) -> Result<Model<Self>> {
        random_model(Arc::clone(self), config)
    }
}

impl Machine for Cuda {
    fn open(ordinal: usize, precision: &str) -> Result<Self> {
        Self::new(ordinal, if precision == "f32" { Precision::F32 } else { Precision::Bf16 })
    }

    fn model(self: &Arc<Self>, config: &ModelConfig) -> Result<Model<Self>> {
        match config.hidden_size {
            0..1024 => random_model(Arc::clone(self), config),
            _ => self.random_model(config, config.max_positions),
        }
    }
}

fn shape(name: &str) -> ModelConfig {
    let large = |hidden_size, intermediate_size, layers, heads, vocab_size| ModelConfig {
        vocab_size,
        hidden_size,
        intermediate_size,
        layers,
        heads,
        kv_heads: heads,
        head_dim: 128,
        max_positions: 8192,
        ..small_shape()
    };
    match name {
        _ if on_cpu() => {
            ModelConfig { layers: 3, hidden_size: 64, heads: 2, kv_heads: 2, head_dim: 32, ..small_shape() }
        }
        "0.94" => large(2048, 5504, 16, 16, 32_000),
        "7" => large(4096, 11_008, 30, 32, 102_400),
        _ => small_shape(),
    }
}

/// Runs one rank; rank 0 prints its results.
fn member(job: &str) -> ExitCode {
    let done =
        serde_json::from_str::<Job>(job).map_err(|e| LmError::Input(e.to_string())).and_then(|job| match job
            .kind
            .as_str()
        {
            "sampling" if on_cpu() => sampling::work::<Cpu>(&job),
            "sampling" => sampling::work::<Cuda>(&job),
            _ if on_cpu() => work::<Cpu>(&job),
            _ => work::<Cuda>(&job),
        });
    match done {
        Ok(Some(report)) => {
            println!("{}", serde_json::to_string(&report).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

/// Creates sequences for a step of all ranks: of one length for speed, of many lengths to compare losses.
fn examples(job: &Job, config: &ModelConfig) -> Vec<TrainExample> {
    let mut rng = SeededRng::stream(1, 0);
    let count = if job.kind == "speed" { micro_batches() * job.sequences * job.ranks } else { job.sequences };
    (0..count)
        .map(|i| {
            let length = if job.kind == "speed" { job.length } else { 1 + job.length * (1 + i % 4) / 4 };
            TrainExample::plain((0..=length).map(|_| rng.index(config.vocab_size) as u32).collect())
        })
        .collect()
}

fn work<D: Machine>(job: &Job) -> Result<Option<Report>> {
    let device = Arc::new(D::open(job.rank, &job.precision)?);
    let group = match job.ranks {
        1 => None,
        _ => Some(ProcessGroup::join(RankConfig {
            rank: job.rank,
            ranks: job.ranks,
            rendezvous: Rendezvous::File(job.folder.join("rendezvous")),
            token: "check".to_owned(),
            job: job.kind.clone(),
            host: "here".to_owned(),
            log: Some(job.folder.join(format!("rank-{}.log", job.rank))),
            // A job with a single step tests missing parts, so some rank does not connect.
            patience: if job.steps == 1 { Duration::from_secs(6) } else { LIMIT },
            exit_after_loss: Some(Duration::from_secs(10)),
        })?),
    };
    let peers = group.map(|group| D::connect(&device, group)).transpose()?;
    let config = shape(&job.shape);
    let dir = job.folder.join("checkpoint");
    let goes_on = job.kind == "kill" && dir.exists();
    let mut policy = match goes_on {
        true => checkpoint::load_for_rank(&dir, Arc::clone(&device), usize::MAX, (job.rank, job.ranks))?.0,
        false => {
            let model = device.model(&config)?;
            let shard = Shard::of(&model.layout, job.rank, job.ranks);
            Policy::of_shard(model, shard)?
        }
    };
    let tokens = match job.kind.as_str() {
        "speed" => job.sequences * job.length,
        _ => 2 * job.length + 2,
    };
    let mode = match job.shape.as_str() {
        "7" => Mode::recompute_as_needed(&*device, &config, tokens, (job.rank, job.ranks)),
        _ => Mode::Train,
    };
    let mut trainer = Trainer::with_peers(Arc::clone(&device), &config, tokens, mode, peers)?;
    let done = steps(job, &config, &dir, goes_on, &mut policy, &mut trainer);
    if let Some(group) = trainer.group() {
        match &done {
            Ok(_) => group.finish(),
            Err(error) => group.fail(&error.to_string()),
        }
    }
    let mut report = done?;
    if let Mode::TrainRecompute { kept } = mode {
        report.kept = Some(kept);
    }
    report.peak_gib = device.peak_bytes().unwrap_or(0) as f64 / f64::from(1 << 30);
    report.parameters = config.parameters();
    report.flops_per_token = train_flops_per_token(&config, job.length);
    Ok((job.rank == 0).then_some(report))
}

fn steps<D: Machine>(
    job: &Job,
    config: &ModelConfig,
    dir: &Path,
    goes_on: bool,
    policy: &mut Policy<D>,
    trainer: &mut Trainer<D>,
) -> Result<Report> {
    let examples = examples(job, config);
    let options = TrainOptions {
        loss: LossConfig::supervised(),
        adam: AdamConfig {
            learning_rate: if job.kind == "speed" { 1e-5 } else { 1e-3 },
            ..AdamConfig::default()
        },
        schedule: LrSchedule::Constant,
        batch_size: examples.len(),
        shuffle_seed: None,
    };
    let batch: Vec<&TrainExample> = examples.iter().collect();
    let mut report = Report::default();
    while policy.step < job.steps as u64 {
        let step = trainer.step(policy, &batch, &options)?;
        report.losses.push(step.stats.loss);
        report.seconds.push(step.seconds);
        if job.kind == "kill" && !goes_on && policy.step == 4 {
            let save = SaveOptions { file_type: FileType::F32, ..SaveOptions::default() };
            match trainer.group() {
                Some(group) => checkpoint::save_together(dir, policy, &save, group)?,
                None => checkpoint::save(dir, policy, &save)?,
            }
        }
        if job.kind == "kill" && !goes_on && policy.step == 6 {
            let path = job.folder.join(format!("ready-{}", job.rank));
            std::fs::write(&path, "").map_err(|error| LmError::Io { path, error })?;
        }
        if job.kind == "kill" && !goes_on && policy.step > 6 && job.ranks > 1 {
            // Sleep, so that the process can be killed in the middle.
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(report)
}

/// The processes of a job's ranks.
struct Group {
    children: Vec<Child>,
}

impl Group {
    fn start(job: &Job, environment: &[(&str, &str)]) -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        std::fs::create_dir_all(&job.folder)?;
        let _ = std::fs::remove_file(job.folder.join("rendezvous"));
        let mut children = Vec::new();
        for rank in 0..job.ranks {
            let text = serde_json::to_string(&Job { rank, ..job.clone() })?;
            let log = std::fs::File::create(job.folder.join(format!("rank-{rank}.log")))?;
            let mut command = Command::new(&program);
            command.env("SGS_CHECK_JOB", text).envs(environment.iter().copied()).stdin(Stdio::null());
            command.stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() }).stderr(log);
            children.push(command.spawn()?);
        }
        Ok(Self { children })
    }

    /// Waits for all processes; returns whether all succeeded in time.
    fn wait(&mut self) -> bool {
        let deadline = Instant::now() + LIMIT;
        let mut good = true;
        for child in &mut self.children {
            loop {
                match child.try_wait() {
                    Ok(Some(status)) => break good &= status.success(),
                    Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                    _ => {
                        let _ = child.kill();
                        let _ = child.wait();
                        break good = false;
                    }
                }
            }
        }
        good
    }

    fn report(&mut self) -> Option<Report> {
        let mut text = String::new();
        self.children[0].stdout.take()?.read_to_string(&mut text).ok()?;
        // NCCL may print other lines.
        text.lines().rev().find_map(|line| serde_json::from_str(line).ok())
    }
}

fn logs(job: &Job) {
    for rank in 0..job.ranks {
        let path = job.folder.join(format!("rank-{rank}.log"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for line in text.lines().rev().take(4).collect::<Vec<_>>().into_iter().rev() {
            println!("  rank {rank} | {line}");
        }
    }
}

/// Runs a job; returns its report, or prints the logs and returns `None`.
fn run(job: &Job) -> Option<Report> {
    let mut group = match Group::start(job, &[]) {
        Ok(group) => group,
        Err(error) => {
            println!("starting ranks: {error}");
            return None;
        }
    };
    let good = group.wait();
    let report = group.report().filter(|_| good);
    if report.is_none() {
        println!("{} on {} ranks: FAILED", job.kind, job.ranks);
        logs(job);
    }
    report
}

fn job(kind: &str, ranks: usize, folder: &str) -> Job {
    Job {
        kind: kind.to_owned(),
        rank: 0,
        ranks,
        folder: std::env::temp_dir().join(format!("gpu-ranks-{}-{folder}", std::process::id())),
        precision: "bf16".to_owned(),
        shape: "small".to_owned(),
        sequences: 16,
        length: 128,
        steps: 20,
    }
}

/// Returns 1, 2, 4, … up to a maximum.
fn doubling(most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |n| Some(2 * n)).take_while(move |n| *n <= most)
}

fn curve(most: usize) -> bool {
    let mut good = true;
    for (precision, allowed) in [("f32", 1e-4), ("bf16", 2e-2)] {
        let mut first: Option<Report> = None;
        // f32 is slow on a GPU, and two ranks suffice to compare it.
        for ranks in doubling(most).filter(|n| precision == "bf16" || *n == 1 || *n == most) {
            let job = Job { precision: precision.to_owned(), ..job("curve", ranks, precision) };
            let Some(report) = run(&job) else {
                good = false;
                continue;
            };
            let gap = first.as_ref().map_or(0.0, |first| {
                let gaps = report.losses.iter().zip(&first.losses).map(|(a, b)| (a - b).abs());
                gaps.fold(0.0, f64::max)
            });
            let fine = gap <= allowed && report.losses.len() == job.steps;
            good &= fine;
            println!(
                "curve {precision}, {ranks} ranks: loss {:.5} to {:.5}, largest gap to one rank {gap:.1e} of {allowed:.0e} {}",
                report.losses.first().unwrap_or(&f64::NAN),
                report.losses.last().unwrap_or(&f64::NAN),
                if fine { "ok" } else { "FAILED" }
            );
            first = first.or(Some(report));
        }
    }
    good
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn speed(shape: &str, sequences: usize, length: usize, counts: &str) -> bool {
    let (mut good, mut alone) = (true, None);
    for ranks in counts.split(',').filter_map(|n| n.parse::<usize>().ok()) {
        let steps = if shape == "7" { 6 } else { 12 };
        let job = Job { shape: shape.to_owned(), sequences, length, steps, ..job("speed", ranks, "speed") };
        let Some(report) = run(&job) else {
            good = false;
            continue;
        };
        let seconds = median(report.seconds[2.min(report.seconds.len())..].to_vec());
        let speed = (micro_batches() * ranks * sequences * length) as f64 / seconds;
        let each = *alone.get_or_insert(speed / ranks as f64);
        let share = speed / (ranks as f64 * each);
        println!(
            "speed {shape} ({:.2} B), {ranks} ranks of {} x {sequences} x {length}: {:.1} ms a step, {speed:.0} tokens/s, MFU {:.3}, {:.1}% of linear, \
             layers kept {:?}, peak of buffers {:.1} GiB {}",
            report.parameters as f64 / 1e9,
            micro_batches(),
            1e3 * seconds,
            speed * report.flops_per_token / (ranks as f64 * PEAK),
            100.0 * share,
            report.kept,
            report.peak_gib,
            if share >= 0.9 { "ok" } else { "FAILED" }
        );
        good &= share >= 0.9;
    }
    good
}

fn seven() -> bool {
    let mut good = true;
    for (sequences, length) in [(4, 2048), (1, 8192)] {
        good &= speed("7", sequences, length, "1");
    }
    good
}

/// Writes and reads a model with some layers of the 7B shape and its YaRN scaling; prints the speed and the
/// host memory.
fn files(layers: usize) -> bool {
    let go = || -> Result<bool> {
        let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
        let config = ModelConfig { layers, rope_scaling: YARN, ..shape("7") };
        let model = device.random_model(&config, 2048)?;
        let dir = std::env::temp_dir().join(format!("gpu-ranks-{}-model", std::process::id()));
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let host = || peak_memory().unwrap_or(0);
        let (before, started) = (host(), Instant::now());
        checkpoint::export(&dir, &model, &SaveOptions::default())?;
        let (saved, took) = (host(), started.elapsed().as_secs_f64());
        let size = 2 * config.parameters() as u64;
        println!(
            "saved {:.2} GiB in {took:.1} s; host memory grew by {:.2} GiB",
            gib(size),
            gib(saved - before)
        );
        let started = Instant::now();
        let read = Model::load(Arc::clone(&device), &dir, 2048)?;
        let took = started.elapsed().as_secs_f64();
        println!("loaded it in {took:.1} s; host memory grew by {:.2} GiB more", gib(host() - saved));
        let (mut a, mut b) = (vec![0.0; 1 << 20], vec![0.0; 1 << 20]);
        let last = model.layout.len - a.len();
        model.read(last, &mut a)?;
        read.read(last, &mut b)?;
        std::fs::remove_dir_all(&dir).map_err(|error| LmError::Io { path: dir, error })?;
        Ok(a == b && gib(host() - before) < 1.5)
    };
    let good = go().unwrap_or_else(|error| {
        println!("{error}");
        false
    });
    println!("files: {}", verdict(good));
    good
}

/// Kills one of four ranks between two steps of the others.
fn kill() -> bool {
    let ranks = if on_cpu() { 4 } else { 4.min(sgs_lm_cuda::gpu_count().unwrap_or(0)) };
    if ranks < 3 {
        println!("kill: {ranks} GPUs, 3 are needed: FAILED");
        return false;
    }
    let job = |folder| Job { precision: "f32".to_owned(), steps: 16, ..job("kill", ranks, folder) };
    let Some(want) = run(&Job { kind: "curve".to_owned(), ..job("undisturbed") }) else { return false };
    let job = job("killed");
    let Ok(mut group) = Group::start(&job, &[]) else { return false };
    let ready = |rank: usize| job.folder.join(format!("ready-{rank}")).exists();
    let deadline = Instant::now() + LIMIT;
    while !(0..ranks).all(ready) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = group.children[2].id();
    let _ = group.children[2].kill();
    let killed = Instant::now();
    group.wait();
    let seconds = killed.elapsed().as_secs_f64();
    logs(&job);
    let named = (0..ranks).filter(|rank| *rank != 2).all(|rank| {
        let text = std::fs::read_to_string(job.folder.join(format!("rank-{rank}.log"))).unwrap_or_default();
        text.contains("rank 2 ") && text.contains(&format!("process {pid}"))
    });
    println!(
        "kill: the others ended after {seconds:.2} s, all name rank 2: {named} {}",
        verdict(named && seconds < 12.0)
    );
    let gap = run(&job).map_or(f64::INFINITY, |report| {
        (report.losses.last().unwrap_or(&f64::NAN) - want.losses.last().unwrap_or(&f64::NAN)).abs()
    });
    println!("kill: resumed from step 4, last loss differs by {gap:.1e} {}", verdict(gap <= 1e-5));
    named && seconds < 12.0 && gap <= 1e-5
}

fn verdict(good: bool) -> &'static str {
    if good { "ok" } else { "FAILED" }
}

/// Printed if nothing was missing.
const RAN: &str = "it ran: everything was found";

/// Checks the error messages for everything that can be missing or too small.
fn errors() -> bool {
    let mut good = true;
    let mut expect = |what: &str, text: &str, parts: &[&str]| {
        // A library in one of the loader's own folders cannot be hidden.
        let fine = text == RAN || parts.iter().all(|part| text.contains(part));
        println!("{what}: {} {}", text.trim(), verdict(fine));
        good &= fine;
    };
    let library_path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let without_nccl: Vec<&str> = library_path.split(':').filter(|dir| !dir.contains("nccl")).collect();
    let said = |ranks: usize, environment: &[(&str, &str)]| {
        let job = Job { steps: 1, ..job("curve", ranks, "errors") };
        let Ok(mut group) = Group::start(&job, environment) else { return "not started".to_owned() };
        if group.wait() {
            return RAN.to_owned();
        }
        let log =
            |rank| std::fs::read_to_string(job.folder.join(format!("rank-{rank}.log"))).unwrap_or_default();
        (0..ranks).map(log).collect()
    };
    expect(
        "no NCCL",
        &said(2, &[("LD_LIBRARY_PATH", &without_nccl.join(":"))]),
        &["NCCL was not found", "LD_LIBRARY_PATH"],
    );
    let nowhere = [("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"), ("XDG_CACHE_HOME", "/nowhere")];
    expect("no cuBLASLt, no NVRTC", &said(1, &nowhere), &["was not found", "CUDA toolkit 13"]);
    expect("no GPU", &said(1, &[("CUDA_VISIBLE_DEVICES", "")]), &["GPU"]);
    expect("one GPU for two ranks", &said(2, &[("CUDA_VISIBLE_DEVICES", "0")]), &["there is no GPU 1"]);
    if on_cpu() {
        return good;
    }
    let crowded = || -> Result<()> {
        let device = Arc::new(Cuda::new(0, Precision::Bf16)?);
        Trainer::new(device, &shape("7"), 1 << 20, Mode::Train).map(|_| ())
    };
    let text = crowded().err().map_or_else(|| "it fitted".to_owned(), |e| e.to_string());
    expect("a micro-batch that does not fit", &text, &["needs", "is free", "micro_batch_tokens"]);
    let crowded = || -> Result<()> { Cuda::new(0, Precision::Bf16)?.noise(1 << 38, 1).map(|_| ()) };
    let text = crowded().err().map_or_else(|| "it fitted".to_owned(), |e| e.to_string());
    expect("a buffer that does not fit", &text, &["549755813888 bytes", "is free"]);
    good
}
