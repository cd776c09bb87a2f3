//! `sgs eval`: pass@k of a model on problems, and how well it plays the other roles.

use crate::args::EvalArgs;
use crate::corpus::CorpusRow;
use crate::exit::Outcome;
use crate::output;
use anyhow::Result;
use serde_json::json;
use sgs_formal::{FormalSystem, Prompt};
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_lm::sampler::{Decode, SamplerOptions};
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm::weights::HostWeights;
use sgs_run::config::SystemName;
use sgs_run::evaluate;
use sgs_run::system::{self, Opened};
use sgs_run::with_device;
use sgs_rundir::table::read_rows;
use sgs_selfplay::{Problem, Review};
use std::path::Path;

/// The formal system and the problems that the arguments name.
fn open(args: &EvalArgs) -> Result<Opened> {
    match args.system {
        SystemName::Metamath => system::metamath(args.problems.as_deref().unwrap_or("all")),
        SystemName::Lean => {
            let set = args.problems.as_deref().unwrap_or("d3k");
            let settings = crate::lean::settings(&args.lean)?;
            system::lean(&settings, system::lean_targets(set)?, set)
        }
    }
}

/// Evaluates a model.
pub fn run(args: &EvalArgs) -> Result<Outcome> {
    let Opened { system, targets: mut problems, notes } = open(args)?;
    crate::lean::say(&notes);
    let folder = sgs_run::base_model::folder_for(args.system, args.model.as_deref())?;
    let tokenizer = Tokenizer::load(&folder)?;
    let weights = HostWeights::load(&folder)?;
    tokenizer.check_model(&weights.config)?;
    problems.truncate(args.limit.unwrap_or(usize::MAX));
    with_device!(args.device, sgs_run::device::threads(), device => {
        evaluate_on(args, &*system, &problems, &tokenizer, Model::new(device, weights, usize::MAX)?)
    })
}

fn evaluate_on<D: Device + Decode>(
    args: &EvalArgs,
    system: &dyn FormalSystem,
    problems: &[Problem],
    tokenizer: &Tokenizer,
    model: Model<D>,
) -> Result<Outcome> {
    let options = SamplerOptions {
        max_batch: args.batch,
        memory_budget_bytes: args.memory_mib.saturating_mul(1 << 20),
        ..SamplerOptions::default()
    };
    let solved = evaluate::solve(
        system,
        &model,
        tokenizer,
        problems,
        args.k,
        args.seed,
        args.max_new_tokens,
        &options,
        || (),
    )?;
    let mut out = json!({
        "problems": problems.len(), "k": args.k,
        "solved": solved.problems.iter().filter(|p| p.proved > 0).count(),
        "outcomes": solved.outcomes,
        "proofs": solved.problems.iter().filter_map(|p| {
            Some(json!({ "id": p.problem.id, "rate": p.proved as f64 / p.judged as f64, "proof": p.proof.as_ref()? }))
        }).collect::<Vec<_>>(),
    });
    let mut k = 1;
    while k <= u64::from(args.k) {
        out[format!("pass@{k}")] = json!(solved.pass_at(k));
        k *= 2;
    }
    if args.roles {
        let c = evaluate::conjecture(system, &model, tokenizer, problems, args.seed, 200, &options)?;
        out["conjecturer"] = json!({
            "sampled": c.sampled, "well_formed": c.well_formed, "distinct": c.distinct, "defects": c.defects,
            "examples": c.examples,
        });
    }
    if let Some(reviews) = &args.reviews {
        let cases = known_reviews(system, reviews, args.limit.unwrap_or(2_000))?;
        let g = evaluate::review(system, &model, tokenizer, &cases, args.seed, &options)?;
        out["guide"] = json!({
            "sampled": g.sampled, "well_formed": g.well_formed, "relevance_agrees": g.agree[0],
            "redundancy_agrees": g.agree[1], "complexity_agrees": g.agree[2],
            "mean_relevance_error": g.relevance_error / g.well_formed.max(1) as f64,
        });
    }
    output::json(&out)?;
    Ok(Outcome::Done)
}

/// Every so many-th row of a Guide corpus, as a prompt with its known scores.
fn known_reviews(system: &dyn FormalSystem, path: &Path, count: usize) -> Result<Vec<(Prompt, Review)>> {
    let rows: Vec<CorpusRow> = read_rows(path)?;
    let every = (rows.len() / count.max(1)).max(1);
    let mut cases = Vec::new();
    for row in rows.into_iter().step_by(every) {
        let text = row.completion.trim_end_matches(sgs_metamath::tokens::END).trim();
        let review = system.read_review(text).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
        cases.push((Prompt::Raw(row.prompt), review));
    }
    Ok(cases)
}
