//! Cumulative solve rates of one or several runs (paper, Fig. 1, 5, 6; Appendix F).

use super::dynamics::{about_means, smoothed_series};
use super::seeds::Curve;
use super::{Drawn, FigureOptions, Group, groups, is_baseline};
use crate::fit::Fit;
use crate::plot::{
    Axis, Content, Figure, Ink, Panel, ReferenceLine, Series, Shape, Style, Unit, Xy, format_value,
};
use crate::run::{RunData, metric};
use crate::stats::{hard_curve, never_solved};
use sgs_selfplay::Method;

/// A rate of another model to measure curves against.
#[derive(Clone, Debug, PartialEq)]
pub struct Yardstick {
    /// What it stands for, such as "DSPv2 671B, pass@4".
    pub label: String,
    /// The rate, 0 to 1.
    pub rate: f64,
}

const FIT_POINTS: usize = 120;

fn rate_axis(label: &str) -> Axis {
    Axis::new(label, Unit::Percent)
}

pub(super) fn generations_axis() -> Axis {
    Axis::new("Generations", Unit::Count).from(0.0)
}

fn xy(x: Axis, y: Axis, series: Vec<Series>) -> Xy {
    Xy { x, y, series, lines: Vec::new() }
}

pub(super) fn panel(title: &str, shape: Shape, xy: Xy) -> Panel {
    Panel { title: title.to_owned(), shape, content: Content::Xy(xy) }
}

/// A curve of every group, the single runs of those with several faintly behind all.
fn series_of(groups: &[Group<'_, '_>], of: impl Fn(&RunData) -> Curve) -> Vec<Series> {
    let (mut behind, mut before) = (Vec::new(), Vec::new());
    for group in groups {
        let (runs, curve) = group.series(&of);
        behind.extend(runs);
        before.extend(curve);
    }
    behind.extend(before);
    behind
}

/// How many groups have a curve among these.
fn curves_in(series: &[Series]) -> usize {
    series.iter().filter(|s| s.style == Style::Line).count()
}

fn rates(run: &RunData) -> Curve {
    run.series(metric::CUMULATIVE)
}

/// What a caption says of groups with several seeds.
pub(super) fn about_seeds(groups: &[Group<'_, '_>]) -> String {
    if !groups.iter().any(Group::has_seeds) {
        return String::new();
    }
    let mut out =
        " Several seeds: their mean, a band from the lowest to the highest, and faint, the single runs."
            .to_owned();
    for group in groups {
        if let Some((shortest, longest)) = group.ends_early() {
            let [shortest, longest] = [shortest, longest].map(|g| format_value(g, Unit::Count, 3));
            let label = &group.label;
            out.push_str(&format!(
                " The mean of {label} ends at {shortest} generations with the shortest of its runs; the longest has {longest}."
            ));
        }
    }
    out
}

/// Room for a legend of so many curves.
fn shape(curves: usize) -> Shape {
    if curves > 4 { Shape::Wide } else { Shape::Half }
}

/// The fitted law from its origin to `until`, with its band at 95 %.
pub(super) fn fitted(fit: &Fit, name: String, ink: Ink, until: f64) -> Series {
    let (from, to) = (fit.law.origin, until.max(fit.range.1));
    let at = |i: usize| from + (to - from) * i as f64 / FIT_POINTS as f64;
    let points: Vec<(f64, f64)> = (0..=FIT_POINTS).map(|i| (at(i), fit.law.rate(at(i)))).collect();
    let band = points.iter().map(|(x, _)| fit.band(*x, 0.95)).collect::<Option<Vec<_>>>().unwrap_or_default();
    Series { name, ink, style: Style::Fit, points, band }
}

/// What stands in the place of an asymptote that the data do not determine.
pub(crate) const NOT_YET: &str = "not yet";

/// How a fit is said in a few words: its asymptote, with its interval or the spread of the fits that confirm it, whichever
/// is wider.
pub(crate) fn describe(fit: &Fit) -> String {
    match fit.uncertainty(0.95).filter(|_| fit.is_identified()) {
        Some(half) => {
            format!("{} ± {:.1}", format_value(fit.law.asymptote, Unit::Percent, 3), 100.0 * half)
        }
        None => NOT_YET.to_owned(),
    }
}

/// Cumulative solve rate with fits and yardsticks (Fig. 1).
pub(super) fn cumulative(drawn: &[Drawn<'_>], options: &FigureOptions) -> Option<Figure> {
    let until = drawn.iter().filter_map(|d| d.run.last(metric::GENERATIONS)).fold(0.0, f64::max);
    let groups = groups(drawn);
    let mut series = series_of(&groups, rates);
    if series.is_empty() {
        return None;
    }
    let mut laws = Vec::new();
    let single = groups.len() == 1;
    // The bands of many runs would hide each other: then the main run and the baseline have theirs, and the table all.
    let chosen: Vec<usize> =
        [super::main_run(drawn), baseline_of(drawn, options)].iter().flatten().map(|d| d.group).collect();
    let is_chosen = |g: &Group<'_, '_>| groups.len() <= 3 || g.runs.iter().any(|d| chosen.contains(&d.group));
    for group in &groups {
        let Ok(fit) = group.fit(&options.fit) else { continue };
        if fit.is_identified() {
            let name =
                if single { format!("Scaling law, A = {}", describe(&fit)) } else { "Scaling laws".into() };
            if is_chosen(group) {
                let mut law = fitted(&fit, name, group.ink, until);
                // One band is read well, two of one colour are not.
                if group.has_seeds() {
                    law.band.clear();
                }
                series.push(law);
            }
            laws.push(format!("{}: A = {}", group.label, describe(&fit)));
        }
    }
    let mut plot = xy(generations_axis(), rate_axis("Cumulative solve rate"), series);
    let alone = sampling_alone(drawn, until);
    plot.series.extend(alone.iter().map(|alone| alone.series.clone()));
    for (i, yardstick) in options.yardsticks.iter().enumerate() {
        plot.lines.push(ReferenceLine {
            value: yardstick.rate,
            label: yardstick.label.clone(),
            ink: if i == 0 { Ink::Text } else { Ink::Muted },
        });
    }
    let laws = match laws.len() {
        0 => " No scaling law yet: none that the data determine, and that the same curve without its end and random halves of it confirm.".to_owned(),
        _ => format!(
            " Dashed{}: R = R₀ + (A − R₀) / (1 + (C_mid / C)^B){}. Asymptotes with 95 % intervals, or as far as the fits without the last points and on random halves lie apart where that is more: {}.",
            if groups.len() > 3 { ", for the main run and the baseline" } else { "" },
            if groups.iter().any(Group::has_seeds) {
                ", of the mean of the seeds"
            } else {
                ", with 95 % bands"
            },
            laws.join("; ")
        ),
    };
    let seeds = about_seeds(&groups);
    Some(Figure {
        id: "cumulative-solve-rate".into(),
        title: "Cumulative solve rate".into(),
        caption: format!(
            "Share of the targets that were proved at least once, over all rollouts of the Solver so far.{seeds}{}{laws}",
            alone.map_or_else(String::new, |alone| alone.caption)
        ),
        panels: vec![panel("", Shape::Wide, plot)],
    })
}

/// What sampling alone would come to.
struct SamplingAlone {
    series: Series,
    caption: String,
}

/// An estimate for the main run, where no run has measured it.
fn sampling_alone(drawn: &[Drawn<'_>], until: f64) -> Option<SamplingAlone> {
    if drawn.iter().any(|d| d.run.method == Some(Method::SamplingOnly)) {
        return None;
    }
    let (targets, alone) = super::main_run(drawn)?.run.sampling_alone()?;
    let samples = alone.samples;
    let at = |i: usize| until * i as f64 / FIT_POINTS as f64;
    let estimates: Vec<_> = (0..=FIT_POINTS).map(|i| (at(i), alone.solved(at(i) / targets))).collect();
    let points = estimates.iter().map(|(x, e)| (*x, e.value)).collect();
    let band = estimates.iter().map(|(_, e)| (e.low, e.high)).collect();
    let (name, ink, style) = ("sampling alone (estimate)".to_owned(), Ink::Muted, Style::Fit);
    let beyond = (until / targets / f64::from(samples)).max(1.0);
    Some(SamplingAlone {
        series: Series { name, ink, style, points, band },
        caption: format!(
            " Sampling alone is an estimate, not a measurement: what the base model would prove with as many generations, \
             spread evenly over the targets, from {samples} samples of each (the mean of two laws of solve rates; the curve \
             ends at {beyond:.0} times as many; band: 95 %, from the lower law to the higher). A run of sampling-only \
             measures it."
        ),
    })
}

fn subset<'a, 'b>(drawn: &'b [Drawn<'a>], wanted: impl Fn(Method) -> bool) -> Vec<&'b Drawn<'a>> {
    drawn.iter().filter(|d| d.run.method.is_some_and(&wanted)).collect()
}

/// The baselines that train on targets alone (Fig. 5).
pub(super) fn baselines(drawn: &[Drawn<'_>]) -> Option<Figure> {
    let chosen = subset(drawn, is_baseline);
    let groups = groups(chosen);
    let series = series_of(&groups, rates);
    if curves_in(&series) < 2 {
        return None;
    }
    Some(Figure {
        id: "baselines".into(),
        title: "Baselines".into(),
        caption: format!("Methods that train the Solver on the targets alone.{}", about_seeds(&groups)),
        panels: vec![panel(
            "",
            shape(curves_in(&series)),
            xy(generations_axis(), rate_axis("Cumulative solve rate"), series),
        )],
    })
}

/// Entropy of the baselines (Appendix F.1).
pub(super) fn baseline_entropy(drawn: &[Drawn<'_>]) -> Option<Figure> {
    let chosen = subset(drawn, is_baseline);
    let series = smoothed_series(chosen.iter().copied(), metric::SOLVER_ENTROPY);
    if curves_in(&series) < 2 {
        return None;
    }
    let y = Axis::new("Mean entropy per token (nats)", Unit::Plain).from(0.0);
    Some(Figure {
        id: "baseline-entropy".into(),
        title: "Entropy of the baselines".into(),
        caption: format!(
            "Mean entropy per token of the Solver's distribution.{}",
            about_means(chosen.iter().copied())
        ),
        panels: vec![panel("", shape(curves_in(&series)), xy(generations_axis(), y, series))],
    })
}

/// SGS without each of its parts (Fig. 6).
pub(super) fn ablations(drawn: &[Drawn<'_>]) -> Option<Figure> {
    let is_ablation = |m| {
        matches!(
            m,
            Method::SgsNoGuide
                | Method::SgsLearnedGuide
                | Method::SgsFrozenConjecturer
                | Method::SgsNoConditioning
                | Method::SgsCispo
        )
    };
    if subset(drawn, is_ablation).is_empty() {
        return None;
    }
    let chosen = subset(drawn, |m| is_ablation(m) || m == Method::Sgs || m == Method::ReinforceHalf);
    if chosen.len() < 2 {
        return None;
    }
    let groups = groups(chosen.iter().copied());
    let solved = series_of(&groups, rates);
    let trained = smoothed_series(chosen.iter().copied(), metric::TRAINED);
    let count = Axis::new("Conjectures trained on per round", Unit::Count).from(0.0);
    Some(Figure {
        id: "ablations".into(),
        title: "Ablations".into(),
        caption: format!(
            "Left: cumulative solve rate.{} Right: conjectures on which the Solver is trained in each round.{}",
            about_seeds(&groups),
            about_means(chosen.iter().copied())
        ),
        panels: vec![
            panel("", Shape::Half, xy(generations_axis(), rate_axis("Cumulative solve rate"), solved)),
            panel("", Shape::Half, xy(generations_axis(), count, trained)),
        ],
    })
}

/// The run whose unsolved targets make D_hard.
pub(crate) fn baseline_of<'a, 'b>(drawn: &'b [Drawn<'a>], options: &FigureOptions) -> Option<&'b Drawn<'a>> {
    match options.baseline {
        Some(at) => drawn.get(at),
        None => {
            let half = drawn.iter().find(|d| d.run.method == Some(Method::ReinforceHalf));
            half.or_else(|| drawn.iter().find(|d| d.run.method.is_some_and(is_baseline)))
        }
    }
}

/// Rounds of a run with their generations.
pub(crate) fn round_generations(run: &RunData) -> Vec<(u32, f64)> {
    run.rounds.iter().filter_map(|r| Some((r.round, RunData::value(r, metric::GENERATIONS)?))).collect()
}

/// The group whose unsolved targets make D_hard: the whole group of the baseline, or one run that was asked for by name.
fn hard_baseline<'a, 'b>(drawn: &'b [Drawn<'a>], options: &FigureOptions) -> Option<Group<'a, 'b>> {
    let baseline = baseline_of(drawn, options)?;
    match options.baseline {
        Some(_) => Some(Group { label: baseline.label.clone(), ink: baseline.ink, runs: vec![baseline] }),
        None => groups(drawn).into_iter().find(|g| g.runs.iter().any(|d| d.group == baseline.group)),
    }
}

/// Progress on the targets that the baseline never solves (Appendix F.3).
pub(super) fn hard(drawn: &[Drawn<'_>], options: &FigureOptions) -> Option<Figure> {
    let baseline = hard_baseline(drawn, options)?;
    let never: Vec<_> = baseline.runs.iter().map(|d| never_solved(&d.run.targets)).collect();
    let hard = never.into_iter().reduce(|a, b| a.intersection(&b).copied().collect())?;
    if hard.is_empty() {
        return None;
    }
    let groups = groups(drawn);
    let series = series_of(&groups, |run| hard_curve(&run.targets, &hard, &round_generations(run)));
    Some(Figure {
        id: "hard-targets".into(),
        title: "Targets beyond the baseline".into(),
        caption: format!(
            "Cumulative solve rate on D_hard: the {} targets that {} never solves in {}.{}",
            hard.len(),
            baseline.label,
            if baseline.has_seeds() { "any of its runs" } else { "its whole run" },
            about_seeds(&groups)
        ),
        panels: vec![panel(
            "",
            shape(curves_in(&series)),
            xy(generations_axis(), rate_axis("Solved of D_hard").from(0.0), series),
        )],
    })
}

/// Cumulative solve rate over wall time.
pub(super) fn by_wall_time(drawn: &[Drawn<'_>]) -> Option<Figure> {
    let groups = groups(drawn);
    let mut series = series_of(&groups, rate_by_time);
    series.retain(|s| s.points.len() > 1);
    if series.is_empty() {
        return None;
    }
    let x = Axis::new("Wall time", Unit::Duration).from(0.0);
    Some(Figure {
        id: "wall-time".into(),
        title: "Cumulative solve rate over wall time".into(),
        caption: format!(
            "The same curves over the time that the rounds took on their machines; pauses do not count where rounds measure their own duration.{}",
            about_seeds(&groups)
        ),
        panels: vec![panel("", shape(curves_in(&series)), xy(x, rate_axis("Cumulative solve rate"), series))],
    })
}

/// (seconds, cumulative solve rate), round by round.
pub(crate) fn rate_by_time(run: &RunData) -> Vec<(f64, f64)> {
    let clock = run.clock();
    let rates = run.series(metric::CUMULATIVE);
    clock
        .into_iter()
        .filter_map(|(generations, seconds)| {
            rates.iter().find(|r| r.0 == generations).map(|r| (seconds, r.1))
        })
        .filter(|p| p.0.is_finite())
        .collect()
}
