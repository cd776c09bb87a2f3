//! Formats statements and proofs for display.

use anyhow::{Context, Result};
use sgs_analysis::run::StatementDisplay;
use sgs_formal::FormalSystem;
use sgs_run::config::system::metamath_database;
use sgs_run::config::{ProblemsConfig, SystemName};
use sgs_rundir::RunView;
use sgs_selfplay::{Problem, ProblemId};
use std::path::Path;
use std::sync::Arc;

/// Formats the texts of a formal system; without a system, texts are shown unchanged.
pub struct TextDisplay(Option<Arc<dyn FormalSystem>>);

impl TextDisplay {
    /// Formats texts as `system` does. The texts of an external system are shown unchanged.
    pub fn by(system: &Arc<dyn FormalSystem>) -> Self {
        Self((system.name() != "external").then(|| Arc::clone(system)))
    }

    /// Formats texts as the system of a run does. Lean is not started, because its texts are readable unchanged.
    pub fn of_run(run: &Path) -> Result<Self> {
        let config = RunView::open(run)?.config()?;
        let problems = config.get("problems").cloned();
        let problems = problems.map(toml::Value::try_into).transpose().context("[problems] of the run")?;
        Self::of(&problems.unwrap_or_default())
    }

    /// Formats texts as the formal system of `problems` does, without starting Lean.
    pub fn of(problems: &ProblemsConfig) -> Result<Self> {
        Ok(Self(match problems.system {
            SystemName::Metamath => Some(metamath_database(&problems.database)?),
            SystemName::Lean | SystemName::External => None,
        }))
    }
}

impl TextDisplay {
    pub fn steps(&self, proof: &str) -> u32 {
        self.0.as_ref().map_or_else(|| sgs_formal::lines_of(proof), |system| system.proof_steps(proof))
    }
}

impl StatementDisplay for TextDisplay {
    fn statement(&self, statement: &str) -> String {
        self.0.as_ref().map_or_else(|| statement.to_owned(), |system| system.display_statement(statement))
    }

    fn proof(&self, statement: &str, context: &str, proof: &str) -> String {
        let problem =
            Problem { id: ProblemId::new("shown"), statement: statement.into(), context: context.into() };
        self.0.as_ref().map_or_else(|| proof.to_owned(), |system| system.display_proof(&problem, proof))
    }
}
