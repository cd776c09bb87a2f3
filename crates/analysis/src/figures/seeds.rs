//! Groups of runs that differ only in their seeds. Figures show their mean and a band from the lowest to the highest.

use super::{MOST_POINTS, PlottedRun, thinned};
use crate::compare::{BUDGET, common_generations};
use crate::fit::{CurvePoint, Fit, FitError, FitOptions, HALVES, HALVES_SEED, examine};
use crate::plot::theme::SERIES_COLOURS;
use crate::plot::{Ink, Series, SeriesStyle};
use crate::run::{RunData, metric};
use crate::stats::measured_at;
use sgs_selfplay::Method;

/// Runs that differ only in their seeds; often a single run.
pub(crate) struct SeedGroup<'a, 'b> {
    /// Its name in legends.
    pub label: String,
    pub ink: Ink,
    /// The runs, at least one.
    pub runs: Vec<&'b PlottedRun<'a>>,
}

/// A curve with ascending x.
pub(crate) type Curve = Vec<(f64, f64)>;

/// Groups runs, in the order of the groups' first runs.
pub(crate) fn groups<'a: 'b, 'b>(
    drawn: impl IntoIterator<Item = &'b PlottedRun<'a>>,
) -> Vec<SeedGroup<'a, 'b>> {
    let mut out: Vec<SeedGroup<'a, 'b>> = Vec::new();
    for d in drawn {
        match out.iter_mut().find(|g| g.runs.iter().any(|r| r.group == d.group)) {
            Some(group) => group.runs.push(d),
            None => out.push(SeedGroup { label: d.label.clone(), ink: d.ink, runs: vec![d] }),
        }
    }
    out.iter_mut().for_each(|group| leave_repeats_out(&mut group.runs, |d| d.run));
    let methods: Vec<Option<&str>> =
        out.iter().map(|g| g.runs.first().and_then(|d| d.run.method_label())).collect();
    for (i, group) in out.iter_mut().enumerate().filter(|(_, g)| g.runs.len() > 1) {
        let method = methods.get(i).copied().flatten();
        let is_alone = methods.iter().filter(|m| **m == method).count() == 1;
        let name = method.filter(|_| is_alone).map_or_else(|| group.label.clone(), str::to_owned);
        group.label = format!("{name}, {} seeds", group.runs.len());
    }
    out
}

/// Removes repetitions. Of several runs with the same seed, the longest is kept.
fn leave_repeats_out<'r, T: Copy>(runs: &mut Vec<T>, data: impl Fn(T) -> &'r RunData) {
    let mut kept: Vec<T> = Vec::with_capacity(runs.len());
    for run in runs.drain(..) {
        let (own, seed) = (data(run), data(run).seed);
        match kept.iter_mut().find(|other| seed.is_some() && data(**other).seed == seed) {
            Some(other) if length(own) > length(data(*other)) => *other = run,
            Some(_) => {}
            None => kept.push(run),
        }
    }
    *runs = kept;
}

/// Returns the indices of the runs of each group, in the order of the groups' first runs. Runs of a group differ only
/// in their seeds; of several runs with the same seed, only the longest is included.
pub fn seed_groups(runs: &[RunData]) -> Vec<Vec<usize>> {
    let numbers = numbers(runs);
    let mut out: Vec<Vec<usize>> = Vec::new();
    for run in 0..runs.len() {
        match out.iter_mut().find(|group| numbers[group[0]] == numbers[run]) {
            Some(group) => group.push(run),
            None => out.push(vec![run]),
        }
    }
    out.iter_mut().for_each(|group| leave_repeats_out(group, |run| &runs[run]));
    out
}

/// Returns the number of generations of a run.
fn length(run: &RunData) -> f64 {
    run.last(metric::GENERATIONS).unwrap_or(0.0)
}

/// Returns notes about runs with the same method, configuration and seed.
pub(crate) fn repeats(drawn: &[PlottedRun<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    for group in groups(drawn) {
        for d in drawn.iter().filter(|d| group.runs.first().is_some_and(|first| first.group == d.group)) {
            let kept = group.runs.iter().find(|k| k.run.seed == d.run.seed);
            if let (Some(kept), Some(seed)) = (kept.filter(|kept| !std::ptr::eq(**kept, d)), d.run.seed) {
                out.push(format!(
                    "{} and {} have the same configuration and the same seed ({seed}): they are not two independent runs, and \
                     averages include only {}",
                    kept.label, d.label, kept.label
                ));
            }
        }
    }
    out
}

impl SeedGroup<'_, '_> {
    /// Returns the generations of the shortest and the longest run, if they differ. The mean ends with the shortest
    /// run.
    pub(super) fn ends_early(&self) -> Option<(f64, f64)> {
        let lengths = self.runs.iter().map(|d| length(d.run)).filter(|l| *l > 0.0);
        let (shortest, longest) =
            lengths.fold((f64::INFINITY, 0.0_f64), |(low, high), l| (low.min(l), high.max(l)));
        // Ignore a difference of a single round.
        (self.has_seeds() && longest > 1.02 * shortest).then_some((shortest, longest))
    }

    /// Returns the group's method, if it is known.
    pub fn method(&self) -> Option<Method> {
        self.runs.first().and_then(|d| d.run.method)
    }

    /// Returns the pale series of the single runs, if there are several, and the series of their mean. Returns no series if no
    /// run has points.
    pub(super) fn series(&self, of: impl Fn(&RunData) -> Curve) -> (Vec<Series>, Option<Series>) {
        let curves: Vec<(&str, Curve)> = self.runs.iter().map(|d| (d.label.as_str(), of(d.run))).collect();
        let known: Vec<(&str, Curve)> = curves.into_iter().filter(|(_, c)| !c.is_empty()).collect();
        match known.as_slice() {
            [] => (Vec::new(), None),
            [(_, one)] => (
                Vec::new(),
                Some(Series::line(self.label.clone(), self.ink, thinned(one.clone(), MOST_POINTS))),
            ),
            many => {
                // A mean at equal generations uses the last value of each run, also after an interruption.
                let measured = |c: &Curve| c.iter().copied().filter(|p| p.1.is_finite()).collect();
                let curves: Vec<Curve> = many.iter().map(|(_, c)| measured(c)).collect();
                let (points, band) = mean_and_range(&curves.iter().collect::<Vec<_>>()).into_iter().unzip();
                let behind = many.iter().map(|(label, c)| Series {
                    style: SeriesStyle::Faint,
                    ..Series::line(*label, self.ink, thinned(c.clone(), MOST_POINTS))
                });
                let (points, band) = (thinned(points, MOST_POINTS), thinned(band, MOST_POINTS));
                let line = Series { band, ..Series::line(self.label.clone(), self.ink, points) };
                (behind.collect(), Some(line))
            }
        }
    }

    /// Returns the cumulative solve rate of the run, or the mean over the runs.
    pub fn curve(&self) -> Curve {
        let curves: Vec<Curve> = self.runs.iter().map(|d| d.run.series(metric::CUMULATIVE)).collect();
        match curves.as_slice() {
            [one] => one.clone(),
            many => {
                let known: Vec<&Curve> = many.iter().filter(|c| !c.is_empty()).collect();
                mean_and_range(&known).into_iter().map(|(point, _)| point).collect()
            }
        }
    }

    /// Fits the scaling law to [`SeedGroup::curve`].
    pub fn fit(&self, options: &FitOptions) -> Result<Fit, FitError> {
        match self.runs.as_slice() {
            [one] => one.fit.clone(),
            _ => {
                let point = |(generations, rate)| CurvePoint { generations, rate };
                let curve: Vec<CurvePoint> = self.curve().into_iter().map(point).collect();
                examine(&curve, options, HALVES, HALVES_SEED).map(|examined| examined.fit)
            }
        }
    }

    /// Returns the identified laws of the single runs.
    pub fn laws(&self) -> Vec<&Fit> {
        self.runs.iter().filter_map(|d| d.fit.as_ref().ok()).filter(|fit| fit.is_identified()).collect()
    }

    /// Returns whether there is more than one run.
    pub fn has_seeds(&self) -> bool {
        self.runs.len() > 1
    }
}

/// Returns the mean, minimum and maximum of curves at their common generations, or the longest curve if there are none.
fn mean_and_range(curves: &[&Curve]) -> Vec<((f64, f64), (f64, f64))> {
    let slices: Vec<&[(f64, f64)]> = curves.iter().map(|c| c.as_slice()).collect();
    let at = common_generations(&slices);
    if at.is_empty() {
        let longest = slices.iter().copied().max_by_key(|c| c.len()).unwrap_or_default();
        return longest.iter().map(|p| (*p, (p.1, p.1))).collect();
    }
    let mean = |x: f64| {
        let values: Vec<f64> = slices.iter().filter_map(|c| measured_at(c, x)).collect();
        let ends = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        ((x, values.iter().sum::<f64>() / values.len() as f64), ends)
    };
    at.into_iter().map(mean).collect()
}

/// Returns a group number for each run. Runs have equal numbers if they differ only in their seeds. A run whose method
/// is unknown is in a separate group.
pub(super) fn numbers(runs: &[RunData]) -> Vec<usize> {
    let settings: Vec<Option<(Method, String)>> = runs.iter().map(setting).collect();
    let first = |(i, own): (usize, &Option<(Method, String)>)| {
        if own.is_none() { i } else { settings.iter().position(|s| s == own).unwrap_or(i) }
    };
    settings.iter().enumerate().map(first).collect()
}

/// Returns the method and the configuration without the keys that may differ within a group: the seed, the length of the run
/// and the frozen data except the base model, which a run may have trained itself.
fn setting(run: &RunData) -> Option<(Method, String)> {
    let (config, frozen) = run.config.split_once("[frozen]").unwrap_or((&run.config, ""));
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let is_free = |key: &str| key == "seed" || BUDGET.contains(&key);
    let kept = config.lines().filter(|l| !is_free(&key(l)) && !l.trim_start().starts_with('#'));
    let base = frozen.lines().filter(|l| key(l).trim_matches('"') == "base-model");
    Some((run.method?, kept.chain(base).collect::<Vec<_>>().join("\n")))
}

/// Returns the preferred colour of a method.
fn usual(method: Method) -> usize {
    match method {
        Method::Sgs => 0,
        Method::ReinforceHalf => 1,
        Method::SgsNoGuide => 2,
        Method::SgsFrozenConjecturer | Method::Stp => 3,
        Method::Cispo => 4,
        Method::ExpertIteration | Method::SgsCispo => 5,
        Method::Reinforce | Method::SamplingOnly => 6,
        Method::SgsNoConditioning
        | Method::SgsProofs
        | Method::SgsAttempts
        | Method::Composer
        | Method::Oracle => 7,
    }
}

/// Returns the colour of each run's group. A method has its preferred colour unless that is taken. Groups share colours only
/// after the palette is exhausted, and are then distinguished by dashes.
pub(super) fn inks(runs: &[RunData], groups: &[usize]) -> Vec<Ink> {
    let mut order: Vec<usize> = groups.to_vec();
    order.sort_unstable();
    order.dedup();
    let method = |group: &usize| runs.get(*group).and_then(|r| r.method);
    let rank = |group: &usize| {
        method(group).and_then(|m| Method::ALL.iter().position(|other| *other == m)).unwrap_or(usize::MAX)
    };
    // The main methods choose first.
    order.sort_by_key(|group| (rank(group), *group));
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for group in order {
        let is_free = |slot: &usize| taken.iter().all(|(_, t)| t != slot);
        let wished = method(&group).map_or(0, usual);
        let cycles = (0..).map(|i| i * SERIES_COLOURS);
        let slot = cycles
            .flat_map(|from| std::iter::once(from + wished).chain(from..from + SERIES_COLOURS))
            .find(is_free)
            .unwrap_or(wished);
        taken.push((group, slot));
    }
    let slot = |group: &usize| taken.iter().find(|(g, _)| g == group).map_or(0, |(_, slot)| *slot);
    groups.iter().map(|g| Ink::Series(slot(g))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn run(method: Option<Method>, seed: u64, rate: f64) -> RunData {
        let config = format!(
            "method = \"x\"\nseed = {seed}\nrounds = {seed}\nlearning_rate = {rate}\n[frozen]\nversion = \"{seed}\"\n"
        );
        RunData { name: format!("run-{seed}"), method, seed: Some(seed), config, ..RunData::default() }
    }

    #[test]
    fn only_the_seed_may_differ_within_a_group() {
        let (sgs, half) = (Some(Method::Sgs), Some(Method::ReinforceHalf));
        let runs = [
            run(sgs, 1, 0.1),
            run(half, 1, 0.1),
            run(sgs, 2, 0.1),
            run(sgs, 3, 0.2),
            run(None, 4, 0.1),
            run(None, 4, 0.1),
        ];
        assert_eq!(numbers(&runs), [0, 1, 0, 3, 4, 5]);
    }

    #[test]
    fn runs_from_different_base_models_are_in_different_groups() {
        let from = |seed, base: &str| {
            let mut run = run(Some(Method::Sgs), seed, 0.1);
            run.config += &format!("\n[frozen.data]\n\"base-model\" = \"{base}\"\nslice = \"{seed}\"\n");
            run
        };
        assert_eq!(numbers(&[from(1, "a"), from(2, "b"), from(3, "a")]), [0, 1, 0]);
    }

    #[test]
    fn a_repeated_seed_counts_once_and_is_noted() {
        let of = |seed, generations: f64| {
            let mut run = run(Some(Method::Sgs), seed, 0.1);
            run.name = format!("run-{generations}");
            run.config = "method = \"x\"\n".into();
            for part in [0.5, 1.0] {
                let mut round = sgs_rundir::MetricValues::new(0);
                round.set(metric::GENERATIONS, part * generations);
                round.set(metric::CUMULATIVE, part * 0.1 * seed as f64);
                run.rounds.push(round);
            }
            run
        };
        let runs = [of(1, 100.0), of(2, 300.0), of(1, 200.0)];
        assert_eq!(seed_groups(&runs), [[2, 1]]);
        let drawn = super::super::draw(&runs, &super::super::FigureOptions::default());
        let [group] = &groups(&drawn)[..] else { panic!("one group") };
        let lengths: Vec<f64> = group.runs.iter().map(|d| length(d.run)).collect();
        assert_eq!((lengths, group.label.as_str()), (vec![200.0, 300.0], "SGS, 2 seeds"));
        assert_eq!(group.ends_early(), Some((200.0, 300.0)));
        let [note] = &repeats(&drawn)[..] else { panic!("one note") };
        assert!(note.contains("the same seed (1)") && note.contains("not two independent runs"), "{note}");
        let alone = super::super::draw(&runs[..2], &super::super::FigureOptions::default());
        assert!(repeats(&alone).is_empty());
        let same = [of(1, 100.0), of(1, 200.0)];
        let drawn = super::super::draw(&same, &super::super::FigureOptions::default());
        assert!(!groups(&drawn)[0].has_seeds() && groups(&drawn)[0].ends_early().is_none());
    }

    #[test]
    fn methods_keep_their_colours_and_groups_have_distinct_ones() {
        let pair = [run(Some(Method::ReinforceHalf), 1, 0.1), run(Some(Method::Sgs), 1, 0.1)];
        assert_eq!(inks(&pair, &numbers(&pair)), [Ink::Series(1), Ink::Series(0)]);
        let mut all: Vec<RunData> = Method::ALL.iter().rev().map(|m| run(Some(*m), 1, 0.1)).collect();
        all.push(run(Some(Method::Sgs), 2, 0.1));
        all.push(run(Some(Method::Sgs), 2, 0.3));
        let inks = inks(&all, &numbers(&all));
        let sgs = Method::ALL.len() - 1;
        assert_eq!(inks[sgs], Ink::Series(0), "SGS");
        assert_eq!(inks[sgs + 1], Ink::Series(0), "another seed of it");
        let different: BTreeSet<String> = inks.iter().map(|ink| format!("{ink:?}")).collect();
        assert_eq!(different.len(), Method::ALL.len() + 1);
        let few: BTreeSet<&str> = inks[sgs - 5..=sgs].iter().map(|ink| ink.shade().name).collect();
        assert_eq!(few.len(), 6, "{inks:?}");
    }

    #[test]
    fn the_mean_covers_the_common_range_of_the_seeds() {
        let a = vec![(1.0, 0.0), (3.0, 4.0), (5.0, 4.0)];
        let b = vec![(2.0, 0.0), (4.0, 2.0)];
        let mean = mean_and_range(&[&a, &b]);
        assert_eq!(mean, [((2.0, 0.0), (0.0, 0.0)), ((4.0, 3.0), (2.0, 4.0))]);
        let ends = mean_and_range(&[&vec![(1.0, 0.0), (4.0, 3.0)], &vec![(2.0, 1.0), (6.0, 5.0)]]);
        assert_eq!(ends, [((2.0, 0.5), (0.0, 1.0)), ((4.0, 2.0), (1.0, 3.0))]);
        assert_eq!(mean_and_range(&[&vec![(1.0, 0.1)], &vec![(1.0, 0.3)]]).len(), 1);
        let late = vec![(9.0, 1.0)];
        assert_eq!(mean_and_range(&[&a, &late]).len(), 3, "no common range");
    }
}
