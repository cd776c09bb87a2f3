//! Statistics of problems, curves and runs.

mod bootstrap;
mod rank;
mod sampling_baseline;
pub mod student;

pub use bootstrap::{Interval, bootstrap_mean, pass_at_k_interval};
pub use rank::{area_under_curve, rank_correlation};
pub use sampling_baseline::SamplingBaseline;
