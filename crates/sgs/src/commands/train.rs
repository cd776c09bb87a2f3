//! `sgs train --from RUN/rounds/0007`: a round's updates again, without sampling.

use crate::args::TrainArgs;
use crate::device::{self, with_device};
use crate::exit::{Outcome, Usage};
use crate::output;
use crate::run::config::RunConfig;
use crate::run::policies::{Policies, base_folder};
use crate::run::sampling::Completions;
use crate::run::update;
use anyhow::{Context, Result};
use sgs_lm::model::Mode;
use sgs_lm::sampler::Decode;
use sgs_lm::trainer::Trainer;
use sgs_rundir::rows::SampleKind;
use sgs_rundir::{PublishedRound, RunView};
use sgs_selfplay::training::Group;
use sgs_selfplay::{Example, Role, RoundOutcome, TaskKey, TaskKind};
use std::path::Path;
use std::sync::Arc;

/// Repeats the updates and prints what they did.
pub fn run(args: &TrainArgs) -> Result<Outcome> {
    let round = PublishedRound::at(&args.from)?;
    let folder =
        args.from.parent().and_then(Path::parent).with_context(|| {
            format!("{} is no round of a run: give RUN/rounds/NUMBER", args.from.display())
        })?;
    let view = RunView::open(folder)?;
    let mut table = view.config()?;
    table.remove("frozen");
    let config: RunConfig = table.try_into().context("config.toml of the run")?;
    let start = start_weights(&view, round.round(), args.weights.as_deref())?;
    let base = base_folder(&config, &folder.join("base"))?;
    let kind = device::kind(&config.model.device)?;
    with_device!(kind, super::pretrain::threads(), device => {
        repeat(args, &round, &view, &config, start.as_deref(), &base, device)
    })
}

fn repeat<D: Decode>(
    args: &TrainArgs,
    round: &PublishedRound,
    view: &RunView,
    config: &RunConfig,
    start: Option<&Path>,
    base: &Path,
    device: Arc<D>,
) -> Result<Outcome> {
    let mut policies = Policies::load(config, &device, base, start, round.round())?;
    let tokens = config.training.micro_batch_tokens.max(policies.config().max_positions);
    let mut trainer = Trainer::new(device, policies.config(), tokens, Mode::Train)?;
    let outcome = outcome_of(round)?;
    let completions = completions_of(round)?;
    eprintln!(
        "round {}: {} examples of the Solver, {} of the Conjecturer, from {}",
        round.round(),
        outcome.solver_examples.len(),
        outcome.conjecturer_examples.len(),
        start.map_or_else(|| "the base model".to_owned(), |p| p.display().to_string())
    );
    let report = update::update(config, view, &outcome, &completions, &mut policies, &mut trainer)?;
    output::json(&report)?;
    if let Some(out) = &args.out {
        policies.snapshot()?.save(out, &["tokenizer.json", "tokenizer_config.json"].map(|n| base.join(n)))?;
    }
    Ok(Outcome::Done)
}

/// The weights that the round was sampled with: those of the last checkpoint before it, or the base model.
fn start_weights(view: &RunView, round: u32, given: Option<&Path>) -> Result<Option<std::path::PathBuf>> {
    if let Some(given) = given {
        return Ok(Some(given.to_owned()));
    }
    if round == 0 {
        return Ok(None);
    }
    match view.checkpoints().get(round - 1) {
        Some(checkpoint) => Ok(Some(checkpoint.directory)),
        None => Err(Usage(format!(
            "the checkpoint of round {} is no longer kept: give --weights, or run with checkpoints.every=1",
            round - 1
        ))
        .into()),
    }
}

/// The examples of a published round, in their order.
fn outcome_of(round: &PublishedRound) -> Result<RoundOutcome> {
    let mut outcome: RoundOutcome = round.read_json("outcome.json")?;
    for row in round.examples()? {
        let row = row?;
        let kind = match row.kind {
            SampleKind::Rollout => TaskKind::Rollout,
            SampleKind::Conjecture => TaskKind::Conjecture,
        };
        let group = match (row.group, row.group_tokens) {
            (Some(number), Some(tokens)) => Some(Group { number, tokens }),
            _ => None,
        };
        let key = TaskKey { round: row.round, kind, problem: row.problem, index: row.index };
        let example = Example { key, weight: row.weight, generated_tokens: row.generated_tokens, group };
        match row.role {
            Role::Conjecturer => outcome.conjecturer_examples.push(example),
            _ => outcome.solver_examples.push(example),
        }
    }
    Ok(outcome)
}

fn completions_of(round: &PublishedRound) -> Result<Completions> {
    let number = round.round();
    let mut out = Completions::new();
    for row in round.rollouts()? {
        let (key, completion) = row?.into_completion(number);
        out.insert(key, completion);
    }
    for row in round.conjectures()? {
        let (key, completion) = row?.into_completion(number);
        out.insert(key, completion);
    }
    Ok(out)
}
