//! The figures of the paper, from runs.
//!
//! Each function returns `None` where the runs lack what the figure shows.

mod curves;
mod dataset;
mod dynamics;
mod fits;
mod held_out;
mod inventions;
mod proximity;
mod seeds;

pub use curves::Yardstick;
pub(crate) use curves::{NOT_YET, describe, rate_by_time};
pub use dataset::problem_types;
pub use proximity::{Proximity, proximity};
pub(crate) use seeds::{Group, groups, repeats};

use crate::fit::{Examined, Fit, FitError, FitOptions, HALVES, HALVES_SEED, HalvesFit, TailFit, examine};
use crate::plot::{Figure, Ink};
use crate::run::{RunData, method_label};
use sgs_selfplay::Method;
use std::collections::BTreeSet;

/// A run with its fit and the colour in which it is drawn everywhere.
pub struct Drawn<'a> {
    pub run: &'a RunData,
    /// Its name in legends.
    pub label: String,
    /// Runs of one number differ in their seeds alone: they share a colour and are drawn as one.
    pub group: usize,
    pub ink: Ink,
    /// Its scaling law, or why there is none.
    pub fit: Result<Fit, FitError>,
    /// The fits that the law was held against: without the last points, and on random halves.
    pub against: Option<(Vec<TailFit>, HalvesFit)>,
}

/// What figures need besides runs.
#[derive(Clone, Debug, Default)]
pub struct FigureOptions {
    /// How curves are fitted.
    pub fit: FitOptions,
    /// Horizontal lines from elsewhere.
    pub yardsticks: Vec<Yardstick>,
    /// Which run, counted from 0, is the baseline whose unsolved targets make D_hard; if absent, REINFORCE-1/2 with all
    /// its seeds, else another method that trains on targets alone.
    pub baseline: Option<usize>,
}

/// Fits every run, and gives each its group and its colour.
pub fn draw<'a>(runs: &'a [RunData], options: &FigureOptions) -> Vec<Drawn<'a>> {
    let (labels, groups) = (labels(runs), seeds::numbers(runs));
    let inks = seeds::inks(runs, &groups);
    runs.iter()
        .zip(labels)
        .zip(groups.into_iter().zip(inks))
        .map(|((run, label), (group, ink))| {
            let (fit, against) = match examine(&run.curve(), &options.fit, HALVES, HALVES_SEED) {
                Ok(Examined { fit, tails, halves }) => (Ok(fit), halves.map(|halves| (tails, halves))),
                Err(error) => (Err(error), None),
            };
            Drawn { run, label, group, ink, fit, against }
        })
        .collect()
}

/// Names for legends: the methods' where they tell the runs apart, with the seeds where those do, else the runs' own;
/// where several still share one, numbered.
fn labels(runs: &[RunData]) -> Vec<String> {
    let by_method: Option<Vec<String>> =
        runs.iter().map(|r| Some(method_label(r.method?).to_owned())).collect();
    let by_seed = || -> Option<Vec<String>> {
        let is_alone = |m: Method| runs.iter().filter(|r| r.method == Some(m)).count() == 1;
        let label = |r: &RunData| {
            let (method, name) = (r.method?, method_label(r.method?));
            Some(if is_alone(method) { name.to_owned() } else { format!("{name}, seed {}", r.seed?) })
        };
        runs.iter().map(label).collect()
    };
    let own: Vec<String> = runs.iter().map(|r| r.name.clone()).collect();
    let distinct = |labels: &Vec<String>| labels.iter().collect::<BTreeSet<_>>().len() == labels.len();
    let mut labels = by_method.filter(distinct).or_else(|| by_seed().filter(distinct)).unwrap_or(own);
    for i in 0..labels.len() {
        let (before, rest) = labels.split_at_mut(i);
        if let Some(label) = rest.first_mut() {
            let plain = label.clone();
            let mut number = 2;
            while before.contains(label) {
                *label = format!("{plain} ({number})");
                number += 1;
            }
        }
    }
    labels
}

/// Points of one curve beyond which a line shows no more.
const MOST_POINTS: usize = 800;

/// Every figure that these runs can fill, in the order of the report.
pub fn all(drawn: &[Drawn<'_>], options: &FigureOptions) -> Vec<Figure> {
    let mut out: Vec<Option<Figure>> = vec![curves::cumulative(drawn, options), held_out::held_out(drawn)];
    if drawn.len() > 1 {
        out.push(curves::baselines(drawn));
        out.push(curves::ablations(drawn));
        out.push(curves::hard(drawn, options));
        out.push(curves::by_wall_time(drawn));
    }
    out.push(dynamics::training(drawn));
    out.push(dynamics::conjecture_quality(drawn));
    let main = main_run(drawn);
    out.push(main.and_then(inventions::novelty));
    out.push(main.and_then(inventions::guide));
    out.push(main.and_then(|d| proximity::figure(d.run)));
    out.push(dynamics::entropy(drawn, options));
    if drawn.len() > 1 {
        out.push(curves::baseline_entropy(drawn));
    }
    out.push(main.and_then(|d| fits::sensitivity(d, &options.fit)));
    out.push(dynamics::verdicts(drawn));
    out.push(dynamics::health(drawn));
    out.push(main.and_then(|d| dynamics::timings(d.run)));
    out.push(main.and_then(|d| dataset::composition(d.run)));
    out.into_iter().flatten().collect()
}

/// The run that figures of a single run show: the first SGS run, else the first one.
pub(crate) fn main_run<'a, 'b>(drawn: &'b [Drawn<'a>]) -> Option<&'b Drawn<'a>> {
    drawn.iter().find(|d| d.run.method == Some(Method::Sgs)).or(drawn.first())
}

/// Whether a method trains the Solver on targets alone.
pub(crate) fn is_baseline(method: Method) -> bool {
    matches!(method, Method::ReinforceHalf | Method::Reinforce | Method::ExpertIteration | Method::Cispo)
}

/// At most `most` points, evenly chosen, the last among them: more than a line's pixels show nothing.
pub(crate) fn thinned<T: Copy>(points: Vec<T>, most: usize) -> Vec<T> {
    if points.len() <= most {
        return points;
    }
    let stride = points.len().div_ceil(most);
    let last = points.len() - 1;
    points.iter().enumerate().filter(|(i, _)| i % stride == 0 || *i == last).map(|(_, p)| *p).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(method: Option<Method>, seed: u64) -> RunData {
        RunData { name: format!("run-{seed}"), method, seed: Some(seed), ..RunData::default() }
    }

    #[test]
    fn seeds_are_named_where_they_tell_runs_apart() {
        let runs = [run(Some(Method::Sgs), 1), run(Some(Method::Sgs), 2), run(Some(Method::Stp), 1)];
        assert_eq!(labels(&runs), ["SGS, seed 1", "SGS, seed 2", "STP"]);
        assert_eq!(labels(&runs[1..]), ["SGS", "STP"]);
        assert_eq!(labels(&[run(None, 1), run(None, 1)]), ["run-1", "run-1 (2)"]);
    }
}
