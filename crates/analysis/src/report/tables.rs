//! The tables of a report.

use super::html::{Cell, Format, ReportTable, formulas, shortened};
use super::verdict::compared_at;
use crate::compare::{are_near, asymptote_over_seeds, last_comparable};
use crate::figures::{self, Curve, FigureOptions, PlottedRun, groups};
use crate::fit::{Fit, FitError, Parameter, Warning};
use crate::run::{EvaluationData, RunData, STAGES, TargetHistory, metric, stage_totals};
use crate::stats::{Interval, measured_at, pass_at_k_interval};
use sgs_rundir::metrics::names;

/// Maximum length of a statement in a table, in characters.
const LONGEST_STATEMENT: usize = 300;

pub(super) fn last_round(run: &RunData) -> Cell {
    Cell::round(run.rounds.last().map(|r| r.round))
}

/// Returns the wall time of a run so far, in seconds.
pub(super) fn wall_time(run: &RunData) -> Option<f64> {
    run.clock().last().map(|c| c.1).filter(|s| s.is_finite() && *s > 0.0)
}

/// Returns the generations at which the table compares the runs, if their lengths differ: those of the verdict or, if it
/// compares nothing, the last ones at which all runs can be compared.
fn common_end(drawn: &[PlottedRun<'_>]) -> Option<f64> {
    let curves: Vec<Curve> = drawn.iter().map(|d| d.run.series(metric::CUMULATIVE)).collect();
    let of_all = || last_comparable(&curves.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let end = compared_at(drawn).or_else(of_all)?;
    let longest = curves.iter().filter_map(|c| c.last()).map(|p| p.0).fold(0.0, f64::max);
    // Ignore a difference of a single round.
    (longest > 1.02 * end).then_some(end)
}

/// Returns the rate of a run at the generations of [`common_end`], unless it was last measured long before.
fn rate_at(run: &RunData, end: f64) -> Cell {
    let curve = run.series(metric::CUMULATIVE);
    let rate = measured_at(&curve, end).filter(|_| are_near(&[&curve], end));
    Cell::number(rate, Format::Percent)
}

fn or_undetermined(asymptote: Option<Cell>) -> Cell {
    asymptote.unwrap_or_else(|| figures::UNDETERMINED.into())
}

/// Returns the asymptote of a fit with its uncertainty, if it is identified.
fn asymptote(fit: &Fit) -> Option<Cell> {
    let half = fit.uncertainty(0.95).filter(|_| fit.is_identified())?;
    let value = fit.law.asymptote;
    Some(Cell::interval(value, Some((value - half, value + half)), Format::Percent))
}

/// Returns the summary table with one row per run.
pub(super) fn summary(drawn: &[PlottedRun<'_>]) -> ReportTable {
    let common = common_end(drawn);
    let mut table = ReportTable::new(
        "Run | Method | Seed | Round | Generations | Targets solved | Ever solved | pass@k in this round | Wall time | Asymptote (95%, this fit alone)",
    );
    if let Some(end) = common {
        table.columns.insert(7, format!("At {} generations", Cell::number(Some(end), Format::Count).text()));
    }
    for d in drawn {
        let run = d.run;
        let solved = run.last(metric::SOLVED_EVER).zip(run.last(metric::TARGETS));
        let mut row = vec![
            d.label.clone().into(),
            run.method.map_or(Cell::Empty, |m| m.as_str().into()),
            run.seed.map_or(Cell::Empty, |seed| seed.to_string().into()),
            last_round(run),
            Cell::number(run.last(metric::GENERATIONS), Format::Count),
            solved.map_or(Cell::Empty, |(solved, all)| Cell::Of(solved, all)),
            Cell::number(run.last(metric::CUMULATIVE), Format::Percent),
            Cell::number(run.last(metric::TARGET_SHARE), Format::Percent),
            Cell::number(wall_time(run), Format::Seconds),
            or_undetermined(d.fit.as_ref().ok().and_then(asymptote)),
        ];
        if let Some(end) = common {
            row.insert(7, rate_at(run, end));
        }
        table.rows.push(row);
    }
    table
}

/// Returns the table of parameters of the scaling laws. After the runs of a group with several seeds, it has the law of their
/// mean and the interval of A over the seeds.
pub(super) fn fits(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> ReportTable {
    let mut table = ReportTable::new(
        "Run | Round | Determined | R₀ | C₀ | A (95%) | The interval covers | C_mid (95%) | B (95%) | Residual s.d. | Points | Cut",
    );
    let mut row = |name: String, round: Cell, fit: &Result<Fit, FitError>, seeds: Option<(f64, f64)>| {
        let fit = fit.as_ref().ok();
        let law = fit.filter(|fit| fit.is_identified());
        let number = |of: &dyn Fn(&Fit) -> Option<f64>, format| Cell::number(law.and_then(of), format);
        let parameter = |p: Parameter, format| {
            law.map_or(Cell::Empty, |f| Cell::interval(f.value(p), f.interval(p, 0.95), format))
        };
        let a = match seeds {
            Some((middle, half)) => {
                Cell::interval(middle, Some((middle - half, middle + half)), Format::Percent)
            }
            None => or_undetermined(law.and_then(asymptote)),
        };
        let covers = match (seeds, law) {
            (Some(_), _) => "seeds".into(),
            (None, Some(_)) => "this fit alone".into(),
            (None, None) => Cell::Empty,
        };
        table.rows.push(vec![
            name.into(),
            round,
            (if law.is_some() { "yes" } else { "no" }).into(),
            number(&|f| Some(f.law.initial), Format::Percent),
            number(&|f| Some(f.law.origin), Format::Count),
            a,
            covers,
            parameter(Parameter::Midpoint, Format::Count),
            parameter(Parameter::Steepness, Format::Plain),
            number(&Fit::residual_sd, Format::Percent),
            number(&|f| Some(f.points as f64), Format::Count),
            Cell::number(fit.map(|f| f.cut), Format::Count),
        ]);
    };
    for group in groups(drawn) {
        for d in &group.runs {
            row(d.label.clone(), last_round(d.run), &d.fit, None);
        }
        if group.has_seeds() {
            let seeds = asymptote_over_seeds(&group.laws());
            row(format!("{}: mean", group.label), Cell::Empty, &group.fit(&options.fit), seeds);
        }
    }
    table
}

/// Renders the limitations of the fits as a list.
pub(super) fn what_to_know(drawn: &[PlottedRun<'_>]) -> String {
    let items: Vec<String> = drawn
        .iter()
        .flat_map(|d| match &d.fit {
            // One reason is enough if there is no law.
            Ok(fit) if !fit.is_identified() => {
                let unidentified = fit.warnings.iter().filter(|w| w.is_unidentified());
                let bend = |w: &&Warning| !matches!(w, Warning::BendNotSeen { .. });
                unidentified.min_by_key(bend).map(|w| format!("{}: {w}", d.label)).into_iter().collect()
            }
            Ok(fit) => fit.warnings.iter().map(|w| format!("{}: {w}", d.label)).collect(),
            Err(error) => vec![format!("{}: {error}", d.label)],
        })
        .map(|text| format!("<li>{}</li>", formulas(&text)))
        .collect();
    if items.is_empty() { String::new() } else { format!(r#"<ul class="remarks">{}</ul>"#, items.concat()) }
}

/// Returns the table of pass@k of the base model and of the last weights, on held-out problems and on the targets.
pub(super) fn pass_at(drawn: &[PlottedRun<'_>]) -> Option<ReportTable> {
    type Row<'a> = (&'a PlottedRun<'a>, &'static str, &'static str, Option<u32>, Vec<(u32, u32)>);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for d in drawn {
        let mut ends: Vec<&EvaluationData> = d.run.held_out().next().into_iter().collect();
        ends.extend(d.run.held_out().next_back().filter(|last| last.after > 0));
        for evaluation in ends {
            let solver = if evaluation.after == 0 { "base model" } else { "trained" };
            rows.push((
                d,
                "held out",
                solver,
                evaluation.after.checked_sub(1),
                evaluation.held_out_tallies(),
            ));
        }
        let base = d.run.base_on_targets();
        if !base.is_empty() {
            rows.push((d, "targets", "base model", Some(0), base));
        }
        // The weights that sample a round were trained in the rounds before it.
        if let Some(last) = d.run.rounds.last().map(|r| r.round).filter(|last| *last > 0) {
            let of =
                |t: &TargetHistory| t.rounds.iter().find(|r| r.round == last).map(|r| (r.judged, r.proved));
            rows.push((d, "targets", "trained", Some(last), d.run.targets.iter().filter_map(of).collect()));
        }
    }
    let samples = |row: &Row<'_>| row.4.iter().map(|(samples, _)| *samples).max().filter(|k| *k > 0);
    let mut ks: Vec<u32> = rows.iter().filter_map(samples).collect();
    let most = *ks.iter().max()?;
    ks.extend(std::iter::successors(Some(1_u32), |k| k.checked_mul(4)).take_while(|k| *k < most));
    ks.sort_unstable();
    ks.dedup();
    let mut table = ReportTable::new("Run | Problems | Solver | Round");
    table.columns.extend(ks.iter().map(|k| format!("pass@{k} (95%)")));
    table.columns.push("Proved at least once".into());
    for (d, problems, solver, round, tallies) in rows {
        let mut row = vec![d.label.clone().into(), problems.into(), solver.into(), Cell::round(round)];
        row.extend(ks.iter().map(|&k| {
            pass_at_k_interval(&tallies, k, 0.95, u64::from(k))
                .map_or(Cell::Empty, |i: Interval| Cell::Interval(i, Format::Percent))
        }));
        let proved = tallies.iter().filter(|t| t.1 > 0).count();
        row.push(Cell::Of(proved as f64, tallies.len() as f64));
        table.rows.push(row);
    }
    table.filled()
}

/// Returns the table of a run's targets, unsolved ones first. The round is that of the first proof.
pub(super) fn targets(run: &RunData) -> Option<ReportTable> {
    let mut table =
        ReportTable::new("Target | Solved | Round | Rounds tried | Rollouts | Proofs | Statement");
    let mut order: Vec<&TargetHistory> = run.targets.iter().collect();
    order.sort_by_key(|t| (t.solved_round.is_some(), std::cmp::Reverse(t.solved_round), t.id.as_str()));
    for target in order {
        let sum = |of: fn(&crate::run::TargetRound) -> u32| {
            target.rounds.iter().map(|r| u64::from(of(r))).sum::<u64>()
        };
        table.rows.push(vec![
            target.id.clone().into(),
            (if target.solved_round.is_some() { "yes" } else { "no" }).into(),
            Cell::round(target.solved_round),
            (target.rounds.len() as u64).into(),
            sum(|r| r.judged).into(),
            sum(|r| r.proved).into(),
            Cell::Statement(shortened(&target.statement, LONGEST_STATEMENT)),
        ]);
    }
    table.filled()
}

/// Returns the table of a run's wall time by stage.
pub(super) fn timings(d: &PlottedRun<'_>) -> Option<ReportTable> {
    let run = d.run;
    let stages = stage_totals(run);
    let all: f64 = stages.iter().sum();
    if all <= 0.0 {
        return None;
    }
    let rounds = run.rounds.len() as f64;
    let mut table = ReportTable::new("Run | Stage | Round | Total | Per round | Share of the wall time");
    let mut row = |name: &str, total: f64, is_part: bool| {
        let share = Cell::number(is_part.then_some(total / all), Format::Percent);
        let [total, per_round] = [total, total / rounds].map(|s| Cell::number(Some(s), Format::Seconds));
        table.rows.push(vec![d.label.clone().into(), name.into(), last_round(run), total, per_round, share]);
    };
    for (stage, seconds) in STAGES.iter().zip(stages).filter(|(_, seconds)| *seconds > 0.0) {
        row(stage, seconds, true);
    }
    row("wall time of the rounds", all, true);
    let sum = |name: &str| run.by_round(name).iter().map(|p| p.1).sum::<f64>();
    for (name, seconds) in [
        ("evaluations, between the rounds", run.evaluations.iter().map(EvaluationData::seconds).sum::<f64>()),
        ("checks, summed over threads; they overlap with sampling", sum(names::TIME_CHECKS)),
        ("publication; it overlaps with the next round", sum(names::TIME_PUBLISH)),
    ] {
        if seconds > 0.0 {
            row(name, seconds, false);
        }
    }
    Some(table)
}
