//! Reads curves from a CSV file: generations and solve rates of one run, or of several runs with a distinguishing column.

use anyhow::{Context, Result, bail};
use csv::StringRecord;
use sgs_analysis::fit::CurvePoint;
use std::path::Path;

/// Names of columns, in lower case, that distinguish the curves of a file.
const CURVE_COLUMNS: [&str; 8] = ["run", "method", "variant", "name", "series", "label", "seed", "curve"];

const GENERATIONS: [&str; 2] = ["generations", "c"];
const RATES: [&str; 4] = ["cumulative_solve_rate", "rate", "solve_rate", "r"];

#[derive(Default)]
struct Columns {
    generations: usize,
    rate: usize,
    /// Columns that distinguish curves, with their names.
    curve: Vec<(usize, String)>,
}

impl Columns {
    /// Finds the columns by name, or takes the first two if the header lacks a name.
    fn of(header: &StringRecord) -> Self {
        let name = |cell: &str| cell.to_lowercase();
        let at = |names: &[&str]| names.iter().find_map(|n| header.iter().position(|cell| name(cell) == *n));
        let (Some(generations), Some(rate)) = (at(&GENERATIONS), at(&RATES)) else {
            return Self { rate: 1, ..Self::default() };
        };
        let distinguishes = |(i, cell): (usize, &str)| {
            CURVE_COLUMNS.contains(&name(cell).as_str()).then(|| (i, cell.to_owned()))
        };
        Self { generations, rate, curve: header.iter().enumerate().filter_map(distinguishes).collect() }
    }

    /// Returns the name of a row's curve; empty if no column distinguishes curves.
    fn name(&self, record: &StringRecord) -> String {
        let part = |(at, name): &(usize, String)| {
            let value = record.get(*at).unwrap_or_default();
            if value.parse::<f64>().is_ok() { format!("{name} {value}") } else { value.to_owned() }
        };
        self.curve.iter().map(part).collect::<Vec<_>>().join(", ")
    }
}

/// Reads the curves of a file, in the order of their first rows. A single curve has an empty name.
/// Returns an error that names the line if the file cannot be read, a cell is not a number or out of range, or curves
/// follow each other without a column that distinguishes them.
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
        let record = record.map_err(|error| match error.kind() {
            csv::ErrorKind::UnequalLengths { pos: Some(at), expected_len, len } => {
                let line = at.line();
                anyhow::anyhow!(
                    "{shown}: line {line}: not a CSV file: {len} columns, expected {expected_len}"
                )
            }
            _ => anyhow::Error::new(error).context(format!("{shown}: not a CSV file")),
        })?;
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
                "{shown}: line {line}: generations decrease from {} to {}, as if another run started; give each run its own \
                 file, or add a column that distinguishes them ({})",
                last.generations,
                point.generations,
                CURVE_COLUMNS.join(", ")
            );
        }
        curve.push(point);
    }
    if curves.is_empty() {
        bail!("{shown} has no points; expected one line per point, with generations and rate");
    }
    if let [(name, _)] = &mut curves[..] {
        name.clear();
    }
    Ok(curves)
}

/// Returns whether a row is a header, which is the case if no cell is a number.
fn is_header(record: &StringRecord) -> bool {
    record.iter().all(|cell| cell.parse::<f64>().is_err())
}

fn point(record: &StringRecord, columns: &Columns, percent: bool) -> Result<CurvePoint> {
    let number = |column: usize, what: &str| -> Result<f64> {
        let cell = record.get(column);
        let cell = cell.with_context(|| format!("column {} with the {what} is missing", column + 1))?;
        cell.parse().with_context(|| format!("the {what} `{cell}` is not a number"))
    };
    let generations = number(columns.generations, "generations")?;
    let rate = number(columns.rate, "rate")? / if percent { 100.0 } else { 1.0 };
    if !rate.is_nan() && !(0.0..=1.0).contains(&rate) {
        bail!("the rate {rate} is not between 0 and 1; use --percent for percentages");
    }
    Ok(CurvePoint { generations, rate })
}
