//! Training: the policies of a run, their update, and the ranks that train together. Imports only `config`.

pub mod launcher;
pub(crate) mod matching;
mod pass;
pub mod policies;
pub mod ranks;
pub mod update;
