//! Composes theorems of core Lean, has Lean check each, and writes corpora of the three roles, targets and a tokenizer.

use super::compose::{self, Theorem, shape};
use super::verify::verify_in_order;
use crate::corpus::CorpusRow;
use crate::text_table::text_table;
use serde::{Deserialize, Serialize};
use sgs_base::digest::checksum_of;
use sgs_formal::Condition;
use sgs_lean::data::{Target, target_from_record};
use sgs_lean::{Lean, compact};
use sgs_lm::tokenizer::byte_pairs;
use sgs_run::error::{Context, Result, bail};
use sgs_rundir::files::write_file;
use sgs_rundir::table::write_rows;
use sgs_selfplay::seed::{SeededRng, shuffle_seed};
use sgs_selfplay::{Problem, ProblemId, Review, Verdict};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file of verdicts, so that no theorem is checked twice.
const VERDICTS: &str = "verdicts.jsonl";

/// Options of the composition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComposeOptions {
    /// The folder to write to. An interrupted call leaves the verdicts there, and the next call continues.
    pub out: PathBuf,
    /// Seed of all theorems.
    pub seed: u64,
    /// Number of draws for the corpus. A draw gives one theorem and the simpler theorems of its proof.
    pub composed: u64,
    /// Number of targets: harder theorems that the corpus does not state.
    pub targets: usize,
    /// Number of held-out problems, which are as hard as the targets.
    pub held_out: usize,
}

/// The theorems of a corpus, with Lean's verdicts so far.
pub struct Composition<'a> {
    options: &'a ComposeOptions,
    proposed: Proposed,
    verdicts: HashMap<String, Verdict>,
    /// Whether the last line of the file of verdicts is incomplete.
    is_torn: bool,
}

impl<'a> Composition<'a> {
    /// Composes the theorems, and reads the verdicts of an interrupted call from the folder.
    pub fn open(options: &'a ComposeOptions) -> Result<Self> {
        fs::create_dir_all(&options.out).with_context(|| format!("cannot make {}", options.out.display()))?;
        let proposed = Proposed::compose(options);
        let path = options.out.join(VERDICTS);
        let text = sgs_rundir::files::read_if_exists(&path)?;
        // The last line may be incomplete. Its theorem is then checked again.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let is_torn = whole < text.len();
        let known = text[..whole].lines().enumerate().map(|(number, line)| {
            let place = || format!("{}:{}: not a verdict of this program", path.display(), number + 1);
            let known: CheckedTheorem = serde_json::from_str(line).with_context(place)?;
            Ok((known.key, known.verdict))
        });
        let verdicts = known.collect::<Result<_>>()?;
        Ok(Self { options, proposed, verdicts, is_torn })
    }

    /// Returns the number of all theorems.
    pub fn theorems(&self) -> usize {
        self.proposed.all().count()
    }

    /// Returns the number of theorems without a verdict.
    pub fn unchecked(&self) -> usize {
        self.proposed.all().filter(|t| !self.verdicts.contains_key(&key(t))).count()
    }

    /// Lets Lean check the theorems without a verdict, and appends each verdict to the folder's file as it arrives.
    ///
    /// # Errors
    /// Returns an error if Lean leaves a theorem undecided, or if a verdict cannot be written.
    pub fn check(&mut self, checker: &Lean) -> Result<()> {
        let unchecked: Vec<&Theorem> =
            self.proposed.all().filter(|t| !self.verdicts.contains_key(&key(t))).collect();
        let targets: Vec<Target> = unchecked.iter().map(|t| target("t", t)).collect::<Result<_>>()?;
        let path = self.options.out.join(VERDICTS);
        let cannot_write = || format!("cannot write {}", path.display());
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(&path).with_context(cannot_write)?;
        if self.is_torn {
            writeln!(file).with_context(cannot_write)?;
        }
        let mut theorems = unchecked.iter();
        let verdicts = &mut self.verdicts;
        verify_in_order(checker, &targets, |_, verified| {
            let (Some(theorem), Some(outcome)) = (theorems.next(), verified.outcome) else { return Ok(()) };
            if outcome.verdict == Verdict::Infra {
                bail!(
                    "Lean did not decide about a theorem: {}; run the same command to continue",
                    outcome.reason
                );
            }
            let checked = CheckedTheorem { key: key(theorem), verdict: outcome.verdict };
            writeln!(file, "{}", serde_json::to_string(&checked)?).with_context(cannot_write)?;
            verdicts.insert(checked.key, checked.verdict);
            Ok(())
        })
    }

    /// Writes the corpora, the targets, the held-out problems and the tokenizer from the theorems that Lean accepted.
    /// Returns the text of the folder's README.md, which is written last.
    pub fn write(self) -> Result<String> {
        let Self { options, proposed, verdicts, .. } = self;
        let holds = |theorem: &Theorem| verdicts.get(&key(theorem)) == Some(&Verdict::Proved);
        let report = report(&proposed, &holds);
        let mut held_out = proposed.targets;
        held_out.retain(|theorem| holds(theorem));
        let targets: Vec<Theorem> = held_out.drain(..options.targets.min(held_out.len())).collect();
        held_out.truncate(options.held_out);
        write_targets(&options.out.join("targets.jsonl"), "c", &targets)?;
        write_targets(&options.out.join("held-out.jsonl"), "d", &held_out)?;
        let corpus: Vec<Group> = proposed
            .corpus
            .into_iter()
            .map(|group| group.into_iter().filter(|t| holds(t)).collect())
            .collect();
        let rows = Rows::of(&corpus, options.seed);
        let solver = write_rows(&options.out.join("solver.parquet"), rows.solver)?;
        let conjecturer = write_rows(&options.out.join("conjecturer.parquet"), rows.conjecturer)?;
        let guide = write_rows(&options.out.join("guide.parquet"), rows.guide)?;
        write_tokenizer(options, &corpus)?;
        let ComposeOptions { seed, composed, .. } = options;
        let (version, targets, held_out) = (sgs_lean::WASM_VERSION, targets.len(), held_out.len());
        let card = format!(
            "# Core Lean, composed\n\n\
             Made by `sgs data compose --seed {seed} --composed {composed}`; every theorem was accepted by {version}.\n\n\
             {report}\n\n{targets} targets, {held_out} held-out problems; examples: {solver} of the Solver, \
             {conjecturer} of the Conjecturer, {guide} of the Guide.\n",
        );
        write_file(&options.out.join("README.md"), card.as_bytes())?;
        Ok(card)
    }
}

/// A theorem, followed by the simpler theorems of its proof.
type Group = Vec<Theorem>;

struct Proposed {
    corpus: Vec<Group>,
    targets: Vec<Theorem>,
}

/// The levels of the corpus, used in turn. [`HARD`] contains those of targets and held-out problems.
const LEVELS: [u64; 10] = [0, 1, 1, 2, 2, 2, 3, 3, 3, 4];
const HARD: [u64; 3] = [3, 4, 5];

impl Proposed {
    /// Composes the targets first, so that the corpus can leave out their statements under any names of variables.
    fn compose(options: &ComposeOptions) -> Self {
        let mut seen = HashSet::new();
        let mut targets = Vec::new();
        // Compose more than needed: Lean refuses some theorems, and some draws give none.
        let wanted = (options.targets + options.held_out) * 11 / 10;
        let seed = shuffle_seed(options.seed, "lean targets", 0);
        for number in 0..20 * wanted as u64 {
            let level = HARD[number as usize % HARD.len()];
            let whole = compose::compose(seed, number, level).into_iter().next();
            targets.extend(whole.filter(|t| seen.insert(shape(&t.signature()))));
            if targets.len() == wanted {
                break;
            }
        }
        let corpus = (0..options.composed).map(|number| {
            let level = LEVELS[number as usize % LEVELS.len()];
            let mut group = compose::compose(options.seed, number, level);
            group.retain(|theorem| seen.insert(shape(&theorem.signature())));
            group
        });
        let corpus = corpus.collect();
        Self { corpus, targets }
    }

    fn all(&self) -> impl Iterator<Item = &Theorem> {
        self.targets.iter().chain(self.corpus.iter().flatten())
    }
}

#[derive(Serialize, Deserialize)]
struct CheckedTheorem {
    key: String,
    verdict: Verdict,
}

/// Returns a key that identifies a theorem together with its proof.
fn key(theorem: &Theorem) -> String {
    let text = format!("{}{}", theorem.statement("t"), theorem.proof());
    checksum_of(text.as_bytes())[..24].to_owned()
}

fn record(name: &str, theorem: &Theorem) -> serde_json::Value {
    serde_json::json!({
        "id": name, "header": "", "statement": theorem.statement(name), "proof": theorem.proof(), "expect": "proved",
        "source": theorem.kind,
    })
}

fn target(name: &str, theorem: &Theorem) -> Result<Target> {
    let record = record(name, theorem);
    let fields = record.as_object().context("a record has fields")?;
    Ok(target_from_record(fields, "")?)
}

fn write_targets(path: &Path, prefix: &str, theorems: &[Theorem]) -> Result<()> {
    let lines =
        theorems.iter().enumerate().map(|(i, t)| format!("{}\n", record(&format!("{prefix}{i:04}"), t)));
    Ok(write_file(path, lines.collect::<String>().as_bytes())?)
}

/// Returns a table of the theorems of each kind that were composed and accepted.
fn report(proposed: &Proposed, holds: &dyn Fn(&Theorem) -> bool) -> String {
    let mut kinds: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for theorem in proposed.all() {
        for kind in [theorem.kind, "all"] {
            let counts = kinds.entry(kind).or_default();
            counts[0] += 1;
            counts[1] += usize::from(holds(theorem));
        }
    }
    let rows: Vec<Vec<String>> = kinds
        .into_iter()
        .map(|(kind, [n, held])| vec![kind.to_owned(), n.to_string(), held.to_string()])
        .collect();
    text_table(&["kind", "proposed", "accepted by Lean"], &rows)
}

/// Number of candidates from which the theorem most similar to another is chosen.
const SIBLINGS: usize = 60;

/// Number of copies of each theorem with other names of variables.
const COPIES: usize = 3;
/// Number of theorems in a file that Lean checks: a start takes as long as hundreds of theorems.
pub const THEOREMS_PER_FILE: usize = 256;

#[derive(Default)]
struct Rows {
    solver: Vec<CorpusRow>,
    conjecturer: Vec<CorpusRow>,
    guide: Vec<CorpusRow>,
}

impl Rows {
    fn of(corpus: &[Group], seed: u64) -> Self {
        let mut draw = SeededRng::new(shuffle_seed(seed, "lean pairs", 0));
        let all: Vec<&Theorem> = corpus.iter().flatten().collect();
        let mut of_kind: HashMap<&str, Vec<&Theorem>> = HashMap::new();
        for theorem in &all {
            of_kind.entry(theorem.kind).or_default().push(theorem);
        }
        let mut rows = Self::default();
        for theorem in &all {
            for copy in 0..=COPIES {
                let theorem =
                    if copy == 0 { (*theorem).clone() } else { theorem.with_other_names(&mut draw) };
                let prompt = compact::solver(&problem(&theorem));
                rows.solver.push(row("solver", &theorem, prompt, &theorem.proof()));
            }
        }
        for group in corpus {
            let Some((whole, easier)) = group.split_first() else { continue };
            for part in easier {
                rows.pair(whole, part, 5, &mut draw);
            }
            let others = of_kind.get(whole.kind).map_or(&[][..], Vec::as_slice);
            let simpler: Vec<&Theorem> = (0..SIBLINGS)
                .filter_map(|_| others.get(draw.below(others.len() as u64) as usize).copied())
                .filter(|other| *other != whole && other.lines.len() <= whole.lines.len())
                .collect();
            if let Some(sibling) = simpler.iter().max_by_key(|other| likeness(whole, other)) {
                rows.pair(whole, sibling, 4, &mut draw);
            }
            if let Some(other) = simpler.first() {
                rows.guide.push(reviewed(whole, other, 2, 0));
            }
            let stranger = all[draw.below(all.len() as u64) as usize];
            if stranger.kind != whole.kind {
                rows.guide.push(reviewed(whole, stranger, 0, 0));
            }
        }
        rows
    }

    /// Adds a useful conjecture for a target with its review, and in one of three cases a copy with an unused premise.
    fn pair(&mut self, target: &Theorem, conjecture: &Theorem, relevance: u8, draw: &mut SeededRng) {
        let prompt = compact::conjecturer(Condition::Target(&problem(target)));
        self.conjecturer.push(row("conjecturer", target, prompt, &conjecture.signature()));
        self.guide.push(reviewed(target, conjecture, relevance, 0));
        if draw.below(3) == 0 {
            let idle =
                Theorem { binders: format!("{} (h9 : 0 = 0)", conjecture.binders), ..conjecture.clone() };
            self.guide.push(reviewed(target, &idle, relevance, 1));
        }
    }
}

/// Returns the similarity of two theorems: shared pairs of adjacent words, minus those that only the second theorem
/// has.
fn likeness(a: &Theorem, b: &Theorem) -> i64 {
    let pairs = |theorem: &Theorem| {
        let text = theorem.signature();
        let words: Vec<&str> = text.split_whitespace().collect();
        words.windows(2).map(|w| w.join(" ")).collect::<HashSet<_>>()
    };
    let (a, b) = (pairs(a), pairs(b));
    let shared = a.intersection(&b).count() as i64;
    2 * shared - b.len() as i64
}

fn problem(theorem: &Theorem) -> Problem {
    Problem { id: ProblemId::new("t"), statement: theorem.statement("t").into(), context: "".into() }
}

fn row(role: &str, of: &Theorem, prompt: String, completion: &str) -> CorpusRow {
    CorpusRow {
        role: role.to_owned(),
        kind: of.kind.to_owned(),
        source: "composed".to_owned(),
        prompt,
        completion: format!("{completion}{}", compact::END),
    }
}

/// Returns the review of a pair with known relevance and redundancy. Complexity counts the connectives of the
/// conclusion.
fn reviewed(target: &Theorem, conjecture: &Theorem, relevance: u8, redundancy: u8) -> CorpusRow {
    let connectives = conjecture.conclusion.chars().filter(|c| "∧∨→↔".contains(*c)).count();
    let complexity = [0, 1, 2, 2, 3, 3].get(connectives).copied().unwrap_or(4);
    let review = Review {
        relevance: f64::from(relevance),
        redundancy: f64::from(redundancy),
        complexity: f64::from(complexity),
    };
    let prompt = compact::guide(&problem(target), &problem(conjecture));
    row("guide", target, prompt, &compact::review(&review))
}

/// Size of the small model's vocabulary.
const TOKENS: usize = 1_024;
/// Pieces that tokens do not cross: a word, number or symbol with the preceding space, or a line break with its indentation.
const PIECES: &str = r"\n *| ?[\p{L}_][\p{L}\d_']*(?:\.[\p{L}_][\p{L}\d_']*)*| ?\d{1,2}| ?[^\s\p{L}\d]|\s";

fn write_tokenizer(options: &ComposeOptions, corpus: &[Group]) -> Result<()> {
    let texts = corpus.iter().flatten().map(|t| format!("{}{}", t.signature(), t.proof()));
    let tokenizer = byte_pairs(texts, PIECES, &compact::SPECIAL, TOKENS)?;
    write_file(&options.out.join("tokenizer.json"), tokenizer.as_bytes())?;
    let config = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": compact::END, "pad_token": compact::SPECIAL[0],
        "clean_up_tokenization_spaces": false,
    });
    Ok(write_file(
        &options.out.join("tokenizer_config.json"),
        serde_json::to_string_pretty(&config)?.as_bytes(),
    )?)
}
