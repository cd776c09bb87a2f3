//! Samples and verifies proofs of one problem.

use crate::args::ProveArgs;
use anyhow::{Context, Result, bail};
use sgs_formal::FormalSystem;
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm_sampler::{
    Decode, Finish, Request, RequestId, SampledCompletion, Sampler, SamplerOptions, SamplingParams,
};
use sgs_run::workers::sampling;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{Problem, Role, Verdict};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The result of a search.
#[derive(Default)]
pub struct ProofSearch {
    /// Number of samples.
    pub sampled: u32,
    /// A valid proof, if one was found.
    pub proof: Option<String>,
    /// Failures by verdict and kind of reason, with their count and an example.
    pub failures: BTreeMap<(Verdict, String), (u32, String)>,
}

/// Samples proofs of a problem until one is valid or the budget is spent.
pub fn search<D: Device + Decode>(
    system: &dyn FormalSystem,
    problem: &Problem,
    tokenizer: &Tokenizer,
    model: &Model<D>,
    args: &ProveArgs,
) -> Result<ProofSearch> {
    let prompt = sampling::encode(tokenizer, &system.solver_prompt(problem))?;
    let unknown = tokenizer.special_tokens().unk.as_ref().and_then(|t| tokenizer.id_of(t));
    if unknown.is_some_and(|id| prompt.contains(&id)) {
        bail!(
            "the model's tokenizer has no token for some symbol of {}: it was made for another database",
            problem.statement
        );
    }
    let room = model.max_positions.saturating_sub(prompt.len());
    if room == 0 {
        bail!(
            "the statement has {} tokens, and the model's context window has {}: choose a shorter one",
            prompt.len(),
            model.max_positions
        );
    }
    let options = SamplerOptions {
        max_batch: args.samples.min(256) as usize,
        memory_budget_bytes: args.play.memory_mib.saturating_mul(1 << 20),
        ..SamplerOptions::default()
    };
    let mut sampler = Sampler::new(model, &options)?;
    let stop: Arc<[u32]> = tokenizer.eos().into();
    let requests: Vec<Request> = (0..args.samples)
        .map(|i| Request {
            id: RequestId(u64::from(i)),
            prompt: Arc::clone(&prompt),
            seed: task_seed(args.play.seed, 0, Role::Solver, &problem.id, i),
            max_new_tokens: args.max_new_tokens.clamp(1, room),
            params: SamplingParams { temperature: args.temperature, ..SamplingParams::default() },
            stop: Arc::clone(&stop),
        })
        .collect();
    if system.parallel_verifications() > 1 {
        return search_at_once(system, problem, tokenizer, model, &mut sampler, requests);
    }
    let mut search = ProofSearch::default();
    let mut failure = None;
    sampler.run(model, requests, |sampler, completion| {
        if search.proof.is_some() || failure.is_some() {
            return;
        }
        match verify(system, problem, tokenizer, &completion, &mut search) {
            Ok(false) => {}
            Ok(true) => sampler.cancel_all(),
            Err(error) => {
                failure = Some(error);
                sampler.cancel_all();
            }
        }
    })?;
    failure.map_or(Ok(search), Err)
}

/// Samples everything, then verifies everything, for a checker that takes many proofs at the same time.
fn search_at_once<D: Device + Decode>(
    system: &dyn FormalSystem,
    problem: &Problem,
    tokenizer: &Tokenizer,
    model: &Model<D>,
    sampler: &mut Sampler<D>,
    requests: Vec<Request>,
) -> Result<ProofSearch> {
    let mut completions = Vec::with_capacity(requests.len());
    sampler.run(model, requests, |_, completion| completions.push(completion))?;
    completions.sort_by_key(|c| c.id.0);
    let searches = sampling::in_parallel(system.parallel_verifications(), &completions, |completion| {
        let mut one = ProofSearch::default();
        verify(system, problem, tokenizer, completion, &mut one).map(|_| one)
    });
    let mut all = ProofSearch::default();
    for one in searches {
        let one = one?;
        all.sampled += 1;
        if one.proof.is_some() {
            all.proof = one.proof;
            return Ok(all);
        }
        for (kind, (n, reason)) in one.failures {
            all.failures.entry(kind).or_insert((0, reason)).0 += n;
        }
    }
    Ok(all)
}

/// Parses and verifies a completion; returns whether it is a proof.
fn verify(
    system: &dyn FormalSystem,
    problem: &Problem,
    tokenizer: &Tokenizer,
    completion: &SampledCompletion,
    search: &mut ProofSearch,
) -> Result<bool> {
    let mut fail = |verdict, kind: String, reason: String| {
        let entry = search.failures.entry((verdict, kind)).or_insert((0, reason));
        entry.0 += 1;
    };
    search.sampled += 1;
    match &completion.finish {
        Finish::Refused(refusal) => return Err(refusal.clone()).context("the sampler refused the prompt"),
        Finish::Length => {
            let reason = format!("not finished after {} tokens", completion.tokens.len());
            fail(Verdict::Malformed, "no end".to_owned(), reason);
            return Ok(false);
        }
        Finish::Stop | Finish::Cancelled => {}
    }
    let text = sampling::decode(tokenizer, completion)?;
    match system.read_proof(problem, &text) {
        Err(e) => fail(Verdict::Malformed, e.kind, e.detail),
        Ok(proof) => {
            let judgement = system.verify(problem, &proof);
            if judgement.verdict == Verdict::Proved {
                search.proof = Some(proof);
                return Ok(true);
            }
            fail(judgement.verdict, kind_of(&judgement.reason), judgement.reason);
        }
    }
    Ok(false)
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
