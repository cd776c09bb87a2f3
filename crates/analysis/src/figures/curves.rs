//! Cumulative solve rates of one or several runs (paper, Fig. 1, 5, 6).

use super::common::{about_seeds, generations_axis, panel};
use super::seeds::Curve;
use super::{FigureOptions, PlottedRun, SeedGroup, groups, is_baseline};
use crate::baseline::Baseline;
use crate::compare::asymptote_over_seeds;
use crate::fit::Fit;
use crate::plot::{Axis, Figure, Ink, PanelShape, ReferenceLine, Series, SeriesStyle, Unit, Xy, percent};
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

/// Returns the fitted law from its origin to `until`, with its 95% band.
fn fitted(fit: &Fit, name: String, ink: Ink, until: f64) -> Series {
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
        Some(half) => format!("{} ± {:.1}", percent(fit.law.asymptote), 100.0 * half),
        None => UNDETERMINED.to_owned(),
    }
}

/// Returns the figure of the cumulative solve rate with fits and reference lines (Fig. 1).
pub(super) fn cumulative(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> Option<Figure> {
    let until = drawn.iter().filter_map(|d| d.run.last(metric::GENERATIONS)).fold(0.0, f64::max);
    let groups = groups(drawn);
    let mut series = series_of(&groups, |run| run.plotted(metric::CUMULATIVE));
    if series.is_empty() {
        return None;
    }
    let base = super::main_run(drawn).and_then(|d| d.run.baseline.as_ref());
    // A run of sampling-only is itself the curve of a base model.
    let base = base.filter(|_| drawn.iter().all(|d| d.run.method != Some(Method::SamplingOnly)));
    let base = base.map(|base| untrained(base, until)).filter(|curve| !curve.points.is_empty());
    let has_base = base.is_some();
    series.extend(base);
    let mut laws = Vec::new();
    let single = groups.len() == 1;
    // With many runs, only the laws of the main run and the baseline are drawn, because bands would cover each other. The
    // table has all of them.
    let chosen: Vec<usize> =
        [super::main_run(drawn), baseline_of(drawn)].iter().flatten().map(|d| d.group).collect();
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
    let line = |(i, Yardstick { label, rate }): (usize, &Yardstick)| {
        let ink = if i == 0 { Ink::Text } else { Ink::Muted };
        ReferenceLine { value: *rate, label: label.clone(), ink }
    };
    let lines = options.yardsticks.iter().enumerate().map(line).collect();
    let y = Axis::new("Cumulative solve rate", Unit::Percent);
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
    if has_base {
        seeds.push_str(
            " Base model: measured with seeds 1 to 5 by scripts/base-curves.sh; the band is their range.",
        );
    }
    Some(Figure {
        id: "cumulative-solve-rate".into(),
        title: "Cumulative solve rate".into(),
        caption: format!(
            "Fraction of the targets proved at least once. The x axis counts the Solver's rollouts of targets and conjectures.{seeds}{laws}"
        ),
        panels: vec![panel("", PanelShape::Wide, Xy { x: generations_axis(), y, series, lines })],
    })
}

/// Returns the measured curve of the base model, with a band over its seeds.
fn untrained(base: &Baseline, until: f64) -> Series {
    let points = base.curve(until).into_iter().map(|(x, rate)| ((x, rate.value), (rate.low, rate.high)));
    let (points, band) = points.unzip();
    let name = format!("Base model without training, {} seeds", base.seeds());
    Series { band, ..Series::line(name, Ink::Muted, points) }
}

/// Returns the run of REINFORCE-1/2 or, if there is none, of another method that trains on targets only.
fn baseline_of<'a, 'b>(drawn: &'b [PlottedRun<'a>]) -> Option<&'b PlottedRun<'a>> {
    let half = drawn.iter().find(|d| d.run.method == Some(Method::ReinforceHalf));
    half.or_else(|| drawn.iter().find(|d| d.run.method.is_some_and(is_baseline)))
}
