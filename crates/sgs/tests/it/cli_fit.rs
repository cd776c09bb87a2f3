//! `sgs fit`.

use crate::program::{file, path, sgs};
use sgs_rundir::{FrozenConfig, MetricValues, RunDir};
use std::path::Path;

/// Returns the rate of a scaling law with R_0 = 0.3, A = 0.7, C_mid = 1.5e6 and B = 0.9, which starts at 100,000
/// generations.
fn rate(generations: f64) -> f64 {
    let c = generations - 1e5;
    if c <= 0.0 { 0.3 } else { 0.3 + 0.4 / (1.0 + (1.5e6 / c).powf(0.9)) }
}

fn csv(header: &str, scale: f64) -> String {
    let rows = (1..=100).map(|i| 5e4 * f64::from(i)).map(|c| format!("{c},{}\n", scale * rate(c)));
    header.to_owned() + &rows.collect::<String>()
}

fn asymptote(fit: &serde_json::Value) -> f64 {
    fit["parameters"]["A"]["value"].as_f64().unwrap()
}

#[test]
fn a_row_of_another_length_is_reported_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let given = file(dir.path(), "ragged.csv", "c,rate\n1,0.1\n2,0.2,0.3\n");
    let done = sgs(&["fit", &given]).expect(2);
    let wanted = format!("{given}: line 3: not a CSV file: 3 columns, expected 2");
    assert!(done.err.contains(&wanted), "{}", done.err);
}

#[test]
fn csv_curves_are_fitted_with_and_without_header() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text, percent) in [
        ("plain.csv", csv("", 1.0), false),
        ("named.csv", csv("# of another system\nGenerations,rate\n", 1.0), false),
        ("percent.csv", csv("c,solve_rate\n", 100.0), true),
    ] {
        let mut args = vec!["fit".to_owned(), file(dir.path(), name, &text), "--json".to_owned()];
        args.extend(percent.then(|| "--percent".to_owned()));
        let json = sgs(&args).expect(0).json();
        let fit = &json[0];
        assert!((asymptote(fit) - 0.7).abs() < 1e-3, "{name}: {fit}");
        assert!((fit["parameters"]["B"]["value"].as_f64().unwrap() - 0.9).abs() < 1e-3, "{name}: {fit}");
        assert_eq!(fit["identified"], true, "{name}: {fit}");
        assert_eq!(fit["tails"].as_array().unwrap().len(), 3);
        assert_eq!(fit["halves"]["fits"], 100);
    }
    let text = sgs(&["fit", &path(dir.path(), "plain.csv")]).expect(0).out;
    for part in ["R_0", "A      0.7000", "C_mid", "without the last 30%", "100 random halves"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn an_uncertainty_is_half_of_the_interval() {
    let dir = tempfile::tempdir().unwrap();
    let row = |i: u32| {
        let c = 5e4 * f64::from(i);
        format!("{c},{}\n", rate(c) + 0.002 * f64::from(i * i).sin())
    };
    let given = file(dir.path(), "noisy.csv", &(1..=100).map(row).collect::<String>());
    let text = sgs(&["fit", &given]).expect(0).out;
    let json = sgs(&["fit", "--json", &given]).expect(0).json();
    let spread = json[0]["spread"].as_f64().unwrap();
    for name in ["A", "C_mid", "B"] {
        let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{name} "))).unwrap();
        // Only C_mid has a unit.
        assert_eq!(line.contains(" generations  (95%: "), name == "C_mid", "{line}");
        let plain = line.replace("generations", "").replace(',', "").replace('−', "-");
        let words: Vec<&str> = plain.split([' ', '(', ')']).filter(|word| !word.is_empty()).collect();
        let [found, low, high] = [3, 5, 7].map(|i| words[i].parse::<f64>().unwrap());
        let half = 0.5 * (high - low);
        assert!((found / half - 1.0).abs() < 0.05, "{line}");
        let interval = &json[0]["parameters"][name]["interval"];
        let own = 0.5 * (interval[1].as_f64().unwrap() - interval[0].as_f64().unwrap());
        // As in reports, that of A includes the spread of the refits.
        let expected = if name == "A" { own.max(spread) } else { own };
        assert!((found / expected - 1.0).abs() < 0.05, "{line} {json}");
    }
    assert!(text.contains("100 random halves: A 0.") && text.contains(", standard deviation 0."), "{text}");
}

#[test]
fn an_unknown_header_selects_the_first_two_columns() {
    let dir = tempfile::tempdir().unwrap();
    let given = file(dir.path(), "c.csv", &csv("samples,solved\n", 1.0));
    let json = sgs(&["fit", "--json", &given]).expect(0).json();
    assert!((asymptote(&json[0]) - 0.7).abs() < 1e-3, "{json}");
}

#[test]
fn several_runs_in_one_file_are_fitted_separately_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let rows = |run: &str, seed: u32, lift: f64| -> String {
        let row = |c: f64| format!("{run},{seed},{c},{}\n", rate(c) + lift);
        (1..=100).map(|i| row(5e4 * f64::from(i))).collect()
    };
    let text = format!(
        "run,seed,generations,rate\n{}{}{}",
        rows("a", 1, 0.0),
        rows("a", 2, 0.05),
        rows("b", 1, 0.1)
    );
    let given = file(dir.path(), "runs.csv", &text);
    let json = sgs(&["fit", "--json", &given]).expect(0).json();
    let found: Vec<(String, f64)> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|fit| (fit["curve"].as_str().unwrap().replace(&given, ""), asymptote(fit)))
        .collect();
    for ((name, a), (expected_name, expected)) in
        found.iter().zip([(": a, seed 1", 0.7), (": a, seed 2", 0.75), (": b, seed 1", 0.8)])
    {
        assert!(
            name == expected_name && (a - expected).abs() < 1e-3,
            "{name} {a}, not {expected_name} {expected}"
        );
    }
    assert_eq!(found.len(), 3);
    let two = format!("{}{}", csv("", 1.0), csv("", 1.0));
    let given = file(dir.path(), "two.csv", &two);
    let done = sgs(&["fit", &given]).expect(2);
    assert!(done.err.contains("line 101: generations decrease from 5000000 to 50000"), "{}", done.err);
    assert!(done.err.contains("a column that distinguishes them"), "{}", done.err);
}

/// Fits a curve that seems to level off and then rises again, as one run did four rounds after an apparent asymptote of
/// 23%.
#[test]
fn a_curve_that_keeps_rising_has_no_asymptote() {
    let dir = tempfile::tempdir().unwrap();
    let rate = |c: f64| 0.3 + 0.1 * (1.0 - (-c / 8e5).exp()) + 0.09 / (1.0 + (-(c - 6.3e6) / 3e5).exp());
    let rows: String = (1..=200).map(|i| 4e4 * f64::from(i)).map(|c| format!("{c},{}\n", rate(c))).collect();
    let given = file(dir.path(), "c.csv", &rows);
    let json = sgs(&["fit", "--json", &given]).expect(0).json();
    assert_eq!(json[0]["identified"], false, "{json}");
    let text = sgs(&["fit", &given]).expect(0).out;
    assert!(text.contains("A is not determined yet"), "{text}");
}

#[test]
fn columns_may_come_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let rows: String =
        (1..=50).map(|i| 1e5 * f64::from(i)).map(|c| format!("x, {}, {c}\n", rate(c))).collect();
    let given = file(dir.path(), "c.csv", &format!("note, cumulative_solve_rate, generations\n{rows}"));
    let json = sgs(&["fit", "--json", &given]).expect(0).json();
    assert!((asymptote(&json[0]) - 0.7).abs() < 1e-2);
}

#[test]
fn a_bad_curve_is_reported_with_its_line_and_the_others_are_fitted() {
    let dir = tempfile::tempdir().unwrap();
    let good = file(dir.path(), "good.csv", &csv("", 1.0));
    for (name, text, message) in [
        ("word.csv", "1,0.1\n2,abc\n", "line 2: the rate `abc` is not a number"),
        ("big.csv", "1,0.1\n2,23\n", "use --percent for percentages"),
        ("one.csv", "1\n", "line 1: column 2"),
        ("text.csv", "a,b\n1,0.1\nx,0.2\n", "line 3: the generations `x` is not a number"),
        ("empty.csv", "", "has no points"),
        ("few.csv", "1,0.1\n2,0.2\n", "too few points"),
    ] {
        let bad = file(dir.path(), name, text);
        let done = sgs(&["fit", &bad, &good]).expect(1);
        assert!(done.err.contains(message) && done.err.contains(name), "{name}: {}", done.err);
        assert_eq!(done.err.matches(name).count(), 1, "{}", done.err);
        assert!(done.out.contains("good.csv"), "{}", done.out);
        let json = sgs(&["fit", "--json", &bad, &good]).expect(1).json();
        assert!(json[0]["error"].as_str().unwrap().contains(message));
        assert!(json[1]["parameters"].is_object());
    }
}

#[test]
fn points_that_are_not_numbers_are_skipped_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let given = file(dir.path(), "nan.csv", &(csv("", 1.0) + "6000000,NaN\n"));
    let json = sgs(&["fit", "--json", &given]).expect(0).json();
    let warnings = json[0]["warnings"].to_string();
    assert!(warnings.contains("generations are not finite: 1"), "{warnings}");
}

fn publish(path: &Path, rounds: u32) {
    let config =
        FrozenConfig { text: "method = \"sgs\"\n".into(), version: "1".into(), data: Default::default() };
    let run = RunDir::create(path, &config, None).unwrap();
    for round in 0..rounds {
        run.start_round(round).unwrap();
        run.finish_sampling(round).unwrap();
        run.skip_update(round, "").unwrap();
        let mut metrics = MetricValues::new(round);
        let generations = 2e5 * f64::from(round + 1);
        metrics.set("generations", generations);
        metrics.set("cumulative_solve_rate", rate(generations));
        run.publish_round(&metrics, |_| Ok(())).unwrap();
    }
}

#[test]
fn runs_are_fitted_from_their_metrics() {
    let dir = tempfile::tempdir().unwrap();
    publish(&dir.path().join("run"), 12);
    let json = sgs(&["fit", "--json", &path(dir.path(), "run")]).expect(0).json();
    assert_eq!(json[0]["points"], 12);
    assert!((asymptote(&json[0]) - 0.7).abs() < 0.05, "{json}");
    publish(&dir.path().join("young"), 0);
    let done = sgs(&["fit", &path(dir.path(), "young")]).expect(1);
    assert!(done.err.contains("no finished round yet"), "{}", done.err);
}
