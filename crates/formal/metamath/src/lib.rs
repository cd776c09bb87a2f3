//! Metamath as the embedded formal system.
//!
//! | modules | content |
//! |---|---|
//! | [`database`], [`grammar`], [`theory`] | parse a Metamath database and its formulas; turn assertions into inference rules |
//! | [`statement`], [`notation`] | statements to prove, as canonical text and in human-readable notation |
//! | [`proof_text`], [`proof`], [`theorem_proofs`] | proofs as lists of essential steps, full Metamath proofs, and those in the database |
//! | [`unify`], [`kernel`], [`judge`] | check a proof twice: by unification on trees, and by substitution on symbol strings |
//! | [`verify`], [`export`], [`audit`] | verify files of proofs, export them as a database, check a database's own theorems |
//! | [`system`], [`tokens`], [`align`] | the [`sgs_formal::FormalSystem`]: prompts, vocabulary |
//! | [`features`], [`rubric`], [`normal_text`], [`assertion_index`], [`sub_proof`] | analyse statements and proofs |
//! | [`mod@slice`], [`splits`] | the part of set.mm that ships with the program, and its targets |
//!
//! A proof is valid only if the unifier and the kernel both accept it. The two share no checking code: they use the
//! same parsed database and the same proof operations, but the kernel uses neither trees nor unification.
//!
//! ```
//! use sgs_formal::FormalSystem;
//! use sgs_metamath::system::Metamath;
//! use sgs_selfplay::Verdict;
//!
//! let system = Metamath::shipped()?;
//! let problem = system.problem_from_text("example", "ph  =>  ( ps -> ph )", "")?;
//! let proof = system.read_proof(&problem, "h1 ~a1i")?;
//! assert_eq!(proof, "h1 a1i");
//! assert_eq!(system.verify(&problem, &proof).verdict, Verdict::Proved);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod align;
pub mod assertion_index;
pub mod audit;
pub mod composed_sets;
pub mod composer;
pub mod congruences;
pub mod database;
pub mod export;
pub mod features;
pub mod grammar;
pub mod judge;
pub mod kernel;
pub mod normal_text;
pub mod notation;
pub mod proof;
pub mod proof_text;
pub mod rubric;
mod rules;
pub mod slice;
pub mod source;
pub mod splits;
pub mod statement;
pub mod sub_proof;
pub mod system;
pub mod theorem_proofs;
pub mod theory;
pub mod tokens;
pub mod unify;
pub mod verify;

/// The files of the base model for Metamath, in Hugging Face layout: name and content.
pub const BASE_MODEL: [(&str, &[u8]); 4] = [
    ("config.json", include_bytes!("../data/base/config.json")),
    ("model.safetensors", include_bytes!("../data/base/model.safetensors")),
    ("tokenizer.json", include_bytes!("../data/base/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../data/base/tokenizer_config.json")),
];
