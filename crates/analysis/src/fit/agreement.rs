//! Checks a fit against fits without the last points and on random halves. Only if they agree is the asymptote reported.

use super::{
    CurvePoint, Fit, FitError, FitOptions, HalvesFit, Parameter, TailFit, Warning, fit_prepared, prepare,
    random_halves, tail_cuts,
};

/// Fractions of the final points that are left out (paper, Appendix A).
pub const TAILS: [f64; 3] = [0.1, 0.2, 0.3];

/// Number of fits on random halves, as in the paper.
pub const HALVES: usize = 100;

/// Seed of the random halves. It is fixed so that repeated reports agree.
pub const HALVES_SEED: u64 = 2026;

/// Tolerance between asymptotes: this fraction of the gain that the law predicts, but at least [`LEAST`].
const SHARE_OF_GAIN: f64 = 0.15;
const LEAST: f64 = 0.01;

/// Fraction of the random halves at either end that may disagree.
const STRAYS: f64 = 0.05;

/// A fit and the fits that it is checked against.
#[derive(Clone, Debug)]
pub struct ConfirmedFit {
    /// The fit. Its warnings name the fits that disagree.
    pub fit: Fit,
    /// Fits without the last points.
    pub tails: Vec<TailFit>,
    /// Fits on random halves, or `None` if too few halves can be fitted.
    pub halves: Option<HalvesFit>,
}

/// Fits a curve, and checks the fit against fits without the last points and on `halves` random halves.
///
/// # Errors
/// Returns an error if there are fewer than three points, or an option is out of range.
pub fn examine(
    curve: &[CurvePoint],
    options: &FitOptions,
    halves: usize,
    seed: u64,
) -> Result<ConfirmedFit, FitError> {
    let prepared = prepare(curve, options.cut)?;
    let mut fit = fit_prepared(&prepared, options)?;
    let tails = tail_cuts(&prepared, &TAILS, options);
    let halves = random_halves(&prepared, halves, seed, options);
    // If the points do not determine the law, there is nothing to compare.
    if fit.is_identified() {
        let (cuts, cut_spread) = cuts_against(&fit, &tails);
        let (strays, half_spread) = halves_against(&fit, halves.as_ref());
        fit.warnings.extend(cuts.into_iter().chain(strays));
        fit.spread = Some(cut_spread.max(half_spread));
    }
    Ok(ConfirmedFit { fit, tails, halves })
}

fn tolerance(fit: &Fit) -> f64 {
    (SHARE_OF_GAIN * (fit.law.asymptote - fit.law.initial)).max(LEAST)
}

/// Returns a warning about the cut that disagrees most, if any, and its distance from the fit.
fn cuts_against(fit: &Fit, tails: &[TailFit]) -> (Option<Warning>, f64) {
    let mut worst = (None, 0.0);
    for tail in tails {
        let asymptote = tail.fit.as_ref().ok().map(|fit| fit.value(Parameter::Asymptote));
        let off = asymptote.map_or(f64::INFINITY, |a| (a - fit.law.asymptote).abs());
        if off > worst.1 {
            worst = (Some(Warning::CutsDisagree { removed: tail.removed, asymptote }), off);
        }
    }
    let disagrees = worst.1 > tolerance(fit);
    (worst.0.filter(|_| disagrees), worst.1)
}

/// Returns a warning if the asymptotes of the halves are spread too widely, and their largest distance from the fit. The
/// outermost halves are ignored.
fn halves_against(fit: &Fit, halves: Option<&HalvesFit>) -> (Option<Warning>, f64) {
    let mut all: Vec<f64> = halves.iter().flat_map(|h| &h.fits).map(|f| f.law.asymptote).collect();
    all.sort_by(f64::total_cmp);
    let strays = (STRAYS * all.len() as f64) as usize;
    let (Some(&low), Some(&high)) =
        (all.get(strays), all.len().checked_sub(strays + 1).and_then(|i| all.get(i)))
    else {
        return (None, 0.0);
    };
    let off = (fit.law.asymptote - low).max(high - fit.law.asymptote);
    let warning = Warning::HalvesDisagree { low, high };
    ((off > tolerance(fit)).then_some(warning), off)
}

#[cfg(test)]
mod tests {
    use super::super::{Cut, ScalingLaw};
    use super::*;

    fn law() -> ScalingLaw {
        ScalingLaw { initial: 0.3, origin: 1e5, asymptote: 0.65, midpoint: 1.5e6, steepness: 0.9 }
    }

    fn curve(rounds: u32, noise: f64) -> Vec<CurvePoint> {
        let point = |i: u32| {
            let generations = 40e3 * f64::from(i);
            let rate = law().rate(generations) + noise * f64::from(i * i).sin();
            CurvePoint { generations, rate }
        };
        (1..=rounds).map(point).collect()
    }

    fn examined(curve: &[CurvePoint]) -> ConfirmedFit {
        examine(curve, &FitOptions::default(), HALVES, HALVES_SEED).unwrap()
    }

    #[test]
    fn a_law_confirmed_by_subsets_of_its_points_is_identified() {
        let found = examined(&curve(400, 0.001));
        assert!(found.fit.is_identified(), "{:?}", found.fit.warnings);
        assert!(found.fit.spread.unwrap() < 0.02, "{:?}", found.fit.spread);
        assert_eq!((found.tails.len(), found.halves.unwrap().fits.len()), (3, 100));
    }

    /// The curve levels off and then rises again, so the whole curve and its beginning follow different laws.
    #[test]
    fn a_law_contradicted_by_the_beginning_of_its_curve_is_not_identified() {
        let mut rising = curve(200, 0.0005);
        let bend = |p: &mut CurvePoint| {
            p.rate = 0.3 + 0.1 * (1.0 - (-p.generations / 8e5).exp());
            p.rate += 0.09 * (1.0 / (1.0 + (-(p.generations - 6.3e6) / 3e5).exp()));
        };
        rising.iter_mut().for_each(bend);
        let found = examined(&rising);
        assert!(!found.fit.is_identified(), "{:?}", found.fit);
        let alone = super::super::fit(&rising, &FitOptions::default()).unwrap();
        if alone.is_identified() {
            let said = found.fit.warnings.iter().any(|w| matches!(w, Warning::CutsDisagree { .. }));
            assert!(said, "{:?}", found.fit.warnings);
        }
    }

    #[test]
    fn widely_spread_halves_cause_a_warning() {
        let prepared = prepare(&curve(60, 0.0), Cut::Scaled).unwrap();
        let fit = fit_prepared(&prepared, &FitOptions::default()).unwrap();
        let with = |asymptote: f64| Fit { law: ScalingLaw { asymptote, ..fit.law }, ..fit.clone() };
        let halves = |asymptotes: &[f64]| HalvesFit {
            fits: asymptotes.iter().map(|a| with(*a)).collect(),
            mean: [0.0; 3],
            deviation: [0.0; 3],
            extremes: (0, 0),
        };
        let a = fit.law.asymptote;
        let near = [[a + 0.01; 96].as_slice(), &[0.1, 0.99]].concat();
        let (said, off) = halves_against(&fit, Some(&halves(&near)));
        assert!(said.is_none() && (off - 0.01).abs() < 1e-3, "single strays are no disagreement: {off}");
        let wide = [[a + 0.01; 80].as_slice(), &[a + 0.2; 20]].concat();
        let (said, _) = halves_against(&fit, Some(&halves(&wide)));
        assert_eq!(said, Some(Warning::HalvesDisagree { low: a + 0.01, high: a + 0.2 }));
    }
}
