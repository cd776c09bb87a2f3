//! Comparisons of runs.

use crate::fit::{CurvePoint, Fit, Parameter};
use crate::run::TargetHistory;
use crate::stats::student;
use serde::Serialize;
use std::collections::BTreeSet;

/// A crossing of two curves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Crossing {
    /// Generations at the crossing, interpolated.
    pub generations: f64,
    /// Rate of both curves at the crossing.
    pub rate: f64,
    /// Whether the first curve is above the second one after the crossing.
    pub first_leads: bool,
}

/// Returns the value of a curve (ascending in x) at `x` by linear interpolation, or `None` outside its range.
pub fn interpolate(curve: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = curve.partition_point(|p| p.0 < x);
    let b = curve.get(after)?;
    if b.0 == x {
        return Some(b.1);
    }
    let a = curve.get(after.checked_sub(1)?)?;
    Some(a.1 + (x - a.0) / (b.0 - a.0) * (b.1 - a.1))
}

/// Returns the crossings of two curves (ascending in generations) in their common range. A crossing along a segment where
/// they are equal is at the end of the segment.
pub fn crossings(first: &[CurvePoint], second: &[CurvePoint]) -> Vec<Crossing> {
    let pairs = |c: &[CurvePoint]| c.iter().map(|p| (p.generations, p.rate)).collect::<Vec<_>>();
    let (one, other) = (pairs(first), pairs(second));
    let mut at: Vec<f64> = first.iter().chain(second).map(|p| p.generations).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    let mut out = Vec::new();
    // The last point at which one curve was ahead, and its lead.
    let mut before: Option<(f64, f64)> = None;
    for generations in at {
        let (Some(a), Some(b)) = (interpolate(&one, generations), interpolate(&other, generations)) else {
            continue;
        };
        let lead = a - b;
        if lead == 0.0 || !lead.is_finite() {
            continue;
        }
        if let Some((earlier, earlier_lead)) = before
            && (earlier_lead > 0.0) != (lead > 0.0)
        {
            let crossing = earlier + (generations - earlier) * earlier_lead / (earlier_lead - lead);
            let rate = interpolate(&one, crossing).unwrap_or(a);
            out.push(Crossing { generations: crossing, rate, first_leads: lead > 0.0 });
        }
        before = Some((generations, lead));
    }
    out
}

/// Returns the interpolated x at which a series (ascending in x) first reaches `level`, or `None` if it never does.
pub fn reach(series: &[(f64, f64)], level: f64) -> Option<f64> {
    let at = series.iter().position(|p| p.1 >= level)?;
    let b = series.get(at)?;
    let Some(a) = at.checked_sub(1).and_then(|i| series.get(i)) else { return Some(b.0) };
    Some(a.0 + (b.0 - a.0) * (level - a.1) / (b.1 - a.1))
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

/// Returns D_hard: the targets that a baseline sampled but never solved (paper, Appendix F.3).
pub fn never_solved(baseline: &[TargetHistory]) -> BTreeSet<&str> {
    baseline.iter().filter(|t| t.solved_round.is_none()).map(|t| t.id.as_str()).collect()
}

/// Returns the cumulative solve rate of a run on the targets in `hard`, at each of `rounds` (round, generations).
pub fn hard_curve(
    targets: &[TargetHistory],
    hard: &BTreeSet<&str>,
    rounds: &[(u32, f64)],
) -> Vec<(f64, f64)> {
    if hard.is_empty() {
        return Vec::new();
    }
    let mut solved: Vec<u32> =
        targets.iter().filter(|t| hard.contains(t.id.as_str())).filter_map(|t| t.solved_round).collect();
    solved.sort_unstable();
    let share = |round: u32| solved.partition_point(|r| *r <= round) as f64 / hard.len() as f64;
    rounds.iter().map(|&(round, generations)| (generations, share(round))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::{Cut, FitOptions, ScalingLaw, fit};

    fn curve(rates: &[f64]) -> Vec<CurvePoint> {
        (1..).zip(rates).map(|(i, &rate)| CurvePoint { generations: f64::from(i) * 100.0, rate }).collect()
    }

    #[test]
    fn a_single_crossing_is_interpolated() {
        let found = crossings(&curve(&[0.1, 0.3, 0.5]), &curve(&[0.2, 0.3, 0.4]));
        assert_eq!(found.len(), 1);
        assert!((found[0].generations - 200.0).abs() < 1e-9 && found[0].first_leads);
        assert!((found[0].rate - 0.3).abs() < 1e-12);
    }

    #[test]
    fn curves_on_different_grids_and_without_crossing() {
        let coarse =
            [CurvePoint { generations: 100.0, rate: 0.0 }, CurvePoint { generations: 300.0, rate: 0.4 }];
        let found = crossings(&coarse, &curve(&[0.1, 0.15, 0.2]));
        assert!((found[0].generations - 166.666_666_7).abs() < 1e-3, "{found:?}");
        assert!(crossings(&coarse, &curve(&[0.5, 0.6, 0.7])).is_empty());
        assert!(crossings(&coarse, &[]).is_empty());
        assert!(crossings(&coarse, &coarse).is_empty());
    }

    #[test]
    fn the_first_x_at_a_level_is_interpolated() {
        let series = [(100.0, 0.1), (200.0, 0.3), (300.0, 0.3)];
        assert_eq!(reach(&series, 0.05), Some(100.0));
        assert!((reach(&series, 0.2).unwrap() - 150.0).abs() < 1e-9);
        assert_eq!(reach(&series, 0.31), None);
        assert_eq!(reach(&[], 0.1), None);
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

    #[test]
    fn hard_targets_are_those_that_the_baseline_never_solved() {
        let target = |id: &str, solved_round| TargetHistory {
            id: id.into(),
            solved_round,
            ..TargetHistory::default()
        };
        let baseline = [target("a", Some(0)), target("b", None), target("c", None)];
        let run = [target("a", None), target("b", Some(2)), target("c", None)];
        let hard = never_solved(&baseline);
        let rounds = [(0, 10.0), (1, 20.0), (2, 30.0)];
        assert_eq!(hard_curve(&run, &hard, &rounds), [(10.0, 0.0), (20.0, 0.0), (30.0, 0.5)]);
        assert_eq!(hard_curve(&baseline, &hard, &rounds).last(), Some(&(30.0, 0.0)));
        assert!(hard_curve(&run, &BTreeSet::new(), &rounds).is_empty());
    }
}
