//! `sgs run` and `sgs resume`.

use super::missing::{self, MissingRequirement};
use super::report::warn;
use crate::args::{BudgetArgs, ExecutionArgs, FleetArgs, RankArgs, ResumeArgs, RunArgs};
use crate::display::TextDisplay;
use crate::exit::{Outcome, Usage, is_broken_pipe, usage};
use crate::pace::Pace;
use crate::page::LivePage;
use crate::terminal::{Tone, paint};
use crate::view::{ProgressFormat, View};
use crate::{signals, summary};
use anyhow::Result;
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::report;
use sgs_analysis::run::{RunData, metric, read_run};
use sgs_data::base::made::{MadeBase, base_folder};
use sgs_data::base::recipe;
use sgs_lm::ModelConfig;
use sgs_lm::ranks::{Parallel, ProcessGroup};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm_sampler::Decode;
use sgs_run::config::base_model::is_model;
use sgs_run::config::device;
use sgs_run::config::folder::{self, Budget};
use sgs_run::config::system::{self, Opened};
use sgs_run::config::{self, Layers, Resolved, RunConfig, SystemName};
use sgs_run::train::launcher::{self, RankPlan};
use sgs_run::train::ranks::rank_group::RankGroup;
use sgs_run::with_device;
use sgs_run::workers::config::FleetConfig;
use sgs_run::workers::coordinator::CoordinatorAddress;
use sgs_run::workers::prompts;
use sgs_run::workers::rank_worker;
use sgs_run::{RunError, RunEvent, Runner};
use sgs_rundir::metrics::names;
use sgs_rundir::{NewRun, RunDir, RunView};
use sgs_selfplay::Problem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub fn run(args: &RunArgs) -> Result<Outcome> {
    begin(args, FleetConfig::default())
}

/// Starts a run with `workers`, unless the arguments name others.
pub fn begin(args: &RunArgs, workers: FleetConfig) -> Result<Outcome> {
    let ExecutionArgs { ranks, fleet: fleet_args, page, json } = &args.execution;
    page.check()?;
    let layers = Layers {
        method: args.method.clone(),
        size: args.size.clone(),
        as_paper: args.as_paper,
        as_published: args.as_published,
        set: args.set.clone(),
        flags: args.keys.given(),
    };
    let resolve = || {
        let resolved = config::resolve(&layers, std::env::vars())?;
        recipe::check(&resolved.config.model.base)?;
        anyhow::Ok(resolved)
    };
    if args.explain || args.dry_run {
        let mut resolved = resolve()?;
        if let Some(ranks) = ranks.ranks {
            resolved.set_ranks(ranks);
        }
        if args.explain {
            return super::explain::run(&resolved);
        }
        warn_without_effect(&resolved);
        return super::dry_run::run(&resolved, fleet(fleet_args, workers)?.as_ref(), &args.assume, *json);
    }
    let own = || Ok(args.out.clone().unwrap_or(default_folder(&resolve()?.config)));
    let mut rank_group = match join(ranks, fleet_args, own)? {
        ControlFlow::Continue(rank_group) => rank_group,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    signals::end_cleanly()?;
    let resolved = resolve()?;
    warn_without_effect(&resolved);
    let mut config = resolved.config;
    let workers = fleet(fleet_args, workers)?;
    check_requirements(&config, workers.as_ref(), Some(&layers))?;
    super::dry_run::check_memory(&config, workers.as_ref())?;
    config.training.ranks = rank_group.settle(&config, ranks.ranks.is_some())?;
    super::dry_run::check_machine(&config, workers.as_ref(), rank_group.local_ranks())?.iter().for_each(warn);
    let base = match super::made::ensure(&config)? {
        MadeBase::NotMade => None,
        MadeBase::Ready(folder) => Some(folder),
        MadeBase::Interrupted => return Ok(Outcome::Interrupted),
    };
    let out = args.out.clone().unwrap_or_else(|| default_folder(&config));
    begin_in(&out, &config, base.as_deref(), workers, rank_group, &args.execution)
}

/// Creates the folder of a run and starts the run. If it does not begin, removes the folder.
fn begin_in(
    out: &Path,
    config: &RunConfig,
    base: Option<&Path>,
    workers: Option<FleetConfig>,
    rank_group: RankGroup,
    execution: &ExecutionArgs,
) -> Result<Outcome> {
    refuse_inside_run(out)?;
    let place = out.display();
    let mut greeting = format!(
        "{} at size {}, writing to {place}\nCtrl-C stops it; to continue: `sgs resume {place}`",
        config.method, config.size
    );
    let decision = CoordinatorAddress::decision(workers.as_ref())?;
    let (run, mut new, config) = folder::begin_from(config, base, out, decision.as_deref())?;
    if let Some(same) = same_run(out) {
        let same = same.display();
        greeting = format!(
            "{greeting}\n{same} has the same configuration and seed: choose another --seed for other results"
        );
    }
    let mut start = Start { greeting, new: Some(&mut new), has_begun: false };
    let outcome = work(config, run, workers, rank_group, &mut start, execution);
    let has_begun = start.has_begun;
    // Errors refer to the logs of other ranks and workers.
    let has_logs = ["ranks", "workers"].iter().any(|logs| out.join(logs).exists());
    if outcome.as_ref().is_err_and(|error| !has_begun || cannot_begin(error, out)) && !has_logs {
        if let Err(error) = new.remove() {
            eprintln!("{error}; its run was not started");
        }
        return outcome.map_err(|error| if is_lack_of_memory(&error) { usage(error) } else { error });
    }
    new.keep();
    outcome
}

fn is_lack_of_memory(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<RunError>().map(RunError::root), Some(RunError::DeviceMemory(_)))
}

/// Warns of settings that have no effect.
fn warn_without_effect(resolved: &Resolved) {
    resolved.without_effect().iter().for_each(warn);
    // Missing problems and models are reported elsewhere.
    let targets = || system::target_count(&resolved.config).ok();
    resolved.excess_batch(targets).iter().for_each(warn);
    if let Ok((model, true)) = super::dry_run::shape(&resolved.config) {
        resolved.excess_tokens(&model).iter().for_each(warn);
    }
}

/// Returns another run in the same folder whose configuration equals that of the run `out`, which includes the seed.
fn same_run(out: &Path) -> Option<PathBuf> {
    const MOST_ENTRIES: usize = 1000;
    const MOST_BYTES: u64 = 1 << 20;
    let read = |run: &Path| sgs_base::files::read(&run.join("config.toml"), MOST_BYTES).ok();
    let own = read(out)?;
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let runs = std::fs::read_dir(parent).ok()?.flatten().take(MOST_ENTRIES);
    let mut same: Vec<PathBuf> = runs
        .map(|entry| parent.join(entry.file_name()))
        .filter(|run| run.file_name() != out.file_name() && read(run).as_ref() == Some(&own))
        .collect();
    same.sort();
    same.into_iter().next()
}

/// Checks that a new run would not be inside the folder of another run.
fn refuse_inside_run(out: &Path) -> Result<()> {
    let out = std::path::absolute(out)?;
    let is_run = |folder: &&Path| RunView::open(folder).is_ok() && folder.join("journal.sqlite").exists();
    if let Some(run) = out.ancestors().skip(1).find(is_run) {
        let (out, run) = (out.display(), run.display());
        return Err(Usage(format!("{out} is inside the run {run}: choose another folder (--out)")).into());
    }
    Ok(())
}

/// The start of a run: everything before its first round.
#[derive(Default)]
struct Start<'a> {
    /// Text that is printed when the run begins, if it is not empty.
    greeting: String,
    /// The folder of a new run.
    new: Option<&'a mut NewRun>,
    has_begun: bool,
}

impl Start<'_> {
    /// Records that the run has begun, because its system, models and workers are ready.
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) && !self.greeting.is_empty() {
            eprintln!("{}", self.greeting);
        }
    }
}

/// Returns whether a run in `out` cannot begin with its configuration. A folder with results, or one that cannot be read,
/// is never removed.
fn cannot_begin(error: &anyhow::Error, out: &Path) -> bool {
    let error = error.downcast_ref::<RunError>();
    error.is_some_and(|error| matches!(error.root(), RunError::CannotBegin(_)))
        && RunView::open(out).and_then(|view| view.has_results()).is_ok_and(|has| !has)
}

pub fn resume(args: &ResumeArgs) -> Result<Outcome> {
    let ExecutionArgs { ranks, fleet: fleet_args, page, .. } = &args.execution;
    page.check()?;
    crate::run_folder::check("sgs resume", &args.dir)?;
    let mut rank_group = match join(ranks, fleet_args, || Ok(args.dir.clone()))? {
        ControlFlow::Continue(rank_group) => rank_group,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    signals::end_cleanly()?;
    if args.verify {
        super::doctor::read_whole(&args.dir)?;
    }
    let view = RunView::open(&args.dir)?;
    if fleet_args.workers.is_none() {
        view.check_fleet()?;
    }
    let before = CoordinatorAddress::read(&args.dir)?.map(|remembered| remembered.fleet).unwrap_or_default();
    let workers = fleet(fleet_args, before)?;
    let frozen = folder::config_of(&view)?;
    folder::check_system(view.path(), &frozen)?;
    check_requirements(&frozen, workers.as_ref(), None)?;
    // A run keeps its own copy of a model that was made for it.
    let base = match is_model(&args.dir.join("base")) {
        true => None,
        false => match super::made::ensure(&frozen)? {
            MadeBase::NotMade => None,
            MadeBase::Ready(folder) => Some(folder),
            MadeBase::Interrupted => return Ok(Outcome::Interrupted),
        },
    };
    let (run, config) = folder::reopen_from(&args.dir, base.as_deref())?;
    run.record_fleet(CoordinatorAddress::decision(workers.as_ref())?.as_deref())?;
    let BudgetArgs { rounds, minutes, generations } = args.budget;
    let budget = Budget { rounds, minutes, generations };
    let mut start = Start::default();
    let config = if budget == Budget::default() && args.set.is_empty() {
        config
    } else {
        let wanted = folder::change(&run, budget, &args.set)?;
        let mut removed = Vec::new();
        if config.minutes > 0.0 && wanted.minutes == 0.0 && minutes.is_none() {
            removed.push((format!("the {}-minute limit", config.minutes), "--minutes"));
        }
        if config.generations > 0 && wanted.generations == 0 && generations.is_none() {
            removed.push((format!("the limit of {} generations", config.generations), "--generations"));
        }
        let lines = removed
            .iter()
            .map(|(limit, flag)| format!("{limit} is removed, because --rounds was given without {flag}"));
        start.greeting = lines.collect::<Vec<_>>().join("\n");
        wanted
    };
    rank_group.settle(&config, ranks.ranks.is_some())?;
    work(config, run, workers, rank_group, &mut start, &args.execution)
}

/// Joins the ranks of a run, as the arguments, the launcher or Slurm specify. Rank 0 executes the run. Any other rank does
/// its work here, for the run in the folder `own`; its outcome is returned.
fn join(
    args: &RankArgs,
    fleet: &FleetArgs,
    own: impl FnOnce() -> Result<PathBuf>,
) -> Result<ControlFlow<Outcome, RankGroup>> {
    match launcher::plan(&args.rank_options(), fleet.token_file.as_deref())? {
        RankPlan::Rank(rank_env) if rank_env.rank > 0 => {
            let run = match rank_env.folder().and_then(Path::parent) {
                Some(run) => run.to_owned(),
                None => own()?,
            };
            Ok(ControlFlow::Break(rank_worker::run(&rank_env, &run)?))
        }
        plan => Ok(ControlFlow::Continue(RankGroup::new(plan, args.rank_options().patience)?)),
    }
}

/// Returns the worker configuration: the arguments applied to `before`. `None` if this process does all the work.
fn fleet(args: &FleetArgs, before: FleetConfig) -> Result<Option<FleetConfig>> {
    let mut config = match &args.workers {
        None => before,
        Some(spec) => FleetConfig::parse(spec).map_err(usage)?,
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
    config.check_room()?;
    Ok((!config.is_embedded()).then_some(config))
}

fn work(
    config: RunConfig,
    run: RunDir,
    fleet: Option<FleetConfig>,
    mut rank_group: RankGroup,
    start: &mut Start<'_>,
    execution: &ExecutionArgs,
) -> Result<Outcome> {
    let path = run.view().path().to_owned();
    let advice = format!(
        "The run has stopped; `sgs resume {}` continues after the last published round.",
        path.display()
    );
    rank_group.start(&path)?;
    let (outcome, shown) = match open(config, run, fleet, &mut rank_group, start, execution) {
        Ok((done, shown)) => (rank_group.end(done, &advice)?, shown),
        Err(error) => {
            rank_group.end(Ok(()), &advice)?;
            return Err(error);
        }
    };
    match outcome {
        Outcome::Interrupted => eprintln!("stopped; to continue: `sgs resume {}`", path.display()),
        _ => print_results(&path, &shown, execution.json)
            .or_else(|error| if is_broken_pipe(&error) { Ok(()) } else { Err(error) })?,
    }
    Ok(outcome)
}

/// The result of the rounds of a run, and how its report shows texts.
type Done = (Result<Outcome, RunError>, TextDisplay);

/// Runs the rounds.
fn open(
    config: RunConfig,
    run: RunDir,
    fleet: Option<FleetConfig>,
    rank_group: &mut RankGroup,
    start: &mut Start<'_>,
    execution: &ExecutionArgs,
) -> Result<Done> {
    let kind = device::kind(&config.model.device)?;
    with_device!(kind, rank_group.threads(), rank_group.gpu(kind)?, device => {
        run_on_device(config, run, fleet, rank_group.group(), start, execution, device)
    })
}

fn run_on_device<D: Parallel + Decode>(
    config: RunConfig,
    run: RunDir,
    fleet: Option<FleetConfig>,
    process_group: Option<ProcessGroup>,
    start: &mut Start<'_>,
    execution: &ExecutionArgs,
    device: Arc<D>,
) -> Result<Done> {
    let path = run.view().path().to_owned();
    let scratch = path.join("lean-scratch");
    // A process that was killed has left its folder. This process holds the run's lock.
    let _ = std::fs::remove_dir_all(&scratch);
    let base = base_folder(&config, &path.join("base"))?;
    let Opened { system, targets, held_out, notes } = system::open(&config, &scratch, &base)?;
    let shared = |problems: Vec<Problem>| problems.into_iter().map(Arc::new).collect();
    let (targets, held_out): (Vec<Arc<Problem>>, _) = (shared(targets), shared(held_out));
    let (model, tokenizer) = (ModelConfig::load(&base)?, Tokenizer::load(&base)?);
    let unfit = prompts::check(&config, &model, &tokenizer, &*system, &targets)?;
    let unfit = unfit.map(|text| format!("{} {text}", paint(Tone::Bad, "warning:")));
    let FinishedRounds { rates, seconds, generations } = FinishedRounds::read(&run)?;
    let pace = Pace::new(&config, folder::seconds_worked(run.view())?, seconds, generations);
    let base_evaluation = match run.view().evaluations()?.first() {
        Some(first) if first.after == 0 => Some(first.metrics()?),
        _ => None,
    };
    let (interrupt, _guard) = signals::guard()?;
    // From here on, a signal stops the run, which can be resumed.
    start.new.iter_mut().for_each(|new| new.keep());
    let page = LivePage::start(&execution.page, &path, &system)?;
    let shown = match config.problems.system {
        SystemName::Metamath => TextDisplay::by(&system),
        // The report does not need the processes of these systems.
        SystemName::Lean | SystemName::External => TextDisplay::of(&config.problems)?,
    };
    let mut view = View::new(
        ProgressFormat::choose(execution.json),
        Arc::clone(&system),
        rates,
        base_evaluation,
        pace,
        page,
    );
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
        process_group,
    };
    let mut notes = notes.into_iter().chain(unfit);
    let done = runner.work(&mut |event| {
        start.begin();
        // A run that has nothing to do reports only its board.
        if !matches!(event, RunEvent::Board(_)) {
            notes.by_ref().for_each(|note| view.on(&RunEvent::Note(&note)));
        }
        view.on(&event);
    });
    if !view.end() && matches!(done, Ok(Outcome::Done)) {
        eprintln!("{}", summary::nothing_to_do(&RunView::open(&path)?, execution.json));
    }
    Ok((done, shown))
}

/// Checks that no requirement is missing, before anything is written. `asked` are the layers of a new run; the
/// configuration of an existing one cannot be changed.
pub fn check_requirements(
    config: &RunConfig,
    workers: Option<&FleetConfig>,
    asked: Option<&Layers>,
) -> Result<()> {
    let mut lacks = missing::lacks(config);
    for lack in &lacks {
        match (lack.what, &lack.remedy) {
            ("problems" | "held-out", _) => return Err(Usage(lack.found.clone()).into()),
            ("model", None) => return Err(Usage(format!("model.base: {}", lack.found)).into()),
            ("Guide", None) => return Err(Usage(format!("model.guide: {}", lack.found)).into()),
            _ => {}
        }
    }
    lacks.extend(workers.and_then(missing::slurm_lack));
    match &lacks[..] {
        [] => {}
        [MissingRequirement { what: "GPU", found, .. }] => {
            return Err(Usage(needs_gpu(config, found, asked.is_some())).into());
        }
        lacks => {
            return Err(Usage(cannot_run(config, lacks, asked.unwrap_or(&Layers::default()))).into());
        }
    }
    device::kind(&config.model.device)?;
    Ok(())
}

/// Describes a missing GPU, and how a new run can do without one.
fn needs_gpu(config: &RunConfig, found: &str, is_new: bool) -> String {
    let (method, size) = (&config.method, &config.size);
    let mut text = format!("{method} at size {size} needs an NVIDIA GPU ({found})");
    if let Some(told) = missing::without_gpu(config).filter(|_| is_new) {
        text.push_str(&format!("\n  {told}; in a sweep, `model.device` (and `model.base`) in [set]."));
    }
    text + "\n  `sgs doctor` shows what is missing."
}

/// Describes missing requirements, and how to install them.
fn cannot_run(config: &RunConfig, lacks: &[MissingRequirement], asked: &Layers) -> String {
    let all: Vec<String> = lacks.iter().map(|l| format!("{} ({})", l.what, l.found)).collect();
    let set = asked.set.iter().map(|set| format!(" --set {set}"));
    let flags = asked.flags.iter().map(|(flag, _, value)| format!(" {flag} {value}"));
    let set: String = set.chain(flags).collect();
    let method = asked.method.as_ref().unwrap_or(&config.method);
    let instructions = match lacks {
        [MissingRequirement { remedy: Some(remedy), .. }] => format!("To install it: `{remedy}`"),
        _ => format!("For instructions: `sgs run {method} --size {}{set} --dry-run`", config.size),
    };
    let (method, size, all) = (&config.method, &config.size, all.join(", "));
    format!("{method} at size {size} cannot run here; missing: {all}. {instructions}")
}

/// Writes the report, then prints the summary. Both only read the run's files, so neither a damaged file nor a report that
/// cannot be written fails the run.
fn print_results(path: &Path, shown: &TextDisplay, json: bool) -> Result<()> {
    let no_report = |error: &anyhow::Error| {
        let path = path.display();
        warn(format_args!("no report: {error:#}; repair the file and run `sgs report {path}`"));
    };
    let read = || -> Result<(Vec<String>, RunData)> {
        let run = read_run(path, Some(shown))?;
        run.damages.iter().for_each(warn);
        let lines = match json {
            true => run.ended.iter().map(|why| format!("ended: {why}")).collect(),
            false => summary::lines(&run, &RunView::open(path)?)?,
        };
        Ok((lines, run))
    };
    let (lines, run) = match read() {
        Ok(found) => found,
        Err(error) => {
            no_report(&error);
            return Ok(());
        }
    };
    // Write the report before anything is printed, because the reader of the output may close it.
    let report = match report::write(&[run], &path.join("report"), &FigureOptions::default()) {
        Ok(written) => Some(summary::line("report", &written.index.display().to_string())),
        Err(error) => {
            no_report(&error.into());
            None
        }
    };
    if json {
        lines.iter().chain(&report).for_each(|line| eprintln!("{line}"));
        return Ok(());
    }
    print_summary(&lines)?;
    report.map_or(Ok(()), crate::output::line)
}

fn print_summary(lines: &[String]) -> Result<()> {
    for line in lines {
        match summary::is_command(line) {
            true => crate::output::line(line)?,
            false => crate::output::wrapped_line(line, summary::NAME)?,
        }
    }
    Ok(())
}

#[derive(Default)]
struct FinishedRounds {
    /// Cumulative solve rate after each round.
    rates: Vec<f64>,
    /// Duration of each round.
    seconds: Vec<f64>,
    /// The Solver's generations in all of them.
    generations: f64,
}

impl FinishedRounds {
    fn read(run: &RunDir) -> Result<Self> {
        let mut finished = Self::default();
        for round in run.view().rounds()? {
            let scalars = round.metrics()?.scalars;
            let of = |name: &str| scalars.get(name).copied().unwrap_or(0.0);
            finished.rates.push(of(metric::CUMULATIVE));
            finished.seconds.push(of(names::TIME_ROUND));
            finished.generations = of(metric::GENERATIONS);
        }
        Ok(finished)
    }
}

/// Returns `runs/METHOD-SIZE`, with a number appended if it exists.
fn default_folder(config: &RunConfig) -> PathBuf {
    let name = format!("{}-{}", config.method, config.size);
    let first = Path::new("runs").join(&name);
    if !first.exists() {
        return first;
    }
    (2..).map(|n| Path::new("runs").join(format!("{name}-{n}"))).find(|p| !p.exists()).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_lm::LmError;
    use sgs_run::error::Context as _;

    #[test]
    fn buffers_that_do_not_fit_are_told_from_other_errors() {
        let memory = LmError::Memory {
            device: "cuda:0".to_owned(),
            what: "a pass over 8192 tokens".to_owned(),
            needed: 2,
            free: 1,
            hint: "reduce micro_batch_tokens".to_owned(),
        };
        let failed = LmError::Device { device: "cuda:0".to_owned(), message: "lost".to_owned() };
        let of = |error: LmError| {
            let error = Err::<(), _>(error).context("the trainer").expect_err("an error");
            is_lack_of_memory(&anyhow::Error::from(error))
        };
        assert_eq!([memory, failed].map(of), [true, false]);
    }
}
