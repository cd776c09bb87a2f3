//! What a model can do before any self-play: pass@k on problems, and how well it plays the other two roles.

use crate::error::{Result, bail};
use crate::workers::sampling::{Answer, Ask, decode, encode, in_parallel, sample};
use sgs_formal::{Condition, FormalSystem, Malformed, Prompt};
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm_sampler::{Decode, SamplerOptions};
use sgs_selfplay::rate::pass_at_k;
use sgs_selfplay::reward::guide_score;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{ParsedConjecture, Problem, Review, Role, Verdict};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Attempts at one problem.
#[derive(Clone, Debug)]
pub struct ProblemResult {
    pub problem: Problem,
    /// Attempts that were judged.
    pub judged: u64,
    /// Attempts that proved it.
    pub proved: u64,
    /// The first proof.
    pub proof: Option<String>,
}

/// Attempts at a set of problems.
#[derive(Clone, Debug, Default)]
pub struct SolverResult {
    /// Per problem.
    pub problems: Vec<ProblemResult>,
    /// Verdicts and defects by name.
    pub outcomes: BTreeMap<String, u64>,
}

impl SolverResult {
    /// Mean unbiased pass@k over the problems; `None` if a problem has fewer than `k` judged attempts.
    pub fn pass_at(&self, k: u64) -> Option<f64> {
        let mut sum = 0.0;
        for p in &self.problems {
            sum += pass_at_k(p.judged, p.proved, k)?;
        }
        Some(sum / self.problems.len().max(1) as f64)
    }
}

/// Prompts for `k` proofs of every problem, one problem after the other.
///
/// # Errors
/// A prompt has no tokens.
pub fn proof_asks(
    prompt: impl Fn(&Problem) -> Prompt,
    tokenizer: &Tokenizer,
    problems: &[Problem],
    k: u32,
    seed: u64,
) -> Result<Vec<Ask>> {
    let mut asks = Vec::new();
    for problem in problems {
        let prompt = encode(tokenizer, &prompt(problem))?;
        for i in 0..k {
            let seed = task_seed(seed, 0, Role::Solver, &problem.id, i);
            asks.push(Ask { prompt: Arc::clone(&prompt), seed });
        }
    }
    Ok(asks)
}

/// Checks the answers to [`proof_asks`] of the same problems.
///
/// # Errors
/// There are more or fewer of them.
pub fn verify_all(
    system: &dyn FormalSystem,
    problems: &[Problem],
    k: u32,
    answers: Vec<Answer>,
) -> Result<SolverResult> {
    if answers.len() != problems.len() * k as usize {
        bail!("{} answers to {} prompts", answers.len(), problems.len() * k as usize);
    }
    let attempts: Vec<(&Problem, Answer)> =
        problems.iter().flat_map(|problem| (0..k).map(move |_| problem)).zip(answers).collect();
    let judged = in_parallel(system.parallel_verifications(), &attempts, |(problem, answer)| {
        verify(system, problem, answer)
    });
    let (mut judged, mut result) = (judged.into_iter(), SolverResult::default());
    for problem in problems {
        let mut row = ProblemResult { problem: problem.clone(), judged: 0, proved: 0, proof: None };
        for (verdict, name, proof) in judged.by_ref().take(k as usize) {
            *result.outcomes.entry(name).or_insert(0) += 1;
            row.judged += u64::from(verdict.is_judged());
            if verdict == Verdict::Proved {
                row.proved += 1;
                row.proof.get_or_insert(proof);
            }
        }
        result.problems.push(row);
    }
    Ok(result)
}

/// Verdict, its name for counting, the proof.
type Judged = (Verdict, String, String);

fn verify(system: &dyn FormalSystem, problem: &Problem, answer: &Answer) -> Judged {
    let text = match answer {
        Answer::Whole(text) => text,
        Answer::Cut => return (Verdict::Malformed, "malformed: no end".to_owned(), String::new()),
        Answer::Lost => return (Verdict::Infra, Verdict::Infra.as_str().to_owned(), String::new()),
    };
    match system.read_proof(problem, text) {
        Ok(proof) => {
            let judgement = system.verify(problem, &proof);
            (judgement.verdict, judgement.verdict.as_str().to_owned(), proof)
        }
        Err(e) => (Verdict::Malformed, format!("malformed: {}", e.kind), String::new()),
    }
}

/// How well a model invents problems.
#[derive(Clone, Debug, Default)]
pub struct ConjecturerResult {
    pub sampled: u64,
    /// Those that are statements.
    pub well_formed: u64,
    /// Those that are neither a target nor one of the others.
    pub distinct: u64,
    pub defects: BTreeMap<String, u64>,
    /// The first few.
    pub examples: Vec<(String, String)>,
}

/// Samples one conjecture for every problem.
pub fn conjecture<D: Device + Decode>(
    system: &dyn FormalSystem,
    model: &Model<D>,
    tokenizer: &Tokenizer,
    targets: &[Problem],
    seed: u64,
    max_new_tokens: usize,
    options: &SamplerOptions,
) -> Result<ConjecturerResult> {
    let mut asks = Vec::new();
    for target in targets {
        let prompt = encode(tokenizer, &system.conjecturer_prompt(Condition::Target(target)))?;
        asks.push(Ask { prompt, seed: task_seed(seed, 0, Role::Conjecturer, &target.id, 0) });
    }
    let completions = sample(model, tokenizer, &asks, max_new_tokens, options, |_, _| ())?;
    let mut result = ConjecturerResult::default();
    let mut seen: std::collections::HashSet<Arc<str>> =
        targets.iter().map(|t| Arc::clone(&t.statement)).collect();
    for (target, completion) in targets.iter().zip(&completions) {
        result.sampled += 1;
        match system.read_conjecture(Condition::Target(target), &decode(tokenizer, completion)?) {
            Ok(ParsedConjecture { statement, .. }) => {
                result.well_formed += 1;
                if result.examples.len() < 10 {
                    result.examples.push((target.statement.to_string(), statement.to_string()));
                }
                result.distinct += u64::from(seen.insert(statement));
            }
            Err(e) => *result.defects.entry(e.kind).or_insert(0) += 1,
        }
    }
    Ok(result)
}

/// A conjecture to be reviewed, of which the scores are known.
pub struct KnownReview {
    /// The Guide's prompt.
    pub prompt: Prompt,
    pub review: Review,
    /// What the conjecture is to its target (`main-step`, `known`, `one-step`, …).
    pub kind: String,
}

/// How well a model reviews, against known scores.
#[derive(Clone, Debug, Default)]
pub struct GuideResult {
    pub sampled: u64,
    /// Those with three scores.
    pub well_formed: u64,
    /// Defects of the others by name.
    pub defects: BTreeMap<String, u64>,
    /// Well-formed reviews that agree with the known relevance, redundancy and complexity.
    pub agree: [u64; 3],
    /// Sum of the absolute differences of relevance.
    pub relevance_error: f64,
    /// For each well-formed review: what the conjecture is to its target, the known R_guide and the one found.
    pub scores: Vec<(String, f64, f64)>,
}

/// Reads a review.
pub type ReadReview<'a> = dyn Fn(&str) -> Result<Review, Malformed> + 'a;

/// Samples one review for every case.
pub fn review<D: Device + Decode>(
    read: &ReadReview<'_>,
    model: &Model<D>,
    tokenizer: &Tokenizer,
    cases: &[KnownReview],
    seed: u64,
    max_new_tokens: usize,
    options: &SamplerOptions,
) -> Result<GuideResult> {
    let mut asks = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        asks.push(Ask { prompt: encode(tokenizer, &case.prompt)?, seed: seed.wrapping_add(i as u64) });
    }
    let completions = sample(model, tokenizer, &asks, max_new_tokens, options, |_, _| ())?;
    let mut result = GuideResult::default();
    for (KnownReview { review: known, kind, .. }, completion) in cases.iter().zip(&completions) {
        result.sampled += 1;
        match read(&decode(tokenizer, completion)?) {
            Ok(review) => {
                result.well_formed += 1;
                result.agree[0] += u64::from(review.relevance == known.relevance);
                result.agree[1] += u64::from(review.redundancy == known.redundancy);
                result.agree[2] += u64::from(review.complexity == known.complexity);
                result.relevance_error += (review.relevance - known.relevance).abs();
                result.scores.push((kind.clone(), guide_score(known), guide_score(&review)));
            }
            Err(e) => *result.defects.entry(e.kind).or_insert(0) += 1,
        }
    }
    Ok(result)
}
