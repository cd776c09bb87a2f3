//! Means over seeds.

use super::student;
use serde::Serialize;

/// A mean over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeedMean {
    /// The mean.
    pub mean: f64,
    /// Half of the 95% interval (Student's t); `None` for a single seed.
    pub half: Option<f64>,
    /// Number of seeds.
    pub seeds: usize,
}

/// Returns the mean of values from different seeds, or `None` without values.
pub fn seed_mean(values: &[f64]) -> Option<SeedMean> {
    let seeds = values.len();
    let mean = (seeds > 0).then(|| values.iter().sum::<f64>() / seeds as f64)?;
    let half = (seeds > 1).then(|| {
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (seeds - 1) as f64;
        student::two_sided(0.95, (seeds - 1) as f64) * (variance / seeds as f64).sqrt()
    });
    Some(SeedMean { mean, half, seeds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_needs_two_seeds() {
        assert_eq!(seed_mean(&[]), None);
        assert_eq!(seed_mean(&[0.25]), Some(SeedMean { mean: 0.25, half: None, seeds: 1 }));
        // With one degree of freedom, t = 12.706, and the standard error of 0.2 and 0.1 is 0.05.
        let found = seed_mean(&[0.2, 0.1]).unwrap();
        assert!((found.mean - 0.15).abs() < 1e-12 && (found.half.unwrap() - 12.7062 * 0.05).abs() < 1e-4);
    }
}
