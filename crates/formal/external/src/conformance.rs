//! Checks whether a program follows the protocol, before a run depends on it.

use crate::system::External;
use serde::Serialize;
use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_selfplay::{Judgement, Problem, Verdict};
use std::time::{Duration, Instant};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckResult {
    /// The program did what the protocol says.
    Ok,
    /// The check found behaviour that is right in few domains, or could not be performed.
    Warning,
    /// A run with this program would fail, or learn something wrong.
    Failed,
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The operation or property that was checked.
    pub name: &'static str,
    /// The result.
    pub outcome: CheckResult,
    /// The reason, or what was measured.
    pub detail: String,
}

/// A problem with a proof that the program must accept.
#[derive(Clone, Debug)]
pub struct ProvedProblem {
    /// The problem.
    pub problem: Problem,
    /// The proof in canonical form.
    pub proof: String,
}

/// Number of problems that the checks use.
const PROBLEMS: usize = 8;

/// Returns texts like those of an untrained model. In most domains, none of them proves anything.
fn completions() -> Vec<String> {
    let texts =
        ["", " ", "\n\n", "{}", "null", "\u{0}", "\u{2200}x \u{1f600}", "\"a\" \\ 'b'", "x", "1", "0 0 0"];
    texts.into_iter().map(str::to_owned).chain(["x ".repeat(4096)]).collect()
}

/// Performs all checks with the first problems of a set. `proved` may be empty.
pub fn conformance(system: &External, problems: &[Problem], proved: &[ProvedProblem]) -> Vec<Check> {
    let problems = problems.get(..PROBLEMS).unwrap_or(problems);
    let Some(first) = problems.first() else { return Vec::new() };
    let condition = Condition::Target(first);
    vec![
        prompts(system, first),
        reading("read_proof", |text| system.read_proof(first, text).map(drop)),
        reading("read_conjecture", |text| system.read_conjecture(condition, text).map(drop)),
        reading("read_review", |text| system.read_review(text).map(drop)),
        wrong_proofs(system, problems),
        known_proofs(system, proved),
        repetition(system, problems, proved),
    ]
}

fn failed(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, outcome: CheckResult::Failed, detail: detail.into() }
}

fn warned(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, outcome: CheckResult::Warning, detail: detail.into() }
}

fn passed(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, outcome: CheckResult::Ok, detail: detail.into() }
}

/// Returns a problem with another statement.
fn another(problem: &Problem) -> Problem {
    Problem { statement: "another statement".into(), ..problem.clone() }
}

/// Checks that Solver and Guide see their problem.
///
/// # Errors
/// Returns the name of the prompt and the field that it lacks.
pub fn check_prompts(system: &External, problem: &Problem) -> Result<(), &'static str> {
    let other = another(problem);
    if system.solver_prompt(problem) == system.solver_prompt(&other) {
        return Err("`solver` does not contain {statement}, so the Solver cannot see its problem");
    }
    if system.guide_prompt(problem, problem) == system.guide_prompt(problem, &other) {
        return Err("`guide` does not contain {conjecture}, so the Guide cannot see what it scores");
    }
    Ok(())
}

/// Checks that each prompt depends on what the model must see.
fn prompts(system: &External, problem: &Problem) -> Check {
    const NAME: &str = "prompts";
    let other = another(problem);
    let conjecturer = |problem| system.conjecturer_prompt(Condition::Target(problem));
    if let Err(problem) = check_prompts(system, problem) {
        return failed(NAME, problem);
    }
    if conjecturer(problem) == conjecturer(&other) {
        let detail = "`conjecturer` does not contain {statement}: conjectures will not depend on the target";
        return warned(NAME, detail);
    }
    let shown = match system.solver_prompt(problem) {
        Prompt::Raw(text) | Prompt::Chat(text) => text,
        Prompt::Dialogue(messages) => messages.concat(),
    };
    passed(NAME, format!("the Solver's for {}: {shown:?}", problem.id))
}

/// Checks that a reading operation answers for every completion.
fn reading(name: &'static str, read: impl Fn(&str) -> Result<(), Malformed>) -> Check {
    let (mut malformed, mut longest) = (0, Duration::ZERO);
    let completions = completions();
    for completion in &completions {
        let begun = Instant::now();
        match read(completion) {
            Err(error) if error.is_infra() => {
                return failed(name, format!("no result for {}: {}", excerpt(completion), error.detail));
            }
            Err(_) => malformed += 1,
            Ok(()) => {}
        }
        longest = longest.max(begun.elapsed());
    }
    let (all, longest) = (completions.len(), millis(longest));
    passed(name, format!("{malformed} of {all} random completions are malformed; {longest} at most"))
}

/// Returns the verdicts on proofs of a problem, or the reason why one is missing.
fn verdicts(problem: &Problem, judged: Vec<Judgement>) -> Result<Vec<Verdict>, String> {
    let verdict = |judgement: Judgement| match judgement.verdict {
        Verdict::Infra => Err(format!("no verdict for {}: {}", problem.id, judgement.reason)),
        verdict => Ok(verdict),
    };
    judged.into_iter().map(verdict).collect()
}

fn wrong_proofs(system: &External, problems: &[Problem]) -> Check {
    const NAME: &str = "wrong proofs";
    let completions = completions();
    let proofs: Vec<&str> = completions.iter().map(String::as_str).collect();
    let begun = Instant::now();
    let mut accepted = vec![0; proofs.len()];
    for problem in problems {
        let verdicts = match verdicts(problem, system.verify_all(problem, &proofs)) {
            Ok(verdicts) => verdicts,
            Err(lost) => return failed(NAME, lost),
        };
        for (count, verdict) in accepted.iter_mut().zip(verdicts) {
            *count += usize::from(verdict == Verdict::Proved);
        }
    }
    let all = problems.len() * proofs.len();
    let each = begun.elapsed() / all.max(1) as u32;
    let Some((most, proof)) = accepted.iter().zip(&proofs).max_by_key(|(count, _)| **count) else {
        return passed(NAME, "no proofs");
    };
    match *most {
        0 => passed(NAME, format!("none of {all} accepted; {} each", millis(each))),
        most if most == problems.len() && most > 1 => {
            let what = format!("{} is accepted as the proof of all {most} problems", excerpt(proof));
            failed(NAME, format!("{what}, so the Solver would write it"))
        }
        most => {
            let (proof, all) = (excerpt(proof), problems.len());
            warned(NAME, format!("{proof} is accepted as the proof of {most} of {all} problems"))
        }
    }
}

fn known_proofs(system: &External, proved: &[ProvedProblem]) -> Check {
    const NAME: &str = "known proofs";
    if proved.is_empty() {
        return warned(NAME, "none given (--proofs FILE), so no right proof has been verified");
    }
    let mut wrong = Vec::new();
    for ProvedProblem { problem, proof } in proved {
        let judged = system.verify(problem, proof);
        if judged.verdict != Verdict::Proved {
            wrong.push(format!("{}: {} ({})", problem.id, judged.verdict.as_str(), judged.reason));
        }
    }
    match wrong.first() {
        None => passed(NAME, format!("{} accepted", proved.len())),
        Some(first) => {
            failed(NAME, format!("{} of {} not accepted, such as {first}", wrong.len(), proved.len()))
        }
    }
}

/// Checks that a verdict depends neither on the process nor on the other proofs of a request.
fn repetition(system: &External, problems: &[Problem], proved: &[ProvedProblem]) -> Check {
    const NAME: &str = "repeated verdicts";
    let completions = completions();
    for problem in problems {
        let mut proofs: Vec<&str> = completions.iter().map(String::as_str).collect();
        proofs.extend(proved.iter().filter(|p| p.problem.id == problem.id).map(|p| p.proof.as_str()));
        let reversed: Vec<&str> = proofs.iter().rev().copied().collect();
        // The requests are concurrent, so that different processes answer them.
        let (together, mut backwards) = std::thread::scope(|scope| {
            let backwards = scope.spawn(|| system.verify_all(problem, &reversed));
            let together = system.verify_all(problem, &proofs);
            (together, backwards.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        backwards.reverse();
        let alone = proofs.iter().map(|proof| system.verify(problem, proof)).collect();
        let read = |judged| verdicts(problem, judged);
        let (together, backwards, alone) = match (read(together), read(backwards), read(alone)) {
            (Ok(together), Ok(backwards), Ok(alone)) => (together, backwards, alone),
            (Err(lost), ..) | (_, Err(lost), _) | (.., Err(lost)) => return failed(NAME, lost),
        };
        for (what, other) in [("in the opposite order", &backwards), ("alone", &alone)] {
            let differs = proofs.iter().zip(together.iter().zip(other)).find(|(_, (a, b))| a != b);
            if let Some((proof, (a, b))) = differs {
                let (id, proof, a, b) = (&problem.id, excerpt(proof), a.as_str(), b.as_str());
                return failed(NAME, format!("{id}: {proof} is {a} among others and {b} {what}"));
            }
        }
    }
    passed(NAME, "the same alone, among others, and in another process")
}

/// Returns the beginning of a text, quoted.
fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", 1e3 * time.as_secs_f64())
}
