//! Checks proofs with judge processes. Each process takes a file of several theorems and elaborates every theorem over
//! the header alone.
//!
//! The first process elaborates the proofs and has the kernel check them. A second process, which is kept alive,
//! replays them and makes the final decision: it gets neither helpers nor proofs, and reads the declarations that the
//! first process wrote as text.

use super::assemble::Candidate;
use super::backend::{Backend, fresh_nonce};
use super::evidence::{CheckOutcome, TrustLayers};
use super::question::{JudgeLine, JudgeQuestion, JudgeReply, request};
use crate::judge::judge_in_one_file;
use crate::limits::Limits;
use sgs_formal::process::{Launch, Process, ProcessFault};
use sgs_selfplay::Verdict;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How a judge process is started.
#[derive(Clone, Debug, PartialEq)]
pub enum JudgeProgram {
    /// The compiled `sgs-judge`. Its argument names the task, and it reads the request from standard input.
    Built(Launch),
    /// A `lean` that interprets the judge's source, for builds of Lean without a C compiler.
    Interpreted {
        /// Starts Lean, which takes the source file as an argument.
        lean: Launch,
        /// Folder of the source file and of the request. The processes can read it but not write to it.
        sources: PathBuf,
    },
}

/// Settings for checking files.
#[derive(Clone, Debug, PartialEq)]
pub struct FileChecker {
    /// How a judge process is started.
    pub judge: JudgeProgram,
    /// Whether a second process, which runs no proof, replays accepted proofs.
    pub replay: bool,
    /// Folder with one subfolder per worker, the only place that a process can write to.
    pub scratch: PathBuf,
    /// Options that are set after the header, as `set_option` commands.
    pub options: Vec<(String, String)>,
    /// The layers of trust that are enabled.
    pub layers: TrustLayers,
    /// Limits of a check.
    pub limits: Limits,
    /// Maximum number of theorems in one file.
    pub batch: usize,
    /// Time that an incomplete file waits for further theorems, in milliseconds.
    pub linger_ms: u64,
    /// Whether the process that elaborates is kept alive across files, because its startup is expensive. After a candidate
    /// with an unusual result, or one that the replay rejects, it is replaced. The process that replays is always kept.
    pub keep_alive: bool,
}

/// A slot that runs judge processes.
#[derive(Debug)]
pub struct FileWorker {
    checker: FileChecker,
    folder: PathBuf,
    slot: usize,
    waiting: RefCell<Vec<IdleJudge>>,
}

/// A process that has answered its requests and waits for the next one.
#[derive(Debug)]
struct IdleJudge {
    process: Process,
    task: JudgeTask,
    /// Number of candidates in its requests so far.
    served: usize,
}

/// Number of candidates after which a persistent process is replaced.
const MAX_SERVED: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JudgeTask {
    /// Elaborates proofs and has the kernel check them.
    Check,
    /// Reads declarations and has the kernel check them, without running a proof.
    Replay,
}

impl JudgeTask {
    fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Replay => "replay",
        }
    }
}

/// Maximum size of a file of declarations, in bytes.
const MAX_DECLARATION_BYTES: u64 = 256 << 20;

impl FileChecker {
    /// Makes a worker with its own folder.
    pub fn worker(&self, slot: usize) -> std::io::Result<FileWorker> {
        let folder = self.scratch.join(format!("slot-{slot}"));
        std::fs::create_dir_all(&folder)?;
        Ok(FileWorker { checker: self.clone(), folder, slot, waiting: RefCell::default() })
    }
}

/// The answer to one request, as far as the process has written it.
#[derive(Default)]
struct JudgeRun {
    /// Whether the header was loaded.
    header: bool,
    /// The reason why the header cannot be used.
    broken: Option<CheckOutcome>,
    /// The last candidate that the process began.
    at: Option<usize>,
    /// Whether the last reply is unusual. Later lines of the process are not read.
    unusual: bool,
    replies: Vec<Option<JudgeReply>>,
    fault: Option<ProcessFault>,
}

/// The process's reply on a candidate, or the outcome of a candidate without a reply.
type Settled = Result<JudgeReply, CheckOutcome>;

impl FileWorker {
    fn run(&self, task: JudgeTask, questions: &[&JudgeQuestion<'_>], examines: bool) -> JudgeRun {
        let nonce = fresh_nonce();
        let opening = match &self.checker.judge {
            JudgeProgram::Built(_) => "",
            // This build treats every file as a module: names are visible only if they are public, and definitions are
            // unfolded only if they are exposed. It lacks the code of much of the library, so that of a header's
            // definitions is optional.
            JudgeProgram::Interpreted { .. } => "@[expose] public noncomputable section\n",
        };
        let input =
            request(questions, task == JudgeTask::Check, examines, opening, &self.checker.options, &nonce);
        let failed = |fault| JudgeRun { fault: Some(fault), ..JudgeRun::default() };
        let (mut process, served, request_file) = match self.deliver(task, &input, questions.len()) {
            Ok(begun) => begun,
            Err(fault) => return failed(fault),
        };
        let input = match request_file {
            Some(_) => {
                process.close_stdin();
                &[]
            }
            None => input.as_bytes(),
        };
        let mut lines = AnswerReader::new(&nonce, questions.len(), examines);
        let limits = &self.checker.limits;
        // The start limit applies until the header is loaded; then each candidate has its own limit.
        let allowed = Cell::new((Instant::now() + limits.start(), limits.start()));
        let mut steps = 0;
        let result = process.exchange(input, limits.quota(), &mut || allowed.get(), &mut |out, ended| {
            lines.push(out, ended);
            if let (Some(path), true) = (&request_file, lines.request_read) {
                // The file holds the nonce. The process waits until the file is gone before it processes a candidate.
                let _ = std::fs::remove_file(path);
            }
            if lines.steps > steps {
                steps = lines.steps;
                allowed.set((Instant::now() + limits.proof(), limits.proof()));
            }
            (ended || lines.violation.is_some() || lines.run.broken.is_some() || lines.is_done())
                .then_some(out.len())
        });
        let is_done = lines.is_done();
        let mut run = lines.run;
        run.fault = match (result, lines.violation) {
            (_, Some(violation)) => Some(ProcessFault::Protocol(violation)),
            // The replies are complete, so it does not matter how the process ended.
            _ if run.broken.is_some() || is_done => None,
            (Err(fault), None) => Some(fault),
            (Ok(_), None) => Some(process.fault_of_end()),
        };
        // Keep the process only if nothing unusual happened in it. A refused header is unusual: the refusal may follow the
        // elaboration of the command, or come from the kernel.
        let is_sound = run.fault.is_none() && run.broken.is_none();
        if (self.checker.keep_alive || task == JudgeTask::Replay)
            && is_sound
            && !run.replies.iter().flatten().any(JudgeReply::is_unusual)
        {
            let served = served + questions.len();
            self.waiting.borrow_mut().push(IdleJudge { process, task, served });
        }
        run
    }

    /// Takes the process that waits for the next request of a task.
    fn idle(&self, task: JudgeTask) -> Option<IdleJudge> {
        let mut waiting = self.waiting.borrow_mut();
        let place = waiting.iter().position(|w| w.task == task)?;
        Some(waiting.swap_remove(place))
    }

    /// Delivers a request. Returns the process that will answer it, the number of candidates in that process's earlier
    /// requests, and the path of the request if it is passed in a file.
    fn deliver(
        &self,
        task: JudgeTask,
        input: &str,
        questions: usize,
    ) -> Result<(Process, usize, Option<PathBuf>), ProcessFault> {
        let mut waiting = self.idle(task);
        waiting.take_if(|w| w.served + questions > MAX_SERVED || !w.process.is_quiet());
        let (mut launch, request_file) = match &self.checker.judge {
            JudgeProgram::Built(launch) => {
                if let Some(waiting) = waiting {
                    return Ok((waiting.process, waiting.served, None));
                }
                let mut launch = launch.clone();
                launch.args.push(task.word().into());
                (launch, None)
            }
            JudgeProgram::Interpreted { lean, sources } => {
                let folder = sources.join(format!("slot-{}", self.slot)).join(task.word());
                let (file, request_file) = (folder.join("Judge.lean"), folder.join("request.json"));
                let failed = |path: &Path, error: std::io::Error| {
                    let (program, error) = (path.display().to_string(), error.to_string());
                    ProcessFault::Start { program, error }
                };
                std::fs::create_dir_all(&folder).map_err(|e| failed(&folder, e))?;
                // Rename, because a process may already be polling for the file.
                let whole = folder.join("request.new");
                std::fs::write(&whole, input)
                    .and_then(|()| std::fs::rename(&whole, &request_file))
                    .map_err(|e| failed(&request_file, e))?;
                if let Some(waiting) = waiting {
                    return Ok((waiting.process, waiting.served, Some(request_file)));
                }
                let replaying = task == JudgeTask::Replay;
                let text = judge_in_one_file(replaying, replaying || self.checker.keep_alive, &request_file);
                std::fs::write(&file, text).map_err(|e| failed(&file, e))?;
                let mut launch = lean.clone();
                launch.args.extend(["--run".into(), file.into()]);
                (launch, Some(request_file))
            }
        };
        launch.folder = self.folder.clone();
        Ok((Process::start(&launch)?, 0, request_file))
    }

    /// Asks about candidates of one header until each is settled. A candidate that kills the process, or makes it break the
    /// protocol, is retried once alone; the other candidates are retried without it. After an unusual reply, another process
    /// is asked about the candidates that follow.
    fn settle(&self, task: JudgeTask, questions: &[&JudgeQuestion<'_>], examines: bool) -> Vec<Settled> {
        let mut settled: Vec<Option<Settled>> = questions.iter().map(|_| None).collect();
        let mut groups: Vec<Group> = vec![((0..questions.len()).collect(), false)];
        while let Some((group, again)) = groups.pop() {
            let asked: Vec<&JudgeQuestion<'_>> = group.iter().map(|&i| questions[i]).collect();
            if asked.is_empty() {
                continue;
            }
            let mut run = self.run(task, &asked, examines);
            if matches!(run.fault, Some(ProcessFault::Protocol(_))) {
                // Once the protocol is broken, no reply of the process can be trusted.
                run.replies.fill_with(|| None);
            }
            let mut rest = Vec::new();
            let mut culprit = None;
            for (place, &index) in group.iter().enumerate() {
                match run.replies.get_mut(place).and_then(Option::take) {
                    Some(reply) => settled[index] = Some(Ok(reply)),
                    None if run.at == Some(place) => culprit = Some(index),
                    None => rest.push(index),
                }
            }
            let mut put = |indices: &[usize], outcome: &CheckOutcome| {
                for &index in indices {
                    settled[index] = Some(Err(outcome.clone()));
                }
            };
            match (run.broken, run.fault) {
                (Some(outcome), _) => {
                    rest.extend(culprit);
                    put(&rest, &outcome);
                }
                // There are others only after an unusual reply, which settles one candidate.
                (None, None) => groups.push((rest, false)),
                (None, Some(fault)) => {
                    let (decided, retried) = after_fault(&fault, culprit, rest, group.len() == 1, again);
                    if let Some((indices, outcome)) = decided {
                        put(&indices, &outcome);
                    }
                    groups.extend(retried);
                }
            }
        }
        let undecided = || Err(CheckOutcome::new(Verdict::Infra, "undecided"));
        settled.into_iter().map(|s| s.unwrap_or_else(undecided)).collect()
    }

    /// Judges candidates as [`Backend::check`] does, under several sets of layers. Lean runs once, because its replies
    /// depend on the syntax layer only, which is that of the first set. Returns one outcome per set for each candidate.
    pub fn check_under(&self, candidates: &[&Candidate], layers: &[TrustLayers]) -> Vec<Vec<CheckOutcome>> {
        let names = fresh_nonce();
        // Use no name twice: a process that is kept alive remembers the file of a name, even after the file was
        // removed.
        let place = |index: usize| self.folder.join(format!("declarations-{index}-{names}"));
        let questions: Vec<JudgeQuestion<'_>> = candidates
            .iter()
            .enumerate()
            .map(|(index, candidate)| {
                let declarations = self.checker.replay.then(|| place(index));
                JudgeQuestion { candidate, id: format!("{index}_{names}"), declarations }
            })
            .collect();
        let asked: Vec<&JudgeQuestion<'_>> = questions.iter().collect();
        let examines = layers.first().is_none_or(|layers| layers.syntax);
        let settled = self.settle(JudgeTask::Check, &asked, examines);
        let mut sets: Vec<Vec<CheckOutcome>> = Vec::with_capacity(layers.len());
        for layers in layers {
            let judge = |s: &Settled| s.as_ref().map_or_else(Clone::clone, |reply| reply.judge(*layers));
            let mut outcomes: Vec<CheckOutcome> = settled.iter().map(judge).collect();
            if self.checker.replay && layers.kernel {
                self.replay(&questions, &mut outcomes, *layers);
            }
            for outcome in outcomes.iter_mut().filter(|o| o.verdict == Verdict::Proved) {
                outcome.reason = if self.checker.replay { "" } else { NO_REPLAY }.to_owned();
            }
            sets.push(outcomes);
        }
        for path in questions.iter().filter_map(|q| q.declarations.as_ref()) {
            // A candidate without a proof has no file.
            let _ = std::fs::remove_file(path);
        }
        (0..candidates.len()).map(|i| sets.iter().filter_map(|set| set.get(i).cloned()).collect()).collect()
    }

    fn replay(&self, questions: &[JudgeQuestion<'_>], outcomes: &mut [CheckOutcome], layers: TrustLayers) {
        let mut held = Vec::new();
        for (index, (question, outcome)) in questions.iter().zip(outcomes.iter_mut()).enumerate() {
            if outcome.verdict != Verdict::Proved {
                continue;
            }
            let (verdict, reason) = match question.declarations.as_deref().map(std::fs::symlink_metadata) {
                Some(Ok(meta)) if meta.is_file() && meta.len() <= MAX_DECLARATION_BYTES => {
                    held.push(index);
                    continue;
                }
                Some(Ok(_)) => (Verdict::Resource, "the declarations are too large".to_owned()),
                Some(Err(error)) => (Verdict::Infra, format!("no declarations: {error}")),
                None => (Verdict::Infra, "no file for the declarations".to_owned()),
            };
            *outcome = CheckOutcome::new(verdict, format!("replay layer: {reason}"));
        }
        let asked: Vec<&JudgeQuestion<'_>> = held.iter().map(|&i| &questions[i]).collect();
        for (index, settled) in held.iter().zip(self.settle(JudgeTask::Replay, &asked, layers.syntax)) {
            let replayed = settled.map_or_else(|outcome| outcome, |reply| reply.kernel(layers));
            let reason = match replayed.reason.as_str() {
                "" => String::new(),
                reason => format!("replay layer: {reason}"),
            };
            if replayed.verdict != Verdict::Proved {
                // The first process accepted something that is not a proof, so its memory may have been corrupted.
                drop(self.idle(JudgeTask::Check));
            }
            outcomes[*index] = CheckOutcome { reason, ..replayed };
        }
    }
}

/// A group of candidates that have no result yet, and whether this is their second attempt.
type Group = (Vec<usize>, bool);

/// Decides on the candidates of a group without a reply after their process failed at the `culprit`, if any. Returns those
/// whose outcome is now known, with the outcome, and the groups to ask again.
fn after_fault(
    fault: &ProcessFault,
    culprit: Option<usize>,
    rest: Vec<usize>,
    alone: bool,
    again: bool,
) -> (Option<(Vec<usize>, CheckOutcome)>, Vec<Group>) {
    let Some(culprit) = culprit else {
        // The process died before the first candidate, so none of them is at fault.
        if again || matches!(fault, ProcessFault::Start { .. } | ProcessFault::Timeout(_)) {
            let why = format!("the header was not loaded: {fault}");
            return (Some((rest, CheckOutcome::new(Verdict::Infra, why))), Vec::new());
        }
        return (None, vec![(rest, true)]);
    };
    match verdict_on_culprit(fault, alone, again) {
        Some(outcome) => (Some((vec![culprit], outcome)), vec![(rest, false)]),
        None => (None, vec![(vec![culprit], true), (rest, false)]),
    }
}

/// Returns the verdict on a candidate that ended its process, or `None` if it is to be retried alone.
fn verdict_on_culprit(fault: &ProcessFault, alone: bool, again: bool) -> Option<CheckOutcome> {
    let resource = |why: String| Some(CheckOutcome::new(Verdict::Resource, why));
    match fault {
        ProcessFault::Timeout(_) | ProcessFault::Output(_) => resource(fault.to_string()),
        // In a group, the memory of the other candidates counts too.
        ProcessFault::Memory { .. } if alone => resource(fault.to_string()),
        // The next attempt would end like this one, and every start takes minutes with WebAssembly.
        ProcessFault::Ended { stderr, .. } if stderr.lines().any(is_panic_about_a_number) => {
            resource(format!("Lean cannot compute a number of this proof: {fault}"))
        }
        ProcessFault::Ended { .. } | ProcessFault::Protocol(_) if alone && again => {
            resource(format!("Lean died twice on this proof, the second time alone: {fault}"))
        }
        ProcessFault::Start { .. } => Some(CheckOutcome::new(Verdict::Infra, fault.to_string())),
        ProcessFault::Memory { .. } | ProcessFault::Ended { .. } | ProcessFault::Protocol(_) => None,
    }
}

/// Returns whether a line of standard error says that Lean's runtime has ended the process because of a number that it
/// cannot compute, such as `1 <<< 2 ^ 32`. This does not depend on other candidates. A candidate that forged the line would
/// only get a verdict without a reward.
///
/// A trap of WebAssembly (`RuntimeError: …`) is not such a line: an earlier candidate of the same process may have damaged its
/// memory without a trap, for example with a number whose size overflows 32 bits.
fn is_panic_about_a_number(line: &str) -> bool {
    line.starts_with("INTERNAL PANIC: Nat.") && line.ends_with(" exponent is too big")
}

impl Backend for FileWorker {
    fn batch(&self) -> usize {
        self.checker.batch.max(1)
    }

    fn prefers(&self, _header: &str) -> bool {
        true
    }

    fn check(&mut self, candidates: &[&Candidate]) -> Vec<CheckOutcome> {
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

/// The reason of a `proved` that no second process has confirmed.
pub const NO_REPLAY: &str = "not replayed in a second process";

/// Parses the lines of an answer as they arrive.
struct AnswerReader<'n> {
    nonce: &'n str,
    /// Whether texts are examined. Otherwise they run code, and unusual replies are not rare.
    examines: bool,
    run: JudgeRun,
    request_read: bool,
    /// Number of lines that extend the deadline, so far.
    steps: usize,
    read: usize,
    violation: Option<String>,
}

impl<'n> AnswerReader<'n> {
    fn new(nonce: &'n str, candidates: usize, examines: bool) -> Self {
        let run = JudgeRun { replies: (0..candidates).map(|_| None).collect(), ..JudgeRun::default() };
        Self { nonce, examines, run, request_read: false, steps: 0, read: 0, violation: None }
    }

    fn is_done(&self) -> bool {
        self.run.header && (self.run.unusual || self.run.replies.iter().all(Option::is_some))
    }

    fn push(&mut self, out: &[u8], ended: bool) {
        while self.violation.is_none() && !self.run.unusual {
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
            let known = JudgeLine::read(line, self.nonce);
            let shown = || String::from_utf8_lossy(line).trim().chars().take(120).collect::<String>();
            match known {
                Some(Ok(line)) => self.apply(line),
                Some(Err(error)) => self.violation = Some(error),
                // Before the header is loaded, Lean may report messages about the judge's source.
                None if !self.run.header => {}
                None => self.violation = Some(format!("a line that is not an answer: {}", shown())),
            }
        }
    }

    fn apply(&mut self, line: JudgeLine) {
        self.steps += 1;
        match line {
            JudgeLine::Read => {
                self.request_read = true;
                // The header is still to be loaded, within the start limit.
                self.steps -= 1;
            }
            JudgeLine::Header => self.run.header = true,
            JudgeLine::Broken { reason, refused: true } => {
                self.run.broken = Some(CheckOutcome::refused("syntax layer: ", &reason));
            }
            JudgeLine::Broken { reason, refused: false } => {
                let reason = format!("the header cannot be used: {reason}");
                self.run.broken = Some(CheckOutcome::new(Verdict::Infra, reason));
            }
            JudgeLine::Begin(index) => self.run.at = Some(index),
            JudgeLine::End(index, reply) => match self.run.replies.get_mut(index) {
                Some(slot @ None) if self.run.at == Some(index) => {
                    self.run.unusual = self.examines && reply.is_unusual();
                    *slot = Some(reply);
                }
                _ => self.violation = Some(format!("an unexpected answer about candidate {index}")),
            },
        }
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_that_lean_cannot_compute_is_not_tried_again() {
        let ended =
            |stderr: &str| ProcessFault::Ended { status: "exit status: 1".into(), stderr: stderr.into() };
        let panic = "INTERNAL PANIC: Nat.shiftl exponent is too big\nwasm://wasm/20c45b82:1\n\nRuntimeError: memory access out of bounds\n";
        let (decided, retried) = after_fault(&ended(panic), Some(1), vec![0, 2], false, false);
        let (indices, outcome) = decided.unwrap();
        assert_eq!(
            (indices, outcome.verdict, retried),
            (vec![1], Verdict::Resource, vec![(vec![0, 2], false)])
        );
        for other in [
            "RuntimeError: memory access out of bounds",
            "RuntimeError: table index is out of bounds",
            "RuntimeError: divide by zero",
            "RuntimeError: unreachable",
            "RangeError: Maximum call stack size exceeded",
            "INTERNAL PANIC: out of memory",
            "",
        ] {
            let (decided, retried) = after_fault(&ended(other), Some(1), vec![0, 2], false, false);
            assert_eq!((decided, retried), (None, vec![(vec![1], true), (vec![0, 2], false)]), "{other}");
        }
    }
}
