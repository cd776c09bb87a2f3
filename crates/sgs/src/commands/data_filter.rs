//! `sgs data filter`: the stages by which the paper made D_3k.

use super::explain;
use crate::args::DataFilterArgs;
use crate::exit::Outcome;
use crate::terminal::{self, LiveGuard};
use crate::{lean, output};
use anyhow::Result;
use indicatif::{MultiProgress, ProgressBar};
use serde_json::json;
use sgs_data::sets::filter::{self, Filter, FilterConfig, Row};
use sgs_keys::{KeyFile, KeyTable as _};
use sgs_lean::LeanSettings;
use std::ops::Deref;

/// Filters a data set; continues where an earlier call stopped.
pub fn run(args: &DataFilterArgs) -> Result<Outcome> {
    let (Some(path), Some(out), false) = (&args.config, &args.out, args.explain) else {
        return explain::file("sgs data filter", &FilterConfig::keys(""));
    };
    let config = FilterConfig::of(&KeyFile::read(path)?)?;
    let settings = lean::settings_over(LeanSettings::default(), &args.lean)?;
    let (system, targets, notes) = filter::open(&config, &settings)?;
    lean::print_notes(&notes);
    let bar = bar("problems");
    let filter = Filter {
        config: &config,
        out,
        device: args.device,
        system: &system,
        on_stage: &|stage, problems| {
            bar.set_message(stage.to_owned());
            bar.set_length(problems as u64);
            bar.set_position(0);
        },
        on_problem: &|done| bar.inc(done as u64),
    };
    let rows = filter.run(&targets)?;
    drop(bar);
    match args.json {
        true => output::json(&json!({ "problems": targets.len(), "stages": rows }))?,
        false => output::line(format!("{}\n\n{}", table(&rows), out.join("report.md").display()))?,
    }
    Ok(Outcome::Done)
}

/// A progress bar on the terminal, below other output; removed on drop.
pub struct Bar {
    bar: ProgressBar,
    _live: LiveGuard,
}

impl Deref for Bar {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.bar
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Creates a progress bar that counts `what`.
pub fn bar(what: &str) -> Bar {
    let template = format!("{{msg}} {{bar:32}} {{pos}}/{{len}} {what}  {{per_sec}}  {{eta}} left");
    let style = terminal::bar_style(&template);
    let bars = MultiProgress::new();
    Bar { bar: bars.add(ProgressBar::new(0).with_style(style)), _live: terminal::live(&bars) }
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
