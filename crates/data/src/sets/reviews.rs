//! Reviews of the conjectures of runs, as a corpus for training a Guide: by a served model (Lean) or the rubric (Metamath).

use super::ledger::Ledger;
use super::teacher::{About, Said, Teacher, TeacherOptions};
use crate::corpus::{CorpusRow, HELD_OUT};
use serde_json::json;
use sgs_formal::{FormalSystem as _, Prompt};
use sgs_lean::read::read_review;
use sgs_lean::{Templates, prompt};
use sgs_metamath::system::Metamath;
use sgs_metamath::tokens::END;
use sgs_run::Usage;
use sgs_run::config::{RunConfig, SystemName, folder, system};
use sgs_run::error::{Context, Result, RunError, bail};
use sgs_rundir::RunView;
use sgs_rundir::files::write_file;
use sgs_rundir::rows::ConjectureRowStatus;
use sgs_rundir::table::write_rows;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{Problem, Role};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of the collection.
#[derive(Clone, Debug)]
pub struct ReviewOptions {
    /// The folders of the runs. They have the same formal system. Lean's prompts are those of the first run.
    pub runs: Vec<PathBuf>,
    /// The folder to write to. For Lean, a later call with the same folder continues.
    pub out: PathBuf,
    /// Number of reviews to train on.
    pub count: usize,
    /// Number of reviews of other pairs of a target and a conjecture, to evaluate a Guide.
    pub held_out: usize,
    /// Seed of the choice of conjectures.
    pub seed: u64,
    /// The served model and its settings, for Lean.
    pub teacher: Option<TeacherOptions>,
}

/// The written corpora.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviews {
    /// The author of the reviews: the served model's name, or the rubric.
    pub author: String,
    /// The formal system of the runs.
    pub system: SystemName,
    /// Number of reviews to train on.
    pub train: usize,
    /// Number of reviews to evaluate a Guide.
    pub held_out: usize,
    /// The configuration file for `sgs sft`.
    pub sft: PathBuf,
}

/// A target and an accepted conjecture for it.
struct Pair {
    target: Problem,
    conjecture: Problem,
}

/// Collects reviews and writes `guide.parquet`, `guide-held-out.parquet` and `sft.toml`. `on_progress` receives the
/// number of reviews so far and the requested number.
///
/// # Errors
/// Returns an error if a run has another formal system than the others or one without such reviews, if the runs have too
/// few conjectures, if the endpoint is missing, superfluous or cannot be used, or if a file cannot be read or written.
pub fn collect_reviews(
    options: &ReviewOptions,
    on_progress: impl Fn(usize, usize) + Sync,
) -> Result<Reviews> {
    let views = options.runs.iter().map(|run| Ok(RunView::open(run)?)).collect::<Result<Vec<_>>>()?;
    let configs = views.iter().map(folder::config_of).collect::<Result<Vec<_>>>()?;
    let Some(config) = configs.first() else { return Err(Usage("give a run".to_owned()).into()) };
    let system = config.problems.system;
    let database = &config.problems.database;
    let differs = |other: &RunConfig| other.problems.system != system || other.problems.database != *database;
    if let Some(other) = configs.iter().position(differs) {
        let [first, other] = [0, other].map(|run| options.runs[run].display());
        return Err(Usage(format!("{first} and {other} have different formal systems or databases")).into());
    }
    match (system, &options.teacher) {
        (SystemName::Lean, Some(teacher)) => {
            let templates = config.lean.clone().unwrap_or_default().templates().map_err(Usage::of)?;
            by_served_model(options, teacher, pairs(&views, options)?, &templates, on_progress)
        }
        (SystemName::Lean, None) => {
            Err(Usage("a served model reviews conjectures of Lean: give --endpoint".to_owned()).into())
        }
        (SystemName::Metamath, None) => {
            let system = system::metamath_database(database)?;
            by_rubric(options, pairs(&views, options)?, &system, on_progress)
        }
        (SystemName::Metamath, Some(_)) => Err(Usage(
            "the rubric reviews conjectures of Metamath, because a served model cannot follow the prompts: leave out \
             --endpoint"
                .to_owned(),
        )
        .into()),
        (SystemName::External, _) => {
            Err(Usage("conjectures of an external system cannot be reviewed".to_owned()).into())
        }
    }
}

/// Asks a served model for reviews. If the reviews of a pair are all malformed, the pair is replaced by another one.
fn by_served_model(
    options: &ReviewOptions,
    teacher_options: &TeacherOptions,
    pairs: Vec<Pair>,
    templates: &Templates,
    on_progress: impl Fn(usize, usize) + Sync,
) -> Result<Reviews> {
    let out = &options.out;
    let about = |Pair { target, conjecture }| {
        About::new(&conjecture.id, prompt::guide(templates, &target, &conjecture))
    };
    let questions: Vec<About> = pairs.into_iter().map(about).collect();
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let made = json!({ "model": teacher_options.endpoint.model, "seed": options.seed });
    let mut ledger = Ledger::<Said<String>>::open(&out.join(LEDGER), &made)?;
    let mut teacher = Teacher::new(teacher_options.clone());
    let read = |text: &str| read_review(text).is_ok().then(|| text.to_owned());
    let wanted = options.held_out + options.count;
    let mut asked = wanted;
    let reviewed = loop {
        let asking = &questions[..asked];
        teacher.ask(&mut ledger, asking, 1.0, read, |n| on_progress(n, asked))?;
        let row = |about: &About| {
            let review = ledger.found(&about.subject)?.said.clone();
            Some(row("review", &about.subject.id.to_string(), about.text.clone(), review))
        };
        let reviewed: Vec<CorpusRow> = asking.iter().filter_map(row).collect();
        if reviewed.len() >= wanted || asked == questions.len() {
            break reviewed;
        }
        asked = (asked + wanted - reviewed.len()).min(questions.len());
    };
    let author = teacher.model().unwrap_or("a served model").to_owned();
    write(options, SystemName::Lean, author, reviewed)
}

/// Reviews conjectures by the rubric, which needs no model.
fn by_rubric(
    options: &ReviewOptions,
    pairs: Vec<Pair>,
    system: &Metamath,
    on_progress: impl Fn(usize, usize) + Sync,
) -> Result<Reviews> {
    let ledger = options.out.join(LEDGER);
    if ledger.exists() {
        let ledger = ledger.display();
        return Err(
            Usage(format!("{ledger} has a served model's reviews: choose another folder (--out)")).into()
        );
    }
    let wanted = options.held_out + options.count;
    let mut reviewed = Vec::with_capacity(wanted.min(pairs.len()));
    for Pair { target, conjecture } in pairs.into_iter().take(wanted) {
        let found = system
            .rubric_review(&target.statement, &conjecture.statement)
            .map_err(|e| RunError::Failed(format!("the conjecture {} of a run: {e}", conjecture.id)))?;
        let Prompt::Raw(prompt) = system.guide_prompt(&target, &conjecture) else {
            unreachable!("invariant: Metamath prompts are raw")
        };
        let kind = if found.is_padded { PADDED } else { "conjecture" };
        let completion = format!("{} {END}", Metamath::review_completion(&found.review));
        reviewed.push(row(kind, &conjecture.id.to_string(), prompt, completion));
        on_progress(reviewed.len(), wanted);
    }
    let out = &options.out;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    write(options, SystemName::Metamath, "the rubric".to_owned(), reviewed)
}

/// The file of a served model's reviews, in the output folder.
const LEDGER: &str = "reviews.jsonl";

/// The kind of a review of a padded conjecture ([`sgs_metamath::rubric::is_padded`]).
pub const PADDED: &str = "padded";

/// Returns the distinct pairs of a target and an accepted conjecture. The order depends on the seed only, and every part of
/// the list has pairs of all rounds.
fn pairs(views: &[RunView], options: &ReviewOptions) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    let mut seen = HashSet::new();
    for view in views {
        for round in view.rounds()? {
            let place = || format!("round {}", round.round());
            let mut statements = HashMap::new();
            for row in round.problems().with_context(place)? {
                let row = row.with_context(place)?;
                statements.insert(row.id, (row.statement, row.context));
            }
            for row in round.conjectures().with_context(place)? {
                let row = row.with_context(place)?;
                let (ConjectureRowStatus::Accepted, Some(statement), Some((target, context))) =
                    (row.status, row.statement, statements.get(&row.target))
                else {
                    continue;
                };
                if seen.insert((Arc::clone(target), Arc::clone(&statement))) {
                    let problem = |id, statement| Problem { id, statement, context: Arc::clone(context) };
                    let target = problem(row.target, Arc::clone(target));
                    pairs.push(Pair { target, conjecture: problem(row.id, statement) });
                }
            }
        }
    }
    let wanted = options.held_out + options.count;
    if pairs.len() < wanted {
        let runs: Vec<String> = options.runs.iter().map(|run| run.display().to_string()).collect();
        bail!(
            "{}: {} different pairs of a target and an accepted conjecture, but {wanted} reviews are requested: continue \
             a run (`sgs resume`), give more runs, or request fewer (-n, --held-out)",
            runs.join(", "),
            pairs.len()
        );
    }
    pairs.sort_by_key(|pair| task_seed(options.seed, 0, Role::Guide, &pair.conjecture.id, 0));
    Ok(pairs)
}

fn row(kind: &str, source: &str, prompt: String, completion: String) -> CorpusRow {
    let (role, kind, source) = (Role::Guide.as_str().to_owned(), kind.to_owned(), source.to_owned());
    CorpusRow { role, kind, source, prompt, completion }
}

/// Writes the corpora and the configuration for `sgs sft`.
fn write(
    options: &ReviewOptions,
    system: SystemName,
    author: String,
    mut reviewed: Vec<CorpusRow>,
) -> Result<Reviews> {
    let out = &options.out;
    let train = reviewed.split_off(options.held_out.min(reviewed.len()));
    reviewed.iter_mut().for_each(|row| row.role = HELD_OUT.to_owned());
    let (found, held_out) = (train.len(), reviewed.len());
    write_rows(&out.join("guide.parquet"), train)?;
    write_rows(&out.join("guide-held-out.parquet"), reviewed)?;
    let sft = out.join("sft.toml");
    write_file(&sft, configuration(out, system).as_bytes())?;
    Ok(Reviews { author, system, train: found, held_out, sft })
}

fn configuration(folder: &Path, system: SystemName) -> String {
    // A path may contain characters that must be escaped in a TOML string.
    let data = toml::Value::String(folder.display().to_string());
    let settings = match system {
        SystemName::Lean | SystemName::External => LEAN_SFT,
        SystemName::Metamath => METAMATH_SFT,
    };
    format!(
        "# A Guide that writes reviews in the form that is read: sgs sft THIS --model BASE --out guide\n\
         data = {data}\nseed = 1\n{settings}"
    )
}

/// Settings for a model with billions of parameters.
const LEAN_SFT: &str = "\
[[corpus]]
file = \"guide.parquet\"
chat = true
passes = 2.0
[train]
batch_size = 32
context = 8192
micro_batch_tokens = 8192
learning_rate = 1e-5
warmup_steps = 10
floor = 0.1
weight_decay = 0.0
beta2 = 0.95
checkpoint_every = 50
recompute = true
";

/// Settings for a model with millions of parameters.
const METAMATH_SFT: &str = "\
[[corpus]]
file = \"guide.parquet\"
passes = 4.0
[train]
batch_size = 64
micro_batch_tokens = 16384
learning_rate = 5e-4
warmup_steps = 20
floor = 0.1
weight_decay = 0.0
beta2 = 0.95
checkpoint_every = 1000
";
