//! Figures of the training dynamics: rewards, conjectures, health and time (paper, Fig. 2, 3, 7).

use super::PlottedRun;
use super::common::{about_means, bars_panel, generations_axis, panel, smoothed_series};
use crate::plot::{
    Axis, BarSeries, Bars, Figure, FigurePanel, Ink, PanelContent, PanelShape, ReferenceLine, Unit, Xy,
};
use crate::run::{RunData, STAGES, metric, stage_seconds};
use sgs_rundir::metrics::names;

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
    caption: "Fraction of the conjectures with a disjunctive conclusion, and mean length of their conclusions; horizontal lines show the targets. Below: conjectures that the Solver is trained on, fractions of malformed, new and padded ones, and the Guide's score of padded ones. Padded: at least two variables, and more than in the target, occur once.",
    panels: &[
        ("Disjunctive conclusions", "conjecture_share_disjunctive", "Share of conjectures", Unit::Percent),
        ("Length of conclusions", "conjecture_conclusion_length", "Mean length (tokens)", Unit::Plain),
        ("Trained on", metric::TRAINED, "Conjectures per round", Unit::Count),
        ("Malformed", metric::CONJECTURE_MALFORMED, "Share of conjectures", Unit::Percent),
        ("New", "conjecture_share_novel", "Share of conjectures", Unit::Percent),
        ("Padded", metric::CONJECTURE_PADDED, "Share of conjectures", Unit::Percent),
        ("Guide's score of padded ones", "r_guide_padded", "Mean R_guide", Unit::Plain),
    ],
};

const HEALTH: MetricFigure = MetricFigure {
    id: "health",
    title: "Health of the run",
    caption: "Tokens per rollout and per conjecture, fractions of malformed output, mean absolute difference between the log-probabilities of sampler and trainer, fraction of rollouts lost by the system, and mean entropy per token. A Solver without entropy proves a problem always or never, so that the Conjecturer receives no reward.",
    panels: &[
        ("Length of rollouts", "solver_tokens_mean", "Tokens", Unit::Count),
        ("Length of conjectures", "conjecturer_tokens_mean", "Tokens", Unit::Count),
        ("Malformed proofs", "proof_share_malformed", "Share of rollouts", Unit::Percent),
        ("Malformed reviews", "review_share_malformed", "Share of reviews", Unit::Percent),
        ("Gap between sampler and trainer", names::SOLVER_LOG_PROB_GAP, "Log-prob gap (nats)", Unit::Plain),
        ("Lost rollouts", "infra_share", "Share of rollouts", Unit::Percent),
        ("Solver's entropy", metric::SOLVER_ENTROPY, "Nats per token", Unit::Plain),
        ("Conjecturer's entropy", metric::CONJECTURER_ENTROPY, "Nats per token", Unit::Plain),
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
        panels: vec![bars_panel(Bars {
            x_label: "Round".into(),
            categories,
            y: Axis::new("Wall time", Unit::Duration).from(0.0),
            series,
        })],
    })
}
