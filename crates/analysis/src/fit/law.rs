//! The scaling law (paper, §4.2 and Appendix A).

use serde::Serialize;

/// `R_C = R_0 + (A - R_0) / (1 + (C_mid / C)^B)` (paper, §4.2, eq. 6), with C counted from `origin`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScalingLaw {
    /// R_0: the rate at `origin`, which is not fitted.
    pub initial: f64,
    /// Generations at which C = 0 (the re-centring of Appendix A).
    pub origin: f64,
    /// A: the limit of the rate as generations grow.
    pub asymptote: f64,
    /// C_mid: generations after `origin` at which half of A - R_0 is reached.
    pub midpoint: f64,
    /// B: the steepness of the curve at its midpoint, as a power of C.
    pub steepness: f64,
}

/// The three fitted parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Parameter {
    /// A.
    Asymptote,
    /// C_mid.
    Midpoint,
    /// B.
    Steepness,
}

impl Parameter {
    /// All parameters in the order of the covariance matrix.
    pub const ALL: [Parameter; 3] = [Parameter::Asymptote, Parameter::Midpoint, Parameter::Steepness];

    /// Returns the paper's symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Parameter::Asymptote => "A",
            Parameter::Midpoint => "C_mid",
            Parameter::Steepness => "B",
        }
    }
}

impl ScalingLaw {
    /// Returns the rate after `generations`, counted from the start of the run. It is `initial` up to `origin`.
    pub fn rate(&self, generations: f64) -> f64 {
        self.initial + (self.asymptote - self.initial) * self.progress(generations)
    }

    /// Returns A, C_mid and B.
    pub fn parameters(&self) -> [f64; 3] {
        [self.asymptote, self.midpoint, self.steepness]
    }

    /// Returns the derivatives of the rate with respect to A, C_mid and B.
    pub fn gradient(&self, generations: f64) -> [f64; 3] {
        let distance = generations - self.origin;
        if distance <= 0.0 {
            return [0.0; 3];
        }
        let log_ratio = distance.ln() - self.midpoint.ln();
        let s = logistic(self.steepness * log_ratio);
        let slope = (self.asymptote - self.initial) * s * (1.0 - s);
        [s, -slope * self.steepness / self.midpoint, slope * log_ratio]
    }

    /// Returns the fraction of A - R_0 that has been reached, 0 to 1.
    fn progress(&self, generations: f64) -> f64 {
        let distance = generations - self.origin;
        if distance <= 0.0 {
            return 0.0;
        }
        logistic(self.steepness * (distance.ln() - self.midpoint.ln()))
    }
}

/// Computes `1 / (1 + e^-u)` without overflow.
pub(crate) fn logistic(u: f64) -> f64 {
    if u >= 0.0 {
        1.0 / (1.0 + (-u).exp())
    } else {
        let e = u.exp();
        e / (1.0 + e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: ScalingLaw =
        ScalingLaw { initial: 0.3, origin: 1e5, asymptote: 0.7, midpoint: 2e6, steepness: 0.8 };

    #[test]
    fn halfway_at_the_midpoint() {
        assert!((LAW.rate(1e5 + 2e6) - 0.5).abs() < 1e-15);
        assert_eq!(LAW.rate(1e5), 0.3);
        assert_eq!(LAW.rate(0.0), 0.3);
        assert!((LAW.rate(1e300) - 0.7).abs() < 1e-12);
    }

    #[test]
    fn gradient_matches_finite_differences() {
        for c in [1.1e5, 5e5, 2.1e6, 3e7] {
            let exact = LAW.gradient(c);
            for (i, parameter) in LAW.parameters().into_iter().enumerate() {
                let h = parameter * 1e-6;
                let at = |delta: f64| {
                    let mut p = LAW.parameters();
                    p[i] += delta;
                    ScalingLaw { asymptote: p[0], midpoint: p[1], steepness: p[2], ..LAW }.rate(c)
                };
                let numeric = (at(h) - at(-h)) / (2.0 * h);
                assert!((exact[i] - numeric).abs() <= 1e-7 * exact[i].abs().max(1e-12), "{c} {i}");
            }
        }
    }
}
