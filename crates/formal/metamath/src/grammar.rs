//! The grammar defined by a database's syntax axioms, and a parser from formulas to trees.
//!
//! The parser is a memoised descent that finds all parses of a formula, so that it detects ambiguity. It supports direct
//! left recursion (postfix operators). A grammar with left recursion through several types is rejected.

use crate::database::{Assertion, Database, StatementId, StatementKind, Symbol};
use rustc_hash::FxHashMap;

/// A syntactic type: `wff`, `class`, `setvar`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u8);

/// A node of a tree in preorder: a production, whose arity the grammar knows, or a variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeNode(u32);

/// The two kinds of [`TreeNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeNodeKind {
    /// An inner node: an index into [`Grammar::productions`].
    Production(u32),
    /// A leaf.
    Variable(Symbol),
}

const VARIABLE: u32 = 1 << 31;

impl TreeNode {
    /// Creates a node of a production.
    pub fn production(index: u32) -> Self {
        Self(index)
    }

    /// Creates a leaf.
    pub fn variable(symbol: Symbol) -> Self {
        Self(symbol.0 | VARIABLE)
    }

    /// Returns the kind of the node.
    pub fn kind(self) -> TreeNodeKind {
        if self.0 & VARIABLE == 0 {
            TreeNodeKind::Production(self.0)
        } else {
            TreeNodeKind::Variable(Symbol(self.0 & !VARIABLE))
        }
    }

    /// Returns the variable of a leaf.
    pub fn as_variable(self) -> Option<Symbol> {
        match self.kind() {
            TreeNodeKind::Variable(symbol) => Some(symbol),
            TreeNodeKind::Production(_) => None,
        }
    }

    /// Returns the production of an inner node.
    pub fn as_production(self) -> Option<u32> {
        match self.kind() {
            TreeNodeKind::Production(index) => Some(index),
            TreeNodeKind::Variable(_) => None,
        }
    }
}

impl std::fmt::Debug for TreeNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind() {
            TreeNodeKind::Variable(symbol) => write!(f, "v{}", symbol.0),
            TreeNodeKind::Production(index) => write!(f, "p{index}"),
        }
    }
}

/// A formula or term as its nodes in preorder. Equal trees are equal slices.
pub type Tree = Box<[TreeNode]>;

/// A syntax axiom.
#[derive(Clone, Debug)]
pub struct Production {
    /// The syntax axiom.
    pub statement: StatementId,
    /// The type of the expressions that it builds.
    pub result: TypeId,
    /// Its constants and children in order.
    pub parts: Box<[SyntaxPart]>,
    /// Types of its children in order of appearance.
    pub children: Box<[TypeId]>,
    /// For each `$f` hypothesis in order, the index of its child.
    pub hypothesis_child: Box<[u8]>,
}

/// A part of a production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntaxPart {
    /// A constant.
    Constant(Symbol),
    /// An expression of this type.
    Child(TypeId),
}

/// Why a formula does not have exactly one parse tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum ParseError {
    #[error("does not parse: nothing fits at symbol {at}")]
    NoReading { at: usize },
    #[error("is ambiguous")]
    Ambiguous,
    #[error("has {length} symbols, more than {limit}")]
    TooLong { length: usize, limit: usize },
    #[error("is nested deeper than {0}")]
    TooDeep(usize),
    #[error("has too many partial readings")]
    TooHard,
}

/// Maximum length of a formula in symbols.
pub const MAX_FORMULA: usize = 16_384;
/// Maximum nesting depth of a formula.
pub const MAX_DEPTH: usize = 512;
/// A formula is ambiguous if the number of parses that begin at one symbol exceeds the number of symbols by more than this,
/// because two of them must then end at the same symbol.
const MAX_READINGS: usize = 32;
/// Maximum number of search steps per symbol of a formula. Formulas of set.mm need at most 5.
const STEPS_PER_SYMBOL: usize = 1_000;

#[derive(Clone, Debug, Default)]
struct TrieNode {
    constants: Vec<(Symbol, u32)>,
    types: Vec<(TypeId, u32)>,
    accept: Vec<u32>,
}

/// The grammar of a database.
#[derive(Clone, Debug, Default)]
pub struct Grammar {
    types: Vec<Symbol>,
    type_of: FxHashMap<Symbol, TypeId>,
    productions: Vec<Production>,
    trie: Vec<TrieNode>,
    /// For each type, the trie node where its productions begin.
    roots: Vec<u32>,
    /// For each type, the trie node that follows the first child of its left-recursive productions.
    left_roots: Vec<Option<u32>>,
}

impl Grammar {
    /// Extracts the grammar: every `$a` statement whose typecode is not `|-` is a production.
    ///
    /// # Errors
    /// Returns an error if a syntax axiom is empty, repeats a variable, has `$e` hypotheses, or causes left recursion
    /// through several types.
    pub fn new(database: &Database) -> Result<Self, String> {
        let provable = database.provable();
        let mut grammar = Self::default();
        for (index, statement) in database.statements().iter().enumerate() {
            let typecode = match &statement.kind {
                StatementKind::Floating { typecode, .. } => *typecode,
                StatementKind::Assertion(a) if !a.is_theorem() && Some(a.conclusion.typecode) != provable => {
                    a.conclusion.typecode
                }
                _ => continue,
            };
            let result = grammar.add_type(typecode, &statement.label)?;
            if let StatementKind::Assertion(assertion) = &statement.kind {
                grammar.add_production(database, StatementId(index as u32), assertion, result)?;
            }
        }
        grammar.check_cycles(database)?;
        Ok(grammar)
    }

    fn add_type(&mut self, typecode: Symbol, label: &str) -> Result<TypeId, String> {
        if let Some(&t) = self.type_of.get(&typecode) {
            return Ok(t);
        }
        let Ok(index) = u8::try_from(self.types.len()) else {
            return Err(format!("{label}: more than 256 typecodes"));
        };
        self.types.push(typecode);
        self.type_of.insert(typecode, TypeId(index));
        let root = self.new_node();
        self.roots.push(root);
        self.left_roots.push(None);
        Ok(TypeId(index))
    }

    fn new_node(&mut self) -> u32 {
        self.trie.push(TrieNode::default());
        self.trie.len() as u32 - 1
    }

    fn add_production(
        &mut self,
        database: &Database,
        id: StatementId,
        assertion: &Assertion,
        result: TypeId,
    ) -> Result<(), String> {
        let fail = |message: &str| Err(format!("{}: {message}", database.statement(id).label));
        if database.essentials(assertion).next().is_some() {
            return fail("a syntax axiom with a $e hypothesis is not supported");
        }
        let type_of: FxHashMap<Symbol, Symbol> = database.floats(assertion).map(|(_, t, v)| (v, t)).collect();
        let (mut parts, mut children, mut order) = (Vec::new(), Vec::new(), Vec::new());
        for &symbol in &assertion.conclusion.symbols {
            match type_of.get(&symbol) {
                Some(_) if order.contains(&symbol) => {
                    return fail("a syntax axiom that repeats a variable is not supported");
                }
                Some(&typecode) => {
                    let child = self.float_type(typecode);
                    parts.push(SyntaxPart::Child(child));
                    children.push(child);
                    order.push(symbol);
                }
                None => parts.push(SyntaxPart::Constant(symbol)),
            }
        }
        if parts.is_empty() {
            return fail("an empty syntax axiom is not supported");
        }
        if children.len() > 250 {
            return fail("a syntax axiom with more than 250 variables is not supported");
        }
        #[allow(clippy::expect_used, reason = "without $e, all mandatory variables are in the conclusion")]
        let child_of = |variable: Symbol| {
            let position = order.iter().position(|&v| v == variable);
            position.expect("invariant: a syntax axiom's mandatory variables are in its conclusion") as u8
        };
        let hypothesis_child = database.floats(assertion).map(|(_, _, v)| child_of(v)).collect();
        let number = self.productions.len() as u32;
        self.insert(result, &parts, number);
        self.productions.push(Production {
            statement: id,
            result,
            parts: parts.into(),
            children: children.into(),
            hypothesis_child,
        });
        Ok(())
    }

    fn insert(&mut self, result: TypeId, parts: &[SyntaxPart], number: u32) {
        let left = parts[0] == SyntaxPart::Child(result) && parts.len() > 1;
        let (mut node, rest) = if left {
            let root = self.left_roots[result.0 as usize].unwrap_or_else(|| self.new_node());
            self.left_roots[result.0 as usize] = Some(root);
            (root, &parts[1..])
        } else {
            (self.roots[result.0 as usize], parts)
        };
        for part in rest {
            let known = match part {
                SyntaxPart::Constant(s) => {
                    self.trie[node as usize].constants.iter().find(|(c, _)| c == s).map(|p| p.1)
                }
                SyntaxPart::Child(t) => {
                    self.trie[node as usize].types.iter().find(|(c, _)| c == t).map(|p| p.1)
                }
            };
            node = known.unwrap_or_else(|| {
                let next = self.new_node();
                match part {
                    SyntaxPart::Constant(s) => self.trie[node as usize].constants.push((*s, next)),
                    SyntaxPart::Child(t) => self.trie[node as usize].types.push((*t, next)),
                }
                next
            });
        }
        self.trie[node as usize].accept.push(number);
    }

    /// Rejects left recursion through several types, and productions whose only part is a child of the same type.
    fn check_cycles(&mut self, database: &Database) -> Result<(), String> {
        let cycle = |p: &Production| {
            let label = &database.statement(p.statement).label;
            Err(format!("{label}: left recursion through other types is not supported"))
        };
        let n = self.types.len();
        let mut reach = vec![vec![false; n]; n];
        for p in &self.productions {
            if let SyntaxPart::Child(t) = p.parts[0] {
                let own = t == p.result;
                if own && p.parts.len() == 1 {
                    return cycle(p);
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
                return cycle(p);
            }
        }
        for node in &mut self.trie {
            node.constants.sort_unstable();
        }
        Ok(())
    }

    /// Returns all productions; `TreeNode::production(i)` refers to `productions()[i]`.
    pub fn productions(&self) -> &[Production] {
        &self.productions
    }

    /// Returns the production of a syntax axiom.
    pub fn production_of(&self, id: StatementId) -> Option<u32> {
        self.productions.iter().position(|p| p.statement == id).map(|index| index as u32)
    }

    /// Returns the type of a typecode; `None` if no expression has this typecode.
    pub fn type_of(&self, typecode: Symbol) -> Option<TypeId> {
        self.type_of.get(&typecode).copied()
    }

    /// Returns the type of the typecode of a `$f` statement.
    #[allow(clippy::expect_used, reason = "`Grammar::new` adds the typecodes of all $f statements")]
    pub(crate) fn float_type(&self, typecode: Symbol) -> TypeId {
        self.type_of(typecode).expect("invariant: the typecode of every $f statement is a type")
    }

    /// Returns the number of children of a node.
    pub fn arity(&self, head: TreeNode) -> usize {
        head.as_production().map_or(0, |p| self.productions[p as usize].children.len())
    }

    /// Returns the end (exclusive) of the subtree that begins at `at`.
    pub fn subtree_end(&self, tree: &[TreeNode], at: usize) -> usize {
        let (mut at, mut open) = (at, 1usize);
        while open > 0 {
            open += self.arity(tree[at]);
            open -= 1;
            at += 1;
        }
        at
    }

    /// Returns the symbols of a tree.
    ///
    /// # Panics
    /// Panics if `tree` is not a complete tree of this grammar.
    #[allow(clippy::expect_used, reason = "an incomplete tree must not be mistaken for another formula")]
    pub fn unparse(&self, tree: &[TreeNode]) -> Vec<Symbol> {
        let mut out = Vec::new();
        let mut todo: Vec<&[SyntaxPart]> = vec![&[SyntaxPart::Child(TypeId(0))]];
        let mut heads = tree.iter();
        while let Some(parts) = todo.pop() {
            let Some((first, rest)) = parts.split_first() else { continue };
            todo.push(rest);
            match first {
                SyntaxPart::Constant(s) => out.push(*s),
                SyntaxPart::Child(_) => match heads.next().expect("invariant: a tree is complete").kind() {
                    TreeNodeKind::Production(p) => todo.push(&self.productions[p as usize].parts),
                    TreeNodeKind::Variable(symbol) => out.push(symbol),
                },
            }
        }
        out
    }

    /// Parses symbols as a tree of type `goal`. `type_of` returns the type of a variable.
    ///
    /// # Errors
    /// Returns an error if there is not exactly one parse or if a limit is exceeded.
    pub fn parse(
        &self,
        goal: TypeId,
        symbols: &[Symbol],
        type_of: impl Fn(Symbol) -> Option<TypeId>,
    ) -> Result<Tree, ParseError> {
        if symbols.len() > MAX_FORMULA {
            return Err(ParseError::TooLong { length: symbols.len(), limit: MAX_FORMULA });
        }
        if symbols.is_empty() {
            return Err(ParseError::NoReading { at: 0 });
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
            steps: symbols.len().saturating_mul(STEPS_PER_SYMBOL),
        };
        parser.readings(goal, 0)?;
        let readings = &parser.memo[parser.key(goal, 0)];
        let mut complete = readings.iter().filter(|reading| reading.end as usize == symbols.len());
        match (complete.next(), complete.next()) {
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

/// A parse of some symbols as one type.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The symbol after the last one.
    end: u32,
    node: u32,
}

/// The search for the parses of a type that begin at a symbol.
struct TypeSearch {
    result: TypeId,
    at: usize,
    found: Vec<Reading>,
    /// Number of `found` whose continuations have begun; `None` if the search has not begun.
    extended: Option<usize>,
    /// The children parsed so far.
    path: Vec<u32>,
    /// The trie nodes from the root to the current one.
    steps: Vec<SearchStep>,
}

struct SearchStep {
    node: u32,
    at: usize,
    /// Whether it follows a child, the last one of the path.
    of_child: bool,
    constant_done: bool,
    /// Which of the node's types is next, and which of the parses of that type.
    kind: usize,
    reading: usize,
}

struct Parser<'a> {
    grammar: &'a Grammar,
    symbols: &'a [Symbol],
    leaves: Vec<Option<TypeId>>,
    memo: Vec<Vec<Reading>>,
    done: Vec<bool>,
    /// Nodes of all parses: head, and position of the first child in `children`.
    nodes: Vec<(TreeNode, u32)>,
    children: Vec<u32>,
    furthest: usize,
    steps: usize,
}

impl Parser<'_> {
    fn key(&self, t: TypeId, at: usize) -> usize {
        at * self.grammar.types.len() + t.0 as usize
    }

    /// Finds all parses of type `t` that begin at a symbol. The searches in progress are on their own stack, because the
    /// depth depends on the formula and on the syntax axioms.
    fn readings(&mut self, t: TypeId, at: usize) -> Result<(), ParseError> {
        let mut searches = vec![self.search(t, at)];
        while let Some(search) = searches.last_mut() {
            if let Some((t, at)) = self.advance(search)? {
                if searches.len() >= MAX_DEPTH {
                    return Err(ParseError::TooDeep(MAX_DEPTH));
                }
                let inner = self.search(t, at);
                searches.push(inner);
            } else if !self.extend(search)? {
                let key = self.key(search.result, search.at);
                self.memo[key] = std::mem::take(&mut search.found);
                self.done[key] = true;
                searches.pop();
            }
        }
        Ok(())
    }

    fn search(&mut self, result: TypeId, at: usize) -> TypeSearch {
        let mut found = Vec::new();
        if self.leaves[at] == Some(result) {
            self.nodes.push((TreeNode::variable(self.symbols[at]), 0));
            found.push(Reading { end: at as u32 + 1, node: self.nodes.len() as u32 - 1 });
        }
        TypeSearch { result, at, found, extended: None, path: Vec::new(), steps: Vec::new() }
    }

    /// Begins the productions of a search, or those that continue its next parse on the left. Returns false if there are
    /// none.
    fn extend(&mut self, search: &mut TypeSearch) -> Result<bool, ParseError> {
        let (grammar, t) = (self.grammar, search.result.0 as usize);
        let Some(next) = search.extended else {
            search.extended = Some(0);
            let (root, at) = (grammar.roots[t], search.at);
            return self.enter(search, root, at, false).map(|()| true);
        };
        let (Some(left), Some(&first)) = (grammar.left_roots[t], search.found.get(next)) else {
            return Ok(false);
        };
        search.extended = Some(next + 1);
        search.path.push(first.node);
        self.enter(search, left, first.end as usize, true).map(|()| true)
    }

    /// Enters a trie node at a symbol: the productions that end there have a parse. `of_child` says whether the last child
    /// of the path leads there.
    fn enter(
        &mut self,
        search: &mut TypeSearch,
        node: u32,
        at: usize,
        of_child: bool,
    ) -> Result<(), ParseError> {
        self.steps = self.steps.checked_sub(1).ok_or(ParseError::TooHard)?;
        self.furthest = self.furthest.max(at);
        let grammar = self.grammar;
        for &production in &grammar.trie[node as usize].accept {
            if search.found.len() > self.symbols.len() + MAX_READINGS {
                return Err(ParseError::Ambiguous);
            }
            let first = self.children.len() as u32;
            self.children.extend(&search.path);
            self.nodes.push((TreeNode::production(production), first));
            search.found.push(Reading { end: at as u32, node: self.nodes.len() as u32 - 1 });
        }
        search.steps.push(SearchStep { node, at, of_child, constant_done: false, kind: 0, reading: 0 });
        Ok(())
    }

    /// Follows the productions of a search until all are done, or until it needs the parses of a type at a symbol, which it
    /// returns.
    fn advance(&mut self, search: &mut TypeSearch) -> Result<Option<(TypeId, usize)>, ParseError> {
        let grammar = self.grammar;
        while let Some(step) = search.steps.last_mut() {
            let (trie, at) = (&grammar.trie[step.node as usize], step.at);
            let symbol = self.symbols.get(at);
            if !std::mem::replace(&mut step.constant_done, true)
                && let Some(symbol) = symbol
                && let Ok(i) = trie.constants.binary_search_by_key(symbol, |c| c.0)
            {
                self.enter(search, trie.constants[i].1, at + 1, false)?;
                continue;
            }
            let Some((&(t, next), _)) = trie.types.get(step.kind).zip(symbol) else {
                if step.of_child {
                    search.path.pop();
                }
                search.steps.pop();
                continue;
            };
            let key = self.key(t, at);
            if !self.done[key] {
                return Ok(Some((t, at)));
            }
            if let Some(&reading) = self.memo[key].get(step.reading) {
                step.reading += 1;
                search.path.push(reading.node);
                self.enter(search, next, reading.end as usize, true)?;
            } else {
                (step.kind, step.reading) = (step.kind + 1, 0);
            }
        }
        Ok(None)
    }

    fn emit(&self, node: u32, out: &mut Vec<TreeNode>) {
        let mut todo = vec![node];
        while let Some(n) = todo.pop() {
            let (head, first) = self.nodes[n as usize];
            out.push(head);
            let arity = self.grammar.arity(head);
            todo.extend(self.children[first as usize..first as usize + arity].iter().rev());
        }
    }
}
