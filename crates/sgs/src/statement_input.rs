//! Converts statements and names that a user types to problems of a formal system.

use crate::args::SampleArgs;
use crate::exit::Usage;
use crate::lean;
use crate::model_source::ModelSource;
use anyhow::{Context, Result};
use sgs_formal::FormalSystem;
use sgs_keys::did_you_mean;
use sgs_lean::data::{self, Target};
use sgs_lean::text::canonical_statement;
use sgs_lean::{Lean, LeanSettings};
use sgs_metamath::statement::context_limit;
use sgs_metamath::system::Metamath;
use sgs_metamath::theory::RuleId;
use sgs_run::config::system::{
    check_toolchain, external, external_targets, metamath_database, statement_advice,
};
use sgs_run::config::{RunConfig, SystemName};
use sgs_selfplay::{Problem, ProblemId};
use std::collections::HashSet;
use std::sync::Arc;

/// Parses statements and names of problems that a user types. Does not start Lean.
pub struct StatementInput<'a> {
    reader: StatementReader,
    args: &'a SampleArgs,
    typed: usize,
}

enum StatementReader {
    Metamath(Arc<Metamath>),
    Lean(Box<LeanSettings>),
    External(Box<RunConfig>),
}

impl<'a> StatementInput<'a> {
    /// Creates a parser for the formal system of `players`; `--context` limits the theorems that proofs may use.
    pub fn new(players: &ModelSource, args: &'a SampleArgs) -> Result<Self> {
        let context = args.context.as_deref().unwrap_or_default();
        let reader = match players.system() {
            SystemName::Metamath => {
                let system = metamath_database(players.database())?;
                context_limit(system.theory(), context).map_err(|_| {
                    let near = near_label(&system, context);
                    Usage(format!("--context: `{context}` is not a label of the database{near}"))
                })?;
                StatementReader::Metamath(system)
            }
            SystemName::Lean => {
                StatementReader::Lean(Box::new(lean::settings_over(players.lean(), &args.play.lean)?))
            }
            SystemName::External => {
                let config = players.config().context("an external system needs its run: give --run")?;
                StatementReader::External(Box::new(config.clone()))
            }
        };
        Ok(Self { reader, args, typed: 0 })
    }

    /// Returns the first lines of an interactive session.
    pub fn greeting(&self) -> &'static str {
        match &self.reader {
            StatementReader::Metamath(_) => {
                "Type a statement, as |- ( ph -> ph ) or |- ph  &  |- ( ph -> ps )  =>  |- ps, or the label of a theorem; \
                 Ctrl-D ends."
            }
            StatementReader::Lean(_) => {
                "Type a statement, as theorem a (p : Prop) (h : p) : p, or the name of a target; Ctrl-D ends."
            }
            StatementReader::External(_) => "Type a statement or the name of a problem; Ctrl-D ends.",
        }
    }

    /// Parses a typed line: a name or a statement.
    pub fn typed(&mut self, line: &str) -> Result<Target> {
        if !line.contains(char::is_whitespace)
            && let Ok(target) = self.named(line)
        {
            return Ok(target);
        }
        self.typed += 1;
        self.statement(&format!("statement-{}", self.typed), line)
    }

    /// Returns the problem that the arguments name, or parses `statement`. `argument` is its name in messages.
    pub fn given_target(&self, argument: &str, statement: Option<&str>) -> Result<Target> {
        match (self.args.problem.as_deref(), statement) {
            (Some(id), _) => self.named(id),
            (None, Some(text)) => self.statement("statement", text),
            (None, None) => {
                Err(Usage(format!("give the target: {argument}, or --problem with a theorem's label")).into())
            }
        }
    }

    /// Returns a problem by name: a theorem of the shipped database, or a target of a shipped Lean set.
    fn named(&self, id: &str) -> Result<Target> {
        match &self.reader {
            StatementReader::Metamath(system) => {
                let problem = system.problem(id);
                Ok(Target::new(problem.ok_or_else(|| {
                    let near = near_label(system, id);
                    Usage(format!("--problem: `{id}` is not an axiom or theorem of the database (a label is a name such as `syl`){near}"))
                })?))
            }
            StatementReader::Lean(_) => {
                let sets = [data::core()?, data::composed()?, data::composed_held_out()?, data::d3k()?];
                let found = sets.into_iter().flatten().find(|t| t.problem.id.as_str() == id);
                Ok(found.ok_or_else(|| {
                    Usage(format!(
                        "--problem: `{id}` is not a target of core, composed, composed-held-out or d3k"
                    ))
                })?)
            }
            StatementReader::External(config) => {
                let set = &config.problems.set;
                let found = external_targets(set)?.into_iter().find(|problem| problem.id.as_str() == id);
                Ok(Target::new(
                    found.ok_or_else(|| Usage(format!("--problem: {set} has no problem `{id}`")))?,
                ))
            }
        }
    }

    /// Parses a statement in the context of the arguments: what its proof may use.
    fn statement(&self, id: &str, text: &str) -> Result<Target> {
        self.statement_in(self.args.context.as_deref().unwrap_or_default(), id, text)
    }

    /// Parses a statement with its own context.
    pub fn statement_in(&self, context: &str, id: &str, text: &str) -> Result<Target> {
        match &self.reader {
            StatementReader::Metamath(system) => {
                let problem = system.problem_from_text(id, text, context).map_err(|e| {
                    Usage(format!("not a valid statement: {}; {}", e.detail, statement_advice(text)))
                })?;
                Ok(Target::new(problem))
            }
            StatementReader::Lean(_) => {
                let statement = canonical_statement(text).map_err(|e| {
                    Usage(format!(
                        "not a valid Lean statement: {e}; expected the form \"theorem a (p : Prop) (h : p) : p\""
                    ))
                })?;
                let (id, statement) = (ProblemId::new(id), statement.text.into());
                Ok(Target::new(Problem { id, statement, context: context.into() }))
            }
            StatementReader::External(_) => {
                let (id, statement) = (ProblemId::new(id), text.into());
                Ok(Target::new(Problem { id, statement, context: context.into() }))
            }
        }
    }

    /// Starts the formal system and prepares it for the first problem, if there is one.
    pub fn start(&self, first: Option<&Target>) -> Result<CheckerSession> {
        let mut session = match &self.reader {
            StatementReader::Metamath(system) => {
                let system: Arc<dyn FormalSystem> = Arc::<Metamath>::clone(system);
                CheckerSession { system, lean: None, tried: HashSet::new() }
            }
            StatementReader::Lean(settings) => {
                let checker = Arc::new(lean::start(settings)?);
                let system: Arc<dyn FormalSystem> = Arc::<Lean>::clone(&checker);
                CheckerSession { system, lean: Some(checker), tried: HashSet::new() }
            }
            StatementReader::External(config) => {
                let system: Arc<dyn FormalSystem> = Arc::new(external(config)?);
                CheckerSession { system, lean: None, tried: HashSet::new() }
            }
        };
        first.map_or(Ok(()), |target| session.prepare(target))?;
        Ok(session)
    }
}

/// A formal system that is ready to verify proofs.
pub struct CheckerSession {
    pub system: Arc<dyn FormalSystem>,
    lean: Option<Arc<Lean>>,
    /// Headers for which Lean has passed the canaries.
    tried: HashSet<Arc<str>>,
}

impl CheckerSession {
    /// Checks that verdicts on this problem are reliable.
    /// Returns an error if Lean has another version than the problem needs, or fails the canaries.
    pub fn prepare(&mut self, target: &Target) -> Result<()> {
        let Some(lean) = &self.lean else { return Ok(()) };
        check_toolchain(lean, std::slice::from_ref(target), "the given problem")?;
        if !self.tried.contains(&target.problem.context) {
            lean.canaries(&target.problem.context)?;
            self.tried.insert(Arc::clone(&target.problem.context));
        }
        Ok(())
    }
}

/// Returns a suggestion for a label that does not exist.
fn near_label(system: &Metamath, label: &str) -> String {
    let theory = system.theory();
    did_you_mean(label, (0..theory.rules().len()).map(|i| theory.label(RuleId(i as u32))))
}
