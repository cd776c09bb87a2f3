//! `sgs sweep`: runs a grid of methods, seeds and settings. It executes as many runs at the same time as the GPUs or
//! cores allow.

mod machine;
mod mps;
mod plan;

use super::{compare, made, report};
use crate::args::SweepArgs;
use crate::exit::Outcome;
use crate::{output, signals};
use anyhow::{Context, Result};
use machine::{RunSlot, SlotPool};
use mps::MpsControl;
use plan::{SweepPlan, SweepRun};
use sgs_analysis::figures::FigureOptions;
use sgs_analysis::plot::percent;
use sgs_analysis::run::{RunData, metric, read_metrics};
use sgs_base::excerpt;
use sgs_data::base::made::MadeBase;
use sgs_fleet::launch::quote;
use sgs_run::config::RunConfig;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Interval between checks of the runs.
const POLL: Duration = Duration::from_millis(200);

/// Executes the runs and writes one report.
pub fn run(args: &SweepArgs) -> Result<Outcome> {
    let plan = SweepPlan::read(&args.file)?;
    let out = args.out.clone().unwrap_or_else(|| default_folder(&args.file));
    let members = plan.members(&out)?;
    let mut slots = SlotPool::for_machine(args.jobs.or(plan.jobs), &members);
    if args.dry_run {
        return dry_run(&members, &slots);
    }
    let mut sweep = Sweep::new(members)?;
    check_requirements(&sweep.waiting)?;
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    eprintln!(
        "{} in {}, {} at a time on {}; {} already finished",
        output::counted(sweep.all, "run"),
        out.display(),
        slots.len(),
        slots.what(),
        sweep.done.len()
    );
    // Before the runs share the machine: the first of them would train the base model with its part of the cores, while
    // the others wait for it.
    if sweep.make_bases()? {
        return Ok(interrupted(&args.file));
    }
    let mps = slots.start_mps(&MpsControl::of_machine(), sweep.waiting.len());
    if !mps.is_empty() {
        eprintln!("{mps}");
    }
    if sweep.run_all(slots)? {
        return Ok(interrupted(&args.file));
    }
    sweep.finish(&out)
}

fn interrupted(file: &Path) -> Outcome {
    eprintln!("stopped; to continue: `sgs sweep {}`", file.display());
    Outcome::Interrupted
}

/// Returns `runs/NAME` for `NAME.toml`.
fn default_folder(file: &Path) -> PathBuf {
    Path::new("runs").join(file.file_stem().unwrap_or(file.as_os_str()))
}

fn dry_run(members: &[SweepRun], slots: &SlotPool) -> Result<Outcome> {
    for member in members {
        let words: Vec<String> = member.command().iter().map(|word| quote(word)).collect();
        output::line(format!("sgs {}", words.join(" ")))?;
    }
    let runs = output::counted(members.len(), "run");
    output::line(format!("{runs}, {} at a time on {}", slots.len(), slots.what()))?;
    Ok(Outcome::Done)
}

/// Checks the requirements of the runs, once for runs with the same ones.
fn check_requirements(waiting: &VecDeque<SweepRun>) -> Result<()> {
    let needs = |member: &SweepRun| {
        let RunConfig { problems, model, evaluation, lean, .. } = member.config.clone();
        (problems, model, evaluation, lean)
    };
    let mut checked = Vec::new();
    for member in waiting {
        let needs = needs(member);
        if !checked.contains(&needs) {
            super::run::check_requirements(&member.config, None, Some(&member.layers))?;
            checked.push(needs);
        }
    }
    Ok(())
}

struct Sweep {
    all: usize,
    waiting: VecDeque<SweepRun>,
    done: Vec<SweepRun>,
    /// Number of failed runs.
    failed: usize,
}

/// A run that a child process executes.
struct ActiveRun {
    member: SweepRun,
    child: Child,
    slot: RunSlot,
    since: Instant,
    /// Size of the log when the run was started, in bytes.
    log_start: u64,
}

/// The active runs. Each has its own process group, so that signals to the sweep do not reach it.
struct ActiveRuns(Vec<ActiveRun>);

impl Drop for ActiveRuns {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(interrupt);
        // Signal only once, because a second signal would end them immediately.
        for one in &mut self.0 {
            let _ = one.child.wait();
        }
    }
}

impl Sweep {
    fn new(members: Vec<SweepRun>) -> Result<Self> {
        let all = members.len();
        let (mut waiting, mut done) = (VecDeque::new(), Vec::new());
        for member in members {
            if member.is_finished()? { done.push(member) } else { waiting.push_back(member) }
        }
        Ok(Self { all, waiting, done, failed: 0 })
    }

    /// Trains the base models that the waiting runs need and that are not in the cache; returns whether the user stopped
    /// the sweep.
    fn make_bases(&self) -> Result<bool> {
        let (_, _guard) = signals::guard()?;
        let mut made = HashSet::new();
        for member in &self.waiting {
            if made.insert(&member.config.model.base)
                && made::ensure(&member.config)? == MadeBase::Interrupted
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Executes all runs; returns whether the user stopped the sweep. No run stays active in either case.
    fn run_all(&mut self, mut slots: SlotPool) -> Result<bool> {
        let (stop, _guard) = signals::guard()?;
        let mut working = ActiveRuns(Vec::new());
        while !(stop.is_set() || working.0.is_empty() && self.waiting.is_empty()) {
            while let Some(slot) = slots.free().filter(|_| !stop.is_set()) {
                let Some(member) = self.waiting.pop_front() else {
                    slots.release(slot);
                    break;
                };
                working.0.push(start(member, slot)?);
            }
            std::thread::sleep(POLL);
            for i in (0..working.0.len()).rev() {
                if let Some(status) = working.0[i].child.try_wait().context("cannot wait for a run")? {
                    let ActiveRun { member, slot, since, log_start, .. } = working.0.swap_remove(i);
                    slots.release(slot);
                    self.ended(member, status, since.elapsed(), log_start);
                }
            }
        }
        Ok(stop.is_set())
    }

    fn ended(&mut self, member: SweepRun, status: ExitStatus, took: Duration, log_start: u64) {
        let number = self.done.len() + self.failed + 1;
        let head = format!("{number}/{} {}", self.all, member.name);
        if status.success() {
            eprintln!("{head}: {} in {:.0} s", progress_of(&member.folder), took.as_secs_f64());
            self.done.push(member);
        } else {
            let error = last_error(&member.log(), log_start).unwrap_or_default();
            eprintln!("{head} failed ({status}): {}{error}", member.log().display());
            self.failed += 1;
        }
    }

    /// Writes the report over the finished runs.
    fn finish(mut self, out: &Path) -> Result<Outcome> {
        self.done.sort_by_key(|member| member.number);
        let folders: Vec<PathBuf> = self.done.iter().map(|member| member.folder.clone()).collect();
        if !folders.is_empty() {
            let runs = folders.iter().map(|folder| read_metrics(folder)).collect::<Result<Vec<_>, _>>()?;
            let named: Vec<(&str, &RunData)> = runs.iter().map(|run| (run.name.as_str(), run)).collect();
            output::line(compare::ends_table(&named))?;
            let (index, _) = report::write_for(&folders, &out.join("report"), &FigureOptions::default())?;
            eprintln!("report: {}", index.display());
        }
        if self.failed > 0 {
            eprintln!("{} of {} runs failed", self.failed, self.all);
            return Ok(Outcome::Failed);
        }
        Ok(Outcome::Done)
    }
}

/// Returns the last error in a log after byte `start`, after a line break.
fn last_error(log: &Path, start: u64) -> Option<String> {
    /// A message and its causes are shorter.
    const TAIL: u64 = 1 << 16;
    let mut file = File::open(log).ok()?;
    let end = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(start.max(end.saturating_sub(TAIL)))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rfind(|line| line.starts_with("error:"))?;
    Some(format!("\n  {}", excerpt::end_of(line)))
}

fn start(member: SweepRun, slot: RunSlot) -> Result<ActiveRun> {
    let log_start = std::fs::metadata(member.log()).map_or(0, |log| log.len());
    let mut command = member.process()?;
    let child = slot.spawn(&mut command).with_context(|| format!("cannot start {}", member.name))?;
    eprintln!("{} on {}: {}", member.name, slot.what(), member.log().display());
    Ok(ActiveRun { member, child, slot, since: Instant::now(), log_start })
}

fn interrupt(working: &mut ActiveRun) {
    use rustix::process::{Pid, Signal, kill_process};
    // After the child has ended, its id may belong to another process.
    if matches!(working.child.try_wait(), Ok(None)) {
        let _ = kill_process(Pid::from_child(&working.child), Signal::INT);
    }
}

fn progress_of(run: &Path) -> String {
    let progress = |data: RunData| Some((data.rounds.len(), data.last(metric::CUMULATIVE)?));
    match read_metrics(run).ok().and_then(progress) {
        Some((rounds, solved)) => {
            format!("{}, solved {}", output::counted(rounds, "round"), percent(solved))
        }
        None => "done".to_owned(),
    }
}
