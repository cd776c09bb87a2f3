//! A database made ready for proving: every provable assertion as trees, its variables numbered.

use crate::database::{Database, Distinct, Expression, StatementId, Symbol};
use crate::grammar::{Grammar, GrammarError, Head, ParseError, Tree, TypeId};
use crate::source::DatabaseError;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::path::Path;

/// A provable assertion: index in order of appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// An axiom or theorem as an inference rule.
#[derive(Clone, Debug)]
pub struct Rule {
    pub statement: StatementId,
    /// Mandatory variables with their types, in the order of their `$f` statements.
    pub variables: Box<[(Symbol, TypeId)]>,
    /// Essential hypotheses, without the provable typecode.
    pub hypotheses: Box<[Tree]>,
    /// The conclusion, without the provable typecode.
    pub conclusion: Tree,
    /// `$d` pairs among the mandatory variables.
    pub distinct: Box<[Distinct]>,
}

/// Why a database cannot be used for proving.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TheoryError {
    /// The text is broken.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The syntax axioms are no grammar.
    #[error("the syntax axioms are no grammar")]
    Grammar(#[from] GrammarError),
    /// There is no `|-`, or nothing that can follow it.
    #[error("the database has no provable typecode `|-` with formulas of typecode `wff`")]
    NoProvable,
    /// A statement has no tree.
    #[error("{place}: `{label}`: the formula `{formula}` {error}")]
    Formula {
        /// Where the statement stands.
        place: String,
        label: String,
        formula: String,
        /// What is wrong with it.
        error: ParseError,
    },
}

/// A database with its grammar and rules.
#[derive(Debug)]
pub struct Theory {
    database: Database,
    grammar: Grammar,
    formula: TypeId,
    rules: Vec<Rule>,
    rule_of: FxHashMap<StatementId, RuleId>,
    /// Variables that a statement from outside may use: alphanumeric names first, then in order of declaration.
    variables: Vec<(Symbol, TypeId, StatementId)>,
    type_of_variable: FxHashMap<Symbol, TypeId>,
    /// Floats of inner scopes: variable, type, its `$f` statement, the first statement behind its scope.
    local_floats: Vec<(Symbol, TypeId, StatementId, StatementId)>,
}

impl Theory {
    /// Reads a database file.
    ///
    /// # Errors
    /// A broken database, a grammar that is not supported, or a formula without exactly one tree.
    pub fn read(path: &Path) -> Result<Self, TheoryError> {
        Self::new(Database::read(path)?)
    }

    /// Makes a database ready.
    ///
    /// # Errors
    /// A grammar that is not supported, or a formula without exactly one tree.
    pub fn new(database: Database) -> Result<Self, TheoryError> {
        let grammar = Grammar::new(&database)?;
        let (Some(provable), Some(formula)) = (grammar.provable(), grammar.formula_type()) else {
            return Err(TheoryError::NoProvable);
        };
        let provable_ids: Vec<StatementId> = database
            .assertions()
            .filter(|(_, _, a)| {
                a.conclusion.typecode == provable
                    && database.essentials(a).all(|(_, e)| e.typecode == provable)
            })
            .map(|(id, _, _)| id)
            .collect();
        let rules: Vec<Rule> = provable_ids
            .par_iter()
            .map(|&id| read_rule(&database, &grammar, formula, id))
            .collect::<Result<_, _>>()?;
        let rule_of = rules.iter().enumerate().map(|(i, r)| (r.statement, RuleId(i as u32))).collect();
        let mut variables = Vec::new();
        for &id in database.global_floats() {
            if let crate::database::StatementKind::Floating { typecode, variable, .. } =
                database.statement(id).kind
                && let Some(t) = grammar.type_of(typecode)
            {
                variables.push((variable, t, id));
            }
        }
        // Names that read well are given out first: `F` before `.||`.
        variables.sort_by_key(|&(v, _, id)| {
            let plain = database.symbol_text(v).bytes().all(|b| b.is_ascii_alphanumeric());
            (!plain, id)
        });
        let mut local_floats = Vec::new();
        for (i, s) in database.statements().iter().enumerate() {
            if let crate::database::StatementKind::Floating { typecode, variable, until } = s.kind
                && until != StatementId(u32::MAX)
                && let Some(t) = grammar.type_of(typecode)
            {
                local_floats.push((variable, t, StatementId(i as u32), until));
            }
        }
        let type_of_variable = variables.iter().map(|&(v, t, _)| (v, t)).collect();
        Ok(Self { database, grammar, formula, rules, rule_of, variables, type_of_variable, local_floats })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Its grammar.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// The type of provable formulas.
    pub fn formula_type(&self) -> TypeId {
        self.formula
    }

    /// All rules in order: the assertions of which the conclusion and every `$e` are provable formulas.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// A rule by its id.
    pub fn rule(&self, id: RuleId) -> &Rule {
        &self.rules[id.0 as usize]
    }

    /// The rule of a label, if that is a provable assertion.
    pub fn find(&self, label: &str) -> Option<RuleId> {
        self.rule_of.get(&self.database.find(label)?).copied()
    }

    /// The rule of a statement, if that is a provable assertion.
    pub fn rule_of(&self, id: StatementId) -> Option<RuleId> {
        self.rule_of.get(&id).copied()
    }

    /// A rule's label.
    pub fn label(&self, id: RuleId) -> &str {
        &self.database.statement(self.rule(id).statement).label
    }

    /// Variables of the outermost scope: symbol, type, `$f` statement, in the order in which normal forms use them.
    pub fn variables(&self) -> &[(Symbol, TypeId, StatementId)] {
        &self.variables
    }

    /// Variables that a proof may use at a place of the database: symbol, type, `$f` statement.
    pub fn variables_at(
        &self,
        before: StatementId,
    ) -> impl Iterator<Item = (Symbol, TypeId, StatementId)> + '_ {
        let global = self.variables.iter().filter(move |v| v.2 < before).copied();
        let local = self.local_floats.iter().filter(move |f| f.2 < before && before < f.3);
        global.chain(local.map(|f| (f.0, f.1, f.2)))
    }

    /// Type of a variable of the outermost scope.
    pub fn type_of_variable(&self, symbol: Symbol) -> Option<TypeId> {
        self.type_of_variable.get(&symbol).copied()
    }

    /// A formula as text with the provable typecode in front.
    pub fn formula_text(&self, tree: &[Head]) -> String {
        let mut out = String::from("|-");
        self.push_text(tree, &mut out);
        out
    }

    /// Appends a tree's symbols, each after a space.
    pub fn push_text(&self, tree: &[Head], out: &mut String) {
        let mut symbols = Vec::new();
        self.grammar.unparse(tree, &mut symbols);
        for s in symbols {
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
) -> Result<Rule, TheoryError> {
    let Some(assertion) = database.assertion(id) else { return Err(TheoryError::NoProvable) };
    let variables: Box<[(Symbol, TypeId)]> = database
        .floats(assertion)
        .filter_map(|(_, typecode, v)| grammar.type_of(typecode).map(|t| (v, t)))
        .collect();
    let tree = |e: &Expression| {
        let type_of = |s: Symbol| variables.iter().find(|(v, _)| *v == s).map(|(_, t)| *t);
        grammar.parse(formula, &e.symbols, type_of).map_err(|error| TheoryError::Formula {
            place: database.place(id).to_string(),
            label: database.statement(id).label.to_string(),
            formula: database.expression_text(e),
            error,
        })
    };
    let hypotheses = database.essentials(assertion).map(|(_, e)| tree(e)).collect::<Result<_, _>>()?;
    let conclusion = tree(&assertion.conclusion)?;
    Ok(Rule { statement: id, variables, hypotheses, conclusion, distinct: assertion.distinct.clone() })
}
