//! The verdict at the top of a report: three sentences on the targets, on held-out problems and on the Guide.

use super::html::signed_points;
use crate::compare::{UNEQUAL, last_comparable};
use crate::figures::{Curve, PlottedRun, SeedGroup, groups, is_baseline, main_run};
use crate::plot::{grouped, percent};
use crate::run::{ReviewCounts, RunData, metric};
use crate::stats::{Interval, bootstrap_mean, measured_at};
use sgs_selfplay::Method;
use sgs_selfplay::rate::pass_at_k;

/// Number of resamples for the interval of a difference.
const RESAMPLES: usize = 1000;

/// Returns the sentences of the verdict, or none before the first round.
pub(super) fn sentences(drawn: &[PlottedRun<'_>]) -> Vec<String> {
    let groups = groups(drawn);
    let Some(main) = main_group(&groups, drawn) else { return Vec::new() };
    let curve = main.curve();
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else { return Vec::new() };
    let name = if groups.len() > 1 { format!("{}: the Solver", main.label) } else { "The Solver".to_owned() };
    // Several runs have a mean rate, which is not a number of targets.
    let all = match main.runs.as_slice() {
        [one] => one.run.last(metric::TARGETS),
        _ => None,
    };
    let number = |rate: f64, all: f64| grouped(rate * all);
    let (proved, at_first) = match all {
        Some(all) => (
            format!("{} of {} targets ({})", number(last.1, all), grouped(all), percent(last.1)),
            format!("{} targets", number(first.1, all)),
        ),
        None => (format!("{} of the targets", percent(last.1)), percent(first.1)),
    };
    let mut targets = format!("{name} proved {proved} in {} generations", grouped(last.0));
    if curve.len() > 1 {
        targets.push_str(&format!(" ({at_first} in the first round)"));
    }
    let other = baseline(&groups, main);
    let measured =
        main.runs.iter().find_map(|d| d.run.baseline.as_ref()?.against(&curve).zip(d.run.baseline.as_ref()));
    // A run of sampling-only measures the same curve with the same seed.
    let measured = measured.filter(|_| other.is_none_or(|g| g.method() != Some(Method::SamplingOnly)));
    if let Some(((end, own, base), measured)) = measured {
        let [own_rate, rate, low, high] = [own, base.value, base.low, base.high].map(percent);
        let seeds = measured.seeds();
        let place = base.place(own);
        let [alone, also] = match main.runs.iter().any(|d| d.run.has_conjectures()) {
            true => [", all of them at targets", ", which spent some at conjectures,"],
            false => ["", ""],
        };
        targets.push_str(&match end < last.0 {
            false => format!("; the untrained base model proves {rate} in as many generations{alone}"),
            true => {
                let at = grouped(end);
                format!(
                    "; at {at} generations, the Solver had proved {own_rate} and the untrained base model {rate}{alone}"
                )
            }
        });
        targets.push_str(&format!(" ({seeds} seeds: {low} to {high}; the Solver{also} is {place})"));
    }
    let other = compared_with(&groups, main);
    if other.is_none() && measured.is_none() {
        targets.push_str("; this report has no measured baseline (a run of sampling-only is one)");
    }
    let mut all: Vec<String> = other.map(|other| against(&curve, main, other)).into_iter().collect();
    all.extend([targets + ".", held_out(&groups, main), guide(&groups, main)]);
    all
}

/// Returns the measured baseline: sampling alone or, if there is none, a method that trains on the targets only.
fn baseline<'c, 'a, 'b>(
    groups: &'c [SeedGroup<'a, 'b>],
    main: &SeedGroup<'a, 'b>,
) -> Option<&'c SeedGroup<'a, 'b>> {
    let of = |wanted: fn(Method) -> bool| {
        groups.iter().find(|g| g.label != main.label && g.method().is_some_and(wanted))
    };
    of(|m| m == Method::SamplingOnly)
        .or_else(|| of(|m| m == Method::ReinforceHalf))
        .or_else(|| of(is_baseline))
}

/// Returns the other one of two groups, unless the sentence on the Guide compares the two.
fn only_other<'c, 'a, 'b>(
    groups: &'c [SeedGroup<'a, 'b>],
    main: &SeedGroup<'a, 'b>,
) -> Option<&'c SeedGroup<'a, 'b>> {
    let mut others = groups.iter().filter(|g| g.label != main.label);
    let other = others.next().filter(|g| g.method() != Some(Method::SgsNoGuide));
    other.filter(|_| others.next().is_none())
}

fn main_group<'a, 'b, 'c>(
    groups: &'c [SeedGroup<'a, 'b>],
    drawn: &[PlottedRun<'a>],
) -> Option<&'c SeedGroup<'a, 'b>> {
    let main = main_run(drawn)?;
    groups.iter().find(|g| g.runs.iter().any(|d| d.group == main.group))
}

/// Returns the group that the verdict compares with the main one.
fn compared_with<'c, 'a, 'b>(
    groups: &'c [SeedGroup<'a, 'b>],
    main: &SeedGroup<'a, 'b>,
) -> Option<&'c SeedGroup<'a, 'b>> {
    baseline(groups, main).or_else(|| only_other(groups, main))
}

/// Returns the generations at which the verdict compares two groups.
pub(super) fn compared_at(drawn: &[PlottedRun<'_>]) -> Option<f64> {
    let groups = groups(drawn);
    let main = main_group(&groups, drawn)?;
    last_comparable(&[&main.curve(), &compared_with(&groups, main)?.curve()])
}

/// Compares a group, which has this curve, with another one at the last generations that both have reached.
fn against(curve: &Curve, main: &SeedGroup<'_, '_>, other: &SeedGroup<'_, '_>) -> String {
    let other_curve = other.curve();
    let end = last_comparable(&[curve, &other_curve]);
    let at = end.and_then(|end| Some((end, measured_at(curve, end)?, measured_at(&other_curve, end)?)));
    let (own_name, name) = (&main.label, &other.label);
    let Some((end, own, others)) = at else {
        return format!(
            "{own_name} and {name} have no rounds that end after almost equal numbers of generations."
        );
    };
    let (at, own, others) = (grouped(end), percent(own), percent(others));
    let seeds = if main.runs.len() == 1 && other.runs.len() == 1 { " (one seed each)" } else { "" };
    format!("After {at} generations, {own_name} has proved {own} of the targets and {name} {others}{seeds}.")
}

/// Compares pass@1 on held-out problems before and after training.
fn held_out(groups: &[SeedGroup<'_, '_>], main: &SeedGroup<'_, '_>) -> String {
    let Some(own) = held_out_change(main, 1) else {
        return match main.runs.iter().any(|d| d.run.held_out().next().is_some()) {
            true => "On held-out problems, only the base model has been evaluated so far.".to_owned(),
            false => "No held-out problems were evaluated, so nothing is known about problems outside the training set."
                .to_owned(),
        };
    };
    let ([before, after], generations) = (own.printed(), grouped(own.generations));
    let went = format!("went from {before} for the base model to {after} (after {generations} generations):");
    let stayed = format!("stayed at the base model's {after} after {generations} generations");
    let Some(change) = own.describe(&went, &stayed) else {
        return "No held-out problem has a judged attempt.".to_owned();
    };
    let mut text = format!("On {} held-out problems, pass@1 {change}", own.differences().len());
    if let Some(k) = most_samples(main)
        && let Some(change) = held_out_change(main, k)
    {
        let [before, after] = change.printed();
        let change =
            change.describe(&format!("went from {before} to {after}:"), &format!("stayed at {after}"));
        text.extend(change.map(|change| format!("; pass@{k} {change}")));
    }
    if let Some(other) = baseline(groups, main)
        && let Some(change) = held_out_change(other, 1)
    {
        let (name, rate) = (&other.label, percent(mean(&change.after)));
        text.push_str(&format!(". {name} reached {rate} after {} generations", grouped(change.generations)));
        let more = change.generations / own.generations - 1.0;
        if more.abs() > UNEQUAL {
            let (share, word) = (100.0 * more.abs(), if more > 0.0 { "more" } else { "fewer" });
            text.push_str(&format!(", {share:.0}% {word} than {}; the two are not comparable", main.label));
        }
    }
    text + "."
}

/// The rates on held-out problems before and after training.
struct HeldOutChange {
    /// pass@k of the base model by problem.
    before: Vec<f64>,
    /// pass@k of the last weights by problem.
    after: Vec<f64>,
    /// Generations before the last evaluation.
    generations: f64,
}

impl HeldOutChange {
    /// Returns pass@k of the base model and of a run's last weights; `None` unless both were evaluated on the same number
    /// of problems.
    fn of(run: &RunData, k: u32) -> Option<Self> {
        // The rate of a problem with too few judged attempts is NaN.
        let rate = |&(judged, proved): &(u32, u32)| {
            pass_at_k(judged.into(), proved.into(), k.into()).unwrap_or(f64::NAN)
        };
        let rates = |tallies: &[(u32, u32)]| -> Vec<f64> { tallies.iter().map(rate).collect() };
        let first = run.held_out().next().filter(|e| e.after == 0)?;
        let last = run.held_out().next_back().filter(|e| e.after > 0)?;
        let change = Self {
            before: rates(&first.held_out_tallies()),
            after: rates(&last.held_out_tallies()),
            generations: run.generations_before(last).or_else(|| run.last(metric::GENERATIONS))?,
        };
        Some(change).filter(|change| change.before.len() == change.after.len())
    }

    /// Returns the differences of the problems with judged attempts before and after.
    fn differences(&self) -> Vec<f64> {
        self.after.iter().zip(&self.before).map(|(a, b)| a - b).filter(|d| d.is_finite()).collect()
    }

    /// Returns the mean rates as they are printed.
    fn printed(&self) -> [String; 2] {
        [&self.before, &self.after].map(|rates| percent(mean(rates)))
    }

    /// Describes the mean difference with its interval over the problems, after the words `changed`; after the words
    /// `stayed` if the printed rates are equal. Returns `None` if no problem has judged attempts before and after.
    fn describe(&self, changed: &str, stayed: &str) -> Option<String> {
        let Interval { low, high, .. } = bootstrap_mean(&self.differences(), 0.95, RESAMPLES, 1)?;
        let meaning = if low > 0.0 {
            "a significant gain"
        } else if high < 0.0 {
            "a significant loss"
        } else {
            "not a significant change"
        };
        let [before, after] = self.printed();
        if before == after {
            let meaning = if low > 0.0 || high < 0.0 { format!(", {meaning}") } else { String::new() };
            let [low, high] = [low, high].map(signed_points);
            let interval = format!("95% interval of the change over the problems {low} to {high} points");
            return Some(format!("{stayed} ({interval}){meaning}"));
        }
        // The rates are printed with one decimal: their difference must be that of the printed ones.
        // `format!` rounds ties to even.
        let printed = |rates: &[f64]| (1000.0 * mean(rates)).round_ties_even() / 1000.0;
        let value = printed(&self.after) - printed(&self.before);
        let [value, low, high] = [value, low, high].map(signed_points);
        Some(format!("{changed} {value} points (95% interval over the problems {low} to {high}), {meaning}"))
    }
}

/// Describes the change of a run's pass@k on held-out problems, with its interval: "changed by …" or, if the printed rates
/// are equal, "stayed at …". Returns `None` if the base model and later weights were not evaluated on the same number of
/// problems.
pub fn describe_held_out_change(run: &RunData, k: u32) -> Option<String> {
    let change = HeldOutChange::of(run, k)?;
    let [_, after] = change.printed();
    change.describe("changed by", &format!("stayed at {after}"))
}

/// Returns pass@k on held-out problems, averaged over the runs of a group that have evaluated the base model and later
/// weights on the same number of problems.
fn held_out_change(group: &SeedGroup<'_, '_>, k: u32) -> Option<HeldOutChange> {
    let all: Vec<HeldOutChange> = group.runs.iter().filter_map(|d| HeldOutChange::of(d.run, k)).collect();
    let problems = all.first()?.before.len();
    let same: Vec<_> = all.iter().filter(|change| change.before.len() == problems).collect();
    let average = |of: &dyn Fn(&HeldOutChange) -> f64| {
        same.iter().map(|change| of(change)).sum::<f64>() / same.len() as f64
    };
    Some(HeldOutChange {
        before: (0..problems).map(|i| average(&|change| change.before[i])).collect(),
        after: (0..problems).map(|i| average(&|change| change.after[i])).collect(),
        generations: average(&|change| change.generations),
    })
}

/// Returns the largest k above 1 that the first run with evaluations before and after training has samples for.
fn most_samples(group: &SeedGroup<'_, '_>) -> Option<u32> {
    let of = |run: &RunData| {
        let first = run.held_out().next().filter(|e| e.after == 0)?;
        let last = run.held_out().next_back().filter(|e| e.after > 0)?;
        Some(first.samples().min(last.samples()))
    };
    group.runs.iter().find_map(|d| of(d.run)).filter(|k| *k > 1)
}

/// States how many rewards the Guide changed to 0 and, if there is a run without a Guide, its solve rate.
fn guide(groups: &[SeedGroup<'_, '_>], main: &SeedGroup<'_, '_>) -> String {
    let sum = |of: fn(&ReviewCounts) -> u64| main.runs.iter().map(|d| of(&d.run.reviews)).sum::<u64>();
    let [removed, rewarded] = [sum(|counts| counts.removed), sum(|counts| counts.rewarded)];
    let effect = match (sum(|counts| counts.reviewed), rewarded) {
        (0, _) => "No conjecture was reviewed".to_owned(),
        (_, 0) => "No reviewed conjecture was hard but solvable".to_owned(),
        _ => format!(
            "Of the {} conjectures that were hard but solvable, {} earned no reward, because the Guide scored them 0",
            grouped(rewarded as f64),
            grouped(removed as f64)
        ),
    };
    let without = groups.iter().find(|g| g.method() == Some(Method::SgsNoGuide) && g.label != main.label);
    let measured = without.and_then(|without| {
        let (own, others) = (main.curve(), without.curve());
        let end = last_comparable(&[&own, &others])?;
        Some((measured_at(&own, end)?, measured_at(&others, end)?, main.runs.len().min(without.runs.len())))
    });
    match measured {
        Some((own, others, seeds)) => format!(
            "{effect}. With the Guide {} of the targets were proved at equal generations, without it {}{}.",
            percent(own),
            percent(others),
            if seeds < 3 { "; fewer than three seeds do not decide whether it mattered" } else { "" }
        ),
        None if rewarded == 0 => format!("{effect}, so the Guide had no effect."),
        None => format!("{effect}. Whether that helped needs a run of sgs-no-guide for comparison."),
    }
}

/// Returns the mean of the values that are numbers.
fn mean(values: &[f64]) -> f64 {
    let known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    known.iter().sum::<f64>() / known.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_that_of_the_printed_rates() {
        // 5.0% and 6.8%: the unrounded difference is 1.74 points.
        let change = HeldOutChange { before: vec![0.0504; 9], after: vec![0.0678; 9], generations: 1.0 };
        let text = change.describe("changed by", "stayed").unwrap_or_default();
        assert!(text.starts_with("changed by +1.8 points"), "{text}");
    }

    #[test]
    fn a_rate_that_is_printed_as_before_has_stayed() {
        // Both rates are printed as 18.0%.
        let change = HeldOutChange { before: vec![0.1800; 9], after: vec![0.1804; 9], generations: 1.0 };
        let text = change.describe("changed by", "stayed at 18.0%").unwrap_or_default();
        assert!(text.starts_with("stayed at 18.0% (95% interval of the change"), "{text}");
    }
}
