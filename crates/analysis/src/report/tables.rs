//! The tables of a report.

use super::html::ReportTable;
use crate::compare::{Basis, asymptote_difference, crossings, interpolate, reach};
use crate::figures::{self, FigureOptions, PlottedRun, SeedGroup, groups};
use crate::fit::{CurvePoint, Fit, FitError, Parameter};
use crate::plot::{Unit, escape, format_value};
use crate::run::{EvaluationData, RunData, STAGES, TargetHistory, metric, stage_seconds, stage_totals};
use crate::stats::pass_at_k_interval;
use sgs_rundir::metrics::names;

const NONE: &str = "–";

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format!("{:.1}%", 100.0 * v))
}

fn count(value: Option<f64>) -> String {
    // Counts are integers, even if they are interpolated.
    value.map_or_else(|| NONE.to_owned(), |v| format_value(v.round(), Unit::Count, 4))
}

fn duration(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format_value(v, Unit::Duration, 3))
}

/// Returns the wall time of a run so far, in seconds.
pub(super) fn wall_time(run: &RunData) -> Option<f64> {
    run.clock().last().map(|c| c.1).filter(|s| s.is_finite() && *s > 0.0)
}

/// Returns the generations at which the shortest run ends, if the runs differ in length. All runs can be compared up to
/// there.
fn common_end(drawn: &[PlottedRun<'_>]) -> Option<f64> {
    let lengths = drawn.iter().filter_map(|d| d.run.last(metric::GENERATIONS));
    let (low, high) = lengths.fold((f64::INFINITY, 0.0_f64), |(low, high), l| (low.min(l), high.max(l)));
    // Ignore a difference of a single round.
    (low.is_finite() && high > 1.02 * low).then_some(low)
}

/// Returns the summary table with one row per run.
pub(super) fn summary(drawn: &[PlottedRun<'_>]) -> ReportTable {
    let common = common_end(drawn);
    let mut table = ReportTable::new([
        "Run",
        "Method",
        "Seed",
        "Rounds",
        "Generations",
        "Solved",
        "Cumulative",
        "Last pass@k",
        "Wall time",
        "Asymptote",
    ]);
    for d in drawn {
        let run = d.run;
        let solved = match (run.last(metric::SOLVED_EVER), run.last(metric::TARGETS)) {
            (Some(solved), Some(all)) => format!("{solved:.0} of {all:.0}"),
            _ => NONE.to_owned(),
        };
        table.rows.push(vec![
            d.label.clone(),
            run.method.map_or(NONE, |m| m.as_str()).to_owned(),
            run.seed.map_or_else(|| NONE.to_owned(), |s| s.to_string()),
            run.rounds.len().to_string(),
            count(run.last(metric::GENERATIONS)),
            solved,
            percent(run.last(metric::CUMULATIVE)),
            percent(run.last(metric::TARGET_SHARE)),
            duration(wall_time(run)),
            d.fit.as_ref().map_or_else(|_| figures::NOT_YET.to_owned(), figures::describe),
        ]);
        if let (Some(end), Some(row)) = (common, table.rows.last_mut()) {
            let curve: Vec<(f64, f64)> = run.series(metric::CUMULATIVE);
            row.insert(7, percent(interpolate(&curve, end)));
        }
    }
    if let Some(end) = common {
        table.columns.insert(7, format!("At {} generations", count(Some(end))));
    }
    table
}

/// Returns the scaling laws of the runs and, after the runs of a group with several seeds, the law of their mean.
fn laws(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> Vec<(String, Result<Fit, FitError>)> {
    let mut out = Vec::new();
    for group in groups(drawn) {
        out.extend(group.runs.iter().map(|d| (d.label.clone(), d.fit.clone())));
        if group.has_seeds() {
            out.push((format!("{}: mean", group.label), group.fit(&options.fit)));
        }
    }
    out
}

/// Returns the table of parameters of the scaling laws.
pub(super) fn fits(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> ReportTable {
    let mut table = ReportTable::new(["Run", "R₀", "A", "C_mid", "B", "Residual s.d.", "Points", "Cut"]);
    for (label, fit) in laws(drawn, options) {
        match fit.as_ref().ok().filter(|fit| fit.is_identified()) {
            Some(fit) => table.rows.push(fit_row(&label, fit)),
            None => {
                let mut row = vec![label, NONE.to_owned(), figures::NOT_YET.to_owned()];
                row.extend(std::iter::repeat_n(NONE.to_owned(), 5));
                table.rows.push(row);
            }
        }
    }
    table
}

fn with_error(fit: &Fit, parameter: Parameter, unit: Unit) -> String {
    let value = format_value(fit.value(parameter), unit, 3);
    match fit.interval(parameter, 0.95) {
        Some((low, high)) => {
            format!("{value} ({} to {})", format_value(low, unit, 3), format_value(high, unit, 3))
        }
        None => value,
    }
}

fn fit_row(name: &str, fit: &Fit) -> Vec<String> {
    let cut = format!("{}{}", count(Some(fit.cut)), if fit.cut_is_scaled { ", scaled" } else { "" });
    let asymptote = figures::describe(fit);
    vec![
        name.to_owned(),
        percent(Some(fit.law.initial)),
        asymptote,
        with_error(fit, Parameter::Midpoint, Unit::Count),
        with_error(fit, Parameter::Steepness, Unit::Plain),
        fit.residual_sd().map_or_else(|| NONE.to_owned(), |s| format!("{:.2}%", 100.0 * s)),
        fit.points.to_string(),
        cut,
    ]
}

/// Returns the table of a run's fits without the last points and on random halves.
pub(super) fn robustness(d: &PlottedRun<'_>) -> Option<ReportTable> {
    let fit = d.fit.as_ref().ok().filter(|f| f.is_identified())?;
    let (tails, halves) = d.against.as_ref()?;
    let mut table = ReportTable::new(["Data", "A", "C_mid", "B"]);
    let row = |name: String, p: [f64; 3]| {
        let [a, m, b] = p;
        vec![name, percent(Some(a)), count(Some(m)), format_value(b, Unit::Plain, 3)]
    };
    table.rows.push(row("all".into(), fit.law.parameters()));
    for tail in tails {
        if let Ok(fit) = &tail.fit {
            table.rows.push(row(format!("last {:.0}% left out", 100.0 * tail.removed), fit.law.parameters()));
        }
    }
    table.rows.push(row(format!("{} random halves, mean", halves.fits.len()), halves.mean));
    table.rows.push(row("random halves, standard deviation".into(), halves.deviation));
    for (name, i) in [("lowest A", halves.extremes.0), ("highest A", halves.extremes.1)] {
        if let Some(fit) = halves.fits.get(i) {
            table.rows.push(row(format!("random halves, {name}"), fit.law.parameters()));
        }
    }
    Some(table)
}

/// Returns the parameters of the scaling laws as plain numbers, for the CSV file.
pub(super) fn fits_as_numbers(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> ReportTable {
    let mut table = ReportTable::new([
        "run",
        "identified",
        "r_0",
        "origin",
        "a",
        "a_low",
        "a_high",
        "c_mid",
        "c_mid_low",
        "c_mid_high",
        "b",
        "b_low",
        "b_high",
        "residual_sd",
        "points",
        "cut",
        "remarks",
    ]);
    for (label, fit) in laws(drawn, options) {
        let Ok(fit) = fit else { continue };
        let text = |v: Option<f64>| v.map_or_else(String::new, |v| v.to_string());
        let mut row = vec![
            label,
            fit.is_identified().to_string(),
            fit.law.initial.to_string(),
            fit.law.origin.to_string(),
        ];
        for parameter in Parameter::ALL {
            let interval = fit.interval(parameter, 0.95);
            row.push(fit.value(parameter).to_string());
            row.extend([text(interval.map(|i| i.0)), text(interval.map(|i| i.1))]);
        }
        let remarks: Vec<String> = fit.warnings.iter().map(ToString::to_string).collect();
        row.extend([
            text(fit.residual_sd()),
            fit.points.to_string(),
            fit.cut.to_string(),
            remarks.join("; "),
        ]);
        table.rows.push(row);
    }
    table
}

/// Renders the limitations of the fits as a list.
pub(super) fn what_to_know(drawn: &[PlottedRun<'_>]) -> String {
    let items: Vec<String> = drawn
        .iter()
        .flat_map(|d| match &d.fit {
            Ok(fit) => fit.warnings.iter().map(|w| format!("{}: {w}", d.label)).collect(),
            Err(error) => vec![format!("{}: {error}", d.label)],
        })
        .map(|text| format!("<li>{}</li>", escape(&text)))
        .collect();
    if items.is_empty() { String::new() } else { format!(r#"<ul class="remarks">{}</ul>"#, items.concat()) }
}

/// Returns about ten round rates between the lowest first rate and the highest last rate.
fn levels(drawn: &[PlottedRun<'_>]) -> Vec<f64> {
    let best = drawn.iter().filter_map(|d| d.run.last(metric::CUMULATIVE)).fold(f64::NAN, f64::max);
    let start = drawn.iter().filter_map(|d| d.run.curve().first().map(|p| p.rate)).fold(f64::NAN, f64::min);
    if !(best > 0.0 && best > start) {
        return Vec::new();
    }
    let step = [0.01, 0.02, 0.05, 0.1].into_iter().find(|s| (best - start) / s <= 10.0).unwrap_or(0.1);
    let first = (start / step).floor() as i64 + 1;
    (first..).map(|i| i as f64 * step).take_while(|l| *l <= best).take(20).collect()
}

/// Returns the generations and the wall time at which a run reaches a rate.
fn reached(d: &PlottedRun<'_>, level: f64) -> (Option<f64>, Option<f64>) {
    let curve: Vec<(f64, f64)> = d.run.curve().iter().map(|p| (p.generations, p.rate)).collect();
    (reach(&curve, level), reach(&figures::rate_by_time(d.run), level).filter(|s| *s > 0.0))
}

/// Returns the table of generations and wall time at which one run reaches rates.
pub(super) fn reaching_one(d: &PlottedRun<'_>) -> Option<ReportTable> {
    let mut table = ReportTable::new(["Cumulative solve rate", "Generations", "Wall time"]);
    for level in levels(std::slice::from_ref(d)) {
        let (generations, seconds) = reached(d, level);
        table.rows.push(vec![percent(Some(level)), count(generations), duration(seconds)]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the table of generations and wall time at which several runs reach rates.
pub(super) fn reaching(drawn: &[PlottedRun<'_>]) -> Option<ReportTable> {
    let mut table = ReportTable { columns: vec!["Cumulative solve rate".into()], rows: Vec::new() };
    table.columns.extend(drawn.iter().map(|d| d.label.clone()));
    for level in levels(drawn) {
        let mut row = vec![percent(Some(level))];
        row.extend(drawn.iter().map(|d| match reached(d, level) {
            (Some(g), Some(s)) => format!("{} · {}", count(Some(g)), duration(Some(s))),
            (g, _) => count(g),
        }));
        table.rows.push(row);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the table that compares the main run's group with each other group.
pub(super) fn against(drawn: &[PlottedRun<'_>]) -> Option<ReportTable> {
    let groups = groups(drawn);
    let main = main_group(&groups, drawn)?;
    let mut table = ReportTable::new([
        "Against",
        "Leads from",
        "Lead at the end of the shorter run",
        "Difference of asymptotes (95%)",
        "Basis",
    ]);
    let main_curve = main.curve();
    for other in groups.iter().filter(|g| g.label != main.label) {
        let curve = other.curve();
        let lead = lead_at_common_end(&main_curve, &curve);
        let leads = match crossings(&main_curve, &curve).last() {
            Some(c) if c.first_leads => {
                format!("{} generations, at {}", count(Some(c.generations)), percent(Some(c.rate)))
            }
            Some(c) => format!("overtaken at {} generations", count(Some(c.generations))),
            None if lead.is_some_and(|l| l > 0.0) => "always".to_owned(),
            None => "never".to_owned(),
        };
        let lead =
            lead.map_or_else(|| NONE.to_owned(), |l| format!("{:+.1} points", 100.0 * l).replace('-', "−"));
        let difference = asymptote_difference(&laws_of_seeds(main), &laws_of_seeds(other));
        let (difference, basis) = difference.map_or((NONE.to_owned(), NONE), |d| {
            let (low, high) = d.interval;
            let text =
                format!("{:+.1} points ({:+.1} to {:+.1})", 100.0 * d.difference, 100.0 * low, 100.0 * high);
            (text.replace('-', "−"), if d.basis == Basis::Seeds { "seeds" } else { "one fit each" })
        });
        table.rows.push(vec![other.label.clone(), leads, lead, difference, basis.to_owned()]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the group of the main run.
pub(super) fn main_group<'a, 'b, 'c>(
    groups: &'c [SeedGroup<'a, 'b>],
    drawn: &[PlottedRun<'a>],
) -> Option<&'c SeedGroup<'a, 'b>> {
    let main = figures::main_run(drawn)?;
    groups.iter().find(|g| g.runs.iter().any(|d| d.group == main.group))
}

/// Returns the identified laws of a group's runs.
fn laws_of_seeds<'c>(group: &'c SeedGroup<'_, '_>) -> Vec<&'c Fit> {
    group.runs.iter().filter_map(|d| d.fit.as_ref().ok()).filter(|f| f.is_identified()).collect()
}

/// Returns the lead of the first curve at the end of the shorter one.
fn lead_at_common_end(a: &[CurvePoint], b: &[CurvePoint]) -> Option<f64> {
    let end = a.last()?.generations.min(b.last()?.generations);
    let at = |c: &[CurvePoint]| c.iter().rev().find(|p| p.generations <= end).map(|p| p.rate);
    Some(at(a)? - at(b)?)
}

/// Returns the table of pass@k in the first and the last round, with intervals over the targets.
pub(super) fn pass_at(drawn: &[PlottedRun<'_>]) -> Option<ReportTable> {
    let most = drawn
        .iter()
        .flat_map(|d| &d.run.targets)
        .filter_map(|t| t.rounds.last())
        .map(|r| r.judged)
        .max()
        .filter(|k| *k > 0)?;
    let mut ks: Vec<u32> =
        std::iter::successors(Some(1_u32), |k| k.checked_mul(2)).take_while(|k| *k < most).collect();
    ks.push(most);
    let mut table = ReportTable { columns: vec!["Run".into(), "Round".into()], rows: Vec::new() };
    table.columns.extend(ks.iter().map(|k| format!("pass@{k}")));
    for d in drawn {
        let (Some(first), Some(last)) = (d.run.rounds.first(), d.run.rounds.last()) else { continue };
        let mut ends = vec![first.round, last.round];
        ends.dedup();
        for round in ends {
            let tallies: Vec<(u32, u32)> = d
                .run
                .targets
                .iter()
                .filter_map(|t| t.rounds.iter().find(|r| r.round == round))
                .map(|r| (r.judged, r.proved))
                .collect();
            let mut row = vec![d.label.clone(), round.to_string()];
            row.extend(ks.iter().map(|&k| rate_with_interval(&tallies, k)));
            table.rows.push(row);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the table of pass@k of the base model and of the last weights, on held-out problems and on the targets.
pub(super) fn learnt(drawn: &[PlottedRun<'_>]) -> Option<ReportTable> {
    let k = drawn.iter().flat_map(|d| d.run.held_out()).map(EvaluationData::samples).max()?;
    let mut ks = vec![1, k];
    ks.dedup();
    let mut table =
        ReportTable { columns: ["Run", "Problems", "Solver"].map(str::to_owned).to_vec(), rows: Vec::new() };
    table.columns.extend(ks.iter().map(|k| format!("pass@{k}")));
    table.columns.push("Proved at least once".into());
    let mut row = |d: &PlottedRun<'_>, what: &str, who: String, tallies: &[(u32, u32)]| {
        let proved = tallies.iter().filter(|t| t.1 > 0).count();
        let mut row = vec![d.label.clone(), what.to_owned(), who];
        row.extend(ks.iter().map(|&k| rate_with_interval(tallies, k)));
        row.push(format!("{proved} of {}", tallies.len()));
        table.rows.push(row);
    };
    for d in drawn {
        let mut ends: Vec<&EvaluationData> = d.run.held_out().next().into_iter().collect();
        ends.extend(d.run.held_out().next_back().filter(|last| last.after > 0));
        for evaluation in ends {
            row(d, "held out", after(evaluation.after), &evaluation.held_out);
        }
        let rounds: Vec<u32> = d.run.rounds.iter().map(|r| r.round).collect();
        let mut ends: Vec<u32> = rounds.first().into_iter().chain(rounds.last()).copied().collect();
        ends.dedup();
        for round in ends {
            let of =
                |t: &TargetHistory| t.rounds.iter().find(|r| r.round == round).map(|r| (r.judged, r.proved));
            let tallies: Vec<(u32, u32)> = d.run.targets.iter().filter_map(of).collect();
            row(d, "targets", after(round), &tallies);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Names the Solver after a number of rounds.
fn after(rounds: u32) -> String {
    match rounds {
        0 => "base model".to_owned(),
        1 => "after 1 round".to_owned(),
        n => format!("after {n} rounds"),
    }
}

fn rate_with_interval(tallies: &[(u32, u32)], k: u32) -> String {
    pass_at_k_interval(tallies, k, 0.95, u64::from(k)).map_or_else(
        || NONE.to_owned(),
        |i| format!("{:.1}% ({:.1} to {:.1})", 100.0 * i.value, 100.0 * i.low, 100.0 * i.high),
    )
}

/// Returns the table of wall time by stage.
pub(super) fn timings(run: &RunData) -> Option<ReportTable> {
    let times: Vec<[f64; 7]> = run.rounds.iter().filter_map(stage_seconds).collect();
    let all: f64 = times.iter().flatten().sum();
    if all <= 0.0 {
        return None;
    }
    let per_round = |total: f64| duration(Some(total / times.len() as f64));
    let mut table = ReportTable::new(["Stage", "Total", "Per round", "Share"]);
    let mut row = |name: &str, total: f64| {
        let share = percent(Some(total / all));
        table.rows.push(vec![name.to_owned(), duration(Some(total)), per_round(total), share]);
    };
    for (stage, total) in STAGES.iter().zip(stage_totals(run)) {
        if total > 0.0 {
            row(stage, total);
        }
    }
    row("all", all);
    let evaluations: f64 = run.evaluations.iter().map(EvaluationData::seconds).sum();
    if evaluations > 0.0 {
        let share = percent(Some(evaluations / (all + evaluations)));
        let name = "evaluations, besides the rounds; their share of both".to_owned();
        table.rows.push(vec![name, duration(Some(evaluations)), NONE.to_owned(), share]);
    }
    let checks: f64 = run.rounds.iter().filter_map(|r| RunData::value(r, names::TIME_CHECKS)).sum();
    if checks > 0.0 {
        let name = "in the checker, added up over its threads".to_owned();
        table.rows.push(vec![name, duration(Some(checks)), per_round(checks), NONE.to_owned()]);
    }
    let mean = |name: &str| {
        let values: Vec<f64> = run.rounds.iter().filter_map(|r| RunData::value(r, name)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    for (name, key) in [
        ("tokens sampled per second", names::SAMPLED_TOKENS_PER_S),
        ("tokens trained per second", names::TRAINED_TOKENS_PER_S),
    ] {
        if let Some(rate) = mean(key) {
            table.rows.push(vec![name.to_owned(), NONE.to_owned(), count(Some(rate)), NONE.to_owned()]);
        }
    }
    Some(table)
}
