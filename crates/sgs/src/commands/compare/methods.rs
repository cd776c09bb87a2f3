//! The table of methods with several seeds each.

use super::{BUDGET, ComparedRun, differences};
use crate::output;
use anyhow::Result;
use sgs_analysis::figures::seed_groups;
use sgs_analysis::methods::{Measure, MethodRuns, MethodTable, PairedDifference, compare_methods};
use sgs_analysis::run::{RunData, read_results};
use sgs_analysis::stats::SeedMean;
use sgs_selfplay::Method;
use std::path::PathBuf;

/// Compares the methods of runs. Returns `None` unless a method has several seeds. The baseline is REINFORCE-1/2 if there
/// is such a run, and otherwise the method of the first run.
pub(super) fn read(paths: &[PathBuf], sides: &[ComparedRun]) -> Result<Option<MethodTable>> {
    let known: Vec<RunData> = sides.iter().map(|side| side.data.clone()).collect();
    let members = seed_groups(&known);
    if members.iter().all(|m| m.len() < 2) {
        return Ok(None);
    }
    let data: Vec<RunData> = paths.iter().map(|path| read_results(path)).collect::<Result<_, _>>()?;
    for (side, run) in sides.iter().zip(&data) {
        // Notes on the metrics were already printed when these were read.
        let is_new = |note: &&String| !side.data.notes.contains(note);
        run.notes.iter().filter(is_new).for_each(|note| eprintln!("warning: {}: {note}", side.name));
    }
    let methods: Vec<MethodRuns<'_>> = members
        .iter()
        .map(|own| MethodRuns {
            label: label(own, &members, sides),
            runs: own.iter().map(|run| &data[*run]).collect(),
        })
        .collect();
    let is_reinforce = |own: &Vec<usize>| sides[own[0]].data.method == Some(Method::ReinforceHalf);
    Ok(compare_methods(&methods, members.iter().position(is_reinforce).unwrap_or(0)))
}

/// Returns the name of a method, with the keys in which it differs from other groups of the same method.
fn label(own: &[usize], all: &[Vec<usize>], sides: &[ComparedRun]) -> String {
    let method = |group: &[usize]| {
        let run = &sides[group[0]].data;
        run.label.as_deref().or_else(|| Some(run.method?.as_str()))
    };
    let Some(name) = method(own) else { return sides[own[0]].name.clone() };
    let same: Vec<&ComparedRun> =
        all.iter().filter(|group| method(group) == method(own)).map(|group| &sides[group[0]]).collect();
    // A key that some versions of the program lack does not separate groups.
    let keys = differences(&same).into_iter().filter(|(_, values)| values.iter().all(Option::is_some));
    let keys = keys.map(|(key, _)| key);
    let keys =
        keys.filter(|key| key != "seed" && !key.starts_with("frozen.") && !BUDGET.contains(&key.as_str()));
    let settings =
        keys.map(|key| format!(" {key}={}", sides[own[0]].keys.get(&key).map_or("-", String::as_str)));
    format!("{name}{}", settings.collect::<String>())
}

/// Formats the results of methods and their differences from the baseline.
pub(super) fn text(table: &MethodTable) -> String {
    let rows = |cells: &dyn Fn(usize) -> Option<Vec<String>>| -> Vec<Vec<String>> {
        (0..table.methods.len())
            .filter_map(|i| {
                let method = &table.methods[i];
                let first = [method.label.clone(), method.seeds.to_string()];
                Some(first.into_iter().chain(cells(i)?).collect())
            })
            .collect()
    };
    let means = rows(&|i| Some(table.methods[i].means.iter().map(mean).collect()));
    let against = rows(&|i| {
        let cells: Vec<String> = table.methods[i].differences.iter().map(difference).collect();
        (!cells.is_empty()).then_some(cells)
    });
    let measures: Vec<String> = table.measures.iter().map(|m| heading(*m)).collect();
    let header: Vec<&str> =
        ["method", "seeds"].into_iter().chain(measures.iter().map(String::as_str)).collect();
    let mut text = format!(
        "Methods: mean over seeds ± half of the 95% t-interval (of three seeds or more), in %. pass@k is that of the last weights on held-out problems.\n\n{}",
        output::table(&header, &means)
    );
    if !against.is_empty() {
        text.push_str(&format!(
            "\n\nDifferences from {} in points: mean over pairs of equal seeds ± half of the 95% t-interval, and 95% bootstrap \
             interval over pairs and problems.\n\n{}",
            table.baseline,
            output::table(&header, &against)
        ));
    }
    text
}

fn heading(measure: Measure) -> String {
    match measure {
        Measure::SolvedAtGenerations(generations) => format!("solved at {generations:.0} generations"),
        Measure::SolvedAtTokens(tokens) => format!("at {tokens:.0} tokens"),
        Measure::HeldOut(k) => format!("pass@{k}"),
    }
}

/// Formats half of an interval. That of two seeds is too wide to inform.
fn half(mean: SeedMean) -> String {
    let half = mean.half.filter(|_| mean.seeds >= 3);
    half.map_or_else(String::new, |half| format!(" ± {:.1}", 100.0 * half))
}

fn mean(value: &Option<SeedMean>) -> String {
    value.map_or_else(|| "-".to_owned(), |m| format!("{:.1}{}", 100.0 * m.mean, half(m)))
}

fn difference(value: &Option<PairedDifference>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |PairedDifference { over_seeds, bootstrap }| {
            let (low, high) = (100.0 * bootstrap.low, 100.0 * bootstrap.high);
            format!("{:+.1}{} [{low:+.1}, {high:+.1}]", 100.0 * over_seeds.mean, half(over_seeds))
        },
    )
}
