//! Statistics of problems, curves and runs.

mod bootstrap;
mod curve;
mod rank;
mod seed_mean;
pub mod student;

pub use bootstrap::{Interval, bootstrap_matrix, bootstrap_mean, pass_at_k_interval};
pub use curve::measured_at;
pub use rank::{area_under_curve, rank_correlation};
pub use seed_mean::{SeedMean, seed_mean};
