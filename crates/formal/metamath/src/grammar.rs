//! Formulas as trees: the grammar that a database's syntax axioms define, and a parser for it.
//!
//! The parser is a memoised descent that returns every reading of a formula, so that ambiguity is seen. Types
//! whose axioms begin with the type itself (postfix operators) are grown from their other readings; a cycle over
//! several types is refused when the grammar is made.

use crate::database::{Database, StatementId, StatementKind, Symbol};
use rustc_hash::FxHashMap;

/// A syntactic type: `wff`, `class`, `setvar`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u8);

/// A node of a tree in preorder: a syntax axiom (whose arity the grammar knows) or a variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Head(u32);

const VARIABLE: u32 = 1 << 31;

impl Head {
    /// A node of a production.
    pub fn production(index: u32) -> Self {
        Self(index)
    }

    /// A leaf.
    pub fn variable(symbol: Symbol) -> Self {
        Self(symbol.0 | VARIABLE)
    }

    /// The variable, if it is a leaf.
    pub fn as_variable(self) -> Option<Symbol> {
        (self.0 & VARIABLE != 0).then_some(Symbol(self.0 & !VARIABLE))
    }

    /// The production, if it is not a leaf.
    pub fn as_production(self) -> Option<u32> {
        (self.0 & VARIABLE == 0).then_some(self.0)
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.as_variable() {
            Some(v) => write!(f, "v{}", v.0),
            None => write!(f, "p{}", self.0),
        }
    }
}

/// A formula or term as its nodes in preorder. Equal trees are equal slices.
pub type Tree = Box<[Head]>;

/// One syntax axiom.
#[derive(Clone, Debug)]
pub struct Production {
    pub statement: StatementId,
    /// The type that it builds.
    pub result: TypeId,
    /// What it is made of.
    pub parts: Box<[Part]>,
    /// Types of its children in order of appearance.
    pub children: Box<[TypeId]>,
    /// For each `$f` hypothesis in order, the child that it stands for.
    pub hypothesis_child: Box<[u8]>,
}

/// A part of a syntax axiom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// This constant.
    Constant(Symbol),
    /// Anything of this type.
    Child(TypeId),
}

/// Why a formula has no tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No reading; `at` is how many symbols could be read at most.
    #[error("does not parse: nothing fits at symbol {at}")]
    NoReading {
        /// Index of the symbol, from 0, up to which some reading went.
        at: usize,
    },
    /// Two readings or more.
    #[error("is ambiguous")]
    Ambiguous,
    /// A variable without a type.
    #[error("variable number {0} has no type here")]
    Untyped(usize),
    /// Longer than the limit.
    #[error("has {length} symbols, more than {limit}")]
    TooLong { length: usize, limit: usize },
    /// Nested deeper than the limit.
    #[error("is nested deeper than {0}")]
    TooDeep(usize),
    /// The grammar allows so many partial readings that the search was given up.
    #[error("has too many partial readings")]
    TooHard,
}

/// Formulas longer than this are refused.
pub const MAX_FORMULA: usize = 16_384;
/// Formulas nested deeper than this are refused.
pub const MAX_DEPTH: usize = 512;
/// Readings that begin at one symbol may exceed the symbols of the formula by this many before the formula counts as
/// ambiguous. (More readings than symbols means that two of them end at the same one.)
const MAX_READINGS: usize = 32;
/// Calls that the parser may have open at once, so that they fit a thread's 2 MiB. No formula of set.mm needs more
/// than 110.
const MAX_FRAMES: usize = 4_096;
/// Search steps per symbol of a formula. No formula of set.mm needs more than 5.
const STEPS_PER_SYMBOL: usize = 1_000;

#[derive(Clone, Debug, Default)]
struct TrieNode {
    constants: Vec<(Symbol, u32)>,
    types: Vec<(TypeId, u32)>,
    accept: Vec<u32>,
}

/// The grammar of a database.
#[derive(Clone, Debug)]
pub struct Grammar {
    types: Vec<Symbol>,
    type_of: FxHashMap<Symbol, TypeId>,
    productions: Vec<Production>,
    production_of: FxHashMap<StatementId, u32>,
    trie: Vec<TrieNode>,
    /// Per type: where its productions begin, and where those begin that start with the type itself (after that
    /// first child).
    roots: Vec<u32>,
    left_roots: Vec<Option<u32>>,
    provable: Option<Symbol>,
    formula: Option<TypeId>,
}

/// A database whose syntax axioms are no grammar that the parser can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{label}: {message}")]
pub struct GrammarError {
    /// Label of the syntax axiom.
    pub label: String,
    pub message: String,
}

impl Grammar {
    /// Reads the grammar: every `$a` whose typecode is not the provable one (`|-`) is a production.
    ///
    /// # Errors
    /// A syntax axiom that is empty, repeats a variable, has `$e` hypotheses, or closes a cycle of first
    /// children over several types.
    pub fn new(database: &Database) -> Result<Self, GrammarError> {
        let provable = database.symbol("|-").filter(|&s| !database.is_variable(s));
        let mut grammar = Self {
            types: Vec::new(),
            type_of: FxHashMap::default(),
            productions: Vec::new(),
            production_of: FxHashMap::default(),
            trie: Vec::new(),
            roots: Vec::new(),
            left_roots: Vec::new(),
            provable,
            formula: None,
        };
        for (index, statement) in database.statements().iter().enumerate() {
            let typecode = match &statement.kind {
                StatementKind::Floating { typecode, .. } => *typecode,
                StatementKind::Assertion(a) if !a.is_theorem() && Some(a.conclusion.typecode) != provable => {
                    a.conclusion.typecode
                }
                _ => continue,
            };
            grammar.add_type(typecode, &statement.label)?;
            if let StatementKind::Assertion(_) = &statement.kind {
                grammar.add_production(database, StatementId(index as u32))?;
            }
        }
        grammar.formula = database.symbol("wff").and_then(|s| grammar.type_of.get(&s).copied());
        grammar.check_cycles(database)?;
        Ok(grammar)
    }

    fn add_type(&mut self, typecode: Symbol, label: &str) -> Result<TypeId, GrammarError> {
        if let Some(&t) = self.type_of.get(&typecode) {
            return Ok(t);
        }
        let Ok(index) = u8::try_from(self.types.len()) else {
            return Err(GrammarError {
                label: label.to_owned(),
                message: "more than 256 typecodes".to_owned(),
            });
        };
        self.types.push(typecode);
        self.type_of.insert(typecode, TypeId(index));
        self.trie.push(TrieNode::default());
        self.roots.push(self.trie.len() as u32 - 1);
        self.left_roots.push(None);
        Ok(TypeId(index))
    }

    fn add_production(&mut self, database: &Database, id: StatementId) -> Result<(), GrammarError> {
        let statement = database.statement(id);
        let fail = |message: &str| {
            Err(GrammarError { label: statement.label.to_string(), message: message.to_owned() })
        };
        let Some(assertion) = database.assertion(id) else { return Ok(()) };
        if database.essentials(assertion).next().is_some() {
            return fail("a syntax axiom with a $e hypothesis is not supported");
        }
        let type_of: FxHashMap<Symbol, Symbol> = database.floats(assertion).map(|(_, t, v)| (v, t)).collect();
        let (mut parts, mut children, mut order) = (Vec::new(), Vec::new(), Vec::new());
        for &symbol in &assertion.conclusion.symbols {
            match type_of.get(&symbol) {
                Some(t) if order.contains(&symbol) => {
                    let _ = t;
                    return fail("a syntax axiom that repeats a variable is not supported");
                }
                Some(t) => {
                    let child = self.type_of[t];
                    parts.push(Part::Child(child));
                    children.push(child);
                    order.push(symbol);
                }
                None => parts.push(Part::Constant(symbol)),
            }
        }
        if parts.is_empty() {
            return fail("an empty syntax axiom is not supported");
        }
        if children.len() > 250 {
            return fail("a syntax axiom with more than 250 variables is not supported");
        }
        let result = self.type_of[&assertion.conclusion.typecode];
        let hypothesis_child = database
            .floats(assertion)
            .filter_map(|(_, _, v)| order.iter().position(|&o| o == v).map(|p| p as u8))
            .collect();
        let number = self.productions.len() as u32;
        self.insert(result, &parts, number);
        self.production_of.insert(id, number);
        self.productions.push(Production {
            statement: id,
            result,
            parts: parts.into(),
            children: children.into(),
            hypothesis_child,
        });
        Ok(())
    }

    fn insert(&mut self, result: TypeId, parts: &[Part], number: u32) {
        let left = parts[0] == Part::Child(result) && parts.len() > 1;
        let (mut node, rest) = if left {
            let root = match self.left_roots[result.0 as usize] {
                Some(root) => root,
                None => {
                    self.trie.push(TrieNode::default());
                    let root = self.trie.len() as u32 - 1;
                    self.left_roots[result.0 as usize] = Some(root);
                    root
                }
            };
            (root, &parts[1..])
        } else {
            (self.roots[result.0 as usize], parts)
        };
        for part in rest {
            let known = match part {
                Part::Constant(s) => {
                    self.trie[node as usize].constants.iter().find(|(c, _)| c == s).map(|p| p.1)
                }
                Part::Child(t) => self.trie[node as usize].types.iter().find(|(c, _)| c == t).map(|p| p.1),
            };
            node = known.unwrap_or_else(|| {
                self.trie.push(TrieNode::default());
                let next = self.trie.len() as u32 - 1;
                match part {
                    Part::Constant(s) => self.trie[node as usize].constants.push((*s, next)),
                    Part::Child(t) => self.trie[node as usize].types.push((*t, next)),
                }
                next
            });
        }
        self.trie[node as usize].accept.push(number);
    }

    /// First children may lead from type to type, but not back.
    fn check_cycles(&mut self, database: &Database) -> Result<(), GrammarError> {
        let n = self.types.len();
        let mut reach = vec![vec![false; n]; n];
        for p in &self.productions {
            if let Part::Child(t) = p.parts[0] {
                let own = t == p.result;
                if own && p.parts.len() == 1 {
                    return Err(self.cycle_error(database, p));
                }
                reach[p.result.0 as usize][t.0 as usize] |= !own;
            }
        }
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    reach[i][j] |= reach[i][k] && reach[k][j];
                }
            }
        }
        for p in &self.productions {
            if reach[p.result.0 as usize][p.result.0 as usize] {
                return Err(self.cycle_error(database, p));
            }
        }
        for node in &mut self.trie {
            node.constants.sort_unstable();
        }
        Ok(())
    }

    fn cycle_error(&self, database: &Database, p: &Production) -> GrammarError {
        GrammarError {
            label: database.statement(p.statement).label.to_string(),
            message: "first symbols lead from its type back to it over other types; such a grammar is not supported"
                .to_owned(),
        }
    }

    /// The typecode of provable statements (`|-`), if the database has one.
    pub fn provable(&self) -> Option<Symbol> {
        self.provable
    }

    /// The type that follows the provable typecode (`wff`), if the database has one.
    pub fn formula_type(&self) -> Option<TypeId> {
        self.formula
    }

    /// All productions; `Head::production(i)` refers to `productions()[i]`.
    pub fn productions(&self) -> &[Production] {
        &self.productions
    }

    /// The production of a syntax axiom.
    pub fn production_of(&self, id: StatementId) -> Option<u32> {
        self.production_of.get(&id).copied()
    }

    /// The type of a typecode.
    pub fn type_of(&self, typecode: Symbol) -> Option<TypeId> {
        self.type_of.get(&typecode).copied()
    }

    /// The typecode of a type.
    pub fn typecode(&self, t: TypeId) -> Symbol {
        self.types[t.0 as usize]
    }

    /// Number of children of a node.
    pub fn arity(&self, head: Head) -> usize {
        head.as_production().map_or(0, |p| self.productions[p as usize].children.len())
    }

    /// Index behind the subtree that begins at `at`.
    pub fn subtree_end(&self, tree: &[Head], at: usize) -> usize {
        let (mut at, mut open) = (at, 1usize);
        while open > 0 {
            open += self.arity(tree[at]);
            open -= 1;
            at += 1;
        }
        at
    }

    /// Writes a tree back as symbols.
    pub fn unparse(&self, tree: &[Head], out: &mut Vec<Symbol>) {
        let mut todo: Vec<&[Part]> = vec![&[Part::Child(TypeId(0))]];
        let mut heads = tree.iter();
        while let Some(parts) = todo.pop() {
            let Some((first, rest)) = parts.split_first() else { continue };
            todo.push(rest);
            match first {
                Part::Constant(s) => out.push(*s),
                Part::Child(_) => {
                    let Some(head) = heads.next() else { return };
                    match head.as_production() {
                        Some(p) => todo.push(&self.productions[p as usize].parts),
                        None => out.extend(head.as_variable()),
                    }
                }
            }
        }
    }

    /// Parses symbols as one tree of type `goal`. `type_of` gives each variable's type.
    ///
    /// # Errors
    /// No reading, more than one, or past a limit.
    pub fn parse(
        &self,
        goal: TypeId,
        symbols: &[Symbol],
        type_of: impl Fn(Symbol) -> Option<TypeId>,
    ) -> Result<Tree, ParseError> {
        if symbols.len() > MAX_FORMULA {
            return Err(ParseError::TooLong { length: symbols.len(), limit: MAX_FORMULA });
        }
        let leaves = symbols.iter().map(|&s| type_of(s)).collect();
        let mut parser = Parser {
            grammar: self,
            symbols,
            leaves,
            memo: vec![Vec::new(); symbols.len() * self.types.len()],
            done: vec![false; symbols.len() * self.types.len()],
            nodes: Vec::new(),
            children: Vec::new(),
            furthest: 0,
            depth: 0,
            frames: 0,
            steps: symbols.len().saturating_mul(STEPS_PER_SYMBOL),
        };
        parser.readings(goal, 0)?;
        let mut whole = parser.memo.first().map_or_else(Vec::new, |_| {
            parser.memo[parser.key(goal, 0)]
                .iter()
                .filter(|r| r.end as usize == symbols.len())
                .copied()
                .collect()
        });
        match (whole.pop(), whole.pop()) {
            (Some(reading), None) => {
                let mut tree = Vec::new();
                parser.emit(reading.node, &mut tree);
                Ok(tree.into())
            }
            (Some(_), Some(_)) => Err(ParseError::Ambiguous),
            (None, _) => Err(ParseError::NoReading { at: parser.furthest }),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    end: u32,
    node: u32,
}

struct Parser<'a> {
    grammar: &'a Grammar,
    symbols: &'a [Symbol],
    leaves: Vec<Option<TypeId>>,
    memo: Vec<Vec<Reading>>,
    done: Vec<bool>,
    /// Nodes of all readings: head, first child in `children`.
    nodes: Vec<(Head, u32)>,
    children: Vec<u32>,
    furthest: usize,
    /// Readings that are being searched for, one inside of the other.
    depth: usize,
    /// Calls that are open.
    frames: usize,
    /// Steps that are left.
    steps: usize,
}

impl Parser<'_> {
    fn key(&self, t: TypeId, at: usize) -> usize {
        at * self.grammar.types.len() + t.0 as usize
    }

    fn readings(&mut self, t: TypeId, at: usize) -> Result<(), ParseError> {
        if at >= self.symbols.len() || self.done[self.key(t, at)] {
            return Ok(());
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ParseError::TooDeep(MAX_DEPTH));
        }
        let mut found = Vec::new();
        if self.leaves[at] == Some(t) {
            self.nodes.push((Head::variable(self.symbols[at]), 0));
            found.push(Reading { end: at as u32 + 1, node: self.nodes.len() as u32 - 1 });
        }
        let mut path = Vec::new();
        self.descend(self.grammar.roots[t.0 as usize], at, &mut path, &mut found)?;
        if let Some(left) = self.grammar.left_roots[t.0 as usize] {
            let mut next = 0;
            while next < found.len() {
                let first = found[next];
                let mut path = vec![first.node];
                self.descend(left, first.end as usize, &mut path, &mut found)?;
                next += 1;
            }
        }
        let key = self.key(t, at);
        self.memo[key] = found;
        self.done[key] = true;
        self.depth -= 1;
        Ok(())
    }

    /// Follows the productions from a trie node at a place; `path` holds the children so far.
    fn descend(
        &mut self,
        node: u32,
        at: usize,
        path: &mut Vec<u32>,
        found: &mut Vec<Reading>,
    ) -> Result<(), ParseError> {
        self.steps = self.steps.checked_sub(1).ok_or(ParseError::TooHard)?;
        self.frames += 1;
        if self.frames > MAX_FRAMES {
            return Err(ParseError::TooDeep(MAX_DEPTH));
        }
        let grammar = self.grammar;
        let trie = &grammar.trie[node as usize];
        self.furthest = self.furthest.max(at);
        for &production in &trie.accept {
            if found.len() > self.symbols.len() + MAX_READINGS {
                return Err(ParseError::Ambiguous);
            }
            let first = self.children.len() as u32;
            self.children.extend(path.iter());
            self.nodes.push((Head::production(production), first));
            found.push(Reading { end: at as u32, node: self.nodes.len() as u32 - 1 });
        }
        let Some(&symbol) = self.symbols.get(at) else {
            self.frames -= 1;
            return Ok(());
        };
        if let Ok(i) = trie.constants.binary_search_by_key(&symbol, |c| c.0) {
            self.descend(trie.constants[i].1, at + 1, path, found)?;
        }
        for &(t, next) in &trie.types {
            self.readings(t, at)?;
            let key = self.key(t, at);
            for i in 0..self.memo[key].len() {
                let reading = self.memo[key][i];
                path.push(reading.node);
                self.descend(next, reading.end as usize, path, found)?;
                path.pop();
            }
        }
        self.frames -= 1;
        Ok(())
    }

    fn emit(&self, node: u32, out: &mut Vec<Head>) {
        let mut todo = vec![node];
        while let Some(n) = todo.pop() {
            let (head, first) = self.nodes[n as usize];
            out.push(head);
            let arity = self.grammar.arity(head);
            todo.extend(self.children[first as usize..first as usize + arity].iter().rev());
        }
    }
}
