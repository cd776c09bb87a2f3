//! `sgs status`: the progress of a run, whether or not a process is executing it.

use crate::activity::{Activity, activity_of, fleet};
use crate::args::StatusArgs;
use crate::exit::Outcome;
use crate::output::{self, counted};
use crate::pace::duration_text;
use crate::terminal::{COLUMNS, columns};
use crate::{evaluation_line, page, wrap};
use anyhow::{Context, Result};
use serde::Serialize;
use sgs_analysis::plot::{grouped, percent};
use sgs_analysis::run::{RunData, metric};
use sgs_base::excerpt;
use sgs_fleet::BoardStatus;
use sgs_run::config::machine;
use sgs_run::round::record;
use sgs_rundir::journal::JournalStage;
use sgs_rundir::{MetricValues, RunView};
use std::collections::BTreeMap;
use std::io::IsTerminal as _;

#[derive(Debug, Serialize)]
struct RunStatus {
    run: String,
    method: Option<String>,
    version: Option<String>,
    #[serde(flatten)]
    activity: Activity,
    /// Why the run ended, if it did.
    ended: Option<String>,
    published: usize,
    /// Total number of rounds, if configured.
    rounds: Option<u64>,
    /// Limit on the Solver's generations, if there is one.
    generations: Option<u64>,
    /// The round in progress with its stage; absent between rounds.
    progress: Option<RoundInProgress>,
    checkpoints: Vec<u32>,
    free_disk_bytes: Option<u64>,
    last: Vec<MetricValues>,
    /// Metrics of the newest round that can be read.
    #[serde(skip)]
    newest: Option<MetricValues>,
    /// Metrics of the base model's evaluation, if there is one.
    base_evaluation: Option<MetricValues>,
    last_evaluation: Option<MetricValues>,
    /// Path of the report, if it exists.
    report: Option<String>,
    /// Queue and workers, if the run has remote workers and its coordinator answers.
    fleet: Option<BoardStatus>,
    /// Address for workers.
    url: Option<String>,
    notes: Vec<String>,
    /// Whether the state or a note reports damage to the run's files.
    #[serde(skip)]
    is_damaged: bool,
}

#[derive(Debug, Serialize)]
struct RoundInProgress {
    round: u32,
    stage: JournalStage,
    /// Seconds since the stage was reached.
    seconds: f64,
    /// Number of results in the journal, by kind.
    records: BTreeMap<String, u64>,
}

/// Prints the results in the journal.
fn print_journal(view: &RunView) -> Result<Outcome> {
    let journal = view.journal()?;
    let rounds = journal.rounds_with_records()?;
    if rounds.is_empty() {
        eprintln!("no unpublished results");
    }
    for round in rounds {
        // Print after reading, so that a slow reader of the output does not block the journal.
        for record in journal.records(round, None)? {
            for entry in record::entries(&record.payload).with_context(|| format!("{:?}", record.key))? {
                output::line(serde_json::to_string(&entry)?)?;
            }
        }
    }
    Ok(Outcome::Done)
}

pub fn run(args: &StatusArgs) -> Result<Outcome> {
    args.page.check()?;
    crate::run_folder::check("sgs status", &args.dir)?;
    let view = RunView::open(&args.dir)?;
    if let Some(address) = args.page.serve {
        page::watch(&args.dir, address, &args.page)?;
        return Ok(Outcome::Done);
    }
    if args.journal {
        return print_journal(&view);
    }
    let status = status(&view, args.rounds)?;
    if args.json {
        output::json(&status)?
    } else {
        let columns = if std::io::stdout().is_terminal() { columns() } else { COLUMNS };
        output::line(text(&status, columns))?
    }
    Ok(if status.is_damaged { Outcome::Failed } else { Outcome::Done })
}

fn status(view: &RunView, shown: usize) -> Result<RunStatus> {
    let config = view.config()?;
    let find = |key: &str| find(&config, key);
    let whole = |key| find(key).and_then(toml::Value::as_integer).and_then(|n| u64::try_from(n).ok());
    let rounds = whole("rounds");
    let published = view.rounds()?;
    let mut notes = Vec::new();
    let mut last = Vec::new();
    // The line about solved targets needs the newest round, even if no round is shown.
    for round in published.iter().rev().take(shown.max(1)).rev() {
        match round.metrics() {
            Ok(metrics) => last.push(metrics),
            Err(error) => notes.push(format!("round {}: {error}", round.round())),
        }
    }
    let newest = last.last().cloned();
    if shown == 0 {
        last.clear();
    }
    let progress = match progress(view) {
        Ok(progress) => progress,
        Err(error) => {
            notes.push(error.to_string());
            None
        }
    };
    let [base_evaluation, last_evaluation] = evaluations(view, &mut notes);
    let report = Some(view.report_directory().join("index.html")).filter(|page| page.is_file());
    notes.extend(view.check_config().err().map(|error| error.to_string()));
    notes.extend(view.missing_round().map(|error| error.to_string()));
    let activity = activity_of(view, rounds, published.len(), progress.is_some());
    // The later notes are about workers.
    let is_damaged = !notes.is_empty() || matches!(activity, Activity::Damaged { .. });
    let (url, fleet) = match activity {
        Activity::Running { .. } => fleet(view.path(), &mut notes),
        _ => (None, None),
    };
    Ok(RunStatus {
        fleet,
        url,
        run: view.path().display().to_string(),
        method: find("method").and_then(toml::Value::as_str).map(str::to_owned),
        version: find("version").and_then(toml::Value::as_str).map(str::to_owned),
        ended: view.why_ended(),
        activity,
        published: published.len(),
        rounds,
        generations: whole("generations").filter(|limit| *limit > 0),
        progress,
        checkpoints: view.checkpoints().list()?.iter().map(|c| c.round).collect(),
        free_disk_bytes: machine::free_disk(view.path()),
        last,
        newest,
        base_evaluation,
        last_evaluation,
        report: report.map(|page| page.display().to_string()),
        notes,
        is_damaged,
    })
}

/// Returns the metrics of the base model's evaluation and of the last one. Adds a note if they cannot be read.
fn evaluations(view: &RunView, notes: &mut Vec<String>) -> [Option<MetricValues>; 2] {
    let all = view.evaluations().map_err(|error| notes.push(error.to_string())).unwrap_or_default();
    let mut read: Vec<Option<MetricValues>> = Vec::new();
    for evaluation in all.iter().take(1).chain(all.iter().skip(1).last()) {
        read.push(evaluation.metrics().map_err(|error| notes.push(format!("evaluation: {error}"))).ok());
    }
    let base = read.first().cloned().flatten().filter(|_| all.first().is_some_and(|first| first.after == 0));
    [base, read.pop().flatten()]
}

/// Returns the value of a key in the outermost table, or in the first inner table that has it. Ignores tables.
fn find<'a>(table: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    let own = table.get(key).filter(|value| !value.is_table());
    own.or_else(|| table.values().filter_map(toml::Value::as_table).find_map(|t| find(t, key)))
}

fn progress(view: &RunView) -> Result<Option<RoundInProgress>> {
    let journal = view.journal()?;
    let markers = journal.markers()?;
    let Some(marker) = markers.last().filter(|m| m.stage != JournalStage::Published) else { return Ok(None) };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(Some(RoundInProgress {
        round: marker.round,
        stage: marker.stage,
        seconds: (now.as_secs_f64() - marker.unix_time).max(0.0),
        records: record::counts(&journal, marker.round)?,
    }))
}

/// Width of the first column.
const NAME: usize = 13;

/// Formats the status for a number of columns. Only paths and commands can be longer.
fn text(status: &RunStatus, columns: usize) -> String {
    let is_whole = |name: &str| ["run", TO_CONTINUE, FOR_A_REPORT, "report"].contains(&name);
    let mut out = String::new();
    for (name, value) in rows(status) {
        let columns = if is_whole(name) { usize::MAX } else { columns };
        out.push_str(&(wrap::wrapped(&format!("{name:<NAME$}{value}"), columns, NAME) + "\n"));
    }
    if !status.last.is_empty() {
        out.push_str(&format!("\nLatest rounds:\n\n{}\n", table(&status.last, columns)));
    }
    if let Some(board) = status.fleet.as_ref().filter(|board| !board.workers.is_empty()) {
        out.push_str(&format!("\n{}\n", workers(board, columns)));
    }
    for note in &status.notes {
        out.push_str(&(wrap::wrapped(&format!("note: {note}"), columns, "note: ".len()) + "\n"));
    }
    out.truncate(out.trim_end().len());
    out
}

const TO_CONTINUE: &str = "to continue";
const FOR_A_REPORT: &str = "for a report";

/// Returns the lines before the tables: name and value.
fn rows(status: &RunStatus) -> Vec<(&'static str, String)> {
    let mut rows = vec![("run", status.run.clone())];
    if let Some(method) = &status.method {
        let version = status.version.as_deref().map(|v| format!(" (sgs {v})")).unwrap_or_default();
        rows.push(("method", format!("{method}{version}")));
    }
    rows.push(("state", activity(status)));
    match &status.activity {
        Activity::Stopped => rows.push((TO_CONTINUE, format!("sgs resume {}", status.run))),
        Activity::Finished if status.report.is_none() => {
            rows.push((FOR_A_REPORT, format!("sgs report {}", status.run)));
        }
        _ => {}
    }
    let of = status.rounds.map(|n| format!(" of {n}")).unwrap_or_default();
    rows.push(("rounds", format!("{}{of} published (numbered from 0)", status.published)));
    if let Some(p) = &status.progress {
        let records: Vec<String> = p.records.iter().map(|(kind, n)| counted(*n as usize, kind)).collect();
        let records = if records.is_empty() { "no results yet".to_owned() } else { records.join(", ") };
        let since = duration_text(p.seconds);
        rows.push(("in progress", format!("round {}, {} {since} ago: {records}", p.round, p.stage.as_str())));
    }
    if let Some(newest) = &status.newest {
        rows.push(("solved", solved(newest, status.generations)));
    }
    let last = status.last_evaluation.as_ref();
    if let Some(line) =
        last.and_then(|last| evaluation_line::pass_at_1(last, status.base_evaluation.as_ref()))
    {
        rows.push(("held out", line));
    }
    if let Some(report) = &status.report {
        rows.push(("report", report.clone()));
    }
    if let Some(url) = &status.url {
        rows.push(("coordinator", url.clone()));
    }
    if let Some(board) = &status.fleet {
        let queue: Vec<String> = board
            .kinds
            .iter()
            .map(|k| format!("{}: {} pending, {} leased", k.kind, k.pending, k.leased))
            .collect();
        rows.push(("queue", if queue.is_empty() { "empty".to_owned() } else { queue.join("; ") }));
    }
    let newest = status.checkpoints.last().map_or("none yet".to_owned(), |r| format!("newest of round {r}"));
    rows.push(("checkpoints", format!("{}, {newest}", status.checkpoints.len())));
    if let Some(free) = status.free_disk_bytes {
        rows.push(("free disk", machine::bytes(free)));
    }
    rows
}

fn activity(status: &RunStatus) -> String {
    match &status.activity {
        Activity::Running { holder } => format!("running ({holder})"),
        Activity::Damaged { problem } => problem.clone(),
        Activity::Finished => {
            let ended = status.ended.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            format!("finished{ended}")
        }
        Activity::Stopped => "stopped".to_owned(),
    }
}

fn solved(metrics: &MetricValues, limit: Option<u64>) -> String {
    let limit = limit.map(|limit| format!(" (limit {})", grouped(limit as f64))).unwrap_or_default();
    let value = |name| RunData::value(metrics, name);
    let count = |name| value(name).map_or("?".to_owned(), grouped);
    let rate = value(metric::CUMULATIVE).map_or("?".to_owned(), percent);
    format!(
        "{} of {} targets ({rate}) after {} generations{limit}",
        count(metric::SOLVED_EVER),
        count(metric::TARGETS),
        count(metric::GENERATIONS)
    )
}

/// Formats the rounds, without the last columns of the table if it is wider than `columns`.
fn table(rounds: &[MetricValues], columns: usize) -> String {
    let all = (1..=ROUND_COLUMNS.len()).rev().map(|count| table_of(rounds, &ROUND_COLUMNS[..count]));
    let fits = |table: &String| table.lines().all(|line| line.chars().count() <= columns);
    let mut narrowest = String::new();
    all.inspect(|table| narrowest.clone_from(table)).find(fits).unwrap_or(narrowest)
}

/// A column of the table of rounds: its name on up to three lines, its metric, and the format of its values.
type RoundColumn = (&'static str, &'static str, fn(f64) -> String);

const ROUND_COLUMNS: [RoundColumn; 8] = [
    ("generations", metric::GENERATIONS, grouped),
    ("ever\nsolved", metric::CUMULATIVE, percent),
    ("newly\nsolved", "targets_newly_solved", grouped),
    ("this\nround\npass@1", metric::TARGET_RATE, percent),
    // These names are broken, so that the table fits into 80 columns.
    ("conjec-\ntures", metric::CONJECTURES_ACCEPTED, grouped),
    ("conjec-\ntures\nsolved", metric::CONJECTURES_SOLVED, grouped),
    ("Guide's\nscore", metric::R_GUIDE, output::decimals),
    ("entropy", metric::SOLVER_ENTROPY, output::decimals),
];

fn table_of(rounds: &[MetricValues], columns: &[RoundColumn]) -> String {
    let mut header = vec!["round"];
    header.extend(columns.iter().map(|c| c.0));
    let line = |number| header.iter().map(move |name| name.rsplit('\n').nth(number).unwrap_or_default());
    let mut rows: Vec<Vec<String>> = [1, 0].map(|number| line(number).map(str::to_owned).collect()).into();
    rows.extend(rounds.iter().map(|round| {
        let cell = |&(_, name, format): &RoundColumn| {
            RunData::value(round, name).map_or_else(|| "-".to_owned(), format)
        };
        let cells = columns.iter().map(cell);
        [round.round.to_string()].into_iter().chain(cells).collect()
    }));
    output::table(&line(2).collect::<Vec<_>>(), &rows)
}

/// Formats the workers with their leases and results, and then their last errors.
fn workers(board: &BoardStatus, columns: usize) -> String {
    let rows: Vec<Vec<String>> = board
        .workers
        .iter()
        .map(|w| {
            vec![
                w.worker.to_string(),
                w.leases.to_string(),
                w.done.to_string(),
                w.failed.to_string(),
                duration_text(w.silent_s),
            ]
        })
        .collect();
    let mut out = output::table(&["worker", "leases", "done", "failed", "last seen"], &rows);
    for w in &board.workers {
        let benched = (w.backoff_s > 0.0).then(|| format!("benched for {}", duration_text(w.backoff_s)));
        let error =
            w.last_error.as_deref().map(|error| format!("last error: {}", excerpt::beginning_of(error)));
        let parts: Vec<String> = benched.into_iter().chain(error).collect();
        if !parts.is_empty() {
            let line = format!("{}: {}", w.worker, parts.join("; "));
            out.push_str(&format!("\n{}", wrap::wrapped(&line, columns, 2)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_gets_the_first_columns_of_the_table() {
        let mut round = MetricValues::new(3);
        ROUND_COLUMNS.iter().for_each(|(_, name, _)| round.set(*name, 0.25));
        let widths = [80, 60, 20].map(|columns| {
            let table = table(std::slice::from_ref(&round), columns);
            let entries = table.lines().last().unwrap().split_whitespace().count();
            (entries, table.lines().map(str::len).max().unwrap())
        });
        assert_eq!(widths, [(9, 78), (7, 60), (2, 18)]);
    }

    #[test]
    fn keys_are_found_at_any_depth() {
        let table: toml::Table = "[run]\nrounds = 7\n[run.deep]\nmethod = 'sgs'\n".parse().unwrap();
        assert_eq!(find(&table, "rounds").and_then(toml::Value::as_integer), Some(7));
        assert_eq!(find(&table, "method").and_then(toml::Value::as_str), Some("sgs"));
        assert!(find(&table, "other").is_none());
    }
}
