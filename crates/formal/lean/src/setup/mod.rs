//! Installs Lean, and examines what is installed.

mod doctor;
mod plan;

pub use doctor::{DoctorFinding, LeanPaths, Readiness, examine, suggestion};
pub use plan::{SetupError, SetupPlan, SetupStep, plan};
