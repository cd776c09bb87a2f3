//! Where a person puts statements: what is typed becomes problems of a formal system.

use crate::args::LeanArgs;
use crate::exit::Usage;
use crate::lean;
use crate::players::Players;
use anyhow::Result;
use sgs_formal::FormalSystem;
use sgs_lean::data::{self, Target};
use sgs_lean::text::canonical_statement;
use sgs_lean::{Lean, LeanSettings};
use sgs_metamath::system::Metamath;
use sgs_metamath::theory::RuleId;
use sgs_run::config::SystemName;
use sgs_run::system::check_toolchain;
use sgs_selfplay::{Problem, ProblemId};
use std::collections::HashSet;
use std::sync::Arc;

/// Reads what a person types. Lean is not started for that.
pub struct Desk<'a> {
    reader: Reader,
    /// What proofs may use.
    context: &'a str,
    typed: usize,
}

enum Reader {
    Metamath(Arc<Metamath>),
    Lean(Box<LeanSettings>),
}

impl<'a> Desk<'a> {
    /// For the formal system of these players; `context` says what proofs may use.
    ///
    /// # Errors
    /// The shipped database or Lean's settings are broken.
    pub fn new(players: &Players, context: &'a str, args: &LeanArgs) -> Result<Self> {
        let reader = match players.system() {
            SystemName::Metamath => Reader::Metamath(Arc::new(Metamath::shipped()?)),
            SystemName::Lean => Reader::Lean(Box::new(lean::settings_over(players.lean(), args)?)),
        };
        Ok(Self { reader, context, typed: 0 })
    }

    /// What somebody at a terminal is told first.
    pub fn greeting(&self) -> &'static str {
        match &self.reader {
            Reader::Metamath(_) => {
                "Type a statement, as |- ( ph -> ph ) or |- ph  &  |- ( ph -> ps )  =>  |- ps, or the label of a theorem; \
                 Ctrl-D ends."
            }
            Reader::Lean(_) => {
                "Type a statement, as theorem a (p : Prop) (h : p) : p, or the name of a target; Ctrl-D ends."
            }
        }
    }

    /// A line at the terminal: a name, else a statement.
    ///
    /// # Errors
    /// It is neither.
    pub fn typed(&mut self, line: &str) -> Result<Target> {
        if !line.contains(char::is_whitespace)
            && let Ok(target) = self.named(line)
        {
            return Ok(target);
        }
        self.typed += 1;
        self.statement(&format!("statement-{}", self.typed), line)
    }

    /// The problem that the arguments name, or state.
    ///
    /// # Errors
    /// There is none, or what is wrong with it.
    pub fn asked(&self, problem: Option<&str>, statement: Option<&str>) -> Result<Target> {
        match (problem, statement) {
            (Some(id), _) => self.named(id),
            (None, Some(text)) => self.statement("statement", text),
            (None, None) => {
                Err(Usage("give the target: a statement, or --problem with a theorem's label".to_owned())
                    .into())
            }
        }
    }

    /// A problem that the system knows by name: a theorem of the slice, or a target of the sets that ship.
    ///
    /// # Errors
    /// There is none of that name; those near it are told.
    pub fn named(&self, id: &str) -> Result<Target> {
        match &self.reader {
            Reader::Metamath(system) => {
                let near = || match near_labels(system, id) {
                    near if near.is_empty() => String::new(),
                    near => format!("; near it: {}", near.join(", ")),
                };
                let problem = system.problem(id);
                Ok(bare(problem.ok_or_else(|| {
                    Usage(format!("--problem: `{id}` is no axiom or theorem of the slice{}", near()))
                })?))
            }
            Reader::Lean(_) => {
                let sets = [data::core()?, data::composed()?, data::composed_held_out()?, data::d3k()?];
                let found = sets.into_iter().flatten().find(|t| t.problem.id.as_str() == id);
                Ok(found.ok_or_else(|| {
                    Usage(format!(
                        "--problem: `{id}` is no target of core, composed, composed-held-out or d3k"
                    ))
                })?)
            }
        }
    }

    /// A statement.
    ///
    /// # Errors
    /// It is none, and why.
    pub fn statement(&self, id: &str, text: &str) -> Result<Target> {
        self.statement_in(self.context, id, text)
    }

    /// A statement whose proofs may use what a context says.
    ///
    /// # Errors
    /// It is none, and why.
    pub fn statement_in(&self, context: &str, id: &str, text: &str) -> Result<Target> {
        match &self.reader {
            Reader::Metamath(system) => {
                let problem = system.problem_from_text(id, text, context).map_err(|e| {
                    let hint = match text.split_whitespace().last() {
                        // What a shell leaves of `"… ($d x ph)"`.
                        Some(last) if last.len() > 1 && last.ends_with(')') && !text.contains("$d") => {
                            "a statement with ($d x ph) stands between single quotes, as a shell takes $d out of \
                             double ones"
                        }
                        _ => "symbols are separated by spaces, as in \"|- ( ph -> ph )\"",
                    };
                    Usage(format!("this is no statement of the slice: {e}; {hint}"))
                })?;
                Ok(bare(problem))
            }
            Reader::Lean(_) => {
                let (statement, repair) = canonical_statement(text).map_err(|e| {
                    Usage(format!(
                        "this is no statement of Lean: {e}; it looks like \"theorem a (p : Prop) (h : p) : p\""
                    ))
                })?;
                let (id, statement) = (ProblemId::new(id), statement.text.into());
                Ok(Target { repair, ..bare(Problem { id, statement, context: context.into() }) })
            }
        }
    }

    /// Starts the system; it is ready for the first problem, if there is one.
    ///
    /// # Errors
    /// Lean is not there, of another version than the problem wants, or cannot tell a theorem from a falsehood.
    pub fn start(&self, first: Option<&Target>) -> Result<Session> {
        let mut session = match &self.reader {
            Reader::Metamath(system) => {
                let system: Arc<dyn FormalSystem> = Arc::<Metamath>::clone(system);
                Session { system, lean: None, tried: HashSet::new() }
            }
            Reader::Lean(settings) => {
                let checker = Arc::new(lean::start(settings)?);
                let system: Arc<dyn FormalSystem> = Arc::<Lean>::clone(&checker);
                Session { system, lean: Some(checker), tried: HashSet::new() }
            }
        };
        first.map_or(Ok(()), |target| session.prepare(target))?;
        Ok(session)
    }
}

/// A formal system that is ready to judge.
pub struct Session {
    pub system: Arc<dyn FormalSystem>,
    lean: Option<Arc<Lean>>,
    /// Headers with which Lean has told a theorem from a falsehood.
    tried: HashSet<Arc<str>>,
}

impl Session {
    /// Makes sure that verdicts on this problem can be believed.
    ///
    /// # Errors
    /// Lean is of another version than the problem wants, or cannot tell a theorem from a falsehood.
    pub fn prepare(&mut self, target: &Target) -> Result<()> {
        let Some(lean) = &self.lean else { return Ok(()) };
        check_toolchain(lean, std::slice::from_ref(target), "what was asked for")?;
        if !self.tried.contains(&target.problem.context) {
            lean.canaries(&target.problem.context)?;
            self.tried.insert(Arc::clone(&target.problem.context));
        }
        Ok(())
    }
}

/// A problem of which nothing else is known.
fn bare(problem: Problem) -> Target {
    Target {
        problem,
        repair: None,
        proof: None,
        informal: None,
        split: None,
        source: None,
        toolchain: None,
        expect: None,
    }
}

/// A few labels that look like one that does not exist.
fn near_labels(system: &Metamath, wanted: &str) -> Vec<String> {
    let theory = system.theory();
    let labels = (0..theory.rules().len()).map(|i| theory.label(RuleId(i as u32)));
    let mut scored: Vec<(usize, &str)> =
        labels.map(|l| (strsim::levenshtein(l, wanted), l)).filter(|(d, _)| *d <= 2).collect();
    scored.sort_unstable();
    scored.into_iter().take(4).map(|(_, l)| l.to_owned()).collect()
}
