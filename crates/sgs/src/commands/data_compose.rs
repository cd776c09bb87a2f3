//! `sgs data compose`: theorems of core Lean, each checked by Lean, as corpora of the three roles, targets and tokenizer.

use super::verify_lean::verify_all;
use crate::args::DataComposeArgs;
use crate::corpus::CorpusRow;
use crate::exit::Outcome;
use crate::{lean, output};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sgs_formal::Condition;
use sgs_lean::compact;
use sgs_lean::compose::{self, Theorem, shape};
use sgs_lean::data::{Target, target_from_record};
use sgs_lm::tokenizer::byte_pairs;
use sgs_rundir::files::write_file;
use sgs_rundir::table::write_rows;
use sgs_selfplay::seed::{Stream, shuffle_seed};
use sgs_selfplay::{Problem, ProblemId, Review, Verdict};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Where verdicts are kept: what was checked is not checked again.
const VERDICTS: &str = "verdicts.jsonl";

/// Builds everything into a folder.
///
/// # Errors
/// Lean cannot be started, leaves something undecided, or the file system refuses.
pub fn run(args: &DataComposeArgs) -> Result<Outcome> {
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let proposed = Proposed::compose(args);
    let verdicts = check(args, &proposed)?;
    let holds = |theorem: &Theorem| verdicts.get(&key(theorem)) == Some(&Verdict::Proved);
    let report = report(&proposed, &holds);
    let mut held_out = proposed.targets;
    held_out.retain(|theorem| holds(theorem));
    let targets: Vec<Theorem> = held_out.drain(..args.targets.min(held_out.len())).collect();
    held_out.truncate(args.held_out);
    write_targets(&args.out.join("targets.jsonl"), "c", &targets)?;
    write_targets(&args.out.join("held-out.jsonl"), "d", &held_out)?;
    let corpus: Vec<Group> =
        proposed.corpus.into_iter().map(|group| group.into_iter().filter(|t| holds(t)).collect()).collect();
    let rows = Rows::of(&corpus, args.seed);
    write_rows(&args.out.join("solver.parquet"), rows.solver.iter().cloned())?;
    write_rows(&args.out.join("conjecturer.parquet"), rows.conjecturer.iter().cloned())?;
    write_rows(&args.out.join("guide.parquet"), rows.guide.iter().cloned())?;
    write_tokenizer(args, &corpus)?;
    let card = format!(
        "# Core Lean, composed\n\nMade by `sgs data compose --seed {} --composed {}`; every theorem was accepted by {}.\n\n\
         {report}\n\n{} targets, {} held-out problems; examples: {} of the Solver, {} of the Conjecturer, {} of the Guide.\n",
        args.seed,
        args.composed,
        sgs_lean::WASM_VERSION,
        targets.len(),
        held_out.len(),
        rows.solver.len(),
        rows.conjecturer.len(),
        rows.guide.len()
    );
    write_file(&args.out.join("README.md"), card.as_bytes())?;
    output::line(card)?;
    Ok(Outcome::Done)
}

/// A theorem and, behind it, what is proved on the way to it.
type Group = Vec<Theorem>;

/// What Lean is asked about.
struct Proposed {
    corpus: Vec<Group>,
    targets: Vec<Theorem>,
}

/// Levels of the corpus, in turn, and those of targets and held-out problems.
const LEVELS: [u64; 10] = [0, 1, 1, 2, 2, 2, 3, 3, 3, 4];
const HARD: [u64; 3] = [3, 4, 5];

impl Proposed {
    /// Targets first: nothing of the corpus states one of them, whatever its variables are called.
    fn compose(args: &DataComposeArgs) -> Self {
        let mut seen = HashSet::new();
        let mut targets = Vec::new();
        // Some will be refused, and some draws come to nothing.
        let wanted = (args.targets + args.held_out) * 11 / 10;
        let seed = shuffle_seed(args.seed, "lean targets", 0);
        for number in 0..20 * wanted as u64 {
            let level = HARD[number as usize % HARD.len()];
            let whole = compose::compose(seed, number, level).into_iter().next();
            targets.extend(whole.filter(|t| seen.insert(shape(&t.signature()))));
            if targets.len() == wanted {
                break;
            }
        }
        let corpus = (0..args.composed).map(|number| {
            let level = LEVELS[number as usize % LEVELS.len()];
            let mut group = compose::compose(args.seed, number, level);
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
struct Checked {
    key: String,
    verdict: Verdict,
}

/// Names a theorem with its proof.
fn key(theorem: &Theorem) -> String {
    let text = format!("{}{}", theorem.statement("t"), theorem.proof());
    Sha256::digest(text.as_bytes()).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

/// The verdict on every theorem: those of before from the folder, the others from Lean, each written as it comes.
fn check(args: &DataComposeArgs, proposed: &Proposed) -> Result<HashMap<String, Verdict>> {
    let path = args.out.join(VERDICTS);
    let text = fs::read_to_string(&path).unwrap_or_default();
    // A last line may be torn: it is asked about again.
    let known = text.lines().filter_map(|line| serde_json::from_str::<Checked>(line).ok());
    let mut verdicts: HashMap<String, Verdict> = known.map(|c| (c.key, c.verdict)).collect();
    let left: Vec<&Theorem> = proposed.all().filter(|t| !verdicts.contains_key(&key(t))).collect();
    eprintln!("{} theorems; {} are still to be checked", proposed.all().count(), left.len());
    if left.is_empty() {
        return Ok(verdicts);
    }
    let targets: Vec<Target> = left.iter().map(|t| target("t", t)).collect::<Result<_>>()?;
    let mut settings = lean::settings(&args.lean)?;
    if settings.theorems_per_file == 0 {
        settings.theorems_per_file = IN_A_FILE;
    }
    let checker = lean::start(&settings)?;
    if !args.lean.skip_canaries {
        checker.canaries("")?;
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&path)?;
    if !text.is_empty() && !text.ends_with('\n') {
        writeln!(file)?;
    }
    let mut theorems = left.iter();
    verify_all(&checker, &targets, |_, line| {
        let Some(theorem) = theorems.next() else { return Ok(()) };
        if line.verdict == Verdict::Infra {
            bail!("Lean did not decide about a theorem: {}; the same command goes on from here", line.reason);
        }
        let checked = Checked { key: key(theorem), verdict: line.verdict };
        writeln!(file, "{}", serde_json::to_string(&checked)?).context("cannot write the verdicts")?;
        verdicts.insert(checked.key, line.verdict);
        Ok(())
    })?;
    Ok(verdicts)
}

/// A theorem as a record of a data set.
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

/// How many of each kind were proposed, and how many Lean accepted.
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
    output::table(&["kind", "proposed", "accepted by Lean"], &rows)
}

/// Theorems among which the one that is most like another is looked for.
const SIBLINGS: usize = 60;

/// Copies of a theorem with other names.
const COPIES: usize = 3;
/// Theorems in a file that Lean checks: a start takes as long as hundreds of theorems.
const IN_A_FILE: usize = 256;

/// The examples of the three roles.
#[derive(Default)]
struct Rows {
    solver: Vec<CorpusRow>,
    conjecturer: Vec<CorpusRow>,
    guide: Vec<CorpusRow>,
}

impl Rows {
    fn of(corpus: &[Group], seed: u64) -> Self {
        let mut draw = Stream::new(shuffle_seed(seed, "lean pairs", 0));
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

    /// A conjecture that is worth asking for a target, and its review, with and without a premise that nobody needs.
    fn pair(&mut self, target: &Theorem, conjecture: &Theorem, relevance: u8, draw: &mut Stream) {
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

/// Pairs of neighbouring words that two theorems share, less those that only the second has.
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

/// The rubric's scores: what the pair was made as, and the connectives of the conclusion.
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

/// Tokens of the small model's vocabulary.
const TOKENS: usize = 1_024;
/// Words, numbers and signs with the blank before them, and line breaks with the indentation behind.
const PIECES: &str = r"\n *| ?[\p{L}_][\p{L}\d_']*(?:\.[\p{L}_][\p{L}\d_']*)*| ?\d{1,2}| ?[^\s\p{L}\d]|\s";

fn write_tokenizer(args: &DataComposeArgs, corpus: &[Group]) -> Result<()> {
    let texts = corpus.iter().flatten().map(|t| format!("{}{}", t.signature(), t.proof()));
    let tokenizer = byte_pairs(texts, PIECES, &compact::SPECIAL, TOKENS)?;
    write_file(&args.out.join("tokenizer.json"), tokenizer.as_bytes())?;
    let config = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": compact::END, "pad_token": compact::SPECIAL[0],
        "clean_up_tokenization_spaces": false,
    });
    Ok(write_file(
        &args.out.join("tokenizer_config.json"),
        serde_json::to_string_pretty(&config)?.as_bytes(),
    )?)
}
