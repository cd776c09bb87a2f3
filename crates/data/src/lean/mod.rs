//! Corpora of composed theorems of core Lean; may import [`crate::corpus`] and [`crate::text_table`].

mod build;
pub mod compose;
mod verify;

pub use build::{ComposeOptions, Composition, THEOREMS_PER_FILE};
pub use verify::{Verified, verify_all};
