//! Figure of the sensitivity of a fit to single points (paper, Appendix A, Fig. 8).

use super::PlottedRun;
use super::common::{bars_panel, generations_axis, panel};
use super::curves::{describe, fitted};
use crate::fit::{FitOptions, Parameter, TailFit, prepare};
use crate::plot::{Axis, BarSeries, Figure, FigurePanel, Ink, PanelShape, Series, SeriesStyle, Unit, Xy};
use crate::run::metric;

/// Returns the figure of the fits without the last points and on random halves.
pub(super) fn sensitivity(d: &PlottedRun<'_>, options: &FitOptions) -> Option<Figure> {
    let fit = d.fit.as_ref().ok().filter(|fit| fit.is_identified())?;
    let (tails, halves) = d.against.as_ref()?;
    let prepared = prepare(&d.run.curve(), options.cut).ok()?;
    let until = d.run.last(metric::GENERATIONS)?;
    let all: Vec<(f64, f64)> = prepared.points.iter().map(|p| (p.generations, p.rate)).collect();
    let mut panels = Vec::new();
    let (mut names, mut values, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let whole = TailFit { removed: 0.0, fit: Ok(fit.clone()) };
    for tail in std::iter::once(&whole).chain(tails) {
        let Ok(fit) = &tail.fit else { continue };
        names.push(match tail.removed {
            0.0 => "all data".to_owned(),
            share => format!("−{:.0}%", 100.0 * share),
        });
        values.push(fit.law.asymptote);
        errors.push(
            fit.interval(Parameter::Asymptote, 0.95).map_or(f64::NAN, |(low, high)| 0.5 * (high - low)),
        );
        let (used, left): (Vec<_>, Vec<_>) = all.iter().copied().partition(|p| p.0 <= fit.range.1);
        let title = match tail.removed {
            0.0 => format!("All data: A = {}", describe(fit)),
            share => format!("Last {:.0}% left out: A = {}", 100.0 * share, describe(fit)),
        };
        let series = vec![
            points("left out", Ink::Axis, left),
            points("observed", Ink::Series(0), used),
            fitted(fit, "scaling law".into(), Ink::Series(1), until),
        ];
        panels.push(sub_panel(&title, series));
    }
    let extreme = |i: usize, name: &str, ink: Ink| {
        halves.fits.get(i).map(|f| Series { band: Vec::new(), ..fitted(f, name.into(), ink, until) })
    };
    let mut series = vec![points("observed", Ink::Series(0), all)];
    series.extend(extreme(halves.extremes.0, "lowest A", Ink::Series(3)));
    series.extend(extreme(halves.extremes.1, "highest A", Ink::Series(2)));
    let title = format!(
        "{} random halves: A = {:.1}%, standard deviation {:.1}",
        halves.fits.len(),
        100.0 * halves.mean[0],
        100.0 * halves.deviation[0]
    );
    panels.push(sub_panel(&title, series));
    names.push("halves".into());
    values.push(halves.mean[0]);
    errors.push(halves.deviation[0]);
    let bars = BarSeries { errors, ..BarSeries::new("asymptote A", Ink::Series(5), values) };
    let y = Axis::new("A", Unit::Percent).from(0.0);
    panels.push(bars_panel("Asymptotes", "Fitted data", names, y, vec![bars]));
    Some(Figure {
        id: "fit-sensitivity".into(),
        title: "Sensitivity of the scaling law".into(),
        caption: format!(
            "{}: fits without the last points, and on random halves of the points (mean and standard deviation of A, and the fits with the lowest and the highest A). Last panel: the asymptotes, with 95% intervals of the fits and the standard deviation of the halves.",
            d.label
        ),
        panels,
    })
}

fn points(name: &str, ink: Ink, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.into(), ink, style: SeriesStyle::Points, points, band: Vec::new() }
}

fn sub_panel(title: &str, series: Vec<Series>) -> FigurePanel {
    let y = Axis::new("Cumulative solve rate", Unit::Percent).from(0.0);
    panel(title, PanelShape::Half, Xy { x: generations_axis(), y, series, lines: Vec::new() })
}
