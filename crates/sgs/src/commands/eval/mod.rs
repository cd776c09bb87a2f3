//! `sgs eval`: pass@k of a model on problems, and its quality in the other roles.

mod roles;

use crate::args::EvalArgs;
use crate::exit::{Outcome, usage};
use crate::model_source::{ModelSource, RoleModel, is_configuration};
use crate::output;
use crate::terminal::{Tone, bar_style, paint};
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use roles::{ConjecturerResult, GuideResult, guide_json, guide_text};
use serde_json::{Value, json};
use sgs_analysis::plot::percent;
use sgs_analysis::stats::{Interval, pass_at_k_interval};
use sgs_data::corpus;
use sgs_formal::FormalSystem;
use sgs_lm::Device;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm_sampler::{Decode, SamplerOptions};
use sgs_run::config::base_model::is_model;
use sgs_run::config::endpoint::EndpointConfig;
use sgs_run::config::system::{self, Opened};
use sgs_run::config::{BaseSource, SHIPPED, SystemName};
use sgs_run::served::client::ServedRoles;
use sgs_run::with_device;
use sgs_run::workers::attempts::{self, JudgedAttempt, ProblemAttempts};
use sgs_run::workers::sampling::{self, Answer, Ask};
use sgs_selfplay::config::SolverConfig;
use sgs_selfplay::{FailedProof, Problem, Role};
use std::collections::BTreeMap;
use std::sync::Arc;

const LEVEL: f64 = 0.95;

/// Returns the set of problems that the arguments name: by default, that of the run or of the formal system.
fn set_of<'a>(args: &'a EvalArgs, players: &'a ModelSource) -> &'a str {
    args.problems.as_deref().or(players.problems()).unwrap_or(match players.system() {
        SystemName::Metamath => "all",
        SystemName::Lean => "d3k",
        SystemName::External => "",
    })
}

/// Opens the formal system and the problems that the arguments name.
fn open(args: &EvalArgs, players: &ModelSource) -> Result<Opened> {
    let set = set_of(args, players);
    match players.system() {
        SystemName::Metamath => Ok(system::metamath(players.database(), set)?),
        SystemName::Lean => {
            let settings = crate::lean::settings_over(players.lean(), &args.play.lean)?;
            Ok(system::lean(&settings, system::lean_targets(set)?, set)?)
        }
        SystemName::External => {
            let config = players.config().context("an external system needs its run: give --run")?;
            let targets = system::external_targets(set)?;
            let system = Arc::new(system::external(config)?);
            Ok(Opened { system, targets, held_out: Vec::new(), notes: Vec::new() })
        }
    }
}

pub fn run(args: &EvalArgs) -> Result<Outcome> {
    let players = ModelSource::choose(&args.play)?;
    if let Some(reviews) = &args.reviews {
        // Reading the first row detects a file of another kind before a model is loaded.
        let first = corpus::read(reviews).and_then(|mut rows| rows.next().transpose());
        drop(first.map_err(usage)?);
    }
    if let (true, Some(reviews)) = (args.only_reviews, &args.reviews) {
        return roles::only_reviews(args, &players, reviews);
    }
    let endpoint = endpoint(args, &players);
    // Report wrong arguments and missing files before Lean starts.
    let name = match &endpoint {
        Some(endpoint) => {
            endpoint.settings()?;
            endpoint.url.clone()
        }
        None => players.solver()?.display().to_string(),
    };
    let Opened { system, targets, notes, .. } = open(args, &players)?;
    crate::lean::print_notes(&notes);
    let limit = args.limit.unwrap_or(usize::MAX);
    let problems: Vec<Arc<Problem>> = targets.into_iter().take(limit).map(Arc::new).collect();
    let examiner = Evaluator { args, players: &players, name: &name, system: &*system, problems: &problems };
    let done = match &endpoint {
        Some(endpoint) => examiner.ask(endpoint)?,
        None => with_device!(args.play.device, sgs_run::config::device::threads(), device => {
            examiner.examine(&device)?
        }),
    };
    match args.json {
        true => output::json(&as_json(args, &name, &done))?,
        false => {
            let is_run = args.problems.is_none() && players.problems().is_some();
            let whose = if is_run { " (the run's targets)" } else { "" };
            let model = players.described(&name);
            output::prose(as_text(args, &format!("`{}`{whose}", set_of(args, &players)), model, &done))?;
            if let Some(command) = for_base_model(args, &players) {
                output::line(format!("\nThe base model on these problems: {command}"))?;
            }
        }
    }
    let outcome = outcome_of(&done.solver);
    if outcome == Outcome::Failed {
        eprintln!("no sample could be judged: the rates are unknown");
    }
    Ok(outcome)
}

/// Returns a failure for an evaluation that measured nothing, as with a server that rejects every request.
fn outcome_of(solver: &SolverResult) -> Outcome {
    let is_nothing =
        !solver.problems.is_empty() && solver.problems.iter().all(|problem| problem.summary.judged == 0);
    if is_nothing { Outcome::Failed } else { Outcome::Done }
}

/// Returns the command that evaluates the base model of a run on the same problems.
fn for_base_model(args: &EvalArgs, players: &ModelSource) -> Option<String> {
    let base = match players.config()?.model.base_source() {
        BaseSource::Folder(folder) => folder.to_owned(),
        BaseSource::Shipped | BaseSource::Made(_) => args.play.run.as_ref()?.join("base"),
    };
    let is_base = args.play.run.as_deref().is_some_and(is_configuration);
    let is_other = is_base || players.system() != SystemName::Metamath || players.database() != SHIPPED;
    if args.server.config().is_some() || is_other || !is_model(&base) {
        return None;
    }
    let limit = args.limit.map_or_else(String::new, |limit| format!(" --limit {limit}"));
    Some(format!(
        "sgs eval --model {} --problems {} -k {}{limit}",
        base.display(),
        set_of(args, players),
        args.k
    ))
}

/// Returns the maximum length of a role's completions, in tokens: that of the user, or the default of the formal
/// system.
fn longest_of(args: &EvalArgs, players: &ModelSource, role: Role) -> usize {
    args.max_new_tokens.unwrap_or_else(|| match players.system() {
        SystemName::Metamath => 64,
        SystemName::Lean | SystemName::External => players.tokens(role),
    })
}

/// The option that limits the batch.
const BATCH: &str = "--batch";

fn options(args: &EvalArgs) -> SamplerOptions {
    sampling::options(args.batch, args.play.memory_mib)
}

/// Returns the endpoint that serves the Solver: that of the arguments, or that of the run.
fn endpoint(args: &EvalArgs, players: &ModelSource) -> Option<EndpointConfig> {
    match args.server.config() {
        None => players.served(Role::Solver),
        Some(server) => Some(EndpointConfig { roles: vec![Role::Solver], ..server }),
    }
}

/// The models, problems and arguments of an evaluation.
struct Evaluator<'a> {
    args: &'a EvalArgs,
    players: &'a ModelSource,
    /// The folder or address of the Solver.
    name: &'a str,
    system: &'a dyn FormalSystem,
    problems: &'a [Arc<Problem>],
}

struct EvalResults {
    solver: SolverResult,
    conjecturer: Option<ConjecturerResult>,
    guide: Option<GuideResult>,
}

struct SolverResult {
    problems: Vec<ProblemAttempts>,
    /// Verdicts and defects of the rollouts by name.
    outcomes: BTreeMap<String, u64>,
    /// Number of samples: the turns of all rollouts.
    generations: usize,
}

impl SolverResult {
    /// Returns the mean unbiased pass@k over the problems; `None` if a problem has fewer than `k` judged rollouts.
    fn pass_at(&self, k: u64) -> Option<f64> {
        let add = |sum, problem: &ProblemAttempts| Some(sum + problem.summary.pass_at(k)?);
        Some(self.problems.iter().try_fold(0.0, add)? / self.problems.len().max(1) as f64)
    }

    fn solved(&self) -> usize {
        self.problems.iter().filter(|problem| problem.summary.proved > 0).count()
    }
}

impl Evaluator<'_> {
    /// Prints the problems and models of the evaluation, after all checks that need no samples.
    fn announce(&self) {
        let Self { args, players, name, problems, .. } = *self;
        let (count, set) = (output::counted(problems.len(), "problem"), set_of(args, players));
        let (samples, model) = (output::counted(args.k as usize, "sample"), players.described(name));
        eprintln!("evaluating {count} of `{set}`, {samples} each, with {model}");
    }

    fn examine<D: Device + Decode>(&self, device: &Arc<D>) -> Result<EvalResults> {
        let Self { args, players, system, problems, .. } = *self;
        let most = longest_of(args, players, Role::Solver);
        let reviews = longest_of(args, players, Role::Guide);
        for (role, is_asked, longest) in [
            (Role::Solver, true, most),
            (Role::Conjecturer, args.roles, roles::CONJECTURE_TOKENS),
            (Role::Guide, args.reviews.is_some(), reviews),
        ] {
            if is_asked {
                players.check(role, &**device, longest, &options(args), BATCH)?;
            }
        }
        let solver = RoleModel::load(players, Role::Solver, device)?;
        let asks = self.asks(&solver.tokenizer)?;
        self.announce();
        let attempts = self.attempts(&solver.tokenizer, asks, |asks| {
            let bar = bar(asks.len() as u64);
            Ok(solver.sampler(most, options(args), BATCH)?.answers(asks, || bar.inc(1))?)
        })?;
        drop(solver);
        let conjecturer = args.roles.then(|| {
            roles::conjecture(args, system, &RoleModel::load(players, Role::Conjecturer, device)?, problems)
        });
        let read = |text: &str| system.read_review(text);
        let guide = args.reviews.as_deref().map(|path| roles::review(args, players, &read, path, device));
        let (conjecturer, guide) = (conjecturer.transpose()?, guide.transpose()?);
        Ok(EvalResults { solver: attempts, conjecturer, guide })
    }

    /// Evaluates a Solver that an endpoint serves.
    fn ask(&self, endpoint: &EndpointConfig) -> Result<EvalResults> {
        let (args, tokenizer) = (self.args, self.players.solver_tokenizer()?);
        let asks = self.asks(&tokenizer)?;
        let mut longest = asks.iter().map(|ask| ask.prompt.len()).max().unwrap_or_default();
        let new = longest_of(args, self.players, Role::Solver);
        if args.repair_turns > 0 {
            // Add the proof and the error, at one token for each character.
            longest += new + FailedProof::MAX_ERROR;
        }
        // Without a limit by the user, Lean completions may fill the window that the prompt leaves.
        let context = match (args.max_new_tokens, self.players.system()) {
            (None, SystemName::Lean) => new.max(longest + 1),
            _ => longest + new,
        };
        let probe: Arc<[u32]> = asks.first().map(|ask| Arc::clone(&ask.prompt)).unwrap_or_default();
        let served = match asks.is_empty() {
            true => None,
            false => {
                Some(ServedRoles::connect(endpoint, new, self.players.solver_tokenizer()?, &probe, context)?)
            }
        };
        self.announce();
        let solver = self.attempts(&tokenizer, asks, |asks| {
            let Some(served) = &served else { return Ok(Vec::new()) };
            let bar = bar(asks.len() as u64);
            Ok(served.answers(asks, new, || bar.inc(1))?)
        })?;
        Ok(EvalResults { solver, conjecturer: None, guide: None })
    }

    /// Samples and judges the rollouts that begin with `asks`, one turn of all rollouts after the other.
    fn attempts(
        &self,
        tokenizer: &Tokenizer,
        asks: Vec<Ask>,
        sample: impl Fn(&[Ask]) -> Result<Vec<Answer>>,
    ) -> Result<SolverResult> {
        let (args, problems, k) = (self.args, self.problems, self.args.k);
        let mut generations = asks.len();
        let mut attempts = self.judge(problems, k, &sample(&asks)?);
        let solver = SolverConfig { repair_turns: args.repair_turns, ..SolverConfig::default() };
        for turn in 1..=args.repair_turns {
            let asks = attempts::repair_asks(
                self.system,
                tokenizer,
                problems,
                &attempts,
                turn,
                &solver,
                args.play.seed,
            )?;
            let (positions, asks): (Vec<usize>, Vec<Ask>) = asks.into_iter().unzip();
            let of = |position: &usize| Arc::clone(&problems[position / k as usize]);
            let repaired: Vec<Arc<Problem>> = positions.iter().map(of).collect();
            generations += asks.len();
            let judged = self.judge(&repaired, 1, &sample(&asks)?);
            for (position, attempt) in positions.into_iter().zip(judged) {
                attempts[position] = attempt;
            }
        }
        let mut outcomes = BTreeMap::new();
        attempts.iter().for_each(|attempt| *outcomes.entry(attempt.name()).or_insert(0) += 1);
        Ok(SolverResult { problems: attempts::count(problems, k, &attempts), outcomes, generations })
    }

    /// Judges `k` answers for each of the problems, and warns of those that were not sampled.
    fn judge(&self, problems: &[Arc<Problem>], k: u32, answers: &[Answer]) -> Vec<JudgedAttempt> {
        let refused = || {
            answers.iter().filter_map(|answer| match answer {
                Answer::Refused(reason) => Some(reason),
                _ => None,
            })
        };
        if let Some(reason) = refused().next() {
            let warning = paint(Tone::Bad, "warning:");
            let (count, all) = (refused().count(), answers.len());
            eprintln!("{warning} {count} of {all} samples count as failures without being sampled: {reason}");
        }
        attempts::judge_all(self.system, problems, k, answers)
    }

    fn asks(&self, tokenizer: &Tokenizer) -> Result<Vec<Ask>> {
        let (k, seed) = (self.args.k, self.args.play.seed);
        let prompt = |problem: &Problem| self.system.solver_prompt(problem);
        Ok(attempts::proof_asks(prompt, tokenizer, self.problems, k, seed)?)
    }
}

/// Creates a progress bar over rollouts; hidden unless standard error is a terminal.
fn bar(attempts: u64) -> ProgressBar {
    ProgressBar::new(attempts).with_style(bar_style("{bar:32} {pos}/{len} samples  {per_sec}  {eta} left"))
}

/// Returns 1, 2, 4, … up to the number of rollouts.
fn powers(k: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1u32), |k| k.checked_mul(2)).take_while(move |power| *power <= k)
}

/// Returns the number of judged and of successful rollouts of each problem.
fn attempt_counts(solver: &SolverResult) -> Vec<(u32, u32)> {
    solver.problems.iter().map(|p| (p.summary.judged, p.summary.proved)).collect()
}

fn interval(solver: &SolverResult, k: u32, seed: u64) -> Option<Interval> {
    pass_at_k_interval(&attempt_counts(solver), k, LEVEL, seed)
}

fn as_text(args: &EvalArgs, set: &str, name: &str, done: &EvalResults) -> String {
    let solver = &done.solver;
    let (all, solved) = (solver.problems.len(), solver.solved());
    let turns = match args.repair_turns {
        0 => String::new(),
        _ => format!(" and their repairs, {} in all", solver.generations),
    };
    let [problems, samples] =
        [(all, "problem"), (args.k as usize, "sample")].map(|(n, noun)| output::counted(n, noun));
    let mut text = format!("{problems} of {set}, {samples} each{turns}, {name}\n");
    text.push_str(&format!("solved {solved} of {all}\n\n"));
    let rows: Vec<Vec<String>> = powers(args.k)
        .map(|k| {
            let name = format!("pass@{k}");
            match interval(solver, k, args.play.seed) {
                Some(i) => vec![name, percent(i.value), percent(i.low), percent(i.high)],
                None => vec![name, "-".to_owned(), "-".to_owned(), "-".to_owned()],
            }
        })
        .collect();
    text.push_str(&output::table(&["", "rate", "95% from", "to"], &rows));
    let mut outcomes: Vec<_> = solver.outcomes.iter().collect();
    outcomes.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let outcomes: Vec<Vec<String>> =
        outcomes.into_iter().map(|(name, n)| vec![name.clone(), n.to_string()]).collect();
    text.push_str(&format!("\n\n{}", output::table(&["verdict", "samples"], &outcomes)));
    if let Some(c) = &done.conjecturer {
        text.push_str(&format!(
            "\n\nConjecturer: {} of {} conjectures well-formed, {} of them new and distinct",
            c.well_formed, c.sampled, c.distinct
        ));
    }
    if let Some(g) = &done.guide {
        text.push_str(&format!("\n\n{}", guide_text(g)));
    }
    text
}

fn as_json(args: &EvalArgs, name: &str, done: &EvalResults) -> Value {
    let solver = &done.solver;
    let proofs = solver.problems.iter().filter_map(|p| {
        let rate = f64::from(p.summary.proved) / f64::from(p.summary.judged);
        Some(json!({ "id": p.problem.id, "rate": rate, "proof": p.summary.proof.as_ref()? }))
    });
    let mut out = json!({
        "model": name, "problems": solver.problems.len(), "k": args.k,
        "solved": solver.solved(), "generations": solver.generations,
        "outcomes": solver.outcomes, "proofs": proofs.collect::<Vec<_>>(), "intervals": {},
    });
    for k in powers(args.k) {
        let name = format!("pass@{k}");
        out["intervals"][&name] = json!(interval(solver, k, args.play.seed).map(|i| [i.low, i.high]));
        out[name] = json!(solver.pass_at(u64::from(k)));
    }
    if let Some(c) = &done.conjecturer {
        out["conjecturer"] = json!({
            "sampled": c.sampled, "well_formed": c.well_formed, "distinct": c.distinct, "defects": c.defects,
            "examples": c.examples,
        });
    }
    if let Some(g) = &done.guide {
        out["guide"] = guide_json(g);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_run::workers::attempts::AttemptSummary;

    #[test]
    fn an_evaluation_without_a_verdict_fails() {
        let with = |judged: &[u32]| {
            let problem = |&judged: &u32| {
                let [statement, context] = ["", ""].map(Into::into);
                let problem = Problem { id: sgs_selfplay::ProblemId::new("p"), statement, context };
                let summary = AttemptSummary { judged, ..AttemptSummary::default() };
                ProblemAttempts { problem: Arc::new(problem), summary }
            };
            let problems = judged.iter().map(problem).collect();
            SolverResult { problems, outcomes: BTreeMap::new(), generations: 0 }
        };
        assert_eq!(outcome_of(&with(&[0, 0])), Outcome::Failed);
        assert_eq!(outcome_of(&with(&[0, 1])), Outcome::Done);
        assert_eq!(outcome_of(&with(&[])), Outcome::Done);
    }
}
