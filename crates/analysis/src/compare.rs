//! Comparisons of runs at equal numbers of generations. Only measured values are compared: nothing is interpolated.

use crate::fit::Fit;
use crate::stats::seed_mean;

/// Keys of the budget of a run, which do not change its rounds.
pub const BUDGET: [&str; 3] = ["rounds", "minutes", "generations"];

/// Results after numbers of generations that differ by more than this share are not compared.
pub const UNEQUAL: f64 = 0.1;

/// Returns the generations at which all curves can be compared: those of the curve with the most points in the common range
/// and the ends of that range. The range begins at the last of the first points and ends at the first of the last points.
/// Returns no generations if it is empty.
pub fn common_generations(curves: &[&[(f64, f64)]]) -> Vec<f64> {
    let ends: Option<Vec<_>> = curves.iter().map(|c| Some((c.first()?.0, c.last()?.0))).collect();
    let ends = ends.unwrap_or_default();
    let from = ends.iter().map(|e| e.0).fold(f64::NEG_INFINITY, f64::max);
    let until = ends.iter().map(|e| e.1).fold(f64::INFINITY, f64::min);
    if ends.is_empty() || from > until {
        return Vec::new();
    }
    let within = |c: &&[(f64, f64)]| c.iter().map(|p| p.0).filter(|x| (from..=until).contains(x)).collect();
    let mut at: Vec<f64> = curves.iter().map(within).max_by_key(Vec::len).unwrap_or_default();
    at.extend([from, until]);
    at.sort_by(f64::total_cmp);
    at.dedup();
    at
}

/// Returns the last of these generations `x` with [`are_near`]. With few, long rounds, one curve would otherwise be compared by
/// a value from long before.
pub fn last_comparable(curves: &[&[(f64, f64)]]) -> Option<f64> {
    common_generations(curves).into_iter().rfind(|x| are_near(curves, *x))
}

/// Returns whether the last point of every curve at or before `x` is near `x` ([`UNEQUAL`]).
pub fn are_near(curves: &[&[(f64, f64)]], x: f64) -> bool {
    curves.iter().all(|curve| {
        let before = curve.partition_point(|p| p.0 <= x).checked_sub(1);
        before.is_some_and(|i| curve[i].0 >= (1.0 - UNEQUAL) * x)
    })
}

/// Returns the mean asymptote of the fits of several seeds and half of its 95% interval over the seeds (Student's t), or `None`
/// for fewer than two fits.
pub fn asymptote_over_seeds(fits: &[&Fit]) -> Option<(f64, f64)> {
    let found = seed_mean(&fits.iter().map(|f| f.law.asymptote).collect::<Vec<f64>>())?;
    Some((found.mean, found.half.filter(|half| half.is_finite())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::{CurvePoint, Cut, FitOptions, ScalingLaw, fit};

    fn curve(rates: &[f64]) -> Vec<(f64, f64)> {
        (1..).zip(rates).map(|(i, &rate)| (f64::from(i) * 100.0, rate)).collect()
    }

    #[test]
    fn curves_are_compared_in_their_common_range() {
        let (a, b) = (curve(&[0.1, 0.2, 0.3, 0.4]), vec![(150.0, 0.1), (350.0, 0.2), (900.0, 0.3)]);
        assert_eq!(common_generations(&[&a, &b]), [150.0, 200.0, 300.0, 400.0]);
        assert_eq!(last_comparable(&[&a, &b]), None);
        // At 290, the first curve was last measured at 200.
        assert_eq!(last_comparable(&[&a, &[(104.0, 0.1), (290.0, 0.2)]]), Some(104.0));
        assert_eq!(last_comparable(&[&a, &[(104.0, 0.1), (290.0, 0.2), (300.0, 0.3)]]), Some(300.0));
        assert_eq!(common_generations(&[&a]), [100.0, 200.0, 300.0, 400.0]);
        assert!(common_generations(&[&a, &[(500.0, 0.1)]]).is_empty());
        assert!(common_generations(&[&a, &[]]).is_empty() && common_generations(&[]).is_empty());
    }

    #[test]
    fn an_interval_over_seeds_needs_two_of_them() {
        let fits = [fitted(0.66, 0.0), fitted(0.68, 1.0)];
        let (middle, half) = asymptote_over_seeds(&[&fits[0], &fits[1]]).unwrap();
        let [a, b] = [&fits[0], &fits[1]].map(|f| f.law.asymptote);
        // With one degree of freedom, the 97.5% quantile of Student's t is 12.706.
        assert!(
            (middle - 0.5 * (a + b)).abs() < 1e-12 && (half - 12.7062 * 0.5 * (a - b).abs()).abs() < 1e-4
        );
        assert_eq!(asymptote_over_seeds(&[&fits[0]]), None);
    }

    fn fitted(asymptote: f64, phase: f64) -> Fit {
        let law = ScalingLaw { initial: 0.1, origin: 1e3, asymptote, midpoint: 2e4, steepness: 1.0 };
        let points: Vec<CurvePoint> = (1..=80)
            .map(|i| {
                let generations = 1e3 * f64::from(i);
                let noise = if i == 1 { 0.0 } else { 0.002 * (f64::from(i) * 37.0 + phase).sin() };
                CurvePoint { generations, rate: law.rate(generations) + noise }
            })
            .collect();
        fit(&points, &FitOptions { cut: Cut::At(0.0), ..FitOptions::default() }).unwrap()
    }
}
