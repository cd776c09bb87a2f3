//! `sgs compare`: differences between the configurations of runs, and their results at equal generations.

mod methods;

use crate::args::CompareArgs;
use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sgs_analysis::compare::{BUDGET, common_generations};
use sgs_analysis::methods::MethodTable;
use sgs_analysis::run::{RunData, metric, read_metrics};
use sgs_analysis::stats::measured_at;
use sgs_run::config::folder;
use sgs_rundir::RunView;
use sgs_rundir::metrics::names;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum number of rows of the table of solved targets.
const MOST_ROWS: usize = 8;

/// Key of the changes to a configuration since the start of the run. The configuration itself contains them.
const HISTORY: &str = "frozen.history";

/// Numbers compared at the end of the common range: name, metric, whether it is a fraction.
const NUMBERS: [(&str, &str, bool); 9] = [
    ("ever solved", metric::CUMULATIVE, true),
    ("this round pass@1", metric::TARGET_RATE, true),
    ("conjectures solved", metric::CONJECTURES_SOLVED, false),
    ("conjectures' pass@1", metric::CONJECTURE_RATE, true),
    ("conjectures malformed", metric::CONJECTURE_MALFORMED, true),
    ("Guide's score, of 8", metric::R_GUIDE, false),
    ("entropy, nats", metric::SOLVER_ENTROPY, false),
    ("Conjecturer's entropy, nats", metric::CONJECTURER_ENTROPY, false),
    ("seconds per round, mean", names::TIME_ROUND, false),
];

/// A run in the comparison.
struct ComparedRun {
    name: String,
    /// The configuration, flattened.
    keys: BTreeMap<String, String>,
    data: RunData,
}

impl ComparedRun {
    fn read(path: &Path) -> Result<Self> {
        let mut keys = BTreeMap::new();
        folder::flatten("", &RunView::open(path)?.config()?, &mut keys);
        keys.remove(HISTORY);
        let (name, data) = (path.display().to_string(), read_metrics(path)?);
        ensure!(!data.is_empty(), "{name} has no finished round yet");
        data.notes.iter().for_each(|note| eprintln!("warning: {name}: {note}"));
        Ok(Self { name, keys, data })
    }

    /// Returns the last value of a metric that was measured at or before a number of generations.
    fn at(&self, name: &str, generations: f64) -> Option<f64> {
        measured_at(&self.data.series(name), generations)
    }

    /// Returns a number of [`NUMBERS`]: the mean time of the rounds up to a number of generations, or the last value of
    /// another metric.
    fn number(&self, name: &str, generations: f64) -> Option<f64> {
        if name != names::TIME_ROUND {
            return self.at(name, generations);
        }
        let series = self.data.series(name);
        let seconds: Vec<f64> = series.iter().filter(|p| p.0 <= generations).map(|p| p.1).collect();
        (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
    }

    /// Returns the seconds of work until the last round that ended at or before a number of generations.
    fn seconds(&self, generations: f64) -> Option<f64> {
        measured_at(&self.data.clock(), generations)
    }
}

/// Prints the comparison.
pub fn run(args: &CompareArgs) -> Result<Outcome> {
    if args.runs.len() < 2 {
        return Err(Usage("give at least two runs: `sgs compare RUN RUN`".to_owned()).into());
    }
    let sides = args.runs.iter().map(|path| ComparedRun::read(path)).collect::<Result<Vec<_>>>()?;
    let differences = differences(&sides.iter().collect::<Vec<_>>());
    let common = common(&sides);
    let methods = methods::read(&args.runs, &sides)?;
    if args.json {
        output::json(&as_json(&sides, &differences, &common, methods.as_ref()))?;
        return Ok(Outcome::Done);
    }
    output::line(configuration(&sides, &differences))?;
    let ends: Vec<(&str, &RunData)> = sides.iter().map(|side| (side.name.as_str(), &side.data)).collect();
    output::line(format!("\nEnd of each run:\n\n{}", ends_table(&ends)))?;
    let Some(&last) = common.last() else {
        output::line(
            "\nThe runs have no generations in common: one ends before the first round of another.",
        )?;
        return Ok(Outcome::Done);
    };
    output::line(format!("\n{}", curves(&sides, &common)))?;
    output::line(format!("\n{}", numbers(&sides, last)))?;
    if let Some(table) = &methods {
        output::line(format!("\n{}", methods::text(table)))?;
    }
    Ok(Outcome::Done)
}

/// Formats the progress of runs, one row per run.
pub fn ends_table(runs: &[(&str, &RunData)]) -> String {
    let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
    let row = |(name, data): &(&str, &RunData)| {
        vec![
            (*name).to_owned(),
            data.rounds.len().to_string(),
            show(data.last(metric::GENERATIONS)),
            percent(data.last(metric::CUMULATIVE)),
            show(data.clock().last().map(|point| point.1)),
        ]
    };
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    output::table(&["run", "rounds", "generations", "solved", "seconds"], &rows)
}

/// Returns the keys whose values differ, with each run's value.
fn differences(sides: &[&ComparedRun]) -> Vec<(String, Vec<Option<String>>)> {
    let keys: BTreeSet<&String> = sides.iter().flat_map(|side| side.keys.keys()).collect();
    let row = |key: &&String| {
        let values: Vec<_> = sides.iter().map(|side| side.keys.get(*key).cloned()).collect();
        values.windows(2).any(|pair| pair[0] != pair[1]).then(|| ((*key).clone(), values))
    };
    keys.iter().filter_map(row).collect()
}

/// Returns at most [`MOST_ROWS`] of the generations at which all runs can be compared, including the first and the last.
fn common(sides: &[ComparedRun]) -> Vec<f64> {
    let curves: Vec<_> = sides.iter().map(|side| side.data.series(metric::CUMULATIVE)).collect();
    let all = common_generations(&curves.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let rows = all.len().min(MOST_ROWS);
    let pick = |i: usize| all.get(i * (all.len() - 1) / (rows - 1).max(1)).copied();
    (0..rows).filter_map(pick).collect()
}

fn header<'a>(first: &'a str, sides: &'a [ComparedRun]) -> Vec<&'a str> {
    [first].into_iter().chain(sides.iter().map(|side| side.name.as_str())).collect()
}

fn configuration(sides: &[ComparedRun], differences: &[(String, Vec<Option<String>>)]) -> String {
    let keys: Vec<&str> =
        differences.iter().map(|(key, _)| key.as_str()).filter(|key| !BUDGET.contains(key)).collect();
    let verdict = match keys.as_slice() {
        [] => "The runs have the same configuration and seed: they are copies of one run.",
        ["seed"] => "The runs differ only in their seed.",
        [_] => "The configurations differ in one key:",
        _ => "The configurations differ:",
    };
    if differences.is_empty() {
        return verdict.to_owned();
    }
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let rows: Vec<Vec<String>> = differences
        .iter()
        .map(|(key, values)| [key.clone()].into_iter().chain(values.iter().map(shown)).collect())
        .collect();
    format!("{verdict}\n\n{}", output::table(&header("key", sides), &rows))
}

fn curves(sides: &[ComparedRun], common: &[f64]) -> String {
    let row = |generations: &f64| {
        let cells = sides.iter().map(|side| percent(side.at(metric::CUMULATIVE, *generations)));
        [format!("{generations:.0}")].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = common.iter().map(row).collect();
    format!(
        "Targets solved, up to the end of the shortest run, after the last round that had ended by then:\n\n{}",
        output::table(&header("generations", sides), &rows)
    )
}

fn numbers(sides: &[ComparedRun], generations: f64) -> String {
    let mut rows = Vec::new();
    for (name, metric, is_share) in NUMBERS {
        let values: Vec<Option<f64>> = sides.iter().map(|side| side.number(metric, generations)).collect();
        if values.iter().any(Option::is_some) {
            let show = |value: &Option<f64>| if is_share { percent(*value) } else { plain(*value) };
            rows.push([name.to_owned()].into_iter().chain(values.iter().map(show)).collect());
        }
    }
    let seconds = sides.iter().map(|side| plain(side.seconds(generations)));
    rows.push(["seconds in total".to_owned()].into_iter().chain(seconds).collect());
    format!("At {generations:.0} generations:\n\n{}", output::table(&header("", sides), &rows))
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}%", 100.0 * value))
}

fn plain(value: Option<f64>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") },
    )
}

fn as_json(
    sides: &[ComparedRun],
    differences: &[(String, Vec<Option<String>>)],
    common: &[f64],
    methods: Option<&MethodTable>,
) -> Value {
    let one = |side: &ComparedRun| {
        let last = common.last().copied();
        let at_end = |metric: &str| last.and_then(|end| side.number(metric, end));
        let numbers: BTreeMap<&str, Option<f64>> =
            NUMBERS.iter().map(|(_, metric, _)| (*metric, at_end(metric))).collect();
        let curve: Vec<Value> = common.iter().map(|g| json!([g, side.at(metric::CUMULATIVE, *g)])).collect();
        json!({
            "run": side.name, "rounds": side.data.rounds.len(), "generations": side.data.last(metric::GENERATIONS),
            "numbers": numbers, "seconds": last.and_then(|end| side.seconds(end)), "solved": curve,
        })
    };
    let runs: Vec<Value> = sides.iter().map(one).collect();
    let differences: Vec<Value> =
        differences.iter().map(|(key, values)| json!({ "key": key, "values": values })).collect();
    json!({ "runs": runs, "differences": differences, "common": common.last(), "methods": methods })
}
