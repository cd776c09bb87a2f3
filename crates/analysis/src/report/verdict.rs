//! The verdict at the top of a report: three sentences on the targets, on held-out problems and on the Guide.

use super::html::signed_points;
use super::tables::main_group;
use crate::compare::common_generations;
use crate::figures::{Curve, PlottedRun, SeedGroup, groups, is_baseline};
use crate::plot::{Unit, format_value};
use crate::run::{ConjectureRound, RunData, metric};
use crate::stats::{Interval, bootstrap_mean, measured_at};
use sgs_selfplay::Method;

/// Number of resamples for the interval of a difference.
const RESAMPLES: usize = 1000;
/// Results after numbers of generations that differ by more than this share are not compared.
const UNEQUAL: f64 = 0.1;

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
    let number = |rate: f64, all: f64| format!("{:.0}", rate * all);
    let (proved, at_first) = match all {
        Some(all) => (
            format!("{} of {all:.0} targets", number(last.1, all)),
            format!("{} of them", number(first.1, all)),
        ),
        None => (format!("{} of the targets", percent(last.1)), percent(first.1)),
    };
    let mut targets = format!("{name} proved {proved} in {} generations", count(last.0));
    if curve.len() > 1 {
        targets.push_str(&format!(" ({at_first} after the first round)"));
    }
    let other = baseline(&groups, main);
    let measured =
        main.runs.iter().find_map(|d| d.run.baseline.as_ref()?.against(&curve).zip(d.run.baseline.as_ref()));
    // A run of sampling-only measures the same curve with the same seed.
    let measured = measured.filter(|_| other.is_none_or(|g| g.method() != Some(Method::SamplingOnly)));
    if let Some(((end, own, base), measured)) = measured {
        let (name, at) = ("the base model without training", format!("at {} generations", count(end)));
        let seeds = measured.seeds();
        targets.push_str(&compared(own, name, base.value, (end < last.0).then_some(at.as_str())));
        targets.push_str(&format!(" ({} to {}, {seeds} seeds)", percent(base.low), percent(base.high)));
    }
    match other.or_else(|| only_other(&groups, main)) {
        Some(other) => targets.push_str(&against(&curve, other)),
        None if measured.is_none() => {
            targets.push_str("; this report has no measured baseline (a run of sampling-only is one)");
        }
        None => {}
    }
    vec![targets + ".", held_out(&groups, main), guide(&groups, main)]
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

/// Compares a curve with a group at the last generations that both have reached.
fn against(curve: &Curve, other: &SeedGroup<'_, '_>) -> String {
    let other_curve = other.curve();
    let end = common_generations(&[curve, &other_curve]).last().copied();
    let at = end.and_then(|end| Some((end, measured_at(curve, end)?, measured_at(&other_curve, end)?)));
    match at {
        Some((end, own, others)) => {
            let at = format!("at {} generations, the last that both have reached", count(end));
            let is_earlier = curve.last().is_some_and(|last| end < last.0);
            compared(own, &other.label, others, is_earlier.then_some(at.as_str()))
        }
        None => format!("; {} has no generations in common with it", other.label),
    }
}

/// Compares two rates at the end of the Solver's curve, or at the generations that `at` describes.
fn compared(own: f64, other: &str, others: f64, at: Option<&str>) -> String {
    let (own, others) = (percent(own), percent(others));
    match at {
        None => format!("; {other} proves {others} with as many"),
        Some(at) => format!("; {at}, the Solver had proved {own} and {other} {others}"),
    }
}

/// Compares pass@1 on held-out problems before and after training.
fn held_out(groups: &[SeedGroup<'_, '_>], main: &SeedGroup<'_, '_>) -> String {
    let Some(own) = held_out_change(main) else {
        return match main.runs.iter().any(|d| d.run.held_out().next().is_some()) {
            true => "On held-out problems, only the base model has been evaluated so far.".to_owned(),
            false => "No held-out problems were evaluated, so nothing is known about problems outside the training set."
                .to_owned(),
        };
    };
    let differences: Vec<f64> =
        own.after.iter().zip(&own.before).map(|(a, b)| a - b).filter(|d| d.is_finite()).collect();
    let Some(Interval { value, low, high }) = bootstrap_mean(&differences, 0.95, RESAMPLES, 1) else {
        return "No held-out problem has a judged attempt.".to_owned();
    };
    let meaning = if low > 0.0 {
        "a significant gain"
    } else if high < 0.0 {
        "a significant loss"
    } else {
        "not a significant change"
    };
    let mut text = format!(
        "On {} held-out problems, pass@1 went from {} for the base model to {} (after {} generations): {} points \
         (95% interval over the problems {} to {}), {meaning}",
        differences.len(),
        percent(mean(&own.before)),
        percent(mean(&own.after)),
        count(own.generations),
        signed_points(value),
        signed_points(low),
        signed_points(high)
    );
    if let Some((k, before, after)) = pass_at_most(main) {
        text.push_str(&format!("; pass@{k} went from {} to {}", percent(before), percent(after)));
    }
    if let Some(other) = baseline(groups, main)
        && let Some(change) = held_out_change(other)
    {
        let (name, rate) = (&other.label, percent(mean(&change.after)));
        text.push_str(&format!(". {name} reached {rate} after {} generations", count(change.generations)));
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
    /// pass@1 of the base model by problem.
    before: Vec<f64>,
    /// pass@1 of the last weights by problem.
    after: Vec<f64>,
    /// Generations before the last evaluation.
    generations: f64,
}

/// Returns the rates on held-out problems, averaged over the runs of a group that have evaluated the base model and later
/// weights on the same number of problems.
fn held_out_change(group: &SeedGroup<'_, '_>) -> Option<HeldOutChange> {
    // The rate of a problem without a judged attempt is NaN.
    let rates = |tallies: &[(u32, u32)]| -> Vec<f64> {
        tallies.iter().map(|(judged, proved)| f64::from(*proved) / f64::from(*judged)).collect()
    };
    let of = |run: &RunData| {
        let first = run.held_out().next().filter(|e| e.after == 0)?;
        let last = run.held_out().next_back().filter(|e| e.after > 0)?;
        let change = HeldOutChange {
            before: rates(&first.held_out_tallies()),
            after: rates(&last.held_out_tallies()),
            generations: run.generations_before(last).or_else(|| run.last(metric::GENERATIONS))?,
        };
        Some(change).filter(|change| change.before.len() == change.after.len())
    };
    let all: Vec<HeldOutChange> = group.runs.iter().filter_map(|d| of(d.run)).collect();
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

/// Returns the largest k above 1 that the evaluations of a group have samples for, and pass@k of the base model and of the
/// last weights on held-out problems, averaged over the runs.
fn pass_at_most(group: &SeedGroup<'_, '_>) -> Option<(u32, f64, f64)> {
    let of = |run: &RunData| {
        let first = run.held_out().next().filter(|e| e.after == 0)?;
        let last = run.held_out().next_back().filter(|e| e.after > 0)?;
        let k = first.samples().min(last.samples());
        Some((k, first.held_out_pass_at(k)?, last.held_out_pass_at(k)?)).filter(|_| k > 1)
    };
    let all: Vec<(u32, f64, f64)> = group.runs.iter().filter_map(|d| of(d.run)).collect();
    let k = all.first()?.0;
    let (before, after): (Vec<f64>, Vec<f64>) =
        all.iter().filter(|run| run.0 == k).map(|run| (run.1, run.2)).unzip();
    Some((k, mean(&before), mean(&after)))
}

/// States how many rewards the Guide changed to 0 and, if there is a run without a Guide, its solve rate.
fn guide(groups: &[SeedGroup<'_, '_>], main: &SeedGroup<'_, '_>) -> String {
    let sum = |of: fn(&ConjectureRound) -> u64| -> u64 {
        main.runs.iter().flat_map(|d| &d.run.conjecture_stats.rounds).map(of).sum()
    };
    let [zero, rewarded] = [sum(|round| round.rewarded[1]), sum(|round| round.rewarded[0])];
    let effect = match (sum(|round| round.reviewed[0]), rewarded) {
        (0, _) => "No conjecture was reviewed".to_owned(),
        (_, 0) => "No reviewed conjecture had a solve rate that is rewarded".to_owned(),
        _ => format!(
            "Of the {rewarded} conjectures that their solve rate alone would have rewarded, the Guide gave {zero} a score of 0"
        ),
    };
    let without = groups.iter().find(|g| g.method() == Some(Method::SgsNoGuide) && g.label != main.label);
    let measured = without.and_then(|without| {
        let (own, others) = (main.curve(), without.curve());
        let end = common_generations(&[&own, &others]).last().copied()?;
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

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

fn count(generations: f64) -> String {
    format_value(generations.round(), Unit::Count, 3)
}
