//! `sgs data classify`: classifies problems by difficulty and area with a served model.

use crate::args::DataClassifyArgs;
use crate::commands::data_filter::bar;
use crate::exit::Outcome;
use crate::output;
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use sgs_analysis::figures::problem_types;
use sgs_analysis::plot::{percent, standalone_svg};
use sgs_data::sets::classify::{ENOUGH, classify};
use sgs_data::sets::label::{AREAS, DIFFICULTIES};
use sgs_run::config::system;
use sgs_rundir::files::write_file;

/// Classifies a data set; continues where an earlier call stopped.
pub fn run(args: &DataClassifyArgs) -> Result<Outcome> {
    let targets = system::lean_targets(&args.problems)?;
    if targets.is_empty() {
        bail!("{} contains no problems", args.problems);
    }
    let bar = bar("problems");
    bar.set_length(targets.len() as u64);
    let teacher = args.teacher.options().context("--endpoint is required")?;
    let found = classify(&targets, &teacher, &args.out, |n| bar.set_position(n as u64))?;
    drop(bar);

    let figure = problem_types(&AREAS.map(display_name), &DIFFICULTIES.map(display_name), &found.counts);
    write_file(&args.out.join("classes.svg"), standalone_svg(&figure).as_bytes())?;
    match args.json {
        true => output::json(&json!({
            "model": found.model, "problems": found.problems, "classified": found.classified,
            "difficulties": DIFFICULTIES, "areas": AREAS, "counts": found.counts,
        }))?,
        false => output::line(format!(
            "{} of {} problems classified by {} ({})\n\n{}\n\n{}",
            found.classified,
            found.problems,
            found.model.as_deref().unwrap_or("a served model"),
            percent(found.share()),
            table(&found.counts),
            args.out.join("classes.svg").display()
        ))?,
    }
    Ok(if found.share() > ENOUGH { Outcome::Done } else { Outcome::Failed })
}

fn display_name(name: &str) -> String {
    name.replace('_', " ")
}

fn table(counts: &[Vec<usize>]) -> String {
    let rows: Vec<Vec<String>> = AREAS
        .iter()
        .enumerate()
        .map(|(area, name)| {
            let row = counts.iter().map(|of| of.get(area).copied().unwrap_or_default());
            let numbers = row.clone().chain([row.sum()]).map(|n| n.to_string());
            [display_name(name)].into_iter().chain(numbers).collect()
        })
        .collect();
    let names = DIFFICULTIES.map(display_name);
    let header: Vec<&str> =
        ["area"].into_iter().chain(names.iter().map(String::as_str)).chain(["all"]).collect();
    output::table(&header, &rows)
}
