//! Statements and proofs as people read them.

use anyhow::Result;
use sgs_analysis::run::{Display, Identity};
use sgs_formal::{Condition, FormalSystem};
use sgs_metamath::system::Metamath;
use sgs_run::config::SystemName;
use sgs_rundir::RunView;
use sgs_selfplay::{Problem, ProblemId};
use std::path::Path;
use std::sync::Arc;

/// How the texts of a formal system are shown: as the system likes, or as they stand where it is not started.
pub struct Shown(Option<Arc<dyn FormalSystem>>);

impl Shown {
    /// As a system likes.
    pub fn by(system: &Arc<dyn FormalSystem>) -> Self {
        Self(Some(Arc::clone(system)))
    }

    /// As the system of a run likes, without starting Lean: its texts are meant for people as they stand.
    ///
    /// # Errors
    /// The folder is no run, or the shipped database is broken.
    pub fn of_run(run: &Path) -> Result<Self> {
        let config = RunView::open(run)?.config()?;
        let named = config.get("problems").and_then(|p| p.get("system")).cloned();
        Self::of(named.and_then(|name| name.try_into().ok()).unwrap_or(SystemName::Metamath))
    }

    /// As a system likes, without starting Lean.
    ///
    /// # Errors
    /// The shipped database is broken.
    pub fn of(system: SystemName) -> Result<Self> {
        Ok(Self(match system {
            SystemName::Metamath => Some(Arc::new(Metamath::shipped()?)),
            SystemName::Lean => None,
        }))
    }
}

impl Shown {
    /// Whether a theorem that stands before the problem says the same.
    pub fn is_known(&self, problem: &Problem) -> bool {
        self.identity(&problem.statement, &problem.context).theorem.is_some()
    }

    /// Inferences of a proof.
    pub fn steps(&self, proof: &str) -> u32 {
        self.0.as_ref().map_or_else(|| sgs_formal::lines_of(proof), |system| system.proof_steps(proof))
    }
}

impl Display for Shown {
    fn statement(&self, statement: &str) -> String {
        self.0.as_ref().map_or_else(|| statement.to_owned(), |system| system.display_statement(statement))
    }

    fn proof(&self, statement: &str, context: &str, proof: &str) -> String {
        let problem =
            Problem { id: ProblemId::new("shown"), statement: statement.into(), context: context.into() };
        self.0.as_ref().map_or_else(|| proof.to_owned(), |system| system.display_proof(&problem, proof))
    }

    fn identity(&self, statement: &str, context: &str) -> Identity {
        let problem =
            Problem { id: ProblemId::new("shown"), statement: statement.into(), context: context.into() };
        let read = |system: &Arc<dyn FormalSystem>| {
            let read = system.read_conjecture(Condition::Nothing(&problem), statement).ok()?;
            Some(Identity {
                normal: read.statement.to_string(),
                theorem: read.known.map(|label| label.to_string()),
            })
        };
        let plain = || Identity { normal: statement.to_owned(), theorem: None };
        self.0.as_ref().and_then(read).unwrap_or_else(plain)
    }

    fn steps(&self, proof: &str) -> u32 {
        Shown::steps(self, proof)
    }
}
