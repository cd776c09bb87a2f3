//! The training ranks of a run. Rank 0 runs the rounds and sends commands; the others execute them.
//!
//! Rank 0 is the process of `sgs run`. Between updates the others sample tasks of its board (`workers::rank_worker`). For
//! an update they receive the examples and train their part of each batch; for a checkpoint they write their part of
//! the optimizer state.

pub mod board_access;
pub mod command;
pub mod distributed_trainer;
pub mod rank_group;
pub mod usage;
