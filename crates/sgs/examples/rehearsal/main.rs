//! Rehearses the paper's run: two rounds of `sgs run --size lean-d3k` with random weights of the same shape, a separate
//! Guide and scripted checkers. One process of each kind is killed, and the run is resumed.
//!
//! Usage: `rehearsal FOLDER [--ranks N] [--shape tiny]`. `--help` lists all options. The figures are appended to
//! `FOLDER/rehearsal.jsonl` as soon as they are known. Needs `sgs` of the same build:
//! `cargo build --release -p sgs --bins --example rehearsal`.
//!
//! The times of checks follow published ones (Kimina Lean Server: 3.34 s on average, 1.7% of timeouts), and a timeout is a
//! minute. Loading Mathlib takes no time and no memory.
#![allow(clippy::print_stdout, missing_docs)]

mod lean;
mod model;
mod processes;
#[path = "../../../formal/lean/examples/scripted_repl.rs"]
mod scripted_repl;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use processes::{Coordinator, GpuSampler, is_alive, kill, network_bytes};
use serde_json::{Value, json};
use sgs_lm::ModelConfig;
use sgs_rundir::RunView;
use sgs_rundir::metrics::MetricValues;
use sgs_rundir::metrics::names::{self, OF_RANKS};
use sgs_selfplay::Problem;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

#[derive(Parser)]
#[command(about = "Rehearses the paper's run with random weights and scripted checkers")]
struct Args {
    /// Folder for models, checkers, run and report; models of an earlier rehearsal are used again
    folder: PathBuf,
    /// Number of ranks, one GPU each
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// Number of local workers that sample instead of the ranks
    #[arg(long, default_value_t = 0)]
    workers: usize,
    /// Shape of the models: `seven` or `thirty` (7 billion or 30 million parameters) on GPUs, `tiny` on CPUs
    #[arg(long, value_enum, default_value = "seven")]
    shape: Shape,
    /// Number of layers, for GPUs or disks that are too small for all of them
    #[arg(long)]
    layers: Option<usize>,
    /// Targets per round [default: all 3,323 of D_3k; tiny: 8]
    #[arg(long)]
    targets: Option<u32>,
    /// Mean length of completions that end, in tokens [default: 800; tiny: 40]
    #[arg(long)]
    tokens: Option<f64>,
    /// Share of the completions that reach the token limit
    #[arg(long, default_value_t = 0.02)]
    endless: f64,
    /// Mean time of a check, in seconds [default: 2.3, without timeouts; tiny: 0.1]
    #[arg(long)]
    check_seconds: Option<f64>,
    /// Run one round and kill nothing, to compare its times and its memory with the forecast
    #[arg(long)]
    undisturbed: bool,
    /// The program [default: `sgs` of the same build]
    #[arg(long)]
    sgs: Option<PathBuf>,
    /// Further keys of the run, KEY=VALUE
    #[arg(long)]
    set: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shape {
    Seven,
    Thirty,
    Tiny,
}

/// Number of problems of a tiny rehearsal: the first ones of D_3k.
const PROBLEMS_OF_TINY: usize = 64;

/// Number of results after which a process is killed.
const RESULTS: u64 = 8;

fn main() -> Result<()> {
    let name = std::env::args().next().unwrap_or_default();
    if lean::PROGRAMS.iter().any(|program| Path::new(&name).ends_with(program)) {
        return Ok(scripted_repl::main()?);
    }
    let args = Args::parse();
    let mut rehearsal = Rehearsal::prepare(&args)?;
    let outcome = if args.undisturbed { rehearsal.measure() } else { rehearsal.perform() };
    if let Err(error) = &outcome {
        rehearsal.report("failed", json!({"error": format!("{error:#}")}))?;
    }
    outcome
}

struct Rehearsal {
    sgs: PathBuf,
    folder: PathBuf,
    run: PathBuf,
    ranks: usize,
    workers: usize,
    model: ModelConfig,
    keys: Vec<String>,
    started: Instant,
    file: File,
    gpus: GpuSampler,
    network: u64,
    /// Lengths of the completions.
    lengths: model::Lengths,
    /// The output of `--dry-run`.
    plan: Value,
}

impl Rehearsal {
    /// Writes the models and the checker's installation.
    fn prepare(args: &Args) -> Result<Self> {
        let is_tiny = args.shape == Shape::Tiny;
        let model = match args.shape {
            Shape::Seven => model::seven_b(args.layers.unwrap_or(30)),
            Shape::Thirty => model::thirty_m(args.layers.unwrap_or(8)),
            Shape::Tiny => model::tiny(args.layers.unwrap_or(2)),
        };
        let has_logit = args.endless > 0.0 && args.endless < 1.0;
        ensure!(has_logit, "--endless is {}, but must be greater than 0 and less than 1", args.endless);
        let is_length = args.tokens.is_none_or(|tokens| tokens.is_finite() && tokens > 1.0);
        ensure!(is_length, "--tokens must be greater than 1");
        fs::create_dir_all(&args.folder)?;
        let folder = args.folder.canonicalize()?;
        let own = std::env::current_exe()?;
        let examples = own.parent().context("the folder of this program")?;
        let sgs = args.sgs.clone().unwrap_or_else(|| examples.with_file_name("sgs"));
        ensure!(sgs.is_file(), "{} does not exist: name the program with --sgs", sgs.display());
        let run = folder.join("run");
        ensure!(!run.exists(), "{} exists: remove it, or choose another folder", run.display());
        let file = File::options().create(true).append(true).open(folder.join("rehearsal.jsonl"))?;
        let checks = args.check_seconds.unwrap_or(if is_tiny { 0.1 } else { 2.3 });
        let mean = args.tokens.unwrap_or(if is_tiny { 40.0 } else { 800.0 });
        let begun = Instant::now();
        let problems: Vec<_> = sgs_lean::data::d3k()?.into_iter().map(|target| target.problem).collect();
        let size = model.vocab_size;
        let tokens = model::Vocabulary::new(size, &problems, lean::answers(size / 6, checks));
        let lengths = model::Lengths { mean, endless: args.endless };
        let models = [(1, "base"), (2, "guide")].map(|(seed, name)| {
            let to = folder.join(format!("{name}-{size}-{}-{mean}-{}-{checks}", model.layers, args.endless));
            let written =
                if to.exists() { Ok(()) } else { model::write(&to, &model, &tokens, &lengths, seed) };
            written.map(|()| to)
        });
        let [base, guide] = models;
        let lean = folder.join("lean");
        lean::install(&lean, &own)?;
        let set = folder.join("problems.jsonl");
        if is_tiny {
            write_problems(&set, &problems[..PROBLEMS_OF_TINY])?;
        }
        let keys = keys(args, [&base?, &guide?, &lean, &set]);
        let (gpus, network) = (GpuSampler::start(), network_bytes());
        let (ranks, started, plan) = (args.ranks, begun, Value::Null);
        let mut rehearsal = Self {
            sgs,
            folder,
            run,
            ranks,
            workers: args.workers,
            model,
            keys,
            started,
            file,
            gpus,
            network,
            lengths,
            plan,
        };
        let parameters = rehearsal.model.parameters();
        rehearsal
            .report("prepared", json!({"ranks": ranks, "parameters": parameters, "keys": rehearsal.keys}))?;
        Ok(rehearsal)
    }

    /// Appends a line to the report.
    fn report(&mut self, what: &str, figures: Value) -> Result<()> {
        let line = json!({"at_s": self.started.elapsed().as_secs_f64(), "what": what, "figures": figures});
        println!("{line}");
        writeln!(self.file, "{line}")?;
        Ok(self.file.sync_data()?)
    }

    fn begin(&self, more: &[&str]) -> Vec<String> {
        let size = ["run", "--size", "lean-d3k"].into_iter().chain(more.iter().copied());
        let sets = self.keys.iter().flat_map(|key| ["--set", key.as_str()]).map(str::to_owned);
        let workers = (self.workers > 0)
            .then(|| ["--workers".to_owned(), format!("local:generate={}", self.workers)])
            .into_iter()
            .flatten();
        size.map(str::to_owned).chain(workers).chain(sets).collect()
    }

    fn start(&self, arguments: &[String]) -> Result<Coordinator> {
        Coordinator::start(&self.sgs, arguments, &self.folder.join("run.log"))
    }

    /// Asks the program for its forecast with these assumptions.
    fn forecast(&self, assumed: &[(&str, f64)]) -> Result<Value> {
        let assumed =
            assumed.iter().flat_map(|(name, value)| ["--assume".to_owned(), format!("{name}={value}")]);
        let arguments = self.begin(&["--dry-run", "--json"]).into_iter().chain(assumed);
        let output = Command::new(&self.sgs).args(arguments).output()?;
        ensure!(output.status.success(), "--dry-run failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Plans the run.
    fn plan(&mut self) -> Result<()> {
        let limit = number(&self.forecast(&[])?["config"]["sampling"]["solver_tokens"]);
        let (mean, sampled_part) = self.lengths.until(limit);
        self.plan = self.forecast(&[("completion", mean), ("sampled_part", sampled_part)])?;
        ensure!(self.plan["lacks"] == json!([]), "this machine lacks {}", self.plan["lacks"]);
        let (needed, has) = (self.fullest_gpu(), &self.plan["hardware"]["device_bytes"]);
        ensure!(has.as_f64().is_none_or(|has| needed <= has), "a GPU needs {needed} bytes and has {has}");
        self.report("plan", json!({"forecast": self.plan["forecast"], "hardware": self.plan["hardware"]}))
    }

    fn start_run(&self) -> Result<Coordinator> {
        self.start(&self.begin(&["--out", &self.run.display().to_string()]))
    }

    /// Runs one round without disturbance.
    fn measure(&mut self) -> Result<()> {
        self.plan()?;
        let (status, _) = self.start_run()?.end()?;
        ensure!(status.success(), "the run failed ({status}): {}", self.log().display());
        self.report_round(0)?;
        self.report("done", json!({}))
    }

    /// Starts the run, kills processes of it, and resumes it until it ends.
    fn perform(&mut self) -> Result<()> {
        self.plan()?;
        let mut run = self.start_run()?;
        let begun = Instant::now();
        self.results(&mut run, 0, 1)?;
        self.report("first result", json!({"after_s": begun.elapsed().as_secs_f64()}))?;
        self.kill_checker(&mut run)?;
        if self.workers > 0 {
            self.kill_worker(&mut run)?;
        }
        if self.ranks > 1 {
            run = self.kill_rank(run)?;
        }
        run.wait_for("round 0 is published", |_| self.published(0))?;
        self.report_round(0)?;
        self.results(&mut run, 1, RESULTS)?;
        let mut run = self.kill_coordinator(run)?;
        let (status, _) = run.end()?;
        ensure!(status.success(), "the resumed run failed ({status}): {}", self.log().display());
        self.report_round(1)?;
        self.report("done", json!({}))
    }

    /// Kills a checker, which must cost only time.
    fn kill_checker(&mut self, run: &mut Coordinator) -> Result<()> {
        let checkers = run.wait_for("a checker has started", |run| {
            let checkers = run.checkers();
            Ok((!checkers.is_empty()).then_some(checkers))
        })?;
        self.kill_and_continue("checker killed", run, checkers[0])
    }

    /// Kills a worker that samples, which must cost only time, and waits for the one that is started in its place.
    fn kill_worker(&mut self, run: &mut Coordinator) -> Result<()> {
        let workers = run.workers();
        ensure!(workers.len() == self.workers, "{} workers are running", workers.len());
        self.kill_and_continue("worker killed", run, workers[0])?;
        let all = self.workers;
        run.wait_for("the worker is replaced", |run| Ok((run.workers().len() == all).then_some(())))
    }

    /// Kills a process of the run and waits for further results.
    fn kill_and_continue(&mut self, what: &str, run: &mut Coordinator, pid: u32) -> Result<()> {
        kill(pid)?;
        let wanted = self.count(0)? + RESULTS;
        let killed = Instant::now();
        self.results(run, 0, wanted)?;
        self.report(what, json!({"results": RESULTS, "after_s": killed.elapsed().as_secs_f64()}))
    }

    /// Kills a rank, which ends the run, and resumes the run.
    fn kill_rank(&mut self, mut run: Coordinator) -> Result<Coordinator> {
        let ranks = run.ranks();
        ensure!(ranks.len() + 1 == self.ranks, "{} other ranks are running", ranks.len());
        kill(ranks[0])?;
        let (status, ended_s) = run.end()?;
        ensure!(status.code() == Some(1), "after the loss of a rank, the run ended with {status}");
        self.resume("rank killed", 0, &ranks, ended_s)
    }

    /// Kills the coordinator, after which the ranks must exit, and resumes the run.
    fn kill_coordinator(&mut self, mut run: Coordinator) -> Result<Coordinator> {
        let ranks = run.ranks();
        kill(run.pid())?;
        run.end()?;
        let killed = Instant::now();
        while ranks.iter().any(|pid| is_alive(*pid)) {
            ensure!(
                killed.elapsed().as_secs() < 120,
                "ranks are alive two minutes after the coordinator's end"
            );
            std::thread::sleep(processes::LOOK);
        }
        self.resume("coordinator killed", 1, &ranks, killed.elapsed().as_secs_f64())
    }

    /// Resumes the run after its processes have ended. No durable result may be lost.
    fn resume(&mut self, what: &str, round: u32, ranks: &[u32], ended_s: f64) -> Result<Coordinator> {
        ensure!(!ranks.iter().any(|pid| is_alive(*pid)), "ranks of the ended run are alive");
        let (kept, logged) = (self.count(round)?, fs::metadata(self.log())?.len() as usize);
        let begun = Instant::now();
        let mut run = self.start(&["resume".to_owned(), self.run.display().to_string()])?;
        let message = format!("round {round}: ");
        let replayed = run.wait_for("results are replayed", |_| {
            let log = fs::read(self.log())?;
            let log = String::from_utf8_lossy(&log[logged..]).into_owned();
            let found = log.split(&message).find_map(|rest| rest.split_once(" results were in the journal"));
            Ok(found.and_then(|(count, _)| count.parse::<u64>().ok()))
        })?;
        ensure!(replayed >= kept, "{kept} results were durable, but {replayed} were replayed");
        run.wait_for("a new result", |_| {
            Ok((self.count(round)? > kept || self.published(round)?.is_some()).then_some(()))
        })?;
        let resumed_s = begun.elapsed().as_secs_f64();
        self.report(what, json!({"ended_s": ended_s, "results_kept": replayed, "next_result_s": resumed_s}))?;
        Ok(run)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("run.log")
    }

    /// Waits until the given number of results of a round are durable.
    fn results(&self, run: &mut Coordinator, round: u32, wanted: u64) -> Result<()> {
        let is_there = |_: &Coordinator| {
            Ok((self.count(round)? >= wanted || self.published(round)?.is_some()).then_some(()))
        };
        run.wait_for(&format!("{wanted} results of round {round}"), is_there)
    }

    /// Returns the number of durable results of an unpublished round.
    fn count(&self, round: u32) -> Result<u64> {
        if !self.run.join("config.toml").exists() {
            return Ok(0);
        }
        Ok(RunView::open(&self.run)?.journal()?.counts(round)?.values().sum())
    }

    /// Returns the metrics of a round once it is published.
    fn published(&self, round: u32) -> Result<Option<MetricValues>> {
        if !self.run.join("config.toml").exists() {
            return Ok(None);
        }
        let rounds = RunView::open(&self.run)?.rounds()?;
        Ok(rounds.iter().find(|known| known.round() == round).map(|known| known.metrics()).transpose()?)
    }

    /// Forecasts a round in which no target is solved, from what only a run can tell: how long its completions and checks
    /// were, and how many conjectures and rollouts it used. The targets stay unsolved, as in a first round.
    fn forecast_with(&self, metrics: &MetricValues) -> Result<Value> {
        let of = |name: &str| metrics.scalars.get(name).copied().unwrap_or(0.0);
        let (generations, requested) = (
            of("generations_of_round"),
            number(&self.plan["forecast"]["conjectures"]) / number(&self.plan["assumed"]["unsolved"]),
        );
        let trained = (of("solver_examples") / generations.max(1.0)).min(1.0);
        self.forecast(&[
            ("completion", of("solver_tokens_mean")),
            ("sampled_part", number(&self.plan["assumed"]["sampled_part"])),
            ("longest", self.lengths.longest(generations)),
            (
                "accepted",
                if requested > 0.0 { (of("conjectures_accepted") / requested).min(1.0) } else { 0.0 },
            ),
            ("check_s", of(names::TIME_CHECKS) / generations),
            ("trained_hard", trained),
            ("trained_all", trained),
        ])
    }

    /// Reports a round: its stages, the use of each rank, and forecasts next to measurements.
    fn report_round(&mut self, round: u32) -> Result<()> {
        let metrics = self.published(round)?.context("the round's metrics are missing")?;
        let of = |name: &str| metrics.scalars.get(name).copied().unwrap_or(0.0);
        let (sampling, whole) = (of(names::TIME_SAMPLING), of(names::TIME_ROUND));
        let update = of(names::TIME_UPDATE_SOLVER) + of(names::TIME_UPDATE_CONJECTURER);
        ensure!(of("infra_share") == 0.0, "{} of the rollouts of round {round} were lost", of("infra_share"));
        let stages = json!({
            "sampling_s": sampling, "checks_s": of(names::TIME_CHECKS), "update_s": update, "until_next_round_s": whole - sampling - update,
            "publish_wait_s": of(names::TIME_PUBLISH_WAIT), "snapshot_s": of(names::TIME_SNAPSHOT),
            "publish_previous_s": of(names::TIME_PUBLISH),
        });
        let rank = |rank: usize| -> Value {
            let value = |name: &str| metrics.scalars.get(&format!("{name}/{rank}")).copied();
            OF_RANKS.iter().map(|name| ((*name).to_owned(), json!(value(name)))).collect()
        };
        let ranks: Vec<Value> = (0..self.ranks).map(rank).collect();
        let network = network_bytes();
        let received = network - std::mem::replace(&mut self.network, network);
        let samples = self.gpus.take();
        // Sampling continues until the round is published, which may take longer than the round.
        let interval = metrics.unix_time - whole..metrics.unix_time;
        let gpus: Vec<Value> = (0..self.ranks.max(self.workers))
            .filter_map(|gpu| processes::summary(&samples, gpu, interval.clone()))
            .collect();
        let known = self.forecast_with(&metrics)?;
        let (f, first) = (&known["forecast"], &known["forecast"]["first_round"]);
        let peak =
            ranks.iter().map(|rank| number(&rank["rank_device_memory_peak_bytes"])).fold(f64::NAN, f64::max);
        let used = gpus.iter().map(|gpu| number(&gpu["used_bytes"])).fold(f64::NAN, f64::max);
        let total = |values: &Value, name: &str| list(values).iter().map(|v| number(&v[name])).sum::<f64>();
        let processes = list(&f["memory"]).iter().flat_map(list).collect::<Vec<_>>();
        let is_rank =
            |process: &&Value| process["process"].as_str().is_some_and(|name| name.starts_with("rank"));
        let planned =
            processes.iter().filter(is_rank).map(|p| number(&p["device_bytes"])).fold(f64::NAN, f64::max);
        let operations =
            8.0 * (self.model.parameters() - self.model.vocab_size * self.model.hidden_size) as f64;
        let each = self.ranks as f64;
        let generations = of("generations_of_round");
        let sampled = total(&f["roles"], "tokens") / number(&f["sampling_s"]) / each;
        // Checking overlaps with sampling.
        let stage_s = number(&first["sampling_s"]).max(of(names::TIME_CHECKS) / number(&f["checkers"]));
        let pair = |forecast: f64, measured: f64| json!({"forecast": forecast, "measured": measured});
        let compared = json!({
            "sampled_tokens_per_s_and_rank": pair(sampled, of(names::SAMPLED_TOKENS_PER_S) / each),
            "training_flop_per_s_and_rank":
                pair(number(&f["training_flop"]) / number(&f["training_s"]) / each, operations * of(names::TRAINED_TOKENS_PER_S) / each),
            "device_bytes": pair(planned, peak),
            "gpu_used_bytes": pair(self.fullest_gpu(), used),
            "generations": pair(number(&first["generations"]), generations),
            "sampling_s": pair(stage_s, sampling),
            "training_s": pair(number(&first["training_s"]), update + of(names::TIME_SNAPSHOT)),
            "round_s": pair(number(&first["round_s"]), whole),
        });
        self.report(
            "round",
            json!({
                "round": round, "generations": generations, "conjectures": of("conjectures_accepted"),
                "solver_examples": of("solver_examples"), "solver_tokens_mean": of("solver_tokens_mean"),
                "solver_share_cut": of("solver_share_cut"), "stages": stages, "ranks": ranks, "gpus": gpus,
                "network_bytes": received, "compared": compared,
            }),
        )
    }
}

impl Rehearsal {
    /// Returns the forecast of the memory of the fullest GPU, in bytes.
    fn fullest_gpu(&self) -> f64 {
        let reserved = number(&self.plan["hardware"]["reserved_bytes"]);
        let of_gpu =
            |gpu: &Value| list(gpu).iter().map(|p| number(&p["device_bytes"]) + reserved).sum::<f64>();
        list(&self.plan["forecast"]["memory"]).iter().map(of_gpu).fold(f64::NAN, f64::max)
    }
}

/// Returns a number; NaN if there is none.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Writes a problem set. To read all of D_3k takes longer than a tiny rehearsal.
fn write_problems(to: &Path, problems: &[Problem]) -> Result<()> {
    let line = |p: &Problem| json!({"id": p.id, "header": p.context, "statement": p.statement}).to_string();
    fs::write(to, problems.iter().map(line).collect::<Vec<_>>().join("\n"))
        .with_context(|| to.display().to_string())
}

/// Returns the keys that make a rehearsal of `lean-d3k`.
fn keys(args: &Args, [base, guide, lean, problems]: [&PathBuf; 4]) -> Vec<String> {
    let mut keys = vec![
        format!("rounds={}", if args.undisturbed { 1 } else { 2 }),
        format!("training.ranks={}", args.ranks),
        format!("model.base={}", base.display()),
        format!("model.guide={}", guide.display()),
        format!("lean.root={}", lean.display()),
        // Use the number of cores per GPU on a node with eight GPUs and 128 cores.
        format!("lean.slots={}", 16 * args.ranks),
        "lean.limits.proof_ms=60000".to_owned(),
        "checkpoints.last=1".to_owned(),
    ];
    if args.shape == Shape::Tiny {
        let small = [
            "model.device=cpu",
            "model.context=4096",
            "sampling.solver_tokens=256",
            "sampling.conjecturer_tokens=256",
            "sampling.guide_tokens=256",
            "sampling.batch=16",
            "sampling.memory_mib=64",
            "training.micro_batch_tokens=4096",
            "algorithm.rollouts_per_problem=4",
            "algorithm.optimizer.batch_size=8",
            "lean.slots=4",
            "lean.limits.proof_ms=1500",
        ];
        keys.extend(small.map(str::to_owned));
        keys.push(format!("problems.set={}", problems.display()));
    }
    let targets = args.targets.or((args.shape == Shape::Tiny).then_some(8));
    keys.extend(targets.map(|targets| format!("algorithm.batch.size={targets}")));
    keys.extend(args.set.iter().cloned());
    keys
}
