//! `sgs compare`: differences between the configurations of runs, and their results at equal generations.

use crate::args::CompareArgs;
use crate::exit::{Outcome, Usage};
use crate::output;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sgs_analysis::compare::interpolate;
use sgs_analysis::run::{RunData, metric};
use sgs_run::config::folder;
use sgs_rundir::RunView;
use sgs_rundir::metrics::names;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Number of points of the common range to show.
const POINTS: usize = 8;

/// Numbers compared at the end of the common range: name, metric, whether it is a fraction.
const NUMBERS: [(&str, &str, bool); 8] = [
    ("solved ever", metric::CUMULATIVE, true),
    ("pass@1 of the round", metric::TARGET_RATE, true),
    ("conjectures solved, mean", metric::CONJECTURE_RATE, true),
    ("conjectures malformed", metric::CONJECTURE_MALFORMED, true),
    ("R_guide", metric::R_GUIDE, false),
    ("Solver's entropy, nats", metric::SOLVER_ENTROPY, false),
    ("Conjecturer's entropy, nats", metric::CONJECTURER_ENTROPY, false),
    ("seconds per round", names::TIME_ROUND, false),
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
        let view = RunView::open(path)?;
        let mut keys = BTreeMap::new();
        folder::flatten("", &view.config()?, &mut keys);
        let (name, data) = (path.display().to_string(), numbers_of(&view)?);
        ensure!(!data.is_empty(), "{name} has no finished round yet");
        Ok(Self { name, keys, data })
    }

    /// Returns the generations at the end of the run.
    fn end(&self) -> f64 {
        self.data.last(metric::GENERATIONS).unwrap_or(0.0)
    }

    /// Interpolates a metric at a number of generations; before the first round it is that round's value.
    fn at(&self, name: &str, generations: f64) -> Option<f64> {
        let mut series = self.data.series(name);
        let first = series.first()?.1;
        // Nothing is solved before the first attempt.
        series.insert(0, (0.0, if name == metric::CUMULATIVE { 0.0 } else { first }));
        interpolate(&series, generations)
    }

    /// Interpolates the seconds of work at a number of generations.
    fn seconds(&self, generations: f64) -> Option<f64> {
        let mut clock = self.data.clock();
        clock.insert(0, (0.0, 0.0));
        interpolate(&clock, generations)
    }
}

/// Reads only the metrics of a run's rounds.
pub fn numbers_of(view: &RunView) -> Result<RunData> {
    let rounds = view.rounds()?.iter().map(|round| round.metrics()).collect::<Result<Vec<_>, _>>()?;
    Ok(RunData { rounds, ..RunData::default() })
}

/// Prints the comparison.
pub fn run(args: &CompareArgs) -> Result<Outcome> {
    if args.runs.len() < 2 {
        return Err(Usage("give at least two runs: `sgs compare RUN RUN`".to_owned()).into());
    }
    let sides = args.runs.iter().map(|path| ComparedRun::read(path)).collect::<Result<Vec<_>>>()?;
    let differences = differences(&sides);
    let end = common(&sides);
    if args.json {
        output::json(&as_json(&sides, &differences, end))?;
        return Ok(Outcome::Done);
    }
    output::line(configuration(&sides, &differences))?;
    output::line(format!("\n{}", curves(&sides, end)))?;
    output::line(format!("\n{}", numbers(&sides, end)))?;
    Ok(Outcome::Done)
}

/// Returns the keys whose values differ, with each run's value.
fn differences(sides: &[ComparedRun]) -> Vec<(String, Vec<Option<String>>)> {
    let keys: BTreeSet<&String> = sides.iter().flat_map(|side| side.keys.keys()).collect();
    let row = |key: &&String| {
        let values: Vec<_> = sides.iter().map(|side| side.keys.get(*key).cloned()).collect();
        values.windows(2).any(|pair| pair[0] != pair[1]).then(|| ((*key).clone(), values))
    };
    keys.iter().filter_map(row).collect()
}

/// Returns the generations that all runs have reached.
fn common(sides: &[ComparedRun]) -> f64 {
    sides.iter().map(ComparedRun::end).fold(f64::INFINITY, f64::min)
}

fn header<'a>(first: &'a str, sides: &'a [ComparedRun]) -> Vec<&'a str> {
    [first].into_iter().chain(sides.iter().map(|side| side.name.as_str())).collect()
}

fn configuration(sides: &[ComparedRun], differences: &[(String, Vec<Option<String>>)]) -> String {
    // The budget of a run does not change its rounds.
    let counts = |key: &str| !matches!(key, "rounds" | "minutes") && !key.starts_with("frozen.history");
    let keys: Vec<&str> = differences.iter().map(|(key, _)| key.as_str()).filter(|key| counts(key)).collect();
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

fn curves(sides: &[ComparedRun], end: f64) -> String {
    let rows: Vec<Vec<String>> = points(end)
        .map(|generations| {
            let cells = sides.iter().map(|side| percent(side.at(metric::CUMULATIVE, generations)));
            [format!("{generations:.0}")].into_iter().chain(cells).collect()
        })
        .collect();
    let ends: Vec<String> = sides.iter().map(|side| format!("{:.0}", side.end())).collect();
    format!(
        "Targets solved, up to the end of the shortest run (the runs end at {} generations):\n\n{}",
        ends.join(", "),
        output::table(&header("generations", sides), &rows)
    )
}

fn points(end: f64) -> impl Iterator<Item = f64> {
    (1..=POINTS).map(move |i| end * i as f64 / POINTS as f64)
}

fn numbers(sides: &[ComparedRun], generations: f64) -> String {
    let mut rows = Vec::new();
    for (name, metric, is_share) in NUMBERS {
        let values: Vec<Option<f64>> = sides.iter().map(|side| side.at(metric, generations)).collect();
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
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

fn as_json(sides: &[ComparedRun], differences: &[(String, Vec<Option<String>>)], end: f64) -> Value {
    let runs: Vec<Value> = sides
        .iter()
        .map(|side| {
            let numbers: BTreeMap<&str, Option<f64>> =
                NUMBERS.iter().map(|(_, metric, _)| (*metric, side.at(metric, end))).collect();
            let curve: Vec<Value> = points(end).map(|g| json!([g, side.at(metric::CUMULATIVE, g)])).collect();
            json!({
                "run": side.name, "rounds": side.data.rounds.len(), "generations": side.end(), "numbers": numbers,
                "seconds": side.seconds(end), "solved": curve,
            })
        })
        .collect();
    let differences: Vec<Value> =
        differences.iter().map(|(key, values)| json!({ "key": key, "values": values })).collect();
    json!({ "runs": runs, "differences": differences, "common": end })
}
