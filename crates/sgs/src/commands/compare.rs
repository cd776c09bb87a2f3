//! `sgs compare`: differences between the configurations of runs, and their results at equal generations.

mod methods;

use super::report::warn;
use crate::args::CompareArgs;
use crate::exit::{Outcome, Usage};
use crate::output::{self, number};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sgs_analysis::compare::{BUDGET, are_near, common_generations};
use sgs_analysis::methods::MethodTable;
use sgs_analysis::plot::{grouped, percent};
use sgs_analysis::run::{EvaluationData, RunData, metric, read_metrics};
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

/// Key that says whether a run has other workers, which do not affect its results.
const FLEET: &str = "frozen.fleet";

/// Key of the hash of the weights that a run started from.
const BASE: &str = "frozen.data.base-model";

/// Numbers compared at the end of the common range: name, metric, whether it is a fraction.
const NUMBERS: [(&str, &str, bool); 10] = [
    ("ever solved", metric::CUMULATIVE, true),
    ("this round pass@1", metric::TARGET_RATE, true),
    ("conjectures solved", metric::CONJECTURES_SOLVED, false),
    ("conjectures' pass@1", metric::CONJECTURE_RATE, true),
    ("conjectures malformed", metric::CONJECTURE_MALFORMED, true),
    ("conjectures padded", metric::CONJECTURE_PADDED, true),
    ("Guide's score, of 8", metric::R_GUIDE, false),
    ("entropy, nats", metric::SOLVER_ENTROPY, false),
    ("Conjecturer's entropy, nats", metric::CONJECTURER_ENTROPY, false),
    ("seconds per round, mean", names::TIME_ROUND, false),
];

/// Printed if no method has several seeds, so that the differences have no intervals.
const ONE_SEED: &str = "Differences between single runs can be chance. For intervals, compare several seeds of each method \
                        (`sgs sweep` runs them).";

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
        keys.remove(FLEET);
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
        if name == metric::CONJECTURES_SOLVED && !self.has_conjectures() {
            return None;
        }
        if name != names::TIME_ROUND {
            return self.at(name, generations);
        }
        let series = self.data.series(name);
        let seconds: Vec<f64> = series.iter().filter(|p| p.0 <= generations).map(|p| p.1).collect();
        (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
    }

    /// Returns whether a conjecture was a problem in any round.
    fn has_conjectures(&self) -> bool {
        self.data.series(metric::CONJECTURES_ACCEPTED).iter().any(|point| point.1 > 0.0)
    }

    /// Returns the evaluations of the base model and of the last weights on held-out problems.
    fn held_out(&self) -> [Option<&EvaluationData>; 2] {
        let base = self.data.held_out().next().filter(|first| first.after == 0);
        [base, self.data.held_out().next_back().filter(|last| last.after > 0)]
    }

    /// Returns the seconds of work until the last round that ended at or before a number of generations.
    fn seconds(&self, generations: f64) -> Option<f64> {
        measured_at(&self.data.clock(), generations)
    }
}

pub fn run(args: &CompareArgs) -> Result<Outcome> {
    let runs = crate::run_folder::expanded(&args.runs);
    if runs.len() < 2 {
        return Err(Usage("give at least two runs: `sgs compare RUN RUN`".to_owned()).into());
    }
    let sides = runs.iter().map(|path| ComparedRun::read(path)).collect::<Result<Vec<_>>>()?;
    let differences = differences(&sides.iter().collect::<Vec<_>>());
    other_base(&sides).iter().for_each(warn);
    let common = common(&sides);
    let methods = methods::read(&runs, &sides)?;
    if args.json {
        output::json(&as_json(&sides, &differences, &common, methods.as_ref()))?;
        return Ok(Outcome::Done);
    }
    output::prose(configuration(&sides, &differences))?;
    let ends: Vec<(&str, &RunData)> = sides.iter().map(|side| (side.name.as_str(), &side.data)).collect();
    output::prose(format!("\nEnd of each run:\n\n{}", ends_table(&ends)))?;
    let Some(&last) = common.last() else {
        output::prose(
            "\nThe runs have no generations in common: one ends before the first round of another.",
        )?;
        return Ok(Outcome::Done);
    };
    let measured: Vec<_> = sides.iter().map(|side| side.data.series(metric::CUMULATIVE)).collect();
    if !are_near(&measured.iter().map(Vec::as_slice).collect::<Vec<_>>(), last) {
        warn(format!(
            "the rounds are too long for a comparison at equal generations: a run has no round that ends shortly before {}",
            grouped(last)
        ));
    }
    output::prose(format!("\n{}", curves(&sides, &common)))?;
    output::prose(format!("\n{}", numbers(&sides, last)))?;
    if let Some(table) = held_out(&sides) {
        output::prose(format!("\n{table}"))?;
    }
    match &methods {
        Some(table) => output::prose(format!("\n{}", methods::text(table)))?,
        None => output::prose(format!("\n{ONE_SEED}"))?,
    }
    Ok(Outcome::Done)
}

/// Returns a warning if runs with the same `model.base` started from different weights. The weights that a run trains for
/// itself depend on its device.
fn other_base(sides: &[ComparedRun]) -> Option<String> {
    let of = |side: &ComparedRun, key: &str| side.keys.get(key).cloned();
    let first = sides.first()?;
    let name = of(first, "model.base")?;
    let differs = |side: &&ComparedRun| {
        of(side, "model.base").as_ref() == Some(&name) && of(side, BASE) != of(first, BASE)
    };
    let other = sides.iter().find(differs)?;
    Some(format!(
        "{} and {} started from different weights of {name} ({BASE}): their results also differ by these",
        first.name, other.name
    ))
}

/// Formats the progress of runs, one row per run.
pub fn ends_table(runs: &[(&str, &RunData)]) -> String {
    let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), grouped);
    let row = |(name, data): &(&str, &RunData)| {
        vec![
            (*name).to_owned(),
            data.rounds.len().to_string(),
            show(data.last(metric::GENERATIONS)),
            share(data.last(metric::CUMULATIVE)),
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
        [] if !differences.is_empty() => "The runs differ only in their length:",
        [] => "The runs have the same configuration and seed: they are copies of one run.",
        ["seed"] if differences.len() == 1 => "The runs differ only in their seed.",
        ["seed"] => "The runs differ only in their seed and their length:",
        [_] if differences.len() == 1 => "The configurations differ in one key:",
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
        let cells = sides.iter().map(|side| share(side.at(metric::CUMULATIVE, *generations)));
        [grouped(*generations)].into_iter().chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = common.iter().map(row).collect();
    format!(
        "Targets solved by generations, until the end of the shortest run. Each value is from the last round that had \
         ended:\n\n{}",
        output::table(&header("generations", sides), &rows)
    )
}

fn numbers(sides: &[ComparedRun], generations: f64) -> String {
    let mut rows = Vec::new();
    for (name, metric, is_share) in NUMBERS {
        let values: Vec<Option<f64>> = sides.iter().map(|side| side.number(metric, generations)).collect();
        if values.iter().any(Option::is_some) {
            let show = |value: &Option<f64>| if is_share { share(*value) } else { plain(*value) };
            rows.push([name.to_owned()].into_iter().chain(values.iter().map(show)).collect());
        }
    }
    let seconds = sides.iter().map(|side| plain(side.seconds(generations)));
    rows.push(["seconds in total".to_owned()].into_iter().chain(seconds).collect());
    format!("At {} generations:\n\n{}", grouped(generations), output::table(&header("", sides), &rows))
}

/// Formats pass@k on held-out problems, or returns `None` if no run has evaluated any.
fn held_out(sides: &[ComparedRun]) -> Option<String> {
    let evaluations: Vec<_> = sides.iter().map(ComparedRun::held_out).collect();
    let samples = evaluations.iter().flatten().flatten().map(|evaluation| evaluation.samples().max(1));
    let mut ks: BTreeSet<u32> = samples.collect();
    if ks.is_empty() {
        return None;
    }
    ks.insert(1);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: String, cell: &dyn Fn(usize) -> Option<String>| {
        let cells = (0..sides.len()).map(|i| cell(i).unwrap_or_else(|| "-".to_owned()));
        rows.push([name].into_iter().chain(cells).collect());
    };
    let known = |i: usize| evaluations[i][1].or(evaluations[i][0]);
    row("problems".to_owned(), &|i| Some(known(i)?.held_out.len().to_string()));
    row("samples of each".to_owned(), &|i| Some(known(i)?.samples().to_string()));
    row("after generations".to_owned(), &|i| {
        Some(plain(Some(sides[i].data.generations_before(evaluations[i][1]?)?)))
    });
    for k in ks {
        for (which, whose) in [(1, ""), (0, ", base model")] {
            row(format!("pass@{k}{whose}"), &|i| {
                Some(share(Some(evaluations[i][which]?.held_out_pass_at(k)?)))
            });
        }
    }
    let header = header("", sides);
    Some(format!("Last evaluation on held-out problems:\n\n{}", output::table(&header, &rows)))
}

/// Formats a fraction.
fn share(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), percent)
}

fn plain(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), number)
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
        let [base, trained] = side.held_out();
        let evaluated = |evaluation: Option<&EvaluationData>| {
            evaluation.map(|e| {
                let k = e.samples();
                json!({
                    "problems": e.held_out.len(), "k": k, "generations": side.data.generations_before(e),
                    "pass@1": e.held_out_pass_at(1), "pass@k": e.held_out_pass_at(k),
                })
            })
        };
        let curve: Vec<Value> = common.iter().map(|g| json!([g, side.at(metric::CUMULATIVE, *g)])).collect();
        json!({
            "run": side.name, "rounds": side.data.rounds.len(), "generations": side.data.last(metric::GENERATIONS),
            "numbers": numbers, "seconds": last.and_then(|end| side.seconds(end)), "solved": curve,
            "held_out": { "base": evaluated(base), "trained": evaluated(trained) },
        })
    };
    let runs: Vec<Value> = sides.iter().map(one).collect();
    let differences: Vec<Value> =
        differences.iter().map(|(key, values)| json!({ "key": key, "values": values })).collect();
    json!({ "runs": runs, "differences": differences, "common": common.last(), "methods": methods })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sgs_rundir::MetricValues;

    fn side(name: &str, accepted: f64, evaluations: &[(u32, u32)]) -> ComparedRun {
        let round = |round: u32| {
            let mut values = MetricValues::new(round);
            values.set(metric::GENERATIONS, 800.0 * f64::from(round + 1));
            values.set(metric::CONJECTURES_ACCEPTED, accepted);
            values.set(metric::CONJECTURES_SOLVED, 0.0);
            values
        };
        let evaluation = |&(after, proved): &(u32, u32)| EvaluationData {
            after,
            held_out: (0..20).map(|i| (format!("h{i}"), (4, proved))).collect(),
            ..EvaluationData::default()
        };
        let data = RunData {
            rounds: (0..3).map(round).collect(),
            evaluations: evaluations.iter().map(evaluation).collect(),
            ..RunData::default()
        };
        ComparedRun { name: name.to_owned(), keys: BTreeMap::new(), data }
    }

    #[test]
    fn different_weights_of_one_base_model_are_reported() {
        let from = |name: &str, base: &str, hash: &str| {
            let mut side = side(name, 0.0, &[]);
            side.keys =
                [("model.base", base), (BASE, hash)].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
            side
        };
        let (a, b) = (from("a", "made:deep", "1"), from("b", "made:deep", "2"));
        assert_eq!(other_base(&[from("c", "made:deep", "1"), from("d", "shipped", "3"), a]), None);
        let told = other_base(&[from("c", "made:deep", "1"), b]).unwrap();
        assert!(told.starts_with("c and b started from different weights of made:deep"), "{told}");
    }

    #[test]
    fn a_difference_of_the_length_alone_is_named() {
        let told = |sides: &[&[(&str, &str)]]| {
            let with_keys = |(i, keys): (usize, &&[(&str, &str)])| {
                let keys = keys.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
                ComparedRun { keys: keys.collect(), ..side(&format!("run-{i}"), 0.0, &[]) }
            };
            let sides: Vec<ComparedRun> = sides.iter().enumerate().map(with_keys).collect();
            configuration(&sides, &differences(&sides.iter().collect::<Vec<_>>()))
        };
        let base = ("method", "sgs");
        let length =
            told(&[&[base, ("rounds", "83"), ("seed", "1")], &[base, ("rounds", "12"), ("seed", "1")]]);
        assert!(length.starts_with("The runs differ only in their length:\n"), "{length}");
        let row = length.lines().find(|line| line.starts_with("rounds")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["rounds", "83", "12"], "{length}");
        assert!(!length.contains("seed"), "{length}");
        let all = told(&[
            &[base, ("minutes", "6"), ("rounds", "83"), ("generations", "0")],
            &[base, ("minutes", "0"), ("rounds", "12"), ("generations", "9")],
        ]);
        assert!(all.starts_with("The runs differ only in their length:\n"), "{all}");
        for (other, sentence) in [
            (&[base, ("rounds", "83"), ("seed", "1")][..], "copies of one run."),
            (&[base, ("rounds", "83"), ("seed", "2")], "The runs differ only in their seed."),
            (
                &[("method", "cispo"), ("rounds", "83"), ("seed", "1")],
                "The configurations differ in one key:",
            ),
            (&[("method", "cispo"), ("rounds", "12"), ("seed", "1")], "The configurations differ:"),
            (
                &[base, ("rounds", "12"), ("seed", "2")],
                "The runs differ only in their seed and their length:",
            ),
        ] {
            let text = told(&[&[base, ("rounds", "83"), ("seed", "1")], other]);
            assert!(text.contains(sentence) && !text.contains("only in their length"), "{text}");
        }
    }

    #[test]
    fn a_method_without_conjectures_has_no_number_of_solved_ones() {
        let text = numbers(&[side("sgs", 12.0, &[]), side("cispo", 0.0, &[])], 2400.0);
        let line = text.lines().find(|line| line.starts_with("conjectures solved")).unwrap();
        assert_eq!(line.split_whitespace().skip(2).collect::<Vec<_>>(), ["0", "-"], "{text}");
    }

    #[test]
    fn the_last_rates_on_held_out_problems_are_compared() {
        let sides =
            [side("a", 0.0, &[(0, 1), (1, 2), (2, 3)]), side("b", 0.0, &[(0, 1)]), side("c", 0.0, &[])];
        let text = held_out(&sides).unwrap();
        for (name, cells) in [
            ("problems", ["20", "20", "-"]),
            ("samples of each", ["4", "4", "-"]),
            ("after generations", ["1,600", "-", "-"]),
            ("pass@1", ["75.0%", "-", "-"]),
            ("pass@1, base model", ["25.0%", "25.0%", "-"]),
            ("pass@4, base model", ["100.0%", "100.0%", "-"]),
        ] {
            let is_row = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with("  "));
            let line = text.lines().find(is_row).unwrap();
            assert_eq!(line[name.len()..].split_whitespace().collect::<Vec<_>>(), cells, "{text}");
        }
        assert_eq!(held_out(&sides[2..]), None);
    }
}
