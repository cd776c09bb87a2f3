//! Lean 4 as a formal system.
//!
//! [`Lean`] implements `sgs_formal::FormalSystem`: it renders prompts, extracts proofs, conjectures and reviews from
//! completions, and verifies proofs with a pool of sandboxed Lean processes. A completion passes these stages:
//!
//! 1. [`read`] extracts the proof from the model's text.
//! 2. [`text::Bounds`] limits its size.
//! 3. [`check`] has the judge (`lean/SgsJudge`) parse, examine and elaborate it in a sandboxed process ([`sandbox`]). The
//!    verdict is `proved` only on positive evidence.
//!
//! `docs/trust.md` describes these layers and what each of them stops. [`LeanSettings`] is the part of a configuration
//! that [`LeanSettings::prepare`] resolves to a running [`Lean`]. [`data`] reads data sets, [`prompt`] and [`compact`]
//! render prompts, and [`setup`] installs Lean.
//!
//! # Example
//!
//! Extraction needs no installation of Lean:
//!
//! ```
//! use sgs_lean::read::read_proof;
//! use sgs_lean::text::{Bounds, LeanStatement};
//!
//! let statement = LeanStatement::read("theorem t (p q : Prop) (hp : p) (hq : q) : p ∧ q := by")?;
//! let completion = "Both parts are given.\n```lean4\ntheorem t (p q : Prop) (hp : p) (hq : q) : p ∧ q := by\n  exact ⟨hp, hq⟩\n```";
//! let bounds = Bounds::default();
//!
//! let proof = read_proof(&statement.text, completion, &bounds).map_err(|e| e.kind)?;
//! assert_eq!(proof.body, "\n  exact ⟨hp, hq⟩");
//! assert!(bounds.check(&proof.body).is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod check;
pub mod compact;
pub mod data;
mod features;
mod judge;
mod limits;
pub mod prompt;
pub mod read;
pub mod sandbox;
mod settings;
pub mod setup;
mod system;
mod templates;
pub mod text;
mod version;

pub use features::features;
pub use settings::{
    Backing, LeanSettings, PreparedLean, ROOT, SettingsError, VERSION, WASM_ROOT, WASM_VERSION,
};
pub use system::{BOUNDS, CheckerIdentity, Lean, LeanConfig, StartError};
pub use templates::{BUILT_IN_PROMPTS, Prompts, PromptsError, Templates};
pub use version::{Version, VersionError, ask_version};

/// The files of the base model for Lean, in Hugging Face layout: name and content.
pub const BASE_MODEL: [(&str, &[u8]); 4] = [
    ("config.json", include_bytes!("../data/base/config.json")),
    ("model.safetensors", include_bytes!("../data/base/model.safetensors")),
    ("tokenizer.json", include_bytes!("../data/base/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../data/base/tokenizer_config.json")),
];
