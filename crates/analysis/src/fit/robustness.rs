//! Sensitivity of a fit to single points (paper, Appendix A): fits without the last points and on random halves.

use super::{Fit, FitError, FitOptions, PreparedCurve, fit_prepared};
use serde::Serialize;

/// A fit without the last points.
#[derive(Clone, Debug, Serialize)]
pub struct TailFit {
    /// Fraction of the points left out at the end, 0 to 1.
    pub removed: f64,
    /// The fit, or the error that prevented it.
    #[serde(skip)]
    pub fit: Result<Fit, FitError>,
}

/// Fits the curve without each fraction of the final points (paper: 0.1, 0.2, 0.3).
pub fn tail_cuts(prepared: &PreparedCurve, shares: &[f64], options: &FitOptions) -> Vec<TailFit> {
    let n = prepared.points.len();
    shares
        .iter()
        .map(|&removed| {
            let kept = (n as f64 * (1.0 - removed.clamp(0.0, 1.0))).round() as usize;
            let points = prepared.points.iter().take(kept).copied().collect();
            let fit = fit_prepared(&PreparedCurve { points, ..prepared.clone() }, options);
            TailFit { removed, fit }
        })
        .collect()
}

/// Fits on random halves of the points.
#[derive(Clone, Debug, Serialize)]
pub struct HalvesFit {
    /// The fits.
    pub fits: Vec<Fit>,
    /// Mean of A, C_mid and B over the fits.
    pub mean: [f64; 3],
    /// Standard deviation of A, C_mid and B (n - 1 in the denominator).
    pub deviation: [f64; 3],
    /// Indices in `fits` of the lowest and the highest A.
    pub extremes: (usize, usize),
}

/// Fits `count` random halves of the points, each drawn without replacement (paper: 100). The anchor is always kept. Returns
/// `None` if fewer than two halves can be fitted.
pub fn random_halves(
    prepared: &PreparedCurve,
    count: usize,
    seed: u64,
    options: &FitOptions,
) -> Option<HalvesFit> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let half = prepared.points.len().div_ceil(2);
    let mut fits = Vec::with_capacity(count);
    for _ in 0..count {
        let mut order: Vec<usize> = (0..prepared.points.len()).collect();
        rng.shuffle(&mut order);
        order.truncate(half);
        order.sort_unstable();
        let points = order.iter().filter_map(|&i| prepared.points.get(i).copied()).collect();
        fits.extend(fit_prepared(&PreparedCurve { points, ..prepared.clone() }, options));
    }
    if fits.len() < 2 {
        return None;
    }
    let n = fits.len() as f64;
    let mean: [f64; 3] = std::array::from_fn(|i| fits.iter().map(|f| f.law.parameters()[i]).sum::<f64>() / n);
    let deviation = std::array::from_fn(|i| {
        let squares = fits.iter().map(|f| (f.law.parameters()[i] - mean[i]).powi(2)).sum::<f64>();
        (squares / (n - 1.0)).sqrt()
    });
    let mut order: Vec<usize> = (0..fits.len()).collect();
    order.sort_by(|a, b| fits[*a].law.asymptote.total_cmp(&fits[*b].law.asymptote));
    let extremes = (order[0], order[order.len() - 1]);
    Some(HalvesFit { fits, mean, deviation, extremes })
}

#[cfg(test)]
mod tests {
    use super::super::{CurvePoint, Cut, ScalingLaw, prepare};
    use super::*;

    fn noisy() -> PreparedCurve {
        let law = ScalingLaw { initial: 0.3, origin: 1e5, asymptote: 0.65, midpoint: 1.5e6, steepness: 0.9 };
        let curve: Vec<CurvePoint> = (1..=200)
            .map(|i| {
                let generations = 40e3 * f64::from(i);
                CurvePoint { generations, rate: law.rate(generations) + 0.002 * f64::from(i * i).sin() }
            })
            .collect();
        prepare(&curve, Cut::Scaled).unwrap()
    }

    #[test]
    fn tails_and_halves_of_a_long_curve_agree() {
        let (prepared, options) = (noisy(), FitOptions::default());
        let tails = tail_cuts(&prepared, &[0.0, 0.1, 0.2, 0.3], &options);
        let asymptotes: Vec<f64> = tails.iter().map(|t| t.fit.as_ref().unwrap().law.asymptote).collect();
        assert!(asymptotes.iter().all(|a| (a - asymptotes[0]).abs() < 0.05), "{asymptotes:?}");
        assert_eq!(tails[3].fit.as_ref().unwrap().points, 138);
        let halves = random_halves(&prepared, 100, 7, &options).unwrap();
        assert_eq!(halves.fits.len(), 100);
        assert!((halves.mean[0] - asymptotes[0]).abs() < 0.02 && halves.deviation[0] < 0.02);
        let (low, high) = halves.extremes;
        assert!(
            halves.fits[low].law.asymptote <= halves.mean[0]
                && halves.mean[0] <= halves.fits[high].law.asymptote
        );
        let again = random_halves(&prepared, 100, 7, &options).unwrap();
        assert_eq!(again.mean, halves.mean, "the same seed gives the same halves");
    }

    #[test]
    fn too_few_remaining_points_are_an_error() {
        let mut prepared = noisy();
        prepared.points.truncate(3);
        let tails = tail_cuts(&prepared, &[0.5, 1.0, 7.0], &FitOptions::default());
        assert!(tails.iter().all(|t| t.fit.is_err()));
        assert!(random_halves(&prepared, 10, 1, &FitOptions::default()).is_none());
    }
}
