//! Everything that prepares a run: training corpora, base models and problem sets.
//!
//! The commands `sgs data`, `sgs pretrain` and `sgs sft` are thin layers over this crate. A run needs it only to make the
//! base models named `made:RECIPE` before it begins ([`base::made`]).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod base;
pub mod corpus;
pub mod lean;
pub mod metamath;
pub mod sets;
pub mod text_table;
