//! Splits and training corpora, seeded and reproducible.

pub mod conjecturer;
pub mod draw;
pub mod guide;
pub mod solver;
pub mod splits;
