//! `sgs data reviews`: what a Guide is taught, reviews of a run's conjectures by a served model.

use crate::args::DataReviewsArgs;
use crate::commands::data_filter::bar;
use crate::corpus::{CorpusRow, HELD_OUT};
use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::{Context, Result, bail};
use serde_json::json;
use sgs_lean::prompt;
use sgs_lean::read::read_review;
use sgs_run::config::SystemName;
use sgs_run::folder;
use sgs_run::ledger::Ledger;
use sgs_run::teacher::{About, Enough, Said, Teacher};
use sgs_rundir::RunView;
use sgs_rundir::files::write_file;
use sgs_rundir::rows::ConjectureStatus;
use sgs_rundir::table::write_rows;
use sgs_selfplay::seed::task_seed;
use sgs_selfplay::{Problem, ProblemId, Role};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Collects reviews; goes on where it was stopped.
pub fn run(args: &DataReviewsArgs) -> Result<Outcome> {
    let view = RunView::open(&args.run)?;
    if folder::config_of(&view)?.problems.system != SystemName::Lean {
        let run = args.run.display();
        return Err(Usage(format!("{run} is no run of Lean: a served model knows no other prompts")).into());
    }
    let pairs = pairs(&view, args.teacher.seed)?;
    let wanted = args.held_out + args.count;
    if pairs.len() < wanted {
        bail!(
            "{} has accepted {} different conjectures, and {wanted} are to be reviewed: let it go on, or ask for fewer (-n, \
             --held-out)",
            args.run.display(),
            pairs.len()
        );
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let endpoint = args.teacher.endpoint();
    let made = json!({ "model": endpoint.model, "seed": args.teacher.seed });
    let mut ledger = Ledger::<Said<String>>::open(&args.out.join("reviews.jsonl"), &made)?;
    let mut teacher = Teacher::new(endpoint, args.teacher.max_new_tokens);
    let bar = bar("reviews");
    let enough = Enough { tries: args.teacher.tries, share: 1.0 };
    let read = |text: &str| read_review(text).is_ok().then(|| text.to_owned());
    // In place of a pair of which every review is malformed comes another.
    let mut asked = wanted;
    let reviewed = loop {
        bar.set_length(asked as u64);
        let questions = &pairs[..asked];
        teacher
            .ask(&mut ledger, questions, args.teacher.seed, enough, read, |n| bar.set_position(n as u64))?;
        let reviewed: Vec<CorpusRow> =
            questions.iter().filter_map(|about| Some(row(about, ledger.found(&about.subject)?))).collect();
        if reviewed.len() >= wanted || asked == pairs.len() {
            break reviewed;
        }
        asked = (asked + wanted - reviewed.len()).min(pairs.len());
    };
    drop(bar);
    write(args, &teacher, reviewed)
}

/// Conjectures that became problems, each different pair of target and conjecture once, with what a Guide is asked of it;
/// in an order that a seed fixes, so that every part of them is of all rounds.
fn pairs(view: &RunView, seed: u64) -> Result<Vec<About>> {
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
            let (ConjectureStatus::Accepted, Some(statement), Some(target)) =
                (row.status, row.statement, statements.get(&row.target))
            else {
                continue;
            };
            let problem =
                |id: &ProblemId, statement| Problem { id: id.clone(), statement, context: "".into() };
            let (target, conjecture) = (problem(&row.target, target.clone()), problem(&row.id, statement));
            let question = prompt::guide(&target, &conjecture);
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

/// Writes the corpora and the file for `sgs sft`.
fn write(args: &DataReviewsArgs, teacher: &Teacher, mut reviewed: Vec<CorpusRow>) -> Result<Outcome> {
    let train = reviewed.split_off(args.held_out.min(reviewed.len()));
    reviewed.iter_mut().for_each(|row| row.role = HELD_OUT.to_owned());
    let (found, held_out) = (train.len(), reviewed.len());
    write_rows(&args.out.join("guide.parquet"), train)?;
    write_rows(&args.out.join("guide-held-out.parquet"), reviewed)?;
    let sft = args.out.join("sft.toml");
    write_file(&sft, configuration(&args.out).as_bytes())?;
    let (model, out) = (teacher.model().unwrap_or("a served model"), args.out.display());
    output::line(format!(
        "{found} reviews by {model} to train on, {held_out} held out: {out}\n\
         next: sgs sft {} --model BASE --out guide\n\
         then: sgs eval --system lean --model guide/model --reviews {out}/guide-held-out.parquet --only-reviews",
        sft.display()
    ))?;
    Ok(if found >= args.count { Outcome::Done } else { Outcome::Failed })
}

fn configuration(folder: &Path) -> String {
    // What a path may hold, a TOML string may not.
    let data = toml::Value::String(folder.display().to_string());
    format!(
        "# A Guide that writes reviews in the form that is read: sgs sft THIS --model BASE --out guide\n\
         data = {data}\nseed = 1\n\
         [[corpus]]\nfile = \"guide.parquet\"\nchat = true\npasses = 2.0\n\
         [train]\nbatch_size = 32\ncontext = 8192\nmicro_batch_tokens = 8192\nlearning_rate = 1e-5\nwarmup_steps = 10\n\
         floor = 0.1\nweight_decay = 0.0\nbeta2 = 0.95\ncheckpoint_every = 50\nrecompute = true\n"
    )
}
