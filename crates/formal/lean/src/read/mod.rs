//! Reading what the three roles wrote.
//!
//! Lenient by default: prose around the code, several blocks, helper lemmas, a restated statement, an unfinished
//! fence. `Strict` reproduces the paper's code, with its quirks.

mod conjecture;
mod fence;
mod label;
mod proof;
mod review;
mod snippet;

pub use conjecture::{read_conjecture, read_conjecture_strict};
pub use fence::{Block, blocks};
pub use label::{AREAS, DIFFICULTIES, Solvability, read_classification, read_solvability};
pub use proof::{Proof, proof_in_source, read_proof, read_proof_strict};
pub use review::{read_review, read_review_strict};
pub use snippet::split_snippet;

sgs_keys::choice! {
    /// How completions are read.
    #[derive(Default)]
    pub enum Reading {
        /// What a person would accept.
        #[default]
        Lenient = "lenient",
        /// What the paper's code accepts.
        Strict = "strict",
    }
}
