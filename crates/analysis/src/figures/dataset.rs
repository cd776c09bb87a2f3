//! Figures of the targets by features of their statements (compare Fig. 9 of the paper).

use super::common::bars_panel;
use crate::plot::{Axis, BarSeries, Bars, Figure, FigurePanel, Ink, PanelContent, PanelShape, Unit};
use crate::run::{RunData, TargetHistory};

/// Returns the figure of the distributions of length, hypotheses, depth and connectives over solved and unsolved
/// targets.
pub(super) fn composition(run: &RunData) -> Option<Figure> {
    let known: Vec<&TargetHistory> = run.targets.iter().filter(|t| t.features.length > 0).collect();
    if known.is_empty() {
        return None;
    }
    let panels = vec![
        histogram(&known, "Length of the statement", "Tokens", |t| t.features.length),
        histogram(&known, "Length of the conclusion", "Tokens", |t| t.features.conclusion_length),
        histogram(&known, "Depth of the conclusion", "Nesting depth", |t| t.features.depth),
        histogram(&known, "Hypotheses", "Number of hypotheses", |t| t.features.hypotheses),
        connectives(&known),
        solved_by_length(&known),
    ];
    Some(Figure {
        id: "data-set".into(),
        title: "Data set".into(),
        caption: format!(
            "The {} targets by features of their statements, solved and not solved in this run.",
            known.len()
        ),
        panels,
    })
}

/// Returns the figure of problems by area and difficulty (paper, Fig. 9). `counts` has a row for each difficulty with a
/// count for each area.
pub fn problem_types(areas: &[String], difficulties: &[String], counts: &[Vec<usize>]) -> Figure {
    let all: usize = counts.iter().flatten().sum();
    let series = difficulties.iter().zip(counts).enumerate().map(|(number, (name, row))| {
        BarSeries::new(name, Ink::Series(number), row.iter().map(|n| *n as f64).collect())
    });
    let panel = FigurePanel {
        title: String::new(),
        shape: PanelShape::Wide,
        content: PanelContent::Bars(Bars {
            x_label: String::new(),
            categories: areas.to_vec(),
            y: Axis::new("Problems", Unit::Count),
            series: series.collect(),
            stacked: true,
        }),
    };
    Figure {
        id: "problem-types".into(),
        title: "Problems by area and difficulty".into(),
        caption: format!("{all} problems, classified by a model."),
        panels: vec![panel],
    }
}

fn solved_and_not(solved: Vec<f64>, unsolved: Vec<f64>) -> Vec<BarSeries> {
    vec![BarSeries::new("solved", Ink::Yes, solved), BarSeries::new("not solved", Ink::No, unsolved)]
}

const BINS: u32 = 14;

/// Returns the panel of counts in bins of equal integer width. The last bin includes all larger values.
fn histogram(
    targets: &[&TargetHistory],
    title: &str,
    x_label: &str,
    of: fn(&TargetHistory) -> u32,
) -> FigurePanel {
    let mut values: Vec<u32> = targets.iter().map(|t| of(t)).collect();
    values.sort_unstable();
    let most = values.last().copied().unwrap_or(0);
    // Use this limit because otherwise the longest 2% would compress the others into one bin.
    let usual = values.get(values.len() * 98 / 100).copied().unwrap_or(most);
    let width = (usual + 1).div_ceil(BINS).max(1);
    // Omit empty bins before the first value.
    let first = values.first().map_or(0, |least| least / width);
    let bins = (usual / width + 1 - first) as usize;
    let name = |i: usize| {
        let low = (first + i as u32) * width;
        let open = i + 1 == bins && most >= low + width;
        if open { format!("{low}+") } else { low.to_string() }
    };
    let mut counts = [vec![0.0; bins], vec![0.0; bins]];
    for target in targets {
        let bin = ((of(target) / width - first) as usize).min(bins - 1);
        if let Some(count) = counts[usize::from(target.solved_round.is_none())].get_mut(bin) {
            *count += 1.0;
        }
    }
    let [solved, unsolved] = counts;
    let y = Axis::new("Targets", Unit::Count).from(0.0);
    let x_label = if width > 1 { format!("{x_label}, in bins of {width}") } else { x_label.to_owned() };
    let series = solved_and_not(solved, unsolved);
    let mut panel = bars_panel(title, &x_label, (0..bins).map(name).collect(), y, series);
    if let PanelContent::Bars(bars) = &mut panel.content {
        bars.stacked = true;
    }
    panel
}

/// Returns the panel of the fraction of solved targets in five groups of about equal size, by the length of their
/// statements.
fn solved_by_length(targets: &[&TargetHistory]) -> FigurePanel {
    const GROUPS: usize = 5;
    let mut order: Vec<&TargetHistory> = targets.to_vec();
    order.sort_by_key(|t| t.features.length);
    let mut categories = Vec::new();
    let (mut shares, mut errors) = (Vec::new(), Vec::new());
    for group in order.chunks(order.len().div_ceil(GROUPS).max(1)) {
        if let (Some(first), Some(last)) = (group.first(), group.last()) {
            let n = group.len() as f64;
            let share = group.iter().filter(|t| t.solved_round.is_some()).count() as f64 / n;
            categories.push(format!("{}–{}", first.features.length, last.features.length));
            shares.push(share);
            errors.push((share * (1.0 - share) / n).sqrt());
        }
    }
    let series = BarSeries { errors, ..BarSeries::new("solved", Ink::Yes, shares) };
    let x_label = "Tokens of the statement (quintiles of the targets)";
    let y = Axis::new("Share solved", Unit::Percent).from(0.0);
    bars_panel("Solved, by length", x_label, categories, y, vec![series])
}

fn connectives(targets: &[&TargetHistory]) -> FigurePanel {
    type Count = fn(&TargetHistory) -> u32;
    let kinds: [(&str, Count); 3] = [
        ("implication", |t| t.features.implications),
        ("conjunction", |t| t.features.conjunctions),
        ("disjunction", |t| t.features.disjunctions),
    ];
    let share = |solved: bool, of: fn(&TargetHistory) -> u32| {
        let group: Vec<_> = targets.iter().filter(|t| t.solved_round.is_some() == solved).collect();
        group.iter().filter(|t| of(t) > 0).count() as f64 / group.len() as f64
    };
    let values = |solved: bool| kinds.iter().map(|(_, of)| share(solved, *of)).collect();
    let y = Axis::new("Share of targets", Unit::Percent).from(0.0);
    let names = kinds.iter().map(|(name, _)| (*name).to_owned()).collect();
    let series = solved_and_not(values(true), values(false));
    bars_panel("Connectives in the conclusion", "", names, y, series)
}
