//! A database prepared for proving: every provable assertion as an inference rule over trees.

use crate::database::{Assertion, Database, Expression, StatementId, StatementKind, Symbol};
use crate::grammar::{Grammar, ParseError, TreeNode, TypeId};
use crate::rules::{CompiledRules, MAX_RULE_VARIABLES};
pub use crate::rules::{Rule, RuleId};
use crate::source::DatabaseError;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::path::Path;

/// Why a database cannot be used for proving.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum TheoryError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("the syntax axioms are not a supported grammar: {0}")]
    Grammar(String),
    #[error("the database has no provable typecode `|-` with formulas of typecode `wff`")]
    NoProvable,
    #[error("{place}: `{label}`: the formula `{formula}` {error}")]
    Formula { place: String, label: String, formula: String, error: ParseError },
    /// The unifier numbers the variables of a rule with 16 bits.
    #[error("{place}: `{label}` has {found} variables; at most {MAX_RULE_VARIABLES} are supported")]
    TooManyVariables { place: String, label: String, found: usize },
}

/// A database with its grammar and rules.
#[derive(Debug)]
pub struct Theory {
    database: Database,
    grammar: Grammar,
    provable: Symbol,
    formula: TypeId,
    rules: Vec<Rule>,
    compiled: CompiledRules,
    rule_of: FxHashMap<StatementId, RuleId>,
    /// Variables of the outermost scope: alphanumeric names first, then in order of declaration.
    variables: Vec<(Symbol, TypeId, StatementId)>,
    type_of_variable: FxHashMap<Symbol, TypeId>,
    /// Variables of inner scopes: symbol, type, `$f` statement, first statement after the scope.
    local_floats: Vec<(Symbol, TypeId, StatementId, StatementId)>,
}

impl Theory {
    /// Reads a database file.
    pub fn read(path: &Path) -> Result<Self, TheoryError> {
        Self::new(Database::read(path)?)
    }

    /// Prepares a database.
    ///
    /// # Errors
    /// Returns an error if the grammar is not supported, a formula does not have exactly one parse tree, or a rule has too
    /// many variables.
    pub fn new(database: Database) -> Result<Self, TheoryError> {
        let grammar = Grammar::new(&database).map_err(TheoryError::Grammar)?;
        let formula = database.symbol("wff").and_then(|typecode| grammar.type_of(typecode));
        let (Some(provable), Some(formula)) = (database.provable(), formula) else {
            return Err(TheoryError::NoProvable);
        };
        let assertions: Vec<(StatementId, &Assertion)> = database
            .assertions()
            .filter(|(_, _, a)| {
                a.conclusion.typecode == provable
                    && database.essentials(a).all(|(_, e)| e.typecode == provable)
            })
            .map(|(id, _, assertion)| (id, assertion))
            .collect();
        let rules: Vec<Rule> = assertions
            .par_iter()
            .map(|&(id, assertion)| read_rule(&database, &grammar, formula, id, assertion))
            .collect::<Result<_, _>>()?;
        let rule_of = rules.iter().enumerate().map(|(i, r)| (r.statement, RuleId(i as u32))).collect();
        let (mut variables, mut local_floats) = (Vec::new(), Vec::new());
        for (i, statement) in database.statements().iter().enumerate() {
            if let StatementKind::Floating { typecode, variable, until } = statement.kind {
                let (t, id) = (grammar.float_type(typecode), StatementId(i as u32));
                match until {
                    StatementId(u32::MAX) => variables.push((variable, t, id)),
                    _ => local_floats.push((variable, t, id, until)),
                }
            }
        }
        // Normal forms prefer readable names: `F` before `.||`.
        variables.sort_by_key(|&(v, _, id)| {
            let plain = database.symbol_text(v).bytes().all(|b| b.is_ascii_alphanumeric());
            (!plain, id)
        });
        let type_of_variable = variables.iter().map(|&(v, t, _)| (v, t)).collect();
        let compiled = CompiledRules::new(&database, &grammar, &rules);
        Ok(Self {
            database,
            grammar,
            provable,
            formula,
            rules,
            compiled,
            rule_of,
            variables,
            type_of_variable,
            local_floats,
        })
    }

    /// Returns the database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Returns the database's grammar.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// Returns the typecode of provable statements, `|-`.
    pub fn provable(&self) -> Symbol {
        self.provable
    }

    /// Returns the type of provable formulas.
    pub fn formula_type(&self) -> TypeId {
        self.formula
    }

    /// Returns all rules in database order: the assertions whose conclusion and `$e` hypotheses are provable formulas.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the rules in the form for the unifier.
    pub(crate) fn compiled(&self) -> &CompiledRules {
        &self.compiled
    }

    /// Returns a rule by its id.
    pub fn rule(&self, id: RuleId) -> &Rule {
        &self.rules[id.0 as usize]
    }

    /// Returns the assertion of a rule.
    #[allow(clippy::expect_used, reason = "rules are created from assertions only")]
    pub fn assertion(&self, id: RuleId) -> &Assertion {
        self.database.assertion(self.rule(id).statement).expect("invariant: every rule is an assertion")
    }

    /// Returns the rule of a label; `None` if it is not a provable assertion.
    pub fn find(&self, label: &str) -> Option<RuleId> {
        self.rule_of.get(&self.database.find(label)?).copied()
    }

    /// Returns the rule of a statement; `None` if it is not a provable assertion.
    pub fn rule_of(&self, id: StatementId) -> Option<RuleId> {
        self.rule_of.get(&id).copied()
    }

    /// Returns the label of a rule.
    pub fn label(&self, id: RuleId) -> &str {
        &self.database.statement(self.rule(id).statement).label
    }

    /// Returns the variables of the outermost scope (symbol, type, `$f` statement) in the order in which normal forms use
    /// them.
    pub fn variables(&self) -> &[(Symbol, TypeId, StatementId)] {
        &self.variables
    }

    /// Returns the variables that are in scope just before a statement: symbol, type, `$f` statement.
    pub fn variables_at(
        &self,
        before: StatementId,
    ) -> impl Iterator<Item = (Symbol, TypeId, StatementId)> + '_ {
        let global = self.variables.iter().filter(move |v| v.2 < before).copied();
        let local = self.local_floats.iter().filter(move |f| f.2 < before && before < f.3);
        global.chain(local.map(|f| (f.0, f.1, f.2)))
    }

    /// Returns the type of a variable of the outermost scope.
    pub fn type_of_variable(&self, symbol: Symbol) -> Option<TypeId> {
        self.type_of_variable.get(&symbol).copied()
    }

    /// Formats a formula with `|-` in front.
    pub fn formula_text(&self, tree: &[TreeNode]) -> String {
        let mut out = String::from("|-");
        self.push_text(tree, &mut out);
        out
    }

    /// Appends the symbols of a tree, each preceded by a space.
    pub fn push_text(&self, tree: &[TreeNode], out: &mut String) {
        for s in self.grammar.unparse(tree) {
            out.push(' ');
            out.push_str(self.database.symbol_text(s));
        }
    }
}

fn read_rule(
    database: &Database,
    grammar: &Grammar,
    formula: TypeId,
    id: StatementId,
    assertion: &Assertion,
) -> Result<Rule, TheoryError> {
    let variables: Box<[(Symbol, TypeId)]> =
        database.floats(assertion).map(|(_, typecode, v)| (v, grammar.float_type(typecode))).collect();
    if variables.len() > MAX_RULE_VARIABLES {
        return Err(TheoryError::TooManyVariables {
            place: database.place(id),
            label: database.statement(id).label.to_string(),
            found: variables.len(),
        });
    }
    let tree = |e: &Expression| {
        let type_of = |s: Symbol| variables.iter().find(|(v, _)| *v == s).map(|(_, t)| *t);
        grammar.parse(formula, &e.symbols, type_of).map_err(|error| TheoryError::Formula {
            place: database.place(id),
            label: database.statement(id).label.to_string(),
            formula: database.expression_text(e),
            error,
        })
    };
    let hypotheses = database.essentials(assertion).map(|(_, e)| tree(e)).collect::<Result<_, _>>()?;
    let conclusion = tree(&assertion.conclusion)?;
    Ok(Rule { statement: id, variables, hypotheses, conclusion, distinct: assertion.distinct.clone() })
}
