//! `sgs data filter`: the stages by which the paper made D_3k.

use crate::args::DataFilterArgs;
use crate::exit::Outcome;
use crate::{lean, output};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sgs_lean::LeanSettings;
use sgs_run::filter::{self, Filter, FilterConfig, Row};

/// Filters a data set; goes on where it was stopped.
pub fn run(args: &DataFilterArgs) -> Result<Outcome> {
    let config = FilterConfig::read(&args.config)?;
    let settings = lean::settings_over(LeanSettings::default(), &args.lean)?;
    let (system, targets, notes) = filter::open(&config, &settings)?;
    lean::say(&notes);
    let bar = bar("problems");
    let filter = Filter {
        config: &config,
        out: &args.out,
        device: args.device,
        system: &system,
        on_stage: &|stage, problems| {
            bar.set_message(stage.to_owned());
            bar.set_length(problems as u64);
            bar.set_position(0);
        },
        on_problem: &|done| bar.inc(done as u64),
    };
    let rows = filter.run(&targets);
    bar.finish_and_clear();
    let rows = rows?;
    match args.json {
        true => output::json(&json!({ "problems": targets.len(), "stages": rows }))?,
        false => output::line(format!("{}\n\n{}", table(&rows), args.out.join("report.md").display()))?,
    }
    Ok(Outcome::Done)
}

/// Problems done, on a terminal.
pub fn bar(what: &str) -> ProgressBar {
    let template = format!("{{msg}} {{bar:32}} {{pos}}/{{len}} {what}  {{per_sec}}  {{eta}} left");
    let style = ProgressStyle::with_template(&template);
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn table(rows: &[Row]) -> String {
    let cells = |row: &Row| {
        let numbers = [row.came, row.kept, row.undecided].map(|n| n.to_string());
        let [came, kept, undecided] = numbers;
        vec![row.stage.clone(), came, kept, undecided, row.reasons()]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    output::table(&["stage", "came", "kept", "of them undecided", "fell"], &rows)
}
