//! Checking with a process of the judge a file: several theorems in it, each elaborated over the header alone.
//!
//! The first process elaborates the proofs and asks the kernel again. Where there is a second one, it runs no proof:
//! it reads the declarations that the first has written as text, and only what it says counts.

use super::assemble::Candidate;
use super::evidence::{Layers, Outcome};
use super::limits::Limits;
use super::pool::{Backend, fresh_nonce};
use super::process::{Fault, Launch, Process};
use super::question::{Line, Question, Said, request};
use crate::judge::judge_in_one_file;
use sgs_selfplay::Verdict;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the judge's process is.
#[derive(Clone, Debug, PartialEq)]
pub enum JudgeProgram {
    /// `sgs-judge`, built; what it is to do is its argument, and the request comes on standard input.
    Built(Launch),
    /// A `lean` that interprets the judge's text, for builds without a C compiler.
    Interpreted {
        /// Starts Lean; the file is its argument.
        lean: Launch,
        /// Folder for that file and the request, which processes can read and cannot write to.
        sources: PathBuf,
    },
}

/// How files are checked.
#[derive(Clone, Debug, PartialEq)]
pub struct FileChecker {
    /// The judge's process.
    pub judge: JudgeProgram,
    /// Whether a second process, which runs no proof, replays what the first accepts.
    pub replay: bool,
    /// Folder under which every worker has one of its own, the only place a process may write to.
    pub scratch: PathBuf,
    /// Options set after the header, as `set_option` lines.
    pub options: Vec<(String, String)>,
    pub layers: Layers,
    pub limits: Limits,
    /// Theorems in one file.
    pub batch: usize,
    /// How long a file that is not full waits for more theorems, milliseconds.
    pub linger_ms: u64,
    /// Whether a process that interprets the judge's text serves one file after the other: its start is dear. Code that ran
    /// in it could then reach what comes later: what is asked must have passed the text layer, which lets none run.
    pub stays: bool,
}

/// One slot that runs a process a file, or a file after the other in a process whose start is dear.
#[derive(Debug)]
pub struct FileWorker {
    checker: FileChecker,
    folder: PathBuf,
    slot: usize,
    waiting: RefCell<Option<Waiting>>,
}

/// A process that interprets the judge's text, has served and waits for its next request.
#[derive(Debug)]
struct Waiting {
    process: Process,
    task: Task,
    /// Candidates that it was asked about.
    served: usize,
}

/// Candidates after which a process that stays is replaced.
const MOST_SERVED: usize = 4096;

/// What a process of the judge does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Elaborates proofs and asks the kernel again.
    Check,
    /// Runs no proof, reads declarations.
    Replay,
}

impl Task {
    fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Replay => "replay",
        }
    }
}

/// Largest text of declarations that is handed on, bytes.
const DECLARATIONS: u64 = 256 << 20;

impl FileChecker {
    /// Makes a worker with a folder of its own.
    pub fn worker(&self, slot: usize) -> std::io::Result<FileWorker> {
        let folder = self.scratch.join(format!("slot-{slot}"));
        std::fs::create_dir_all(&folder)?;
        Ok(FileWorker { checker: self.clone(), folder, slot, waiting: RefCell::default() })
    }
}

/// What came of one request, as far as it went.
#[derive(Default)]
struct Run {
    /// Whether the header stands.
    header: bool,
    /// Why it does not.
    broken: Option<String>,
    /// The candidate that the process was at last.
    at: Option<usize>,
    said: Vec<Option<Said>>,
    fault: Option<Fault>,
}

/// What the process said of a candidate, or what became of one that it did not answer for.
type Settled = Result<Said, Outcome>;

impl FileWorker {
    fn run(&self, task: Task, questions: &[&Question<'_>]) -> Run {
        let nonce = fresh_nonce();
        let opening = match &self.checker.judge {
            JudgeProgram::Built(_) => "",
            // This build takes every text for a module's, whose names are found by nobody unless they are public.
            JudgeProgram::Interpreted { .. } => "public section\n",
        };
        let input = request(questions, opening, &self.checker.options, &nonce);
        let failed = |fault| Run { fault: Some(fault), ..Run::default() };
        let (mut process, served, handed) = match self.hand_over(task, &input, questions.len()) {
            Ok(begun) => begun,
            Err(fault) => return failed(fault),
        };
        let input = match handed {
            Some(_) => {
                process.close_stdin();
                &[]
            }
            None => input.as_bytes(),
        };
        let mut lines = Lines::new(&nonce, questions.len());
        let limits = &self.checker.limits;
        // Until the header stands, the start's time counts; then every candidate has its own.
        let allowed = Cell::new((Instant::now() + limits.start(), limits.start()));
        let mut steps = 0;
        let result = process.exchange(input, limits, &mut || allowed.get(), &mut |out, ended| {
            lines.take(out, ended);
            if let (Some(path), true) = (&handed, lines.has_read) {
                // The process looks at no candidate before the file with the nonce is gone, and waits a minute.
                let _ = std::fs::remove_file(path);
            }
            if lines.steps > steps {
                steps = lines.steps;
                allowed.set((Instant::now() + limits.proof(), limits.proof()));
            }
            (ended || lines.torn.is_some() || lines.run.broken.is_some() || lines.is_done())
                .then_some(out.len())
        });
        let mut run = lines.run;
        run.fault = match (result, lines.torn) {
            (_, Some(torn)) => Some(Fault::Protocol(torn)),
            // Everything is said: how the process ends is of no interest.
            _ if run.broken.is_some() || (run.header && run.said.iter().all(Option::is_some)) => None,
            (Err(fault), None) => Some(fault),
            (Ok(_), None) => Some(process.fault_of_end()),
        };
        // One that met with anything out of the ordinary is not asked again.
        let is_sound = run.fault.is_none() && run.broken.is_none();
        if self.checker.stays && handed.is_some() && is_sound && !run.said.iter().flatten().any(Said::is_odd)
        {
            let served = served + questions.len();
            self.waiting.replace(Some(Waiting { process, task, served }));
        }
        run
    }

    /// The process that answers, how many candidates it was asked about before, and the file that the request is in, if it
    /// is in one.
    fn hand_over(
        &self,
        task: Task,
        input: &str,
        questions: usize,
    ) -> Result<(Process, usize, Option<PathBuf>), Fault> {
        let (mut launch, handed) = match &self.checker.judge {
            JudgeProgram::Built(launch) => {
                let mut launch = launch.clone();
                launch.args.push(task.word().into());
                (launch, None)
            }
            JudgeProgram::Interpreted { lean, sources } => {
                let folder = sources.join(format!("slot-{}", self.slot));
                let (file, handed) = (folder.join("Judge.lean"), folder.join("request.json"));
                let failed = |path: &Path, error: std::io::Error| {
                    let (program, error) = (path.display().to_string(), error.to_string());
                    Fault::Start { program, error }
                };
                std::fs::create_dir_all(&folder).map_err(|e| failed(&folder, e))?;
                let mut waiting = self.waiting.take();
                waiting.take_if(|w| {
                    w.task != task || w.served + questions > MOST_SERVED || !w.process.is_quiet()
                });
                // A process may be looking: the request appears whole.
                let whole = folder.join("request.new");
                std::fs::write(&whole, input)
                    .and_then(|()| std::fs::rename(&whole, &handed))
                    .map_err(|e| failed(&handed, e))?;
                if let Some(waiting) = waiting {
                    return Ok((waiting.process, waiting.served, Some(handed)));
                }
                let text = judge_in_one_file(task == Task::Replay, self.checker.stays, &handed);
                std::fs::write(&file, text).map_err(|e| failed(&file, e))?;
                let mut launch = lean.clone();
                launch.args.extend(["--run".into(), file.into()]);
                (launch, Some(handed))
            }
        };
        launch.folder = self.folder.clone();
        Ok((Process::start(&launch)?, 0, handed))
    }

    /// Asks about candidates of one header until each is decided: one that costs the process its life, or makes it
    /// say what is no answer, is tried once more alone, and the others without it.
    fn settle(&self, task: Task, questions: &[&Question<'_>]) -> Vec<Settled> {
        let mut settled: Vec<Option<Settled>> = questions.iter().map(|_| None).collect();
        // Groups of candidates that are still to be asked about, and whether it is for the second time.
        let mut groups: Vec<(Vec<usize>, bool)> = vec![((0..questions.len()).collect(), false)];
        while let Some((group, again)) = groups.pop() {
            let asked: Vec<&Question<'_>> = group.iter().filter_map(|i| questions.get(*i).copied()).collect();
            if asked.is_empty() {
                continue;
            }
            let mut run = self.run(task, &asked);
            if matches!(run.fault, Some(Fault::Protocol(_))) {
                // What else such a process said is worth nothing.
                run.said.fill_with(|| None);
            }
            let mut rest = Vec::new();
            let mut culprit = None;
            for (place, index) in group.iter().enumerate() {
                match (run.said.get_mut(place).and_then(Option::take), settled.get_mut(*index)) {
                    (Some(said), Some(slot)) => *slot = Some(Ok(said)),
                    _ if run.at == Some(place) => culprit = Some(*index),
                    _ => rest.push(*index),
                }
            }
            let mut put = |indices: &[usize], outcome: &Outcome| {
                for index in indices {
                    if let Some(slot) = settled.get_mut(*index) {
                        *slot = Some(Err(outcome.clone()));
                    }
                }
            };
            match (run.broken, run.fault) {
                (Some(reason), _) => {
                    rest.extend(culprit);
                    put(&rest, &Outcome::new(Verdict::Infra, format!("the header does not stand: {reason}")));
                }
                (None, None) => {}
                (None, Some(fault)) => {
                    let alone = group.len() == 1;
                    match culprit {
                        // It did not come so far as to look at a candidate: no candidate's fault.
                        None if again || matches!(fault, Fault::Start { .. } | Fault::Timeout(_)) => {
                            put(
                                &rest,
                                &Outcome::new(Verdict::Infra, format!("the header was not loaded: {fault}")),
                            );
                        }
                        None => groups.push((std::mem::take(&mut rest), true)),
                        Some(index) => match of_culprit(&fault, alone, again) {
                            Some(outcome) => put(&[index], &outcome),
                            None => groups.push((vec![index], true)),
                        },
                    }
                    if culprit.is_some() {
                        groups.push((rest, false));
                    }
                }
            }
        }
        let undecided = || Err(Outcome::new(Verdict::Infra, "undecided"));
        settled.into_iter().map(|s| s.unwrap_or_else(undecided)).collect()
    }

    /// Judges candidates as [`Backend::check`] does, under each of several sets of layers: what Lean says is the
    /// same for all. For every candidate one outcome a set.
    pub fn check_under(&self, candidates: &[&Candidate], layers: &[Layers]) -> Vec<Vec<Outcome>> {
        let place = |index: usize| self.folder.join(format!("declarations-{index}"));
        let names = fresh_nonce();
        let questions: Vec<Question<'_>> = candidates
            .iter()
            .enumerate()
            .map(|(index, candidate)| {
                let declarations = self.checker.replay.then(|| place(index));
                Question { candidate, id: format!("{index}_{names}"), declarations }
            })
            .collect();
        for path in questions.iter().filter_map(|q| q.declarations.as_ref()) {
            // What an earlier file left must not be taken for this one's; usually there is nothing.
            let _ = std::fs::remove_file(path);
        }
        let asked: Vec<&Question<'_>> = questions.iter().collect();
        let settled = self.settle(Task::Check, &asked);
        let mut sets: Vec<Vec<Outcome>> = Vec::with_capacity(layers.len());
        for layers in layers {
            let judge = |s: &Settled| s.as_ref().map_or_else(Clone::clone, |said| said.judge(*layers));
            let mut outcomes: Vec<Outcome> = settled.iter().map(judge).collect();
            if self.checker.replay && layers.evidence {
                self.replay(&questions, &mut outcomes, *layers);
            }
            for outcome in outcomes.iter_mut().filter(|o| o.verdict == Verdict::Proved) {
                outcome.reason = self.checker.missing().to_owned();
            }
            sets.push(outcomes);
        }
        (0..candidates.len()).map(|i| sets.iter().filter_map(|set| set.get(i).cloned()).collect()).collect()
    }

    fn replay(&self, questions: &[Question<'_>], outcomes: &mut [Outcome], layers: Layers) {
        let mut held = Vec::new();
        for (index, question) in questions.iter().enumerate() {
            let Some(outcome) = outcomes.get_mut(index).filter(|o| o.verdict == Verdict::Proved) else {
                continue;
            };
            match question.declarations.as_deref().map(std::fs::symlink_metadata) {
                Some(Ok(meta)) if meta.is_file() && meta.len() <= DECLARATIONS => held.push(index),
                Some(Ok(_)) => {
                    *outcome =
                        Outcome::new(Verdict::Resource, "replay layer: the declarations are too large");
                }
                Some(Err(error)) => {
                    *outcome =
                        Outcome::new(Verdict::Infra, format!("replay layer: no declarations: {error}"));
                }
                None => *outcome = Outcome::new(Verdict::Infra, "replay layer: no place for declarations"),
            }
        }
        let asked: Vec<&Question<'_>> = held.iter().filter_map(|i| questions.get(*i)).collect();
        for (index, settled) in held.iter().zip(self.settle(Task::Replay, &asked)) {
            let replayed = settled.map_or_else(|outcome| outcome, |said| said.kernel(layers));
            let reason = match replayed.reason.as_str() {
                "" => String::new(),
                reason => format!("replay layer: {reason}"),
            };
            if let Some(slot) = outcomes.get_mut(*index) {
                *slot = Outcome { reason, ..replayed };
            }
        }
    }
}

/// The verdict on a candidate that the process did not survive; `None` if it is to be tried once more, alone.
fn of_culprit(fault: &Fault, alone: bool, again: bool) -> Option<Outcome> {
    let resource = |why: String| Some(Outcome::new(Verdict::Resource, why));
    match fault {
        Fault::Timeout(_) | Fault::Output(_) => resource(fault.to_string()),
        // In company, the others' memory counts too.
        Fault::Memory { .. } if alone => resource(fault.to_string()),
        Fault::Ended { .. } | Fault::Protocol(_) if alone && again => {
            resource(format!("Lean died twice of this proof, the second time alone: {fault}"))
        }
        Fault::Start { .. } => Some(Outcome::new(Verdict::Infra, fault.to_string())),
        Fault::Memory { .. } | Fault::Ended { .. } | Fault::Protocol(_) => None,
    }
}

impl Backend for FileWorker {
    fn batch(&self) -> usize {
        self.checker.batch.max(1)
    }

    fn prefers(&self, _header: &str) -> bool {
        true
    }

    fn check(&mut self, candidates: &[&Candidate]) -> Vec<Outcome> {
        let layers = self.checker.layers;
        self.check_under(candidates, &[layers])
            .into_iter()
            .map(|mut outcomes| outcomes.swap_remove(0))
            .collect()
    }

    fn linger(&self) -> Duration {
        Duration::from_millis(self.checker.linger_ms)
    }

    fn deadline(&self, candidates: usize) -> Duration {
        let n = u32::try_from(candidates).unwrap_or(u32::MAX);
        let processes = if self.checker.replay { 2 } else { 1 };
        (self.checker.limits.start() + self.checker.limits.proof() * 2) * (2 * n + 1) * processes
    }
}

impl FileChecker {
    /// What stands beside `proved` in a verdict: the layers that it was given without.
    pub fn missing(&self) -> &'static str {
        if self.replay { "" } else { NO_REPLAY }
    }
}

/// Beside a verdict that no second process has confirmed.
pub const NO_REPLAY: &str = "not replayed in a second process";

/// Reads the answer's lines as they arrive.
struct Lines<'n> {
    nonce: &'n str,
    run: Run,
    /// The request was read.
    has_read: bool,
    /// Lines that count, so far: each gives the process more time.
    steps: usize,
    read: usize,
    torn: Option<String>,
}

impl<'n> Lines<'n> {
    fn new(nonce: &'n str, candidates: usize) -> Self {
        let run = Run { said: (0..candidates).map(|_| None).collect(), ..Run::default() };
        Self { nonce, run, has_read: false, steps: 0, read: 0, torn: None }
    }

    fn is_done(&self) -> bool {
        self.run.header && self.run.said.iter().all(Option::is_some)
    }

    fn take(&mut self, out: &[u8], ended: bool) {
        while self.torn.is_none() {
            let rest = out.get(self.read..).unwrap_or_default();
            let length = match rest.iter().position(|b| *b == b'\n') {
                Some(at) => at + 1,
                None if ended && !rest.is_empty() => rest.len(),
                None => return,
            };
            let line = rest.get(..length).unwrap_or_default();
            self.read += length;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let known = Line::read(line, self.nonce);
            let shown = || String::from_utf8_lossy(line).trim().chars().take(120).collect::<String>();
            match known {
                Some(Ok(line)) => self.one(line),
                Some(Err(error)) => self.torn = Some(error),
                // Before the header is loaded, Lean may say something of the judge's own text.
                None if !self.run.header => {}
                None => self.torn = Some(format!("a line that is no answer: {}", shown())),
            }
        }
    }

    fn one(&mut self, line: Line) {
        self.steps += 1;
        match line {
            Line::Read => {
                self.has_read = true;
                // The header is still to be loaded, in the time of the start.
                self.steps -= 1;
            }
            Line::Header => self.run.header = true,
            Line::Broken(reason) => self.run.broken = Some(reason),
            Line::Begin(index) => self.run.at = Some(index),
            Line::End(index, said) => match self.run.said.get_mut(index) {
                Some(slot @ None) if self.run.at == Some(index) => *slot = Some(said),
                _ => self.torn = Some(format!("an answer about number {index}, which is not due")),
            },
        }
    }
}
