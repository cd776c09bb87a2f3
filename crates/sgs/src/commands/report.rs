//! `sgs report`: a page of figures and tables for a run, or for several side by side.

use crate::args::ReportArgs;
use crate::exit::Outcome;
use crate::shown::Shown;
use anyhow::{Context, Result, bail, ensure};
use sgs_analysis::figures::{FigureOptions, Yardstick};
use sgs_analysis::fit::{Cut, FitOptions};
use sgs_analysis::report::{self, ReportOptions};
use sgs_analysis::run::{ReadOptions, RunData, read_run};
use std::path::{Path, PathBuf};

/// Writes a report.
pub fn run(args: &ReportArgs) -> Result<Outcome> {
    let out = match (&args.out, args.runs.as_slice()) {
        (Some(out), _) => out.clone(),
        (None, [one]) => one.join("report"),
        (None, _) => PathBuf::from("report"),
    };
    let mut fit = FitOptions::default();
    if let Some(cut) = args.cut {
        ensure!(cut >= 0.0 && cut.is_finite(), "--cut {cut}: give a number of generations, 0 or more");
        fit.cut = Cut::At(cut);
    }
    let baseline = args.baseline.as_deref().map(|given| position(given, &args.runs)).transpose()?;
    let figures = FigureOptions { fit, yardsticks: args.yardsticks.clone(), baseline };
    let options = ReportOptions { figures, ..ReportOptions::default() };
    crate::output::line(write_for(&args.runs, &out, &options)?.display())?;
    Ok(Outcome::Done)
}

/// Which of the runs a folder is.
fn position(given: &Path, runs: &[PathBuf]) -> Result<usize> {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let found = runs.iter().position(|run| whole(run) == whole(given));
    found.with_context(|| {
        let names: Vec<String> = runs.iter().map(|r| r.display().to_string()).collect();
        format!(
            "--baseline {}: none of the runs of this report, which are {}",
            given.display(),
            names.join(", ")
        )
    })
}

/// Reads a yardstick as the command line takes it.
pub fn yardstick(given: &str) -> Result<Yardstick> {
    const FORM: &str = "give LABEL=RATE, such as `DSPv2 671B, pass@4=0.42` or `=42%`, or LABEL=FILE with what `sgs eval --json` printed";
    // `pass@4=0.42`: the rate stands after the last sign.
    let (label, rate) = given.rsplit_once('=').context(FORM)?;
    let (label, rate) = (label.trim(), rate.trim());
    ensure!(!label.is_empty(), FORM);
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let known = match rate.strip_suffix('%') {
        Some(percent) => number(percent).map(|p| p / 100.0),
        None => number(rate),
    };
    let (label, rate) = match known {
        Some(rate) => (label.to_owned(), rate),
        None if Path::new(rate).is_file() => {
            let (k, rate) = evaluated(Path::new(rate))?;
            (format!("{label}, pass@{k}"), rate)
        }
        None => bail!("`{rate}` is no rate and no file: {FORM}"),
    };
    ensure!(
        (0.0..=1.0).contains(&rate),
        "the rate {rate} is not between 0 and 1; a percentage ends with `%`"
    );
    Ok(Yardstick { label, rate })
}

/// The largest k of an evaluation, and its pass@k.
fn evaluated(file: &Path) -> Result<(u32, f64)> {
    let place = || format!("in {}", file.display());
    let text = std::fs::read_to_string(file).with_context(place)?;
    let json: serde_json::Value = serde_json::from_str(&text).with_context(place)?;
    let entries = json.as_object().into_iter().flatten();
    let rates = entries.filter_map(|(key, v)| Some((key.strip_prefix("pass@")?.parse().ok()?, v.as_f64()?)));
    rates
        .max_by_key(|(k, _)| *k)
        .with_context(|| format!("{} holds no pass@k as `sgs eval --json` prints it", file.display()))
}

/// Writes the report of some runs into a folder; gives its page.
///
/// # Errors
/// A run cannot be read, or the folder cannot be written.
pub fn write_for(runs: &[PathBuf], out: &Path, options: &ReportOptions) -> Result<PathBuf> {
    let read = |dir: &PathBuf| -> Result<RunData> {
        let shown = Shown::of_run(dir)?;
        Ok(read_run(dir, &ReadOptions { display: Some(&shown), ..ReadOptions::default() })?)
    };
    let runs = runs.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(report::write(&runs, out, options)?.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yardsticks_are_shares_percentages_or_evaluations() {
        let read = |text: &str| yardstick(text).map(|y| (y.label, y.rate)).map_err(|e| format!("{e:#}"));
        assert_eq!(read("DSPv2 671B, pass@4=0.42"), Ok(("DSPv2 671B, pass@4".into(), 0.42)));
        assert_eq!(read("k = 4 = 42 %"), Ok(("k = 4".into(), 0.42)));
        for (bad, why) in [
            ("0.42", "LABEL=RATE"),
            ("=0.42", "LABEL=RATE"),
            ("a=42", "between 0 and 1"),
            ("a=x.json", "no file"),
            ("a=NaN", "between"),
        ] {
            assert!(read(bad).unwrap_err().contains(why), "{bad}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("eval.json");
        let given = format!("base={}", file.display());
        std::fs::write(&file, r#"{"problems":6,"pass@1":0.1,"pass@16":0.5,"pass@8":0.4}"#).unwrap();
        assert_eq!(read(&given), Ok(("base, pass@16".into(), 0.5)));
        std::fs::write(&file, "{}").unwrap();
        assert!(read(&given).unwrap_err().contains("no pass@k"));
    }
}
