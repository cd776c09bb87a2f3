//! `sgs eval`: pass@k of a model on problems, and its quality in the other roles.

use crate::args::EvalArgs;
use crate::exit::Outcome;
use crate::model_source::ModelSource;
use crate::output;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sgs_analysis::stats::{
    Interval, SamplingBaseline, area_under_curve, pass_at_k_interval, rank_correlation,
};
use sgs_data::corpus::CorpusRow;
use sgs_data::metamath::guide::Relation;
use sgs_formal::{FormalSystem, Prompt};
use sgs_lm::Device;
use sgs_lm::model::Model;
use sgs_lm::tokenizer::Tokenizer;
use sgs_lm_sampler::{Decode, SamplerOptions};
use sgs_metamath::system::Metamath;
use sgs_run::config::SystemName;
use sgs_run::config::endpoint::EndpointConfig;
use sgs_run::config::system::{self, Opened};
use sgs_run::round::evaluate::{self, ConjecturerResult, GuideResult, KnownReview, ReadReview, SolverResult};
use sgs_run::served::client::ServedRoles;
use sgs_run::with_device;
use sgs_run::workers::sampling::{self, Ask};
use sgs_rundir::table::read_rows;
use sgs_selfplay::{Problem, Role};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Confidence level of the intervals.
const LEVEL: f64 = 0.95;

/// Opens the formal system and the problems that the arguments name.
fn open(args: &EvalArgs, players: &ModelSource) -> Result<Opened> {
    let set = args.problems.as_deref().or(players.problems());
    match players.system() {
        SystemName::Metamath => Ok(system::metamath(set.unwrap_or("all"))?),
        SystemName::Lean => {
            let set = set.unwrap_or("d3k");
            let settings = crate::lean::settings_over(players.lean(), &args.play.lean)?;
            Ok(system::lean(&settings, system::lean_targets(set)?, set)?)
        }
    }
}

/// Evaluates a model.
pub fn run(args: &EvalArgs) -> Result<Outcome> {
    let players = ModelSource::choose(&args.play)?;
    if let (true, Some(reviews)) = (args.only_reviews, &args.reviews) {
        return only_reviews(args, &players, reviews);
    }
    let endpoint = endpoint(args, &players);
    // Report missing files before Lean starts.
    let name = match &endpoint {
        Some(endpoint) => endpoint.url.clone(),
        None => players.solver()?.display().to_string(),
    };
    let Opened { system, targets: mut problems, notes, .. } = open(args, &players)?;
    crate::lean::print_notes(&notes);
    problems.truncate(args.limit.unwrap_or(usize::MAX));
    let examiner = Evaluator { args, players: &players, system: &*system, problems: &problems };
    let done = match &endpoint {
        Some(endpoint) => examiner.ask(endpoint)?,
        None => with_device!(args.play.device, sgs_run::config::device::threads(), device => {
            examiner.examine(&device)?
        }),
    };
    match args.json {
        true => output::json(&as_json(args, &name, &done))?,
        false => output::line(as_text(args, &name, &done))?,
    }
    let outcome = outcome_of(&done.solver);
    if outcome == Outcome::Failed {
        eprintln!("no sample could be judged: the rates are unknown");
    }
    Ok(outcome)
}

/// Fails an evaluation that measured nothing, as with a server that rejects every request.
fn outcome_of(solver: &SolverResult) -> Outcome {
    let is_nothing = !solver.problems.is_empty() && solver.problems.iter().all(|problem| problem.judged == 0);
    if is_nothing { Outcome::Failed } else { Outcome::Done }
}

/// Evaluates only the Guide.
fn only_reviews(args: &EvalArgs, players: &ModelSource, reviews: &Path) -> Result<Outcome> {
    let metamath = match players.system() {
        SystemName::Metamath => Some(Metamath::shipped()?),
        SystemName::Lean => None,
    };
    let read = |text: &str| match &metamath {
        Some(system) => system.read_review(text),
        None => sgs_lean::read::read_review(text),
    };
    let guide = with_device!(args.play.device, sgs_run::config::device::threads(), device => {
        review(args, players, &read, reviews, &device)?
    });
    match args.json {
        true => output::json(&json!({ "guide": guide_json(&guide) }))?,
        false => output::line(guide_text(&guide))?,
    }
    Ok(Outcome::Done)
}

/// Samples the Guide's reviews of the rows of a corpus.
fn review<D: Device + Decode>(
    args: &EvalArgs,
    players: &ModelSource,
    read: &ReadReview<'_>,
    reviews: &Path,
    device: &Arc<D>,
) -> Result<GuideResult> {
    let cases = known_reviews(players.system(), read, reviews, args.limit.unwrap_or(2_000))?;
    let (tokenizer, weights) = players.load(Role::Guide)?;
    let model = Model::new(Arc::clone(device), weights, players.positions())?;
    let most = longest_of(args, players, Role::Guide);
    Ok(evaluate::review(read, &model, &tokenizer, &cases, args.play.seed, most, &sampler(args))?)
}

/// Returns the maximum length of a role's completions, in tokens: the user's, or the default of the formal system.
fn longest_of(args: &EvalArgs, players: &ModelSource, role: Role) -> usize {
    args.max_new_tokens.unwrap_or_else(|| match players.system() {
        SystemName::Metamath => 64,
        SystemName::Lean => players.tokens(role),
    })
}

fn sampler(args: &EvalArgs) -> SamplerOptions {
    SamplerOptions {
        max_batch: args.batch,
        memory_budget_bytes: args.play.memory_mib.saturating_mul(1 << 20),
        ..SamplerOptions::default()
    }
}

/// Returns the endpoint that serves the Solver: the arguments', or the run's.
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
    system: &'a dyn FormalSystem,
    problems: &'a [Problem],
}

/// The results of an evaluation, by role.
struct EvalResults {
    solver: SolverResult,
    conjecturer: Option<ConjecturerResult>,
    guide: Option<GuideResult>,
}

impl Evaluator<'_> {
    fn examine<D: Device + Decode>(&self, device: &Arc<D>) -> Result<EvalResults> {
        let args = self.args;
        let options = sampler(args);
        let (tokenizer, model) = self.load(Role::Solver, device)?;
        let (asks, bar) = self.asks(&tokenizer)?;
        let most = longest_of(args, self.players, Role::Solver);
        let answers = sampling::answers(&model, &tokenizer, &asks, most, &options, || bar.inc(1))?;
        bar.finish_and_clear();
        drop(model);
        let solver = evaluate::verify_all(self.system, self.problems, args.k, answers)?;
        let conjecturer = args.roles.then(|| -> Result<_> {
            let (tokenizer, model) = self.load(Role::Conjecturer, device)?;
            Ok(evaluate::conjecture(
                self.system,
                &model,
                &tokenizer,
                self.problems,
                args.play.seed,
                200,
                &options,
            )?)
        });
        let read = |text: &str| self.system.read_review(text);
        let guide = args.reviews.as_deref().map(|path| review(args, self.players, &read, path, device));
        Ok(EvalResults { solver, conjecturer: conjecturer.transpose()?, guide: guide.transpose()? })
    }

    /// Evaluates a Solver that an endpoint serves.
    fn ask(&self, endpoint: &EndpointConfig) -> Result<EvalResults> {
        let (args, tokenizer) = (self.args, self.players.solver_tokenizer()?);
        let (asks, bar) = self.asks(&tokenizer)?;
        let longest = asks.iter().map(|ask| ask.prompt.len()).max().unwrap_or_default();
        let mut answers = Vec::new();
        if let Some(probe) = asks.first() {
            let new = longest_of(args, self.players, Role::Solver);
            // Without a limit by the user, Lean completions may fill the window that the prompt leaves.
            let context = match (args.max_new_tokens, self.players.system()) {
                (None, SystemName::Lean) => new.max(longest + 1),
                _ => longest + new,
            };
            let served = ServedRoles::connect(endpoint, new, tokenizer, &probe.prompt, context)?;
            answers = served.answers(&asks, new, || bar.inc(1))?;
        }
        bar.finish_and_clear();
        let solver = evaluate::verify_all(self.system, self.problems, args.k, answers)?;
        Ok(EvalResults { solver, conjecturer: None, guide: None })
    }

    fn asks(&self, tokenizer: &Tokenizer) -> Result<(Vec<Ask>, ProgressBar)> {
        let (k, seed) = (self.args.k, self.args.play.seed);
        let prompt = |problem: &Problem| self.system.solver_prompt(problem);
        let asks = evaluate::proof_asks(prompt, tokenizer, self.problems, k, seed)?;
        let bar = bar(asks.len() as u64);
        Ok((asks, bar))
    }

    fn load<D: Device>(&self, role: Role, device: &Arc<D>) -> Result<(Tokenizer, Model<D>)> {
        let (tokenizer, weights) = self.players.load(role)?;
        Ok((tokenizer, Model::new(Arc::clone(device), weights, self.players.positions())?))
    }
}

/// Creates a progress bar over attempts; hidden unless standard error is a terminal.
fn bar(attempts: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} samples  {per_sec}  {eta} left");
    ProgressBar::new(attempts).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Returns 1, 2, 4, … up to the number of attempts.
fn powers(k: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1u32), |k| k.checked_mul(2)).take_while(move |power| *power <= k)
}

/// Returns the number of judged and of successful attempts of each problem.
fn attempt_counts(solver: &SolverResult) -> Vec<(u32, u32)> {
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    solver.problems.iter().map(|p| (count(p.judged), count(p.proved))).collect()
}

fn interval(solver: &SolverResult, k: u32, seed: u64) -> Option<Interval> {
    pass_at_k_interval(&attempt_counts(solver), k, LEVEL, seed)
}

/// Estimates the number of problems that a larger number of samples would solve; empty if no or every problem was proved.
fn extrapolate(args: &EvalArgs, solver: &SolverResult) -> Vec<(u64, Interval)> {
    let all = solver.problems.len() as f64;
    let Some(alone) = SamplingBaseline::of(&attempt_counts(solver)).filter(|_| !args.foretell.is_empty())
    else {
        return Vec::new();
    };
    args.foretell.iter().map(|samples| (*samples, alone.solved(*samples as f64 / all))).collect()
}

fn as_text(args: &EvalArgs, name: &str, done: &EvalResults) -> String {
    let solver = &done.solver;
    let (all, solved) = (solver.problems.len(), solver.problems.iter().filter(|p| p.proved > 0).count());
    let mut text = format!("{all} problems, {} samples each, {name}\n", args.k);
    text.push_str(&format!("solved {solved} of {all}\n\n"));
    let percent = |x: f64| format!("{:.1}%", 100.0 * x);
    let rows: Vec<Vec<String>> = powers(args.k)
        .map(|k| {
            let name = format!("pass@{k}");
            match interval(solver, k, args.play.seed) {
                Some(i) => vec![name, percent(i.value), percent(i.low), percent(i.high)],
                None => vec![name, "-".to_owned(), "-".to_owned(), "-".to_owned()],
            }
        })
        .collect();
    text.push_str(&output::table(&["", "rate", "from", "to (95%)"], &rows));
    let estimates: Vec<Vec<String>> = extrapolate(args, solver)
        .into_iter()
        .map(|(samples, i)| vec![samples.to_string(), percent(i.value), percent(i.low), percent(i.high)])
        .collect();
    match (estimates.is_empty(), args.foretell.is_empty()) {
        (false, _) => {
            let columns = ["total samples", "solved (estimate)", "from", "to (95%)"];
            text.push_str(&format!("\n\n{}", output::table(&columns, &estimates)));
        }
        (true, false) => text.push_str("\n\nno estimate: no problem, or every problem, was proved"),
        (true, true) => {}
    }
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

fn guide_text(g: &GuideResult) -> String {
    let percent = |x: f64| format!("{:.1}%", 100.0 * x);
    let share = |n: u64| percent(n as f64 / g.well_formed.max(1) as f64);
    let [relevance, redundancy, complexity] = g.agree.map(share);
    let mut text = format!(
        "Guide: {} of {} reviews well-formed ({}); as known: relevance {relevance}, redundancy {redundancy}, \
         complexity {complexity}",
        g.well_formed,
        g.sampled,
        percent(g.well_formed as f64 / g.sampled.max(1) as f64)
    );
    for (defect, n) in &g.defects {
        text.push_str(&format!("\nmalformed: {n} {defect}"));
    }
    let (correlation, areas) = order(g);
    if let Some(correlation) = correlation {
        text.push_str(&format!("\nrank correlation of R_guide with the known score: {correlation:.2}"));
    }
    for (kind, area) in areas {
        text.push_str(&format!(
            "\nprobability that a useful conjecture scores above one that is {kind}: {}",
            percent(area)
        ));
    }
    text
}

fn guide_json(g: &GuideResult) -> Value {
    json!({
        "sampled": g.sampled, "well_formed": g.well_formed, "defects": g.defects, "relevance_agrees": g.agree[0],
        "redundancy_agrees": g.agree[1], "complexity_agrees": g.agree[2],
        "mean_relevance_error": g.relevance_error / g.well_formed.max(1) as f64,
        "rank_correlation": order(g).0, "area_over": order(g).1,
    })
}

fn as_json(args: &EvalArgs, name: &str, done: &EvalResults) -> Value {
    let solver = &done.solver;
    let proofs = solver.problems.iter().filter_map(|p| {
        let rate = p.proved as f64 / p.judged as f64;
        Some(json!({ "id": p.problem.id, "rate": rate, "proof": p.proof.as_ref()? }))
    });
    let mut out = json!({
        "model": name, "problems": solver.problems.len(), "k": args.k,
        "solved": solver.problems.iter().filter(|p| p.proved > 0).count(),
        "outcomes": solver.outcomes, "proofs": proofs.collect::<Vec<_>>(), "intervals": {},
    });
    for k in powers(args.k) {
        let name = format!("pass@{k}");
        out["intervals"][&name] = json!(interval(solver, k, args.play.seed).map(|i| [i.low, i.high]));
        out[name] = json!(solver.pass_at(u64::from(k)));
    }
    let estimates = extrapolate(args, solver);
    if !estimates.is_empty() {
        let one = |(samples, i): &(u64, Interval)| json!({ "samples": samples, "solved": i.value, "interval": [i.low, i.high] });
        out["foretold"] = estimates.iter().map(one).collect();
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

/// Returns the rank correlation of the scores with the known ones, and for each kind of useless conjecture the area under
/// the ROC curve against useful ones.
fn order(guide: &GuideResult) -> (Option<f64>, BTreeMap<&str, f64>) {
    let pairs: Vec<(f64, f64)> = guide.scores.iter().map(|(_, known, found)| (*known, *found)).collect();
    let helps = |kind: &str| USELESS_KINDS.iter().all(|useless| useless.as_str() != kind);
    let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<f64> {
        guide.scores.iter().filter(|(kind, ..)| wanted(kind)).map(|(.., found)| *found).collect()
    };
    let helpful = of(&helps);
    let area = |kind: &Relation| {
        Some((kind.as_str(), area_under_curve(&helpful, &of(&|k: &str| k == kind.as_str()))?))
    };
    (rank_correlation(&pairs), USELESS_KINDS.iter().filter_map(area).collect())
}

/// The kinds of conjectures that do not help their target.
const USELESS_KINDS: [Relation; 3] = [Relation::Known, Relation::OneStep, Relation::Duplicate];

/// Returns every n-th row of a Guide corpus as a prompt with its known scores.
fn known_reviews(
    system: SystemName,
    read: &ReadReview<'_>,
    path: &Path,
    count: usize,
) -> Result<Vec<KnownReview>> {
    let rows: Vec<CorpusRow> = read_rows(path)?;
    let every = (rows.len() / count.max(1)).max(1);
    let mut cases = Vec::new();
    for row in rows.into_iter().step_by(every) {
        let text = row.completion.trim_end_matches(sgs_metamath::tokens::END).trim();
        let review = read(text).map_err(|e| anyhow::anyhow!("{}: {}: {e}", path.display(), row.source))?;
        let prompt = match system {
            SystemName::Metamath => Prompt::Raw(row.prompt),
            SystemName::Lean => Prompt::Chat(row.prompt),
        };
        cases.push(KnownReview { prompt, review, kind: row.kind });
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_run::round::evaluate::ProblemResult;

    #[test]
    fn an_evaluation_without_a_verdict_fails() {
        let with = |judged: &[u64]| {
            let problem = |&judged: &u64| {
                let [statement, context] = ["", ""].map(Into::into);
                let problem = Problem { id: sgs_selfplay::ProblemId::new("p"), statement, context };
                ProblemResult { problem, judged, proved: 0, proof: None }
            };
            SolverResult { problems: judged.iter().map(problem).collect(), ..SolverResult::default() }
        };
        assert_eq!(outcome_of(&with(&[0, 0])), Outcome::Failed);
        assert_eq!(outcome_of(&with(&[0, 1])), Outcome::Done);
        assert_eq!(outcome_of(&with(&[])), Outcome::Done);
    }
}
