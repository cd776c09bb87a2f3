//! Metamath as the embedded formal system.
#![forbid(unsafe_code)]

pub mod align;
pub mod bench;
pub mod corpus;
pub mod database;
pub mod export;
pub mod facts;
pub mod features;
pub mod grammar;
pub mod judge;
pub mod kernel;
pub mod lemma;
pub mod library;
pub mod printed;
pub mod proof;
pub mod proof_text;
pub mod rubric;
pub mod slice;
pub mod source;
pub mod statement;
pub mod system;
pub mod theory;
pub mod tokens;
pub mod unify;
pub mod verify;
