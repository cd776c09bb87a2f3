//! Reviews of a run's conjectures by a served model, as a corpus for training a Guide.

use super::ledger::Ledger;
use super::teacher::{About, Said, Teacher, TeacherOptions};
use crate::corpus::{CorpusRow, HELD_OUT};
use serde_json::json;
use sgs_lean::read::read_review;
use sgs_lean::{Templates, prompt};
use sgs_run::Usage;
use sgs_run::config::SystemName;
use sgs_run::config::folder;
use sgs_run::error::{Context, Result, bail};
use sgs_rundir::RunView;
use sgs_rundir::files::write_file;
use sgs_rundir::rows::ConjectureRowStatus;
use sgs_rundir::table::write_rows;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{Problem, ProblemId, Role};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Options of the collection.
#[derive(Clone, Debug)]
pub struct ReviewOptions {
    /// The run's folder.
    pub run: PathBuf,
    /// The folder to write to. A later call with the same folder continues.
    pub out: PathBuf,
    /// Number of reviews to train on.
    pub count: usize,
    /// Number of reviews of other conjectures, to evaluate a Guide.
    pub held_out: usize,
    /// The served model and its settings.
    pub teacher: TeacherOptions,
}

/// The written corpora.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviews {
    /// The served model's name, if it is known.
    pub model: Option<String>,
    /// Number of reviews to train on.
    pub train: usize,
    /// Number of reviews to evaluate a Guide.
    pub held_out: usize,
    /// The configuration file for `sgs sft`.
    pub sft: PathBuf,
}

/// Collects reviews and writes `guide.parquet`, `guide-held-out.parquet` and `sft.toml`. `on_progress` receives the
/// number of reviews so far and the requested number.
///
/// # Errors
/// Returns an error if the run is not one of Lean or has too few conjectures, if the endpoint cannot be used, or if a file
/// cannot be read or written.
pub fn collect_reviews(
    options: &ReviewOptions,
    on_progress: impl Fn(usize, usize) + Sync,
) -> Result<Reviews> {
    let (out, teacher_options) = (&options.out, &options.teacher);
    let view = RunView::open(&options.run)?;
    let config = folder::config_of(&view)?;
    if config.problems.system != SystemName::Lean {
        let run = options.run.display();
        return Err(
            Usage(format!("{run} is not a run of Lean: a served model knows no other prompts")).into()
        );
    }
    let templates = config.lean.unwrap_or_default().templates().map_err(Usage::of)?;
    let pairs = pairs(&view, &templates, teacher_options.seed)?;
    let wanted = options.held_out + options.count;
    if pairs.len() < wanted {
        bail!(
            "{} has accepted {} different conjectures, and {wanted} are to be reviewed: let it go on, or ask for fewer (-n, \
             --held-out)",
            options.run.display(),
            pairs.len()
        );
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let made = json!({ "model": teacher_options.endpoint.model, "seed": teacher_options.seed });
    let mut ledger = Ledger::<Said<String>>::open(&out.join("reviews.jsonl"), &made)?;
    let mut teacher = Teacher::new(teacher_options.clone());
    let read = |text: &str| read_review(text).is_ok().then(|| text.to_owned());
    // If the reviews of a pair are all malformed, the pair is replaced by another one.
    let mut asked = wanted;
    let reviewed = loop {
        let questions = &pairs[..asked];
        teacher.ask(&mut ledger, questions, 1.0, read, |n| on_progress(n, asked))?;
        let reviewed: Vec<CorpusRow> =
            questions.iter().filter_map(|about| Some(row(about, ledger.found(&about.subject)?))).collect();
        if reviewed.len() >= wanted || asked == pairs.len() {
            break reviewed;
        }
        asked = (asked + wanted - reviewed.len()).min(pairs.len());
    };
    let model = teacher.model().map(str::to_owned);
    write(options, model, reviewed)
}

/// Returns the question to a Guide for each distinct pair of a target and an accepted conjecture. The order depends on
/// the seed only, and every part of the list has pairs of all rounds.
fn pairs(view: &RunView, templates: &Templates, seed: u64) -> Result<Vec<About>> {
    let mut pairs = Vec::new();
    let mut seen = HashSet::new();
    for round in view.rounds()? {
        let place = || format!("round {}", round.round());
        let mut statements = HashMap::new();
        for row in round.problems().with_context(place)? {
            let row = row.with_context(place)?;
            statements.insert(row.id, row.statement);
        }
        for row in round.conjectures().with_context(place)? {
            let row = row.with_context(place)?;
            let (ConjectureRowStatus::Accepted, Some(statement), Some(target)) =
                (row.status, row.statement, statements.get(&row.target))
            else {
                continue;
            };
            let problem =
                |id: &ProblemId, statement| Problem { id: id.clone(), statement, context: "".into() };
            let (target, conjecture) = (problem(&row.target, target.clone()), problem(&row.id, statement));
            let question = prompt::guide(templates, &target, &conjecture);
            if seen.insert(question.clone()) {
                pairs.push(About::new(&row.id, question));
            }
        }
    }
    pairs.sort_by_key(|about: &About| task_seed(seed, 0, Role::Guide, &about.subject.id, 0));
    Ok(pairs)
}

fn row(about: &About, review: &Said<String>) -> CorpusRow {
    CorpusRow {
        role: Role::Guide.as_str().to_owned(),
        kind: "review".to_owned(),
        source: about.subject.id.to_string(),
        prompt: about.text.clone(),
        completion: review.said.clone(),
    }
}

/// Writes the corpora and the configuration for `sgs sft`.
fn write(options: &ReviewOptions, model: Option<String>, mut reviewed: Vec<CorpusRow>) -> Result<Reviews> {
    let out = &options.out;
    let train = reviewed.split_off(options.held_out.min(reviewed.len()));
    reviewed.iter_mut().for_each(|row| row.role = HELD_OUT.to_owned());
    let (found, held_out) = (train.len(), reviewed.len());
    write_rows(&out.join("guide.parquet"), train)?;
    write_rows(&out.join("guide-held-out.parquet"), reviewed)?;
    let sft = out.join("sft.toml");
    write_file(&sft, configuration(out).as_bytes())?;
    Ok(Reviews { model, train: found, held_out, sft })
}

fn configuration(folder: &Path) -> String {
    // A path may contain characters that must be escaped in a TOML string.
    let data = toml::Value::String(folder.display().to_string());
    format!(
        "# A Guide that writes reviews in the form that is read: sgs sft THIS --model BASE --out guide\n\
         data = {data}\nseed = 1\n\
         [[corpus]]\nfile = \"guide.parquet\"\nchat = true\npasses = 2.0\n\
         [train]\nbatch_size = 32\ncontext = 8192\nmicro_batch_tokens = 8192\nlearning_rate = 1e-5\nwarmup_steps = 10\n\
         floor = 0.1\nweight_decay = 0.0\nbeta2 = 0.95\ncheckpoint_every = 50\nrecompute = true\n"
    )
}
