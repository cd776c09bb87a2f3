//! Builds the slice, the targets, the corpora and the tokenizer of Metamath.

use super::{conjecturer, derivations, guide, solver};
use crate::corpus::{CorpusRow, HELD_OUT};
use serde_json::json;
use sgs_base::digest::checksum_of;
use sgs_base::parallel;
use sgs_formal::{Condition, FormalSystem, Prompt};
use sgs_metamath::audit::DatabaseAudit;
use sgs_metamath::composed_sets::{ComposedProblem, ComposedSet};
use sgs_metamath::composer::FIRST_POSITION;
use sgs_metamath::database::Database;
use sgs_metamath::normal_text::normal_text;
use sgs_metamath::slice::SliceError;
use sgs_metamath::splits::{Split, SplitRule, split};
use sgs_metamath::statement::{Statement, StatementLimits};
use sgs_metamath::system::Metamath;
use sgs_metamath::theory::{RuleId, Theory};
use sgs_metamath::{slice, tokens};
use sgs_run::Usage;
use sgs_run::config::device::threads;
use sgs_run::error::{Context, Result, bail};
use sgs_rundir::directories::checksum;
use sgs_rundir::files::write_file;
use sgs_rundir::table::write_rows;
use sgs_selfplay::{Problem, ProblemId};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Options of the build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildOptions {
    /// The database to take the slice from; `None` for the slice that ships.
    pub source: Option<PathBuf>,
    /// The folder to write to.
    pub out: PathBuf,
    /// Seed of the corpora. The targets have a separate, fixed seed.
    pub seed: u64,
    /// Number of theorems to compose at random.
    pub composed: usize,
    /// Maximum number of reviews for each theorem of the Guide's corpus.
    pub reviews: usize,
    /// Maximum number of inferences of a proof that a model learns to write. With a maximum, the problems of the
    /// composed sets are in no corpus.
    pub max_steps: Option<usize>,
}

/// The result of [`build`].
#[derive(Clone, Debug)]
pub struct Built {
    /// The text of the folder's README.md.
    pub card: String,
    /// Names theorems of the source that have no valid proof.
    pub warning: Option<String>,
}

/// Builds everything; README.md is written last. Calls `progress` with a description of each step when it begins.
pub fn build(options: &BuildOptions, progress: &(dyn Fn(String) + Sync)) -> Result<Built> {
    progress("reading the database".to_owned());
    let (text, origin) = slice_text(options.source.as_deref())?;
    let database = Database::parse(slice::SLICE_NAME, text.clone()).map_err(Usage::of)?;
    let system = Metamath::new(Theory::new(database).map_err(Usage::of)?);
    // The shipped slice has been checked.
    let facts = options.source.is_some().then(|| DatabaseAudit::of(system.theory().database()));
    let warning = facts
        .filter(|facts| !facts.unproved.is_empty())
        .map(|facts| format!("{facts}; the corpora contain no proofs of them, but may cite them"));
    let rules = system.theory().rules().len();
    if options.composed > 0 && rules <= FIRST_POSITION {
        let source = options.source.as_deref().unwrap_or(Path::new(slice::SLICE_NAME)).display();
        return Err(Usage(format!(
            "{source} has {rules} axioms and theorems; composing theorems requires more than {FIRST_POSITION}: add \
             `--composed 0`, or use a larger database"
        ))
        .into());
    }
    fs::create_dir_all(&options.out).with_context(|| format!("cannot make {}", options.out.display()))?;
    write_file(&options.out.join("set-slice.mm"), &text)?;
    let mut split = split(system.theory(), SplitRule::of(system.theory()));
    if options.max_steps.is_some() {
        forbid_composed_sets(&mut split, system.theory());
    }
    let corpora = Corpora { system: &system, split: &split, options, progress };
    let mut counts = Counts::new();
    corpora.write_all(&mut |role, name, count| {
        counts.entry((role, name.to_owned())).and_modify(|n| *n += count).or_insert(count);
    })?;
    write_targets(&system, &split, &options.out)?;
    let tokenizer = serde_json::to_vec(&tokens::tokenizer_json(system.theory()))?;
    write_file(&options.out.join("tokenizer.json"), &tokenizer)?;
    let config = serde_json::to_vec_pretty(&tokens::tokenizer_config_json())?;
    write_file(&options.out.join("tokenizer_config.json"), &config)?;
    let mut files = BTreeMap::new();
    let others = ["targets.jsonl", "tokenizer.json", "tokenizer_config.json", "set-slice.mm"];
    for name in CORPUS_FILES.into_iter().chain(others) {
        files.insert(name.to_owned(), checksum(&options.out.join(name))?);
    }
    let card = card(options, SplitRule::of(system.theory()), &split, &counts, &files, &origin);
    write_file(&options.out.join("README.md"), card.as_bytes())?;
    Ok(Built { card, warning })
}

/// Returns the text of the slice and its source.
fn slice_text(source: Option<&Path>) -> Result<(Vec<u8>, String)> {
    let Some(path) = source else {
        return Ok((slice::shipped_text()?, "the slice of set.mm (CC0) that ships with sgs".to_owned()));
    };
    let text = Database::read(path).map_err(Usage::of)?.text();
    let hash = checksum_of(&text);
    let cut = match slice::cut(&path.display().to_string(), &text, slice::SLICE_ASSERTIONS) {
        Err(SliceError::TooShort { .. }) => text,
        cut => cut.map_err(Usage::of)?,
    };
    let cut_hash = checksum_of(&cut);
    if hash == slice::ORIGIN_SHA256 && cut_hash != slice::SLICE_SHA256 {
        bail!(
            "the slice of the known set.mm has hash {cut_hash}, not {}: this is a defect",
            slice::SLICE_SHA256
        );
    }
    let same = if cut_hash == slice::SLICE_SHA256 { "equal to" } else { "different from" };
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok((cut, format!("{name} with SHA-256 {hash}; the slice is {same} the one that ships with sgs")))
}

/// Maximum number of reviews of each target in the held-out file.
const HELD_OUT_REVIEWS: usize = 8;

/// Number of examples by file and kind.
type Counts = BTreeMap<(&'static str, String), usize>;

const SOLVER: &str = "solver.parquet";
const CONJECTURER: &str = "conjecturer.parquet";
const DERIVATIONS: &str = "conjecturer-proofs.parquet";
const GUIDE: &str = "guide.parquet";
/// Reviews of the targets, from their own proofs. They are used to evaluate a Guide, and `sgs pretrain` refuses them.
const GUIDE_HELD_OUT: &str = "guide-held-out.parquet";
const CORPUS_FILES: [&str; 5] = [SOLVER, CONJECTURER, DERIVATIONS, GUIDE, GUIDE_HELD_OUT];

/// One in this many composed theorems is a condition of proofs in the Conjecturer's corpus.
const DERIVED_SHARE: usize = 4;

/// Maximum number of batches that wait to be written.
const WAITING: usize = 2;

struct Corpora<'a> {
    system: &'a Metamath,
    split: &'a Split,
    options: &'a BuildOptions,
    progress: &'a (dyn Fn(String) + Sync),
}

impl Corpora<'_> {
    /// Writes every corpus, in an order that does not depend on the number of threads. Calls `count` with the file, the
    /// kind and the number of its examples.
    fn write_all(&self, count: &mut dyn FnMut(&'static str, &str, usize)) -> Result<()> {
        let theory = self.system.theory();
        let seed = self.options.seed;
        let most = self.options.max_steps.unwrap_or(usize::MAX);
        self.begin(SOLVER);
        let composed = solver::Composed::new(self.system, self.split, most);
        let proofs = [solver::theorems(theory, self.split), solver::sub_proofs(theory, self.split)]
            .map(|proofs| {
                proofs.into_iter().filter(|e| self.system.proof_steps(&e.proof) as usize <= most).collect()
            })
            .into_iter()
            .chain(composed.batches(seed, self.options.composed));
        self.write(SOLVER, proofs, |e| self.solver_row(e), count)?;
        self.begin(CONJECTURER);
        let conjectures = conjecturer::examples(self.system, self.split, seed);
        self.write(CONJECTURER, std::iter::once(conjectures), |e| self.conjecturer_row(e), count)?;
        self.begin(DERIVATIONS);
        let proofs =
            derivations::examples(self.system, self.split, seed, self.options.composed / DERIVED_SHARE, most);
        self.write(DERIVATIONS, std::iter::once(proofs), |e| self.derivation_row(e), count)?;
        self.begin(GUIDE);
        let maker = guide::Maker::new(self.system, self.split);
        let reviews = maker.examples(seed, self.options.reviews);
        self.write(GUIDE, std::iter::once(reviews), |e| self.guide_row("guide", e), count)?;
        self.begin(GUIDE_HELD_OUT);
        let held_out = maker.of_targets(seed, HELD_OUT_REVIEWS);
        self.write(GUIDE_HELD_OUT, std::iter::once(held_out), |e| self.guide_row(HELD_OUT, e), count)
    }

    #[allow(clippy::expect_used, reason = "the callers name files of the list")]
    fn begin(&self, name: &str) {
        let at =
            CORPUS_FILES.iter().position(|file| *file == name).expect("invariant: a file of the corpora");
        (self.progress)(format!("making {name}, file {} of {}", at + 1, CORPUS_FILES.len()));
    }

    /// Writes one corpus: a thread writes a batch while the next one is made.
    fn write<E: Sync>(
        &self,
        name: &'static str,
        batches: impl Iterator<Item = Vec<E>>,
        row: impl Fn(&E) -> CorpusRow + Sync,
        count: &mut dyn FnMut(&'static str, &str, usize),
    ) -> Result<()> {
        let path = self.options.out.join(name);
        std::thread::scope(|scope| {
            let (full, to_write) = std::sync::mpsc::sync_channel::<Vec<CorpusRow>>(WAITING);
            let writer = std::thread::Builder::new()
                .name("corpus".into())
                .spawn_scoped(scope, || write_rows(&path, to_write.into_iter().flatten()))?;
            for batch in batches {
                let rows = parallel::map(threads(), &batch, &row);
                for row in &rows {
                    count(name, &row.kind, 1);
                }
                // The writer stops early only after an error, which is returned below.
                if full.send(rows).is_err() {
                    break;
                }
            }
            drop(full);
            match writer.join() {
                Ok(written) => Ok(written.map(|_| ())?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn problem(&self, source: RuleId, statement: &str) -> Problem {
        let label = self.system.theory().label(source);
        Problem { id: ProblemId::new(label), statement: statement.into(), context: label.into() }
    }

    fn row(&self, role: &str, kind: &str, source: RuleId, prompt: Prompt, completion: &str) -> CorpusRow {
        let Prompt::Raw(prompt) = prompt else { unreachable!("invariant: Metamath prompts are raw") };
        CorpusRow {
            role: role.to_owned(),
            kind: kind.to_owned(),
            source: self.system.theory().label(source).to_owned(),
            prompt,
            completion: format!("{completion} {}", tokens::END),
        }
    }

    fn solver_row(&self, e: &solver::ProofExample) -> CorpusRow {
        let prompt = self.system.solver_prompt(&self.problem(e.source, &e.statement));
        self.row("solver", e.kind, e.source, prompt, &self.system.proof_completion(&e.proof))
    }

    fn conjecturer_row(&self, e: &conjecturer::ConjectureExample) -> CorpusRow {
        let (kind, prompt) = match &e.condition {
            conjecturer::Condition::Target(target) => {
                let target = self.problem(e.source, target);
                ("target", self.system.conjecturer_prompt(Condition::Target(&target)))
            }
            conjecturer::Condition::Solved { statement, proof } => {
                let problem = self.problem(e.source, statement);
                ("solved", self.system.conjecturer_prompt(Condition::Solved { problem: &problem, proof }))
            }
            conjecturer::Condition::Nothing => {
                let place = self.problem(e.source, "");
                ("nothing", self.system.conjecturer_prompt(Condition::Nothing(&place)))
            }
        };
        self.row("conjecturer", kind, e.source, prompt, &e.conjecture)
    }

    #[allow(clippy::expect_used, reason = "this formal system derives statements")]
    fn derivation_row(&self, e: &solver::ProofExample) -> CorpusRow {
        let target = self.problem(e.source, &e.statement);
        let prompt = self.system.derivation_prompt(Condition::Target(&target));
        let prompt = prompt.expect("invariant: Metamath derives statements from proofs");
        self.row("conjecturer", e.kind, e.source, prompt, &self.system.proof_completion(&e.proof))
    }

    fn guide_row(&self, role: &str, e: &guide::ReviewExample) -> CorpusRow {
        let (target, conjecture) = (self.problem(e.source, &e.target), self.problem(e.source, &e.conjecture));
        let prompt = self.system.guide_prompt(&target, &conjecture);
        self.row(role, e.relation.as_str(), e.source, prompt, &Metamath::review_completion(&e.review))
    }
}

/// Adds the problems of the composed sets to the statements that no corpus contains.
fn forbid_composed_sets(split: &mut Split, theory: &Theory) {
    // Another database may lack symbols of the problems.
    let print = |problem: ComposedProblem| {
        let statement = Statement::parse(theory, &problem.statement, StatementLimits::default()).ok()?;
        Some(normal_text(theory, &statement))
    };
    split.forbidden.extend(ComposedSet::ALL.into_iter().flat_map(ComposedSet::problems).filter_map(print));
}

fn write_targets(system: &Metamath, split: &Split, out: &Path) -> Result<()> {
    let mut text = String::new();
    for (i, &target) in split.targets.iter().enumerate() {
        let label = system.theory().label(target);
        let problem = system.problem(label).with_context(|| format!("{label} has no normal form"))?;
        let line = json!({
            "id": problem.id, "statement": problem.statement, "context": problem.context,
            "quick": i < SplitRule::of(system.theory()).quick,
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    write_file(&out.join("targets.jsonl"), text.as_bytes())?;
    Ok(())
}

fn card(
    options: &BuildOptions,
    rule: SplitRule,
    split: &Split,
    counts: &Counts,
    files: &BTreeMap<String, String>,
    origin: &str,
) -> String {
    let BuildOptions { seed, composed, reviews, max_steps, .. } = options;
    let limit = max_steps.map_or_else(String::new, |steps| format!(" --max-steps {steps}"));
    let SplitRule { seed: draw, quick, from, to, min_steps, max_steps, max_symbols, .. } = rule;
    let (targets, candidates) = (split.targets.len(), split.candidates);
    let mut out = format!(
        "# Metamath corpora of sgs\n\n\
         Source: {origin}.\n\n\
         Made by `sgs data build --seed {seed} --composed {composed} --reviews {reviews}{limit}`.\n\n\
         ## Targets\n\n\
         {targets} theorems drawn with seed {draw} from {candidates} candidates among the provable assertions {from} to \
         {to}: {min_steps} to {max_steps} essential steps, at most {max_symbols} symbols, not discouraged, not old or \
         alternative, not stated before. The first {quick} are the quick set. Not candidates:\n\n",
    );
    for (reason, count) in &split.dropped {
        out.push_str(&format!("- {reason}: {count}\n"));
    }
    out.push_str(
        "\nNo target, under whatever names and order of hypotheses, is stated by any training text, and no part of a \
         target's own proof is in a corpus. guide-held-out.parquet alone is made from the targets: it measures a Guide, \
         and sgs pretrain refuses it.\n\n## Corpora\n\n| file | kind | examples |\n|---|---|---|\n",
    );
    for ((file, kind), count) in counts {
        out.push_str(&format!("| {file} | {kind} | {count} |\n"));
    }
    out.push_str("\n## Files\n\n| file | SHA-256 |\n|---|---|\n");
    for (name, hash) in files {
        out.push_str(&format!("| {name} | {hash} |\n"));
    }
    out
}
