//! Fitting the scaling law to a curve of cumulative solve rates (paper, §4.2 and Appendix A).
//!
//! The points up to a *cut* are left out, because the fast early gains do not follow the long-run law. The remaining curve is
//! re-centred on its first point, the anchor, whose rate is R_0 and is not fitted. A, C_mid and B minimise the sum of
//! squared residuals within bounds.

mod agreement;
mod law;
mod least_squares;
mod robustness;

pub use agreement::{ConfirmedFit, HALVES, HALVES_SEED, examine};
pub use law::{Parameter, ScalingLaw};
pub use robustness::{HalvesFit, TailFit};
use robustness::{random_halves, tail_cuts};

use crate::plot::{Unit, format_value};
use crate::stats::student;
use least_squares::{Bounds, Points, inverse_normal, minimise};
use serde::Serialize;
use std::fmt;

/// Minimum number of points for an identified law. With four points, fits have been observed that agreed with each other on
/// an asymptote that the run later exceeded.
const ENOUGH_POINTS: usize = 10;

/// An observation: the cumulative solve rate after a number of generations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct CurvePoint {
    /// Number of Solver rollouts so far.
    pub generations: f64,
    /// Solved targets / targets, 0 to 1.
    pub rate: f64,
}

/// The cut below which points are left out of the fit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Cut {
    /// The paper's 100,000 generations, or 1/40 of the curve if it is shorter than 4,000,000 generations.
    Scaled,
    /// This many generations.
    At(f64),
}

/// The cut of the paper's fits, in generations (Appendix A).
pub const PAPER_CUT: f64 = 100_000.0;
/// Minimum length of a curve, in generations, for the unscaled cut of the paper.
const FULL_LENGTH: f64 = 40.0 * PAPER_CUT;

/// Options of a fit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FitOptions {
    /// The cut at the start of the curve.
    pub cut: Cut,
    /// Upper bound of A; 1 for rates.
    pub max_rate: f64,
    /// Confidence level of the intervals in warnings, 0 to 1.
    pub level: f64,
}

impl Default for FitOptions {
    fn default() -> Self {
        Self { cut: Cut::Scaled, max_rate: 1.0, level: 0.95 }
    }
}

/// An error that prevents a fit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum FitError {
    #[error(
        "too few points for a fit: {usable} usable after the first one and the cut at {cut:.0} generations, at least 3 are needed; continue the run{}",
        if *cut > 0.0 { ", or lower the cut" } else { "" }
    )]
    TooFewPoints { usable: usize, cut: f64 },
    /// An option is out of range.
    #[error("fit option {name} is {value}: {expected}")]
    Option { name: &'static str, value: f64, expected: &'static str },
}

/// A limitation of a fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum Warning {
    /// Every rate after the cut equals R_0: only A is known, and only as "no gain so far".
    Flat,
    /// The points do not determine all three parameters.
    Degenerate,
    /// The fitted midpoint is after the last point, so the run is too short to show the bend of the curve.
    BendNotSeen { midpoint: f64, span: f64 },
    /// A parameter is at its bound.
    AtBound(Parameter),
    /// The interval of A is wider than the predicted gain.
    WideAsymptote { half_width: f64 },
    /// The interval of A ends below the last rate, although a cumulative rate cannot fall.
    BelowMeasured { high: f64, measured: f64 },
    /// The interval of C_mid includes zero.
    WideMidpoint { half_width: f64 },
    /// The fit without the last points has a different asymptote.
    CutsDisagree { removed: f64, asymptote: Option<f64> },
    /// Fits on random halves of the points have different asymptotes.
    HalvesDisagree { low: f64, high: f64 },
    /// The residuals are correlated: intervals and bands are wider by this factor than with independent residuals.
    CorrelatedResiduals { autocorrelation: f64, factor: f64 },
    /// There are too few points per parameter.
    FewPoints { points: usize },
    /// Points with a rate that is not finite or with negative generations were left out.
    Dropped { points: usize },
}

impl Warning {
    /// Returns whether the warning means that A, C_mid and B are not determined.
    pub fn is_unidentified(&self) -> bool {
        !matches!(self, Warning::CorrelatedResiduals { .. } | Warning::Dropped { .. })
    }
}

/// Formats a number of generations as in tables.
fn shown(generations: f64) -> String {
    format_value(generations, Unit::Count, 3)
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Flat => {
                f.write_str("no gain after the cut: the curve is flat, so only A = R_0 is known")
            }
            Warning::Degenerate => f.write_str("the points do not determine A, C_mid and B"),
            Warning::BendNotSeen { midpoint, span } => write!(
                f,
                "the run is too short for a fit: the midpoint C_mid would be at {} generations, beyond the {} fitted ones",
                shown(*midpoint),
                shown(*span)
            ),
            Warning::AtBound(p) => {
                write!(f, "{} is at its bound: the points do not determine it", p.symbol())
            }
            Warning::WideAsymptote { half_width } if *half_width > 1.0 => {
                f.write_str("the asymptote is uncertain by more than 100 points")
            }
            Warning::WideAsymptote { half_width } => write!(
                f,
                "the asymptote is uncertain by ± {:.1} points, more than the gain that it predicts",
                100.0 * half_width
            ),
            Warning::BelowMeasured { high, measured } => write!(
                f,
                "the interval of A ends at {:.1}%, but {:.1}% was already reached: the curve does not follow the law",
                100.0 * high,
                100.0 * measured
            ),
            Warning::WideMidpoint { half_width } => write!(
                f,
                "C_mid is uncertain by ± {} generations, more than its value: the points do not determine the law",
                shown(*half_width)
            ),
            Warning::CutsDisagree { removed, asymptote: Some(a) } => write!(
                f,
                "without the last {:.0}% of the points, A is {:.1}%: the curve has not settled on an asymptote",
                100.0 * removed,
                100.0 * a
            ),
            Warning::CutsDisagree { removed, asymptote: None } => write!(
                f,
                "without the last {:.0}% of the points, the fit fails: the run is too short",
                100.0 * removed
            ),
            Warning::HalvesDisagree { low, high } => write!(
                f,
                "fits on random halves of the points give an A between {:.1}% and {:.1}%: the points do not determine it",
                100.0 * low,
                100.0 * high
            ),
            Warning::CorrelatedResiduals { autocorrelation, factor } => write!(
                f,
                "residuals are correlated (lag 1: {autocorrelation:.2}): intervals and bands are widened by a factor of {factor:.1}"
            ),
            Warning::FewPoints { points } => {
                write!(f, "only {points} points: {ENOUGH_POINTS} are needed for three parameters")
            }
            Warning::Dropped { points } => {
                write!(f, "points left out because their rate or generations are not finite: {points}")
            }
        }
    }
}

/// A fitted law and its uncertainty.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The law at the minimum.
    pub law: ScalingLaw,
    /// Covariance of (A, C_mid, B): `(Jᵀ J)⁻¹ · SSR / (n - 3)`, as SciPy's `curve_fit` computes it. `None` if the points do not
    /// determine it, or if there are no more points than parameters.
    pub covariance: Option<[[f64; 3]; 3]>,
    /// Sum of squared residuals.
    pub squares: f64,
    /// Number of fitted points, without the anchor (R_0).
    pub points: usize,
    /// The cut in generations. The first point at or after it is the anchor.
    pub cut: f64,
    /// Whether the cut is the paper's scaled down for a short run.
    pub cut_is_scaled: bool,
    /// First and last fitted point, generations since the run's start.
    pub range: (f64, f64),
    /// Largest distance of A from the asymptotes of the fits without the last points and of the central 90% of the random
    /// halves. `None` if the fit was not checked against them.
    pub spread: Option<f64>,
    /// Limitations of the fit.
    pub warnings: Vec<Warning>,
}

impl Fit {
    /// Returns the residual degrees of freedom.
    pub fn degrees(&self) -> f64 {
        self.points.saturating_sub(3) as f64
    }

    /// Returns the standard deviation of the residuals.
    pub fn residual_sd(&self) -> Option<f64> {
        (self.points > 3).then(|| (self.squares / self.degrees()).sqrt())
    }

    /// Returns whether the points determine the parameters, that is, whether no warning says that they do not.
    pub fn is_identified(&self) -> bool {
        !self.warnings.iter().any(Warning::is_unidentified)
    }

    /// Returns the value of a parameter.
    pub fn value(&self, parameter: Parameter) -> f64 {
        self.law.parameters()[parameter as usize]
    }

    /// Returns the standard error of a parameter.
    pub fn standard_error(&self, parameter: Parameter) -> Option<f64> {
        let i = parameter as usize;
        self.covariance.map(|c| c[i][i].sqrt())
    }

    /// Returns half of the width of an interval at `level` in standard errors: the quantile of Student's t, widened if the
    /// residuals are correlated.
    fn standard_errors(&self, level: f64) -> f64 {
        let widened = |warning: &Warning| match warning {
            Warning::CorrelatedResiduals { factor, .. } => Some(*factor),
            _ => None,
        };
        student::two_sided(level, self.degrees()) * self.warnings.iter().find_map(widened).unwrap_or(1.0)
    }

    /// Returns the two-sided confidence interval of a parameter at `level` (0.95 for 95%). It is widened if the residuals
    /// are correlated.
    pub fn interval(&self, parameter: Parameter, level: f64) -> Option<(f64, f64)> {
        let half = self.standard_errors(level) * self.standard_error(parameter)?;
        let value = self.value(parameter);
        half.is_finite().then_some((value - half, value + half))
    }

    /// Returns the uncertainty of A: half of its confidence interval or the spread of the fits that it was checked against,
    /// whichever is larger.
    pub fn uncertainty(&self, level: f64) -> Option<f64> {
        let (low, high) = self.interval(Parameter::Asymptote, level)?;
        Some((0.5 * (high - low)).max(self.spread.unwrap_or(0.0)))
    }

    /// Returns the confidence band of the fitted rate after `generations` (delta method). It applies to the true curve, not to
    /// single observations.
    pub fn band(&self, generations: f64, level: f64) -> Option<(f64, f64)> {
        let covariance = self.covariance?;
        let g = self.law.gradient(generations);
        let variance: f64 = (0..3)
            .flat_map(|i| (0..3).map(move |j| (i, j)))
            .map(|(i, j)| g[i] * covariance[i][j] * g[j])
            .sum();
        let half = self.standard_errors(level) * variance.max(0.0).sqrt();
        let rate = self.law.rate(generations);
        half.is_finite().then_some((rate - half, rate + half))
    }
}

/// A curve that has been cut and re-centred.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedCurve {
    /// The anchor: R_0 and the generations at which C = 0.
    pub anchor: CurvePoint,
    /// The points after the anchor, in order of generations.
    pub points: Vec<CurvePoint>,
    /// The cut in generations.
    pub cut: f64,
    /// Whether the cut is the paper's scaled down for a short run.
    pub cut_is_scaled: bool,
    /// Number of points left out because they are not finite.
    pub dropped: usize,
}

/// Sorts a curve, removes points that are not finite, cuts it and re-centres it.
///
/// # Errors
/// Returns an error if fewer than 3 points remain after the anchor.
pub fn prepare(curve: &[CurvePoint], cut: Cut) -> Result<PreparedCurve, FitError> {
    if let Cut::At(value) = cut
        && !(value.is_finite() && value >= 0.0)
    {
        return Err(FitError::Option { name: "cut", value, expected: "a number of generations, at least 0" });
    }
    let is_usable = |p: &CurvePoint| p.generations.is_finite() && p.generations >= 0.0 && p.rate.is_finite();
    let mut usable: Vec<CurvePoint> = curve.iter().copied().filter(is_usable).collect();
    let dropped = curve.len() - usable.len();
    usable.sort_by(|a, b| a.generations.total_cmp(&b.generations));
    let last = usable.last().map_or(0.0, |p| p.generations);
    let (cut, cut_is_scaled) = match cut {
        Cut::At(value) => (value, false),
        Cut::Scaled => (PAPER_CUT.min(last * PAPER_CUT / FULL_LENGTH), last < FULL_LENGTH),
    };
    let mut kept = usable.into_iter().filter(|p| p.generations >= cut);
    let Some(anchor) = kept.next() else { return Err(FitError::TooFewPoints { usable: 0, cut }) };
    let points: Vec<CurvePoint> = kept.filter(|p| p.generations > anchor.generations).collect();
    if points.len() < 3 {
        return Err(FitError::TooFewPoints { usable: points.len(), cut });
    }
    Ok(PreparedCurve { anchor, points, cut, cut_is_scaled, dropped })
}

/// Fits the scaling law to a curve.
///
/// # Errors
/// Returns an error if fewer than three points remain to be fitted, or an option is out of range.
pub fn fit(curve: &[CurvePoint], options: &FitOptions) -> Result<Fit, FitError> {
    fit_prepared(&prepare(curve, options.cut)?, options)
}

/// Returns the bounds of (A, C_mid, B) for a curve as pairs (lower, upper): A in `[R_0, max_rate]`, C_mid from 1/100 of the
/// first point's C to 100 times the last point's C, and B in `[0.05, 20]`.
pub fn bounds(prepared: &PreparedCurve, max_rate: f64) -> [(f64, f64); 3] {
    let c = |p: Option<&CurvePoint>| p.map_or(1.0, |p| p.generations - prepared.anchor.generations);
    let initial = prepared.anchor.rate;
    [
        (initial, max_rate.max(initial)),
        (0.01 * c(prepared.points.first()), 100.0 * c(prepared.points.last())),
        (0.05, 20.0),
    ]
}

/// Fits the scaling law to a curve that is already cut and re-centred.
///
/// # Errors
/// Returns an error if there are fewer than three points, or an option is out of range.
pub fn fit_prepared(prepared: &PreparedCurve, options: &FitOptions) -> Result<Fit, FitError> {
    if !(options.level > 0.0 && options.level < 1.0) {
        let expected = "a confidence level between 0 and 1";
        return Err(FitError::Option { name: "level", value: options.level, expected });
    }
    if !options.max_rate.is_finite() {
        let expected = "a finite upper bound of A";
        return Err(FitError::Option { name: "max_rate", value: options.max_rate, expected });
    }
    let CurvePoint { generations: origin, rate: initial } = prepared.anchor;
    if prepared.points.len() < 3 {
        return Err(FitError::TooFewPoints { usable: prepared.points.len(), cut: prepared.cut });
    }
    let points = Points {
        x: prepared.points.iter().map(|p| (p.generations - origin).ln()).collect(),
        y: prepared.points.iter().map(|p| p.rate - initial).collect(),
    };
    let natural = bounds(prepared, options.max_rate);
    let [a, m, b] = natural;
    let bounds =
        Bounds { lower: [a.0 - initial, m.0.ln(), b.0.ln()], upper: [a.1 - initial, m.1.ln(), b.1.ln()] };
    let found = minimise(&points, &bounds);
    let law = ScalingLaw {
        initial,
        origin,
        asymptote: initial + found.theta[0],
        midpoint: found.theta[1].exp(),
        steepness: found.theta[2].exp(),
    };
    let squares = 2.0 * found.cost;
    let n = prepared.points.len();
    let covariance = (n > 3)
        .then(|| inverse_normal(prepared.points.iter().map(|p| law.gradient(p.generations))))
        .flatten()
        .map(|inverse| inverse.map(|row| row.map(|v| v * squares / (n - 3) as f64)));
    let at_bound: Vec<Parameter> = Parameter::ALL
        .into_iter()
        .filter(|&p| {
            found.theta[p as usize] <= bounds.lower[p as usize]
                || found.theta[p as usize] >= bounds.upper[p as usize]
        })
        .collect();
    let first = prepared.points.first().map_or(origin, |p| p.generations);
    let last = prepared.points.last().map_or(origin, |p| p.generations);
    let mut fit = Fit {
        law,
        covariance,
        squares,
        points: n,
        cut: prepared.cut,
        cut_is_scaled: prepared.cut_is_scaled,
        range: (first, last),
        spread: None,
        warnings: Vec::new(),
    };
    // The other warnings depend on intervals, which this one widens.
    fit.warnings.extend(correlation(&fit, prepared));
    let others = warnings(&fit, prepared, &at_bound, options.level);
    fit.warnings.splice(0..0, others);
    Ok(fit)
}

fn warnings(fit: &Fit, prepared: &PreparedCurve, at_bound: &[Parameter], level: f64) -> Vec<Warning> {
    let mut out = Vec::new();
    if prepared.dropped > 0 {
        out.push(Warning::Dropped { points: prepared.dropped });
    }
    if prepared.points.iter().all(|p| p.rate == prepared.anchor.rate) {
        out.push(Warning::Flat);
        return out;
    }
    let span = fit.range.1 - fit.law.origin;
    if fit.law.midpoint > span {
        out.push(Warning::BendNotSeen { midpoint: fit.law.midpoint, span });
    }
    out.extend(at_bound.iter().map(|&p| Warning::AtBound(p)));
    if fit.points < ENOUGH_POINTS {
        out.push(Warning::FewPoints { points: fit.points });
    }
    match fit.interval(Parameter::Asymptote, level) {
        None => out.push(Warning::Degenerate),
        Some((low, high)) => {
            let half_width = 0.5 * (high - low);
            if half_width > fit.law.asymptote - fit.law.initial {
                out.push(Warning::WideAsymptote { half_width });
            }
            let measured = prepared.points.last().map_or(0.0, |point| point.rate);
            if high < measured {
                out.push(Warning::BelowMeasured { high, measured });
            }
        }
    }
    if let Some((low, high)) = fit.interval(Parameter::Midpoint, level)
        && low <= 0.0
    {
        out.push(Warning::WideMidpoint { half_width: 0.5 * (high - low) });
    }
    out
}

/// Returns a warning if the residuals are correlated.
fn correlation(fit: &Fit, prepared: &PreparedCurve) -> Option<Warning> {
    let autocorrelation = residual_autocorrelation(fit, prepared);
    let is_correlated = fit.points >= ENOUGH_POINTS && autocorrelation > 2.0 / (fit.points as f64).sqrt();
    let rho = autocorrelation.min(0.99);
    let factor = ((1.0 + rho) / (1.0 - rho)).sqrt();
    is_correlated.then_some(Warning::CorrelatedResiduals { autocorrelation, factor })
}

/// Returns the lag-1 autocorrelation of the residuals in order of generations, or 0 if there are none.
fn residual_autocorrelation(fit: &Fit, prepared: &PreparedCurve) -> f64 {
    let r: Vec<f64> = prepared.points.iter().map(|p| p.rate - fit.law.rate(p.generations)).collect();
    let total: f64 = r.iter().map(|v| v * v).sum();
    // Residuals of the size of the rounding error carry no information about correlation.
    if total <= 1e-24 * r.len() as f64 {
        return 0.0;
    }
    r.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(law: ScalingLaw, step: f64, n: u32) -> Vec<CurvePoint> {
        (1..=n)
            .map(|i| {
                let generations = f64::from(i) * step;
                CurvePoint { generations, rate: law.rate(generations) }
            })
            .collect()
    }

    #[test]
    fn exact_curve_is_recovered() {
        let law =
            ScalingLaw { initial: 0.4, origin: 120e3, asymptote: 0.671, midpoint: 1.9e6, steepness: 0.83 };
        let fit = fit(&curve(law, 40e3, 200), &FitOptions { cut: Cut::At(110e3), ..FitOptions::default() })
            .unwrap();
        for (got, want) in fit.law.parameters().into_iter().zip(law.parameters()) {
            assert!((got / want - 1.0).abs() < 1e-9, "{got} {want}");
        }
        assert!(fit.is_identified(), "{:?}", fit.warnings);
        assert_eq!(fit.law.origin, 120e3);
    }

    #[test]
    fn cut_is_scaled_for_short_runs_only() {
        let law = ScalingLaw { initial: 0.1, origin: 0.0, asymptote: 0.5, midpoint: 1e4, steepness: 1.0 };
        let short = prepare(&curve(law, 1000.0, 40), Cut::Scaled).unwrap();
        assert!(short.cut_is_scaled && short.cut == 1000.0, "{}", short.cut);
        let long = prepare(&curve(law, 40e3, 200), Cut::Scaled).unwrap();
        assert!(!long.cut_is_scaled && long.cut == PAPER_CUT);
        assert_eq!(long.anchor.generations, 120e3);
    }

    /// These are the nine rounds of a run of SGS with CISPO on 100 theorems.
    #[test]
    fn a_midpoint_whose_interval_includes_zero_is_not_identified() {
        let rounds = [
            (1456.0, 0.05),
            (2912.0, 0.08),
            (4320.0, 0.1),
            (5720.0, 0.13),
            (7112.0, 0.17),
            (8504.0, 0.17),
            (9920.0, 0.19),
            (11256.0, 0.2),
            (12672.0, 0.22),
        ];
        let curve: Vec<CurvePoint> =
            rounds.map(|(generations, rate)| CurvePoint { generations, rate }).into();
        let fit = fit(&curve, &FitOptions::default()).unwrap();
        assert!(fit.interval(Parameter::Midpoint, 0.95).unwrap().0 < 0.0);
        let wide = |w: &&Warning| matches!(w, Warning::WideMidpoint { .. });
        let warning = fit.warnings.iter().find(wide).unwrap().to_string();
        assert!(warning.contains("more than its value") && !fit.is_identified(), "{warning}");
    }

    #[test]
    fn an_asymptote_below_the_last_rate_is_not_identified() {
        let law = ScalingLaw { initial: 0.2, origin: 1000.0, asymptote: 0.4, midpoint: 5e3, steepness: 1.5 };
        let mut points = curve(law, 1000.0, 80);
        let options = FitOptions { cut: Cut::At(0.0), ..FitOptions::default() };
        let is_below = |w: &Warning| matches!(w, Warning::BelowMeasured { .. });
        assert!(!fit(&points, &options).unwrap().warnings.iter().any(is_below));
        // Some problems fall late.
        points.iter_mut().rev().take(3).for_each(|point| point.rate += 0.03);
        let late = fit(&points, &options).unwrap();
        assert!(late.warnings.iter().any(is_below) && !late.is_identified(), "{:?}", late.warnings);
    }

    #[test]
    fn short_flat_and_broken_curves() {
        let point = |g: f64, rate: f64| CurvePoint { generations: g, rate };
        let options = FitOptions::default();
        assert!(matches!(fit(&[], &options), Err(FitError::TooFewPoints { usable: 0, .. })));
        assert!(matches!(fit(&[point(1.0, 0.5)], &options), Err(FitError::TooFewPoints { usable: 0, .. })));
        let zeros: Vec<_> = (0..20).map(|i| point(f64::from(i) * 800.0, 0.0)).collect();
        let flat = fit(&zeros, &options).unwrap();
        assert_eq!(flat.warnings, [Warning::Flat]);
        assert_eq!(flat.law.asymptote, 0.0);
        let mut broken = zeros;
        broken.push(point(f64::NAN, 0.2));
        broken.push(point(3.0, f64::INFINITY));
        assert!(fit(&broken, &options).unwrap().warnings.contains(&Warning::Dropped { points: 2 }));
        let linear: Vec<_> =
            (0..30).map(|i| point(f64::from(i) * 1000.0, 0.1 + 0.001 * f64::from(i))).collect();
        assert!(!fit(&linear, &options).unwrap().is_identified());
        let bad = FitOptions { cut: Cut::At(f64::NAN), ..options };
        assert!(matches!(fit(&broken, &bad), Err(FitError::Option { name: "cut", .. })));
    }

    #[test]
    fn the_band_contains_the_curve_and_widens_beyond_the_data() {
        let law = ScalingLaw { initial: 0.2, origin: 1000.0, asymptote: 0.6, midpoint: 2e4, steepness: 1.0 };
        let mut points = curve(law, 1000.0, 80);
        for (i, p) in points.iter_mut().enumerate().skip(1) {
            p.rate += 0.003 * ((i * 31) as f64).sin();
        }
        let fit = fit(&points, &FitOptions { cut: Cut::At(0.0), ..FitOptions::default() }).unwrap();
        let width = |c: f64| fit.band(c, 0.95).map(|(l, h)| h - l).unwrap();
        assert!(width(1e6) > 2.0 * width(4e4));
        let (low, high) = fit.interval(Parameter::Asymptote, 0.95).unwrap();
        assert!(low < 0.6 && 0.6 < high && high - low < 0.1);
    }

    #[test]
    fn correlated_residuals_widen_intervals_and_bands() {
        let law = ScalingLaw { initial: 0.2, origin: 1000.0, asymptote: 0.6, midpoint: 2e4, steepness: 1.0 };
        let mut points = curve(law, 1000.0, 80);
        for (i, p) in points.iter_mut().enumerate().skip(1) {
            p.rate += 0.003 * (0.8 * i as f64).sin();
        }
        let fit = fit(&points, &FitOptions { cut: Cut::At(0.0), ..FitOptions::default() }).unwrap();
        let [Warning::CorrelatedResiduals { autocorrelation, factor }] = fit.warnings[..] else {
            panic!("{:?}", fit.warnings)
        };
        assert!((0.6..0.75).contains(&autocorrelation), "{autocorrelation}");
        assert!(((1.0 + autocorrelation) / (1.0 - autocorrelation) - factor * factor).abs() < 1e-9);
        let independent = Fit { warnings: Vec::new(), ..fit };
        let widths = |fit: &Fit| {
            let parameters = Parameter::ALL.map(|p| fit.interval(p, 0.95).unwrap());
            parameters
                .into_iter()
                .chain(fit.band(4e4, 0.95))
                .map(|(low, high)| high - low)
                .collect::<Vec<_>>()
        };
        for (wide, narrow) in widths(&fit).into_iter().zip(widths(&independent)) {
            assert!((wide / narrow - factor).abs() < 1e-9, "{wide} {narrow} {factor}");
        }
        assert_eq!(
            fit.standard_error(Parameter::Asymptote),
            independent.standard_error(Parameter::Asymptote)
        );
        let half = independent.uncertainty(0.95).unwrap();
        assert!((fit.uncertainty(0.95).unwrap() / half - factor).abs() < 1e-9);
    }
}
