//! `sgs run` and `sgs resume`.

use crate::args::{FleetArgs, PageArgs, RankArgs, ResumeArgs, RunArgs};
use crate::device::{self, with_device};
use crate::exit::Outcome;
use crate::output;
use crate::page::Page;
use crate::ranks::{self, Standing};
use crate::run::config::{self, Layers, RunConfig, SystemName};
use crate::run::ranks::crew::Crew;
use crate::run::ranks::follow;
use crate::run::system::{self, Opened};
use crate::run::view::{Show, View};
use crate::run::workers::config::FleetConfig;
use crate::run::workers::outside::Remembered;
use crate::run::{Interrupt, Runner, policies, requirements};
use anyhow::{Context, Result, bail};
use sgs_analysis::report::ReportOptions;
use sgs_lm::ranks::{Meeting, Parallel};
use sgs_lm::sampler::Decode;
use sgs_rundir::{FrozenConfig, RunDir, RunOptions, RunView};
use sgs_selfplay::Problem;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Begins a run.
pub fn run(args: &RunArgs) -> Result<Outcome> {
    begin(args, FleetConfig::default())
}

/// Begins a run with these workers unless the arguments name others.
pub fn begin(args: &RunArgs, workers: FleetConfig) -> Result<Outcome> {
    if args.explain {
        return explain();
    }
    let layers = Layers { method: args.method.clone(), size: args.size.clone(), set: args.set.clone() };
    let resolve = || config::resolve(&layers, std::env::vars());
    if args.dry_run {
        let mut config = resolve()?;
        config.training.ranks = args.ranks.ranks.unwrap_or(config.training.ranks);
        return super::dry_run::run(&config, args.json);
    }
    let mut crew = match join(&args.ranks, &args.fleet)? {
        ControlFlow::Continue(crew) => crew,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    let mut config = resolve()?;
    let workers = fleet(&args.fleet, workers)?;
    begin_with(&config)?;
    config.training.ranks = crew.settle(&config, args.ranks.ranks.is_some())?;
    let out = args.out.clone().unwrap_or_else(|| default_folder(&config));
    let frozen = frozen(&config)?;
    let run = RunDir::create(&out, &frozen, RunOptions::default())?;
    eprintln!(
        "{} at {} into {} (stop with Ctrl-C, go on with `sgs resume {}`)",
        config.method,
        config.size,
        out.display(),
        out.display()
    );
    work(config, run, workers, crew, args.json, &args.page)
}

/// Goes on with a run.
pub fn resume(args: &ResumeArgs) -> Result<Outcome> {
    let mut crew = match join(&args.ranks, &args.fleet)? {
        ControlFlow::Continue(crew) => crew,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    let run = RunDir::open(&args.dir, RunOptions::default())?;
    let config = config_of(run.view())?;
    begin_with(&config)?;
    run.check_config(&frozen(&config)?)?;
    crew.settle(&config, args.ranks.ranks.is_some())?;
    let before = Remembered::read(&args.dir)?.map(|remembered| remembered.fleet).unwrap_or_default();
    let workers = fleet(&args.fleet, before)?;
    work(config, run, workers, crew, args.json, &args.page)
}

/// Takes part in a run's ranks as the arguments, the launcher or Slurm say. The first works on the run; any other does
/// its part here, and this is how it ended.
fn join(args: &RankArgs, fleet: &FleetArgs) -> Result<ControlFlow<Outcome, Crew>> {
    match ranks::standing(args, fleet.token_file.as_deref())? {
        Standing::Seated(seat) if seat.rank > 0 => Ok(ControlFlow::Break(follow::run(&seat)?)),
        standing => Ok(ControlFlow::Continue(Crew::new(standing, args.patience())?)),
    }
}

/// Who does the work: what the arguments say, over what was `before`. `None` if it is all done in this process.
fn fleet(args: &FleetArgs, before: FleetConfig) -> Result<Option<FleetConfig>> {
    let mut config = match &args.workers {
        None => before,
        Some(spec) => FleetConfig::parse(spec)?,
    };
    if args.listen.is_some() {
        config.listen = args.listen;
    }
    if args.host.is_some() {
        config.host.clone_from(&args.host);
    }
    if args.token_file.is_some() {
        config.token_file.clone_from(&args.token_file);
    }
    Ok((!config.is_embedded()).then_some(config))
}

/// The configuration that a run was begun with.
///
/// # Errors
/// It cannot be read.
pub fn config_of(run: &RunView) -> Result<RunConfig> {
    let mut table = run.config()?;
    table.remove("frozen");
    table.try_into().context("config.toml of the run")
}

fn work(
    config: RunConfig,
    run: RunDir,
    fleet: Option<FleetConfig>,
    mut crew: Crew,
    json: bool,
    page: &PageArgs,
) -> Result<Outcome> {
    let path = run.view().path().to_owned();
    crew.start(&path)?;
    let done = open(config, run, fleet, &mut crew, json, page);
    let outcome = crew.end(done, &path)?;
    match outcome {
        Outcome::Interrupted => eprintln!("stopped; go on with `sgs resume {}`", path.display()),
        _ => write_report(&path),
    }
    Ok(outcome)
}

fn open(
    config: RunConfig,
    run: RunDir,
    fleet: Option<FleetConfig>,
    crew: &mut Crew,
    json: bool,
    page: &PageArgs,
) -> Result<Outcome> {
    let kind = device::kind(&config.model.device)?;
    with_device!(kind, crew.threads(), crew.gpu(kind)?, device => {
        work_on(config, run, fleet, crew.meeting(), json, page, device)
    })
}

fn work_on<D: Parallel + Decode>(
    config: RunConfig,
    run: RunDir,
    fleet: Option<FleetConfig>,
    meeting: Option<Meeting>,
    json: bool,
    page: &PageArgs,
    device: Arc<D>,
) -> Result<Outcome> {
    let path = run.view().path().to_owned();
    let Opened { system, targets } = system::open(&config, &path.join("lean-scratch"))?;
    let targets: Vec<Arc<Problem>> = targets.into_iter().map(Arc::new).collect();
    same_checker(&path, &system.identity())?;
    let base = policies::base_folder(&config, &path.join("base"))?;
    let rates = rates_so_far(&run)?;
    let interrupt = Interrupt::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second signal ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupt.flag())?;
        signal_hook::flag::register(signal, interrupt.flag())?;
    }
    let page = Page::start(page, &path, &system, &targets)?;
    let view = View::new(Show::choose(json), Arc::clone(&system), rates, page);
    let runner = Runner {
        config: Arc::new(config),
        system,
        targets,
        run: Arc::new(run),
        device,
        base,
        interrupt,
        fleet,
        meeting,
    };
    runner.work(view)
}

/// Records what judges this run's proofs; a run that goes on with another checker would mix their verdicts.
fn same_checker(run: &Path, identity: &str) -> Result<()> {
    let path = run.join("checker.txt");
    match std::fs::read_to_string(&path) {
        Ok(recorded) if recorded.trim() == identity => Ok(()),
        Ok(recorded) => bail!(
            "the run's verdicts so far come from another checker (checker.txt): `{}`; here is `{identity}`",
            recorded.trim()
        ),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Ok(sgs_rundir::files::write_file(&path, format!("{identity}\n").as_bytes())?)
        }
        Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Refuses to begin what would fail later.
fn begin_with(config: &RunConfig) -> Result<()> {
    let lacks = requirements::lacks(config);
    if !lacks.is_empty() {
        let all: Vec<String> = lacks.iter().map(|l| format!("{} ({})", l.what, l.found)).collect();
        bail!(
            "{} at {} cannot run here: this machine lacks {}; `sgs run --size {} --dry-run` says how to get it",
            config.method,
            config.size,
            all.join(", "),
            config.size
        );
    }
    device::kind(&config.model.device).map(|_| ())
}

/// The report is a picture of the run's files: failing to draw it does not fail the run.
fn write_report(path: &Path) {
    match super::report::write_for(&[path.to_owned()], &path.join("report"), &ReportOptions::default()) {
        Ok(index) => eprintln!("report: {}", index.display()),
        Err(error) => eprintln!("the report could not be written: {error:#}"),
    }
}

fn rates_so_far(run: &RunDir) -> Result<Vec<f64>> {
    let mut rates = Vec::new();
    for round in run.view().rounds()? {
        rates.push(round.metrics()?.scalars.get("cumulative_solve_rate").copied().unwrap_or(0.0));
    }
    Ok(rates)
}

fn frozen(config: &RunConfig) -> Result<FrozenConfig> {
    let mut data = BTreeMap::new();
    if config.problems.system == SystemName::Metamath {
        data.insert("slice".to_owned(), sgs_metamath::slice::SLICE_SHA256.to_owned());
    }
    data.insert(
        "base-model".to_owned(),
        match config::model_folder(&config.model.base) {
            None => crate::base_model::hash(),
            // A model in several files is known by their index.
            Some(folder) => ["model.safetensors", "model.safetensors.index.json"]
                .iter()
                .map(|name| folder.join(name))
                .find(|path| path.exists())
                .map_or_else(
                    || bail!("{} holds no model.safetensors", folder.display()),
                    |path| file_hash(&path),
                )?,
        },
    );
    if !system::is_shipped_set(&config.problems.set) {
        data.insert("problems".to_owned(), file_hash(Path::new(&config.problems.set))?);
    }
    Ok(FrozenConfig {
        text: toml::to_string_pretty(config)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data,
    })
}

fn file_hash(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(sgs_metamath::slice::sha256(&bytes))
}

/// `runs/METHOD-SIZE`, with a number behind it if that is taken.
fn default_folder(config: &RunConfig) -> PathBuf {
    let name = format!("{}-{}", config.method, config.size);
    let first = Path::new("runs").join(&name);
    if !first.exists() {
        return first;
    }
    (2..).map(|n| Path::new("runs").join(format!("{name}-{n}"))).find(|p| !p.exists()).unwrap_or(first)
}

fn explain() -> Result<Outcome> {
    let mut text =
        String::from("Every key of a run's configuration, for --set KEY=VALUE and TOML files.\n\n");
    for (key, meaning, allowed) in config::documentation() {
        text.push_str(&format!("{key}\n    {meaning}: {allowed}\n"));
    }
    text.push_str("\nLayers, each over the one before: size, method, file, SGS_SET_… variables, --set.");
    output::line(text)?;
    Ok(Outcome::Done)
}
