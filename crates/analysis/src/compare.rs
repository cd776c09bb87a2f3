//! Comparisons of runs at equal numbers of generations. Only measured values are compared: nothing is interpolated.

use crate::fit::{Fit, Parameter};
use crate::stats::{measured_at, seed_mean, student};
use serde::Serialize;

/// Keys of the budget of a run, which do not change its rounds.
pub const BUDGET: [&str; 3] = ["rounds", "minutes", "generations"];

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

/// A change of the lead between two curves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Crossing {
    /// Generations of the first measured point after the change.
    pub generations: f64,
    /// Rate of the first curve there.
    pub rate: f64,
    /// Whether the first curve leads from there on.
    pub first_leads: bool,
}

/// Returns the changes of the lead between two curves (ascending in generations) in their common range.
pub fn crossings(first: &[(f64, f64)], second: &[(f64, f64)]) -> Vec<Crossing> {
    let range = common_generations(&[first, second]);
    let (Some(&from), Some(&until)) = (range.first(), range.last()) else { return Vec::new() };
    let mut at: Vec<f64> =
        first.iter().chain(second).map(|p| p.0).filter(|x| (from..=until).contains(x)).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    let mut out = Vec::new();
    let mut before: Option<bool> = None;
    for generations in at {
        let (Some(a), Some(b)) = (measured_at(first, generations), measured_at(second, generations)) else {
            continue;
        };
        if a == b || !(a - b).is_finite() {
            continue;
        }
        let first_leads = a > b;
        if before.is_some_and(|before| before != first_leads) {
            out.push(Crossing { generations, rate: a, first_leads });
        }
        before = Some(first_leads);
    }
    out
}

/// Source of an uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Basis {
    /// The spread between runs with different seeds (Welch's t).
    Seeds,
    /// The covariance of one fit on each side, which does not include the spread between seeds.
    Fits,
}

/// The difference of two asymptotes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AsymptoteDifference {
    /// Mean A of the first group minus that of the second group.
    pub difference: f64,
    /// Standard error of the difference.
    pub standard_error: f64,
    /// Lower and upper end of the 95% interval.
    pub interval: (f64, f64),
    /// Source of the uncertainty.
    pub basis: Basis,
}

/// Returns the mean asymptote of the fits of several seeds and half of its 95% interval over the seeds (Student's t), or `None`
/// for fewer than two fits.
pub fn asymptote_over_seeds(fits: &[&Fit]) -> Option<(f64, f64)> {
    let found = seed_mean(&fits.iter().map(|f| f.law.asymptote).collect::<Vec<f64>>())?;
    Some((found.mean, found.half.filter(|half| half.is_finite())?))
}

/// Returns the difference of the asymptotes of two groups of fits, with one fit per seed. Its uncertainty comes from the
/// spread between seeds if both groups have at least two, and otherwise from the covariances of the first fits. Returns
/// `None` if neither is known.
pub fn asymptote_difference(first: &[&Fit], second: &[&Fit]) -> Option<AsymptoteDifference> {
    let asymptotes = |fits: &[&Fit]| fits.iter().map(|f| f.law.asymptote).collect::<Vec<_>>();
    let (a, b) = (asymptotes(first), asymptotes(second));
    let difference = mean(&a)? - mean(&b)?;
    let (variance, degrees, basis) = if a.len() > 1 && b.len() > 1 {
        let (va, vb) = (variance(&a) / a.len() as f64, variance(&b) / b.len() as f64);
        let degrees = (va + vb).powi(2) / (va * va / (a.len() - 1) as f64 + vb * vb / (b.len() - 1) as f64);
        (va + vb, if degrees.is_finite() { degrees } else { (a.len() + b.len() - 2) as f64 }, Basis::Seeds)
    } else {
        let error = |fits: &[&Fit]| fits.first()?.standard_error(Parameter::Asymptote);
        let degrees = first.first()?.degrees().min(second.first()?.degrees());
        (error(first)?.powi(2) + error(second)?.powi(2), degrees, Basis::Fits)
    };
    let standard_error = variance.sqrt();
    let half = student::two_sided(0.95, degrees) * standard_error;
    half.is_finite().then_some(AsymptoteDifference {
        difference,
        standard_error,
        interval: (difference - half, difference + half),
        basis,
    })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[allow(clippy::expect_used, reason = "called for two or more values")]
fn variance(values: &[f64]) -> f64 {
    let m = mean(values).expect("invariant: there are values");
    values.iter().map(|v| (v - m).powi(2)).sum::<f64>() / values.len().saturating_sub(1).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::{CurvePoint, Cut, FitOptions, ScalingLaw, fit};

    fn curve(rates: &[f64]) -> Vec<(f64, f64)> {
        (1..).zip(rates).map(|(i, &rate)| (f64::from(i) * 100.0, rate)).collect()
    }

    #[test]
    fn the_lead_changes_at_measured_points() {
        let found = crossings(&curve(&[0.1, 0.3, 0.5]), &curve(&[0.2, 0.3, 0.4]));
        assert_eq!(found, [Crossing { generations: 300.0, rate: 0.5, first_leads: true }]);
        let coarse = [(100.0, 0.0), (300.0, 0.4)];
        let found = crossings(&coarse, &curve(&[0.1, 0.15, 0.2]));
        assert_eq!(found, [Crossing { generations: 300.0, rate: 0.4, first_leads: true }]);
        assert!(crossings(&coarse, &curve(&[0.5, 0.6, 0.7])).is_empty());
        assert!(crossings(&coarse, &[]).is_empty());
        assert!(crossings(&coarse, &coarse).is_empty());
    }

    #[test]
    fn curves_are_compared_in_their_common_range() {
        let (a, b) = (curve(&[0.1, 0.2, 0.3, 0.4]), vec![(150.0, 0.1), (350.0, 0.2), (900.0, 0.3)]);
        assert_eq!(common_generations(&[&a, &b]), [150.0, 200.0, 300.0, 400.0]);
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

    #[test]
    fn asymptote_differences_come_from_seeds_if_there_are_several() {
        let (a, b) = (fitted(0.67, 0.0), fitted(0.60, 1.0));
        let single = asymptote_difference(&[&a], &[&b]).unwrap();
        assert_eq!(single.basis, Basis::Fits);
        assert!(single.interval.0 > 0.0 && (single.difference - 0.07).abs() < 0.02, "{single:?}");
        let (c, d) = (fitted(0.66, 2.0), fitted(0.61, 3.0));
        let seeds = asymptote_difference(&[&a, &c], &[&b, &d]).unwrap();
        assert_eq!(seeds.basis, Basis::Seeds);
        assert!((seeds.difference - 0.06).abs() < 0.02);
        assert!(asymptote_difference(&[], &[&a]).is_none());
    }
}
