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

/// Returns the three sentences of the verdict, or `None` before the first round.
pub(super) fn sentences(drawn: &[PlottedRun<'_>]) -> Option<[String; 3]> {
    let groups = groups(drawn);
    let main = main_group(&groups, drawn)?;
    Some([targets(&groups, main)?, held_out(&groups, main), guide(&groups, main)])
}

/// Compares the solve rate on the targets with the measured baselines. Returns `None` before the first round.
fn targets(groups: &[SeedGroup<'_, '_>], main: &SeedGroup<'_, '_>) -> Option<String> {
    let curve = main.curve();
    let (first, last) = (curve.first()?, curve.last()?);
    let [subject, name] = if groups.len() > 1 { [&*main.label; 2] } else { ["The Solver", "the Solver"] };
    let (rate, generations) = (percent(last.1), grouped(last.0));
    // Several runs have a mean rate, which is not a number of targets.
    let all = match main.runs.as_slice() {
        [one] => one.run.last(metric::TARGETS),
        _ => None,
    };
    let proved = match all {
        Some(all) => format!("{} of {} targets ({rate})", grouped(last.1 * all), grouped(all)),
        None => format!("{rate} of the targets"),
    };
    let mut text = format!("{subject} proved {proved} in {generations} generations");
    let other = baseline(groups, main);
    let measured =
        main.runs.iter().find_map(|d| d.run.baseline.as_ref()?.against(&curve).zip(d.run.baseline.as_ref()));
    // A run of sampling-only measures the same curve with the same seed.
    let measured = measured.filter(|_| other.is_none_or(|g| g.method() != Some(Method::SamplingOnly)));
    let other = compared_with(groups, main);
    if let Some(other) = other {
        text.push_str(&format!("; {}", against(&curve, main, other)));
    }
    match measured {
        Some(((end, own, base), measured)) => {
            let [own_rate, rate, low, high] = [own, base.value, base.low, base.high].map(percent);
            let (seeds, place) = (measured.seeds(), base.place(own));
            let base = match main.runs.iter().any(|d| d.run.has_conjectures()) {
                true => "the base model without training, which attempts only targets,",
                false => "the base model without training",
            };
            text.push_str(&match other.is_none() && end >= last.0 {
                true => format!("; with as many generations, {base} proves {rate}"),
                false => {
                    let at = grouped(end);
                    format!("; at {at} generations, {name} had proved {own_rate} and {base} {rate}")
                }
            });
            text.push_str(&format!(" ({seeds} seeds: {low} to {high}), so {name} is {place}"));
        }
        None if other.is_none() => {
            if curve.len() > 1 {
                text.push_str(&format!(" ({} in the first round)", percent(first.1)));
            }
            let start = main.runs.iter().find_map(|d| Some(d.run.baseline.as_ref()?.start()));
            text.push_str(&match start.filter(|start| last.0 < *start) {
                _ if main.method() == Some(Method::SamplingOnly) => "; nothing was trained".to_owned(),
                Some(start) => {
                    format!("; the measured curve of the base model begins at {} generations", grouped(start))
                }
                None => "; this report has no measured baseline (a run of sampling-only is one)".to_owned(),
            });
        }
        None => {}
    }
    Some(text + ".")
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
    let other = others.next().filter(|g| !lacks_guide(g, main));
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
            "{own_name} and {name} have no rounds that end after almost equal numbers of generations"
        );
    };
    let (at, own, others) = (grouped(end), percent(own), percent(others));
    let seeds = if main.runs.len() == 1 && other.runs.len() == 1 { " (one seed each)" } else { "" };
    format!("at {at} generations, {own_name} had proved {own} and {name} {others}{seeds}")
}

/// Compares pass@k on held-out problems before and after training.
fn held_out(groups: &[SeedGroup<'_, '_>], main: &SeedGroup<'_, '_>) -> String {
    let Some(own) = held_out_change(main, 1) else {
        return match main.runs.iter().any(|d| d.run.held_out().next().is_some()) {
            true => "On held-out problems, only the base model has been evaluated so far.".to_owned(),
            false => "No held-out problems were evaluated, so nothing is known about problems outside the training set."
                .to_owned(),
        };
    };
    let Some((interval, meaning)) = own.tested() else {
        return "No held-out problem has a judged attempt.".to_owned();
    };
    let (problems, [before, after]) = (own.differences().len(), own.printed());
    let went = match before == after {
        true => format!("stayed at the base model's {after}"),
        false => format!("went from the base model's {before} to {after}"),
    };
    let mut text = format!(
        "On {problems} held-out problems, pass@1 {went}, {meaning} (95% interval of the change {interval} points)"
    );
    if let Some(k) = most_samples(main)
        && let Some(change) = held_out_change(main, k)
        && let Some((_, meaning)) = change.tested()
    {
        let [before, after] = change.printed();
        let went = match before == after {
            true => format!("stayed at {after}"),
            false => format!("went from {before} to {after}"),
        };
        text.push_str(&format!("; pass@{k} {went}, {meaning}"));
    }
    if let Some(other) = baseline(groups, main)
        && let Some(change) = held_out_change(other, 1)
    {
        text.push_str(&format!("; {} reached a pass@1 of {}", other.label, percent(mean(&change.after))));
        let more = change.generations / own.generations - 1.0;
        if more.abs() > UNEQUAL {
            let (share, word) = (100.0 * more.abs(), if more > 0.0 { "more" } else { "fewer" });
            text.push_str(&format!(" after {share:.0}% {word} generations, so the two are not comparable"));
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

    /// Returns the 95% bootstrap interval of the mean difference over the problems, in points, and its meaning. Returns
    /// `None` if no problem has judged attempts before and after.
    fn tested(&self) -> Option<(String, &'static str)> {
        let Interval { low, high, .. } = bootstrap_mean(&self.differences(), 0.95, RESAMPLES, 1)?;
        let meaning = if low > 0.0 {
            "a significant gain on these problems"
        } else if high < 0.0 {
            "a significant loss on these problems"
        } else {
            "not a significant change"
        };
        let [low, high] = [low, high].map(signed_points);
        Some((format!("{low} to {high}"), meaning))
    }

    /// Describes the mean difference. Returns `None` if no problem has judged attempts before and after.
    fn describe(&self) -> Option<String> {
        let (interval, meaning) = self.tested()?;
        let [before, after] = self.printed();
        if before == after {
            return Some(format!(
                "stayed at {after} (95% interval of the change over the problems {interval} points), {meaning}"
            ));
        }
        // The rates are printed with one decimal: their difference must be that of the printed ones.
        // `format!` rounds ties to even.
        let printed = |rates: &[f64]| (1000.0 * mean(rates)).round_ties_even() / 1000.0;
        let value = signed_points(printed(&self.after) - printed(&self.before));
        Some(format!("changed by {value} points (95% interval over the problems {interval}), {meaning}"))
    }
}

/// Describes the change of a run's pass@k on held-out problems, with its interval: "changed by …" or, if the printed rates
/// are equal, "stayed at …". Returns `None` if the base model and later weights were not evaluated on the same number of
/// problems.
pub fn describe_held_out_change(run: &RunData, k: u32) -> Option<String> {
    HeldOutChange::of(run, k)?.describe()
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
    if main.runs.iter().all(|d| d.run.has_guide() == Some(false)) {
        return "No Guide took part.".to_owned();
    }
    let sum = |of: fn(&ReviewCounts) -> u64| main.runs.iter().map(|d| of(&d.run.reviews)).sum::<u64>();
    let [reviewed, removed, rewarded] =
        [sum(|counts| counts.reviewed), sum(|counts| counts.removed), sum(|counts| counts.rewarded)];
    let effect = match (reviewed, rewarded) {
        (0, _) => "No conjecture was reviewed".to_owned(),
        (_, 0) => format!("None of {} reviewed conjectures was hard but solvable", grouped(reviewed as f64)),
        _ => {
            let [reviewed, rewarded] = [reviewed, rewarded].map(|count| grouped(count as f64));
            let zeros = match removed {
                0 => "none of these a score of 0".to_owned(),
                _ => format!(
                    "{} of these a score of 0, so that they earned no reward",
                    grouped(removed as f64)
                ),
            };
            format!(
                "Of {reviewed} reviewed conjectures, {rewarded} were hard but solvable, and the Guide gave {zeros}"
            )
        }
    };
    let without = groups.iter().find(|g| lacks_guide(g, main));
    let measured = without.and_then(|without| {
        let (own, others) = (main.curve(), without.curve());
        let end = last_comparable(&[&own, &others])?;
        Some((measured_at(&own, end)?, measured_at(&others, end)?, main.runs.len().min(without.runs.len())))
    });
    match measured {
        Some((own, others, seeds)) => format!(
            "{effect}; with the Guide, {} of the targets were proved at equal generations; without it, {}{}.",
            percent(own),
            percent(others),
            if seeds < 3 { " (fewer than three seeds do not decide whether it mattered)" } else { "" }
        ),
        None if rewarded == 0 => format!("{effect}, so the Guide had no effect."),
        None if main.method() == Some(Method::Sgs) => {
            format!("{effect}; to see whether this helped, compare with a run of sgs-no-guide.")
        }
        None => {
            format!("{effect}; to see whether this helped, compare with a run with algorithm.guide.on=false.")
        }
    }
}

/// Returns whether a group is `main` without a Guide: by its method, or by its setting.
fn lacks_guide(group: &SeedGroup<'_, '_>, main: &SeedGroup<'_, '_>) -> bool {
    let guide = |group: &SeedGroup<'_, '_>| group.runs.first().and_then(|d| d.run.has_guide());
    match (main.method(), group.method()) {
        (Some(Method::Sgs), Some(Method::SgsNoGuide)) => true,
        (own, other) => {
            own == other
                && group.label != main.label
                && guide(main) != Some(false)
                && guide(group) == Some(false)
        }
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
        let text = change.describe().unwrap_or_default();
        assert!(text.starts_with("changed by +1.8 points"), "{text}");
    }

    #[test]
    fn a_rate_that_is_printed_as_before_has_stayed() {
        // Both rates are printed as 18.0%.
        let change = HeldOutChange { before: vec![0.1800; 9], after: vec![0.1804; 9], generations: 1.0 };
        let text = change.describe().unwrap_or_default();
        assert!(text.starts_with("stayed at 18.0% (95% interval of the change"), "{text}");
    }
}
