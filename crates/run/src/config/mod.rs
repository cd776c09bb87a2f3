//! The configuration of a run and the properties of the machine that it runs on. Imports none of the other four
//! folders.

mod absolute;
pub mod base_model;
pub mod device;
mod effects;
pub mod endpoint;
pub mod folder;
pub mod guide_format;
pub mod held_out;
mod layers;
pub mod lean;
pub mod lean_set;
pub mod machine;
mod problems;
mod run_config;
pub mod system;

pub use layers::*;
pub use problems::{ProblemsConfig, SHIPPED, SystemName};
pub use run_config::*;
