//! `sgs fit`: fits the scaling law to runs or CSV files.

use crate::args::FitArgs;
use crate::curve_file;
use crate::exit::{Outcome, usage};
use crate::output;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sgs_analysis::fit::{ConfirmedFit, CurvePoint, Cut, Fit, FitOptions, PAPER_CUT, Parameter, examine};
use sgs_analysis::plot::grouped;
use sgs_analysis::run::read_metrics;
use sgs_rundir::RunView;
use std::path::Path;

/// Fits every curve. A folder that does not contain a run is a usage error. Any other failure does not affect the other
/// curves.
pub fn run(args: &FitArgs) -> Result<Outcome> {
    let inputs = crate::run_folder::expanded(&args.inputs);
    inputs.iter().filter(|path| path.is_dir()).try_for_each(|path| RunView::open(path).map(drop))?;
    let cut = args.cut.map_or(Cut::Scaled, Cut::At);
    let options = FitOptions { cut, max_rate: args.max_rate, level: args.level };
    let mut curves: Vec<_> = inputs.iter().flat_map(|path| curves(path, args)).collect();
    let is_of_runs = args.inputs.iter().any(|path| path.is_dir());
    if !is_of_runs
        && !args.json
        && curves.iter().all(|(_, curve)| curve.is_err())
        && let Some((_, Err(last))) = curves.pop()
    {
        curves.iter().filter_map(|(_, curve)| curve.as_ref().err()).for_each(|e| eprintln!("error: {e:#}"));
        return Err(usage(last));
    }
    let mut results = Vec::new();
    let mut outcome = Outcome::Done;
    for (name, curve) in curves {
        let result = curve.and_then(|curve| analyse(&curve, args, &options).with_context(|| name.clone()));
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
            output::prose(text(&name, analysis, args.level))?;
        }
    }
    if args.json {
        output::json(&results)?;
    }
    Ok(outcome)
}

/// Reads the curves of a run or a CSV file by name, or returns the reason why there are none.
fn curves(path: &Path, args: &FitArgs) -> Vec<(String, Result<Vec<CurvePoint>>)> {
    let shown = path.display().to_string();
    let found = match path.is_dir() {
        true => read_run(path).with_context(|| shown.clone()).map(|curve| vec![(String::new(), curve)]),
        false => curve_file::read(path, args.percent),
    };
    let named = |name: String| if name.is_empty() { shown.clone() } else { format!("{shown}: {name}") };
    match found {
        Ok(curves) => curves.into_iter().map(|(name, curve)| (named(name), Ok(curve))).collect(),
        Err(error) => vec![(shown.clone(), Err(error))],
    }
}

fn read_run(path: &Path) -> Result<Vec<CurvePoint>> {
    let run = read_metrics(path)?;
    run.notes.iter().for_each(|note| eprintln!("warning: {note}"));
    if run.is_empty() {
        bail!("the run has no finished round yet; see `sgs status {}`", path.display());
    }
    Ok(run.curve())
}

struct Analysis {
    points: usize,
    examined: ConfirmedFit,
}

fn analyse(
    curve: &[CurvePoint],
    args: &FitArgs,
    options: &FitOptions,
) -> Result<Analysis, sgs_analysis::fit::FitError> {
    Ok(Analysis { points: curve.len(), examined: examine(curve, options, args.halves, args.seed)? })
}

fn number(parameter: Parameter, value: f64) -> String {
    match parameter {
        Parameter::Asymptote => format!("{value:.4}"),
        Parameter::Midpoint => grouped(value),
        Parameter::Steepness => format!("{value:.3}"),
    }
}

/// Returns half of the interval of a parameter. That of A includes the spread of the fits it was checked against, as in
/// reports.
fn half_interval(fit: &Fit, parameter: Parameter, level: f64) -> Option<f64> {
    match parameter {
        Parameter::Asymptote => fit.uncertainty(level),
        _ => fit.interval(parameter, level).map(|(low, high)| 0.5 * (high - low)),
    }
}

fn text(name: &str, analysis: &Analysis, level: f64) -> String {
    let ConfirmedFit { fit, tails, halves } = &analysis.examined;
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
        let half = half_interval(fit, p, level);
        out.extend(half.map(|half| format!("  ± {}", number(p, half))));
        if p == Parameter::Midpoint {
            out.push_str(" generations");
        }
        if let Some(half) = half {
            let [low, high] = [fit.value(p) - half, fit.value(p) + half].map(|end| number(p, end));
            out.push_str(&format!("  ({:.0}%: {low} to {high})", 100.0 * level));
        }
        out.push('\n');
    }
    if let Some(sd) = fit.residual_sd() {
        out.push_str(&format!("  residuals: standard deviation {sd:.5}\n"));
    }
    for tail in tails {
        let found = match &tail.fit {
            Ok(fit) => {
                Parameter::ALL.map(|p| format!("{} {}", p.symbol(), number(p, fit.value(p)))).join(", ")
            }
            Err(error) => error.to_string(),
        };
        out.push_str(&format!("  without the last {:.0}%: {found}\n", 100.0 * tail.removed));
    }
    if let Some(halves) = halves {
        let of = |i: usize| halves.fits.get(i).map_or(f64::NAN, |f| f.law.asymptote);
        out.push_str(&format!(
            "  {} random halves: A {:.4}, standard deviation {:.4}, from {:.4} to {:.4}\n",
            halves.fits.len(),
            halves.mean[0],
            halves.deviation[0],
            of(halves.extremes.0),
            of(halves.extremes.1)
        ));
    }
    if !fit.is_identified() {
        out.push_str("  A is not determined yet: do not cite it\n");
    }
    for warning in &fit.warnings {
        out.push_str(&format!("  warning: {warning}\n"));
    }
    out.truncate(out.trim_end().len());
    out
}

fn as_json(name: &str, analysis: &Analysis, level: f64) -> Value {
    let ConfirmedFit { fit, tails, halves } = &analysis.examined;
    let parameters: serde_json::Map<String, Value> = Parameter::ALL
        .iter()
        .map(|&p| {
            let value = json!({
                "value": fit.value(p), "standard_error": fit.standard_error(p), "interval": fit.interval(p, level),
            });
            (p.symbol().to_owned(), value)
        })
        .collect();
    let tails: Vec<Value> = tails
        .iter()
        .map(|t| match &t.fit {
            Ok(fit) => json!({ "removed": t.removed, "parameters": fit.law.parameters() }),
            Err(error) => json!({ "removed": t.removed, "error": error.to_string() }),
        })
        .collect();
    let halves = halves.as_ref().map(|h| {
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
        "identified": fit.is_identified(), "spread": fit.spread,
        "warnings": fit.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "tails": tails, "halves": halves,
    })
}
