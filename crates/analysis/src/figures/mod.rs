//! The figures of the paper, created from runs.
//!
//! Each function returns `None` if the runs lack the data of the figure.

mod common;
mod conjectures;
mod curves;
mod dataset;
mod dynamics;
mod fits;
mod held_out;
mod proximity;
mod seeds;

pub use curves::Yardstick;
pub(crate) use curves::{UNDETERMINED, describe, rate_by_time};
pub use dataset::problem_types;
pub use seeds::seed_groups;
pub(crate) use seeds::{Curve, SeedGroup, groups, repeats};

use crate::fit::{ConfirmedFit, Fit, FitError, FitOptions, HALVES, HALVES_SEED, HalvesFit, TailFit, examine};
use crate::plot::{Figure, Ink};
use crate::run::RunData;
use sgs_selfplay::Method;
use std::collections::BTreeSet;

/// A run with its fit and its colour, which is the same in all figures.
pub struct PlottedRun<'a> {
    /// The run.
    pub run: &'a RunData,
    /// Its name in legends.
    pub label: String,
    /// Number of its group. Runs in a group differ only in their seeds, have the same colour and are averaged.
    pub group: usize,
    /// Colour.
    pub ink: Ink,
    /// Its scaling law, or the error that prevented the fit.
    pub fit: Result<Fit, FitError>,
    /// The fits without the last points and on random halves that the law was checked against.
    pub against: Option<(Vec<TailFit>, HalvesFit)>,
}

/// Options of figures.
#[derive(Clone, Debug, Default)]
pub struct FigureOptions {
    /// Options of the fits.
    pub fit: FitOptions,
    /// Reference lines with the rates of other models.
    pub yardsticks: Vec<Yardstick>,
    /// Index of the run whose unsolved targets define D_hard. By default, this is REINFORCE-1/2 with all its seeds; if
    /// there is none, another method that trains on targets only.
    pub baseline: Option<usize>,
}

/// Fits every run and assigns its group and its colour.
pub fn draw<'a>(runs: &'a [RunData], options: &FigureOptions) -> Vec<PlottedRun<'a>> {
    let (labels, groups) = (labels(runs), seeds::numbers(runs));
    let inks = seeds::inks(runs, &groups);
    runs.iter()
        .zip(labels)
        .zip(groups.into_iter().zip(inks))
        .map(|((run, label), (group, ink))| {
            let (fit, against) = match examine(&run.curve(), &options.fit, HALVES, HALVES_SEED) {
                Ok(ConfirmedFit { fit, tails, halves }) => (Ok(fit), halves.map(|halves| (tails, halves))),
                Err(error) => (Err(error), None),
            };
            PlottedRun { run, label, group, ink, fit, against }
        })
        .collect()
}

/// Returns distinct names for legends: the method if it is distinct, or the method and the seed, or the name of the run.
/// Names that are still equal are numbered.
fn labels(runs: &[RunData]) -> Vec<String> {
    let by_method: Option<Vec<String>> = runs.iter().map(|r| r.method_label().map(str::to_owned)).collect();
    let by_seed = || -> Option<Vec<String>> {
        let is_alone = |name: &str| runs.iter().filter(|r| r.method_label() == Some(name)).count() == 1;
        let label = |r: &RunData| {
            let name = r.method_label()?;
            Some(if is_alone(name) { name.to_owned() } else { format!("{name}, seed {}", r.seed?) })
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

/// Maximum number of points of a curve. More would not be visible.
const MOST_POINTS: usize = 800;

/// Returns all figures for which the runs have data, in the order of the report.
pub fn all(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> Vec<Figure> {
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
    out.push(main.and_then(conjectures::novelty));
    out.push(main.and_then(conjectures::guide));
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

/// Returns the run for figures of a single run: the first SGS run; if there is none, the first run.
pub(crate) fn main_run<'a, 'b>(drawn: &'b [PlottedRun<'a>]) -> Option<&'b PlottedRun<'a>> {
    drawn.iter().find(|d| d.run.method == Some(Method::Sgs)).or(drawn.first())
}

/// Returns whether a method trains the Solver on targets only.
pub(crate) fn is_baseline(method: Method) -> bool {
    let config = method.config();
    config.solver.train && !config.conjecturer.on
}

/// Returns at most `most` evenly spaced points, including the last one.
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
    fn seeds_are_named_if_they_distinguish_runs() {
        let runs = [run(Some(Method::Sgs), 1), run(Some(Method::Sgs), 2), run(Some(Method::Stp), 1)];
        assert_eq!(labels(&runs), ["SGS, seed 1", "SGS, seed 2", "STP"]);
        assert_eq!(labels(&runs[1..]), ["SGS", "STP"]);
        assert_eq!(labels(&[run(None, 1), run(None, 1)]), ["run-1", "run-1 (2)"]);
        // A run of a file has the file's name.
        let own = |seed| RunData { label: Some("mine".into()), ..run(Some(Method::Sgs), seed) };
        assert_eq!(labels(&[own(1), run(Some(Method::Sgs), 1)]), ["mine", "SGS"]);
        assert_eq!(
            labels(&[own(1), own(2), run(Some(Method::Sgs), 1)]),
            ["mine, seed 1", "mine, seed 2", "SGS"]
        );
    }
}
