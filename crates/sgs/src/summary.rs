//! The last lines of a run: solved targets, the time of each stage, and the next command.

use crate::{output, pace};
use anyhow::Result;
use sgs_analysis::plot::{grouped, percent};
use sgs_analysis::report::describe_held_out_change;
use sgs_analysis::run::{EvaluationData, RunData, metric, stage_totals};
use sgs_analysis::stats::pass_at_k_interval;
use sgs_run::config::held_out::HeldOut;
use sgs_run::config::{RunConfig, folder, system};
use sgs_rundir::{EndReason, RunView};

/// Width of the first column.
pub const NAME: usize = 12;

const CONTINUE: &str = "to continue";

/// Returns whether a line of the summary is a command, which must not be broken.
pub fn is_command(line: &str) -> bool {
    line.starts_with("next ") || line.starts_with(CONTINUE)
}

pub fn line(name: &str, text: &str) -> String {
    format!("{name:<NAME$}{text}")
}

pub fn lines(run: &RunData, view: &RunView) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut line = |name: &str, text: String| lines.push(line(name, &text));
    line("solved", solved(run));
    if let Some(baseline) = &run.baseline
        && let Some((end, own, base)) = baseline.against(&run.series(metric::CUMULATIVE))
    {
        let place = base.place(own);
        let (base, low, high) = (percent(base.value), percent(base.low), percent(base.high));
        let (own, seeds) = (percent(own), baseline.seeds());
        let also = if run.has_conjectures() { ", which spent some on conjectures" } else { "" };
        line(
            "base model",
            format!(
                "{base} ({low} to {high}, {seeds} seeds) without training, if all {} generations attempt targets; \
                 this run{also}: {own}, {place}",
                grouped(end)
            ),
        );
    }
    line("held out", held_out(run, &folder::config_of(view)?));
    line("time", time(run));
    if let Some(why) = &run.ended {
        line("ended", why.clone());
    }
    line("next", format!("sgs prove --run {}", view.path().display()));
    line(CONTINUE, continue_command(view, &folder::config_of(view)?));
    Ok(lines)
}

fn solved(run: &RunData) -> String {
    let last = |name: &str| run.last(name).unwrap_or(0.0);
    let first = run.rounds.first().and_then(|round| RunData::value(round, metric::CUMULATIVE));
    let first = first.map_or_else(String::new, |share| format!(", {} in the first round", percent(share)));
    format!(
        "{} of {} targets ever{first}; {} of the rollouts in the last round",
        percent(last(metric::CUMULATIVE)),
        grouped(last(metric::TARGETS)),
        percent(last(metric::TARGET_RATE))
    )
}

/// Formats pass@k on the held-out problems, next to the base model's.
fn held_out(run: &RunData, config: &RunConfig) -> String {
    let (Some(base), Some(last)) = (run.held_out().next(), run.held_out().next_back()) else {
        return match system::problems(config).and_then(|problems| system::held_out(config, problems)) {
            Ok(HeldOut { note: None, .. }) => "none (set evaluation.held_out)".to_owned(),
            Ok(HeldOut { problems, note: Some(note) }) if problems.is_empty() => {
                note.replacen("no held-out evaluation", "none", 1)
            }
            _ => "not evaluated".to_owned(),
        };
    };
    let rate = |evaluation: &EvaluationData, k| {
        let rate = pass_at_k_interval(&evaluation.held_out_tallies(), k, 0.95, k.into());
        rate.map_or_else(|| "-".to_owned(), |rate| percent(rate.value))
    };
    let k = last.samples();
    let mut text = format!("pass@1 {}", rate(last, 1));
    if k > 1 {
        text.push_str(&format!(", pass@{k} {}", rate(last, k)));
    }
    if last.after > 0 {
        text.push_str(&format!("; the base model {}", rate(base, 1)));
        if k > 1 {
            text.push_str(&format!(" and {}", rate(base, k)));
        }
    }
    let [problems, samples] =
        [(last.held_out.len(), "problem"), (k as usize, "sample")].map(|(n, noun)| output::counted(n, noun));
    text.push_str(&format!(" ({problems}, {samples} each)"));
    text.extend(describe_held_out_change(run, 1).map(|change| format!("; pass@1 {change}")));
    text
}

fn time(run: &RunData) -> String {
    let [conjectures, rollouts, reviews, sampling, solver, conjecturer, rest] = stage_totals(run);
    let stages = [
        ("rollouts", rollouts),
        ("conjectures", conjectures),
        ("reviews", reviews),
        ("updates", solver + conjecturer),
        ("other", sampling + rest),
    ];
    // The sum of no numbers is -0.
    let all = stages.iter().map(|(_, seconds)| seconds).sum::<f64>() + 0.0;
    let evaluations: f64 = run.evaluations.iter().map(EvaluationData::seconds).sum();
    let rounds = output::counted(run.rounds.len(), "round");
    let numbers = if run.rounds.len() > 1 { " (numbered from 0)" } else { "" };
    let mut text = format!("{rounds}{numbers} in {}", pace::duration_text(all));
    if evaluations > 0.0 {
        text.push_str(&format!(", plus {} of evaluation", pace::duration_text(evaluations)));
    }
    let shares = stages.iter().filter(|(_, seconds)| *seconds > 0.0);
    let shares: Vec<_> =
        shares.map(|(name, seconds)| format!("{name} {:.0}%", 100.0 * seconds / all)).collect();
    if !shares.is_empty() {
        text.push_str(&format!(": {}", shares.join(", ")));
    }
    text
}

/// Says that a run was complete before it was resumed. With `json`, no summary follows.
pub fn nothing_to_do(view: &RunView, json: bool) -> String {
    let limit = limit(view).map_or_else(String::new, |limit| format!(" ({limit})"));
    let hint = if json { "" } else { "; the command to continue is below" };
    format!("nothing to do: the run has reached its limit{limit}{hint}")
}

/// Returns the limit that ended a run, or `None` if it cannot be read.
fn limit(view: &RunView) -> Option<String> {
    let RunConfig { rounds, minutes, generations, .. } = folder::config_of(view).ok()?;
    Some(match view.ended()?.by {
        EndReason::Rounds => output::counted(rounds as usize, "round"),
        EndReason::Minutes if minutes == 1.0 => "1 minute".to_owned(),
        EndReason::Minutes => format!("{minutes} minutes"),
        EndReason::Generations => format!("{} generations", grouped(generations as f64)),
    })
}

pub fn continue_command(view: &RunView, config: &RunConfig) -> String {
    // A round that was in progress at the time limit was completed, so the run may have worked for longer.
    let worked = folder::seconds_worked(view).unwrap_or_default() / 60.0;
    let more = more_than(config, view.ended().map(|end| end.by), worked);
    format!("sgs resume {} {more}", view.path().display())
}

/// Returns twice the limit that ended a run, as an argument of `sgs resume`. `worked` is in minutes.
fn more_than(config: &RunConfig, ended_by: Option<EndReason>, worked: f64) -> String {
    match ended_by {
        Some(EndReason::Minutes) if worked > config.minutes => {
            format!("--minutes {:.0}", (2.0 * worked).ceil())
        }
        Some(EndReason::Minutes) => format!("--minutes {}", config.minutes * 2.0),
        Some(EndReason::Generations) => format!("--generations {}", config.generations.saturating_mul(2)),
        Some(EndReason::Rounds) | None => format!("--rounds {}", config.rounds.saturating_mul(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_raises_the_limit_that_ended_the_run() {
        let config = RunConfig { rounds: 100, minutes: 6.0, generations: 5_000, ..RunConfig::default() };
        for (reason, argument) in [
            (EndReason::Rounds, "--rounds 200"),
            (EndReason::Minutes, "--minutes 12"),
            (EndReason::Generations, "--generations 10000"),
        ] {
            assert_eq!(more_than(&config, Some(reason), 5.9), argument);
        }
        // The last round ended long after the limit.
        assert_eq!(more_than(&config, Some(EndReason::Minutes), 9.2), "--minutes 19");
    }

    #[test]
    fn rates_on_held_out_problems_name_their_problems_and_samples() {
        let evaluation = |after, proved| EvaluationData {
            after,
            held_out: (0..50).map(|i| (format!("h{i}"), (8, proved))).collect(),
            ..EvaluationData::default()
        };
        let run = RunData { evaluations: vec![evaluation(0, 0), evaluation(2, 4)], ..RunData::default() };
        let expected =
            "pass@1 50.0%, pass@8 100.0%; the base model 0.0% and 0.0% (50 problems, 8 samples each)";
        assert_eq!(held_out(&run, &RunConfig::default()), expected);
    }
}
