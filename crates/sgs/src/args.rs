//! Definition of the command line (clap).

use crate::arg_values::{
    INPUT_DIR, INPUT_FILE, devices, listen_address, method, page_address, problem_set, real, roles, seed,
    size, systems, whole,
};
use clap::builder::TypedValueParser as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use sgs_analysis::figures::Yardstick;
use sgs_analysis::fit::HALVES_SEED;
use sgs_analysis::live::LiveOptions;
use sgs_data::sets::TeacherOptions;
use sgs_keys::{above, at_least};
use sgs_run::config::SystemName;
use sgs_run::config::device::DeviceKind;
use sgs_run::config::endpoint::EndpointConfig;
use sgs_run::config::system::{LEAN_SETS, METAMATH_SETS};
use sgs_run::train::launcher::RankOptions;
use sgs_selfplay::Role;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Maximum number of runs of a sweep at the same time.
pub const MAX_JOBS: u64 = 1024;

/// Self-Guided Self-Play: one language model as Solver, Conjecturer and Guide on machine-checked problems.
#[derive(Debug, Parser)]
#[command(name = "sgs", version, max_term_width = 100)]
#[command(after_help = crate::help::after_help())]
pub struct Cli {
    /// Log more (-v: info, -vv: debug).
    #[arg(short, long, action = clap::ArgAction::Count, global = true, display_order = 1000)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run self-play with a method at a size.
    ///
    /// Rounds are numbered from 0. In the line of a round, "ever solved 13.0% (+13)" means that 13.0% of the targets have
    /// been proved so far, 13 of them since the last line; "pass@1 6.0%", that 6.0% of this round's rollouts for targets
    /// are proofs; "conjectures 86/100", that of 100 requested conjectures, 86 became problems. Redirected output and
    /// terminals of 140 columns or more also show how many of these conjectures were "solved", the share that is "padded"
    /// with variables that occur once (Metamath), the mean "Guide's score" (0 to 8) and the Solver's "entropy" in nats per
    /// token.
    Run(RunArgs),
    /// Resume an interrupted run.
    Resume(ResumeArgs),
    /// Run self-play with workers that connect from elsewhere.
    Serve(ServeArgs),
    /// Run a worker for a remote coordinator.
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Run a grid of methods, seeds and settings, and write one report.
    Sweep(SweepArgs),
    /// Show the progress of a run.
    Status(StatusArgs),
    /// Write an HTML report of a run, or of a comparison of several runs.
    Report(ReportArgs),
    /// Compare runs: configurations, and rates at equal generations.
    Compare(CompareArgs),
    /// Export proved theorems as a Metamath database or as JSON Lines.
    Export(ExportArgs),
    /// Fit the scaling law to runs, or to any curve in a CSV file.
    Fit(FitArgs),
    /// Sample proofs of statements, and print the first valid one.
    Prove(ProveArgs),
    /// Sample conjectures for a statement.
    Conjecture(ConjectureArgs),
    /// Sample the Guide's reviews of a conjecture.
    Review(ReviewArgs),
    /// Evaluate a model: pass@k; on request, its conjectures and reviews.
    Eval(EvalArgs),
    /// Serve a model over the OpenAI completions protocol.
    ServeModel(ServeModelArgs),
    /// Build, import and filter data sets.
    #[command(subcommand)]
    Data(DataCommand),
    /// Pretrain a model from scratch on corpora.
    Pretrain(PretrainArgs),
    /// Fine-tune a model on corpora (supervised).
    Sft(SftArgs),
    /// Verify proofs in JSON Lines, and write one verdict per line.
    Verify(VerifyArgs),
    /// Install Lean 4 on this machine.
    #[command(subcommand)]
    Lean(LeanCommand),
    /// Check the program of an external formal system.
    #[command(subcommand)]
    External(ExternalCommand),
    /// Check what this machine supports (CPU, GPU, Lean, Slurm).
    Doctor(DoctorArgs),
    /// Benchmark this machine.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Write the JSON schema of a configuration file, for editors.
    Schema {
        /// The command that reads the file: `sgs run FILE`, `sgs data filter FILE` and so on.
        #[arg(value_parser = crate::arg_values::SCHEMAS)]
        file: String,
    },
    /// Write a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a manual page: `sgs man data build | man -l -`.
    Man {
        /// The command [default: sgs itself].
        command: Vec<String>,
    },
}

/// The subcommands in the order of `--help`, by purpose.
pub const GROUPS: [(&str, &[&str]); 6] = [
    ("Runs", &["run", "resume", "serve", "worker", "sweep", "status"]),
    ("Results", &["report", "compare", "export", "fit"]),
    ("Using models", &["prove", "conjecture", "review", "eval", "serve-model"]),
    ("Making models", &["data", "pretrain", "sft"]),
    ("Formal systems and this machine", &["verify", "lean", "external", "doctor", "bench"]),
    ("Shell and editor", &["schema", "completions", "man", "help"]),
];

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Build the slice, the targets and the training corpora of the embedded formal system.
    Build(DataBuildArgs),
    /// Compose theorems of core Lean, check each with Lean, and write them as targets and training corpora.
    Compose(DataComposeArgs),
    /// Convert a data set of Lean problems in any known layout to JSON Lines.
    Import(DataImportArgs),
    /// Drop easy and false problems from a set of Lean problems, as the paper did for D_3k.
    Filter(DataFilterArgs),
    /// Classify Lean problems by difficulty and area with a served model.
    Classify(DataClassifyArgs),
    /// Review the conjectures of runs, to train a Guide on: a served model (Lean) or the rubric (Metamath).
    Reviews(DataReviewsArgs),
}

/// Upper bound of all timeouts, in seconds.
const A_YEAR: u64 = 31_536_000;
/// Upper bound of sequences in a batch.
const MAX_BATCH: u64 = 1 << 16;
/// Upper bound of lengths, in tokens.
const MAX_TOKENS: u64 = 10_000_000;
/// Upper bound of samples that one call takes from a model for one statement.
const MAX_SAMPLES: u64 = 1_000_000;
/// Allowed memory for buffers and KV cache, in MiB.
const MEMORY_MIB: RangeInclusive<u64> = 16..=1_000_000_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sgs run                              100 theorems on two cores
  sgs run --rounds 20 --seed 2         a shorter run with another seed
  sgs run cispo --size metamath        another method and size
  sgs run --size metamath --device cuda
  sgs run my.toml --set algorithm.solver.learning_rate=5e-5
A run ends when it reaches the first of its limits: rounds, minutes, generations.")]
pub struct RunArgs {
    /// Method: sgs, reinforce-half, reinforce, expert-iteration, cispo, sgs-no-guide,
    /// sgs-frozen-conjecturer, sgs-no-conditioning, sgs-cispo, sgs-proofs, sgs-attempts, composer, oracle, stp,
    /// sampling-only, or a TOML file [default: sgs].
    #[arg(hide_possible_values = true, value_parser = method())]
    pub method: Option<String>,
    /// Size: metamath-quick, metamath, lean-core, external (CPU); metamath-deep, metamath-congruence, metamath-13m,
    /// metamath-30m (one GPU); lean-d3k (eight GPUs) [default: external with problems.system=external, otherwise
    /// metamath-quick].
    #[arg(long, hide_possible_values = true, value_parser = size())]
    pub size: Option<String>,
    #[command(flatten)]
    pub keys: KeyArgs,
    /// Follow the paper's text, except for the size's learning rates (docs/fidelity.md). Explicit settings take precedence.
    #[arg(long)]
    pub as_paper: bool,
    /// Follow the authors' code where it differs from the paper (docs/fidelity.md). Explicit settings take precedence.
    #[arg(long)]
    pub as_published: bool,
    /// Set a configuration key (not the method or the size). Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder of the run [default: runs/METHOD-SIZE, with a number at the end if that exists].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the resolved configuration, the source of each value and the memory plan, then exit.
    #[arg(long)]
    pub dry_run: bool,
    /// With `--dry-run`: replace an assumption of the forecast. completion (tokens of every role), sampled_part, longest,
    /// unsolved, accepted, trained_hard, trained_all, trained_conjectures, check_s or host_s; `--json` prints them. Repeatable.
    #[arg(long, value_name = "NAME=NUMBER", requires = "dry_run")]
    pub assume: Vec<String>,
    /// Print every configuration key with its meaning, allowed values, default, current value and source, then exit.
    #[arg(long)]
    pub explain: bool,
    #[command(flatten)]
    pub execution: ExecutionArgs,
}

/// Flags that set the key of the same meaning.
#[derive(Debug, Args)]
pub struct KeyArgs {
    #[command(flatten)]
    pub budget: BudgetArgs,
    /// Seed of all random numbers [default: 1].
    #[arg(long, value_name = "N", value_parser = seed())]
    pub seed: Option<u64>,
    /// Device that the model runs on [default: from the size].
    #[arg(long, value_parser = ["cpu", "cpu-f32", "cuda"])]
    pub device: Option<String>,
}

impl KeyArgs {
    /// Returns the flags that are given: flag, key and value.
    pub fn given(&self) -> Vec<(&'static str, &'static str, String)> {
        let BudgetArgs { rounds, minutes, generations } = self.budget;
        let all = [
            ("--rounds", "rounds", rounds.map(|n| n.to_string())),
            ("--minutes", "minutes", minutes.map(|m| m.to_string())),
            ("--generations", "generations", generations.map(|n| n.to_string())),
            ("--seed", "seed", self.seed.map(|n| n.to_string())),
            ("--device", "model.device", self.device.clone()),
        ];
        all.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?))).collect()
    }
}

/// The limits of a run, saved in its configuration.
#[derive(Clone, Copy, Debug, Args)]
pub struct BudgetArgs {
    /// Number of rounds in total.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1_000_000))]
    pub rounds: Option<u32>,
    /// Time budget in minutes across all sessions (0: unlimited).
    #[arg(long, value_name = "M", value_parser = real(at_least(0.0).at_most(1e7)))]
    pub minutes: Option<f64>,
    /// Stop starting rounds after this many Solver generations (0: unlimited).
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=1_000_000_000_000))]
    pub generations: Option<u64>,
}

/// Where a run works, and how it shows its progress.
#[derive(Debug, Args)]
pub struct ExecutionArgs {
    /// Print one JSON object per round.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub fleet: FleetArgs,
    #[command(flatten)]
    pub ranks: RankArgs,
    #[command(flatten)]
    pub page: PageArgs,
}

/// The workers of a run and the address of the coordinator.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
pub struct FleetArgs {
    /// Workers to start: embedded (threads of this process), none (wait for workers to connect), local:N,
    /// local:generate=G,verify=V, slurm:generate=G,verify=V,partition=P,generate.gres=gpu:1, or a TOML file [default:
    /// embedded; `sgs serve`: none; `sgs resume`: as before].
    #[arg(long, value_name = "SPEC")]
    pub workers: Option<String>,
    /// Address to accept workers on; port 0 picks a free port [default with workers: loopback, with Slurm all
    /// addresses; `sgs serve`: 127.0.0.1:7717; `sgs resume`: as before].
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen_address)]
    pub listen: Option<std::net::SocketAddr>,
    /// Name or address under which workers reach this machine [default: the host name].
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// File with the token that workers must present [default: SGS_TOKEN, SGS_TOKEN_FILE, or fleet.token in the
    /// run's folder, from which workers get it in any case].
    #[arg(long, value_name = "FILE", value_hint = INPUT_FILE)]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Start workers on any machine that has this program:
  sgs worker generate --connect https://HOST:7717 --token-file FILE
  sgs worker verify   --connect https://HOST:7717 --token-file FILE
`sgs resume DIR` continues in the same way, on the same address.")]
pub struct ServeArgs {
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// Sample completions. The worker loads each new version of the run's weights.
    Generate(WorkerGenerateArgs),
    /// Verify proofs, one per slot at a time.
    Verify(WorkerVerifyArgs),
}

const WORKER_HELP: &str = "\
A worker keeps no state: you can kill it at any time. On SIGTERM it finishes what it can and returns its other tasks.
Exit codes: 0 the run finished, or the worker was signalled; 1 the coordinator rejected the worker or is unreachable.";

/// Arguments of both kinds of worker.
#[derive(Debug, Args)]
pub struct ConnectArgs {
    /// Address of the coordinator, https://HOST:PORT, as `sgs run` or `sgs serve` prints it.
    #[arg(long, value_name = "URL")]
    pub connect: String,
    /// The coordinator's fleet.token [default: its text in SGS_TOKEN, or the file named by SGS_TOKEN_FILE].
    #[arg(long, value_name = "FILE", value_hint = INPUT_FILE)]
    pub token_file: Option<PathBuf>,
    /// CA certificates to trust, in PEM format, if a proxy with another certificate is in front of the coordinator.
    #[arg(long, value_name = "FILE", value_hint = INPUT_FILE)]
    pub authority: Option<PathBuf>,
    /// Name of the worker, unique within the run [default: its kind, host, process id and random characters].
    #[arg(long)]
    pub name: Option<String>,
    /// Give up after this many seconds without an answer from the coordinator.
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = whole::<u64>(0..=A_YEAR))]
    pub patience: u64,
    /// Seconds after SIGTERM in which running tasks may finish; the rest are returned to the coordinator.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = whole::<u64>(0..=A_YEAR))]
    pub grace: u64,
    /// Exit when the process with this id exits (the process that started the worker).
    #[arg(long, value_name = "PID", hide = true)]
    pub parent: Option<u32>,
}

#[derive(Debug, Args)]
#[command(after_help = WORKER_HELP)]
pub struct WorkerGenerateArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Device to sample on [default: from the run's configuration].
    #[arg(long, value_parser = devices())]
    pub device: Option<DeviceKind>,
    /// Compute threads (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0..=4096))]
    pub threads: usize,
    /// Batch size per role, in sequences [default: from the run's configuration].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MAX_BATCH))]
    pub batch: Option<usize>,
    /// Memory for buffers and KV cache per role, in MiB [default: from the run's configuration].
    #[arg(long, value_name = "MIB", value_parser = whole::<u64>(MEMORY_MIB))]
    pub memory_mib: Option<u64>,
    /// Folder for downloaded weights if this machine cannot read the run's folder [default: the temporary folder].
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = WORKER_HELP)]
pub struct WorkerVerifyArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Proofs to verify at the same time (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0..=4096))]
    pub slots: usize,
    #[command(flatten)]
    pub lean: LeanArgs,
}

/// Address and token of the live page.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Live page")]
pub struct PageArgs {
    /// Serve a live report of the run on this address, or on this loopback port [default: any free loopback port].
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "0", value_parser = page_address)]
    pub serve: Option<SocketAddr>,
    /// Access token for the page; required on non-loopback addresses [default: SGS_PAGE_TOKEN].
    #[arg(long, value_name = "TOKEN", requires = "serve")]
    pub token: Option<String>,
}

impl PageArgs {
    /// Returns an error if the page must not be served as requested. Call it before the run starts.
    pub fn check(&self) -> anyhow::Result<()> {
        if std::env::var_os("SGS_PAGE_TOKEN").is_some_and(|token| token.to_str().is_none()) {
            return Err(
                crate::exit::Usage("SGS_PAGE_TOKEN is not UTF-8: set another token".to_owned()).into()
            );
        }
        let options = self.serve.map(|address| LiveOptions { address, token: self.token() });
        let checked = options.map_or(Ok(()), |options| options.check());
        checked.map_err(|e| crate::exit::Usage(format!("--serve: {e}")).into())
    }

    /// Returns the token from the argument or the environment.
    pub fn token(&self) -> Option<String> {
        self.token.clone().or_else(|| std::env::var("SGS_PAGE_TOKEN").ok())
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Giving only --rounds removes the other limits. All changes are saved in the run's configuration.")]
pub struct ResumeArgs {
    /// Folder of the run.
    #[arg(value_hint = INPUT_DIR)]
    pub dir: PathBuf,
    #[command(flatten)]
    pub budget: BudgetArgs,
    /// Change `training.shared_memory` or a setting of the run's inference servers (address, folder, key file,
    /// concurrency), such as sampling.endpoint.url=ADDRESS. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Verify the checksums of all files first, and fail if one is damaged (about one second per gigabyte).
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub execution: ExecutionArgs,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Runs, or folders of runs such as that of a sweep; several runs are compared.
    #[arg(required = true, value_hint = INPUT_DIR)]
    pub runs: Vec<PathBuf>,
    /// Output folder [default: `report` in the run's folder; for several runs, `report`].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw a horizontal line at another model's rate: `DSPv2 671B, pass@4=0.42`, `=42%`, or `=FILE` with the output of
    /// `sgs eval --json` (its largest k). Repeatable.
    #[arg(long = "yardstick", value_name = "LABEL=RATE", value_parser = crate::yardstick::argument)]
    pub yardsticks: Vec<Yardstick>,
    /// Exclude the first N generations from scaling-law fits [default: 100,000, scaled down for short runs].
    #[arg(long, value_name = "N", value_parser = real(at_least(0.0).at_most(1e15)))]
    pub cut: Option<f64>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The file (TOML); every key is optional:
  methods = [\"sgs\", \"reinforce-half\"]     # or TOML files, as for `sgs run`
  seeds = [1, 2, 3]
  size = \"metamath-quick\"
  jobs = 2                                 # runs at once
  [set]                                    # keys of all runs
  rounds = 20
  [vary]                                   # every combination of these is a run
  \"algorithm.solver.learning_rate\" = [5e-5, 1e-4]
The same command continues an interrupted sweep and retries failed runs. With CUDA each run uses
one GPU, otherwise an equal share of the cores.
Exit codes: 0 all runs finished; 1 a run failed; 130 interrupted.")]
pub struct SweepArgs {
    /// The sweep (TOML).
    #[arg(value_hint = INPUT_FILE)]
    pub file: PathBuf,
    /// Folder of the runs and the report [default: runs/ and the file's name without its extension].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Runs at the same time [default: from the file; otherwise one per GPU or per two cores].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MAX_JOBS))]
    pub jobs: Option<usize>,
    /// Print the commands without running them.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Two or more runs, or a folder of runs such as that of a sweep.
    #[arg(required = true, value_name = "RUN", value_hint = INPUT_DIR)]
    pub runs: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each theorem has its shortest known proof. A JSON line has id, context, statement and proof, as
`sgs verify` reads them, and `found`: kind, target, round, steps, and the statement in display form.

Examples:
  sgs export runs/a --mm a.mm && metamath \"read 'a.mm'\" \"verify proof *\" exit
  sgs export runs/a | sgs verify -")]
pub struct ExportArgs {
    /// Folder of the run.
    #[arg(value_hint = INPUT_DIR)]
    pub dir: PathBuf,
    /// Write a Metamath database: that of the run, followed by the theorems, each verified again.
    #[arg(long, value_name = "FILE", conflicts_with = "jsonl")]
    pub mm: Option<PathBuf>,
    /// Write one JSON object per line; - for standard output [default: -].
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Export only the targets, only the conjectures, or the unsolved targets (as a data set for `problems.set=FILE`).
    #[arg(long, value_enum, value_name = "KIND")]
    pub only: Option<Exported>,
}

/// Kinds of theorems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Exported {
    /// Targets.
    Targets,
    /// Conjectures.
    Conjectures,
    /// Targets with rollouts and no proof.
    Unsolved,
}

#[derive(Debug, Args)]
pub struct DataBuildArgs {
    /// Take the slice, at most 9,000 axioms and theorems, from this Metamath database instead of the shipped one.
    #[arg(long, value_name = "FILE", value_hint = INPUT_FILE)]
    pub source: Option<PathBuf>,
    /// Output folder.
    #[arg(long, value_name = "DIR", default_value = "metamath-data")]
    pub out: PathBuf,
    /// Seed of the corpora (the targets have a fixed seed).
    #[arg(long, default_value_t = 1, value_parser = seed())]
    pub seed: u64,
    /// Number of random theorems to compose.
    #[arg(long, default_value_t = 60_000, value_parser = whole::<usize>(0..=100_000_000))]
    pub composed: usize,
    /// Maximum number of reviews per theorem in the Guide's corpus.
    #[arg(long, default_value_t = 8, value_parser = whole::<usize>(0..=1000))]
    pub reviews: usize,
    /// Maximum number of steps of a proof that a model learns to write; also leaves out the problems of the sets `deep`
    /// and `congruence` and of their held-out sets.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=1000))]
    pub max_steps: Option<usize>,
}

#[derive(Debug, Args)]
pub struct DataComposeArgs {
    /// Output folder. The same command continues an interrupted composition.
    #[arg(long, value_name = "DIR", default_value = "lean-data")]
    pub out: PathBuf,
    /// Seed of the theorems.
    #[arg(long, default_value_t = 1, value_parser = seed())]
    pub seed: u64,
    /// Number of draws for the corpus; a draw yields one theorem and its intermediate results.
    #[arg(long, default_value_t = 9_000, value_parser = whole::<u64>(0..=100_000_000))]
    pub composed: u64,
    /// Number of targets: harder theorems that the corpus does not state.
    #[arg(long, default_value_t = 400, value_parser = whole::<usize>(0..=1_000_000))]
    pub targets: usize,
    /// Number of held-out problems of the same difficulty.
    #[arg(long, default_value_t = 200, value_parser = whole::<usize>(0..=1_000_000))]
    pub held_out: usize,
    #[command(flatten)]
    pub lean: LeanArgs,
}

#[derive(Debug, Args)]
pub struct PretrainArgs {
    /// Configuration file (TOML).
    #[arg(value_hint = INPUT_FILE, required_unless_present = "explain")]
    pub config: Option<PathBuf>,
    /// Output folder of the model, its checkpoints and the loss curve.
    #[arg(long, value_name = "DIR", required_unless_present = "explain")]
    pub out: Option<PathBuf>,
    /// Print every key of the file with its meaning, allowed values and default, then exit.
    #[arg(long)]
    pub explain: bool,
    /// Device to train on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// File with the token shared by ranks on several machines [default: SGS_TOKEN, or the file named by SGS_TOKEN_FILE].
    #[arg(long, value_name = "FILE", value_hint = INPUT_FILE)]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub ranks: RankArgs,
}

/// Data-parallel training by several processes, each with a GPU or a share of the cores.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Ranks")]
pub struct RankArgs {
    /// Number of training processes; without --rank, this command starts all of them [default: the tasks of the Slurm
    /// step; otherwise the configuration's, or 1].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=65_536))]
    pub ranks: Option<usize>,
    /// Rank of this process, counted from 0, if the ranks are started separately [default: the task id of the Slurm step].
    #[arg(long, value_name = "R", value_parser = whole::<usize>(0..=65_535))]
    pub rank: Option<usize>,
    /// Address on which rank 0 listens and to which the others connect [default: the first node of the Slurm step].
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<String>,
    /// Give up after waiting this many seconds for a rank.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = whole::<u64>(0..=A_YEAR))]
    pub rank_patience: u64,
}

impl RankArgs {
    /// Converts the arguments for the library.
    pub fn rank_options(&self) -> RankOptions {
        RankOptions {
            ranks: self.ranks,
            rank: self.rank,
            rendezvous: self.rendezvous.clone(),
            patience: std::time::Duration::from_secs(self.rank_patience),
        }
    }
}

#[derive(Debug, Args)]
pub struct SftArgs {
    /// Model to start from (Hugging Face layout).
    #[arg(long, value_name = "DIR", value_hint = INPUT_DIR, required_unless_present = "explain")]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub train: PretrainArgs,
}

/// The models to sample from, and their device.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct PlayArgs {
    /// Use the latest models of this run; of a run's configuration (TOML), the model before training.
    #[arg(long, value_name = "DIR", conflicts_with = "model", value_hint = INPUT_DIR)]
    pub run: Option<PathBuf>,
    /// Model folder (Hugging Face layout) [default: the shipped base model].
    #[arg(long, value_name = "DIR", value_hint = INPUT_DIR)]
    pub model: Option<PathBuf>,
    /// Formal system [default: the run's; otherwise metamath].
    #[arg(long, value_parser = systems())]
    pub system: Option<SystemName>,
    /// Sampling seed; the same seed gives the same samples.
    #[arg(long, default_value_t = 1, value_parser = seed())]
    pub seed: u64,
    /// Memory for buffers and KV cache, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = whole::<u64>(MEMORY_MIB))]
    pub memory_mib: u64,
    /// Device to sample on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    #[command(flatten)]
    pub lean: LeanArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Prints its address when it is ready. POST /v1/completions accepts prompts as text or tokens.
Extensions: vLLM's stop_token_ids, return_token_ids and ignore_eos; SGLang's
update_weights_from_disk, pause_generation and continue_generation. Log-probs are those of the
sampled tokens at temperature 1.

Examples:
  sgs serve-model --listen 127.0.0.1:8000
  sgs run sampling-only --set 'sampling.endpoint.roles=[\"solver\"]' --set \\
      sampling.endpoint.url=http://127.0.0.1:8000/v1")]
pub struct ServeModelArgs {
    /// Role whose model is served. The Solver and the Conjecturer are those that the run has trained; its Guide is frozen.
    #[arg(long, value_parser = roles(), default_value = "solver")]
    pub role: Role,
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen_address, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// File with the API key that clients must present; required on non-loopback addresses and for --updates.
    #[arg(long, value_name = "FILE", value_hint = INPUT_FILE)]
    pub key_file: Option<PathBuf>,
    /// Name of the model in the protocol.
    #[arg(long, default_value = "sgs")]
    pub name: String,
    /// Batch size, in sequences.
    #[arg(long, default_value_t = 256, value_parser = whole::<usize>(1..=MAX_BATCH))]
    pub batch: usize,
    /// Context window, in tokens [default: the run's; otherwise the model's].
    #[arg(long, value_name = "TOKENS", value_parser = whole::<usize>(1..=MAX_TOKENS))]
    pub context: Option<usize>,
    /// Allow clients to load weights from below this folder (SGLang's POST /update_weights_from_disk, vLLM's
    /// /collective_rpc).
    #[arg(long, value_name = "DIR")]
    pub updates: Option<PathBuf>,
    #[command(flatten)]
    pub play: PlayArgs,
}

fn eval_problems() -> String {
    format!(
        "Problem set. Metamath: {}; Lean: {}; or a file with one JSON object per line: id, statement (in display or \
         canonical form) and context [default: the run's; otherwise all, for Lean d3k]",
        METAMATH_SETS.join(", "),
        LEAN_SETS.join(", ")
    )
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sgs eval --run runs/sgs-metamath-quick --problems held-out -k 16
  sgs eval --endpoint http://127.0.0.1:8000/v1     a served model (vLLM, SGLang, llama.cpp)
The intervals are 95% bootstrap intervals over problems.
A served model must have the tokenizer of --model.")]
#[command(mut_arg("endpoint", |endpoint| endpoint.conflicts_with("run")))]
pub struct EvalArgs {
    #[arg(long, value_name = "SET", hide_possible_values = true, value_parser = problem_set(), help = eval_problems())]
    pub problems: Option<String>,
    /// Rollouts per problem.
    #[arg(short, long, default_value_t = 8, value_parser = whole::<u32>(1..=10_000))]
    pub k: u32,
    /// Repairs of a rollout whose proof is refused: further rollouts with the proof and the checker's error in the prompt.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u32>(0..=4))]
    pub repair_turns: u32,
    /// Maximum length of a proof or review, in tokens [default: 64; for Lean the run's, or 8192 less the prompt].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MAX_TOKENS))]
    pub max_new_tokens: Option<usize>,
    /// Batch size, in sequences.
    #[arg(long, default_value_t = 256, value_parser = whole::<usize>(1..=MAX_BATCH))]
    pub batch: usize,
    /// Evaluate only the first N problems.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=1_000_000_000))]
    pub limit: Option<usize>,
    /// Also sample one conjecture per problem.
    #[arg(long, conflicts_with = "endpoint")]
    pub roles: bool,
    /// Also review the examples of this corpus (`guide-held-out.parquet` of `sgs data build`) and compare the scores with
    /// the known ones: agreement, rank correlation, and separation of useful from useless conjectures.
    #[arg(long, value_name = "FILE", conflicts_with = "endpoint", value_hint = INPUT_FILE)]
    pub reviews: Option<PathBuf>,
    /// Evaluate only the Guide on these reviews: no proofs, no checker.
    #[arg(long, requires = "reviews")]
    pub only_reviews: bool,
    /// Print JSON, with a proof of each solved problem.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub play: PlayArgs,
    #[command(flatten)]
    pub server: EndpointArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sgs prove \"( ( A C_ B /\\ B C_ C ) -> A C_ ( C u. D ) )\"
  sgs prove --run runs/sgs-metamath-quick \"|- ph  &  |- ( ph -> ps )  =>  |- ps\"
  sgs prove '( ph -> A. x ph )  ($d x ph)'    single quotes, because of the $; x is not in ph
  sgs prove --run runs/sgs-metamath-quick < statements.txt
Symbols of set.mm: -> implies, -. not, /\\ and, \\/ or, <-> if and only if, A. x for all, E. x exists,
e. element of, C_ subset, u. union, i^i intersection. Variables: ph ps ch th formulas, x y z sets,
A B C D classes.
Exit codes:
  0  every statement was proved
  1  a statement was not proved, or a line of standard input is not valid
  2  the given statement is not valid")]
#[command(mut_arg("problem", |arg| arg.help("Re-prove a theorem of the shipped database, using only what precedes it; for Lean: a target of a shipped set")))]
#[command(mut_arg("samples", |arg| arg.help("Maximum number of proofs to sample").default_value("64")))]
pub struct ProveArgs {
    /// Statement in display form, or as `$d x ph $e |- ph $p |- A. x ph`, symbols separated by spaces; for Lean:
    /// `theorem a (p : Prop) (h : p) : p` [default: read statements from standard input, one per line].
    #[arg(conflicts_with = "problem")]
    pub statement: Option<String>,
    /// Sampling temperature; 0 is greedy.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true, value_parser = real(at_least(0.0).at_most(100.0)).map(|t| t as f32))]
    pub temperature: f32,
    /// Maximum length of a proof, in tokens.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = whole::<usize>(1..=MAX_TOKENS))]
    pub max_new_tokens: usize,
    #[command(flatten)]
    pub sample: SampleArgs,
}

impl ProveArgs {
    /// Returns whether statements are read from standard input.
    pub fn is_interactive(&self) -> bool {
        self.statement.is_none() && self.sample.problem.is_none()
    }
}

/// The problem, the number of samples and the model of `sgs prove`, `sgs conjecture` and `sgs review`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    /// Target: a theorem of the shipped database; for Lean: a target of a shipped set.
    #[arg(long, value_name = "LABEL")]
    pub problem: Option<String>,
    /// Use only what precedes this label of the shipped database; for Lean: the header, such as "import Mathlib".
    #[arg(long, value_name = "LABEL", conflicts_with = "problem")]
    pub context: Option<String>,
    /// Number of samples.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 16, value_parser = whole::<u32>(1..=MAX_SAMPLES))]
    pub samples: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub play: PlayArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sgs conjecture --run runs/sgs-metamath-quick \"|- ( ( ph -> ps ) -> ( -. ps -> -. ph ) )\"
  sgs conjecture --problem syl -n 32
Exit codes: 0 at least one valid conjecture; 1 none; 2 the target is not valid.")]
#[command(mut_arg("samples", |arg| arg.help("Number of conjectures to sample")))]
pub struct ConjectureArgs {
    /// Target: a statement in display or canonical form.
    #[arg(conflicts_with = "problem")]
    pub statement: Option<String>,
    #[command(flatten)]
    pub sample: SampleArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  sgs review --target \"|- ( ( ph -> ps ) -> ( -. ps -> -. ph ) )\" \"|- ( ph -> -. -. ph )\"
The output shows each Metamath statement as the model reads it: its variables are renamed in the
order of their first appearance (formulas ph, ps, ...; sets x, y, ...; classes A, B, ...).
Exit codes: 0 at least one well-formed review; 1 none; 2 a statement is not valid.")]
#[command(mut_arg("samples", |arg| arg.help("Number of reviews to sample").default_value("4")))]
pub struct ReviewArgs {
    /// Conjecture: a statement in display or canonical form.
    pub conjecture: String,
    /// Target of the conjecture: a statement.
    #[arg(long, value_name = "STATEMENT", conflicts_with = "problem")]
    pub target: Option<String>,
    #[command(flatten)]
    pub sample: SampleArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A line of input:
  {\"id\": \"a\", \"context\": \"syl\", \"statement\": \"|- ph  =>  |- ( ps -> ph )\", \"proof\": \"h1 a1i\"}
  statement: in display form, or \"$d x ph $e |- ph $p |- A. x ph\"; or in parts:
    \"distinct\": [[\"x\", \"ph\"]], \"hypotheses\": [\"|- ph\"], \"conclusion\": \"|- A. x ph\".
  context: the proof may use only what precedes this label; without it, the whole database.
A line for Lean:
  {\"id\": \"a\", \"header\": \"import Mathlib\", \"statement\": \"theorem a : 1 = 1 := by\",
   \"proof\": \"\\n  rfl\"}
  expect: the expected verdict. The layouts of `sgs data import` are accepted, too.
A line of output: {\"id\", \"verdict\", \"reason\", \"step\", \"micros\"}; verdict is proved, refused,
malformed, resource or infra.
Exit codes: 0 every line got a verdict; 1 a line is not valid, could not be decided, got an
unexpected verdict, or with --fail-unproved is not proved.")]
pub struct VerifyArgs {
    /// Proofs as JSON Lines; - for standard input.
    #[arg(value_hint = INPUT_FILE)]
    pub file: PathBuf,
    /// Formal system of the proofs.
    #[arg(long, value_parser = systems(), default_value = "metamath")]
    pub system: SystemName,
    /// Metamath database to use instead of the shipped slice of set.mm.
    #[arg(long, value_name = "FILE.mm", value_hint = INPUT_FILE)]
    pub database: Option<PathBuf>,
    /// Reject databases with missing or invalid proofs [default: warn].
    #[arg(long, requires = "database")]
    pub strict: bool,
    /// Exit with code 1 unless every line is proved.
    #[arg(long)]
    pub fail_unproved: bool,
    /// Write the database with the proved theorems appended, for other verifiers.
    #[arg(long, value_name = "OUT.mm")]
    pub export: Option<PathBuf>,
    /// Threads (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0..=4096))]
    pub threads: usize,
    #[command(flatten)]
    pub lean: LeanArgs,
}

/// The Lean installation and its checker.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lean")]
pub struct LeanArgs {
    /// Settings of the checker (TOML); every key is optional.
    #[arg(long, value_name = "FILE", value_hint = INPUT_FILE)]
    pub lean: Option<PathBuf>,
    /// Checker program [default: repl; for a worker the run's].
    #[arg(long, value_enum, value_name = "CHECKER")]
    pub lean_checker: Option<LeanChecker>,
    /// Folder made by `sgs lean setup` [default: lean-setup, for wasm lean-wasm; for a worker the run's].
    #[arg(long, value_name = "DIR")]
    pub lean_root: Option<PathBuf>,
    /// Lean version in that folder [default: v4.15.0, for wasm v4.28.0-pre; for a worker the run's].
    #[arg(long, value_name = "VERSION")]
    pub lean_version: Option<String>,
    /// Proofs to check at the same time [default: one per core].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=4096))]
    pub lean_slots: Option<usize>,
    /// Fail if the sandbox is incomplete.
    #[arg(long)]
    pub require_sandbox: bool,
    /// Skip the initial check that the checker accepts a true theorem and rejects a false one.
    #[arg(long)]
    pub skip_canaries: bool,
}

/// The programs that check Lean proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeanChecker {
    /// The community REPL, with Mathlib.
    Repl,
    /// The judge, with the same installation; several theorems per file.
    File,
    /// The WebAssembly build: core Lean; the library's theorems count as given; for trials.
    Wasm,
}

#[derive(Debug, Subcommand)]
pub enum LeanCommand {
    /// Download and build Lean, Mathlib, the REPL and the judge in a folder; continues an interrupted setup.
    Setup(LeanSetupArgs),
    /// Write the built-in prompts into a folder, to change them and run with `lean.prompts`.
    Prompts {
        /// Output folder.
        #[arg(long, value_name = "DIR", default_value = "lean-prompts")]
        out: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum ExternalCommand {
    /// Check whether the program follows the protocol: prompts, malformed completions, wrong and known proofs.
    Check(ExternalCheckArgs),
}

#[derive(Debug, Args)]
pub struct ExternalCheckArgs {
    /// Configuration of a run with `problems.system = "external"`, or the folder of such a run.
    #[arg(value_hint = INPUT_FILE)]
    pub run: PathBuf,
    /// Proofs that the program must accept, such as those of `sgs export`: JSON Lines with id, statement, context and proof.
    #[arg(long, value_name = "FILE", value_hint = INPUT_FILE)]
    pub proofs: Option<PathBuf>,
    /// Set a configuration key. Repeatable. Only with a configuration.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LeanSetupArgs {
    /// Installation folder [default: lean-setup, for --wasm lean-wasm].
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Lean version; Mathlib, REPL and judge follow it.
    #[arg(long, value_name = "VERSION", default_value = sgs_lean::VERSION)]
    pub version: String,
    /// Install the WebAssembly build instead: core Lean only, for trials on any Linux x86-64 machine with npm.
    #[arg(long)]
    pub wasm: bool,
    /// Print the steps and the disk space that they need, without running them.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the files that were read are intact; 1 a file is damaged (`sgs doctor RUN` checks all)."
)]
pub struct StatusArgs {
    /// Folder of the run.
    #[arg(value_name = "RUN", value_hint = INPUT_DIR)]
    pub dir: PathBuf,
    /// Number of latest rounds to show.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>(0..=1_000_000))]
    pub rounds: usize,
    /// Print JSON.
    #[arg(long, conflicts_with = "serve")]
    pub json: bool,
    /// Print the journal's results of unpublished rounds, one JSON object per result.
    #[arg(long, conflicts_with_all = ["serve", "json"])]
    pub journal: bool,
    #[command(flatten)]
    pub page: PageArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A CSV file has the columns generations and rate (0 to 1), named in a header or as its first two columns.
Exit codes: 0 every curve was fitted; 1 a curve was not. A fit that the points do not determine has warnings.")]
pub struct FitArgs {
    /// Folders of runs, or CSV files: generations and rate by name or as the first two columns; the columns `run`,
    /// `method` and `seed` distinguish several curves.
    #[arg(required = true, value_name = "RUN|CSV", value_hint = INPUT_FILE)]
    pub inputs: Vec<PathBuf>,
    /// Exclude the first N generations [default: 100,000, scaled down for short curves].
    #[arg(long, value_name = "N", value_parser = real(at_least(0.0).at_most(1e15)))]
    pub cut: Option<f64>,
    /// Upper bound of the asymptote.
    #[arg(long, value_name = "RATE", default_value_t = 1.0, value_parser = real(above(0.0).at_most(1.0)))]
    pub max_rate: f64,
    /// Confidence level of the intervals.
    #[arg(long, default_value_t = 0.95, value_parser = real(above(0.0).below(1.0)))]
    pub level: f64,
    /// Number of random halves of the points to refit.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole::<usize>(0..=100_000))]
    pub halves: usize,
    /// Seed of the random halves.
    #[arg(long, default_value_t = HALVES_SEED, value_parser = seed())]
    pub seed: u64,
    /// The rates of CSV files are percentages.
    #[arg(long)]
    pub percent: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Verify the proofs of a Metamath database, with the unifier only and with the kernel.
    Verify(BenchVerifyArgs),
    /// Sample from a model with random weights.
    Sample(BenchSampleArgs),
    /// Train a model with random weights on random tokens.
    Train(BenchTrainArgs),
}

#[derive(Debug, Args)]
pub struct BenchVerifyArgs {
    /// Metamath database to use instead of the shipped slice of set.mm.
    #[arg(long, value_name = "FILE.mm", value_hint = INPUT_FILE)]
    pub database: Option<PathBuf>,
    /// Skip proofs with more steps.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = whole::<usize>(1..=1_000_000))]
    pub steps: usize,
    /// Repetitions; the fastest counts.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<usize>(1..=1_000_000))]
    pub repeats: usize,
    /// Threads of the parallel measurement (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0..=4096))]
    pub threads: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct BenchSampleArgs {
    /// Model shape: small (4 layers, width 256, vocabulary 1,024), or a folder with a config.json.
    #[arg(long = "model", value_name = "SHAPE", default_value = "small")]
    pub shape: String,
    /// Batch size, in requests.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole::<usize>(1..=MAX_BATCH))]
    pub batch: usize,
    /// Number of distinct prompts.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole::<usize>(1..=MAX_BATCH))]
    pub prompts: usize,
    /// Tokens per prompt.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<usize>(1..=MAX_TOKENS))]
    pub prompt_tokens: usize,
    /// New tokens per request.
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = whole::<usize>(1..=MAX_TOKENS))]
    pub new_tokens: usize,
    /// Number of measured runs.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<usize>(1..=1_000_000))]
    pub runs: usize,
    /// Device to sample on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// CPU threads (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0..=4096))]
    pub threads: usize,
}

#[derive(Debug, Args)]
pub struct BenchTrainArgs {
    /// Model shape: small (4 layers, width 256, vocabulary 1,024), or a folder with a config.json.
    #[arg(long = "model", value_name = "SHAPE", default_value = "small")]
    pub shape: String,
    /// Sequences per optimizer step.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<usize>(1..=MAX_BATCH))]
    pub sequences: usize,
    /// Tokens per sequence.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = whole::<usize>(1..=MAX_TOKENS))]
    pub length: usize,
    /// Tokens per micro-batch.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = whole::<usize>(1..=MAX_TOKENS))]
    pub micro_batch_tokens: usize,
    /// Number of measured steps.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>(1..=1_000_000))]
    pub steps: usize,
    /// Device to train on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// CPU threads (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0..=4096))]
    pub threads: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 the embedded default works here; 1 it does not. GPU, Lean and Slurm may be absent.")]
pub struct DoctorArgs {
    /// Check this run's files against their checksums instead of checking the machine.
    #[arg(value_hint = INPUT_DIR)]
    pub run: Option<PathBuf>,
    /// Check this model folder instead of the shipped base model.
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Folder in which runs will be written.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Folder of Lean with Mathlib, made by `sgs lean setup`.
    #[arg(long, value_name = "DIR", default_value = sgs_lean::ROOT)]
    pub lean_root: PathBuf,
    /// Folder made by `sgs lean setup --wasm`.
    #[arg(long, value_name = "DIR", default_value = sgs_lean::WASM_ROOT)]
    pub lean_wasm_root: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Known layouts: Goedel-Pset, NuminaMath-LEAN, miniF2F, D_3k, and Lean source with sorry.
Exit codes: 0 every record was imported; 1 some were rejected (they are listed; the others are written).")]
pub struct DataImportArgs {
    /// Data set: JSON Lines, a JSON array, Parquet, D_3k or Lean source, optionally .zst.
    #[arg(value_hint = INPUT_FILE)]
    pub file: PathBuf,
    /// Output file; - for standard output.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// File with the Lean header of problems that have none.
    #[arg(long, value_name = "FILE", value_hint = INPUT_FILE)]
    pub header: Option<PathBuf>,
    /// Lean version of the problems, such as v4.15.0, for records that name none.
    #[arg(long, value_name = "VERSION")]
    pub toolchain: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The file names the problems and the filter stages, in order:
  kind = \"rollouts\"   samples k rollouts of a local or served model; drops problems that are proved
                      too often (drop_above) and, with negation = true, those that are proved false
  kind = \"sample\"     keeps a random sample (count)
  kind = \"label\"      drops problems that a served model calls unsolvable
examples/filter.toml has the paper's stages. DIR receives kept.jsonl (a data set), fates.jsonl (the
fate of each problem), report.md, and the results of each stage. The same command continues an
interrupted filtering; you may change thresholds and later stages in between.

Examples:
  sgs data filter examples/filter.toml --out d3k --device cuda")]
pub struct DataFilterArgs {
    /// Filter configuration (TOML).
    #[arg(value_hint = INPUT_FILE, required_unless_present = "explain")]
    pub config: Option<PathBuf>,
    /// Output folder.
    #[arg(long, value_name = "DIR", required_unless_present = "explain")]
    pub out: Option<PathBuf>,
    /// Print every key of the file with its meaning, allowed values and default, then exit.
    #[arg(long)]
    pub explain: bool,
    /// Device for local models.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub lean: LeanArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Assigns four difficulties and ten areas, as in the paper's Appendix D. Retries unreadable answers
until more than 99% of the problems are classified. DIR receives classes.jsonl and classes.svg. The
same command continues an interrupted classification.

Examples:
  sgs data classify d3k --endpoint http://127.0.0.1:8000/v1 --out classes

Exit codes: 0 more than 99% are classified; 1 fewer.")]
pub struct DataClassifyArgs {
    #[arg(help = format!("Problems: {}, or a file that `sgs data import` can read", LEAN_SETS.join(", ")))]
    pub problems: String,
    /// Output folder.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub teacher: TeacherArgs,
}

#[derive(Debug, Args)]
#[command(mut_arg("endpoint", |endpoint| endpoint.required(false)), after_help = "\
Lean: a served model gets the Guide's prompts; a review without three scores in range is requested
again, and the same command continues where it was interrupted. Metamath: the reviews have the
rubric's scores (algorithm.guide.kind=rubric), so that a model learns to recognise the padded
conjectures of runs without it. DIR receives guide.parquet, guide-held-out.parquet and sft.toml.

Examples:
  sgs data reviews runs/a --endpoint URL --endpoint-model gpt-4.1-mini --out reviews
  sgs data reviews runs/rubric runs/no-guide --out reviews
  sgs sft reviews/sft.toml --model BASE --out guide
  sgs run --size lean-d3k --set model.guide=guide/model

Exit codes: 0 all reviews were obtained; 1 some are missing.")]
pub struct DataReviewsArgs {
    /// Folders of runs, with or without a Guide.
    #[arg(value_name = "RUN", required = true, num_args = 1.., value_hint = INPUT_DIR)]
    pub runs: Vec<PathBuf>,
    /// Output folder.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Number of reviews to train on.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2048, value_parser = whole::<usize>(1..=10_000_000))]
    pub count: usize,
    /// Number of reviews of other pairs of a target and a conjecture, to evaluate a Guide.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = whole::<usize>(0..=1_000_000))]
    pub held_out: usize,
    #[command(flatten)]
    pub teacher: TeacherArgs,
}

/// A model behind an OpenAI-compatible server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Served model")]
pub struct EndpointArgs {
    /// Address of an OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1.
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Name of the served model [default: the only one].
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    pub endpoint_model: Option<String>,
    /// File with the server's API key [default: the variable SGS_ENDPOINT_KEY, if set].
    #[arg(long, value_name = "FILE", requires = "endpoint", value_hint = INPUT_FILE)]
    pub endpoint_key_file: Option<String>,
    /// File with CA certificates to trust instead of the public ones, for an https:// address.
    #[arg(long, value_name = "FILE", requires = "endpoint", value_hint = INPUT_FILE)]
    pub endpoint_authority: Option<String>,
    /// Concurrent requests.
    #[arg(long, value_name = "N", requires = "endpoint", default_value_t = 64, value_parser = whole::<u16>(1..=1024))]
    pub endpoint_requests: u16,
}

impl EndpointArgs {
    /// Returns the endpoint, if an address is given.
    pub fn config(&self) -> Option<EndpointConfig> {
        Some(EndpointConfig {
            url: self.endpoint.clone()?,
            model: self.endpoint_model.clone().unwrap_or_default(),
            key_file: self.endpoint_key_file.clone().unwrap_or_default(),
            authority: self.endpoint_authority.clone().unwrap_or_default(),
            concurrency: self.endpoint_requests.into(),
            ..EndpointConfig::default()
        })
    }
}

/// A served model that labels data.
#[derive(Debug, Args)]
#[command(mut_arg("endpoint", |endpoint| endpoint.required(true)))]
pub struct TeacherArgs {
    #[command(flatten)]
    pub server: EndpointArgs,
    /// Maximum length of an answer, in tokens, including the model's reasoning.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = whole::<usize>(1..=MAX_TOKENS))]
    pub max_new_tokens: usize,
    /// Maximum number of requests per question until the answer is readable.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<u32>(1..=1000))]
    pub tries: u32,
    /// Seed of the choice of problems and of sampling.
    #[arg(long, default_value_t = 1, value_parser = seed())]
    pub seed: u64,
}

impl TeacherArgs {
    /// Returns the endpoint and the options of requests to it, if an address is given.
    pub fn options(&self) -> Option<TeacherOptions> {
        let endpoint = self.server.config()?;
        Some(TeacherOptions { endpoint, max_tokens: self.max_new_tokens, tries: self.tries, seed: self.seed })
    }
}
