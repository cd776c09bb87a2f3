//! Adam's numbers and the learning rate over the steps.

/// Adam's constants; defaults are the paper's (appendix, training details).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamConfig {
    /// Learning rate before the schedule.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of matrices; 0 for none.
    pub weight_decay: f64,
    /// Gradients are scaled down to this global norm; infinity for no clipping.
    pub clip_norm: f64,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self { learning_rate: 1e-6, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.0, clip_norm: 1.0 }
    }
}

/// The learning rate over the steps, as a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    /// Always 1.
    Constant,
    /// Linear from `1 / steps` to 1 over the first steps, then 1.
    Warmup {
        /// Steps of the rise.
        steps: u64,
    },
    /// The same rise, then half a cosine down to `floor` at step `total`, where it stays.
    Cosine {
        /// Steps of the rise.
        warmup: u64,
        /// Steps of the whole run.
        total: u64,
        /// Last factor, 0 to 1.
        floor: f64,
    },
}

impl Schedule {
    /// The factor of a step, counted from 0.
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
    fn schedules_rise_fall_and_stay() {
        assert_eq!(Schedule::Constant.factor(9), 1.0);
        let warmup = Schedule::Warmup { steps: 4 };
        assert_eq!([0, 3, 100].map(|s| warmup.factor(s)), [0.25, 1.0, 1.0]);
        let cosine = Schedule::Cosine { warmup: 2, total: 10, floor: 0.1 };
        assert_eq!(cosine.factor(0), 0.5);
        assert_eq!(cosine.factor(2), 1.0);
        assert!((cosine.factor(6) - 0.55).abs() < 1e-12);
        assert!((cosine.factor(10) - 0.1).abs() < 1e-12 && cosine.factor(99) == cosine.factor(10));
        assert!(Schedule::Cosine { warmup: 0, total: 0, floor: 0.0 }.factor(5).is_finite());
    }
}
