//! Parses the yardsticks of `sgs report`: rates of other models.

use anyhow::{Context, Result, bail, ensure};
use sgs_analysis::figures::Yardstick;
use std::path::Path;

/// Parses the value of `--yardstick`. The error contains all its causes, because clap prints only one message.
pub fn argument(given: &str) -> Result<Yardstick, String> {
    parse(given).map_err(|error| format!("{error:#}"))
}

fn parse(given: &str) -> Result<Yardstick> {
    const EXPECTED_FORM: &str = "give LABEL=RATE, such as `DSPv2 671B, pass@4=0.42` or `=42%`, or LABEL=FILE with the output of `sgs eval --json`";
    // `pass@4=0.42`: the rate follows the last `=`.
    let (label, rate) = given.rsplit_once('=').context(EXPECTED_FORM)?;
    let (label, rate) = (label.trim(), rate.trim());
    ensure!(!label.is_empty(), EXPECTED_FORM);
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let known = match rate.strip_suffix('%') {
        Some(percent) => number(percent).map(|p| p / 100.0),
        None => number(rate),
    };
    let (label, rate) = match known {
        Some(rate) => (label.to_owned(), rate),
        None if Path::new(rate).is_file() => {
            let (k, rate) = rate_of_evaluation(Path::new(rate))?;
            (format!("{label}, pass@{k}"), rate)
        }
        None => bail!("`{rate}` is neither a rate nor a file: {EXPECTED_FORM}"),
    };
    ensure!(
        (0.0..=1.0).contains(&rate),
        "the rate {rate} is not between 0 and 1; a percentage ends with `%`"
    );
    Ok(Yardstick { label, rate })
}

/// Returns the largest k of an evaluation with its pass@k.
fn rate_of_evaluation(file: &Path) -> Result<(u32, f64)> {
    let place = || format!("in {}", file.display());
    let text = std::fs::read_to_string(file).with_context(place)?;
    let json: serde_json::Value = serde_json::from_str(&text).with_context(place)?;
    let entries = json.as_object().into_iter().flatten();
    let rates = entries.filter_map(|(key, v)| Some((key.strip_prefix("pass@")?.parse().ok()?, v.as_f64()?)));
    rates
        .max_by_key(|(k, _)| *k)
        .with_context(|| format!("{} has no pass@k in the format of `sgs eval --json`", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yardsticks_are_shares_percentages_or_evaluations() {
        let read = |text: &str| parse(text).map(|y| (y.label, y.rate)).map_err(|e| format!("{e:#}"));
        assert_eq!(read("DSPv2 671B, pass@4=0.42"), Ok(("DSPv2 671B, pass@4".into(), 0.42)));
        assert_eq!(read("k = 4 = 42 %"), Ok(("k = 4".into(), 0.42)));
        for (bad, why) in [
            ("0.42", "LABEL=RATE"),
            ("=0.42", "LABEL=RATE"),
            ("a=42", "between 0 and 1"),
            ("a=x.json", "neither a rate nor a file"),
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
