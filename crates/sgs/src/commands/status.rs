//! `sgs status`: where a run stands, whether or not a process works on it.

use crate::args::StatusArgs;
use crate::exit::Outcome;
use crate::{output, page};
use anyhow::{Context, Result};
use serde::Serialize;
use sgs_analysis::run::{RunData, metric};
use sgs_fleet::{BoardStatus, Client};
use sgs_run::workers::outside::Remembered;
use sgs_run::{authority, folder, machine, record};
use sgs_rundir::journal::Stage;
use sgs_rundir::{MetricValues, RunView};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// Whether somebody works on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Activity {
    /// A process holds the run's lock.
    Running { holder: String },
    /// Nobody does; the run can be resumed.
    Stopped,
    /// All rounds, or the run's minutes, are over.
    Finished,
}

/// Everything that is told.
#[derive(Debug, Serialize)]
struct Status {
    run: String,
    method: Option<String>,
    version: Option<String>,
    #[serde(flatten)]
    activity: Activity,
    published: usize,
    /// Rounds in all, where the configuration tells.
    rounds: Option<u64>,
    /// The round in progress with its stage; absent between rounds.
    progress: Option<Progress>,
    checkpoints: Vec<u32>,
    free_disk_bytes: Option<u64>,
    /// The last rounds' numbers.
    last: Vec<MetricValues>,
    /// The queue and the workers, if there are some outside of the coordinator and it answers.
    fleet: Option<BoardStatus>,
    /// Where workers connect.
    url: Option<String>,
    notes: Vec<String>,
}

/// How long the coordinator may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

#[derive(Debug, Serialize)]
struct Progress {
    round: u32,
    stage: Stage,
    /// Seconds since that stage was reached.
    seconds: f64,
    /// Journalled results of each kind.
    records: BTreeMap<String, u64>,
}

/// Prints the results that the journal holds.
fn print_journal(view: &RunView) -> Result<Outcome> {
    let journal = view.journal()?;
    for round in journal.rounds_with_records()? {
        // Printed after the look: a slow reader of the output does not hold the journal.
        for record in journal.records(round, None)? {
            for entry in record::entries(&record.payload).with_context(|| format!("{:?}", record.key))? {
                output::line(serde_json::to_string(&entry)?)?;
            }
        }
    }
    Ok(Outcome::Done)
}

/// Prints the status.
pub fn run(args: &StatusArgs) -> Result<Outcome> {
    args.page.check()?;
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
        output::line(text(&status))?
    }
    Ok(Outcome::Done)
}

fn status(view: &RunView, shown: usize) -> Result<Status> {
    let config = view.config()?;
    let find = |key: &str| find(&config, key);
    let rounds = find("rounds").and_then(toml::Value::as_integer).and_then(|n| u64::try_from(n).ok());
    let published = view.rounds()?;
    let mut notes = Vec::new();
    let mut last = Vec::new();
    for round in published.iter().rev().take(shown).rev() {
        match round.metrics() {
            Ok(metrics) => last.push(metrics),
            Err(error) => notes.push(format!("round {}: {error}", round.round())),
        }
    }
    let progress = match progress(view) {
        Ok(progress) => progress,
        Err(error) => {
            notes.push(error.to_string());
            None
        }
    };
    let activity = activity_of(view.path(), rounds, published.len(), progress.is_some());
    let (url, fleet) = match activity {
        Activity::Running { .. } => fleet(view.path(), &mut notes),
        _ => (None, None),
    };
    Ok(Status {
        fleet,
        url,
        run: view.path().display().to_string(),
        method: find("method").and_then(toml::Value::as_str).map(str::to_owned),
        version: find("version").and_then(toml::Value::as_str).map(str::to_owned),
        activity,
        published: published.len(),
        rounds,
        progress,
        checkpoints: view.checkpoints().list()?.iter().map(|c| c.round).collect(),
        free_disk_bytes: machine::free_disk(view.path()),
        last,
        notes,
    })
}

/// Whether somebody works on a run of so many rounds, of which so many are published and perhaps one is in progress.
pub fn activity_of(run: &Path, rounds: Option<u64>, published: usize, in_progress: bool) -> Activity {
    match holder(run) {
        Some(holder) => Activity::Running { holder },
        None if in_progress => Activity::Stopped,
        None if rounds.is_some_and(|all| published as u64 >= all) => Activity::Finished,
        // Its minutes were over first.
        None if folder::ended(run).is_some() => Activity::Finished,
        None => Activity::Stopped,
    }
}

/// The coordinator's address and board, if workers can connect to it. That it does not answer is a note.
pub fn fleet(run: &Path, notes: &mut Vec<String>) -> (Option<String>, Option<BoardStatus>) {
    let remembered = match Remembered::read(run) {
        Ok(Some(remembered)) => remembered,
        Ok(None) => return (None, None),
        Err(error) => {
            notes.push(format!("{error:#}"));
            return (None, None);
        }
    };
    let ask = || -> Result<BoardStatus> {
        let trusted = remembered.fleet.authority.as_deref();
        let trusted =
            trusted.map(|path| authority::certificates(path, "the workers' `authority`")).transpose()?;
        let client = Client::new(&remembered.url, Some(remembered.token(run)?), trusted.as_deref())?;
        Ok(client.status_within(ANSWER)?)
    };
    match ask() {
        Ok(board) => (Some(remembered.url), Some(board)),
        Err(error) => {
            notes.push(format!("its workers are not known: {error:#}"));
            (Some(remembered.url), None)
        }
    }
}

/// The value of a key that is no table, in the outermost table or the first that has it.
fn find<'a>(table: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    let own = table.get(key).filter(|value| !value.is_table());
    own.or_else(|| table.values().filter_map(toml::Value::as_table).find_map(|t| find(t, key)))
}

fn progress(view: &RunView) -> Result<Option<Progress>> {
    let journal = view.journal()?;
    let markers = journal.markers()?;
    let Some(marker) = markers.last().filter(|m| m.stage != Stage::Published) else { return Ok(None) };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(Some(Progress {
        round: marker.round,
        stage: marker.stage,
        seconds: (now.as_secs_f64() - marker.unix_time).max(0.0),
        records: record::counts(&journal, marker.round)?,
    }))
}

/// Who works on the run. The lock is only tried where its holder may be alive, and let go at once.
fn holder(run: &Path) -> Option<String> {
    let path = run.join("lock");
    let holder = std::fs::read_to_string(&path).ok()?.trim().to_owned();
    if is_gone(&holder) {
        return None;
    }
    match File::open(&path).ok()?.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            Some(if holder.is_empty() { "a process".to_owned() } else { holder })
        }
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// Whether `process N on host H` names a process of this host that does not exist.
fn is_gone(holder: &str) -> bool {
    let Some((process, host)) = holder.strip_prefix("process ").and_then(|h| h.split_once(" on host "))
    else {
        return false;
    };
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host == here.trim() && process.parse::<u32>().is_ok_and(|p| !Path::new(&format!("/proc/{p}")).exists())
}

fn text(status: &Status) -> String {
    let mut rows = vec![("run", status.run.clone())];
    if let Some(method) = &status.method {
        let version = status.version.as_deref().map(|v| format!(" (sgs {v})")).unwrap_or_default();
        rows.push(("method", format!("{method}{version}")));
    }
    rows.push(("state", activity(status)));
    let of = status.rounds.map(|n| format!(" of {n}")).unwrap_or_default();
    rows.push(("rounds", format!("{}{of} published", status.published)));
    if let Some(p) = &status.progress {
        let records: Vec<String> = p.records.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let records =
            if records.is_empty() { "nothing journalled yet".to_owned() } else { records.join(", ") };
        let since = duration(p.seconds);
        rows.push(("in progress", format!("round {}, {} {since} ago: {records}", p.round, p.stage.as_str())));
    }
    if let Some(last) = status.last.last() {
        rows.push(("solved", solved(last)));
    }
    if let Some(url) = &status.url {
        rows.push(("coordinator", url.clone()));
    }
    if let Some(board) = &status.fleet {
        let queue: Vec<String> = board
            .kinds
            .iter()
            .map(|k| format!("{}: {} wait, {} in hand", k.kind, k.pending, k.leased))
            .collect();
        rows.push(("queue", if queue.is_empty() { "empty".to_owned() } else { queue.join("; ") }));
    }
    let newest = status.checkpoints.last().map_or("none yet".to_owned(), |r| format!("newest of round {r}"));
    rows.push(("checkpoints", format!("{}, {newest}", status.checkpoints.len())));
    if let Some(free) = status.free_disk_bytes {
        rows.push(("free disk", machine::bytes(free)));
    }
    let mut out: String = rows.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect();
    if !status.last.is_empty() {
        out.push_str(&format!("\n{}\n", table(&status.last)));
    }
    if let Some(board) = status.fleet.as_ref().filter(|board| !board.workers.is_empty()) {
        out.push_str(&format!("\n{}\n", workers(board)));
    }
    for note in &status.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    out.truncate(out.trim_end().len());
    out
}

fn activity(status: &Status) -> String {
    match &status.activity {
        Activity::Running { holder } => format!("running ({holder})"),
        Activity::Finished => format!("finished; look at it with `sgs report {}`", status.run),
        Activity::Stopped => format!("stopped; go on with `sgs resume {}`", status.run),
    }
}

fn solved(metrics: &MetricValues) -> String {
    let value = |name| RunData::value(metrics, name);
    let count = |name| value(name).map_or("?".to_owned(), |n: f64| format!("{n:.0}"));
    let rate = value(metric::CUMULATIVE).map_or("?".to_owned(), |r| format!("{:.1} %", 100.0 * r));
    format!(
        "{} of {} targets ({rate}) after {} generations",
        count(metric::SOLVED_EVER),
        count(metric::TARGETS),
        count(metric::GENERATIONS)
    )
}

fn table(rounds: &[MetricValues]) -> String {
    let columns: [(&str, &str, bool); 7] = [
        ("generations", metric::GENERATIONS, false),
        ("solved ever", metric::CUMULATIVE, true),
        ("newly", "targets_newly_solved", false),
        ("target rate", metric::TARGET_RATE, true),
        ("conjecture rate", metric::CONJECTURE_RATE, true),
        ("R_synth", metric::R_SYNTH, false),
        ("entropy", metric::SOLVER_ENTROPY, false),
    ];
    let mut header = vec!["round"];
    header.extend(columns.iter().map(|c| c.0));
    let cell = |round: &MetricValues, name: &str, is_share: bool| match RunData::value(round, name) {
        None => "-".to_owned(),
        Some(v) if is_share => format!("{:.1} %", 100.0 * v),
        Some(v) if v.fract() == 0.0 => format!("{v:.0}"),
        Some(v) => format!("{v:.3}"),
    };
    let rows: Vec<Vec<String>> = rounds
        .iter()
        .map(|round| {
            let mut row = vec![round.round.to_string()];
            row.extend(columns.iter().map(|&(_, name, share)| cell(round, name, share)));
            row
        })
        .collect();
    output::table(&header, &rows)
}

/// The workers that the coordinator knows, with what they have in hand and have done.
fn workers(board: &BoardStatus) -> String {
    let rows: Vec<Vec<String>> = board
        .workers
        .iter()
        .map(|w| {
            let error = w.last_error.as_deref().unwrap_or("");
            let benched = format!("benched for {}: ", duration(w.benched_s));
            let benched = if w.benched_s > 0.0 { benched } else { String::new() };
            vec![
                w.worker.to_string(),
                w.leases.to_string(),
                w.done.to_string(),
                w.failed.to_string(),
                duration(w.silent_s),
                benched.chars().chain(error.chars().take(60)).collect(),
            ]
        })
        .collect();
    output::table(&["worker", "in hand", "done", "failed", "heard of", "last error"], &rows)
}

/// Seconds for people.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_is_gone_is_known() {
        let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let here = here.trim();
        assert!(!is_gone(&format!("process {} on host {here}", std::process::id())));
        // Above the kernel's largest process id.
        assert_eq!(is_gone(&format!("process 4194999 on host {here}")), Path::new("/proc").exists());
        assert!(!is_gone("process 4194999 on host elsewhere.invalid"));
        assert!(!is_gone("anything"));
    }

    #[test]
    fn keys_are_found_at_any_depth() {
        let table: toml::Table = "[run]\nrounds = 7\n[run.deep]\nmethod = 'sgs'\n".parse().unwrap();
        assert_eq!(find(&table, "rounds").and_then(toml::Value::as_integer), Some(7));
        assert_eq!(find(&table, "method").and_then(toml::Value::as_str), Some("sgs"));
        assert!(find(&table, "other").is_none());
    }
}
