//! `sgs prove`: samples proofs of one statement and prints the first that holds.

use crate::args::ProveArgs;
use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::{Context, Result, bail};
use serde_json::json;
use sgs_formal::FormalSystem;
use sgs_lean::data::{self, Target};
use sgs_lean::text::canonical_statement;
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_lm::sampler::{Choice, Completion, Decode, Finish, Request, RequestId, Sampler, SamplerOptions};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use sgs_metamath::system::Metamath;
use sgs_run::base_model;
use sgs_run::config::SystemName;
use sgs_run::evaluate;
use sgs_run::system;
use sgs_run::with_device;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{Problem, ProblemId, Role, Verdict};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Samples until a proof holds or the samples are used up.
pub fn run(args: &ProveArgs) -> Result<Outcome> {
    if args.samples == 0 {
        return Err(Usage("--samples is 0: give at least 1".to_owned()).into());
    }
    if !(args.temperature >= 0.0 && args.temperature.is_finite()) {
        return Err(
            Usage(format!("--temperature is {}: give a number of at least 0", args.temperature)).into()
        );
    }
    // Before anything is started: a wrong statement is told at once.
    let (system, problem) = open(args)?;
    let system = &*system;
    let folder = base_model::folder_for(args.system, args.model.as_deref())?;
    let tokenizer = Tokenizer::load(&folder)?;
    let weights = HostWeights::load(&folder)?;
    tokenizer.check_model(&weights.config)?;
    let (search, seconds) = with_device!(args.device, 0, device => {
        let model = Model::new(device, weights, usize::MAX)?;
        let started = Instant::now();
        (search(system, &problem, &tokenizer, &model, args)?, started.elapsed().as_secs_f64())
    });
    if args.json {
        output::json(&as_json(&problem, &search, seconds))?;
    } else {
        print(system, &problem, &search, seconds)?;
    }
    Ok(if search.proof.is_some() { Outcome::Done } else { Outcome::Failed })
}

/// The formal system and the problem that the arguments name.
fn open(args: &ProveArgs) -> Result<(Arc<dyn FormalSystem>, Problem)> {
    match args.system {
        SystemName::Metamath => {
            let system = Metamath::shipped()?;
            let problem = problem(&system, args)?;
            Ok((Arc::new(system), problem))
        }
        SystemName::Lean => {
            let target = lean_target(args)?;
            let opened = system::lean(&crate::lean::settings(&args.lean)?, vec![target], "the command line")?;
            crate::lean::say(&opened.notes);
            let problem = opened.targets.into_iter().next().context("no problem")?;
            Ok((opened.system, problem))
        }
    }
}

/// The Lean target that the arguments name: one of the sets that ship, or a statement of the user's.
fn lean_target(args: &ProveArgs) -> Result<Target> {
    if let Some(id) = &args.problem {
        let sets = data::core()?.into_iter().chain(data::d3k()?);
        let found = sets.into_iter().find(|t| t.problem.id.as_str() == id);
        return found.ok_or_else(|| Usage(format!("--problem: `{id}` is no target of core or d3k")).into());
    }
    let text = args.statement.as_deref().unwrap_or_default();
    let (statement, repair) = canonical_statement(text).map_err(|e| {
        Usage(format!(
            "this is no statement of Lean: {e}; it looks like \"theorem a (p : Prop) (h : p) : p\""
        ))
    })?;
    let problem = Problem {
        id: ProblemId::new("statement"),
        statement: statement.text.into(),
        context: args.context.as_deref().unwrap_or_default().into(),
    };
    Ok(Target {
        problem,
        repair,
        proof: None,
        informal: None,
        split: None,
        source: None,
        toolchain: None,
        expect: None,
    })
}

/// The problem of the embedded system that the arguments name.
fn problem(system: &Metamath, args: &ProveArgs) -> Result<Problem> {
    if let Some(id) = &args.problem {
        return system.problem(id).ok_or_else(|| {
            let near = near_labels(system, id);
            let near =
                if near.is_empty() { String::new() } else { format!("; near it: {}", near.join(", ")) };
            Usage(format!("--problem: `{id}` is no axiom or theorem of the slice{near}")).into()
        });
    }
    let Some(statement) = &args.statement else {
        return Err(Usage("give a statement, or --problem with a theorem's label".to_owned()).into());
    };
    let text = statement.trim();
    let text =
        if text.starts_with("|-") || text.starts_with('$') { text.to_owned() } else { format!("|- {text}") };
    let context = args.context.as_deref().unwrap_or("");
    system.problem_from_text("statement", &text, context).map_err(|e| {
        Usage(format!(
            "this is no statement of the slice: {e}; symbols are separated by spaces, as in \"|- ( ph -> ph )\""
        ))
        .into()
    })
}

/// A few labels that look like one that does not exist.
fn near_labels(system: &Metamath, wanted: &str) -> Vec<String> {
    let theory = system.theory();
    let labels = (0..theory.rules().len()).map(|i| theory.label(sgs_metamath::theory::RuleId(i as u32)));
    let mut scored: Vec<(usize, &str)> =
        labels.map(|l| (strsim::levenshtein(l, wanted), l)).filter(|(d, _)| *d <= 2).collect();
    scored.sort_unstable();
    scored.into_iter().take(4).map(|(_, l)| l.to_owned()).collect()
}

/// What came of the samples.
#[derive(Default)]
struct Search {
    sampled: u32,
    proof: Option<String>,
    /// Verdict and kind of reason, with their number and one reason in full.
    failures: BTreeMap<(Verdict, String), (u32, String)>,
}

fn search<D: Device + Decode>(
    system: &dyn FormalSystem,
    problem: &Problem,
    tokenizer: &Tokenizer,
    model: &Model<D>,
    args: &ProveArgs,
) -> Result<Search> {
    let prompt = evaluate::encode(tokenizer, &system.solver_prompt(problem))?;
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
            "the statement takes {} tokens, and the model's context holds {}: choose a shorter one",
            prompt.len(),
            model.max_positions
        );
    }
    let options = SamplerOptions {
        max_batch: args.samples.min(256) as usize,
        memory_budget_bytes: args.memory_mib.saturating_mul(1 << 20),
        ..SamplerOptions::default()
    };
    let mut sampler = Sampler::new(model, &options)?;
    let stop: Arc<[u32]> = tokenizer.eos().into();
    let requests: Vec<Request> = (0..args.samples)
        .map(|i| Request {
            id: RequestId(u64::from(i)),
            prompt: Arc::clone(&prompt),
            seed: task_seed(args.seed, 0, Role::Solver, &problem.id, i),
            max_new_tokens: args.max_new_tokens.clamp(1, room),
            choice: Choice { temperature: args.temperature, ..Choice::default() },
            stop: Arc::clone(&stop),
        })
        .collect();
    if system.parallel_checks() > 1 {
        return search_at_once(system, problem, tokenizer, model, &mut sampler, requests);
    }
    let mut search = Search::default();
    let mut failure = None;
    sampler.run(model, requests, |sampler, completion| {
        if search.proof.is_some() || failure.is_some() {
            return;
        }
        match judge(system, problem, tokenizer, &completion, &mut search) {
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

/// Samples everything, then checks everything: for a checker that takes many proofs at once.
fn search_at_once<D: Device + Decode>(
    system: &dyn FormalSystem,
    problem: &Problem,
    tokenizer: &Tokenizer,
    model: &Model<D>,
    sampler: &mut Sampler<D>,
    requests: Vec<Request>,
) -> Result<Search> {
    let mut completions = Vec::with_capacity(requests.len());
    sampler.run(model, requests, |_, completion| completions.push(completion))?;
    completions.sort_by_key(|c| c.id.0);
    let searches = evaluate::in_parallel(system.parallel_checks(), &completions, |completion| {
        let mut one = Search::default();
        judge(system, problem, tokenizer, completion, &mut one).map(|_| one)
    });
    let mut all = Search::default();
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

/// Checks a completion; whether it is a proof.
fn judge(
    system: &dyn FormalSystem,
    problem: &Problem,
    tokenizer: &Tokenizer,
    completion: &Completion,
    search: &mut Search,
) -> Result<bool> {
    let mut fail = |verdict, kind: String, reason: String| {
        let entry = search.failures.entry((verdict, kind)).or_insert((0, reason));
        entry.0 += 1;
    };
    search.sampled += 1;
    match &completion.finish {
        Finish::Refused(refusal) => return Err(refusal.clone()).context("the sampler refused the prompt"),
        Finish::Length => {
            let reason = format!("no end after {} tokens", completion.tokens.len());
            fail(Verdict::Malformed, "no end".to_owned(), reason);
            return Ok(false);
        }
        Finish::Stop | Finish::Cancelled => {}
    }
    let text = evaluate::decode(tokenizer, completion)?;
    match system.read_proof(problem, &text) {
        Err(e) => fail(Verdict::Malformed, e.kind, e.detail),
        Ok(proof) => {
            let judgement = system.check(problem, &proof);
            if judgement.verdict == Verdict::Proved {
                search.proof = Some(proof);
                return Ok(true);
            }
            fail(judgement.verdict, kind_of(&judgement.reason), judgement.reason);
        }
    }
    Ok(false)
}

/// What reasons of the same kind have in common: `step 4, syl: hypothesis 2 does not unify: …` becomes
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

fn print(system: &dyn FormalSystem, problem: &Problem, search: &Search, seconds: f64) -> Result<()> {
    let statement = system.display_statement(&problem.statement);
    if let Some(proof) = &search.proof {
        output::line(format!("{statement}\n"))?;
        output::line(system.display_proof(problem, proof).trim_end())?;
        return output::line(format!(
            "\nproved by sample {} in {seconds:.1} s; checked by {}\n{proof}",
            search.sampled,
            system.identity()
        ));
    }
    output::line(format!("no proof of {statement} in {} samples ({seconds:.1} s):", search.sampled))?;
    let mut rows: Vec<_> = search.failures.iter().collect();
    rows.sort_by_key(|(_, (n, _))| std::cmp::Reverse(*n));
    for ((verdict, kind), (n, reason)) in rows {
        let reason: String = reason.chars().take(160).collect();
        output::line(format!(
            "{n:>6}  {:<9}  {kind}\n                   such as: {reason}",
            verdict.as_str()
        ))?;
    }
    output::line("more --samples, another --seed, or a model trained longer may find one")
}

fn as_json(problem: &Problem, search: &Search, seconds: f64) -> serde_json::Value {
    let failures: Vec<_> = search
        .failures
        .iter()
        .map(|((verdict, kind), (n, reason))| {
            json!({ "verdict": verdict, "kind": kind, "count": n, "example": reason })
        })
        .collect();
    json!({
        "problem": problem, "proof": search.proof, "samples": search.sampled, "seconds": seconds,
        "failures": failures,
    })
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
