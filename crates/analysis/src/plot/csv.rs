//! Writes the values of a figure as CSV.

use super::{Figure, PanelContent};
use std::borrow::Cow;
use std::io::Write;

/// Writes one row per value with the columns `figure,panel,series,x,y,low,high`. `x` is a number or a category;
/// `low` and `high` are the ends of the band, if there is one.
pub fn write_csv(figure: &Figure, out: impl Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["figure", "panel", "series", "x", "y", "low", "high"])?;
    for (i, panel) in figure.panels.iter().enumerate() {
        let title = if panel.title.is_empty() { format!("{}", i + 1) } else { panel.title.clone() };
        let mut row = |series: &str, x: &str, y: f64, band: Option<(f64, f64)>| {
            let (low, high) = band.map_or((String::new(), String::new()), |b| (cell(b.0), cell(b.1)));
            let [id, title, series, x] = [&figure.id, &title, series, x].map(inert);
            csv.write_record([&*id, &title, &series, &x, &cell(y), &low, &high])
        };
        match &panel.content {
            PanelContent::Xy(xy) => {
                for s in &xy.series {
                    // A point without a value only interrupts the curve.
                    for (j, (x, y)) in s.points.iter().enumerate().filter(|(_, p)| p.1.is_finite()) {
                        row(&s.name, &cell(*x), *y, s.band.get(j).copied())?;
                    }
                }
                for line in &xy.lines {
                    row(&line.label, "", line.value, None)?;
                }
            }
            PanelContent::Bars(bars) => {
                for s in &bars.series {
                    for (category, value) in bars.categories.iter().zip(&s.values) {
                        row(&s.name, category, *value, None)?;
                    }
                }
            }
        }
    }
    csv.flush()
}

/// Escapes text that a spreadsheet would interpret as a formula. Names may come from models and from other users' files.
pub(crate) fn inert(text: &str) -> Cow<'_, str> {
    const STARTS: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];
    let is_formula = text.starts_with(STARTS) && text.parse::<f64>().is_err();
    if is_formula { format!("'{text}").into() } else { text.into() }
}

fn cell(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, BarSeries, Bars, FigurePanel, Ink, PanelShape, Unit};

    #[test]
    fn no_cell_is_a_formula() {
        for (text, inert) in [
            ("=HYPERLINK(\"http://x\")", "'=HYPERLINK(\"http://x\")"),
            ("+1+1", "'+1+1"),
            ("-2+3", "'-2+3"),
            ("-|- ph", "'-|- ph"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("＝1+1", "'＝1+1"),
            ("-2.5", "-2.5"),
            ("-1e-3", "-1e-3"),
            ("|- ( ph -> ps )", "|- ( ph -> ps )"),
            ("", ""),
        ] {
            assert_eq!(super::inert(text), inert);
        }
    }

    #[test]
    fn names_of_series_and_categories_are_escaped() {
        let series = vec![BarSeries::new("@cmd", Ink::Series(0), vec![-0.5])];
        let (x_label, y, categories) = (String::new(), Axis::new("y", Unit::Plain), vec!["=1+1".to_owned()]);
        let content = PanelContent::Bars(Bars { x_label, categories, y, series });
        let panel = FigurePanel { title: "+t".into(), shape: PanelShape::Half, content };
        let [id, title, caption] = ["f", "t", "c"].map(str::to_owned);
        let figure = Figure { id, title, caption, panels: vec![panel] };
        let mut out = Vec::new();
        write_csv(&figure, &mut out).expect("writes");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.lines().nth(1), Some("f,'+t,'@cmd,'=1+1,-0.5,,"));
    }
}
