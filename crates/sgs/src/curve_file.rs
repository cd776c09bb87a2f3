//! Curves of a CSV file: generations and solve rates of one run, or of several that a column tells apart.

use anyhow::{Context, Result, bail};
use csv::StringRecord;
use sgs_analysis::fit::CurvePoint;
use std::path::Path;

/// Names of columns, in lower case, that tell the curves of a file apart.
const TELL_APART: [&str; 8] = ["run", "method", "variant", "name", "series", "label", "seed", "curve"];

const GENERATIONS: [&str; 2] = ["generations", "c"];
const RATES: [&str; 4] = ["cumulative_solve_rate", "rate", "solve_rate", "r"];

/// Where a row has its numbers, and what tells its curve from others.
#[derive(Default)]
struct Columns {
    generations: usize,
    rate: usize,
    /// Column and name.
    curve: Vec<(usize, String)>,
}

impl Columns {
    /// By name, where the header has both names; else the first two.
    fn of(header: &StringRecord) -> Self {
        let name = |cell: &str| cell.to_lowercase();
        let at = |names: &[&str]| names.iter().find_map(|n| header.iter().position(|cell| name(cell) == *n));
        let (Some(generations), Some(rate)) = (at(&GENERATIONS), at(&RATES)) else {
            return Self { rate: 1, ..Self::default() };
        };
        let tells = |(i, cell): (usize, &str)| {
            TELL_APART.contains(&name(cell).as_str()).then(|| (i, cell.to_owned()))
        };
        Self { generations, rate, curve: header.iter().enumerate().filter_map(tells).collect() }
    }

    /// What a row's curve is called; empty where no column tells curves apart.
    fn name(&self, record: &StringRecord) -> String {
        let part = |(at, name): &(usize, String)| {
            let value = record.get(*at).unwrap_or_default();
            if value.parse::<f64>().is_ok() { format!("{name} {value}") } else { value.to_owned() }
        };
        self.curve.iter().map(part).collect::<Vec<_>>().join(", ")
    }
}

/// The curves of a file by name, in the order of their first rows; a file with one has one without a name.
///
/// # Errors
/// The file cannot be read, a cell is no number or out of range, or several curves follow each other without a column
/// that tells them apart. The error names the line.
pub fn read(path: &Path, percent: bool) -> Result<Vec<(String, Vec<CurvePoint>)>> {
    let shown = path.display();
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_path(path)
        .with_context(|| format!("cannot read {shown}"))?;
    let mut columns = Columns { rate: 1, ..Columns::default() };
    let mut curves: Vec<(String, Vec<CurvePoint>)> = Vec::new();
    for (i, record) in reader.records().enumerate() {
        let record = record.with_context(|| format!("{shown}: not CSV"))?;
        let line = record.position().map_or(i as u64 + 1, csv::Position::line);
        if i == 0 && is_header(&record) {
            columns = Columns::of(&record);
            continue;
        }
        let point = point(&record, &columns, percent).with_context(|| format!("{shown}: line {line}"))?;
        let name = columns.name(&record);
        let curve = match curves.iter().position(|(known, _)| *known == name) {
            Some(at) => at,
            None => {
                curves.push((name, Vec::new()));
                curves.len() - 1
            }
        };
        let Some((_, curve)) = curves.get_mut(curve) else { continue };
        if let Some(last) = curve.last().filter(|last| point.generations < last.generations) {
            bail!(
                "{shown}: line {line}: generations go back from {} to {}, as where another run begins; give each run a \
                 file, or a column that tells them apart ({})",
                last.generations,
                point.generations,
                TELL_APART.join(", ")
            );
        }
        curve.push(point);
    }
    if curves.is_empty() {
        bail!("{shown} holds no points: one line each with generations and rate is expected");
    }
    if let [(name, _)] = &mut curves[..] {
        name.clear();
    }
    Ok(curves)
}

/// Whether a row holds names: no cell of it is a number.
fn is_header(record: &StringRecord) -> bool {
    record.iter().all(|cell| cell.parse::<f64>().is_err())
}

fn point(record: &StringRecord, columns: &Columns, percent: bool) -> Result<CurvePoint> {
    let number = |column: usize, what: &str| -> Result<f64> {
        let cell = record.get(column);
        let cell = cell.with_context(|| format!("there is no column {} with the {what}", column + 1))?;
        cell.parse().with_context(|| format!("the {what} `{cell}` is no number"))
    };
    let generations = number(columns.generations, "generations")?;
    let rate = number(columns.rate, "rate")? / if percent { 100.0 } else { 1.0 };
    if !rate.is_nan() && !(0.0..=1.0).contains(&rate) {
        bail!("the rate {rate} is outside of 0 to 1; for percentages give --percent");
    }
    Ok(CurvePoint { generations, rate })
}
