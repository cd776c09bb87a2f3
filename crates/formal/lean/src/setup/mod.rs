//! Installation of Lean, and examination of what is installed.
//!
//! A [`SetupPlan`] is data: steps with their commands, their requirements, and the condition under which a step is done.
//! Completed steps are skipped, so an interrupted setup is resumed by running it again.

mod doctor;
mod plan;
mod run;

pub use doctor::{DoctorFinding, LeanPaths, Readiness, examine, suggestion};
pub use plan::{Action, DoneWhen, SetupOptions, SetupPlan, SetupStep, plan};
pub use run::{SetupError, SetupEvent, run};
