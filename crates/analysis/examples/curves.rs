//! Draws curves of the cumulative solve rate from a table with the columns run, seed, generations and rate: the mean of each
//! run's seeds over their common range, with a band from the lowest to the highest. Further arguments name the runs to draw.
//!
//! `cargo run --release -p sgs-analysis --example curves docs/figures/metamath-congruence.csv "Nested congruences" > FIGURE.svg`

#![allow(clippy::print_stdout)]

use sgs_analysis::plot::{
    Axis, Figure, FigurePanel, Ink, PanelContent, PanelShape, Series, SeriesStyle, Unit, Xy, standalone_svg,
};
use std::collections::BTreeMap;
use std::error::Error;

/// Generations at which curves begin, as in the paper's fits.
const CUT: f64 = 1e5;

/// Number of points of a mean.
const POINTS: usize = 200;

/// The seeds of one run, each with its generations and rates.
type Seeds = BTreeMap<String, Vec<(f64, f64)>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(file), Some(title)) = (words.next(), words.next()) else {
        return Err("give a CSV file and a title".into());
    };
    let drawn: Vec<String> = words.collect();
    let mut names = Vec::new();
    let mut runs: BTreeMap<String, Seeds> = BTreeMap::new();
    for row in csv::Reader::from_path(&file)?.deserialize() {
        let row: BTreeMap<String, String> = row?;
        let of = |column: &str| row.get(column).ok_or_else(|| format!("{file}: no column {column}"));
        let (name, seed) = (of("run")?.clone(), of("seed")?.clone());
        if !drawn.is_empty() && !drawn.contains(&name) {
            continue;
        }
        let point = (of("generations")?.parse()?, of("rate")?.parse()?);
        if !runs.contains_key(&name) {
            names.push(name.clone());
        }
        runs.entry(name).or_default().entry(seed).or_default().push(point);
    }
    let series: Vec<Series> =
        names.iter().enumerate().map(|(i, name)| mean(name, Ink::Series(i), &runs[name])).collect();
    let lowest = series.iter().flat_map(|s| &s.points).map(|p| p.1).fold(1.0, f64::min);
    let xy = Xy {
        x: Axis::new("Generations", Unit::Count).from(0.0),
        y: Axis::new("Cumulative solve rate", Unit::Percent).from((lowest * 20.0).floor() / 20.0),
        series,
        lines: Vec::new(),
    };
    let panel = FigurePanel { title: String::new(), shape: PanelShape::Wide, content: PanelContent::Xy(xy) };
    let figure = Figure { id: "curves".into(), title, caption: String::new(), panels: vec![panel] };
    println!("{}", standalone_svg(&figure));
    Ok(())
}

/// Returns the rate at `x` generations. The tables leave out most rounds, so it lies on the line between two rows.
fn rate_at(rows: &[(f64, f64)], x: f64) -> f64 {
    let next = rows.partition_point(|row| row.0 <= x);
    match (next.checked_sub(1).map(|i| rows[i]), rows.get(next)) {
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0),
        (Some(a), None) => a.1,
        (None, _) => f64::NAN,
    }
}

fn mean(name: &str, ink: Ink, seeds: &Seeds) -> Series {
    let first = seeds.values().filter_map(|s| s.first()).map(|p| p.0);
    let last = seeds.values().filter_map(|s| s.last()).map(|p| p.0);
    let (from, to) = (first.fold(CUT, f64::max), last.fold(f64::INFINITY, f64::min));
    let (mut points, mut band) = (Vec::new(), Vec::new());
    for i in 0..=POINTS {
        let x = from + (to - from) * i as f64 / POINTS as f64;
        let rates: Vec<f64> = seeds.values().map(|rows| rate_at(rows, x)).collect();
        points.push((x, rates.iter().sum::<f64>() / rates.len() as f64));
        band.push((
            rates.iter().copied().fold(f64::INFINITY, f64::min),
            rates.iter().copied().fold(0.0, f64::max),
        ));
    }
    if seeds.len() == 1 {
        band.clear();
    }
    Series { name: name.to_owned(), ink, style: SeriesStyle::Line, points, band }
}
