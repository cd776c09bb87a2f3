//! `sgs run` and `sgs resume`.

use crate::args::{FleetArgs, PageArgs, RankArgs, ResumeArgs, RunArgs};
use crate::exit::Outcome;
use crate::pace::Pace;
use crate::page::Page;
use crate::shown::Shown;
use crate::view::{Show, View};
use crate::{earlier, requirements, signals, summary};
use anyhow::{Result, bail};
use sgs_analysis::report::{self, ReportOptions};
use sgs_analysis::run::{ReadOptions, metric, read_run};
use sgs_lm::ranks::{Meeting, Parallel};
use sgs_lm::sampler::Decode;
use sgs_run::config::{self, Layers, RunConfig};
use sgs_run::ranks::crew::Crew;
use sgs_run::ranks::follow;
use sgs_run::recipe;
use sgs_run::seats::{self, Standing};
use sgs_run::system::{self, Opened};
use sgs_run::workers::config::FleetConfig;
use sgs_run::workers::outside::Remembered;
use sgs_run::{RunEvent, Runner, folder, policies};
use sgs_run::{device, with_device};
use sgs_rundir::metrics::names;
use sgs_rundir::{NextStep, RunDir, RunView};
use sgs_selfplay::Problem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Begins a run.
pub fn run(args: &RunArgs) -> Result<Outcome> {
    begin(args, FleetConfig::default())
}

/// Begins a run with these workers unless the arguments name others.
pub fn begin(args: &RunArgs, workers: FleetConfig) -> Result<Outcome> {
    args.page.check()?;
    let layers = Layers {
        method: args.method.clone(),
        size: args.size.clone(),
        as_published: args.as_published,
        set: args.set.clone(),
    };
    let resolve = || config::resolve(&layers, std::env::vars());
    if args.explain || args.dry_run {
        let mut resolved = resolve()?;
        if let Some(ranks) = args.ranks.ranks {
            resolved.set_ranks(ranks);
        }
        return if args.explain {
            super::explain::run(&resolved)
        } else {
            super::dry_run::run(&resolved, args.json)
        };
    }
    let mut crew = match join(&args.ranks, &args.fleet)? {
        ControlFlow::Continue(crew) => crew,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    let mut config = resolve()?.config;
    let workers = fleet(&args.fleet, workers)?;
    begin_with(&config, workers.as_ref(), &layers)?;
    if let Outcome::Interrupted = super::made::ensure(&config)? {
        return Ok(Outcome::Interrupted);
    }
    config.training.ranks = crew.settle(&config, args.ranks.ranks.is_some())?;
    let out = args.out.clone().unwrap_or_else(|| default_folder(&config));
    earlier::tell(&config, &out);
    let run = folder::begin(&config, &out)?;
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
    args.page.check()?;
    let mut crew = match join(&args.ranks, &args.fleet)? {
        ControlFlow::Continue(crew) => crew,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    if args.verify {
        super::doctor::read_whole(&args.dir)?;
    }
    let before = Remembered::read(&args.dir)?.map(|remembered| remembered.fleet).unwrap_or_default();
    let workers = fleet(&args.fleet, before)?;
    let frozen = folder::config_of(&RunView::open(&args.dir)?)?;
    begin_with(&frozen, workers.as_ref(), &Layers::default())?;
    // The run has its own copy of a model that was made for it.
    if !recipe::is_model(&args.dir.join("base"))
        && let Outcome::Interrupted = super::made::ensure(&frozen)?
    {
        return Ok(Outcome::Interrupted);
    }
    let (run, config) = folder::reopen(&args.dir)?;
    let config = if args.rounds.is_some() || args.minutes.is_some() || !args.set.is_empty() {
        let wanted = folder::change(&run, args.rounds, args.minutes, &args.set)?;
        if config.minutes > 0.0 && wanted.minutes == 0.0 && args.minutes.is_none() {
            eprintln!(
                "--rounds without --minutes: no limit of time, where it was {} minutes",
                config.minutes
            );
        }
        wanted
    } else {
        config
    };
    if run.plan(0)?.next == NextStep::Start
        && let Some(over) = folder::what_is_over(run.view(), &config)?
    {
        let more = config.rounds.saturating_mul(2).max(1);
        eprintln!("{over}; `sgs resume {} --rounds {more}` goes on", args.dir.display());
    }
    crew.settle(&config, args.ranks.ranks.is_some())?;
    work(config, run, workers, crew, args.json, &args.page)
}

/// Takes part in a run's ranks as the arguments, the launcher or Slurm say. The first works on the run; any other does
/// its part here, and this is how it ended.
fn join(args: &RankArgs, fleet: &FleetArgs) -> Result<ControlFlow<Outcome, Crew>> {
    match seats::standing(&args.asked(), fleet.token_file.as_deref())? {
        Standing::Seated(seat) if seat.rank > 0 => Ok(ControlFlow::Break(follow::run(&seat)?)),
        standing => Ok(ControlFlow::Continue(Crew::new(standing, args.asked().patience)?)),
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
        _ => conclude(&path, json),
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
    let Opened { system, targets, held_out, notes } = system::open(&config, &path.join("lean-scratch"))?;
    let shared = |problems: Vec<Problem>| problems.into_iter().map(Arc::new).collect();
    let (targets, held_out): (Vec<Arc<Problem>>, _) = (shared(targets), shared(held_out));
    folder::same_checker(&path, &system.identity())?;
    let base = policies::base_folder(&config, &path.join("base"))?;
    let (rates, seconds) = so_far(&run)?;
    let pace = Pace::new(config.minutes, folder::seconds_worked(run.view())?, seconds);
    let base_evaluation = match run.view().evaluations()?.first() {
        Some(first) if first.after == 0 => Some(first.metrics()?),
        _ => None,
    };
    let (interrupt, _attending) = signals::attend()?;
    let page = Page::start(page, &path, &system)?;
    let mut view = View::new(Show::choose(json), Arc::clone(&system), rates, base_evaluation, pace, page);
    notes.iter().for_each(|note| view.on(&RunEvent::Note(note)));
    let runner = Runner {
        config: Arc::new(config),
        system,
        targets,
        held_out,
        run: Arc::new(run),
        device,
        base,
        interrupt,
        fleet,
        meeting,
    };
    let done = runner.work(&mut |event| view.on(&event));
    view.end();
    done
}

/// Refuses to begin what would fail later.
fn begin_with(config: &RunConfig, workers: Option<&FleetConfig>, asked: &Layers) -> Result<()> {
    let mut lacks = requirements::lacks(config);
    lacks.extend(workers.and_then(requirements::slurm_lack));
    if !lacks.is_empty() {
        let all: Vec<String> = lacks.iter().map(|l| format!("{} ({})", l.what, l.found)).collect();
        let set = asked.set.iter().map(|set| format!(" --set {set}")).collect::<String>();
        let method = asked.method.as_ref().unwrap_or(&config.method);
        bail!(
            "{} at {} cannot run here: this machine lacks {}; `sgs run {method} --size {}{set} --dry-run` says how to get it",
            config.method,
            config.size,
            all.join(", "),
            config.size
        );
    }
    device::kind(&config.model.device).map(|_| ())
}

/// The report and the last lines. Both are pictures of the run's files: failing to draw them does not fail the run.
fn conclude(path: &Path, json: bool) {
    let draw = || -> Result<()> {
        let shown = Shown::of_run(path)?;
        let run = read_run(path, &ReadOptions { display: Some(&shown), ..ReadOptions::default() })?;
        if !json {
            for line in summary::lines(&run, &RunView::open(path)?, &shown)? {
                crate::output::line(line)?;
            }
        }
        let written = report::write(&[run], &path.join("report"), &ReportOptions::default())?;
        eprintln!("report: {}", written.index.display());
        Ok(())
    };
    if let Err(error) = draw() {
        eprintln!("the report could not be written: {error:#}");
    }
}

/// Cumulative solve rate and seconds of each round that is over.
fn so_far(run: &RunDir) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut rates, mut seconds) = (Vec::new(), Vec::new());
    for round in run.view().rounds()? {
        let scalars = round.metrics()?.scalars;
        rates.push(scalars.get(metric::CUMULATIVE).copied().unwrap_or(0.0));
        seconds.extend(scalars.get(names::TIME_ROUND).copied());
    }
    Ok((rates, seconds))
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
