//! What a run means: scaling-law fits, statistics, figures, reports.
#![forbid(unsafe_code)]

pub mod figures;
pub mod fit;
pub mod live;
pub mod plot;
pub mod report;
pub mod run;
pub mod stats;
