//! Exports accepted proofs as a Metamath database: the theory's own text, followed by one block per theorem.
//!
//! The result is a complete database that any Metamath verifier can check. A theorem is appended at the end of the database,
//! where everything that its proof cites is still available. The `$d` conditions of a block are those of the statement, and
//! those between the proof's dummy variables and all other variables ([`crate::kernel::KernelGoal::dummy_distinct`]).

use crate::database::{Distinct, StatementId, StatementKind, Symbol, distinct};
use crate::judge::{expression, hypothesis_expressions};
use crate::proof::{ProofOp, write_compressed};
use crate::theory::Theory;
use crate::unify::Goal;
use rustc_hash::{FxHashMap, FxHashSet};
use sgs_base::temporary::Temporary;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Why a theorem or a file cannot be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages document the variants and their fields")]
pub enum ExportError {
    #[error("`{label}` is a $e of the outermost scope: it would be a hypothesis of every appended theorem")]
    OuterHypothesis { label: String },
    #[error("variable `{variable}` has another type, or none, at the end of the database")]
    Variable { variable: String },
    #[error("{}: cannot write: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// Generates labels that differ from all labels and math symbols of a database and from each other.
#[derive(Clone, Debug)]
pub struct FreshLabels {
    taken: FxHashSet<String>,
}

const PREFIX: &str = "sgs-";

impl FreshLabels {
    /// Creates a generator for a database.
    pub fn new(theory: &Theory) -> Self {
        let database = theory.database();
        let labels = database.statements().iter().map(|s| &*s.label);
        let symbols = (0..database.symbol_count()).map(|i| database.symbol_text(Symbol(i as u32)));
        // A generated label contains no dot; the labels of its hypotheses are the label, a dot and a suffix.
        let stem = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
        Self { taken: labels.chain(symbols).filter(|n| n.starts_with(PREFIX)).map(stem).collect() }
    }

    /// Returns a label derived from `name`. Characters other than letters, digits, `-` and `_` are replaced by `_`.
    pub fn next(&mut self, name: &str) -> String {
        const LENGTH: usize = 60;
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let stem: String = name.chars().take(LENGTH).map(plain).collect();
        let mut label = format!("{PREFIX}{stem}");
        let mut number = 1;
        while !self.taken.insert(label.clone()) {
            number += 1;
            label = format!("{PREFIX}{stem}_{number}");
        }
        label
    }
}

/// Formats a theorem and its proof as a block of database text. Neither `label` nor any label that begins with it and a dot
/// may be in use. `ops` must be a proof of `goal` that the kernel accepted. `about` is the theorem's comment, if not empty.
///
/// # Errors
/// Returns an error if a variable cannot be declared at the end of the database.
pub fn theorem_block(
    theory: &Theory,
    goal: &Goal,
    ops: &[ProofOp],
    label: &str,
    about: &str,
) -> Result<String, ExportError> {
    let database = theory.database();
    let floats = BlockFloats::of(theory, goal, ops, label)?;
    let mut out = format!("  ${{\n{}", floats.declarations);
    for (a, b) in floats.distinct(goal) {
        let _ = writeln!(out, "    $d {} {} $.", database.symbol_text(a), database.symbol_text(b));
    }
    let hypotheses = hypothesis_expressions(theory, goal);
    for (i, (_, e)) in hypotheses.iter().enumerate() {
        let _ = writeln!(out, "    {label}.{} $e {} $.", i + 1, database.expression_text(e));
    }
    let conclusion = expression(theory, &goal.statement().conclusion);
    let mut mandatory = floats.mandatory.clone();
    mandatory.extend(hypotheses.iter().map(|h| h.0));
    let ops: Vec<ProofOp> = ops
        .iter()
        .map(|op| match op {
            ProofOp::Use(id) => ProofOp::Use(floats.replaced.get(id).copied().unwrap_or(*id)),
            other => *other,
        })
        .collect();
    let label_of = |id: StatementId| match floats.local.get(&id) {
        Some(local) => local.clone(),
        None => match database.statements().get(id.0 as usize) {
            Some(s) => s.label.to_string(),
            None => format!("{label}.{}", id.0 as usize - database.statements().len() + 1),
        },
    };
    let proof = write_compressed(&ops, &mandatory, label_of);
    if !about.is_empty() {
        // A comment must be printable ASCII and ends at the first `$)`.
        let plain = |c: char| if (c.is_ascii_graphic() && c != '$') || c == ' ' { c } else { '_' };
        let _ = writeln!(out, "    $( {} $)", about.chars().map(plain).collect::<String>());
    }
    let _ = writeln!(out, "    {label} $p {} $=", database.expression_text(&conclusion));
    let _ = writeln!(out, "      {proof} $.\n  $}}");
    Ok(out)
}

#[derive(Default)]
struct BlockFloats {
    /// New `$v` and `$f` statements, for variables of inner scopes.
    declarations: String,
    /// Labels of the new `$f` statements, by the statements that they replace.
    local: FxHashMap<StatementId, String>,
    /// `$f` statements of the outermost scope, by the statements of inner scopes that they replace.
    replaced: FxHashMap<StatementId, StatementId>,
    /// The statement's `$f` statements, in their order in the new database.
    mandatory: Vec<StatementId>,
    /// Variables that occur only in the proof.
    dummies: Vec<Symbol>,
    variables: Vec<Symbol>,
}

impl BlockFloats {
    fn of(theory: &Theory, goal: &Goal, ops: &[ProofOp], label: &str) -> Result<Self, ExportError> {
        let database = theory.database();
        let own = goal.floats();
        let used = ops.iter().filter_map(|op| match op {
            ProofOp::Use(id) => Some(*id),
            _ => None,
        });
        let mut all: Vec<StatementId> = own.iter().copied().chain(used).collect();
        all.sort_unstable();
        all.dedup();
        let mut floats = Self::default();
        for id in all {
            let Some(StatementKind::Floating { typecode, variable, .. }) =
                database.statements().get(id.0 as usize).map(|s| &s.kind)
            else {
                continue;
            };
            let id = floats.make_available(theory, id, *typecode, *variable, label)?;
            if own.contains(&id) || own.iter().any(|o| floats.replaced.get(o) == Some(&id)) {
                floats.mandatory.push(id);
                floats.variables.push(*variable);
            } else {
                floats.dummies.push(*variable);
            }
        }
        let is_local = |id: &StatementId| floats.local.contains_key(id);
        floats.mandatory.sort_by_key(|id| (is_local(id), *id));
        Ok(floats)
    }

    /// Makes a `$f` statement available at the end of the database and returns the one to use.
    fn make_available(
        &mut self,
        theory: &Theory,
        id: StatementId,
        typecode: Symbol,
        variable: Symbol,
        label: &str,
    ) -> Result<StatementId, ExportError> {
        let database = theory.database();
        if database.global_floats().binary_search(&id).is_ok() {
            return Ok(id);
        }
        let same = |f: &StatementId| match database.statement(*f).kind {
            StatementKind::Floating { typecode: t, variable: v, .. } => t == typecode && v == variable,
            _ => false,
        };
        if let Some(&global) = database.global_floats().iter().find(|f| same(f)) {
            self.replaced.insert(id, global);
            return Ok(global);
        }
        let text = database.symbol_text(variable);
        if database.is_global_variable(variable) {
            return Err(ExportError::Variable { variable: text.to_owned() });
        }
        let name = format!("{label}.f{}", self.local.len() + 1);
        let _ = writeln!(self.declarations, "    $v {text} $.");
        let _ = writeln!(self.declarations, "    {name} $f {} {text} $.", database.symbol_text(typecode));
        self.local.insert(id, name);
        Ok(id)
    }

    fn distinct(&self, goal: &Goal) -> Vec<Distinct> {
        let mut pairs = goal.distinct().to_vec();
        for (i, &d) in self.dummies.iter().enumerate() {
            pairs.extend(self.variables.iter().chain(&self.dummies[..i]).map(|&v| distinct(d, v)));
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }
}

/// Writes a database file that extends a theory's database. [`Exporter::finish`] creates the file atomically.
pub struct Exporter<'a> {
    theory: &'a Theory,
    labels: FreshLabels,
    path: PathBuf,
    file: BufWriter<File>,
    temporary: Temporary,
    theorems: u64,
}

impl<'a> Exporter<'a> {
    /// Creates a temporary file with the theory's text.
    pub fn create(theory: &'a Theory, path: &Path) -> Result<Self, ExportError> {
        let database = theory.database();
        if let Some(id) = database.global_essential() {
            return Err(ExportError::OuterHypothesis { label: database.statement(id).label.to_string() });
        }
        let io = |error| ExportError::Io { path: path.to_owned(), error };
        // The file would replace a device such as /dev/null.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "it exists and is not a file")));
        }
        let (temporary, file) = Temporary::file_beside(path).map_err(io)?;
        let mut file = BufWriter::with_capacity(1 << 16, file);
        file.write_all(&database.text()).map_err(io)?;
        file.write_all(b"\n$( Theorems proved by sgs. $)\n").map_err(io)?;
        let labels = FreshLabels::new(theory);
        Ok(Self { theory, labels, path: path.to_owned(), file, temporary, theorems: 0 })
    }

    /// Appends a theorem that the kernel accepted, with a comment. Returns its label, which is derived from `id`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written or if the theorem cannot be stated at the end of the database. In the
    /// latter case nothing is written, and other theorems can be added.
    pub fn add(
        &mut self,
        id: &str,
        about: &str,
        goal: &Goal,
        ops: &[ProofOp],
    ) -> Result<String, ExportError> {
        let label = self.labels.next(id);
        let block = theorem_block(self.theory, goal, ops, &label, about)?;
        let io = |error| ExportError::Io { path: self.path.clone(), error };
        self.file.write_all(block.as_bytes()).map_err(io)?;
        self.theorems += 1;
        Ok(label)
    }

    /// Renames the file to its final name. Returns the number of appended theorems.
    pub fn finish(self) -> Result<u64, ExportError> {
        let Self { path, file, mut temporary, theorems, .. } = self;
        let io = |error| ExportError::Io { path: path.clone(), error };
        let file = file.into_inner().map_err(|e| io(e.into_error()))?;
        file.sync_all().map_err(io)?;
        temporary.publish(&path).map_err(io)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()).map_err(io)?;
        Ok(theorems)
    }
}
