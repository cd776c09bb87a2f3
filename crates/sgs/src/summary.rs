//! The end of a run in a few lines: what was solved, the best of what was invented, where the time went, and what next.

use crate::pace;
use crate::shown::Shown;
use crate::theorems::{self, Theorem};
use anyhow::Result;
use sgs_analysis::run::{Display as _, EvaluationData, RunData, metric};
use sgs_analysis::stats::pass_at_k_interval;
use sgs_run::folder;
use sgs_rundir::RunView;
use sgs_rundir::metrics::names;
use sgs_rundir::rows::ProblemKind;
use sgs_selfplay::Method;
use std::sync::Arc;

/// Columns of the names at the left.
const NAME: usize = 12;

/// The lines for a run that has come to its end.
///
/// # Errors
/// A table of the run cannot be read.
pub fn lines(run: &RunData, view: &RunView, shown: &Shown) -> Result<Vec<String>> {
    let theorems = theorems::proved(view, &|proof| shown.steps(proof))?;
    let mut lines = Vec::new();
    let mut line = |name: &str, text: String| lines.push(format!("{name:<NAME$}{text}"));
    line("solved", solved(run));
    line("held out", held_out(run));
    if let Some(text) = alone(run) {
        line("against", text);
    }
    if let Some(best) = best(&theorems, shown) {
        line("best new", told(best, shown));
    }
    line("time", time(run));
    line("next", next(view)?);
    Ok(lines)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn solved(run: &RunData) -> String {
    let last = |name: &str| run.last(name).unwrap_or(0.0);
    let first = run.rounds.first().and_then(|round| RunData::value(round, metric::CUMULATIVE));
    let first = first.map_or_else(String::new, |share| format!(", {} after the first round", percent(share)));
    format!(
        "{} of {:.0} targets ever{first}; {} of the attempts in the last round",
        percent(last(metric::CUMULATIVE)),
        last(metric::TARGETS),
        percent(last(metric::TARGET_RATE))
    )
}

/// What the Solver proves of problems that it is not trained on, beside the base model.
fn held_out(run: &RunData) -> String {
    let (Some(base), Some(last)) = (run.held_out().next(), run.held_out().next_back()) else {
        return "none; every problem was trained on (evaluation.held_out names others)".to_owned();
    };
    let rate = |evaluation: &EvaluationData, k| {
        let rate = pass_at_k_interval(&evaluation.held_out, k, 0.95, k.into());
        rate.map_or_else(|| "-".to_owned(), |rate| percent(rate.value))
    };
    let k = last.samples();
    let mut text = format!("pass@1 {}, pass@{k} {}", rate(last, 1), rate(last, k));
    if last.after > 0 {
        text.push_str(&format!("; the base model {} and {}", rate(base, 1), rate(base, k)));
    }
    text + &format!(" ({} problems)", last.held_out.len())
}

/// What sampling alone would have solved with as many generations, where that can be estimated.
fn alone(run: &RunData) -> Option<String> {
    if run.method == Some(Method::SamplingOnly) {
        return None;
    }
    let (targets, alone) = run.sampling_alone()?;
    let estimate = alone.solved(run.last(metric::GENERATIONS)? / targets);
    Some(format!(
        "sampling alone would have solved about {} with as many generations (an estimate: {} to {})",
        percent(estimate.value),
        percent(estimate.low),
        percent(estimate.high)
    ))
}

/// What the Conjecturer invented and no database states, with the longest of the shortest proofs; of those of one length
/// the shortest statement.
fn best<'a>(theorems: &'a [Theorem], shown: &Shown) -> Option<&'a Theorem> {
    let targets: Vec<&Arc<str>> =
        theorems.iter().filter(|t| t.kind == ProblemKind::Target).map(|t| &t.problem.statement).collect();
    let is_new = |theorem: &&Theorem| {
        !shown.is_known(&theorem.problem) && !targets.contains(&&theorem.problem.statement)
    };
    let invented = theorems.iter().filter(|theorem| theorem.kind == ProblemKind::Conjecture).filter(is_new);
    invented.max_by_key(|theorem| {
        (theorem.steps, std::cmp::Reverse(theorem.problem.statement.split_whitespace().count()))
    })
}

fn told(theorem: &Theorem, shown: &Shown) -> String {
    let target = theorem.target.as_ref().map_or_else(String::new, |target| format!(" for {target}"));
    format!(
        "{}   invented{target}, proved in {} steps (round {})",
        shown.statement(&theorem.problem.statement),
        theorem.steps,
        theorem.round
    )
}

fn time(run: &RunData) -> String {
    let sum = |name: &str| run.by_round(name).iter().map(|point| point.1).sum::<f64>();
    let all = sum(names::TIME_ROUND);
    let evaluations: f64 = run.evaluations.iter().map(EvaluationData::seconds).sum();
    // Roles are sampled beside each other: their times share out what the sampling took.
    let roles = [names::TIME_ROLLOUTS, names::TIME_CONJECTURES, names::TIME_REVIEWS].map(sum);
    let share = sum(names::TIME_SAMPLING) / roles.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let stages = [
        ("rollouts", share * roles[0]),
        ("conjectures", share * roles[1]),
        ("reviews", share * roles[2]),
        ("updates", sum(names::TIME_UPDATE_SOLVER) + sum(names::TIME_UPDATE_CONJECTURER)),
    ];
    let mut text = format!("{} in {} rounds", pace::told(all), run.rounds.len());
    if evaluations > 0.0 {
        text.push_str(&format!(" and {} in evaluations", pace::told(evaluations)));
    }
    let known: f64 = stages.iter().map(|(_, seconds)| seconds).sum();
    if all > 0.0 && known > 0.0 {
        let shares = stages.iter().filter(|(_, seconds)| *seconds > 0.0);
        let shares = shares.map(|(name, seconds)| format!("{name} {:.0} %", 100.0 * seconds / all));
        let rest = format!("the rest {:.0} %", 100.0 * (all - known).max(0.0) / all);
        text.push_str(&format!(": {}", shares.chain([rest]).collect::<Vec<_>>().join(", ")));
    }
    text
}

fn next(view: &RunView) -> Result<String> {
    let (path, more) = (view.path().display(), folder::config_of(view)?.rounds.saturating_mul(2));
    Ok(format!("sgs prove --run {path}   (type a statement; further: sgs resume {path} --rounds {more})"))
}
