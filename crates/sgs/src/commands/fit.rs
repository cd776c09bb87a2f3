//! `sgs fit`: the scaling law of runs, or of any curve as CSV.

use crate::args::FitArgs;
use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sgs_analysis::fit::{
    CurvePoint, Cut, Fit, FitOptions, HalvesFit, PAPER_CUT, Parameter, TailFit, fit_prepared, prepare,
    random_halves, tail_cuts,
};
use sgs_analysis::run::RunData;
use sgs_rundir::RunView;
use std::path::Path;

/// Shares of the final points that are left out to see how much they decide (paper, Appendix A).
const TAILS: [f64; 3] = [0.1, 0.2, 0.3];

/// Fits every curve; one that cannot be fitted does not keep the others from it.
pub fn run(args: &FitArgs) -> Result<Outcome> {
    let options = options(args)?;
    let mut results = Vec::new();
    let mut outcome = Outcome::Done;
    for path in &args.inputs {
        let name = path.display().to_string();
        let result =
            read(path, args).and_then(|curve| analyse(&curve, args, &options).with_context(|| name.clone()));
        if let Err(error) = &result {
            outcome = Outcome::Failed;
            if !args.json {
                eprintln!("error: {error:#}");
            }
        }
        if args.json {
            results.push(match &result {
                Ok(analysis) => as_json(&name, analysis, args.level),
                Err(error) => json!({ "curve": name, "error": format!("{error:#}") }),
            });
        } else if let Ok(analysis) = &result {
            output::line(text(&name, analysis, args.level))?;
        }
    }
    if args.json {
        output::json(&results)?;
    }
    Ok(outcome)
}

fn options(args: &FitArgs) -> Result<FitOptions> {
    if !(args.level > 0.0 && args.level < 1.0) {
        return Err(
            Usage(format!("--level is {}: give a number between 0 and 1, as 0.95", args.level)).into()
        );
    }
    if !(args.max_rate > 0.0 && args.max_rate <= 1.0) {
        return Err(Usage(format!("--max-rate is {}: give a rate above 0, at most 1", args.max_rate)).into());
    }
    let cut = match args.cut {
        None => Cut::Scaled,
        Some(cut) if cut.is_finite() && cut >= 0.0 => Cut::At(cut),
        Some(cut) => return Err(Usage(format!("--cut is {cut}: give generations, at least 0")).into()),
    };
    Ok(FitOptions { cut, max_rate: args.max_rate, level: args.level })
}

/// The curve of a run's directory or of a CSV file.
fn read(path: &Path, args: &FitArgs) -> Result<Vec<CurvePoint>> {
    if path.is_dir() { read_run(path) } else { read_csv(path, args.percent) }
}

fn read_run(path: &Path) -> Result<Vec<CurvePoint>> {
    let mut run = RunData::default();
    for round in RunView::open(path)?.rounds()? {
        match round.metrics() {
            Ok(metrics) => run.rounds.push(metrics),
            Err(error) => eprintln!("warning: round {} is left out: {error}", round.round()),
        }
    }
    if run.is_empty() {
        bail!("the run has no finished round yet: wait for some, or see `sgs status {}`", path.display());
    }
    Ok(run.curve())
}

/// Two columns, generations and rate, by name if there is a header, else the first two.
fn read_csv(path: &Path, percent: bool) -> Result<Vec<CurvePoint>> {
    let shown = path.display();
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_path(path)
        .with_context(|| format!("cannot read {shown}"))?;
    let mut columns = (0, 1);
    let mut curve = Vec::new();
    for (i, record) in reader.records().enumerate() {
        let record = record.with_context(|| format!("{shown}: not CSV"))?;
        let line = record.position().map_or(i as u64 + 1, csv::Position::line);
        let number = |column: usize, what: &str| -> Result<f64> {
            let cell = record.get(column).with_context(|| {
                format!("{shown}: line {line} has no column {} with the {what}", column + 1)
            })?;
            cell.parse().with_context(|| format!("{shown}: line {line}: the {what} `{cell}` is no number"))
        };
        if i == 0 && record.get(0).is_some_and(|cell| cell.parse::<f64>().is_err()) {
            columns = header_columns(&record).with_context(|| {
                format!("{shown}: line {line} names no columns `generations` and `rate` (or `cumulative_solve_rate`)")
            })?;
            continue;
        }
        let (generations, mut rate) = (number(columns.0, "generations")?, number(columns.1, "rate")?);
        if percent {
            rate /= 100.0;
        }
        if !rate.is_nan() && !(0.0..=1.0).contains(&rate) {
            bail!(
                "{shown}: line {line}: the rate {rate} is outside of 0 to 1; for percentages give --percent"
            );
        }
        curve.push(CurvePoint { generations, rate });
    }
    if curve.is_empty() {
        bail!("{shown} holds no points: one line each with generations and rate is expected");
    }
    Ok(curve)
}

fn header_columns(record: &csv::StringRecord) -> Option<(usize, usize)> {
    let at = |names: &[&str]| record.iter().position(|cell| names.contains(&cell.to_lowercase().as_str()));
    Some((at(&["generations", "c"])?, at(&["rate", "cumulative_solve_rate", "solve_rate", "r"])?))
}

struct Analysis {
    points: usize,
    fit: Fit,
    tails: Vec<TailFit>,
    halves: Option<HalvesFit>,
}

fn analyse(
    curve: &[CurvePoint],
    args: &FitArgs,
    options: &FitOptions,
) -> Result<Analysis, sgs_analysis::fit::FitError> {
    let prepared = prepare(curve, options.cut)?;
    Ok(Analysis {
        points: curve.len(),
        fit: fit_prepared(&prepared, options)?,
        tails: tail_cuts(&prepared, &TAILS, options),
        halves: random_halves(&prepared, args.halves, args.seed, options),
    })
}

fn number(parameter: Parameter, value: f64) -> String {
    match parameter {
        Parameter::Asymptote => format!("{value:.4}"),
        Parameter::Midpoint => format!("{value:.4e}"),
        Parameter::Steepness => format!("{value:.3}"),
    }
}

fn text(name: &str, analysis: &Analysis, level: f64) -> String {
    let fit = &analysis.fit;
    let cut = if fit.cut_is_scaled {
        format!("{:.0} generations (the paper's {PAPER_CUT:.0}, scaled down to this curve)", fit.cut)
    } else {
        format!("{:.0} generations", fit.cut)
    };
    let mut out = format!(
        "{name}\n  R_C = R_0 + (A - R_0) / (1 + (C_mid / C)^B), fitted to {} of {} points after a cut at {cut}\n",
        fit.points, analysis.points
    );
    out.push_str(&format!("  {:<6} {:.4}  at {:.0} generations\n", "R_0", fit.law.initial, fit.law.origin));
    for p in Parameter::ALL {
        out.push_str(&format!("  {:<6} {}", p.symbol(), number(p, fit.value(p))));
        if let (Some(error), Some((low, high))) = (fit.standard_error(p), fit.interval(p, level)) {
            out.push_str(&format!(
                "  ± {}  ({:.0} %: {} to {})",
                number(p, error),
                100.0 * level,
                number(p, low),
                number(p, high)
            ));
        }
        out.push('\n');
    }
    if let Some(sd) = fit.residual_sd() {
        out.push_str(&format!("  residuals: standard deviation {sd:.5}\n"));
    }
    for tail in &analysis.tails {
        let found = match &tail.fit {
            Ok(fit) => {
                Parameter::ALL.map(|p| format!("{} {}", p.symbol(), number(p, fit.value(p)))).join(", ")
            }
            Err(error) => error.to_string(),
        };
        out.push_str(&format!("  without the last {:.0} %: {found}\n", 100.0 * tail.removed));
    }
    if let Some(halves) = &analysis.halves {
        let of = |i: usize| halves.fits.get(i).map_or(f64::NAN, |f| f.law.asymptote);
        out.push_str(&format!(
            "  {} random halves: A {:.4} ± {:.4}, from {:.4} to {:.4}\n",
            halves.fits.len(),
            halves.mean[0],
            halves.deviation[0],
            of(halves.extremes.0),
            of(halves.extremes.1)
        ));
    }
    for warning in &fit.warnings {
        out.push_str(&format!("  warning: {warning}\n"));
    }
    out.truncate(out.trim_end().len());
    out
}

fn as_json(name: &str, analysis: &Analysis, level: f64) -> Value {
    let fit = &analysis.fit;
    let parameters: serde_json::Map<String, Value> = Parameter::ALL
        .iter()
        .map(|&p| {
            let value = json!({
                "value": fit.value(p), "standard_error": fit.standard_error(p), "interval": fit.interval(p, level),
            });
            (p.symbol().to_owned(), value)
        })
        .collect();
    let tails: Vec<Value> = analysis
        .tails
        .iter()
        .map(|t| match &t.fit {
            Ok(fit) => json!({ "removed": t.removed, "parameters": fit.law.parameters() }),
            Err(error) => json!({ "removed": t.removed, "error": error.to_string() }),
        })
        .collect();
    let halves = analysis.halves.as_ref().map(|h| {
        json!({
            "fits": h.fits.len(), "mean": h.mean, "deviation": h.deviation,
            "lowest": h.fits.get(h.extremes.0).map(|f| f.law.parameters()),
            "highest": h.fits.get(h.extremes.1).map(|f| f.law.parameters()),
        })
    });
    json!({
        "curve": name, "points": analysis.points, "fitted": fit.points, "cut": fit.cut,
        "cut_is_scaled": fit.cut_is_scaled, "R_0": fit.law.initial, "origin": fit.law.origin,
        "parameters": parameters, "level": level, "covariance": fit.covariance, "squares": fit.squares,
        "identified": fit.is_identified(),
        "warnings": fit.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "tails": tails, "halves": halves,
    })
}
