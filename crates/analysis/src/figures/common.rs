//! Helpers that several figures share: axes, panels, running means and captions.

use super::{MOST_POINTS, PlottedRun, SeedGroup, groups, thinned};
use crate::plot::{
    Axis, Bars, FigurePanel, PanelContent, PanelShape, Series, SeriesStyle, Unit, Xy, format_value,
};
use crate::run::{RunData, metric};

pub(super) fn generations_axis() -> Axis {
    Axis::new("Generations", Unit::Count).from(0.0)
}

pub(super) fn panel(title: &str, shape: PanelShape, xy: Xy) -> FigurePanel {
    FigurePanel { title: title.to_owned(), shape, content: PanelContent::Xy(xy) }
}

/// Returns the only panel of a figure of bars.
pub(super) fn bars_panel(bars: Bars) -> FigurePanel {
    FigurePanel { title: String::new(), shape: PanelShape::Wide, content: PanelContent::Bars(bars) }
}

/// Describes groups with several seeds, for captions.
pub(super) fn about_seeds(groups: &[SeedGroup<'_, '_>]) -> String {
    if !groups.iter().any(SeedGroup::has_seeds) {
        return String::new();
    }
    let mut out =
        " With several seeds: the mean, a band from the lowest to the highest, and the single runs in pale colours."
            .to_owned();
    for group in groups {
        if let Some((shortest, longest)) = group.ends_early() {
            let [shortest, longest] = [shortest, longest].map(|g| format_value(g, Unit::Count, 3));
            let label = &group.label;
            out.push_str(&format!(
                " The mean of {label} ends with its shortest run at {shortest} generations; the longest run has {longest}."
            ));
        }
    }
    out
}

/// Returns series of a metric over generations: running means in front of the values of single rounds; with several seeds,
/// the mean of the running means. Runs without the metric, and counts that are zero because the method does not have them,
/// are omitted.
pub(super) fn smoothed_series<'a: 'b, 'b>(
    drawn: impl IntoIterator<Item = &'b PlottedRun<'a>>,
    name: &str,
) -> Vec<Series> {
    let points = |run: &RunData| {
        let is_absent = name == metric::TRAINED && run.series(name).iter().all(|p| p.1 == 0.0);
        if is_absent { Vec::new() } else { run.plotted(name) }
    };
    let means = |run: &RunData| {
        let points = points(run);
        running_mean(&points, window(points.len()))
    };
    let (mut behind, mut before) = (Vec::new(), Vec::new());
    for group in groups(drawn) {
        let (runs, curve) = group.series(means);
        behind.extend(runs);
        before.extend(curve);
        if let [d] = group.runs.as_slice() {
            let single = points(d.run);
            if window(single.len()) > 1 {
                let name = format!("{}, single rounds", d.label);
                let single = thinned(single, MOST_POINTS);
                behind.push(Series { style: SeriesStyle::Faint, ..Series::line(name, d.ink, single) });
            }
        }
    }
    behind.extend(before);
    behind
}

/// Returns the window of the running mean in rounds: an odd number of about 1/12 of the run, at most 11; 1 for short runs.
pub(super) fn window(rounds: usize) -> usize {
    if rounds < 10 { 1 } else { ((rounds / 12) | 1).clamp(3, 11) }
}

/// Returns the running mean over `window` points. At the ends, the window is truncated, so that a curve never ends with the
/// value of a single round. Points without a value stay so and do not count.
pub(super) fn running_mean(points: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    let last = points.len().saturating_sub(1);
    let mean = |(i, p): (usize, &(f64, f64))| {
        let reach = window / 2;
        let near = points[i.saturating_sub(reach)..=(i + reach).min(last)].iter().map(|q| q.1);
        let near: Vec<f64> = near.filter(|y| y.is_finite()).collect();
        let mean = near.iter().sum::<f64>() / near.len() as f64;
        (p.0, if p.1.is_finite() { mean } else { p.1 })
    };
    points.iter().enumerate().map(mean).collect()
}

/// Describes the running means in a figure, for captions.
pub(super) fn about_means<'a: 'b, 'b>(drawn: impl IntoIterator<Item = &'b PlottedRun<'a>>) -> String {
    let groups = groups(drawn);
    let runs = || groups.iter().flat_map(|g| &g.runs);
    let widest = runs().map(|d| window(d.run.rounds.len())).max().unwrap_or(1);
    let means = match widest {
        1 => String::new(),
        _ if groups.iter().all(SeedGroup::has_seeds) => {
            format!(" Curves are running means (at most {widest} rounds).")
        }
        _ => format!(" Curves are running means (at most {widest} rounds); single rounds are pale."),
    };
    means + &about_seeds(&groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_means_cover_the_whole_run() {
        let points: Vec<(f64, f64)> =
            [0.0, 3.0, 0.0, 3.0, 6.0].into_iter().enumerate().map(|(i, y)| (i as f64, y)).collect();
        let means: Vec<f64> = running_mean(&points, 3).into_iter().map(|p| p.1).collect();
        assert_eq!(means, [1.5, 1.0, 2.0, 3.0, 4.5]);
        assert_eq!(running_mean(&points, 1), points);
        let gap = running_mean(&[(0.0, 2.0), (1.0, f64::NAN), (2.0, 4.0), (3.0, 6.0)], 3);
        assert!(gap[1].1.is_nan());
        assert_eq!([gap[0].1, gap[2].1, gap[3].1], [2.0, 5.0, 5.0]);
        assert!(running_mean(&[], 5).is_empty());
        assert_eq!([0, 9, 10, 24, 60, 200, 5000].map(window), [1, 1, 3, 3, 5, 11, 11]);
    }
}
