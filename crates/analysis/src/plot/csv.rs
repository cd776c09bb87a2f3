//! The numbers behind a figure, one row per drawn value.

use super::{Content, Figure};
use std::io::Write;

/// Writes `figure,panel,series,x,y,low,high`: `x` is a number, a category or a round; `low` and `high` are the band's
/// ends where there is one. A heatmap's `y` is 1, 0 or empty.
///
/// # Errors
/// Those of the writer.
pub fn write_csv(figure: &Figure, out: impl Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["figure", "panel", "series", "x", "y", "low", "high"])?;
    for (i, panel) in figure.panels.iter().enumerate() {
        let title = if panel.title.is_empty() { format!("{}", i + 1) } else { panel.title.clone() };
        let mut row = |series: &str, x: &str, y: f64, band: Option<(f64, f64)>| {
            let (low, high) = band.map_or((String::new(), String::new()), |b| (cell(b.0), cell(b.1)));
            csv.write_record([&figure.id, &title, series, x, &cell(y), &low, &high])
        };
        match &panel.content {
            Content::Xy(xy) => {
                for s in &xy.series {
                    for (j, (x, y)) in s.points.iter().enumerate() {
                        row(&s.name, &cell(*x), *y, s.band.get(j).copied())?;
                    }
                }
                for line in &xy.lines {
                    row(&line.label, "", line.value, None)?;
                }
            }
            Content::Bars(bars) => {
                for s in &bars.series {
                    for (j, (category, value)) in bars.categories.iter().zip(&s.values).enumerate() {
                        let ends = s.errors.get(j).map(|e| (value - e, value + e));
                        row(&s.name, category, *value, ends)?;
                    }
                }
            }
            Content::Heatmap(map) => {
                for r in &map.rows {
                    for (j, c) in r.cells.iter().enumerate() {
                        let y = c.map_or(f64::NAN, |c| f64::from(u8::from(c)));
                        row(&r.name, &(r.start as usize + j).to_string(), y, None)?;
                    }
                }
            }
        }
    }
    csv.flush()
}

fn cell(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}
