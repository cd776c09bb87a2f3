//! Compares fits with SciPy's bounded `curve_fit`: with recorded values, and with SciPy if it is installed.

use serde::{Deserialize, Serialize};
use sgs_analysis::fit::{CurvePoint, FitOptions, PreparedCurve, ScalingLaw, bounds, fit_prepared};
use std::io::Write;
use std::process::{Command, Stdio};

#[derive(Serialize, Deserialize)]
struct Curve {
    name: String,
    initial: f64,
    c: Vec<f64>,
    rate: Vec<f64>,
    bounds: [(f64, f64); 3],
}

#[derive(Deserialize)]
struct Expected {
    parameters: [f64; 3],
    covariance: [[f64; 3]; 3],
    squares: f64,
}

#[derive(Deserialize)]
struct Golden {
    curves: Vec<GoldenCurve>,
}

#[derive(Deserialize)]
struct GoldenCurve {
    #[serde(flatten)]
    curve: Curve,
    fit: Expected,
}

fn prepared(curve: &Curve) -> PreparedCurve {
    let point = |(&generations, &rate): (&f64, &f64)| CurvePoint { generations, rate };
    PreparedCurve {
        anchor: CurvePoint { generations: 0.0, rate: curve.initial },
        points: curve.c.iter().zip(&curve.rate).map(point).collect(),
        cut: 0.0,
        cut_is_scaled: false,
        dropped: 0,
    }
}

/// Compares a fit. Returns whether the parameters were compared. A flat curve has no unique minimum, so only its
/// residuals are compared.
fn compare(curve: &Curve, expected: &Expected) -> bool {
    let fit = fit_prepared(&prepared(curve), &FitOptions::default()).unwrap();
    let name = &curve.name;
    let noise_floor = 1e-12;
    assert!(
        fit.squares <= expected.squares * (1.0 + 1e-9) + noise_floor,
        "{name}: sum of squares {} above SciPy's {}",
        fit.squares,
        expected.squares
    );
    if name.starts_with("flat") {
        return false;
    }
    for (got, want) in fit.law.parameters().into_iter().zip(expected.parameters) {
        assert!(
            (got / want - 1.0).abs() < 1e-6,
            "{name}: {:?} {:?}",
            fit.law.parameters(),
            expected.parameters
        );
    }
    let covariance = fit.covariance.unwrap();
    for (got, want) in covariance.iter().flatten().zip(expected.covariance.iter().flatten()) {
        assert!((got / want - 1.0).abs() < 1e-4, "{name}: covariance {got} {want}");
    }
    true
}

#[test]
fn fits_match_recorded_fits_of_scipy() {
    let golden: Golden = serde_json::from_str(include_str!("../data/scipy_fits.json")).unwrap();
    let compared = golden.curves.iter().filter(|g| compare(&g.curve, &g.fit)).count();
    assert!(compared >= 30, "{compared} of {} curves compared in their parameters", golden.curves.len());
}

/// Creates curves with other shapes than the recorded ones.
fn fresh_curves() -> Vec<Curve> {
    let mut rng = fastrand::Rng::with_seed(99);
    let mut normal = move || {
        let (u, v) = (1.0 - rng.f64(), rng.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    (0..12_u32)
        .map(|i| {
            let n = 8 + 21 * i;
            let step = 10_f64.powf(f64::from(2 + i % 4));
            let span = step * f64::from(n);
            let law = ScalingLaw {
                initial: 0.02 * f64::from(i % 10),
                origin: 0.0,
                asymptote: 0.4 + 0.01 * f64::from(i),
                midpoint: span * (0.1 + 0.5 * f64::from(i % 5) / 5.0),
                steepness: 0.7 + 0.1 * f64::from(i % 8),
            };
            let c: Vec<f64> = (1..=n).map(|k| step * f64::from(k)).collect();
            let rate = c.iter().map(|&c| law.rate(c) + 0.002 * normal()).collect();
            let mut curve =
                Curve { name: format!("fresh {i}"), initial: law.initial, c, rate, bounds: [(0.0, 1.0); 3] };
            curve.bounds = bounds(&prepared(&curve), 1.0);
            curve
        })
        .collect()
}

/// Returns a Python interpreter with SciPy: `SGS_PYTHON` or `python3`.
fn python_with_scipy() -> Option<String> {
    let python = std::env::var("SGS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let status = Command::new(&python)
        .args(["-c", "import scipy"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|s| s.success()).then_some(python)
}

#[test]
fn fits_match_scipy_if_it_is_installed() {
    let Some(python) = python_with_scipy() else {
        let required = std::env::var("SGS_REQUIRE").unwrap_or_default();
        assert!(!required.contains("scipy"), "SGS_REQUIRE names scipy, which no Python here has");
        eprintln!("skipped: no Python with SciPy; set SGS_PYTHON to one to run this comparison");
        return;
    };
    let curves = fresh_curves();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/scipy_fits.py");
    let mut child =
        Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(&curves).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let expected: Vec<Expected> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(expected.len(), curves.len());
    let compared = curves.iter().zip(&expected).filter(|(curve, fit)| compare(curve, fit)).count();
    assert!(compared >= 10, "{compared} curves compared");
}
