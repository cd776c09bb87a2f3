//! Training corpora from theorems of set.mm; may import [`crate::corpus`] only.

mod build;
pub mod conjecturer;
pub mod derivations;
pub mod guide;
pub mod solver;

pub use build::{BuildOptions, Built, build};
