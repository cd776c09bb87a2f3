//! Figures of the conjectures and the Guide of the main run.

use super::common::{bars_panel, generations_axis, panel, running_mean, window};
use super::{MOST_POINTS, PlottedRun, thinned};
use crate::plot::{
    Axis, BarSeries, Figure, FigurePanel, Ink, PanelContent, PanelShape, Series, Unit, Xy, grouped,
};
use crate::run::{ConjectureClass, ConjectureRound, RunData, StatementOrigin, metric};

/// Colour of each [`StatementOrigin`]. New statements stand out.
const ORIGINS: [usize; 5] = [0, 1, 5, 3, 2];

/// Returns the figure of the origins of the statements and the number of distinct statements.
pub(super) fn novelty(d: &PlottedRun<'_>) -> Option<Figure> {
    let rounds = &d.run.conjecture_stats.rounds;
    let last = rounds.last()?;
    let share = |origin: StatementOrigin| {
        let of = |r: &ConjectureRound| {
            let all: u64 = r.origins.iter().sum();
            (all > 0).then(|| r.origins[origin as usize] as f64 / all as f64)
        };
        curve(d.run, origin.as_str(), Ink::Series(ORIGINS[origin as usize]), of)
    };
    let mut shares: Vec<Series> = StatementOrigin::ALL.into_iter().map(share).collect();
    shares.retain(|s| s.points.iter().any(|p| p.1 > 0.0));
    let total = |name: &str, ink, of: fn(&ConjectureRound) -> u64| Series {
        points: thinned(points(d.run, |r| Some(of(r) as f64)), MOST_POINTS),
        ..Series::line(name, ink, Vec::new())
    };
    let totals = vec![
        total("accepted", Ink::Series(4), |r| r.accepted),
        total("distinct statements", Ink::Series(6), |r| r.distinct),
    ];
    let count = Axis::new("So far", Unit::Count).from(0.0);
    let share = Axis::new("Share of the statements", Unit::Percent).from(0.0).to(1.0);
    let mut panels = vec![xy("Origin of the statements", share, shares)];
    let right = if last.accepted == last.distinct {
        format!("All {} accepted conjectures have distinct statements.", grouped(last.accepted as f64))
    } else {
        panels.push(xy("Statements", count, totals));
        format!(
            "Right: cumulative count of accepted conjectures and of distinct statements: {} and {}.",
            last.accepted, last.distinct
        )
    };
    let left = if panels.len() > 1 { "Left: origin" } else { "Origin" };
    Some(Figure {
        id: "novelty".into(),
        title: "Novelty of the conjectures".into(),
        caption: format!(
            "{}. {left} of the Conjecturer's statements (running means; variables are renamed canonically). {right}",
            d.label
        ),
        panels,
    })
}

/// Returns the figure of the Guide's scores, their correlations, and the reward with and without them.
pub(super) fn guide(d: &PlottedRun<'_>) -> Option<Figure> {
    let run = d.run;
    if run.conjecture_stats.rounds.iter().all(|r| r.scores.is_none() && r.correlations == [None; 2]) {
        return None;
    }
    let names = ["relevance (best 5)", "redundancy (0 to 1, best 0)", "complexity (0 to 4, best 0)"];
    let score = |(i, name): (usize, &str)| {
        curve(run, name, Ink::Series([0, 3, 1][i]), |r| r.scores.and_then(|s| s.get(i).copied()))
    };
    let scores = names.into_iter().enumerate().map(score).collect();
    let names = ["solve rate", "novelty"];
    let correlation = |(i, name): (usize, &&str)| {
        let name = format!("R_guide and {name}");
        curve(run, &name, Ink::Series([4, 2][i]), |r| r.correlations.get(i).copied().flatten())
    };
    let mut correlations: Vec<Series> = names.iter().enumerate().map(correlation).collect();
    // A correlation that few rounds have is not a curve.
    let rounds = run.conjecture_stats.rounds.len();
    correlations.iter_mut().filter(|c| 4 * c.points.len() < rounds).for_each(|c| c.points.clear());
    let is_drawn = |(name, curve): (&str, &Series)| (!curve.points.is_empty()).then(|| name.to_owned());
    let correlated: Vec<String> = names.into_iter().zip(&correlations).filter_map(is_drawn).collect();
    let rank =
        Axis { fixed: (Some(-1.0), Some(1.0)), ..Axis::new("Spearman's rank correlation", Unit::Plain) };
    let mut panels = vec![
        xy("Scores of the reviews", Axis::new("Mean", Unit::Plain).from(0.0), scores),
        xy("Correlations of the Guide's score", rank, correlations),
    ];
    let shares = rewards(run);
    let has_shares = shares.is_some();
    panels.extend(shares);
    panels.retain(|p| !matches!(&p.content, PanelContent::Xy(xy) if xy.series.is_empty()));
    (!panels.is_empty()).then(|| Figure {
        id: "guide".into(),
        title: "The Guide".into(),
        caption: format!(
            "{}: mean scores of the reviews{}{}.",
            d.label,
            match correlated.as_slice() {
                [] => String::new(),
                with => format!(
                    "; rank correlation of R_guide with the {} of the conjectures of a round (running means; 0: uncorrelated)",
                    with.join(" and with the ")
                ),
            },
            if has_shares {
                "; and shares of the reward by class of conjecture (trivial: proved in one step), compared with \
                 the shares if R_guide were constant"
            } else {
                ""
            }
        ),
        panels,
    })
}

/// Returns the panel of the shares of the reward by class of conjecture, with and without the Guide.
fn rewards(run: &RunData) -> Option<FigurePanel> {
    let shares = run.conjecture_stats.rewards_by_kind()?;
    let of = |pick: fn(&(f64, f64)) -> f64| shares.values().map(pick).collect::<Vec<_>>();
    let categories = shares.keys().map(|kind: &ConjectureClass| kind.as_str().to_owned()).collect();
    let series = vec![
        BarSeries::new("with the Guide", Ink::Series(0), of(|s| s.0)),
        BarSeries::new("without it", Ink::Series(1), of(|s| s.1)),
    ];
    let y = Axis::new("Share of the reward", Unit::Percent).from(0.0);
    Some(bars_panel("Distribution of the reward", "Class of conjecture", categories, y, series))
}

fn xy(title: &str, y: Axis, mut series: Vec<Series>) -> FigurePanel {
    series.retain(|s| !s.points.is_empty());
    panel(title, PanelShape::Half, Xy { x: generations_axis(), y, series, lines: Vec::new() })
}

/// Returns a number of each round over generations.
fn points(run: &RunData, of: impl Fn(&ConjectureRound) -> Option<f64>) -> Vec<(f64, f64)> {
    let generations = |round: u32| {
        let metrics = run.rounds.iter().find(|m| m.round == round)?;
        RunData::value(metrics, metric::GENERATIONS)
    };
    run.conjecture_stats.rounds.iter().filter_map(|r| Some((generations(r.round)?, of(r)?))).collect()
}

/// Returns the running mean of a number of each round.
fn curve(run: &RunData, name: &str, ink: Ink, of: impl Fn(&ConjectureRound) -> Option<f64>) -> Series {
    let points = points(run, of);
    let means = running_mean(&points, window(points.len()));
    Series::line(name, ink, thinned(means, MOST_POINTS))
}
