//! Training corpora from theorems of set.mm; may import [`crate::corpus`] only.

mod build;
pub mod conjecturer;
pub mod guide;
pub mod solver;

pub use build::{BuildOptions, build};
