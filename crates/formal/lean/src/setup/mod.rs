//! Getting Lean onto a machine, and saying what of it is there.
//!
//! A [`Plan`] is data: steps with their commands, what each needs and how one sees that it is done. Running it
//! skips what is done, so that an interrupted setup is resumed by starting it again.

mod doctor;
mod plan;
mod run;

pub use doctor::{Finding, LeanPaths, State, examine, suggestion};
pub use plan::{Action, Done, Plan, SetupOptions, Step, plan};
pub use run::{Event, SetupError, run};
