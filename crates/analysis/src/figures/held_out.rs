//! Figure of the evaluations on held-out problems.

use super::common::{generations_axis, panel};
use super::{PlottedRun, groups};
use crate::plot::{Axis, Figure, FigurePanel, Ink, PanelShape, ReferenceLine, Series, Unit, Xy};
use crate::run::{RunData, metric};
use crate::stats::pass_at_k_interval;

/// Number of the colour of held-out problems on the page of a single run, whose targets have the run's colour.
const HELD_OUT: usize = 2;

/// Returns the figure of pass@1 and pass@k on held-out problems and on the targets over generations.
pub(super) fn held_out(drawn: &[PlottedRun<'_>]) -> Option<Figure> {
    let most = drawn.iter().flat_map(|d| d.run.held_out()).map(|e| e.samples()).max()?;
    let mut panels = vec![rates(drawn, 1)?];
    panels.extend((most > 1).then(|| rates(drawn, most)).flatten());
    let problems = drawn.iter().flat_map(|d| d.run.held_out()).map(|e| e.held_out.len()).max()?;
    let k = if most > 1 { format!(" and pass@{most}") } else { String::new() };
    let targets =
        if drawn.len() == 1 { " For comparison, the same metrics on the targets in each round." } else { "" };
    Some(Figure {
        id: "held-out".into(),
        title: "Held-out problems".into(),
        caption: format!(
            "pass@1{k} of the Solver on {problems} held-out problems, {most} samples each, with 95% bootstrap intervals over \
             the problems; at 0 generations, the Solver is the base model. These samples do not count as generations.{targets}"
        ),
        panels,
    })
}

fn rates(drawn: &[PlottedRun<'_>], k: u32) -> Option<FigurePanel> {
    let mut series: Vec<Series> = Vec::new();
    let mut lines = Vec::new();
    if let [d] = drawn {
        let name = if k == 1 { metric::TARGET_RATE.to_owned() } else { format!("target_pass_at_{k}") };
        let points = d.run.plotted(&name);
        if !points.is_empty() {
            series.push(Series::line("targets", d.ink, points));
        }
    }
    for group in groups(drawn) {
        for (i, d) in group.runs.iter().enumerate() {
            let name = if drawn.len() == 1 { "held out" } else { &group.label };
            let curve = of_run(d.run, k, name, if drawn.len() == 1 { Ink::Series(HELD_OUT) } else { d.ink });
            if i == 0
                && drawn.len() == 1
                && let Some(base) = curve.points.first().filter(|p| p.0 == 0.0)
            {
                lines.push(ReferenceLine { value: base.1, label: "base model".into(), ink: Ink::Muted });
            }
            series.push(curve);
        }
    }
    series.retain(|s| !s.points.is_empty());
    let y = Axis::new(format!("pass@{k}"), Unit::Percent).from(0.0);
    let xy = Xy { x: generations_axis(), y, series, lines };
    (!xy.series.is_empty()).then(|| panel(&format!("pass@{k}"), PanelShape::Half, xy))
}

fn of_run(run: &RunData, k: u32, name: &str, ink: Ink) -> Series {
    let mut series = Series::line(name, ink, Vec::new());
    for evaluation in run.held_out() {
        let Some(generations) = run.generations_before(evaluation) else { continue };
        let Some(rate) = pass_at_k_interval(&evaluation.held_out_tallies(), k, 0.95, k.into()) else {
            continue;
        };
        series.points.push((generations, rate.value));
        series.band.push((rate.low, rate.high));
    }
    series
}
