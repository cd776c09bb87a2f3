//! The figures of a report.
//!
//! Each function returns `None` if the runs lack the data of the figure.

mod common;
mod curves;
mod dataset;
mod dynamics;
mod held_out;
mod seeds;

pub use curves::Yardstick;
pub(crate) use curves::{UNDETERMINED, describe};
pub use dataset::problem_types;
pub use seeds::seed_groups;
pub(crate) use seeds::{Curve, SeedGroup, groups, repeats};

use crate::fit::{Fit, FitError, FitOptions, HALVES, HALVES_SEED, examine};
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
}

/// Options of figures.
#[derive(Clone, Debug, Default)]
pub struct FigureOptions {
    /// Options of the fits.
    pub fit: FitOptions,
    /// Reference lines with the rates of other models.
    pub yardsticks: Vec<Yardstick>,
}

/// Fits every run and assigns its group and its colour.
pub fn draw<'a>(runs: &'a [RunData], options: &FigureOptions) -> Vec<PlottedRun<'a>> {
    let (labels, groups) = (labels(runs), seeds::numbers(runs));
    let inks = seeds::inks(runs, &groups);
    runs.iter()
        .zip(labels)
        .zip(groups.into_iter().zip(inks))
        .map(|((run, label), (group, ink))| {
            let fit = examine(&run.curve(), &options.fit, HALVES, HALVES_SEED).map(|examined| examined.fit);
            PlottedRun { run, label, group, ink, fit }
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
    let figures = [
        curves::cumulative(drawn, options),
        held_out::held_out(drawn),
        dynamics::training(drawn),
        dynamics::conjecture_quality(drawn),
        dynamics::health(drawn),
        main_run(drawn).and_then(|d| dynamics::timings(d.run)),
    ];
    figures.into_iter().flatten().collect()
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

/// Returns about `most` evenly spaced points of a curve, including the last one and all interruptions.
pub(crate) fn thinned(points: Curve, most: usize) -> Curve {
    let stride = points.len().div_ceil(most).max(1);
    let last = points.len().saturating_sub(1);
    let kept = |(i, point): &(usize, (f64, f64))| i % stride == 0 || *i == last || !point.1.is_finite();
    points.into_iter().enumerate().filter(kept).map(|(_, point)| point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(method: Option<Method>, seed: u64) -> RunData {
        RunData { name: format!("run-{seed}"), method, seed: Some(seed), ..RunData::default() }
    }

    #[test]
    fn long_curves_keep_their_interruptions() {
        let rate = |round: u32| if round == 1001 { f64::NAN } else { 0.5 };
        let thin = thinned((0..2000).map(|round| (f64::from(round), rate(round))).collect(), 800);
        assert!(thin.len() <= 802 && thin.iter().any(|point| point.0 == 1001.0 && point.1.is_nan()));
        assert_eq!(thin.last(), Some(&(1999.0, 0.5)));
        assert_eq!(thinned(Vec::new(), 800), Vec::new());
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
