//! `sgs train --from RUN/rounds/0007`: replays a round's updates without sampling.

use crate::args::TrainArgs;
use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::{Context, Result, bail};
use sgs_data::base::made::base_folder;
use sgs_formal::scratch::private_folder;
use sgs_lm::Device;
use sgs_lm::ranks::Parallel;
use sgs_lm::trainer::Trainer;
use sgs_run::config::RunConfig;
use sgs_run::config::device;
use sgs_run::config::device::threads;
use sgs_run::train::launcher::{self, RankEnv, gpu_of};
use sgs_run::train::policies::PolicySet;
use sgs_run::train::ranks::distributed_trainer::DistributedTrainer;
use sgs_run::train::update;
use sgs_run::train::update::Completions;
use sgs_run::with_device;
use sgs_rundir::rows::SampleKind;
use sgs_rundir::{PublishedRound, RunView};
use sgs_selfplay::training::Group;
use sgs_selfplay::{Example, Role, RoundOutcome, TaskKey, TaskKind};
use std::path::Path;
use std::sync::Arc;

/// Replays the updates and prints their report.
pub fn run(args: &TrainArgs) -> Result<Outcome> {
    if args.from.join("config.toml").is_file() {
        let run = args.from.display();
        return Err(Usage(format!("{run} is a run, not a round: pass {run}/rounds/NNNN")).into());
    }
    let round = PublishedRound::at(&args.from)?;
    let folder =
        args.from.parent().and_then(Path::parent).with_context(|| {
            format!("{} is not a round of a run: pass RUN/rounds/NNNN", args.from.display())
        })?;
    let view = RunView::open(folder)?;
    let mut table = view.config()?;
    table.remove("frozen");
    let config: RunConfig = table.try_into().context("config.toml of the run")?;
    let start = start_weights(&view, round.round(), args.weights.as_deref())?;
    let base = base_folder(&config, &folder.join("base"))?;
    let scratch = args.out.is_none().then(|| private_folder(None, "sgs-train-")).transpose()?;
    let logs = args.out.as_deref().or(scratch.as_ref().map(|scratch| scratch.path())).unwrap_or(folder);
    let mode = launcher::launch_mode(&args.ranks.rank_options(), args.token_file.as_deref(), logs);
    if let (Err(_), Some(scratch)) = (&mode, scratch) {
        // The error names the logs.
        let _ = scratch.keep();
    }
    let seat = match mode? {
        launcher::LaunchMode::Launched(outcome) => return Ok(outcome),
        launcher::LaunchMode::Single => None,
        launcher::LaunchMode::Rank(seat) => Some(seat),
    };
    let kind = device::kind(&config.model.device)?;
    let threads = seat.as_ref().map_or(threads(), |seat| seat.threads(threads()));
    let job =
        ReplayedUpdate { round: &round, view: &view, config: &config, start: start.as_deref(), base: &base };
    with_device!(kind, threads, gpu_of(kind, seat.as_ref())?, device => job.start(args, seat.as_ref(), device))
}

/// The update to replay.
struct ReplayedUpdate<'a> {
    round: &'a PublishedRound,
    view: &'a RunView,
    config: &'a RunConfig,
    start: Option<&'a Path>,
    base: &'a Path,
}

impl ReplayedUpdate<'_> {
    /// Joins the other ranks, if there are any, and replays the updates. If this rank fails, it notifies the others.
    fn start<D: Parallel>(
        &self,
        args: &TrainArgs,
        seat: Option<&RankEnv>,
        device: Arc<D>,
    ) -> Result<Outcome> {
        let job = format!("{:?}\n{:?}\n{:?}", args.from, self.start, args.out);
        let meeting = seat.map(|seat| seat.meet(&job, launcher::UNWIND)).transpose()?;
        let place = meeting.as_ref().map_or((0, 1), |m| (m.rank(), m.ranks()));
        let number = self.round.round();
        let loaded = PolicySet::load(self.config, &device, self.base, self.start, number, place);
        let mut policies = match (loaded, &meeting) {
            (Err(error), Some(meeting)) => {
                meeting.fail(&format!("{error:#}"));
                return Err(error.into());
            }
            (loaded, _) => loaded?,
        };
        let peers = meeting.map(|meeting| D::connect(&device, meeting)).transpose()?;
        let tokens = self.config.training_tokens(policies.config());
        let trainer =
            Trainer::with_peers(device, policies.config(), tokens, self.config.training.mode(), peers)?;
        // Every rank reads the round itself, so no rank needs instructions.
        let mut team = DistributedTrainer::new(trainer);
        let done = self.repeat(args.out.as_deref(), &mut policies, &mut team);
        team.end(done)
    }

    fn repeat<D: Device>(
        &self,
        out: Option<&Path>,
        policies: &mut PolicySet<D>,
        team: &mut DistributedTrainer<D>,
    ) -> Result<Outcome> {
        let outcome = outcome_of(self.round)?;
        let completions = completions_of(self.round)?;
        let (rank, _) = team.trainer().rank_and_size();
        if rank == 0 {
            eprintln!(
                "round {}: {} examples of the Solver, {} of the Conjecturer, from {}",
                self.round.round(),
                outcome.solver_examples.len(),
                outcome.conjecturer_examples.len(),
                self.start.map_or_else(|| "the base model".to_owned(), |p| p.display().to_string())
            );
        }
        let report = update::update(self.config, self.view, &outcome, &completions, policies, team)?;
        if rank == 0 {
            output::json(&report)?;
        }
        let Some(out) = out else { return Ok(Outcome::Done) };
        let companions = ["tokenizer.json", "tokenizer_config.json"].map(|n| self.base.join(n));
        policies.trained.save(out, &companions, team.trainer().group())?;
        Ok(Outcome::Done)
    }
}

/// Returns the checkpoint that the round was sampled with; `None` for the base model.
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
            "the checkpoint of round {} was deleted: pass --weights, or run with checkpoints.every=1",
            round - 1
        ))
        .into()),
    }
}

/// Reads the examples of a published round, in order.
fn outcome_of(round: &PublishedRound) -> Result<RoundOutcome> {
    let mut outcome: RoundOutcome = round.read_json("outcome.json")?;
    for row in round.examples()? {
        let row = row?;
        let kind = match row.kind {
            SampleKind::Rollout => TaskKind::Rollout,
            SampleKind::Conjecture => TaskKind::Conjecture,
        };
        let key = TaskKey { round: row.round, kind, problem: row.problem, index: row.index };
        let group = match (row.group, row.group_tokens) {
            (Some(number), Some(tokens)) => Some(Group { number, tokens }),
            (None, None) => None,
            _ => bail!("{}: the example {key} has half of a group", round.directory().display()),
        };
        let example = Example { key, weight: row.weight, generated_tokens: row.generated_tokens, group };
        match row.role {
            Role::Conjecturer => outcome.conjecturer_examples.push(example),
            Role::Solver => outcome.solver_examples.push(example),
            Role::Guide => bail!("{}: an example trains the Guide", round.directory().display()),
        }
    }
    Ok(outcome)
}

fn completions_of(round: &PublishedRound) -> Result<Completions> {
    let number = round.round();
    let mut out = Completions::new();
    for row in round.rollouts()? {
        out.extend(row?.into_completion(number));
    }
    for row in round.conjectures()? {
        out.extend(row?.into_completion(number));
    }
    Ok(out)
}
