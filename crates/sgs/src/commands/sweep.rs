//! `sgs sweep`: methods, seeds and keys against each other, so many runs at once as there are GPUs or cores for.

mod machine;
mod plan;

use super::{compare, report};
use crate::args::SweepArgs;
use crate::exit::Outcome;
use crate::{output, signals};
use anyhow::{Context, Result};
use machine::{Place, Places};
use plan::{Member, Plan};
use sgs_analysis::report::ReportOptions;
use sgs_analysis::run::{RunData, metric};
use sgs_rundir::RunView;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// How often the runs are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Works the runs off and draws one report of them.
pub fn run(args: &SweepArgs) -> Result<Outcome> {
    let plan = Plan::read(&args.file)?;
    let out = args.out.clone().unwrap_or_else(|| default_folder(&args.file));
    let members = plan.members(&out)?;
    let places = Places::of_machine(args.jobs.or(plan.jobs), &members)?;
    if args.dry_run {
        return dry_run(&members, &places);
    }
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut sweep = Sweep::new(members)?;
    eprintln!(
        "{} runs in {}, {} at once on {}; {} are finished already",
        sweep.all,
        out.display(),
        places.len(),
        places.what(),
        sweep.done.len()
    );
    let stopped = sweep.work(places)?;
    if stopped {
        eprintln!("stopped; `sgs sweep {}` goes on", args.file.display());
        return Ok(Outcome::Interrupted);
    }
    sweep.finish(&out)
}

/// `runs/NAME` of `NAME.toml`.
fn default_folder(file: &Path) -> PathBuf {
    Path::new("runs").join(file.file_stem().unwrap_or(file.as_os_str()))
}

fn dry_run(members: &[Member], places: &Places) -> Result<Outcome> {
    for member in members {
        output::line(member.command().join(" "))?;
    }
    output::line(format!("{} runs, {} at once on {}", members.len(), places.len(), places.what()))?;
    Ok(Outcome::Done)
}

/// The runs, and where they stand.
struct Sweep {
    all: usize,
    waiting: VecDeque<Member>,
    done: Vec<Member>,
    /// Those that failed, with how.
    failed: Vec<(Member, String)>,
}

/// A run that a process works on.
struct Working {
    member: Member,
    child: Child,
    place: Place,
    since: Instant,
}

/// The runs that processes work on. They are in groups of their own, so that they end only when they are told to.
struct AtWork(Vec<Working>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(interrupt);
        // Once: a second signal would end them at once.
        for one in &mut self.0 {
            let _ = one.child.wait();
        }
    }
}

impl Sweep {
    fn new(members: Vec<Member>) -> Result<Self> {
        let all = members.len();
        let (mut waiting, mut done) = (VecDeque::new(), Vec::new());
        for member in members {
            match member.is_finished()? {
                true => done.push(member),
                false => waiting.push_back(member),
            }
        }
        Ok(Self { all, waiting, done, failed: Vec::new() })
    }

    /// Works until nothing waits; whether the user stopped it. However it ends, nothing works on.
    fn work(&mut self, mut places: Places) -> Result<bool> {
        let (stop, _attending) = signals::attend()?;
        let mut working = AtWork(Vec::new());
        while !(stop.is_set() || working.0.is_empty() && self.waiting.is_empty()) {
            while let Some(place) = places.free().filter(|_| !stop.is_set()) {
                let Some(member) = self.waiting.pop_front() else {
                    places.give_back(place);
                    break;
                };
                working.0.push(start(member, place)?);
            }
            std::thread::sleep(LOOK);
            for i in (0..working.0.len()).rev() {
                if let Some(status) = working.0[i].child.try_wait().context("cannot wait for a run")? {
                    let Working { member, place, since, .. } = working.0.swap_remove(i);
                    places.give_back(place);
                    self.ended(member, status, since.elapsed());
                }
            }
        }
        Ok(stop.is_set())
    }

    fn ended(&mut self, member: Member, status: std::process::ExitStatus, took: Duration) {
        let number = self.done.len() + self.failed.len() + 1;
        let head = format!("{number}/{} {}", self.all, member.name);
        if status.success() {
            eprintln!("{head}: {} in {:.0} s", standing(&member.folder), took.as_secs_f64());
            self.done.push(member);
        } else {
            eprintln!("{head} failed ({status}): {}", member.log().display());
            self.failed.push((member, status.to_string()));
        }
    }

    /// One report over what is done.
    fn finish(mut self, out: &Path) -> Result<Outcome> {
        self.done.sort_by_key(|member| member.number);
        let rows: Vec<Vec<String>> = self.done.iter().map(row).collect();
        output::line(output::table(&["run", "rounds", "generations", "solved", "seconds"], &rows))?;
        let folders: Vec<PathBuf> = self.done.iter().map(|member| member.folder.clone()).collect();
        if !folders.is_empty() {
            let index = report::write_for(&folders, &out.join("report"), &ReportOptions::default())?;
            eprintln!("report: {}", index.display());
        }
        for (member, how) in &self.failed {
            eprintln!("{} failed ({how}): {}", member.name, member.log().display());
        }
        Ok(if self.failed.is_empty() { Outcome::Done } else { Outcome::Failed })
    }
}

fn start(member: Member, place: Place) -> Result<Working> {
    let mut command = member.process()?;
    let child = place.spawn(&mut command).with_context(|| format!("cannot start {}", member.name))?;
    eprintln!("{} on {}: {}", member.name, place.what(), member.log().display());
    Ok(Working { member, child, place, since: Instant::now() })
}

fn interrupt(working: &mut Working) {
    use rustix::process::{Pid, Signal, kill_process};
    // The number of one that has ended may be another process's by now.
    if matches!(working.child.try_wait(), Ok(None)) {
        let _ = kill_process(Pid::from_child(&working.child), Signal::INT);
    }
}

/// How far a run has come, in a few words.
fn standing(run: &Path) -> String {
    match numbers(run).and_then(|data| Some((data.rounds.len(), data.last(metric::CUMULATIVE)?))) {
        Some((rounds, solved)) => format!("{rounds} rounds, solved {:.1} %", 100.0 * solved),
        None => "done".to_owned(),
    }
}

fn numbers(run: &Path) -> Option<RunData> {
    compare::numbers_of(&RunView::open(run).ok()?).ok()
}

fn row(member: &Member) -> Vec<String> {
    let data = numbers(&member.folder).unwrap_or_default();
    let show = |value: Option<f64>, unit: &str, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}{unit}"))
    };
    vec![
        member.name.clone(),
        data.rounds.len().to_string(),
        show(data.last(metric::GENERATIONS), "", 0),
        show(data.last(metric::CUMULATIVE).map(|share| 100.0 * share), " %", 1),
        show(data.clock().last().map(|point| point.1), "", 0),
    ]
}
