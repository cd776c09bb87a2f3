//! Statistics over problems, curves and runs.

mod alone;
mod bootstrap;
mod compare;
mod rank;
pub mod student;

pub use alone::Alone;
pub use bootstrap::{Interval, bootstrap_mean, pass_at_k_interval};
pub use compare::{
    AsymptoteDifference, Basis, Crossing, asymptote_difference, crossings, hard_curve, interpolate,
    never_solved, reach,
};
pub use rank::{area_under_curve, rank_correlation};
