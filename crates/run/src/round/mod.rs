//! The rounds of a run: sampling, verification, the update and its publication. Imports all other folders.

mod attempts;
mod dispatcher;
mod evaluation;
pub mod event;
pub mod examine;
mod guide_check;
mod infra;
mod main_loop;
mod publication;
mod recheck;
pub mod record;
mod result_parser;
mod round_metrics;
mod rounds;
mod run_workers;
pub mod runner;
mod sampled_round;
pub mod sampling_context;
mod stages;
mod task_builder;
mod unsampled;
mod update_record;
