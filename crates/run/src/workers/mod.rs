//! Workers: the tasks that they lease, how they sample and verify, and how remote workers are reached. Imports `config` and
//! `train`.

pub mod attempts;
pub mod config;
pub mod coordinator;
pub mod generate;
pub mod manifest;
pub mod rank_worker;
pub mod sampling;
pub mod tasks;
pub mod verify;
pub mod weight_sync;
