//! What the Conjecturer of the main run invents, and what its Guide makes of it.

use super::curves::{generations_axis, panel};
use super::dynamics::{running_mean, window};
use super::{Drawn, MOST_POINTS, thinned};
use crate::plot::{Axis, BarSeries, Bars, Content, Figure, Ink, Panel, Series, Shape, Unit, Xy};
use crate::run::{InventedRound, Kind, Origin, RunData, metric};

/// Colour of each [`Origin`]: what is new stands out from what is not.
const ORIGINS: [usize; 5] = [0, 1, 5, 3, 2];

/// Where statements come from, and how many different ones there are.
pub(super) fn novelty(d: &Drawn<'_>) -> Option<Figure> {
    let rounds = &d.run.inventions.rounds;
    let last = rounds.last()?;
    let share = |origin: Origin| {
        let of = |r: &InventedRound| {
            let all: u64 = r.origins.iter().sum();
            (all > 0).then(|| r.origins[origin as usize] as f64 / all as f64)
        };
        curve(d.run, origin.as_str(), Ink::Series(ORIGINS[origin as usize]), of)
    };
    let mut shares: Vec<Series> = Origin::ALL.into_iter().map(share).collect();
    shares.retain(|s| s.points.iter().any(|p| p.1 > 0.0));
    let total = |name: &str, ink, of: fn(&InventedRound) -> u64| Series {
        points: thinned(points(d.run, |r| Some(of(r) as f64)), MOST_POINTS),
        ..Series::line(name, ink, Vec::new())
    };
    let totals = vec![
        total("accepted", Ink::Series(1), |r| r.accepted),
        total("different statements", Ink::Series(0), |r| r.distinct),
    ];
    let count = Axis::new("So far", Unit::Count).from(0.0);
    let share = Axis::new("Share of the statements", Unit::Percent).from(0.0).to(1.0);
    Some(Figure {
        id: "novelty".into(),
        title: "What is new".into(),
        caption: format!(
            "{}: where the statements come from that the Conjecturer wrote (means over neighbouring rounds), whatever \
             their variables are called; and how many it has written that differ. {} accepted conjectures, {} different \
             statements.",
            d.label, last.accepted, last.distinct
        ),
        panels: vec![xy("Where statements come from", share, shares), xy("Statements", count, totals)],
    })
}

/// The Guide's scores, what they go along with, and what is rewarded with them and without.
pub(super) fn guide(d: &Drawn<'_>) -> Option<Figure> {
    let run = d.run;
    if run.inventions.rounds.iter().all(|r| r.scores.is_none() && r.correlations == [None; 2]) {
        return None;
    }
    let names = ["relevance, 0 to 5", "redundancy, 0 to 1", "complexity, 0 to 4"];
    let score = |(i, name): (usize, &str)| {
        curve(run, name, Ink::Series([0, 3, 1][i]), |r| r.scores.and_then(|s| s.get(i).copied()))
    };
    let scores = names.into_iter().enumerate().map(score).collect();
    let names = ["R_guide and solve rate", "R_guide and being new"];
    let correlation = |(i, name): (usize, &str)| {
        curve(run, name, Ink::Series([4, 2][i]), |r| r.correlations.get(i).copied().flatten())
    };
    let correlations = names.into_iter().enumerate().map(correlation).collect();
    let rank =
        Axis { fixed: (Some(-1.0), Some(1.0)), ..Axis::new("Spearman's rank correlation", Unit::Plain) };
    let mut panels = vec![
        xy("Scores of the reviews", Axis::new("Mean", Unit::Plain).from(0.0), scores),
        xy("What a high score goes along with", rank, correlations),
    ];
    panels.extend(rewards(run));
    panels.retain(|p| !matches!(&p.content, Content::Xy(xy) if xy.series.is_empty()));
    (!panels.is_empty()).then(|| Figure {
        id: "guide".into(),
        title: "The Guide".into(),
        caption: format!(
            "{}: the three scores of its reviews; how the ranks that R_guide gives to the conjectures of a round go \
             along with their solve rates and with being new (means over neighbouring rounds; 0: not at all); and to \
             what kind of conjecture the reward went, beside what it would have gone to had every R_guide been the \
             same.",
            d.label
        ),
        panels,
    })
}

/// Shares of the reward by kind, with the Guide and without.
fn rewards(run: &RunData) -> Option<Panel> {
    let shares = run.inventions.rewards_by_kind()?;
    let of = |pick: fn(&(f64, f64)) -> f64| shares.values().map(pick).collect::<Vec<_>>();
    Some(Panel {
        title: "What is rewarded".into(),
        shape: Shape::Half,
        content: Content::Bars(Bars {
            x_label: "Kind of conjecture".into(),
            categories: shares.keys().map(|kind: &Kind| kind.as_str().to_owned()).collect(),
            y: Axis::new("Share of the reward", Unit::Percent).from(0.0),
            series: vec![
                BarSeries::new("with the Guide", Ink::Series(0), of(|s| s.0)),
                BarSeries::new("without it", Ink::Series(1), of(|s| s.1)),
            ],
            stacked: false,
        }),
    })
}

fn xy(title: &str, y: Axis, mut series: Vec<Series>) -> Panel {
    series.retain(|s| !s.points.is_empty());
    panel(title, Shape::Half, Xy { x: generations_axis(), y, series, lines: Vec::new() })
}

/// A number of each round over the generations after it.
fn points(run: &RunData, of: impl Fn(&InventedRound) -> Option<f64>) -> Vec<(f64, f64)> {
    let generations = |round: u32| {
        let metrics = run.rounds.iter().find(|m| m.round == round)?;
        RunData::value(metrics, metric::GENERATIONS)
    };
    run.inventions.rounds.iter().filter_map(|r| Some((generations(r.round)?, of(r)?))).collect()
}

/// The same as means over neighbouring rounds.
fn curve(run: &RunData, name: &str, ink: Ink, of: impl Fn(&InventedRound) -> Option<f64>) -> Series {
    let points = points(run, of);
    let means = running_mean(&points, window(points.len()));
    Series::line(name, ink, thinned(means, MOST_POINTS))
}
