//! Base models: their recipes, the mixture of their corpora, and their training; may import [`crate::corpus`] and
//! [`crate::metamath`].

pub mod config;
mod loss_curve;
pub mod made;
mod mixture;
pub mod pretrain;
pub mod recipe;
