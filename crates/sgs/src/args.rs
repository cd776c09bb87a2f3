//! Definition of the command line (clap).

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use sgs_analysis::figures::Yardstick;
use sgs_analysis::live::LiveOptions;
use sgs_data::sets::TeacherOptions;
use sgs_run::config::SystemName;
use sgs_run::config::device::DeviceKind;
use sgs_run::config::endpoint::EndpointConfig;
use sgs_run::train::launcher::RankOptions;
use sgs_selfplay::Role;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Self-Guided Self-Play: one language model as Solver, Conjecturer and Guide on machine-checked problems.
#[derive(Debug, Parser)]
#[command(name = "sgs", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = crate::exit::help())]
pub struct Cli {
    /// Log more (-v: info, -vv: debug).
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run self-play: SGS at the embedded default size, or another method, size or configuration file.
    Run(RunArgs),
    /// Resume an interrupted run.
    Resume(ResumeArgs),
    /// Run self-play with workers that connect from elsewhere (`sgs run --workers none` on a fixed port).
    Serve(ServeArgs),
    /// Run a worker for a remote coordinator.
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Write an HTML report of a run, or of a comparison of several runs.
    Report(ReportArgs),
    /// Run a grid of methods, seeds and settings, and write one report.
    Sweep(SweepArgs),
    /// Compare runs: differences in configuration, and solve rates at equal generations.
    Compare(CompareArgs),
    /// Export the theorems that a run has proved, as a Metamath database or as JSON Lines.
    Export(ExportArgs),
    /// Build, import, filter and inspect data sets.
    #[command(subcommand)]
    Data(DataCommand),
    /// Pretrain a model from scratch on corpora, as a configuration file describes.
    Pretrain(PretrainArgs),
    /// Fine-tune a model on corpora (supervised), as a configuration file describes.
    Sft(SftArgs),
    /// Replay a round's weight update without sampling (for debugging).
    Train(TrainArgs),
    /// Evaluate a model: unbiased pass@k on problems, and its quality in the other two roles.
    Eval(EvalArgs),
    /// Serve a model over the OpenAI completions protocol, with log-probs, token ids and streaming.
    ServeModel(ServeModelArgs),
    /// Sample proofs of a statement, or of each line of standard input, and print the first valid one.
    Prove(ProveArgs),
    /// Sample conjectures for a statement.
    Conjecture(ConjectureArgs),
    /// Sample the Guide's reviews of a conjecture.
    Review(ReviewArgs),
    /// Verify proofs: reads one JSON object per line, writes one verdict per line.
    Verify(VerifyArgs),
    /// Show the progress of a run.
    Status(StatusArgs),
    /// Fit the scaling law to runs, or to any curve in a CSV file.
    Fit(FitArgs),
    /// Install Lean 4 on this machine.
    #[command(subcommand)]
    Lean(LeanCommand),
    /// Language-model diagnostics.
    #[command(subcommand)]
    Lm(LmCommand),
    /// Benchmark this machine.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Check what this machine supports (CPU, GPU, Lean, Slurm) and how to set up the rest.
    Doctor(DoctorArgs),
    /// Write the JSON schema of a configuration file to standard output, for editors.
    Schema {
        /// The kind of file.
        file: SchemaOf,
    },
    /// Write a completion script for a shell to standard output.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// A file that has a schema.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SchemaOf {
    /// The configuration of a run: `sgs run FILE`.
    Run,
    /// A grid of runs: `sgs sweep FILE`.
    Sweep,
}

/// `sgs data …`
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Build the slice, the targets and the training corpora of the embedded formal system.
    Build(DataBuildArgs),
    /// Compose theorems of core Lean, check each with Lean, and write them as targets and training corpora.
    Compose(DataComposeArgs),
    /// Describe a data set of Lean problems, or a training corpus.
    Stats(DataStatsArgs),
    /// Convert a data set of Lean problems in any known layout to JSON Lines.
    Import(DataImportArgs),
    /// Drop easy and false problems from a set of Lean problems, as the paper did for D_3k.
    Filter(DataFilterArgs),
    /// Classify Lean problems by difficulty and area with a served model.
    Classify(DataClassifyArgs),
    /// Let a served model review a run's Lean conjectures, to train a Guide on.
    Reviews(DataReviewsArgs),
}

/// Upper bound of all timeouts, in seconds.
const A_YEAR: u64 = 31_536_000;

/// Arguments of `sgs run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Method: sgs, reinforce-half, reinforce, expert-iteration, cispo, sgs-no-guide, sgs-learned-guide,
    /// sgs-frozen-conjecturer, sgs-no-conditioning, sgs-cispo, stp, sampling-only, or a TOML file [default: the method of
    /// the size: sgs for Lean, sgs-cispo for Metamath].
    pub method: Option<String>,
    /// Size: metamath-quick, metamath, metamath-13m, metamath-30m (one GPU each), lean-core or lean-d3k [default:
    /// metamath-quick].
    #[arg(long)]
    pub size: Option<String>,
    /// Follow the authors' code where it differs from the paper (docs/fidelity.md). Explicit settings take precedence.
    #[arg(long)]
    pub as_published: bool,
    /// Set a configuration key (not the method or the size). Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Folder of the run [default: runs/METHOD-SIZE].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the resolved configuration, the source of each value and the memory plan, then exit.
    #[arg(long)]
    pub dry_run: bool,
    /// Print every configuration key with its meaning, allowed values, default, current value and source, then exit.
    #[arg(long)]
    pub explain: bool,
    /// Print one JSON object per round.
    #[arg(long)]
    pub json: bool,
    /// Workers of the run.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Ranks that train.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// The live page.
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
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<std::net::SocketAddr>,
    /// Name or address under which workers reach this machine [default: the host name].
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// File with the token that workers must present [default: SGS_TOKEN, SGS_TOKEN_FILE, or fleet.token in the
    /// run's folder, from which workers get it in any case].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Arguments of `sgs serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Start workers on any machine that has this program:
  sgs worker generate --connect https://HOST:7717 --token-file FILE
  sgs worker verify   --connect https://HOST:7717 --token-file FILE
`sgs resume DIR` continues in the same way, on the same address.")]
pub struct ServeArgs {
    /// The run; by default only workers that connect to 127.0.0.1:7717 serve it.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `sgs worker …`
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// Sample completions; loads the model once and then follows the run's weights.
    Generate(WorkerGenerateArgs),
    /// Verify proofs, one per slot at a time.
    Verify(WorkerVerifyArgs),
}

/// Arguments of both kinds of worker.
#[derive(Debug, Args)]
pub struct ConnectArgs {
    /// Address of the coordinator, https://HOST:PORT, as `sgs run` or `sgs serve` prints it.
    #[arg(long, value_name = "URL")]
    pub connect: String,
    /// The coordinator's fleet.token [default: its text in SGS_TOKEN, or the file named by SGS_TOKEN_FILE].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// CA certificates to trust, in PEM format, if the operator's certificate answers instead of the run's own.
    #[arg(long, value_name = "FILE")]
    pub authority: Option<PathBuf>,
    /// Name of the worker, unique within the run [default: its kind, host, process id and random characters].
    #[arg(long)]
    pub name: Option<String>,
    /// Give up after this many seconds without an answer from the coordinator.
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(..=A_YEAR))]
    pub patience: u64,
    /// Seconds after SIGTERM in which running tasks may finish; the rest are returned to the coordinator.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(..=A_YEAR))]
    pub grace: u64,
    /// Exit when the process with this id exits (the process that started the worker).
    #[arg(long, value_name = "PID", hide = true)]
    pub parent: Option<u32>,
}

/// Arguments of `sgs worker generate`.
#[derive(Debug, Args)]
#[command(after_help = "\
A worker keeps no state: you can kill it at any time. On SIGTERM it finishes what it can and returns its other tasks.
Exit codes: 0 the run finished, or the worker was signalled; 1 the coordinator rejected the worker or is unreachable.")]
pub struct WorkerGenerateArgs {
    /// The coordinator.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Device to sample on [default: from the run's configuration].
    #[arg(long, value_parser = devices())]
    pub device: Option<DeviceKind>,
    /// Compute threads (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Batch size per role, in sequences [default: from the run's configuration].
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Memory for buffers and KV cache per role, in MiB [default: from the run's configuration].
    #[arg(long, value_name = "MIB")]
    pub memory_mib: Option<u64>,
    /// Folder for downloaded weights if this machine cannot read the run's folder [default: the temporary folder].
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// Arguments of `sgs worker verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
A worker keeps no state: you can kill it at any time. On SIGTERM it finishes what it can and returns its other tasks.
Exit codes: 0 the run finished, or the worker was signalled; 1 the coordinator rejected the worker or is unreachable.")]
pub struct WorkerVerifyArgs {
    /// The coordinator.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Proofs to verify at the same time (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub slots: usize,
    /// Lean settings that replace the run's on this machine.
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

/// Parses `127.0.0.1:8080`, `localhost:8080` or `8080`.
fn page_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    port.parse()
        .map(loopback)
        .or_else(|_| text.parse())
        .map_err(|_| format!("{text:?} is not an address: write ADDRESS:PORT or a port, or put --serve last"))
}

/// Arguments of `sgs resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Folder of the run.
    pub dir: PathBuf,
    /// Continue until the run has N rounds in total, without a time limit unless --minutes is given. Saved in the run's
    /// configuration.
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Time budget in minutes across all sessions (0: unlimited). Saved in the run's configuration [default: as before].
    #[arg(long, value_name = "M")]
    pub minutes: Option<f64>,
    /// Change a setting of the run's inference servers (address, folder, key file, request rate), such as
    /// sampling.endpoint.url=ADDRESS. Saved in the run's configuration. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Workers of the run [default: as before].
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Ranks that train [default: as many as the run started with].
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Verify the checksums of all files first, and fail if one is damaged (about one second per gigabyte).
    #[arg(long)]
    pub verify: bool,
    /// Print one JSON object per round.
    #[arg(long)]
    pub json: bool,
    /// The live page.
    #[command(flatten)]
    pub page: PageArgs,
}

/// Arguments of `sgs report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders of runs; several runs are compared.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Output folder [default: `report` in the run's folder; for several runs, `report`].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw a horizontal line at another model's rate: `DSPv2 671B, pass@4=0.42`, `=42%`, or `=FILE` with the output of
    /// `sgs eval --json` (its largest k). Repeatable.
    #[arg(long = "yardstick", value_name = "LABEL=RATE", value_parser = crate::yardstick::parse)]
    pub yardsticks: Vec<Yardstick>,
    /// Baseline run, whose unsolved targets make up D_hard [default: REINFORCE-1/2 with all its seeds; otherwise another
    /// method that trains only on targets].
    #[arg(long, value_name = "RUN")]
    pub baseline: Option<PathBuf>,
    /// Exclude the first N generations from scaling-law fits [default: 100,000, scaled down for short runs].
    #[arg(long, value_name = "N")]
    pub cut: Option<f64>,
}

/// Arguments of `sgs sweep`.
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
The same command continues an interrupted sweep and retries failed runs. With CUDA each run uses one GPU, otherwise an
equal share of the cores.
Exit codes: 0 all runs finished; 1 a run failed; 130 interrupted.")]
pub struct SweepArgs {
    /// The sweep (TOML).
    pub file: PathBuf,
    /// Folder of the runs and the report [default: runs/ and the file's name without its extension].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Runs at the same time [default: from the file; otherwise one per GPU or per two cores].
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Print the commands without running them.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `sgs compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Folders of two or more runs.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each theorem has its shortest known proof. A JSON line has id, context, statement and proof, as `sgs verify` reads them,
and `found`: kind, target, round, steps, and the statement in display form.
  sgs export runs/a --mm a.mm && metamath \"read 'a.mm'\" \"verify proof *\" exit
  sgs export runs/a | sgs verify -")]
pub struct ExportArgs {
    /// Folder of the run.
    pub dir: PathBuf,
    /// Write a Metamath database: the bundled slice of set.mm, followed by the theorems, each verified again.
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
    /// Targets that were attempted and never proved.
    Unsolved,
}

/// Arguments of `sgs data build`.
#[derive(Debug, Args)]
pub struct DataBuildArgs {
    /// Take the slice from this set.mm (Debian package metamath-databases) instead of the bundled one.
    #[arg(long, value_name = "FILE")]
    pub source: Option<PathBuf>,
    /// Output folder.
    #[arg(long, value_name = "DIR", default_value = "metamath-data")]
    pub out: PathBuf,
    /// Seed of the corpora (the targets have a fixed seed).
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of random theorems to compose.
    #[arg(long, default_value_t = 60_000)]
    pub composed: usize,
    /// Maximum number of reviews per theorem in the Guide's corpus.
    #[arg(long, default_value_t = 8)]
    pub reviews: usize,
}

/// Arguments of `sgs data compose`.
#[derive(Debug, Args)]
pub struct DataComposeArgs {
    /// Output folder. The same command continues an interrupted composition.
    #[arg(long, value_name = "DIR", default_value = "lean-data")]
    pub out: PathBuf,
    /// Seed of the theorems.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of draws for the corpus; a draw yields one theorem and its intermediate results.
    #[arg(long, default_value_t = 9_000)]
    pub composed: u64,
    /// Number of targets: harder theorems that the corpus does not state.
    #[arg(long, default_value_t = 400)]
    pub targets: usize,
    /// Number of held-out problems of the same difficulty.
    #[arg(long, default_value_t = 200)]
    pub held_out: usize,
    /// Lean settings.
    #[command(flatten)]
    pub lean: LeanArgs,
}

/// Arguments of `sgs pretrain` and `sgs sft`.
#[derive(Debug, Args)]
pub struct PretrainArgs {
    /// Configuration file (TOML).
    pub config: PathBuf,
    /// Output folder of the model, its checkpoints and the loss curve.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Device to train on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// File with the token shared by ranks on several machines [default: SGS_TOKEN, or the file named by SGS_TOKEN_FILE].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Ranks that train.
    #[command(flatten)]
    pub ranks: RankArgs,
}

/// Data-parallel training by several processes, each with a GPU or a share of the cores.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Ranks")]
pub struct RankArgs {
    /// Number of training processes; without --rank, this command starts all of them [default: the tasks of the Slurm
    /// step; otherwise the configuration's, or 1].
    #[arg(long, value_name = "N")]
    pub ranks: Option<usize>,
    /// Rank of this process, counted from 0, if the ranks are started separately [default: the task id of the Slurm step].
    #[arg(long, value_name = "R")]
    pub rank: Option<usize>,
    /// Address on which rank 0 listens and to which the others connect [default: the first node of the Slurm step].
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<String>,
    /// Give up after waiting this many seconds for a rank.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(..=A_YEAR))]
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

/// Arguments of `sgs sft`.
#[derive(Debug, Args)]
pub struct SftArgs {
    /// Model to start from (Hugging Face layout).
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// The arguments of `sgs pretrain`.
    #[command(flatten)]
    pub train: PretrainArgs,
}

/// Arguments of `sgs train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// A published round: RUN/rounds/NUMBER.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Checkpoint to start from [default: the checkpoint before the round].
    #[arg(long, value_name = "DIR")]
    pub weights: Option<PathBuf>,
    /// Output folder of the new weights; without it, only the report is printed.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// File with the token shared by ranks on several machines [default: SGS_TOKEN, or the file named by SGS_TOKEN_FILE].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Ranks that train.
    #[command(flatten)]
    pub ranks: RankArgs,
}

/// The models to sample from, and their device.
#[derive(Debug, Args)]
pub struct PlayArgs {
    /// Use the latest models of this run.
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub run: Option<PathBuf>,
    /// Model folder (Hugging Face layout) [default: the bundled base model].
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Formal system [default: the run's; otherwise metamath].
    #[arg(long, value_parser = systems())]
    pub system: Option<SystemName>,
    /// Sampling seed; the same seed gives the same samples.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Memory for buffers and KV cache, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory_mib: u64,
    /// Device to sample on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// Lean settings.
    #[command(flatten)]
    pub lean: LeanArgs,
}

/// Arguments of `sgs serve-model`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints its address when it is ready. POST /v1/completions accepts prompts as text or tokens. Extensions: vLLM's
stop_token_ids, return_token_ids and ignore_eos; SGLang's update_weights_from_disk, pause_generation and
continue_generation. Log-probs are those of the sampled tokens at temperature 1.
  sgs serve-model --listen 127.0.0.1:8000
  sgs run sampling-only --set sampling.endpoint.url=http://127.0.0.1:8000/v1 --set 'sampling.endpoint.roles=[\"solver\"]'")]
pub struct ServeModelArgs {
    /// The model and its device.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Role whose model is served, if a run has trained several.
    #[arg(long, value_enum, default_value_t = PlayedRole::Solver)]
    pub role: PlayedRole,
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// File with the API key that clients must present; required on non-loopback addresses.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Name of the model in the protocol.
    #[arg(long, default_value = "sgs")]
    pub name: String,
    /// Batch size, in sequences.
    #[arg(long, default_value_t = 256)]
    pub batch: usize,
    /// Context window, in tokens [default: the run's; otherwise the model's].
    #[arg(long, value_name = "TOKENS")]
    pub context: Option<usize>,
    /// Allow clients to load weights from below this folder (SGLang's POST /update_weights_from_disk, vLLM's
    /// /collective_rpc).
    #[arg(long, value_name = "DIR")]
    pub updates: Option<PathBuf>,
}

/// A role whose model is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlayedRole {
    /// Attempts problems.
    Solver,
    /// Proposes problems.
    Conjecturer,
    /// Reviews proposed problems.
    Guide,
}

impl From<PlayedRole> for Role {
    fn from(role: PlayedRole) -> Self {
        match role {
            PlayedRole::Solver => Role::Solver,
            PlayedRole::Conjecturer => Role::Conjecturer,
            PlayedRole::Guide => Role::Guide,
        }
    }
}

/// Arguments of `sgs eval`.
#[derive(Debug, Args)]
#[command(after_help = "\
The intervals are 95% bootstrap intervals over problems.
  sgs eval --run runs/a --problems held-out -k 16
  sgs eval --problems all -k 8 --foretell 100000   estimate the rate after 100,000 samples in total
  sgs eval --endpoint http://127.0.0.1:8000/v1     a served model (vLLM, SGLang, llama.cpp)
A served model must have the tokenizer of --model. Its API key is read from SGS_ENDPOINT_KEY.")]
pub struct EvalArgs {
    /// The models and their device.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Problem set. Metamath: quick, all, train or held-out; Lean: d3k or core; or a file with one JSON object per line:
    /// id, statement (in display or canonical form) and context [default: the run's; otherwise all, for Lean d3k].
    #[arg(long, value_name = "SET")]
    pub problems: Option<String>,
    /// Attempts per problem.
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub k: u32,
    /// Maximum length of a proof or review, in tokens [default: 64; for Lean the run's, or 8192 less the prompt].
    #[arg(long, value_name = "N")]
    pub max_new_tokens: Option<usize>,
    /// Batch size, in sequences.
    #[arg(long, default_value_t = 256)]
    pub batch: usize,
    /// Evaluate only the first N problems.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Also sample one conjecture per problem.
    #[arg(long)]
    pub roles: bool,
    /// Also review the examples of this corpus (`guide-held-out.parquet` of `sgs data build`) and compare the scores with
    /// the known ones: agreement, rank correlation, and separation of useful from useless conjectures.
    #[arg(long, value_name = "FILE")]
    pub reviews: Option<PathBuf>,
    /// Evaluate only the Guide on these reviews: no proofs, no checker.
    #[arg(long, requires = "reviews")]
    pub only_reviews: bool,
    /// Also estimate how many problems N samples in total would solve, spread evenly over the problems. Repeatable.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub foretell: Vec<u64>,
    /// Sample the Solver's completions from this OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1.
    #[arg(long, value_name = "URL", conflicts_with_all = ["run", "roles", "reviews"])]
    pub endpoint: Option<String>,
    /// Name of the served model [default: the only one].
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    pub endpoint_model: Option<String>,
    /// File with the server's API key [default: the variable SGS_ENDPOINT_KEY, if set].
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    pub endpoint_key_file: Option<String>,
    /// File with CA certificates to trust instead of the public ones, for an https:// address.
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    pub endpoint_authority: Option<String>,
    /// Concurrent requests.
    #[arg(long, value_name = "N", requires = "endpoint", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub endpoint_requests: u16,
    /// Print JSON, with a proof of each solved problem.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs prove`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sgs prove \"|- ( ph -> ph )\"
  sgs prove --run runs/sgs-cispo-metamath-quick \"|- ph  &  |- ( ph -> ps )  =>  |- ps\"
  sgs prove '( ph -> A. x ph )  ($d x ph)'    x does not occur in ph; use single quotes, because of the $
  sgs prove --run runs/sgs-cispo-metamath-quick < statements.txt
Exit codes: 0 every statement was proved; 1 a statement was not; 2 a statement is not valid.")]
pub struct ProveArgs {
    /// Statement in display form, or as `$d x ph $e |- ph $p |- A. x ph`, symbols separated by spaces; for Lean:
    /// `theorem a (p : Prop) (h : p) : p` [default: read statements from standard input, one per line].
    #[arg(conflicts_with = "problem")]
    pub statement: Option<String>,
    /// Re-prove a theorem of the bundled database, using only what precedes it; for Lean: a target of a shipped set.
    #[arg(long, value_name = "LABEL")]
    pub problem: Option<String>,
    /// The models and their device.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Maximum number of proofs to sample.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    pub samples: u32,
    /// Use only what precedes this label of the bundled database; for Lean: the header, such as "import Mathlib".
    #[arg(long, value_name = "LABEL", conflicts_with = "problem")]
    pub context: Option<String>,
    /// Sampling temperature; 0 is greedy.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Maximum length of a proof, in tokens.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_new_tokens: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ProveArgs {
    /// Returns whether statements are read from standard input.
    pub fn is_interactive(&self) -> bool {
        self.statement.is_none() && self.problem.is_none()
    }
}

/// Arguments of `sgs conjecture`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sgs conjecture --run runs/sgs-cispo-metamath-quick \"|- ( ( ph -> ps ) -> ( -. ps -> -. ph ) )\"
  sgs conjecture --problem syl -n 32
Exit codes: 0 at least one valid conjecture; 1 none; 2 the target is not valid.")]
pub struct ConjectureArgs {
    /// Target: a statement in display or canonical form.
    #[arg(conflicts_with = "problem")]
    pub statement: Option<String>,
    /// Target: a theorem of the bundled database; for Lean: a target of d3k or core.
    #[arg(long, value_name = "LABEL")]
    pub problem: Option<String>,
    /// Use only what precedes this label of the bundled database; for Lean: the header.
    #[arg(long, value_name = "LABEL", conflicts_with = "problem")]
    pub context: Option<String>,
    /// The models and their device.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Number of conjectures to sample.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 16)]
    pub samples: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs review`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  sgs review --target \"|- ( ( ph -> ps ) -> ( -. ps -> -. ph ) )\" \"|- ( ph -> -. -. ph )\"
Exit codes: 0 at least one well-formed review; 1 none; 2 a statement is not valid.")]
pub struct ReviewArgs {
    /// Conjecture: a statement in display or canonical form.
    pub conjecture: String,
    /// Target of the conjecture: a statement.
    #[arg(long, value_name = "STATEMENT", conflicts_with = "problem")]
    pub target: Option<String>,
    /// Target: a theorem of the bundled database; for Lean: a target of d3k or core.
    #[arg(long, value_name = "LABEL")]
    pub problem: Option<String>,
    /// Use only what precedes this label of the bundled database; for Lean: the header.
    #[arg(long, value_name = "LABEL", conflicts_with = "problem")]
    pub context: Option<String>,
    /// The models and their device.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Number of reviews to sample.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    pub samples: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
A line of input: {\"id\": \"a\", \"context\": \"syl\", \"statement\": \"|- ph  =>  |- ( ps -> ph )\", \"proof\": \"h1 a1i\"}
  statement: in display form, or \"$d x ph $e |- ph $p |- A. x ph\"; or in parts: \"distinct\": [[\"x\", \"ph\"]],
  \"hypotheses\": [\"|- ph\"], \"conclusion\": \"|- A. x ph\".
  context: the proof may use only what precedes this label; without it, the whole database.
A line for Lean: {\"id\": \"a\", \"header\": \"import Mathlib\", \"statement\": \"theorem a : 1 = 1 := by\", \"proof\": \"\\n  rfl\"}
  expect: the expected verdict. The layouts of `sgs data import` are accepted, too.
A line of output: {\"id\", \"verdict\", \"reason\", \"step\", \"micros\"}; verdict is proved, refused, malformed, resource or infra.
Exit codes: 0 every line got a verdict; 1 a line is not valid, could not be decided, or got an unexpected verdict.")]
pub struct VerifyArgs {
    /// Proofs as JSON Lines; - for standard input.
    pub file: PathBuf,
    /// Formal system of the proofs.
    #[arg(long, value_parser = systems(), default_value = "metamath")]
    pub system: SystemName,
    /// Metamath database to use instead of the bundled slice of set.mm.
    #[arg(long, value_name = "FILE.mm")]
    pub database: Option<PathBuf>,
    /// Reject databases with missing or invalid proofs [default: warn].
    #[arg(long, requires = "database")]
    pub strict: bool,
    /// Write the database with the proved theorems appended, for other verifiers.
    #[arg(long, value_name = "OUT.mm")]
    pub export: Option<PathBuf>,
    /// Threads (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Lean settings.
    #[command(flatten)]
    pub lean: LeanArgs,
}

/// The Lean installation and its checker.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lean")]
pub struct LeanArgs {
    /// Settings of the checker (TOML); every key is optional.
    #[arg(long, value_name = "FILE")]
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
    #[arg(long, value_name = "N")]
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
    /// Our judge on the same installation, several theorems per file.
    File,
    /// The WebAssembly build: core Lean, without a list of axioms; for trials.
    Wasm,
}

/// `sgs lean …`
#[derive(Debug, Subcommand)]
pub enum LeanCommand {
    /// Download and build Lean, Mathlib, the REPL and the judge in a folder; continues an interrupted setup.
    Setup(LeanSetupArgs),
}

/// Arguments of `sgs lean setup`.
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

/// Arguments of `sgs status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Folder of the run.
    #[arg(value_name = "RUN")]
    pub dir: PathBuf,
    /// Number of latest rounds to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub rounds: usize,
    /// The live page; it is served until Ctrl-C.
    #[command(flatten)]
    pub page: PageArgs,
    /// Print JSON.
    #[arg(long, conflicts_with = "serve")]
    pub json: bool,
    /// Print the journal's results of unpublished rounds, one JSON object per result.
    #[arg(long, conflicts_with_all = ["serve", "json"])]
    pub journal: bool,
}

/// Arguments of `sgs fit`.
#[derive(Debug, Args)]
#[command(after_help = "\
A CSV file has the columns generations and rate (0 to 1), named in a header or as its first two columns.
Exit codes: 0 every curve was fitted; 1 a curve was not. A fit that the points do not determine has warnings.")]
pub struct FitArgs {
    /// Folders of runs, or CSV files: generations and rate by name or as the first two columns; the columns `run`,
    /// `method` and `seed` distinguish several curves.
    #[arg(required = true, value_name = "RUN|CSV")]
    pub inputs: Vec<PathBuf>,
    /// Exclude the first N generations [default: 100,000, scaled down for short curves].
    #[arg(long, value_name = "N")]
    pub cut: Option<f64>,
    /// Upper bound of the asymptote.
    #[arg(long, value_name = "RATE", default_value_t = 1.0)]
    pub max_rate: f64,
    /// Confidence level of the intervals.
    #[arg(long, default_value_t = 0.95)]
    pub level: f64,
    /// Number of random halves of the points to refit.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub halves: usize,
    /// Seed of the random halves.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The rates of CSV files are percentages.
    #[arg(long)]
    pub percent: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sgs lm …`
#[derive(Debug, Subcommand)]
pub enum LmCommand {
    /// Compare the engine with the recorded numbers of a model folder, and print the largest error of each quantity.
    Check(LmCheckArgs),
}

/// Arguments of `sgs lm check`.
#[derive(Debug, Args)]
#[command(after_help = "\
The folder holds config.json, model.safetensors, io.safetensors and expected.json (see docs/language-model.md).
Exit codes: 0 every error is within its tolerance; 1 one is not.")]
pub struct LmCheckArgs {
    /// Model folder.
    pub dir: PathBuf,
    /// Device to run on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sgs bench …`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Verify the proofs of a Metamath database, with the unifier only and with the kernel.
    Verify(BenchVerifyArgs),
    /// Sample from a model with random weights.
    Sample(BenchSampleArgs),
    /// Train a model with random weights on random tokens.
    Train(BenchTrainArgs),
    /// Dispatch tasks to workers, in process and over HTTP.
    Dispatch(BenchDispatchArgs),
}

/// Arguments of `sgs bench dispatch`.
#[derive(Debug, Args)]
pub struct BenchDispatchArgs {
    /// Number of open tasks.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub open: u64,
    /// Number of workers, each with its own connection.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub workers: usize,
    /// Tasks per lease request.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub capacity: usize,
    /// Duration of the measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub seconds: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs bench verify`.
#[derive(Debug, Args)]
pub struct BenchVerifyArgs {
    /// Formal system.
    #[arg(long, value_enum, default_value_t = BenchSystem::Metamath)]
    pub system: BenchSystem,
    /// Metamath database to use instead of the bundled slice of set.mm.
    #[arg(long, value_name = "FILE.mm")]
    pub database: Option<PathBuf>,
    /// Skip proofs with more steps.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub steps: usize,
    /// Repetitions; the fastest counts.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub repeats: usize,
    /// Threads of the parallel measurement (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Formal systems that `sgs bench verify` can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchSystem {
    /// Metamath, embedded.
    Metamath,
}

/// Arguments of `sgs bench sample`.
#[derive(Debug, Args)]
pub struct BenchSampleArgs {
    /// Model shape: small (4 layers, width 256, vocabulary 1,024), or a folder with a config.json.
    #[arg(long = "model", value_name = "SHAPE", default_value = "small")]
    pub shape: String,
    /// Batch size, in requests.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub batch: usize,
    /// Number of distinct prompts.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub prompts: usize,
    /// Tokens per prompt.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub prompt_tokens: usize,
    /// New tokens per request.
    #[arg(long, value_name = "N", default_value_t = 96)]
    pub new_tokens: usize,
    /// Number of measured runs.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub runs: usize,
    /// Device to sample on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// CPU threads (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}

/// Arguments of `sgs bench train`.
#[derive(Debug, Args)]
pub struct BenchTrainArgs {
    /// Model shape: small (4 layers, width 256, vocabulary 1,024), or a folder with a config.json.
    #[arg(long = "model", value_name = "SHAPE", default_value = "small")]
    pub shape: String,
    /// Sequences per optimiser step.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub sequences: usize,
    /// Tokens per sequence.
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub length: usize,
    /// Tokens per micro-batch.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub micro_batch_tokens: usize,
    /// Number of measured steps.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub steps: usize,
    /// Device to train on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// CPU threads (0: one per core).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}

/// Arguments of `sgs doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 the embedded default works here; 1 it does not. GPU, Lean and Slurm may be absent.")]
pub struct DoctorArgs {
    /// Check this run's files against their checksums instead of checking the machine.
    pub run: Option<PathBuf>,
    /// Check this model folder instead of the bundled base model.
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

/// Arguments of `sgs data stats`.
#[derive(Debug, Args)]
pub struct DataStatsArgs {
    /// Data set: JSON Lines, a JSON array, Parquet, D_3k or Lean source, optionally .zst; or a corpus of `sgs data build`.
    pub file: PathBuf,
    /// File with the Lean header of problems that have none.
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs data import`.
#[derive(Debug, Args)]
#[command(after_help = "\
Known layouts: Goedel-Pset, NuminaMath-LEAN, miniF2F, D_3k, and Lean source with sorry.
Exit codes: 0 every record was imported; 1 some were rejected (they are listed; the others are written).")]
pub struct DataImportArgs {
    /// Data set: JSON Lines, a JSON array, Parquet, D_3k or Lean source, optionally .zst.
    pub file: PathBuf,
    /// Output file; - for standard output.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// File with the Lean header of problems that have none.
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,
    /// Lean version of the problems, such as v4.15.0, for records that name none.
    #[arg(long, value_name = "VERSION")]
    pub toolchain: Option<String>,
}

/// Arguments of `sgs data filter`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file names the problems and the filter stages, in order:
  kind = \"rollouts\"   samples k attempts of a local or served model; drops problems that are proved
                      too often (drop_above) and, with negation = true, those that are proved false
  kind = \"sample\"     keeps a random sample (count)
  kind = \"label\"      drops problems that a served model calls unsolvable
examples/filter.toml has the paper's stages. DIR receives kept.jsonl (a data set), fates.jsonl (the
fate of each problem), report.md, and the results of each stage. The same command continues an
interrupted filtering; you may change thresholds and later stages in between.
  sgs data filter examples/filter.toml --out d3k --device cuda")]
pub struct DataFilterArgs {
    /// Filter configuration (TOML).
    pub config: PathBuf,
    /// Output folder.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Device for local models.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// Lean settings.
    #[command(flatten)]
    pub lean: LeanArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs data classify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Assigns four difficulties and ten areas, as in the paper's Appendix D. Retries unreadable answers until
more than 99% of the problems are classified. DIR receives classes.jsonl and classes.svg. The same
command continues an interrupted classification.
  sgs data classify d3k --endpoint http://127.0.0.1:8000/v1 --out classes
Exit codes: 0 more than 99% are classified; 1 fewer.")]
pub struct DataClassifyArgs {
    /// Problems: d3k, core, or a file that `sgs data import` can read.
    pub problems: String,
    /// Output folder.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The served model.
    #[command(flatten)]
    pub teacher: TeacherArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs data reviews`.
#[derive(Debug, Args)]
#[command(after_help = "\
The model gets the Guide's prompts; a review without three scores in range is requested again. DIR
receives guide.parquet, guide-held-out.parquet and sft.toml. The same command continues where it was
interrupted.
  sgs data reviews runs/a --endpoint URL --endpoint-model gpt-4.1-mini --out reviews
  sgs sft reviews/sft.toml --model BASE --out guide
  sgs run --size lean-d3k --set model.guide=guide/model
Exit codes: 0 all reviews were obtained; 1 some are missing.")]
pub struct DataReviewsArgs {
    /// Folder of a run, with or without a Guide.
    pub run: PathBuf,
    /// Output folder.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Number of reviews to train on.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2048)]
    pub count: usize,
    /// Number of reviews of other conjectures, to evaluate a Guide.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub held_out: usize,
    /// The served model.
    #[command(flatten)]
    pub teacher: TeacherArgs,
}

/// A served model that labels data.
#[derive(Debug, Args)]
#[command(next_help_heading = "Teacher")]
pub struct TeacherArgs {
    /// Address of an OpenAI-compatible chat endpoint, such as http://127.0.0.1:8000/v1; SGS_ENDPOINT_KEY has its key.
    #[arg(long, value_name = "URL")]
    pub endpoint: String,
    /// Name of the served model [default: the only one].
    #[arg(long, value_name = "NAME")]
    pub endpoint_model: Option<String>,
    /// File with the server's API key [default: the variable SGS_ENDPOINT_KEY, if set].
    #[arg(long, value_name = "FILE")]
    pub endpoint_key_file: Option<String>,
    /// File with CA certificates to trust instead of the public ones, for an https:// address.
    #[arg(long, value_name = "FILE")]
    pub endpoint_authority: Option<String>,
    /// Concurrent requests.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub endpoint_requests: u16,
    /// Maximum length of an answer, in tokens, including the model's reasoning.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub max_new_tokens: usize,
    /// Maximum number of requests per question until the answer is readable.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub tries: u32,
    /// Sampling seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl TeacherArgs {
    /// Returns the endpoint and the options of requests to it.
    pub fn options(&self) -> TeacherOptions {
        let endpoint = EndpointConfig {
            url: self.endpoint.clone(),
            model: self.endpoint_model.clone().unwrap_or_default(),
            key_file: self.endpoint_key_file.clone().unwrap_or_default(),
            authority: self.endpoint_authority.clone().unwrap_or_default(),
            concurrency: self.endpoint_requests.into(),
            ..EndpointConfig::default()
        };
        TeacherOptions { endpoint, max_tokens: self.max_new_tokens, tries: self.tries, seed: self.seed }
    }
}

/// Parses a device name.
fn devices() -> impl TypedValueParser<Value = DeviceKind> {
    PossibleValuesParser::new([
        PossibleValue::new("cpu").help("The processor"),
        PossibleValue::new("cuda").help("One NVIDIA GPU in bfloat16, with f32 sums and f32 master weights"),
        PossibleValue::new("cuda-f32").help("One NVIDIA GPU in f32 throughout: for comparing, not for speed"),
    ])
    .try_map(|name| name.parse::<DeviceKind>())
}

/// Parses the name of a formal system.
fn systems() -> impl TypedValueParser<Value = SystemName> {
    PossibleValuesParser::new([
        PossibleValue::new("metamath").help("Metamath, embedded"),
        PossibleValue::new("lean").help("Lean 4"),
    ])
    .try_map(|name| name.parse::<SystemName>())
}
