//! Adam's constants and the learning-rate schedule.

/// Adam's constants; the defaults are those of the paper (appendix, training details).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamConfig {
    /// Learning rate before the schedule.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the square root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of matrices; 0 for none.
    pub weight_decay: f64,
    /// Gradients are scaled down to this global norm; infinity disables clipping.
    pub clip_norm: f64,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self { learning_rate: 1e-6, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.0, clip_norm: 1.0 }
    }
}

/// The factor by which the learning rate is multiplied at each step.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the text of a variant names its fields")]
pub enum LrSchedule {
    /// Always 1.
    Constant,
    /// Rises linearly from `1 / steps` to 1 during the first `steps`, then stays at 1.
    Warmup { steps: u64 },
    /// Rises in the same way during `warmup` steps, falls along half a cosine to `floor` (in 0..=1) at step `total`,
    /// then stays there.
    Cosine { warmup: u64, total: u64, floor: f64 },
}

impl LrSchedule {
    /// Returns the factor of a step, counted from 0.
    pub fn factor(self, step: u64) -> f64 {
        let rise = |steps: u64| ((step + 1) as f64 / steps.max(1) as f64).min(1.0);
        match self {
            Self::Constant => 1.0,
            Self::Warmup { steps } => rise(steps),
            Self::Cosine { warmup, .. } if step < warmup => rise(warmup),
            Self::Cosine { warmup, total, floor } => {
                let length = total.saturating_sub(warmup).max(1) as f64;
                let done = ((step - warmup) as f64 / length).min(1.0);
                floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_rise_fall_and_stay_constant() {
        assert_eq!(LrSchedule::Constant.factor(9), 1.0);
        let warmup = LrSchedule::Warmup { steps: 4 };
        assert_eq!([0, 3, 100].map(|s| warmup.factor(s)), [0.25, 1.0, 1.0]);
        let cosine = LrSchedule::Cosine { warmup: 2, total: 10, floor: 0.1 };
        assert_eq!(cosine.factor(0), 0.5);
        assert_eq!(cosine.factor(2), 1.0);
        assert!((cosine.factor(6) - 0.55).abs() < 1e-12);
        assert!((cosine.factor(10) - 0.1).abs() < 1e-12 && cosine.factor(99) == cosine.factor(10));
        assert!(LrSchedule::Cosine { warmup: 0, total: 0, floor: 0.0 }.factor(5).is_finite());
    }
}
