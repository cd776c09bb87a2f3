//! Lean 4 as a formal system: text, data, prompts, readers, checkers, trust.
//!
//! The way of a completion: [`read`] finds the proof in the model's text, [`text`] refuses what a proof never
//! needs, [`check`] puts the proof into the file that we own and has Lean judge it in a sandboxed process, and a
//! verdict is `proved` only on positive evidence. `docs/trust.md` says which layer stops what.
#![forbid(unsafe_code)]

mod admit;
pub mod check;
pub mod compact;
pub mod compose;
pub mod data;
mod features;
mod judge;
pub mod prompt;
pub mod read;
pub mod sandbox;
mod settings;
pub mod setup;
mod system;
pub mod text;
mod version;

pub use admit::admit;
pub use features::features;
pub use settings::{Backing, LeanSettings, Prepared, ROOT, SettingsError, VERSION, WASM_ROOT, WASM_VERSION};
pub use system::{Identity, Lean, LeanConfig, StartError};
pub use version::{Version, VersionError, ask_version};
