//! How training goes: rewards, conjectures, entropy, verdicts, time (paper, Fig. 2, 3, 7).

use super::curves::{about_seeds, baseline_of, generations_axis, panel};
use super::{Drawn, FigureOptions, Group, MOST_POINTS, groups, thinned};
use crate::plot::{
    Axis, BarSeries, Bars, Content, Figure, Ink, Panel, ReferenceLine, Series, Shape, Style, Unit, Xy,
};
use crate::run::{RunData, STAGES, metric, stage_seconds};
use sgs_rundir::metrics::names;
use sgs_selfplay::Method;

/// One panel with a curve per run; `None` if no run has the number. A number of single rounds jumps about: its mean over
/// neighbouring rounds is drawn, and the rounds themselves faintly behind it.
fn runs_panel(drawn: &[Drawn<'_>], title: &str, name: &str, y: Axis) -> Option<Panel> {
    let series = smoothed_series(drawn, name);
    (!series.is_empty())
        .then(|| panel(title, Shape::Half, Xy { x: generations_axis(), y, series, lines: Vec::new() }))
}

/// A number of each run over generations, as means over neighbouring rounds before the rounds themselves; of several seeds,
/// the mean of these means. Runs without it, and counts that are always zero because the method has no such thing, are left
/// out.
pub(super) fn smoothed_series<'a: 'b, 'b>(
    drawn: impl IntoIterator<Item = &'b Drawn<'a>>,
    name: &str,
) -> Vec<Series> {
    let points = |run: &RunData| {
        let points = run.series(name);
        let is_absent = name == metric::TRAINED && points.iter().all(|p| p.1 == 0.0);
        if is_absent { Vec::new() } else { points }
    };
    let means = |run: &RunData| {
        let points = points(run);
        running_mean(&points, window(points.len()))
    };
    let (mut behind, mut before) = (Vec::new(), Vec::new());
    for group in groups(drawn) {
        let (runs, curve) = group.series(means);
        behind.extend(runs);
        before.extend(curve);
        if let [d] = group.runs.as_slice() {
            let single = points(d.run);
            if window(single.len()) > 1 {
                let name = format!("{}, single rounds", d.label);
                let single = thinned(single, MOST_POINTS);
                behind.push(Series { style: Style::Faint, ..Series::line(name, d.ink, single) });
            }
        }
    }
    behind.extend(before);
    behind
}

/// Rounds that a running mean is taken over: about a twelfth of the run, an odd number up to 11; 1 for short runs.
pub(super) fn window(rounds: usize) -> usize {
    if rounds < 10 { 1 } else { ((rounds / 12) | 1).clamp(3, 11) }
}

/// The mean of each point's y with its neighbours': `window` points in all; at the ends those that there are, so that a
/// curve never ends on the value of a single round.
pub(super) fn running_mean(points: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    let last = points.len().saturating_sub(1);
    let mean = |(i, p): (usize, &(f64, f64))| {
        let reach = window / 2;
        let near = points.get(i.saturating_sub(reach)..=(i + reach).min(last)).unwrap_or_default();
        (p.0, near.iter().map(|q| q.1).sum::<f64>() / near.len() as f64)
    };
    points.iter().enumerate().map(mean).collect()
}

/// What a caption says of the means in a figure.
pub(super) fn about_means<'a: 'b, 'b>(drawn: impl IntoIterator<Item = &'b Drawn<'a>>) -> String {
    let groups = groups(drawn);
    let runs = || groups.iter().flat_map(|g| &g.runs);
    let widest = runs().map(|d| window(d.run.rounds.len())).max().unwrap_or(1);
    let means = match widest {
        1 => String::new(),
        _ if groups.iter().all(Group::has_seeds) => {
            format!(" Curves are means over neighbouring rounds (at most {widest}).")
        }
        _ => format!(
            " Curves are means over neighbouring rounds (at most {widest}); faint, the single rounds."
        ),
    };
    means + &about_seeds(&groups)
}

fn share(label: &str) -> Axis {
    Axis::new(label, Unit::Percent).from(0.0)
}

fn figure(id: &str, title: &str, caption: &str, panels: Vec<Option<Panel>>) -> Option<Figure> {
    let panels: Vec<Panel> = panels.into_iter().flatten().collect();
    (!panels.is_empty()).then(|| Figure {
        id: id.into(),
        title: title.into(),
        caption: caption.into(),
        panels,
    })
}

/// The same, of numbers that jump from round to round.
fn smoothed_figure(
    drawn: &[Drawn<'_>],
    id: &str,
    title: &str,
    caption: &str,
    panels: Vec<Option<Panel>>,
) -> Option<Figure> {
    figure(id, title, &format!("{caption}{}", about_means(drawn)), panels)
}

/// The Solver's pass@k and the Conjecturer's rewards (Fig. 3).
pub(super) fn training(drawn: &[Drawn<'_>]) -> Option<Figure> {
    let plain = |label: &str| Axis::new(label, Unit::Plain).from(0.0);
    smoothed_figure(
        drawn,
        "training-dynamics",
        "Training dynamics",
        "The Solver on the targets: share proved at least once in the round (pass@k) and mean solve rate (pass@1). The Conjecturer: mean reward R_synth (0 to 8), mean score of the Guide R_guide (0 to 8), mean R_solve (0 to 1).",
        vec![
            runs_panel(drawn, "Targets proved in the round", metric::TARGET_SHARE, share("pass@k")),
            runs_panel(drawn, "Conjecturer's reward", metric::R_SYNTH, plain("Mean R_synth")),
            runs_panel(drawn, "Guide's score", metric::R_GUIDE, plain("Mean R_guide")),
            runs_panel(drawn, "Solve-rate reward", metric::R_SOLVE, plain("Mean R_solve")),
            runs_panel(drawn, "Target solve rate", metric::TARGET_RATE, share("pass@1")),
            runs_panel(drawn, "Conjecture solve rate", metric::CONJECTURE_RATE, share("Mean solve rate")),
        ],
    )
}

/// Disjunctions and lengths of the conjectures' conclusions (Fig. 2).
pub(super) fn conjecture_quality(drawn: &[Drawn<'_>]) -> Option<Figure> {
    let with_targets = |panel: Option<Panel>, name: &str| {
        let mut panel = panel?;
        let value = drawn.iter().find_map(|d| d.run.last(name));
        if let (Content::Xy(xy), Some(value)) = (&mut panel.content, value) {
            xy.lines.push(ReferenceLine { value, label: "targets".into(), ink: Ink::Text });
        }
        Some(panel)
    };
    let length = Axis::new("Mean length (tokens)", Unit::Plain).from(0.0);
    let plain = Axis::new("Conjectures per round", Unit::Count).from(0.0);
    smoothed_figure(
        drawn,
        "conjecture-quality",
        "What the Conjecturer invents",
        "Share of the conjectures with a disjunctive conclusion, and mean length of their conclusions; dotted lines, the targets'. A Conjecturer that is not guided drifts to long disjunctions. Below: conjectures that the Solver is trained on, and how many are malformed.",
        vec![
            with_targets(
                runs_panel(
                    drawn,
                    "Disjunctive conclusions",
                    metric::CONJECTURE_DISJUNCTIVE,
                    share("Share of conjectures"),
                ),
                metric::TARGET_DISJUNCTIVE,
            ),
            with_targets(
                runs_panel(drawn, "Length of conclusions", metric::CONJECTURE_CONCLUSION, length),
                metric::TARGET_CONCLUSION,
            ),
            runs_panel(drawn, "Trained on", metric::TRAINED, plain),
            runs_panel(drawn, "Malformed", metric::CONJECTURE_MALFORMED, share("Share of conjectures")),
        ],
    )
}

/// Entropy and histograms of solve rates (Fig. 7).
pub(super) fn entropy(drawn: &[Drawn<'_>], options: &FigureOptions) -> Option<Figure> {
    let entropy = |label: &str| Axis::new(label, Unit::Plain).from(0.0);
    let (chosen, is_whole) = chosen_for_bars(drawn, options);
    let which = if is_whole {
        String::new()
    } else {
        let names: Vec<&str> = chosen.iter().map(|g| g.label.as_str()).collect();
        format!(" Histograms: {}.", names.join(", "))
    };
    smoothed_figure(
        drawn,
        "entropy",
        "Entropy and solve rates",
        &format!(
            "Mean entropy per token, and how the solve rates of conjectures and targets are distributed over the last tenth of the rounds. A Solver without entropy proves a problem always or never, which leaves the Conjecturer without reward.{which}"
        ),
        vec![
            runs_panel(drawn, "Solver's entropy", metric::SOLVER_ENTROPY, entropy("Nats per token")),
            runs_panel(
                drawn,
                "Conjecturer's entropy",
                metric::CONJECTURER_ENTROPY,
                entropy("Nats per token"),
            ),
            rates_panel(&chosen, "Solve rates of conjectures", metric::CONJECTURE_RATES),
            rates_panel(&chosen, "Solve rates of targets", metric::TARGET_RATES),
        ],
    )
}

/// Bars side by side that an eye still tells apart.
const MOST_GROUPS_OF_BARS: usize = 4;

/// The groups whose bars are drawn side by side, and whether these are all: where there are many, that of the main run,
/// that of the baseline, and then SGS without its parts.
fn chosen_for_bars<'a, 'b>(drawn: &'b [Drawn<'a>], options: &FigureOptions) -> (Vec<Group<'a, 'b>>, bool) {
    const THEN: [Method; 6] = [
        Method::SgsNoGuide,
        Method::SgsLearnedGuide,
        Method::SgsFrozenConjecturer,
        Method::SgsNoConditioning,
        Method::SgsCispo,
        Method::Stp,
    ];
    let mut groups: Vec<Group<'a, 'b>> = groups(drawn);
    if groups.len() <= MOST_GROUPS_OF_BARS {
        return (groups, true);
    }
    let first = [super::main_run(drawn), baseline_of(drawn, options)].map(|d| d.map(|d| d.group));
    let is_first = |g: &Group<'_, '_>| g.runs.iter().any(|d| first.contains(&Some(d.group)));
    let rank = |g: &Group<'_, '_>| THEN.iter().position(|m| g.method() == Some(*m)).unwrap_or(THEN.len());
    groups.sort_by_key(|g| (!is_first(g), rank(g)));
    groups.truncate(MOST_GROUPS_OF_BARS);
    (groups, false)
}

/// Shares of problems by solve rate over the last tenth of each run's rounds.
fn rates_panel(groups: &[Group<'_, '_>], title: &str, name: &str) -> Option<Panel> {
    let mut categories: Vec<String> = Vec::new();
    let mut series = Vec::new();
    for d in groups {
        let last_tenth = |run: &'_ RunData| run.rounds.len() - run.rounds.len().div_ceil(10);
        let mut sums: Vec<f64> = Vec::new();
        for run in d.runs.iter().map(|d| d.run) {
            for h in run.rounds.iter().skip(last_tenth(run)).filter_map(|r| RunData::histogram(r, name)) {
                sums.resize(sums.len().max(h.counts.len()), 0.0);
                sums.iter_mut().zip(&h.counts).for_each(|(s, c)| *s += *c as f64);
            }
        }
        let total: f64 = sums.iter().sum();
        if total <= 0.0 {
            continue;
        }
        if sums.len() > categories.len() {
            let k = sums.len().saturating_sub(1).max(1);
            categories = (0..sums.len()).map(|i| rate_name(i, k)).collect();
        }
        let values = sums.into_iter().map(|s| s / total).collect();
        series.push(BarSeries::new(d.label.clone(), d.ink, values));
    }
    (!series.is_empty()).then(|| Panel {
        title: title.to_owned(),
        shape: Shape::Half,
        content: Content::Bars(Bars {
            x_label: "Solve rate".into(),
            categories,
            y: share("Share of problems"),
            series,
            stacked: false,
        }),
    })
}

fn rate_name(i: usize, k: usize) -> String {
    match i {
        0 => "0".to_owned(),
        i if i == k => "1".to_owned(),
        i => format!("{i}/{k}"),
    }
}

const VERDICTS: [(&str, Ink); 5] = [
    ("proved", Ink::Series(2)),
    ("refused", Ink::Series(0)),
    ("malformed", Ink::Series(4)),
    ("resource", Ink::Series(3)),
    ("infra", Ink::Series(1)),
];

/// What the checker says of rollouts over time, a panel for targets and one for conjectures.
pub(super) fn verdicts(drawn: &[Drawn<'_>]) -> Option<Figure> {
    let run = super::main_run(drawn)?.run;
    let of = |title: &str, prefix: &str| -> Option<Panel> {
        let mut series: Vec<Series> = VERDICTS
            .iter()
            .map(|(verdict, ink)| {
                let points = run.rounds.iter().filter_map(|r| {
                    let count = |v: &str| RunData::value(r, &format!("{prefix}_rollouts_{v}"));
                    let total: f64 = VERDICTS.iter().filter_map(|(v, _)| count(v)).sum();
                    let generations = RunData::value(r, metric::GENERATIONS)?;
                    (total > 0.0).then_some(())?;
                    Some((generations, count(verdict)? / total))
                });
                Series::line(*verdict, *ink, thinned(points.collect(), MOST_POINTS))
            })
            .collect();
        // What never happens needs no line on the axis.
        series.retain(|s| s.points.iter().any(|p| p.1 > 0.0));
        let y = share("Share of rollouts");
        (!series.is_empty())
            .then(|| panel(title, Shape::Half, Xy { x: generations_axis(), y, series, lines: Vec::new() }))
    };
    figure(
        "verdicts",
        "Verdicts",
        "What the checker says of the Solver's rollouts: proved, refused, malformed (no proof could be read), resource (time or memory ran out), infra (the checker broke; never counted as a failed attempt). What never happened has no curve.",
        vec![of("Rollouts of targets", "target"), of("Rollouts of conjectures", "conjecture")],
    )
}

/// What to look at when a run goes wrong: lengths, malformed output, the gap between sampler and trainer.
pub(super) fn health(drawn: &[Drawn<'_>]) -> Option<Figure> {
    let count = |label: &str| Axis::new(label, Unit::Count).from(0.0);
    let gap = Axis::new("Log-prob gap (nats)", Unit::Plain).from(0.0);
    smoothed_figure(
        drawn,
        "health",
        "Health of the run",
        "Tokens per rollout and per conjecture, shares of malformed output, how far the log-probabilities of sampler and trainer lie apart, and rollouts that the system lost.",
        vec![
            runs_panel(drawn, "Length of rollouts", metric::SOLVER_TOKENS, count("Tokens")),
            runs_panel(drawn, "Length of conjectures", metric::CONJECTURER_TOKENS, count("Tokens")),
            runs_panel(drawn, "Malformed proofs", metric::PROOF_MALFORMED, share("Share of rollouts")),
            runs_panel(drawn, "Malformed reviews", metric::REVIEW_MALFORMED, share("Share of reviews")),
            runs_panel(drawn, "Sampler against trainer", names::SOLVER_LOG_PROB_GAP, gap),
            runs_panel(drawn, "Lost by the system", metric::INFRA, share("Share of rollouts")),
        ],
    )
}

const MOST_BARS: usize = 60;

/// Wall time of each round by stage.
pub(super) fn timings(run: &RunData) -> Option<Figure> {
    let times: Vec<(u32, [f64; 7])> =
        run.rounds.iter().filter_map(|r| Some((r.round, stage_seconds(r)?))).collect();
    if times.is_empty() {
        return None;
    }
    let group = times.len().div_ceil(MOST_BARS).max(1);
    let groups: Vec<&[(u32, [f64; 7])]> = times.chunks(group).collect();
    let categories = groups.iter().filter_map(|g| g.first()).map(|t| t.0.to_string()).collect();
    let series = STAGES
        .iter()
        .enumerate()
        .map(|(i, stage)| {
            let mean = |g: &&[(u32, [f64; 7])]| g.iter().map(|t| t.1[i]).sum::<f64>() / g.len() as f64;
            let values: Vec<f64> = groups.iter().map(mean).collect();
            BarSeries::new(*stage, Ink::Series(i), values)
        })
        .filter(|s| s.values.iter().any(|v| *v > 0.0))
        .collect();
    let per = if group > 1 { format!("; each bar is the mean of {group} rounds") } else { String::new() };
    Some(Figure {
        id: "timings".into(),
        title: "Where the time goes".into(),
        caption: format!(
            "Wall time of the rounds by stage{per}. Checking overlaps with sampling; the rest of sampling is what its stage takes beyond the sampler: prompts, last verdicts, the journal."
        ),
        panels: vec![Panel {
            title: String::new(),
            shape: Shape::Wide,
            content: Content::Bars(Bars {
                x_label: "Round".into(),
                categories,
                y: Axis::new("Wall time", Unit::Duration).from(0.0),
                series,
                stacked: true,
            }),
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_end_where_the_run_does_and_never_on_a_single_round() {
        let points: Vec<(f64, f64)> =
            [0.0, 3.0, 0.0, 3.0, 6.0].into_iter().enumerate().map(|(i, y)| (i as f64, y)).collect();
        let means: Vec<f64> = running_mean(&points, 3).into_iter().map(|p| p.1).collect();
        assert_eq!(means, [1.5, 1.0, 2.0, 3.0, 4.5]);
        assert_eq!(running_mean(&points, 1), points);
        assert!(running_mean(&[], 5).is_empty());
        assert_eq!([0, 9, 10, 24, 60, 200, 5000].map(window), [1, 1, 3, 3, 5, 11, 11]);
    }
}
