//! Workers: the tasks that they lease, how they sample and verify, how remote workers are reached, and the time and memory
//! that a run needs. Imports `config` and `train`.

pub mod attempts;
pub mod config;
pub mod coordinator;
pub mod forecast;
pub mod generate;
pub mod manifest;
pub mod memory;
pub mod prompts;
pub mod rank_worker;
pub mod sampling;
pub mod tasks;
pub mod verify;
pub mod weight_sync;
