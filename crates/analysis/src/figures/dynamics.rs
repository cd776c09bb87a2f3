//! Figures of the training dynamics: rewards, conjectures, entropy, verdicts and time (paper, Fig. 2, 3, 7).

use super::common::{about_means, baseline_of, generations_axis, panel, smoothed_series};
use super::{FigureOptions, MOST_POINTS, PlottedRun, SeedGroup, groups, thinned};
use crate::plot::{
    Axis, BarSeries, Bars, Figure, FigurePanel, Ink, PanelContent, PanelShape, ReferenceLine, Series, Unit,
    Xy,
};
use crate::run::{RunData, STAGES, metric, stage_seconds};
use sgs_rundir::metrics::names;
use sgs_selfplay::Method;

/// Returns a panel with the running mean of a metric for each run, in front of the values of single rounds. Returns `None` if
/// no run has the metric.
fn runs_panel(drawn: &[PlottedRun<'_>], title: &str, name: &str, y: Axis) -> Option<FigurePanel> {
    let series = smoothed_series(drawn, name);
    (!series.is_empty())
        .then(|| panel(title, PanelShape::Half, Xy { x: generations_axis(), y, series, lines: Vec::new() }))
}

fn share(label: &str) -> Axis {
    Axis::new(label, Unit::Percent).from(0.0)
}

fn figure(id: &str, title: &str, caption: &str, panels: Vec<Option<FigurePanel>>) -> Option<Figure> {
    let panels: Vec<FigurePanel> = panels.into_iter().flatten().collect();
    (!panels.is_empty()).then(|| Figure {
        id: id.into(),
        title: title.into(),
        caption: caption.into(),
        panels,
    })
}

/// Returns a figure of running means, which the caption explains.
fn smoothed_figure(
    drawn: &[PlottedRun<'_>],
    id: &str,
    title: &str,
    caption: &str,
    panels: Vec<Option<FigurePanel>>,
) -> Option<Figure> {
    figure(id, title, &format!("{caption}{}", about_means(drawn)), panels)
}

/// The Solver's pass@k and the Conjecturer's rewards (Fig. 3).
pub(super) fn training(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let plain = |label: &str| Axis::new(label, Unit::Plain).from(0.0);
    smoothed_figure(
        drawn,
        "training-dynamics",
        "Training dynamics",
        "Solver on the targets: fraction proved at least once in the round (pass@k) and mean solve rate (pass@1). Conjecturer: mean reward R_synth (0 to 8), mean Guide score R_guide (0 to 8) and mean R_solve (0 to 1).",
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
pub(super) fn conjecture_quality(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let with_targets = |panel: Option<FigurePanel>, name: &str| {
        let mut panel = panel?;
        let value = drawn.iter().find_map(|d| d.run.last(name));
        if let (PanelContent::Xy(xy), Some(value)) = (&mut panel.content, value) {
            xy.lines.push(ReferenceLine { value, label: "targets".into(), ink: Ink::Text });
        }
        Some(panel)
    };
    let length = Axis::new("Mean length (tokens)", Unit::Plain).from(0.0);
    let plain = Axis::new("Conjectures per round", Unit::Count).from(0.0);
    smoothed_figure(
        drawn,
        "conjecture-quality",
        "Quality of the conjectures",
        "Top: fraction of the conjectures with a disjunctive conclusion, and mean length of their conclusions; dotted lines show the targets. Without a Guide, the Conjecturer drifts to long disjunctions. Bottom: conjectures that the Solver is trained on, and fraction of malformed ones.",
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
pub(super) fn entropy(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> Option<Figure> {
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
            "Mean entropy per token, and distribution of the solve rates of conjectures and targets in the last 10% of the rounds. A Solver without entropy proves a problem always or never, so that the Conjecturer receives no reward.{which}"
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

/// Maximum number of groups with adjacent bars.
const MOST_GROUPS_OF_BARS: usize = 4;

/// Returns the groups whose bars are drawn, and whether these are all groups. If there are too many, the main run's group, the
/// baseline's group and then ablations are chosen.
fn chosen_for_bars<'a, 'b>(
    drawn: &'b [PlottedRun<'a>],
    options: &FigureOptions,
) -> (Vec<SeedGroup<'a, 'b>>, bool) {
    const THEN: [Method; 6] = [
        Method::SgsNoGuide,
        Method::SgsLearnedGuide,
        Method::SgsFrozenConjecturer,
        Method::SgsNoConditioning,
        Method::SgsCispo,
        Method::Stp,
    ];
    let mut groups: Vec<SeedGroup<'a, 'b>> = groups(drawn);
    if groups.len() <= MOST_GROUPS_OF_BARS {
        return (groups, true);
    }
    let first = [super::main_run(drawn), baseline_of(drawn, options)].map(|d| d.map(|d| d.group));
    let is_first = |g: &SeedGroup<'_, '_>| g.runs.iter().any(|d| first.contains(&Some(d.group)));
    let rank = |g: &SeedGroup<'_, '_>| THEN.iter().position(|m| g.method() == Some(*m)).unwrap_or(THEN.len());
    groups.sort_by_key(|g| (!is_first(g), rank(g)));
    groups.truncate(MOST_GROUPS_OF_BARS);
    (groups, false)
}

/// Fractions of problems by solve rate in the last 10% of each run's rounds.
fn rates_panel(groups: &[SeedGroup<'_, '_>], title: &str, name: &str) -> Option<FigurePanel> {
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
    (!series.is_empty()).then(|| FigurePanel {
        title: title.to_owned(),
        shape: PanelShape::Half,
        content: PanelContent::Bars(Bars {
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

/// Verdicts of the checker over time, for targets and for conjectures.
pub(super) fn verdicts(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let run = super::main_run(drawn)?.run;
    let of = |title: &str, prefix: &str| -> Option<FigurePanel> {
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
        // Omit verdicts that never occur.
        series.retain(|s| s.points.iter().any(|p| p.1 > 0.0));
        let y = share("Share of rollouts");
        (!series.is_empty()).then(|| {
            panel(title, PanelShape::Half, Xy { x: generations_axis(), y, series, lines: Vec::new() })
        })
    };
    figure(
        "verdicts",
        "Verdicts",
        "The checker's verdicts on the Solver's rollouts: proved, refused, malformed (no parseable proof), resource (out of time or memory) and infra (checker failure, not counted as an attempt). Verdicts that never occurred are omitted.",
        vec![of("Rollouts of targets", "target"), of("Rollouts of conjectures", "conjecture")],
    )
}

/// Diagnostics: lengths, malformed output, and the gap between sampler and trainer.
pub(super) fn health(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let count = |label: &str| Axis::new(label, Unit::Count).from(0.0);
    let gap = Axis::new("Log-prob gap (nats)", Unit::Plain).from(0.0);
    smoothed_figure(
        drawn,
        "health",
        "Health of the run",
        "Tokens per rollout and per conjecture, fractions of malformed output, mean absolute difference between the log-probabilities of sampler and trainer, and fraction of rollouts lost by the system.",
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
        title: "Wall time by stage".into(),
        caption: format!(
            "Wall time of the rounds by stage{per}. Checking overlaps with sampling. \"Rest of sampling\" is the time of the stage outside the sampler: prompts, last verdicts and the journal."
        ),
        panels: vec![FigurePanel {
            title: String::new(),
            shape: PanelShape::Wide,
            content: PanelContent::Bars(Bars {
                x_label: "Round".into(),
                categories,
                y: Axis::new("Wall time", Unit::Duration).from(0.0),
                series,
                stacked: true,
            }),
        }],
    })
}
