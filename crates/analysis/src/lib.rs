//! Analysis of runs: scaling-law fits, statistics, figures and reports.
//!
//! - [`run`] reads a run's directory into plain data.
//! - [`fit`] fits the scaling law of the paper to a curve of cumulative solve rates.
//! - [`stats`] has intervals and rank statistics, and [`compare`] compares curves of several runs.
//! - [`methods`] has the results of methods over several seeds, with paired differences.
//! - [`baseline`] has the measured curves of the base models.
//! - [`figures`] turns runs into figures, and [`plot`] renders figures as SVG and CSV.
//! - [`report`] writes an HTML page with all figures and tables, and [`live`] serves it while a run is in progress.
//!
//! ```
//! use sgs_analysis::fit::{CurvePoint, Cut, FitOptions, Parameter, ScalingLaw, fit};
//!
//! let law = ScalingLaw { initial: 0.1, origin: 0.0, asymptote: 0.7, midpoint: 20_000.0, steepness: 1.2 };
//! let curve: Vec<CurvePoint> = (0..100)
//!     .map(|round| 1_000.0 * f64::from(round))
//!     .map(|generations| CurvePoint { generations, rate: law.rate(generations) })
//!     .collect();
//!
//! let options = FitOptions { cut: Cut::At(0.0), ..FitOptions::default() };
//! let found = fit(&curve, &options).unwrap();
//! assert!((found.value(Parameter::Asymptote) - 0.7).abs() < 1e-6);
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod baseline;
pub mod compare;
pub mod figures;
pub mod fit;
pub mod live;
pub mod methods;
pub mod plot;
pub mod report;
pub mod run;
pub mod stats;
