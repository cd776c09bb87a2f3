//! The command line as data.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use sgs_analysis::figures::Yardstick;
use sgs_analysis::live::LiveOptions;
use sgs_run::config::SystemName;
use sgs_run::device::DeviceKind;
use sgs_run::endpoint::EndpointConfig;
use sgs_run::seats::Asked;
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

/// Reads the command line; ends the process with code 2 and a message if it makes no sense.
pub fn parse() -> Cli {
    Cli::parse()
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run self-play: SGS on the embedded default, or another method, size or configuration file.
    Run(RunArgs),
    /// Go on with a run that was stopped, however it was stopped.
    Resume(ResumeArgs),
    /// Run self-play with workers that somebody else starts: `sgs run --workers none`, at a fixed port.
    Serve(ServeArgs),
    /// Work for a run elsewhere: sample or check proofs until it is over.
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Draw a report of a run, or a comparison of several.
    Report(ReportArgs),
    /// Run methods, seeds and keys against each other, so many at once, and draw one report.
    Sweep(SweepArgs),
    /// Compare runs: what differs in their configurations, and how far each came over the same generations.
    Compare(CompareArgs),
    /// Write the theorems that a run has proved: as a Metamath database, or as JSON Lines.
    Export(ExportArgs),
    /// Build data sets and look at them.
    #[command(subcommand)]
    Data(DataCommand),
    /// Pretrain a model from scratch on corpora, after a configuration file.
    Pretrain(PretrainArgs),
    /// Train a model further on corpora (supervised), after a configuration file.
    Sft(SftArgs),
    /// Make a round's updates again, without sampling: for debugging the update alone.
    Train(TrainArgs),
    /// Measure a model: unbiased pass@k on problems, and how well it plays the other two roles.
    Eval(EvalArgs),
    /// Serve a model to clients of OpenAI's completions, with log-probs, token ids and streaming.
    ServeModel(ServeModelArgs),
    /// Sample proofs of a statement, or of each that is typed, and print the first that holds.
    Prove(ProveArgs),
    /// Let the Conjecturer invent problems for a statement.
    Conjecture(ConjectureArgs),
    /// Let the Guide review a conjecture.
    Review(ReviewArgs),
    /// Check proofs: one JSON object a line in, one verdict a line out.
    Verify(VerifyArgs),
    /// Show where a run stands.
    Status(StatusArgs),
    /// Fit the scaling law to runs, or to any curve as CSV.
    Fit(FitArgs),
    /// Get Lean 4 onto this machine.
    #[command(subcommand)]
    Lean(LeanCommand),
    /// Look into the language model's engine.
    #[command(subcommand)]
    Lm(LmCommand),
    /// Measure how fast this machine is.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Say what of this machine can be used (CPU, GPU, Lean, Slurm), and how to get the rest.
    Doctor(DoctorArgs),
    /// Write a completion script for a shell to standard output.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// `sgs data …`
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Build the slice, the targets and the training corpora of the embedded formal system.
    Build(DataBuildArgs),
    /// Compose theorems of core Lean, have Lean check each, and write them as targets and training corpora.
    Compose(DataComposeArgs),
    /// Describe a data set of Lean problems, or a training corpus.
    Stats(DataStatsArgs),
    /// Read a data set of Lean problems of any known layout, and write it as JSON Lines.
    Import(DataImportArgs),
    /// Take from a set of Lean problems what is easy and what is false, as the paper made D_3k.
    Filter(DataFilterArgs),
    /// Sort Lean problems by difficulty and area, as a served model sees them.
    Classify(DataClassifyArgs),
    /// Have a served model review a run's Lean conjectures, for a Guide to learn from.
    Reviews(DataReviewsArgs),
}

/// Longest time that is waited for anything, in seconds.
const A_YEAR: u64 = 31_536_000;

/// Arguments of `sgs run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// sgs, reinforce-half, reinforce, expert-iteration, cispo, sgs-no-guide, sgs-learned-guide,
    /// sgs-frozen-conjecturer, sgs-no-conditioning, sgs-cispo, stp, sampling-only, or a TOML file [default: the size's own: sgs for Lean, sgs-cispo for Metamath].
    pub method: Option<String>,
    /// metamath-quick, metamath, metamath-13m, metamath-30m (one GPU each), lean-core or lean-d3k [default: metamath-quick].
    #[arg(long)]
    pub size: Option<String>,
    /// Decide as the paper's code does where it differs from the paper's text (docs/fidelity.md); keys that are set go
    /// before that.
    #[arg(long)]
    pub as_published: bool,
    /// Set one key of the configuration (not the method, not the size); may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The run's folder [default: runs/METHOD-SIZE].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the resolved configuration, what gave each key its value, and the memory plan, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print every key of the configuration: its meaning, what it may be, its default, its value here and what gave it;
    /// and do nothing.
    #[arg(long)]
    pub explain: bool,
    /// Print one JSON object a round.
    #[arg(long)]
    pub json: bool,
    /// Who does the work.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Who trains.
    #[command(flatten)]
    pub ranks: RankArgs,
    /// The live page.
    #[command(flatten)]
    pub page: PageArgs,
}

/// Who does a run's work, and where they find the coordinator.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
pub struct FleetArgs {
    /// embedded, none (those that connect), local:N, local:generate=G,verify=V,
    /// slurm:generate=G,verify=V,partition=P,generate.gres=gpu:1, or a TOML file [default: embedded; `sgs serve`:
    /// none; `sgs resume`: as before].
    #[arg(long, value_name = "SPEC")]
    pub workers: Option<String>,
    /// Let workers connect here; port 0 is any free one [default with workers: loopback, with Slurm
    /// every address; `sgs serve`: 127.0.0.1:7717; `sgs resume`: as before].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<std::net::SocketAddr>,
    /// Name or address under which workers reach this machine [default: its name].
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// File with the token that workers must show [default: SGS_TOKEN, SGS_TOKEN_FILE, or
    /// fleet.token in the run's folder].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Arguments of `sgs serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Start workers on any machine that has this program:
  sgs worker generate --connect http://HOST:7717 --token-file FILE
  sgs worker verify   --connect http://HOST:7717 --token-file FILE
`sgs resume DIR` goes on in the same way, at the same address.")]
pub struct ServeArgs {
    /// What to run; by default nobody works but those that connect to 127.0.0.1:7717.
    #[command(flatten)]
    pub run: RunArgs,
}

/// `sgs worker …`
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// Sample completions: loads the model once, follows the run's weights.
    Generate(WorkerGenerateArgs),
    /// Check proofs as they are sampled, as many at a time as there are slots.
    Verify(WorkerVerifyArgs),
}

/// What both kinds of worker need.
#[derive(Debug, Args)]
pub struct ConnectArgs {
    /// The coordinator: http://HOST:PORT, as `sgs run` or `sgs serve` prints it.
    #[arg(long, value_name = "URL")]
    pub connect: String,
    /// File with the coordinator's token [default: SGS_TOKEN, or the file that SGS_TOKEN_FILE names].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificates to trust for https, PEM [default: the public ones].
    #[arg(long, value_name = "FILE")]
    pub authority: Option<PathBuf>,
    /// The worker's name, unique among the run's workers [default: its kind, host, process and a few
    /// random characters].
    #[arg(long)]
    pub name: Option<String>,
    /// Give up after so many seconds without an answer from the coordinator.
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(..=A_YEAR))]
    pub patience: u64,
    /// After SIGTERM, seconds in which what was begun may end before it is given back.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(..=A_YEAR))]
    pub grace: u64,
    /// End with this process, which started the worker.
    #[arg(long, value_name = "PID", hide = true)]
    pub parent: Option<u32>,
}

/// Arguments of `sgs worker generate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Stateless: it may be killed at any time. SIGTERM lets it finish what it can, and give back the rest.
Exit code: 0 if it was sent home, by the run's end or a signal; 1 if the coordinator refuses it or stays away.")]
pub struct WorkerGenerateArgs {
    /// Where to work.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Device to sample on [default: as the run says].
    #[arg(long, value_parser = devices())]
    pub device: Option<DeviceKind>,
    /// Threads to compute with; 0 for one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Sequences sampled at once, for each role [default: as the run says].
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Memory for buffers and key/value cache, for each role, MiB [default: as the run says].
    #[arg(long, value_name = "MIB")]
    pub memory_mib: Option<u64>,
    /// Folder for weights on their way into memory, where the run's folder cannot be read from here
    /// [default: the temporary folder].
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// Arguments of `sgs worker verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Stateless: it may be killed at any time. SIGTERM lets it finish what it can, and give back the rest.
Exit code: 0 if it was sent home, by the run's end or a signal; 1 if the coordinator refuses it or stays away.")]
pub struct WorkerVerifyArgs {
    /// Where to work.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Proofs checked at a time; 0 for one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub slots: usize,
    /// Lean, where the run's own settings do not fit this machine.
    #[command(flatten)]
    pub lean: LeanArgs,
}

/// Whether and where the live page is served.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Live page")]
pub struct PageArgs {
    /// Serve the report as a page that follows the run, on this address, or on this port of this machine [default: any
    /// free port of this machine].
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "0", value_parser = page_address)]
    pub serve: Option<SocketAddr>,
    /// What a browser must show to see the page; needed for an address that others can reach [default: SGS_PAGE_TOKEN].
    #[arg(long, value_name = "TOKEN", requires = "serve")]
    pub token: Option<String>,
}

impl PageArgs {
    /// Refuses a page that may not be served, before anything is begun.
    pub fn check(&self) -> anyhow::Result<()> {
        let options = self.serve.map(|address| LiveOptions { address, token: self.token() });
        let checked = options.map_or(Ok(()), |options| options.check());
        checked.map_err(|e| crate::exit::Usage(format!("--serve: {e}")).into())
    }

    /// The token of the argument, else of the environment: which may hold it for commands that serve no page.
    pub fn token(&self) -> Option<String> {
        self.token.clone().or_else(|| std::env::var("SGS_PAGE_TOKEN").ok())
    }
}

/// `127.0.0.1:8080`, `localhost:8080` or `8080`.
fn page_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    port.parse().map(loopback).or_else(|_| text.parse()).map_err(|_| {
        format!("{text:?} is no address; write ADDRESS:PORT or a port, or put --serve behind everything else")
    })
}

/// Arguments of `sgs resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The run's folder.
    pub dir: PathBuf,
    /// Go on until it has so many rounds in all, however long that takes if no minutes are given; the change is recorded
    /// in its configuration.
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Begin no new round once it has worked for so many minutes in all, 0 for no limit; recorded as well [default: as
    /// before].
    #[arg(long, value_name = "M")]
    pub minutes: Option<f64>,
    /// Where the run's servers are now, as sampling.endpoint.url=ADDRESS: their addresses, folders, keys and pace, nothing
    /// else; recorded as well, and may be given again.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Who does the work [default: as before].
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Who trains [default: as many ranks as the run was begun with].
    #[command(flatten)]
    pub ranks: RankArgs,
    /// Read all files of the run to their end before, and refuse if one is damaged: about a second for each gigabyte.
    #[arg(long)]
    pub verify: bool,
    /// Print one JSON object a round.
    #[arg(long)]
    pub json: bool,
    /// The live page.
    #[command(flatten)]
    pub page: PageArgs,
}

/// Arguments of `sgs report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders of runs; several are compared.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Where to write [default: the run's own report folder, or `report` for several].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw a horizontal line at another model's rate: `DSPv2 671B, pass@4=0.42`, `=42%`, or `=FILE` with what
    /// `sgs eval --json` printed (its largest k); may be given again.
    #[arg(long = "yardstick", value_name = "LABEL=RATE", value_parser = crate::commands::report::yardstick)]
    pub yardsticks: Vec<Yardstick>,
    /// Which of the runs is the baseline whose unsolved targets make D_hard [default: REINFORCE-1/2 with all its
    /// seeds, else another method that trains on targets alone].
    #[arg(long, value_name = "RUN")]
    pub baseline: Option<PathBuf>,
    /// Leave out of the scaling laws what lies before so many generations; by default 100,000, scaled down for short
    /// runs.
    #[arg(long, value_name = "GENERATIONS")]
    pub cut: Option<f64>,
}

/// Arguments of `sgs sweep`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file (TOML); every part may be left out:
  methods = [\"sgs\", \"reinforce-half\"]     # or files, as `sgs run` takes them
  seeds = [1, 2, 3]
  size = \"metamath-quick\"
  jobs = 2                                 # runs at once
  [set]                                    # keys that all runs have
  rounds = 20
  [vary]                                   # every combination of these is a run
  \"algorithm.solver.learning_rate\" = [5e-5, 1e-4]
The same command goes on with what was stopped or failed. On CUDA each run has a GPU, otherwise its share of the cores.
Exit code: 0 if all runs came to their end, 1 if one failed, 130 if it was stopped.")]
pub struct SweepArgs {
    /// The file.
    pub file: PathBuf,
    /// Folder of the runs and the report [default: runs/FILE without its ending].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Runs at once [default: the file's, else one for each GPU or every two cores].
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Print the commands, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `sgs compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Folders of runs, two or more.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs export`.
#[derive(Debug, Args)]
#[command(after_help = "\
The proof of each theorem is the shortest that was found. A line of JSON has id, context, statement and proof, as
`sgs verify` reads them, and found: kind, target, round, steps, and the statement as it is printed.
  sgs export runs/a --mm a.mm && metamath \"read 'a.mm'\" \"verify proof *\" exit
  sgs export runs/a | sgs verify -")]
pub struct ExportArgs {
    /// The run's folder.
    pub dir: PathBuf,
    /// Write a Metamath database: the slice of set.mm with the theorems behind it, each judged again.
    #[arg(long, value_name = "FILE", conflicts_with = "jsonl")]
    pub mm: Option<PathBuf>,
    /// Write one JSON object a line; - for standard output [default: this, to standard output].
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Only the targets, only what the Conjecturer invented, or the targets that no round has proved (a data set of its
    /// own: `problems.set=FILE`).
    #[arg(long, value_enum, value_name = "KIND")]
    pub only: Option<Exported>,
}

/// Kinds of theorems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Exported {
    /// Targets.
    Targets,
    /// What the Conjecturer invented.
    Conjectures,
    /// Targets that were tried and never proved.
    Unsolved,
}

/// Arguments of `sgs data build`.
#[derive(Debug, Args)]
pub struct DataBuildArgs {
    /// Cut the slice from this set.mm (Debian: package metamath-databases) in place of the one that ships.
    #[arg(long, value_name = "FILE")]
    pub source: Option<PathBuf>,
    /// Where to write.
    #[arg(long, value_name = "DIR", default_value = "metamath-data")]
    pub out: PathBuf,
    /// Seed of the corpora (the targets have a fixed seed of their own).
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Theorems to compose at random.
    #[arg(long, default_value_t = 60_000)]
    pub composed: usize,
    /// Reviews for each theorem of the Guide's corpus, at most.
    #[arg(long, default_value_t = 8)]
    pub reviews: usize,
}

/// Arguments of `sgs data compose`.
#[derive(Debug, Args)]
pub struct DataComposeArgs {
    /// Where to write; the same command goes on where it was interrupted.
    #[arg(long, value_name = "DIR", default_value = "lean-data")]
    pub out: PathBuf,
    /// Seed of all theorems.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Draws for the corpus; a draw gives one theorem and what is proved on the way to it.
    #[arg(long, default_value_t = 9_000)]
    pub composed: u64,
    /// Targets: harder theorems that nothing of the corpus states.
    #[arg(long, default_value_t = 400)]
    pub targets: usize,
    /// Held-out problems, of the same hardness.
    #[arg(long, default_value_t = 200)]
    pub held_out: usize,
    /// Lean.
    #[command(flatten)]
    pub lean: LeanArgs,
}

/// Arguments of `sgs pretrain` and `sgs sft`.
#[derive(Debug, Args)]
pub struct PretrainArgs {
    /// Configuration file (TOML).
    pub config: PathBuf,
    /// Where to write the model, its checkpoints and the loss curve.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Device to train on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// File with the secret that ranks of several machines show [default: SGS_TOKEN, or the file that SGS_TOKEN_FILE
    /// names].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Several processes.
    #[command(flatten)]
    pub ranks: RankArgs,
}

/// Training by several processes, each with a GPU or a part of the processor.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Ranks")]
pub struct RankArgs {
    /// Train with so many processes; without --rank they are all started here [default: in a Slurm step its tasks;
    /// else 1, of runs what the configuration says].
    #[arg(long, value_name = "N")]
    pub ranks: Option<usize>,
    /// Be this one of the ranks, counted from 0: somebody starts the others [default: in a Slurm step its task].
    #[arg(long, value_name = "R")]
    pub rank: Option<usize>,
    /// Where rank 0 listens and the others find it [default: in a Slurm step its first node].
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: Option<String>,
    /// Give up after so many seconds without a rank that was waited for.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(..=A_YEAR))]
    pub rank_patience: u64,
}

impl RankArgs {
    /// What the loop is told of it.
    pub fn asked(&self) -> Asked {
        Asked {
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
    /// The model to start from (Hugging Face layout).
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Everything else is as in pretraining.
    #[command(flatten)]
    pub train: PretrainArgs,
}

/// Arguments of `sgs train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// A published round: RUN/rounds/NUMBER.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Weights to start from, as a checkpoint of a run [default: the checkpoint before the round].
    #[arg(long, value_name = "DIR")]
    pub weights: Option<PathBuf>,
    /// Where to write the new weights; without it only the report is printed.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// File with the secret that ranks of several machines show [default: SGS_TOKEN, or the file that SGS_TOKEN_FILE
    /// names].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Several processes.
    #[command(flatten)]
    pub ranks: RankArgs,
}

/// Which models play, and where.
#[derive(Debug, Args)]
pub struct PlayArgs {
    /// The models that this run has trained so far.
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub run: Option<PathBuf>,
    /// Folder of the model (Hugging Face layout) [default: the base model that ships].
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// The formal system [default: the run's, else metamath].
    #[arg(long, value_parser = systems())]
    pub system: Option<SystemName>,
    /// Sampling seed: the same seed gives the same samples.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Memory for buffers and key/value cache, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory_mib: u64,
    /// Device to sample on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// Lean.
    #[command(flatten)]
    pub lean: LeanArgs,
}

/// Arguments of `sgs serve-model`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints its address once it serves. POST /v1/completions takes prompts as text or tokens; beyond the protocol it knows
vLLM's stop_token_ids, return_token_ids and ignore_eos, and SGLang's update_weights_from_disk, pause_generation and
continue_generation. Log-probs are those of the sampled tokens at temperature 1.
  sgs serve-model --listen 127.0.0.1:8000
  sgs run sampling-only --set sampling.endpoint.url=http://127.0.0.1:8000/v1 --set 'sampling.endpoint.roles=[\"solver\"]'")]
pub struct ServeModelArgs {
    /// Which model, and where.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Whose model, where a run has trained several.
    #[arg(long, value_enum, default_value_t = PlayedRole::Solver)]
    pub role: PlayedRole,
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// File with the key that callers show; needed for an address that others can reach.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// What the model is called.
    #[arg(long, default_value = "sgs")]
    pub name: String,
    /// Sequences sampled at once.
    #[arg(long, default_value_t = 256)]
    pub batch: usize,
    /// Longest sequence, tokens [default: the run's, else the model's own].
    #[arg(long, value_name = "TOKENS")]
    pub context: Option<usize>,
    /// Lets callers load weights that lie below this folder (POST /update_weights_from_disk as SGLang, /collective_rpc as
    /// vLLM).
    #[arg(long, value_name = "DIR")]
    pub updates: Option<PathBuf>,
}

/// A role whose model is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlayedRole {
    /// Attempts problems.
    Solver,
    /// Invents problems.
    Conjecturer,
    /// Reviews them.
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
The intervals are at 95 %, from resampling the problems: how far the rate would move with other problems of the kind.
  sgs eval --run runs/a --problems held-out -k 16
  sgs eval --problems all -k 8 --foretell 100000   what so many samples in all would solve
  sgs eval --endpoint http://127.0.0.1:8000/v1     a model that is served (vLLM, SGLang, llama.cpp)
A served model has the tokenizer of --model; its key is in SGS_ENDPOINT_KEY.")]
pub struct EvalArgs {
    /// Which models, and where.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Metamath: quick, all, train or held-out (targets in set.mm); Lean: d3k or core; or a file, one JSON object a line
    /// with id, statement (as it is printed, or canonical) and context [default: the run's, else all, for Lean d3k].
    #[arg(long, value_name = "SET")]
    pub problems: Option<String>,
    /// Attempts per problem.
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub k: u32,
    /// Longest proof, and longest review, in tokens [default: 64; for Lean the run's, else what the prompt leaves of 8192].
    #[arg(long, value_name = "N")]
    pub max_new_tokens: Option<usize>,
    /// Sequences sampled at once.
    #[arg(long, default_value_t = 256)]
    pub batch: usize,
    /// Only the first so many problems.
    #[arg(long)]
    pub limit: Option<usize>,
    /// Also sample one conjecture per problem.
    #[arg(long)]
    pub roles: bool,
    /// Also review the examples of this corpus (`guide-held-out.parquet` of `sgs data build`) and compare with their known
    /// scores: agreement, rank correlation, and how well what can help is told from what is worthless.
    #[arg(long, value_name = "FILE")]
    pub reviews: Option<PathBuf>,
    /// Measure the Guide on these reviews alone: nothing is proved, no checker is started.
    #[arg(long, requires = "reviews")]
    pub only_reviews: bool,
    /// Also estimate how many of the problems so many samples in all would solve, spread evenly over them; may be given
    /// again.
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u64).range(1..))]
    pub foretell: Vec<u64>,
    /// Let this server play the Solver: an address as http://127.0.0.1:8000/v1 of an OpenAI-compatible endpoint.
    #[arg(long, value_name = "URL", conflicts_with_all = ["run", "roles", "reviews"])]
    pub endpoint: Option<String>,
    /// The served model's name [default: the only one that is served].
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    pub endpoint_model: Option<String>,
    /// File with the server's key [default: the variable SGS_ENDPOINT_KEY, if it is set].
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    pub endpoint_key_file: Option<String>,
    /// File with the certificates to trust instead of the public ones, for a server at an https:// address.
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    pub endpoint_authority: Option<String>,
    /// Requests at once.
    #[arg(long, value_name = "N", requires = "endpoint", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub endpoint_requests: u16,
    /// Print JSON, with a proof of each problem that was solved.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs prove`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sgs prove \"|- ( ph -> ph )\"
  sgs prove --run runs/sgs-cispo-metamath-quick \"|- ph  &  |- ( ph -> ps )  =>  |- ps\"
  sgs prove '( ph -> A. x ph )  ($d x ph)'    x does not occur in ph; a shell takes $d out of \"…\"
  sgs prove --run runs/sgs-cispo-metamath-quick < statements.txt
Exit code: 0 if a proof was found, of several statements if of all; 1 if not; 2 if the statement makes no sense.")]
pub struct ProveArgs {
    /// The statement, as it is printed or as \"$d x ph $e |- ph $p |- A. x ph\", symbols separated by spaces; for Lean:
    /// \"theorem a (p : Prop) (h : p) : p\" [default: those that are typed, one a line].
    #[arg(conflicts_with = "problem")]
    pub statement: Option<String>,
    /// Prove this theorem of the slice again, from what stands before it; for Lean: the target of a shipped set with this id.
    #[arg(long, value_name = "LABEL")]
    pub problem: Option<String>,
    /// Which models, and where.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Proofs to sample, at most.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    pub samples: u32,
    /// Use only what stands before this label of the slice; for Lean: the header, as "import Mathlib".
    #[arg(long, value_name = "LABEL", conflicts_with = "problem")]
    pub context: Option<String>,
    /// Sampling temperature; 0 always takes the most probable token.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Longest proof in tokens.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_new_tokens: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ProveArgs {
    /// Whether statements are typed, one after the other.
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
Exit code: 0 if a statement was invented, 1 if none was, 2 if the target makes no sense.")]
pub struct ConjectureArgs {
    /// The target: a statement as it is printed, or canonical.
    #[arg(conflicts_with = "problem")]
    pub statement: Option<String>,
    /// The target is this theorem of the slice; for Lean: this target of d3k or core.
    #[arg(long, value_name = "LABEL")]
    pub problem: Option<String>,
    /// What proofs may use: what stands before this label of the slice; for Lean: the header.
    #[arg(long, value_name = "LABEL", conflicts_with = "problem")]
    pub context: Option<String>,
    /// Which models, and where.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Conjectures to sample.
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
Exit code: 0 if a review could be read, 1 if none could, 2 if a statement makes no sense.")]
pub struct ReviewArgs {
    /// The conjecture: a statement as it is printed, or canonical.
    pub conjecture: String,
    /// The target that it was invented for, also a statement.
    #[arg(long, value_name = "STATEMENT", conflicts_with = "problem")]
    pub target: Option<String>,
    /// The target is this theorem of the slice; for Lean: this target of d3k or core.
    #[arg(long, value_name = "LABEL")]
    pub problem: Option<String>,
    /// What proofs may use: what stands before this label of the slice; for Lean: the header.
    #[arg(long, value_name = "LABEL", conflicts_with = "problem")]
    pub context: Option<String>,
    /// Which models, and where.
    #[command(flatten)]
    pub play: PlayArgs,
    /// Reviews to sample.
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
  statement: as it is printed, or \"$d x ph $e |- ph $p |- A. x ph\"; or apart: \"distinct\": [[\"x\", \"ph\"]],
  \"hypotheses\": [\"|- ph\"], \"conclusion\": \"|- A. x ph\".
  context: only what stands before this label may be used; without it, the whole database.
A line for Lean: {\"id\": \"a\", \"header\": \"import Mathlib\", \"statement\": \"theorem a : 1 = 1 := by\", \"proof\": \"\\n  rfl\"}
  expect: the verdict that it should get; other layouts are read as by `sgs data import`.
A line of output: {\"id\", \"verdict\", \"reason\", \"step\", \"micros\"}; verdict is proved, refused, malformed, resource or infra.
Exit code: 0 if every line got a verdict, whatever it is; 1 if a line is bad, could not be decided, or got another
verdict than it expects.")]
pub struct VerifyArgs {
    /// The proofs, JSON Lines; - for standard input.
    pub file: PathBuf,
    /// Their formal system.
    #[arg(long, value_parser = systems(), default_value = "metamath")]
    pub system: SystemName,
    /// A Metamath database in place of the slice of set.mm that ships.
    #[arg(long, value_name = "FILE.mm")]
    pub database: Option<PathBuf>,
    /// Refuse a database of which a theorem has no proof, or one that does not hold, in place of a warning.
    #[arg(long, requires = "database")]
    pub strict: bool,
    /// Write the database with the proved theorems appended, for other verifiers.
    #[arg(long, value_name = "OUT.mm")]
    pub export: Option<PathBuf>,
    /// Threads; 0 for one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Lean.
    #[command(flatten)]
    pub lean: LeanArgs,
}

/// Which Lean checks, and how.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lean")]
pub struct LeanArgs {
    /// Settings of the checker as TOML; every key may be left out.
    #[arg(long, value_name = "FILE")]
    pub lean: Option<PathBuf>,
    /// Which program judges [default: repl; for a worker as the run says].
    #[arg(long, value_enum, value_name = "CHECKER")]
    pub lean_checker: Option<LeanChecker>,
    /// Folder in which `sgs lean setup` has put it [default: lean-setup, for wasm lean-wasm; for a
    /// worker as the run says].
    #[arg(long, value_name = "DIR")]
    pub lean_root: Option<PathBuf>,
    /// Lean's version in that folder [default: v4.15.0, for wasm v4.28.0-pre; for a worker as the run says].
    #[arg(long, value_name = "VERSION")]
    pub lean_version: Option<String>,
    /// Proofs checked at the same time [default: one per core].
    #[arg(long, value_name = "N")]
    pub lean_slots: Option<usize>,
    /// Refuse to run where the sandbox has a hole.
    #[arg(long)]
    pub require_sandbox: bool,
    /// Do not try first whether the checker tells a theorem from a falsehood.
    #[arg(long)]
    pub skip_canaries: bool,
}

/// The programs that judge Lean proofs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeanChecker {
    /// The community REPL, with Mathlib.
    Repl,
    /// The judge's program over the same installation, several theorems a file.
    File,
    /// The WebAssembly build: core Lean, no axioms listed; for trials.
    Wasm,
}

/// `sgs lean …`
#[derive(Debug, Subcommand)]
pub enum LeanCommand {
    /// Fetch and build Lean, Mathlib, the REPL and the judge in a folder; goes on where it was interrupted.
    Setup(LeanSetupArgs),
}

/// Arguments of `sgs lean setup`.
#[derive(Debug, Args)]
pub struct LeanSetupArgs {
    /// Folder that everything goes into [default: lean-setup, for --wasm lean-wasm].
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Lean's version, which Mathlib, REPL and judge follow.
    #[arg(long, value_name = "VERSION", default_value = sgs_lean::VERSION)]
    pub version: String,
    /// The WebAssembly build in place of all of it: core Lean only, for trials on any Linux
    /// x86-64 machine with npm.
    #[arg(long)]
    pub wasm: bool,
    /// Say what would be done, with disk space, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `sgs status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The run's directory.
    #[arg(value_name = "RUN")]
    pub dir: PathBuf,
    /// Rounds to show, counted from the last.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub rounds: usize,
    /// The live page, until Ctrl-C.
    #[command(flatten)]
    pub page: PageArgs,
    /// Print JSON.
    #[arg(long, conflicts_with = "serve")]
    pub json: bool,
    /// Print what the journal holds of rounds that are not published yet, one JSON object a result.
    #[arg(long, conflicts_with_all = ["serve", "json"])]
    pub journal: bool,
}

/// Arguments of `sgs fit`.
#[derive(Debug, Args)]
#[command(after_help = "\
A CSV file has the columns generations and rate (0 to 1), named in a header or as its first two.
Exit code: 0 if every curve was fitted, 1 if one could not be; a fit that the points do not determine has warnings.")]
pub struct FitArgs {
    /// Directories of runs, or CSV files: generations and rate by name or as the first two columns; a column `run`,
    /// `method` or `seed` tells several curves apart.
    #[arg(required = true, value_name = "RUN|CSV")]
    pub inputs: Vec<PathBuf>,
    /// Leave out what lies before so many generations; by default 100,000, scaled down for short curves.
    #[arg(long, value_name = "GENERATIONS")]
    pub cut: Option<f64>,
    /// Upper bound of the asymptote.
    #[arg(long, value_name = "RATE", default_value_t = 1.0)]
    pub max_rate: f64,
    /// Confidence level of the intervals.
    #[arg(long, default_value_t = 0.95)]
    pub level: f64,
    /// Random halves of the points to fit again.
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
    /// Run a model folder with recorded numbers through this engine, and print the largest error of each quantity.
    Check(LmCheckArgs),
}

/// Arguments of `sgs lm check`.
#[derive(Debug, Args)]
#[command(after_help = "\
The folder holds config.json, model.safetensors, io.safetensors and expected.json (see docs/language-model.md).
Exit code: 0 if every error is within its tolerance, 1 if not.")]
pub struct LmCheckArgs {
    /// The folder.
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
    /// Check the proofs of a Metamath database, by the unifier alone and with the kernel.
    Verify(BenchVerifyArgs),
    /// Sample from a model of random weights.
    Sample(BenchSampleArgs),
    /// Train a model of random weights on random tokens.
    Train(BenchTrainArgs),
    /// Hand tasks out to workers: by the board alone, and over HTTP.
    Dispatch(BenchDispatchArgs),
}

/// Arguments of `sgs bench dispatch`.
#[derive(Debug, Args)]
pub struct BenchDispatchArgs {
    /// Open tasks on the board.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub open: u64,
    /// Workers, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub workers: usize,
    /// Tasks that a worker asks for at once.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub capacity: usize,
    /// For how long the workers ask.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub seconds: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs bench verify`.
#[derive(Debug, Args)]
pub struct BenchVerifyArgs {
    /// The formal system.
    #[arg(long, value_enum, default_value_t = BenchSystem::Metamath)]
    pub system: BenchSystem,
    /// A Metamath database in place of the slice of set.mm that ships.
    #[arg(long, value_name = "FILE.mm")]
    pub database: Option<PathBuf>,
    /// Leave out proofs with more steps.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub steps: usize,
    /// How often all proofs are checked; the fastest time counts.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub repeats: usize,
    /// Threads of the parallel measurement; 0 for one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Formal systems of which the checker's speed is measured: that of Lean is Lean's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchSystem {
    /// Metamath, embedded.
    Metamath,
}

/// Arguments of `sgs bench sample`.
#[derive(Debug, Args)]
pub struct BenchSampleArgs {
    /// Shape of the model: small (4 layers, width 256, vocabulary 1,024), or a folder with a config.json.
    #[arg(long = "model", value_name = "SHAPE", default_value = "small")]
    pub shape: String,
    /// Requests decoded at once.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub batch: usize,
    /// Different prompts among them.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub prompts: usize,
    /// Tokens of a prompt.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub prompt_tokens: usize,
    /// New tokens of each request.
    #[arg(long, value_name = "N", default_value_t = 96)]
    pub new_tokens: usize,
    /// Runs measured.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub runs: usize,
    /// Device to sample on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// Threads of the processor; 0 for one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}

/// Arguments of `sgs bench train`.
#[derive(Debug, Args)]
pub struct BenchTrainArgs {
    /// Shape of the model: small (4 layers, width 256, vocabulary 1,024), or a folder with a config.json.
    #[arg(long = "model", value_name = "SHAPE", default_value = "small")]
    pub shape: String,
    /// Sequences of an optimiser step.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub sequences: usize,
    /// Tokens of a sequence.
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub length: usize,
    /// Tokens run through the model at once.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub micro_batch_tokens: usize,
    /// Steps measured.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub steps: usize,
    /// Device to train on.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// Threads of the processor; 0 for one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}

/// Arguments of `sgs doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code: 0 if the embedded default works here, 1 if not. GPU, Lean and Slurm may be absent.")]
pub struct DoctorArgs {
    /// Read this run's files to their end and check them against their checksums, in place of looking at the machine.
    pub run: Option<PathBuf>,
    /// Check this model folder in place of the base model that ships.
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Where runs are to be written.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Folder of Lean with Mathlib, as `sgs lean setup` makes it.
    #[arg(long, value_name = "DIR", default_value = sgs_lean::ROOT)]
    pub lean_root: PathBuf,
    /// Folder of the WebAssembly build of Lean, as `sgs lean setup --wasm` makes it.
    #[arg(long, value_name = "DIR", default_value = sgs_lean::WASM_ROOT)]
    pub lean_wasm_root: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs data stats`.
#[derive(Debug, Args)]
pub struct DataStatsArgs {
    /// The data set: JSON Lines, a JSON array, Parquet, D_3k or Lean source; .zst too; or a corpus of `sgs data build`.
    pub file: PathBuf,
    /// Lean header for problems that bring none.
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs data import`.
#[derive(Debug, Args)]
#[command(after_help = "\
The layouts of Goedel-Pset, NuminaMath-LEAN, miniF2F, D_3k and Lean source with sorry are known.
Exit code: 0 if every record was taken, 1 if some were not (they are named, the rest is written).")]
pub struct DataImportArgs {
    /// The data set: JSON Lines, a JSON array, Parquet, D_3k or Lean source; .zst too.
    pub file: PathBuf,
    /// Where to write; - for standard output.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Lean header for problems that bring none.
    #[arg(long, value_name = "FILE")]
    pub header: Option<PathBuf>,
    /// Lean's version that the problems are for, as v4.15.0, where a record names none.
    #[arg(long, value_name = "VERSION")]
    pub toolchain: Option<String>,
}

/// Arguments of `sgs data filter`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file names the problems and the stages that they go through, in their order:
  kind = \"rollouts\"   k attempts of a model, here or served; drops what is proved too often
                      (drop_above) and, with negation = true, what is proved false
  kind = \"sample\"     keeps so many, drawn at random (count)
  kind = \"label\"      drops what a served model calls unsolvable
examples/filter.toml has the paper's stages. DIR gets kept.jsonl (a data set), fates.jsonl (what
became of each problem, and by what), report.md, and what each stage found. The same command goes on
where it was stopped or killed; thresholds and later stages may change meanwhile.
  sgs data filter examples/filter.toml --out d3k --device cuda")]
pub struct DataFilterArgs {
    /// The filtering (TOML).
    pub config: PathBuf,
    /// Where to write.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Device for models that are not served.
    #[arg(long, value_parser = devices(), default_value = "cpu")]
    pub device: DeviceKind,
    /// Lean.
    #[command(flatten)]
    pub lean: LeanArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs data classify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Four difficulties and ten areas, in the words of the paper's Appendix D. What cannot be read is asked
again until more than 99 % are classified. DIR gets classes.jsonl and classes.svg; the same command
goes on where it was stopped, and asks nobody if nothing is open.
  sgs data classify d3k --endpoint http://127.0.0.1:8000/v1 --out classes
Exit code: 0 if more than 99 % are classified, else 1.")]
pub struct DataClassifyArgs {
    /// The problems: d3k, core, or a file as `sgs data import` reads it.
    pub problems: String,
    /// Where to write.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Who is asked.
    #[command(flatten)]
    pub teacher: TeacherArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `sgs data reviews`.
#[derive(Debug, Args)]
#[command(after_help = "\
The model is asked what the Guide is asked; a review without three scores in range is asked for
again. DIR gets guide.parquet, guide-held-out.parquet and sft.toml; the same command goes on where it
was stopped.
  sgs data reviews runs/a --endpoint URL --endpoint-model gpt-4.1-mini --out reviews
  sgs sft reviews/sft.toml --model BASE --out guide
  sgs run --size lean-d3k --set model.guide=guide/model
Exit code: 0 if all that were wanted are there, else 1.")]
pub struct DataReviewsArgs {
    /// The run, with any Guide or none.
    pub run: PathBuf,
    /// Where to write.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Reviews to train on.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2048)]
    pub count: usize,
    /// Reviews of other conjectures, to measure a Guide by.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub held_out: usize,
    /// Who is asked.
    #[command(flatten)]
    pub teacher: TeacherArgs,
}

/// A served model that answers questions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Teacher")]
pub struct TeacherArgs {
    /// Its address, as http://127.0.0.1:8000/v1: an OpenAI-compatible chat endpoint; its key is in SGS_ENDPOINT_KEY.
    #[arg(long, value_name = "URL")]
    pub endpoint: String,
    /// The served model's name [default: the only one that is served].
    #[arg(long, value_name = "NAME")]
    pub endpoint_model: Option<String>,
    /// File with the server's key [default: the variable SGS_ENDPOINT_KEY, if it is set].
    #[arg(long, value_name = "FILE")]
    pub endpoint_key_file: Option<String>,
    /// File with the certificates to trust instead of the public ones, for a server at an https:// address.
    #[arg(long, value_name = "FILE")]
    pub endpoint_authority: Option<String>,
    /// Requests at once.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub endpoint_requests: u16,
    /// Longest answer in tokens, with what the model thinks before it.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub max_new_tokens: usize,
    /// How often a question is asked, at most, until its answer can be read.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub tries: u32,
    /// Sampling seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl TeacherArgs {
    /// As it is asked.
    pub fn endpoint(&self) -> EndpointConfig {
        EndpointConfig {
            url: self.endpoint.clone(),
            model: self.endpoint_model.clone().unwrap_or_default(),
            key_file: self.endpoint_key_file.clone().unwrap_or_default(),
            authority: self.endpoint_authority.clone().unwrap_or_default(),
            concurrency: self.endpoint_requests.into(),
            ..EndpointConfig::default()
        }
    }
}

/// The devices, by the names that they have on the command line.
fn devices() -> impl TypedValueParser<Value = DeviceKind> {
    PossibleValuesParser::new([
        PossibleValue::new("cpu").help("The processor"),
        PossibleValue::new("cuda").help("One NVIDIA GPU in bfloat16, with f32 sums and f32 master weights"),
        PossibleValue::new("cuda-f32").help("One NVIDIA GPU in f32 throughout: for comparing, not for speed"),
    ])
    .try_map(|name| name.parse::<DeviceKind>())
}

/// The formal systems, by the names that they have on the command line.
fn systems() -> impl TypedValueParser<Value = SystemName> {
    PossibleValuesParser::new([
        PossibleValue::new("metamath").help("Metamath, embedded"),
        PossibleValue::new("lean").help("Lean 4"),
    ])
    .try_map(|name| name.parse::<SystemName>())
}
