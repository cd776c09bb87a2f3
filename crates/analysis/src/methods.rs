//! Results of methods over several seeds: means with intervals, and differences from a baseline, paired by seed and problem.

use crate::run::{RunData, metric};
use crate::stats::{Interval, SeedMean, bootstrap_matrix, measured_at, seed_mean};
use serde::Serialize;
use sgs_selfplay::rate::pass_at_k;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Number of resamples of a bootstrap.
const RESAMPLES: usize = 4000;

/// Runs that differ only in their seeds, with at most one run per seed.
pub struct MethodRuns<'a> {
    /// Name in tables.
    pub label: String,
    /// The runs.
    pub runs: Vec<&'a RunData>,
}

/// A quantity by which methods are compared. All are means over problems, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Fraction of the targets that were solved in this number of generations.
    SolvedAtGenerations(f64),
    /// Fraction of the targets that were solved while all roles together sampled this number of tokens.
    SolvedAtTokens(f64),
    /// pass@k of the last weights on held-out problems.
    HeldOut(u32),
}

/// The difference of a method from the baseline, over the seeds that both have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairedDifference {
    /// Mean over the pairs of runs with the same seed.
    pub over_seeds: SeedMean,
    /// 95% bootstrap interval over these pairs and the problems.
    pub bootstrap: Interval,
}

/// Results of a method, one entry per measure.
#[derive(Clone, Debug, Serialize)]
pub struct MethodResults {
    /// Name in tables.
    pub label: String,
    /// Number of runs.
    pub seeds: usize,
    /// Means over the runs.
    pub means: Vec<Option<SeedMean>>,
    /// Differences from the baseline; none for the baseline and the base model.
    pub differences: Vec<Option<PairedDifference>>,
}

/// Results of methods.
#[derive(Clone, Debug, Serialize)]
pub struct MethodTable {
    /// The measures. Those for which a run lacks data, or whose problems differ between runs, are left out.
    pub measures: Vec<Measure>,
    /// The base model, if it was evaluated, and the methods.
    pub methods: Vec<MethodResults>,
    /// Name of the baseline.
    pub baseline: String,
}

/// A value for each problem, in an order that all runs share.
type ByProblem = Vec<f64>;

/// Compares methods with the baseline at index `baseline`, at the generations and the tokens of the shortest run. The base
/// model's held-out results are those that the baseline's runs measured before their first round. Returns `None` if there is
/// no run.
pub fn compare_methods(methods: &[MethodRuns<'_>], baseline: usize) -> Option<MethodTable> {
    let runs: Vec<&RunData> = methods.iter().flat_map(|m| m.runs.iter().copied()).collect();
    let base = methods.get(baseline).filter(|_| !runs.is_empty())?;
    // For each measure, the values of all runs, in the order of `runs`.
    let (measures, values): (Vec<Measure>, Vec<Vec<ByProblem>>) = candidates(&runs)
        .into_iter()
        .filter_map(|measure| Some((measure, measured(&runs, measure)?)))
        .unzip();
    let mut first = 0;
    let ranges: Vec<Range<usize>> = methods
        .iter()
        .map(|method| {
            first += method.runs.len();
            first - method.runs.len()..first
        })
        .collect();
    let results = methods.iter().zip(&ranges).enumerate().map(|(index, (method, own))| {
        let partner = |run: usize| {
            ranges[baseline]
                .clone()
                .find(|other| runs[run].seed.is_some() && runs[*other].seed == runs[run].seed)
        };
        let pairs: Vec<(usize, usize)> = own.clone().filter_map(|run| Some((run, partner(run)?))).collect();
        let rates = |values: &Vec<ByProblem>| values[own.clone()].iter().map(|v| mean(v)).collect::<Vec<_>>();
        let difference = |values: &Vec<ByProblem>| {
            let of =
                |(a, b): &(usize, usize)| values[*a].iter().zip(&values[*b]).map(|(a, b)| a - b).collect();
            paired_difference(&pairs.iter().map(of).collect::<Vec<ByProblem>>())
        };
        MethodResults {
            label: method.label.clone(),
            seeds: method.runs.len(),
            means: values.iter().map(|v| seed_mean(&rates(v))).collect(),
            differences: if index == baseline { Vec::new() } else { values.iter().map(difference).collect() },
        }
    });
    let methods = base_model(base, &measures).into_iter().chain(results).collect();
    Some(MethodTable { measures, methods, baseline: base.label.clone() })
}

/// Returns the held-out results of the base model.
fn base_model(baseline: &MethodRuns<'_>, measures: &[Measure]) -> Option<MethodResults> {
    let rate = |run: &RunData, k: u32| {
        let first = run.held_out().next().filter(|e| e.after == 0)?;
        let rates: Vec<f64> = first.held_out.iter().filter_map(|(_, tally)| pass_at(*tally, k)).collect();
        (!rates.is_empty()).then(|| mean(&rates))
    };
    let means: Vec<Option<SeedMean>> = measures
        .iter()
        .map(|measure| match *measure {
            Measure::HeldOut(k) => {
                seed_mean(&baseline.runs.iter().filter_map(|run| rate(run, k)).collect::<Vec<_>>())
            }
            Measure::SolvedAtGenerations(_) | Measure::SolvedAtTokens(_) => None,
        })
        .collect();
    let seeds = means.iter().flatten().map(|m| m.seeds).max()?;
    Some(MethodResults { label: "base model".to_owned(), seeds, means, differences: Vec::new() })
}

/// Returns the measures at the end of the shortest run, and pass@1, @8 and @k for the smallest number of samples.
fn candidates(runs: &[&RunData]) -> Vec<Measure> {
    let least = |end: &dyn Fn(&RunData) -> Option<f64>| -> Option<f64> {
        let ends: Option<Vec<f64>> = runs.iter().map(|run| end(run)).collect();
        ends?.into_iter().reduce(f64::min)
    };
    let generations = least(&|run| run.last(metric::GENERATIONS)).map(Measure::SolvedAtGenerations);
    let tokens = least(&|run| run.sampled_tokens().last().map(|end| end.1).filter(|tokens| *tokens > 0.0));
    let samples = runs.iter().map(|run| run.held_out().next_back().map_or(0, |e| e.samples())).min();
    let ks: BTreeSet<u32> = samples.filter(|k| *k > 0).map(|k| [1, 8.min(k), k].into()).unwrap_or_default();
    let held_out = ks.into_iter().map(Measure::HeldOut);
    generations.into_iter().chain(tokens.map(Measure::SolvedAtTokens)).chain(held_out).collect()
}

/// Returns the values of a measure for each run, by problem. Returns `None` if a run lacks the measure, or if the runs have
/// different problems.
fn measured(runs: &[&RunData], measure: Measure) -> Option<Vec<ByProblem>> {
    let of_runs: Option<Vec<BTreeMap<&str, f64>>> = runs.iter().map(|run| by_problem(run, measure)).collect();
    let of_runs = of_runs?;
    if let Measure::HeldOut(_) = measure {
        let same = of_runs.windows(2).all(|pair| pair[0].keys().eq(pair[1].keys()));
        return same.then(|| of_runs.into_iter().map(|run| run.into_values().collect()).collect());
    }
    // A target that a run has not sampled is not solved there.
    let targets: Vec<Option<f64>> = runs.iter().map(|run| run.last(metric::TARGETS)).collect();
    let count = targets.first().copied().flatten().filter(|_| targets.windows(2).all(|t| t[0] == t[1]))?;
    let ids: BTreeSet<&str> = of_runs.iter().flat_map(|run| run.keys().copied()).collect();
    let unseen = (count as usize).checked_sub(ids.len())?;
    let values = |run: &BTreeMap<&str, f64>| {
        let seen = ids.iter().map(|id| run.get(id).copied().unwrap_or(0.0));
        seen.chain(std::iter::repeat_n(0.0, unseen)).collect()
    };
    Some(of_runs.iter().map(values).collect())
}

/// Returns the value of a measure for each problem of a run, or `None` if its data are missing or incomplete.
fn by_problem(run: &RunData, measure: Measure) -> Option<BTreeMap<&str, f64>> {
    let rounds = || run.rounds.iter().map(|round| f64::from(round.round));
    let last_round = match measure {
        Measure::HeldOut(k) => {
            let last = run.held_out().next_back()?;
            let rates =
                last.held_out.iter().filter_map(|(id, tally)| Some((id.as_str(), pass_at(*tally, k)?)));
            return Some(rates.collect());
        }
        Measure::SolvedAtGenerations(limit) => {
            let ends = run.rounds.iter().map(|round| RunData::value(round, metric::GENERATIONS));
            let ends: Option<Vec<f64>> = ends.collect();
            measured_at(&ends?.into_iter().zip(rounds()).collect::<Vec<_>>(), limit)?
        }
        Measure::SolvedAtTokens(limit) => {
            let ends: Vec<_> = run.sampled_tokens().iter().map(|end| end.1).zip(rounds()).collect();
            measured_at(&ends, limit)?
        }
    };
    let solved = |round: Option<u32>| f64::from(u8::from(round.is_some_and(|r| f64::from(r) <= last_round)));
    let values: BTreeMap<&str, f64> =
        run.targets.iter().map(|target| (target.id.as_str(), solved(target.solved_round))).collect();
    // The tables of a damaged run show fewer solved targets than its metrics.
    let rate = measured_at(&run.by_round(metric::CUMULATIVE), last_round)?;
    let count = rate * run.last(metric::TARGETS)?;
    let is_complete = (values.values().sum::<f64>() - count).abs() < 0.5;
    is_complete.then_some(values)
}

fn pass_at((judged, proved): (u32, u32), k: u32) -> Option<f64> {
    pass_at_k(judged.into(), proved.into(), k.into())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the mean difference with its intervals. `pairs` has a row for each seed and a column for each problem.
fn paired_difference(pairs: &[ByProblem]) -> Option<PairedDifference> {
    let over_seeds = seed_mean(&pairs.iter().map(|row| mean(row)).collect::<Vec<_>>())?;
    let bootstrap = bootstrap_matrix(pairs, 0.95, RESAMPLES, 1)?;
    Some(PairedDifference { over_seeds, bootstrap })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{EvaluationData, TargetHistory};
    use sgs_rundir::MetricValues;

    /// Creates a run of three rounds with 100 generations each. Target `i` of ten is solved in round `solved[i]`; the
    /// others are never sampled. Held-out problem `i` has `proved[i]` proofs in eight attempts.
    fn run(seed: u64, solved: &[u32], tokens: f64, proved: &[u32]) -> RunData {
        let mut run = RunData { seed: Some(seed), ..RunData::default() };
        for round in 0..3 {
            let mut metrics = MetricValues::new(round);
            let count = solved.iter().filter(|r| **r <= round).count();
            for (name, value) in [
                (metric::GENERATIONS, 100.0 * f64::from(round + 1)),
                (metric::CUMULATIVE, count as f64 / 10.0),
                (metric::TARGETS, 10.0),
                ("solver_tokens", tokens),
                ("guide_tokens", 1.0),
            ] {
                metrics.set(name, value);
            }
            run.rounds.push(metrics);
        }
        let target = |(i, round): (usize, &u32)| TargetHistory {
            id: format!("t{i}"),
            solved_round: Some(*round),
            ..TargetHistory::default()
        };
        run.targets = solved.iter().enumerate().map(target).collect();
        for after in [0, 3] {
            let tally =
                |(i, proved): (usize, &u32)| (format!("h{i}"), (8, if after == 0 { 0 } else { *proved }));
            let held_out = proved.iter().enumerate().map(tally).collect();
            run.evaluations.push(EvaluationData { after, held_out, ..EvaluationData::default() });
        }
        run
    }

    fn table(methods: &[(&str, &[&RunData])]) -> MethodTable {
        let methods: Vec<_> = methods
            .iter()
            .map(|(label, runs)| MethodRuns { label: (*label).to_owned(), runs: runs.to_vec() })
            .collect();
        compare_methods(&methods, 0).unwrap()
    }

    #[test]
    fn methods_are_compared_at_equal_generations_and_equal_tokens() {
        let base = [run(1, &[0, 1], 9.0, &[4, 0]), run(2, &[0], 9.0, &[2, 0])];
        let other = [run(2, &[0, 1, 2], 19.0, &[8, 1]), run(1, &[0, 0, 1, 2], 19.0, &[8, 0])];
        let found = table(&[("base", &[&base[0], &base[1]]), ("other", &[&other[0], &other[1]])]);
        // The shortest run has sampled 3 * (9 + 1) tokens; the other method samples 20 tokens a round.
        assert_eq!(
            found.measures,
            [
                Measure::SolvedAtGenerations(300.0),
                Measure::SolvedAtTokens(30.0),
                Measure::HeldOut(1),
                Measure::HeldOut(8)
            ]
        );
        let [model, first, second] = &found.methods[..] else { panic!("three rows") };
        let means = |row: &MethodResults| row.means.iter().map(|m| m.map(|m| m.mean)).collect::<Vec<_>>();
        assert_eq!(means(model), [None, None, Some(0.0), Some(0.0)]);
        let close = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-12, "{a:?} {b}");
        for (row, expected) in [(first, [0.15, 0.15, 0.1875, 0.5]), (second, [0.35, 0.15, 0.53125, 0.75])] {
            means(row).into_iter().zip(expected).for_each(|(found, expected)| close(found, expected));
        }
        assert!(first.differences.is_empty());
        // The pairs are 4 against 2 targets for seed 1, and 3 against 1 for seed 2.
        let difference = second.differences[0].unwrap();
        close(Some(difference.over_seeds.mean), 0.2);
        assert_eq!(
            (difference.over_seeds.seeds, difference.bootstrap.value),
            (2, difference.over_seeds.mean)
        );
        close(difference.over_seeds.half, 0.0);
        assert!(difference.bootstrap.low < 0.2 && 0.2 < difference.bootstrap.high);
        assert_eq!(first.means[0], seed_mean(&[0.2, 0.1]));
    }

    #[test]
    fn the_solved_fraction_is_the_measured_cumulative_rate() {
        let run = run(1, &[0, 1, 1, 2], 9.0, &[1]);
        for (generations, rate) in run.series(metric::CUMULATIVE) {
            let values = measured(&[&run], Measure::SolvedAtGenerations(generations)).unwrap();
            assert!((mean(&values[0]) - rate).abs() < 1e-12);
        }
    }

    #[test]
    fn incomplete_tables_give_no_solved_fraction() {
        let (base, mut other) = (run(1, &[0, 1], 9.0, &[4]), run(1, &[0, 1], 9.0, &[4]));
        other.targets[1].solved_round = None;
        let found = table(&[("base", &[&base]), ("other", &[&other])]);
        assert_eq!(found.measures, [Measure::HeldOut(1), Measure::HeldOut(8)]);
    }

    #[test]
    fn seeds_without_a_partner_and_other_problems_give_no_difference() {
        let (base, other) = (run(1, &[0], 9.0, &[4, 0]), run(2, &[0], 9.0, &[4, 0]));
        let found = table(&[("base", &[&base]), ("other", &[&other])]);
        assert!(found.methods[2].differences.iter().all(Option::is_none));
        assert_eq!(found.methods[2].means[0], Some(SeedMean { mean: 0.1, half: None, seeds: 1 }));
        let more = run(1, &[0], 9.0, &[4, 0, 0]);
        let found = table(&[("base", &[&base]), ("other", &[&more])]);
        assert!(found.measures.iter().all(|m| !matches!(m, Measure::HeldOut(_))));
        assert!(compare_methods(&[], 0).is_none());
    }
}
