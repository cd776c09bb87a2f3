//! Figure of a problem set (paper, Fig. 9).

use crate::plot::{Axis, BarSeries, Bars, Figure, FigurePanel, Ink, PanelContent, PanelShape, Unit};

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
        }),
    };
    Figure {
        id: "problem-types".into(),
        title: "Problems by area and difficulty".into(),
        caption: format!("{all} problems, classified by a model."),
        panels: vec![panel],
    }
}
