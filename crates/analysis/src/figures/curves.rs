//! Cumulative solve rates of one or several runs (paper, Fig. 1, 5, 6; Appendix F).

use super::common::{about_means, about_seeds, baseline_of, generations_axis, panel, smoothed_series};
use super::seeds::Curve;
use super::{FigureOptions, PlottedRun, SeedGroup, groups, is_baseline};
use crate::baseline::Baseline;
use crate::compare::{asymptote_over_seeds, hard_curve, never_solved};
use crate::fit::Fit;
use crate::plot::{Axis, Figure, Ink, PanelShape, ReferenceLine, Series, SeriesStyle, Unit, Xy};
use crate::run::{RunData, metric};
use sgs_selfplay::Method;

/// The rate of another model, which is drawn as a horizontal line.
#[derive(Clone, Debug, PartialEq)]
pub struct Yardstick {
    /// Label, such as "DSPv2 671B, pass@4".
    pub label: String,
    /// The rate, 0 to 1.
    pub rate: f64,
}

const FIT_POINTS: usize = 120;

fn rate_axis(label: &str) -> Axis {
    Axis::new(label, Unit::Percent)
}

fn xy(x: Axis, y: Axis, series: Vec<Series>) -> Xy {
    Xy { x, y, series, lines: Vec::new() }
}

/// Returns a curve for each group. The single runs of groups with several seeds are in pale colours behind them.
fn series_of(groups: &[SeedGroup<'_, '_>], of: impl Fn(&RunData) -> Curve) -> Vec<Series> {
    let (mut behind, mut before) = (Vec::new(), Vec::new());
    for group in groups {
        let (runs, curve) = group.series(&of);
        behind.extend(runs);
        before.extend(curve);
    }
    behind.extend(before);
    behind
}

/// Returns the number of groups with a curve.
fn curves_in(series: &[Series]) -> usize {
    series.iter().filter(|s| s.style == SeriesStyle::Line).count()
}

fn rates(run: &RunData) -> Curve {
    run.series(metric::CUMULATIVE)
}

/// Returns a figure with one panel, which has enough space for the legend.
fn single(id: &str, title: &str, caption: String, plot: Xy) -> Figure {
    let shape = if curves_in(&plot.series) > 4 { PanelShape::Wide } else { PanelShape::Half };
    Figure { id: id.into(), title: title.into(), caption, panels: vec![panel("", shape, plot)] }
}

/// Returns the fitted law from its origin to `until`, with its 95% band.
pub(super) fn fitted(fit: &Fit, name: String, ink: Ink, until: f64) -> Series {
    let (from, to) = (fit.law.origin, until.max(fit.range.1));
    let at = |i: usize| from + (to - from) * i as f64 / FIT_POINTS as f64;
    let points: Vec<(f64, f64)> = (0..=FIT_POINTS).map(|i| (at(i), fit.law.rate(at(i)))).collect();
    let band = points.iter().map(|(x, _)| fit.band(*x, 0.95)).collect::<Option<Vec<_>>>().unwrap_or_default();
    Series { name, ink, style: SeriesStyle::Fit, points, band }
}

/// Text that is shown instead of an asymptote that the points do not determine.
pub(crate) const UNDETERMINED: &str = "not determined";

/// Describes a fit by its asymptote and its uncertainty.
pub(crate) fn describe(fit: &Fit) -> String {
    match fit.uncertainty(0.95).filter(|_| fit.is_identified()) {
        Some(half) => {
            format!("{:.1}% ± {:.1}", 100.0 * fit.law.asymptote, 100.0 * half)
        }
        None => UNDETERMINED.to_owned(),
    }
}

/// Returns the figure of the cumulative solve rate with fits and reference lines (Fig. 1).
pub(super) fn cumulative(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> Option<Figure> {
    let until = drawn.iter().filter_map(|d| d.run.last(metric::GENERATIONS)).fold(0.0, f64::max);
    let groups = groups(drawn);
    let mut series = series_of(&groups, rates);
    if series.is_empty() {
        return None;
    }
    let base = super::main_run(drawn).and_then(|d| d.run.baseline.as_ref());
    // A run of sampling-only is itself the curve of a base model.
    let base = base.filter(|_| drawn.iter().all(|d| d.run.method != Some(Method::SamplingOnly)));
    series.extend(base.map(|base| untrained(base, until)));
    let mut laws = Vec::new();
    let single = groups.len() == 1;
    // With many runs, only the laws of the main run and the baseline are drawn, because bands would cover each other. The
    // table has all of them.
    let chosen: Vec<usize> =
        [super::main_run(drawn), baseline_of(drawn, options)].iter().flatten().map(|d| d.group).collect();
    let is_chosen =
        |g: &SeedGroup<'_, '_>| groups.len() <= 3 || g.runs.iter().any(|d| chosen.contains(&d.group));
    for group in &groups {
        let Ok(fit) = group.fit(&options.fit) else { continue };
        if fit.is_identified() {
            let name =
                if single { format!("Scaling law, A = {}", describe(&fit)) } else { "Scaling laws".into() };
            if is_chosen(group) {
                let mut law = fitted(&fit, name, group.ink, until);
                // The curve already has a band of this colour, for the range of the seeds.
                if group.has_seeds() {
                    law.band.clear();
                }
                series.push(law);
            }
            laws.push(match asymptote_over_seeds(&group.laws()) {
                Some((a, half)) => {
                    let (a, half) = (100.0 * a, 100.0 * half);
                    format!("{}: A = {a:.1}% ± {half:.1} over the seeds", group.label)
                }
                None => format!("{}: A = {} (fit alone)", group.label, describe(&fit)),
            });
        }
    }
    let mut plot = xy(generations_axis(), rate_axis("Cumulative solve rate"), series);
    for (i, yardstick) in options.yardsticks.iter().enumerate() {
        plot.lines.push(ReferenceLine {
            value: yardstick.rate,
            label: yardstick.label.clone(),
            ink: if i == 0 { Ink::Text } else { Ink::Muted },
        });
    }
    let laws = match laws.len() {
        0 => " The points do not yet determine a scaling law.".to_owned(),
        _ => format!(
            " Dashed{}: the scaling law{}. Its asymptote A with a 95% interval: {}. The interval of a fit alone covers the error of that fit, or the spread across refits if that is larger, but not other seeds.",
            if groups.len() > 3 { ", for the main run and the baseline" } else { "" },
            if groups.iter().any(SeedGroup::has_seeds) {
                ", fitted to the mean of the seeds"
            } else {
                ", with 95% bands"
            },
            laws.join("; ")
        ),
    };
    let mut seeds = about_seeds(&groups);
    if base.is_some() {
        seeds.push_str(
            " Base model: measured with seeds 1 to 5 by scripts/base-curves.sh; the band is their range.",
        );
    }
    Some(Figure {
        id: "cumulative-solve-rate".into(),
        title: "Cumulative solve rate".into(),
        caption: format!(
            "Fraction of the targets that have been proved at least once, over the Solver's rollouts so far, at targets and at conjectures.{seeds}{laws}"
        ),
        panels: vec![panel("", PanelShape::Wide, plot)],
    })
}

/// Returns the measured curve of the base model, with a band over its seeds.
fn untrained(base: &Baseline, until: f64) -> Series {
    let points = base.curve(until).into_iter().map(|(x, rate)| ((x, rate.value), (rate.low, rate.high)));
    let (points, band) = points.unzip();
    let name = format!("Base model without training, {} seeds", base.seeds());
    Series { band, ..Series::line(name, Ink::Muted, points) }
}

fn subset<'a, 'b>(drawn: &'b [PlottedRun<'a>], wanted: impl Fn(Method) -> bool) -> Vec<&'b PlottedRun<'a>> {
    drawn.iter().filter(|d| d.run.method.is_some_and(&wanted)).collect()
}

/// Returns the figure of the baselines that train on targets alone (Fig. 5).
pub(super) fn baselines(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let chosen = subset(drawn, is_baseline);
    let groups = groups(chosen);
    let series = series_of(&groups, rates);
    if curves_in(&series) < 2 {
        return None;
    }
    let caption = format!("Methods that train the Solver on the targets alone.{}", about_seeds(&groups));
    let plot = xy(generations_axis(), rate_axis("Cumulative solve rate"), series);
    Some(single("baselines", "Baselines", caption, plot))
}

/// Returns the figure of the baselines' entropy (Appendix F.1).
pub(super) fn baseline_entropy(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let chosen = subset(drawn, is_baseline);
    let series = smoothed_series(chosen.iter().copied(), metric::SOLVER_ENTROPY);
    if curves_in(&series) < 2 {
        return None;
    }
    let y = Axis::new("Mean entropy per token (nats)", Unit::Plain).from(0.0);
    let about = about_means(chosen.iter().copied());
    let caption = format!("Mean entropy per token of the Solver's distribution.{about}");
    Some(single("baseline-entropy", "Entropy of the baselines", caption, xy(generations_axis(), y, series)))
}

/// Returns the figure of SGS without each of its parts (Fig. 6).
pub(super) fn ablations(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let is_ablation = |m| {
        matches!(
            m,
            Method::SgsNoGuide
                | Method::SgsLearnedGuide
                | Method::SgsFrozenConjecturer
                | Method::SgsNoConditioning
                | Method::SgsCispo
        )
    };
    if subset(drawn, is_ablation).is_empty() {
        return None;
    }
    let chosen = subset(drawn, |m| is_ablation(m) || m == Method::Sgs || m == Method::ReinforceHalf);
    if chosen.len() < 2 {
        return None;
    }
    let groups = groups(chosen.iter().copied());
    let solved = series_of(&groups, rates);
    let trained = smoothed_series(chosen.iter().copied(), metric::TRAINED);
    let count = Axis::new("Conjectures trained on per round", Unit::Count).from(0.0);
    Some(Figure {
        id: "ablations".into(),
        title: "Ablations".into(),
        caption: format!(
            "Left: cumulative solve rate.{} Right: conjectures on which the Solver is trained in each round.{}",
            about_seeds(&groups),
            about_means(chosen.iter().copied())
        ),
        panels: vec![
            panel("", PanelShape::Half, xy(generations_axis(), rate_axis("Cumulative solve rate"), solved)),
            panel("", PanelShape::Half, xy(generations_axis(), count, trained)),
        ],
    })
}

/// Returns the rounds of a run with their generations.
pub(crate) fn round_generations(run: &RunData) -> Vec<(u32, f64)> {
    run.rounds.iter().filter_map(|r| Some((r.round, RunData::value(r, metric::GENERATIONS)?))).collect()
}

/// Returns the group whose unsolved targets define D_hard: the baseline's group, or the single run that the options name.
fn hard_baseline<'a, 'b>(drawn: &'b [PlottedRun<'a>], options: &FigureOptions) -> Option<SeedGroup<'a, 'b>> {
    let baseline = baseline_of(drawn, options)?;
    match options.baseline {
        Some(_) => Some(SeedGroup { label: baseline.label.clone(), ink: baseline.ink, runs: vec![baseline] }),
        None => groups(drawn).into_iter().find(|g| g.runs.iter().any(|d| d.group == baseline.group)),
    }
}

/// Returns the figure of the progress on the targets that the baseline never solves (Appendix F.3).
pub(super) fn hard(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> Option<Figure> {
    let baseline = hard_baseline(drawn, options)?;
    let never: Vec<_> = baseline.runs.iter().map(|d| never_solved(&d.run.targets)).collect();
    let hard = never.into_iter().reduce(|a, b| a.intersection(&b).copied().collect())?;
    if hard.is_empty() {
        return None;
    }
    let groups = groups(drawn);
    let series = series_of(&groups, |run| hard_curve(&run.targets, &hard, &round_generations(run)));
    let caption = format!(
        "Cumulative solve rate on D_hard, the {} targets that {} does not solve in {}.{}",
        hard.len(),
        baseline.label,
        if baseline.has_seeds() { "any of its runs" } else { "the whole run" },
        about_seeds(&groups)
    );
    let plot = xy(generations_axis(), rate_axis("Solved of D_hard").from(0.0), series);
    Some(single("hard-targets", "Targets beyond the baseline", caption, plot))
}

/// Returns the figure of the cumulative solve rate over wall time.
pub(super) fn by_wall_time(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let groups = groups(drawn);
    let mut series = series_of(&groups, rate_by_time);
    series.retain(|s| s.points.len() > 1);
    if series.is_empty() {
        return None;
    }
    let x = Axis::new("Wall time", Unit::Duration).from(0.0);
    let about = about_seeds(&groups);
    let caption =
        format!("Wall time of the rounds. Pauses are excluded if all rounds measure their duration.{about}");
    let plot = xy(x, rate_axis("Cumulative solve rate"), series);
    Some(single("wall-time", "Cumulative solve rate over wall time", caption, plot))
}

/// Returns (seconds, cumulative solve rate) for each round.
pub(crate) fn rate_by_time(run: &RunData) -> Vec<(f64, f64)> {
    let clock = run.clock();
    let rates = run.series(metric::CUMULATIVE);
    clock
        .into_iter()
        .filter_map(|(generations, seconds)| {
            rates.iter().find(|r| r.0 == generations).map(|r| (seconds, r.1))
        })
        .filter(|p| p.0.is_finite())
        .collect()
}
