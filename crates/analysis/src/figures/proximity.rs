//! Figure of the conjectures selected for training, by progress towards the solution of their target (paper, Fig. 4).

use crate::plot::{
    Axis, BarSeries, Bars, Figure, FigurePanel, HeatRow, Heatmap, Ink, PanelContent, PanelShape, Unit,
};
use crate::run::{RunData, TargetHistory};

const ROWS: usize = 300;
const BUCKETS: usize = 10;

/// Fraction of rounds with a selected conjecture, by progress towards the solution of the target.
#[derive(Clone, Debug, PartialEq)]
struct Proximity {
    /// Mean over the targets for each tenth of the rounds before the solution, or NaN if no target has a round in it.
    buckets: Vec<f64>,
    /// Standard error of each mean over the targets.
    errors: Vec<f64>,
    /// Number of targets.
    targets: usize,
}

/// Returns whether the conjectures for a target were selected before its solution, for each round that requested one.
fn before_solved(target: &TargetHistory) -> Vec<bool> {
    let end = target.solved_round.unwrap_or(u32::MAX);
    target.rounds.iter().filter(|r| r.round < end).filter_map(|r| r.conjecture).collect()
}

/// Returns the last solved targets that had conjectures before, in order of solution.
fn last_solved(run: &RunData) -> Vec<&TargetHistory> {
    let has_history = |t: &&TargetHistory| t.solved_round.is_some() && !before_solved(t).is_empty();
    let mut solved: Vec<&TargetHistory> = run.targets.iter().filter(has_history).collect();
    solved.sort_by(|a, b| (a.solved_round, &a.id).cmp(&(b.solved_round, &b.id)));
    let from = solved.len().saturating_sub(ROWS);
    solved.split_off(from)
}

/// Averages over the last 300 solved targets, with the rounds before each solution in ten equal buckets.
fn proximity(run: &RunData) -> Option<Proximity> {
    let targets = last_solved(run);
    if targets.is_empty() {
        return None;
    }
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); BUCKETS];
    for target in &targets {
        let history = before_solved(target);
        let n = history.len();
        for (b, bucket) in samples.iter_mut().enumerate() {
            let (from, to) = (b * n / BUCKETS, (b + 1) * n / BUCKETS);
            let part = &history[from..to];
            if !part.is_empty() {
                bucket.push(part.iter().filter(|fit| **fit).count() as f64 / part.len() as f64);
            }
        }
    }
    let mean = |v: &Vec<f64>| v.iter().sum::<f64>() / v.len() as f64;
    let error = |v: &Vec<f64>| {
        let m = mean(v);
        (v.iter().map(|x| (x - m).powi(2)).sum::<f64>() / (v.len() as f64 - 1.0) / v.len() as f64).sqrt()
    };
    Some(Proximity {
        buckets: samples.iter().map(mean).collect(),
        errors: samples.iter().map(error).collect(),
        targets: targets.len(),
    })
}

/// Returns the figure with the heatmap and the averages, or `None` if no conjecture for these targets was selected.
pub(super) fn figure(run: &RunData) -> Option<Figure> {
    let averages = proximity(run).filter(|averages| averages.buckets.iter().any(|share| *share > 0.0))?;
    let targets = last_solved(run);
    let end = targets.iter().filter_map(|t| t.solved_round).max()?;
    let rows = targets.iter().map(|t| heat_row(t)).collect();
    let heatmap = Heatmap {
        x_label: "Round".into(),
        y_label: "Targets, by the round that solved them".into(),
        span: (0, end.max(1)),
        rows,
        names: ("conjecture selected for training".into(), "not selected".into()),
    };
    let categories = (0..BUCKETS).map(|b| (10 * (b + 1)).to_string()).collect();
    let bars = Bars {
        x_label: "Progress towards solution (% of rounds)".into(),
        categories,
        y: Axis::new("Rounds with a selected conjecture", Unit::Percent).from(0.0),
        series: vec![BarSeries {
            errors: averages.errors,
            ..BarSeries::new("conjecture selected for training", Ink::Yes, averages.buckets)
        }],
        stacked: false,
    };
    Some(Figure {
        id: "solve-proximity".into(),
        title: "Conjectures by proximity to the solution".into(),
        caption: format!(
            "The last {} solved targets. Each row is a target, from its first conjecture to the round that solved it; the colour shows whether its conjecture was selected to train the Solver. Bars: the rounds before each solution in ten equal buckets, averaged over the targets, with standard errors.",
            averages.targets
        ),
        panels: vec![
            FigurePanel {
                title: "Target by target".into(),
                shape: PanelShape::Square,
                content: PanelContent::Heatmap(heatmap),
            },
            FigurePanel {
                title: "Averages".into(),
                shape: PanelShape::Square,
                content: PanelContent::Bars(bars),
            },
        ],
    })
}

fn heat_row(target: &TargetHistory) -> HeatRow {
    let end = target.solved_round.unwrap_or(u32::MAX);
    let rounds = || target.rounds.iter().filter(|r| r.round < end && r.conjecture.is_some());
    let start = rounds().next().map_or(0, |r| r.round);
    let length = rounds().next_back().map_or(0, |r| r.round + 1 - start) as usize;
    let mut cells = vec![None; length];
    for r in rounds() {
        if let Some(cell) = cells.get_mut((r.round - start) as usize) {
            *cell = r.conjecture;
        }
    }
    HeatRow { name: target.id.clone(), start, cells }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::TargetRound;

    fn target(id: &str, solved: Option<u32>, fits: &[Option<bool>]) -> TargetHistory {
        let rounds = (0..).zip(fits).map(|(round, &conjecture)| TargetRound {
            round,
            judged: 8,
            proved: 0,
            conjecture,
        });
        TargetHistory {
            id: id.into(),
            solved_round: solved,
            rounds: rounds.collect(),
            ..TargetHistory::default()
        }
    }

    #[test]
    fn buckets_average_the_rounds_before_the_solution() {
        let mut late = vec![Some(false); 20];
        late[16..].fill(Some(true));
        let mut run = RunData { targets: vec![target("a", Some(18), &late)], ..RunData::default() };
        let p = proximity(&run).unwrap();
        // There are 18 rounds before the solution. Bucket 9 holds rounds 16 and 17, and both fit.
        assert_eq!(p.buckets[9], 1.0);
        assert_eq!(p.buckets[..8], [0.0; 8]);
        // A target that is never solved, or is solved before any conjecture, does not count.
        run.targets = vec![target("b", None, &late), target("c", Some(0), &late)];
        assert_eq!(proximity(&run), None);
    }

    #[test]
    fn a_run_without_selected_conjectures_has_no_figure() {
        let drawn = |selected| {
            let targets = vec![target("a", Some(3), &[Some(false), Some(selected), Some(false)])];
            figure(&RunData { targets, ..RunData::default() }).is_some()
        };
        assert!(drawn(true) && !drawn(false));
    }

    #[test]
    fn only_the_last_three_hundred_count() {
        let targets =
            (0..400).map(|i| target(&format!("t{i:03}"), Some(i + 1), &[Some(i >= 100); 401])).collect();
        let run = RunData { targets, ..RunData::default() };
        let p = proximity(&run).unwrap();
        assert_eq!(p.targets, 300);
        assert!(p.buckets.iter().all(|b| *b == 1.0));
    }

    #[test]
    fn rows_have_gaps_for_rounds_without_conjectures() {
        let row = heat_row(&target("a", Some(4), &[None, Some(true), None, Some(false), Some(true)]));
        assert_eq!((row.start, row.cells), (1, vec![Some(true), None, Some(false)]));
    }
}
