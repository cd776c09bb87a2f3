//! Samples and verifies proofs of one problem.

use crate::args::ProveArgs;
use crate::model_source::RoleModel;
use anyhow::{Result, anyhow, bail};
use sgs_formal::FormalSystem;
use sgs_lm::Device;
use sgs_lm_sampler::{Decode, SamplerOptions};
use sgs_run::workers::attempts::{JudgedAttempt, judge, judge_all, proof_asks};
use sgs_run::workers::sampling::{Answer, TextSampler, options};
use sgs_selfplay::{Judgement, Problem, Verdict};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

#[derive(Default)]
pub struct ProofSearch {
    pub sampled: u32,
    /// A valid proof, if one was found.
    pub proof: Option<Arc<str>>,
    /// Failures by verdict and kind of reason, with their count and an example.
    pub failures: BTreeMap<(Verdict, String), (u32, String)>,
}

/// The option that limits the batch.
pub const BATCH: &str = "--samples";

pub fn options_of(args: &ProveArgs) -> SamplerOptions {
    options(args.sample.samples.min(256) as usize, args.sample.play.memory_mib)
}

/// Samples proofs of a problem until one is valid or the budget is spent.
pub fn search<D: Device + Decode>(
    system: &dyn FormalSystem,
    problem: &Problem,
    solver: &RoleModel<D>,
    args: &ProveArgs,
) -> Result<ProofSearch> {
    let RoleModel { tokenizer, model } = solver;
    let problems = [Arc::new(problem.clone())];
    let prompt = |problem: &Problem| system.solver_prompt(problem);
    let asks = proof_asks(prompt, tokenizer, &problems, args.sample.samples, args.sample.play.seed)?;
    let prompt = asks.first().map_or(&[][..], |ask| &ask.prompt);
    let unknown = tokenizer.special_tokens().unk.as_ref().and_then(|t| tokenizer.id_of(t));
    if unknown.is_some_and(|id| prompt.contains(&id)) {
        bail!(
            "the model's tokenizer has no token for some symbol of {}: it was made for another database",
            problem.statement
        );
    }
    if prompt.len() >= model.max_positions {
        bail!(
            "the statement has {} tokens, and the model's context window has {}: choose a shorter one",
            prompt.len(),
            model.max_positions
        );
    }
    let sampler = TextSampler {
        temperature: args.temperature,
        ..solver.sampler(args.max_new_tokens, options_of(args), BATCH)?
    };
    let mut search = ProofSearch::default();
    if system.parallel_verifications() > 1 {
        // Verification takes seconds and uses all cores, so sample everything first.
        let answers = sampler.answers(&asks, || ())?;
        answers.iter().try_for_each(check_accepted)?;
        let attempts = judge_all(system, &problems, args.sample.samples, &answers);
        let _ = attempts.into_iter().try_for_each(|attempt| search.add(attempt));
        return Ok(search);
    }
    let mut refused = Ok(());
    sampler.each(&asks, |_, answer| {
        refused = check_accepted(&answer);
        if refused.is_ok() { search.add(judge(system, problem, &answer)) } else { ControlFlow::Break(()) }
    })?;
    refused.map(|()| search)
}

/// Returns an error for an answer without a sample, because the others have the same prompt.
fn check_accepted(answer: &Answer) -> Result<()> {
    match answer {
        Answer::Refused(why) => Err(anyhow!(why.clone()).context("the sampler refused the prompt")),
        _ => Ok(()),
    }
}

impl ProofSearch {
    /// Adds an attempt. The search ends with a proof.
    fn add(&mut self, attempt: JudgedAttempt) -> ControlFlow<()> {
        self.sampled += 1;
        let JudgedAttempt { judgement: Judgement { verdict, reason, .. }, defect, proof } = attempt;
        if verdict == Verdict::Proved {
            self.proof = proof;
            return ControlFlow::Break(());
        }
        let kind = defect.unwrap_or_else(|| kind_of(&reason));
        self.failures.entry((verdict, kind)).or_insert((0, reason)).0 += 1;
        ControlFlow::Continue(())
    }
}

/// Reduces a reason to its kind: `step 4, syl: hypothesis 2 does not unify: …` becomes
/// `hypothesis n does not unify`.
fn kind_of(reason: &str) -> String {
    let rest = match reason.strip_prefix("step ").and_then(|r| r.split_once(": ")) {
        Some((_, rest)) => rest,
        None => reason,
    };
    let head = rest.split(": ").next().unwrap_or(rest);
    let mut out = String::new();
    let mut in_number = false;
    for c in head.chars() {
        match (c.is_ascii_digit(), in_number) {
            (false, _) => out.push(c),
            (true, false) => out.push('n'),
            (true, true) => {}
        }
        in_number = c.is_ascii_digit();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_one_kind_are_one() {
        let a = kind_of("step 4, syl: hypothesis 2 does not unify: |- ph and |- ps");
        assert_eq!(a, "hypothesis n does not unify");
        assert_eq!(a, kind_of("step 11, mpd: hypothesis 13 does not unify: |- x"));
        assert_eq!(
            kind_of("the proof leaves 12 formulas on the stack, not one"),
            "the proof leaves n formulas on the stack, not one"
        );
        assert_eq!(
            kind_of("the proof proves another statement: |- ps"),
            "the proof proves another statement"
        );
    }
}
