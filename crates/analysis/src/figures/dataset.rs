//! Figure of a problem set (paper, Fig. 9).

use super::common::bars_panel;
use crate::plot::{Axis, BarSeries, Bars, Figure, Ink, Unit};

/// Returns the figure of problems by area and difficulty (paper, Fig. 9). `counts` has a row for each difficulty with a
/// count for each area.
pub fn problem_types(areas: &[String], difficulties: &[String], counts: &[Vec<usize>]) -> Figure {
    let all: usize = counts.iter().flatten().sum();
    let series = difficulties.iter().zip(counts).enumerate().map(|(number, (name, row))| {
        BarSeries::new(name, Ink::Series(number), row.iter().map(|n| *n as f64).collect())
    });
    let (categories, y) = (areas.to_vec(), Axis::new("Problems", Unit::Count));
    let panel = bars_panel(Bars { x_label: String::new(), categories, y, series: series.collect() });
    Figure {
        id: "problem-types".into(),
        title: "Problems by area and difficulty".into(),
        caption: format!("{all} problems, classified by a model."),
        panels: vec![panel],
    }
}
