//! Curves of measured values. Nothing is interpolated.

/// Returns the last value of a curve (ascending in x) that was measured at or before `x`, or `None` before the first one.
pub fn measured_at(curve: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = curve.partition_point(|p| p.0 <= x);
    Some(curve.get(after.checked_sub(1)?)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_last_measured_point() {
        let series = [(800.0, 0.13), (1600.0, 0.2)];
        let at = [300.0, 800.0, 1599.0, 1600.0, 9e9].map(|x| measured_at(&series, x));
        assert_eq!(at, [None, Some(0.13), Some(0.13), Some(0.2), Some(0.2)]);
        assert_eq!(measured_at(&[], 1.0), None);
    }
}
