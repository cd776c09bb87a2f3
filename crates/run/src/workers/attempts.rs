//! Attempts at problems: their prompts, their verdicts and their counts.

use crate::error::Result;
use crate::workers::sampling::{Answer, Ask, asks};
use serde::{Deserialize, Serialize};
use sgs_base::parallel;
use sgs_formal::{FormalSystem, Prompt};
use sgs_lm::tokenizer::Tokenizer;
use sgs_selfplay::config::SolverConfig;
use sgs_selfplay::objective::is_repaired;
use sgs_selfplay::rate::pass_at_k;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{FailedProof, Judgement, Problem, Role, Verdict};
use std::sync::Arc;

/// The judged attempts at a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptSummary {
    /// Attempts that were proofs.
    pub proved: u32,
    pub judged: u32,
    /// The first proof, in the order of the attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Arc<str>>,
}

impl AttemptSummary {
    /// Counts an attempt. A lost attempt does not count as judged.
    pub fn add(&mut self, verdict: Verdict, proof: Option<&Arc<str>>) {
        self.judged += u32::from(verdict.is_judged());
        if verdict == Verdict::Proved {
            self.proved += 1;
            self.proof = self.proof.take().or_else(|| proof.cloned());
        }
    }

    /// Returns the unbiased estimate of pass@k; `None` if fewer than `k` attempts were judged.
    pub fn pass_at(&self, k: u64) -> Option<f64> {
        pass_at_k(self.judged.into(), self.proved.into(), k)
    }
}

/// The attempts at one problem.
#[derive(Clone, Debug, PartialEq)]
pub struct ProblemAttempts {
    pub problem: Arc<Problem>,
    pub summary: AttemptSummary,
}

#[derive(Clone, Debug)]
pub struct JudgedAttempt {
    /// The verdict, and why it is not a proof.
    pub judgement: Judgement,
    /// The name of the defect of a completion that is not a proof.
    pub defect: Option<String>,
    /// The proof in canonical form, if the completion could be parsed.
    pub proof: Option<Arc<str>>,
}

impl JudgedAttempt {
    /// Returns the name of the verdict or defect, for counting.
    pub fn name(&self) -> String {
        match &self.defect {
            Some(defect) => format!("{}: {defect}", self.judgement.verdict.as_str()),
            None => self.judgement.verdict.as_str().to_owned(),
        }
    }
}

/// Returns the prompts for `k` proofs of every problem, one problem after the other.
pub fn proof_asks(
    prompt: impl Fn(&Problem) -> Prompt,
    tokenizer: &Tokenizer,
    problems: &[Arc<Problem>],
    k: u32,
    seed: u64,
) -> Result<Vec<Ask>> {
    let mut all = Vec::new();
    for problem in problems {
        let seeds = (0..k).map(|i| task_seed(seed, 0, Role::Solver, &problem.id, i));
        all.extend(asks(tokenizer, &prompt(problem), seeds)?);
    }
    Ok(all)
}

/// Returns the prompts of turn number `turn`, for those attempts of [`proof_asks`] that continue after the previous
/// turn. Each prompt comes with the index of its attempt.
pub fn repair_asks(
    system: &dyn FormalSystem,
    tokenizer: &Tokenizer,
    problems: &[Arc<Problem>],
    attempts: &[JudgedAttempt],
    turn: u32,
    solver: &SolverConfig,
    seed: u64,
) -> Result<Vec<(usize, Ask)>> {
    let k = attempts.len() / problems.len().max(1);
    let mut all = Vec::new();
    for (position, JudgedAttempt { judgement, proof, .. }) in attempts.iter().enumerate() {
        let Some(proof) = proof.as_ref().filter(|_| is_repaired(judgement, turn - 1, solver)) else {
            continue;
        };
        let problem = &problems[position / k];
        let prompt = system.repair_prompt(problem, &FailedProof::new(Arc::clone(proof), judgement));
        let index = turn * k as u32 + (position % k) as u32;
        let seed = task_seed(seed, 0, Role::Solver, &problem.id, index);
        all.extend(asks(tokenizer, &prompt, [seed])?.into_iter().map(|ask| (position, ask)));
    }
    Ok(all)
}

/// Parses and verifies an attempt at a problem.
pub fn judge(system: &dyn FormalSystem, problem: &Problem, answer: &Answer) -> JudgedAttempt {
    let unjudged = |verdict, defect, reason| JudgedAttempt {
        judgement: Judgement { verdict, reason, step: None, micros: 0 },
        defect,
        proof: None,
    };
    let malformed = |defect: String, reason| unjudged(Verdict::Malformed, Some(defect), reason);
    let lost = |reason| unjudged(Verdict::Infra, None, reason);
    let text = match answer {
        Answer::Whole(text) => text,
        Answer::Cut { tokens, .. } => {
            return malformed("no-end".to_owned(), format!("not finished after {tokens} tokens"));
        }
        Answer::Refused(reason) => return malformed("prompt-too-long".to_owned(), reason.clone()),
        Answer::Lost => return lost(String::new()),
    };
    match system.read_proof(problem, text) {
        Ok(proof) => {
            let judgement = system.verify(problem, &proof);
            JudgedAttempt { judgement, defect: None, proof: Some(proof.into()) }
        }
        Err(error) if error.is_infra() => lost(error.detail),
        Err(error) => malformed(error.kind, error.detail),
    }
}

/// Judges the answers to [`proof_asks`] of the same problems, as many in parallel as the system can verify. Returns the
/// attempts in the same order.
pub fn judge_all(
    system: &dyn FormalSystem,
    problems: &[Arc<Problem>],
    k: u32,
    answers: &[Answer],
) -> Vec<JudgedAttempt> {
    assert_eq!(answers.len(), problems.len() * k as usize, "invariant: k answers for each problem");
    let of_problem = problems.iter().flat_map(|problem| (0..k).map(move |_| problem));
    let attempts: Vec<(&Arc<Problem>, &Answer)> = of_problem.zip(answers).collect();
    parallel::map(system.parallel_verifications(), &attempts, |(problem, answer)| {
        judge(system, problem, answer)
    })
}

/// Counts `k` judged attempts at each problem.
pub fn count(problems: &[Arc<Problem>], k: u32, attempts: &[JudgedAttempt]) -> Vec<ProblemAttempts> {
    let count = |(problem, attempts): (&Arc<Problem>, &[JudgedAttempt])| {
        let mut summary = AttemptSummary::default();
        attempts.iter().for_each(|attempt| summary.add(attempt.judgement.verdict, attempt.proof.as_ref()));
        ProblemAttempts { problem: Arc::clone(problem), summary }
    };
    problems.iter().zip(attempts.chunks(k as usize)).map(count).collect()
}
