//! Figures of the training dynamics: rewards, conjectures, entropy, verdicts and time (paper, Fig. 2, 3, 7).

use super::common::{about_means, bars_panel, baseline_of, generations_axis, panel, smoothed_series};
use super::{FigureOptions, MOST_POINTS, PlottedRun, SeedGroup, groups, thinned};
use crate::plot::{
    Axis, BarSeries, Bars, Figure, FigurePanel, Ink, PanelContent, PanelShape, ReferenceLine, Series, Unit,
    Xy,
};
use crate::run::{RunData, STAGES, metric, stage_seconds};
use sgs_rundir::metrics::names;
use sgs_selfplay::Method;

/// A figure of running means of metrics, with a panel for each metric that a run has.
struct MetricFigure {
    id: &'static str,
    title: &'static str,
    caption: &'static str,
    /// Title, metric, label and unit of the vertical axis.
    panels: &'static [(&'static str, &'static str, &'static str, Unit)],
}

const TRAINING: MetricFigure = MetricFigure {
    id: "training-dynamics",
    title: "Training dynamics",
    caption: "Solver on the targets: fraction proved at least once in the round (pass@k with k rollouts per target) and mean solve rate (pass@1). Conjecturer: mean reward R_synth (0 to 8), mean Guide score R_guide (0 to 8) and mean R_solve (0 to 1).",
    panels: &[
        ("Targets proved in the round", metric::TARGET_SHARE, "pass@k", Unit::Percent),
        ("Conjecturer's reward", metric::R_SYNTH, "Mean R_synth", Unit::Plain),
        ("Guide's score", metric::R_GUIDE, "Mean R_guide", Unit::Plain),
        ("Solve-rate reward", "r_solve", "Mean R_solve", Unit::Plain),
        ("Target solve rate", metric::TARGET_RATE, "pass@1", Unit::Percent),
        ("Conjecture solve rate", metric::CONJECTURE_RATE, "Mean solve rate", Unit::Percent),
    ],
};

const CONJECTURES: MetricFigure = MetricFigure {
    id: "conjecture-quality",
    title: "Quality of the conjectures",
    caption: "Fraction of the conjectures with a disjunctive conclusion, and mean length of their conclusions; horizontal lines show the targets. Below: conjectures that the Solver is trained on, and fraction of malformed ones.",
    panels: &[
        ("Disjunctive conclusions", "conjecture_share_disjunctive", "Share of conjectures", Unit::Percent),
        ("Length of conclusions", "conjecture_conclusion_length", "Mean length (tokens)", Unit::Plain),
        ("Trained on", metric::TRAINED, "Conjectures per round", Unit::Count),
        ("Malformed", metric::CONJECTURE_MALFORMED, "Share of conjectures", Unit::Percent),
    ],
};

const ENTROPY: MetricFigure = MetricFigure {
    id: "entropy",
    title: "Entropy and solve rates",
    caption: "Mean entropy per token, and distribution of the solve rates of conjectures and targets in the last 10% of the rounds. A Solver without entropy proves a problem always or never, so that the Conjecturer receives no reward.",
    panels: &[
        ("Solver's entropy", metric::SOLVER_ENTROPY, "Nats per token", Unit::Plain),
        ("Conjecturer's entropy", metric::CONJECTURER_ENTROPY, "Nats per token", Unit::Plain),
    ],
};

const HEALTH: MetricFigure = MetricFigure {
    id: "health",
    title: "Health of the run",
    caption: "Tokens per rollout and per conjecture, fractions of malformed output, mean absolute difference between the log-probabilities of sampler and trainer, and fraction of rollouts lost by the system.",
    panels: &[
        ("Length of rollouts", "solver_tokens_mean", "Tokens", Unit::Count),
        ("Length of conjectures", "conjecturer_tokens_mean", "Tokens", Unit::Count),
        ("Malformed proofs", "proof_share_malformed", "Share of rollouts", Unit::Percent),
        ("Malformed reviews", "review_share_malformed", "Share of reviews", Unit::Percent),
        ("Gap between sampler and trainer", names::SOLVER_LOG_PROB_GAP, "Log-prob gap (nats)", Unit::Plain),
        ("Lost rollouts", "infra_share", "Share of rollouts", Unit::Percent),
    ],
};

impl MetricFigure {
    fn of(&self, drawn: &[PlottedRun<'_>]) -> Option<Figure> {
        let panel_of = |&(title, name, label, unit): &(&str, &str, &str, Unit)| {
            let series = smoothed_series(drawn, name);
            let y = Axis::new(label, unit).from(0.0);
            let xy = Xy { x: generations_axis(), y, series, lines: Vec::new() };
            (!xy.series.is_empty()).then(|| panel(title, PanelShape::Half, xy))
        };
        let panels: Vec<FigurePanel> = self.panels.iter().filter_map(panel_of).collect();
        (!panels.is_empty()).then(|| Figure {
            id: self.id.into(),
            title: self.title.into(),
            caption: self.caption.to_owned() + &about_means(drawn),
            panels,
        })
    }
}

/// Returns the figure of the Solver's pass@k and the Conjecturer's rewards (Fig. 3).
pub(super) fn training(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    TRAINING.of(drawn)
}

/// Returns the figure of diagnostics: lengths, malformed output, and the gap between sampler and trainer.
pub(super) fn health(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    HEALTH.of(drawn)
}

/// Returns the figure of the disjunctions and lengths of the conjectures' conclusions (Fig. 2), with those of the
/// targets for comparison.
pub(super) fn conjecture_quality(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let mut figure = CONJECTURES.of(drawn)?;
    for (title, name) in [
        ("Disjunctive conclusions", "target_share_disjunctive"),
        ("Length of conclusions", "target_conclusion_length"),
    ] {
        let panel = figure.panels.iter_mut().find(|panel| panel.title == title);
        let value = drawn.iter().find_map(|d| d.run.last(name));
        if let (Some(FigurePanel { content: PanelContent::Xy(xy), .. }), Some(value)) = (panel, value) {
            xy.lines.push(ReferenceLine { value, label: "targets".into(), ink: Ink::Text });
        }
    }
    Some(figure)
}

/// Returns the figure of the entropy and the histograms of solve rates (Fig. 7).
pub(super) fn entropy(drawn: &[PlottedRun<'_>], options: &FigureOptions) -> Option<Figure> {
    let mut figure = ENTROPY.of(drawn)?;
    let (chosen, is_whole) = chosen_for_bars(drawn, options);
    if !is_whole {
        let names: Vec<&str> = chosen.iter().map(|g| g.label.as_str()).collect();
        figure.caption.push_str(&format!(" Histograms: {}.", names.join(", ")));
    }
    figure.panels.extend(rates_panel(&chosen, "Solve rates of conjectures", "conjecture_solve_rates"));
    figure.panels.extend(rates_panel(&chosen, "Solve rates of targets", "target_solve_rates"));
    Some(figure)
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

/// Returns the panel of the fractions of problems by solve rate in the last 10% of each run's rounds.
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
    let y = Axis::new("Share of problems", Unit::Percent).from(0.0);
    (!series.is_empty()).then(|| bars_panel(title, "Solve rate", categories, y, series))
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

/// Returns the figure of the checker's verdicts over time, for targets and for conjectures.
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
        let y = Axis::new("Share of rollouts", Unit::Percent).from(0.0);
        (!series.is_empty()).then(|| {
            panel(title, PanelShape::Half, Xy { x: generations_axis(), y, series, lines: Vec::new() })
        })
    };
    let panels = [of("Rollouts of targets", "target"), of("Rollouts of conjectures", "conjecture")];
    let panels: Vec<FigurePanel> = panels.into_iter().flatten().collect();
    (!panels.is_empty()).then(|| Figure {
        id: "verdicts".into(),
        title: "Verdicts".into(),
        caption: "The checker's verdicts on the Solver's rollouts: proved, refused, malformed (no parseable proof), resource (out of time or memory) and infra (checker failure, not counted as an attempt). Verdicts that never occurred are omitted.".into(),
        panels,
    })
}

const MOST_BARS: usize = 60;

/// Returns the figure of the wall time of each round by stage.
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
            "Wall time of the rounds by stage{per}. The stages add up to the wall time. Conjectures, rollouts and reviews are sampled at the same time: the time of the sampling stage is divided among them in proportion to the time that each spent in the sampler. Checks overlap with sampling, and the publication of a round with the next round; neither is a separate stage."
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
