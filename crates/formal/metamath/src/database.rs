//! A parsed Metamath database: symbols, hypotheses, assertions with their frames, and proofs as text.
//!
//! The parser accepts the whole language of the Metamath book (§4.1-4.2) and rejects everything else with its location.

use crate::source::{DatabaseError, SourceFile, is_label, is_symbol, next_token};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A math symbol: an index into the database's symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub u32);

/// Identifies a labelled statement by its index in order of appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatementId(pub u32);

/// An unordered pair of variables that must be distinct, smaller symbol first.
pub type Distinct = (Symbol, Symbol);

/// Creates a pair of distinct variables.
pub fn distinct(a: Symbol, b: Symbol) -> Distinct {
    if a <= b { (a, b) } else { (b, a) }
}

/// A typecode followed by symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// The first constant, such as `|-` or `wff`.
    pub typecode: Symbol,
    /// The symbols after the typecode.
    pub symbols: Box<[Symbol]>,
}

/// A labelled statement.
#[derive(Clone, Debug)]
pub struct LabelledStatement {
    /// The label.
    pub label: Arc<str>,
    /// The kind of the statement and its content.
    pub kind: StatementKind,
    /// File number, and byte offset of the label.
    place: (u32, u32),
}

/// The four kinds of labelled statements.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the text of a variant names its fields")]
pub enum StatementKind {
    /// `$f`: declares the type of a variable. `until` is the first statement after its scope; `u32::MAX` in the outermost
    /// scope.
    Floating { typecode: Symbol, variable: Symbol, until: StatementId },
    /// `$e`: a hypothesis.
    Essential(Expression),
    /// `$a` or `$p`: an axiom or theorem.
    Assertion(Box<Assertion>),
}

/// An axiom or theorem with its frame.
#[derive(Clone, Debug)]
pub struct Assertion {
    /// The asserted expression.
    pub conclusion: Expression,
    /// Mandatory hypotheses (`$f` and `$e`) in order of appearance.
    pub hypotheses: Box<[StatementId]>,
    /// `$d` pairs of mandatory variables, sorted.
    pub distinct: Box<[Distinct]>,
    /// `$d` pairs with at least one variable that is not mandatory, sorted. Only the assertion's own proof may use them.
    pub dummy_distinct: Box<[Distinct]>,
    /// File number and byte range of the proof, for `$p`.
    proof: Option<(u32, Range<u32>)>,
    /// File number and byte range of the comment just before the assertion.
    comment: Option<(u32, Range<u32>)>,
}

impl Assertion {
    /// Returns whether the assertion is a theorem (`$p`).
    pub fn is_theorem(&self) -> bool {
        self.proof.is_some()
    }
}

/// A parsed Metamath database.
#[derive(Clone, Debug, Default)]
pub struct Database {
    sources: Vec<SourceFile>,
    symbols: Vec<Arc<str>>,
    is_variable: Vec<bool>,
    symbol_of: FxHashMap<Arc<str>, Symbol>,
    statements: Vec<LabelledStatement>,
    statement_of: FxHashMap<Arc<str>, StatementId>,
    global_floats: Vec<StatementId>,
    global_variables: FxHashSet<Symbol>,
    global_essential: Option<StatementId>,
    inclusions: Vec<Inclusion>,
}

/// An inclusion `$[ … $]`: its location, and the number of the included file unless it was included before.
#[derive(Clone, Debug)]
struct Inclusion {
    file: u32,
    range: Range<usize>,
    included: Option<u32>,
}

impl Database {
    /// Parses a file and the files that it includes.
    pub fn read(path: &Path) -> Result<Self, DatabaseError> {
        let source = SourceFile::read(path)?;
        let folder = path.parent().map(Path::to_owned);
        DatabaseParser { folder, ..DatabaseParser::default() }.run(source)
    }

    /// Parses a database from memory. Messages use `name` as the file name. Inclusions are rejected.
    pub fn parse(name: &str, text: impl Into<Arc<[u8]>>) -> Result<Self, DatabaseError> {
        DatabaseParser::default().run(SourceFile { name: name.into(), bytes: text.into() })
    }

    /// Returns all labelled statements in order.
    pub fn statements(&self) -> &[LabelledStatement] {
        &self.statements
    }

    /// Returns a statement of this database.
    pub fn statement(&self, id: StatementId) -> &LabelledStatement {
        &self.statements[id.0 as usize]
    }

    /// Finds a statement by its label.
    pub fn find(&self, label: &str) -> Option<StatementId> {
        self.statement_of.get(label).copied()
    }

    /// Returns the typecode of provable statements (`|-`), if the database has one.
    pub(crate) fn provable(&self) -> Option<Symbol> {
        self.symbol("|-").filter(|&s| !self.is_variable(s))
    }

    /// Finds a symbol by its text.
    pub fn symbol(&self, text: &str) -> Option<Symbol> {
        self.symbol_of.get(text).copied()
    }

    /// Returns the text of a symbol.
    pub fn symbol_text(&self, symbol: Symbol) -> &str {
        &self.symbols[symbol.0 as usize]
    }

    /// Returns whether a symbol is a variable (in any scope) rather than a constant.
    pub fn is_variable(&self, symbol: Symbol) -> bool {
        self.is_variable[symbol.0 as usize]
    }

    /// Returns the number of symbols. Symbols are numbered `0..symbol_count()`.
    pub fn symbol_count(&self) -> usize {
        self.symbols.len()
    }

    /// Returns the `$f` statements of the outermost scope in order. They declare the variables that new statements may use.
    pub fn global_floats(&self) -> &[StatementId] {
        &self.global_floats
    }

    /// Returns whether a variable is declared in the outermost scope.
    pub fn is_global_variable(&self, symbol: Symbol) -> bool {
        self.global_variables.contains(&symbol)
    }

    /// Returns a `$e` statement of the outermost scope, if there is one. It would be a hypothesis of every appended theorem.
    pub fn global_essential(&self) -> Option<StatementId> {
        self.global_essential
    }

    /// Returns the text of the database, with inclusions replaced by the included files.
    pub fn text(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.sources.iter().map(|s| s.bytes.len() + 1).sum());
        // Files being written: their number, and the byte at which to continue.
        let mut open = vec![(0u32, 0usize)];
        while let Some((file, from)) = open.pop() {
            let source = &self.sources[file as usize];
            let next = self.inclusions.iter().find(|i| i.file == file && i.range.start >= from);
            match next {
                Some(inclusion) => {
                    out.extend_from_slice(&source.bytes[from..inclusion.range.start]);
                    open.push((file, inclusion.range.end));
                    open.extend(inclusion.included.map(|i| (i, 0)));
                }
                None => {
                    out.extend_from_slice(&source.bytes[from..]);
                    out.push(b'\n');
                }
            }
        }
        out
    }

    /// Returns all assertions in order.
    pub fn assertions(&self) -> impl Iterator<Item = (StatementId, &LabelledStatement, &Assertion)> {
        self.statements.iter().enumerate().filter_map(|(i, s)| match &s.kind {
            StatementKind::Assertion(a) => Some((StatementId(i as u32), s, &**a)),
            _ => None,
        })
    }

    /// Returns a statement as an assertion; `None` for `$f` and `$e`.
    pub fn assertion(&self, id: StatementId) -> Option<&Assertion> {
        match &self.statement(id).kind {
            StatementKind::Assertion(a) => Some(a),
            _ => None,
        }
    }

    /// Returns the `$e` hypotheses of an assertion in order.
    pub fn essentials<'a>(
        &'a self,
        assertion: &'a Assertion,
    ) -> impl Iterator<Item = (StatementId, &'a Expression)> {
        assertion.hypotheses.iter().filter_map(|&h| match &self.statement(h).kind {
            StatementKind::Essential(e) => Some((h, e)),
            _ => None,
        })
    }

    /// Returns the `$f` hypotheses of an assertion in order, as (id, typecode, variable).
    pub fn floats<'a>(
        &'a self,
        assertion: &'a Assertion,
    ) -> impl Iterator<Item = (StatementId, Symbol, Symbol)> + 'a {
        assertion.hypotheses.iter().filter_map(|&h| match &self.statement(h).kind {
            StatementKind::Floating { typecode, variable, .. } => Some((h, *typecode, *variable)),
            _ => None,
        })
    }

    /// Returns the text of a theorem's proof, including comments; `None` for axioms.
    pub fn proof_text(&self, assertion: &Assertion) -> Option<&[u8]> {
        assertion.proof.as_ref().map(|part| self.part(part))
    }

    /// Returns the comment just before an assertion, without its delimiters.
    pub fn comment(&self, assertion: &Assertion) -> Option<String> {
        assertion.comment.as_ref().map(|part| String::from_utf8_lossy(self.part(part)).into_owned())
    }

    fn part(&self, (file, range): &(u32, Range<u32>)) -> &[u8] {
        &self.sources[*file as usize].bytes[range.start as usize..range.end as usize]
    }

    /// Returns the location of a statement: file, line and column.
    pub fn place(&self, id: StatementId) -> String {
        let (file, offset) = self.statement(id).place;
        self.sources[file as usize].place(offset as usize)
    }

    /// Returns the byte offset of a statement's label in the first file; `None` if it is in an included file.
    pub fn offset(&self, id: StatementId) -> Option<usize> {
        let (file, offset) = self.statement(id).place;
        (file == 0).then_some(offset as usize)
    }

    /// Formats an expression, typecode first.
    pub fn expression_text(&self, e: &Expression) -> String {
        let mut out = String::from(self.symbol_text(e.typecode));
        for &s in &e.symbols {
            out.push(' ');
            out.push_str(self.symbol_text(s));
        }
        out
    }
}

/// The lengths of the parser's lists at a `${`, which the matching `$}` restores.
#[derive(Clone, Copy)]
struct Scope {
    variables: usize,
    floats: usize,
    essentials: usize,
    distinct: usize,
}

#[derive(Default)]
struct DatabaseParser {
    folder: Option<PathBuf>,
    database: Database,
    included: FxHashSet<PathBuf>,
    scopes: Vec<(Scope, (u32, usize))>,
    /// Active variables in order of declaration.
    variables: Vec<Symbol>,
    active_variable: FxHashSet<Symbol>,
    floats: Vec<StatementId>,
    float_of: FxHashMap<Symbol, StatementId>,
    essentials: Vec<StatementId>,
    distinct: Vec<Distinct>,
    /// Pairs of distinct variables and symbols of hypotheses that the assertions so far have inherited from their scopes.
    inherited: usize,
    comment: Option<(u32, Range<u32>)>,
}

/// Maximum of `DatabaseParser::inherited`, which can grow quadratically with the file. In the shipped slice it is 252,049.
const MAX_INHERITED: usize = 1 << 26;

/// A file being parsed: its number, and the byte at which to continue.
struct FileCursor {
    file: u32,
    source: SourceFile,
    at: usize,
}

impl FileCursor {
    fn error(&self, offset: usize, message: impl Into<String>) -> DatabaseError {
        self.source.error(offset, message)
    }
}

impl DatabaseParser {
    fn run(mut self, source: SourceFile) -> Result<Database, DatabaseError> {
        let mut files = vec![self.open(source)?];
        while let Some(cursor) = files.last_mut() {
            let Some((start, end)) = next_token(&cursor.source.bytes, cursor.at) else {
                if let Some((_, (file, open))) = self.scopes.last()
                    && (files.len() == 1)
                {
                    return Err(self.database.sources[*file as usize].error(*open, "this ${ is never closed"));
                }
                files.pop();
                continue;
            };
            cursor.at = end;
            let bytes = cursor.source.bytes.clone();
            match &bytes[start..end] {
                b"$(" => {
                    let text = end as u32..comment_end(cursor, start)? as u32;
                    self.comment = Some((cursor.file, text));
                }
                b"$[" => {
                    if let Some(next) = self.include(cursor, start)? {
                        files.push(next);
                    }
                }
                b"${" => self.scopes.push((
                    Scope {
                        variables: self.variables.len(),
                        floats: self.floats.len(),
                        essentials: self.essentials.len(),
                        distinct: self.distinct.len(),
                    },
                    (cursor.file, start),
                )),
                b"$}" => self.close_scope(cursor, start)?,
                b"$c" => self.constants(cursor, start)?,
                b"$v" => self.declare_variables(cursor, start)?,
                b"$d" => self.declare_distinct(cursor, start)?,
                label if label.first() != Some(&b'$') => self.labelled(cursor, start, end)?,
                other => {
                    let shown = String::from_utf8_lossy(other).into_owned();
                    return Err(cursor.error(start, format!("unexpected `{shown}` between statements")));
                }
            }
        }
        self.database.global_floats = self.floats;
        self.database.global_variables = self.active_variable;
        self.database.global_essential = self.essentials.first().copied();
        Ok(self.database)
    }

    fn open(&mut self, source: SourceFile) -> Result<FileCursor, DatabaseError> {
        if source.bytes.len() > u32::MAX as usize / 2 {
            return Err(source.error(0, "the file is larger than 2 GiB"));
        }
        let file = self.database.sources.len() as u32;
        self.database.sources.push(source.clone());
        Ok(FileCursor { file, source, at: 0 })
    }

    fn include(
        &mut self,
        cursor: &mut FileCursor,
        start: usize,
    ) -> Result<Option<FileCursor>, DatabaseError> {
        let Some((name_start, name_end)) = next_token(&cursor.source.bytes, cursor.at) else {
            return Err(cursor.error(start, "$[ without a file name"));
        };
        let close = next_token(&cursor.source.bytes, name_end);
        let name = String::from_utf8_lossy(&cursor.source.bytes[name_start..name_end]).into_owned();
        match close {
            Some((s, e)) if &cursor.source.bytes[s..e] == b"$]" => cursor.at = e,
            _ => return Err(cursor.error(start, format!("the inclusion of `{name}` is not closed by $]"))),
        }
        let Some(folder) = &self.folder else {
            return Err(cursor.error(start, format!("`{name}` cannot be included: this text has no folder")));
        };
        let relative = Path::new(&name);
        let leaves = relative.components().any(|c| !matches!(c, std::path::Component::Normal(_)));
        if leaves {
            return Err(cursor.error(start, format!("`{name}` is outside of the database's folder")));
        }
        let mut inclusion = Inclusion { file: cursor.file, range: start..cursor.at, included: None };
        if !self.included.insert(relative.to_owned()) {
            self.database.inclusions.push(inclusion);
            return Ok(None);
        }
        if self.included.len() > 10_000 {
            return Err(cursor.error(start, "more than 10,000 included files"));
        }
        let opened = self.open(SourceFile::read_included(&folder.join(relative))?)?;
        inclusion.included = Some(opened.file);
        self.database.inclusions.push(inclusion);
        Ok(Some(opened))
    }

    fn close_scope(&mut self, cursor: &FileCursor, start: usize) -> Result<(), DatabaseError> {
        let Some((scope, _)) = self.scopes.pop() else {
            return Err(cursor.error(start, "$} without an open ${"));
        };
        for v in self.variables.drain(scope.variables..) {
            self.active_variable.remove(&v);
        }
        for f in self.floats.drain(scope.floats..) {
            let end = StatementId(self.database.statements.len() as u32);
            match &mut self.database.statements[f.0 as usize].kind {
                StatementKind::Floating { variable, until, .. } => {
                    *until = end;
                    self.float_of.remove(variable);
                }
                _ => unreachable!("invariant: `floats` contains only $f statements"),
            }
        }
        self.essentials.truncate(scope.essentials);
        self.distinct.truncate(scope.distinct);
        Ok(())
    }

    fn constants(&mut self, cursor: &mut FileCursor, start: usize) -> Result<(), DatabaseError> {
        if !self.scopes.is_empty() {
            return Err(cursor.error(start, "$c inside of ${ … $}"));
        }
        let tokens = tokens_until(cursor, start, b"$.")?;
        if tokens.is_empty() {
            return Err(cursor.error(start, "$c declares nothing"));
        }
        for range in tokens {
            let at = range.start;
            let text = symbol_token(cursor, range)?;
            if self.database.symbol_of.contains_key(text.as_str()) {
                return Err(cursor.error(at, format!("symbol `{text}` is declared twice")));
            }
            self.intern(&text, false);
        }
        Ok(())
    }

    fn intern(&mut self, text: &str, variable: bool) -> Symbol {
        let symbol = Symbol(self.database.symbols.len() as u32);
        let text: Arc<str> = text.into();
        self.database.symbols.push(text.clone());
        self.database.is_variable.push(variable);
        self.database.symbol_of.insert(text, symbol);
        symbol
    }

    fn declare_variables(&mut self, cursor: &mut FileCursor, start: usize) -> Result<(), DatabaseError> {
        let tokens = tokens_until(cursor, start, b"$.")?;
        if tokens.is_empty() {
            return Err(cursor.error(start, "$v declares nothing"));
        }
        for range in tokens {
            let at = range.start;
            let text = symbol_token(cursor, range)?;
            let symbol = match self.database.symbol_of.get(text.as_str()) {
                Some(&s) if !self.database.is_variable[s.0 as usize] => {
                    return Err(cursor.error(at, format!("`{text}` is already declared as a constant")));
                }
                Some(&s) => s,
                None => self.intern(&text, true),
            };
            if !self.active_variable.insert(symbol) {
                return Err(cursor.error(at, format!("variable `{text}` is declared twice in its scope")));
            }
            self.variables.push(symbol);
        }
        Ok(())
    }

    fn declare_distinct(&mut self, cursor: &mut FileCursor, start: usize) -> Result<(), DatabaseError> {
        let tokens = tokens_until(cursor, start, b"$.")?;
        if tokens.len() < 2 {
            return Err(cursor.error(start, "$d needs at least two variables"));
        }
        self.inherit(cursor, start, tokens.len().saturating_mul(tokens.len() - 1) / 2)?;
        let mut variables = Vec::new();
        let mut seen = FxHashSet::default();
        for range in tokens {
            let at = range.start;
            let symbol = self.known_symbol(cursor, range)?;
            if !self.active_variable.contains(&symbol) {
                let text = self.database.symbol_text(symbol);
                return Err(cursor.error(at, format!("`{text}` in $d is not an active variable")));
            }
            if !seen.insert(symbol) {
                let text = self.database.symbol_text(symbol);
                return Err(cursor.error(at, format!("`{text}` occurs twice in one $d")));
            }
            variables.push(symbol);
        }
        for (i, &a) in variables.iter().enumerate() {
            for &b in &variables[i + 1..] {
                self.distinct.push(distinct(a, b));
            }
        }
        Ok(())
    }

    /// Counts pairs and symbols that are copied.
    fn inherit(&mut self, cursor: &FileCursor, start: usize, more: usize) -> Result<(), DatabaseError> {
        self.inherited = self.inherited.saturating_add(more);
        if self.inherited > MAX_INHERITED {
            return Err(cursor.error(start, "the scopes hold too many $d pairs and hypotheses"));
        }
        Ok(())
    }

    fn known_symbol(&self, cursor: &FileCursor, range: Range<usize>) -> Result<Symbol, DatabaseError> {
        let at = range.start;
        let text = symbol_token(cursor, range)?;
        match self.database.symbol_of.get(text.as_str()) {
            Some(&s) => Ok(s),
            None => Err(cursor.error(at, format!("symbol `{text}` is not declared"))),
        }
    }

    fn labelled(&mut self, cursor: &mut FileCursor, start: usize, end: usize) -> Result<(), DatabaseError> {
        let label_bytes = cursor.source.bytes[start..end].to_vec();
        let label = String::from_utf8_lossy(&label_bytes).into_owned();
        if !is_label(&label_bytes) {
            return Err(
                cursor.error(start, format!("`{label}` is not a label (letters, digits, - _ . only)"))
            );
        }
        let Some((ks, ke)) = next_token_without_comments(cursor)? else {
            return Err(cursor.error(start, format!("the file ends after label `{label}`")));
        };
        let keyword = cursor.source.bytes[ks..ke].to_vec();
        cursor.at = ke;
        if self.database.statement_of.contains_key(label.as_str()) {
            return Err(cursor.error(start, format!("label `{label}` is used twice")));
        }
        let comment = self.comment.take();
        if matches!(keyword.as_slice(), b"$a" | b"$p") {
            let essentials = self.essentials.iter().map(|&e| match &self.database.statement(e).kind {
                StatementKind::Essential(e) => 1 + e.symbols.len(),
                _ => 0,
            });
            let more = self.distinct.len() + essentials.sum::<usize>();
            self.inherit(cursor, start, more)?;
        }
        let kind = match keyword.as_slice() {
            b"$f" => self.floating(cursor, start)?,
            b"$e" => {
                let tokens = tokens_until(cursor, start, b"$.")?;
                StatementKind::Essential(self.expression(cursor, start, tokens)?)
            }
            b"$a" => {
                let tokens = tokens_until(cursor, start, b"$.")?;
                let conclusion = self.expression(cursor, start, tokens)?;
                self.assertion(conclusion, None, comment)
            }
            b"$p" => {
                let tokens = tokens_until(cursor, start, b"$=")?;
                let conclusion = self.expression(cursor, start, tokens)?;
                let from = cursor.at;
                let to = proof_end(cursor, start)?;
                self.assertion(conclusion, Some((cursor.file, from as u32..to as u32)), comment)
            }
            other => {
                let shown = String::from_utf8_lossy(other).into_owned();
                return Err(
                    cursor.error(ks, format!("`{shown}` after label `{label}`: expected $f, $e, $a or $p"))
                );
            }
        };
        let id = StatementId(self.database.statements.len() as u32);
        match &kind {
            StatementKind::Floating { variable, .. } => {
                self.floats.push(id);
                self.float_of.insert(*variable, id);
            }
            StatementKind::Essential(_) => self.essentials.push(id),
            StatementKind::Assertion(_) => {}
        }
        let label: Arc<str> = label.into();
        self.database.statement_of.insert(label.clone(), id);
        self.database.statements.push(LabelledStatement { label, kind, place: (cursor.file, start as u32) });
        Ok(())
    }

    fn floating(&mut self, cursor: &mut FileCursor, start: usize) -> Result<StatementKind, DatabaseError> {
        let tokens = tokens_until(cursor, start, b"$.")?;
        let [t, v] = tokens.as_slice() else {
            return Err(cursor.error(start, "$f needs exactly a typecode and a variable"));
        };
        let typecode = self.known_symbol(cursor, t.clone())?;
        let variable = self.known_symbol(cursor, v.clone())?;
        if self.database.is_variable(typecode) {
            return Err(cursor.error(t.start, "the typecode of $f must be a constant"));
        }
        if !self.active_variable.contains(&variable) {
            return Err(cursor.error(v.start, "the second symbol of $f must be an active variable"));
        }
        if self.float_of.contains_key(&variable) {
            let text = self.database.symbol_text(variable);
            return Err(cursor.error(v.start, format!("variable `{text}` already has an active $f")));
        }
        Ok(StatementKind::Floating { typecode, variable, until: StatementId(u32::MAX) })
    }

    fn expression(
        &self,
        cursor: &FileCursor,
        start: usize,
        tokens: Vec<Range<usize>>,
    ) -> Result<Expression, DatabaseError> {
        let mut symbols = Vec::with_capacity(tokens.len());
        for range in tokens {
            let at = range.start;
            let symbol = self.known_symbol(cursor, range)?;
            if self.database.is_variable(symbol) && !self.float_of.contains_key(&symbol) {
                let text = self.database.symbol_text(symbol);
                return Err(cursor.error(at, format!("variable `{text}` has no active $f")));
            }
            symbols.push(symbol);
        }
        match symbols.split_first() {
            Some((&typecode, rest)) if !self.database.is_variable(typecode) => {
                Ok(Expression { typecode, symbols: rest.into() })
            }
            Some(_) => Err(cursor.error(start, "the statement does not begin with a constant")),
            None => Err(cursor.error(start, "the statement is empty")),
        }
    }

    fn assertion(
        &self,
        conclusion: Expression,
        proof: Option<(u32, Range<u32>)>,
        comment: Option<(u32, Range<u32>)>,
    ) -> StatementKind {
        let mut mandatory = FxHashSet::default();
        let mut collect = |e: &Expression| {
            mandatory.extend(e.symbols.iter().copied().filter(|&s| self.database.is_variable(s)));
        };
        collect(&conclusion);
        for &e in &self.essentials {
            match &self.database.statement(e).kind {
                StatementKind::Essential(e) => collect(e),
                _ => unreachable!("invariant: `essentials` contains only $e statements"),
            }
        }
        // `expression` has checked that every variable has an active $f.
        let mut hypotheses: Vec<StatementId> = mandatory.iter().map(|v| self.float_of[v]).collect();
        hypotheses.extend(&self.essentials);
        hypotheses.sort_unstable();
        let mut pairs = self.distinct.clone();
        pairs.sort_unstable();
        pairs.dedup();
        let (own, dummy): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|(a, b)| mandatory.contains(a) && mandatory.contains(b));
        StatementKind::Assertion(Box::new(Assertion {
            conclusion,
            hypotheses: hypotheses.into(),
            distinct: own.into(),
            dummy_distinct: if proof.is_some() { dummy.into() } else { Box::default() },
            proof,
            comment,
        }))
    }
}

/// Moves the cursor past the `$)` of a comment that begins at `start`. Returns the end of the comment's text.
fn comment_end(cursor: &mut FileCursor, start: usize) -> Result<usize, DatabaseError> {
    while let Some((s, e)) = next_token(&cursor.source.bytes, cursor.at) {
        cursor.at = e;
        match &cursor.source.bytes[s..e] {
            b"$)" => return Ok(s),
            b"$(" => return Err(cursor.error(s, "a comment begins inside of a comment")),
            _ => {}
        }
    }
    Err(cursor.error(start, "this comment is never closed"))
}

fn next_token_without_comments(cursor: &mut FileCursor) -> Result<Option<(usize, usize)>, DatabaseError> {
    while let Some((s, e)) = next_token(&cursor.source.bytes, cursor.at) {
        if &cursor.source.bytes[s..e] != b"$(" {
            return Ok(Some((s, e)));
        }
        cursor.at = e;
        comment_end(cursor, s)?;
    }
    Ok(None)
}

/// Returns the tokens before a closing keyword, without comments, and moves the cursor past the keyword.
fn tokens_until(
    cursor: &mut FileCursor,
    start: usize,
    close: &[u8],
) -> Result<Vec<Range<usize>>, DatabaseError> {
    let mut tokens = Vec::new();
    while let Some((s, e)) = next_token_without_comments(cursor)? {
        cursor.at = e;
        let token = &cursor.source.bytes[s..e];
        if token == close {
            return Ok(tokens);
        }
        if token.first() == Some(&b'$') {
            let (got, want) = (String::from_utf8_lossy(token), String::from_utf8_lossy(close));
            return Err(cursor.error(s, format!("`{got}` where `{want}` should end the statement")));
        }
        tokens.push(s..e);
    }
    Err(cursor.error(start, format!("this statement is never closed by {}", String::from_utf8_lossy(close))))
}

/// Moves the cursor past the `$.` of a proof. Returns the end of the proof's text.
fn proof_end(cursor: &mut FileCursor, start: usize) -> Result<usize, DatabaseError> {
    while let Some((s, e)) = next_token_without_comments(cursor)? {
        cursor.at = e;
        match &cursor.source.bytes[s..e] {
            b"$." => return Ok(s),
            token if token.first() == Some(&b'$') => {
                let got = String::from_utf8_lossy(token).into_owned();
                return Err(cursor.error(s, format!("`{got}` inside of a proof")));
            }
            _ => {}
        }
    }
    Err(cursor.error(start, "this proof is never closed by $."))
}

fn symbol_token(cursor: &FileCursor, range: Range<usize>) -> Result<String, DatabaseError> {
    let token = &cursor.source.bytes[range.clone()];
    let text = String::from_utf8_lossy(token).into_owned();
    if is_symbol(token) {
        Ok(text)
    } else {
        Err(cursor.error(range.start, format!("`{text}` is not a math symbol (printable ASCII without $)")))
    }
}
