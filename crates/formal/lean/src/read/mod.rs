//! Extracts proofs, conjectures and reviews from completions.
//!
//! The default is lenient: it accepts prose around the code, several blocks, helper lemmas, a repeated statement and an
//! open fence. `Strict` reproduces the paper's code exactly.

mod conjecture;
mod fence;
mod proof;
mod review;

pub use conjecture::{read_conjecture, read_conjecture_strict};
pub(crate) use proof::proof_in_source;
pub use proof::{Proof, read_proof, read_proof_strict};
pub use review::{read_review, read_review_strict};

sgs_keys::choice! {
    /// The parsers for completions.
    #[derive(Default)]
    pub enum Reading {
        /// Accepts everything that a human reader would.
        #[default]
        Lenient = "lenient",
        /// Accepts what the paper's code accepts.
        Strict = "strict",
    }
}
